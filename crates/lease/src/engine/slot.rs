//! A connection's place within the limits.

use super::held::Watch;
use super::ids::{JobId, TargetId};
use crate::random::Random;
use std::time::Instant;

/// Place of a connection within the limits, which goes with it.
#[derive(Debug)]
pub(super) struct Slot {
    /// The job that connected it, which is its name.
    pub(super) name: JobId,
    pub(super) target: TargetId,
    pub(super) born: Instant,
    pub(super) uses: u64,
    /// Share of the jitter of lifetimes, of 2^32.
    pub(super) jitter: u32,
    /// Set once it is near its end, and its replacement was asked for.
    pub(super) is_old: bool,
}

impl Slot {
    pub(super) fn new(name: JobId, target: TargetId, now: Instant, random: &mut Random) -> Self {
        Slot { name, target, born: now, uses: 0, jitter: random.next() as u32, is_old: false }
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
    pub(super) taken: Instant,
    pub(super) watch: Option<Watch>,
    /// Place in line of its holder, and since when.
    pub(super) place: Place,
}

/// Place by age of a caller among those that ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) since: Instant,
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
