//! Line of waiters for a target, in one structure for all policies.

use super::ids::WaiterId;
use super::timers::{after, earliest};
use crate::policy::Policy;
use crate::request::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) since: Instant,
    pub(super) request: Request,
}

/// Waiters by age, and by lane and age. A policy is the choice of lanes and of the end from which is served: all are in one lane, or each
/// priority or key has its own.
#[derive(Debug, Default)]
pub(super) struct Line {
    by_age: BTreeMap<WaiterId, Waiter>,
    by_lane: BTreeSet<(u64, WaiterId)>,
    policy: Policy,
    /// Moment since which there was always a waiter; one that came back to its place counts from when it asked first.
    pub(super) busy_since: Option<Instant>,
    /// Key served last, after which the next one's turn comes.
    served: Option<u64>,
    /// Moment since which, or from which on, the oldest waits for longer than the target of CoDel.
    above: Option<Instant>,
}

fn lane(policy: Policy, request: &Request) -> u64 {
    match policy {
        Policy::Fifo | Policy::AdaptiveLifo { .. } | Policy::CoDel { .. } => 0,
        Policy::Fair => request.key,
        Policy::Priority => u64::from(u8::MAX - request.priority),
    }
}

impl Line {
    pub(super) fn new(policy: Policy) -> Self {
        Line { policy, ..Line::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    pub(super) fn ids(&self) -> Vec<WaiterId> {
        self.by_age.keys().copied().collect()
    }

    /// Replaces the policy: waiters are sorted again.
    pub(super) fn set(&mut self, policy: Policy) {
        if self.policy != policy {
            (self.policy, self.above) = (policy, None);
            self.by_lane = self.by_age.iter().map(|(id, waiter)| (lane(policy, &waiter.request), *id)).collect();
        }
    }

    pub(super) fn join(&mut self, id: WaiterId, waiter: Waiter) {
        self.busy_since = earliest(self.busy_since, Some(waiter.since));
        self.by_lane.insert((lane(self.policy, &waiter.request), id));
        self.by_age.insert(id, waiter);
    }

    pub(super) fn leave(&mut self, id: WaiterId, is_served: bool) -> Option<Waiter> {
        let waiter = self.by_age.remove(&id)?;
        self.by_lane.remove(&(lane(self.policy, &waiter.request), id));
        if is_served {
            self.served = Some(waiter.request.key);
        }
        if self.by_age.is_empty() {
            (self.served, self.busy_since) = (None, None);
        }
        Some(waiter)
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.by_age.get(&id)
    }

    pub(super) fn oldest(&self) -> Option<WaiterId> {
        self.by_age.first_key_value().map(|(id, _)| *id)
    }

    /// Returns when the oldest came.
    fn since(&self) -> Option<Instant> {
        self.by_age.first_key_value().map(|(_, waiter)| waiter.since)
    }

    /// Returns a waiter's place by age; 1 is the oldest.
    pub(super) fn place(&self, id: WaiterId) -> usize {
        self.by_age.range(..=id).count()
    }

    /// Returns the waiter whose turn it is.
    pub(super) fn next(&self, now: Instant) -> Option<WaiterId> {
        let first = self.by_lane.first();
        let turn = match self.policy {
            Policy::AdaptiveLifo { after } if self.waited(now).is_some_and(|waited| waited >= after) => self.by_lane.last(),
            Policy::Fair => {
                let lane = self.served.and_then(|served| served.checked_add(1));
                lane.and_then(|lane| self.by_lane.range((lane, WaiterId::MIN)..).next()).or(first)
            }
            _ => first,
        };
        turn.map(|(_, id)| *id)
    }

    /// Returns how long the oldest has waited.
    pub(super) fn waited(&self, now: Instant) -> Option<Duration> {
        self.since().map(|since| now.saturating_duration_since(since))
    }

    /// Notes whether the oldest waits for longer than the target of CoDel. Time in which nobody is to be served does not count.
    pub(super) fn watch(&mut self, now: Instant, is_served: bool) {
        let Policy::CoDel { target, .. } = self.policy else { return };
        let crosses = self.since().filter(|_| is_served).and_then(|since| after(since, target));
        self.above = match (crosses, self.above) {
            (Some(crosses), _) if crosses > now => Some(crosses),
            // A waiter that comes back to its place may be above already, before the others here.
            (Some(_), above) => Some(above.map_or(now, |above| above.min(now))),
            (None, _) => None,
        };
    }

    /// Returns from when on CoDel drops each waiter that has waited for twice its target, if the line does not move on.
    fn overloaded_from(&self) -> Option<Instant> {
        let Policy::CoDel { interval, .. } = self.policy else { return None };
        self.above.and_then(|above| after(above, interval))
    }

    pub(super) fn is_overloaded(&self, now: Instant) -> bool {
        self.overloaded_from().is_some_and(|from| from <= now)
    }

    /// Returns when the oldest is to be dropped, if the line does not move on.
    pub(super) fn drops_at(&self) -> Option<Instant> {
        let Policy::CoDel { target, .. } = self.policy else { return None };
        Some(self.overloaded_from()?.max(after(self.since()?, target.saturating_mul(2))?))
    }
}
