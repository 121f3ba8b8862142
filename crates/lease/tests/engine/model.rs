//! A simple model of a pool, which knows where each connection is and judges each action of the engine.

mod judge;

use crate::common::ms;
use sockdrawer_lease::engine::{Engine, JobId, Leased, WaiterId};
use sockdrawer_lease::{Order, Policy, Random, Reason, Request, Settings};
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
    request: Request,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: JobId,
    target: Target,
    pub(crate) kind: char,
    /// The connection; None for a connect.
    pub(crate) connection: Option<u64>,
    /// Reason told for the end of its connection, before that was there.
    gone: Option<Reason>,
    began: Instant,
    due: Instant,
    pub(crate) late: bool,
}

#[derive(Debug)]
struct Facts {
    target: Target,
    name: JobId,
    /// Reason told for its end.
    gone: Option<Reason>,
    /// Moment at which its holder asked.
    asked: Instant,
    born: Instant,
    uses: u64,
    /// Set once it may have been near its end.
    old: bool,
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
    /// A connection has moved since it was asked for.
    moves: [bool; TARGETS as usize],
    /// Moments of failed connects since the last success.
    failures: [Vec<Instant>; TARGETS as usize],
    connections: BTreeMap<u64, Facts>,
    /// Keys that were served last, while others waited.
    served: [Option<u64>; TARGETS as usize],
    /// Moments at which the line was last seen not to be above the target of CoDel.
    calm: [Instant; TARGETS as usize],
    /// Moments at which a waiter came back to its place.
    came_back: [Instant; TARGETS as usize],
    /// Longest connects.
    longest: [Duration; TARGETS as usize],
    /// Replacements that may be connected for those near their end.
    owed: [usize; TARGETS as usize],
    /// Asks, and ends of connections that were told.
    pub(crate) asks: u64,
    told_ends: u64,
    /// Closes of connections that their peers had ended.
    gone_ends: u64,
    /// On its way to a waiter, the free ones or its end.
    arriving: Option<u64>,
    reset: Option<u64>,
    /// Given back as broken.
    broken: Option<u64>,
    /// Connection that was told to have gone last.
    pub(crate) stale: Option<JobId>,
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
            moves: [false; TARGETS as usize],
            failures: Default::default(),
            connections: BTreeMap::new(),
            served: Default::default(),
            calm: [now; TARGETS as usize],
            came_back: [now; TARGETS as usize],
            longest: Default::default(),
            owed: Default::default(),
            asks: 0,
            told_ends: 0,
            gone_ends: 0,
            arriving: None,
            reset: None,
            broken: None,
            stale: None,
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

    fn floor(&self, target: Target) -> usize {
        let floor = self.settings.min_free.min(self.settings.max_free);
        if self.kept[target as usize] && !self.moves[target as usize] && self.mode == Mode::Open { floor } else { 0 }
    }

    /// Returns the most connections that the target may need: those near their end are not counted on.
    fn wanted(&self, target: Target) -> usize {
        let young = self.free[target as usize].iter().filter(|(free, _)| !self.connections[free].old).count();
        (self.line(target).count() + self.floor(target)).saturating_sub(young + self.coming(target))
    }

    /// Returns the least connections that the target needs, and how many of them for waiters: returns may serve those that have not
    /// waited for longer than a connect takes.
    fn surely_wanted(&self, target: Target) -> (usize, usize) {
        let waits = |waiter: &Waiter| self.now - waiter.since >= self.longest[target as usize];
        let is_idle = self.leased(target) == 0;
        let waiting = self.line(target).count();
        let waiting = if is_idle || self.line(target).next().is_some_and(waits) { waiting } else { 0 };
        let floor = if is_idle { self.floor(target) } else { 0 };
        let there = self.free[target as usize].len() + self.coming(target);
        ((waiting + floor).saturating_sub(there), waiting.saturating_sub(self.coming(target)))
    }

    /// Returns the waiter whose turn it is.
    fn next_waiter(&self, target: Target) -> Option<WaiterId> {
        let oldest = self.line(target).next()?;
        let turn = match self.settings.policy {
            Policy::AdaptiveLifo { after } if self.now - oldest.since >= after => self.line(target).last(),
            Policy::Fair => {
                let next = self.served[target as usize].and_then(|served| {
                    self.line(target).filter(|waiter| waiter.request.key > served).min_by_key(|waiter| waiter.request.key)
                });
                next.or_else(|| self.line(target).min_by_key(|waiter| waiter.request.key))
            }
            Policy::Priority => self.line(target).min_by_key(|waiter| u8::MAX - waiter.request.priority),
            _ => Some(oldest),
        };
        turn.map(|waiter| waiter.id)
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

    /// Notes those that may be near their end.
    fn note_old(&mut self) {
        let settings = &self.settings;
        let least = settings.lifetime.map(|lifetime| lifetime * u32::from(100 - settings.lifetime_jitter) / 100 * 95 / 100);
        for facts in self.connections.values_mut().filter(|facts| !facts.old) {
            let used = settings.max_uses.is_some_and(|max| max >= 20 && facts.uses + 2 >= max - max / 20);
            facts.old = used || least.is_some_and(|least| self.now - facts.born + ms(1) >= least);
            self.owed[facts.target as usize] += usize::from(facts.old);
        }
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
        if self.settings.policy != settings.policy {
            self.calm = [self.now; TARGETS as usize];
        }
        self.settings = settings.clone();
        self.engine.set(self.now, settings);
    }

    pub(crate) fn keep(&mut self, target: Target, kept: bool) {
        self.kept[target as usize] = kept;
        self.moves[target as usize] &= !kept;
    }

    pub(crate) fn waits(&mut self, id: WaiterId, target: Target, request: Request, since: Instant) {
        if since < self.now {
            // It makes the line late from now on at the latest, and not from when it asked first.
            self.came_back[target as usize] = self.now;
        }
        let at = self.waiters.iter().position(|waiter| waiter.id > id).unwrap_or(self.waiters.len());
        self.waiters.insert(at, Waiter { id, target, since, request });
    }

    pub(crate) fn leaves(&mut self, at: usize) -> WaiterId {
        let waiter = self.waiters.remove(at);
        if self.line(waiter.target).next().is_none() {
            self.served[waiter.target as usize] = None;
        }
        waiter.id
    }

    /// Takes a lease that was given without a wait.
    pub(crate) fn leased_at_once(&mut self, leased: Leased<u64>, target: Target, asked: Instant) {
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
        self.take(leased, target, asked);
        self.judge_actions();
        // Others before it were worn, and are closed.
        assert!(self.free[target as usize].iter().all(|free| !passed.contains(free)), "not in order");
    }

    fn take(&mut self, leased: Leased<u64>, target: Target, asked: Instant) {
        let connection = leased.connection;
        assert!(!self.worn(connection).0, "worn connections are closed");
        let facts = self.connections.get_mut(&connection).expect("it is open");
        assert!(facts.gone.is_none(), "handed out after it had gone");
        (facts.uses, facts.asked) = (facts.uses + 1, asked);
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

    /// Notes a connection that is there from now on.
    pub(crate) fn made(&mut self, target: Target, name: JobId, gone: Option<Reason>) -> u64 {
        self.last += 1;
        let facts = Facts { target, name, gone, asked: self.now, born: self.now, uses: 0, old: false };
        self.connections.insert(self.last, facts);
        self.last
    }

    /// Returns the number of the connection that is made next.
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// Returns the names of all connections, and of those that are being connected.
    pub(crate) fn names(&self) -> Vec<JobId> {
        let connecting = self.jobs.iter().filter(|job| job.kind == 'c').map(|job| job.id);
        self.connections.values().map(|facts| facts.name).chain(connecting).collect()
    }

    /// Notes that a connection has gone.
    pub(crate) fn told_gone(&mut self, name: JobId, reason: Reason) {
        let facts = self.connections.values_mut().filter(|facts| facts.name == name).map(|facts| &mut facts.gone);
        let jobs = self.jobs.iter_mut().filter(|job| job.id == name).map(|job| &mut job.gone);
        facts.chain(jobs).for_each(|gone| _ = gone.get_or_insert(reason));
    }

    /// Notes that all connections to a target that are there, or are being made, are to be closed.
    pub(crate) fn removed(&mut self, target: Target) {
        let facts = self.connections.values_mut().filter(|facts| facts.target == target).map(|facts| &mut facts.gone);
        let jobs = self.jobs.iter_mut().filter(|job| job.target == target && job.kind == 'c').map(|job| &mut job.gone);
        facts.chain(jobs).for_each(|gone| _ = gone.get_or_insert(Reason::Unneeded));
    }

    /// Notes that the holder of a connection has found it gone: it is closed, for that reason.
    pub(crate) fn broken_gone(&mut self, connection: u64, name: JobId) {
        self.told_gone(name, Reason::PeerEnded);
        self.connections.get_mut(&connection).expect("it is open").gone = Some(Reason::PeerEnded);
        self.arriving = Some(connection);
    }

    /// Returns the target of a connection, its name, and when its holder asked.
    pub(crate) fn facts(&self, connection: u64) -> (Target, JobId, Instant) {
        let facts = &self.connections[&connection];
        (facts.target, facts.name, facts.asked)
    }

    pub(crate) fn connected(&mut self, job: &Pending) -> u64 {
        self.made(job.target, job.id, job.gone);
        let longest = &mut self.longest[job.target as usize];
        *longest = (self.now - job.began).max(*longest);
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
        self.calm = [self.now; TARGETS as usize];
    }

    pub(crate) fn target_of(job: &Pending) -> Target {
        job.target
    }
}
