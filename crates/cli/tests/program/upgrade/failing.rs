//! A system call of either process fails once in the middle of an upgrade, each in turn and with each errno: no connection is in both processes
//! afterwards, and none is lost. strace has the calls fail.

use crate::parent::serving;
use crate::program::{End, Program};
use crate::verified::{Client, PATIENCE, Secured, under};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const ERRNOS: [&str; 4] = ["ENOMEM", "ENOBUFS", "EMSGSIZE", "EMFILE"];
/// Calls of a kind that a thread makes in an upgrade of so few connections, at most.
const CALLS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Old,
    New,
}

/// A failure: the call of this number, in each thread of that process.
#[derive(Clone, Copy, Debug)]
struct Failure {
    side: Side,
    call: &'static str,
    errno: &'static str,
    number: usize,
}

/// A server with clients under TLS and in clear.
struct Scene {
    secured: Secured,
    under_tls: Vec<Client>,
    in_clear: Vec<TcpStream>,
    said: u8,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let secured = Secured::start(name, "[pool.plain]\nprotocol = \"echo\"\nlisten = \"127.0.0.1:0\"");
        let under_tls = secured.clients(40);
        let connect = |_| {
            let client = TcpStream::connect(&secured.server.addresses[1]).expect("it accepts");
            client.set_read_timeout(Some(PATIENCE)).expect("a time");
            client
        };
        let in_clear = (0..40).map(connect).collect();
        Scene { secured, under_tls, in_clear, said: 0 }
    }

    fn path(&self) -> PathBuf {
        self.secured.server.folder.join("upgrade")
    }

    fn serving(&self) -> Pid {
        serving(&self.path()).expect("it serves")
    }

    /// Checks that each byte comes back once, from one process.
    fn is_served(&mut self) {
        self.under_tls.iter_mut().for_each(|client| client.exchanges(1_000));
        for _ in 0..3 {
            self.said = self.said.wrapping_add(1);
            for client in &mut self.in_clear {
                let mut heard = [0; 4];
                client.write_all(&[self.said; 4]).expect("it stands");
                client.read_exact(&mut heard).expect("an answer");
                assert_eq!(heard, [self.said; 4]);
            }
        }
    }

    /// Upgrades the server under this failure. Whether the call was made.
    fn round(&mut self, failure: Failure) -> bool {
        let (old, path) = (self.serving(), self.path());
        let log = self.secured.server.folder.join("strace");
        let Failure { side, call, errno, number } = failure;
        let mut tracer = vec!["-f".to_owned(), "-o".to_owned(), log.to_str().expect("text").to_owned()];
        tracer.extend(
            ["-e", &format!("trace={call}"), "-e", &format!("inject={call}:error={errno}:when={number}")].map(str::to_owned),
        );
        let upgrade = ["upgrade", path.to_str().expect("text"), "--json", "-"];
        let came: End = if side == Side::Old {
            let mut command = Command::new("strace");
            command.args(&tracer).args(["-p", &old.as_raw_pid().to_string()]);
            let mut strace = Program::run(command);
            let attached = strace.error_line();
            assert!(attached.contains(" attached"), "{attached}");
            let came = under(&mut self.under_tls, || Program::start(&upgrade).end());
            // It lets go of a process that goes on.
            strace.signal(Signal::INT);
            strace.end();
            came
        } else {
            let program = env!("CARGO_BIN_EXE_sockdrawer");
            // -I1: it ends by a signal, and lets go of a process that goes on. With -o it would not.
            let mut words = [&upgrade[..], &["--", "strace", "-D", "-I1"]].concat();
            words.extend(tracer.iter().map(String::as_str));
            words.extend([program, "serve", "--log", "none", "--config", "a.toml"]);
            let came = under(&mut self.under_tls, || Program::start(&words).end());
            tracer_of(self.serving()).into_iter().for_each(|tracer| _ = kill_process(tracer, Signal::INT));
            came
        };
        let now = self.serving();
        let refused = came.code != Some(0);
        assert_eq!(refused, now == old, "{failure:?}: {came:?}");
        assert!(!refused || !came.stderr.is_empty(), "{failure:?}: it was told: {came:?}");
        if !refused {
            self.moves(old, now, failure);
        }
        self.is_served();
        std::fs::read_to_string(&log).expect("a log").contains("(INJECTED)")
    }

    /// Waits until the old process has no connection, and no connection is in both.
    fn moves(&self, old: Pid, new: Pid, failure: Failure) {
        let until = Instant::now() + PATIENCE;
        loop {
            let connections = connections();
            let [left, here] = [old, new].map(|pid| sockets(pid).intersection(&connections).cloned().collect::<HashSet<_>>());
            if left.is_empty() && here.len() == self.under_tls.len() + self.in_clear.len() {
                return;
            }
            let both = left.intersection(&here).count();
            assert!(Instant::now() < until, "{failure:?}: {} are left, {} here, {both} in both", left.len(), here.len());
        }
    }
}

/// Returns the sockets of a process, by their inodes; none of one that is gone.
fn sockets(pid: Pid) -> HashSet<String> {
    let links = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid())).into_iter().flatten();
    let names = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok()?.into_os_string().into_string().ok());
    names.filter_map(|name| Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect()
}

/// Returns the sockets of TCP connections that stand, by their inodes.
fn connections() -> HashSet<String> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("a table");
    let fields = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[3] == "01").map(|fields| fields[9].to_owned()).collect()
}

fn tracer_of(pid: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    Pid::from_raw(tracer.trim().parse().ok()?)
}

/// Returns whether strace is there, and says so where it is not.
fn has_strace() -> bool {
    let is_there = Command::new("strace").args(["-qq", "true"]).output().is_ok();
    if !is_there {
        println!("skipped: strace is not installed (apt-get install strace)");
    }
    is_there
}

#[test]
fn a_thread_that_the_new_process_does_not_get_costs_no_connection() {
    if !has_strace() {
        return;
    }
    let mut scene = Scene::new("upgrade-threads");
    // The main thread starts some in each part of its beginning, a few for each CPU; the last ones once it has taken over.
    let failure = |number| Failure { side: Side::New, call: "clone3", errno: "EAGAIN", number };
    let met = (1..).take_while(|number| scene.round(failure(*number))).count();
    println!("the new process starts {met} threads, and was refused each of them once");
    assert!(met > 10, "it starts {met} threads");
}

#[test]
fn a_call_that_fails_in_either_process_costs_no_connection() {
    if !has_strace() {
        return;
    }
    // The number of rounds of each errno in each process, both kinds of connections in one.
    let rounds = std::env::var("SOCKDRAWER_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(3);
    let (mut scene, mut met) = (Scene::new("upgrade-failing"), 0);
    let sides = [Side::Old, Side::New].into_iter().flat_map(|side| ERRNOS.map(|errno| (side, errno)));
    for (place, (side, errno)) in sides.enumerate() {
        for round in 0..rounds {
            let call = ["sendmsg", "recvmsg"][round % 2];
            let number = 1 + (round / 2 + place) % CALLS;
            met += usize::from(scene.round(Failure { side, call, errno, number }));
        }
    }
    println!("{} upgrades, in {met} a call failed: no connection was lost, none was in two processes", 8 * rounds);
    assert!(met > 0, "no call failed");
}
