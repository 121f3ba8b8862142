//! `sockdrawer load --processes`: clients in several processes are one run, and none of them outlives it.

use crate::program::Program;
use crate::report::{number, report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::os::fd::OwnedFd;

fn load(words: &str) -> Program {
    Program::of(&format!("load {words}"))
}

/// Returns the processes that a program has started.
fn children(program: &Program) -> Vec<Pid> {
    let id = program.child.id();
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("it runs");
    text.split_whitespace().map(|id| Pid::from_raw(id.parse().expect("a number")).expect("not 0")).collect()
}

/// Waits until so many connections stand: the program tells where it is each 5 s.
fn wait_for(program: &mut Program, words: &str) {
    loop {
        let line = program.error_line();
        assert!(!line.is_empty(), "it ended before there were {words}");
        if line.contains(words) {
            return;
        }
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).expect("it can be waited for")
        > 0
}

#[test]
fn processes_share_connections_and_operations() {
    for workload in ["ping --interval 0", "echo", "hello", "http", "acks --batch 10"] {
        let end = load(&format!("{workload} --processes 3 -c 10 -n 1000 --timeout 20 --json -")).end();
        assert_eq!(end.code, Some(0), "{workload}: {end:?}");
        let report = report(&end);
        assert_eq!((number(&report, "/operations/ok"), number(&report, "/operations/failed")), (1000, 0), "{workload}");
        assert_eq!((number(&report, "/client/processes"), number(&report, "/client/lost")), (3, 0), "{workload}");
        assert!(number(&report, "/connections/established") >= 10, "{workload}: {report}");
        assert_adds_up(&report);
    }
}

fn assert_adds_up(report: &serde_json::Value) {
    let [attempted, established, failed, open, closed, lost] = ["attempted", "established", "failed", "open", "closed", "lost"]
        .map(|name| number(report, &format!("/connections/{name}")));
    assert_eq!(attempted, established + failed, "{report}");
    assert_eq!(established, open + closed + lost, "{report}");
}

#[test]
fn one_that_dies_is_told_and_its_connections_are_lost() {
    let mut program = load("ping --processes 2 -c 20 --interval 100ms -d 8 --json -");
    wait_for(&mut program, "holding, 20 open");
    kill_process(children(&program)[0], Signal::KILL).expect("it runs");
    let end = program.end();
    assert_eq!(end.code, Some(4), "{end:?}");
    let report = report(&end);
    assert_eq!((number(&report, "/client/lost"), number(&report, "/connections/lost")), (1, 10), "{report}");
    assert_adds_up(&report);
}

#[test]
fn an_interrupt_reports_what_was_reached() {
    let mut program = load("ping --processes 2 -c 20 --interval 100ms -d 60 --json -");
    wait_for(&mut program, "holding, 20 open");
    program.signal(Signal::INT);
    let end = program.end();
    assert_eq!(end.code, Some(130), "{end:?}");
    let report = report(&end);
    assert_eq!((number(&report, "/connections/open"), number(&report, "/connections/lost")), (20, 0), "{report}");
    assert!(number(&report, "/operations/ok") > 20, "{report}");
}

#[test]
fn whoever_is_killed_leaves_no_process_behind() {
    let mut program = load("ping --processes 2 -c 20 --interval 100ms -d 60 --json -");
    wait_for(&mut program, "holding, 20 open");
    let processes: Vec<OwnedFd> =
        children(&program).into_iter().map(|id| pidfd_open(id, PidfdFlags::empty()).expect("it runs")).collect();
    assert_eq!(processes.len(), 2);
    program.signal(Signal::KILL);
    assert!(processes.iter().all(has_ended), "a process of clients outlives the one that reports");
}
