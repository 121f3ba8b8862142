//! The rate that the clients reach while nothing is changed. It is measured in short slices between the changes, so that other work of
//! this machine slows both alike.

use crate::Tally;
use crate::Until;
use std::thread;
use std::time::{Duration, Instant};

/// The longest slice, and the time with changes before the next one.
const SLICE: Duration = Duration::from_millis(50);
const EVERY: Duration = Duration::from_millis(500);
/// The fractions of a trial's time that a slice, and the time between two slices, may take.
const SLICES: u32 = 20;
const BETWEEN: u32 = 4;

/// The connects of the churn while nothing was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undisturbed {
    /// Connections that ended.
    pub connects: u64,
    /// The time in which they ended.
    pub elapsed: Duration,
}

impl Undisturbed {
    /// Returns the connections per second; None if it was not measured.
    #[expect(clippy::cast_precision_loss, reason = "counts of a trial are far below 2^53")]
    pub fn connects_per_second(&self) -> Option<f64> {
        (self.connects > 0).then(|| self.connects as f64 / self.elapsed.as_secs_f64())
    }
}

/// Measures slices between the changes.
pub(crate) struct Quiet {
    slice: Duration,
    every: Duration,
    due: Instant,
    pub(crate) measured: Undisturbed,
}

impl Quiet {
    /// Creates a measurement whose first slice is due at once.
    pub(crate) fn new(until: Until) -> Quiet {
        let (slice, every) = match until {
            Until::Passed(time) => (SLICE.min(time / SLICES), EVERY.min(time / BETWEEN)),
            Until::Changes(_) => (SLICE, EVERY),
        };
        Quiet { slice, every, due: Instant::now(), measured: Undisturbed::default() }
    }

    /// Measures if a slice is due.
    pub(crate) fn when_due(&mut self, tally: &Tally) {
        if Instant::now() >= self.due {
            self.measure(tally);
        }
    }

    /// Measures a slice.
    pub(crate) fn measure(&mut self, tally: &Tally) {
        let (before, begun) = (tally.total().connects, Instant::now());
        thread::sleep(self.slice);
        self.measured.connects += tally.total().connects - before;
        self.measured.elapsed += begun.elapsed();
        self.due = Instant::now() + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_trial_has_short_slices() {
        let (tally, time) = (Tally::new(), Duration::from_millis(40));
        let mut quiet = Quiet::new(Until::Passed(time));
        quiet.when_due(&tally);
        let once = quiet.measured;
        assert!(once.elapsed >= time / SLICES && once.connects_per_second().is_none());
        quiet.due += Duration::from_secs(60);
        quiet.when_due(&tally);
        assert_eq!(quiet.measured, once, "the next one is not due");
        quiet.measure(&tally);
        assert!(quiet.measured.elapsed > once.elapsed);
        let two = Undisturbed { connects: 20, elapsed: Duration::from_secs(2) };
        assert_eq!(two.connects_per_second(), Some(10.0));
    }
}
