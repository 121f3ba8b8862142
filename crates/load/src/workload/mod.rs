//! Workloads: the work of the connections of a run. The file of each says what it sends, which clients and which server it has, and what results have
//! of it alone; here is the list of them.

mod acks;
mod errors;
mod handshakes;
mod hello;
pub mod http;
mod kind;
mod recorder;
mod round_trips;
mod shared;
mod tally;
mod websockets;

pub use acks::{Acks, Messages, Reading};
pub(crate) use acks::{hints, numbers};
pub use errors::Errors;
pub(crate) use handshakes::Handshakes;
pub use handshakes::{Agreed, HandshakeCounts, TlsReport};
pub use hello::Hello;
pub(crate) use kind::Kind;
pub use kind::{Life, Properties};
pub(crate) use recorder::Recorder;
pub use round_trips::{Question, RoundTrips};
pub(crate) use shared::Shared;
pub(crate) use tally::{Ended, Tally};
pub use tally::{Latencies, Numbers, Operations};
pub use websockets::{ClosedWith, WebSocketReport};
pub(crate) use websockets::{Layers, Recent, WebSockets};

use http::{Http, Wanted};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Work of connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Workload {
    /// Each connection asks and waits for the answer, again and again. An operation is a round trip.
    RoundTrips(RoundTrips),
    /// Each connection reads a greeting and ends; another takes its place. An operation is a connection.
    Hello(Hello),
    /// Each connection has a request and ends, and another takes its place: an operation is a connection. Or each is kept and has one request after
    /// the other, which are the operations.
    Http(Wanted),
    /// Each connection sends messages and verifies their acks. An operation is a message.
    Acks(Messages),
}

impl Workload {
    /// Creates a workload in which each connection sends `Ping` and waits for `Pong`, each `interval`; zero is back to back.
    pub fn ping(interval: Duration) -> Workload {
        Workload::RoundTrips(RoundTrips { interval, question: Question::Ping })
    }

    /// Creates a workload in which each connection sends a message of `size` bytes and waits until it is back, each `interval`; zero is back to back.
    pub fn echo(interval: Duration, size: u32) -> Workload {
        Workload::RoundTrips(RoundTrips { interval, question: Question::Echo { size } })
    }

    pub(crate) fn kind(&self) -> &dyn Kind {
        match self {
            Workload::RoundTrips(round_trips) => round_trips,
            Workload::Hello(hello) => hello,
            Workload::Http(wanted) => wanted,
            Workload::Acks(messages) => messages,
        }
    }

    fn kind_mut(&mut self) -> &mut dyn Kind {
        match self {
            Workload::RoundTrips(round_trips) => round_trips,
            Workload::Hello(hello) => hello,
            Workload::Http(wanted) => wanted,
            Workload::Acks(messages) => messages,
        }
    }

    /// Returns the part of results that a workload alone has.
    pub(crate) fn own(&self, tally: &Tally, run: &Ended) -> (Option<Acks>, Option<Http>) {
        match self {
            Workload::Http(wanted) => (None, Some(Http::of(wanted, tally, run))),
            Workload::Acks(messages) => (Some(Acks::of(messages, tally, run)), None),
            Workload::RoundTrips(_) | Workload::Hello(_) => (None, None),
        }
    }

    /// Returns the properties of its runs.
    pub fn properties(&self) -> Properties {
        self.kind().properties()
    }

    /// Returns the name on the command line and in results.
    pub fn name(&self) -> &'static str {
        self.properties().name
    }

    /// Sets the operations per second of all connections together. Returns false where its operations have no pace of their own.
    pub fn set_rate(&mut self, per_second: f64, connections: usize) -> bool {
        self.kind_mut().set_rate(per_second, connections)
    }
}
