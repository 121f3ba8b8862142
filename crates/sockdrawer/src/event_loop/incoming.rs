//! A connection on its way to the loop, thread or process that runs it.

use crate::ipc::record::Record;
use crate::listen::permit::Permit;
use crate::protocol::{Note, Side};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A connection on its way into a loop.
pub(crate) struct Incoming {
    pub(crate) socket: OwnedFd,
    pub(crate) permit: Permit,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) side: Side,
    /// Parts of a connection that arrived from another program; None: it did not.
    pub(crate) arrival: Option<Box<Arrival>>,
    /// Delay of the connect behind its schedule; zero, as `connect_time`, where this side accepted.
    pub(crate) lag: Duration,
    pub(crate) connect_time: Duration,
}

/// Parts of a connection that arrives from another program, beside its socket.
pub(crate) struct Arrival {
    pub(crate) record: Record,
    /// Notes that came for the connection on its way.
    pub(crate) notes: Vec<Note>,
    /// The connection reads nothing before all that arrive together are here.
    pub(crate) together: bool,
}
