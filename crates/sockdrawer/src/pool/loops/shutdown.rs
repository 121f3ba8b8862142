//! Waiting for a moment that the end of the pool may make pointless.

use crate::sync::{Condvar, Mutex, lock, wait_timeout};
use std::time::Instant;

/// Progress of the end of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shutdown {
    #[default]
    Far,
    /// All connections are asked to end.
    Begun,
    /// All connections end now.
    Here,
}

/// Tells callers that wait that the end has come nearer.
#[derive(Default)]
pub(crate) struct ShutdownSignal {
    end: Mutex<Shutdown>,
    nearer: Condvar,
}

impl ShutdownSignal {
    /// Raises the progress to this; it never goes back.
    pub(crate) fn raise(&self, to: Shutdown) {
        let mut end = lock(&self.end);
        *end = to.max(*end);
        drop(end);
        self.nearer.notify_all();
    }

    /// Waits until `at`. False, and at once, when the end is as near as `end`.
    pub(crate) fn wait_until(&self, at: Instant, end: Shutdown) -> bool {
        let mut now = lock(&self.end);
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if *now >= end || left.is_zero() {
                return *now < end;
            }
            now = wait_timeout(&self.nearer, now, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_waiting_thread_is_woken_by_the_end() {
        let shutdown = ShutdownSignal::default();
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(shutdown.wait_until(soon, Shutdown::Begun) && Instant::now() >= soon);
        let late = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| shutdown.wait_until(late, Shutdown::Begun));
            shutdown.raise(Shutdown::Begun);
            assert!(!waits.join().expect("no panic"));
        });
        assert!(shutdown.wait_until(Instant::now(), Shutdown::Here));
        shutdown.raise(Shutdown::Here);
        shutdown.raise(Shutdown::Begun);
        assert!(!shutdown.wait_until(late, Shutdown::Here) && !shutdown.wait_until(late, Shutdown::Begun));
    }
}
