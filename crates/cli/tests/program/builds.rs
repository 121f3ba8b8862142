//! `sockdrawer trial upgrade OLD NEW`: two builds of a program take turns under clients and are killed, and what is lost is held against what
//! may be.

use crate::program::{Program, install};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sockdrawer");
const CLIENTS: [&str; 8] = ["-c", "4", "--kept", "20", "--every", "300ms", "--json", "-"];

/// A path to listen at: at a port a build that has to open its own socket would need the port's number.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Place(std::env::temp_dir().join(format!("sockdrawer-builds-at-{}-{number}", std::process::id())))
    }

    fn at(&self) -> String {
        format!("unix:{}", self.0.display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A build of its own: a script that runs this program.
struct Script(PathBuf);

impl Script {
    fn new(text: &str) -> Script {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sockdrawer-build-{}-{number}", std::process::id()));
        let source = path.with_extension("source");
        fs::write(&source, format!("#!/bin/sh\n{text}\n")).expect("a file");
        install(&source, &path);
        fs::remove_file(&source).expect("it is there");
        Script(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn trial(builds: [&str; 2], options: &[&str], serves: &[&str]) -> (Option<i32>, Value, String) {
    let words = [&["trial", "upgrade"][..], &builds, &CLIENTS, options, &["--"], serves].concat();
    let ended = Program::start(&words).end();
    let report = serde_json::from_str(&ended.stdout).unwrap_or_default();
    (ended.code, report, format!("{ended:?}"))
}

/// Checks that the verdict is good. A busy machine may be too slow for a connect under each change, which is inconclusive; nothing may be lost.
#[track_caller]
fn is_good(code: Option<i32>, report: &Value, told: &str) {
    let reasons = report["reasons"].as_array().cloned().unwrap_or_default();
    let slow = |reason: &Value| reason.as_str().is_some_and(|reason| reason.starts_with("no connect ended during change"));
    let is_slow = report["verdict"] == "inconclusive" && reasons.iter().all(slow);
    assert!(is_slow || (code, &report["verdict"]) == (Some(0), &"good".into()), "{told}");
}

#[test]
fn two_builds_take_turns_and_a_killed_process_loses_its_own_connections_at_most() {
    for model in ["loops", "prefork", "threads"] {
        let place = Place::new();
        let serves = ["serve", "echo", "-l", &place.at(), "--model", model];
        let (code, report, told) = trial([PROGRAM, PROGRAM], &["--changes", "3", "--kills", "6", "--seed", "7"], &serves);
        is_good(code, &report, &told);
        let changes = report["per_change"].as_array().expect("all of them");
        let named = |name: &str| changes.iter().filter(|change| change["change"] == name).count();
        assert_eq!(named("kill next"), 3, "{told}");
        assert_eq!(named("kill prior"), 3, "{told}");
        assert_eq!(named("to new") + named("to old"), 3, "{told}");
    }
}

/// The seed kills late: by then it has ended by itself.
#[test]
fn a_build_that_ends_before_it_is_killed_is_bad() {
    for (ends, why) in [("exit 3", "ended before it was ready: exit status: 3"), ("exit 0", "ended with exit status 0")] {
        let (place, new) = (Place::new(), Script::new(ends));
        let options = ["--changes", "0", "--kills", "1", "--seed", "249"];
        let (code, report, told) = trial([PROGRAM, new.name()], &options, &["serve", "echo", "-l", &place.at()]);
        assert_eq!((code, &report["verdict"]), (Some(1), &"bad".into()), "{told}");
        assert!(report["reasons"][0].as_str().is_some_and(|reason| reason.contains(why)), "{told}");
    }
}

/// Longer than a build serves between two changes.
#[test]
fn a_build_that_ends_by_itself_after_a_while_is_bad() {
    let (place, new) = (Place::new(), Script::new(&format!("(sleep 2; kill -TERM $$) &\nexec {PROGRAM} \"$@\"")));
    let options = ["--changes", "4", "--kills", "0"];
    let (code, report, told) = trial([PROGRAM, new.name()], &options, &["serve", "echo", "-l", &place.at()]);
    assert_eq!((code, &report["verdict"]), (Some(1), &"bad".into()), "{told}");
    assert!(report["reasons"][0].as_str().is_some_and(|reason| reason.contains("has ended by itself")), "{told}");
}

#[test]
fn upgrades_alone_lose_nothing_under_a_protocol_of_ones_own() {
    let own = ["--changes", "4", "--kills", "0", "--send", r"{n}\n", "--expect", r"{n}\n"];
    let (code, report, told) = trial([PROGRAM, PROGRAM], &own, &["serve", "echo", "-l", "127.0.0.1:0"]);
    is_good(code, &report, &told);
    assert_eq!(report["workload"], "script", "{told}");
    assert!(report["kept_round_trips"].as_u64() > Some(30), "{told}");
}

/// The chat of the guide's first day, as its author has it proved.
#[test]
fn what_members_of_a_room_say_is_heard_once_and_in_order_through_upgrades_and_kills() {
    let room = PathBuf::from(PROGRAM).with_file_name("examples").join("room");
    let Some(room) = room.to_str().filter(|_| room.exists()) else {
        return println!("skipped: the example room is built by cargo test of the whole workspace");
    };
    let place = Place::new();
    let hello = ["--connect-expect", r"hello\n", "--send", r"bye\n", "--expect", r"/(line \d+\n)*bye\n/"];
    let lines = ["--publish", r"line {n}\n", "--publish-expect", r"/(bye\n)*line {n}\n/"];
    let options = [&["--changes", "4", "--kills", "4"], &hello[..], &lines].concat();
    let (code, report, told) = trial([room, room], &options, &["serve", "chat", "-l", &place.at()]);
    is_good(code, &report, &told);
    let messages = &report["messages"];
    assert!(messages["heard"].as_u64() > Some(1_000), "{told}");
    assert_eq!((&messages["doubled"], &messages["out_of_order"]), (&0.into(), &0.into()), "{told}");
}

#[test]
fn websockets_live_through_upgrades_and_only_a_killed_process_takes_its_own_along() {
    let place = Place::new();
    let serves = ["serve", "ws", "-l", &place.at()];
    let by_websocket = ["--websocket", "/", "--seed", "9"];
    let alone = [&["--changes", "4", "--kills", "0", "--require-all"], &by_websocket[..]].concat();
    let (code, report, told) = trial([PROGRAM, PROGRAM], &alone, &serves);
    is_good(code, &report, &told);
    assert_eq!(report["closed"], serde_json::json!([]), "{told}");
    let killed = [&["--changes", "1", "--kills", "4"], &by_websocket[..]].concat();
    let (code, report, told) = trial([PROGRAM, PROGRAM], &killed, &serves);
    is_good(code, &report, &told);
}

#[test]
fn a_build_that_kills_the_old_one_is_found_out() {
    // The shell that says its number has become this one: its parent is the program that runs.
    let bad = Script::new(&format!("kill -9 $PPID\nexec {PROGRAM} \"$@\""));
    let place = Place::new();
    let (code, report, told) =
        trial([PROGRAM, bad.name()], &["--changes", "1", "--kills", "0"], &["serve", "echo", "-l", &place.at()]);
    assert_eq!((code, &report["verdict"]), (Some(1), &"bad".into()), "{told}");
    let reasons = report["reasons"].to_string();
    assert!(
        reasons.starts_with("[\"1 of 1 upgrades failed (the first: a process of ") && reasons.contains(" lost connections ("),
        "{told}"
    );
    assert!(reasons.contains(" died by signal 9"), "{told}");
}

#[test]
fn a_build_of_another_protocol_answers_wrong() {
    let other = Script::new(&format!("shift 2; exec {PROGRAM} serve ping \"$@\""));
    let (code, report, told) =
        trial([PROGRAM, other.name()], &["--changes", "1", "--kills", "0"], &["serve", "echo", "-l", "127.0.0.1:0"]);
    assert_eq!((code, &report["verdict"]), (Some(1), &"bad".into()), "{told}");
}

#[test]
fn what_cannot_begin_is_told_in_one_line() {
    let serves = ["serve", "echo", "-l", "127.0.0.1:0"];
    let two = [&serves[..], &["-l", "127.0.0.1:0"]].concat();
    for (builds, options, serves, code, says) in [
        (["/no/such", PROGRAM], &[][..], &serves[..], 3, "/no/such: no such program: name the two builds"),
        (
            ["no-such", PROGRAM],
            &[],
            &serves,
            3,
            "no program no-such that this user may run is in PATH: give its path, as in ./no-such",
        ),
        ([PROGRAM, "/no/other"], &[], &serves, 3, "/no/other: no such program: name the two builds"),
        (["/bin/false", PROGRAM], &[], &serves, 3, "the first build does not serve: it ended (exit status: 1)"),
        ([PROGRAM, PROGRAM], &[], &["serve", "nothing"], 3, "it ended (exit status: 2); it said: error: "),
        ([PROGRAM, PROGRAM], &[], &two, 3, "name that of the clients, by --target"),
        ([PROGRAM, PROGRAM], &[], &[], 3, "it was started without arguments of yours: write them behind --"),
        ([PROGRAM, PROGRAM], &["--changes", "0", "--kills", "0"], &serves, 2, "nothing would be changed"),
        ([PROGRAM, PROGRAM], &["--workload", "ping"], &serves, 3, "does not answer as the workload expects"),
    ] {
        let (exit, _, told) = trial(builds, options, serves);
        assert_eq!(exit, Some(code), "{told}");
        assert!(told.contains(says), "{says}: {told}");
    }
}

#[test]
fn a_signal_ends_the_trial_with_all_processes() {
    let place = Place::new();
    let at = place.at();
    let serves = ["--", "serve", "echo", "-l", &at];
    let words = [&["trial", "upgrade", PROGRAM, PROGRAM][..], &CLIENTS, &serves].concat();
    let mut trial = Program::start(&words);
    let begun = trial.error_line();
    assert!(begun.starts_with("trial of unix:"), "{begun}");
    trial.signal(Signal::INT);
    let ended = trial.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(serde_json::from_str::<Value>(&ended.stdout).is_ok_and(|report| report["interrupted"] == true), "{ended:?}");
    let lines = fs::read_dir("/proc").expect("it is mounted").flatten();
    let left = lines.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    assert_eq!(left.filter(|line| line.contains(&at)).count(), 0);
}
