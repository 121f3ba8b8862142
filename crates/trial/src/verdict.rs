//! The verdict of a trial: good, bad or inconclusive.

use crate::deliveries::Delivered;
use std::fmt;

/// The verdict of a trial about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was lost, and every change was made.
    Good,
    /// Something was lost, or a change was not made; each line says what.
    Bad(Vec<String>),
    /// Nothing was lost, but too little was tried; each line says what.
    Inconclusive(Vec<String>),
}

/// Losses of clients, held against the connections of killed processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// The connections that killed processes had.
    pub had: u64,
    /// The part of these that a client lost, or whose connect failed with them.
    pub paid: u64,
    /// Connects that failed while no process listened.
    pub unheard: u64,
    /// Connects that failed besides.
    pub failed: u64,
    /// Connections that were lost besides.
    pub lost: u64,
}

/// The findings of a trial that a verdict needs.
pub trait Judged {
    /// Returns the number of changes that were made.
    fn changes(&self) -> u64;
    /// Returns the number of connects.
    fn connects(&self) -> u64;
    /// Returns the number of connections that the server closed as it was allowed to.
    fn allowed(&self) -> u64 {
        0
    }
    /// Returns the number of connections that the server closed, as it was allowed to, while a request was on its way.
    fn crossed(&self) -> u64 {
        0
    }
    /// Returns the losses with killed processes, and besides; None: none was killed.
    fn killed(&self) -> Option<Bill> {
        None
    }
    /// Returns the messages of clients that hear each other; None: there are none.
    fn delivered(&self) -> Option<Delivered> {
        None
    }
    /// Returns the number of connections that upgrades left in the old process.
    fn stayed(&self) -> u64 {
        0
    }
    /// Returns the seed of all random choices.
    fn seed(&self) -> u64;
    /// Returns the findings against the server, one per line.
    fn spoiled(&self) -> Vec<String>;
    /// Returns what was too little for a verdict, one per line.
    fn missing(&self) -> Vec<String>;
}

/// Maximum of kinds of failures that the text shows; the JSON has all.
const SHOWN: usize = 8;

/// Writes a line for each of the most frequent failures, and the number of those left out.
pub(crate) fn failures<T>(f: &mut fmt::Formatter<'_>, all: &[(T, u64)], words: impl Fn(&T) -> String) -> fmt::Result {
    for (failure, count) in all.iter().take(SHOWN) {
        write!(f, "\nseen: {count} times {}", words(failure))?;
    }
    let left = all.get(SHOWN..).unwrap_or_default();
    if left.is_empty() {
        return Ok(());
    }
    let times: u64 = left.iter().map(|(_, count)| count).sum();
    let kinds = if left.len() == 1 { "kind" } else { "kinds" };
    write!(f, "\nseen: {times} times more, of {} {kinds} that --json has", left.len())
}

impl Verdict {
    /// Returns the verdict on a report. Losses count also in an interrupted trial.
    pub fn of(report: &impl Judged) -> Verdict {
        let bad = report.spoiled();
        if !bad.is_empty() {
            return Verdict::Bad(bad);
        }
        let missing = report.missing();
        if missing.is_empty() { Verdict::Good } else { Verdict::Inconclusive(missing) }
    }

    /// Returns the verdict on two reports: the worse of both, with the reasons for it.
    #[must_use]
    pub fn and(self, other: Verdict) -> Verdict {
        match (self, other) {
            (Verdict::Bad(one), Verdict::Bad(other)) => Verdict::Bad([one, other].concat()),
            (Verdict::Inconclusive(one), Verdict::Inconclusive(other)) => Verdict::Inconclusive([one, other].concat()),
            (bad @ Verdict::Bad(_), _) | (_, bad @ Verdict::Bad(_)) => bad,
            (Verdict::Good, other) | (other, Verdict::Good) => other,
        }
    }

    /// Returns `good`, `bad` or `inconclusive`.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad(_) => "bad",
            Verdict::Inconclusive(_) => "inconclusive",
        }
    }

    /// Returns the reasons of a verdict that is not good.
    pub fn reasons(&self) -> &[String] {
        match self {
            Verdict::Good => &[],
            Verdict::Bad(reasons) | Verdict::Inconclusive(reasons) => reasons,
        }
    }

    /// Returns the last line of a trial.
    pub fn line(&self, report: &impl Judged) -> impl fmt::Display {
        let (word, seed) = (self.word(), report.seed());
        match self {
            Verdict::Good => {
                let closed = match report.allowed() {
                    0 => String::new(),
                    allowed => format!("{allowed} closed idle, "),
                };
                let crossed = match report.crossed() {
                    0 => String::new(),
                    crossed => format!(
                        "{crossed} closed while a request was on its way, to be asked again but for POST (RFC 9112, 9.3.1), "
                    ),
                };
                let heard = report.delivered().map_or(String::new(), |all| format!(", messages: {all}"));
                let lost = format!("{closed}{crossed}0 lost");
                let stayed = match report.stayed() {
                    0 => String::new(),
                    stayed => format!(", {stayed} connections stayed in old processes (require-all makes that bad)"),
                };
                let (changes, connects) = (report.changes(), report.connects());
                let killed = report.killed().map_or(String::new(), |Bill { paid, had, unheard, .. }| {
                    let unheard = if unheard == 0 { String::new() } else { format!(", {unheard} failed while none listened") };
                    format!("{paid} lost with killed processes, which had {had}{unheard}; of all others ")
                });
                format!(
                    "verdict: {word}, {changes} changes, {connects} connects, {killed}0 failed, {lost}, 0 wrong bytes{heard}{stayed} (seed {seed})"
                )
            }
            _ => format!("verdict: {word}: {} (seed {seed})", self.reasons().join("; ")),
        }
    }
}
