//! `sockdrawer trial TARGET --change COMMAND` as a user runs it: a server that nothing is done to passes, and what a change costs is
//! counted in its column.

use crate::faults::bound;
use crate::strangers;
use crate::web;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use sockdrawer::{Config, Context, Input, Peer, Pool, Protocol, Service, Step};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sockdrawer");

fn trial(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("trial").args(arguments).output().expect("the program was built")
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {}", told(output)))
}

fn told(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no count {name} in {report}"))
}

/// A folder for one test, removed with all in it; a process whose number is in its file `pid` is ended.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sockdrawer-foreign-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a name in UTF-8").to_owned()
    }
}

fn pid_in(file: &Path) -> Option<Pid> {
    Pid::from_raw(fs::read_to_string(file).ok()?.trim().parse().ok()?)
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(pid) = pid_in(&self.0.join("pid")) {
            // It may have ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a server as another process, and returns it with where it listens.
fn served(protocol: &str) -> (Child, String) {
    served_at(protocol, "127.0.0.1:0")
}

fn served_at(protocol: &str, address: &str) -> (Child, String) {
    let mut server = Command::new(PROGRAM)
        .args(["serve", protocol, "--listen", address])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("it is a pipe")).read_line(&mut line).expect("it tells where");
    (server, line.trim().strip_prefix("listening on ").expect("its first line").to_owned())
}

fn end(mut server: Child) {
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

#[test]
fn a_server_that_nothing_is_done_to_loses_nothing() {
    let folder = Folder::new("nothing");
    let unix = format!("unix:{}", folder.file("socket"));
    let name = format!("unix:@sockdrawer-foreign-{}", std::process::id());
    for (workload, at) in [("echo", "127.0.0.1:0"), ("ping", "127.0.0.1:0"), ("echo", &unix), ("ping", &name)] {
        let (server, address) = served_at(workload, at);
        let output = trial(&[
            &address,
            "--change",
            "true",
            "--every",
            "200ms",
            "--changes",
            "3",
            "--workload",
            workload,
            "--seed",
            "7",
            "--json",
            "-",
        ]);
        end(server);
        let (report, all) = (report(&output), told(&output));
        assert_eq!(output.status.code(), Some(0), "{all}");
        assert_eq!((&report["verdict"], count(&report, "changes"), count(&report, "seed")), (&"good".into(), 3, 7), "{all}");
        for name in ["failed_connects", "lost_connections", "wrong_bytes", "failed_commands"] {
            assert_eq!(count(&report, name), 0, "{all}");
        }
        assert_eq!(report["per_change"].as_array().map(Vec::len), Some(3), "{all}");
        assert!(count(&report, "connects") > 60 && count(&report, "kept_round_trips") > 100, "{all}");
        assert!(all.contains("verdict: good, 3 changes"), "{all}");
    }
}

#[test]
fn a_restart_of_the_server_is_counted() {
    let folder = Folder::new("restart");
    let (server, address) = served_at("echo", &strangers::address(9).to_string());
    fs::write(folder.file("pid"), server.id().to_string()).expect("a file");
    let pid = folder.file("pid");
    let said = folder.file("said");
    // The address may be taken for a moment longer: by other threads of the one that was killed, or by a client that got its port as
    // its own. A server that could not bind ends, and the next one tries.
    let restart = format!(
        "kill -9 $(cat {pid}); true > {said}; until grep -q listening {said}; do \
         kill -0 \"$new\" 2> {said}.lost || {{ {PROGRAM} serve echo --listen {address} > {said} 2> {said}.error & \
         new=$!; echo $new > {pid}; }}; sleep 0.05; done"
    );
    let output = trial(&[&address, "--change", &restart, "--every", "2s", "--changes", "2", "--kept", "10", "--json", "-"]);
    end(server);
    let (report, all) = (report(&output), told(&output));
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &"bad".into()), "{all}");
    assert!(count(&report, "refused") + count(&report, "reset") > 0, "{all}");
    assert!(count(&report, "kept_standing") > 0, "they come back: {all}");
    assert_eq!((count(&report, "wrong_bytes"), count(&report, "failed_commands")), (0, 0), "{all}");
    let changes = report["per_change"].as_array().expect("a list");
    // A client that comes back may meet with the last moment of the old server and be lost again.
    assert!(count(&changes[0], "lost_connections") >= 10 && changes.len() == 2, "{all}");
    assert!(count(&report, "longest_without_connect_us") > 0, "{all}");
}

#[test]
fn a_command_that_fails_is_shown_with_its_words() {
    let (server, address) = served("echo");
    let output = trial(&[&address, "--change", "echo there is no such thing; exit 4", "--every", "0", "--changes", "2"]);
    end(server);
    let all = told(&output);
    assert_eq!(output.status.code(), Some(1), "{all}");
    assert!(all.contains("verdict: bad: 2 of 2 commands failed (the first: 4)"), "{all}");
    assert!(all.contains("\n    there is no such thing\n"), "{all}");
}

#[test]
fn a_server_that_is_not_there_is_told_in_one_line() {
    let (_bound, refuses) = bound();
    let output = trial(&[&refuses.to_string(), "--change", "true"]);
    let all = told(&output);
    assert_eq!(output.status.code(), Some(3), "{all}");
    assert!(output.stdout.is_empty() && output.stderr.iter().filter(|byte| **byte == b'\n').count() == 1, "{all}");
    assert!(all.contains(&format!("error: cannot connect to {refuses}: Connection refused")), "{all}");
}

#[test]
fn a_server_that_speaks_otherwise_is_told_before_anything_is_changed() {
    let folder = Folder::new("otherwise");
    let (server, address) = served("ping");
    let change = format!("touch {}", folder.file("changed"));
    let output = trial(&[&address, "--change", &change, "--workload", "http"]);
    end(server);
    let all = told(&output);
    assert_eq!(output.status.code(), Some(3), "{all}");
    assert!(all.contains("does not answer as the workload expects"), "{all}");
    assert!(!Path::new(&folder.file("changed")).exists(), "{all}");
}

#[test]
fn requests_name_the_host_of_the_url() {
    let named = Arc::new(AtomicU64::new(0));
    let counted = named.clone();
    let server = web::Web::serve(move |asked| {
        counted.fetch_add(u64::from(asked.head.contains("\r\nHost: localhost:")), Ordering::SeqCst);
        let then = if asked.wants_close() { web::Then::Close } else { web::Then::Keep };
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(), then)
    });
    let url = format!("http://localhost:{}/", server.address.port());
    let output = trial(&[&url, "--change", "true", "--every", "50ms", "--changes", "2", "--kept", "5"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let asked = server.asked.load(Ordering::SeqCst);
    assert!(asked > 0 && named.load(Ordering::SeqCst) == asked, "{} of {asked}", named.load(Ordering::SeqCst));
}

#[test]
fn an_interrupted_trial_ends_its_command_and_reports() {
    let folder = Folder::new("interrupted");
    let (server, address) = served("echo");
    let (child, fifo) = (folder.file("child"), folder.file("fifo"));
    // The command says through a pipe that it runs.
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is there");
    assert!(made.success());
    let change = format!("sleep 60 & echo $! > {child}; echo > {fifo}; wait");
    let trial = Command::new(PROGRAM)
        .args(["trial", &address, "--change", &change, "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    fs::File::open(&fifo).and_then(|mut pipe| pipe.read(&mut [0])).expect("the command runs");
    kill_process(Pid::from_child(&trial), Signal::INT).expect("it runs");
    let output = trial.wait_with_output().expect("it ends");
    end(server);
    let (report, all) = (report(&output), told(&output));
    assert_eq!(output.status.code(), Some(130), "{all}");
    assert_eq!((&report["interrupted"], &report["per_change"][0]["ended"]), (&true.into(), &"stopped".into()), "{all}");
    let sleeping = pid_in(Path::new(&child)).expect("its number");
    assert!(test_kill_process(sleeping).is_err() || is_zombie(sleeping), "the command's child still runs: {all}");
}

fn is_zombie(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    status.contains("State:\tZ") || status.is_empty()
}

/// Answers each GET with what is in a file; `once`: and ends the connection.
struct Web {
    file: PathBuf,
    once: bool,
}

struct Answers {
    file: PathBuf,
    once: bool,
}

impl Service for Web {
    type Protocol = Answers;

    fn open(&self, _peer: &Peer) -> Answers {
        Answers { file: self.file.clone(), once: self.once }
    }
}

impl Protocol for Answers {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let request = String::from_utf8_lossy(input.bytes()).into_owned();
        let Some(end) = request.find("\r\n\r\n") else { return Step::Continue };
        input.take(end + 4);
        let last = self.once || request.contains("Connection: close");
        let body = fs::read(&self.file).expect("the test wrote it");
        let word = if last { "close" } else { "keep-alive" };
        let head = format!("HTTP/1.1 200 OK\r\nConnection: {word}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
        cx.send(&[head.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat());
        if last { Step::Close } else { Step::Continue }
    }
}

fn web(file: &str, once: bool) -> (Pool, String) {
    let config = Config::accept(Web { file: file.into(), once }).listen("127.0.0.1:0");
    let pool = Pool::start(config).expect("it starts");
    let address = pool.addresses()[0].to_string();
    (pool, address)
}

#[test]
fn a_web_server_is_tried_by_its_answers() {
    let folder = Folder::new("web");
    fs::write(folder.file("page"), "the same").expect("a file");
    let (_pool, address) = web(&folder.file("page"), false);
    let run = |change: &str| {
        let http = ["--workload", "http", "--kept", "10", "--json", "-"];
        trial(&[&[&address, "--change", change, "--every", "300ms", "--changes", "2"][..], &http].concat())
    };
    let output = run("true");
    assert_eq!((output.status.code(), &report(&output)["verdict"]), (Some(0), &"good".into()), "{}", told(&output));
    let next = folder.file("next");
    // By rename, so that each answer has the one or the other.
    let output = run(&format!("printf 'the game' > {next}; mv {next} {}", folder.file("page")));
    let (report, all) = (report(&output), told(&output));
    assert_eq!((output.status.code(), &report["verdict"]), (Some(1), &"bad".into()), "{all}");
    assert!(count(&report, "wrong_bytes") > 0 && count(&report, "failed_otherwise") > 0, "{all}");
    assert!(count(&report, "kept_standing") <= 10, "no more than there are to be: {all}");
    assert_eq!(
        report["odd_answer"],
        "two bodies differ, each of status 200 and 8 bytes: the page changed, or each client has its own (in change 1)",
        "{all}"
    );
}

#[test]
fn a_server_that_answers_errors_is_no_subject() {
    let server = crate::web::Web::always(b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n-");
    let url = format!("http://{}/none", server.address);
    let output = trial(&[&url, "--change", "true", "--every", "100ms", "--changes", "1"]);
    let all = told(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{all}");
    assert!(all.contains("answers with status 404 before anything is changed"), "{all}");
}

#[test]
fn a_trial_of_less_time_than_an_interval_is_not_longer() {
    let (server, address) = served("echo");
    let output = trial(&[&address, "--change", "true", "--every", "30s", "-d", "1s", "--json", "-"]);
    end(server);
    let (report, all) = (report(&output), told(&output));
    assert_eq!(output.status.code(), Some(0), "{all}");
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds < 20.0), "{all}");
}

#[test]
fn a_web_server_that_keeps_no_connection_is_told_so() {
    let folder = Folder::new("once");
    fs::write(folder.file("page"), "x").expect("a file");
    let (_pool, address) = web(&folder.file("page"), true);
    let all = [&address, "--change", "true", "--every", "100ms", "--changes", "1", "--workload", "http"];
    let output = trial(&all);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains("ends each connection after its answer"), "{}", told(&output));
    let output = trial(&[&all[..], &["--kept", "0"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}
