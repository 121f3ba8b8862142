//! The processes of `sockdrawer serve`: what they hold, how they end, and what is told of them.

use crate::program::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::fs::{read_dir, read_link, read_to_string};
use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Long enough for whatever must happen.
const PATIENCE: i64 = 20;

/// Starts a server as a shell does, in a process group of its own.
fn serve(words: &[&str]) -> (Program, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["serve", "-l", "127.0.0.1:0"]).args(words).process_group(0);
    let mut program = Program::run(command);
    let line = program.line();
    let address = line.strip_prefix("listening on ").and_then(|address| address.parse().ok());
    (program, address.unwrap_or_else(|| panic!("{line:?} is not what a server says first")))
}

/// Makes a connection that has been served, and so has a process if it is to have one.
fn served(address: SocketAddr, request: &[u8], answer: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(PATIENCE.cast_unsigned()))).expect("a time-out can be set");
    stream.write_all(request).expect("the server reads");
    let mut got = vec![0; answer.len()];
    stream.read_exact(&mut got).expect("the server answers");
    assert_eq!(got, answer);
    stream
}

/// Returns the processes that a program started, and those that these did.
fn descendants(pid: Pid) -> Vec<Pid> {
    let threads = read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| read_to_string(thread.path().join("children")).ok());
    let children: Vec<Pid> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>())
        .collect();
    children.iter().flat_map(|child| std::iter::once(*child).chain(descendants(*child))).collect()
}

fn is_there(pid: Pid) -> bool {
    read_to_string(format!("/proc/{pid}/stat")).is_ok()
}

/// Waits for the end of a process that is not a child of this one.
fn wait_for_end(pid: &OwnedFd) {
    let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(pid, PollFlags::IN)], Some(&patience)).expect("a process can be awaited");
    assert_eq!(ended, 1, "it still runs");
}

/// A server, and how many processes it has when one connection is open.
struct Server {
    words: &'static [&'static str],
    processes: usize,
    request: &'static [u8],
    answer: &'static [u8],
}

const SERVERS: [Server; 3] = [
    Server { words: &["ping", "--model", "fork"], processes: 2, request: b"Ping", answer: b"Pong" },
    Server { words: &["ping", "--model", "prefork", "--processes", "3"], processes: 3, request: b"Ping", answer: b"Pong" },
    Server { words: &["exec", "--", "cat"], processes: 2, request: b"a line", answer: b"a line" },
];

#[test]
fn a_program_serves_each_connection() {
    let (server, address) = serve(&["exec", "--", "sh", "-c", "read name; echo \"hello $name\"; exec cat"]);
    let mut one = served(address, b"one\n", b"hello one\n");
    let two = served(address, b"two\nthe rest", b"hello two\nthe rest");
    one.shutdown(Shutdown::Write).expect("open");
    let mut rest = Vec::new();
    one.read_to_end(&mut rest).expect("the server ends in an orderly way");
    assert_eq!(rest, b"");
    drop(two);
    server.signal(Signal::TERM);
    let end = server.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_signal_drains_and_leaves_no_process() {
    for Server { words, processes, request, answer } in SERVERS {
        for signal in [Signal::INT, Signal::TERM] {
            let (server, address) = serve(words);
            let client = served(address, request, answer);
            let server_pid = Pid::from_child(&server.child);
            let all = descendants(server_pid);
            assert_eq!(all.len(), processes, "{words:?}");
            // As a terminal sends Ctrl-C, and a service manager SIGTERM.
            kill_process_group(server_pid, signal).expect("it runs");
            drop(client);
            let end = server.end();
            assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""), "{words:?}");
            let left: Vec<_> = all.into_iter().filter(|pid| is_there(*pid)).collect();
            assert_eq!(left, [], "{words:?}");
        }
    }
}

#[test]
fn no_process_outlives_a_server_that_is_killed() {
    for Server { words, processes, request, answer } in SERVERS {
        let (server, address) = serve(words);
        let _client = served(address, request, answer);
        let all = descendants(Pid::from_child(&server.child));
        assert_eq!(all.len(), processes, "{words:?}");
        let all: Vec<_> = all.into_iter().map(|pid| pidfd_open(pid, PidfdFlags::empty()).expect("it lives")).collect();
        server.signal(Signal::KILL);
        all.iter().for_each(wait_for_end);
        // Nobody holds what it printed to: it can be read to the end.
        assert_eq!(server.end().code, None, "{words:?}");
    }
}

/// Checks that `sockdrawer serve ... | head -1` ends when the server does.
#[test]
fn no_process_holds_standard_output() {
    for Server { words, request, answer, .. } in SERVERS {
        let (server, address) = serve(words);
        let _client = served(address, request, answer);
        let server_pid = Pid::from_child(&server.child);
        let output = read_link(format!("/proc/{server_pid}/fd/1")).expect("it has a standard output");
        for process in descendants(server_pid) {
            let open = read_dir(format!("/proc/{process}/fd")).expect("it lives").flatten();
            let held = open.filter(|descriptor| read_link(descriptor.path()).is_ok_and(|file| file == output)).count();
            assert_eq!(held, 0, "{words:?}");
        }
    }
}

#[test]
fn what_happens_to_processes_is_told() {
    let (mut server, address) = serve(&["ping", "--model", "fork", "-v"]);
    let client = served(address, b"Ping", b"Pong");
    let child = *descendants(Pid::from_child(&server.child)).last().expect("the connection has a process");
    kill_process(child, Signal::ABORT).expect("it lives");
    tells(&mut server, "its process was ended by signal 6");
    drop(client);
    let (mut server, address) = serve(&["ping", "--model", "prefork", "--processes", "1", "-v"]);
    let helper = descendants(Pid::from_child(&server.child))[0];
    kill_process(helper, Signal::KILL).expect("it lives");
    tells(&mut server, "process 0 died and was replaced, its connections are gone: killed by signal 9");
    drop(served(address, b"Ping", b"Pong"));
}

/// Reads what it tells until it tells this.
fn tells(server: &mut Program, what: &str) {
    let mut lines = server.stderr.by_ref().lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with(what)), "it ended without telling {what:?}");
}
