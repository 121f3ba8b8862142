//! `sockdrawer load`: its numbers add up, and its exit code says whether all went well.

use crate::faults::{PATIENCE, bound};
use crate::program::{Program, load};
use crate::report::{errors, number, numbers, report};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Starts a server of this test: `serve` gets each connection in turn.
fn server(mut serve: impl FnMut(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || listener.incoming().flatten().for_each(&mut serve));
    address
}

const CONNECTIONS: [&str; 4] = ["/connections/attempted", "/connections/established", "/connections/failed", "/connections/lost"];
const OPERATIONS: [&str; 2] = ["/operations/ok", "/operations/failed"];

#[test]
fn so_many_operations_are_exactly_so_many() {
    for workload in ["ping --interval 0", "echo", "echo --size 20k --interval 0", "hello", "http"] {
        let end = load(&format!("{workload} -c 7 -n 1000 --timeout 20 --json -"));
        assert_eq!(end.code, Some(0), "{workload}: {end:?}");
        let report = report(&end);
        let connections = if workload.starts_with('h') { 1000 } else { 7 };
        assert_eq!(numbers(&report, CONNECTIONS), [connections, connections, 0, 0], "{workload}: {report}");
        assert_eq!(numbers(&report, OPERATIONS), [1000, 0], "{workload}: {report}");
        assert!((1..=7).contains(&number(&report, "/connections/peak")), "{workload}: {report}");
        assert_eq!(errors(&report), serde_json::json!([]), "{workload}: {report}");
        assert!(report["latency_us"]["operation"]["p50"].as_f64().is_some_and(|p50| p50 > 0.0), "{workload}: {report}");
    }
}

#[test]
fn the_report_has_the_documented_fields_in_their_order() {
    let end = load("ping -c 2 -n 2 --interval 0 --json -");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ");
    let report = report(&end);
    let mut at = 0;
    for name in "schema workload machine seconds connections operations latency_us errors client server".split(' ') {
        let found = end.stdout[at..].find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {end:?}"));
        at += found;
    }
    assert_eq!(
        keys(&report["connections"]),
        "attempted closed established failed lost not_begun open peak per_second reconnected"
    );
    assert_eq!(keys(&report["operations"]), "failed ok per_second");
    assert_eq!(keys(&report["latency_us"]["connect"]), "max mean min p50 p90 p95 p99 p999");
    assert_eq!(report["workload"], "ping");
    assert_eq!(keys(&report["client"]), "bytes_per_connection cpu_seconds lost processes");
    let server = "bytes_per_connection cpu_seconds cpu_us_per_accept cpu_us_per_operation kernel_bytes_per_connection listen_drops \
                  listen_overflows";
    assert_eq!(keys(&report["server"]), server);
    assert!(end.stderr.starts_with("2 connections, one ping"), "the words go elsewhere: {end:?}");
    assert_eq!(end.stdout.matches('\n').count(), 1, "one line, so that a file of them can be read line by line");
}

#[test]
fn the_plan_is_said_first() {
    let end = load("ping -c 64 -n 64 -d 20");
    assert_eq!(end.code, Some(0), "{end:?}");
    let first = end.stdout.lines().next().expect("a first line");
    assert!(first.starts_with("64 connections, one ping each 1s: 64 operations/s (--interval 0: back to back)"), "{first}");
    assert!(end.stdout.contains("operations   64 ok, 0 failed"), "{end:?}");
    assert_eq!(end.stdout.lines().last(), Some("verdict      ok, nothing failed"));
    assert!(!end.stdout.contains("budget"), "there is enough of all: {end:?}");
    let told = load("http -c 2 -n 20000 -v");
    assert!(told.stdout.contains("\nbudget       client descriptors "), "{told:?}");
}

#[test]
fn time_ends_a_run() {
    for words in ["echo -c 3 -d 300ms", "echo -c 3 --hold 300ms", "hello -c 3 -d 300ms"] {
        let end = load(&format!("{words} --json -"));
        let report = report(&end);
        assert_eq!(end.code, Some(0), "{words}: {report}");
        assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.3), "{words}: {report}");
        let [attempted, established, failed, lost] = numbers(&report, CONNECTIONS);
        assert_eq!((attempted, failed, lost), (established, 0, 0), "{words}: {report}");
        assert!(number(&report, "/operations/ok") > 0, "{words}: {report}");
    }
}

#[test]
fn refused_connects_are_failures_with_their_names() {
    let (_bound, address) = bound();
    let end = load(&format!("ping {address} -c 5 -d 20 --json -"));
    let report = report(&end);
    assert_eq!(end.code, Some(1), "{report}");
    assert_eq!(numbers(&report, CONNECTIONS), [5, 0, 5, 0]);
    assert_eq!(errors(&report), serde_json::json!([{"phase": "connect", "errno": "ECONNREFUSED", "count": 5}]));
    assert_eq!(report["latency_us"]["connect"]["p50"], Value::Null);
    let end = load(&format!("hello {address} -c 2 -n 5"));
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains("error        connect ECONNREFUSED: 5"), "{end:?}");
}

#[test]
fn a_server_that_answers_wrong_bytes_fails_operations() {
    let address = server(|mut stream| {
        let mut ping = [0; 4];
        stream.read_exact(&mut ping).and_then(|()| stream.write_all(b"Pung")).expect("a ping comes, and its answer is taken");
    });
    let end = load(&format!("ping {address} -c 3 -n 3 --interval 0 --json -"));
    let report = report(&end);
    assert_eq!(end.code, Some(1), "{report}");
    assert_eq!(numbers(&report, OPERATIONS), [0, 3], "{report}");
    assert_eq!(errors(&report), serde_json::json!([{"phase": "verify", "errno": "WRONG_BYTES", "count": 3}]));
}

#[test]
fn a_server_that_hangs_up_loses_connections() {
    let address = server(|mut stream| {
        let mut ping = [0; 4];
        stream.read_exact(&mut ping).expect("a ping comes");
    });
    let end = load(&format!("ping {address} -c 3 -d 20 --interval 0 --json -"));
    let report = report(&end);
    assert_eq!(end.code, Some(1), "{report}");
    assert_eq!(numbers(&report, CONNECTIONS), [3, 3, 0, 3], "{report}");
    assert_eq!(numbers(&report, OPERATIONS), [0, 3], "{report}");
    assert_eq!(errors(&report), serde_json::json!([{"phase": "answer", "errno": "EOF", "count": 3}]));
}

#[test]
fn a_silent_server_times_out() {
    let mut kept = Vec::new();
    let address = server(move |stream| kept.push(stream));
    let end = load(&format!("echo {address} -c 2 -n 2 --timeout 50ms --json -"));
    let report = report(&end);
    assert_eq!(end.code, Some(1), "{report}");
    assert_eq!(numbers(&report, OPERATIONS), [0, 2], "{report}");
    assert_eq!(errors(&report), serde_json::json!([{"phase": "answer", "errno": "ETIMEDOUT", "count": 2}]));
}

#[test]
fn targets_and_sources_are_taken_in_turn() {
    let (peers, seen) = mpsc::channel();
    let server = |name: &'static str| {
        let peers = peers.clone();
        server(move |mut stream| {
            let mut request = [0; 6];
            let answered = stream.read_exact(&mut request).and_then(|()| stream.write_all(b"Hello World\n"));
            answered.expect("a client of hello speaks first");
            let peer = stream.peer_addr().expect("it is connected").ip().to_string();
            peers.send((name, peer)).expect("the test waits for it");
        })
    };
    let (one, other) = (server("one"), server("other"));
    let end = load(&format!("hello {one} {other} -c 1 -n 4 --source 127.0.0.2,127.0.0.3"));
    assert_eq!(end.code, Some(0), "{end:?}");
    let seen: Vec<(&str, String)> = seen.into_iter().take(4).collect();
    let pairs: BTreeSet<(&str, &str)> = seen.iter().map(|(name, peer)| (*name, peer.as_str())).collect();
    let all = [("one", "127.0.0.2"), ("one", "127.0.0.3"), ("other", "127.0.0.2"), ("other", "127.0.0.3")];
    assert_eq!(pairs, all.into(), "each source gets to each target");
}

/// A question, and where its answer is awaited.
type Asked = ([u8; 4], std::net::TcpStream);

/// Starts a run of two connections to a server that takes a message of each and says nothing.
fn unanswered(words: &str) -> (Program, [Asked; 2]) {
    let (asked, comes) = mpsc::channel();
    let address = server(move |mut stream| {
        let mut message = [0; 4];
        stream.read_exact(&mut message).expect("a message comes");
        asked.send((message, stream)).expect("the test keeps it");
    })
    .to_string();
    let words = ["load", "echo", &address, "-c", "2", "--timeout", "1h"].into_iter().chain(words.split_whitespace());
    let mut program = Program::start(&words.collect::<Vec<_>>());
    let first = program.line();
    assert!(first.starts_with("2 connections"), "the plan comes first: {first}");
    let next = || comes.recv_timeout(PATIENCE).expect("a connection");
    (program, [next(), next()])
}

#[track_caller]
fn is_interrupted(program: Program, code: i32) {
    let end = program.end();
    assert_eq!(end.code, Some(code), "{end:?}");
    assert!(end.stdout.contains("2 attempted, 2 established, 0 failed, 0 lost"), "{end:?}");
    assert!(end.stdout.contains("operations   0 ok, 2 failed"), "every operation begun is counted: {end:?}");
    assert!(end.stdout.contains("error        unfinished CUT_OFF: 2"), "{end:?}");
}

#[test]
fn a_signal_ends_it_with_a_partial_report() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (program, _streams) = unanswered("-d 1h");
        program.signal(signal);
        is_interrupted(program, code);
    }
}

#[test]
fn a_signal_ends_the_wait_for_the_last_answers_too() {
    let (program, [(mut message, mut stream), _silent]) = unanswered("-d 50ms");
    // A client that is answered asks again, until its time is over: then it rests, and the run waits for the other one.
    // waits because: nothing tells that nothing comes; after 50 ms it asks no more.
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("it is connected");
    loop {
        stream.write_all(&message).expect("the client takes it");
        if stream.read_exact(&mut message).is_err() {
            break;
        }
    }
    program.signal(Signal::INT);
    let end = program.end();
    assert_eq!(end.code, Some(130), "{end:?}");
    assert!(end.stdout.contains("2 attempted, 2 established"), "{end:?}");
    assert!(end.stdout.contains("error        unfinished CUT_OFF: 1"), "{end:?}");
}

#[test]
fn operations_that_an_interrupt_cuts_off_add_up() {
    let (asked, questions) = mpsc::channel();
    let address = server(move |mut stream| {
        let asked = asked.clone();
        // Two questions are answered, a third is taken.
        thread::spawn(move || {
            for answer in [&b"Pong"[..], b"Pong", b""] {
                stream.read_exact(&mut [0; 4]).and_then(|()| stream.write_all(answer)).expect("the client asks");
                asked.send(()).expect("the test counts them");
            }
            assert_eq!(stream.read(&mut [0]).expect("the client's end"), 0, "it asks no more");
        });
    });
    let words = format!("load ping {address} -c 5 -d 1h --interval 0 --timeout 1h --json -");
    let program = Program::of(&words);
    assert_eq!(questions.iter().take(15).count(), 15, "three of each connection");
    program.signal(Signal::INT);
    let end = program.end();
    assert_eq!(end.code, Some(130), "{end:?}");
    let report = report(&end);
    assert_eq!(numbers(&report, OPERATIONS), [10, 5], "{report}");
    assert_eq!(errors(&report), serde_json::json!([{"phase": "unfinished", "errno": "CUT_OFF", "count": 5}]));
}

#[test]
fn a_run_that_cannot_start_says_only_why_and_keeps_the_old_report() {
    let path = std::env::temp_dir().join(format!("sockdrawer-kept-{}.json", std::process::id()));
    std::fs::write(&path, "the last report").expect("a temporary file");
    let end = load(&format!("echo -c 900m -d 1 --json {}", path.display()));
    let kept = std::fs::read_to_string(&path);
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!((end.code, end.stdout.as_str()), (Some(3), ""), "{end:?}");
    assert!(end.stderr.starts_with("error: --connections 900000000: this machine has"), "{end:?}");
    assert_eq!(kept.expect("it is there"), "the last report");
}

#[test]
fn the_report_goes_to_a_file_beside_the_words() {
    let path = std::env::temp_dir().join(format!("sockdrawer-load-{}.json", std::process::id()));
    let end = load(&format!("hello -n 3 --json {}", path.display()));
    let written = std::fs::read_to_string(&path).expect("the file is there");
    std::fs::remove_file(&path).expect("it can be removed");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("operations   3 ok"), "{end:?}");
    let report: Value = serde_json::from_str(&written).expect("it is JSON");
    assert_eq!(number(&report, "/operations/ok"), 3);
}

#[test]
fn local_ports_are_those_that_were_asked_for() {
    let (seen, ports) = mpsc::channel();
    let address = server(move |stream| seen.send(stream.peer_addr().expect("it is connected").port()).expect("the test waits"));
    let end = load(&format!("hello {address} --local-ports 40200-40231 -c 3 -n 9 --timeout 5 --json -"));
    assert_eq!(end.code, Some(1), "this server ends without an answer: {end:?}");
    let ports: Vec<u16> = ports.try_iter().collect();
    assert!(ports.len() == 9 && ports.iter().all(|port| (40_200..=40_231).contains(port)), "{ports:?}");
}

#[test]
fn a_run_that_is_too_short_for_its_connections_is_not_ok() {
    let end = load("ping -c 200 --connect-rate 50 -d 2s --json -");
    assert_eq!(end.code, Some(1), "{end:?}");
    let report = report(&end);
    let [attempted, not_begun] = ["/connections/attempted", "/connections/not_begun"].map(|name| number(&report, name));
    assert!(attempted <= 110 && attempted + not_begun == 200, "{report}");
    let told = format!("FAILED: {not_begun} connections were never begun");
    assert!(end.stderr.contains(&told) && end.stderr.contains("use a longer -d"), "{end:?}");
    let judged = load("ping -c 8 --connect-rate 100 -d 1s --threshold lost==0 --json -");
    assert_eq!(judged.code, Some(0), "{judged:?}");
}
