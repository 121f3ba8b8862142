//! `sockdrawer load acks --ladder`: one run after the other, and a row for each as it comes.

use crate::agents::Machines;
use crate::arguments::LoadArguments;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::workload::{self, first_given, usage};
use crate::{limits, load, plan};
use sockdrawer_load::{Ladder, Progress, Row, Rows, Stop};
use std::time::Duration;

/// Each row, unless something else is said.
const DURATION: Duration = Duration::from_secs(2);

/// Runs all rows, or those until a signal comes.
pub(crate) fn run(arguments: LoadArguments) -> Result<Exit, Failure> {
    plan::options_belong(&arguments)?;
    if arguments.targets().next().is_some() {
        return Err(usage("--ladder compares servers inside this program: leave TARGET out, or --ladder"));
    }
    let of_one_run = [
        ("--threshold", !arguments.threshold.is_empty()),
        ("--out", arguments.out.is_some()),
        ("--metrics", arguments.metrics.is_some()),
        ("--junit", arguments.junit.is_some()),
        ("--verbose", arguments.verbose),
        ("--agents", arguments.many.asked_for()),
    ];
    if let Some(option) = first_given(of_one_run) {
        return Err(usage(format_args!("{option} is for one run, --ladder makes several: leave one out")));
    }
    if arguments.tls.given() {
        return Err(usage("--ladder compares acks without TLS: leave its options out, or --ladder"));
    }
    let ladder = ladder(&arguments)?;
    let mut output = Output::open(arguments.json)?;
    let stop = Stop::new();
    let signalled = load::stop_by_signals(&stop)?;
    limits::raise();
    output.tell(workload::ladder(&ladder))?;
    output.tell(Rows::HEAD)?;
    let (rungs, mut rows) = (ladder.rungs(), Rows::default());
    for (index, rung) in rungs.iter().enumerate() {
        let line = |progress: &Progress| {
            let (row, of, name, elapsed) = (index + 1, rungs.len(), &rung.name, progress.elapsed.as_secs_f64());
            format!("row {row} of {of}: {name}, {elapsed:.1} s")
        };
        let report = load::one((&rung.plan, &mut Machines::default(), false), &stop, line)?;
        // A run that was cut short is no row to compare with.
        if signalled.get().is_some() {
            break;
        }
        output.tell(rows.add(rung, report))?;
    }
    if rows.runs.len() < rungs.len() {
        output.tell(format_args!("interrupted after {} of {} rows", rows.runs.len(), rungs.len()))?;
    }
    let lessons = rows.lessons();
    if !lessons.is_empty() {
        output.tell(lessons)?;
    }
    output.report(&rows)?;
    let clean = rows.runs.iter().all(|Row { report, .. }| report.is_clean());
    Ok(signalled.get().map_or(if clean { Exit::Ok } else { Exit::Failed }, |signal| signal.exit()))
}

fn ladder(arguments: &LoadArguments) -> Result<Ladder, Failure> {
    let duration = arguments.duration.unwrap_or(DURATION);
    let timeout = arguments.operation.timeout.unwrap_or(plan::LONG_TIMEOUT);
    let messages = workload::messages(&arguments.acks, &arguments.operation, plan::connections(arguments))?;
    Ok(Ladder { duration, messages, timeout })
}
