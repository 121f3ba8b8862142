//! The accept rate: one bucket of tokens for the whole pool, as a single number that its processes share.

use crate::admission::AcceptRate;
use crate::ipc::shared_counters::SharedCounters;
use crate::sync::atomic::Ordering::SeqCst;

/// The rate. The number is when the bucket will be full of tokens again, in ns of the system's clock: each connection moves it on by
/// the gap (GCRA).
pub(crate) struct Pace {
    shared_counters: SharedCounters,
    pub(crate) rate: AcceptRate,
    gap: u64,
    /// Maximum by which the number may be ahead of the clock when a connection is taken, in nanoseconds.
    ahead: u64,
}

impl Pace {
    pub(crate) fn new(shared_counters: SharedCounters, rate: AcceptRate) -> Pace {
        let gap = u64::try_from(rate.gap().as_nanos()).unwrap_or(u64::MAX / 4).max(1);
        let ahead = gap.saturating_mul(u64::from(rate.burst.saturating_sub(1)));
        Pace { shared_counters, rate, gap, ahead }
    }

    /// Takes a token, and returns from when on it may be used: a loop that has to wait has it already, so none wakes up for nothing.
    pub(crate) fn reserve(&self, now: u64) -> u64 {
        let full = |full: u64| Some(full.max(now).saturating_add(self.gap));
        let before = self.shared_counters.pace().fetch_update(SeqCst, SeqCst, full).expect("it always has a next");
        before.max(now).saturating_sub(self.ahead).max(now)
    }

    /// Takes a token that may be used now. Returns false if there is none.
    pub(crate) fn take(&self, now: u64) -> bool {
        let next = |full: u64| (full <= now.saturating_add(self.ahead)).then(|| full.max(now).saturating_add(self.gap));
        self.shared_counters.pace().fetch_update(SeqCst, SeqCst, next).is_ok()
    }

    /// Gives back a token that was not used.
    pub(crate) fn give_back(&self) {
        let before = |full: u64| Some(full.saturating_sub(self.gap));
        let _ = self.shared_counters.pace().fetch_update(SeqCst, SeqCst, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(burst: u32) -> Pace {
        Pace::new(SharedCounters::private(), AcceptRate::new(1000.0, burst))
    }

    #[test]
    fn a_burst_then_one_for_each_gap() {
        const MS: u64 = 1_000_000;
        let pace = pace(3);
        let now = 1_000 * MS;
        assert_eq!((0..5).filter(|_| pace.take(now)).count(), 3);
        assert!(!pace.take(now + MS - 1));
        assert!(pace.take(now + MS) && !pace.take(now + MS));
        assert_eq!((0..9).filter(|_| pace.take(now + 100 * MS)).count(), 3, "a long pause makes up for no more than a burst");
    }

    #[test]
    fn a_loop_that_waits_has_its_own_turn() {
        const MS: u64 = 1_000_000;
        let (pace, now) = (pace(1), 1_000 * MS);
        let turns: Vec<u64> = (0..4).map(|_| pace.reserve(now)).collect();
        assert_eq!(turns, [now, now + MS, now + 2 * MS, now + 3 * MS]);
        pace.give_back();
        assert_eq!(pace.reserve(now), now + 3 * MS);
    }
}
