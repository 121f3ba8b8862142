//! Replacing what died, and giving up when the policy says so: the same for parts that are threads and for processes.

use crate::clock::deadline;
use crate::config::Replace;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// After a start that failed, the first time and later.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// So many restarts are remembered.
const REMEMBERED: usize = 10_000;

/// When parts of a pool were replaced.
#[derive(Default)]
pub(crate) struct History {
    /// The last ones.
    recent: VecDeque<Instant>,
    pub(crate) in_all: usize,
}

impl History {
    /// What a policy is told of them.
    pub(super) fn known(&self) -> Vec<Instant> {
        self.recent.iter().copied().collect()
    }

    /// A part is to be replaced; that is counted when it is.
    pub(super) fn note(&mut self, at: Instant) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
    }
}

/// A part that is to be replaced later, and why.
pub(crate) struct PendingRestart {
    pub(crate) until: Instant,
    pub(crate) reason: String,
    /// How many parts of the kind, where they have no places.
    pub(crate) parts: usize,
    /// How often it could not be started since.
    pub(super) failures: u32,
}

impl PendingRestart {
    /// Of a part that died now; None where the policy gives up.
    pub(super) fn decided(replace: Replace, reason: &str) -> Option<PendingRestart> {
        let until = deadline(Instant::now(), delay(replace)?);
        Some(PendingRestart { until, ..PendingRestart::since_now(reason) })
    }

    pub(super) fn since_now(reason: &str) -> PendingRestart {
        PendingRestart { until: Instant::now(), reason: reason.to_owned(), parts: 1, failures: 0 }
    }

    /// The policy gave up.
    pub(super) fn for_good(reason: &str) -> PendingRestart {
        PendingRestart { until: deadline(Instant::now(), Duration::MAX), ..PendingRestart::since_now(reason) }
    }

    /// It could not be started: when it is tried again. What prevents it may last, so never in a hurry.
    pub(super) fn put_off(self, replace: Replace) -> Option<PendingRestart> {
        let pause = PAUSES[0].saturating_mul(1 << self.failures.min(16)).min(PAUSES[1]);
        let until = deadline(Instant::now(), delay(replace)?.max(pause));
        Some(PendingRestart { until, failures: self.failures + 1, ..self })
    }
}

fn delay(replace: Replace) -> Option<Duration> {
    match replace {
        Replace::Now => Some(Duration::ZERO),
        Replace::After(delay) => Some(delay),
        Replace::GiveUp => None,
    }
}
