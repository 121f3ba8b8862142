//! A pool, for threads and tasks.

use crate::connect::{Connect, ConnectAsync, Target};
use crate::engine::{Engine, Status};
use crate::error::Error;
use crate::lease::{Lease, LeaseFuture, block};
use crate::random::Random;
use crate::request::Request;
use crate::runners::{Spawned, Tasks, Threads};
use crate::settings::Settings;
use crate::shared::{Run, Shared, State, Wake};
use crate::stats::{Event, Stats};
use crate::sync::thread;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// A pool of connections `C` to targets `K`. Clones are handles of one pool; when the last is dropped, it is closed, and what is leased is
/// closed when it comes back.
///
/// Threads and tasks lease from it side by side, in one line.
pub struct Pool<K: Target, C: Send + 'static> {
    handle: Arc<Handle<K, C>>,
}

struct Handle<K: Target, C: Send + 'static> {
    shared: Arc<Shared<K, C>>,
}

impl<K: Target, C: Send + 'static> Pool<K, C> {
    /// Creates a pool whose connections are made by blocking code, in threads of the pool's own. No connect is begun yet.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread for the pool's timers.
    pub fn new<M: Connect<Target = K, Connection = C>>(connect: M, settings: Settings) -> io::Result<Self> {
        Self::start(Box::new(Threads::new(connect)), settings)
    }

    /// Creates a pool whose connections are made by async code, which `spawn` gives to an executor. `spawn` is called from any thread; with
    /// tokio it is `move |job| drop(handle.spawn(job))`, where `handle` is that of the runtime.
    ///
    /// # Errors
    ///
    /// The system's, where it has no thread for the pool's timers.
    pub fn new_async<M, S>(connect: M, spawn: S, settings: Settings) -> io::Result<Self>
    where
        M: ConnectAsync<Target = K, Connection = C>,
        S: Fn(Spawned) + Send + Sync + 'static,
    {
        Self::start(Box::new(Tasks::new(connect, spawn)), settings)
    }

    fn start(runner: Box<dyn Run<K, C>>, settings: Settings) -> io::Result<Self> {
        let random = Random::seeded(RandomState::new().hash_one(0));
        let shared = Shared::new(Engine::new(settings, random), runner);
        let timers = shared.clone();
        thread::Builder::new().name("lease-timers".into()).spawn(move || timers.keep_time())?;
        Ok(Pool { handle: Arc::new(Handle { shared }) })
    }

    /// Leases a connection, and blocks until there is one, or until the deadline: that of the [`Request`], or an [`Instant`] alone.
    ///
    /// # Errors
    ///
    /// Each [`Error`] says why there was none.
    #[track_caller]
    pub fn lease(&self, target: &K, request: impl Into<Request>) -> Result<Lease<K, C>, Error> {
        let caller = Location::caller();
        block(&self.handle.shared, target, Request { caller, ..request.into() })
    }

    /// Leases a connection that is free now. This begins no connect: a pool whose callers only try needs
    /// [`Settings::min_free`]. A connection that needs a check is checked for the caller that asks next.
    ///
    /// # Errors
    ///
    /// As [`lease`](Pool::lease); [`Error::TimedOut`] where none is free.
    #[track_caller]
    pub fn try_lease(&self, target: &K) -> Result<Lease<K, C>, Error> {
        self.lease(target, Instant::now())
    }

    /// Leases a connection, as [`lease`](Pool::lease) does, in async code of any executor. The deadline needs no timer of the executor's.
    #[track_caller]
    pub fn lease_async(&self, target: &K, request: impl Into<Request>) -> LeaseFuture<K, C> {
        let caller = Location::caller();
        LeaseFuture::new(self.handle.shared.clone(), target.clone(), Request { caller, ..request.into() })
    }

    /// Replaces the settings. See [`Settings`] for what becomes of callers that wait and of connections above a limit.
    pub fn set(&self, settings: Settings) {
        self.call(|state, now| state.engine.set(now, settings));
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Settings {
        self.handle.shared.lock().engine.settings().clone()
    }

    /// Returns the counts of this moment. The cost grows with the number of targets.
    pub fn status(&self) -> Status {
        self.handle.shared.lock().engine.status()
    }

    /// Returns the numbers since the pool began.
    pub fn stats(&self) -> Stats {
        self.handle.shared.lock().engine.stats().clone()
    }

    /// Tells each [`Event`] to the closure from now on, in the place of one that was told before. It is called after the fact by any thread
    /// that uses the pool, by several at once, and must be quick. It may call the pool, but a handle in it keeps the pool open. Events of
    /// different threads may come in another order than they happened. A panic in it ends that call alone.
    ///
    /// ```
    /// # use sockdrawer_lease::{Event, Pool};
    /// # fn watch(pool: &Pool<u8, std::net::TcpStream>) {
    /// pool.observe(|event| {
    ///     if let Event::Held { caller, held, .. } = event {
    ///         eprintln!("a connection is held for {held:?}, leased at {caller}");
    ///     }
    /// });
    /// # }
    /// ```
    pub fn observe(&self, observer: impl Fn(&Event<K>) + Send + Sync + 'static) {
        let before = self.call(|state, _| {
            state.engine.observe(true);
            state.observer.replace(Arc::new(observer))
        });
        drop(before);
    }

    /// Begins to keep [`Settings::min_free`] connections to the target, as the first lease does.
    pub fn add_target(&self, target: &K) {
        self.call(|state, now| state.engine.add_target(now, target));
    }

    /// Closes all connections to the target that there are or that are being made: the free ones now, others when they come back. A
    /// caller that waits for the target, or asks for it again, has one that is connected after this: for a target whose name stands for
    /// another server from now on.
    pub fn remove_target(&self, target: &K) {
        self.call(|state, now| state.engine.remove_target(now, target));
    }

    /// Stops leasing and connecting, as for the time of a failover. Callers that wait stay in line, and so do those that ask,
    /// each until its deadline.
    pub fn suspend(&self) {
        self.call(|state, now| state.engine.suspend(now));
    }

    /// Ends [`suspend`](Pool::suspend): the line is served, and earlier failures of connects are forgotten.
    pub fn resume(&self) {
        self.call(|state, now| state.engine.resume(now));
    }

    /// Closes the pool in order, and blocks until it is closed, by the deadline at the latest: no new caller is let in, waiters are served, and
    /// each connection is closed as soon as nobody needs it. Returns how many leases were left; they are closed when they come back.
    pub fn drain(&self, deadline: Instant) -> usize {
        self.call(|state, now| state.engine.drain(now, deadline));
        let mut state = self.handle.shared.lock();
        if state.drained.is_none() {
            state.drains.push(Wake::Thread(thread::current()));
        }
        loop {
            if let Some(leased) = state.drained {
                return leased;
            }
            drop(state);
            // Ends sooner where code of the caller's has unparked this thread.
            thread::park();
            state = self.handle.shared.lock();
        }
    }

    /// Closes the pool in order, as [`drain`](Pool::drain) does, in async code. The drain begins when this is first polled, and goes on if
    /// it is dropped.
    pub fn drain_async(&self, deadline: Instant) -> impl Future<Output = usize> + Send + use<K, C> {
        let (pool, mut is_begun) = (self.clone(), false);
        std::future::poll_fn(move |cx| {
            if !std::mem::replace(&mut is_begun, true) {
                pool.call(|state, now| state.engine.drain(now, deadline));
            }
            // Cloned, and dropped, without the lock: it is code of the executor's.
            let waker = cx.waker().clone();
            let mut state = pool.handle.shared.lock();
            if let Some(leased) = state.drained {
                return Poll::Ready(leased);
            }
            // A task may be polled any number of times before the end, by one waker in most executors: that one is kept once.
            if !state.drains.iter().any(|wake| wake.is_of(&waker)) {
                state.drains.push(Wake::Task(waker));
            }
            Poll::Pending
        })
    }

    /// Closes the pool now. Callers that wait get [`Error::Closed`]; what is leased is closed when it comes back.
    pub fn close(&self) {
        self.call(|state, now| state.engine.drain(now, now));
    }

    #[cfg(feature = "sockets")]
    pub(crate) fn weak(&self) -> std::sync::Weak<Shared<K, C>> {
        Arc::downgrade(&self.handle.shared)
    }

    fn call<R>(&self, call: impl FnOnce(&mut State<K, C>, Instant) -> R) -> R {
        self.handle.shared.call(call)
    }
}

impl<K: Target, C: Send + 'static> Clone for Pool<K, C> {
    fn clone(&self) -> Self {
        Pool { handle: self.handle.clone() }
    }
}

impl<K: Target, C: Send + 'static> Drop for Handle<K, C> {
    fn drop(&mut self) {
        self.shared.call(|state, now| {
            state.engine.drain(now, now);
            state.is_abandoned = true;
        });
    }
}
