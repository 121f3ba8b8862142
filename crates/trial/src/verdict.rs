//! Good, bad or too little to tell: of a trial of our own server, and of somebody else's.

use std::fmt;

/// What a trial says about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was lost, and every change was made.
    Good,
    /// Something was, or one was not; each line says what.
    Bad(Vec<String>),
    /// Nothing was, but too little was tried; each line says what.
    Inconclusive(Vec<String>),
}

/// What a trial found, as far as a verdict needs it.
pub trait Judged {
    /// How many changes were made.
    fn changes(&self) -> u64;
    /// How many connects there were.
    fn connects(&self) -> u64;
    /// What all random choices began with.
    fn seed(&self) -> u64;
    /// What speaks against the server, a line each.
    fn spoiled(&self) -> Vec<String>;
    /// What would have to be more for a verdict, a line each.
    fn missing(&self) -> Vec<String>;
}

/// Kinds of failures that the text shows; all are in the JSON.
const SHOWN: usize = 8;

/// A line for each of the most frequent failures, and how many are left out.
pub(crate) fn failures<T>(f: &mut fmt::Formatter<'_>, all: &[(T, u64)], words: impl Fn(&T) -> String) -> fmt::Result {
    for (failure, count) in all.iter().take(SHOWN) {
        write!(f, "\nfailed: {count} times {}", words(failure))?;
    }
    let left = all.get(SHOWN..).unwrap_or_default();
    if left.is_empty() {
        return Ok(());
    }
    let times: u64 = left.iter().map(|(_, count)| count).sum();
    let kinds = if left.len() == 1 { "kind" } else { "kinds" };
    write!(f, "\nfailed: {times} times more, of {} {kinds} that --json has", left.len())
}

impl Verdict {
    /// The verdict on what was found. What was lost in an interrupted trial was lost.
    pub fn of(report: &impl Judged) -> Verdict {
        let bad = report.spoiled();
        if !bad.is_empty() {
            return Verdict::Bad(bad);
        }
        let missing = report.missing();
        if missing.is_empty() { Verdict::Good } else { Verdict::Inconclusive(missing) }
    }

    /// `good`, `bad` or `inconclusive`.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad(_) => "bad",
            Verdict::Inconclusive(_) => "inconclusive",
        }
    }

    /// Why it is not good.
    pub fn reasons(&self) -> &[String] {
        match self {
            Verdict::Good => &[],
            Verdict::Bad(reasons) | Verdict::Inconclusive(reasons) => reasons,
        }
    }

    /// The last line of a trial.
    pub fn line(&self, report: &impl Judged) -> impl fmt::Display {
        let (word, seed) = (self.word(), report.seed());
        match self {
            Verdict::Good => format!(
                "verdict: {word}, {} changes, {} connects, 0 failed, 0 lost, 0 wrong bytes (seed {seed})",
                report.changes(),
                report.connects()
            ),
            _ => format!("verdict: {word}: {} (seed {seed})", self.reasons().join("; ")),
        }
    }
}
