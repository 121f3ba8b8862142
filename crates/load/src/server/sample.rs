//! The server beside each line of a run's series.

use crate::numbers::{bytes, time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Sample of the server; None where it cannot be known. Of a server in the process of the clients, what it has together with them is not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerSample {
    /// CPU cores used since the sample before, to 10 ms of a process that is not this one.
    pub cpu: Option<f64>,
    /// Memory of all its processes; pages that they share count in each.
    pub rss_bytes: Option<u64>,
    /// Memory of all its processes; a page that several share counts once. Read as seldom as it takes to cost 0.1 % of a core, but
    /// every 10 s where that costs at most 1 %, and repeated in between.
    pub pss_bytes: Option<u64>,
    /// Kernel memory that sockets of this machine took since the run began, of both ends where both are on it. Read as seldom.
    pub socket_bytes: Option<u64>,
    /// Times per second that its threads were taken off their CPUs, because they waited or because others had their turn.
    pub context_switches_per_second: Option<f64>,
    /// IP bits per second of its network, of all programs in it. Where both ends are in it each bit comes in and goes out.
    pub bits_in: Option<f64>,
    /// IP bits per second that go out, as `bits_in`.
    pub bits_out: Option<f64>,
    /// TCP segments per second of its network, as `bits_in`.
    pub packets_in: Option<f64>,
    /// TCP segments per second that go out, as `packets_in`.
    pub packets_out: Option<f64>,
    /// Connections that wait to be accepted now.
    pub queued: Option<u64>,
    /// Connections that found the accept queue full since the run began.
    pub listen_overflows: Option<u64>,
    /// Descriptors that the process with the fewest may still open. Read as seldom as `pss_bytes`.
    pub descriptors_left: Option<u64>,
    /// Number of its processes; 0 where it is in this one.
    pub processes: u32,
}

impl ServerSample {
    /// Removes rates, for a time that is too short to divide by.
    pub(crate) fn without_rates(self) -> ServerSample {
        ServerSample {
            cpu: None,
            context_switches_per_second: None,
            bits_in: None,
            bits_out: None,
            packets_in: None,
            packets_out: None,
            ..self
        }
    }
}

/// The server's cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Server {
    /// CPU time, where it is known.
    pub cpu_seconds: Option<f64>,
    /// Memory of its processes for each connection: growth while the most stood. Known of a process of this machine with 1,000
    /// connections or more.
    pub bytes_per_connection: Option<f64>,
    /// Kernel memory of sockets for each connection, as above: of both ends when both are on this machine.
    pub kernel_bytes_per_connection: Option<f64>,
    /// CPU microseconds of an operation: those of accepts are left out where they can be told apart.
    pub cpu_us_per_operation: Option<f64>,
    /// CPU microseconds of an accept, where it can be told apart from operations.
    pub cpu_us_per_accept: Option<f64>,
    /// Connections that found the accept queue full, of all listeners in the server's network.
    pub listen_overflows: Option<u64>,
    /// Those, and others that a listener of this network turned away.
    pub listen_drops: Option<u64>,
}

/// A line of what is known besides CPU time; nothing where nothing is.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.bytes_per_connection.map(|user| format!("{} for each connection", bytes(user))),
            self.kernel_bytes_per_connection.map(|kernel| format!("{} of the kernel, both ends if both are here", bytes(kernel))),
            self.cpu_us_per_accept.map(|accept| format!("{} of CPU for an accept", time(accept))),
            self.cpu_us_per_accept
                .and(self.cpu_us_per_operation)
                .map(|operation| format!("{} for an operation", time(operation))),
            self.listen_overflows
                .filter(|many| *many > 0)
                .map(|many| format!("{many} found an accept queue full, of all listeners in its network")),
        ];
        let known: Vec<String> = parts.into_iter().flatten().collect();
        if known.is_empty() { Ok(()) } else { write!(f, "\nserver       {}", known.join(", ")) }
    }
}
