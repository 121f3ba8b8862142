//! The report of a trial of a service.

use crate::deliveries::{Delivered, Deliveries};
use crate::tally::{Failure, Seen};
use std::fmt;
use std::time::Duration;

/// The report of a change, over all times it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeReport {
    /// The name of the change.
    pub name: String,
    /// Number of times that the change was applied, failures included.
    pub times: u64,
    /// Number of times that the change failed.
    pub failed: u64,
    /// The text of the first failure.
    pub error: Option<String>,
    /// The longest time that the change took.
    pub longest: Duration,
    /// Clients that may fail each time: [`Change::may_lose`](crate::Change::may_lose).
    pub may_lose: u64,
    /// The counts of the clients, from the start of this change to the start of the next.
    pub seen: Seen,
}

/// The report of a trial. [`Report::assert_nothing_lost`] is its verdict; its text is a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The seed of random choices.
    pub seed: u64,
    /// The counts of the whole trial, the time before the first change included.
    pub total: Seen,
    /// The report of each change, in the order given.
    pub changes: Vec<ChangeReport>,
    /// The failures, most frequent first.
    pub failures: Vec<(Failure, u64)>,
    /// The first unexpected answer to a [`Script`](crate::Script), described.
    pub odd: Option<String>,
    /// The text of the service's first panic. None: there was none, or [`Trial::configure`](crate::Trial::configure) has set another observer.
    pub panic: Option<String>,
    /// The messages of each sender, where the connections that stay hear each other: see [`Trial::broadcast`](crate::Trial::broadcast).
    pub delivered: Vec<Delivered>,
}

/// Minimum of connects under a change: with fewer the change proves nothing.
const LEAST_CONNECTS: u64 = 20;

impl Report {
    /// Returns the reasons why it is not proven that nothing was lost, one per line; empty if it is proven.
    pub fn reasons(&self) -> Vec<String> {
        let total = &self.total;
        let (mut failed, mut lost) = (total.failed(), total.lost());
        for change in &self.changes {
            let may = change.may_lose.saturating_mul(change.times);
            let allowed = change.seen.lost().min(may);
            lost -= allowed;
            failed -= change.seen.failed().min(may - allowed);
        }
        let columns = [
            (failed, "failed connects"),
            (lost, "kept connections lost"),
            (total.wrong_bytes, "wrong bytes"),
            (total.not_begun, "connects not begun: the clients have too few ports or descriptors, use fewer"),
        ];
        let mut reasons: Vec<String> =
            columns.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
        reasons.extend(Deliveries::total(&self.delivered).faults());
        for change in &self.changes {
            if let Some(error) = &change.error {
                reasons.push(format!("{} failed {} of {} times: {error}", change.name, change.failed, change.times));
            }
            if change.times > 0 && change.seen.connects < LEAST_CONNECTS {
                reasons.push(format!("{} had {} connects, {LEAST_CONNECTS} are needed", change.name, change.seen.connects));
            }
        }
        if self.changes.iter().all(|change| change.times == 0) {
            reasons.push("no change was applied".to_owned());
        }
        if total.kept_exchanges == 0 {
            reasons.push("no kept connection got an answer".to_owned());
        }
        reasons
    }

    /// Asserts that nothing was lost, every change was applied, and enough was tried to say so.
    ///
    /// # Panics
    /// If not, with the reasons and the table.
    #[track_caller]
    pub fn assert_nothing_lost(&self) {
        let reasons = self.reasons();
        assert!(reasons.is_empty(), "{} (seed {})\n{self}", reasons.join("; "), self.seed);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.changes.iter().map(|change| change.name.chars().count()).max().unwrap_or(0).max("change".len());
        let line = |f: &mut fmt::Formatter<'_>, name: &str, cells: [String; 8]| {
            write!(f, "{name:<width$}")?;
            cells.iter().zip([5, 6, 8, 7, 5, 9, 5, 11]).try_for_each(|(cell, width)| write!(f, "  {cell:>width$}"))
        };
        line(
            f,
            "change",
            ["times", "failed", "connects", "refused", "reset", "otherwise", "lost", "wrong bytes"].map(str::to_owned),
        )?;
        for change in &self.changes {
            let seen = &change.seen;
            let otherwise = seen.timed_out + seen.failed_otherwise;
            let cells =
                [change.times, change.failed, seen.connects, seen.refused, seen.reset, otherwise, seen.lost(), seen.wrong_bytes];
            writeln!(f)?;
            line(f, &change.name, cells.map(|count| count.to_string()))?;
        }
        write!(f, "\nround trips of connections that stayed: {}", self.total.kept_exchanges)?;
        for (failure, count) in self.failures.iter().take(8) {
            write!(f, "\n{count} times {failure}")?;
        }
        if let Some(odd) = &self.odd {
            write!(f, "\n{odd}")?;
        }
        if let Some(panic) = &self.panic {
            write!(f, "\nthe service panicked: {panic}")?;
        }
        if !self.delivered.is_empty() {
            write!(f, "\nmessages: {}", Deliveries::total(&self.delivered))?;
        }
        Ok(())
    }
}
