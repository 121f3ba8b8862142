//! What a pool is right now.

use super::Counts;
use crate::net::Address;
use crate::protocol::{ConnectionId, Side};
use std::net::SocketAddr;
use std::time::Duration;

/// A pool at one moment. Read from running threads: numbers may be a few microseconds apart, the permits are exact.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whether it takes connections.
    pub readiness: Readiness,
    /// How often it was changed, from 1: see [`Error::Conflict`](crate::Error::Conflict).
    pub revision: u64,
    /// The generation that new connections get.
    pub generation: u32,
    /// All generations that are in force or have connections, oldest first.
    pub generations: Vec<GenerationStatus>,
    /// Permits taken: connections, those that linger, and dead ones whose job still runs.
    pub connections: usize,
    /// The most permits.
    pub limit: usize,
    /// Where it listens.
    pub listeners: Vec<ListenerStatus>,
    /// Addresses, or former sockets of one, that get no new connections any more and are emptied before they close.
    pub retiring: usize,
    /// Its processes, where it has some beside this one.
    pub processes: Vec<ProcessStatus>,
    /// How many of its connections' own processes each signal ended, by the signal's number. Those that the pool sent are not among
    /// them.
    pub signalled: Vec<(i32, u64)>,
    /// Its loops, parked ones too.
    pub loops: Vec<LoopStatus>,
    /// Threads of [`Model::Threads`](crate::Model::Threads), those that wait for a connection too.
    pub threads: usize,
    /// Worker threads.
    pub workers: usize,
    /// Jobs that wait for a worker.
    pub jobs_waiting: usize,
    /// Threads that run delegated connections, or ran one and wait for the next.
    pub delegates: usize,
    /// Delegated connections that wait for a thread.
    pub delegates_waiting: usize,
    /// All counters.
    pub counts: Counts,
    /// Loops, workers and processes replaced so far, and threads that died. What a process had replaced in it is not counted any more
    /// when it is gone.
    pub restarts: usize,
}

impl Status {
    /// The number of live generations: the one in force and those with connections.
    pub fn live_generations(&self) -> usize {
        self.generations.len()
    }
}

/// Whether a pool takes connections.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Readiness {
    /// Yes.
    Serving,
    /// No: they wait in the kernel.
    Suspended,
    /// No: they are accepted and turned away.
    Refusing,
    /// No: it is ending.
    Draining,
    /// No more, for this reason.
    Stopped(String),
}

/// One generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub id: u32,
    /// Its connections.
    pub connections: usize,
}

/// One address.
#[derive(Clone, Debug)]
pub struct ListenerStatus {
    /// The address, with the real port.
    pub address: Address,
    /// Connections that came in here, those that linger included.
    pub connections: usize,
    /// The most of them; None: as many as the pool's limit allows.
    pub limit: Option<usize>,
    /// Whether it takes connections; it does so only while the pool does.
    pub readiness: Readiness,
    /// Connections that wait in the kernel to be accepted.
    pub queued: usize,
    /// The most that wait there, as was asked for: the kernel cuts it to `net.core.somaxconn`.
    pub backlog: u32,
    /// Listening sockets.
    pub sockets: usize,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Its number in the system.
    pub pid: u32,
    /// Its connections.
    pub connections: usize,
    /// Whether it takes new ones.
    pub active: bool,
}

/// One loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoopStatus {
    /// Its connections.
    pub connections: usize,
    /// Connections it accepted since it started, or replaced another.
    pub accepted: u64,
    /// Whether it takes new ones.
    pub active: bool,
    /// Whether it has not turned for too long.
    pub stuck: bool,
}

/// One connection.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Its number.
    pub id: ConnectionId,
    /// Its generation.
    pub generation: u32,
    /// Its peer; None for a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Where it came in; None for one that was made by connecting.
    pub listener: Option<Address>,
    /// Accepted or connected.
    pub side: Side,
    /// Since it opened, exact to about a second.
    pub age: Duration,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// What it is doing.
    pub state: ConnectionState,
    /// Whether it was asked to end.
    pub draining: bool,
    /// What it is called, by its protocol or by [`Pool::tag`](crate::Pool::tag).
    pub tag: Option<String>,
}

/// What a connection is doing: of several things the first of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ConnectionState {
    /// It is not connected yet.
    Connecting,
    /// It is given away, or about to be: [`Step::Delegate`](crate::Step::Delegate). Or it is in a process of its own, which alone
    /// knows what it is doing.
    Delegated,
    /// A job of it runs, or a callback that has not returned when it was asked for.
    Working,
    /// The kernel has not taken all of its output.
    Sending,
    /// Its protocol said [`Step::Wait`](crate::Step::Wait).
    Waiting,
    /// Part of a message was received.
    Receiving,
    /// It waits for its peer.
    Idle,
}
