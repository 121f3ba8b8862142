//! Leases that are to be told of when they are held for too long.

use super::ids::TargetId;
use super::timers::after;
use std::collections::BTreeMap;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Name of a watched lease: the moment at which it is told of, and a number.
pub(super) type Watch = (Instant, u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) target: TargetId,
    pub(super) since: Instant,
    pub(super) caller: &'static Location<'static>,
}

/// Leases that were not told of yet, the next first.
#[derive(Debug, Default)]
pub(super) struct Watched {
    all: BTreeMap<Watch, Held>,
    last: u64,
}

impl Watched {
    pub(super) fn begin(&mut self, held: Held, time: Option<Duration>) -> Option<Watch> {
        self.last += 1;
        let watch = (after(held.since, time?)?, self.last);
        self.all.insert(watch, held);
        Some(watch)
    }

    pub(super) fn end(&mut self, watch: Option<Watch>) {
        watch.and_then(|watch| self.all.remove(&watch));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.all.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Option<Held> {
        let due = self.all.first_entry().filter(|entry| entry.key().0 <= now);
        due.map(|entry| entry.remove())
    }
}
