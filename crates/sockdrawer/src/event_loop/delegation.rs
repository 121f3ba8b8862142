//! The delegation of a connection, as its loop has it: from the protocol's request to the end of the lease.

use super::lease::Leased;
use super::watcher::WatchEvent;
use crate::observe::counters::Counters;
use crate::protocol::{Delegate, Side};
use crate::sys::{Errno, System, panics};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The delegation of a connection, from its request on.
pub(super) enum Delegation {
    /// The connection is leased as soon as all is sent.
    Pending(Delegate),
    Leased {
        leased: Arc<Leased>,
        socket: Arc<OwnedFd>,
        /// The connection waits to be taken, and epoll tells when its peer ends it.
        watched: bool,
        /// Deadline of a purge: the connection ends by then when it comes back.
        purge_by: Option<Instant>,
    },
}

impl Delegation {
    /// Has epoll tell the end of a connection that waits to be taken. Where it cannot, the code that takes it sees its end.
    pub(super) fn watch(&mut self, system: &dyn System, epoll: BorrowedFd<'_>, token: u64) {
        if let Delegation::Leased { socket, watched, .. } = self {
            *watched = system.watch_end(epoll, socket.as_fd(), token).is_ok();
        }
    }

    /// Handles the end or reset of a connection that waits to be taken, by its peer. Half an end leaves an accepted one as it is: the peer may
    /// still read. For one that was made by connecting it means that nothing will come. Returns whether the connection is over and nothing took it.
    pub(super) fn peer_ended(&self, system: &dyn System, side: Side) -> bool {
        let Delegation::Leased { leased, socket, watched: true, .. } = self else { return false };
        if leased.watcher.tell(WatchEvent::PeerEnded) {
            return false;
        }
        let over = match system.peek(socket.as_fd()) {
            Ok(0) => side == Side::Connected,
            Ok(_) | Err(Errno::AGAIN) => false,
            Err(_) => true,
        };
        over && leased.queue().is_some_and(|queue| queue.give_up(leased))
    }

    /// Ends a lease, or one that is about to begin, because the slot is given up: the lessee can do nothing more with the socket.
    pub(super) fn end(self, system: &dyn System, counters: &Counters, reset: bool) -> Option<Arc<Leased>> {
        match self {
            Delegation::Pending(delegate) => {
                panics::discard(delegate);
                None
            }
            Delegation::Leased { leased, socket, .. } => {
                leased.end();
                let socket = socket.as_fd();
                // It fails only where the connection is gone already.
                let _ = if reset { system.reset(socket) } else { system.finish(socket) };
                leased.count_bytes(counters);
                panics::discard(leased.count_notes(counters));
                Some(leased)
            }
        }
    }
}
