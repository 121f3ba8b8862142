//! The command line as it is written: one definition for parsing, help and suggestions. Nothing here decides; `serve`, `load` and
//! `trial` turn these low arguments into what is done.

mod agents;
mod ctl;
mod find;
mod help;
mod load;
mod results;
mod script;
mod serve;
mod tls;

pub(crate) use agents::{AgentArguments, Generated, KubernetesArguments, Policy, RunAgentArguments};
pub(crate) use ctl::{ApplyArguments, At, CheckArguments, Chosen, Ctl, CtlArguments, UpgradeBy};
pub(crate) use find::{FindArguments, Vary};
pub(crate) use help::{EXIT_STATUS, all_examples, command, examples, helping, shown};
pub(crate) use load::LoadArguments;
pub(crate) use results::{CompareArguments, ReportArguments};
pub(crate) use script::ScriptArguments;
pub(crate) use serve::ServeArguments;
pub(crate) use tls::TlsArguments;

use crate::names;
use crate::values::{Destination, Path, Target, count, percent, positive, positive_time, process, seed, time};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sockdrawer::{Address, Model};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Holds sockets so that the program around them can change.
#[derive(Debug, Parser)]
#[command(name = "sockdrawer", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a protocol until SIGTERM or SIGINT.
    Serve(Box<ServeArguments>),
    /// Check a configuration file, and start nothing.
    Check(CheckArguments),
    /// Ask a running server, and change it, by its control socket.
    Ctl(Box<CtlArguments>),
    /// Put load on a server and report the result.
    Load(Box<LoadArguments>),
    /// Check whether this machine, and a server on it, have the resources for a number of connections.
    Doctor(Box<DoctorArguments>),
    /// Search for the maximum of connections, operations or connects per second, and report what limits it.
    Find(Box<FindArguments>),
    /// Make the page of a run again, and print its result.
    Report(ReportArguments),
    /// Print the JSON schema of a result: of load --json, and of result.json.
    Schema,
    /// Compare two runs, or two sets of runs.
    Compare(CompareArguments),
    /// Replace a server by a new build of its program, which takes over its listeners and live connections.
    Upgrade(UpgradeArguments),
    /// Stay the parent of a server that is replaced by new builds: for containers, runit and s6, which follow one process only.
    Parent(ParentArguments),
    /// Run clients for a load on another machine, which starts this command by ssh.
    Agent(RunAgentArguments),
    /// Print files for other programs.
    #[command(subcommand)]
    Generate(Generated),
    /// Prove that live changes lose nothing, with a server inside this program, or with TARGET while COMMAND changes it.
    Trial(Box<TrialArguments>),
}

/// `sockdrawer doctor`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct DoctorArguments {
    /// The server, such as 127.0.0.1:9000 or https://127.0.0.1:8443/ [default: none, this machine as a client].
    pub(crate) target: Option<Target>,
    /// Connections at once.
    #[arg(short, long, value_name = "N", value_parser = positive::<usize>, default_value = "10k")]
    pub(crate) connections: usize,
    /// The server's process [default: the one that listens at TARGET, on this machine].
    #[arg(long, value_name = "PID", value_parser = process, conflicts_with_all = ["agents", "join_at"])]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) many: AgentArguments,
    /// Write the findings as JSON to a file, or to standard output with -.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
}

/// `sockdrawer upgrade`.
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
    /// It has `plan` with `from`, `to` and `pools[]`, `result` with `pid`, `prepared_us`, `gap_us`, `moved`, `moving_us`, `pause_us`, `staying` and
    /// `not_restored[]`, and `share` with `moved`, `of` and `staying[]`, which says why.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
    /// What the server starts [default: the command line with which it was started itself].
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "status")]
    pub(crate) command: Vec<OsString>,
}

/// What an upgrade, or a plan, is held against.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RequiredShare {
    /// Exit with 1 where a connection stays in the old process, but for those of operators.
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

/// `sockdrawer parent`.
#[derive(Debug, Args)]
pub(crate) struct ParentArguments {
    /// Where the server meets its next build: the PATH of serve --upgrade.
    pub(crate) path: PathBuf,
    /// The server; started again at each SIGUSR2, to take over from the one that runs.
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(crate) command: Vec<OsString>,
}

/// `sockdrawer trial`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct TrialArguments {
    /// The server under trial, with --change: an address, or a URL for http [default: a server inside this program].
    pub(crate) target: Option<Target>,
    /// TARGET: the command that changes the server; run by sh -c, again and again.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) change: Option<String>,
    /// TARGET: the time from the start of a command to the start of the next; 0: back to back [default: 2s].
    #[arg(long, value_name = "T", value_parser = time)]
    pub(crate) every: Option<Duration>,
    /// TARGET: the protocol of the clients: echo, ping or http [default: echo].
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) workload: Option<Workload>,
    /// TARGET, http: the path of the requests [default: /].
    #[arg(long, value_name = "PATH", alias = "request-path")]
    pub(crate) path: Option<Path>,
    /// TARGET: what the server may do to connections that stay without a bad verdict; may be repeated.
    ///
    /// idle-close: while idle, as HTTP allows: between exchanges, as announced, or while the next request is on its way, before a byte of its answer:
    /// a client has to ask again then, and can where that does no harm (RFC 9112, 9.3.1). They are counted still, and the verdict names both kinds.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) allow: Vec<Allowed>,
    /// End after this number of changes.
    ///
    /// Not with -d.
    #[arg(long, value_name = "N", value_parser = positive::<u64>, conflicts_with = "duration")]
    pub(crate) changes: Option<u64>,
    /// End after this time [default: 10s].
    ///
    /// A change that has begun is finished.
    #[arg(short, long, value_name = "T", value_parser = positive_time, alias = "seconds")]
    pub(crate) duration: Option<Duration>,
    /// Clients that connect, exchange and close all the time.
    #[arg(short, long, value_name = "N", value_parser = positive::<usize>, default_value = "24")]
    pub(crate) connections: usize,
    /// Connections kept from the first to the last change.
    ///
    /// Without TARGET at least 1.
    #[arg(long, value_name = "N", value_parser = count::<usize>, default_value = "100")]
    pub(crate) kept: usize,
    /// The seed of random choices [default: chosen and printed].
    #[arg(long, value_name = "S", value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Break the server inside this program on purpose, to see that the trial detects it.
    ///
    /// Not with TARGET.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) sabotage: Option<Sabotage>,
    /// The address of the server inside this program [default: 127.0.0.1, any free port].
    ///
    /// Not with TARGET. An IPv4 address of the loopback; the network is then shared.
    #[arg(short, long, value_name = "ADDR")]
    pub(crate) listen: Option<Address>,
    /// The model of the server inside this program: threads, prefork, loops or tasks [default: loops].
    ///
    /// Not with TARGET.
    #[arg(long, value_parser = names::model)]
    pub(crate) model: Option<Model>,
    /// TARGET: a directory for the report and a page of the gaps over time.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the result as JSON to a file, or to standard output with -.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
    /// TARGET: a protocol of one's own.
    #[command(flatten)]
    pub(crate) script: ScriptArguments,
    /// TARGET: TLS with the server.
    #[command(flatten)]
    pub(crate) tls: TlsArguments,
}

/// The protocol of the clients of a trial of TARGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Random bytes, which the server must send back.
    Echo,
    /// `Ping`, which must be answered with `Pong`.
    Ping,
    /// GET requests, whose answers must be equal each time.
    Http,
}

/// What a server may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Allowed {
    /// Close connections at rest, as HTTP allows: between exchanges, as announced, or while the next request is on its way.
    IdleClose,
}

/// A fault that a trial must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// Every eighth change, the listening socket is closed and opened again.
    Reopen,
    /// Every eighth change, the connections in the accept queue are reset.
    DropQueue,
    /// Now and then the echo of a kept connection lacks a byte.
    LoseByte,
    /// Every eighth change, a kept connection is reset.
    CloseKept,
}
