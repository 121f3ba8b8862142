//! The commands of a program: their definitions, and the way from the words of the command line to what one of them does.

use crate::arguments::{self, Asked, ServeArguments};
use crate::outcome::{Exit, Failure};
use crate::program::Program;
use crate::usage::Misread;
use crate::{check, ctl, generate, help, parent, print, serve, upgrade};
use clap::{ArgMatches, Command, FromArgMatches};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// The time in which standard error has to take the last line.
const PATIENCE: Duration = Duration::from_secs(1);

impl Program {
    /// Returns the definition of the command line: the commands that all programs have.
    pub fn command(&self) -> Command {
        self.command_of(arguments::commands(self))
    }

    /// Returns the definitions of the commands that all programs have, for one that has others too: see [`Program::command_of`].
    pub fn commands(&self) -> Vec<Command> {
        arguments::commands(self)
    }

    /// Returns the definition of a command line with these commands, in this order, in the form in which help shows them.
    pub fn command_of(&self, commands: impl IntoIterator<Item = Command>) -> Command {
        let root = Command::new(self.name())
            .bin_name(self.name())
            .version(self.operated().build_version().to_owned())
            .about(self.about_text().to_owned());
        let root = root.max_term_width(100).subcommand_required(true).arg_required_else_help(true);
        // Help lists a command where it stood in the definition that it comes from, unless told otherwise.
        let commands = commands.into_iter().enumerate().map(|(at, command)| command.display_order(at));
        help::in_form(self, root.subcommands(commands))
    }

    /// Does what the command line asks for. None: that is no command of all programs. `definition` is that of the whole command line.
    pub fn run(&self, definition: &Command, matches: &ArgMatches) -> Option<Result<Exit, Failure>> {
        if let Some(("serve", given)) = matches.subcommand() {
            return Some(serve::run(self, ServeArguments::of(self, given)));
        }
        Some(match Asked::from_arg_matches(matches).ok()? {
            Asked::Check(arguments) => check::run(self, &arguments),
            Asked::Ctl(arguments) => ctl::run(self.name(), *arguments),
            Asked::Upgrade(arguments) => upgrade::run(arguments),
            Asked::Parent(arguments) => parent::run(arguments),
            Asked::Generate(asked) => generate::run(self, definition, &asked),
        })
    }

    /// Returns a unit of systemd that serves the program's configuration file, or `/etc/NAME/NAME.toml`, in a sandbox.
    pub fn unit(&self) -> String {
        generate::unit(self)
    }

    /// Returns the man page, as roff; `definition` is that of the whole command line.
    pub fn manual(&self, definition: &Command) -> String {
        generate::man::page(self, definition)
    }

    /// Runs it as `main`: does what the command line of this process asks for, and tells in one line on standard error why that failed.
    pub fn main(self) -> ExitCode {
        sockdrawer::reset_signals();
        end(self.asked(std::env::args_os().collect()))
    }

    fn asked(&self, words: Vec<OsString>) -> Result<Exit, Failure> {
        let definition = self.command();
        let matches = match help::helping(definition.clone()).try_get_matches_from(&words) {
            Ok(matches) => matches,
            Err(error) if error.use_stderr() => {
                let misread = Misread { definition: &definition, words: &words, error: &error };
                return Err(Failure::usage(format_args!("{} {}", misread.reason(self, |_| None), misread.hint())));
            }
            Err(help) => return print::line(help::shown(&help.to_string()).trim_end()).map(|()| Exit::Ok),
        };
        self.run(&definition, &matches).unwrap_or(Ok(Exit::Ok))
    }
}

/// Ends a program: a failure is one line on standard error.
pub fn end(result: Result<Exit, Failure>) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // The program that asked for a next build reads its reason. Other commands may be a part of what starts one.
            if std::env::args_os().nth(1).is_some_and(|command| command == "serve") {
                sockdrawer::upgrade::give_up(&failure.to_string());
            }
            print::tell_within(PATIENCE, format_args!("error: {failure}"));
            failure.exit.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockdrawer::{Behaviour, Config};
    use sockdrawer_operate::{Kind, Operated, Protocol, Setting, Text};

    const WORDS: Setting =
        Setting::new("words", Kind::List(Text { form: "WORDS", check: |_| Ok(()) }), "run: the program").behind_dashes();
    const SIZE: Setting = Setting::new("size", Kind::Size, "size of sockdrawer's messages");
    const COUNT: Setting = Setting::new("size", Kind::Count(1), "the number of messages");

    fn protocol(name: &'static str, settings: &[Setting]) -> Protocol {
        let protocol = Protocol::new(name, "for a test", |_| Ok(Config::accept(Behaviour::exec("cat", [""; 0]))));
        settings.iter().fold(protocol, |protocol, setting| protocol.setting(*setting))
    }

    fn program(protocols: impl IntoIterator<Item = Protocol>) -> Program {
        let operated = Operated::new("/etc/chat.toml").version("1.2.3");
        Program::new("chat", protocols.into_iter().fold(operated, Operated::protocol))
    }

    fn several() -> Program {
        program([protocol("one", &[SIZE]), protocol("two", &[COUNT]), protocol("run", &[WORDS])])
    }

    fn refused(program: &Program, words: &str) -> String {
        let words = ["chat"].into_iter().chain(words.split_whitespace()).map(Into::into).collect();
        program.asked(words).expect_err("it is refused").to_string()
    }

    #[test]
    fn definitions_are_consistent() {
        several().command().debug_assert();
        program([protocol("chat", &[])]).command().debug_assert();
        Program::new("none", Operated::with(sockdrawer_operate::Document::default())).command().debug_assert();
    }

    #[test]
    fn errors_and_help_have_the_name_of_the_program_and_not_another_one() {
        let program = several();
        assert_eq!(
            refused(&program, "serv"),
            "unknown command `serv`: did you mean `serve`? There are serve, check, ctl, upgrade, parent, generate (try: chat --help)"
        );
        assert!(refused(&program, "").starts_with("no command: say serve, check, ctl, upgrade, parent or generate (try: chat"));
        let mut definition = program.command();
        let mut help = definition.render_long_help().to_string();
        for below in ["serve", "check", "ctl", "upgrade", "parent", "generate"] {
            help += &definition.find_subcommand_mut(below).expect(below).render_long_help().to_string();
        }
        // The setting's own text stays as it is.
        let others = help.replace("size of sockdrawer's messages", "").replace("SOCKDRAWER_REPLACES", "");
        assert!(!others.to_lowercase().contains("sockdrawer"), "{others}");
        for part in ["chat.sock", "$CHAT_CONTROL", "/run/chat", "/etc/chat.toml", "chat serve one", "--size <BYTES>"] {
            assert!(help.contains(part), "no {part} in {help}");
        }
    }

    #[test]
    fn a_setting_is_an_option_of_its_protocols_alone() {
        let program = several();
        assert_eq!(
            refused(&program, "serve run --size 5"),
            "--size is an option of one, not of run: leave it out (try: chat serve --help)"
        );
        assert_eq!(
            refused(&program, "serve one -- cat"),
            "-- WORDS is an option of run, not of one: leave it out (try: chat serve --help)"
        );
        assert!(refused(&program, "serve two --size 0").contains("--size 0: must be at least 1"));
        assert!(refused(&program, "serve two --size many").contains("--size many: not a size"));
        assert!(refused(&program, "serve run cat").contains("`cat`: what run runs stands behind --, as in run -- WORDS"));
        assert!(refused(&program, "serve --listen 9000").contains("no protocol: name one, two or run"));
    }

    #[test]
    fn the_file_of_the_program_is_the_configuration_unless_another_is_named() {
        for words in ["serve", "check", "serve --log json"] {
            let told =
                program([protocol("chat", &[])]).asked(["chat"].into_iter().chain(words.split(' ')).map(Into::into).collect());
            let told = told.unwrap_or_else(|failure| failure.exit);
            assert_eq!(told, Exit::Usage, "{words}: there is no such file");
        }
        assert!(
            refused(&several(), "serve").contains("there is no /etc/chat.toml: write it, name another (--config FILE), or say")
        );
        assert!(refused(&several(), "serve --config /no/such.toml").contains("cannot read /no/such.toml"));
    }
}
