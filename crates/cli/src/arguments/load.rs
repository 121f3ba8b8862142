//! The options of `sockdrawer load`.

use super::{AgentArguments, TlsArguments, WebSocketArguments};
use crate::names::{self, Protocol};
use crate::thresholds;
use crate::values::{
    self, BadValue, Destination, Source, Target, local_ports, positive, positive_time, process, processes, proxy_header, rate,
    seed, stage,
};
use crate::workload::{AcksArguments, HttpArguments, OperationArguments};
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use sockdrawer::Address;
use sockdrawer_load::results::Threshold;
use sockdrawer_load::{Processes, ProxyHeader, Stage};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// `sockdrawer load`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct LoadArguments {
    /// ping, echo, hello, http or acks; a URL as the first target says http.
    #[arg(required = false, required_unless_present = "plan")]
    pub(crate) workload: Asked,
    /// Servers, taken in turn: a URL for http, or a port or a range of ports: 127.0.0.1:9000-9015 [default: a server inside this program].
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<Target>,
    /// Connections at once [default: 64].
    #[arg(short, long, value_name = "N", value_parser = positive::<usize>)]
    pub(crate) connections: Option<usize>,
    /// End at this time after the first connect [default without -n and --hold: 10s].
    ///
    /// Without -n, --hold and --stage a run takes 10 s, and the whole seconds that --connect-rate takes for all connections.
    #[arg(short, long, value_name = "T", value_parser = positive_time, conflicts_with = "hold")]
    pub(crate) duration: Option<Duration>,
    /// End after this number of operations of all connections: round trips of ping and echo, connections of hello, requests of http,
    /// messages of acks.
    #[arg(short = 'n', long, value_name = "N", value_parser = positive::<u64>)]
    pub(crate) operations: Option<u64>,
    #[command(flatten)]
    pub(crate) operation: OperationArguments,
    /// A condition on the result; the exit code is 99 if it fails: p99<50ms, failed<0.1%, lost==0, connect.p99<1s; may be repeated.
    ///
    /// See [thresholds](results.md#thresholds).
    #[arg(long, value_name = "EXPR", value_parser = thresholds::parse_for_one)]
    pub(crate) threshold: Vec<Threshold>,
    /// A directory for the result, a sample per second, histograms, the plan, and a page of charts.
    ///
    /// See [results](results.md#the-directory-of-a-run).
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the result as JSON to a file, or to standard output with -.
    ///
    /// The text goes to standard error where the JSON goes to standard output.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Destination>,
    /// Write the verdict as JUnit XML, which CI systems read as results of tests, to a file.
    ///
    /// Each threshold is a test; without one the whole run is.
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(values::file))]
    pub(crate) junit: Option<PathBuf>,
    /// Print all of the budget before the run, not only what may be too little.
    ///
    /// See [the budget](#the-budget).
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The number of connections at once over time, from 0 on: 30s:10k,2m:100k,30s:0 goes to 10k within 30 s, to 100k within 2 minutes,
    /// to 0 within 30 s; --rate of kept connections is that of the most of them.
    ///
    /// The rate is constant within each stage. Connections of ping, echo and acks are made, and ended, at that rate; of those that are replaced all
    /// the time (http, hello, --lifetime, --reconnect) the number at once follows it, whatever the rate of connects. The run ends with the last
    /// stage, or --hold after it. Not with -c, -d, --connect-rate and, unless connections are kept, the --rate of http.
    #[arg(help_heading = "Connections", long, value_name = "T:N,...", value_parser = stage, value_delimiter = ',', conflicts_with_all = ["connections", "connect_rate", "duration"])]
    pub(crate) stage: Vec<Stage>,
    /// End at this time after the last connection is established.
    #[arg(help_heading = "Connections", long, value_name = "T", value_parser = positive_time)]
    pub(crate) hold: Option<Duration>,
    /// Maximum of connects per second [default: for ping and echo 1000, or 100 to public addresses; else as fast as possible].
    #[arg(help_heading = "Connections", long, value_name = "R", value_parser = rate)]
    pub(crate) connect_rate: Option<f64>,
    /// The lifetime of a connection after it is established; a new connection replaces it.
    ///
    /// For ping and echo: it ends after the answer to its last question.
    #[arg(help_heading = "Connections", long, value_name = "T", value_parser = positive_time)]
    pub(crate) lifetime: Option<Duration>,
    /// ping, echo: replace a connection that was lost or given up; the result counts them.
    ///
    /// Not with --lifetime and --hold.
    #[arg(help_heading = "Connections", long, conflicts_with = "lifetime")]
    pub(crate) reconnect: bool,
    /// ping, echo, http with --keep-alive: make the times between operations random, as those of people who know nothing of each other are.
    ///
    /// They are distributed exponentially (a Poisson process), and as long as --interval, or as --rate makes it, on the average; what is late delays
    /// nothing that is due later.
    #[arg(help_heading = "Connections", long)]
    pub(crate) poisson: bool,
    /// Local addresses and networks to connect from, taken in turn: 127.0.0.2,127.0.1.0/24.
    ///
    /// At most 65,536. All addresses of a network are used, its first and its last too.
    #[arg(help_heading = "Connections", long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) source: Vec<Source>,
    /// The first and the last local port to connect from: 20000-29999 [default: the machine's range].
    #[arg(help_heading = "Connections", long, value_name = "A-B", value_parser = local_ports)]
    pub(crate) local_ports: Option<(u16, u16)>,
    /// Begin each connection with a PROXY header, v1 or v2, on behalf of a client at ADDR or of itself: v2,source=192.0.2.7:4321.
    ///
    /// Without a client the header says the connection of the load itself: LOCAL or UNKNOWN. With TARGET only.
    #[arg(help_heading = "Connections", long, value_name = "VERSION[,source=ADDR]", value_parser = proxy_header)]
    pub(crate) proxy_protocol: Option<ProxyHeader>,
    #[command(flatten)]
    pub(crate) tls: TlsArguments,
    #[command(flatten)]
    pub(crate) websocket: WebSocketArguments,
    #[command(flatten)]
    pub(crate) http: HttpArguments,
    /// Options of acks.
    #[command(flatten)]
    pub(crate) acks: AcksArguments,
    #[command(flatten)]
    pub(crate) many: AgentArguments,
    /// A file with options: long names as keys; the command line takes precedence.
    ///
    /// See [plans](#plans).
    #[arg(help_heading = "The run", long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Print what the run would do, as text and as a plan, and do nothing.
    #[arg(help_heading = "The run", long)]
    pub(crate) dry_run: bool,
    /// A Unix socket that accepts commands during the run: +N, -N, =N, interval T, suspend, resume, next, stop, status.
    ///
    /// See [changing a run](#changing-a-run).
    #[arg(help_heading = "The run", long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// An address to serve the series of the run at, for Prometheus and other collectors of OpenMetrics: GET /metrics.
    ///
    /// See [metrics](#metrics).
    #[arg(help_heading = "The run", long, value_name = "ADDR")]
    pub(crate) metrics: Option<Address>,
    /// Processes that run the clients; auto: more than one if a single process has too few descriptors [default: auto].
    #[arg(help_heading = "The run", long, value_name = "N|auto", value_parser = processes)]
    pub(crate) processes: Option<Processes>,
    /// Processes of the server to measure: 7,8 [default: those that listen at the targets, if they are on this machine].
    #[arg(help_heading = "The run", long, value_name = "PID,...", value_parser = process, value_delimiter = ',')]
    pub(crate) server_pid: Vec<u32>,
    /// echo: chooses the bytes of messages; http: chooses among the pages of --mix [default: chosen and printed].
    #[arg(help_heading = "The run", long, value_name = "S", value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Run although this machine has too few resources for the run.
    #[arg(help_heading = "The run", long)]
    pub(crate) force: bool,
    /// Allow more than 10k connections, or 5k connects or operations per second, to public addresses.
    ///
    /// See [public addresses](#much-load-on-public-addresses).
    #[arg(help_heading = "The run", long)]
    pub(crate) yes: bool,
}

impl LoadArguments {
    /// Returns the protocol of the connections.
    pub(crate) fn protocol(&self) -> Protocol {
        match &self.workload {
            Asked::Workload(protocol) => *protocol,
            Asked::Url(target) if target.url.as_ref().is_some_and(|url| url.websocket) => Protocol::Echo,
            Asked::Url(_) => Protocol::Http,
        }
    }

    /// Returns true where the workload is carried by WebSocket.
    pub(crate) fn by_websocket(&self) -> bool {
        self.websocket.speaks(&self.targets().collect::<Vec<_>>())
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = &Target> {
        let first = match &self.workload {
            Asked::Workload(_) => None,
            Asked::Url(target) => Some(target),
        };
        first.into_iter().chain(&self.targets)
    }
}

/// The first argument.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Workload(Protocol),
    /// Which says that the workload is `http`, or `echo` by WebSocket.
    Url(Target),
}

impl FromStr for Asked {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Asked, BadValue> {
        if text.contains("://") {
            return text.parse().map(Asked::Url);
        }
        let known = || names::unknown("workload", text, &Protocol::WORKLOADS.map(Protocol::name));
        text.parse().map(Asked::Workload).map_err(|_: BadValue| known())
    }
}
