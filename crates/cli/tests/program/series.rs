//! `load --metrics`: the series of a run for collectors; and `load --reconnect`, whose counts are in it.

use crate::program::{Program, load};
use crate::report::{number, report};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Returns what a collector gets: the head and the body.
fn scrape(address: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: application/openmetrics-text\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and ends");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.to_owned(), body.to_owned())
}

fn value(body: &str, name: &str) -> f64 {
    let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {body}"))
}

#[test]
fn a_run_is_scraped_while_it_goes_on() {
    const ANSWERED: &str = r#"sockdrawer_load_operations_total{result="ok"}"#;
    let mut run = Program::of("load ping -c 3 --interval 10ms -d 1m --metrics 127.0.0.1:0");
    let at = loop {
        let line = run.line();
        assert!(!line.is_empty(), "it does not say where: {:?}", run.end());
        if let Some(at) = line.strip_prefix("metrics      http://") {
            break at.strip_suffix("/metrics").expect("a path").to_owned();
        }
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    let (head, body) = loop {
        let scraped = scrape(&at);
        if value(&scraped.1, ANSWERED) > 0.0 {
            break scraped;
        }
        assert!(Instant::now() < deadline, "no operation is counted: {scraped:?}");
        std::thread::yield_now();
    };
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.contains("Content-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(body.ends_with("# EOF\n") && body.contains(r#"workload="ping""#), "{body}");
    assert_eq!(
        (value(&body, "sockdrawer_load_open_connections"), value(&body, "sockdrawer_load_target_connections")),
        (3.0, 3.0)
    );
    assert_eq!(value(&body, "sockdrawer_load_operation_duration_seconds_count"), value(&body, ANSWERED), "{body}");
    run.signal(Signal::INT);
    assert_eq!(run.end().code, Some(130));
    TcpStream::connect(&at).expect_err("it ends with the run");
}

#[test]
fn an_address_that_is_taken_is_told_before_the_run() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = taken.local_addr().expect("it is bound");
    let end = load(&format!("ping -n 1 --metrics {at}"));
    assert!(end.code == Some(2) && end.stderr.contains(&at.to_string()), "{end:?}");
    assert_eq!(load("acks --ladder --metrics 127.0.0.1:0").code, Some(2));
}

#[test]
fn lost_connections_are_replaced_and_counted_where_that_is_asked_for() {
    let mut server = Program::start(&["serve", "ping", "-l", "127.0.0.1:0", "--idle", "100ms"]);
    let line = server.line();
    let target = line.strip_prefix("listening on ").expect("it says where");
    // No ping is due while the server is patient.
    let lost = load(&format!("ping {target} -c 4 -d 2 --interval 1h"));
    assert!(lost.stdout.contains("ended early  no connection was left, and none is replaced (--reconnect), after "), "{lost:?}");
    let end = load(&format!("ping {target} -c 4 -d 2 --interval 1h --reconnect --json -"));
    let result = report(&end);
    let [established, lost, reconnected] =
        ["established", "lost", "reconnected"].map(|name| number(&result, &format!("/connections/{name}")));
    assert_eq!((&result["complete"], reconnected), (&true.into(), established - 4), "{result}");
    assert!(lost >= reconnected && reconnected >= 8, "some times each: {result}");
    assert!(end.stderr.contains(&format!(", {reconnected} reconnected, ")), "{end:?}");
    for wrong in ["acks --reconnect", "ping --reconnect --lifetime 1s", "ping --reconnect --hold 1s"] {
        assert_eq!(load(wrong).code, Some(2), "{wrong}");
    }
}
