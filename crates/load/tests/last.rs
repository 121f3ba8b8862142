//! Runs of a number of operations whose last answer is late, or never comes.

use sockdrawer::Address;
use sockdrawer_catalog::http::{Close, Page};
use sockdrawer_load::http::Wanted;
use sockdrawer_load::{Plan, Progress, Report, Run, Stop, Workload};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

/// Runs a plan against a server of this code.
fn run(plan: Plan, serve: impl FnOnce(TcpListener) + Send + 'static) -> Report {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let plan = Plan { targets: vec![Address::Tcp(listener.local_addr().expect("it is bound"))], ..plan };
    let server = thread::spawn(move || serve(listener));
    let report = Run::start(&plan).expect("clients").finish(&Stop::new(), |_: &Progress| {}).expect("a pool that goes on");
    server.join().expect("no panic");
    report
}

#[test]
fn the_time_of_an_operation_that_fails_at_last_counts() {
    const PINGS: u64 = 200;
    let plan = Plan { connections: 1, operations: Some(PINGS), ..Plan::new(Workload::ping(Duration::ZERO)) };
    let report = run(Plan { timeout: Duration::from_secs(1), ..plan }, |listener| {
        let (mut connection, mut ping) = (listener.accept().expect("the client connects").0, [0; 4]);
        for _ in 1..PINGS {
            connection.read_exact(&mut ping).expect("the client asks");
            connection.write_all(b"Pong").expect("the client listens");
        }
        // The last question, and then the client gives up.
        let _ = connection.read_to_end(&mut Vec::new());
    });
    assert_eq!((report.operations.ok, report.operations.failed), (PINGS - 1, 1));
    assert!(report.seconds >= 1.0, "{} s", report.seconds);
    assert!(report.operations.per_second < 200.0, "{}/s", report.operations.per_second);
}

#[test]
fn a_last_answer_that_is_late_is_no_rate_that_was_not_kept() {
    const REQUESTS: u64 = 1_000;
    let wanted = Wanted {
        pages: vec![Page { path: "/".to_owned(), weight: 1, exact: false }],
        close: Some(Close::Rst),
        rate: Some(500.0),
        ..Wanted::default()
    };
    let plan = Plan { operations: Some(REQUESTS), ..Plan::new(Workload::Http(wanted)) };
    let report = run(plan, |listener| {
        for number in 1..=REQUESTS {
            let mut connection = listener.accept().expect("the client connects").0;
            let _whole = connection.read(&mut [0; 1_024]).expect("the client asks");
            if number == REQUESTS {
                // waits because: that an answer takes long is what is tested.
                thread::sleep(Duration::from_secs(1));
            }
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("the client listens");
        }
    });
    assert_eq!((report.operations.ok, report.operations.failed), (REQUESTS, 0), "{report}");
    assert!(report.seconds > 2.5, "{report}");
    let rate = report.rate.expect("the run has a rate");
    assert!(rate.kept && rate.begun > 400.0, "{rate}");
}
