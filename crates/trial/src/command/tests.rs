//! Tests of the reports of trials by a command; whole trials are in the program's tests.

use super::*;
use crate::Verdict;
use crate::{Cause, Failure, Group, Phase, Seen, Witness};
use sockdrawer::{Context, Input, Peer, Pool, Protocol, Service, Step};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

fn seen(connects: u64) -> Seen {
    let tally = Arc::new(Tally::new());
    let (churn, kept) = (tally.witness(Group::Churn), tally.witness(Group::Kept));
    for _ in 0..connects {
        churn.answered();
        churn.ended();
    }
    kept.answered();
    tally.next()
}

fn lossy() -> Seen {
    let tally = Arc::new(Tally::new());
    let (churn, kept) = (tally.witness(Group::Churn), tally.witness(Group::Kept));
    churn.failed(Phase::Connect, Cause::Errno(111));
    churn.failed(Phase::Exchange, Cause::Errno(104));
    kept.failed(Phase::Between, Cause::Early);
    kept.failed(Phase::Between, Cause::Announced);
    tally.next()
}

fn report(changes: Vec<(Ended, Seen)>) -> Report {
    let options = Options {
        target: "127.0.0.1:80".parse().expect("an address"),
        workload: Workload::Ping,
        command: "true".to_owned(),
        every: Duration::from_secs(2),
        until: Until::Changes(changes.len() as u64),
        connections: 8,
        kept: 8,
        allow_idle_close: false,
        require_all: false,
        seed: 7,
        tls: None,
        websocket: None,
        broadcast: None,
    };
    let change = |(number, (ended, seen))| {
        let ran = Ran { ended, took: Duration::from_millis(5), said: "first\nlast".to_owned(), promise: None };
        Change { number, at: Duration::from_secs(2 * (number - 1)), ran, seen }
    };
    Report {
        options,
        interrupted: false,
        elapsed: Duration::from_secs(1),
        before: Seen::default(),
        changes: (1..).zip(changes).map(change).collect(),
        failures: Vec::new(),
        standing: 8,
        replaced: 3,
        odd: None,
        closed: BTreeMap::new(),
        delivered: Vec::new(),
        lost_messages: Default::default(),
    }
}

fn verdict(report: &Report) -> String {
    Verdict::of(report).line(report).to_string()
}

#[test]
fn nothing_lost_and_every_command_successful_is_good() {
    let report = report(vec![(Ended::Exited(0), seen(30)), (Ended::Exited(0), seen(40))]);
    assert_eq!(verdict(&report), "verdict: good, 2 changes, 70 connects, 0 failed, 0 lost, 0 wrong bytes (seed 7)");
}

#[test]
fn losses_and_failed_commands_are_bad_and_named() {
    let lost = report(vec![(Ended::Exited(0), seen(30)), (Ended::Exited(0), lossy())]);
    let expected = "verdict: bad: 2 failed connects (1 refused, 1 reset); \
                    2 lost connections (1 closed between exchanges, 1 closed as announced; --allow idle-close allows that) (seed 7)";
    assert_eq!(verdict(&lost), expected);
    let failed = report(vec![(Ended::Exited(0), seen(30)), (Ended::Exited(3), seen(30)), (Ended::TimedOut, seen(30))]);
    assert_eq!(verdict(&failed), "verdict: bad: 2 of 3 commands failed (the first: 3; another: time-out) (seed 7)");
    assert!(Table(&failed).to_string().ends_with("the command of change 2 ended with 3\n    first\n    last"));
}

#[test]
fn an_upgrade_that_failed_comes_first_and_the_panic_of_a_build_last() {
    let mut report = report(vec![(Ended::Failed("it ended".to_owned()), lossy())]);
    let ran = &mut report.changes[0].ran;
    ran.promise = Some(Promise::default());
    ran.said = "error: x\nthread 'main' panicked at src/main.rs:5:9:\nno such table\nnote: run with".to_owned();
    let said = verdict(&report);
    assert!(said.starts_with("verdict: bad: 1 of 1 upgrades failed (the first: it ended); 2 failed connects ("), "{said}");
    assert!(
        said.ends_with(
            "; a build said, until the end of change 1: thread 'main' panicked at src/main.rs:5:9: no such table (seed 7)"
        ),
        "{said}"
    );
}

#[test]
fn what_is_closed_at_rest_may_be_allowed_and_what_is_cut_may_not() {
    let at_rest = Seen { lost_in_exchange: 3, lost_unheard: 3, lost_between: 2, lost_announced: 1, ..seen(30) };
    let cut = Seen { lost_in_exchange: 4, ..at_rest };
    let allowed = |seen| {
        let mut report = report(vec![(Ended::Exited(0), seen)]);
        report.options.allow_idle_close = true;
        verdict(&report)
    };
    let good = "verdict: good, 1 changes, 30 connects, 0 failed, 3 closed idle, 3 closed while a request was on its way, to be asked again but for \
                POST (RFC 9112, 9.3.1), 0 lost, 0 wrong bytes (seed 7)";
    assert_eq!(allowed(at_rest), good);
    assert_eq!(allowed(cut), "verdict: bad: 1 lost connections (1 cut in an exchange) (seed 7)");
    let mut closed = report(vec![(Ended::Exited(0), at_rest)]);
    assert_eq!((Table(&closed).to_string().contains(" lost "), closed.json()["lost_connections"].as_u64()), (true, Some(6)));
    closed.options.allow_idle_close = true;
    let text = Table(&closed).to_string();
    assert!(!text.contains(" lost ") && text.contains(" ended ") && text.contains("lost: 0 cut in an exchange; ended"), "{text}");
    text.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
    let json = closed.json();
    assert_eq!((&json["lost_connections"], &json["lost_between"], &json["verdict"]), (&0.into(), &2.into(), &"good".into()));
}

#[test]
fn a_table_fits_80_columns() {
    let busy = Seen { connects: 123_456, refused: 99_999, longest_gap: Duration::from_millis(1234), ..lossy() };
    let text = Table(&report(vec![(Ended::Signalled(9), busy)])).to_string();
    text.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
}

#[test]
fn what_the_table_leaves_out_or_shortens_is_said() {
    let mut seen = lossy();
    seen.failed_otherwise = 1;
    let mut report = report(vec![(Ended::Exited(0), seen)]);
    let failure = |number| Failure { group: Group::Churn, phase: Phase::Connect, cause: Cause::Errno(number), change: 0 };
    report.failures = (1..=10).map(|number| (failure(number), 20 - number as u64)).collect();
    assert!(verdict(&report).contains(", 1 otherwise)"), "{report}");
    let wrong = Failure { phase: Phase::Exchange, cause: Cause::Wrong, ..failure(0) };
    report.failures.push((wrong, 1));
    assert!(verdict(&report).contains(", 1 with a wrong answer)"), "{report}");
    report.failures.pop();
    let text = Table(&report).to_string();
    assert!(text.contains("\nother: ended before the answer, wrong bytes, or an error"), "{text}");
    assert!(text.contains("8 of 8 open at the end, 3 in place of others"), "{text}");
    assert!(text.contains("1 closed as the last answer had announced"), "{text}");
    assert_eq!(text.matches("\nseen: ").count(), 9, "{text}");
    assert!(text.contains("\nseen: 21 times more, of 2 kinds that --json has\n"), "{text}");
    assert_eq!(text.matches("\nto do: ").count(), 3, "{text}");
}

#[test]
fn too_little_is_inconclusive() {
    assert_eq!(
        verdict(&report(vec![])),
        "verdict: inconclusive: the command was not run; no exchange on a kept connection (seed 7)"
    );
    let mut stopped = report(vec![(Ended::Stopped, seen(30))]);
    stopped.interrupted = true;
    assert_eq!(verdict(&stopped), "verdict: inconclusive: interrupted (seed 7)");
    let idle = report(vec![(Ended::Exited(0), seen(0))]);
    assert_eq!(verdict(&idle), "verdict: inconclusive: no connect ended during change 1 (seed 7)");
}

#[test]
fn the_json_has_totals_and_every_change() {
    let json = report(vec![(Ended::Exited(0), seen(30)), (Ended::Signalled(9), lossy())]).json();
    assert_eq!(json["changes"], 2);
    assert_eq!(json["connects"], 32);
    assert_eq!(json["failed_connects"], 2);
    assert_eq!(json["lost_connections"], 2);
    assert_eq!(json["wrong_bytes"], 0);
    assert_eq!(json["verdict"], "bad");
    let last = &json["per_change"][1];
    assert_eq!((last["number"].as_u64(), last["refused"].as_u64(), last["lost_between"].as_u64()), (Some(2), Some(1), Some(1)));
    assert_eq!((last["ended"].as_str(), last["exit_status"].is_null()), (Some("signal 9"), true));
}

#[test]
fn of_many_changes_the_worst_are_shown() {
    let mut changes: Vec<(Ended, Seen)> = (0..50).map(|_| (Ended::Exited(0), Seen::default())).collect();
    changes[30].1 = lossy();
    changes[40].0 = Ended::Exited(1);
    let text = Table(&report(changes)).to_string();
    assert!(!text.contains("times more") && !text.contains("other: "), "{text}");
    assert!(text.contains("the 20 worst of 50 changes"), "{text}");
    let rows: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(rows.contains(&"31") && rows.contains(&"41"), "{text}");
}

/// Adds a change in which a process with this number of connections was killed.
fn killed(report: &mut Report, number: usize, connections: u64, may_refuse: bool) {
    let promise = Promise { change: "kill prior", killed: true, connections, may_refuse, ..Promise::default() };
    report.changes[number - 1].ran.promise = Some(promise);
}

#[test]
fn a_killed_process_may_lose_its_own_connections_and_no_others() {
    // Two failed connects and two lost connections.
    let lost = || report(vec![(Ended::Exited(0), seen(30)), (Ended::Exited(0), lossy())]);
    let mut all = lost();
    killed(&mut all, 2, 4, false);
    let good = "verdict: good, 2 changes, 32 connects, 4 lost with killed processes, which had 4; of all others 0 failed, 0 lost, 0 wrong \
                bytes (seed 7)";
    assert_eq!(verdict(&all), good);
    let mut too_few = lost();
    killed(&mut too_few, 2, 3, false);
    assert!(
        verdict(&too_few)
            .starts_with("verdict: bad: 1 failed connects beside 1 with killed processes; in all (1 refused, 1 reset)"),
        "{}",
        verdict(&too_few)
    );
    let mut late = lost();
    killed(&mut late, 2, 4, true);
    late.failures = vec![(Failure { group: Group::Kept, phase: Phase::Exchange, cause: Cause::Late, change: 2 }, 1)];
    let told = verdict(&late);
    assert!(told.starts_with("verdict: bad: 1 lost connections beside 1 with killed processes"), "{told}");
    let mut alone = lost();
    killed(&mut alone, 2, 2, true);
    assert!(verdict(&alone).starts_with("verdict: good"), "{}", verdict(&alone));
    let mut none = lost();
    killed(&mut none, 2, 0, true);
    assert!(verdict(&none).starts_with("verdict: bad: 2 lost connections"), "{}", verdict(&none));
    let mut elsewhere = lost();
    killed(&mut elsewhere, 1, 4, false);
    assert_eq!(verdict(&elsewhere), good, "clients may see it a moment later");
    elsewhere.changes.insert(1, elsewhere.changes[0].clone());
    elsewhere.changes[1].ran.promise = Some(Promise::default());
    let told = verdict(&elsewhere);
    assert!(told.contains("2 failed connects (1 refused, 1 reset)") && told.contains("2 lost connections"), "{told}");
}

#[test]
fn a_connection_may_stay_behind_and_a_build_may_not_panic() {
    let mut report = report(vec![(Ended::Exited(0), seen(30))]);
    for (why, word) in [("its state is shop 1", "good"), ("restore panicked: no such table, at src/lib.rs:69:9", "bad")] {
        let left_behind = vec![why.to_owned()];
        report.changes[0].ran.promise = Some(Promise { change: "to new", stayed: 5, left_behind, ..Promise::default() });
        let verdict = Verdict::of(&report);
        assert_eq!(verdict.word(), word);
        assert_eq!(verdict.reasons(), if word == "bad" { vec![why.to_owned()] } else { vec![] });
    }
}

#[test]
fn a_good_verdict_says_that_connections_did_not_move() {
    let mut report = report(vec![(Ended::Exited(0), seen(30))]);
    report.changes[0].ran.promise = Some(Promise { change: "to new", stayed: 5, ..Promise::default() });
    let stayed = ", 0 wrong bytes, 5 connections stayed in old processes (require-all makes that bad) (seed 7)";
    assert!(verdict(&report).ends_with(stayed), "{report}");
    report.changes[0].ran.promise = Some(Promise { change: "to new", moved: 5, ..Promise::default() });
    assert!(verdict(&report).ends_with(", 0 wrong bytes (seed 7)"), "{report}");
}

#[test]
fn messages_that_upgrades_lost_come_with_the_question_that_their_hearers_suggest() {
    let mut report = report(vec![(Ended::Exited(0), seen(30))]);
    report.options.broadcast = Some("<< b\n> c {n}.\n< d {n}.".parse().expect("a script"));
    report.changes[0].ran.promise = Some(Promise { change: "to new", ..Promise::default() });
    for (unheard, lacking, asks) in [
        (0, 1, "1 of 10 clients lack messages, and none has 0 of these: do members join again in restored()?"),
        (0, 9, "9 of 10 clients lack messages, and none has 0 of these: does Service::state say together()?"),
        (
            3,
            3,
            "3 of 10 clients lack messages, and none has 3 of these: is all passed on that the old build has read? do members join again in restored()?",
        ),
    ] {
        report.before.wrong_bytes = 1;
        assert!(!Table(&report).to_string().contains("clients lack messages"), "wrong bytes are a reason");
        report.before.wrong_bytes = 0;
        report.lost_messages = Losses { by_change: BTreeMap::from([(1, 4)]), unheard, lacking, hearers: 10, ..Losses::default() };
        let table = Table(&report).to_string();
        assert!(table.contains(&format!("published: 1 (to new): 4\nat the end {asks}\n")), "{table}");
    }
}

#[test]
fn a_change_whose_messages_none_hears_suggests_that_members_do_not_join_again() {
    let mut report = report(vec![(Ended::Exited(0), seen(30))]);
    report.options.broadcast = Some("<< b\n> c {n}.\n< d {n}.".parse().expect("a script"));
    report.changes[0].ran.promise = Some(Promise { change: "to new", ..Promise::default() });
    let by_change = BTreeMap::from([(1, 40)]);
    report.lost_messages = Losses { by_change, unheard: 4, lacking: 10, hearers: 10, deaf: [1].into(), ..Losses::default() };
    let table = Table(&report).to_string();
    let asks =
        "\nof the messages of changes 1 (to new) half or more came to none of 10 clients: do members join again in restored()?\n";
    assert!(table.contains(asks) && !table.contains("together()"), "{table}");
}

#[test]
fn the_table_of_upgrades_says_what_serves_and_what_may_be_lost() {
    let mut report = report(vec![(Ended::Exited(0), seen(30)), (Ended::Failed("gone".to_owned()), lossy())]);
    let left_behind = vec!["its state is shop 1, and the new service reads shop 2 to 2".to_owned()];
    report.changes[0].ran.promise = Some(Promise { change: "to new", moved: 1, stayed: 5, left_behind, ..Promise::default() });
    killed(&mut report, 2, 17, true);
    report.options.require_all = true;
    let why =
        "5 connections stayed behind in upgrades without a kill: its state is shop 1, and the new service reads shop 2 to 2";
    assert!(report.reasons().iter().any(|reason| reason == why), "{:?}", report.reasons());
    assert_eq!(report.json()["per_change"][0]["left_behind"][0], why.split_once(": ").expect("a reason").1);
    let table = Table(&report).to_string();
    let line = |start: &str| table.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("change").contains(" step ") && line("change").contains(" lost may wrong"), "{table}");
    assert!(line("1 ").contains("to new") && line("1 ").contains(" 0   0     0"), "{table}");
    assert!(line("2 ").contains("failed") && line("2 ").contains(" 17+ "), "{table}");
    assert!(table.contains("\nchange 2 failed:\n    first\n    last"), "{table}");
    assert!(
        table.contains("1 connections moved, 5 stayed in the old process; the longest took 5.0ms\nthe new build did not take over from itself: with more changes it does\n    its state is shop 1, and"),
        "{table}"
    );
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
}

/// Answers until it is to be mute, and never again.
struct Mute(Arc<AtomicBool>);

impl Service for Mute {
    type Protocol = Mute;
    fn open(&self, _peer: &Peer) -> Mute {
        Mute(self.0.clone())
    }
}

impl Protocol for Mute {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while input.exactly(4).is_some() {
            if !self.0.load(Ordering::Relaxed) {
                cx.send(b"Pong");
            }
        }
        Step::Continue
    }
}

#[test]
fn answers_that_do_not_come_are_lost_and_told_at_the_change_in_which_they_were_asked_for() {
    let mute = Arc::new(AtomicBool::new(false));
    let server = Pool::serve(Mute(mute.clone()), "127.0.0.1:0").expect("a free port");
    let target = server.addresses()[0].clone();
    let options = Options { target, workload: Workload::Ping, connections: 1, kept: 10, ..report(Vec::new()).options };
    let options = Options { command: "true".to_owned(), every: Duration::from_millis(400), until: Until::Changes(3), ..options };
    let (_stops, stop) = mpsc::channel::<()>();
    let tell = |progress: &Progress| {
        // In the middle of the second change, so that each question of the first has its answer.
        if progress.changes == 2 {
            mute.store(true, Ordering::Relaxed);
        }
    };
    let report = Trial::start(&options).expect("it answers at first").finish(&|within| stop.recv_timeout(within).is_ok(), tell);
    let total = report.total();
    assert!(report.standing == 10 && total.lost_in_exchange == 10, "{report}");
    assert!(report.reasons().iter().any(|reason| reason.starts_with("10 lost connections (10 cut in an exchange")), "{report}");
    assert!(report.to_string().contains("\nlate: no answer, or no end, 5s long; it counts where these are over\n"), "{report}");
    // The request that is told may be one that was sent in two pieces.
    let odd = report.odd.unwrap_or_default().replace(", which was sent in two pieces,", "");
    assert_eq!(odd, "after `Ping` `Pong` was expected, and within 5s nothing came (in change 2)");
}
