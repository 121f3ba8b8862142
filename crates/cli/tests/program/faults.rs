//! Servers that are stopped, killed, restarted, refuse, reset, or do not accept: each shows as its named error, counts add up exactly,
//! and nothing hangs.

use crate::program::{End, Program};
use crate::report::{number, numbers, report};
use crate::strangers;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use rustix::process::Signal;
use serde_json::Value;
use sockdrawer::testing::private_network;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for whatever must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

fn start(words: &str) -> Program {
    Program::of(words)
}

/// Starts a server of this program, and returns it with where it listens.
fn serve(words: &str) -> (Program, String) {
    let mut server = start(&format!("serve {words}"));
    let line = server.line();
    let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}: the server does not listen")).to_owned();
    (server, address)
}

/// Starts a run whose result is on standard output, and its plan on standard error.
fn load(words: &str) -> Program {
    start(&format!("load {words} --json -"))
}

#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} does not come");
        thread::yield_now();
    }
}

pub(crate) fn descriptors(program: &Program) -> usize {
    fs::read_dir(format!("/proc/{}/fd", program.child.id())).map_or(0, Iterator::count)
}

/// Checks that every connect and every connection is in exactly one of the counts.
#[track_caller]
fn adds_up(end: &End) -> Value {
    let report = report(end);
    let of = |names: &[&str]| names.iter().map(|name| number(&report, &format!("/connections/{name}"))).sum::<u64>();
    assert_eq!(of(&["attempted"]), of(&["established", "failed"]), "{report}");
    assert_eq!(of(&["established"]), of(&["open", "closed", "lost"]), "{report}");
    let errors = |phase: &str| -> u64 {
        let all = report["errors"].as_array().expect("a list").iter();
        all.filter(|error| error["phase"] == phase).map(|error| number(error, "/count")).sum()
    };
    assert_eq!(of(&["failed"]), errors("connect"), "{report}");
    let operations = number(&report, "/operations/failed");
    let of_operations: u64 = ["send", "answer", "verify", "end", "unfinished"].into_iter().map(errors).sum();
    assert_eq!(operations, of_operations, "{report}");
    report
}

/// Returns `PHASE ERRNO` of each error, in the report's order.
fn named(report: &Value) -> Vec<String> {
    let word = |error: &Value, name: &str| error[name].as_str().expect("a name").to_owned();
    report["errors"].as_array().expect("a list").iter().map(|error| word(error, "phase") + " " + &word(error, "errno")).collect()
}

#[test]
fn a_server_that_stops_for_3_seconds_does_not_answer() {
    let (server, address) = serve("ping -l 127.0.0.1:0 --model loops --loops 1");
    let at_rest = descriptors(&server);
    let run = load(&format!("ping {address} -c 50 -d 6s --interval 100ms --timeout 1s"));
    until("the 50th connection", || descriptors(&server) >= at_rest + 50);
    server.signal(Signal::STOP);
    // waits because: how long it stops is the fault.
    thread::sleep(Duration::from_secs(3));
    server.signal(Signal::CONT);
    let end = run.end();
    assert_eq!(end.code, Some(1), "{end:?}");
    let report = adds_up(&end);
    assert_eq!(named(&report), ["answer ETIMEDOUT"], "{report}");
    assert_eq!(number(&report, "/errors/0/count"), 50, "each connection asks once while it is stopped: {report}");
    assert_eq!(numbers(&report, ["/connections/failed", "/connections/lost"]), [0, 0], "the kernel still shakes hands: {report}");
    assert!(
        end.stderr.contains("error        answer ETIMEDOUT: 50, ") && end.stderr.contains("; no answer within --timeout"),
        "{end:?}"
    );
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn a_server_that_is_killed_takes_its_connections_along() {
    for clients in ["", "--processes 2"] {
        killed(clients);
    }
}

fn killed(clients: &str) {
    let (server, address) = serve("ping -l 127.0.0.1:0");
    let at_rest = descriptors(&server);
    let run = load(&format!("ping {address} -c 50 -d 4s --interval 100ms --timeout 1s {clients}"));
    until("the 50th connection", || descriptors(&server) >= at_rest + 50);
    server.signal(Signal::KILL);
    assert_eq!(server.end().code, None, "a signal ended it");
    let end = run.end();
    assert_eq!(end.code, Some(1), "{end:?}");
    let report = adds_up(&end);
    assert_eq!(number(&report, "/connections/lost"), 50, "{report}");
    let expected = [
        "unused EOF",
        "unused ECONNRESET",
        "closed EOF",
        "closed ECONNRESET",
        "answer EOF",
        "answer ECONNRESET",
        "send EPIPE",
        "send ECONNRESET",
        "connect ECONNREFUSED",
    ];
    let named = named(&report);
    assert!(!named.is_empty() && named.iter().all(|error| expected.contains(&error.as_str())), "{report}");
}

#[test]
fn a_server_that_is_restarted_refuses_meanwhile_and_serves_again() {
    let (server, address) = serve(&format!("hello -l {}", strangers::address(8)));
    let at_rest = descriptors(&server);
    let run = load(&format!("hello {address} -c 8 -d 4s --timeout 1s"));
    until("a visit", || descriptors(&server) > at_rest);
    server.signal(Signal::KILL);
    server.end();
    // waits because: how long there is no server is the fault.
    thread::sleep(Duration::from_secs(1));
    let (server, again) = serve(&format!("hello -l {address} --verbose"));
    assert_eq!(again, address);
    let end = run.end();
    let report = adds_up(&end);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(named(&report).contains(&"connect ECONNREFUSED".to_owned()), "{report}");
    assert!(end.stderr.contains("nothing listens there: start the server"), "{end:?}");
    server.signal(Signal::TERM);
    let told = server.end();
    let accepted = told.stderr.lines().find_map(|line| line.strip_prefix("in all: ")?.split(' ').next()?.parse::<u64>().ok());
    let established = number(&report, "/connections/established");
    assert!(accepted.is_some_and(|accepted| (1..=established).contains(&accepted)), "{told:?} {report}");
}

#[test]
fn a_server_that_refuses_is_named() {
    // Bound, so that nobody else gets the port, and not listening.
    let (_deserted, address) = bound();
    let end = load(&format!("ping {address} -c 20 -d 1s --timeout 1s")).end();
    assert_eq!(end.code, Some(1), "{end:?}");
    let report = adds_up(&end);
    assert_eq!(
        (named(&report), number(&report, "/connections/established")),
        (vec!["connect ECONNREFUSED".to_owned()], 0),
        "{report}"
    );
}

#[test]
fn a_server_that_resets_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket that is open");
        }
    });
    let end = load(&format!("ping {address} -c 20 -d 2s --interval 50ms --timeout 1s")).end();
    assert_eq!(end.code, Some(1), "{end:?}");
    let report = adds_up(&end);
    assert_eq!(number(&report, "/connections/lost"), number(&report, "/connections/established"), "{report}");
    let expected =
        ["connect ECONNRESET", "unused ECONNRESET", "closed ECONNRESET", "answer ECONNRESET", "send ECONNRESET", "send EPIPE"];
    assert!(named(&report).iter().all(|error| expected.contains(&error.as_str())), "{report}");
    assert!(end.stderr.contains("the server reset the connection"), "{end:?}");
}

/// Makes a socket that has a port of its own, so that no other test gets it: as long as it does not listen, a connect is refused. Programs that
/// the test starts do not get it.
pub(crate) fn bound() -> (OwnedFd, SocketAddr) {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let address = getsockname(&socket).expect("it is bound");
    (socket, address.try_into().expect("an IP address"))
}

#[test]
fn a_full_backlog_is_told_from_a_silent_server() {
    let tested = thread::spawn(|| {
        // The kernel counts full queues of a whole network: where it can be had, one of its own, for the sake of other tests.
        let _ = private_network();
        full_backlog();
    });
    tested.join().expect("no panic");
}

fn full_backlog() {
    let (listener, address) = bound();
    listen(&listener, 2).expect("it is bound");
    let end = load(&format!("ping {address} -c 20 -d 3s --interval 100ms --timeout 1s")).end();
    assert_eq!(end.code, Some(1), "{end:?}");
    let report = adds_up(&end);
    // The kernel takes one more than it was asked to.
    assert!(number(&report, "/connections/established") >= 3, "{report}");
    assert!(number(&report, "/server/listen_overflows") > 0, "{report}");
    assert_eq!(named(&report), ["connect ETIMEDOUT", "answer ETIMEDOUT"], "{report}");
    assert_eq!(report["wall"]["name"], "accept queue", "{report}");
    assert!(end.stderr.contains("connected, but the server's accept queue was full"), "{end:?}");
}

/// Returns the kernel's count of connections that listeners of this thread's network completed.
fn passive_opens() -> u64 {
    let snmp = fs::read_to_string("/proc/thread-self/net/snmp").expect("the kernel counts");
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let (_, count) = names.zip(values).find(|(name, _)| *name == "PassiveOpens").expect("it is counted");
    count.parse().expect("a number")
}

#[test]
fn no_client_connects_to_itself_while_its_server_is_away() {
    let away = Duration::from_secs(if std::env::var_os("SOCKDRAWER_LONG").is_some() { 10 } else { 1 });
    // The clients' ports are those of the server too, in a network where nobody else is.
    let tested = thread::spawn(move || {
        if let Err(error) = private_network() {
            eprintln!("skipped: no network of its own: {error}");
            return;
        }
        let ports = |range| fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).expect("a network of its own");
        ports("20000 24999");
        // As long as a connection of the server rests in TIME_WAIT, the kernel gives its port to no client.
        fs::write("/proc/sys/net/ipv4/tcp_max_tw_buckets", "0").expect("a network of its own");
        let (server, address) = serve("echo -l 127.0.0.1:22222");
        let at_rest = descriptors(&server);
        let time = away.as_secs() + 4;
        let run = load(&format!(
            "echo {address} -c 1000 -d {time}s --lifetime 300ms --interval 100ms --timeout 1s --connect-rate 20k --force"
        ));
        until("the 100th connection", || descriptors(&server) >= at_rest + 100);
        server.signal(Signal::KILL);
        server.end();
        // Each second connect begins at the port that it goes to.
        ports("22222 22223");
        // waits because: how long there is no server is the fault.
        thread::sleep(away);
        ports("20000 24999");
        let (server, again) = serve(&format!("echo -l {address} --verbose"));
        assert_eq!(again, address, "the port is free");
        let end = run.end();
        let report = adds_up(&end);
        let established = number(&report, "/connections/established");
        let of_connects = |errno: &str| -> u64 {
            let all = report["errors"].as_array().expect("a list").iter();
            let these = all.filter(|error| error["phase"] == "connect" && error["errno"] == errno);
            these.map(|error| number(error, "/count")).sum()
        };
        // The server's kernel may have completed these too: it ended, or time was over, before the client looked.
        // One of some 100,000 is counted twice.
        let possible = established + of_connects("ECONNRESET") + of_connects("ETIMEDOUT") + 1;
        assert!((established..=possible).contains(&passive_opens()), "{} for the server's kernel: {report}", passive_opens());
        assert!(named(&report).contains(&"connect ECONNREFUSED".to_owned()), "{report}");
        server.signal(Signal::TERM);
        let told = server.end();
        let accepted = told.stderr.lines().find_map(|line| line.strip_prefix("in all: ")?.split(' ').next()?.parse::<u64>().ok());
        assert!(accepted.is_some_and(|accepted| accepted > 0), "clients came back: {told:?} {report}");
    });
    tested.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
