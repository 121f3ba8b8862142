//! Runs whose clients are in other processes, of which some die.

use rustix::process::{Pid, Signal, kill_process};
use sockdrawer_load::{End, Observer, Plan, Processes, Progress, Report, Run, Stop, Workload};
use std::fs;
use std::time::Duration;

fn main() {
    sockdrawer_load::agent();
    a_run_is_not_complete_when_all_its_processes_died();
    a_number_of_operations_is_not_complete_when_one_of_the_processes_died();
}

/// Kills processes of clients once operations have ended.
struct Kills {
    processes: usize,
    are_killed: bool,
}

impl Observer for Kills {
    fn progress(&mut self, progress: &Progress) {
        if progress.numbers.operations_ok > 0 && !std::mem::replace(&mut self.are_killed, true) {
            let children = children();
            assert_eq!(children.len(), 2, "the processes of clients");
            for child in &children[..self.processes] {
                kill_process(*child, Signal::KILL).expect("it runs");
            }
        }
    }
}

/// Returns the processes that this thread has started.
fn children() -> Vec<Pid> {
    let list = fs::read_to_string("/proc/thread-self/children").expect("the kernel lists them");
    list.split_whitespace().map(|id| Pid::from_raw(id.parse().expect("a number")).expect("not 0")).collect()
}

/// Runs pings of 4 connections in 2 processes, of which so many are killed.
fn run_and_kill(processes: usize, operations: Option<u64>, end: End) -> Report {
    let plan = Plan {
        connections: 4,
        operations,
        end,
        processes: Processes::Exactly(2),
        ..Plan::new(Workload::ping(Duration::from_millis(10)))
    };
    let run = Run::start(&plan).expect("clients");
    run.finish(&Stop::new(), Kills { processes, are_killed: false }).expect("a pool that goes on")
}

fn assert_not_complete(report: &Report, lost: u32) {
    assert_eq!((report.client.lost, report.complete), (lost, false), "{report}");
    let why = report.ended_early.as_deref().unwrap_or_default();
    assert!(why.starts_with("a process of clients died, after "), "{why}");
}

fn a_run_is_not_complete_when_all_its_processes_died() {
    let report = run_and_kill(2, None, End::AfterFirstConnect(Duration::from_secs(600)));
    assert_not_complete(&report, 2);
}

fn a_number_of_operations_is_not_complete_when_one_of_the_processes_died() {
    let report = run_and_kill(1, Some(1_600), End::Never);
    assert_not_complete(&report, 1);
    let ended = report.operations.ok + report.operations.failed;
    assert!((800..1_600).contains(&ended), "{report}");
}
