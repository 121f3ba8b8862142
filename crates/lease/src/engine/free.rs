//! Free connections to a target.

use super::ids::JobId;
use super::rules::Rules;
use super::slot::Slot;
use super::timers::{after, earliest};
use crate::settings::Order;
use crate::stats::Reason;
use std::collections::VecDeque;
use std::time::Instant;

/// A connection that nobody leased.
#[derive(Debug)]
pub(super) struct Free<C> {
    pub(super) slot: Slot,
    pub(super) connection: C,
    pub(super) since: Instant,
}

/// Free connections, longest free first.
#[derive(Debug)]
pub(super) struct FreeList<C> {
    all: VecDeque<Free<C>>,
    /// Near their end.
    old: usize,
    /// Moment until which nothing is to be done by time alone. May be early.
    pub(super) sweep: Option<Instant>,
}

impl<C> FreeList<C> {
    pub(super) fn new() -> Self {
        FreeList { all: VecDeque::new(), old: 0, sweep: None }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns how many are not near their end.
    pub(super) fn young(&self) -> usize {
        self.all.len() - self.old
    }

    pub(super) fn longest(&self) -> Option<&Free<C>> {
        self.all.front()
    }

    pub(super) fn next(&self, order: Order) -> Option<&Free<C>> {
        match order {
            Order::LastUsedFirst => self.all.back(),
            Order::LongestFreeFirst => self.all.front(),
        }
    }

    pub(super) fn put(&mut self, free: Free<C>, rules: &Rules) {
        self.old += usize::from(free.slot.is_old);
        // The connection that is free for longest may be above the minimum from now on.
        let above = self.len() >= rules.settings.min_free;
        let longest = self.all.front().and_then(|free| bored_at(free, rules, above));
        self.sweep = earliest(self.sweep, earliest(longest, next_change(&free, rules, above)));
        self.all.push_back(free);
    }

    fn take_at(&mut self, at: usize) -> Option<Free<C>> {
        let free = self.all.remove(at)?;
        self.old -= usize::from(free.slot.is_old);
        Some(free)
    }

    pub(super) fn take(&mut self, order: Order) -> Option<Free<C>> {
        match order {
            Order::LastUsedFirst => self.take_at(self.len().checked_sub(1)?),
            Order::LongestFreeFirst => self.take_longest(),
        }
    }

    pub(super) fn take_longest(&mut self) -> Option<Free<C>> {
        self.take_at(0)
    }

    /// Returns when the oldest was connected.
    pub(super) fn born(&self) -> Option<Instant> {
        self.all.iter().map(|free| free.slot.born).min()
    }

    /// Takes the one out that was connected first.
    pub(super) fn take_oldest(&mut self) -> Option<Free<C>> {
        let born = self.born()?;
        let at = self.all.iter().position(|free| free.slot.born == born)?;
        self.take_at(at)
    }

    /// Takes the one out that has this name. All are looked at, so that no other use of the list pays for names: a microsecond for some hundred.
    pub(super) fn take_named(&mut self, name: JobId) -> Option<Free<C>> {
        let at = self.all.iter().position(|free| free.slot.name == name)?;
        self.take_at(at)
    }

    /// Takes one out that is near its end, where that many others are not.
    pub(super) fn take_old(&mut self, others: usize) -> Option<Free<C>> {
        if self.old == 0 || self.young() < others {
            return None;
        }
        let at = self.all.iter().position(|free| free.slot.is_old)?;
        self.take_at(at)
    }

    /// Takes one out that reached its age, or is free for too long, and notes those that are near their end.
    pub(super) fn take_ended(&mut self, now: Instant, rules: &Rules) -> Option<(Free<C>, Reason)> {
        if self.sweep.is_none_or(|at| at > now) {
            return None;
        }
        let (above, mut sweep) = (self.len() > rules.settings.min_free, None);
        for at in 0..self.len() {
            let free = &mut self.all[at];
            if let Some(reason) = rules.worn(now, &free.slot) {
                return self.take_at(at).map(|free| (free, reason));
            }
            if bored_at(free, rules, above).is_some_and(|at| at <= now) {
                return self.take_at(at).map(|free| (free, Reason::FreeTooLong));
            }
            if !free.slot.is_old && rules.is_old(now, &free.slot) {
                free.slot.is_old = true;
                self.old += 1;
            }
            sweep = earliest(sweep, next_change(&self.all[at], rules, above));
        }
        self.sweep = sweep;
        None
    }
}

/// Returns when the connection was free for too long, which counts only where the minimum stays.
fn bored_at<C>(free: &Free<C>, rules: &Rules, above_minimum: bool) -> Option<Instant> {
    rules.settings.free_timeout.filter(|_| above_minimum).and_then(|time| after(free.since, time))
}

fn next_change<C>(free: &Free<C>, rules: &Rules, above_minimum: bool) -> Option<Instant> {
    let ages = if free.slot.is_old { rules.expiry(&free.slot) } else { rules.old_at(&free.slot) };
    earliest(ages, bored_at(free, rules, above_minimum))
}
