//! `sockdrawer load --control`: what a run is told while it goes on, it does.

use crate::program::Program;
use crate::report::{number, report};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Returns a path that no other test has.
pub(crate) fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()))
}

/// Speaks to a run.
pub(crate) struct Control(BufReader<UnixStream>);

impl Control {
    pub(crate) fn to(path: &Path) -> Control {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return Control(BufReader::new(stream)),
                Err(error) => assert!(Instant::now() < until, "nobody takes orders at {}: {error}", path.display()),
            }
            thread::yield_now();
        }
    }

    fn say(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it listens");
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("it answers");
        answer.trim_end().to_owned()
    }

    /// Asks until the run is so.
    pub(crate) fn until(&mut self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let status = serde_json::from_str(&self.say("status")).expect("the status is JSON");
            if condition(&status) {
                return status;
            }
            assert!(Instant::now() < until, "never {what}: {status}");
            // waits because: a run shows where it is twice a second, and to ask more often only takes its time.
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn standing(count: u64) -> impl Fn(&Value) -> bool {
    move |status| status["standing"] == count && status["target"] == count
}

#[test]
fn a_run_does_as_it_is_told_and_says_so_in_its_result() {
    for processes in ["auto", "2"] {
        let path = path(&format!("orders-{processes}"));
        let at = path.display().to_string();
        let words = format!("load ping -c 10 --interval 200ms -d 60 --processes {processes} --control {at} --json -");
        let program = Program::of(&words);
        let mut control = Control::to(&path);
        control.until("10 connections", standing(10));
        assert_eq!(control.say("+5"), "ok");
        control.until("15 connections", standing(15));
        assert_eq!(control.say("-9"), "ok");
        control.until("6 connections", standing(6));
        assert!(control.say("faster").starts_with("error: `faster` is no command"));
        assert_eq!(control.say("suspend"), "ok");
        control.until("suspended", |status| status["suspended"] == true);
        let pace = |status: &Value| status["numbers"]["operations_ok"].as_u64().expect("a count");
        // Two looks, because what was asked before is still answered.
        let at_rest = |control: &mut Control| {
            let first = control.until("a status", |_| true)["elapsed"].as_f64().expect("seconds");
            pace(&control.until("a second later", |status| status["elapsed"].as_f64() > Some(first + 1.0)))
        };
        at_rest(&mut control);
        assert_eq!(at_rest(&mut control), at_rest(&mut control), "nobody asks while a run is suspended");
        assert_eq!((control.say("interval 100ms"), control.say("resume")), ("ok".to_owned(), "ok".to_owned()));
        let before = at_rest(&mut control);
        control.until("asking again", |status| pace(status) > before + 20);
        assert_eq!(control.say("stop"), "ok");
        let end = program.end();
        assert_eq!(end.code, Some(0), "{end:?}");
        let report = report(&end);
        let told: Vec<&str> =
            report["actions"].as_array().expect("a list").iter().map(|action| action["what"].as_str().expect("text")).collect();
        let expected = ["connections +5", "connections -9", "suspend", "interval 100ms", "resume", "stop"];
        assert_eq!(told, expected, "{report}");
        let counts = ["established", "closed", "open", "lost"].map(|name| number(&report, &format!("/connections/{name}")));
        assert_eq!(counts, [15, 9, 6, 0], "{report}");
        assert!(!path.exists(), "the socket is gone with the run");
    }
}

#[test]
fn stages_come_and_go_by_themselves_and_by_order() {
    let path = path("stages");
    let at = path.display().to_string();
    let words = format!("load ping --stage 500ms:20,1m:20,500ms:5,1m:5 --interval 200ms --control {at} --json -");
    let program = Program::of(&words);
    let mut control = Control::to(&path);
    control.until("20 connections", standing(20));
    assert_eq!(control.say("next"), "ok");
    control.until("5 connections", standing(5));
    assert_eq!(control.say("next"), "ok");
    let end = program.end();
    assert_eq!(end.code, Some(0), "{end:?}");
    let report = report(&end);
    let counts = ["established", "closed", "open", "lost", "peak"].map(|name| number(&report, &format!("/connections/{name}")));
    assert_eq!(counts, [20, 15, 5, 0, 20], "{report}");
}

#[test]
fn none_is_a_pause_and_not_the_end() {
    for words in ["ping -c 6 --interval 20ms", "ping -c 6 --interval 20ms --lifetime 300ms", "hello -c 6"] {
        let path = path("none");
        let at = path.display().to_string();
        let program = Program::of(&format!("load {words} -d 60 --control {at} --json -"));
        let mut control = Control::to(&path);
        let connects = |status: &Value| status["numbers"]["established"].as_u64().expect("a count");
        control.until("connections", |status| connects(status) >= 6);
        assert_eq!(control.say("=0"), "ok");
        let none = control.until("no connections", standing(0));
        assert_eq!(control.say("=3"), "ok");
        control.until("connections again", |status| connects(status) >= connects(&none) + 3);
        // More than any process may have: as many as it may.
        let answer = control.say("=18446744073709551615");
        assert!(answer.starts_with("ok, ") && answer.ends_with(" connections: as many as descriptors allow"), "{answer}");
        assert_eq!(control.say("stop"), "ok");
        let end = program.end();
        assert!(matches!(end.code, Some(0 | 1)), "{words}: {end:?}");
        let report = report(&end);
        let [established, closed, open, lost] =
            ["established", "closed", "open", "lost"].map(|name| number(&report, &format!("/connections/{name}")));
        assert_eq!((established, lost), (closed + open, 0), "{words}: {report}");
    }
}
