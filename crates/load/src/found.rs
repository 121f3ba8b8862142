//! What came of a search: its tries, and what stopped it.

use crate::cause::Wall;
use crate::numbers::{thousands, time};
use crate::report::Report;
use crate::search::Search;
use crate::threshold::Judgement;
use serde::Serialize;
use std::fmt;

/// What came of a search. Serialized, it is the documented result.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The name and version of this form.
    pub schema: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// The command line; None where a program made the search.
    pub command: Option<String>,
    /// What was varied.
    pub vary: &'static str,
    /// What a number of it counts.
    #[serde(skip)]
    pub unit: &'static str,
    /// The most that held, twice.
    pub found: Option<u64>,
    /// What stopped the least that did not.
    pub wall: Option<Wall>,
    /// The least that did not hold, twice.
    pub failed: Option<u64>,
    /// Whether the search came to its end.
    pub complete: bool,
    /// One after the other.
    pub runs: Vec<Try>,
}

/// One try.
#[derive(Clone, Debug, Serialize)]
pub struct Try {
    /// How many.
    pub amount: u64,
    /// Whether they held.
    pub held: bool,
    /// What was asked of the result.
    pub thresholds: Vec<Judgement>,
    /// What it came up against.
    pub wall: Option<Wall>,
    /// None: it was not run, because this machine has too little for it.
    pub report: Option<Box<Report>>,
}

impl Found {
    /// The form that this version writes.
    pub const SCHEMA: &'static str = "sockdrawer.find/2";

    /// Nothing yet.
    pub fn new(vary: &'static str, unit: &'static str) -> Found {
        Found {
            schema: Found::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            command: None,
            vary,
            unit,
            found: None,
            wall: None,
            failed: None,
            complete: false,
            runs: Vec::new(),
        }
    }

    /// One more.
    pub fn add(&mut self, tried: Try) {
        if !tried.held {
            self.wall.clone_from(&tried.wall);
        }
        self.runs.push(tried);
    }

    /// What the search knows now.
    pub fn take(&mut self, search: &Search, complete: bool) {
        (self.found, self.failed, self.complete) = (search.found(), search.failed(), complete);
    }
}

/// The last line.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.unit;
        match self.found {
            Some(found) => write!(f, "found: {found} {what}, twice")?,
            None if !self.complete => return f.write_str("interrupted before it was known"),
            None => write!(f, "found: nothing holds, not even 1 {what}")?,
        }
        match (self.failed, &self.wall) {
            (None, _) => f.write_str(": the most that was asked for (--max)"),
            (Some(failed), None) => {
                let tried = self.runs.iter().rfind(|tried| tried.amount == failed && !tried.held);
                let why = tried.and_then(Try::most_frequent_error);
                write!(f, "; {failed} do not hold: {}", why.as_deref().unwrap_or("what limits it is not known"))
            }
            (Some(failed), Some(Wall { name, why, remedy })) => {
                write!(f, "; {failed} do not hold: limited by {name}: {why}; {remedy}")
            }
        }
    }
}

impl Try {
    /// What went wrong most often, and why.
    fn most_frequent_error(&self) -> Option<String> {
        let report = self.report.as_ref()?;
        let error = report.errors.iter().max_by_key(|error| error.count)?;
        let cause = report.cause(error).map_or_else(String::new, |cause| format!(": {cause}"));
        Some(format!("{} times {} {}{cause}", error.count, error.phase, error.errno))
    }

    /// Its line: `confirming` where as many held before.
    pub fn line(&self, unit: &str, confirming: bool) -> String {
        let word = match (self.held, confirming) {
            (true, true) => "holds again",
            (true, false) => "holds",
            (false, _) => "does not hold",
        };
        let mut line = format!("{:>10} {unit}  {word:<13}", self.amount);
        if let Some(report) = &self.report {
            let p99 = report.latency_us.operation.p99.map_or_else(|| "-".to_owned(), time);
            let (failed, lost) = (report.connections.failed + report.operations.failed, report.connections.lost);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0")]
            let rate = thousands(report.operations.per_second.round() as u64);
            line += &format!("  p99 {p99}, {rate} operations/s, {failed} failed, {lost} lost");
        }
        self.thresholds
            .iter()
            .filter(|judgement| !judgement.ok)
            .for_each(|judgement| line += &format!("; not {}", judgement.expr));
        if let Some(wall) = self.wall.as_ref().filter(|_| !self.held) {
            line += &format!("; limited by {}", wall.name);
        }
        line
    }
}
