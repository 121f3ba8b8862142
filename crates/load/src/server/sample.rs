//! The server beside each line of a run's series.

use serde::{Deserialize, Serialize};

/// What was seen of the server; None where it cannot be known. Of a server in the same process, what it has together with the clients is
/// not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerSample {
    /// CPU cores used since the sample before, to 10 ms of a process that is not this one.
    pub cpu: Option<f64>,
    /// Memory of all its processes; pages that they share count in each.
    pub rss_bytes: Option<u64>,
    /// Memory of all its processes; a page that several share counts once. Read as seldom as it takes to cost 1 % of a core, and
    /// repeated in between.
    pub pss_bytes: Option<u64>,
    /// Kernel memory that sockets of this machine took since the run began, of both ends where both are on it. Read as seldom.
    pub socket_bytes: Option<u64>,
    /// How often its threads were taken off their CPUs, because they waited or because others had their turn.
    pub context_switches_per_second: Option<f64>,
    /// IP bits per second of its network, of all programs in it. Where both ends are in it each bit comes in and goes out.
    pub bits_in: Option<f64>,
    /// As `bits_in`.
    pub bits_out: Option<f64>,
    /// TCP segments per second of its network, as `bits_in`.
    pub packets_in: Option<f64>,
    /// As `packets_in`.
    pub packets_out: Option<f64>,
    /// Connections that wait to be accepted now.
    pub queued: Option<u64>,
    /// Connections that found the accept queue full since the run began.
    pub listen_overflows: Option<u64>,
    /// Descriptors that the process with the fewest may still open. Read as seldom as `pss_bytes`.
    pub descriptors_left: Option<u64>,
    /// Its processes; 0 where it is in this one.
    pub processes: u32,
}
