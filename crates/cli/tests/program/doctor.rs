//! `sockdrawer doctor`: what lacks is told, with its command, and the exit code says so.

use crate::program::{End, Program};
use crate::report::report;
use rustix::process::Signal;
use std::process::Command;

fn doctor(words: &str) -> End {
    Program::of(&format!("doctor {words}")).end()
}

#[test]
fn what_is_there_is_told_and_nothing_lacks() {
    let end = doctor("-c 100");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("ok     client ports") && end.stdout.ends_with("100 connections can be tried\n"), "{end:?}");
}

#[test]
fn a_server_with_few_descriptors_lacks_them() {
    // A server of a shell that may have 300.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 300; exec \"$0\" serve ping -l 127.0.0.1:0", env!("CARGO_BIN_EXE_sockdrawer")]);
    let mut server = Program::run(command);
    let line = server.line();
    let target = line.strip_prefix("listening on ").expect("it says where").to_owned();
    let pid = server.child.id();
    let url = format!("http://{target}/path");
    for words in
        [format!("{target} -c 1000 --json -"), format!("{url} -c 1000 --json -"), format!("--pid {pid} -c 1000 --json -")]
    {
        let end = doctor(&words);
        assert_eq!(end.code, Some(3), "{words}: {end:?}");
        let findings = report(&end);
        assert_eq!((&findings["schema"], &findings["ok"]), (&1.into(), &false.into()), "{findings}");
        let needs = findings["needs"].as_array().expect("a list");
        let lacking: Vec<_> = needs.iter().filter(|need| need["fit"] == "lacking").collect();
        assert_eq!(lacking.len(), 1, "{findings}");
        assert_eq!(
            (&lacking[0]["end"], &lacking[0]["what"], &lacking[0]["needed"]),
            (&"server".into(), &"descriptors".into(), &1000.into())
        );
        let remedy = lacking[0]["remedy"].as_str().expect("what mends it");
        assert!(remedy.starts_with(&format!("prlimit --pid {pid} --nofile=1")), "{remedy}");
    }
    assert_eq!(doctor(&format!("{target} -c 100")).code, Some(0));
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn processes_that_accept_share_the_connections() {
    let mut server = Program::start(&["serve", "ping", "-l", "127.0.0.1:0", "--model", "prefork", "--processes", "3"]);
    let line = server.line();
    let target = line.strip_prefix("listening on ").expect("it says where").to_owned();
    let findings = report(&doctor(&format!("{target} -c 900 --json -")));
    let needs = findings["needs"].as_array().expect("a list").iter();
    let each: Vec<_> = needs.filter(|need| need["end"] == "server" && need["what"] == "descriptors").collect();
    assert_eq!(each.len(), 3, "the one that manages them has no connection: {findings}");
    assert!(each.iter().all(|need| need["needed"] == 300), "{findings}");
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn the_command_that_it_names_mends_it() {
    let mut server = Program::start(&["serve", "ping", "-l", "127.0.0.1:0"]);
    let line = server.line();
    let target = line.strip_prefix("listening on ").expect("it says where").to_owned();
    let lower = Command::new("prlimit").args(["--pid", &server.child.id().to_string(), "--nofile=200:"]).status();
    if !lower.is_ok_and(|status| status.success()) {
        eprintln!("skipped: prlimit of util-linux is not here");
        return;
    }
    let end = doctor(&format!("{target} -c 500"));
    assert_eq!(end.code, Some(3), "{end:?}");
    let line = end.stdout.lines().find(|line| line.contains("prlimit")).expect("the command is named");
    let (_, command) = line.split_once("TOO FEW: ").expect("what to do");
    let (command, _) = command.split_once(',').expect("another way");
    let words: Vec<&str> = command.split_whitespace().collect();
    assert!(Command::new(words[0]).args(&words[1..]).status().expect("it is there").success(), "{command}");
    assert_eq!(doctor(&format!("{target} -c 500")).code, Some(0));
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn a_process_that_is_not_there_is_a_usage_error() {
    let end = doctor("--pid 4000000000");
    assert_eq!((end.code, end.stdout.as_str()), (Some(2), ""), "{end:?}");
    assert!(end.stderr.contains("no such process"), "{end:?}");
}
