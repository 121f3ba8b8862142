//! The pool as a state machine without I/O, clock or threads, for drivers of your own. [`Pool`](crate::Pool) is one.
//!
//! All calls take the time. A call may leave [`Action`]s: take them with [`Engine::poll_action`] until there is none, and do them in any
//! order. Call [`Engine::handle_timeout`] when the moment of [`Engine::poll_timeout`] has come. A connection is always in one place: with
//! the engine while it is free, in a [`Leased`], or in a [`Job`]. Each [`Leased`] and each job must come back, or its place within the
//! limits is lost.
//!
//! Equal calls with equal seeds give equal actions.

mod health;
mod ids;
mod jobs;
mod line;
mod rules;
mod serve;
mod slot;
mod target;
mod targets;
mod timers;

pub use ids::{JobId, WaiterId};
pub use slot::Leased;

use crate::error::{ConnectError, Error};
use crate::random::Random;
use crate::settings::Settings;
use health::Health;
use ids::{Ids, Kind};
use jobs::Jobs;
use line::Line;
use rules::{Mode, Rules};
use slot::Slot;
use std::collections::VecDeque;
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
    /// Close the connection: drop it.
    Close(C),
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
    rules: Rules,
    random: Random,
    targets: Targets<K, C>,
    timers: Timers<ids::TargetId>,
    line: Line,
    jobs: Jobs,
    ids: Ids,
    actions: VecDeque<Action<K, C>>,
}

impl<K: Clone + Eq + Hash, C> Engine<K, C> {
    /// Creates a pool without connections. Its random numbers spread connects in time.
    pub fn new(settings: Settings, random: Random) -> Self {
        Engine {
            rules: Rules { settings, mode: Mode::Open },
            random,
            targets: Targets::new(),
            timers: Timers::new(),
            line: Line::new(),
            jobs: Jobs::new(),
            ids: Ids::default(),
            actions: VecDeque::new(),
        }
    }

    /// Asks for a connection. With a deadline that is not in the future only a free one is leased, and no connect is begun.
    pub fn ask(&mut self, now: Instant, target: &K, deadline: Instant) -> Result<Asked<C>, Error> {
        if matches!(self.rules.mode, Mode::Draining(_) | Mode::Closed) {
            return Err(Error::Closed);
        }
        let id = self.target(target);
        if self.rules.mode == Mode::Open
            && self.targets.get(id).waiters.is_empty()
            && self.next_is_stale(now, id) == Some(false)
            && let Some(leased) = self.lease_free(id)
        {
            if self.rules.settings.min_free > 0 {
                self.settle(now, id);
            }
            return Ok(Asked::Leased(leased));
        }
        let answer = self.stand_in_line(now, id, deadline);
        self.settle(now, id);
        answer
    }

    /// Takes a waiter out of the line, who then gets no [`Action::Wake`]. Who was woken already is no waiter.
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId) {
        if let Some(left) = self.line.leave(waiter) {
            self.targets.get_mut(left.target).waiters.remove(&waiter);
            self.settle(now, left.target);
            self.end_drain();
        }
    }

    /// Gives a connection back, which goes to the waiter whose turn it is, if there is one.
    pub fn give_back(&mut self, now: Instant, leased: Leased<C>, state: Returned) {
        let Leased { connection, slot } = leased;
        let id = slot.target;
        self.targets.get_mut(id).leased -= 1;
        match state {
            Returned::Broken => self.start(now, id, Some(slot), Job::Close(connection)),
            Returned::NeedsReset if !self.rules.is_worn(now, &slot) => self.start(now, id, Some(slot), Job::Reset(connection)),
            Returned::NeedsReset | Returned::Reusable => self.arrive(now, slot, connection),
        }
        self.settle(now, id);
    }

    /// Takes a leased connection out of the pool: it counts for no limit any more.
    pub fn detach(&mut self, now: Instant, leased: Leased<C>) -> C {
        self.targets.get_mut(leased.slot.target).leased -= 1;
        self.freed(now, leased.slot.target);
        leased.connection
    }

    /// Tells the result of a connect, check or reset. After an error the connection must be gone already.
    pub fn done(&mut self, now: Instant, job: JobId, result: Result<C, ConnectError>) {
        let Some(ended) = self.jobs.end(job) else { return };
        let id = ended.target;
        let target = self.targets.get_mut(id);
        target.end(ended.kind, ended.late);
        match result {
            Ok(connection) => {
                if ended.kind == Kind::Connect {
                    target.health = Health::default();
                }
                let slot = ended.slot.unwrap_or_else(|| Slot::new(id, now, &mut self.random));
                self.arrive(now, slot, connection);
                self.settle(now, id);
            }
            Err(error) => {
                // A late connect was counted as failed when it became late.
                if ended.kind == Kind::Connect && !ended.late {
                    target.health.failed(now, error, &self.rules.settings, &mut self.random);
                }
                self.freed(now, id);
            }
        }
    }

    /// Tells that a connection that was to be closed is gone.
    pub fn closed(&mut self, now: Instant, job: JobId) {
        if let Some(ended) = self.jobs.end(job) {
            self.targets.get_mut(ended.target).end(ended.kind, ended.late);
            self.freed(now, ended.target);
        }
    }

    /// Replaces the settings.
    pub fn set(&mut self, now: Instant, settings: Settings) {
        self.rules.settings = settings;
        while self.jobs.surplus(self.targets.total, self.rules.settings.max) > 0 && self.close_longest_free(now, None) {}
        self.settle_every(now);
    }

    /// Begins to keep [`Settings::min_free`] connections to the target.
    pub fn add_target(&mut self, now: Instant, target: &K) {
        if matches!(self.rules.mode, Mode::Open | Mode::Suspended) {
            let id = self.target(target);
            self.settle(now, id);
        }
    }

    /// Closes the free connections to the target, and the leased ones when they come back, until it is asked for again. Who waits for the
    /// target is served nevertheless.
    pub fn remove_target(&mut self, now: Instant, target: &K) {
        if let Some(id) = self.targets.find(target) {
            self.targets.get_mut(id).kept = false;
            self.settle(now, id);
        }
    }

    /// Stops leasing and connecting. Who waits stays in line, and so does who asks.
    pub fn suspend(&mut self, now: Instant) {
        if self.rules.mode == Mode::Open {
            self.rules.mode = Mode::Suspended;
            self.settle_every(now);
        }
    }

    /// Ends [`suspend`](Engine::suspend): the line is served, and earlier failures of connects are forgotten.
    pub fn resume(&mut self, now: Instant) {
        if self.rules.mode == Mode::Suspended {
            self.rules.mode = Mode::Open;
            self.targets.iter_mut().for_each(|target| target.health = Health::default());
            self.settle_every(now);
        }
    }

    /// Begins to close the pool: nobody new is let in, who waits is served, connections without a waiter are closed.
    /// [`Action::Drained`] tells the end, at the deadline at the latest; who waits then gets [`Error::Closed`]. Again, it moves the deadline.
    pub fn drain(&mut self, now: Instant, deadline: Instant) {
        if self.rules.mode == Mode::Closed {
            let leased = self.status().leased;
            self.actions.push_back(Action::Drained { leased });
            return;
        }
        self.rules.mode = Mode::Draining(deadline);
        self.settle_every(now);
        self.handle_timeout(now);
    }

    /// Does what is due. Early calls do no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.rules.drains_until().is_some_and(|deadline| deadline <= now) {
            self.close(now);
        }
        loop {
            if let Some(waiter) = self.line.deadlines.due(now) {
                self.time_out(now, waiter);
            } else if let Some(job) = self.jobs.due.due(now) {
                self.late(now, job);
            } else if let Some(id) = self.timers.due(now) {
                self.settle(now, id);
            } else {
                break;
            }
        }
        self.end_drain();
    }

    /// Returns when [`handle_timeout`](Engine::handle_timeout) is to be called; None until another call has been made.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let parts = [self.line.deadlines.next(), self.jobs.due.next(), self.timers.next(), self.rules.drains_until()];
        parts.into_iter().fold(None, earliest)
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<Action<K, C>> {
        self.actions.pop_front()
    }

    /// Returns whether the job is under way, and late.
    pub fn is_late(&self, job: JobId) -> bool {
        self.jobs.is_late(job)
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.rules.settings
    }

    /// Returns the counts. The cost grows with the number of targets.
    pub fn status(&self) -> Status {
        self.targets.status(self.line.len())
    }
}
