//! The status of a pool.

use super::Counts;
use crate::net::Address;
use crate::protocol::{ConnectionId, Side};
use std::net::SocketAddr;
use std::time::Duration;

/// The status of a pool at one moment. Numbers of running threads may be a few microseconds apart; the count of permits is exact.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The readiness of the pool to take connections.
    pub readiness: Readiness,
    /// The revision of the configuration; the first is 1: see [`Error::Conflict`](crate::Error::Conflict).
    pub revision: u64,
    /// The generation in force, to which new connections belong.
    pub generation: u32,
    /// All generations that are in force or have connections, oldest first.
    pub generations: Vec<GenerationStatus>,
    /// Permits in use: connections, among them those that linger, and ended connections whose job still runs.
    pub connections: usize,
    /// Maximum of permits.
    pub limit: usize,
    /// The addresses at which the pool listens.
    pub listeners: Vec<ListenerStatus>,
    /// Removed addresses, and replaced sockets, that get no new connections and are emptied before they are closed.
    pub retiring: usize,
    /// The pool's helper processes, in models that have them.
    pub processes: Vec<ProcessStatus>,
    /// Numbers of processes of connections that were ended by a signal, by the signal's number. Signals that the pool sent are not counted.
    pub signalled: Vec<(i32, u64)>,
    /// The pool's loops, parked ones included.
    pub loops: Vec<LoopStatus>,
    /// Threads of [`Model::Threads`](crate::Model::Threads), those that wait for a connection included.
    pub threads: usize,
    /// Worker threads.
    pub workers: usize,
    /// Jobs that wait for a worker.
    pub jobs_waiting: usize,
    /// Threads that run delegated connections, or ran one and wait for the next.
    pub delegates: usize,
    /// Delegated connections that wait for a thread.
    pub delegates_waiting: usize,
    /// The sum of all counters. After an [`Upgrade`](crate::Upgrade) what the pool of this name had counted in the processes before this one
    /// is in it, from [`Upgrade::ready`](crate::Upgrade::ready) on: no counter of a name jumps back. What a predecessor counts after that, for
    /// connections that stayed there, is added as it tells of them; what it had not told when it was killed is missing.
    pub counts: Counts,
    /// The number of restarts: loops, workers and processes that were replaced, and threads that died. Restarts inside a helper process are
    /// no longer counted when that process is gone.
    pub restarts: usize,
}

impl Status {
    /// Returns the number of live generations: the one in force, and older ones with connections.
    pub fn live_generations(&self) -> usize {
        self.generations.len()
    }
}

/// The readiness of a pool to take connections.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Readiness {
    /// The pool takes connections.
    Serving,
    /// The pool is suspended: connections wait in the kernel.
    Suspended,
    /// The pool refuses: connections are accepted and turned away.
    Refusing,
    /// The pool is draining: it ends.
    Draining,
    /// The pool has stopped, for this reason.
    Stopped(String),
}

/// The status of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GenerationStatus {
    /// The generation's number.
    pub id: u32,
    /// The generation's connections.
    pub connections: usize,
}

/// The status of an address at which a pool listens.
#[derive(Clone, Debug)]
pub struct ListenerStatus {
    /// The address, with the real port.
    pub address: Address,
    /// Connections that were accepted here, those that linger included.
    pub connections: usize,
    /// Maximum of such connections; None: only the pool's limit counts.
    pub limit: Option<usize>,
    /// The readiness of the listener, which takes connections only while the pool does.
    pub readiness: Readiness,
    /// Connections in the accept queue.
    pub queued: usize,
    /// Maximum of connections in the accept queue, as configured: the kernel cuts it to `net.core.somaxconn`.
    pub backlog: u32,
    /// The number of listening sockets.
    pub sockets: usize,
}

/// The status of a helper process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The process id.
    pub pid: u32,
    /// The process's connections.
    pub connections: usize,
    /// The process takes new connections.
    pub active: bool,
}

/// The status of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoopStatus {
    /// The loop's connections.
    pub connections: usize,
    /// Connections that the loop accepted since it started, or since it replaced a loop that died.
    pub accepted: u64,
    /// The loop takes new connections.
    pub active: bool,
    /// The loop's turn has lasted longer than [`Config::stuck_after`](crate::Config::stuck_after).
    pub stuck: bool,
}

/// The status of a connection.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// The connection's number.
    pub id: ConnectionId,
    /// The number of the connection's generation; 0 where it stayed in a process before this one.
    pub generation: u32,
    /// The peer's address; None for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The listener that accepted the connection; None for a connection made by connecting.
    pub listener: Option<Address>,
    /// The side of the connection: accepted, or made by connecting.
    pub side: Side,
    /// The time since the connection opened, exact to about a second.
    pub age: Duration,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// The state of the connection: what it is doing.
    pub state: ConnectionState,
    /// The connection was asked to end.
    pub draining: bool,
    /// The tag given by the protocol or by [`Pool::tag`](crate::Pool::tag).
    pub tag: Option<String>,
}

/// The state of a connection: what it is doing. If several apply, the first of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The connect has not completed yet.
    Connecting,
    /// The connection is delegated, or about to be: [`Step::Delegate`](crate::Step::Delegate). Or it runs in a process of its own, which
    /// alone knows what it is doing.
    Delegated,
    /// A job of the connection runs, or a callback that had not returned when the status was taken.
    Working,
    /// The kernel has not taken all of its output.
    Sending,
    /// The protocol has paused its input ([`Context::pause`](crate::Context::pause)), or its notes find no room.
    Waiting,
    /// Part of a message was received.
    Receiving,
    /// The connection waits for its peer.
    Idle,
}
