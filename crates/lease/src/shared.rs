//! An engine under a lock, and what its actions need: callers that wait, a clock and something that runs jobs.

use crate::connect::{BoxError, Target};
use crate::engine::{Action, Asked, Engine, Job, JobId, Leased, Returned, Status, WaiterId};
use crate::error::Error;
use crate::gone::Gone;
use crate::request::Request;
use crate::stats::{Event, Reason};
use crate::sync::{Condvar, Mutex, MutexGuard, thread};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Runs jobs by code of the user's.
pub(crate) trait Run<K: Target, C: Send + 'static>: Send + Sync {
    fn run(&self, task: Task<K, C>);
    fn returned(&self, connection: &mut C) -> Returned;
    fn watch(&self, connection: &mut C, gone: Gone);
    fn look(&self, connection: &mut C) -> Option<Reason>;
    fn read_count(&self, connection: &C) -> Option<u64>;
}

/// Closure of the user's that is told of events.
pub(crate) type Observer<K> = Arc<dyn Fn(&Event<K>) + Send + Sync>;

/// Way to a thread or task that waits.
pub(crate) enum Wake {
    Thread(thread::Thread),
    Task(Waker),
}

/// Wait for a lease.
pub(crate) enum Wait<C> {
    Waits(Wake),
    Done(Result<Leased<C>, Error>),
}

pub(crate) struct State<K, C> {
    pub(crate) engine: Engine<K, C>,
    pub(crate) waits: BTreeMap<WaiterId, Wait<C>>,
    /// Async jobs, to be woken when they are late.
    pub(crate) jobs: HashMap<JobId, Waker>,
    /// Leases that were left when the pool was closed.
    pub(crate) drained: Option<usize>,
    pub(crate) drains: Vec<Wake>,
    pub(crate) observer: Option<Observer<K>>,
    /// Moment until which the timer thread sleeps, None within for ever; None outside while it is awake.
    sleeps_until: Option<Option<Instant>>,
    /// Set when the last handle of the pool is gone.
    pub(crate) is_abandoned: bool,
}

pub(crate) struct Shared<K: Target, C: Send + 'static> {
    state: Mutex<State<K, C>>,
    timer: Condvar,
    runner: Box<dyn Run<K, C>>,
}

/// Work to be done without the lock.
enum Todo<K, C> {
    Wake(Wake),
    Run(JobId, Job<K, C>, Duration),
    Tell(Observer<K>, Event<K>),
    /// A connection for a caller that has gone away meanwhile.
    GiveBack(Leased<C>),
}

impl<K: Target, C: Send + 'static> Shared<K, C> {
    pub(crate) fn new(engine: Engine<K, C>, runner: Box<dyn Run<K, C>>) -> Arc<Self> {
        let state = State {
            engine,
            waits: BTreeMap::new(),
            jobs: HashMap::new(),
            drained: None,
            drains: Vec::new(),
            observer: None,
            sleeps_until: None,
            is_abandoned: false,
        };
        Arc::new(Shared { state: Mutex::new(state), timer: Condvar::new(), runner })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<K, C>> {
        self.state.lock().expect("no code that panics runs under the lock")
    }

    /// Makes a call to the engine, and does what it asks for afterwards, without the lock.
    pub(crate) fn call<R>(self: &Arc<Self>, call: impl FnOnce(&mut State<K, C>, Instant) -> R) -> R {
        let mut state = self.lock();
        let result = call(&mut state, Instant::now());
        let todo = state.todo();
        let next = state.engine.poll_timeout();
        let is_sooner = |until: &mut Option<Instant>| next.is_some_and(|next| until.is_none_or(|until| next < until));
        if state.is_abandoned || state.sleeps_until.take_if(is_sooner).is_some() {
            self.timer.notify_one();
        }
        drop(state);
        self.run(todo);
        result
    }

    pub(crate) fn ask(self: &Arc<Self>, target: &K, request: Request, wake: impl FnOnce() -> Wake) -> Result<Asked<C>, Error> {
        self.asked(wake, |engine, now| engine.ask(now, target, request))
    }

    /// Asks again for the holder of a connection that had gone before it could be used.
    pub(crate) fn ask_again(
        self: &Arc<Self>,
        (leased, reason): (Leased<C>, Reason),
        request: Request,
        wake: impl FnOnce() -> Wake,
    ) -> Result<Asked<C>, Error> {
        self.asked(wake, |engine, now| engine.ask_again(now, leased, reason, request))
    }

    fn asked(
        self: &Arc<Self>,
        wake: impl FnOnce() -> Wake,
        ask: impl FnOnce(&mut Engine<K, C>, Instant) -> Result<Asked<C>, Error>,
    ) -> Result<Asked<C>, Error> {
        self.call(|state, now| {
            let asked = ask(&mut state.engine, now)?;
            if let Asked::Waits(waiter) = asked {
                state.waits.insert(waiter, Wait::Waits(wake()));
            }
            Ok(asked)
        })
    }

    /// Looks at a connection that its holder is about to get. A look that panics is a reason not to lease it.
    pub(crate) fn look(&self, leased: &mut Leased<C>) -> Option<Reason> {
        let look = AssertUnwindSafe(|| self.runner.look(&mut leased.connection));
        catch_unwind(look).unwrap_or(Some(Reason::Broken))
    }

    /// Notes that a connection has gone. A loop that tells it is not held up by what follows: the timer thread does that.
    pub(crate) fn gone(&self, connection: JobId, reason: Reason) {
        self.leave(|engine, now| engine.gone(now, connection, reason));
    }

    /// Takes a connection that was made elsewhere, as [`Shared::gone`] notes one. Returns its name.
    #[cfg(feature = "sockets")]
    pub(crate) fn add(&self, target: &K, connection: C, age: Duration) -> JobId {
        self.leave(|engine, now| engine.add(now, target, connection, age))
    }

    /// Makes a call to the engine, and leaves what it asks for to the timer thread.
    fn leave<R>(&self, call: impl FnOnce(&mut Engine<K, C>, Instant) -> R) -> R {
        let mut state = self.lock();
        let result = call(&mut state.engine, Instant::now());
        if state.sleeps_until.take().is_some() {
            self.timer.notify_one();
        }
        result
    }

    pub(crate) fn give_back(self: &Arc<Self>, mut leased: Leased<C>, is_broken: bool) {
        let judge = || self.runner.returned(&mut leased.connection);
        let judged = if is_broken { Ok(Returned::Broken) } else { catch_unwind(AssertUnwindSafe(judge)) };
        let returned = judged.unwrap_or(Returned::Broken);
        self.call(|state, now| state.engine.give_back(now, leased, returned));
    }

    /// Returns how much was read from the connection so far; None where that is not known.
    pub(crate) fn read_count(&self, connection: &C) -> Option<u64> {
        catch_unwind(AssertUnwindSafe(|| self.runner.read_count(connection))).ok().flatten()
    }

    /// Runs all, whatever becomes of each: a panic in code of the user's, which is reported where it happens, ends one job.
    fn run(self: &Arc<Self>, todo: Vec<Todo<K, C>>) {
        for todo in todo {
            let _ = catch_unwind(AssertUnwindSafe(|| match todo {
                Todo::Wake(wake) => wake.wake(),
                Todo::Tell(observer, event) => observer(&event),
                Todo::Run(id, job, timeout) => self.runner.run(Task::new(self.clone(), id, job, timeout)),
                Todo::GiveBack(leased) => self.give_back(leased, false),
            }));
        }
    }

    /// Does what is due by time, until the last handle of the pool is gone and nothing is left of it: what is leased comes back and is
    /// closed, and a close may be late.
    pub(crate) fn keep_time(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let now = Instant::now();
            state.engine.handle_timeout(now);
            let todo = state.todo();
            if todo.is_empty() {
                if state.is_abandoned && state.engine.status() == Status::default() {
                    break;
                }
                let next = state.engine.poll_timeout();
                state.sleeps_until = Some(next);
                let woken = match next {
                    Some(next) => {
                        self.timer.wait_timeout(state, next.saturating_duration_since(now)).map(|(state, _)| state).ok()
                    }
                    None => self.timer.wait(state).ok(),
                };
                woken.expect("no code that panics runs under the lock").sleeps_until = None;
            } else {
                drop(state);
                self.run(todo);
            }
        }
    }
}

impl<K: Target, C> State<K, C> {
    /// Takes the actions of the engine, and keeps what is to be done without the lock.
    fn todo(&mut self) -> Vec<Todo<K, C>> {
        let mut todo = Vec::new();
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Run { id, job, timeout } => todo.push(Todo::Run(id, job, timeout)),
                Action::Cancel(id) => todo.extend(self.jobs.remove(&id).map(|waker| Todo::Wake(Wake::Task(waker)))),
                Action::Wake { waiter, result } => match self.waits.get_mut(&waiter) {
                    Some(wait) => {
                        if let Wait::Waits(wake) = std::mem::replace(wait, Wait::Done(result)) {
                            todo.push(Todo::Wake(wake));
                        }
                    }
                    // Its future was dropped after the engine had decided.
                    None => todo.extend(result.ok().map(Todo::GiveBack)),
                },
                Action::Tell(event) => todo.extend(self.observer.clone().map(|observer| Todo::Tell(observer, event))),
                Action::Drained { leased } => {
                    self.drained = Some(leased);
                    todo.extend(self.drains.drain(..).map(Todo::Wake));
                }
            }
        }
        todo
    }
}

impl Wake {
    /// Returns true where it is the way to the task that this waker wakes.
    pub(crate) fn is_of(&self, waker: &Waker) -> bool {
        matches!(self, Wake::Task(of) if of.will_wake(waker))
    }

    fn wake(self) {
        match self {
            Wake::Thread(thread) => thread.unpark(),
            Wake::Task(waker) => waker.wake(),
        }
    }
}

/// A job on its way. Its result is told in any case: where it is dropped without one, it has failed.
pub(crate) struct Task<K: Target, C: Send + 'static> {
    pub(crate) shared: Arc<Shared<K, C>>,
    pub(crate) id: JobId,
    pub(crate) timeout: Duration,
    /// None once it is begun.
    pub(crate) job: Option<Job<K, C>>,
    is_connect: bool,
    is_close: bool,
    is_told: bool,
}

impl<K: Target, C: Send + 'static> Task<K, C> {
    fn new(shared: Arc<Shared<K, C>>, id: JobId, job: Job<K, C>, timeout: Duration) -> Self {
        let (is_connect, is_close) = (matches!(job, Job::Connect(_)), matches!(job, Job::Close(..)));
        Task { shared, id, timeout, job: Some(job), is_connect, is_close, is_told: false }
    }

    /// Tells the result. After an error the connection must be gone.
    pub(crate) fn tell(mut self, mut result: Result<C, BoxError>) {
        if let (true, Ok(connection)) = (self.is_connect, &mut result) {
            self.shared.runner.watch(connection, Gone::new(&self.shared, self.id));
        }
        self.is_told = true;
        drop(self.shared.call(|state, now| state.done(now, self.id, result)));
    }
}

impl<K: Target, C> State<K, C> {
    /// Returns the waker of the job, to be dropped without the lock: it is code of the executor's.
    fn done(&mut self, now: Instant, id: JobId, result: Result<C, BoxError>) -> Option<Waker> {
        self.engine.done(now, id, result.map_err(Into::into));
        self.jobs.remove(&id)
    }
}

impl<K: Target, C: Send + 'static> Drop for Task<K, C> {
    fn drop(&mut self) {
        // The connection is gone before its place is.
        let job = self.job.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(job)));
        let (id, is_close) = (self.id, self.is_close);
        if !self.is_told {
            drop(self.shared.call(|state, now| match is_close {
                true => {
                    state.engine.closed(now, id);
                    state.jobs.remove(&id)
                }
                false => {
                    state.done(now, id, Err("it panicked, or was dropped by its executor, or no thread could be had".into()))
                }
            }));
        }
    }
}
