//! Threads for connections that were given to blocking code, one for each, first in first out. They are started on demand and kept
//! for a while for the next; jobs have threads of their own, so that a long delegation holds up none.

use super::lease::{Lease, LeaseEnd};
use crate::protocol::Delegate;
use crate::sync::{Condvar, Mutex, lock, wait_timeout};
use crate::sys::panics;
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A thread that has nothing to do ends after this long.
const KEPT_IDLE: Duration = Duration::from_secs(5);

/// A connection and the code that it is leased to.
struct Delegated {
    delegate: Delegate,
    lease: Lease,
}

/// The queue and its threads.
pub(crate) struct Delegates {
    state: Mutex<DelegatesState>,
    work: Condvar,
}

struct DelegatesState {
    waiting: VecDeque<Delegated>,
    /// Threads that wait for a lease.
    idle: usize,
    /// Threads that were started and have not ended, those on their way included.
    running: usize,
    known: HashSet<ThreadId>,
    /// The most threads.
    most: usize,
    /// Bytes of stack of each.
    stack: usize,
    stopping: bool,
}

impl Delegates {
    pub(crate) fn new(most: usize, stack: usize) -> Arc<Delegates> {
        let (waiting, known) = (VecDeque::new(), HashSet::new());
        let state = Mutex::new(DelegatesState { waiting, idle: 0, running: 0, known, most, stack, stopping: false });
        Arc::new(Delegates { state, work: Condvar::new() })
    }

    pub(crate) fn running(&self) -> usize {
        lock(&self.state).running
    }

    pub(crate) fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Sets the maximum of threads and their stack. More threads take what waits; threads too many end when they have done what they do.
    pub(crate) fn tune(self: &Arc<Delegates>, most: usize, stack: usize) {
        {
            let mut state = lock(&self.state);
            (state.most, state.stack) = (most, stack);
        }
        self.work.notify_all();
        self.start_missing();
    }

    /// Runs `delegate` with the connection as soon as there is a thread for it.
    pub(super) fn submit(self: &Arc<Delegates>, delegate: Delegate, lease: Lease) {
        let refused = {
            let mut state = lock(&self.state);
            let errand = Delegated { delegate, lease };
            if state.stopping {
                Some(errand)
            } else {
                state.waiting.push_back(errand);
                None
            }
        };
        // It is user code's own, and the connection comes back: outside the lock.
        panics::discard(refused);
        self.work.notify_one();
        self.start_missing();
    }

    /// Begins no more delegation. Leases that wait for a thread come back at once; one that has a thread is told by its event loop.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut state = lock(&self.state);
            state.stopping = true;
            std::mem::take(&mut state.waiting)
        };
        self.work.notify_all();
        panics::discard(waiting);
    }

    /// Returns true where all threads ended; a thread that asks does not wait for itself.
    pub(crate) fn have_ended(&self) -> bool {
        let state = lock(&self.state);
        state.running == usize::from(state.known.contains(&std::thread::current().id()))
    }

    /// Starts threads for those that wait, as far as no idle thread takes them.
    fn start_missing(self: &Arc<Delegates>) {
        loop {
            let stack = {
                let mut state = lock(&self.state);
                // Threads on their way are not idle yet, but each takes one connection.
                let coming = state.running - state.known.len();
                if state.waiting.len() <= state.idle + coming || state.running >= state.most {
                    return;
                }
                state.running += 1;
                state.stack
            };
            let delegates = self.clone();
            let thread = std::thread::Builder::new().name("sockdrawer-delegate".to_owned()).stack_size(stack);
            if thread.spawn(move || delegates.serve()).is_err() {
                return self.not_started();
            }
        }
    }

    /// Handles a thread that the system did not start: those that run take what waits. Where none runs, what waits comes back as failed.
    fn not_started(&self) {
        let stranded = {
            let mut state = lock(&self.state);
            state.running -= 1;
            if state.running == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() }
        };
        for mut errand in stranded {
            errand.lease.outcome = LeaseEnd::Failed;
            panics::discard(errand);
        }
    }

    /// Serves delegated connections: a thread's whole life.
    fn serve(&self) {
        panics::caught_on_this_thread();
        while let Some(Delegated { delegate, lease }) = self.next() {
            // It has a guard of its own, but what it captured is dropped here.
            let take = AssertUnwindSafe(move || (delegate.take)(Box::new(lease)));
            let _ = catch_unwind(take).map_err(panics::discard);
        }
    }

    /// Waits for the next delegated connection; None when this thread is to end, which is counted then.
    fn next(&self) -> Option<Delegated> {
        let (own, until) = (std::thread::current().id(), Instant::now() + KEPT_IDLE);
        let mut state = lock(&self.state);
        state.known.insert(own);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let spare = state.running > state.most;
            if !spare && let Some(errand) = state.waiting.pop_front() {
                return Some(errand);
            }
            if spare || state.stopping || left.is_zero() {
                state.known.remove(&own);
                state.running -= 1;
                return None;
            }
            state.idle += 1;
            state = wait_timeout(&self.work, state, left);
            state.idle -= 1;
        }
    }
}
