//! Results of a run of `http`, in the terms of ApacheBench (`ab`), so that its readers know what they see.

use super::Wanted;
use super::figures::{Figures, PageFigures};
use crate::latency::{Columns, Latency, Percentiles, row};
use crate::numbers::{bytes as in_units, float, per_second, thousands};
use crate::workload::tally::{Ended, Tally};
use serde::{Deserialize, Serialize};
use sockdrawer_catalog::http::{Close, Page};
use sockdrawer_catalog::meter::Phase;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The object `http` of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Http {
    /// Side and way in which connections ended: `server`, `fin`, `rst`, or `keep-alive`.
    pub close: Cow<'static, str>,
    /// Requests answered well, per second.
    pub requests_per_second: f64,
    /// Mean time of a request, in microseconds: connections at once, times the run's time, by requests. By a schedule, where there
    /// are as many at once as it takes, the mean of what was measured.
    pub time_per_request_us: Option<f64>,
    /// Mean time of a request across all at once, in microseconds: the run's time by requests.
    pub time_per_request_across_all_us: Option<f64>,
    /// Bytes that came.
    pub transfer: Transfer,
    /// Failures by kind, each request once.
    pub failed: Failures,
    /// Answers of 3xx, which are right and not followed.
    pub redirected: u64,
    /// Answers whose bodies were not as long as the first one of their page, which are right.
    pub other_lengths: u64,
    /// Microseconds that these percentages of the requests did not exceed.
    pub served_within_us: Vec<Within>,
    /// Parts of the time of requests.
    pub times_us: Times,
    /// Connections begun by a schedule; None in a closed loop.
    pub schedule: Option<Schedule>,
    /// Kept connections that the server ended; None when none was kept.
    pub renewed: Option<Renewed>,
    /// Reports of the pages, a report for each.
    pub pages: Vec<PageReport>,
}

/// Bytes of answers that were right.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Transfer {
    /// All bytes.
    pub bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// All bytes per second.
    pub bytes_per_second: f64,
}

/// Failures by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failures {
    /// There was no connection.
    pub connect: u64,
    /// The answer, or the end of the stream behind it, did not come.
    pub receive: u64,
    /// Any other failure: what came was no answer, or more than one; cut off at the end of the run.
    pub exceptions: u64,
    /// A status other than 2xx and 3xx.
    pub status: u64,
}

impl Failures {
    /// Returns the sum of all failures.
    pub fn sum(&self) -> u64 {
        self.connect + self.receive + self.exceptions + self.status
    }
}

/// A line of the table that `ab` ends with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Within {
    /// Percentage of the requests.
    pub percent: u8,
    /// Time that these did not exceed; None when there were no requests.
    pub us: Option<f64>,
}

/// The parts of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Times {
    /// Time until the connection stood.
    pub connect: Spread,
    /// Time from the request to the end.
    pub processing: Spread,
    /// Time from the request to the first byte of the answer.
    pub waiting: Spread,
    /// Time from when the connect began, whenever it was due, to the end.
    pub total: Spread,
}

/// Microseconds; None when there was nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spread {
    /// The least.
    pub min: Option<f64>,
    /// The mean.
    pub mean: Option<f64>,
    /// The standard deviation.
    pub sd: Option<f64>,
    /// The median: half of the times were no longer.
    pub median: Option<f64>,
    /// The maximum.
    pub max: Option<f64>,
}

/// Schedule of connections, and how it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Schedule {
    /// Connections that were to begin each second.
    pub rate: f64,
    /// Connections that were due before the run was over.
    pub due: u64,
    /// Connections that were due and never began.
    pub not_begun: u64,
    /// Lateness of the connections that began, in microseconds.
    pub lag_us: Percentiles,
    /// Times of operations from when they began, in microseconds: a tool that forgets the wait for their turn shows these.
    pub uncorrected_us: Percentiles,
}

/// Kept connections that the server ended after an answer; each was replaced, no request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Renewed {
    /// The answer said so.
    pub announced: u64,
    /// The answer did not say so: what had been asked meanwhile was asked again on another connection.
    pub unannounced: u64,
}

/// The requests for one page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PageReport {
    /// Path that was asked for.
    pub path: String,
    /// Frequency, in proportion to the other pages.
    pub weight: u32,
    /// Answered well.
    pub ok: u64,
    /// Requests that were not answered well.
    pub failed: u64,
    /// Requests answered well, per second.
    pub per_second: f64,
    /// Times from the request to the first byte, in microseconds.
    pub first_byte_us: Percentiles,
    /// The operation, in microseconds.
    pub operation_us: Percentiles,
}

/// The percentages of `ab`.
const PERCENT: [u8; 9] = [50, 66, 75, 80, 90, 95, 98, 99, 100];

impl Http {
    pub(crate) fn of(wanted: &Wanted, tally: &Tally, run: &Ended) -> Http {
        let none = Figures::default();
        let figures = tally.http.as_deref().unwrap_or(&none);
        let ok = tally.numbers.operations_ok;
        let across_all = (ok > 0).then(|| run.seconds * 1e6 / float(ok));
        let page = |(number, page): (usize, &Page)| {
            let none = PageFigures::default();
            let figures = figures.pages.get(number).unwrap_or(&none);
            PageReport {
                path: page.path.clone(),
                weight: page.weight,
                ok: figures.ok,
                failed: figures.failed,
                per_second: run.per_second(figures.ok),
                first_byte_us: figures.first_byte.percentiles(),
                operation_us: figures.operation.percentiles(),
            }
        };
        Http {
            close: wanted.close.map_or("keep-alive", close_name).into(),
            requests_per_second: run.per_second(ok),
            time_per_request_us: if wanted.rate.is_some() || !wanted.interval.is_zero() {
                tally.operation.mean()
            } else {
                across_all.map(|us| us * float(run.connections))
            },
            time_per_request_across_all_us: across_all,
            transfer: Transfer {
                bytes: figures.bytes,
                body_bytes: figures.body_bytes,
                bytes_per_second: run.per_second(figures.bytes),
            },
            failed: failures(tally),
            redirected: figures.redirected,
            other_lengths: figures.other_lengths,
            served_within_us: PERCENT
                .map(|percent| Within { percent, us: tally.operation.at(f64::from(percent) / 100.0) })
                .to_vec(),
            times_us: Times {
                connect: spread(&tally.connect),
                processing: spread(&figures.processing),
                waiting: spread(&figures.first_byte),
                total: spread(&figures.total),
            },
            schedule: wanted.rate.map(|rate| schedule(rate, figures, run)),
            renewed: wanted.close.is_none().then_some(Renewed { announced: figures.announced, unannounced: figures.unannounced }),
            pages: wanted.pages.iter().enumerate().map(page).collect(),
        }
    }
}

/// Returns the name that the command line has.
fn close_name(close: Close) -> &'static str {
    match close {
        Close::Server => "server",
        Close::Fin => "fin",
        Close::Rst => "rst",
    }
}

fn schedule(rate: f64, figures: &Figures, run: &Ended) -> Schedule {
    let since_first = figures.first_due.map_or(Duration::ZERO, |first| run.at.saturating_duration_since(first));
    // More may have begun than were due then, because they were counted a moment later.
    let due = due(since_first, rate, run.operations).max(run.connects);
    Schedule {
        rate,
        due,
        not_begun: due - run.connects,
        lag_us: figures.lag.percentiles(),
        uncorrected_us: figures.total.percentiles(),
    }
}

fn failures(tally: &Tally) -> Failures {
    let mut failures = Failures { exceptions: tally.unfinished, ..Failures::default() };
    for ((phase, _), seen) in &tally.errors {
        *match phase {
            Phase::Connect => &mut failures.connect,
            Phase::Send | Phase::Answer | Phase::Cut | Phase::End => &mut failures.receive,
            Phase::Status => &mut failures.status,
            // No request was under way.
            Phase::Closed | Phase::Unused => continue,
            _ => &mut failures.exceptions,
        } += seen.count;
    }
    failures
}

fn spread(latency: &Latency) -> Spread {
    let Percentiles { p50: median, max, .. } = latency.percentiles();
    Spread { min: latency.min(), mean: latency.mean(), sd: latency.deviation(), median, max }
}

/// Lines besides those of every report: its `operation` is the whole time of a request, its errors are what failed. The figures of `ab` are in the
/// JSON.
impl fmt::Display for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transfer { bytes, body_bytes, bytes_per_second } = self.transfer;
        let [all, bodies] = [bytes, body_bytes].map(thousands);
        write!(f, "transfer     {}/s, {all} bytes received, {bodies} of them bodies", in_units(bytes_per_second))?;
        if self.redirected > 0 {
            write!(f, "\nredirected   {} answers of 3xx, which are not followed", thousands(self.redirected))?;
        }
        if self.other_lengths > 0 {
            write!(f, "\nlengths      {} bodies were not as long as the first one of their page", thousands(self.other_lengths))?;
        }
        if let Some(Renewed { announced, unannounced }) = self.renewed {
            let [all, unannounced] = [announced + unannounced, unannounced].map(thousands);
            write!(f, "\nrenewed      {all} connections that the server ended after an answer, {unannounced} unannounced")?;
        }
        if let Some(schedule) = &self.schedule {
            write!(f, "\n{schedule}")?;
        }
        if self.pages.len() > 1 {
            self.pages.iter().try_for_each(|page| page.fmt(f))?;
        }
        Ok(())
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule { rate, due, not_begun, lag_us, uncorrected_us } = self;
        let [due, not_begun] = [*due, *not_begun].map(thousands);
        writeln!(f, "schedule     {}/s, {due} due, {not_begun} of them not begun", per_second(*rate))?;
        writeln!(f, "             {Columns}")?;
        row(f, "service", uncorrected_us)?;
        writeln!(f)?;
        row(f, "send delay", lag_us)?;
        write!(f, "\n  operation: due to answered; service: begun to answered; send delay: due to begun")
    }
}

impl fmt::Display for PageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageReport { path, weight, ok, failed, per_second: rate, .. } = self;
        let [ok, failed] = [*ok, *failed].map(thousands);
        writeln!(f, "\npage         {path}, weight {weight}: {ok} ok, {failed} failed, {}/s", per_second(*rate))?;
        writeln!(f, "             {Columns}")?;
        row(f, "first byte", &self.first_byte_us)?;
        writeln!(f)?;
        row(f, "operation", &self.operation_us)
    }
}

/// Returns the number of connects that are due `since_first` after the first one, of `most` at most.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0, and more than 2^64 is all")]
fn due(since_first: Duration, rate: f64, most: Option<u64>) -> u64 {
    ((since_first.as_secs_f64() * rate) as u64).saturating_add(1).min(most.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
