//! Notices of loops to the control plane: something may have changed that it waits for.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex, lock, wait_timeout};
use std::time::{Duration, Instant};

/// A change without a notice is seen after this long.
const LONGEST: Duration = Duration::from_millis(20);
/// The most between two questions that take long, mostly because loops are busy.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// The shortest pause between two questions: no caller needs to know sooner.
const SHORTEST: Duration = Duration::from_millis(2);

/// Wakes callers that wait for a condition, at a turn of a loop.
#[derive(Default)]
pub(crate) struct Notifier {
    waiting: AtomicUsize,
    notices: AtomicU64,
    /// Callers that sleep, and need to be woken.
    sleeping: Mutex<usize>,
    notified: Condvar,
}

/// Counts a caller that waits, as long as it exists.
struct WaitGuard<'a>(&'a AtomicUsize);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Notifier {
    /// Wakes the callers that wait; one load where there is none.
    pub(crate) fn notify(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.notices.fetch_add(1, SeqCst);
            if *lock(&self.sleeping) > 0 {
                self.notified.notify_all();
            }
        }
    }

    /// Asks `condition` again and again until it holds or time is up: after a notice, but with a pause in proportion to what asking
    /// took, because asking may itself turn a loop.
    pub(crate) fn wait(&self, until: Instant, mut condition: impl FnMut() -> bool) -> bool {
        self.waiting.fetch_add(1, SeqCst);
        // The condition may be the user's, and panic.
        let _waits = WaitGuard(&self.waiting);
        loop {
            let (heard, began) = (self.notices.load(SeqCst), Instant::now());
            if condition() {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            std::thread::sleep(((now - began) * 4).clamp(SHORTEST, LONGEST_PAUSE).min(until - now));
            self.sleep_until_notified(heard, until);
        }
    }

    fn sleep_until_notified(&self, heard: u64, until: Instant) {
        let mut sleeping = lock(&self.sleeping);
        // A notice is counted first, and sleepers are looked for second.
        if self.notices.load(SeqCst) == heard {
            *sleeping += 1;
            sleeping = wait_timeout(&self.notified, sleeping, LONGEST.min(until.saturating_duration_since(Instant::now())));
            *sleeping -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_condition_that_panics_leaves_no_waiter_behind() {
        let notifier = Notifier::default();
        let waited = || notifier.wait(Instant::now(), || panic!("a broken condition"));
        assert!(catch_unwind(AssertUnwindSafe(waited)).is_err());
        assert_eq!(notifier.waiting.load(SeqCst), 0);
    }
}
