//! Result of a search: its tries, and what stopped it.

use crate::machine::busy_with_others;
use crate::numbers::{float, thousands, time};
use crate::report::Report;
use crate::search::{Search, Tries};
use crate::threshold::Judgement;
use crate::wall::Wall;
use serde::Serialize;
use std::fmt;

/// A number is reached from this part of it on: connections that begin and end cost a few percent.
const REACHED: f64 = 0.95;

/// Result of a search. Serialized, it is the documented result.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The name and version of this form.
    pub schema: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// The command line; None where a program made the search.
    pub command: Option<String>,
    /// Setting that was varied.
    pub vary: &'static str,
    /// Unit of the setting.
    #[serde(skip)]
    pub unit: &'static str,
    /// Number that was reached: the least that was measured where the greatest number was asked for that holds.
    pub found: Option<u64>,
    /// The number that was asked for there.
    pub asked: Option<u64>,
    /// True where another search would find about as much.
    pub stands: bool,
    /// Reason why it does not stand.
    pub doubt: Option<String>,
    /// Wall of the least number that did not hold.
    pub wall: Option<Wall>,
    /// The least that did not hold.
    pub failed: Option<u64>,
    /// The search came to its end.
    pub complete: bool,
    /// Tries, one after the other.
    pub runs: Vec<Try>,
    #[serde(skip)]
    tries: [Tries; 2],
}

/// Try of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Try {
    /// Number that was tried.
    pub amount: u64,
    /// Number that there was: connections at once, or what was begun in a second. None: it was not run.
    pub reached: Option<f64>,
    /// The thresholds held.
    pub held: bool,
    /// Thresholds of the result, and whether each held.
    pub thresholds: Vec<Judgement>,
    /// Wall that the try came up against.
    pub wall: Option<Wall>,
    /// Report; None: it was not run, because this machine has too little for it.
    pub report: Option<Box<Report>>,
}

impl Found {
    /// The form that this version writes.
    pub const SCHEMA: &'static str = "sockdrawer.find/3";

    /// Begins without a try.
    pub fn new(vary: &'static str, unit: &'static str) -> Found {
        Found {
            schema: Found::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            command: None,
            vary,
            unit,
            found: None,
            asked: None,
            stands: false,
            doubt: None,
            wall: None,
            failed: None,
            complete: false,
            runs: Vec::new(),
            tries: [Tries::default(); 2],
        }
    }

    /// Adds a try.
    pub fn add(&mut self, tried: Try) {
        self.runs.push(tried);
    }

    /// Takes what the search knows now.
    pub fn take(&mut self, search: &Search, complete: bool) {
        (self.asked, self.failed, self.complete) = (search.found(), search.failed(), complete);
        self.tries = [self.asked, self.failed].map(|amount| amount.map_or_else(Tries::default, |amount| search.tries(amount)));
        let failed = || self.runs.iter().filter(|tried| Some(tried.amount) == self.failed && !tried.held);
        self.wall = failed().filter_map(|tried| tried.wall.clone()).next_back();
        let reached = self.runs.iter().filter(|tried| Some(tried.amount) == self.asked && tried.held);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number that was reached is above 0")]
        let floor = |reached: f64| reached.floor() as u64;
        self.found = reached.filter_map(|tried| tried.reached).min_by(f64::total_cmp).map(floor);
        self.doubt = self.found.and_then(|_| self.doubted(search));
        self.stands = self.found.is_some() && self.doubt.is_none();
    }

    /// Returns why another search may find something else.
    fn doubted(&self, search: &Search) -> Option<String> {
        let differ = (!search.stands()).then(|| "tries of one number differ".to_owned());
        // A refusal or a lost connection does not come of a busy machine.
        let is_late =
            |report: &Report| report.errors.iter().all(|error| error.errno == "ETIMEDOUT" || error.phase == "unfinished");
        let failed = self.runs.iter().filter(|tried| Some(tried.amount) == self.failed);
        let was_late = failed.filter_map(|tried| tried.report.as_deref()).any(is_late);
        let reports = || self.runs.iter().filter_map(|tried| tried.report.as_ref());
        let others: Vec<f64> = reports().filter_map(|report| report.others_cpus).collect();
        let mean = others.iter().sum::<f64>() / float(others.len().max(1) as u64);
        let cpus = float(reports().map(|report| report.machine.cpus as u64).max().unwrap_or(1));
        let busy = busy_with_others(mean, cpus).filter(|_| was_late || differ.is_some());
        differ.into_iter().chain(busy).reduce(|one, other| format!("{one}, and {other}"))
    }

    fn tell_failed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(failed) = self.failed else { return f.write_str(": the most that was asked for (--max)") };
        let [_, tries] = self.tries;
        write!(f, "; {failed} do not hold")?;
        if tries.made > 0 {
            write!(f, " ({tries})")?;
        }
        match &self.wall {
            Some(Wall { name, why, remedy }) => write!(f, ": limited by {name}: {why}; {remedy}"),
            None => {
                let tried = self.runs.iter().rfind(|tried| tried.amount == failed && !tried.held);
                let why = tried.and_then(|tried| tried.why(self.unit));
                write!(f, ": {}", why.as_deref().unwrap_or("what limits it is not known"))
            }
        }
    }
}

/// The last line.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, [tries, _]) = (self.unit, self.tries);
        match (self.found, self.asked) {
            (Some(found), Some(asked)) => {
                write!(f, "found: {found} {what} ({tries}")?;
                if found != asked {
                    write!(f, ", {asked} asked for")?;
                }
                f.write_str(")")?;
            }
            _ if !self.complete => {
                f.write_str("interrupted before it was known")?;
                let of = |held| self.runs.iter().filter(move |tried| tried.held == held).map(|tried| tried.amount);
                return match (of(true).max(), of(false).min()) {
                    (None, None) => Ok(()),
                    (Some(most), None) => write!(f, ": {most} {what} held"),
                    (None, Some(least)) => write!(f, ": {least} {what} did not hold"),
                    (Some(most), Some(least)) => write!(f, ": {most} {what} held, {least} did not"),
                };
            }
            _ => write!(f, "found: nothing holds, not even 1 {what}")?,
        }
        self.tell_failed(f)?;
        match &self.doubt {
            Some(doubt) => write!(
                f,
                "\nthis result does not stand: {doubt}: use a longer -d or --hold, or a machine with nothing else to do"
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held {} of {} times", self.held, self.made)
    }
}

impl Try {
    /// Returns true where `amount` was reached, as far as chance lets a number of this size be: of few, some more may be missing.
    pub fn is_reached(amount: u64, reached: f64, seconds: f64) -> bool {
        let wanted = float(amount) * seconds;
        reached * seconds + 2.0 * wanted.sqrt() >= REACHED * wanted && reached > 0.0
    }

    /// Returns why it does not hold, where no limit is named: what went wrong most often, or that too few were reached.
    fn why(&self, unit: &str) -> Option<String> {
        if let Some(error) = self.most_frequent_error() {
            return Some(error);
        }
        if let Some(judgement) = self.thresholds.iter().find(|judgement| !judgement.ok) {
            return Some(format!("not {}: {}", judgement.expr, judgement.words()));
        }
        let reached = self.reached.filter(|reached| *reached < REACHED * float(self.amount))?;
        Some(format!("{reached:.0} {unit} were reached; what limits them is not known"))
    }

    /// Returns what went wrong most often, and why.
    fn most_frequent_error(&self) -> Option<String> {
        let report = self.report.as_ref()?;
        let error = report.most_frequent_error()?;
        let cause = report.cause(error).map_or_else(String::new, |cause| format!(": {cause}"));
        Some(format!("{} times {} {}{cause}", error.count, error.phase, error.errno))
    }

    /// Returns its line: `confirming` where as many held before.
    pub fn line(&self, unit: &str, confirming: bool) -> String {
        let word = match (self.held, confirming) {
            (true, true) => "holds again",
            (true, false) => "holds",
            (false, _) => "does not hold",
        };
        let mut line = format!("{:>10} {unit}  {word:<13}", self.amount);
        if let Some(reached) = self.reached {
            line += &format!("  {reached:.0} reached");
        }
        if let Some(report) = &self.report {
            let p99 = report.latency_us.operation.p99.map_or_else(|| "-".to_owned(), time);
            let (failed, lost) = (report.connections.failed + report.operations.failed, report.connections.lost);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0")]
            let rate = thousands(report.operations.per_second.round() as u64);
            line += &format!(", p99 {p99}, {rate} operations/s, {failed} failed, {lost} lost");
        }
        self.thresholds
            .iter()
            .filter(|judgement| !judgement.ok)
            .for_each(|judgement| line += &format!("; not {}", judgement.expr));
        match (&self.wall, self.report.as_ref().and_then(|report| report.most_frequent_error())) {
            _ if self.held => {}
            (Some(wall), _) => line += &format!("; limited by {}", wall.name),
            (None, Some(error)) => line += &format!("; most often {} {}", error.phase, error.errno),
            (None, None) => {}
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_search_says_what_was_known_by_then() {
        let mut found = Found::new("connections", "connections");
        assert_eq!(found.to_string(), "interrupted before it was known");
        let tried = |amount, held| Try { amount, reached: None, held, thresholds: Vec::new(), wall: None, report: None };
        [tried(20, true), tried(10, true), tried(325, false)].into_iter().for_each(|tried| found.add(tried));
        assert_eq!(found.to_string(), "interrupted before it was known: 20 connections held, 325 did not");
        found.runs.retain(|tried| !tried.held);
        assert_eq!(found.to_string(), "interrupted before it was known: 325 connections did not hold");
    }

    #[test]
    fn a_try_that_fails_names_its_most_frequent_error() {
        let report = Some(Box::new(crate::report::tests::report()));
        let tried = Try { amount: 9, reached: Some(8.0), held: false, thresholds: Vec::new(), wall: None, report };
        let line = tried.line("connections", false);
        assert!(line.ends_with("; most often connect ECONNREFUSED"), "{line}");
        let line = Try { held: true, ..tried }.line("connections", false);
        assert!(line.ends_with(" lost"), "{line}");
    }
}
