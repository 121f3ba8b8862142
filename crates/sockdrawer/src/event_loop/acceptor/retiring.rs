//! The end of a listening socket: the connections in its queue are accepted first.

use crate::event_loop::Shared;
use crate::gather::ReplyTo;
use crate::net::Address;
use crate::observe::Event;
use crate::sync::atomic::Ordering::SeqCst;
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
