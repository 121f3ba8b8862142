//! The ladder: one way to acknowledge after the other, each a run of its own against a server in this process, so that its steps can
//! be compared.

use crate::numbers::float;
use crate::numbers::time;
use crate::plan::{End, Plan};
use crate::report::Report;
use crate::workload::{Errors, Messages, Reading, Workload};
use serde::Serialize;
use sockdrawer_catalog::acks::AckPattern;
use std::fmt;
use std::time::Duration;

/// The one connection shows what a stream costs, eight of them what a server does.
const CONNECTIONS: [usize; 2] = [1, 8];
const AFTER: Duration = Duration::from_millis(5);
/// Parameter of `every=K`, with which the ladder ends. With so many messages per ack each costs a hundredth of an ack.
const EVERY: u32 = 1_000;

/// Settings that all rows share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ladder {
    /// Time that each row takes.
    pub duration: Duration,
    /// The messages; the pattern and the reading are those of the row.
    pub messages: Messages,
    /// Timeout of connects and messages.
    pub timeout: Duration,
}

/// Row before it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// The pattern, and how the server reads where that is not by whole reads.
    pub name: String,
    /// The run.
    pub plan: Plan,
}

impl Ladder {
    /// Returns the rows: all patterns with one connection, then all with eight. The first of each is what the others are compared with.
    pub fn rungs(&self) -> Vec<Rung> {
        let steps = [
            (AckPattern::Reply, Reading::Whole),
            (AckPattern::Timer(AFTER), Reading::TwoPerMessage),
            (AckPattern::Timer(AFTER), Reading::Whole),
            (AckPattern::Read, Reading::Whole),
            (AckPattern::Async { reads: 20, after: AFTER }, Reading::Whole),
            (AckPattern::Every(EVERY), Reading::Whole),
        ];
        let all = CONNECTIONS.into_iter().flat_map(|connections| steps.map(|step| (connections, step)));
        all.map(|(connections, (pattern, reading))| self.rung(connections, pattern, reading)).collect()
    }

    fn rung(&self, connections: usize, pattern: AckPattern, reading: Reading) -> Rung {
        let name = match reading {
            Reading::Whole => pattern.to_string(),
            Reading::TwoPerMessage => twice(&pattern.to_string()),
        };
        let workload = Workload::Acks(Messages { pattern, reading, ..self.messages });
        let end = End::AfterLastConnect(self.duration);
        let plan = Plan { connections, end, timeout: self.timeout, ..Plan::new(workload) };
        Rung { name, plan }
    }
}

/// Result of the ladder, as far as it got. Serialized, it is the documented result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rows {
    /// Rows, a row for each run that was finished.
    pub runs: Vec<Row>,
}

/// Result of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the [`Rung`].
    pub name: String,
    /// Number of connections that were asked for.
    #[serde(skip)]
    pub connections: usize,
    /// Messages per second, divided by those of the first row with as many connections; None where that one had none.
    pub speed_up: Option<f64>,
    /// Report of the run.
    #[serde(flatten)]
    pub report: Report,
}

impl Rows {
    /// Heads of the columns.
    pub const HEAD: &'static str =
        "pattern                      connections  messages/s  server CPU  client CPU        p50        p99  speed-up";

    /// Adds a row.
    pub fn add(&mut self, rung: &Rung, report: Report) -> &Row {
        let connections = rung.plan.connections;
        let first = self.runs.iter().find(|row| row.connections == connections);
        let base = first.map_or(report.operations.per_second, |row| row.report.operations.per_second);
        let speed_up = (base > 0.0).then(|| report.operations.per_second / base);
        self.runs.push(Row { name: rung.name.clone(), connections, speed_up, report });
        self.runs.last().expect("it was added")
    }

    /// Returns what is to be learned from the rows, a line for each; empty where too few rows were run.
    pub fn lessons(&self) -> String {
        let every = AckPattern::Every(EVERY).to_string();
        let timer = AckPattern::Timer(AFTER).to_string();
        let ratio = |what: &str, (dear, cheap): (&str, &str), than: &str| {
            let (connections, dear, cheap) = self.costs(dear, cheap)?;
            let (times, of) = (dear / cheap, if connections == 1 { "1 connection" } else { "8 connections" });
            Some(format!("{what} {times:.1} times the server's CPU of {than}: {dear:.1} ns and {cheap:.1} ns ({of})"))
        };
        let lessons = [
            ratio("two reads for each message take", (&twice(&timer), &timer), "whole reads"),
            ratio("an ack for each message takes", ("reply", &every), &format!("one for {EVERY}")),
            self.bound(&timer),
        ];
        lessons.into_iter().flatten().collect::<Vec<String>>().join("\n")
    }

    /// Returns the server's CPU for a message in two rows with as many connections, with as many as possible.
    fn costs(&self, one: &str, other: &str) -> Option<(usize, f64, f64)> {
        let cost = |name, connections| self.row(name, connections).and_then(Row::server_cpu_ns);
        CONNECTIONS.into_iter().rev().find_map(|count| Some((count, cost(one, count)?, cost(other, count)?)))
    }

    /// Returns the rate that a timer lets pass, in words, where that was what bounded the row.
    fn bound(&self, timer: &str) -> Option<String> {
        let row = self.row(timer, 1)?;
        let window = row.report.acks.as_ref()?.window;
        let most = float(window) / AFTER.as_secs_f64();
        let bounds = (most / 2.0..=most * 1.1).contains(&row.report.operations.per_second);
        let rate = millions(most);
        bounds.then(|| {
            let each = sockdrawer_catalog::time::format(AFTER);
            format!("with {timer} a connection waits for its acks: {window} messages each {each} are {rate}/s at most (--window)")
        })
    }

    fn row(&self, name: &str, connections: usize) -> Option<&Row> {
        self.runs.iter().find(|row| row.name == name && row.connections == connections)
    }
}

/// Returns the name of a row of which the server reads twice for each message.
fn twice(pattern: &str) -> String {
    format!("{pattern}, 2 reads a message")
}

impl Row {
    fn server_cpu_ns(&self) -> Option<f64> {
        self.report.acks.as_ref().and_then(|acks| acks.server_cpu_ns)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.report;
        let times = [report.latency_us.operation.p50, report.latency_us.operation.p99];
        let [p50, p99] = times.map(|value| value.map_or_else(|| "-".to_owned(), time));
        let client = report.acks.as_ref().and_then(|acks| acks.client_cpu_ns);
        let [server, client] =
            [self.server_cpu_ns(), client].map(|cpu| cpu.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.1} ns")));
        let speed_up = self.speed_up.map_or_else(|| "-".to_owned(), |times| format!("{times:.2} x"));
        let (rate, connections) = (millions(report.operations.per_second), self.connections);
        write!(f, "{:<29}{connections:>11}{rate:>12}{server:>12}{client:>12}{p50:>11}{p99:>11}{speed_up:>10}", self.name)?;
        for Errors { phase, errno, count, .. } in &report.errors {
            write!(f, "\n  error: {phase} {errno}: {count}")?;
        }
        Ok(())
    }
}

fn millions(per_second: f64) -> String {
    format!("{:.2} M", per_second / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;
    use crate::workload::Acks;

    fn ladder() -> Ladder {
        let messages = Messages {
            pattern: AckPattern::Read,
            reading: Reading::Whole,
            size: 5,
            batch: 10,
            window: 100,
            interval: Duration::ZERO,
        };
        Ladder { duration: Duration::from_secs(2), messages, timeout: Duration::from_secs(30) }
    }

    /// Returns the report of a row: messages per second, and the server's nanoseconds for each.
    fn measured(per_second: f64, server_cpu_ns: Option<f64>) -> Report {
        let mut report = Report { errors: Vec::new(), ..report() };
        report.operations.per_second = per_second;
        report.acks = Some(Acks {
            pattern: String::new(),
            size: 5,
            batch: 10,
            window: 100,
            rate: None,
            written: 1,
            bytes_per_second: 1.0,
            acks: 1,
            messages_per_ack: None,
            client_cpu_ns: Some(2.0),
            server_cpu_ns,
            delayed_ack: None,
        });
        report
    }

    #[test]
    fn rows_are_compared_with_the_first_of_as_many_connections() {
        let rungs = ladder().rungs();
        let mut rows = Rows::default();
        for (index, rung) in rungs.iter().enumerate() {
            rows.add(
                rung,
                measured(if index < 6 { 1e6 } else { 2e6 } * (1 + index % 6) as f64, Some(1_000.0 / (1 + index) as f64)),
            );
        }
        let speed_ups: Vec<_> = rows.runs.iter().filter_map(|row| row.speed_up).collect();
        assert_eq!(speed_ups, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(
            rows.lessons(),
            "two reads for each message take 1.1 times the server's CPU of whole reads: 125.0 ns and 111.1 ns (8 connections)\n\
             an ack for each message takes 1.7 times the server's CPU of one for 1000: 142.9 ns and 83.3 ns (8 connections)",
            "of the rows with the most connections"
        );
    }

    #[test]
    fn columns_are_below_their_heads() {
        let rungs = ladder().rungs();
        let mut rows = Rows::default();
        let all = [(12.5e6, Some(3.25)), (0.0, None)];
        let lines: Vec<String> =
            rungs.iter().zip(all).map(|(rung, (rate, cpu))| rows.add(rung, measured(rate, cpu)).to_string()).collect();
        assert_eq!(
            lines,
            [
                "reply                                  1     12.50 M      3.2 ns      2.0 ns    12.5 us     2.00 s    1.00 x",
                "timer=5ms, 2 reads a message           1      0.00 M           -      2.0 ns    12.5 us     2.00 s    0.00 x",
            ]
        );
        assert!(lines.iter().all(|line| line.len() == Rows::HEAD.len()));
        assert_eq!(rows.lessons(), "", "nothing to compare yet");
        let rate = 100.0 / 0.005;
        rows.add(&rungs[2], measured(0.9 * rate, Some(1.57)));
        assert_eq!(
            rows.lessons(),
            "with timer=5ms a connection waits for its acks: 100 messages each 5ms are 0.02 M/s at most (--window)",
            "the row with two reads has no cost"
        );
        let mut failed = measured(1.0, None);
        failed.errors =
            vec![Errors { phase: "verify".into(), errno: "WRONG_BYTES".to_owned(), count: 2, first: None, last: None }];
        assert!(rows.add(&rungs[3], failed).to_string().ends_with("\n  error: verify WRONG_BYTES: 2"));
        assert!(
            serde_json::to_string(&rows)
                .expect("it has no odd keys")
                .starts_with(r#"{"runs":[{"name":"reply","speed_up":1.0,"schema":"sockdrawer.load/2""#)
        );
    }
}
