//! The options of `sockdrawer load`.

use crate::names::Protocol;
use crate::thresholds;
use crate::values::{Destination, Source, Target, local_ports, positive, positive_time, process, processes, rate, seed, stage};
use crate::workload::{AcksArguments, HttpArguments, OperationArguments};
use clap::Args;
use sockdrawer_load::results::Threshold;
use sockdrawer_load::{Processes, Stage};
use std::path::PathBuf;
use std::time::Duration;

/// `sockdrawer load`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct LoadArguments {
    /// ping, echo, hello, http or acks.
    #[arg(required = false, required_unless_present = "plan")]
    pub(crate) workload: Protocol,
    /// Servers, taken in turn, with a port or a range of ports: 127.0.0.1:9000-9015; none: one inside this program.
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<Target>,
    /// Connections at once [default: 64].
    #[arg(short, long, value_name = "N", value_parser = positive::<usize>)]
    pub(crate) connections: Option<usize>,
    /// How many connections there are over time, from none on: within 30 s to 10k, within 2 minutes to 100k, within 30 s to none.
    #[arg(long, value_name = "T:N,...", value_parser = stage, value_delimiter = ',', conflicts_with_all = ["connections", "connect_rate", "duration"])]
    pub(crate) stage: Vec<Stage>,
    /// A connection ends by itself so long after it stands, and another takes its place.
    #[arg(long, value_name = "T", value_parser = positive_time)]
    pub(crate) lifetime: Option<Duration>,
    /// End after so many operations of all connections: round trips of ping and echo, connections of hello, requests of http,
    /// messages of acks.
    #[arg(short = 'n', long, value_name = "N", value_parser = positive::<u64>)]
    pub(crate) operations: Option<u64>,
    /// End so long after the first connect [default without -n and --hold: 10s].
    #[arg(short, long, value_name = "T", value_parser = positive_time, conflicts_with = "hold")]
    pub(crate) duration: Option<Duration>,
    /// End so long after the last connection stands.
    #[arg(long, value_name = "T", value_parser = positive_time)]
    pub(crate) hold: Option<Duration>,
    /// The most connects per second [default: for ping and echo 1000, or 100 to public addresses; else as fast as it goes].
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(crate) connect_rate: Option<f64>,
    #[command(flatten)]
    pub(crate) operation: OperationArguments,
    /// Local addresses and networks to connect from, taken in turn: 127.0.0.2,127.0.1.0/24.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) source: Vec<Source>,
    /// The first and the last local port to connect from: 20000-29999 [default: those that the machine has for it].
    #[arg(long, value_name = "A-B", value_parser = local_ports)]
    pub(crate) local_ports: Option<(u16, u16)>,
    /// A Unix socket to take orders at while the run goes on: +N, -N, =N, interval T, suspend, resume, next, stop, status.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Processes that run the clients; auto: more than one where descriptors are too few for one [default: auto].
    #[arg(long, value_name = "N|auto", value_parser = processes)]
    pub(crate) processes: Option<Processes>,
    /// A file with options: long names as keys; what the command line says counts more.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Say what would be done, in words and as a plan, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run also where this machine has too little for it.
    #[arg(long)]
    pub(crate) force: bool,
    /// Public addresses: more than 10k connections, or 5k connects or operations per second.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Processes of the server to watch: 7,8 [default: those that listen at the targets, where they are of this machine].
    #[arg(long, value_name = "PID,...", value_parser = process, value_delimiter = ',')]
    pub(crate) server_pid: Vec<u32>,
    /// What the result must be, or the program ends with 99: p99<50ms, failed<0.1%, lost==0, connect.p99<1s; repeat it for more.
    #[arg(long, value_name = "EXPR", value_parser = thresholds::parse_for_one)]
    pub(crate) threshold: Vec<Threshold>,
    /// A directory for what the run leaves: its result, a sample of each second, histograms, its plan, and a page to look at.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the result as JSON to a file, or to standard output with -.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
    /// echo: chooses the bytes of messages; http: chooses among the pages of --mix [default: chosen and printed].
    #[arg(long, value_name = "S", value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Options of acks.
    #[command(flatten)]
    pub(crate) acks: AcksArguments,
    #[command(flatten)]
    pub(crate) http: HttpArguments,
}
