//! Waiters' half of the engine: standing in line, getting a connection, and being sent away.

use super::held::Held;
use super::ids::TargetId;
use super::line::Waiter;
use super::rules::Mode;
use super::slot::{Place, Slot};
use super::{Action, Asked, Core, Job, Leased, WaiterId};
use crate::error::Error;
use crate::request::Request;
use crate::stats::{Reason, Refusal};
use std::hash::Hash;
use std::time::Instant;

impl<K: Clone + Eq + Hash, C> Core<K, C> {
    pub(super) fn ask(&mut self, now: Instant, target: &K, request: Request) -> Result<Asked<C>, Error> {
        if matches!(self.rules.mode, Mode::Draining(_) | Mode::Closed) {
            return Err(Error::Closed);
        }
        let id = self.targets.keep(target, &mut self.ids, &self.rules);
        let place = Place { number: self.ids.next(), since: now };
        self.ask_from(now, id, place, request, false)
    }

    /// Puts the holder of a connection that has gone back to its place in line.
    pub(super) fn ask_again(
        &mut self,
        now: Instant,
        leased: Leased<C>,
        reason: Reason,
        request: Request,
    ) -> Result<Asked<C>, Error> {
        let Leased { slot, connection, place, watch, taken } = leased;
        let id = slot.target;
        // Such a use says nothing of those that are to come: it is not among those by which returns are foreseen.
        self.reports.stats.using.record(now.saturating_duration_since(taken));
        self.watched.end(watch);
        self.targets.get_mut(id).leased -= 1;
        self.close(now, slot, connection, reason);
        if self.rules.mode == Mode::Closed {
            return Err(Error::Closed);
        }
        self.ask_from(now, id, place, request, true)
    }

    fn ask_from(
        &mut self,
        now: Instant,
        id: TargetId,
        place: Place,
        request: Request,
        has_waited: bool,
    ) -> Result<Asked<C>, Error> {
        if self.rules.mode == Mode::Open
            && self.targets.get(id).line.is_empty()
            && self.next_is_stale(now, id) == Some(false)
            && let Some(leased) = self.lease_free(now, id, place, request)
        {
            self.reports.stats.waiting.record(now.saturating_duration_since(place.since));
            if self.rules.settings.min_free > 0 || self.targets.get(id).owed > 0 {
                self.settle(now, id);
            }
            return Ok(Asked::Leased(leased));
        }
        let answer = self.stand_in_line(now, id, place, request, has_waited);
        self.settle(now, id);
        answer
    }

    fn stand_in_line(
        &mut self,
        now: Instant,
        id: TargetId,
        place: Place,
        request: Request,
        has_waited: bool,
    ) -> Result<Asked<C>, Error> {
        let (tries, mode) = (request.deadline <= now, self.rules.mode);
        if tries && mode == Mode::Suspended {
            return Err(Error::Suspended);
        }
        let target = self.targets.get(id);
        // The first caller that asks after the pause waits for the connect that finds out.
        let finds_out = !tries && !target.awaits_connect() && self.rules.may_connect(now, target);
        if let Some(down) = target.health.down()
            && mode == Mode::Open
            && !target.is_alive()
            && !finds_out
        {
            return Err(down);
        }
        if tries {
            let waited = now.saturating_duration_since(place.since);
            let error = target.timed_out(waited, target.line.len() + 1, self.targets.total);
            // The next caller that tries finds it checked.
            if target.line.is_empty()
                && let Some(free) = self.targets.get_mut(id).free.take(self.rules.settings.order)
            {
                self.start(now, id, Some(free.slot), Job::Check(free.connection));
            }
            return Err(error);
        }
        if !has_waited && self.waiting >= self.rules.settings.max_waiters {
            return Err(Error::Full { waiting: self.waiting });
        }
        let waiter = WaiterId { number: place.number, target: id };
        self.waiting += 1;
        self.deadlines.change(waiter, None, Some(request.deadline));
        self.targets.get_mut(id).line.join(waiter, Waiter { since: place.since, request });
        Ok(Asked::Waits(waiter))
    }

    /// Takes a waiter out of the line; None for one that was woken already.
    fn leave(&mut self, waiter: WaiterId, is_served: bool) -> Option<Waiter> {
        let target = self.targets.find_mut(waiter.target)?;
        let left = target.line.leave(waiter, is_served)?;
        self.waiting -= 1;
        self.deadlines.change(waiter, Some(left.request.deadline), None);
        Some(left)
    }

    pub(super) fn cancel(&mut self, now: Instant, waiter: WaiterId) {
        if self.leave(waiter, false).is_some() {
            self.reports.refused(Refusal::Cancelled);
            self.settle(now, waiter.target);
            self.end_drain();
        }
    }

    fn refuse(&mut self, waiter: WaiterId, error: Error) {
        if self.leave(waiter, false).is_some() {
            let error = self.reports.refuse(error);
            self.reports.actions.push_back(Action::Wake { waiter, result: Err(error) });
        }
    }

    pub(super) fn refuse_all(&mut self, id: TargetId, error: &Error) {
        for waiter in self.targets.get(id).line.ids() {
            self.refuse(waiter, error.clone());
        }
    }

    pub(super) fn time_out(&mut self, now: Instant, waiter: WaiterId) {
        let id = waiter.target;
        let target = self.targets.get(id);
        let Some(since) = target.line.get(waiter).map(|waiter| waiter.since) else { return };
        let error = target.timed_out(now - since, target.line.place(waiter), self.targets.total);
        self.refuse(waiter, if self.rules.mode == Mode::Suspended { Error::Suspended } else { error });
        self.settle(now, id);
    }

    fn lease(&mut self, now: Instant, mut slot: Slot, connection: C, place: Place, request: Request) -> Leased<C> {
        slot.uses += 1;
        self.age(now, &mut slot);
        let target = slot.target;
        let state = self.targets.get_mut(target);
        state.leased += 1;
        state.used_since = state.used_since.or(Some(now));
        let held = Held { target, since: now, caller: request.caller };
        let watch = self.watched.begin(held, self.rules.settings.held_after);
        Leased { connection, slot, taken: now, watch, place }
    }

    fn lease_free(&mut self, now: Instant, id: TargetId, place: Place, request: Request) -> Option<Leased<C>> {
        let free = self.targets.get_mut(id).free.take(self.rules.settings.order)?;
        Some(self.lease(now, free.slot, free.connection, place, request))
    }

    /// Gives a connection to a waiter.
    pub(super) fn hand_over(&mut self, now: Instant, waiter: WaiterId, slot: Slot, connection: C) {
        let left = self.leave(waiter, true).expect("it waits until it is served");
        self.reports.stats.waiting.record(now.saturating_duration_since(left.since));
        let place = Place { number: waiter.number, since: left.since };
        let leased = self.lease(now, slot, connection, place, left.request);
        self.reports.actions.push_back(Action::Wake { waiter, result: Ok(leased) });
    }

    pub(super) fn take_back(&mut self, now: Instant, leased: Leased<C>) -> (Slot, C) {
        let used = now.saturating_duration_since(leased.taken);
        self.reports.stats.using.record(used);
        self.watched.end(leased.watch);
        let target = self.targets.get_mut(leased.slot.target);
        target.leased -= 1;
        target.uses.add(used);
        (leased.slot, leased.connection)
    }

    pub(super) fn serve_line(&mut self, now: Instant, id: TargetId) {
        if !self.rules.serves() {
            return;
        }
        while let Some(waiter) = self.targets.get(id).line.next(now)
            && let Some(is_stale) = self.next_is_stale(now, id)
        {
            let target = self.targets.get_mut(id);
            if is_stale && target.line.len() <= target.passing() {
                break;
            }
            let Some(free) = target.free.take(self.rules.settings.order) else { break };
            if is_stale {
                self.start(now, id, Some(free.slot), Job::Check(free.connection));
            } else {
                self.hand_over(now, waiter, free.slot, free.connection);
            }
        }
        let target = self.targets.get_mut(id);
        let refuses = target.health.take_refusal(now, &self.rules.settings) && !target.is_alive();
        if let Some(down) = target.health.down().filter(|_| refuses) {
            self.refuse_all(id, &down);
        }
    }

    /// Sends waiters away that CoDel drops. Returns whether there were any.
    pub(super) fn drop_late(&mut self, now: Instant, id: TargetId) -> bool {
        let mut any = false;
        while let Some(waiter) = self.targets.get_mut(id).next_drop(now, &self.rules) {
            let waited = self.targets.get(id).line.waited(now).unwrap_or_default();
            self.refuse(waiter, Error::Dropped { policy: self.rules.settings.policy, waited });
            any = true;
        }
        any
    }
}
