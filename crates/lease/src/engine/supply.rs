//! Connections' half of the engine: when connects begin, and what is closed.

use super::free::Free;
use super::ids::{Kind, TargetId};
use super::jobs::Running;
use super::rules::Mode;
use super::slot::Slot;
use super::timers::after;
use super::{Action, Core, Job, JobId};
use crate::error::{ConnectError, Error};
use crate::stats::{Event, Reason};
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<K: Clone + Eq + Hash, C> Core<K, C> {
    /// Returns whether the next free connection needs a check, after closing the worn ones before it. None where none is free.
    pub(super) fn next_is_stale(&mut self, now: Instant, id: TargetId) -> Option<bool> {
        loop {
            let order = self.rules.settings.order;
            let free = self.targets.get(id).free.next(order)?;
            let Some(reason) = self.rules.worn(now, &free.slot) else {
                return Some(self.rules.is_stale(now, free.since));
            };
            let worn = self.targets.get_mut(id).free.take(order)?;
            self.close(now, worn.slot, worn.connection, reason);
        }
    }

    /// Notes once that a connection in use is near its end, and that a replacement is to be connected.
    pub(super) fn age(&mut self, now: Instant, slot: &mut Slot) {
        if !slot.is_old && self.rules.is_old(now, slot) {
            slot.is_old = true;
            self.targets.get_mut(slot.target).owed += 1;
        }
    }

    /// Takes a connection that can be leased: it goes to the waiter whose turn it is, or becomes free, or is closed.
    pub(super) fn arrive(&mut self, now: Instant, mut slot: Slot, connection: C) {
        self.age(now, &mut slot);
        let (id, full) = (slot.target, self.targets.total >= self.rules.settings.max);
        let target = self.targets.get(id);
        let waiter = target.line.next(now).filter(|_| self.rules.serves());
        let is_unneeded = self.rules.mode == Mode::Closed || (!self.rules.keeps(target) && target.line.is_empty());
        let above = || {
            target.count() - target.closing() >= self.rules.settings.max_per_target
                || self.jobs.surplus(self.targets.total, self.rules.settings.max) > 0
        };
        // A target that keeps its connections for ever would let others wait for ever.
        let in_the_way = || {
            let starves = |next| self.targets.starves_another(now, next, &self.rules);
            full && waiter.is_some_and(starves) && self.jobs.closing(false) == 0
        };
        let reason = self
            .rules
            .unfit(now, &slot, self.lives.gone(slot.name))
            .or_else(|| is_unneeded.then_some(Reason::Unneeded))
            .or_else(|| above().then_some(Reason::Surplus))
            .or_else(|| in_the_way().then_some(Reason::MadeRoom));
        if let Some(reason) = reason {
            self.close(now, slot, connection, reason);
        } else if let Some(waiter) = waiter {
            self.hand_over(now, waiter, slot, connection);
        } else {
            self.targets.get_mut(id).free.put(Free { slot, connection, since: now }, &self.rules);
            // It can make room for others.
            if full && self.waiting > self.targets.get(id).line.len() {
                self.settle_all(now, id);
            }
        }
    }

    pub(super) fn close(&mut self, now: Instant, slot: Slot, connection: C, reason: Reason) {
        self.ended(now, &slot, reason);
        if reason == Reason::Moved {
            self.targets.get_mut(slot.target).moves = true;
        }
        self.start(now, slot.target, Some(slot), Job::Close(connection, reason));
    }

    /// Counts and tells the end of a connection.
    pub(super) fn ended(&mut self, now: Instant, slot: &Slot, reason: Reason) {
        self.lives.end(slot.name);
        *self.reports.stats.ends.entry(reason).or_default() += 1;
        let target = &self.targets.get(slot.target).name;
        let (age, uses) = (now.saturating_duration_since(slot.born), slot.uses);
        self.reports.tell(|| Event::Ended { target: target.clone(), reason, age, uses });
    }

    pub(super) fn add(&mut self, now: Instant, target: &K, connection: C, age: Duration) -> JobId {
        let (id, name) = (self.targets.keep(target, &mut self.ids, &self.rules), JobId(self.ids.next()));
        self.lives.begin(name, id);
        self.targets.total += 1;
        let slot = Slot::new(name, id, now.checked_sub(age).unwrap_or(now), &mut self.random);
        self.arrive(now, slot, connection);
        self.settle(now, id);
        name
    }

    /// Closes a connection that has gone if it is free, and notes it if it is away.
    pub(super) fn gone(&mut self, now: Instant, name: JobId, reason: Reason) {
        let Some(id) = self.lives.go(name, reason) else { return };
        if let Some(free) = self.targets.get_mut(id).free.take_named(name) {
            let reason = self.rules.unfit(now, &free.slot, Some(reason)).unwrap_or(reason);
            self.close(now, free.slot, free.connection, reason);
            self.settle(now, id);
        }
    }

    /// Has all connections to a target closed: the free ones now, before one of them can serve a waiter.
    pub(super) fn remove(&mut self, now: Instant, id: TargetId) {
        self.targets.get_mut(id).kept = false;
        self.lives.go_all(id, Reason::Unneeded);
        while let Some(free) = self.targets.get_mut(id).free.take_longest() {
            self.close(now, free.slot, free.connection, Reason::Unneeded);
        }
        self.settle(now, id);
    }

    /// Closes the connection that is free for longest, of any target but this. Returns whether there was one.
    fn make_room(&mut self, now: Instant, but: TargetId) -> bool {
        let Some(free) = self.targets.take_longest_free(but) else { return false };
        let id = free.slot.target;
        self.close(now, free.slot, free.connection, Reason::MadeRoom);
        // The next one may need no check. That target begins no close for others: a caller that waits there has a connection coming.
        self.settle(now, id);
        true
    }

    /// Closes free connections above the maximum of the pool, the oldest first.
    pub(super) fn shrink(&mut self, now: Instant) {
        while self.jobs.surplus(self.targets.total, self.rules.settings.max) > 0
            && let Some(free) = self.targets.take_oldest_free()
        {
            self.close(now, free.slot, free.connection, Reason::Surplus);
        }
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
            Job::Close(..) => Kind::Close,
        };
        let (name, timeout) = (JobId(self.ids.next()), self.rules.settings.connect_timeout);
        if kind == Kind::Connect {
            self.lives.begin(name, id);
        }
        self.targets.get_mut(id).begin(now, kind, timeout);
        self.jobs.begin(name, Running { target: id, kind, slot, began: now, due: after(now, timeout), late: false });
        self.reports.actions.push_back(Action::Run { id: name, job, timeout });
    }

    pub(super) fn done(&mut self, now: Instant, job: JobId, result: Result<C, ConnectError>) {
        let Some(ended) = self.jobs.end(job) else { return };
        let id = ended.target;
        self.targets.get_mut(id).end(ended.kind, ended.late);
        match (result, ended.slot) {
            (Ok(connection), slot) => {
                let slot = slot.unwrap_or_else(|| self.connected(now, job, id, ended.began));
                self.arrive(now, slot, connection);
                self.settle(now, id);
            }
            (Err(error), None) => {
                self.lives.end(job);
                // A late connect was counted as failed when it became late.
                if !ended.late {
                    self.failed(now, id, error);
                }
                self.freed(now, id);
            }
            (Err(_), Some(slot)) => {
                self.ended(now, &slot, if ended.kind == Kind::Check { Reason::CheckFailed } else { Reason::ResetFailed });
                self.freed(now, id);
            }
        }
    }

    fn connected(&mut self, now: Instant, name: JobId, id: TargetId, began: Instant) -> Slot {
        let (target, took) = (self.targets.get_mut(id), now.saturating_duration_since(began));
        target.health = Default::default();
        target.connects.add(took);
        self.reports.stats.connecting.record(took);
        self.reports.tell(|| Event::Connected { target: target.name.clone(), took });
        Slot::new(name, id, now, &mut self.random)
    }

    fn failed(&mut self, now: Instant, id: TargetId, error: ConnectError) {
        let target = self.targets.get_mut(id);
        target.health.failed(now, error.clone(), &self.rules.settings, &mut self.random);
        self.reports.stats.failed_connects += 1;
        let is_down = target.health.is_down;
        self.reports.tell(|| Event::ConnectFailed { target: target.name.clone(), error, is_down });
    }

    /// Counts on the job no more.
    pub(super) fn late(&mut self, now: Instant, job: JobId) {
        let Some((id, kind)) = self.jobs.late(job) else { return };
        self.targets.get_mut(id).late(kind);
        self.reports.actions.push_back(Action::Cancel(job));
        if kind == Kind::Connect {
            self.failed(now, id, Arc::new(io::Error::new(io::ErrorKind::TimedOut, "the connect took too long")));
        }
        self.settle_all(now, id);
    }

    /// Brings a target to rest after a change: serves its line, closes what is unwanted, connects where that is needed.
    pub(super) fn settle(&mut self, now: Instant, id: TargetId) {
        if !self.targets.contains(id) {
            return;
        }
        self.serve_line(now, id);
        self.close_unwanted(now, id);
        let target = self.targets.get_mut(id);
        let is_short = target.free.len() < self.rules.floor(target);
        target.short_since = target.short_since.or(Some(now)).filter(|_| is_short);
        self.connect(now, id);
        if self.drop_late(now, id) {
            // Without these waiters, free connections may be of no use.
            self.close_unwanted(now, id);
        }
        self.set_timer(now, id);
    }

    fn close_unwanted(&mut self, now: Instant, id: TargetId) {
        while let Some((free, reason)) = self.targets.get_mut(id).take_unwanted(now, &self.rules) {
            self.close(now, free.slot, free.connection, reason);
        }
    }

    pub(super) fn settle_all(&mut self, now: Instant, id: TargetId) {
        for id in self.targets.in_want(id) {
            self.settle(now, id);
        }
    }

    /// Settles all targets under other settings, or in another mode.
    pub(super) fn settle_every(&mut self, now: Instant) {
        for id in self.targets.ids() {
            let target = self.targets.get_mut(id);
            target.free.sweep = Some(now);
            target.line.set(self.rules.settings.policy);
        }
        for id in self.targets.ids() {
            self.settle(now, id);
        }
        self.end_drain();
    }

    /// Begins the connects that waiters, the minimum of free connections and those near their end need.
    fn connect(&mut self, now: Instant, id: TargetId) {
        while self.has_room() {
            let target = self.targets.get(id);
            if self.rules.wanted(now, target) == 0 || !self.rules.may_connect(now, target) {
                break;
            }
            let in_need = target.line.len().saturating_sub(target.coming());
            if self.targets.total < self.rules.settings.max {
                let job = Job::Connect(target.name.clone());
                self.targets.total += 1;
                let owed = &mut self.targets.get_mut(id).owed;
                *owed = owed.saturating_sub(1);
                self.start(now, id, None, job);
            } else if self.jobs.closing(false) >= in_need || !self.make_room(now, id) {
                break;
            }
        }
    }

    /// Returns whether there may be room for another connection: free ones to other targets can make it.
    fn has_room(&self) -> bool {
        self.targets.total < self.rules.settings.max || self.targets.len() > 1
    }

    /// Sets the timer of the target, or forgets a target of which nothing is left to know.
    fn set_timer(&mut self, now: Instant, id: TargetId) {
        let target = self.targets.get(id);
        let is_idle = target.is_idle(&self.rules);
        let has_room = self.has_room();
        let at = if is_idle { target.remembered_until(now, &self.rules) } else { target.next_timer(now, &self.rules, has_room) };
        self.timers.change(id, target.timer, at);
        self.targets.get_mut(id).timer = at;
        if is_idle && at.is_none() {
            self.targets.remove(id);
        }
    }

    /// Ends a drain that has nothing left to wait for.
    pub(super) fn end_drain(&mut self) {
        if self.rules.drains_until().is_some() && self.targets.total == 0 && self.waiting == 0 {
            self.rules.mode = Mode::Closed;
            self.reports.actions.push_back(Action::Drained { leased: 0 });
        }
    }

    /// Ends the pool: nobody is waited for any more.
    pub(super) fn end(&mut self, now: Instant) {
        self.rules.mode = Mode::Closed;
        for id in self.targets.ids() {
            self.refuse_all(id, &Error::Closed);
        }
        for job in self.jobs.unfinished() {
            self.late(now, job);
        }
        self.settle_every(now);
        let leased = self.targets.status(self.waiting).leased;
        self.reports.actions.push_back(Action::Drained { leased });
    }
}
