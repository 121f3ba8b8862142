//! `sockdrawer serve`: one pool, from its start to the end of its drain.

use crate::arguments::{ServeArguments, WhenFull};
use crate::log::Log;
use crate::names::Protocol;
use crate::outcome::{Exit, Failure};
use crate::signals;
use crate::values::PeerLimit;
use crate::{events, limits, notify, print, program};
use sockdrawer::{
    Address, Behaviour, Config, Drain, Drained, Error, Model, Pool, Upgrade,
    admission::{AcceptRate, Limits, OnFull, PerPeer, Prefixes, Reject},
};
use sockdrawer_catalog::{acks::Acks, echo::Echo, hello::Hello, http::Http, ping::Ping};
use std::fmt;
use std::io::{self, IsTerminal};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How long connections may take to end by themselves after SIGTERM, SIGINT or SIGHUP, unless told otherwise.
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);

/// In which a connection of http has to bring its request, unless told otherwise: a browser that connects ahead has as long elsewhere.
const HTTP_IDLE: Duration = Duration::from_secs(60);

/// How long a drain may take before it is told what it waits for.
const QUIET: Duration = Duration::from_secs(1);

/// How long the end waits for the last lines to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// Serves until a signal, or until the pool gives up.
pub(crate) fn run(arguments: ServeArguments) -> Result<Exit, Failure> {
    let log = if arguments.verbose { Some(Log::start(io::stderr())?) } else { None };
    let (place, stays) = (arguments.upgrade.clone(), arguments.stays);
    let drain = arguments.drain.unwrap_or(DRAIN_DEADLINE);
    let config = config(arguments)?;
    let observed = log.clone();
    let config = config.observer(move |event: &sockdrawer::observe::Event| {
        notify::tell(event);
        observed.iter().for_each(|log| log.tell(events::words(event)));
    });
    limits::raise();
    let (news, told) = mpsc::channel();
    let (signalled, upgrades) = (news.clone(), news.clone());
    signals::drain_or_end(move || drop(signalled.send(News::Signal)), move || drop(upgrades.send(News::Upgrade)))?;
    let (pool, upgrade) = start(config, place, stays.map(|time| (time, drain)))?;
    notify::send("READY=1");
    tell_addresses(&pool)?;
    let ended = end(&pool, upgrade.as_ref(), drain, (&news, &told));
    if let Some(log) = log {
        log.tell(events::in_all(&pool.status().counts));
        log.flush(PATIENCE);
    }
    ended
}

/// A pool that takes over from the server that is there, if it is to meet one.
fn start(
    config: Config,
    place: Option<PathBuf>,
    stays: Option<(Duration, Duration)>,
) -> Result<(Pool, Option<Arc<Upgrade>>), Failure> {
    let Some(place) = place else { return Ok((Pool::start(config)?, None)) };
    let mut upgrade = Upgrade::at(place).version(env!("CARGO_PKG_VERSION"));
    if let Some((time, drain)) = stays {
        upgrade = upgrade.stays(time, Drain::within(drain));
    }
    let upgrade = upgrade.begin()?;
    let pool = upgrade.start("serve", config)?;
    upgrade.ready()?;
    Ok((pool, Some(Arc::new(upgrade))))
}

/// A server whose output nobody can take is still a server, and ends when it is asked to: a thread that may be left behind writes.
fn tell_addresses(pool: &Pool) -> Result<(), Failure> {
    let addresses = pool.addresses();
    let tell = move || {
        for address in addresses {
            let _ = print::line(format_args!("listening on {address}"));
        }
    };
    spawn("addresses", tell)
}

/// What the main thread waits for.
enum News {
    Signal,
    /// SIGUSR2: a new build of the program is to take over.
    Upgrade,
    /// The drain is not over, and so many connections are left.
    Draining(usize),
    Drained(Drained),
    Stopped(Result<(), Error>),
}

/// Waits for the first signal, then for the end of the drain.
fn end(
    pool: &Pool,
    upgrade: Option<&Arc<Upgrade>>,
    drain: Duration,
    (news, told): (&Sender<News>, &Receiver<News>),
) -> Result<Exit, Failure> {
    let waiting = pool.clone();
    tell_when_done("join", news, move || News::Stopped(waiting.join()))?;
    let mut draining = false;
    // Told once, and not of a drain that is over soon.
    let mut quiet = false;
    loop {
        let next = match quiet {
            true => match told.recv_timeout(QUIET) {
                Ok(next) => next,
                Err(_) => {
                    quiet = false;
                    let pool = pool.clone();
                    // The pool may be slow to say it.
                    tell_when_done("count", news, move || News::Draining(pool.status().connections))?;
                    continue;
                }
            },
            false => told.recv().expect("this thread has a sender, too"),
        };
        match next {
            News::Signal => {
                notify::send("STOPPING=1");
                (draining, quiet) = (true, true);
                let pool = pool.clone();
                tell_when_done("drain", news, move || News::Drained(pool.shutdown(Drain::within(drain))))?;
            }
            News::Upgrade => match upgrade.cloned() {
                Some(upgrade) => spawn("upgrade", move || tell_upgrade(&upgrade))?,
                None => print::tell_within(Duration::ZERO, "error: no upgrade: the server was started without --upgrade PATH"),
            },
            News::Draining(0) => {}
            News::Draining(left) => {
                let connections = if left == 1 { "1 connection" } else { &format!("{left} connections") };
                let again = if io::stderr().is_terminal() { "Ctrl-C again" } else { "a second signal" };
                let line = format!("draining {connections}, at most {} in all; {again} ends now", words(drain));
                print::tell_within(Duration::ZERO, line);
            }
            News::Drained(drained) => return drained_exit(drained, drain),
            // The drain tells more of the same end.
            News::Stopped(Ok(())) if draining => {}
            News::Stopped(stopped) => return stopped.map(|()| Exit::Ok).map_err(Failure::from),
        }
    }
}

/// Starts a new build, and says what came of it.
fn tell_upgrade(upgrade: &Upgrade) {
    notify::send(&notify::reloading());
    match upgrade.spawn() {
        Ok(replaced) => print::tell_within(PATIENCE, crate::upgrade::words(&replaced, None)),
        Err(error) => {
            notify::send(&format!("READY=1\nSTATUS=not replaced: {error}"));
            print::tell_within(PATIENCE, format_args!("error: {error}; this server goes on"));
        }
    }
}

fn tell_when_done(name: &str, news: &Sender<News>, wait: impl FnOnce() -> News + Send + 'static) -> Result<(), Failure> {
    let news = news.clone();
    // The receiver is gone when the program ends first.
    spawn(name, move || drop(news.send(wait())))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned
        .map(drop)
        .map_err(|error| Failure::run(format_args!("cannot start a thread: {error}; allow more of them (ulimit -u)")))
}

/// A time as it is said.
fn words(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{} s", time.as_secs()) } else { sockdrawer_catalog::time::format(time) }
}

fn drained_exit(drained: Drained, within: Duration) -> Result<Exit, Failure> {
    if drained.cut == 0 {
        return Ok(Exit::Ok);
    }
    let Drained { asked, cut, .. } = drained;
    let within = words(within);
    Err(Failure::run(format_args!(
        "{cut} of {asked} connections had not finished after {within} and were ended; give them longer: --drain"
    )))
}

/// The high arguments: what the pool is asked to be.
fn config(arguments: ServeArguments) -> Result<Config, Failure> {
    let (model, workers) = (model(&arguments), arguments.workers);
    fits(model, &arguments)?;
    // Where there is no choice of workers, a job runs where its connection runs, and slow waits there.
    let mut config = Config::accept(behaviour(&arguments, workers != Some(0))?).model(model);
    if let Some(loops) = arguments.loops {
        config = config.loops(loops);
    }
    if has_loops(model) {
        let loops = config.loops;
        config = config.workers(workers.unwrap_or(loops));
    }
    config = config.admission(limits(&arguments));
    if let Some(processes) = arguments.processes {
        config = config.processes(processes);
    }
    if let Some(capacity) = arguments.capacity {
        config = config.capacity(capacity);
    }
    if let Some(time) = arguments.spin {
        config = config.spin(time);
    }
    if let Some(limit) = arguments.limit {
        config = config.limit(limit);
    }
    if arguments.protocol == Protocol::Http {
        config.settings.max_partial = sockdrawer_catalog::http::MAX_HEAD;
        config.settings.idle = Some(HTTP_IDLE);
    }
    if let Some(idle) = arguments.idle {
        config.settings.idle = Some(idle).filter(|idle| !idle.is_zero());
    }
    let listen = if arguments.listen.is_empty() { vec![default_address()] } else { arguments.listen };
    Ok(listen.into_iter().fold(config, Config::listen))
}

fn model(arguments: &ServeArguments) -> Model {
    let unless_said = if arguments.protocol == Protocol::Exec { Model::Fork } else { Model::default() };
    arguments.model.unwrap_or(unless_said)
}

/// Whether a model has any number of loops and workers.
fn has_loops(model: Model) -> bool {
    matches!(model, Model::Prefork | Model::Loops | Model::Tasks)
}

/// An option that a model has no use for is refused, not passed over.
fn fits(model: Model, arguments: &ServeArguments) -> Result<(), Failure> {
    let refuse = |option: &str, of: &str| {
        let line = format!("{option} is an option of {of}, not of the model {model}: leave it out, or choose another --model");
        Err(usage(line))
    };
    if !has_loops(model) && arguments.loops.is_some() {
        return refuse("--loops", "the models prefork, loops and tasks");
    }
    if !has_loops(model) && arguments.workers.is_some() {
        return refuse("--workers", "the models prefork, loops and tasks");
    }
    if matches!(model, Model::Threads | Model::Fork | Model::Tasks) && arguments.spin.is_some() {
        return refuse("--spin", "the models loops, prefork and single");
    }
    if arguments.protocol == Protocol::Exec && arguments.idle.is_some() {
        return Err(usage("--idle is no option of exec: PROGRAM alone knows what it waits for; leave it out"));
    }
    if model != Model::Prefork && arguments.processes.is_some() {
        return refuse("--processes", "the model prefork");
    }
    Ok(())
}

fn default_address() -> Address {
    Address::Tcp((Ipv4Addr::LOCALHOST, 9000).into())
}

fn limits(arguments: &ServeArguments) -> Limits {
    let mut limits = Limits::default().on_full(match arguments.on_full {
        WhenFull::Backpressure => OnFull::Backpressure,
        WhenFull::Reject => OnFull::Reject(Reject::Fin),
    });
    if let Some(PeerLimit { most, prefix }) = arguments.max_per_peer {
        let prefixes = Prefixes { v4: prefix, v6: 4 * prefix };
        limits = limits.per_peer(PerPeer { prefixes, ..PerPeer::address(most) });
    }
    if let Some(rate) = arguments.accept_rate {
        // More than fits is no burst that anybody could make.
        let burst = (rate / 10.0).ceil() as u32;
        limits = limits.rate(AcceptRate::new(rate, burst.max(1)));
    }
    limits
}

fn behaviour(arguments: &ServeArguments, in_worker: bool) -> Result<Behaviour, Failure> {
    belongs("--slow-duration", arguments.slow_duration.is_some(), Protocol::Http, arguments.protocol)?;
    belongs("--ack", arguments.ack.is_some(), Protocol::Acks, arguments.protocol)?;
    belongs("-- PROGRAM", !arguments.program.is_empty(), Protocol::Exec, arguments.protocol)?;
    Ok(match arguments.protocol {
        Protocol::Echo => Echo.behaviour(),
        Protocol::Hello => Hello.behaviour(),
        Protocol::Ping => Ping.behaviour(),
        Protocol::Http => {
            let slow_duration = arguments.slow_duration.unwrap_or(Http::default().slow_duration);
            Http { slow_duration, in_worker }.behaviour()
        }
        Protocol::Acks => Acks { pattern: arguments.ack.unwrap_or_default() }.behaviour(),
        Protocol::Exec => {
            let [program, rest @ ..] = arguments.program.as_slice() else {
                return Err(usage("exec without a program: name it behind --, as in exec -- cat"));
            };
            program::find(program)?;
            Behaviour::exec(program, rest)
        }
    })
}

/// An option of one protocol makes no sense with another.
fn belongs(option: &str, given: bool, to: Protocol, protocol: Protocol) -> Result<(), Failure> {
    if !given || to == protocol {
        return Ok(());
    }
    Err(usage(format_args!("{option} is an option of {to}, not of {protocol}: leave it out")))
}

fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage_of("serve", line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_drain_that_cut_nobody_off_is_complete() {
        let drained = |ended, cut| Drained { asked: ended + cut, ended, cut };
        assert_eq!(drained_exit(drained(3, 0), DRAIN_DEADLINE), Ok(Exit::Ok));
        let cut = drained_exit(drained(2, 1), Duration::from_millis(1_500)).expect_err("one was cut off");
        let text = cut.to_string();
        assert_eq!((cut.exit, text.contains("1 of 3 connections had not finished after 1500ms")), (Exit::Failed, true), "{cut}");
    }

    fn configured(words: &str) -> Config {
        let words = ["sockdrawer", "serve", "http"].into_iter().chain(words.split_whitespace()).map(Into::into);
        match crate::usage::parse(words) {
            Ok(Some(crate::arguments::Command::Serve(arguments))) => config(arguments).expect("it makes sense"),
            other => panic!("{other:?} is not serve"),
        }
    }

    #[test]
    fn a_model_decides_what_nobody_said() {
        let parts = |words: &str| {
            let config = configured(words);
            (config.model, config.loops, config.workers)
        };
        for (name, model) in [("single", Model::Single), ("threads", Model::Threads), ("fork", Model::Fork)] {
            assert_eq!(parts(&format!("--model {name}")), (model, 1, 0));
        }
        assert_eq!(parts("--model prefork"), (Model::Prefork, 1, 1));
        assert_eq!(parts("--model prefork --loops 3"), (Model::Prefork, 3, 3));
        assert_eq!(parts("--model tasks --loops 3 --workers 1"), (Model::Tasks, 3, 1));
        assert_eq!(configured("--model prefork --processes 7").processes, 7);
    }

    #[test]
    fn workers_are_as_many_as_loops_unless_said_otherwise() {
        let threads = |config: &Config| (config.loops, config.workers);
        assert_eq!(threads(&configured("--loops 7")), (7, 7));
        assert_eq!(threads(&configured("--loops 7 --workers 0")), (7, 0));
        let http = configured("--limit 5k --capacity 0 --on-full reject");
        assert_eq!(
            (http.limit, http.capacity, &http.limits().expect("the default policy").on_full),
            (Some(5000), 0, &OnFull::Reject(Reject::Fin))
        );
        assert_eq!((http.settings.max_partial, http.settings.idle), (4096, Some(HTTP_IDLE)));
        assert_eq!(
            [configured("--idle 0"), configured("--idle 5")].map(|http| http.settings.idle),
            [None, Some(Duration::from_secs(5))]
        );
    }
}
