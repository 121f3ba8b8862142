//! A connection given away for a time: to blocking code, or to whatever else reads and writes it meanwhile.

use super::Note;
use std::any::Any;

/// Code that takes over a whole connection: [`Step::Delegate`](crate::Step::Delegate). [`Delegate::new`] makes one of a closure
/// that reads and writes and may wait.
pub struct Delegate {
    /// What is given is a hold on the connection, whose type only those know who have sockets.
    pub(crate) take: Take,
    /// Whether it may wait, and needs a thread of its own for that.
    pub(crate) blocks: bool,
}

pub(crate) type Take = Box<dyn FnOnce(Box<dyn Any + Send>) + Send>;

impl std::fmt::Debug for Delegate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Delegate")
    }
}

/// What becomes of a connection after its [`Delegate`].
#[derive(Debug)]
pub enum After {
    /// It comes back: [`Protocol::notified`](crate::Protocol::notified) gets this note, `received` what was not read, and `notified`
    /// the notes that came meanwhile and were not taken.
    Return(Note),
    /// It ends, as with [`Step::Close`](crate::Step::Close).
    End,
}
