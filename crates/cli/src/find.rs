//! `sockdrawer find`: one run after the other, until it is known what holds and what stops it.

use crate::agents::Machines;
use crate::arguments::{FindArguments, Vary};
use crate::budget;
use crate::names::Protocol;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::values::number;
use crate::workload::first_given;
use crate::{agents, limits, load, origin, plan, thresholds};
use sockdrawer_catalog::time;
use sockdrawer_load::doctor::listener;
use sockdrawer_load::results::PageDirectory;
use sockdrawer_load::{End, Errors, Found, Life, Plan, Progress, Report, Search, Stop, Try, cause, thousands};
use std::fmt;
use std::time::Duration;

/// Time for which the connections of a try are held, or its operations go on, unless something else is said.
const EACH: Duration = Duration::from_secs(5);
/// Amount that a search begins with, unless something else is said.
const FIRST: u64 = 1_000;
/// A rate is measured over at least this time.
const LEAST: Duration = Duration::from_secs(1);
/// Connections that stay are connected in this part of a try that ends after its first connect.
const CONNECTING: f64 = 0.9;
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
    if let Some(need) = base.targets.iter().find_map(listener) {
        let remedy = need.remedy.as_deref().unwrap_or_default();
        return Err(Failure::preflight(format_args!("cannot {}: {remedy}", need.how)));
    }
    let mut output = Output::open(arguments.load.json.take())?;
    let directory = arguments.load.out.as_deref().map(PageDirectory::create).transpose().map_err(Failure::usage)?;
    let stop = Stop::new();
    let signalled = load::stop_by_signals(&stop)?;
    limits::raise();
    let first = arguments.load.connections.filter(|_| vary == Vary::Connections).map_or(FIRST, |first| first as u64);
    let first = first.min(arguments.max);
    let mut search = Search::new(first, arguments.max);
    output.tell(begin(&base, vary, &search, (first, arguments.max)))?;
    let mut machines = agents::start(&arguments.load.many, &output)?;
    let mut found = Found::new(vary.name(), vary.words());
    found.command = Some(origin::command());
    let mut failure = None;
    while failure.is_none()
        && let Some(amount) = search.next()
    {
        let confirming = search.is_confirming();
        let tried = match one(&arguments, &mut machines, (&base, amount, search.left()), &stop) {
            Ok(tried) => tried,
            // The tries until then are told nevertheless.
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        // A try that was cut short is no answer.
        if signalled.get().is_some() {
            break;
        }
        match (tried.held, &tried.report) {
            (false, None) => search.refuse(),
            (false, Some(report)) if nothing_worked(report) => search.nothing_worked(),
            (held, _) => search.tell(held),
        }
        let left = match (search.clone().next(), search.is_doubtful()) {
            (None, _) => String::new(),
            (_, true) => format!("; tried again; about {} left", search.left()),
            (_, false) => format!("; about {} left", search.left()),
        };
        let told = output.tell(tried.line(vary.words(), confirming) + &left);
        if let Some(report) = tried.report.as_ref().filter(|report| amount == 1 && !tried.held && nothing_worked(report)) {
            failure = report.most_frequent_error().map(|error| every_operation_fails(report, error));
            found.add(tried);
            break;
        }
        found.add(tried);
        failure = told.err();
    }
    found.take(&search, failure.is_none() && signalled.get().is_none());
    // First what is kept, so that a reader that has gone takes nothing with it; the first that fails is told.
    let kept = directory.map_or(Ok(()), |directory| directory.search(&found).map_err(Failure::run));
    let written = output.report(&found);
    kept.and(written).and(output.tell(&found))?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let exit = if found.found.is_some() { Exit::Ok } else { thresholds::MISSED };
    Ok(signalled.get().map_or(exit, |signal| signal.exit()))
}

/// Returns the line that a search starts with: how far it goes, how long a try takes, and how many there may be.
fn begin(base: &Plan, vary: Vary, search: &Search, (first, most): (u64, u64)) -> String {
    let each = match base.end {
        End::AfterFirstConnect(time) => time::format(time),
        End::AfterLastConnect(time) => match base.connect_rate.filter(|_| vary == Vary::Connections) {
            Some(rate) => format!("{} after its connects, at {}/s", time::format(time), number(rate)),
            None => format!("{} after its connects", time::format(time)),
        },
        End::Never | End::AfterStages => "as long as its operations".to_owned(),
    };
    format!(
        "the most {} that hold, from {} to {}: a try takes {each}, what fails is tried again; about {} tries if all hold",
        vary.words(),
        thousands(first),
        thousands(most),
        search.left()
    )
}

/// Returns the plan of every try, but for what is varied.
fn base(arguments: &mut FindArguments) -> Result<Plan, Failure> {
    let load = &mut arguments.load;
    if !load.stage.is_empty() {
        return Err(usage("--stage: a search changes the connections by itself: leave it out"));
    }
    if load.operations.is_some() {
        return Err(usage("--operations: each try takes its time, not a number of operations: use --duration or --hold"));
    }
    let one_run = [
        ("--control", load.control.is_some()),
        ("--metrics", load.metrics.is_some()),
        ("--junit", load.junit.is_some()),
        ("--dry-run", load.dry_run),
        ("--verbose", load.verbose),
        ("--ladder", load.acks.ladder),
    ];
    if arguments.vary == Vary::Rate && load.operation.rate.is_some() {
        return Err(usage("--rate is what --vary rate looks for: leave one out, --max says how far it goes"));
    }
    if let Some(option) = first_given(one_run) {
        return Err(usage(format_args!(
            "{option} is for one run, and a search makes several: leave it out, --json has all of them"
        )));
    }
    // A search for connections is about holding them: each is asked once in a try, or every few seconds.
    if arguments.vary == Vary::Connections && load.protocol() == Protocol::Ping {
        let each = load.hold.or(load.duration).unwrap_or(EACH).min(EACH);
        load.operation.interval.get_or_insert(each);
    }
    let rate_given = load.connect_rate.is_some();
    let time_given = load.duration.is_some() || load.hold.is_some();
    let mut plan = plan::plan(load)?;
    if arguments.vary == Vary::Connections && !rate_given && plan.connect_rate.is_some() {
        plan.connect_rate = Some(CONNECT_RATE);
    }
    if !time_given {
        // Where connections are replaced, none is the last.
        let held = if arguments.vary == Vary::ConnectRate { LEAST } else { EACH };
        plan.end = if plan.renews() { End::AfterFirstConnect(EACH) } else { End::AfterLastConnect(held) };
    }
    if arguments.vary != Vary::Connections {
        let time = match plan.end {
            End::AfterFirstConnect(time) | End::AfterLastConnect(time) => time,
            End::Never | End::AfterStages => EACH,
        };
        if time < LEAST {
            return Err(usage(format_args!(
                "--vary {}: a rate shows over a second or more, and a try takes {}: use -d 1s or more",
                arguments.vary.name(),
                time::format(time)
            )));
        }
    }
    if arguments.vary == Vary::ConnectRate {
        makes_so_many(&plan, arguments.max)?;
    }
    if arguments.vary == Vary::Rate && !plan.workload.clone().set_rate(1.0, 1) {
        let name = plan.workload.name();
        return Err(usage(format_args!("--vary rate: a connection of {name} has one operation: use --vary connect-rate")));
    }
    Ok(plan)
}

/// Returns whether a try makes connects all the time. Connections that stay are made once.
fn renews(plan: &Plan) -> bool {
    plan.is_short() || plan.lifetime.is_some()
}

/// Refuses a search for a rate that its connections, which stay, would be too few for.
fn makes_so_many(plan: &Plan, most: u64) -> Result<(), Failure> {
    let (connections, name) = (plan.connections as u64, plan.workload.name());
    if renews(plan) || connections >= most {
        return Ok(());
    }
    let instead = match plan.workload.properties().life {
        Life::Kept => "add --close server",
        _ => "use hello, or http with --close",
    };
    Err(usage(format_args!(
        "--vary connect-rate: connections of {name} stay, so a try makes {connections} connects and no more: {instead}, or use as many \
         connections as --max: -c {connections} --max {connections}"
    )))
}

/// Returns the plan of a try, with what a search changes in it.
fn varied(base: &Plan, vary: Vary, amount: u64) -> Plan {
    let mut plan = base.clone();
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    let rate = amount as f64;
    match vary {
        Vary::Connections => plan.connections = usize::try_from(amount).unwrap_or(usize::MAX),
        Vary::ConnectRate => {
            plan.connect_rate = Some(rate);
            if !renews(base) {
                let within = match plan.end {
                    End::AfterFirstConnect(time) => time.mul_f64(CONNECTING).min(EACH),
                    _ => EACH,
                };
                let connects = amount.saturating_mul(within.as_secs().max(1));
                plan.connections = plan.connections.min(usize::try_from(connects).unwrap_or(usize::MAX));
            }
        }
        Vary::Rate => _ = plan.workload.set_rate(rate, base.connections),
    }
    plan
}

/// Runs a try. An amount that this machine has too little for does not hold, and is not run.
fn one(
    arguments: &FindArguments,
    machines: &mut Machines,
    (base, amount, left): (&Plan, u64, u64),
    stop: &Stop,
) -> Result<Try, Failure> {
    let mut plan = varied(base, arguments.vary, amount);
    let force = arguments.load.force;
    // Agents look at what their own machines have.
    if let Err(need) = budget::keep_within(&mut plan, force || machines.hosts.is_some()) {
        return Ok(Try { amount, reached: None, held: false, thresholds: Vec::new(), wall: Some(need.wall()), report: None });
    }
    let what = arguments.vary.words();
    let line = |progress: &Progress| {
        let (open, elapsed) = (progress.standing, progress.elapsed.as_secs_f64());
        format!("{amount} {what}: {open} connections open, {elapsed:.1} s; about {left} tries left")
    };
    let mut report = load::one((&plan, machines, force), stop, line)?;
    if let Some(failure) = nothing_there(&plan, &report) {
        return Err(failure);
    }
    thresholds::judge(&arguments.load.threshold, &mut report)?;
    origin::write(&mut report, &plan, &arguments.load.threshold)?;
    let reached = reached(arguments.vary, &report);
    // An amount that was not reached does not hold, whatever the thresholds say of what was.
    let held = load::verdict(&report, false) == Exit::Ok && is_reached(arguments.vary, amount, reached, &report);
    let wall = report.wall.clone();
    let thresholds = report.thresholds.clone();
    Ok(Try { amount, reached: Some(reached), held, thresholds, wall, report: Some(Box::new(report)) })
}

/// Returns what was measured of the quantity that is varied.
fn reached(vary: Vary, report: &Report) -> f64 {
    match vary {
        #[expect(clippy::cast_precision_loss, reason = "connections are far below 2^53")]
        Vary::Connections => report.connections.peak as f64,
        Vary::Rate => report.rate.map_or(report.operations.per_second, |rate| rate.begun),
        Vary::ConnectRate => report.connections.per_second,
    }
}

fn is_reached(vary: Vary, amount: u64, reached: f64, report: &Report) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let seconds = match vary {
        // All of them, but for those that a busy machine is late with.
        Vary::Connections => return Try::is_reached(amount, reached, 1.0) && reached >= 0.95 * amount as f64,
        Vary::Rate => report.seconds,
        Vary::ConnectRate => report.connections.established as f64 / reached.max(f64::MIN_POSITIVE),
    };
    Try::is_reached(amount, reached, seconds)
}

fn nothing_worked(report: &Report) -> bool {
    report.operations.ok == 0 && report.operations.failed + report.connections.failed > 0
}

fn every_operation_fails(report: &Report, error: &Errors) -> Failure {
    let cause = report.cause(error).map_or_else(String::new, |cause| format!(": {cause}"));
    Failure::preflight(format_args!("every operation fails: {} {}{cause}", error.phase, error.errno))
}

/// Returns the failure where a target lets nobody in. That is no question of how many: there is nothing to search.
fn nothing_there(plan: &Plan, report: &Report) -> Option<Failure> {
    let most = report.most_frequent_error()?;
    let targets = plan.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    if most.phase == "handshake" && report.connections.established == 0 {
        return Some(Failure::preflight(format_args!("no TLS handshake with {targets} succeeds: {}", most.errno)));
    }
    // A server that is busy answers so, too.
    let is_busy = most.phase == "status" && (most.errno.starts_with('5') || most.errno == "429");
    if matches!(most.phase.as_ref(), "status" | "verify" | "format") && !is_busy && nothing_worked(report) {
        return Some(every_operation_fails(report, most));
    }
    let refuses =
        most.phase == "connect" && matches!(most.errno.as_str(), "ECONNREFUSED" | "ENOENT" | "EHOSTUNREACH" | "ENETUNREACH");
    let cause = cause(&most.phase, &most.errno, None).filter(|_| refuses && report.connections.established == 0)?;
    Some(Failure::preflight(format_args!("cannot connect to {targets}: {}: {}: {}", most.errno, cause.why, cause.remedy)))
}

fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage_of("sockdrawer find", line)
}
