//! The command line of trials.

use super::{ScriptArguments, TlsArguments, WebSocketArguments};
use crate::names;
use crate::values::{self, Destination, Path, Target, count, positive, positive_time, seed, time};
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use sockdrawer::{Address, Model};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `sockdrawer trial`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, args_conflicts_with_subcommands = true)]
pub(crate) struct TrialArguments {
    #[command(subcommand)]
    pub(crate) tried: Option<Tried>,
    /// The server under trial, with --change: an address, or a URL of http or WebSocket [default: a server inside this program].
    pub(crate) target: Option<Target>,
    /// TARGET: the command that changes the server; run by sh -c, again and again.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) change: Option<String>,
    /// TARGET: the time from the start of a command to the start of the next; 0: back to back [default: 2s].
    #[arg(long, value_name = "T", value_parser = time)]
    pub(crate) every: Option<Duration>,
    /// End after this number of changes.
    ///
    /// Not with -d.
    #[arg(long, value_name = "N", value_parser = positive::<u64>, conflicts_with = "duration")]
    pub(crate) changes: Option<u64>,
    /// End after this time [default: 10s].
    ///
    /// A change that has begun is finished. Without TARGET, the ten upgrades of this program come after it.
    #[arg(short, long, value_name = "T", value_parser = positive_time, alias = "seconds")]
    pub(crate) duration: Option<Duration>,
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
    #[command(flatten)]
    pub(crate) clients: ClientArguments,
}

/// Other subjects of a trial.
#[derive(Debug, Subcommand)]
pub(crate) enum Tried {
    /// Have two builds of a program replace each other under clients, kill either of them at random moments, and count what is lost.
    ///
    /// A killed process may lose its own connections, and nothing else. Both builds meet at a path, as those of `serve --upgrade` do.
    Upgrade(Box<BuildsArguments>),
}

/// `sockdrawer trial upgrade`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct BuildsArguments {
    /// The program that serves first.
    pub(crate) old: PathBuf,
    /// The build that takes over from it, and that it takes over from.
    pub(crate) new: PathBuf,
    /// The arguments of both, such as serve chat -l 127.0.0.1:9000; --upgrade PATH is added unless --socket says where they meet.
    #[arg(last = true)]
    pub(crate) arguments: Vec<OsString>,
    /// The path at which the builds meet, where their arguments or files say so already.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The address of the clients [default: the only one at which the builds listen].
    #[arg(long, value_name = "ADDR")]
    pub(crate) target: Option<Target>,
    /// Upgrades that are left alone, to and fro.
    #[arg(long, value_name = "N", value_parser = count::<u64>, default_value = "10")]
    pub(crate) changes: u64,
    /// Upgrades in which the new process is killed at a random moment, or the old one.
    #[arg(long, value_name = "N", value_parser = count::<u64>, default_value = "10")]
    pub(crate) kills: u64,
    /// The time from the start of an upgrade to the start of the next; 0: back to back.
    #[arg(long, value_name = "T", value_parser = time, default_value = "1s")]
    pub(crate) every: Duration,
    /// Fail if a connection stays behind in an upgrade without a kill, as all do where a build cannot read the other's states; not if it ends.
    #[arg(long)]
    pub(crate) require_all: bool,
    #[command(flatten)]
    pub(crate) clients: ClientArguments,
}

/// The clients of a trial.
#[derive(Debug, Args)]
pub(crate) struct ClientArguments {
    /// Clients that connect, exchange and close all the time.
    #[arg(short, long, value_name = "N", value_parser = positive::<usize>, default_value = "24")]
    pub(crate) connections: usize,
    /// Connections kept from the first to the last change.
    ///
    /// Of a server inside this program at least 1.
    #[arg(long, value_name = "N", value_parser = count::<usize>, default_value = "100")]
    pub(crate) kept: usize,
    /// The seed of random choices [default: chosen and printed].
    #[arg(long, value_name = "S", value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Write the result as JSON to a file, or to standard output with -.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
    /// Write the verdict as JUnit XML, which CI systems read as results of tests, to a file.
    ///
    /// One test: nothing is lost.
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(values::file))]
    pub(crate) junit: Option<PathBuf>,
    /// TARGET, upgrade: what the server may do to connections that stay without a bad verdict; may be repeated.
    ///
    /// idle-close: while idle, as HTTP allows: between exchanges, as announced, or while the next request is on its way, before a byte of its answer:
    /// a client has to ask again then, and can where that does no harm (RFC 9112, 9.3.1). They are counted still, and the verdict names both kinds.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) allow: Vec<Allowed>,
    /// TARGET, upgrade: a directory for the report and a page of the gaps over time.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// TARGET, upgrade: the protocol of the clients: echo, ping or http [default: echo].
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) workload: Option<Workload>,
    /// TARGET, upgrade: the path of the requests of http [default: /].
    #[arg(long, value_name = "PATH", alias = "request-path")]
    pub(crate) path: Option<Path>,
    /// TARGET, upgrade: a protocol of one's own.
    #[command(flatten)]
    pub(crate) script: ScriptArguments,
    /// TARGET, upgrade: TLS with the server.
    #[command(flatten)]
    pub(crate) tls: TlsArguments,
    /// TARGET, upgrade: the WebSocket that carries echo, ping, or a protocol of one's own.
    #[command(flatten)]
    pub(crate) websocket: WebSocketArguments,
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

/// An act of the server that does not spoil a verdict.
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
