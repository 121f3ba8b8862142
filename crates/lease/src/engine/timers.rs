//! Moments at which something is to be done.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Timers by subject, the earliest first. A subject has one at most, and remembers its moment, which moves or ends the timer.
#[derive(Debug)]
pub(super) struct Timers<T>(BTreeSet<(Instant, T)>);

impl<T: Copy + Ord> Timers<T> {
    pub(super) fn new() -> Self {
        Timers(BTreeSet::new())
    }

    pub(super) fn change(&mut self, subject: T, from: Option<Instant>, to: Option<Instant>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.0.remove(&(from, subject));
        }
        if let Some(to) = to {
            self.0.insert((to, subject));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn due(&self, now: Instant) -> Option<T> {
        self.0.first().filter(|(at, _)| *at <= now).map(|(_, subject)| *subject)
    }
}

/// Returns the moment after a time; None if it is beyond the clock's end, which is never.
pub(super) fn after(moment: Instant, time: Duration) -> Option<Instant> {
    moment.checked_add(time)
}

/// Returns the earlier moment; None is never.
pub(super) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}
