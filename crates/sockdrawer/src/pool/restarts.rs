//! Replacing what died, and giving up where it dies too often: the same for parts that are threads and for processes.

use crate::clock::deadline;
use crate::config::Restarts;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The pauses after a start that failed: the first time, and later.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// Maximum number of restarts that are remembered.
const REMEMBERED: usize = 10_000;

/// Returns a pause that was doubled this often.
fn doubled(pause: Duration, times: u32) -> Duration {
    pause.saturating_mul(2_u32.saturating_pow(times))
}

/// Times at which parts of a pool were replaced.
#[derive(Default)]
pub(crate) struct History {
    /// The last ones.
    recent: VecDeque<Instant>,
    pub(crate) in_all: usize,
}

impl History {
    /// Returns the pause before a part that died now is replaced, which counts from then on; None where there were too many.
    pub(super) fn next(&mut self, restarts: Restarts, now: Instant) -> Option<Duration> {
        let Restarts { max, within, pause } = restarts;
        let recent = self.recent.iter().filter(|at| now.duration_since(**at) < within).count();
        if recent >= max {
            return None;
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        Some(doubled(pause, recent as u32).min(within))
    }
}

/// A part that is to be replaced later, and why.
pub(crate) struct PendingRestart {
    pub(crate) until: Instant,
    pub(crate) reason: String,
    /// Number of parts of the kind, where they have no places.
    pub(crate) parts: usize,
    /// Number of starts that failed since.
    pub(super) failures: u32,
}

impl PendingRestart {
    /// Returns the restart of a part that died now, due after a pause.
    pub(super) fn after(pause: Duration, reason: &str) -> PendingRestart {
        PendingRestart { until: deadline(Instant::now(), pause), ..PendingRestart::since_now(reason) }
    }

    pub(super) fn since_now(reason: &str) -> PendingRestart {
        PendingRestart { until: Instant::now(), reason: reason.to_owned(), parts: 1, failures: 0 }
    }

    /// Returns a restart that never comes: the pool gave up.
    pub(super) fn never() -> PendingRestart {
        PendingRestart::after(Duration::MAX, "the pool gave up")
    }

    /// Puts off the restart of a part that could not be started. What prevents it may last, so never in a hurry.
    pub(super) fn put_off(self, pause: Duration) -> PendingRestart {
        let least = doubled(PAUSES[0], self.failures).min(PAUSES[1]);
        let until = deadline(Instant::now(), pause.max(least));
        PendingRestart { until, failures: self.failures + 1, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn only_restarts_within_the_time_count() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let restarts = Restarts { max: 2, within: Duration::from_secs(10), pause: NONE };
        let next = |second, before: &[u64]| {
            let recent = before.iter().map(|second| at(*second)).collect();
            History { recent, in_all: 0 }.next(restarts, at(second))
        };
        assert_eq!((next(20, &[]), next(20, &[19])), (Some(NONE), Some(NONE)));
        assert_eq!((next(20, &[11, 19]), next(20, &[10, 19])), (None, Some(NONE)));
        assert_eq!(History::default().next(Restarts { max: 0, ..restarts }, start), None);
    }

    #[test]
    fn each_restart_within_the_time_doubles_the_pause_up_to_the_time() {
        let (start, mut history) = (Instant::now(), History::default());
        let restarts = Restarts { max: usize::MAX, within: Duration::from_secs(1), pause: Duration::from_millis(300) };
        let pauses: Vec<u128> = (0..40).filter_map(|_| history.next(restarts, start)).map(|pause| pause.as_millis()).collect();
        assert_eq!((&pauses[..3], pauses[39], pauses.len()), (&[300, 600, 1000][..], 1000, 40));
        assert_eq!(history.next(restarts, start + Duration::from_secs(1)), Some(restarts.pause));
    }
}
