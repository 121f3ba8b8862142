//! The model `threads`: one event loop accepts, and each connection runs in a thread of its own, which runs an event loop for one. A thread
//! whose connection ended waits a while for the next.

use crate::config::Config;
use crate::event_loop::connections::entering;
use crate::event_loop::inbox::{Inbox, Message};
use crate::event_loop::incoming::Incoming;
use crate::event_loop::snapshot::SnapshotCell;
use crate::event_loop::{EventLoop, Intake, Placement, Shared, user_code};
use crate::observe::counters::Counters;
use crate::observe::{ConnectionStatus, Counts};
use crate::operation::Selector;
use crate::protocol::Closed;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, Events, panics};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread without a connection ends after this long.
const IDLE: Duration = Duration::from_secs(2);
/// Events that a serving event loop hears of at once: of its inbox and of its connection.
const EVENTS_PER_TURN: usize = 2;

/// Descriptors that each of its connections needs: its socket, and the epoll and the eventfd of its thread.
pub(crate) const DESCRIPTORS: usize = 3;

/// The serving threads of a pool.
pub(crate) struct Threads {
    /// A reference for the threads themselves.
    own: Weak<Threads>,
    pool: Mutex<Served>,
    stack: AtomicUsize,
    inbox: AtomicUsize,
    /// The code that is told when a thread died, with the panic's message.
    died: Box<dyn Fn(String) + Send + Sync>,
}

#[derive(Default)]
struct Served {
    all: Vec<StartedThread>,
    /// Threads without a connection; the one that has been idle for the shortest time is last, and next.
    idle: Vec<Arc<Thread>>,
    /// Connections for threads that have given their permit back and are about to be idle.
    waiting: VecDeque<Incoming>,
    /// Counts of threads that ended.
    past: Counts,
    stopped: bool,
}

/// A serving thread.
struct Thread {
    inbox: Arc<Inbox>,
    counters: Counters,
    /// A snapshot of the connection that the thread serves.
    snapshot: Arc<SnapshotCell>,
}

struct StartedThread {
    thread: Arc<Thread>,
    handle: JoinHandle<()>,
}

impl Threads {
    pub(crate) fn new(config: &Config, died: impl Fn(String) + Send + Sync + 'static) -> Arc<Threads> {
        Arc::new_cyclic(|own| Threads {
            own: own.clone(),
            pool: Mutex::default(),
            stack: AtomicUsize::new(config.stack),
            inbox: AtomicUsize::new(config.inbox),
            died: Box::new(died),
        })
    }

    /// Starts a thread, and gives it its first connection. Both come back when the system has nothing for it.
    fn start(&self, served: &mut Served, shared: &Arc<Shared>, incoming: Incoming) -> Result<(), (Incoming, Errno)> {
        let made = Inbox::new(shared.system.clone(), self.inbox.load(Ordering::Relaxed))
            .and_then(|inbox| EventLoop::serving(shared.clone(), inbox));
        let event_loop = match made {
            Ok(event_loop) => event_loop,
            Err(errno) => return Err((incoming, errno)),
        };
        let snapshot = event_loop.connections.streams.snapshot.clone().unwrap_or_default();
        let thread = Arc::new(Thread { inbox: event_loop.inbox().clone(), counters: event_loop.counters().clone(), snapshot });
        let (threads, own) = (self.own.upgrade().expect("it is being used"), thread.clone());
        let stack = self.stack.load(Ordering::Relaxed);
        let builder = std::thread::Builder::new().name("sockdrawer-conn".to_owned()).stack_size(stack);
        let handle = match builder.spawn(move || threads.run(event_loop, &own)) {
            Ok(handle) => handle,
            Err(error) => return Err((incoming, Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))),
        };
        // The inbox of the thread is open: before it can end it must pass the lock that is held here.
        let _ = thread.inbox.put(Message::Adopt(incoming));
        served.all.push(StartedThread { thread, handle });
        Ok(())
    }

    /// Runs a thread to its end.
    fn run(&self, event_loop: EventLoop, own: &Arc<Thread>) {
        panics::caught_on_this_thread();
        user_code::run(&**event_loop.shared());
        // A weak reference: when the last thread is counted out, the service must be gone with it.
        let shared = Arc::downgrade(event_loop.shared());
        // Outside the guard, so that its connection ends in order and not by unwinding.
        let mut event_loop = event_loop;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.serve(&mut event_loop, own)));
        event_loop.abandon(Closed::Killed);
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(event_loop)));
        let panic = outcome.and(dropped).err();
        self.ended(own, &shared);
        if let Some(payload) = panic {
            (self.died)(panics::message(payload));
        }
    }

    fn serve(&self, event_loop: &mut EventLoop, own: &Arc<Thread>) {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let mut served = 0;
        event_loop.inbox().wake.read_here();
        while !event_loop.stopping {
            event_loop.turn(&mut events, |_| ());
            // There is a thread for each: what is a loop's share for many would be there for each of them.
            event_loop.connections.streams.give_memory_back();
            // A connection may have come and gone in this turn.
            let gone = |event_loop: &EventLoop| event_loop.counters().closed().get() + event_loop.counters().moved_out().get();
            while event_loop.count() == 0 && gone(event_loop) != served {
                served = gone(event_loop);
                match self.rest(own) {
                    Some(incoming) => event_loop.intake().adopt_incoming(incoming),
                    None => {
                        // Generations that were retired while it served are let go of.
                        event_loop.connections.streams.look_at_switch();
                        event_loop.turn_until = Some(Instant::now() + IDLE);
                    }
                }
            }
            if event_loop.turn_until.is_some_and(|until| until <= Instant::now()) {
                if self.leave(own) {
                    return;
                }
                // The thread has a connection, or is about to.
                event_loop.turn_until = None;
            }
        }
    }

    /// Gives a thread without a connection one that waits, or makes it idle from now on.
    fn rest(&self, own: &Arc<Thread>) -> Option<Incoming> {
        let mut served = lock(&self.pool);
        let waiting = served.waiting.pop_front();
        if waiting.is_none() {
            served.idle.push(own.clone());
        }
        waiting
    }

    /// Takes the thread off the idle ones. Returns whether it was one of them.
    fn leave(&self, own: &Arc<Thread>) -> bool {
        let mut served = lock(&self.pool);
        let at = served.idle.iter().position(|idle| Arc::ptr_eq(idle, own));
        if let Some(at) = at {
            served.idle.remove(at);
        }
        at.is_some()
    }

    fn ended(&self, own: &Arc<Thread>, shared: &Weak<Shared>) {
        let waiting = {
            let mut served = lock(&self.pool);
            served.all.retain(|started| !Arc::ptr_eq(&started.thread, own));
            served.idle.retain(|thread| !Arc::ptr_eq(thread, own));
            own.counters.add_to(&mut served.past);
            // This thread was to take it.
            served.waiting.pop_front()
        };
        if let (Some(incoming), Some(shared)) = (waiting, shared.upgrade()) {
            let accepting = lock(&shared.roster).first().cloned();
            let left = match accepting {
                Some(inbox) => inbox.put(Message::Adopt(incoming)).err(),
                None => Some(Message::Adopt(incoming)),
            };
            if let Some(Message::Adopt(incoming)) = left {
                lock(&shared.stranded).push(incoming);
            }
        }
    }
}

impl Placement for Threads {
    fn place(&self, intake: &mut Intake<'_>, mut incoming: Incoming) {
        if entering::gives_all_away(&mut intake.connections.streams) {
            // This thread runs nothing else: a second one is not needed.
            return intake.adopt_incoming(incoming);
        }
        loop {
            let mut served = lock(&self.pool);
            if served.stopped {
                return intake.connections.streams.io.counters.closed().add(1);
            }
            let Some(idle) = served.idle.pop() else {
                // A connection with a permit has a thread. Where there are as many threads as permits, one has just given its own back.
                let limiter = &intake.connections.streams.io.shared.limiter;
                if served.all.len() >= limiter.limit().max(limiter.taken()) {
                    return served.waiting.push_back(incoming);
                }
                let started = self.start(&mut served, &intake.connections.streams.io.shared, incoming);
                drop(served);
                return started.unwrap_or_else(|(incoming, errno)| intake.place_later(incoming, errno));
            };
            // The thread's wake-up may run at once, and wants the lock.
            drop(served);
            match idle.inbox.put(Message::Adopt(incoming)) {
                Ok(()) => return,
                // The thread died this moment.
                Err(Message::Adopt(back)) => incoming = back,
                Err(_) => unreachable!("the message that was put in comes back"),
            }
        }
    }

    fn inboxes(&self) -> Vec<Arc<Inbox>> {
        lock(&self.pool).all.iter().map(|started| started.thread.inbox.clone()).collect()
    }

    fn numbered(&self) -> Vec<(Option<u64>, Arc<Inbox>)> {
        let served = lock(&self.pool);
        let idle: HashSet<_> = served.idle.iter().map(Arc::as_ptr).collect();
        let threads = served.all.iter().map(|started| &started.thread).filter(|thread| !idle.contains(&Arc::as_ptr(thread)));
        threads.map(|thread| (thread.snapshot.id().map(|id| id.0), thread.inbox.clone())).collect()
    }

    fn seen(&self, event_loops: &[&Arc<Inbox>], selector: &Selector) -> Vec<ConnectionStatus> {
        let served = lock(&self.pool);
        let meant = served.all.iter().map(|started| &started.thread);
        let meant = meant.filter(|thread| event_loops.iter().any(|inbox| Arc::ptr_eq(inbox, &thread.inbox)));
        meant.filter_map(|thread| thread.snapshot.read(&thread.counters, selector)).collect()
    }

    fn threads(&self) -> usize {
        let own = std::thread::current().id();
        lock(&self.pool).all.iter().filter(|started| started.handle.thread().id() != own).count()
    }

    fn add_to(&self, counts: &mut Counts) {
        let served = lock(&self.pool);
        *counts += served.past;
        served.all.iter().for_each(|started| started.thread.counters.add_to(counts));
    }

    fn reconfigured(&self, config: &Config) {
        self.stack.store(config.stack, Ordering::Relaxed);
        self.inbox.store(config.inbox, Ordering::Relaxed);
        lock(&self.pool).all.iter().for_each(|started| started.thread.inbox.set_bound(config.inbox));
    }

    fn stop(&self) {
        let mut served = lock(&self.pool);
        served.stopped = true;
        let waiting = std::mem::take(&mut served.waiting);
        served.past.closed += waiting.len() as u64;
        for started in &served.all {
            let _ = started.thread.inbox.put(Message::Command(Box::new(|event_loop| event_loop.stopping = true)));
        }
        drop(served);
        drop(waiting);
    }
}
