//! `sockdrawer trial` as a user runs it: a sound server passes, and every fault is seen in its own column.

use serde_json::Value;
use std::process::{Command, Output};

fn trial(arguments: &[&str]) -> (Output, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_sockdrawer"))
        .args(["trial", "--json", "-"])
        .args(arguments)
        .output()
        .expect("the program was built");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {}", told(&output)));
    (output, report)
}

fn told(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no count {name} in {report}"))
}

/// Checks that a trial is good: that of a sound server that is run for too short or is too slow may be inconclusive, and for no other reason.
fn is_good_or_short(output: &Output, report: &Value) {
    let all = told(output);
    for lost in ["failed_connects", "lost_connections", "wrong_bytes"] {
        assert_eq!(count(report, lost), 0, "{all}");
    }
    match report["verdict"].as_str() {
        Some("good") => assert_eq!(output.status.code(), Some(0), "{all}"),
        Some("inconclusive") => {
            assert_eq!(output.status.code(), Some(1), "{all}");
            let short = |reason: &Value| {
                let reason = reason.as_str().expect("a reason is text");
                reason.contains("connects/s") || reason.starts_with("fewer than 20 connects during")
            };
            assert!(report["reasons"].as_array().expect("a list").iter().all(short), "{all}");
        }
        verdict => panic!("{verdict:?}: {all}"),
    }
    assert!(count(report, "changes") > 0 && count(report, "connects") > 0, "{all}");
    assert!(all.contains("verdict: "), "{all}");
}

/// Checks that a fault is seen: the verdict is bad, names the column, and the column is not 0.
fn is_bad(sabotage: &str, counted: &str, column: &str) {
    let (output, report) = trial(&["--seconds", "3", "--sabotage", sabotage, "--seed", "1"]);
    let all = told(&output);
    assert_eq!(output.status.code(), Some(1), "{all}");
    assert_eq!(report["verdict"], "bad", "{all}");
    assert!(count(&report, counted) > 0, "{all}");
    assert!(report["reasons"].to_string().contains(column), "{all}");
}

#[test]
fn a_sound_server_loses_nothing() {
    let (output, report) = trial(&["--seconds", "2"]);
    is_good_or_short(&output, &report);
}

#[test]
fn a_sound_server_loses_nothing_under_other_models() {
    for (model, absent) in [("threads", &["loops", "workers"][..]), ("prefork", &[])] {
        // Each connection may be a thread, which a busy machine starts slowly.
        let (output, report) = trial(&["--seconds", "2", "--model", model, "-c", "6", "--kept", "20"]);
        is_good_or_short(&output, &report);
        let not_in_model = report["not_in_model"].as_array().expect("a list");
        let kinds: Vec<&str> = not_in_model.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!((report["model"].as_str(), &kinds[..]), (Some(model), absent), "{}", told(&output));
    }
}

#[test]
fn a_number_of_changes_is_kept_exactly() {
    let (output, report) = trial(&["--changes", "54", "--seed", "11"]);
    is_good_or_short(&output, &report);
    assert_eq!(count(&report, "changes"), 54);
    assert_eq!(count(&report, "seed"), 11);
    let kinds = report["kinds"].as_array().expect("a list");
    let applied: u64 = kinds.iter().map(|kind| kind["times"].as_u64().expect("a count")).sum();
    assert_eq!(applied, 54, "{}", told(&output));
}

#[test]
fn reopening_a_listener_shows_as_failed_connects() {
    is_bad("reopen", "failed_connects", "failed connects");
}

#[test]
fn resetting_a_queue_shows_as_failed_connects() {
    is_bad("drop-queue", "failed_connects", "failed connects");
}

#[test]
fn a_lost_byte_shows_as_wrong_bytes() {
    is_bad("lose-byte", "wrong_bytes", "wrong bytes");
}

#[test]
fn a_closed_connection_shows_as_lost() {
    is_bad("close-kept", "lost_connections", "lost connections");
}

#[test]
fn an_address_that_is_not_loopback_is_a_usage_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_sockdrawer"))
        .args(["trial", "--listen", "0.0.0.0:9000"])
        .output()
        .expect("the program was built");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("loopback"), "{}", told(&output));
}

#[test]
fn a_trial_that_cannot_start_says_only_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_sockdrawer"))
        .args(["trial", "--listen", &address])
        .output()
        .expect("the program was built");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(output.stdout.is_empty(), "{}", told(&output));
    assert!(told(&output).contains("error: "), "{}", told(&output));
}
