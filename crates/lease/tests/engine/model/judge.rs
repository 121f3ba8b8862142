//! Judgement of each action of the engine, and of its state after each step.

use super::{Mode, Model, Pending, TARGETS, Target};
use crate::common::ms;
use sockdrawer_lease::engine::{Action, Job, JobId, Leased, Status, WaiterId};
use sockdrawer_lease::{Error, Event, Policy, Reason};
use std::time::{Duration, Instant};

impl Model {
    /// Judges all actions, and the state after them.
    pub(crate) fn judge(&mut self) {
        self.judge_actions();
        self.judge_rest();
    }

    pub(crate) fn judge_actions(&mut self) {
        self.note_old();
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Run { id, job, timeout } => self.judge_job(id, job, timeout),
                Action::Cancel(id) => self.judge_cancel(id),
                Action::Wake { waiter, result } => self.judge_wake(waiter, result),
                Action::Tell(event) => self.told_ends += u64::from(matches!(event, Event::Ended { .. })),
                Action::Drained { leased } => {
                    assert_eq!(leased, self.leases.len());
                    match self.mode {
                        Mode::Draining(at) => assert!(at <= self.now || self.total() == 0, "drained too early"),
                        mode => assert_eq!(mode, Mode::Closed),
                    }
                    assert!(self.waiters.is_empty());
                    (self.mode, self.drained) = (Mode::Closed, self.drained + 1);
                }
            }
        }
        if let Some(connection) = self.arriving.take() {
            assert!(self.reset.is_none());
            let target = self.connections[&connection].target;
            self.free[target as usize].push((connection, self.now));
        }
        assert!(self.reset.is_none() && self.broken.is_none(), "neither reset nor closed");
    }

    fn judge_job(&mut self, id: JobId, job: Job<Target, u64>, timeout: Duration) {
        assert_eq!(timeout, self.settings.connect_timeout);
        let (kind, connection) = match job {
            Job::Connect(target) => {
                assert!(self.serves());
                if self.wanted(target) == 0 {
                    let owed = self.owed[target as usize].checked_sub(1);
                    self.owed[target as usize] = owed.expect("it is needed, or in the place of one that is near its end");
                }
                assert!(self.jobs_of(target, "c") < self.settings.max_connecting, "too many connects");
                assert!(self.total() < self.settings.max && self.count(target) < self.settings.max_per_target, "above a limit");
                let (began, due) = (self.now, self.now + timeout);
                self.jobs.push(Pending { id, target, kind: 'c', connection: None, gone: None, began, due, late: false });
                return;
            }
            Job::Check(connection) => {
                let target = self.connections[&connection].target;
                let (next, since) = self.next_free(target).expect("one is free");
                assert!(next == connection && self.is_stale(since), "checked in order, where it is stale");
                self.free[target as usize].retain(|(free, _)| *free != connection);
                ('k', connection)
            }
            Job::Reset(connection) => {
                assert_eq!(self.reset.take(), Some(connection));
                ('r', connection)
            }
            Job::Close(connection, reason) => {
                self.judge_close(connection, reason);
                ('x', connection)
            }
        };
        let target = self.connections[&connection].target;
        let (began, due) = (self.now, self.now + timeout);
        self.jobs.push(Pending { id, target, kind, connection: Some(connection), gone: None, began, due, late: false });
    }

    /// Judges that there is a reason to close a connection that still works.
    fn judge_close(&mut self, connection: u64, reason: Reason) {
        let target = self.connections[&connection].target;
        let settings = &self.settings;
        if self.broken.take_if(|broken| *broken == connection).is_some() {
            return;
        }
        if let Some(gone) = self.connections[&connection].gone {
            let is_worn = gone == Reason::Moved && matches!(reason, Reason::Aged | Reason::Used);
            assert!(is_worn || reason == gone, "closed as {reason:?}, told to be {gone:?}");
            self.gone_ends += u64::from(gone == Reason::PeerEnded);
            self.moves[target as usize] |= reason == Reason::Moved;
            return self.leaves_places(connection);
        }
        assert_ne!(reason, Reason::Moved);
        let nobody = self.line(target).next().is_none();
        let closing = self.jobs.iter().filter(|job| job.kind == 'x').count();
        let above = self.total() - closing > settings.max
            || self.count(target) - self.jobs_of(target, "x") > settings.max_per_target
            || self.free[target as usize].len() > settings.max_free
            || (self.free[target as usize].len() >= settings.max_free && self.arriving.is_some());
        let of_no_use = self.mode == Mode::Closed || (!self.keeps(target) && nobody);
        let since = self.free[target as usize].iter().find(|(free, _)| *free == connection).map(|(_, since)| *since);
        let bored = since.is_some_and(|since| settings.free_timeout.is_some_and(|time| self.now - since >= time));
        // For others to have room.
        let full = self.total() >= settings.max && self.waiters.iter().any(|waiter| waiter.target != target);
        assert!(
            above || of_no_use || bored || full || self.connections[&connection].old || self.worn(connection).1,
            "closed without a reason"
        );
        self.leaves_places(connection);
    }

    fn leaves_places(&mut self, connection: u64) {
        self.arriving = self.arriving.filter(|one| *one != connection);
        self.reset = self.reset.filter(|one| *one != connection);
        let target = self.connections[&connection].target;
        self.free[target as usize].retain(|(free, _)| *free != connection);
    }

    fn judge_cancel(&mut self, id: JobId) {
        let ends = self.ends();
        let job = self.jobs.iter_mut().find(|job| job.id == id).expect("it is under way");
        assert!(!job.late && (job.due <= self.now || ends), "cancelled too early");
        job.late = true;
        if job.kind == 'c' {
            self.failures[job.target as usize].push(self.now);
        }
    }

    /// Returns whether the pool is closed in this step.
    fn ends(&self) -> bool {
        matches!(self.mode, Mode::Draining(at) if at <= self.now) || self.mode == Mode::Closed
    }

    fn judge_wake(&mut self, id: WaiterId, result: Result<Leased<u64>, Error>) {
        let at = self.waiters.iter().position(|waiter| waiter.id == id).expect("it waits");
        let target = self.waiters[at].target;
        let place = 1 + self.waiters[..at].iter().filter(|other| other.target == target).count();
        match result {
            Ok(leased) => {
                assert!(self.serves());
                assert_eq!(self.next_waiter(target), Some(id), "it is another one's turn");
                self.served[target as usize] = Some(self.waiters[at].request.key);
                let connection = leased.connection;
                if self.arriving.take() != Some(connection) {
                    let (next, since) = self.next_free(target).expect("it is arriving or free");
                    assert!(next == connection && !self.is_stale(since), "in order, and checked");
                    self.free[target as usize].retain(|(free, _)| *free != connection);
                }
                self.take(leased, target, self.waiters[at].since);
            }
            Err(error) => self.judge_error(&error, at, place),
        }
        self.leaves(at);
    }

    fn judge_error(&self, error: &Error, at: usize, place: usize) {
        let waiter = &self.waiters[at];
        let (target, is_over) = (waiter.target, waiter.request.deadline <= self.now);
        match error {
            Error::TimedOut { waited, place: said, .. } => {
                assert!(is_over && self.mode != Mode::Suspended);
                assert_eq!((*waited, *said), (self.now - waiter.since, place));
                self.judge_counts(error, target);
            }
            Error::Dropped { policy, waited } => {
                assert_eq!((*policy, *waited, place), (self.settings.policy, self.now - waiter.since, 1));
                let Policy::CoDel { target: wait, interval } = *policy else { panic!("dropped by {policy}") };
                assert!(*waited >= wait * 2 && self.now - self.calm[target as usize] >= interval, "dropped too early");
                let is_free = |(_, since): &(u64, Instant)| !self.is_stale(*since);
                assert!(self.mode == Mode::Open && !self.free[target as usize].iter().any(is_free), "one is free");
            }
            Error::Down { .. } => self.judge_down(error, target),
            Error::Suspended => assert!(is_over && self.mode == Mode::Suspended),
            Error::Closed => assert!(self.ends()),
            other => panic!("{other} for a waiter"),
        }
    }

    fn judge_counts(&self, error: &Error, target: Target) {
        let Error::TimedOut { free, leased, connecting, others, last_connect_error, .. } = error else { panic!("{error}") };
        assert_eq!(*free, self.free[target as usize].len() + self.jobs_of(target, "kr"));
        assert_eq!(*leased, self.leased(target));
        assert_eq!(*connecting, self.jobs_of(target, "c"));
        assert_eq!(*others, self.total() - self.count(target));
        assert!(last_connect_error.is_none() || !self.failures[target as usize].is_empty());
    }

    fn judge_down(&self, error: &Error, target: Target) {
        let Error::Down { since, next_try, .. } = error else { panic!("{error}") };
        assert!(self.serves() && !self.is_alive(target), "it has connections");
        assert!(self.failures[target as usize].contains(since), "no failure then");
        assert!(self.now - *since >= self.least_down_after, "too early");
        assert!(*next_try <= self.now + ms(100), "a longer pause than any setting had");
    }

    /// Judges an error that an ask got at once.
    pub(crate) fn judge_refusal(&self, error: &Error, target: Target, tries: bool, asked: Instant) {
        match error {
            Error::TimedOut { waited, .. } => assert!(tries && *waited == self.now - asked),
            Error::Full { waiting } => {
                assert!(!tries && *waiting == self.waiters.len() && *waiting >= self.settings.max_waiters);
            }
            Error::Down { .. } => {
                assert_eq!(self.mode, Mode::Open);
                self.judge_down(error, target);
            }
            Error::Suspended => assert!(tries && self.mode == Mode::Suspended),
            Error::Closed => assert!(matches!(self.mode, Mode::Draining(_) | Mode::Closed)),
            other => panic!("{other} for an ask"),
        }
    }

    /// Judges that nothing is left undone.
    fn judge_rest(&mut self) {
        let kinds = |kinds: &str| self.jobs.iter().filter(|job| kinds.contains(job.kind)).count();
        let free = self.free.iter().map(Vec::len).sum();
        let (connecting, checking, closing) = (kinds("c"), kinds("kr"), kinds("x"));
        let (leased, waiting) = (self.leases.len(), self.waiters.len());
        assert_eq!(self.engine.status(), Status { free, leased, connecting, checking, closing, waiting });
        let next = self.engine.poll_timeout();
        let waiters = self.waiters.iter().map(|waiter| waiter.request.deadline);
        let mut moments = waiters.chain(self.jobs.iter().filter(|job| !job.late).map(|job| job.due));
        assert!(moments.all(|moment| next.is_some_and(|next| next <= moment)), "no timer");
        let is_drained = matches!(self.mode, Mode::Draining(_)) && self.waiters.is_empty() && self.total() == 0;
        assert!(!is_drained, "nothing is left to wait for");
        if self.mode == Mode::Closed {
            assert!(self.waiters.is_empty() && free == 0 && self.engine.poll_timeout().is_none_or(|at| at > self.now - ms(1)));
        }
        let free_ones = self.free.iter().flatten();
        assert!(free_ones.copied().all(|(free, _)| self.connections[&free].gone.is_none()), "free after it had gone");
        for target in 0..TARGETS {
            self.judge_line(target);
            self.judge_codel(target);
        }
    }

    fn judge_line(&self, target: Target) {
        assert!(self.free[target as usize].len() <= self.settings.max_free);
        if !self.serves() {
            return;
        }
        let waiting = self.line(target).count();
        let passing = self.jobs.iter().filter(|job| job.target == target && "kr".contains(job.kind) && !job.late).count();
        if waiting > 0
            && let Some((next, since)) = self.next_free(target)
        {
            assert!(self.is_stale(since) && passing >= waiting && !self.worn(next).0, "one waits while one is free");
        }
        if waiting == 0 && !self.keeps(target) {
            assert!(self.free[target as usize].is_empty(), "of no use");
        }
        let failures = &self.failures[target as usize];
        let pause_is_over = failures.last().is_none_or(|last| self.now - *last > ms(100));
        let may = self.jobs_of(target, "c") < self.settings.max_connecting && self.count(target) < self.settings.max_per_target;
        let room = self.total() < self.settings.max;
        // A target that has nothing, and of which nobody wants anything, is forgotten.
        let known = self.count(target) > 0 || waiting > 0;
        let (wanted, in_need) = self.surely_wanted(target);
        assert!(wanted == 0 || !known || !may || !room || !pause_is_over, "a connect is needed, and none was begun");
        let others = (0..TARGETS).any(|other| other != target && !self.free[other as usize].is_empty());
        let closing = self.jobs.iter().filter(|job| job.kind == 'x' && !job.late).count();
        assert!(in_need == 0 || !may || !pause_is_over || closing >= in_need || !others, "another's free connection makes room");
    }

    /// Judges that CoDel dropped all that it is to drop, and notes where the wait of the oldest is not above its target.
    fn judge_codel(&mut self, target: Target) {
        let now = self.now;
        let oldest = self.line(target).next().map(|waiter| waiter.since);
        let calm = match (self.settings.policy, oldest) {
            (Policy::CoDel { target: wait, interval }, Some(since)) if self.mode == Mode::Open && now - since >= wait => {
                let above = self.calm[target as usize].max(since + wait).max(self.came_back[target as usize]);
                let is_late = now - since >= wait * 2 && now - above >= interval;
                let comes = self.jobs.iter().any(|job| job.target == target && "ck".contains(job.kind) && !job.late);
                assert!(!is_late || comes, "not dropped");
                return;
            }
            _ => now,
        };
        self.calm[target as usize] = calm;
    }

    /// Judges that nothing is overdue.
    pub(crate) fn judge_time(&self) {
        assert!(self.waiters.iter().all(|waiter| waiter.request.deadline > self.now));
        assert!(self.jobs.iter().all(|job| job.late || job.due > self.now));
        assert!(self.engine.poll_timeout().is_none_or(|next| next > self.now), "a timer in the past");
    }

    /// Judges that all connections are gone.
    pub(crate) fn judge_end(&self) {
        assert_eq!((self.mode, self.total(), self.connections.len()), (Mode::Closed, 0, 0));
        assert_eq!(self.engine.status(), Status::default());
        let stats = self.engine.stats();
        assert_eq!(stats.waiting.count() + stats.refusals.values().sum::<u64>(), self.asks, "each ask ends once");
        assert_eq!(stats.using.count(), stats.waiting.count(), "each lease ends once");
        assert_eq!((stats.ends.values().sum(), self.told_ends), (self.last, self.last), "each connection ends once");
        assert_eq!(stats.ends.get(&Reason::PeerEnded).copied().unwrap_or_default(), self.gone_ends, "counted under its reason");
        assert_eq!(self.engine.poll_timeout(), None);
    }
}
