//! `sockdrawer trial TARGET --change COMMAND` and `sockdrawer trial upgrade OLD NEW`: trials of a server of one's own, from the command line to
//! the exit code.

use crate::arguments::{Allowed, BuildsArguments, ClientArguments, TrialArguments, Workload as Named};
use crate::junit::Junit;
use crate::limits;
use crate::load::stop_by_signals;
use crate::outcome::{Exit, Failure};
use crate::print::Output;
use crate::trial::{TrialProgress, exit, until, usage};
use crate::values::{Target, Url, chosen_seed, count};
use sockdrawer::Address;
use sockdrawer_load::Stop;
use sockdrawer_load::results::{Gap, Gaps, PageDirectory};
use sockdrawer_operate::OWN_POOLS;
use sockdrawer_trial::command::{Builds, Change, Options, Programs, Refused, Report, Table, Trial, Workload};
use sockdrawer_trial::{Progress, Script, Stopped, Tls, Until, Verdict};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(2);

/// Returns whether anything says that the server is not the one inside this program.
pub(crate) fn is_meant(arguments: &TrialArguments) -> bool {
    let TrialArguments { target, change, every, clients, .. } = arguments;
    let ClientArguments { workload, path, allow, out, tls, websocket, script, .. } = clients;
    let more = every.is_some() || workload.is_some() || path.is_some() || !allow.is_empty() || out.is_some();
    more || target.is_some() || tls.given() || websocket.given().is_some() || script.given().is_some() || change.is_some()
}

/// Runs the trial of a server that a command changes.
pub(crate) fn run(arguments: &TrialArguments) -> Result<Exit, Failure> {
    let options = options(arguments)?;
    carry_out(&arguments.clients, |_| Ok((options, None)))
}

/// Runs the trial of two builds that replace each other.
pub(crate) fn run_builds(arguments: &BuildsArguments) -> Result<Exit, Failure> {
    let BuildsArguments { old, new, arguments: words, socket, changes: upgrades, kills, every, require_all, clients, .. } =
        arguments;
    if upgrades + kills == 0 {
        return Err(usage("--changes and --kills are 0: nothing would be changed"));
    }
    let target = arguments.target.as_ref().map(address).transpose()?;
    let seed = clients.seed.unwrap_or_else(chosen_seed);
    let programs = Programs {
        builds: [old.clone(), new.clone()],
        arguments: words.clone(),
        path: socket.clone(),
        not_for_clients: OWN_POOLS.map(str::to_owned).to_vec(),
        upgrades: *upgrades,
        kills: *kills,
        seed,
    };
    let until = Until::Changes(upgrades + kills);
    carry_out(clients, |stop| {
        let builds = Builds::start(programs, target, stop).map_err(refused)?;
        let target: Target = builds.target().to_string().parse().map_err(usage)?;
        let change = Options {
            command: builds.line(),
            every: *every,
            until,
            seed,
            require_all: *require_all,
            ..of_clients(clients, &target)?
        };
        Ok((change, Some(builds)))
    })
}

/// Runs a trial, which `begin` prepares, and tells what it found.
fn carry_out(
    clients: &ClientArguments,
    begin: impl FnOnce(Stopped<'_>) -> Result<(Options, Option<Builds>), Failure>,
) -> Result<Exit, Failure> {
    let mut output = Output::open(clients.json.clone())?;
    let mut junit = Junit::open(clients.junit.clone())?;
    let directory = clients.out.as_deref().map(PageDirectory::create).transpose().map_err(Failure::usage)?;
    let stop = Stop::new();
    let signalled = stop_by_signals(&stop)?;
    limits::raise();
    let (options, mut builds) = match (begin(&|within| stop.wait(within)), signalled.get()) {
        (Err(_), Some(signal)) => return Ok(signal.exit()),
        (begun, _) => begun?,
    };
    let trial = Trial::start(&options).map_err(refused)?;
    output.tell(start(&options))?;
    let mut live = TrialProgress::new(options.until).allowing(options.allow_idle_close);
    let (stopped, show) = (|within| stop.wait(within), |progress: &Progress| live.show(progress));
    let report = match &mut builds {
        None => trial.finish(&stopped, show),
        Some(builds) => trial.upgrade(builds, &stopped, show),
    };
    live.end();
    let verdict = Verdict::of(&report);
    let told = output.tell(Table(&report));
    let line = verdict.line(&report).to_string();
    let keep = |directory: &PageDirectory| directory.trial(&report.json(), &gaps(&report, &verdict, &line)).map_err(Failure::run);
    let kept = directory.as_ref().map_or(Ok(()), keep);
    let page = directory.filter(|_| kept.is_ok()).map(|directory| format!("; page: {}", directory.page().display()));
    // First what is kept, so that a reader that has gone takes nothing with it; the first that fails is told.
    let written = output.report(&report.json());
    let title = format!("trial {}", report.options.target);
    let noted = junit.trial(&title, report.elapsed.as_secs_f64(), &verdict, &Table(&report).to_string());
    kept.and(written).and(noted).and(told).and_then(|()| output.tell(line + &page.unwrap_or_default()))?;
    Ok(signalled.get().map_or_else(|| exit(&verdict), |signal| signal.exit()))
}

fn refused(refused: Refused) -> Failure {
    match refused {
        Refused::Server(line) => Failure::preflight(line),
        Refused::Clients(error) => error.into(),
    }
}

/// Returns the gaps that the page shows.
fn gaps(report: &Report, verdict: &Verdict, line: &str) -> Gaps {
    let Options { target, workload, command, .. } = &report.options;
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let closed = |change: &Change| {
        if report.options.allow_idle_close { change.seen.closed_at_rest() + change.seen.lost_unheard } else { 0 }
    };
    let gap = |change: &Change| Gap {
        at: change.at.as_secs_f64(),
        us: us(change.seen.longest_gap),
        took_us: us(change.ran.took),
        exit: change.ran.ended.to_string(),
        connects: change.seen.connects,
        failed: change.seen.failed(),
        lost: change.seen.lost() - closed(change),
        closed: closed(change),
    };
    Gaps {
        title: format!("{} to {target} under changes", workload.name()),
        command: command.clone(),
        verdict: line.to_owned(),
        is_good: *verdict == Verdict::Good,
        seconds: report.elapsed.as_secs_f64(),
        changes: report.changes.iter().map(gap).collect(),
    }
}

/// Returns the options that the arguments mean: defaults filled in, and what makes no sense together refused.
fn options(arguments: &TrialArguments) -> Result<Options, Failure> {
    let (target, command) = match (&arguments.target, &arguments.change) {
        (Some(target), Some(command)) => (target, command),
        (Some(target), None) => {
            let line = format!(
                "a trial of {} needs --change 'COMMAND', which changes it; without TARGET a server inside this program is tried",
                Target::texts(&target.addresses).join(" ")
            );
            return Err(usage(line));
        }
        (None, Some(number)) if count::<u64>(number).is_ok() => {
            return Err(usage(format_args!("--change needs a TARGET and a command: did you mean `--changes {number}`?")));
        }
        (None, Some(_)) => return Err(usage("--change needs a TARGET, the address of the server that COMMAND changes")),
        (None, None) => {
            return Err(usage(
                "--every, --workload, --send, --exchanges, --publish, --path, --allow, --out and the options of TLS and WebSocket need a TARGET and --change 'COMMAND'",
            ));
        }
    };
    let inside = [
        ("--listen", arguments.listen.is_some()),
        ("--model", arguments.model.is_some()),
        ("--sabotage", arguments.sabotage.is_some()),
    ];
    if let Some((option, _)) = inside.into_iter().find(|(_, given)| *given) {
        return Err(usage(format_args!("{option} is for the server inside this program: leave it out, or leave out TARGET")));
    }
    if command.trim().is_empty() {
        return Err(usage("--change needs a command, as in --change 'nginx -s reload'"));
    }
    Ok(Options {
        command: command.clone(),
        every: arguments.every.unwrap_or(EVERY),
        until: until(arguments),
        ..of_clients(&arguments.clients, target)?
    })
}

fn address(target: &Target) -> Result<Address, Failure> {
    match &target.addresses[..] {
        [address] => Ok(address.clone()),
        _ => Err(usage("a trial has one server: leave the range of ports out")),
    }
}

/// Returns the options of the clients; those of the changes are to be filled in.
fn of_clients(clients: &ClientArguments, target: &Target) -> Result<Options, Failure> {
    let address = address(target)?;
    let tls = clients.tls.tls(&[target], |line| usage(line))?;
    let websocket = clients.websocket.websocket(&[target], clients.script.given().is_some(), |line| usage(line))?;
    let url = target.url.as_ref().filter(|url| !url.websocket);
    let workload = workload(clients, url)?;
    if websocket.is_some() && matches!(workload, Workload::Http { .. }) {
        return Err(usage("WebSockets carry echo, ping and protocols of your own: leave --workload http out, or write http://"));
    }
    if websocket.is_none()
        && let Some(option) = clients.websocket.given()
    {
        return Err(usage(format_args!("{option} is an option of WebSocket: write ws://, or add --websocket PATH")));
    }
    let none = Script::default();
    let beginning = if let Workload::Script(script) = &workload { script } else { &none };
    let broadcast = clients.script.broadcast(beginning, |line| usage(line))?;
    if broadcast.is_some() && clients.kept < 2 {
        return Err(usage("--kept: clients that hear each other (--publish) are at least 2"));
    }
    Ok(Options {
        target: address,
        workload,
        command: String::new(),
        every: EVERY,
        until: Until::Changes(0),
        connections: clients.connections,
        kept: clients.kept,
        allow_idle_close: clients.allow.contains(&Allowed::IdleClose),
        require_all: false,
        seed: clients.seed.unwrap_or_else(chosen_seed),
        tls: tls.map(|tls| tls.client().map(Tls::new)).transpose().map_err(usage)?,
        websocket: websocket.map(|websocket| websocket.carrier()).transpose().map_err(usage)?,
        broadcast,
    })
}

fn workload(arguments: &ClientArguments, url: Option<&Url>) -> Result<Workload, Failure> {
    if let Some(script) = arguments.script.script(|line| usage(line))? {
        return match (arguments.script.given(), url) {
            (Some(option), Some(_)) => {
                Err(usage(format_args!("{option} and a URL exclude each other: write HOST:PORT, and --tls for TLS")))
            }
            _ => Ok(Workload::Script(script)),
        };
    }
    let named = arguments.workload.unwrap_or(if url.is_some() { Named::Http } else { Named::Echo });
    let path = match (&arguments.path, url) {
        (Some(_), Some(_)) => return Err(usage("--path and a URL exclude each other: both say what is asked for")),
        (path, url) => path.as_ref().or(url.map(|url| &url.path)),
    };
    match (named, path) {
        (Named::Http, path) => Ok(Workload::Http {
            path: path.map_or_else(|| "/".to_owned(), |path| path.0.clone()),
            host: url.map(|url| url.host.clone()),
        }),
        (_, Some(_)) => Err(usage("--path and a URL are for --workload http")),
        (Named::Echo, None) => Ok(Workload::Echo),
        (Named::Ping, None) => Ok(Workload::Ping),
    }
}

/// Returns the line a trial starts with.
fn start(options: &Options) -> String {
    let Options { target, workload, command, every, connections, kept, seed, broadcast, websocket, .. } = options;
    let until = match options.until {
        Until::Changes(changes) => format!("{changes} changes"),
        Until::Passed(time) => format!("changes for {time:?}"),
    };
    let rate = options.connect_rate().map_or_else(String::new, |rate| format!(" ({rate:.0} connects/s)"));
    let name = match workload {
        Workload::Script(script) => script.to_string(),
        _ => workload.name().to_owned(),
    };
    let carried = if websocket.is_some() { " by WebSocket" } else { "" };
    let publish = broadcast.as_ref().map_or_else(String::new, |broadcast| format!(" and publish {broadcast}"));
    format!(
        "trial of {target}, {name}{carried}: {until} by `{command}` every {every:?}, under {connections} clients that come and go{rate} and \
         {kept} that stay{publish}, seed {seed}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Command;
    use crate::usage::Parsed;

    fn parsed(words: &[&str]) -> Result<Options, Failure> {
        let all = ["sockdrawer", "trial"].into_iter().chain(words.iter().copied()).map(Into::into);
        match crate::usage::parse(all)? {
            Some(Parsed::Own(Command::Trial(arguments))) => {
                assert!(is_meant(&arguments), "{words:?}");
                options(&arguments)
            }
            other => panic!("not a trial: {other:?}"),
        }
    }

    #[test]
    fn a_target_and_a_command_are_enough() {
        let options = parsed(&["127.0.0.1:80", "--change", "nginx -s reload"]).expect("enough");
        assert_eq!((options.every, options.workload, options.kept), (EVERY, Workload::Echo, 100));
        assert_eq!(options.until, Until::Passed(Duration::from_secs(10)));
        let web =
            parsed(&[":80", "--change", "true", "--workload", "http", "--request-path", "/a", "--every", "0", "--changes", "3"]);
        let web = web.expect("all of it");
        let http = |path: &str, host: Option<&str>| Workload::Http { path: path.to_owned(), host: host.map(str::to_owned) };
        assert_eq!((web.workload, web.every, web.until), (http("/a", None), Duration::ZERO, Until::Changes(3)));
        let own = parsed(&[":80", "--change", "true", "--send", "a {n}.", "--expect", "b {n}.", "--connect-expect", "hello"]);
        let script = Workload::Script("<< hello\n> a {n}.\n< b {n}.".parse().expect("a script"));
        assert_eq!(own.expect("a protocol of one's own").workload, script);
        let news = ["--subscribe", "S", "--subscribe-expect", "OK", "--publish", "P {n}", "--publish-expect", "M {n}."];
        let login = ["--send", "a", "--expect", "b", "--connect-send", "L"];
        let options = parsed(&[&[":80", "--change", "true"][..], &news, &login].concat()).expect("clients that hear each other");
        assert_eq!(options.broadcast, Some(">> L\n>> S\n<< OK\n> P {n}\n< M {n}.".parse().expect("a broadcast")));
        assert_eq!(
            parsed(&["http://localhost:80/b", "--change", "true"]).expect("a trial").workload,
            http("/b", Some("localhost"))
        );
    }

    #[track_caller]
    fn is_refused(words: &[&str], says: &str) {
        let failure = parsed(words).expect_err("refused");
        assert_eq!(failure.exit, Exit::Usage, "{words:?}");
        assert!(failure.to_string().contains(says), "{words:?}: {failure}");
    }

    #[test]
    fn what_does_not_belong_together_is_refused_in_one_line() {
        for (words, says) in [
            (&["127.0.0.1:80"][..], "needs --change"),
            (&["--change", "true"], "needs a TARGET"),
            (&["--every", "1"], "need a TARGET"),
            (&["127.0.0.1:80", "--change", " "], "needs a command"),
            (&["127.0.0.1:80", "--change", "true", "--model", "loops"], "--model is for the server inside"),
            (&["127.0.0.1:80", "--change", "true", "--sabotage", "reopen"], "--sabotage is for the server inside"),
            (&["127.0.0.1:80", "--change", "true", "--path", "/"], "are for --workload http"),
            (&["http://127.0.0.1:80/a", "--change", "true", "--path", "/"], "exclude each other"),
            (&["127.0.0.1:80-81", "--change", "true"], "leave the range of ports out"),
            (&["127.0.0.1:80", "--change", "true", "--workload", "http", "--path", "a b"], "not a path"),
            (&["127.0.0.1:80", "--change", "true", "--workload", "hello"], "there are echo, ping, http"),
        ] {
            is_refused(words, says);
        }
    }

    #[test]
    fn a_protocol_of_its_own_that_makes_no_sense_is_refused_in_one_line() {
        for (words, says) in [
            (&["--send", "a", "--expect", "b"][..], "need a TARGET"),
            (&["--exchanges", "none"], "need a TARGET"),
            (
                &["127.0.0.1:80", "--change", "true", "--exchanges", "/none"],
                "--exchanges /none: No such file or directory (os error 2): name a",
            ),
            (&["127.0.0.1:80", "--change", "true", "--exchanges", "/dev/null"], "--exchanges /dev/null: no exchange: write >"),
            (
                &["127.0.0.1:80", "--change", "true", "--exchanges", "/dev/null", "--send", "a", "--expect", "b"],
                "exclude each other",
            ),
            (&["127.0.0.1:80", "--change", "true", "--send", "a"], "--expect is missing: add it"),
            (&["127.0.0.1:80", "--change", "true", "--connect-send", "a"], "--expect and --send are missing: add them"),
            (
                &["127.0.0.1:80", "--change", "true", "--send", "a", "--expect", "b {n}."],
                "`b {n}.` has the number of a question without one",
            ),
            (
                &["127.0.0.1:80", "--change", "true", "--send", "a {n}", "--expect", "b {n}"],
                "--expect b {n}: it ends with {n}, whose end nothing tells: write",
            ),
            (&["127.0.0.1:80", "--change", "true", "--send", r"\q", "--expect", "b"], r"--send: `\q` begins no escape"),
            (
                &["127.0.0.1:80", "--change", "true", "--send", "a", "--expect", "/(/"],
                "--expect /(/: `(` is no regular expression",
            ),
            (
                &["127.0.0.1:80", "--change", "true", "--send", "a", "--expect", "b", "--workload", "ping"],
                "exclude each other: leave one out",
            ),
            (
                &["http://127.0.0.1:80/", "--change", "true", "--send", "a", "--expect", "b"],
                "--send and a URL exclude each other",
            ),
            (&["127.0.0.1:80", "--change", "true", "--publish", "a {n}"], "--publish-expect is missing: add it"),
            (&["127.0.0.1:80", "--change", "true", "--subscribe", "a"], "are missing: add them"),
            (
                &["127.0.0.1:80", "--change", "true", "--publish", "a {n}", "--publish-expect", "b {n}."],
                "nothing tells when the server has",
            ),
            (
                &["127.0.0.1:80", "--change", "true", "--publish", "a", "--publish-expect", "b", "--subscribe-expect", "c"],
                "`b` has no number, by which messages are told apart: write {n} into it",
            ),
            (
                &[
                    ":80",
                    "--change",
                    "true",
                    "--publish",
                    "{n}",
                    "--publish-expect",
                    "{n}.",
                    "--subscribe-expect",
                    "c",
                    "--kept",
                    "1",
                ],
                "--kept: clients that hear each other (--publish) are at least 2",
            ),
        ] {
            is_refused(words, says);
        }
    }
}
