//! `sockdrawer load`: from the command line to a plan, and from its report to the exit code.

use crate::agents::Machines;
use crate::arguments::{LoadArguments, Policy};
use crate::budget::{self, BudgetLine};
use crate::junit::Junit;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::signals::Signal;
use crate::{agents, keys, limits, origin, plan, print, progress, signals, terminal, thresholds, words, workload};
use sockdrawer::{Address, Drain, Error, Pool};
use sockdrawer_load::results::Directory;
use sockdrawer_load::{Interval, Metrics, Observer, Order, Orders, Plan, Progress, Report, Sample, Stop, metrics};
use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::process;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Runs the load and tells what came of it.
pub(crate) fn run(arguments: LoadArguments) -> Result<Exit, Failure> {
    let mut plan = plan::plan(&arguments)?;
    if let Some(pid) =
        plan.server_pids.iter().find(|pid| arguments.many.server_agent.is_none() && !Path::new(&format!("/proc/{pid}")).exists())
    {
        return Err(workload::usage(format_args!("--server-pid {pid}: there is no such process: name one of the server's")));
    }
    // Agents look at what their own machines have.
    let force = arguments.force || arguments.many.asked_for();
    let BudgetLine { budget, words } = budget::keep_within(&mut plan, force).map_err(|need| budget::refused(&plan, &need))?;
    let text = plan::text(&plan, &arguments.threshold);
    if arguments.dry_run {
        let begin = format!("{}{words}\n{budget}", words::start(&plan));
        // As comments, so that all of it is a plan again.
        begin.lines().try_for_each(|line| print::line(format_args!("# {line}")))?;
        print::line(text.trim_end())?;
        return Ok(Exit::Ok);
    }
    let (mut output, mut junit) = (Output::open(arguments.json)?, Junit::open(arguments.junit)?);
    let directory = arguments.out.as_deref().map(|path| Directory::create(path, &text, plan.tls.is_some()));
    let directory = directory.transpose().map_err(Failure::usage)?;
    let mut machines = agents::start(&arguments.many, &output)?;
    limits::raise();
    let mut orders = Orders::of(&plan);
    if let Some(hosts) = &machines.hosts {
        orders = orders.for_agents(hosts.names());
    }
    if let Some((connections, per_second)) = plan::most(&plan).filter(|_| !arguments.yes) {
        orders = orders.up_to(connections, per_second, "the limit for a public address, without --yes");
    }
    let control = arguments.control.map(|path| sockdrawer_load::control(Address::Unix(path), &orders)).transpose()?;
    let metrics = arguments.metrics.map(|at| serve_metrics(at, &plan)).transpose()?;
    // From the first line on a signal ends a run in order.
    let stop = Stop::new();
    let signalled = stop_by_signals(&stop)?;
    output.tell_folded(words::start(&plan) + &words)?;
    if machines.hosts.is_none() {
        let told = if arguments.verbose { Some(budget) } else { budget.tight() };
        told.map_or(Ok(()), |budget| output.tell_folded(budget))?;
    }
    if let Some((_, served)) = &metrics {
        tell_where(served, &output)?;
    }
    let running = machines.start(&plan, arguments.force)?.obeying(&orders);
    let keys = keys::obey(&orders);
    suspend_by_signals(&orders, &stop)?;
    let live = progress::Live::new(words::title(&plan), plan.operations, keys.is_some());
    let (metrics, served) = metrics.unzip();
    let mut watching = Watching { live, directory, metrics };
    let report = running.finish(&stop, &mut watching);
    watching.live.end();
    drop(keys);
    for served in control.into_iter().chain(served) {
        served.shutdown(Drain::within(Duration::ZERO));
    }
    let mut report = report?;
    thresholds::judge(&arguments.threshold, &mut report)?;
    origin::write(&mut report, &plan, &arguments.threshold)?;
    // First what is kept, so that a reader that has gone takes nothing with it; the first that fails is told.
    let kept = watching.directory.as_ref().map_or(Ok(()), |directory| directory.finish(&report).map_err(Failure::run));
    let goes_on = arguments.many.on_agent_loss == Some(Policy::Continue);
    let judged = verdict(&report, goes_on);
    let written = output.report(&report).and(junit.load(&words::title(&plan), &report, judged == Exit::Ok));
    let page = watching.directory.as_ref().filter(|_| kept.is_ok()).map(Directory::page);
    let told = output.tell_folded(format_args!("{report}\n{}", words::verdict(&report, page.as_deref())));
    kept.and(written).and(told)?;
    Ok(signalled.get().map_or(judged, |signal| signal.exit()))
}

/// Receivers that are told how a run goes.
struct Watching {
    live: progress::Live,
    directory: Option<Directory>,
    metrics: Option<Metrics>,
}

fn serve_metrics(at: Address, plan: &Plan) -> Result<(Metrics, Pool), Error> {
    let kept = Metrics::new(plan);
    metrics(at, &kept).map(|served| (kept, served))
}

fn tell_where(metrics: &Pool, output: &Output) -> Result<(), Failure> {
    metrics.addresses().iter().try_for_each(|at| {
        let scheme = if let Address::Tcp(_) = at { "http://" } else { "" };
        output.tell(format_args!("metrics      {scheme}{at}/metrics"))
    })
}

impl Observer for &mut Watching {
    fn progress(&mut self, progress: &Progress) {
        self.live.show(progress);
    }

    fn sample(&mut self, sample: &Sample, interval: &Interval<'_>) {
        self.live.sample(sample);
        if let Some(metrics) = &self.metrics {
            metrics.add(sample, interval);
        }
        if let Some(Err(error)) = self.directory.as_mut().map(|directory| directory.add(sample, interval)) {
            self.live.note(format_args!("warning: {error}; the run goes on, its samples end here"));
        }
    }
}

/// Makes one run of several. On a terminal `line` says where it is, and is wiped out at its end.
pub(crate) fn one(
    (plan, machines, force): (&Plan, &mut Machines, bool),
    stop: &Stop,
    line: impl Fn(&Progress) -> String,
) -> Result<Report, Failure> {
    let on_terminal = stderr().is_terminal();
    let show = |progress: &Progress| {
        if on_terminal {
            print::rewrite(line(progress));
        }
    };
    let report = machines.start(plan, force)?.finish(stop, show);
    if on_terminal {
        print::rewrite("");
    }
    Ok(report?)
}

/// Converts an error into a failure: what the pool calls its limit is an option here.
pub(crate) fn failure(error: Error) -> Failure {
    match error {
        Error::LimitTooHigh { .. } => workload::usage(format_args!("--connections is too high: {error}")),
        error => error.into(),
    }
}

/// The exit where processes that ran clients died: what they did not say is not known.
const AGENTS_LOST: Exit = Exit::Own(4);

/// Returns the exit of a run. An agent that was lost is a failure of its own, unless the run was to go on without it.
pub(crate) fn verdict(report: &Report, goes_on: bool) -> Exit {
    if report.client.lost > 0 && !goes_on {
        return AGENTS_LOST;
    }
    let of_the_run = if report.is_clean() { Exit::Ok } else { Exit::Failed };
    thresholds::verdict(&report.thresholds).unwrap_or(of_the_run)
}

/// Time in which most servers answer what is under way.
const AT_REST: Duration = Duration::from_millis(150);

/// Suspends the run before Ctrl-Z stops the process, so that nothing waits for an answer while nothing reads it; the run finds out how long it was
/// stopped, by whatever signal.
fn suspend_by_signals(orders: &Orders, stop: &Stop) -> Result<(), Failure> {
    let (stopped, continued, stop) = (orders.clone(), orders.clone(), stop.clone());
    let stopping = move || {
        let suspends = !stopped.progress().suspended;
        if suspends {
            stopped.give(Order::Suspend);
            stop.wait(AT_REST);
        }
        terminal::leave();
        keys::without(signals::stop_now);
        if suspends {
            stopped.give(Order::Resume);
        }
    };
    signals::watch_stops(stopping, move || {
        continued.give(Order::Continued);
    })
}

/// Nobody presses a key twice in this time.
const ONE_KEY: Duration = Duration::from_millis(100);

/// Ends the run at the first signal, and what was reached is reported; the second ends the program.
pub(crate) fn stop_by_signals(stop: &Stop) -> Result<Arc<OnceLock<Signal>>, Failure> {
    let first = Arc::new(OnceLock::new());
    let (told, stop) = (first.clone(), stop.clone());
    let mut since: Option<Instant> = None;
    signals::watch(move |signal| {
        // A key may send two signals: the terminal sends one, and timeout(1) the other.
        if since.get_or_insert_with(Instant::now).elapsed() < ONE_KEY && told.get() == Some(&signal) {
            return;
        }
        if told.set(signal).is_err() {
            keys::restore();
            process::exit(signal.exit().code().into());
        }
        stop.stop();
    })?;
    Ok(first)
}
