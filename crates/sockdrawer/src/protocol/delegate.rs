//! Delegates: code outside the loop that reads and writes a whole connection for a time.

use super::{Note, Peer};
use std::any::Any;

/// Code that takes over a whole connection: [`Step::Delegate`](crate::Step::Delegate). [`Delegate::new`] makes a delegate from a closure
/// that reads, writes and may block.
pub struct Delegate {
    /// The code that is run. Its argument is the event loop's `Hold` on the connection, as `Any`: this module is below those that know sockets.
    pub(crate) take: Take,
    /// The code may block, and so needs a thread of its own.
    pub(crate) blocks: bool,
    /// The peer with which the protocol was opened, if it asked for this delegate then.
    pub(crate) peer: Option<Box<Peer>>,
}

impl Delegate {
    #[inline(never)]
    pub(super) fn opened_with(mut self, peer: &Peer) -> Delegate {
        self.peer.get_or_insert_with(|| Box::new(peer.clone()));
        self
    }
}

pub(crate) type Take = Box<dyn FnOnce(Box<dyn Any + Send>) + Send>;

impl std::fmt::Debug for Delegate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Delegate")
    }
}

/// The decision how a connection goes on after its [`Delegate`].
#[derive(Debug)]
pub enum After {
    /// The connection returns to its protocol: [`Protocol::notified`](crate::Protocol::notified) gets this note, `received` the input that
    /// was not read, and `notified` the notes that came meanwhile and were not taken.
    Return(Note),
    /// The connection ends, as with [`Step::Close`](crate::Step::Close).
    End,
}
