//! A connection on its way to the loop, thread or process that runs it.

use crate::listen::permit::Permit;
use crate::protocol::Side;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A connection on its way into a loop.
pub(crate) struct Incoming {
    pub(crate) socket: OwnedFd,
    pub(crate) permit: Permit,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) side: Side,
    /// Both zero where this side accepted.
    pub(crate) lag: Duration,
    pub(crate) connect_time: Duration,
}
