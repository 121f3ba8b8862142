//! `sockdrawer load`: from the command line to a plan, and from its report to the exit code.

use crate::arguments::LoadArguments;
use crate::budget::{self, Told};
use crate::names::Protocol;
use crate::outcome::{Exit, Failure};
use crate::print::{People, Sink};
use crate::signals::{self, Signal};
use crate::values::{PositiveTime, Seed, Time};
use crate::{acks, limits, progress, thresholds, words};
use sockdrawer::{Address, Error};
use sockdrawer_load::{End, Observer, Plan, Progress, Report, Run, Stop, Workload};
use std::fmt;
use std::net::IpAddr;
use std::process;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// For a whole connection, or a message among many.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the load and tells what came of it.
pub(crate) fn run(arguments: LoadArguments) -> Result<Exit, Failure> {
    let mut plan = plan(&arguments)?;
    let Told { budget, words } = budget::keep_within(&mut plan, arguments.force)?;
    let people = People::beside(arguments.json.as_ref());
    let sink = arguments.json.map(Sink::open).transpose()?;
    let stop = Stop::new();
    let signalled = stop_by_signals(&stop)?;
    limits::raise();
    people.tell(words::start(&plan) + &words)?;
    people.tell(&budget)?;
    let running = Run::start(&plan).map_err(failure)?;
    let mut watching = Watching { live: progress::Live::new() };
    let report = running.finish(&stop, &mut watching);
    watching.live.end();
    let mut report = report?;
    thresholds::judge(&arguments.threshold, &mut report)?;
    people.tell(&report)?;
    if let Some(sink) = sink {
        sink.write(json(&report)?)?;
    }
    Ok(signalled.get().map_or(verdict(&report), |signal| signal.exit()))
}

/// All who are told how a run goes.
struct Watching {
    live: progress::Live,
}

impl Observer for &mut Watching {
    fn progress(&mut self, progress: &Progress) {
        self.live.show(progress);
    }
}

/// What the pool calls its limit is an option here.
pub(crate) fn failure(error: Error) -> Failure {
    match error {
        Error::LimitTooHigh { .. } => usage(format_args!("--connections is too high: {error}")),
        error => error.into(),
    }
}

fn verdict(report: &Report) -> Exit {
    let of_the_run = if report.is_clean() { Exit::Ok } else { Exit::Failed };
    thresholds::verdict(&report.thresholds).unwrap_or(of_the_run)
}

pub(crate) fn json(report: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(report).map_err(not_json)
}

pub(crate) fn not_json(error: serde_json::Error) -> Failure {
    Failure::run(format_args!("cannot write the report as JSON: {error}"))
}

/// The first signal ends the run, and what was reached is reported; the second ends the program.
pub(crate) fn stop_by_signals(stop: &Stop) -> Result<Arc<OnceLock<Signal>>, Failure> {
    let first = Arc::new(OnceLock::new());
    let (told, stop) = (first.clone(), stop.clone());
    signals::watch(move |signal| {
        if told.set(signal).is_err() {
            process::exit(signal.exit() as i32);
        }
        stop.stop();
    })?;
    Ok(first)
}

/// The high arguments: defaults filled in, and what makes no sense together refused.
fn plan(arguments: &LoadArguments) -> Result<Plan, Failure> {
    let workload = workload(arguments)?;
    let targets = arguments.targets.clone();
    let sources: Vec<IpAddr> = arguments.source.iter().map(|source| source.0).collect();
    sources_fit(&sources, &targets)?;
    Ok(Plan {
        targets,
        sources,
        connections: arguments.connections.in_memory(),
        operations: arguments.operations.map(|operations| operations.0),
        end: end(arguments, &workload)?,
        connect_rate: arguments.connect_rate.map(|rate| rate.0),
        timeout: arguments.timeout.map_or(default_timeout(&workload), |PositiveTime(timeout)| timeout),
        seed: arguments.seed.unwrap_or_else(Seed::chosen).0,
        ..Plan::new(workload)
    })
}

/// The first of these options that was given.
pub(crate) fn first_given<const N: usize>(options: [(&'static str, bool); N]) -> Option<&'static str> {
    options.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
}

/// An option of one workload makes no sense with another.
pub(crate) fn options_belong(arguments: &LoadArguments) -> Result<(), Failure> {
    let protocol = arguments.workload;
    if !matches!(protocol, Protocol::Echo | Protocol::Acks) && arguments.size.is_some() {
        return Err(misplaced("--size", "echo and acks", protocol));
    }
    if !matches!(protocol, Protocol::Ping | Protocol::Echo | Protocol::Acks) && arguments.interval.is_some() {
        return Err(misplaced("--interval", "ping, echo and acks", protocol));
    }
    if !matches!(protocol, Protocol::Acks | Protocol::Http) && arguments.rate.is_some() {
        return Err(misplaced("--rate", "acks and http", protocol));
    }
    if let Some(option) = arguments.http.given().filter(|_| protocol != Protocol::Http) {
        return Err(misplaced(option, "http", protocol));
    }
    if let Some(option) = arguments.acks.given().filter(|_| protocol != Protocol::Acks) {
        return Err(misplaced(option, "acks", protocol));
    }
    Ok(())
}

fn workload(arguments: &LoadArguments) -> Result<Workload, Failure> {
    options_belong(arguments)?;
    let interval = |default| arguments.interval.map_or(default, |Time(interval)| interval);
    match arguments.workload {
        Protocol::Ping => Ok(Workload::Ping { interval: interval(Duration::from_secs(5)) }),
        Protocol::Echo => {
            Ok(Workload::Echo { interval: interval(Duration::ZERO), size: arguments.size.map_or(4, |size| size.0) })
        }
        Protocol::Hello => Ok(Workload::Hello),
        Protocol::Http => arguments.http.wanted(arguments).map(Workload::Http),
        Protocol::Acks => acks::messages(arguments).map(Workload::Acks),
        Protocol::Exec => Err(usage("exec is a protocol to serve, no workload: use ping, echo, hello, http or acks")),
    }
}

fn end(arguments: &LoadArguments, workload: &Workload) -> Result<End, Failure> {
    match (arguments.duration, arguments.hold) {
        (_, Some(_)) if is_short(workload) => {
            let name = workload.name();
            Err(usage(format_args!("--hold needs connections that stay, those of {name} do not: use --duration")))
        }
        (_, Some(PositiveTime(hold))) => Ok(End::AfterLastConnect(hold)),
        (Some(PositiveTime(duration)), None) => Ok(End::AfterFirstConnect(duration)),
        (None, None) if arguments.operations.is_some() => Ok(End::Never),
        (None, None) => Ok(End::AfterFirstConnect(Duration::from_secs(10))),
    }
}

/// Whether an operation is a connection, or may be.
fn is_short(workload: &Workload) -> bool {
    matches!(workload, Workload::Hello | Workload::Http(_))
}

fn default_timeout(workload: &Workload) -> Duration {
    match workload {
        Workload::Ping { .. } | Workload::Echo { .. } => Duration::from_secs(1),
        _ => LONG_TIMEOUT,
    }
}

/// A socket of one family cannot be bound to an address of another. Without a target the server is on 127.0.0.1.
fn sources_fit(sources: &[IpAddr], targets: &[Address]) -> Result<(), Failure> {
    for source in sources {
        let fits = |target: &Address| matches!(target, Address::Tcp(target) if target.is_ipv4() == source.is_ipv4());
        if targets.is_empty() && !source.is_ipv4() {
            return Err(usage(format_args!(
                "--source {source}: the server in this program is on 127.0.0.1, use an IPv4 address"
            )));
        }
        if let Some(target) = targets.iter().find(|target| !fits(target)) {
            return Err(usage(format_args!("--source {source} cannot reach {target}: use a source of the target's kind")));
        }
    }
    Ok(())
}

fn misplaced(option: &str, owners: &str, protocol: Protocol) -> Failure {
    usage(format_args!("{option} is an option of {owners}, not of {protocol}: leave it out"))
}

pub(crate) fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage(format_args!("{line} (try: sockdrawer load --help)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Command;

    fn planned(words: &str) -> Result<Plan, Failure> {
        let words = ["sockdrawer", "load"].into_iter().chain(words.split_whitespace()).map(Into::into);
        match crate::usage::parse(words)? {
            Some(Command::Load(arguments)) => plan(&arguments),
            other => panic!("{other:?} is not load"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_workload() {
        let ping = planned("ping").expect("it needs no more");
        assert_eq!(ping.workload, Workload::Ping { interval: Duration::from_secs(5) });
        assert_eq!((ping.connections, ping.timeout, ping.operations), (64, Duration::from_secs(1), None));
        assert_eq!(ping.end, End::AfterFirstConnect(Duration::from_secs(10)));
        let echo = planned("echo 127.0.0.1:9000").expect("it needs no more");
        assert_eq!(echo.workload, Workload::Echo { interval: Duration::ZERO, size: 4 });
        assert_eq!(echo.targets, ["127.0.0.1:9000".parse().expect("an address")]);
        assert_eq!(planned("http").expect("it needs no more").timeout, Duration::from_secs(30));
    }

    #[test]
    fn the_default_duration_is_only_for_runs_that_would_not_end() {
        let end = |words| planned(words).expect("a plan").end;
        assert_eq!(end("ping -n 5"), End::Never);
        assert_eq!(end("ping -n 5 -d 2"), End::AfterFirstConnect(Duration::from_secs(2)));
        assert_eq!(end("ping --hold 1m"), End::AfterLastConnect(Duration::from_secs(60)));
    }

    #[test]
    fn sources_are_of_the_targets_kind() {
        assert!(planned("ping --source 127.0.0.2,127.0.0.3").is_ok());
        assert!(planned("ping [::1]:9 --source ::1").is_ok());
        assert!(planned("ping 127.0.0.1:9 --source ::1").is_err());
        assert!(planned("ping --source ::1").is_err());
    }
}
