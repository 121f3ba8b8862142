//! `serve --upgrade`, SIGUSR2 and `upgrade`: a server is replaced by another process, and its clients do not notice.

mod changed;
mod confined;
mod failing;
mod left;
mod secrets;
pub(crate) mod tls;

use crate::faults::until;
use crate::program::{End, Program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A server that meets its next build at a path, and a client of it.
struct Scene {
    server: Program,
    client: TcpStream,
    path: PathBuf,
    /// Ended with the test: no child of it.
    last: Option<Pid>,
}

impl Scene {
    fn new(name: &str, notify: Option<&Path>) -> Scene {
        Scene::of(Command::new(env!("CARGO_BIN_EXE_sockdrawer")), free(name), notify)
    }

    /// Makes the scene of the program that this command starts.
    fn of(mut command: Command, path: PathBuf, notify: Option<&Path>) -> Scene {
        // Port 0 is the port that it was.
        command.args(["serve", "ping", "--loops", "1", "-l", "127.0.0.1:0", "--upgrade"]).arg(&path);
        if let Some(notify) = notify {
            command.env("NOTIFY_SOCKET", notify);
        }
        let mut server = Program::run(command);
        let line = server.line();
        let at: SocketAddr = line.strip_prefix("listening on ").and_then(|at| at.parse().ok()).expect("an address");
        let client = TcpStream::connect(at).expect("it accepts");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        let mut scene = Scene { server, client, path, last: None };
        scene.is_served();
        scene
    }

    fn is_served(&mut self) {
        let mut answer = [0; 4];
        self.client.write_all(b"Ping").expect("it stands");
        self.client.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"Pong");
    }

    fn upgrade(&self, words: &str) -> End {
        let path = self.path.to_str().expect("text");
        Program::start(&["upgrade", path].into_iter().chain(words.split_whitespace()).collect::<Vec<_>>()).end()
    }

    /// Returns the pid in the last line of what came of an upgrade.
    fn serves_alone(&mut self, line: &str) -> u32 {
        let pid = line.strip_prefix("pid ").and_then(|line| line.strip_suffix(" serves alone"));
        let pid = pid.and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        self.last = Pid::from_raw(pid);
        pid.cast_unsigned()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // It may be the server itself, which has ended.
        self.last.into_iter().for_each(|last| _ = kill_process(last, Signal::TERM));
        let _ = std::fs::remove_file(&self.path);
    }
}

fn free(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("sockdrawer-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn a_signal_and_a_command_replace_the_server() {
    let mut scene = Scene::new("upgrade-replaced", None);
    scene.server.signal(Signal::USR2);
    let prepared = scene.server.error_line();
    assert!(prepared.starts_with("prepared in ") && prepared.contains("; accepting paused for "), "{prepared}");
    let moved = scene.server.error_line();
    assert!(moved.starts_with("moved 1 in ") && moved.contains(", pause p50 "), "{moved}");
    let told = scene.server.error_line();
    let second = scene.serves_alone(&told);
    scene.is_served();
    let status = scene.upgrade("--status");
    let expected = format!("pid {second}, version {}\n  serve: 1 connections: 1 can move\n", env!("CARGO_PKG_VERSION"));
    assert!(status.code == Some(0) && status.stdout.starts_with(&expected), "{status:?}");
    let third = scene.upgrade("--json -");
    assert_eq!(third.code, Some(0), "{third:?}");
    let report: serde_json::Value = serde_json::from_str(&third.stdout).expect("JSON");
    assert_eq!((&report["plan"]["from"]["pid"], &report["result"]["moved"]), (&second.into(), &1.into()), "{report}");
    let lines: Vec<&str> = third.stderr.lines().collect();
    assert!(lines[0].starts_with(&format!("plan: 0.1.0 (pid {second}) to 0.1.0 (pid ")), "{lines:?}");
    let third = scene.serves_alone(lines.last().expect("a last line"));
    assert_ne!(second, third);
    scene.is_served();
    // The first one stands by no more since the second was replaced.
    let ended = scene.server.child.wait().expect("a child");
    assert_eq!(ended.code(), Some(0));
    assert!(scene.path.exists(), "the last one meets builds there");
    let last = Pid::from_raw(third.cast_signed()).expect("a pid");
    let itself = pidfd_open(last, PidfdFlags::empty()).expect("it runs");
    kill_process(last, Signal::TERM).expect("it runs");
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&itself, PollFlags::IN)], Some(&patience)), Ok(1), "it drains");
    assert!(!scene.path.exists(), "an orderly end leaves nothing behind");
}

#[test]
fn a_build_that_is_asked_to_end_before_it_took_over_takes_nothing_over() {
    let mut scene = Scene::new("upgrade-asked-to-end", None);
    // The next build waits for its answer.
    scene.server.stop();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["serve", "ping", "-l", "127.0.0.1:0", "--upgrade"]).arg(&scene.path).env("SOCKDRAWER_REPLACES", "any");
    let mut next = Program::run(command);
    let threads = format!("/proc/{}/task", next.child.id());
    let hears_signals = || {
        let threads = std::fs::read_dir(&threads).expect("it lives").flatten();
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok()).any(|name| name == "signals\n")
    };
    until("a thread that hears signals", hears_signals);
    next.signal(Signal::TERM);
    until("its end", || next.child.try_wait().expect("a child").is_some());
    scene.server.signal(Signal::CONT);
    assert_eq!(next.end().code, Some(0));
    scene.is_served();
    let status = scene.upgrade("--status");
    assert!(status.stdout.starts_with(&format!("pid {}, ", scene.server.child.id())), "{status:?}");
}

/// Starts a server of this protocol that meets its next build at a path, and a client of it.
fn connected(name: &str, protocol: &str) -> (PathBuf, Program, TcpStream) {
    let path = free(name);
    let at = path.to_str().expect("text");
    let mut server = Program::of(&format!("serve {protocol} -l 127.0.0.1:0 --upgrade {at}"));
    let line = server.line();
    let client = TcpStream::connect(line.trim_start_matches("listening on ")).expect("it accepts");
    (path, server, client)
}

fn is_echoed(client: &mut TcpStream) {
    client.write_all(b"x").and_then(|()| client.read_exact(&mut [0; 1])).expect("it is served");
}

#[test]
fn the_exit_says_whether_as_many_moved_as_were_required() {
    let (path, server, mut client) = connected("upgrade-required", "echo --model fork");
    let at = path.to_str().expect("text");
    is_echoed(&mut client);
    for (words, code) in [("", 0), ("--require 0%", 0), ("--require 0.5", 1), ("--require-all", 1), ("--require 101%", 2)] {
        let end = Program::of(&format!("upgrade {at} --status {words}")).end();
        assert_eq!(end.code, Some(code), "{words}: {end:?}");
        let why = "0 of 1 connections move, 100% were asked for: serve: 1 stay (";
        assert!(words != "--require-all" || end.stderr.contains(why), "{end:?}");
    }
    server.signal(Signal::KILL);
    let _ = std::fs::remove_file(&path);
}

#[test]
fn what_an_upgrade_left_is_told_by_the_next_and_not_as_left_by_that() {
    let (path, _server, mut client) = connected("upgrade-earlier", "echo --model fork");
    let at = path.to_str().expect("text");
    is_echoed(&mut client);
    let mut last = None;
    let mut upgrade = |words: &str| {
        let end = Program::of(&format!("upgrade {at} --require-all --json - {words}")).end();
        let report: serde_json::Value = serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("{end:?}"));
        if let Some(pid) = report["result"]["pid"].as_i64() {
            last = Pid::from_raw(pid.try_into().expect("a number"));
        }
        (end.code, report["share"].clone(), end.stderr)
    };
    let (code, share, _) = upgrade("");
    assert_eq!((code, share["excused"].as_u64()), (Some(1), Some(0)), "{share}");
    let earlier = "serve: 1 stay (in an earlier process)";
    let expected = (Some(0), serde_json::json!({ "moved": 0, "of": 1, "excused": 1, "staying": [earlier] }));
    let (code, share, told) = upgrade("--rehearse");
    assert_eq!((code, share), expected, "{told}");
    let (code, share, told) = upgrade("");
    assert_eq!((code, share), expected, "{told}");
    assert!(told.contains(&format!("\n{earlier}\n")) && told.contains("serves; 1 connection is in an old process"), "{told}");
    is_echoed(&mut client);
    drop(client);
    until("no process before it has a connection", || upgrade("").2.contains("serves alone"));
    kill_process(last.expect("a pid"), Signal::TERM).expect("it runs");
    let _ = std::fs::remove_file(&path);
}

#[test]
fn connections_in_an_earlier_process_of_a_pool_that_is_dropped_are_not_excused() {
    let (path, server, mut client) = connected("upgrade-dropped", "echo --model fork");
    let at = path.to_str().expect("text");
    is_echoed(&mut client);
    let end = Program::of(&format!("upgrade {at} --json -")).end();
    let report: serde_json::Value = serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("{end:?}"));
    let second =
        Pid::from_raw(report["result"]["pid"].as_i64().expect("a process").try_into().expect("a number")).expect("a pid");
    let file = path.with_extension("toml");
    std::fs::write(&file, "[pool.other]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"\n").expect("a file");
    let next = format!("{} serve --config {} --upgrade {at}", env!("CARGO_BIN_EXE_sockdrawer"), file.display());
    let end = Program::of(&format!("upgrade {at} --rehearse --json - -- {next}")).end();
    kill_process(second, Signal::TERM).expect("it runs");
    server.signal(Signal::KILL);
    [&path, &file].into_iter().for_each(|path| _ = std::fs::remove_file(path));
    let report: serde_json::Value = serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("{end:?}"));
    let why = "serve: 1 stay (the new build has no such pool)";
    assert_eq!(report["share"], serde_json::json!({ "moved": 0, "of": 1, "excused": 0, "staying": [why] }), "{end:?}");
}

#[test]
fn a_connection_that_ends_in_an_upgrade_is_told_and_is_not_left_behind() {
    let (path, server, mut client) = connected("upgrade-ending", "http --linger 10m");
    let at = path.to_str().expect("text");
    // More than the server reads: it cannot close before this side has ended, or it has lingered for its time.
    let unread = [&b"GET / HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n"[..], &[b'x'; 80_000]].concat();
    client.write_all(&unread).expect("it stands");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an end");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let end = Program::of(&format!("upgrade {at} --require-all --json -")).end();
    let report: serde_json::Value = serde_json::from_str(&end.stdout).expect("JSON");
    let new = Pid::from_raw(report["result"]["pid"].as_i64().expect("a process").try_into().expect("a number")).expect("a pid");
    kill_process(new, Signal::TERM).expect("it runs");
    server.signal(Signal::KILL);
    let _ = std::fs::remove_file(&path);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(
        report["share"],
        serde_json::json!({ "moved": 0, "of": 1, "excused": 1, "staying": ["serve: 1 stay (ending)"] }),
        "{end:?}"
    );
    assert!(
        end.stderr.contains("\nserve: 1 stay (ending)\n") && end.stderr.contains("serves; 1 connection is in an old process"),
        "{end:?}"
    );
}

#[test]
fn what_does_not_work_is_told_and_the_server_goes_on() {
    let mut scene = Scene::new("upgrade-refused", None);
    let rehearsal = scene.upgrade("--rehearse");
    assert!(rehearsal.code == Some(0) && rehearsal.stdout.contains("  serve: takes over 127.0.0.1:"), "{rehearsal:?}");
    let program = env!("CARGO_BIN_EXE_sockdrawer");
    let at = scene.path.to_str().expect("text").to_owned();
    let cases = [
        ("-- /bin/false", 1, "/bin/false ended before it was ready: exit status: 1"),
        ("--rehearse -- /bin/false", 3, "/bin/false ended before it was ready: exit status: 1"),
        ("-- /nowhere", 1, "cannot start /nowhere: No such file or directory"),
        ("--within 100ms -- sleep 60", 1, "sleep was not ready in time and was killed"),
        (&format!("-- {program} serve --config /nowhere.toml"), 1, "gave up: "),
        (&format!("-- {program} serve nothing"), 1, "gave up: unknown protocol `nothing`"),
        (&format!("-- {program} serve ping --wrong"), 1, "gave up: unknown option `--wrong`"),
        ("--within 0", 2, "--within"),
        ("--status -- /bin/false", 2, "--status"),
    ];
    for (words, code, line) in cases {
        let refused = scene.upgrade(words);
        assert!(refused.code == Some(code) && refused.stderr.contains(line), "{words}: {refused:?}");
        scene.is_served();
    }
    // A script that asks something else first is no build that gives up.
    let asks_first = scene.upgrade(&format!("--within 1s -- sh -c {program}${{IFS}}check${{IFS}}/nowhere;sleep${{IFS}}60"));
    assert!(asks_first.code == Some(1) && asks_first.stderr.contains("sh was not ready in time"), "{asks_first:?}");
    let nobody = Program::of("upgrade /nowhere").end();
    assert!(nobody.code == Some(1) && nobody.stderr.contains("no program that can be replaced runs there"), "{nobody:?}");
    let pid = scene.server.child.id();
    let again = Program::of(&format!("serve ping -l 127.0.0.1:0 --upgrade {at}")).end();
    let expected = format!("pid {pid} serves here; start it with SOCKDRAWER_REPLACES={pid} to replace it");
    assert!(again.code == Some(1) && again.stderr.contains(&expected), "{again:?}");
    scene.is_served();
    // The meeting place is that of the first process still.
    let replaced = scene.upgrade("");
    scene.serves_alone(replaced.stdout.lines().last().expect("a last line"));
    let refused = scene.upgrade(&format!("-- {program} serve nothing"));
    assert!(refused.code == Some(1) && refused.stderr.contains("gave up: unknown protocol `nothing`"), "{refused:?}");
    scene.is_served();
}

#[test]
fn a_server_that_meets_no_next_build_says_so_and_goes_on() {
    let mut server = Program::of("serve hello -l 127.0.0.1:0");
    let line = server.line();
    server.signal(Signal::USR2);
    assert_eq!(server.error_line(), "error: no upgrade: the server was started without --upgrade PATH, or upgrade in its file");
    let mut answer = String::new();
    let mut client = TcpStream::connect(line.trim_start_matches("listening on ")).expect("it accepts");
    client.write_all(b"x").and_then(|()| client.read_to_string(&mut answer)).expect("an answer");
    assert_eq!(answer, "Hello World\n");
}

#[test]
fn a_service_manager_is_told_which_process_is_the_main_one() {
    let at = free("upgrade-notify");
    let manager = UnixDatagram::bind(&at).expect("a free path");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    // All but the status, which is looked at each few seconds.
    let told = || {
        let mut bytes = [0; 1024];
        loop {
            let length = manager.recv(&mut bytes).expect("a message");
            let told = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if !told.starts_with("STATUS=") {
                break told;
            }
        }
    };
    let ready = "READY=1\nSTATUS=1 pool, 0 connections, revision 1".to_owned();
    let mut scene = Scene::new("upgrade-managed", Some(&at));
    assert_eq!(told(), ready);
    let replaced = scene.upgrade("-- /bin/false");
    assert_eq!(replaced.code, Some(1), "{replaced:?}");
    scene.server.signal(Signal::USR2);
    let reloading = told();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    let (_, _, last) = (scene.server.error_line(), scene.server.error_line(), scene.server.error_line());
    let pid = scene.serves_alone(&last);
    // The new process says that it is ready, too: which is first is no matter, for it is not the main one yet.
    let mut both = [told(), told()];
    both.sort();
    assert_eq!(both[0], format!("MAINPID={pid}\nREADY=1"));
    assert!(both[1].starts_with("READY=1\nSTATUS=1 pool, "), "{both:?}");
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), Signal::KILL).expect("it lives");
    let back = format!("MAINPID={}\nREADY=1\nSTATUS=the new build died", scene.server.child.id());
    assert_eq!(told(), back);
    scene.server.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000");
    let _ = std::fs::remove_file(&at);
}

/// A new build that waits before it begins.
struct Slow {
    script: PathBuf,
    begun: PathBuf,
    goes_on: PathBuf,
}

impl Slow {
    fn new(scene: &Scene) -> Slow {
        let [script, begun, goes_on] = ["script", "begun", "goes-on"].map(|name| free(&format!("upgrade-slow-{name}")));
        let made = Command::new("mkfifo").args([&begun, &goes_on]).status().expect("mkfifo");
        assert!(made.success());
        let (program, path) = (env!("CARGO_BIN_EXE_sockdrawer"), scene.path.display());
        let waits = format!("echo > {}; read line < {}", begun.display(), goes_on.display());
        std::fs::write(&script, format!("{waits}; exec {program} serve ping --loops 1 -l 127.0.0.1:0 --upgrade {path}\n"))
            .expect("a file");
        Slow { script, begun, goes_on }
    }

    fn words(&self) -> String {
        format!("--rehearse -- sh {}", self.script.display())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        [&self.script, &self.begun, &self.goes_on].into_iter().for_each(|path| _ = std::fs::remove_file(path));
    }
}

#[test]
fn others_that_ask_while_a_build_starts_are_answered_and_a_rehearsal_stays_one() {
    let mut scene = Scene::new("upgrade-beside", None);
    let slow = Slow::new(&scene);
    std::thread::scope(|scope| {
        let rehearsed = scope.spawn(|| scene.upgrade(&slow.words()));
        std::fs::read(&slow.begun).expect("it begins");
        let status = scene.upgrade("--status");
        assert!(status.code == Some(0) && status.stdout.contains("1 connections: 1 can move"), "{status:?}");
        let second = scene.upgrade("");
        assert_eq!(second.code, Some(1), "{second:?}");
        assert!(second.stderr.contains("a new build is being started already, as pid "), "{second:?}");
        std::fs::write(&slow.goes_on, "go\n").expect("it waits");
        let rehearsed = rehearsed.join().expect("no panic");
        assert_eq!(rehearsed.code, Some(0), "{rehearsed:?}");
    });
    let pid = scene.server.child.id();
    let status = scene.upgrade("--status");
    assert!(status.stdout.starts_with(&format!("pid {pid}, ")), "{status:?}");
    scene.is_served();
}

/// Checks that bad places and bad builds cost the running server neither a client nor its place.
#[test]
fn bad_places_and_bad_builds_are_told_and_cost_nothing() {
    let mut scene = Scene::new("upgrade-bad", None);
    let (program, at) = (env!("CARGO_BIN_EXE_sockdrawer"), scene.path.to_str().expect("text").to_owned());
    let serve = |place: &str| Program::of(&format!("serve ping -l 127.0.0.1:0 --upgrade {place}")).end();
    let (file, folder, other) = (free("upgrade-bad-file"), free("upgrade-bad-folder"), free("upgrade-bad-other"));
    std::fs::write(&file, "kept").expect("a file");
    std::fs::create_dir(&folder).expect("a folder");
    let stream = std::os::unix::net::UnixListener::bind(&other).expect("a free path");
    let missing = folder.join("none/none");
    for (place, line) in [
        (&file, "what is there is no socket: choose another path"),
        (&folder, "what is there is no socket: choose another path"),
        (&other, "another program's socket is there: choose another path"),
        (&missing, "No such file or directory (os error 2): make its folder, or choose another path"),
    ] {
        let refused = serve(place.to_str().expect("text"));
        let told = refused.code == Some(1) && refused.stderr.contains(line) && refused.stderr.lines().count() == 1;
        assert!(told, "{}: {refused:?}", place.display());
    }
    assert!(std::fs::read(&file).is_ok_and(|bytes| bytes == b"kept") && folder.is_dir() && other.exists());
    drop(stream);
    let few =
        |descriptors: u32| format!("ulimit -n {descriptors}; exec {program} serve ping --loops 1 -l 127.0.0.1:0 --upgrade {at}");
    // The one that would never end has a second; those that end by themselves have what a busy machine needs.
    for (number, (within, command, line)) in [
        ("30s", "kill -SEGV $$".to_owned(), "ended before it was ready: signal: 11"),
        ("1s", "exit 0".to_owned(), "sh ended with exit status 0, and no new build has begun"),
        ("1s", "exec sleep 60".to_owned(), "sh was not ready in time and was killed"),
        ("30s", few(16), "sh gave up: "),
    ]
    .into_iter()
    .enumerate()
    {
        let script = free(&format!("upgrade-bad-{number}"));
        std::fs::write(&script, command).expect("a file");
        let refused = scene.upgrade(&format!("--within {within} -- sh {}", script.display()));
        assert!(refused.code == Some(1) && refused.stderr.contains(line), "{number}: {refused:?}");
        std::fs::remove_file(&script).expect("it is there");
        scene.is_served();
    }
    // Another user's process does not get to the path.
    if rustix::process::getuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", program, "upgrade", &at]);
        let refused = Program::run(command).end();
        assert!(refused.code == Some(1) && refused.stderr.contains("Permission denied"), "{refused:?}");
    }
    scene.is_served();
    [file, other].iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
    std::fs::remove_dir(folder).expect("it is empty");
}
