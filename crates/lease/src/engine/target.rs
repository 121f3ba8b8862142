//! All that the engine knows of a target: its free connections, its line of waiters and its counts.

use super::health::Health;
use super::ids::{Kind, WaiterId};
use super::rules::Rules;
use super::slot::{Free, Slot};
use super::timers::{after, earliest};
use crate::error::Error;
use crate::settings::Order;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct TargetState<K, C> {
    pub(super) name: K,
    /// Asked for since it was removed.
    pub(super) kept: bool,
    /// Longest free first.
    pub(super) free: VecDeque<Free<C>>,
    pub(super) leased: usize,
    /// Jobs by kind: on time, and late.
    jobs: [[usize; 2]; 4],
    pub(super) waiters: BTreeSet<WaiterId>,
    pub(super) health: Health,
    /// Moment until which no free connection is too old, or free for too long. May be early.
    pub(super) sweep: Option<Instant>,
    /// Moment of the timer that is set.
    pub(super) timer: Option<Instant>,
}

impl<K, C> TargetState<K, C> {
    pub(super) fn new(name: K) -> Self {
        TargetState {
            name,
            kept: true,
            free: VecDeque::new(),
            leased: 0,
            jobs: [[0; 2]; 4],
            waiters: BTreeSet::new(),
            health: Health::default(),
            sweep: None,
            timer: None,
        }
    }

    pub(super) fn begin(&mut self, kind: Kind) {
        self.jobs[kind as usize][0] += 1;
    }

    pub(super) fn end(&mut self, kind: Kind, late: bool) {
        self.jobs[kind as usize][usize::from(late)] -= 1;
    }

    pub(super) fn late(&mut self, kind: Kind) {
        self.end(kind, false);
        self.jobs[kind as usize][1] += 1;
    }

    fn under_way(&self, kind: Kind) -> usize {
        self.jobs[kind as usize].iter().sum()
    }

    pub(super) fn connecting(&self) -> usize {
        self.under_way(Kind::Connect)
    }

    pub(super) fn checking(&self) -> usize {
        self.under_way(Kind::Check) + self.under_way(Kind::Reset)
    }

    pub(super) fn closing(&self) -> usize {
        self.under_way(Kind::Close)
    }

    /// Returns how many connections are about to be there: each serves a waiter. What is late is not counted on.
    pub(super) fn coming(&self) -> usize {
        [Kind::Connect, Kind::Check, Kind::Reset].map(|kind| self.jobs[kind as usize][0]).iter().sum()
    }

    /// Returns whether a connect is under way that is not late.
    pub(super) fn awaits_connect(&self) -> bool {
        self.jobs[Kind::Connect as usize][0] > 0
    }

    /// Returns how many places within the limits are taken.
    pub(super) fn count(&self) -> usize {
        self.leased + self.free.len() + self.jobs.iter().flatten().sum::<usize>()
    }

    /// Returns whether there is a connection that may come back to those who wait.
    pub(super) fn is_alive(&self) -> bool {
        self.leased + self.free.len() + self.checking() > 0
    }

    pub(super) fn next_free(&self, order: Order) -> Option<&Free<C>> {
        match order {
            Order::LastUsedFirst => self.free.back(),
            Order::LongestFreeFirst => self.free.front(),
        }
    }

    pub(super) fn take_free(&mut self, order: Order) -> Option<Free<C>> {
        match order {
            Order::LastUsedFirst => self.free.pop_back(),
            Order::LongestFreeFirst => self.free.pop_front(),
        }
    }

    pub(super) fn put(&mut self, now: Instant, slot: Slot, connection: C, rules: &Rules) {
        self.free.push_back(Free { slot, connection, since: now });
        let above = self.free.len() > rules.settings.min_free;
        let [first, last] =
            [self.free.front(), self.free.back()].map(|free| free.and_then(|free| Self::ends(free, rules, above)));
        self.sweep = earliest(self.sweep, earliest(first, last));
    }

    /// Takes a free connection out that is to be closed: above a maximum, too old, or free for too long.
    pub(super) fn take_unwanted(&mut self, now: Instant, rules: &Rules) -> Option<Free<C>> {
        let max = if rules.keeps(self) || !self.waiters.is_empty() { rules.settings.max_free } else { 0 };
        let above = self.free.len() > max || self.count() - self.closing() > rules.settings.max_per_target;
        if let Some(free) = self.free.pop_front_if(|_| above) {
            return Some(free);
        }
        if self.sweep.is_none_or(|at| at > now) {
            return None;
        }
        let above = self.free.len() > rules.settings.min_free;
        let mut sweep = None;
        for (at, free) in self.free.iter().enumerate() {
            let ends = Self::ends(free, rules, above);
            if ends.is_some_and(|at| at <= now) {
                return self.free.remove(at);
            }
            sweep = earliest(sweep, ends);
        }
        self.sweep = sweep;
        None
    }

    /// Returns when a free connection is to be closed; for being free too long only where the minimum stays.
    fn ends(free: &Free<C>, rules: &Rules, above_minimum: bool) -> Option<Instant> {
        let bored = rules.settings.free_timeout.filter(|_| above_minimum).and_then(|time| after(free.since, time));
        earliest(rules.expiry(&free.slot), bored)
    }

    /// Returns when something is to be done for the target by time alone.
    pub(super) fn next_timer(&self, now: Instant, rules: &Rules) -> Option<Instant> {
        let mut at = self.sweep;
        if rules.serves() && rules.wanted(self) > 0 && !self.health.may_try(now) {
            at = earliest(at, self.health.next_try);
        }
        if rules.serves() && !self.waiters.is_empty() && !self.health.is_down {
            at = earliest(at, self.health.down_at(&rules.settings));
        }
        at
    }

    /// Returns whether nothing is left of the target but its failures.
    pub(super) fn is_idle(&self, rules: &Rules) -> bool {
        self.count() == 0 && self.waiters.is_empty() && rules.floor(self) == 0
    }

    /// Returns until when failures are remembered: who asks soon after them still gets to know.
    pub(super) fn remembered_until(&self, now: Instant, rules: &Rules) -> Option<Instant> {
        let until = self.health.next_try.and_then(|next| after(next, rules.settings.backoff_max));
        until.filter(|until| *until > now && rules.keeps(self))
    }

    pub(super) fn timed_out(&self, waited: Duration, place: usize, total: usize) -> Error {
        Error::TimedOut {
            waited,
            place,
            free: self.free.len() + self.checking(),
            leased: self.leased,
            connecting: self.connecting(),
            others: total - self.count(),
            last_connect_error: self.health.error(),
        }
    }
}
