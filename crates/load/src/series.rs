//! A run over time: a sample for each second of it, for progress displays, charts and files.

use crate::latency::{Latency, Percentiles};
use crate::server::ServerSample;
use crate::workload::{Errors, HandshakeCounts, Latencies, Numbers};
use serde::{Deserialize, Serialize, Serializer};
use std::time::Duration;

/// Phase of a run at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Connects are due or under way.
    #[default]
    Connecting,
    /// A stage is under way in which the connections become more or fewer.
    Ramping,
    /// As many connections as are wanted were tried.
    Holding,
    /// The time is over; what is under way is awaited.
    Ending,
}

/// A moment of a run. Counts are since the run began; rates and latencies are those since the sample before. The last one may be of a short
/// rest: its rates are those since the sample before that, or are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// Seconds since the first connect.
    pub at: f64,
    /// Phase of the run.
    pub phase: Phase,
    /// Connections that are wanted now.
    pub target: u64,
    /// Connections that stand now.
    pub standing: u64,
    /// Connects and connections, by what became of them.
    pub connections: Counted,
    /// Operations, by what became of them.
    pub operations: Done,
    /// Rates of connects and operations.
    pub per_second: PerSecond,
    /// Times that they took, but for first bytes.
    pub latency_us: Latencies,
    /// Handshakes of TLS; only where the clients speak it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<HandshakeCounts>,
    /// Errors by kind.
    pub errors: Vec<Errors>,
    /// Cost of this side.
    pub client: ClientSample,
    /// Cost of the server, where it can be seen.
    pub server: Option<ServerSample>,
}

/// Connects and connections so far; attempted = established + failed, established = those that stand + closed + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Connects whose end is known.
    pub attempted: u64,
    /// Connections that stood.
    pub established: u64,
    /// Connects that failed.
    pub failed: u64,
    /// Established connections that the peer or the network ended.
    pub lost: u64,
    /// Established connections that this side ended.
    pub closed: u64,
}

/// Operations so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Operations that ended well.
    pub ok: u64,
    /// Operations that failed.
    pub failed: u64,
}

/// Rates since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerSecond {
    /// Connections that came to stand.
    pub connects: f64,
    /// Operations that ended well.
    pub operations: f64,
}

/// Cost of this side, all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSample {
    /// CPUs that were busy, since the sample before. None where a server in the process of the clients cannot be told from it.
    pub cpu: Option<f64>,
    /// Memory.
    pub rss_bytes: Option<u64>,
    /// Processes.
    pub processes: u32,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Time since the first connect; serialized, in seconds.
    #[serde(serialize_with = "as_seconds")]
    pub elapsed: Duration,
    /// Time from the first connect to the end of the run's time, as far as that is known; in seconds.
    #[serde(serialize_with = "as_seconds_where_known")]
    pub ends: Option<Duration>,
    /// Phase of the run.
    pub phase: Phase,
    /// Connections that are wanted.
    pub target: u64,
    /// Connections that stand.
    pub standing: u64,
    /// Counts so far.
    pub numbers: Numbers,
    /// Connections that took the place of another one, where an operation is not a connection.
    pub reconnected: u64,
    /// Times that operations took in the last whole second, in microseconds.
    pub operation: Percentiles,
    /// Nothing begins until an order says so.
    pub suspended: bool,
}

fn as_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

fn as_seconds_where_known<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

/// The times that a [`Sample`] summarizes, whole.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    /// Begin of the interval, since the first connect.
    pub from: Duration,
    /// Length of the interval.
    pub length: Duration,
    /// Times that connects took.
    pub connect: &'a Latency,
    /// Times that handshakes of TLS took.
    pub handshake: &'a Latency,
    /// Times that operations took.
    pub operation: &'a Latency,
}
