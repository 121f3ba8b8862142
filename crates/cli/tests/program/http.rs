//! `sockdrawer load http` against servers that do what servers do: every request is counted once, and as both ends saw it.

use crate::faults::bound;
use crate::program::{self, End, Program};
use crate::report::{errors, number, report};
use crate::web::{Then, Web};
use rustix::process::Signal;
use serde_json::{Value, json};
use sockdrawer::testing::private_network;
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n\r\n";
const ENDLESS: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nabc";

fn load(words: &str) -> (End, Value) {
    let words = format!("load http {words} --json -");
    let end = Program::of(&words).end();
    let report = report(&end);
    (end, report)
}

#[track_caller]
fn microseconds(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no time {pointer} in {report}"))
}

/// Returns the numbers of attempted, established, failed and lost connections, and of operations that went well and that did not.
#[track_caller]
fn counts(report: &Value) -> [u64; 6] {
    let connections = ["attempted", "established", "failed", "lost"].map(|name| number(report, &format!("/connections/{name}")));
    let operations = ["ok", "failed"].map(|name| number(report, &format!("/operations/{name}")));
    [connections.as_slice(), &operations].concat().try_into().expect("six numbers")
}

#[test]
fn answers_of_every_form_are_read_to_their_ends_whoever_ends_the_connection() {
    for (answer, closes) in
        [(PLAIN, &["server", "fin", "rst"][..]), (LAST, &["server"]), (CHUNKED, &["rst"]), (ENDLESS, &["server", "fin"])]
    {
        for close in closes {
            // An answer without a length ends with its connection, whatever the client says of it.
            let server = match answer {
                ENDLESS => Web::serve(|_| (ENDLESS.to_vec(), Then::Close)),
                answer => Web::always(answer),
            };
            let (end, report) = load(&format!("{} -n 60 -c 7 --path /x --close {close}", server.address));
            assert_eq!(end.code, Some(0), "{close}: {report}");
            assert_eq!(counts(&report), [60, 60, 0, 0, 60, 0], "{close}: {report}");
            assert_eq!((server.accepted(), server.asked()), (60, 60), "{close}");
            let transfer = &report["http"]["transfer"];
            assert_eq!([&transfer["bytes"], &transfer["body_bytes"]], [60 * answer.len(), 180], "{close}: {report}");
            assert_eq!((&report["http"]["close"], &report["http"]["renewed"]), (&json!(close), &Value::Null));
        }
    }
}

/// Both take an answer, or neither does. What RFC 9112 says of each is tested in the crate catalog.
#[test]
fn answers_are_taken_where_curl_takes_them() {
    let many: String = (0..2_500).map(|number| format!("Set-Cookie: {number}={}\r\n", "x".repeat(20))).collect();
    let long = format!("A: {}\r\n", "x".repeat(90_000));
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    for (answer, body) in [
        (format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 3\r\n\r\nabc"), Some(3)),
        (format!("HTTP/1.1 200 OK\r\n{long}Content-Length: 3\r\n\r\nabc"), Some(3)),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 3\r\n\r\nabc".to_owned(), Some(3)),
        ("HTTP/1.1 200\nContent-Length: 3\n\nabc".to_owned(), Some(3)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc".to_owned(), Some(3)),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc".to_owned(), None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_owned(), None),
        ("HTTP/1.0 200 OK\r\n\r\nabc".to_owned(), Some(3)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc".to_owned(), Some(3)),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n".to_owned(), Some(0)),
        ("HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc".to_owned(), Some(3)),
        (format!("HTTP/1.1 200 OK\r\n{chunked}3\r\nabc\r\n0\r\n\r\n"), Some(3)),
        (format!("HTTP/1.1 200 OK\r\n{chunked}3\nabc\n0\n\n"), Some(3)),
        (format!("HTTP/1.1 200 OK\r\n{chunked}3 ;a=\"b\"\r\nabc\r\n0\r\nA: b\r\n\r\n"), Some(3)),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n{chunked}3\r\nabc\r\n0\r\n\r\n"), Some(3)),
        (format!("HTTP/1.1 200 OK\r\n{chunked}3\r\nabcd\r\n0\r\n\r\n"), None),
        (format!("HTTP/1.1 200 OK\r\n{chunked}x\r\n"), None),
        (format!("HTTP/1.1 200 OK\r\n{chunked}3\r\nabc\r\n"), None),
        ("HTTP/1.2 200 OK\r\nContent-Length: 3\r\n\r\nabc".to_owned(), None),
        ("SSH-2.0-a\r\n".to_owned(), None),
    ] {
        let shown = &answer[..answer.len().min(100)];
        let bytes = answer.clone().into_bytes();
        let server = Web::serve(move |_| (bytes.clone(), Then::Finish));
        let (end, report) = load(&format!("{} -n 1 -c 1 --path /x --close fin --timeout 20s", server.address));
        let came = report.pointer("/http/transfer/body_bytes").and_then(Value::as_u64);
        assert_eq!((end.code == Some(0)).then_some(came), body.map(Some), "{shown:?}: {report}");
        let url = format!("http://{}/x", server.address);
        let Ok(curl) = Command::new("curl").args(["-sS", "--max-time", "20", &url]).output() else {
            println!("without curl: skipped");
            continue;
        };
        let taken = curl.status.success().then_some(curl.stdout.len() as u64);
        assert_eq!(taken, body, "curl of {shown:?}: {}", String::from_utf8_lossy(&curl.stderr));
    }
}

#[test]
fn the_address_of_a_name_that_accepts_is_used_and_printed() {
    // The name's other address is this test's too, and refuses: another test may not listen there.
    let (_refusing, other) = bound();
    let at = SocketAddr::from((Ipv6Addr::LOCALHOST, other.port()));
    let listener = TcpListener::bind(at).expect("the port is free in the other family, whose tests ask for it only here");
    let server = Web::serve_at(listener, |asked| {
        assert!(asked.head.contains("\r\nHost: localhost:"), "{}", asked.head);
        (PLAIN.to_vec(), Then::Keep)
    });
    let end = Program::of(&format!("load HTTP://localhost:{}/ -n 3 -c 1", at.port())).end();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!((end.stdout.clone() + &end.stderr).contains(&at.to_string()), "{end:?}");
    assert_eq!((server.accepted(), server.asked()), (1, 3), "no connection is made only to try");
}

/// Counts the connections in TIME_WAIT whose own end is at this port, and those whose other end is.
fn time_wait(port: u16) -> (usize, usize) {
    const TIME_WAIT: &str = "06";
    // The table is that of this thread's network. The kernel tells it in parts: what changes meanwhile makes it tell a line twice, or not at all.
    let tables: String = (0..3).filter_map(|_| fs::read_to_string("/proc/thread-self/net/tcp").ok()).collect();
    let fields = tables.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let waiting: BTreeSet<(&str, &str)> =
        fields.filter(|fields| fields.get(3) == Some(&TIME_WAIT)).map(|fields| (fields[1], fields[2])).collect();
    let end = format!(":{port:04X}");
    let count = |is_end: fn(&(&str, &str), &str) -> bool| waiting.iter().filter(|pair| is_end(pair, &end)).count();
    (count(|(own, _), end| own.ends_with(end)), count(|(_, other), end| other.ends_with(end)))
}

#[test]
fn time_wait_is_with_who_ends_first_and_with_nobody_after_a_reset() {
    // A network has a most of connections in TIME_WAIT: beyond it, where others leave thousands, the kernel keeps none.
    let tested = thread::spawn(|| {
        if let Err(error) = private_network() {
            eprintln!("skipped: no network of its own: {error}");
            return;
        }
        for (close, server_side, this_side) in [("server", 20, 0), ("fin", 0, 20), ("rst", 0, 0)] {
            let server = Web::always(PLAIN);
            let (end, report) = load(&format!("{} -n 20 -c 3 --path / --close {close}", server.address));
            assert_eq!(end.code, Some(0), "{close}: {report}");
            assert_eq!(time_wait(server.address.port()), (server_side, this_side), "{close}");
        }
    });
    tested.join().expect("no panic");
}

#[test]
fn kept_connections_that_the_server_ends_after_an_answer_are_replaced() {
    for announced in [true, false] {
        let server = Web::serve(move |asked| match asked.request {
            9 if announced => (LAST.to_vec(), Then::Close),
            9 => (PLAIN.to_vec(), Then::Finish),
            _ => (PLAIN.to_vec(), Then::Keep),
        });
        let (end, report) = load(&format!("{} -n 200 -c 4 --path /x --keep-alive", server.address));
        assert_eq!(end.code, Some(0), "announced {announced}: {report}");
        let [attempted, established, failed, lost, ok, operations_failed] = counts(&report);
        assert_eq!([failed, lost, ok, operations_failed], [0, 0, 200, 0], "announced {announced}: {report}");
        assert_eq!((attempted, established), (server.accepted(), server.accepted()), "announced {announced}: {report}");
        assert_eq!(server.asked(), 200, "announced {announced}: none was asked in vain");
        let renewed = &report["http"]["renewed"];
        let [by_answer, unannounced] = ["announced", "unannounced"].map(|name| renewed[name].as_u64().expect("a number"));
        assert!(established >= 20 && by_answer + unannounced <= established, "announced {announced}: {report}");
        assert_eq!((by_answer > 0, unannounced > 0), (announced, !announced), "{report}");
    }
}

#[test]
fn kept_connections_need_no_more_connects_than_there_are_at_once() {
    let server = Web::always(CHUNKED);
    let (end, report) = load(&format!("{} -n 500 -c 3 --path /x --keep-alive", server.address));
    assert_eq!((end.code, counts(&report)), (Some(0), [3, 3, 0, 0, 500, 0]), "{report}");
    assert_eq!((server.accepted(), server.asked()), (3, 500));
    let (end, report) = load(&format!("{} -d 200ms -c 3 --path /x --keep-alive", server.address));
    assert_eq!((end.code, number(&report, "/connections/attempted")), (Some(0), 3), "{report}");
    assert_eq!(server.asked() - 500, number(&report, "/operations/ok"), "{report}");
}

#[test]
fn every_failure_is_counted_once_and_by_its_kind() {
    let half = || (PLAIN[..PLAIN.len() - 1].to_vec(), Then::Close);
    let missing = || (b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx".to_vec(), Then::Close);
    let longer = || (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd".to_vec(), Then::Close);
    // The first connection is answered before the others are made, because there is one at a time.
    let server = Web::serve(move |asked| match asked.connection % 10 {
        1 => half(),
        2 => (Vec::new(), Then::Reset),
        3 | 4 => longer(),
        5..8 => missing(),
        8 => (b"Pong\r\n\r\n".to_vec(), Then::Close),
        _ => (PLAIN.to_vec(), Then::Close),
    });
    let (end, report) = load(&format!("{} -n 20 -c 1 --path /x", server.address));
    assert_eq!(end.code, Some(1), "{report}");
    assert_eq!(counts(&report), [20, 20, 0, 4, 8, 12], "{report}");
    let failed = json!({"connect": 0, "receive": 4, "exceptions": 2, "status": 6});
    assert_eq!(number(&report, "/http/other_lengths"), 4, "{report}");
    assert_eq!(report["http"]["failed"], failed, "{report}");
    let expected = json!([
        {"phase": "answer", "errno": "ECONNRESET", "count": 2},
        {"phase": "status", "errno": "404", "count": 6},
        {"phase": "format", "errno": "NO_HTTP", "count": 2},
        {"phase": "cut", "errno": "EOF", "count": 2}
    ]);
    assert_eq!(errors(&report), expected, "{report}");
    assert_eq!((&report["http"]["pages"][0]["ok"], &report["http"]["pages"][0]["failed"]), (&json!(8), &json!(12)));
    assert_eq!(server.asked(), 20);
}

#[test]
fn a_server_that_resets_kept_connections_loses_them() {
    let server = Web::serve(|asked| (PLAIN.to_vec(), if asked.request == 4 { Then::Reset } else { Then::Keep }));
    let (end, report) = load(&format!("{} -n 50 -c 1 --path /x --keep-alive", server.address));
    assert_eq!(end.code, Some(1), "{report}");
    let [attempted, established, failed, lost, ok, operations_failed] = counts(&report);
    assert_eq!((attempted, failed, ok + operations_failed), (established, 0, 50), "{report}");
    // The reset comes after the answer, or destroys it; the request behind it may not have been sent.
    assert!(lost >= operations_failed && operations_failed >= 8, "{report}");
    assert_eq!(server.accepted(), attempted);
}

#[test]
fn the_wait_for_its_turn_counts_where_a_server_is_too_slow_for_the_schedule() {
    const ANSWER_TAKES: Duration = Duration::from_millis(20);
    let server = Web::serve(|_| {
        // waits because: this is the server's work, whose length the test is about.
        thread::sleep(ANSWER_TAKES);
        (PLAIN.to_vec(), Then::Close)
    });
    let (end, report) = load(&format!("{} -n 40 -c 1 --path /x --rate 200", server.address));
    assert_eq!(counts(&report), [40, 40, 0, 0, 40, 0], "{end:?}");
    // The last one was due after 39 gaps of 5 ms and could begin after 39 answers.
    let late = 39.0 * (20.0 - 5.0) * 1000.0;
    assert_eq!((number(&report, "/http/schedule/due"), number(&report, "/http/schedule/not_begun")), (40, 0), "{report}");
    assert!(microseconds(&report, "/http/schedule/lag_us/max") >= late * 0.999, "{report}");
    let (told, uncorrected) =
        (microseconds(&report, "/latency_us/operation/max"), microseconds(&report, "/http/schedule/uncorrected_us/max"));
    assert!(told >= (late + 20_000.0) * 0.999 && uncorrected >= 19_980.0, "{report}");
    assert!(microseconds(&report, "/latency_us/operation/p50") > microseconds(&report, "/http/schedule/uncorrected_us/p50"));
}

#[test]
fn kept_connections_can_be_held() {
    let server = Web::always(PLAIN);
    let (end, report) = load(&format!("{} --path /x -c 5 --keep-alive --hold 300ms", server.address));
    assert_eq!((end.code, number(&report, "/connections/established")), (Some(0), 5), "{report}");
    assert!((0.3..20.0).contains(&microseconds(&report, "/seconds")), "{report}");
}

#[test]
fn a_limit_of_connects_is_no_schedule() {
    // The server is the slower: what a limit would allow is no wait of an operation.
    let (end, report) = load("-n 10 -c 1 --mix slow=1 --connect-rate 10k");
    assert_eq!((end.code, number(&report, "/operations/ok"), &report["http"]["schedule"]), (Some(0), 10, &Value::Null));
    let [operation, total] = ["/latency_us/operation/max", "/http/times_us/total/max"].map(|at| microseconds(&report, at));
    assert!((operation / total - 1.0).abs() < 1e-3, "{report}");
}

#[test]
fn what_could_not_begin_at_all_is_told() {
    let silent = Web::serve(|_| (Vec::new(), Then::Keep));
    let (end, report) = load(&format!("{} -d 300ms -c 1 --path /x --rate 1000 --timeout 50ms", silent.address));
    assert_eq!(end.code, Some(1), "{report}");
    let [attempted, .., failed] = counts(&report);
    let [due, not_begun] = ["due", "not_begun"].map(|name| number(&report, &format!("/http/schedule/{name}")));
    // Each attempt but the last takes 50 ms, in which 50 more are due.
    assert!(attempted >= 1 && due > (attempted - 1) * 50, "{report}");
    assert_eq!((due - not_begun, failed), (attempted, attempted), "{report}");
}

#[test]
fn a_mix_has_separate_figures_and_the_seed_says_how_many_of_each() {
    let run = || {
        let (end, report) = load("--mix fast=9,slow=1 -n 300 -c 32 --seed 5");
        assert_eq!((end.code, counts(&report)), (Some(0), [300, 300, 0, 0, 300, 0]), "{report}");
        assert!(end.stderr.contains("GET /test/fast (9) or /test/slow (1)") && end.stderr.contains("seed 5"), "{end:?}");
        let pages = report["http"]["pages"].as_array().expect("pages").clone();
        let [fast, slow] = <[Value; 2]>::try_from(pages).expect("two pages");
        assert_eq!((&fast["path"], &slow["path"]), (&json!("/test/fast"), &json!("/test/slow")));
        assert!(microseconds(&slow, "/operation_us/p50") >= 30_000.0, "{slow}");
        assert!(microseconds(&fast, "/operation_us/p50") < microseconds(&slow, "/operation_us/p50"), "{fast} {slow}");
        [number(&fast, "/ok"), number(&slow, "/ok")]
    };
    let [fast, slow] = run();
    assert!(fast + slow == 300 && (15..60).contains(&slow), "{fast} {slow}");
    assert_eq!(run(), [fast, slow]);
}

#[test]
fn the_mean_times_are_those_of_ab() {
    let (_, report) = load("-n 200 -c 5");
    let (seconds, across_all) =
        (microseconds(&report, "/seconds"), microseconds(&report, "/http/time_per_request_across_all_us"));
    assert!((across_all * 200.0 / 1e6 / seconds - 1.0).abs() < 1e-6, "{report}");
    assert!((microseconds(&report, "/http/time_per_request_us") / across_all - 5.0).abs() < 1e-6, "{report}");
    let within: Vec<&Value> =
        report["http"]["served_within_us"].as_array().expect("a table").iter().map(|one| &one["percent"]).collect();
    assert_eq!(within, [50, 66, 75, 80, 90, 95, 98, 99, 100]);
    for part in ["connect", "processing", "waiting", "total"] {
        let at = |name| microseconds(&report, &format!("/http/times_us/{part}/{name}"));
        assert!(at("min") <= at("median") && at("median") <= at("max") && at("mean") <= at("max"), "{part}: {report}");
    }
    assert!(microseconds(&report, "/latency_us/first_byte/p50") > 0.0, "{report}");
}

#[test]
fn an_interrupt_reports_what_was_reached() {
    let (asks, asked) = mpsc::channel();
    let asks = Mutex::new(asks);
    let server = Web::serve(move |_| {
        asks.lock().unwrap_or_else(PoisonError::into_inner).send(()).expect("the test waits for it");
        (Vec::new(), Then::Keep)
    });
    let words = format!("load http {} -c 3 -d 1h --path /x --timeout 1h --json -", server.address);
    let program = Program::of(&words);
    assert_eq!(asked.iter().take(3).count(), 3, "each has asked");
    program.signal(Signal::INT);
    let end = program.end();
    let report: Value = serde_json::from_str(&end.stdout).unwrap_or_else(|error| panic!("{error}: {end:?}"));
    assert_eq!((end.code, counts(&report)), (Some(130), [3, 3, 0, 0, 0, 3]), "{report}");
    assert_eq!(errors(&report), json!([{"phase": "unfinished", "errno": "CUT_OFF", "count": 3}]));
    assert_eq!((&report["http"]["failed"]["exceptions"], &report["http"]["pages"][0]["failed"]), (&json!(3), &json!(3)));
}

#[test]
fn options_that_make_no_sense_together_are_refused_in_one_line() {
    for (words, expected) in [
        ("http --rate 5 --connect-rate 5", "exclude each other"),
        ("http --close fin --keep-alive", "exclude each other"),
        ("http --path / --mix fast=1", "exclude each other"),
        ("http --path index.html", "begins with a slash"),
        ("http --mix quick=1", "such as fast=9,slow=1"),
        ("http --close never", "server"),
        ("http --hold 5", "or keep them: --keep-alive"),
        ("ping --mix fast=1", "--mix is an option of http, not of ping"),
        ("hello --rate 5", "--rate is an option of ping, echo, acks and http, not of hello"),
    ] {
        let end = program::load(words);
        assert_eq!((end.code, end.stdout.as_str(), end.stderr.lines().count()), (Some(2), "", 1), "{words}: {end:?}");
        assert!(end.stderr.starts_with("error: ") && end.stderr.contains(expected), "{words}: {end:?}");
    }
}

#[test]
fn a_run_that_needs_more_ports_than_there_are_is_refused_before_it_connects() {
    // 192.0.2.0/24 is for documents: nobody is there (RFC 5737).
    let end = program::load("http 192.0.2.1:80 -c 70000 -d 1s --yes");
    assert_eq!((end.code, end.stdout.as_str()), (Some(3), ""), "{end:?}");
    assert!(end.stderr.contains("--connections 70000: this machine has") && end.stderr.contains("--source"), "{end:?}");
    // With 1, ports can be used again after a second everywhere.
    let reuse = fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").expect("a setting of the kernel");
    if reuse.trim() != "1" {
        for words in ["-n 100k", "-d 1h --rate 2k", "-d 1h --connect-rate 2k"] {
            let end = program::load(&format!("http 192.0.2.1:80 --close fin --yes {words}"));
            assert_eq!((end.code, end.stdout.as_str(), end.stderr.lines().count()), (Some(3), "", 1), "{words}: {end:?}");
            assert!(end.stderr.contains("connects within 1m of TIME_WAIT"), "{words}: {end:?}");
            assert!(end.stderr.contains("--close server or rst") && end.stderr.contains("--force"), "{words}: {end:?}");
        }
    }
}

#[test]
fn a_port_with_nobody_on_it_ends_the_run() {
    let (_bound, deserted) = bound();
    for words in ["-n 20 -c 4", "-n 20 -c 4 --keep-alive", "-n 20 -c 4 --rate 10k"] {
        let (end, report) = load(&format!("{deserted} {words}"));
        assert_eq!(end.code, Some(1), "{words}: {report}");
        let failed = number(&report, "/connections/failed");
        assert!((20..=24).contains(&failed), "{words}: {report}");
        assert_eq!((number(&report, "/http/failed/connect"), number(&report, "/operations/ok")), (failed, 0), "{report}");
        assert_eq!(report["http"]["served_within_us"][0], json!({"percent": 50, "us": null}), "{report}");
    }
}
