//! Threads of the pool's own.

use crate::sync::{Condvar, Mutex, MutexGuard, thread};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Time for which a thread waits for another job.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// Threads, as many as there are jobs at once. A job never waits for another, which may hang.
#[derive(Default)]
pub(crate) struct Workers {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    idle: usize,
}

impl Workers {
    /// Runs the work in a thread. Where none can be had, the work is dropped.
    pub(crate) fn run(self: &Arc<Self>, work: Work) {
        let mut queue = self.lock();
        if queue.idle > queue.work.len() {
            queue.work.push_back(work);
            self.more.notify_one();
            return;
        }
        drop(queue);
        let workers = self.clone();
        // An error drops the work, which tells of it.
        let _ = thread::Builder::new().name("lease-worker".into()).spawn(move || workers.work(work));
    }

    fn work(&self, mut work: Work) {
        loop {
            work();
            let mut queue = self.lock();
            queue.idle += 1;
            let nothing = |queue: &mut Queue| queue.work.is_empty();
            let (waited, _) = self.more.wait_timeout_while(queue, IDLE, nothing).expect("no work is done under the lock");
            queue = waited;
            queue.idle -= 1;
            let Some(next) = queue.work.pop_front() else { break };
            work = next;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no work is done under the lock")
    }
}
