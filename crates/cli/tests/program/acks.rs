//! `sockdrawer load acks`, also as a ladder: every message is acknowledged exactly once, and what its times give away is told.

use crate::program::{End, Program};
use crate::report::{errors, number, numbers, report};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

fn load(words: &str) -> End {
    let words = format!("load acks {words} --timeout 20");
    Program::of(&words).end()
}

/// Starts a server of this test: `serve` gets each connection in a thread of its own.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Operations that ended well, that did not, and messages that were sent.
const MESSAGES: [&str; 3] = ["/operations/ok", "/operations/failed", "/acks/written"];

#[test]
fn every_message_is_acknowledged_exactly_once_in_every_pattern() {
    for pattern in ["reply", "read", "timer=5ms", "async=20,5ms", "every=7"] {
        for (words, count) in [("-c 1 --batch 3 --window 10", 1_003), ("-c 8", 20_011), ("-c 20 --size 100k", 200)] {
            let end = load(&format!("--ack {pattern} -n {count} {words} --json -"));
            assert_eq!(end.code, Some(0), "{pattern} {words}: {end:?}");
            let report = report(&end);
            assert_eq!(numbers(&report, MESSAGES), [count, 0, count], "{pattern} {words}: {report}");
            assert_eq!(errors(&report), serde_json::json!([]), "{pattern} {words}: {report}");
            let acks = number(&report, "/acks/acks");
            assert!(if pattern == "reply" { acks == count } else { acks > 0 && acks <= count }, "{pattern} {words}: {report}");
            let each = report["acks"]["messages_per_ack"].as_f64().expect("there are acks");
            assert!((each * acks as f64 - count as f64).abs() < 1e-6 * count as f64, "{pattern} {words}: {report}");
        }
    }
}

#[test]
fn time_ends_it_and_nothing_is_left_behind() {
    let end = load("-c 3 -d 200ms --json -");
    let report = report(&end);
    let [ok, failed, written] = numbers(&report, MESSAGES);
    assert_eq!((end.code, failed, written), (Some(0), 0, ok), "{report}");
    assert!(ok > 1_000, "{report}");
    for cost in ["client_cpu_ns", "server_cpu_ns"] {
        assert!(report["acks"][cost].as_f64().is_some_and(|ns| ns > 1.0), "{cost}: {report}");
    }
    let per_second = report["operations"]["per_second"].as_f64().expect("a rate");
    let bytes = report["acks"]["bytes_per_second"].as_f64().expect("a rate");
    assert!((bytes / per_second - 17.0).abs() < 1e-6, "12 bytes of header and 5 of payload: {report}");
    assert!(end.stderr.starts_with("3 connections, messages of 5 bytes back to back, 1000 in a write"), "{end:?}");
}

#[test]
fn a_rate_is_that_of_all_connections() {
    let end = load("-c 4 --rate 2000 -d 500ms --json -");
    let report = report(&end);
    let [ok, failed, written] = numbers(&report, MESSAGES);
    assert_eq!((end.code, failed, written), (Some(0), 0, ok), "{report}");
    let seconds = report["seconds"].as_f64().expect("it took time");
    // Each connection may send one more: the first is due at once. Fewer are sent where the machine is busy: what is late at the end is not sent.
    assert!(ok as f64 <= 2_000.0 * seconds + 4.0 && ok as f64 >= 1_000.0 * seconds, "{report}");
    assert!(end.stderr.contains("4 connections, 2000 messages/s of 5 bytes"), "{end:?}");
}

#[test]
fn a_rate_that_nobody_can_keep_is_told() {
    let end = load("-c 1 --size 100k --rate 1m -d 300ms");
    assert_eq!(end.code, Some(0), "{end:?}");
    let hint = end.stdout.lines().find(|line| line.starts_with("hint")).unwrap_or_else(|| panic!("{end:?}"));
    assert!(hint.contains("of 1000000 messages/s"), "{hint}");
}

/// Takes messages of five bytes, one after the other, and acknowledges each by as many writes as `pieces` has lengths.
fn piecewise(mut stream: TcpStream, pieces: &[usize]) {
    let mut message = [0; 17];
    while stream.read_exact(&mut message).is_ok() {
        let mut ack = [0; 12];
        ack[..8].copy_from_slice(&message[..8]);
        let mut rest = &ack[..];
        for length in pieces {
            let (piece, after) = rest.split_at(*length);
            if stream.write_all(piece).is_err() {
                return;
            }
            rest = after;
        }
    }
}

#[test]
fn a_server_that_nagles_is_found_and_others_are_not_accused() {
    let words = "-c 2 --batch 1 --window 1 -n 60";
    // A socket has Nagle's algorithm unless TCP_NODELAY is set: the second piece waits for the client's TCP ACK of the first.
    let end = load(&format!("{} {words}", server(|stream| piecewise(stream, &[8, 4]))));
    assert_eq!(end.code, Some(0), "{end:?}");
    let hint = end.stdout.lines().find(|line| line.starts_with("hint")).unwrap_or_else(|| panic!("{end:?}"));
    assert!(hint.contains("about 40 ms") && hint.contains("TCP_NODELAY"), "{hint}");
    let nodelay = server(|stream| {
        stream.set_nodelay(true).expect("it is connected");
        piecewise(stream, &[8, 4]);
    });
    for healthy in [nodelay.to_string(), server(|stream| piecewise(stream, &[12])).to_string(), "--ack timer=40ms".to_owned()] {
        let end = load(&format!("{healthy} {words} --json -"));
        let report = report(&end);
        assert_eq!((end.code, &report["acks"]["delayed_ack"]), (Some(0), &Value::Null), "{healthy}: {report}");
        assert!(!end.stderr.contains("hint"), "{healthy}: {end:?}");
        let p50 = report["latency_us"]["operation"]["p50"].as_f64().expect("messages were acknowledged");
        assert_eq!(p50 > 38_000.0, healthy.starts_with("--ack"), "{healthy}: the timer alone takes as long: {report}");
    }
}

#[test]
fn a_server_of_another_pattern_is_told() {
    for (server, client) in [("read", "reply"), ("reply", "read")] {
        let mut server = Program::start(&["serve", "acks", "-v", "--ack", server, "-l", "127.0.0.1:0"]);
        let line = server.line();
        let target = line.strip_prefix("listening on ").expect("it says where");
        let end = load(&format!("{target} --ack {client} -c 2 -n 1000"));
        assert_eq!(end.code, Some(1), "{end:?}");
        let hint = end.stdout.lines().find(|line| line.starts_with("hint")).unwrap_or_else(|| panic!("{end:?}"));
        assert!(hint.contains(&format!("--ack {client}")) && hint.contains("big-endian"), "{hint}");
        server.signal(Signal::TERM);
        let end = server.end();
        assert!(end.code == Some(0) && end.stderr.contains("its client speaks another pattern"), "{end:?}");
    }
}

#[test]
fn an_ack_with_a_gap_or_twice_fails_what_it_leaves_open() {
    for wrong in [[1_u64, 0], [0, 0]] {
        let address = server(move |mut stream| {
            let mut messages = [0; 3 * 17];
            stream.read_exact(&mut messages).expect("three messages come");
            for id in wrong {
                let ack = [id.to_le_bytes().as_slice(), &[0; 4]].concat();
                // The client has hung up after the first when that one is wrong.
                let _ = stream.write_all(&ack);
            }
            let _ = stream.read(&mut [0]);
        });
        let end = load(&format!("{address} -c 1 -n 3 --batch 3 --window 3 --json -"));
        let report = report(&end);
        let ok = u64::from(wrong[0] == 0);
        assert_eq!((end.code, numbers(&report, MESSAGES)), (Some(1), [ok, 3 - ok, 3]), "{wrong:?}: {report}");
        assert_eq!(errors(&report), serde_json::json!([{"phase": "verify", "errno": "WRONG_BYTES", "count": 1}]), "{wrong:?}");
    }
}

#[test]
fn messages_that_an_interrupt_cuts_off_add_up() {
    let address = server(|mut stream| {
        // Takes all and acknowledges nothing.
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
    });
    let words = format!("load acks {address} -c 2 -d 1h --batch 10 --window 50 --timeout 1h");
    let mut program = Program::of(&words);
    assert!(program.line().starts_with("2 connections"));
    let standing = |error: &mut dyn std::io::BufRead| {
        let mut line = String::new();
        while !line.contains(" 2 open") {
            line.clear();
            error.read_line(&mut line).expect("progress is told");
        }
    };
    standing(&mut program.stderr);
    program.signal(Signal::INT);
    let end = program.end();
    assert_eq!(end.code, Some(130), "{end:?}");
    assert!(end.stdout.contains("operations   0 ok, 100 failed"), "{end:?}");
    assert!(end.stdout.contains("error        unfinished CUT_OFF: 100"), "{end:?}");
    assert!(!end.stdout.contains("hint"), "a silent server speaks no other pattern: {end:?}");
}

#[test]
fn a_ladder_has_a_row_for_each_pattern_at_one_and_at_eight_connections() {
    let end = load("--ladder -d 100ms --json -");
    assert_eq!(end.code, Some(0), "{end:?}");
    let result = report(&end);
    let runs = result["runs"].as_array().expect("rows");
    let names = ["reply", "timer=5ms, 2 reads a message", "timer=5ms", "read", "async=20,5ms", "every=1000"];
    for (row, (connections, name)) in runs.iter().zip([1, 8].iter().flat_map(|count| names.map(|name| (*count, name)))) {
        assert_eq!((number(row, "/connections/peak"), row["name"].as_str()), (connections, Some(name)));
        let [ok, failed, written] = numbers(row, MESSAGES);
        assert!(ok > 0 && failed == 0 && written == ok, "{row}");
        assert!(row["acks"]["server_cpu_ns"].as_f64().is_some_and(|ns| ns > 1.0), "{row}");
        let speed_up = row["speed_up"].as_f64().expect("the first row had messages");
        assert!(if name == "reply" { speed_up == 1.0 } else { speed_up > 0.0 }, "{row}");
        assert!(end.stderr.contains(&format!("\n{name:<29}{connections:>11}")), "{name}: {end:?}");
    }
    assert_eq!(runs.len(), 12);
    assert!(end.stderr.contains("two reads for each message take "), "{end:?}");
}

#[test]
fn an_interrupted_ladder_keeps_its_rows() {
    let path = std::env::temp_dir().join(format!("sockdrawer-ladder-{}.json", std::process::id()));
    let json = path.to_str().expect("a name of text").to_owned();
    let mut program = Program::start(&["load", "acks", "--ladder", "-d", "300ms", "--json", &json]);
    let lines = [program.line(), program.line(), program.line()];
    assert!(lines[0].starts_with("acks at 1 and 8 connections, 300ms each") && lines[1].starts_with("pattern "), "{lines:?}");
    assert!(lines[2].starts_with("reply ") && lines[2].ends_with(" 1.00 x"), "rows come one by one: {lines:?}");
    program.signal(Signal::INT);
    let end = program.end();
    let result: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("it is written")).expect("JSON");
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(end.code, Some(130), "{end:?}");
    let rows = result["runs"].as_array().expect("rows").len();
    assert!(end.stdout.contains(&format!("interrupted after {rows} of 12 rows")), "{end:?}");
    assert!((1..12).contains(&rows) && end.stdout.matches(" x\n").count() == rows - 1, "{rows} rows: {end:?}");
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    for (words, what) in [
        ("acks --window 10 --batch 20", "--window 10 is smaller than --batch 20"),
        ("acks --size 2m", "--size 2097152: a payload has at most 1000000 bytes"),
        ("acks --size 1k --batch 1m", "more than 64 MiB"),
        ("acks --ack sometimes", "`sometimes` is no way to acknowledge: write reply"),
        ("acks --rate 5 --interval 1", "--rate and --interval exclude each other"),
        ("acks 127.0.0.1:1 --ladder", "leave TARGET out"),
        ("acks --ladder -c 3", "--ladder and --connections exclude each other"),
        ("acks --ladder --ack read", "--ladder and --ack exclude each other"),
        ("ping --ladder", "--ladder is an option of acks, not of ping"),
        ("echo --batch 3", "--batch is an option of acks, not of echo"),
        ("hello --size 3", "--size is an option of echo and acks, not of hello"),
        ("hello --rate 3", "--rate is an option of ping, echo, acks and http, not of hello"),
        ("acks --ladder --keep-alive", "--keep-alive is an option of http, not of acks"),
    ] {
        let words = format!("load {words}");
        let end = Program::of(&words).end();
        assert_eq!((end.code, end.stderr.matches('\n').count()), (Some(2), 1), "{words}: {end:?}");
        assert!(end.stderr.contains(what), "{words}: {end:?}");
        assert_eq!(end.stdout, "", "{words}");
    }
}
