//! The decisions of the engine: who gets a connection, when connects begin, and what is closed.

use super::ids::{Kind, TargetId};
use super::jobs::Running;
use super::line::Waiter;
use super::rules::Mode;
use super::slot::Slot;
use super::timers::after;
use super::{Action, Asked, Engine, Job, JobId, Leased, WaiterId};
use crate::error::Error;
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<K: Clone + Eq + Hash, C> Engine<K, C> {
    pub(super) fn target(&mut self, name: &K) -> TargetId {
        let id = self.targets.find(name).unwrap_or_else(|| {
            let id = TargetId(self.ids.next());
            self.targets.insert(id, name);
            id
        });
        self.targets.get_mut(id).kept = true;
        id
    }

    pub(super) fn stand_in_line(&mut self, now: Instant, id: TargetId, deadline: Instant) -> Result<Asked<C>, Error> {
        let (tries, mode) = (deadline <= now, self.rules.mode);
        if tries && mode == Mode::Suspended {
            return Err(Error::Suspended);
        }
        let target = self.targets.get(id);
        // Who asks first after the pause waits for the connect that finds out.
        let finds_out = !tries && !target.awaits_connect() && self.rules.may_connect(now, target);
        if let Some(down) = target.health.down()
            && mode == Mode::Open
            && !target.is_alive()
            && !finds_out
        {
            return Err(down);
        }
        if tries {
            let error = target.timed_out(Duration::ZERO, target.waiters.len() + 1, self.targets.total);
            // Who tries next finds it checked.
            if target.waiters.is_empty()
                && let Some(free) = self.targets.get_mut(id).take_free(self.rules.settings.order)
            {
                self.start(now, id, Some(free.slot), Job::Check(free.connection));
            }
            return Err(error);
        }
        if self.line.len() >= self.rules.settings.max_waiters {
            return Err(Error::Full { waiting: self.line.len() });
        }
        let waiter = WaiterId(self.ids.next());
        self.line.join(waiter, Waiter { target: id, since: now, deadline });
        self.targets.get_mut(id).waiters.insert(waiter);
        Ok(Asked::Waits(waiter))
    }

    fn wake(&mut self, waiter: WaiterId, result: Result<Leased<C>, Error>) {
        if let Some(left) = self.line.leave(waiter) {
            self.targets.get_mut(left.target).waiters.remove(&waiter);
            self.actions.push_back(Action::Wake { waiter, result });
        }
    }

    fn wake_all(&mut self, id: TargetId, error: &Error) {
        for waiter in self.targets.get(id).waiters.clone() {
            self.wake(waiter, Err(error.clone()));
        }
    }

    pub(super) fn time_out(&mut self, now: Instant, waiter: WaiterId) {
        let Some(Waiter { target: id, since, .. }) = self.line.get(waiter).copied() else { return };
        let target = self.targets.get(id);
        let place = target.waiters.range(..=waiter).count();
        let error = target.timed_out(now - since, place, self.targets.total);
        self.wake(waiter, Err(if self.rules.mode == Mode::Suspended { Error::Suspended } else { error }));
        self.settle(now, id);
    }

    fn lease(&mut self, mut slot: Slot, connection: C) -> Leased<C> {
        slot.uses += 1;
        self.targets.get_mut(slot.target).leased += 1;
        Leased { connection, slot }
    }

    pub(super) fn lease_free(&mut self, id: TargetId) -> Option<Leased<C>> {
        let free = self.targets.get_mut(id).take_free(self.rules.settings.order)?;
        Some(self.lease(free.slot, free.connection))
    }

    /// Returns whether the next free connection needs a check, after closing the worn ones before it. None where none is free.
    pub(super) fn next_is_stale(&mut self, now: Instant, id: TargetId) -> Option<bool> {
        loop {
            let order = self.rules.settings.order;
            let free = self.targets.get(id).next_free(order)?;
            if !self.rules.is_worn(now, &free.slot) {
                return Some(self.rules.is_stale(now, free.since));
            }
            let worn = self.targets.get_mut(id).take_free(order)?;
            self.start(now, id, Some(worn.slot), Job::Close(worn.connection));
        }
    }

    /// Takes a connection that can be leased: it goes to the waiter whose turn it is, or becomes free, or is closed.
    pub(super) fn arrive(&mut self, now: Instant, slot: Slot, connection: C) {
        let (id, full) = (slot.target, self.targets.total >= self.rules.settings.max);
        let target = self.targets.get(id);
        let waiter = target.waiters.first().copied().filter(|_| self.rules.serves());
        let of_no_use = self.rules.mode == Mode::Closed || (!self.rules.keeps(target) && target.waiters.is_empty());
        let above = target.count() - target.closing() >= self.rules.settings.max_per_target
            || self.jobs.surplus(self.targets.total, self.rules.settings.max) > 0;
        // A target that keeps its connections for ever would let others wait for ever.
        let in_the_way = || {
            let starves = |first| self.targets.starves_another(now, first, &self.rules);
            full && waiter.is_some_and(starves) && self.jobs.closing(false) == 0
        };
        if of_no_use || above || self.rules.is_worn(now, &slot) || in_the_way() {
            self.start(now, id, Some(slot), Job::Close(connection));
        } else if let Some(waiter) = waiter {
            let leased = self.lease(slot, connection);
            self.wake(waiter, Ok(leased));
        } else {
            self.targets.get_mut(id).put(now, slot, connection, &self.rules);
            // It can make room for others.
            if full && self.line.len() > self.targets.get(id).waiters.len() {
                self.settle_all(now, id);
            }
        }
    }

    /// Closes the connection that is free for longest, of any target but this. Returns whether there was one.
    pub(super) fn close_longest_free(&mut self, now: Instant, but: Option<TargetId>) -> bool {
        let Some(free) = self.targets.take_longest_free(but) else { return false };
        let id = free.slot.target;
        self.start(now, id, Some(free.slot), Job::Close(free.connection));
        // The next one may need no check. That target begins no close for others: who waits there has a connection coming.
        self.settle(now, id);
        true
    }

    /// Notes that a place within the limits is free, and lets others use it.
    pub(super) fn freed(&mut self, now: Instant, id: TargetId) {
        self.targets.total -= 1;
        self.settle_all(now, id);
        self.end_drain();
    }

    pub(super) fn start(&mut self, now: Instant, id: TargetId, slot: Option<Slot>, job: Job<K, C>) {
        let kind = match &job {
            Job::Connect(_) => Kind::Connect,
            Job::Check(_) => Kind::Check,
            Job::Reset(_) => Kind::Reset,
            Job::Close(_) => Kind::Close,
        };
        let (name, timeout) = (JobId(self.ids.next()), self.rules.settings.connect_timeout);
        self.targets.get_mut(id).begin(kind);
        self.jobs.begin(name, Running { target: id, kind, slot, due: after(now, timeout), late: false });
        self.actions.push_back(Action::Run { id: name, job, timeout });
    }

    /// Counts on the job no more.
    pub(super) fn late(&mut self, now: Instant, job: JobId) {
        let Some((id, kind)) = self.jobs.late(job) else { return };
        let target = self.targets.get_mut(id);
        target.late(kind);
        self.actions.push_back(Action::Cancel(job));
        if kind == Kind::Connect {
            let error = Arc::new(io::Error::new(io::ErrorKind::TimedOut, "the connect took too long"));
            target.health.failed(now, error, &self.rules.settings, &mut self.random);
        }
        self.settle_all(now, id);
    }

    /// Brings a target to rest after a change: serves its line, closes what is unwanted, connects where that is needed.
    pub(super) fn settle(&mut self, now: Instant, id: TargetId) {
        if !self.targets.contains(id) {
            return;
        }
        self.serve_line(now, id);
        while let Some(free) = self.targets.get_mut(id).take_unwanted(now, &self.rules) {
            self.start(now, id, Some(free.slot), Job::Close(free.connection));
        }
        self.connect(now, id);
        self.set_timer(now, id);
    }

    pub(super) fn settle_all(&mut self, now: Instant, id: TargetId) {
        for id in self.targets.in_want(id, &self.rules) {
            self.settle(now, id);
        }
    }

    /// Settles all targets under other settings, or in another mode.
    pub(super) fn settle_every(&mut self, now: Instant) {
        for id in self.targets.ids() {
            self.targets.get_mut(id).sweep = Some(now);
            self.settle(now, id);
        }
        self.end_drain();
    }

    fn serve_line(&mut self, now: Instant, id: TargetId) {
        if !self.rules.serves() {
            return;
        }
        while let Some(waiter) = self.targets.get(id).waiters.first().copied()
            && let Some(is_stale) = self.next_is_stale(now, id)
        {
            let target = self.targets.get_mut(id);
            if !is_stale {
                let Some(leased) = self.lease_free(id) else { break };
                self.wake(waiter, Ok(leased));
            } else if target.waiters.len() > target.coming()
                && let Some(free) = target.take_free(self.rules.settings.order)
            {
                self.start(now, id, Some(free.slot), Job::Check(free.connection));
            } else {
                break;
            }
        }
        let target = self.targets.get_mut(id);
        let refuses = target.health.take_refusal(now, &self.rules.settings) && !target.is_alive();
        if let Some(down) = target.health.down().filter(|_| refuses) {
            self.wake_all(id, &down);
        }
    }

    /// Begins the connects that waiters and the minimum of free connections need.
    fn connect(&mut self, now: Instant, id: TargetId) {
        loop {
            let target = self.targets.get(id);
            if self.rules.wanted(target) == 0 || !self.rules.may_connect(now, target) {
                break;
            }
            let in_need = target.waiters.len().saturating_sub(target.coming());
            if self.targets.total < self.rules.settings.max {
                let job = Job::Connect(target.name.clone());
                self.targets.total += 1;
                self.start(now, id, None, job);
            } else if self.jobs.closing(false) >= in_need || !self.close_longest_free(now, Some(id)) {
                break;
            }
        }
    }

    /// Sets the timer of the target, or forgets a target of which nothing is left to know.
    fn set_timer(&mut self, now: Instant, id: TargetId) {
        let target = self.targets.get(id);
        let is_idle = target.is_idle(&self.rules);
        let at = if is_idle { target.remembered_until(now, &self.rules) } else { target.next_timer(now, &self.rules) };
        self.timers.change(id, target.timer, at);
        self.targets.get_mut(id).timer = at;
        if is_idle && at.is_none() {
            self.targets.remove(id);
        }
    }

    /// Ends a drain that has nothing left to wait for.
    pub(super) fn end_drain(&mut self) {
        if self.rules.drains_until().is_some() && self.targets.total == 0 && self.line.len() == 0 {
            self.rules.mode = Mode::Closed;
            self.actions.push_back(Action::Drained { leased: 0 });
        }
    }

    /// Closes the pool: nobody is waited for any more.
    pub(super) fn close(&mut self, now: Instant) {
        self.rules.mode = Mode::Closed;
        for id in self.targets.ids() {
            self.wake_all(id, &Error::Closed);
        }
        for job in self.jobs.unfinished() {
            self.late(now, job);
        }
        self.settle_every(now);
        let leased = self.status().leased;
        self.actions.push_back(Action::Drained { leased });
    }
}
