//! All that the engine says: actions for its driver, numbers, and events where they are listened to.

use super::Action;
use crate::error::Error;
use crate::stats::{Event, Refusal, Stats};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Reports<K, C> {
    pub(super) actions: VecDeque<Action<K, C>>,
    pub(super) stats: Stats,
    pub(super) is_observed: bool,
}

impl<K, C> Reports<K, C> {
    pub(super) fn new() -> Self {
        Reports { actions: VecDeque::new(), stats: Stats::default(), is_observed: false }
    }

    pub(super) fn tell(&mut self, event: impl FnOnce() -> Event<K>) {
        if self.is_observed {
            self.actions.push_back(Action::Tell(event()));
        }
    }

    pub(super) fn refused(&mut self, refusal: Refusal) {
        *self.stats.refusals.entry(refusal).or_default() += 1;
    }

    /// Counts an ask that is refused at once.
    pub(super) fn refuse(&mut self, error: Error) -> Error {
        self.refused(Refusal::from(&error));
        error
    }
}
