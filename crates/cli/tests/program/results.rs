//! A result says what it is of, in the form of the schema that the program prints.

use crate::program::{Program, load};
use rustix::process::Signal;
use serde_json::Value;

fn result(words: &str) -> Value {
    let end = load(&format!("{words} --json -"));
    serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:?}"))
}

#[test]
fn results_of_every_workload_are_of_the_form_of_the_schema() {
    let schema = Program::of("schema").end();
    assert_eq!((schema.code, schema.stderr.as_str()), (Some(0), ""));
    let schema: Value = serde_json::from_str(&schema.stdout).expect("it is JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("it is a schema");
    for words in [
        "ping -c 2 -n 4 --interval 0 --threshold p95<1m",
        "echo -c 2 -n 4",
        "hello -c 2 -n 4",
        "http -c 2 -n 4 --mix fast=9,slow=1",
        "http -c 2 -n 4 --keep-alive",
        "http -c 2 -n 4 --rate 1k",
        "acks -c 2 -n 4",
        "ping 127.0.0.1:1 -c 2",
    ] {
        let result = result(words);
        let wrong: Vec<String> =
            validator.iter_errors(&result).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(wrong.is_empty(), "{words}: {wrong:?}");
        assert_eq!(result["schema"], "sockdrawer.load/2");
    }
    let mut wrong = result("hello -n 1");
    wrong["operations"]["ok"] = "many".into();
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn a_result_says_what_it_is_of() {
    let result = result("echo -c 2 -n 4 --seed 7 --size 9");
    let command = result["command"].as_str().expect("a text");
    let mut words = shlex::split(command).expect("a command line");
    assert_eq!(words.remove(0), env!("CARGO_BIN_EXE_sockdrawer"));
    assert_eq!(words, ["load", "echo", "-c", "2", "-n", "4", "--seed", "7", "--size", "9", "--json", "-"]);
    assert_eq!((&result["seed"], &result["complete"], &result["ended_early"]), (&7.into(), &true.into(), &Value::Null));
    assert_eq!((&result["plan"]["workload"], &result["plan"]["size"]), (&"echo".into(), &9.into()));
    assert_eq!((&result["version"], &result["target"]), (&env!("CARGO_PKG_VERSION").into(), &Value::Null));
    let [started, ended] = ["started", "ended"].map(|key| result[key].as_str().expect("a text").to_owned());
    assert!(started < ended && started.len() == "2026-11-24T12:00:00.000Z".len() && started.ends_with('Z'), "{started} {ended}");
}

#[test]
fn what_ended_before_its_plan_says_so() {
    let mut program = Program::of("load ping -c 2 --interval 10ms -d 1m --json -");
    assert!(program.error_line().starts_with("2 connections"), "signals are caught by then");
    program.signal(Signal::INT);
    let end = program.end();
    let result: Value = serde_json::from_str(&end.stdout).expect("a result");
    assert_eq!((end.code, &result["complete"]), (Some(130), &false.into()));
    assert!(
        result["ended_early"].as_str().is_some_and(|why| why.starts_with("interrupted, after ") && why.ends_with(" of 1m")),
        "{result}"
    );
    assert!(end.stderr.contains("ended early  interrupted, after "), "{end:?}");
    let refused = load("ping 127.0.0.1:1 -c 2 -d 9");
    assert!(refused.stdout.contains("ended early  no connect succeeded, after "), "{refused:?}");
}

#[test]
fn a_page_has_thresholds_of_its_own() {
    let run = "http -c 2 -n 40 --mix /test/fast=1,/test/slow=1 --threshold /test/slow.p99<1m --threshold";
    let end = load(&format!("{run} /test/slow.min>=1ms"));
    assert_eq!(end.code, Some(0), "{end:?}");
    let end = load(&format!("{run} /test/slow.p50<1ms"));
    assert!(end.code == Some(99) && end.stdout.contains("threshold    FAILED  /test/slow.p50<1ms: "), "{end:?}");
    let end = load("http -n 4 --mix fast=1,/b=1 --threshold /c.p99<1s");
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.stderr.contains("--threshold /c.p99<1s: the run has no such page: it asks for /test/fast, /b"), "{end:?}");
    assert!(load("ping --threshold /c.p99<1s").stderr.contains("http alone has pages"));
}
