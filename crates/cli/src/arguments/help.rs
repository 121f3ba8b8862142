//! The whole command line: the commands of all programs that serve, and those of this one, with their examples.

use super::Command as Own;
use crate::checks;
use crate::protocols::{TARGET_COLUMNS, TARGET_METRICS, TARGETS, no_circle, protocols, take_targets_over, target_rows};
use crate::thresholds;
use clap::{Command, Subcommand};
use sockdrawer_operate::{Document, Moment, Operated};
use sockdrawer_program::Program;
use sockdrawer_program::help::exit_codes;

/// The commands, in the order in which help lists them.
const ORDER: [&str; 14] = [
    "serve", "check", "ctl", "load", "doctor", "find", "report", "schema", "compare", "upgrade", "parent", "agent", "generate",
    "trial",
];

/// The files that are generated, in that order too.
const GENERATED: [&str; 5] = ["k8s", "schema", "man", "reference", "completions"];

/// Examples of each command, in the order in which one tries them.
const EXAMPLES: [(&str, &[&str]); 13] = [
    ("serve", &["serve echo -l 127.0.0.1:9000", "serve http --limit 1000 --on-full reject", "serve --config sockdrawer.toml"]),
    ("check", &["check sockdrawer.toml"]),
    (
        "ctl",
        &[
            "ctl status",
            "ctl reload --dry-run",
            "ctl connections --peer 10.0.0.0/8 --older-than 1h",
            "ctl drain --pool web --all --within 30s",
            "ctl top",
        ],
    ),
    (
        "load",
        &[
            "load http://127.0.0.1:8080/ -c 100 -d 30s",
            "load http://127.0.0.1:8080/ --rate 2000 --threshold 'p99<50ms'",
            "load ping 10.0.0.1:9000 -c 10k --hold 1m",
            "load https://127.0.0.1:8443/ --ca ca.pem -c 100",
        ],
    ),
    ("doctor", &["doctor -c 100k", "doctor 10.0.0.1:9000 -c 100k", "doctor https://127.0.0.1:8443/"]),
    (
        "find",
        &[
            "find ping 10.0.0.1:9000 --threshold 'p99<100ms'",
            "find http://127.0.0.1:8080/ --vary rate --threshold 'p99<20ms'",
            "find http://10.0.0.1/ --close server --vary connect-rate --max 20k",
        ],
    ),
    ("report", &["report run"]),
    ("compare", &["compare before after", "compare before-1,before-2 after-1,after-2"]),
    (
        "upgrade",
        &["upgrade /run/chat.sock --rehearse", "upgrade /run/chat.sock", "upgrade /run/chat.sock -- /opt/chat-2 --port 9000"],
    ),
    ("generate", &["generate completions bash", "generate man", "generate reference"]),
    ("parent", &["parent /run/chat.sock -- /opt/chat --port 9000"]),
    ("agent", &["agent --join run.example:7000 --token-file token --index 0 --of 3"]),
    (
        "trial",
        &[
            "trial",
            "trial --changes 1000 --model prefork",
            "trial http://127.0.0.1/ --change './reload' --allow idle-close",
            "trial upgrade ./chat-1 ./chat-2 -- serve --listen :9000",
        ],
    ),
];

/// Returns this program, as far as it serves. It has no configuration of its own: the command line names a protocol or a file.
pub(crate) fn program() -> Program {
    let targets = &*TARGET_METRICS;
    let operated = Operated::with(Document::default())
        .version(env!("CARGO_PKG_VERSION"))
        .metric(&targets.clients)
        .metric(&targets.waiting)
        .metric(&targets.timeouts)
        .metric(&targets.limit)
        .metric(&targets.left_out)
        .metric(&targets.checks)
        .metric(&targets.connects)
        .metric(&targets.connect_time)
        .metric(&targets.bytes)
        .carry("checks", checks::write, checks::read)
        .carry("targets", || TARGETS.hand_over(), take_targets_over)
        .hook(|moment, _| {
            match moment {
                Moment::Started => TARGET_METRICS.show_limits(),
                Moment::Changed => {
                    TARGETS.changed();
                    TARGET_METRICS.show_limits();
                }
                Moment::TakenBack => TARGETS.take_back(),
                Moment::ServesAlone => TARGETS.serves_alone(),
                _ => {}
            }
            Ok(())
        })
        .rule(no_circle)
        .shows("targets", &TARGET_COLUMNS, target_rows);
    Program::new("sockdrawer", protocols().into_iter().fold(operated, Operated::protocol))
        .about("Holds sockets so that the program around them can change")
        .examples(&EXAMPLES)
        .exit_status(4, "an agent was lost")
        .exit_status(99, "a threshold was not kept")
        .environment("SSL_CERT_FILE", "load: the authorities that are trusted, unless --ca names them")
        .files("result.json, report.html", "a run, in the folder that --out names")
}

/// Returns the definition of the command line.
pub(crate) fn command() -> Command {
    let program = program();
    let own: Vec<Command> = Own::augment_subcommands(Command::new("own")).get_subcommands().cloned().collect();
    let mut commands = program.commands();
    let generate = commands.iter_mut().find(|command| command.get_name() == "generate");
    generate.into_iter().for_each(|generate| *generate = generating(generate, &own));
    commands.extend(own.into_iter().filter(|command| command.get_name() != "generate"));
    commands.sort_by_key(|command| ORDER.iter().position(|name| *name == command.get_name()));
    program.command_of(commands).mut_subcommands(|command| {
        let has_thresholds = command.get_arguments().any(|argument| argument.get_id() == "threshold");
        if has_thresholds { command.after_help(format!("{}\n\n{}", thresholds::known(), exit_codes(&program))) } else { command }
    })
}

/// Returns the command that prints files for other programs: for each program, and for this one alone.
fn generating(generate: &Command, own: &[Command]) -> Command {
    let own = own.iter().find(|command| command.get_name() == "generate");
    let mut files: Vec<Command> =
        [Some(generate), own].into_iter().flatten().flat_map(Command::get_subcommands).cloned().collect();
    files.sort_by_key(|file| GENERATED.iter().position(|name| *name == file.get_name()));
    let schema = files.iter_mut().find(|file| file.get_name() == "schema");
    schema.into_iter().for_each(|schema| {
        let about = schema.get_about().map(ToString::to_string).unwrap_or_default();
        *schema = schema.clone().long_about(format!("{about}.\n\nThat of results is printed by `sockdrawer schema`"));
    });
    let files = files.into_iter().enumerate().map(|(at, file)| file.display_order(at));
    let about = generate.get_about().map(ToString::to_string).unwrap_or_default();
    Command::new("generate").about(about).subcommand_required(true).arg_required_else_help(true).subcommands(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer_program::help::{helping, shown};

    #[test]
    fn examples_are_understood_and_fit_80_columns() {
        for example in EXAMPLES.iter().flat_map(|(_, examples)| *examples) {
            let words = shlex::split(&format!("sockdrawer {example}")).expect("quotes that are closed");
            assert!(matches!(crate::usage::parse(words.into_iter().map(Into::into)), Ok(Some(_))), "{example}");
            assert!(format!("  sockdrawer {example}").len() <= 80, "{example}");
        }
    }

    #[test]
    fn the_place_of_a_number_is_shown_as_it_is_written() {
        let help = helping(command()).find_subcommand_mut("trial").expect("it is a command").clone().term_width(80).render_help();
        let text = shown(&help.to_string()).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(r"'PING {n}\n'") && text.contains(r"'PONG {n}\n'"), "{text}");
        let help = helping(command()).try_get_matches_from(["sockdrawer", "trial", "upgrade", "--help"]).expect_err("a help");
        let text = shown(&help.to_string());
        assert!(text.contains("{n}") && !text.contains("\n'; \n"), "{text}");
    }

    #[test]
    fn every_command_has_a_help_that_can_be_asked_for() {
        fn ask(words: &[String], command: &Command) {
            for flag in ["--help", "-h"] {
                let asked = words.iter().cloned().chain([flag.to_owned()]);
                let refused = super::command().try_get_matches_from(asked).expect_err("the help is printed");
                assert_eq!(refused.kind(), clap::error::ErrorKind::DisplayHelp, "{words:?} {flag}: {refused}");
            }
            for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
                ask(&[words, &[below.get_name().to_owned()]].concat(), below);
            }
        }
        ask(&["sockdrawer".to_owned()], &command());
    }

    #[test]
    fn help_begins_with_examples_and_the_usual_options_on_the_first_screen() {
        for name in ["serve", "load", "find", "trial"] {
            let help =
                command().find_subcommand_mut(name).expect("it is a command").clone().term_width(80).render_help().to_string();
            let screen: Vec<&str> = help.lines().take(24).collect();
            let begins = |start: &str| screen.iter().any(|line| line.trim_start().starts_with(start));
            assert!(begins("Examples:") && begins("Options:") && begins("-"), "{}", screen.join("\n"));
        }
    }
}
