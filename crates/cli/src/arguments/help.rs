//! What `--help` shows: examples first, then an option to a line, in groups.

use super::Arguments;
use crate::thresholds;
use clap::{Arg, ArgAction, Command, CommandFactory};

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\nExamples:\n{before-help}{all-args}{after-help}";

/// What the end of the program says.
pub(crate) const EXIT_STATUS: [(&str, &str); 7] = [
    ("0", "well"),
    ("1", "something failed"),
    ("2", "the command line, or a configuration, is wrong: nothing was run"),
    ("3", "nothing was run: resources or the server are missing"),
    ("4", "an agent was lost"),
    ("99", "a threshold was not kept"),
    ("129, 130, 143", "ended by SIGHUP, SIGINT or SIGTERM"),
];

const EXIT_CODES: &str = "Exit codes: 0 well, 1 something failed, 2 the command line, 3 nothing was run, 4 an agent was lost,\n99 a threshold was not kept, 129, 130 and 143 a signal";

/// Of each command, in the order in which one tries them.
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
        &["trial", "trial --changes 1000 --model prefork", "trial http://127.0.0.1/ --change './reload' --allow idle-close"],
    ),
];

/// All examples.
pub(crate) fn all_examples() -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().flat_map(|(_, examples)| examples.iter().copied())
}

/// What is tried first of a command.
pub(crate) fn examples(command: &str) -> &'static [&'static str] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| *examples)
}

fn help() -> Arg {
    Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print help").help_heading(None::<&str>)
}

/// Stands for `{` of `{n}` while clap writes a help, in which it would be a line break.
const BRACE: &str = "\u{e000}";

fn with_braces(option: Arg) -> Arg {
    match option.get_help().map(ToString::to_string).filter(|help| help.contains("{n}")) {
        Some(help) => option.help(help.replace("{n}", &format!("{BRACE}n}}"))),
        None => option,
    }
}

/// Returns the definition with which a help can be written; [`shown`] is what it says.
pub(crate) fn helping() -> Command {
    command().mut_subcommands(|command| command.mut_args(with_braces))
}

/// Returns a written help as it is shown.
pub(crate) fn shown(help: &str) -> String {
    help.replace(BRACE, "{")
}

/// The definition of the command line.
pub(crate) fn command() -> Command {
    Arguments::command().after_help(EXIT_CODES).mut_subcommands(|command| {
        let examples = examples(command.get_name());
        if examples.is_empty() {
            return command;
        }
        let lines: String = examples.iter().map(|example| format!("  sockdrawer {example}\n")).collect();
        // What is disabled is disabled for the commands below it, too.
        let command = command.help_template(TEMPLATE).before_help(lines).disable_help_flag(true).arg(help());
        let command = command.mut_subcommands(|below| below.arg(help()));
        let has_thresholds = command.get_arguments().any(|argument| argument.get_id() == "threshold");
        let thresholds = has_thresholds.then(thresholds::known).map(|known| format!("{known}\n\n"));
        command.after_help(thresholds.unwrap_or_default() + EXIT_CODES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let help = helping().find_subcommand_mut("trial").expect("it is a command").clone().term_width(80).render_help();
        let text = shown(&help.to_string()).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(r"'PING {n}\n'") && text.contains(r"'PONG {n}\n'") && !text.contains(BRACE), "{text}");
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
