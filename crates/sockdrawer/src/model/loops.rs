//! The model `loops`: each thread runs one event loop, and with it the connections it accepted, from first to last byte.

use crate::event_loop::{EventLoop, user_code};
use crate::observe::counters::Counters;
use crate::protocol::Closed;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sys::{Events, panics};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Events taken in one turn.
pub(super) const EVENTS_PER_TURN: usize = 512;

/// The state of a running loop that others can see without asking it.
#[derive(Default)]
pub(crate) struct TurnCounter {
    /// Number of the loop's sleeps and wakes: odd while it is awake.
    beats: AtomicU64,
    pub(crate) connections: AtomicUsize,
    /// The thread has nothing more to do.
    pub(crate) ended: AtomicBool,
}

impl TurnCounter {
    pub(super) fn sleeping(&self, sleeping: bool) {
        let beats = self.beats.load(Ordering::Relaxed);
        self.beats.store((beats + 1) & !1 | u64::from(!sleeping), Ordering::Release);
    }

    /// Returns None while the loop waits for events; else a number that changes with each turn.
    pub(crate) fn turn(&self) -> Option<u64> {
        let beats = self.beats.load(Ordering::Acquire);
        (beats & 1 == 1).then_some(beats)
    }
}

/// A started loop.
pub(crate) struct Running {
    pub(crate) turns: Arc<TurnCounter>,
    pub(crate) counters: Counters,
    pub(crate) thread: JoinHandle<()>,
}

/// Starts a thread that runs `event_loop` until it is told to stop, then calls `ended` with the panic's message, if it was one.
pub(crate) fn start(
    index: usize,
    event_loop: EventLoop,
    ended: impl FnOnce(Option<String>) + Send + 'static,
) -> Result<Running, std::io::Error> {
    spawn(index, event_loop.counters().clone(), |turns| {
        move || {
            let panic = live(event_loop, |event_loop| run(event_loop, &turns));
            turns.ended.store(true, Ordering::Release);
            ended(panic);
        }
    })
}

/// Starts the thread of a loop.
pub(super) fn spawn<F: FnOnce() + Send + 'static>(
    index: usize,
    counters: Counters,
    body: impl FnOnce(Arc<TurnCounter>) -> F,
) -> Result<Running, std::io::Error> {
    let turns = Arc::new(TurnCounter::default());
    let body = body(turns.clone());
    let thread = std::thread::Builder::new().name(format!("sockdrawer-{index}")).spawn(move || {
        panics::caught_on_this_thread();
        body();
    })?;
    Ok(Running { turns, counters, thread })
}

/// Runs an event loop on its thread, to its end. Returns the panic's message, if one ended it.
pub(super) fn live(event_loop: EventLoop, run: impl FnOnce(&mut EventLoop)) -> Option<String> {
    user_code::run(&**event_loop.shared());
    // Outside the guard, so that connections end in order and not by unwinding.
    let mut event_loop = event_loop;
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut event_loop)));
    event_loop.abandon(Closed::Killed);
    let dropped = catch_unwind(AssertUnwindSafe(move || drop(event_loop)));
    outcome.and(dropped).err().map(panics::message)
}

fn run(event_loop: &mut EventLoop, turns: &TurnCounter) {
    let mut events = Events::with_capacity(EVENTS_PER_TURN);
    event_loop.inbox().wake.read_here();
    while !event_loop.stopping {
        event_loop.turn(&mut events, |sleeping| turns.sleeping(sleeping));
        turns.connections.store(event_loop.count(), Ordering::Relaxed);
    }
}
