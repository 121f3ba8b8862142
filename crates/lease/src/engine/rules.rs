//! Settings and mode: what may be done now.

use super::slot::Slot;
use super::target::TargetState;
use super::timers::after;
use crate::random::part;
use crate::settings::Settings;
use crate::stats::Reason;
use std::time::{Duration, Instant};

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
    /// Maximum by which lifetimes are shortened.
    spread: Duration,
}

impl Rules {
    pub(super) fn new(settings: Settings) -> Self {
        let mut rules = Rules { settings: Settings::default(), mode: Mode::Open, spread: Duration::ZERO };
        rules.set(settings);
        rules
    }

    pub(super) fn set(&mut self, settings: Settings) {
        let percent = u32::from(settings.lifetime_jitter.min(100));
        self.spread = settings.lifetime.unwrap_or_default().saturating_mul(percent) / 100;
        self.settings = settings;
    }

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

    /// Returns how many connections are to be begun or checked for the target: none for waiters that returns will serve sooner.
    pub(super) fn wanted<K, C>(&self, now: Instant, target: &TargetState<K, C>) -> usize {
        let (waiting, floor) = (target.line.len(), self.floor(target));
        let needed = if waiting + floor == 0 { 0 } else { self.needed(now, target, waiting, floor) };
        let replaced = if self.keeps(target) && !target.moves { target.owed } else { 0 };
        needed.saturating_sub(target.free.young() + target.coming()) + replaced
    }

    fn needed<K, C>(&self, now: Instant, target: &TargetState<K, C>, waiting: usize, floor: usize) -> usize {
        let returns = target.returns(now);
        let is_early = |since: Option<Instant>| target.held_until(since).is_some_and(|until| until > now);
        let mut waiters = waiting;
        if returns > 0 && is_early(target.line.busy_since) && !target.line.is_overloaded(now) {
            // The estimate may be wrong, and then one connect too many is enough.
            waiters = waiting.saturating_sub(returns).min(1);
        }
        if is_early(target.short_since) && returns >= waiting + floor { waiters } else { waiters + floor }
    }

    /// Returns how many free connections the target is to have.
    pub(super) fn floor<K, C>(&self, target: &TargetState<K, C>) -> usize {
        if self.mode == Mode::Open && target.kept && !target.moves {
            self.settings.min_free.min(self.settings.max_free)
        } else {
            0
        }
    }

    pub(super) fn may_connect<K, C>(&self, now: Instant, target: &TargetState<K, C>) -> bool {
        self.serves()
            && target.connecting() < self.settings.max_connecting
            && target.count() < self.settings.max_per_target
            && target.health.may_try(now)
    }

    fn life(&self, slot: &Slot) -> Option<Duration> {
        Some(self.settings.lifetime?.saturating_sub(part(self.spread, slot.jitter)))
    }

    /// Returns when the connection has reached its age.
    pub(super) fn expiry(&self, slot: &Slot) -> Option<Instant> {
        after(slot.born, self.life(slot)?)
    }

    /// Returns when the connection is near its end: at 95 % of its lifetime.
    pub(super) fn old_at(&self, slot: &Slot) -> Option<Instant> {
        let life = self.life(slot)?;
        after(slot.born, life - life / 20)
    }

    pub(super) fn is_old(&self, now: Instant, slot: &Slot) -> bool {
        let is_nearly_used = |max: u64| max >= 20 && slot.uses >= max - max / 20;
        self.old_at(slot).is_some_and(|at| at <= now) || self.settings.max_uses.is_some_and(is_nearly_used)
    }

    /// Returns why the connection is not to be leased again: for its age, or because it was leased often enough.
    pub(super) fn worn(&self, now: Instant, slot: &Slot) -> Option<Reason> {
        let is_used = || self.settings.max_uses.is_some_and(|max| slot.uses >= max).then_some(Reason::Used);
        if self.expiry(slot).is_some_and(|at| at <= now) { Some(Reason::Aged) } else { is_used() }
    }

    /// Returns why a connection is not to be leased any more, whatever it is needed for, with what was told of its end. Only one that is fit in all
    /// else moves.
    pub(super) fn unfit(&self, now: Instant, slot: &Slot, gone: Option<Reason>) -> Option<Reason> {
        match gone {
            Some(Reason::Moved) => self.worn(now, slot).or(gone),
            _ => gone.or_else(|| self.worn(now, slot)),
        }
    }

    /// Returns whether a connection that is free since then needs a check.
    pub(super) fn is_stale(&self, now: Instant, since: Instant) -> bool {
        self.settings.check_after.is_some_and(|time| now.saturating_duration_since(since) >= time)
    }
}
