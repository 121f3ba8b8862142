//! Workers: threads for jobs too slow for a loop, fed by one bounded queue, first in first out.

use super::inbox::{Inbox, Message};
use crate::protocol::{Job, JobResult};
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::sys::panics;
use std::collections::VecDeque;
use std::sync::Arc;

/// A job, and whom to tell.
pub(crate) struct QueuedJob {
    pub(crate) job: Job,
    pub(crate) token: u64,
    pub(crate) inbox: Arc<Inbox>,
}

/// The queue, and how many threads should serve it.
pub(crate) struct Workers {
    state: Mutex<WorkersState>,
    work: Condvar,
}

struct WorkersState {
    tasks: VecDeque<QueuedJob>,
    bound: usize,
    /// Number of threads that should run.
    wanted: usize,
    running: usize,
    /// Number of threads that are to die, for tests.
    crashes: usize,
}

/// Result of submitting a job.
pub(crate) enum Submitted {
    Queued,
    /// There are no workers, by configuration: the loop runs the job itself.
    NoWorkers(QueuedJob),
    QueueFull(QueuedJob),
}

/// Next thing that a worker thread does.
pub(crate) enum NextWork {
    Job(QueuedJob),
    /// There are more threads than wanted: this one ends.
    Leave,
}

impl Workers {
    pub(crate) fn new(bound: usize) -> Arc<Workers> {
        let tasks = VecDeque::with_capacity(bound.min(64));
        Arc::new(Workers {
            state: Mutex::new(WorkersState { tasks, bound, wanted: 0, running: 0, crashes: 0 }),
            work: Condvar::new(),
        })
    }

    /// Puts a job in the queue, or gives it back.
    pub(crate) fn submit(&self, task: QueuedJob) -> Submitted {
        let mut state = lock(&self.state);
        if state.wanted == 0 && state.running == 0 {
            return Submitted::NoWorkers(task);
        }
        if state.tasks.len() >= state.bound {
            return Submitted::QueueFull(task);
        }
        state.tasks.push_back(task);
        drop(state);
        self.work.notify_one();
        Submitted::Queued
    }

    pub(crate) fn waiting(&self) -> usize {
        lock(&self.state).tasks.len()
    }

    pub(crate) fn running(&self) -> usize {
        lock(&self.state).running
    }

    pub(crate) fn set_bound(&self, bound: usize) {
        lock(&self.state).bound = bound;
    }

    /// Sets the number of threads that should serve the queue. Returns how many must be started, and counts them as running. Threads too many
    /// end when they have nothing to do; the last one leaves only an empty queue behind.
    pub(crate) fn set_wanted(&self, wanted: usize) -> usize {
        let mut state = lock(&self.state);
        state.wanted = wanted;
        let missing = wanted.saturating_sub(state.running);
        state.running += missing;
        drop(state);
        self.work.notify_all();
        missing
    }

    /// Takes back threads counted by [`Workers::set_wanted`] that could not be started.
    pub(crate) fn not_started(&self, threads: usize) {
        lock(&self.state).running -= threads;
    }

    /// Waits for the next task.
    pub(crate) fn next(&self) -> NextWork {
        let mut state = lock(&self.state);
        loop {
            let spare = state.running > state.wanted;
            // Jobs submitted while there were workers are run, even when none are wanted any more.
            if spare && (state.wanted > 0 || state.tasks.is_empty() || state.running > 1) {
                state.running -= 1;
                return NextWork::Leave;
            }
            if state.crashes > 0 {
                state.crashes -= 1;
                drop(state);
                panic!("a test crashed this worker");
            }
            if let Some(task) = state.tasks.pop_front() {
                return NextWork::Job(task);
            }
            state = wait(&self.work, state);
        }
    }

    /// Serves the queue: a worker thread's whole life. A panicking job is caught in [`Job::run`](crate::protocol::Job).
    pub(crate) fn serve(&self) {
        while let NextWork::Job(task) = self.next() {
            let QueuedJob { job, token, inbox } = task;
            let result: JobResult = job.run();
            // A loop that is gone takes its connections with it: the result is not wanted.
            if let Err(message) = inbox.put(Message::Done(token, result)) {
                panics::discard(message);
            }
        }
    }

    /// Has a thread without a job die as by a bug, for tests. Returns false where there is none.
    pub(crate) fn crash_one(&self) -> bool {
        let mut state = lock(&self.state);
        let one = state.running > state.crashes;
        state.crashes += usize::from(one);
        drop(state);
        self.work.notify_one();
        one
    }

    /// Counts a worker thread that died outside a job: one fewer runs.
    pub(crate) fn died(&self) {
        lock(&self.state).running -= 1;
    }
}
