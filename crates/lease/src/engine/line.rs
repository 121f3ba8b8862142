//! All who wait for a lease.

use super::ids::{TargetId, WaiterId};
use super::timers::Timers;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) target: TargetId,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

/// Waiters for all targets. Each target has the order of its own.
#[derive(Debug)]
pub(super) struct Line {
    all: BTreeMap<WaiterId, Waiter>,
    pub(super) deadlines: Timers<WaiterId>,
}

impl Line {
    pub(super) fn new() -> Self {
        Line { all: BTreeMap::new(), deadlines: Timers::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.all.get(&id)
    }

    pub(super) fn join(&mut self, id: WaiterId, waiter: Waiter) {
        self.deadlines.change(id, None, Some(waiter.deadline));
        self.all.insert(id, waiter);
    }

    pub(super) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.all.remove(&id)?;
        self.deadlines.change(id, Some(waiter.deadline), None);
        Some(waiter)
    }
}
