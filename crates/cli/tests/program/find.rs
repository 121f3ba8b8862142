//! `sockdrawer find`: the most that holds, and what stops more.

use crate::program::Program;
use serde_json::Value;

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
    assert_eq!(amounts(&result), [4, 8, 16, 16, 12, 14, 14, 13, 13, 12], "{result}");
    assert!(
        told.contains("found: 12 connections, twice; 13 do not hold: 1 times unused EOF: the server closed a new connection"),
        "{told}"
    );
    let held: Vec<bool> = result["runs"].as_array().expect("a list").iter().map(|run| run["held"] == true).collect();
    assert_eq!(held, [true, true, false, false, true, false, false, false, false, true]);
}

#[test]
fn the_most_that_was_asked_for_may_hold_and_the_least_may_not() {
    let (code, result, told) = find("ping -c 3 --max 6 --hold 100ms --interval 20ms --threshold lost==0 --json -");
    assert_eq!((code, amounts(&result), &result["found"]), (Some(0), vec![3, 6, 6], &6.into()), "{result}");
    assert!(told.contains("found: 6 connections, twice: the most that was asked for (--max)"), "{told}");
    let (code, result, told) = find("echo --vary rate --max 4 -c 1 -d 300ms --threshold p99<1ns --json -");
    assert_eq!((code, amounts(&result), &result["found"]), (Some(99), vec![4, 4, 2, 2, 1, 1], &Value::Null), "{result}");
    assert!(told.contains("nothing holds, not even 1 operations/s"), "{told}");
}

#[test]
fn a_target_where_nothing_listens_is_no_search() {
    let deserted = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
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
        lines[0].contains("a try takes 150ms after its connects, at 5000/s") && lines[0].ends_with("about 3 tries if all hold"),
        "{end:?}"
    );
    assert!(lines[1].ends_with("about 2 left") && lines[2].ends_with("about 1 left"), "{end:?}");
    let page = std::fs::read_to_string(path.join("report.html")).expect("a page");
    assert!(
        page.contains("p99 of operations by connections") && page.contains("ping to a server in this program: 4 connections"),
        "{page}"
    );
    let search = std::fs::read_to_string(path.join("search.json")).expect("the result");
    let search: Value = serde_json::from_str(&search).expect("JSON");
    assert_eq!(
        (&search["schema"], &search["found"], &search["complete"]),
        (&"sockdrawer.find/2".into(), &4.into(), &true.into())
    );
    let again = Program::of(&words).end();
    assert!(again.code == Some(2) && again.stderr.contains("has a run already"), "{again:?}");
    std::fs::remove_dir_all(&path).expect("it is there");
}

#[test]
fn connections_with_a_lifetime_have_a_search_that_ends() {
    let (code, result, _) = find("ping -c 2 --max 2 --lifetime 200ms --interval 50ms --json -");
    assert_eq!((code, &result["found"]), (Some(0), &2.into()), "{result}");
    // A busy machine may not keep the pace of a run, which is then made once more.
    assert!(amounts(&result).iter().all(|amount| *amount == 2), "{result}");
}
