//! Results of runs that did not do what they were asked for, and what they say of it.

use crate::program::{End, Program, load};
use crate::report::{number, numbers, report};
use crate::web::{Then, Web};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
const ANSWER_TAKES: Duration = Duration::from_millis(20);

/// Returns the end of a run with all its words, and the one without them.
fn both(words: &str) -> (End, serde_json::Value) {
    let end = load(&format!("{words} --json -"));
    let report = report(&end);
    (end, report)
}

#[test]
fn a_rate_that_was_missed_fails_the_run_and_is_told() {
    let server = Web::serve(|_| {
        // waits because: this is the server's work, whose length the test is about.
        thread::sleep(ANSWER_TAKES);
        (PLAIN.to_vec(), Then::Keep)
    });
    let (end, report) = both(&format!("http://{}/ -c 2 -d 1200ms --rate 1k", server.address));
    assert_eq!(
        (end.code, number(&report, "/operations/failed"), &report["rate"]["kept"]),
        (Some(1), 0, &false.into()),
        "{report}"
    );
    // Two connections with an answer each 20 ms, or later.
    let [due, not_begun] = ["/rate/due", "/rate/not_begun"].map(|at| number(&report, at));
    assert!((1_000..=1_250).contains(&due) && due - not_begun <= 122, "{report}");
    assert_eq!(report["wall"]["name"], "connections", "{report}");
    assert!(end.stderr.contains("/s of 1,000/s asked for: not kept, "), "{end:?}");
    assert!(end.stderr.trim_end().ends_with("verdict      FAILED: the rate was not kept"), "{end:?}");
    let (end, report) = both(&format!("http://{}/ -c 2 -d 1200ms --rate 20", server.address));
    assert_eq!((end.code, &report["rate"]["kept"]), (Some(0), &true.into()), "{report}");
    assert!(!end.stderr.contains("asked for"), "{end:?}");
}

#[test]
fn an_interval_is_a_rate_too() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                while stream.read_exact(&mut [0; 4]).is_ok() {
                    // waits because: this is the server's work, whose length the test is about.
                    thread::sleep(ANSWER_TAKES);
                    let _ = stream.write_all(b"Pong");
                }
            });
        }
    });
    let (end, report) = both(&format!("ping {address} -c 2 -d 1200ms --interval 2ms"));
    assert_eq!((end.code, &report["rate"]["kept"]), (Some(1), &false.into()), "{report}");
    assert!(end.stderr.contains("verdict      FAILED: the rate was not kept"), "{end:?}");
}

#[test]
fn connections_that_a_server_ends_before_they_were_used_are_counted_and_so_are_those_in_their_place() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || listener.incoming().take(40).flatten().for_each(drop));
    let (end, report) = both(&format!("http://{address}/ -c 4 --rate 1 -d 1200ms --timeout 100ms"));
    assert_eq!(end.code, Some(1), "{report}");
    let [lost, reconnected] = ["lost", "reconnected"].map(|name| number(&report, &format!("/connections/{name}")));
    assert!(lost >= 40 && reconnected >= 36, "{report}");
    let unused =
        report["errors"].as_array().expect("a list").iter().find(|error| error["phase"] == "unused" && error["errno"] == "EOF");
    let unused = number(unused.expect("it is told"), "/count");
    // Where an operation was due meanwhile, which two may be, its connection was used.
    assert!((38..=40).contains(&unused), "{report}");
    assert!(end.stderr.contains(&format!(", {reconnected} reconnected")), "{end:?}");
    assert!(end.stderr.contains(&format!("error        unused EOF: {unused}, ")), "{end:?}");
}

#[test]
fn an_outage_is_in_the_latency_of_what_was_due_meanwhile() {
    const DOWN: Duration = Duration::from_millis(600);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            let mut asked = 0;
            while stream.read_exact(&mut [0; 4]).is_ok() {
                asked += 1;
                if number == 0 && asked == 10 {
                    break;
                }
                let _ = stream.write_all(b"Pong");
            }
            drop(stream);
            // waits because: what is accepted in this time is answered after it, as after a restart.
            thread::sleep(DOWN);
        }
    });
    let (end, report) = both(&format!("ping {address} --reconnect -c 1 --interval 20ms -d 1500ms"));
    assert_eq!((end.code, number(&report, "/connections/reconnected")), (Some(1), 1), "{report}");
    let max = report["latency_us"]["operation"]["max"].as_f64();
    assert!(max.is_some_and(|max| max > 500_000.0), "what was due while nothing answered waited: {report}");
    let [ok, failed, not_begun, due] = numbers(&report, ["/operations/ok", "/operations/failed", "/rate/not_begun", "/rate/due"]);
    assert!(due >= 60 && ok + failed + not_begun == due, "all that was due was asked, or is counted as not begun: {report}");
    assert!(end.stderr.contains("error        answer EOF: 1, at 0."), "{end:?}");
}

#[test]
fn the_last_line_of_a_run_has_the_times_of_its_last_second() {
    let end = load("ping -c 4 --interval 100ms -d 1");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stderr.lines().last().is_some_and(|line| line.starts_with("1 s ") && line.contains("p99 ")), "{end:?}");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_write() {
    for (words, says) in [
        ("parent", "error: PATH and COMMAND are missing"),
        ("load ping 127.0.0.1:0", "nothing listens at port 0"),
        ("load ping 127.0.0.1:1 --server-pid 999999999", "--server-pid 999999999: there is no such process"),
        ("load hello 127.0.0.1:1 --rate 2000", "leave it out"),
        ("load ping --agents a,b", "agents do not reach the server inside this program"),
        ("load ping 127.0.0.1:1 --agents a,a", "two are called a"),
        ("load ping 127.0.0.1:1 --push", "ssh starts no agent: name one by --agents"),
        ("load ping 127.0.0.1:1 --join-at 127.0.0.1:1", "missing"),
        ("agent", "missing"),
        ("generate k8s --plan /none -n 3", "cannot read the plan /none"),
        ("load ping -connections 5", "`-connections`: a long option has two dashes: --connections"),
        ("find http://127.0.0.1:1/ --vary rate --rate 5", "--rate is what --vary rate looks for"),
        ("http://127.0.0.1:1/", "write load http://127.0.0.1:1/"),
    ] {
        let end = Program::of(words).end();
        assert_eq!((end.code, end.stderr.lines().count()), (Some(2), 1), "{words}: {end:?}");
        assert!(end.stderr.contains(says), "{words}: {end:?}");
    }
    for words in ["--help", "load --help"] {
        let end = Program::of(words).end();
        assert!(end.stdout.contains("Exit codes: 0 well, 1"), "{words}: {end:?}");
    }
}
