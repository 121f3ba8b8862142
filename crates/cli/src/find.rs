//! `sockdrawer find`: one run after the other, until it is known what holds and what stops it.

use crate::arguments::{FindArguments, Vary};
use crate::budget;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::values::number;
use crate::workload::first_given;
use crate::{limits, load, origin, plan, thresholds};
use serde::Serialize;
use sockdrawer_load::{End, Judgement, Plan, Progress, Report, Search, Stop, Wall, cause, time};
use std::fmt;
use std::time::Duration;

/// How long the connections of a try are held, or its operations go on, unless something else is said.
const EACH: Duration = Duration::from_secs(5);
/// What a search begins with, unless something else is said.
const FIRST: u64 = 1_000;
/// Connects per second where connections are varied and nothing else is said: a search makes many.
const CONNECT_RATE: f64 = 5_000.0;

/// Runs the search and tells what came of it.
pub(crate) fn run(mut arguments: FindArguments) -> Result<Exit, Failure> {
    let vary = arguments.vary;
    let base = base(&mut arguments)?;
    // As far as it may go: a search that is refused half-way has told nothing.
    if !arguments.load.yes {
        plan::guard(&varied(&base, vary, arguments.max))?;
    }
    let mut output = Output::open(arguments.load.json.take())?;
    let stop = Stop::new();
    let signalled = load::stop_by_signals(&stop)?;
    limits::raise();
    let first = arguments.load.connections.filter(|_| vary == Vary::Connections).map_or(FIRST, |first| first as u64);
    let mut search = Search::new(first, arguments.max);
    output.tell(format_args!("the most {} that holds, from {first} to at most {}", vary.words(), arguments.max))?;
    let mut tries = Tries { vary: vary.name(), found: None, wall: None, runs: Vec::new() };
    let mut failure = None;
    while let Some(amount) = search.next() {
        let confirming = search.is_confirming();
        let tried = match one(&arguments, (&base, amount), &stop) {
            Ok(tried) => tried,
            // What was tried until then is told all the same.
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        // What was cut short is no answer.
        if signalled.get().is_some() {
            break;
        }
        output.tell(tried.line(vary, confirming))?;
        search.tell(tried.held);
        if !tried.held {
            tries.wall.clone_from(&tried.wall);
        }
        tries.runs.push(tried);
    }
    tries.found = search.found();
    output.tell(tries.conclusion(vary, &search, failure.is_some() || signalled.get().is_some()))?;
    output.report(&tries)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let exit = if tries.found.is_some() { Exit::Ok } else { Exit::Threshold };
    Ok(signalled.get().map_or(exit, |signal| signal.exit()))
}

/// The plan of every try, but for what is varied.
fn base(arguments: &mut FindArguments) -> Result<Plan, Failure> {
    let load = &mut arguments.load;
    if !load.stage.is_empty() {
        return Err(usage("--stage: a search changes the connections by itself: leave it out"));
    }
    if load.operations.is_some() {
        return Err(usage("--operations: each try takes its time, not a number of operations: use --duration or --hold"));
    }
    let one_run = [
        ("--out", load.out.is_some()),
        ("--control", load.control.is_some()),
        ("--dry-run", load.dry_run),
        ("--ladder", load.acks.ladder),
    ];
    if let Some(option) = first_given(one_run) {
        return Err(usage(format_args!(
            "{option} is for one run, and a search makes several: leave it out, --json has all of them"
        )));
    }
    let rate_given = load.connect_rate.is_some();
    let time_given = load.duration.is_some() || load.hold.is_some();
    let mut plan = plan::plan(load)?;
    if arguments.vary == Vary::Connections && !rate_given && plan.connect_rate.is_some() {
        plan.connect_rate = Some(CONNECT_RATE);
    }
    if !time_given {
        // Where connections are replaced, none is the last.
        plan.end = if plan.renews() { End::AfterFirstConnect(EACH) } else { End::AfterLastConnect(EACH) };
    }
    if arguments.vary == Vary::Rate && !plan.workload.clone().set_rate(1.0, 1) {
        let name = plan.workload.name();
        return Err(usage(format_args!("--vary rate: a connection of {name} has one operation: use --vary connect-rate")));
    }
    Ok(plan)
}

/// What a search changes, in the plan of a try.
fn varied(base: &Plan, vary: Vary, amount: u64) -> Plan {
    let mut plan = base.clone();
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    let rate = amount as f64;
    match vary {
        Vary::Connections => plan.connections = usize::try_from(amount).unwrap_or(usize::MAX),
        Vary::ConnectRate => plan.connect_rate = Some(rate),
        Vary::Rate => _ = plan.workload.set_rate(rate, base.connections),
    }
    plan
}

/// One try. What this machine has too little for does not hold, and is not run.
fn one(arguments: &FindArguments, (base, amount): (&Plan, u64), stop: &Stop) -> Result<Tried, Failure> {
    let mut plan = varied(base, arguments.vary, amount);
    if let Err(need) = budget::keep_within(&mut plan, arguments.load.force) {
        return Ok(Tried { amount, held: false, thresholds: Vec::new(), wall: Some(need.wall()), report: None });
    }
    let what = arguments.vary.words();
    let line = |progress: &Progress| {
        let (standing, elapsed) = (progress.standing, progress.elapsed.as_secs_f64());
        format!("{amount} {what}: {standing} connections stand, {elapsed:.1} s")
    };
    let mut report = load::one(&plan, stop, line)?;
    if let Some(failure) = nothing_there(&plan, &report) {
        return Err(failure);
    }
    thresholds::judge(&arguments.load.threshold, &mut report)?;
    origin::write(&mut report, &plan, &arguments.load.threshold)?;
    let held = load::verdict(&report) == Exit::Ok;
    let wall = report.wall.clone();
    Ok(Tried { amount, held, thresholds: report.thresholds.clone(), wall, report: Some(Box::new(report)) })
}

/// A target that lets nobody in is no question of how many: there is nothing to search.
fn nothing_there(plan: &Plan, report: &Report) -> Option<Failure> {
    let most = report.errors.iter().max_by_key(|error| error.count)?;
    let refuses =
        most.phase == "connect" && matches!(most.errno.as_str(), "ECONNREFUSED" | "ENOENT" | "EHOSTUNREACH" | "ENETUNREACH");
    let cause = cause(&most.phase, &most.errno, None).filter(|_| refuses && report.connections.established == 0)?;
    let targets = plan.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    Some(Failure::preflight(format_args!("cannot connect to {targets} ({}): {}: {}", most.errno, cause.why, cause.remedy)))
}

/// What came of a search. Serialized, it is the documented result.
#[derive(Debug, Serialize)]
struct Tries {
    /// What was varied.
    vary: &'static str,
    /// The most that held, twice.
    found: Option<u64>,
    /// What stopped the least that did not.
    wall: Option<Wall>,
    runs: Vec<Tried>,
}

/// One try.
#[derive(Debug, Serialize)]
struct Tried {
    amount: u64,
    held: bool,
    thresholds: Vec<Judgement>,
    wall: Option<Wall>,
    /// None: it was not run, because this machine has too little for it.
    report: Option<Box<Report>>,
}

impl Tried {
    fn line(&self, vary: Vary, confirming: bool) -> String {
        let word = match (self.held, confirming) {
            (true, true) => "holds again",
            (true, false) => "holds",
            (false, _) => "does not hold",
        };
        let mut line = format!("{:>10} {}  {word:<13}", self.amount, vary.words());
        if let Some(report) = &self.report {
            let p99 = report.latency_us.operation.p99.map_or_else(|| "-".to_owned(), time);
            let (failed, lost) = (report.connections.failed + report.operations.failed, report.connections.lost);
            let rate = number(report.operations.per_second.round());
            line += &format!("  p99 {p99}, {rate} operations/s, {failed} failed, {lost} lost");
        }
        let broken = self.thresholds.iter().filter(|judgement| !judgement.ok);
        broken.for_each(|judgement| line += &format!("; not {}", judgement.expr));
        if let Some(wall) = self.wall.as_ref().filter(|_| !self.held) {
            line += &format!("; wall: {}", wall.name);
        }
        line
    }
}

impl Tries {
    fn conclusion(&self, vary: Vary, search: &Search, interrupted: bool) -> String {
        let what = vary.words();
        let found = match self.found {
            Some(found) => format!("found: {found} {what}, twice"),
            None if interrupted => return "interrupted before it was known".to_owned(),
            None => format!("found: nothing holds, not even 1 {what}"),
        };
        let Some(failed) = search.failed() else { return format!("{found}: the most that was asked for (--max)") };
        let wall = self.wall.as_ref().map_or_else(
            || "what stopped it is not known".to_owned(),
            |Wall { name, why, remedy }| format!("the wall is {name}: {why}; {remedy}"),
        );
        format!("{found}; {failed} do not hold: {wall}")
    }
}

fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage_of("find", line)
}
