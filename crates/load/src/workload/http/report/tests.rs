//! The words and the numbers of a report.

use super::*;
use crate::workload::errors::Seen;
use std::time::Instant;

#[test]
fn each_failure_is_of_one_kind() {
    let errors = [
        (Phase::Connect, Some(111), 1),
        (Phase::Send, Some(32), 2),
        (Phase::Answer, None, 3),
        (Phase::Answer, Some(110), 4),
        (Phase::End, Some(104), 5),
        (Phase::Cut, None, 6),
        (Phase::Format, None, 3),
        (Phase::Status, Some(404), 7),
        (Phase::Verify, None, 8),
        (Phase::Client, None, 9),
        (Phase::Closed, None, 100),
    ];
    let errors = errors.map(|(phase, errno, count)| ((phase, errno), Seen { count, ..Seen::default() })).into_iter().collect();
    let failures = failures(&Tally { errors, unfinished: 10, ..Tally::default() });
    assert_eq!(failures, Failures { connect: 1, receive: 20, exceptions: 30, status: 7 });
    assert_eq!(failures.sum(), 58);
}

#[test]
fn what_was_due_is_what_the_rate_says() {
    let after = |seconds, rate, most| due(Duration::from_secs_f64(seconds), rate, most);
    assert_eq!((after(2.0, 100.0, None), after(2.0, 100.0, Some(150)), after(0.5, 0.1, None)), (201, 150, 1));
    let start = Instant::now();
    let figures = Figures { first_due: Some(start), ..Figures::default() };
    let run = Ended {
        connections: 50,
        operations: None,
        seconds: 2.0,
        cpu: [None; 2],
        connects: 0,
        at: start + Duration::from_secs(2),
    };
    let told = |connects| schedule(100.0, &figures, &Ended { connects, ..run });
    assert_eq!((told(3).due, told(3).not_begun), (201, 198));
    assert_eq!((told(205).due, told(205).not_begun), (205, 0));
}

#[test]
fn people_get_all_of_it_in_words_they_know() {
    let spread = Spread { min: Some(1.0), mean: Some(2_000.0), sd: Some(0.5), median: None, max: Some(3_000_000.0) };
    let none = Percentiles::default();
    let page = |path: &str| PageReport {
        path: path.to_owned(),
        weight: 9,
        ok: 90,
        failed: 1,
        per_second: 45.0,
        first_byte_us: none,
        operation_us: none,
    };
    let http = Http {
        close: "server".into(),
        requests_per_second: 50.0,
        time_per_request_us: Some(1_000_000.0),
        time_per_request_across_all_us: Some(20_000.0),
        transfer: Transfer { bytes: 4096, body_bytes: 96, bytes_per_second: 2048.0 },
        failed: Failures { connect: 1, receive: 2, exceptions: 4, status: 5 },
        redirected: 6,
        other_lengths: 8,
        served_within_us: vec![Within { percent: 50, us: Some(12.5) }, Within { percent: 100, us: None }],
        times_us: Times { connect: spread, processing: spread, waiting: spread, total: spread },
        schedule: Some(Schedule { rate: 1.5, due: 100, not_begun: 7, lag_us: none, uncorrected_us: none }),
        renewed: Some(Renewed { announced: 3, unannounced: 1 }),
        pages: vec![page("/test/fast"), page("/b")],
    };
    let empty = |name: &str| format!("  {name:<10}          -          -          -          -          -          -");
    let columns = "                   mean        p50        p95        p99      p99.9        max\n";
    let page = |path| {
        let rows = format!("{columns}{}\n{}", empty("first byte"), empty("operation"));
        format!("\npage         {path}, weight 9: 90 ok, 1 failed, 45.0/s\n{rows}")
    };
    let expected = format!(
        "transfer     2.0 KiB/s, 4,096 bytes received, 96 of them bodies\n\
         redirected   6 answers of 3xx, which are not followed\n\
         lengths      8 bodies were not as long as the first one of their page\n\
         renewed      4 connections that the server ended after an answer, 1 unannounced\n\
         schedule     1.5/s, 100 due, 7 of them not begun\n{columns}{}\n{}\n  \
         operation: due to answered; service: begun to answered; send delay: due to begun{}{}",
        empty("service"),
        empty("send delay"),
        page("/test/fast"),
        page("/b"),
    );
    assert_eq!(http.to_string(), expected);
}
