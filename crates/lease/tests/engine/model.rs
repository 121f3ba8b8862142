//! A simple model of a pool, which knows where each connection is and judges each action of the engine.

use crate::common::ms;
use sockdrawer_lease::engine::{Action, Engine, Job, JobId, Leased, Status, WaiterId};
use sockdrawer_lease::{Error, Order, Random, Settings};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) const TARGETS: u64 = 3;
pub(crate) type Target = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    Suspended,
    Draining(Instant),
    Closed,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: WaiterId,
    target: Target,
    since: Instant,
    deadline: Instant,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: JobId,
    target: Target,
    pub(crate) kind: char,
    /// The connection; None for a connect.
    pub(crate) connection: Option<u64>,
    due: Instant,
    pub(crate) late: bool,
}

#[derive(Debug)]
struct Facts {
    target: Target,
    born: Instant,
    uses: u64,
}

/// An engine and all that is known of it from outside.
pub(crate) struct Model {
    pub(crate) engine: Engine<Target, u64>,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) settings: Settings,
    pub(crate) mode: Mode,
    /// In the order in which they came.
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) leases: Vec<Leased<u64>>,
    pub(crate) jobs: Vec<Pending>,
    /// By target, in the order in which they became free.
    free: [Vec<(u64, Instant)>; TARGETS as usize],
    kept: [bool; TARGETS as usize],
    /// Moments of failed connects since the last success.
    failures: [Vec<Instant>; TARGETS as usize],
    connections: BTreeMap<u64, Facts>,
    /// On its way to a waiter, the free ones or its end.
    arriving: Option<u64>,
    reset: Option<u64>,
    /// Given back as broken.
    broken: Option<u64>,
    pub(crate) drained: u64,
    last: u64,
    /// Shortest [`Settings::down_after`] that was in force.
    least_down_after: Duration,
}

impl Model {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        let now = Instant::now();
        Model {
            start: now,
            now,
            least_down_after: settings.down_after,
            engine: Engine::new(settings.clone(), Random::seeded(seed)),
            settings,
            mode: Mode::Open,
            waiters: Vec::new(),
            leases: Vec::new(),
            jobs: Vec::new(),
            free: Default::default(),
            kept: [false; TARGETS as usize],
            failures: Default::default(),
            connections: BTreeMap::new(),
            arriving: None,
            reset: None,
            broken: None,
            drained: 0,
            last: 0,
        }
    }

    fn serves(&self) -> bool {
        matches!(self.mode, Mode::Open | Mode::Draining(_))
    }

    fn line(&self, target: Target) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(move |waiter| waiter.target == target)
    }

    fn jobs_of(&self, target: Target, kinds: &str) -> usize {
        self.jobs.iter().filter(|job| job.target == target && kinds.contains(job.kind)).count()
    }

    fn coming(&self, target: Target) -> usize {
        self.jobs.iter().filter(|job| job.target == target && job.kind != 'x' && !job.late).count()
    }

    fn leased(&self, target: Target) -> usize {
        self.leases.iter().filter(|lease| self.connections[&lease.connection].target == target).count()
    }

    fn count(&self, target: Target) -> usize {
        let places = [self.arriving, self.reset, self.broken].into_iter().flatten();
        let on_the_way = places.filter(|one| self.connections[one].target == target).count();
        self.leased(target) + self.free[target as usize].len() + self.jobs_of(target, "ckrx") + on_the_way
    }

    pub(crate) fn total(&self) -> usize {
        (0..TARGETS).map(|target| self.count(target)).sum()
    }

    fn is_alive(&self, target: Target) -> bool {
        self.leased(target) + self.free[target as usize].len() + self.jobs_of(target, "kr") > 0
    }

    fn keeps(&self, target: Target) -> bool {
        self.kept[target as usize] && matches!(self.mode, Mode::Open | Mode::Suspended)
    }

    fn wanted(&self, target: Target) -> usize {
        let floor = self.settings.min_free.min(self.settings.max_free);
        let floor = if self.kept[target as usize] && self.mode == Mode::Open { floor } else { 0 };
        (self.line(target).count() + floor).saturating_sub(self.free[target as usize].len() + self.coming(target))
    }

    fn is_stale(&self, since: Instant) -> bool {
        self.settings.check_after.is_some_and(|time| self.now - since >= time)
    }

    /// Returns whether the connection has certainly reached its age, and whether it may have.
    fn worn(&self, connection: u64) -> (bool, bool) {
        let facts = &self.connections[&connection];
        let used = self.settings.max_uses.is_some_and(|max| facts.uses >= max);
        let Some(lifetime) = self.settings.lifetime else { return (used, used) };
        let age = self.now - facts.born;
        let least = lifetime * u32::from(100 - self.settings.lifetime_jitter) / 100;
        (used || age >= lifetime, used || age >= least)
    }

    fn next_free(&self, target: Target) -> Option<(u64, Instant)> {
        let free = &self.free[target as usize];
        match self.settings.order {
            Order::LastUsedFirst => free.last().copied(),
            Order::LongestFreeFirst => free.first().copied(),
        }
    }

    // Steps.

    pub(crate) fn set(&mut self, settings: Settings) {
        self.least_down_after = self.least_down_after.min(settings.down_after);
        self.settings = settings.clone();
        self.engine.set(self.now, settings);
    }

    pub(crate) fn keep(&mut self, target: Target, kept: bool) {
        self.kept[target as usize] = kept;
    }

    pub(crate) fn waits(&mut self, id: WaiterId, target: Target, deadline: Instant) {
        self.waiters.push(Waiter { id, target, since: self.now, deadline });
    }

    /// Takes a lease that was given without a wait.
    pub(crate) fn leased_at_once(&mut self, leased: Leased<u64>, target: Target) {
        assert_eq!(self.mode, Mode::Open);
        assert_eq!(self.line(target).count(), 0, "others waited");
        let free = &mut self.free[target as usize];
        let at = free.iter().position(|(free, _)| *free == leased.connection).expect("it is free");
        let (_, since) = free.remove(at);
        let passed: Vec<_> = match self.settings.order {
            Order::LastUsedFirst => free[at..].to_vec(),
            Order::LongestFreeFirst => free[..at].to_vec(),
        };
        assert!(!self.is_stale(since), "leased without a check");
        self.take(leased, target);
        self.judge_actions();
        // Others before it were worn, and are closed.
        assert!(self.free[target as usize].iter().all(|free| !passed.contains(free)), "not in order");
    }

    fn take(&mut self, leased: Leased<u64>, target: Target) {
        let connection = leased.connection;
        assert!(!self.worn(connection).0, "worn connections are closed");
        let facts = self.connections.get_mut(&connection).expect("it is open");
        facts.uses += 1;
        assert_eq!((facts.target, facts.uses), (target, leased.uses()));
        self.leases.push(leased);
    }

    pub(crate) fn arrives(&mut self, connection: u64, needs_reset: bool) {
        let place = if needs_reset { &mut self.reset } else { &mut self.arriving };
        *place = Some(connection);
    }

    pub(crate) fn broken(&mut self, connection: u64) {
        self.broken = Some(connection);
    }

    pub(crate) fn connected(&mut self, job: &Pending) -> u64 {
        self.last += 1;
        self.connections.insert(self.last, Facts { target: job.target, born: self.now, uses: 0 });
        self.failures[job.target as usize].clear();
        self.last
    }

    pub(crate) fn gone(&mut self, connection: u64) {
        self.connections.remove(&connection).expect("it was open");
    }

    pub(crate) fn failed(&mut self, target: Target) {
        self.failures[target as usize].push(self.now);
    }

    pub(crate) fn resumed(&mut self) {
        self.failures = Default::default();
    }

    pub(crate) fn target_of(job: &Pending) -> Target {
        job.target
    }

    // Judgement.

    /// Judges all actions, and the state after them.
    pub(crate) fn judge(&mut self) {
        self.judge_actions();
        self.judge_rest();
    }

    pub(crate) fn judge_actions(&mut self) {
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Run { id, job, timeout } => self.judge_job(id, job, timeout),
                Action::Cancel(id) => self.judge_cancel(id),
                Action::Wake { waiter, result } => self.judge_wake(waiter, result),
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
                assert!(self.serves() && self.wanted(target) > 0, "not needed");
                assert!(self.jobs_of(target, "c") < self.settings.max_connecting, "too many connects");
                assert!(self.total() < self.settings.max && self.count(target) < self.settings.max_per_target, "above a limit");
                self.jobs.push(Pending { id, target, kind: 'c', connection: None, due: self.now + timeout, late: false });
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
            Job::Close(connection) => {
                self.judge_close(connection);
                ('x', connection)
            }
        };
        let target = self.connections[&connection].target;
        self.jobs.push(Pending { id, target, kind, connection: Some(connection), due: self.now + timeout, late: false });
    }

    /// Judges that there is a reason to close a connection that still works.
    fn judge_close(&mut self, connection: u64) {
        let target = self.connections[&connection].target;
        let settings = &self.settings;
        if self.broken.take_if(|broken| *broken == connection).is_some() {
            return;
        }
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
        assert!(above || of_no_use || bored || full || self.worn(connection).1, "closed without a reason");
        self.arriving = self.arriving.filter(|one| *one != connection);
        self.reset = self.reset.filter(|one| *one != connection);
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
                assert_eq!(place, 1, "an older one waits");
                let connection = leased.connection;
                if self.arriving.take() != Some(connection) {
                    let (next, since) = self.next_free(target).expect("it is arriving or free");
                    assert!(next == connection && !self.is_stale(since), "in order, and checked");
                    self.free[target as usize].retain(|(free, _)| *free != connection);
                }
                self.take(leased, target);
            }
            Err(error) => self.judge_error(&error, at, place),
        }
        self.waiters.remove(at);
    }

    fn judge_error(&self, error: &Error, at: usize, place: usize) {
        let waiter = &self.waiters[at];
        let (target, is_over) = (waiter.target, waiter.deadline <= self.now);
        match error {
            Error::TimedOut { waited, place: said, .. } => {
                assert!(is_over && self.mode != Mode::Suspended);
                assert_eq!((*waited, *said), (self.now - waiter.since, place));
                self.judge_counts(error, target);
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
    pub(crate) fn judge_refusal(&self, error: &Error, target: Target, tries: bool) {
        match error {
            Error::TimedOut { waited, .. } => assert!(tries && waited.is_zero()),
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
        let waiters = self.waiters.iter().map(|waiter| waiter.deadline);
        let mut moments = waiters.chain(self.jobs.iter().filter(|job| !job.late).map(|job| job.due));
        assert!(moments.all(|moment| next.is_some_and(|next| next <= moment)), "no timer");
        let is_drained = matches!(self.mode, Mode::Draining(_)) && self.waiters.is_empty() && self.total() == 0;
        assert!(!is_drained, "nothing is left to wait for");
        if self.mode == Mode::Closed {
            assert!(self.waiters.is_empty() && free == 0 && self.engine.poll_timeout().is_none_or(|at| at > self.now - ms(1)));
        }
        for target in 0..TARGETS {
            self.judge_line(target);
        }
    }

    fn judge_line(&self, target: Target) {
        assert!(self.free[target as usize].len() <= self.settings.max_free);
        if !self.serves() {
            return;
        }
        let (waiting, coming) = (self.line(target).count(), self.coming(target));
        if waiting > 0
            && let Some((next, since)) = self.next_free(target)
        {
            assert!(self.is_stale(since) && coming >= waiting && !self.worn(next).0, "one waits while one is free");
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
        assert!(self.wanted(target) == 0 || !known || !may || !room || !pause_is_over, "a connect is needed, and none was begun");
        let others = (0..TARGETS).any(|other| other != target && !self.free[other as usize].is_empty());
        let closing = self.jobs.iter().filter(|job| job.kind == 'x' && !job.late).count();
        let in_need = waiting.saturating_sub(coming);
        assert!(in_need == 0 || !may || !pause_is_over || closing >= in_need || !others, "another's free connection makes room");
    }

    /// Judges that nothing is overdue.
    pub(crate) fn judge_time(&self) {
        assert!(self.waiters.iter().all(|waiter| waiter.deadline > self.now));
        assert!(self.jobs.iter().all(|job| job.late || job.due > self.now));
        assert!(self.engine.poll_timeout().is_none_or(|next| next > self.now), "a timer in the past");
    }

    /// Judges that all connections are gone.
    pub(crate) fn judge_end(&self) {
        assert_eq!((self.mode, self.total(), self.connections.len()), (Mode::Closed, 0, 0));
        assert_eq!(self.engine.status(), Status::default());
        assert_eq!(self.engine.poll_timeout(), None);
    }
}
