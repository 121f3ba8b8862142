//! The bell: loops ring it when something may have changed that the control plane waits for.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, lock, wait_timeout};
use std::time::{Duration, Instant};

/// Wakes those who wait for a condition, at each turn of a loop.
#[derive(Default)]
pub(crate) struct Bell {
    waiting: AtomicUsize,
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// Rings if anybody listens: one load otherwise.
    pub(crate) fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            *lock(&self.rings) += 1;
            self.rung.notify_all();
        }
    }

    /// Asks `condition` at each ring, and every 20 ms for what rings no bell, until it holds or time is up.
    pub(crate) fn wait(&self, until: Instant, mut condition: impl FnMut() -> bool) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let holds = loop {
            let before = *lock(&self.rings);
            if condition() {
                break true;
            }
            let now = Instant::now();
            if now >= until {
                break false;
            }
            let rings = lock(&self.rings);
            if *rings == before {
                drop(wait_timeout(&self.rung, rings, (until - now).min(Duration::from_millis(20))));
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        holds
    }
}
