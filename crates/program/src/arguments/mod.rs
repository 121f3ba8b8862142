//! The command line as it is written: one definition for parsing, help and suggestions. Nothing here decides: each command turns these low
//! arguments into what is done.

mod ctl;
mod serve;

pub(crate) use ctl::{ApplyArguments, At, Chosen, Ctl, CtlArguments, Named, UpgradeBy};
pub(crate) use serve::ServeArguments;

use crate::program::Program;
use crate::values::{Destination, percent, positive_time};
use clap::{Args, Command, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The commands whose definition differs by the name of the program alone.
#[derive(Debug, Subcommand)]
pub(crate) enum Asked {
    /// Check a configuration file, and start nothing.
    Check(CheckArguments),
    /// Ask a running server, and change it, by its control socket.
    Ctl(Box<CtlArguments>),
    /// Replace a server by a new build of its program, which takes over its listeners and live connections.
    Upgrade(UpgradeArguments),
    /// Stay the parent of a server that is replaced by new builds: for containers, runit and s6, which follow one process only.
    Parent(ParentArguments),
    /// Print files for other programs.
    #[command(subcommand)]
    Generate(Generated),
}

/// `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The configuration file, TOML or, if its name ends with .json, JSON; - is standard input.
    #[arg(value_name = "FILE|-")]
    pub(crate) file: Option<PathBuf>,
    /// Try also what only the system knows: each address is bound and let go, and limits are compared with the descriptors that are allowed.
    #[arg(long)]
    pub(crate) bind: bool,
}

/// `upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArguments {
    /// Where the server meets its next build: the PATH of serve --upgrade.
    pub(crate) path: PathBuf,
    /// Start the new build, let it prepare itself, print the plan, and end it: the server goes on.
    #[arg(long, conflicts_with = "status")]
    pub(crate) rehearse: bool,
    /// Start nothing: print the connections of the server, and which of them can move.
    #[arg(long)]
    pub(crate) status: bool,
    #[command(flatten)]
    pub(crate) required: RequiredShare,
    /// How long the new build may take until it is ready [default: 30s].
    ///
    /// Then it is killed, with what it has started.
    #[arg(long, value_name = "T", value_parser = positive_time)]
    pub(crate) within: Option<Duration>,
    /// Write the plan and the result as JSON to a file, or to standard output with -.
    ///
    /// It has `plan` with `from`, `to`, `pools[]` and `dropped[]` (state that only the old build carries), `result` with `pid`, `prepared_us`, `gap_us`, `moved`, `moving_us`, `pause_us`, `staying` and
    /// `not_restored[]`, and `share` with `moved`, `of` and `staying[]`, which says why.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
    /// What the server starts [default: the command line with which it was started itself].
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "status")]
    pub(crate) command: Vec<OsString>,
}

/// The share of connections that an upgrade, or a plan, has to move.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RequiredShare {
    /// Exit with 1 where a connection stays in the old process, but for those of operators, those that end, and those that an upgrade before left in an earlier one.
    ///
    /// The program is replaced nevertheless: ask with --rehearse before.
    #[arg(long, conflicts_with = "require")]
    pub(crate) require_all: bool,
    /// Exit with 1 where fewer connections than this part of them move, such as 95%.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) require: Option<f64>,
}

impl RequiredShare {
    /// In percent.
    pub(crate) fn percent(self) -> Option<f64> {
        self.require.or(self.require_all.then_some(100.0))
    }
}

/// `parent`.
#[derive(Debug, Args)]
pub(crate) struct ParentArguments {
    /// Where the server meets its next build: the PATH of serve --upgrade.
    pub(crate) path: PathBuf,
    /// The server; started again at each SIGUSR2, to take over from the one that runs.
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(crate) command: Vec<OsString>,
}

/// `generate`.
#[derive(Debug, Subcommand)]
pub(crate) enum Generated {
    /// Print the JSON schema of configuration files, for editors and for programs that write them.
    Schema,
    /// Print the man page sockdrawer(1), with all settings of configuration files.
    ///
    /// `sockdrawer generate man > sockdrawer.1`.
    Man,
    /// Print a unit for systemd, which serves the configuration file in a sandbox.
    ///
    /// `sockdrawer generate unit > /etc/systemd/system/sockdrawer.service`.
    Unit,
    /// Print completions for a shell.
    ///
    /// `source <(sockdrawer generate completions bash)`.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Returns the definitions of all commands, with the name, protocols and settings of this program.
pub(crate) fn commands(program: &Program) -> Vec<Command> {
    let serve = serve::command(program);
    let others = Asked::augment_subcommands(Command::new(program.name()));
    let others = others.get_subcommands().cloned().map(|command| named(program, command));
    let file = |command: Command| match (command.get_name(), program.operated().file()) {
        ("check", None) => command.mut_arg("file", |file| file.required(true)),
        ("check", Some(path)) => command.mut_arg("file", |file| {
            let help = file.get_help().map(ToString::to_string).unwrap_or_default();
            file.help(format!("{help} [default: {}]", path.display()))
        }),
        _ => command,
    };
    [serve].into_iter().chain(others.map(file)).collect()
}

/// Puts the name of the program into the texts of a command and of those below it.
fn named(program: &Program, command: Command) -> Command {
    let (about, long_about) = (command.get_about().map(ToString::to_string), command.get_long_about().map(ToString::to_string));
    let command = about.into_iter().fold(command, |command, text| command.about(program.named(&text)));
    let command = long_about.into_iter().fold(command, |command, text| command.long_about(program.named(&text)));
    let command = command.mut_args(|argument| {
        let (help, long_help) = (argument.get_help().map(ToString::to_string), argument.get_long_help().map(ToString::to_string));
        let argument = help.into_iter().fold(argument, |argument, text| argument.help(program.named(&text)));
        long_help.into_iter().fold(argument, |argument, text| argument.long_help(program.named(&text)))
    });
    command.mut_subcommands(|below| named(program, below))
}
