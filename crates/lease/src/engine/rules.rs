//! Settings and mode: what may be done now.

use super::slot::Slot;
use super::target::TargetState;
use super::timers::after;
use crate::random::part;
use crate::settings::Settings;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Open,
    Suspended,
    /// Closed at that moment, or once nothing is left.
    Draining(Instant),
    Closed,
}

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) settings: Settings,
    pub(super) mode: Mode,
}

impl Rules {
    /// Returns whether connections are made and leased.
    pub(super) fn serves(&self) -> bool {
        matches!(self.mode, Mode::Open | Mode::Draining(_))
    }

    pub(super) fn drains_until(&self) -> Option<Instant> {
        if let Mode::Draining(deadline) = self.mode { Some(deadline) } else { None }
    }

    /// Returns whether a connection to the target is of use once nobody waits for it.
    pub(super) fn keeps<K, C>(&self, target: &TargetState<K, C>) -> bool {
        target.kept && matches!(self.mode, Mode::Open | Mode::Suspended)
    }

    /// Returns how many connections are to be begun or checked for the target.
    pub(super) fn wanted<K, C>(&self, target: &TargetState<K, C>) -> usize {
        (target.waiters.len() + self.floor(target)).saturating_sub(target.free.len() + target.coming())
    }

    /// Returns how many free connections the target is to have.
    pub(super) fn floor<K, C>(&self, target: &TargetState<K, C>) -> usize {
        if self.mode == Mode::Open && target.kept { self.settings.min_free.min(self.settings.max_free) } else { 0 }
    }

    pub(super) fn may_connect<K, C>(&self, now: Instant, target: &TargetState<K, C>) -> bool {
        self.serves()
            && target.connecting() < self.settings.max_connecting
            && target.count() < self.settings.max_per_target
            && target.health.may_try(now)
    }

    /// Returns when the connection has reached its age.
    pub(super) fn expiry(&self, slot: &Slot) -> Option<Instant> {
        let lifetime = self.settings.lifetime?;
        let most = lifetime.saturating_mul(u32::from(self.settings.lifetime_jitter.min(100))) / 100;
        after(slot.born, lifetime.saturating_sub(part(most, slot.jitter)))
    }

    /// Returns whether the connection has been used for long enough, or often enough.
    pub(super) fn is_worn(&self, now: Instant, slot: &Slot) -> bool {
        self.expiry(slot).is_some_and(|at| at <= now) || self.settings.max_uses.is_some_and(|max| slot.uses >= max)
    }

    /// Returns whether a connection that is free since then needs a check.
    pub(super) fn is_stale(&self, now: Instant, since: Instant) -> bool {
        self.settings.check_after.is_some_and(|time| now.saturating_duration_since(since) >= time)
    }
}
