//! The pool as a state machine without I/O, clock or threads, for drivers of your own. [`Pool`](crate::Pool) is one.
//!
//! All calls take the time. A call may leave [`Action`]s: take them with [`Engine::poll_action`] until there is none, and do them in any
//! order. Call [`Engine::handle_timeout`] when the moment of [`Engine::poll_timeout`] has come. A connection is always in one place: with
//! the engine while it is free, in a [`Leased`], or in a [`Job`]. Each [`Leased`] and each job must come back, or its place within the
//! limits is lost. The job that connected a connection is its name: a driver that hears of its end elsewhere tells it by [`Engine::gone`].
//!
//! Equal calls with equal seeds give equal actions.

mod free;
mod health;
mod held;
mod ids;
mod jobs;
mod line;
mod lives;
mod reports;
mod rules;
mod serve;
mod slot;
mod supply;
mod target;
mod targets;
mod timers;
mod usual;

pub use ids::{JobId, WaiterId};
pub use slot::Leased;

use crate::error::{ConnectError, Error};
use crate::random::Random;
use crate::request::Request;
use crate::settings::Settings;
use crate::stats::{Event, Reason, Stats};
use held::Watched;
use ids::Ids;
use jobs::Jobs;
use lives::Lives;
use reports::Reports;
use rules::{Mode, Rules};
use std::hash::Hash;
use std::time::{Duration, Instant};
use targets::Targets;
use timers::{Timers, earliest};

/// State in which a connection comes back from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// It can be leased again as it is.
    Reusable,
    /// It can be leased again once it is reset.
    NeedsReset,
    /// It is of no use any more, and is closed.
    Broken,
}

/// Answer to [`Engine::ask`].
#[derive(Debug)]
pub enum Asked<C> {
    /// A connection was free.
    Leased(Leased<C>),
    /// The caller stands in line: [`Action::Wake`] has the result.
    Waits(WaiterId),
}

/// Action that the engine asks of its driver.
#[derive(Debug)]
pub enum Action<K, C> {
    /// The job is to be done, and its result told by [`Engine::done`] or [`Engine::closed`], also if it comes late.
    Run {
        /// Name of the job.
        id: JobId,
        /// Work to do.
        job: Job<K, C>,
        /// Time after which the job is late, and no longer counted on.
        timeout: Duration,
    },
    /// The job is late: it may be given up, which is told by [`Engine::done`] as an error. A result that comes late is used.
    Cancel(JobId),
    /// The wait is over.
    Wake {
        /// Name of the waiter.
        waiter: WaiterId,
        /// Result of the wait.
        result: Result<Leased<C>, Error>,
    },
    /// The drain is over: all connections are closed, or its deadline has come.
    Drained {
        /// Connections that are still leased; they are closed when they come back.
        leased: usize,
    },
    /// An event happened, which is told after [`Engine::observe`] alone.
    Tell(Event<K>),
}

/// Work on a connection.
#[derive(Debug)]
pub enum Job<K, C> {
    /// Connect to the target.
    Connect(K),
    /// Find out whether the connection still works.
    Check(C),
    /// Bring the connection back to the state of a new one.
    Reset(C),
    /// Close the connection, which left the pool for this reason. For [`Reason::Moved`] it was fit to be leased.
    Close(C, Reason),
}

/// Counts of a pool at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Connections that nobody leased, and that are not being checked or closed.
    pub free: usize,
    /// Connections that are leased.
    pub leased: usize,
    /// Connects under way.
    pub connecting: usize,
    /// Connections that are being checked or reset.
    pub checking: usize,
    /// Connections that are being closed.
    pub closing: usize,
    /// Callers in line.
    pub waiting: usize,
}

/// A pool of connections `C` to targets `K`; see [the module](self).
#[derive(Debug)]
pub struct Engine<K, C> {
    core: Core<K, C>,
}

/// State of the engine, with the decisions on it.
#[derive(Debug)]
struct Core<K, C> {
    rules: Rules,
    random: Random,
    targets: Targets<K, C>,
    timers: Timers<ids::TargetId>,
    /// Waiters for all targets.
    waiting: usize,
    deadlines: Timers<WaiterId>,
    jobs: Jobs,
    lives: Lives,
    watched: Watched,
    ids: Ids,
    reports: Reports<K, C>,
}

impl<K: Clone + Eq + Hash, C> Engine<K, C> {
    /// Creates a pool without connections. Its random numbers spread connects in time.
    pub fn new(settings: Settings, random: Random) -> Self {
        let core = Core {
            rules: Rules::new(settings),
            random,
            targets: Targets::new(),
            timers: Timers::new(),
            waiting: 0,
            deadlines: Timers::new(),
            jobs: Jobs::new(),
            lives: Lives::default(),
            watched: Watched::default(),
            ids: Ids::default(),
            reports: Reports::new(),
        };
        Engine { core }
    }

    /// Asks for a connection. With a deadline that is not in the future only a free one is leased, and no connect is begun.
    pub fn ask(&mut self, now: Instant, target: &K, request: Request) -> Result<Asked<C>, Error> {
        let answer = self.core.ask(now, target, request);
        answer.map_err(|error| self.core.reports.refuse(error))
    }

    /// Takes a waiter out of the line, so that it gets no [`Action::Wake`]. A caller that was woken already is no waiter.
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId) {
        self.core.cancel(now, waiter);
    }

    /// Gives a connection back, which goes to the waiter whose turn it is, if there is one.
    pub fn give_back(&mut self, now: Instant, leased: Leased<C>, state: Returned) {
        let core = &mut self.core;
        let (slot, connection) = core.take_back(now, leased);
        let id = slot.target;
        match state {
            Returned::Broken => core.close(now, slot, connection, Reason::Broken),
            Returned::NeedsReset
                if core.rules.unfit(now, &slot, core.lives.gone(slot.name)).is_none_or(|reason| reason == Reason::Moved) =>
            {
                core.start(now, id, Some(slot), Job::Reset(connection));
            }
            Returned::NeedsReset | Returned::Reusable => core.arrive(now, slot, connection),
        }
        core.settle(now, id);
    }

    /// Tells that a connection has gone, or is of no use any more, wherever it is: a free one is closed now, others when they come back from
    /// their lease or job. Of those that are not the pool's any more nothing is to be told; it does no harm.
    pub fn gone(&mut self, now: Instant, connection: JobId, reason: Reason) {
        self.core.gone(now, connection, reason);
    }

    /// Takes a connection that was made elsewhere, so long ago: it goes to the waiter whose turn it is, or becomes free, or is closed as any that
    /// has come back is. Returns its name.
    pub fn add(&mut self, now: Instant, target: &K, connection: C, age: Duration) -> JobId {
        self.core.add(now, target, connection, age)
    }

    /// Gives a connection back that had gone before its holder could use it, and asks again on these terms: the caller is where it was in line,
    /// also where the line is full.
    pub fn ask_again(&mut self, now: Instant, leased: Leased<C>, reason: Reason, request: Request) -> Result<Asked<C>, Error> {
        let answer = self.core.ask_again(now, leased, reason, request);
        answer.map_err(|error| self.core.reports.refuse(error))
    }

    /// Takes a leased connection out of the pool: it counts for no limit any more.
    pub fn detach(&mut self, now: Instant, leased: Leased<C>) -> C {
        let (slot, connection) = self.core.take_back(now, leased);
        self.core.ended(now, &slot, Reason::Detached);
        self.core.freed(now, slot.target);
        connection
    }

    /// Tells the result of a connect, check or reset. After an error the connection must be gone already.
    pub fn done(&mut self, now: Instant, job: JobId, result: Result<C, ConnectError>) {
        self.core.done(now, job, result);
    }

    /// Tells that a connection that was to be closed is gone.
    pub fn closed(&mut self, now: Instant, job: JobId) {
        if let Some(ended) = self.core.jobs.end(job) {
            self.core.targets.get_mut(ended.target).end(ended.kind, ended.late);
            self.core.freed(now, ended.target);
        }
    }

    /// Replaces the settings.
    pub fn set(&mut self, now: Instant, settings: Settings) {
        self.core.rules.set(settings);
        self.core.shrink(now);
        self.core.settle_every(now);
    }

    /// Begins to keep [`Settings::min_free`] connections to the target.
    pub fn add_target(&mut self, now: Instant, target: &K) {
        let core = &mut self.core;
        if matches!(core.rules.mode, Mode::Open | Mode::Suspended) {
            let id = core.targets.keep(target, &mut core.ids, &core.rules);
            core.settle(now, id);
        }
    }

    /// Closes all connections to the target that there are or that are being made: the free ones now, others when they come back. A
    /// caller that waits for the target, or asks for it again, has one that is connected after this.
    pub fn remove_target(&mut self, now: Instant, target: &K) {
        if let Some(id) = self.core.targets.find(target) {
            self.core.remove(now, id);
        }
    }

    /// Stops leasing and connecting. Callers that wait stay in line, and so do those that ask.
    pub fn suspend(&mut self, now: Instant) {
        if self.core.rules.mode == Mode::Open {
            self.core.rules.mode = Mode::Suspended;
            self.core.settle_every(now);
        }
    }

    /// Ends [`suspend`](Engine::suspend): the line is served, and earlier failures of connects are forgotten.
    pub fn resume(&mut self, now: Instant) {
        if self.core.rules.mode == Mode::Suspended {
            self.core.rules.mode = Mode::Open;
            self.core.targets.iter_mut().for_each(|target| target.health = Default::default());
            self.core.settle_every(now);
        }
    }

    /// Begins to close the pool: no new caller is let in, waiters are served, connections without a waiter are closed.
    /// [`Action::Drained`] tells the end, at the deadline at the latest; waiters then get [`Error::Closed`]. Again, it moves the deadline.
    pub fn drain(&mut self, now: Instant, deadline: Instant) {
        if self.core.rules.mode == Mode::Closed {
            let leased = self.status().leased;
            self.core.reports.actions.push_back(Action::Drained { leased });
            return;
        }
        self.core.rules.mode = Mode::Draining(deadline);
        self.core.settle_every(now);
        self.handle_timeout(now);
    }

    /// Does what is due. Early calls do no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        let core = &mut self.core;
        if core.rules.drains_until().is_some_and(|deadline| deadline <= now) {
            core.end(now);
        }
        loop {
            if let Some(waiter) = core.deadlines.due(now) {
                core.time_out(now, waiter);
            } else if let Some(job) = core.jobs.due.due(now) {
                core.late(now, job);
            } else if let Some(id) = core.timers.due(now) {
                core.settle(now, id);
            } else if let Some(held) = core.watched.take_due(now) {
                core.reports.stats.held += 1;
                let (target, held_for) = (&core.targets.get(held.target).name, now - held.since);
                core.reports.tell(|| Event::Held { target: target.clone(), caller: held.caller, held: held_for });
            } else {
                break;
            }
        }
        core.end_drain();
    }

    /// Returns when [`handle_timeout`](Engine::handle_timeout) is to be called; None until another call has been made.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let core = &self.core;
        let drains_until = core.rules.drains_until();
        let parts = [core.deadlines.next(), core.jobs.due.next(), core.timers.next(), core.watched.next(), drains_until];
        parts.into_iter().fold(None, earliest)
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<Action<K, C>> {
        self.core.reports.actions.pop_front()
    }

    /// Begins, or ends, to tell events by [`Action::Tell`].
    pub fn observe(&mut self, is_observed: bool) {
        self.core.reports.is_observed = is_observed;
    }

    /// Returns whether the job is under way, and late.
    pub fn is_late(&self, job: JobId) -> bool {
        self.core.jobs.is_late(job)
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.core.rules.settings
    }

    /// Returns the counts of this moment. The cost grows with the number of targets.
    pub fn status(&self) -> Status {
        self.core.targets.status(self.core.waiting)
    }

    /// Returns the numbers since the pool began.
    pub fn stats(&self) -> &Stats {
        &self.core.reports.stats
    }
}
