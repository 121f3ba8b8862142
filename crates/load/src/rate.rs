//! Rate that a run was asked for, and whether it was kept: what was due in its time, and what of it was begun.

use crate::numbers::{float, per_second, thousands};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Below this part of what was due, a rate was not kept. Connections that begin and end, and the last answers, cost a few percent.
const LEAST: f64 = 0.95;
/// Time in seconds before the end in which due operations are still on their way: a busy machine makes them so late.
const ON_ITS_WAY: f64 = 0.25;
/// Minimum length of a run in seconds: in less time the first connects are most of what is seen.
const LEAST_SECONDS: f64 = 1.0;

/// The rate that was asked for, and what came of it; of runs whose operations are on schedule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rate {
    /// Operations per second that were due; the mean, where that changed.
    pub asked: f64,
    /// Operations per second that were begun.
    pub begun: f64,
    /// Operations that were due until the time was over, or the last connect of a schedule had begun, of the connections that there
    /// were to be.
    pub due: u64,
    /// Operations that were due and never begun: their turn did not come, or no connection was established.
    pub not_begun: u64,
    /// True where at least 95 % of the operations that were due had begun when the time was over; true for a run of less than 1 s.
    pub kept: bool,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/s of {}/s asked for: {}",
            per_second(self.begun),
            per_second(self.asked),
            if self.kept { "kept" } else { "not kept" }
        )?;
        if self.not_begun > 0 {
            write!(f, ", {} of {} due were never sent", thousands(self.not_begun), thousands(self.due))?;
        }
        Ok(())
    }
}

/// Adds up what is due, look by look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due {
    operations: f64,
    at: Duration,
    interval: Duration,
    per_second: Option<f64>,
    /// All that there will be on a schedule of their own has begun.
    all_begun: bool,
    /// Rate of the plan, as long as nothing else was due than that.
    planned: Option<f64>,
}

impl Due {
    /// Creates a sum for connections that each have an operation in this interval, unless it is zero; or for operations on a schedule of their own.
    pub(crate) fn new(interval: Duration, per_second: Option<f64>) -> Due {
        Due { interval, per_second, planned: per_second, ..Due::default() }
    }

    /// Sets the rate of a plan that has this number of connections from begin to end.
    pub(crate) fn of_all(mut self, connections: u64) -> Due {
        if !self.interval.is_zero() {
            self.planned = Some(float(connections) / self.interval.as_secs_f64());
        }
        self
    }

    /// Sets another interval from now on; connections with none are back to back, and nothing of theirs is due.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
        self.change();
    }

    /// Notes that from now on something else is due than the plan says.
    pub(crate) fn change(&mut self) {
        self.planned = None;
    }

    /// Notes that all connections have begun. Where they are what is due, nothing more is: the time of the last answers is not that of
    /// the schedule.
    pub(crate) fn all_begun(&mut self) {
        self.all_begun = self.per_second.is_some();
    }

    /// Passes the time until `now`, in which there were `connections` connections, or should have been.
    pub(crate) fn pass(&mut self, now: Duration, connections: u64, suspended: bool) {
        if self.all_begun {
            return;
        }
        let time = now.saturating_sub(std::mem::replace(&mut self.at, now)).as_secs_f64();
        if suspended {
            self.change();
            return;
        }
        if let Some(rate) = self.per_second {
            self.operations += time * rate;
        } else if !self.interval.is_zero() {
            self.operations += time * float(connections) / self.interval.as_secs_f64();
        }
    }

    /// Returns the rate, where `begun` operations were begun, of `most` at most, on `connections` connections that each began at a random point of an
    /// interval. None: nothing was due at any time.
    pub(crate) fn rate(&self, begun: u64, most: Option<u64>, connections: u64) -> Option<Rate> {
        let seconds = self.at.as_secs_f64();
        if self.operations == 0.0 || seconds == 0.0 {
            return None;
        }
        let due = count(self.operations).min(most.unwrap_or(u64::MAX)).max(begun);
        let allowed = 2.0 * float(connections).sqrt() + ON_ITS_WAY * self.operations / seconds;
        let kept = seconds < LEAST_SECONDS || float(begun) + allowed >= LEAST * self.operations;
        let asked = self.planned.unwrap_or(self.operations / seconds);
        Some(Rate { asked, begun: float(begun) / seconds, due, not_begun: due - begun, kept })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count is not negative, and more than 2^64 is all")]
fn count(operations: f64) -> u64 {
    operations.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pinging(interval: Duration) -> Due {
        Due::new(interval, None)
    }

    #[test]
    fn what_is_due_is_what_the_connections_should_have_asked() {
        let mut due = pinging(SECOND / 10);
        due.pass(SECOND, 10, false);
        due.pass(2 * SECOND, 10, true);
        due.pass(3 * SECOND, 5, false);
        let told = |begun| due.rate(begun, None, 10).expect("something was due");
        assert_eq!((told(40).due, told(40).not_begun, told(40).kept), (150, 110, false));
        assert_eq!((told(125).kept, told(105).kept, told(151).not_begun), (true, false, 0));
        assert_eq!(due.rate(40, Some(40), 10).map(|rate| (rate.due, rate.kept)), Some((40, false)), "all, but not in time");
        assert_eq!(told(30).to_string(), "10.0/s of 50.0/s asked for: not kept, 120 of 150 due were never sent");
    }

    #[test]
    fn a_short_run_and_one_back_to_back_keep_their_rate() {
        let mut due = pinging(SECOND / 100);
        due.pass(SECOND * 9 / 10, 100, false);
        assert_eq!(due.rate(1, None, 100).map(|rate| rate.kept), Some(true));
        let mut due = pinging(Duration::ZERO);
        due.pass(SECOND, 100, false);
        assert_eq!(due.rate(1, None, 100), None);
    }

    #[test]
    fn connections_may_be_what_is_due() {
        let mut due = Due::new(Duration::ZERO, Some(100.0));
        due.pass(2 * SECOND, 3, false);
        let rate = due.rate(125, None, 3).expect("something was due");
        assert_eq!((rate.due, rate.not_begun, rate.kept), (200, 75, false));
        due.all_begun();
        due.pass(9 * SECOND, 3, false);
        assert_eq!(due.rate(125, None, 3), Some(rate), "the last answer is late");
    }
}
