//! Waiting for a moment that the end of the pool may make pointless.

use crate::sync::{Condvar, Mutex, lock, wait_timeout};
use std::time::Instant;

/// How far the end of a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    #[default]
    Far,
    /// Everything is asked to end.
    Begun,
    /// Everything ends now.
    Here,
}

/// Tells those who wait that the end has come nearer.
#[derive(Default)]
pub(crate) struct Halt {
    end: Mutex<End>,
    nearer: Condvar,
}

impl Halt {
    /// It is so far now; it never goes back.
    pub(crate) fn raise(&self, to: End) {
        let mut end = lock(&self.end);
        *end = to.max(*end);
        drop(end);
        self.nearer.notify_all();
    }

    /// Waits until `at`. False, and at once, when the end is as near as `end`.
    pub(crate) fn wait_until(&self, at: Instant, end: End) -> bool {
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
    fn who_waits_is_woken_by_the_end() {
        let halt = Halt::default();
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(halt.wait_until(soon, End::Begun) && Instant::now() >= soon);
        let late = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| halt.wait_until(late, End::Begun));
            halt.raise(End::Begun);
            assert!(!waits.join().expect("no panic"));
        });
        assert!(halt.wait_until(Instant::now(), End::Here));
        halt.raise(End::Here);
        halt.raise(End::Begun);
        assert!(!halt.wait_until(late, End::Here) && !halt.wait_until(late, End::Begun));
    }
}
