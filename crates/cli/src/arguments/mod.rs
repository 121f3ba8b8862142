//! The command line as it is written: one definition for parsing, help and suggestions. Nothing here decides; `load` and `trial` turn these low
//! arguments into what is done. The commands of all programs that serve are those of `sockdrawer_program`.

mod agents;
mod find;
mod help;
mod load;
mod results;
mod script;
mod tls;

pub(crate) use agents::{AgentArguments, Generated, KubernetesArguments, Policy, RunAgentArguments};
pub(crate) use find::{FindArguments, Vary};
pub(crate) use help::{command, program};
pub(crate) use load::LoadArguments;
pub(crate) use results::{CompareArguments, ReportArguments};
pub(crate) use script::ScriptArguments;
pub(crate) use tls::TlsArguments;

use crate::names;
use crate::values::{Destination, Path, Target, count, positive, positive_time, process, seed, time};
use clap::{Args, Subcommand, ValueEnum};
use sockdrawer::{Address, Model};
use std::path::PathBuf;
use std::time::Duration;

/// The commands of this program alone.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
