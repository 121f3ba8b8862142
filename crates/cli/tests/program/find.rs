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
    assert_eq!(amounts(&result), [4, 8, 16, 12, 14, 13, 12], "{result}");
    assert!(told.contains("found: 12 connections, twice; 13 do not hold"), "{told}");
    let held: Vec<bool> = result["runs"].as_array().expect("a list").iter().map(|run| run["held"] == true).collect();
    assert_eq!(held, [true, true, false, true, false, false, true]);
}

#[test]
fn the_most_that_was_asked_for_may_hold_and_the_least_may_not() {
    let (code, result, told) = find("ping -c 3 --max 6 --hold 100ms --interval 20ms --threshold lost==0 --json -");
    assert_eq!((code, amounts(&result), &result["found"]), (Some(0), vec![3, 6, 6], &6.into()), "{result}");
    assert!(told.contains("found: 6 connections, twice: the most that was asked for (--max)"), "{told}");
    let (code, result, told) = find("echo --vary rate --max 4 -c 1 -d 300ms --threshold p99<1ns --json -");
    assert_eq!((code, amounts(&result), &result["found"]), (Some(99), vec![4, 2, 1], &Value::Null), "{result}");
    assert!(told.contains("nothing holds, not even 1 operations/s"), "{told}");
}

#[test]
fn a_target_where_nothing_listens_is_no_search() {
    let deserted = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let (code, result, told) = find(&format!("ping {deserted} --json -"));
    assert_eq!((code, amounts(&result).len()), (Some(3), 0), "{told}");
    assert!(told.contains(&format!("cannot connect to {deserted} (ECONNREFUSED): nothing listens there")), "{told}");
}

#[test]
fn connections_with_a_lifetime_have_a_search_that_ends() {
    let (code, result, _) = find("ping -c 2 --max 2 --lifetime 200ms --interval 50ms --json -");
    assert_eq!((code, amounts(&result), &result["found"]), (Some(0), vec![2, 2], &2.into()), "{result}");
}
