//! A connection's place within the limits.

use super::ids::TargetId;
use crate::random::Random;
use std::time::Instant;

/// Place of a connection within the limits, which goes with it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) target: TargetId,
    pub(super) born: Instant,
    pub(super) uses: u64,
    /// Share of the jitter of lifetimes, of 2^32.
    pub(super) jitter: u32,
}

impl Slot {
    pub(super) fn new(target: TargetId, now: Instant, random: &mut Random) -> Self {
        Slot { target, born: now, uses: 0, jitter: random.next() as u32 }
    }
}

/// A connection that is leased. It goes back by [`Engine::give_back`](super::Engine::give_back) or
/// [`Engine::detach`](super::Engine::detach).
#[derive(Debug)]
#[must_use = "its place within the limits is lost unless it is given back"]
pub struct Leased<C> {
    /// The connection.
    pub connection: C,
    pub(super) slot: Slot,
}

impl<C> Leased<C> {
    /// Returns how many leases the connection has had, this one among them.
    pub fn uses(&self) -> u64 {
        self.slot.uses
    }

    /// Returns when the connection was made.
    pub fn born(&self) -> Instant {
        self.slot.born
    }
}

/// A connection that nobody leased.
#[derive(Debug)]
pub(super) struct Free<C> {
    pub(super) slot: Slot,
    pub(super) connection: C,
    pub(super) since: Instant,
}
