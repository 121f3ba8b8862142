//! Causes that a run tells: they come from evidence that can bear them.

use crate::orders::{Control, path};
use crate::program::{End, Program, load};
use crate::report::report;
use rustix::process::Signal;
use std::process::Command;

fn serve(words: &str) -> (Program, String) {
    let mut server = Program::of(&format!("serve {words}"));
    let line = server.line();
    let target = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}: it does not listen")).to_owned();
    (server, target)
}

#[test]
fn connections_that_a_limit_turned_away_are_not_told_as_idle() {
    let (_server, target) = serve("echo --limit 5 --on-full reject -l 127.0.0.1:0");
    // No question is due at first.
    let end = load(&format!("echo {target} -c 10 -d 1 --interval 1h"));
    assert!(end.stdout.contains("unused EOF: 5, at 0."), "{end:?}");
    assert!(end.stdout.contains("; the server closed a new connection before a question was sent"), "{end:?}");
    assert!(!end.stdout.contains("idle"), "{end:?}");
}

#[test]
fn a_server_that_ends_is_not_told_as_idle() {
    let (server, target) = serve("echo -l 127.0.0.1:0");
    let path = path("evidence");
    let run = Program::of(&format!("load echo {target} -c 20 -d 1m --interval 50ms --control {}", path.display()));
    Control::to(&path).until("an answer on each connection", |status| status["numbers"]["operations_ok"].as_u64() >= Some(400));
    server.signal(Signal::KILL);
    let End { stdout, code, .. } = run.end();
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains("the server ended all connections at one moment"), "{stdout}");
    assert!(stdout.contains("ended early  no connection was left, and none is replaced (--reconnect), after "), "{stdout}");
    assert!(!stdout.contains("limited by"), "{stdout}");
}

#[test]
fn a_moment_shows_no_limit() {
    for words in ["ping -c 1 -n 1", "ping 127.0.0.1:1 -c 5", "http -n 1"] {
        assert!(!load(words).stdout.contains("limited by"), "{words}");
    }
}

#[test]
fn what_the_processes_of_clients_need_here_is_in_the_budget() {
    let (_server, target) = serve("ping -l 127.0.0.1:0");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" load ping \"$1\" -c 100", env!("CARGO_BIN_EXE_sockdrawer"), &target]);
    let end = Program::run(command).end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(3), ""), "{end:?}");
    assert!(end.stderr.contains("2 for each of the 100 processes") && end.stderr.contains("ulimit -Hn 356"), "{end:?}");
}

#[test]
fn the_time_of_programs_that_ended_is_not_left_out() {
    let (_server, target) = serve("exec -l 127.0.0.1:0 -- cat");
    let end = load(&format!("echo {target} -c 4 -n 100"));
    assert!(end.stdout.contains("per operation in the client, - in the server"), "what ended used less than is counted: {end:?}");
}

#[test]
fn a_check_of_a_server_that_is_not_there_fails() {
    let end = Program::of("doctor 127.0.0.1:1").end();
    assert_eq!(end.code, Some(3), "{end:?}");
    assert!(
        end.stdout.contains("lacks  server listener        missing")
            && !end.stdout.contains("1 of 0")
            && end.stdout.contains("ECONNREFUSED: nothing listens there"),
        "{end:?}"
    );
}

/// A cgroup with a fifth of a CPU, until it is dropped. None: none can be made here.
struct Quota(std::path::PathBuf);

impl Quota {
    fn new() -> Option<Quota> {
        let is_v2 = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (folder, file, quota) = match is_v2 {
            true => ("/sys/fs/cgroup", "cpu.max", "20000 100000"),
            false => ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "20000"),
        };
        let folder = std::path::Path::new(folder).join(format!("sockdrawer-evidence-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let quota = std::fs::write(folder.join(file), quota).map(|()| Quota(folder.clone()));
        quota.map_err(|_| std::fs::remove_dir(&folder)).ok()
    }

    fn run(&self, words: &str) -> Program {
        let mut command = std::process::Command::new("sh");
        let (folder, program) = (self.0.display(), env!("CARGO_BIN_EXE_sockdrawer"));
        command.args(["-c", &format!("echo $$ > {folder}/cgroup.procs; exec {program} {words}")]);
        Program::run(command)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}

#[test]
fn a_quota_is_told_before_the_run_and_when_it_stopped_the_client() {
    let Some(quota) = Quota::new() else {
        eprintln!("skipped: no cgroup with a quota can be made here");
        return;
    };
    let end = quota.run("load echo -c 8 -d 3s --json -").end();
    let report = report(&end);
    assert_eq!((&report["machine"]["cpu_quota"], &report["wall"]["name"]), (&0.2.into(), &"client CPU".into()), "{end:?}");
    let why = report["wall"]["why"].as_str().expect("it says why");
    assert!(
        why.starts_with("its quota of 0.20 CPUs (/sys/fs/cgroup/") && why.contains(" periods: what was measured is"),
        "{why}"
    );
    assert!(end.stderr.contains("client CPU quota"), "the budget has it: {end:?}");
    let end = quota.run("doctor -c 10").end();
    assert!(end.code == Some(0) && end.stdout.contains("maybe  client CPU quota"), "{end:?}");
}
