//! The few numbers that all loops of a run share: what they were told, how many operations are left, how many ended, how many connections
//! stand.

use sockdrawer_catalog::{Budget, Interval};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State that the clients of a run share. No order with other memory is needed anywhere here: each number is read for itself.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Maximum time of a connect, and of an answer.
    pub(crate) timeout: Duration,
    /// Time after which a connection that stands ends by itself.
    pub(crate) lifetime: Option<Duration>,
    pub(crate) seed: u64,
    /// Number of operations to do; None: as many as there is time for, which costs no shared counter.
    operations: Option<u64>,
    left: Arc<AtomicU64>,
    /// Time from one operation of a connection to the next, where there is one.
    pub(crate) interval: Interval,
    finished: AtomicU64,
    standing: AtomicU64,
    peak: AtomicU64,
}

impl Shared {
    pub(crate) fn new(operations: Option<u64>, interval: Duration) -> Shared {
        Shared {
            timeout: Duration::MAX,
            lifetime: None,
            seed: 0,
            operations,
            left: Arc::new(AtomicU64::new(operations.unwrap_or(0))),
            interval: interval.into(),
            finished: AtomicU64::new(0),
            standing: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Returns the budget for clients that stay and ask again.
    pub(crate) fn budget(&self) -> Budget {
        match self.operations {
            Some(_) => Budget::Shared(self.left.clone()),
            None => Budget::Unlimited,
        }
    }

    pub(crate) fn interval(&self) -> Interval {
        self.interval.clone()
    }

    /// Counts operations that ended, well or not.
    pub(crate) fn finish(&self, operations: u64) {
        if self.operations.is_some() {
            self.finished.fetch_add(operations, Ordering::Relaxed);
        }
    }

    /// Returns true where all operations that were asked for ended. Connections at rest need not be waited for then: the next question of one may be
    /// due in an hour.
    pub(crate) fn is_spent(&self) -> bool {
        self.operations.is_some_and(|most| self.finished.load(Ordering::Relaxed) >= most)
    }

    pub(crate) fn stands(&self) {
        let standing = self.standing.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(standing, Ordering::Relaxed);
    }

    pub(crate) fn fell(&self) {
        self.standing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of connections that stand now.
    pub(crate) fn standing(&self) -> u64 {
        self.standing.load(Ordering::Relaxed)
    }

    /// Returns the maximum of connections that stood at once.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_spent_when_all_of_them_ended() {
        let shared = Shared::new(Some(2), Duration::ZERO);
        shared.finish(1);
        assert!(!shared.is_spent());
        shared.finish(1);
        assert!(shared.is_spent());
        let unlimited = Shared::new(None, Duration::ZERO);
        unlimited.finish(1);
        assert!(!unlimited.is_spent());
        assert!(matches!(unlimited.budget(), Budget::Unlimited));
    }

    #[test]
    fn the_peak_is_what_stood_at_once() {
        let shared = Shared::new(None, Duration::ZERO);
        shared.stands();
        shared.stands();
        shared.fell();
        shared.stands();
        assert_eq!((shared.standing(), shared.peak()), (2, 2));
    }
}
