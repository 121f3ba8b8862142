//! `sockdrawer find`: the most that holds, and what stops more.

use crate::faults::bound;
use crate::program::Program;
use serde_json::Value;
use std::io::{Read, Write};

fn find(words: &str) -> (Option<i32>, Value, String) {
    let end = Program::of(&format!("find {words}")).end();
    let result = serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:?}"));
    (end.code, result, end.stderr)
}

fn amounts(result: &Value) -> Vec<u64> {
    result["runs"].as_array().expect("a list").iter().map(|run| run["amount"].as_u64().expect("a count")).collect()
}

#[test]
fn what_a_server_takes_at_most_is_found() {
    let mut server = Program::start(&["serve", "ping", "-l", "127.0.0.1:0", "--limit", "12", "--on-full", "reject"]);
    let address = server.line();
    let address = address.strip_prefix("listening on ").expect("it listens");
    let (code, result, told) = find(&format!("ping {address} -c 4 --hold 300ms --interval 50ms --json -"));
    assert_eq!((code, result["found"].as_u64()), (Some(0), Some(12)), "{result}");
    assert_eq!(amounts(&result), [4, 8, 16, 16, 12, 14, 14, 13, 13, 12, 12, 12, 13, 13], "{result}");
    assert!(
        told.contains(
            "found: 12 connections (held 4 of 4 times); 13 do not hold (held 0 of 4 times): 1 times unused EOF: the server closed a new \
             connection"
        ),
        "{told}"
    );
    let runs = || result["runs"].as_array().expect("a list").iter();
    assert!(runs().all(|run| (run["held"] == true) == (run["amount"].as_u64() <= Some(12))), "{result}");
    assert!(
        runs().all(|run| run["held"] == false || run["reached"].as_f64() == run["amount"].as_f64()),
        "what holds was reached: {result}"
    );
}

#[test]
fn the_most_that_was_asked_for_may_hold_and_the_least_may_not() {
    let (code, result, told) = find("ping -c 3 --max 6 --hold 100ms --interval 20ms --threshold lost==0 --json -");
    assert_eq!((code, amounts(&result), &result["found"]), (Some(0), vec![3, 6, 6, 6, 6], &6.into()), "{result}");
    assert!(told.contains("found: 6 connections (held 4 of 4 times): the most that was asked for (--max)"), "{told}");
    let (code, result, told) = find("echo --vary rate --max 2 -c 1 -d 1s --threshold p99<1ns --json -");
    assert_eq!((code, amounts(&result), &result["found"]), (Some(99), vec![2, 2, 1, 1], &Value::Null), "{result}");
    assert!(told.contains("nothing holds, not even 1 operations/s"), "{told}");
}

#[test]
fn a_target_where_nothing_listens_is_no_search() {
    let (_bound, deserted) = bound();
    for workload in ["ping", "http"] {
        let end = Program::of(&format!("find {workload} {deserted} --json -")).end();
        assert_eq!((end.code, end.stdout.as_str()), (Some(3), ""), "{end:?}");
        let expected = format!("error: cannot connect to {deserted}: ECONNREFUSED: nothing listens there: start the server");
        assert!(end.stderr.starts_with(&expected), "no try was made: {end:?}");
    }
}

#[test]
fn a_search_says_how_long_it_takes_and_leaves_a_page() {
    let path = std::env::temp_dir().join(format!("sockdrawer-search-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    let words = format!("find ping -c 2 --max 4 --hold 150ms --interval 20ms --threshold p99<1m --out {}", path.display());
    let end = Program::of(&words).end();
    assert_eq!(end.code, Some(0), "{end:?}");
    let lines: Vec<&str> = end.stdout.lines().collect();
    assert!(
        lines[0].contains("a try takes 150ms after its connects, at 5000/s") && lines[0].ends_with("about 5 tries if all hold"),
        "{end:?}"
    );
    assert!(lines[1].ends_with("about 4 left") && lines[2].ends_with("about 3 left"), "{end:?}");
    let page = std::fs::read_to_string(path.join("report.html")).expect("a page");
    assert!(
        page.contains("p99 of operations by connections") && page.contains("ping to a server in this program: 4 connections"),
        "{page}"
    );
    let search = std::fs::read_to_string(path.join("search.json")).expect("the result");
    let search: Value = serde_json::from_str(&search).expect("JSON");
    assert_eq!(
        (&search["schema"], &search["found"], &search["complete"]),
        (&"sockdrawer.find/3".into(), &4.into(), &true.into())
    );
    let again = Program::of(&words).end();
    assert!(again.code == Some(2) && again.stderr.contains("has a run already"), "{again:?}");
    std::fs::remove_dir_all(&path).expect("it is there");
}

#[test]
fn connections_with_a_lifetime_have_a_search_that_ends() {
    let (code, result, _) = find("ping -c 2 --max 2 --lifetime 200ms --interval 50ms --json -");
    // A busy machine may not keep the pace of a run.
    assert!((code == Some(0) && result["found"] == 2) || (code == Some(99) && result["found"].is_null()), "{result}");
    assert!(result["complete"] == true && amounts(&result).iter().all(|amount| *amount <= 2), "{result}");
}

/// Makes a server of `hello` that accepts a connection each 5 ms, answers it, and ends it.
fn slow_server() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            // waits because: a server that is slow is what the search is for.
            std::thread::sleep(std::time::Duration::from_millis(5));
            drop(connection.read_exact(&mut [0; 6]).and_then(|()| connection.write_all(b"Hello World\n")));
        }
    });
    at
}

#[test]
fn a_connect_rate_that_was_not_reached_is_not_found() {
    // At most 200 a second, and one at a time.
    let at = slow_server();
    let (code, result, told) = find(&format!("hello {at} -c 1 --vary connect-rate -d 1s --max 100k --json -"));
    assert_eq!(code, Some(0), "{told}");
    let found = result["found"].as_u64().expect("something was reached");
    assert!(found <= 205, "no more than the server accepts: {told}");
    let runs = result["runs"].as_array().expect("a list");
    let asked = result["asked"].as_u64().expect("a number held");
    let reached = |run: &Value| run["reached"].as_f64().expect("it was run");
    for run in runs.iter().filter(|run| run["held"] == true) {
        let amount = run["amount"].as_f64().expect("a number");
        assert!(reached(run) + 2.0 * amount.sqrt() >= 0.95 * amount, "{run}");
        assert!(run["amount"] != asked || reached(run) >= found as f64, "{told}");
    }
    let limit = ["limited by connections: all 1 waited for their answers", "does not stand", "what limits them is not known"];
    assert!(limit.iter().any(|limit| told.contains(limit)), "a machine that others keep busy limits it too: {told}");
}

#[test]
fn a_search_for_connects_of_connections_that_stay_is_refused_or_has_enough() {
    for (words, why) in [
        (
            "find ping 127.0.0.1:1 --vary connect-rate --max 200k",
            "so a try makes 64 connects and no more: use hello, or http with --close",
        ),
        ("find http://127.0.0.1:1/ --vary connect-rate", "add --close server, or use as many"),
        ("find hello 127.0.0.1:1 --vary connect-rate -d 200ms", "a rate shows over a second or more, and a try takes 200ms"),
        ("find echo 127.0.0.1:1 --vary rate -d 300ms", "a rate shows over a second or more"),
    ] {
        let end = Program::of(words).end();
        assert!(end.code == Some(2) && end.stderr.contains(why), "{words}: {end:?}");
    }
    let (code, result, told) = find("ping -c 40 --vary connect-rate --max 40 --hold 1s --timeout 20s --json -");
    let runs = result["runs"].as_array().expect("a list");
    // A busy machine may make fewer; what is found was made all the same.
    assert!(code == Some(0) || code == Some(99), "{told}");
    for run in runs.iter().filter(|run| run["held"] == true) {
        let (amount, reached) = (run["amount"].as_f64().expect("a number"), run["reached"].as_f64().expect("it was run"));
        assert!(reached + 2.0 * amount.sqrt() >= 0.95 * amount && reached <= 1.2 * amount + 5.0, "{run}");
    }
    assert!(runs.iter().all(|run| run["report"]["connections"]["attempted"].as_u64() <= Some(40)), "{told}");
}

#[test]
fn where_every_operation_fails_for_one_cause_there_is_no_search() {
    let mut server = Program::start(&["serve", "ping", "-l", "127.0.0.1:0"]);
    let address = server.line().strip_prefix("listening on ").expect("it listens").to_owned();
    let end = Program::of(&format!("find echo {address} -c 100 --hold 300ms --json -")).end();
    assert_eq!(end.code, Some(3), "{end:?}");
    let result: Value = serde_json::from_str(&end.stdout).expect("what was tried");
    assert!(amounts(&result).len() <= 3, "it goes to 1 at once: {end:?}");
    assert!(end.stderr.contains("error: every operation fails: "), "{end:?}");
}
