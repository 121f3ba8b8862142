//! Failures of a target's connects, and the pauses after them.

use super::timers::after;
use crate::error::{ConnectError, Error};
use crate::random::Random;
use crate::settings::Settings;
use std::time::Instant;

/// Failures of a target's connects since the last that succeeded.
#[derive(Debug, Default)]
pub(super) struct Health {
    failures: u32,
    /// Moment of the first, and the error of the last.
    failing: Option<(Instant, ConnectError)>,
    pub(super) next_try: Option<Instant>,
    /// Set once failures went on for [`Settings::down_after`].
    pub(super) is_down: bool,
    /// Set where callers that wait are to be told that the target is down.
    refuses: bool,
}

impl Health {
    pub(super) fn failed(&mut self, now: Instant, error: ConnectError, settings: &Settings, random: &mut Random) {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        let since = self.failing.as_ref().map_or(now, |(since, _)| *since);
        self.failing = Some((since, error));
        self.next_try = after(now, random.up_to(settings.backoff.saturating_mul(factor).min(settings.backoff_max)));
        self.is_down |= self.down_at(settings).is_some_and(|at| at <= now);
        self.refuses = self.is_down;
    }

    /// Returns whether callers that wait are to be refused: after a failure while the target is down, and at the moment it counts as down.
    pub(super) fn take_refusal(&mut self, now: Instant, settings: &Settings) -> bool {
        if !self.is_down && self.down_at(settings).is_some_and(|at| at <= now) {
            (self.is_down, self.refuses) = (true, true);
        }
        std::mem::take(&mut self.refuses)
    }

    /// Returns when the target is down unless a connect succeeds.
    pub(super) fn down_at(&self, settings: &Settings) -> Option<Instant> {
        self.failing.as_ref().and_then(|(since, _)| after(*since, settings.down_after))
    }

    pub(super) fn may_try(&self, now: Instant) -> bool {
        self.next_try.is_none_or(|at| at <= now)
    }

    pub(super) fn error(&self) -> Option<ConnectError> {
        self.failing.as_ref().map(|(_, error)| error.clone())
    }

    pub(super) fn down(&self) -> Option<Error> {
        let (since, error) = self.failing.clone().filter(|_| self.is_down)?;
        Some(Error::Down { error, since, next_try: self.next_try.unwrap_or(since) })
    }
}
