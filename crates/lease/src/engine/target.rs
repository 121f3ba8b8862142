//! All that the engine knows of a target: its free connections, its line of waiters and its counts.

use super::free::{Free, FreeList};
use super::health::Health;
use super::ids::{Kind, WaiterId};
use super::line::Line;
use super::rules::{Mode, Rules};
use super::timers::{after, earliest};
use super::usual::Usual;
use crate::error::Error;
use crate::policy::Policy;
use crate::stats::Reason;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct TargetState<K, C> {
    pub(super) name: K,
    /// Asked for since it was removed.
    pub(super) kept: bool,
    /// Set once a connection has moved, until the target is asked for again: others in their place would move too, again and again.
    pub(super) moves: bool,
    pub(super) free: FreeList<C>,
    pub(super) leased: usize,
    /// Jobs by kind: on time, and late.
    jobs: [[usize; 2]; 4],
    pub(super) line: Line,
    pub(super) health: Health,
    /// Times of connects and of leases.
    pub(super) connects: Usual,
    pub(super) uses: Usual,
    /// Moment of the first lease.
    pub(super) used_since: Option<Instant>,
    /// Replacements to be connected for connections that are near their end.
    pub(super) owed: usize,
    /// Moment since which fewer are free than the minimum.
    pub(super) short_since: Option<Instant>,
    /// Moment until which the connects and checks that are under way take no longer than usual.
    soon: Option<Instant>,
    /// Moment of the timer that is set.
    pub(super) timer: Option<Instant>,
}

impl<K, C> TargetState<K, C> {
    pub(super) fn new(name: K, policy: Policy) -> Self {
        TargetState {
            name,
            kept: true,
            moves: false,
            free: FreeList::new(),
            leased: 0,
            jobs: [[0; 2]; 4],
            line: Line::new(policy),
            health: Health::default(),
            connects: Usual::default(),
            uses: Usual::default(),
            used_since: None,
            owed: 0,
            short_since: None,
            soon: None,
            timer: None,
        }
    }

    pub(super) fn begin(&mut self, now: Instant, kind: Kind, timeout: Duration) {
        self.jobs[kind as usize][0] += 1;
        if matches!(kind, Kind::Connect | Kind::Check) {
            let usual = self.connects.get().map_or(timeout, |usual| usual.saturating_mul(2));
            self.soon = self.soon.max(after(now, usual.min(timeout)));
        }
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
        self.jobs[Kind::Connect as usize][0] + self.passing()
    }

    /// Returns how many connections are being checked or reset, and are not late.
    pub(super) fn passing(&self) -> usize {
        self.jobs[Kind::Check as usize][0] + self.jobs[Kind::Reset as usize][0]
    }

    /// Returns whether a connect is under way that is not late.
    pub(super) fn awaits_connect(&self) -> bool {
        self.jobs[Kind::Connect as usize][0] > 0
    }

    /// Returns until when a connect or a check is about to bring a connection.
    fn awaits_until(&self) -> Option<Instant> {
        self.soon.filter(|_| self.jobs[Kind::Connect as usize][0] + self.jobs[Kind::Check as usize][0] > 0)
    }

    /// Returns how many places within the limits are taken.
    pub(super) fn count(&self) -> usize {
        self.leased + self.free.len() + self.jobs.iter().flatten().sum::<usize>()
    }

    /// Returns whether there is a connection that may come back to callers that wait.
    pub(super) fn is_alive(&self) -> bool {
        self.leased + self.free.len() + self.checking() > 0
    }

    /// Returns how many leases are expected to end within the time of a connect.
    pub(super) fn returns(&self, now: Instant) -> usize {
        let Some(connect) = self.connects.get().filter(|_| self.leased > 0) else { return 0 };
        // Before a lease has ended, it is known that one takes so long at least.
        let so_far = || self.used_since.map(|since| now.saturating_duration_since(since));
        let usage = self.uses.get().or_else(so_far).unwrap_or_default();
        let ends = connect.as_nanos().saturating_mul(self.leased as u128).checked_div(usage.as_nanos());
        ends.map_or(usize::MAX, |ends| usize::try_from(ends).unwrap_or(usize::MAX))
    }

    /// Returns until when no connect is begun for a need that arose then: the time of a connect, after which returns are waited for in vain.
    pub(super) fn held_until(&self, since: Option<Instant>) -> Option<Instant> {
        after(since?, self.connects.get().filter(|_| self.leased > 0)?)
    }

    /// Takes a free connection out that is to be closed: above a maximum, too old, free for too long, or
    /// near its end while another is there.
    pub(super) fn take_unwanted(&mut self, now: Instant, rules: &Rules) -> Option<(Free<C>, Reason)> {
        let is_of_use = rules.keeps(self) || !self.line.is_empty();
        let max = if is_of_use { rules.settings.max_free } else { 0 };
        let is_above = self.free.len() > max || self.count() - self.closing() > rules.settings.max_per_target;
        if is_above && let Some(free) = self.free.take_oldest() {
            return Some((free, if is_of_use { Reason::Surplus } else { Reason::Unneeded }));
        }
        let ended = self.free.take_ended(now, rules);
        // Replacements that are not there yet have no part in it.
        let others = rules.floor(self).max(1) + self.owed + self.connecting();
        ended.or_else(|| self.free.take_old(others).map(|free| (free, Reason::Renewed)))
    }

    /// Returns the oldest waiter if CoDel drops it now.
    pub(super) fn next_drop(&mut self, now: Instant, rules: &Rules) -> Option<WaiterId> {
        self.line.watch(now, rules.mode == Mode::Open);
        let drops = self.drops_at(rules).is_some_and(|at| at <= now);
        self.line.oldest().filter(|_| drops)
    }

    fn drops_at(&self, rules: &Rules) -> Option<Instant> {
        let drops_at = self.line.drops_at().filter(|_| rules.mode == Mode::Open)?;
        Some(self.awaits_until().map_or(drops_at, |until| until.max(drops_at)))
    }

    /// Returns when something is to be done for the target by time alone. Where there is no room, no connect is held back.
    pub(super) fn next_timer(&self, now: Instant, rules: &Rules, has_room: bool) -> Option<Instant> {
        let mut at = earliest(self.free.sweep, self.drops_at(rules));
        if !rules.serves() {
            return at;
        }
        if !self.health.may_try(now) && rules.wanted(now, self) > 0 {
            at = earliest(at, self.health.next_try);
        }
        if !self.line.is_empty() && !self.health.is_down {
            at = earliest(at, self.health.down_at(&rules.settings));
        }
        if has_room && self.count() < rules.settings.max_per_target {
            let needs = [self.line.busy_since, self.short_since];
            let held = needs.map(|since| self.held_until(since).filter(|until| *until > now));
            at = earliest(at, earliest(held[0], held[1]));
        }
        at
    }

    /// Returns whether nothing is left of the target but its failures.
    pub(super) fn is_idle(&self, rules: &Rules) -> bool {
        self.count() == 0 && self.line.is_empty() && rules.floor(self) == 0
    }

    /// Returns until when failures are remembered: a caller that asks soon after them still gets to know.
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
