//! The end of a listening socket: the connections in its queue are accepted first.

use super::{Accepted, Accepting, Acceptor};
use crate::admission::Reject;
use crate::event_loop::Shared;
use crate::event_loop::connections::Connections;
use crate::gather::ReplyTo;
use crate::net::Address;
use crate::observe::Event;
use crate::observe::counters::RejectReason;
use crate::sync::atomic::Ordering::SeqCst;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The end of an address, shared by the loops that hold its sockets. When the last loop has given up its sockets the caller waits for
/// them no more, and an event is told where the address ends too.
pub(crate) struct Retiring {
    address: Option<Address>,
    shared: Arc<Shared>,
    _done: ReplyTo<()>,
}

impl Retiring {
    pub(crate) fn new(address: Option<Address>, shared: Arc<Shared>, done: ReplyTo<()>) -> Arc<Retiring> {
        shared.leaving.fetch_add(1, SeqCst);
        Arc::new(Retiring { address, shared, _done: done })
    }
}

impl Drop for Retiring {
    fn drop(&mut self) {
        if let Some(address) = self.address.take() {
            self.shared.tell(&Event::ListenerRemoved(address));
        }
        self.shared.leaving.fetch_sub(1, SeqCst);
        self.shared.notifier.notify();
    }
}

/// Connections that are turned away one by one at a socket whose time is over; more, from clients that are faster, are counted and
/// reset with the socket.
const TURNED_AWAY: usize = 8192;

impl Acceptor {
    pub(super) fn is_retiring(&self) -> bool {
        self.held.iter().flatten().any(|held| held.retiring.is_some())
    }

    /// Resets the connections that wait at retiring sockets, and those that were accepted and had nothing to run them with, and gives the
    /// sockets up. Returns the number of these connections.
    pub(in crate::event_loop) fn turn_away_retiring(&mut self, connections: &mut Connections, how: &Reject) -> usize {
        let unplaced = self.take_unplaced();
        let mut waited = unplaced.len();
        for incoming in unplaced {
            connections.io.counters.closed().add(1);
            // It fails only where the connection is gone already.
            let _ = connections.io.system.reset_on_close(incoming.socket.as_fd());
        }
        for index in 0..self.held.len() {
            if self.held[index].as_ref().is_none_or(|held| held.retiring.is_none()) {
                continue;
            }
            let how = (how, RejectReason::Refusing);
            let turned_away = (0..TURNED_AWAY).take_while(|_| {
                !self.has_nothing(&connections.io, index) && matches!(self.turn_away(connections, index, how), Accepted::Yes)
            });
            waited += turned_away.count();
            self.unwatch_socket(&connections.io, index);
            let held = self.held[index].take();
            waited += held.map_or(0, |held| connections.io.system.queued(held.socket.fd()).unwrap_or(0));
        }
        // Nothing is left to be accepted.
        self.state = Accepting::Open;
        self.waiter.leave();
        waited
    }
}
