//! Code that keeps a leased connection, and hears what happens to it meanwhile.

use crate::sync::OnceLock;
use crate::sys::panics;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Event of a connection that other code keeps, see [`Delegate::watched`](crate::Delegate::watched).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// The peer has ended or reset it. There may be input before the end.
    PeerEnded,
    /// The pool asks it to end, or has ended it.
    Draining,
    /// A new build takes over, and the connection may move there when it is given back: see
    /// [`Connection::may_move`](crate::blocking::Connection::may_move).
    Moving,
}

type Told = Box<dyn Fn(WatchEvent) + Send + Sync>;

/// Closure that hears of a connection; none of most.
#[derive(Default)]
pub(crate) struct Watcher(OnceLock<Told>);

impl Watcher {
    pub(crate) fn set(&self, told: Told) {
        self.0.get_or_init(|| told);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns false where nothing watches the connection.
    pub(super) fn tell(&self, event: WatchEvent) -> bool {
        let told = self.0.get().map(|told| catch_unwind(AssertUnwindSafe(|| told(event))).map_err(panics::discard));
        told.is_some()
    }
}
