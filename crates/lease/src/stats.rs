//! Numbers and events of a pool.

use crate::error::{ConnectError, Error};
use crate::histogram::Histogram;
use std::collections::BTreeMap;
use std::panic::Location;
use std::time::Duration;

/// Numbers of a pool since it began.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Times from the ask to the lease, of all leases. One whose connection had gone before its holder got it counts too, here and in `using`: its
    /// caller then has another.
    pub waiting: Histogram,
    /// Times of leases that are over.
    pub using: Histogram,
    /// Times of connects that succeeded.
    pub connecting: Histogram,
    /// Connects that failed, or took too long.
    pub failed_connects: u64,
    /// Connections that are no longer the pool's, by the reason.
    pub ends: BTreeMap<Reason, u64>,
    /// Asks that ended without a lease, by the way they ended.
    pub refusals: BTreeMap<Refusal, u64>,
    /// Leases that were held for longer than [`Settings::held_after`](crate::Settings::held_after).
    pub held: u64,
}

/// Reason for which a connection is no longer the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Its holder discarded it or panicked, or it came back as [`Returned::Broken`](crate::Returned::Broken).
    Broken,
    /// Its peer had ended or reset it: told while it was free or leased, or seen when it was about to be leased.
    PeerEnded,
    /// Its peer had sent something that was not asked for, seen when it was about to be leased.
    Unasked,
    /// It went to a new build of the program.
    Moved,
    /// Its check failed.
    CheckFailed,
    /// Its reset failed.
    ResetFailed,
    /// It reached its lifetime.
    Aged,
    /// It was leased [`Settings::max_uses`](crate::Settings::max_uses) times.
    Used,
    /// It was near its end, and a younger one was there in its place.
    Renewed,
    /// It was free for [`Settings::free_timeout`](crate::Settings::free_timeout).
    FreeTooLong,
    /// It was above a limit.
    Surplus,
    /// It made room for a connection to another target.
    MadeRoom,
    /// Its target was removed, or the pool was drained or closed.
    Unneeded,
    /// It was detached, and is its holder's.
    Detached,
}

/// End of an ask without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// [`Error::TimedOut`].
    TimedOut,
    /// [`Error::Full`].
    Full,
    /// [`Error::Dropped`].
    Dropped,
    /// [`Error::Down`].
    Down,
    /// [`Error::Suspended`].
    Suspended,
    /// [`Error::Closed`].
    Closed,
    /// The future was dropped while it waited.
    Cancelled,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        match error {
            Error::TimedOut { .. } => Refusal::TimedOut,
            Error::Full { .. } => Refusal::Full,
            Error::Dropped { .. } => Refusal::Dropped,
            Error::Down { .. } => Refusal::Down,
            Error::Suspended => Refusal::Suspended,
            Error::Closed => Refusal::Closed,
        }
    }
}

/// Event of a pool, for [`Pool::observe`](crate::Pool::observe).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<K> {
    /// A connect succeeded.
    Connected {
        /// Target of the connect.
        target: K,
        /// Time of the connect.
        took: Duration,
    },
    /// A connect failed, or took too long.
    ConnectFailed {
        /// Target of the connect.
        target: K,
        /// Error of the connect.
        error: ConnectError,
        /// Set from [`Settings::down_after`](crate::Settings::down_after) on, until a connect succeeds.
        is_down: bool,
    },
    /// A connection is no longer the pool's.
    Ended {
        /// Target of the connection.
        target: K,
        /// Reason of the end.
        reason: Reason,
        /// Time since it was connected.
        age: Duration,
        /// Leases it had.
        uses: u64,
    },
    /// A lease is held for longer than [`Settings::held_after`](crate::Settings::held_after). Told once for a lease, while it is held.
    Held {
        /// Target of the lease.
        target: K,
        /// Place in the code that asked for the lease.
        caller: &'static Location<'static>,
        /// Time since the lease was taken.
        held: Duration,
    },
}
