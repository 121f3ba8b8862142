//! Runs of a number of operations whose last answer is late, or never comes.

use sockdrawer::Address;
use sockdrawer_load::{End, Plan, Progress, Report, Run, Stop, Workload};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

/// Pings of each run.
const OPERATIONS: u64 = 200;

/// Runs so many pings of one connection against a server that answers all but the last.
fn run_without_last_answer(timeout: Duration) -> Report {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    let server = thread::spawn(move || {
        let (mut connection, mut ping) = (listener.accept().expect("the client connects").0, [0; 4]);
        for _ in 1..OPERATIONS {
            connection.read_exact(&mut ping).expect("the client asks");
            connection.write_all(b"Pong").expect("the client listens");
        }
        // The last question, and then the client gives up.
        let _ = connection.read_to_end(&mut Vec::new());
    });
    let plan = Plan {
        connections: 1,
        operations: Some(OPERATIONS),
        targets: vec![Address::Tcp(at)],
        end: End::Never,
        timeout,
        ..Plan::new(Workload::ping(Duration::ZERO))
    };
    let report = Run::start(&plan).expect("clients").finish(&Stop::new(), |_: &Progress| {}).expect("a pool that goes on");
    server.join().expect("no panic");
    report
}

#[test]
fn the_time_of_an_operation_that_fails_at_last_counts() {
    let report = run_without_last_answer(Duration::from_secs(1));
    assert_eq!((report.operations.ok, report.operations.failed), (OPERATIONS - 1, 1));
    assert!(report.seconds >= 1.0, "{} s", report.seconds);
    assert!(report.operations.per_second < 200.0, "{}/s", report.operations.per_second);
}
