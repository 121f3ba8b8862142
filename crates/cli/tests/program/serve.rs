//! `sockdrawer serve`, from `listening on` to its exit code.

mod processes;
mod proxied;

use crate::program::Program;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Starts a server on a free port; where it listens.
fn serve(words: &str) -> (Program, SocketAddr) {
    let words: Vec<&str> = ["serve"].into_iter().chain(words.split_whitespace()).chain(["-l", "127.0.0.1:0"]).collect();
    let mut program = Program::start(&words);
    let address = listening_on(&mut program).parse().expect("a real port");
    (program, address)
}

fn listening_on(program: &mut Program) -> String {
    let line = program.line();
    line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?} is not what a server says first")).to_owned()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
    stream
}

/// Sends `request` and reads `count` bytes.
fn exchange(mut stream: impl Read + Write, request: &[u8], count: usize) -> Vec<u8> {
    stream.write_all(request).expect("the server reads");
    let mut answer = vec![0; count];
    stream.read_exact(&mut answer).expect("the server answers");
    answer
}

/// Sends `request` and reads to the end of the stream.
fn exchange_to_end(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(request).expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server ends in an orderly way");
    answer
}

/// Ends a server that has nothing to wait for.
#[track_caller]
fn end_cleanly(program: Program, signal: Signal) {
    program.signal(signal);
    let end = program.end();
    assert_eq!((end.code, end.stdout.as_str(), end.stderr.as_str()), (Some(0), "", ""), "listening on is all it says");
}

#[test]
fn every_protocol_answers_and_both_signals_end_it() {
    let (echo, address) = serve("echo --loops 1");
    assert_eq!(exchange(connect(address), b"anything", 8), b"anything");
    end_cleanly(echo, Signal::TERM);
    let (ping, address) = serve("ping --loops 2 --workers 1 --capacity 10");
    assert_eq!(exchange(connect(address), b"PingPing", 8), b"PongPong");
    end_cleanly(ping, Signal::INT);
    let (hello, address) = serve("hello");
    assert_eq!(exchange_to_end(address, b"x"), b"Hello World\n");
    end_cleanly(hello, Signal::TERM);
    let (acks, address) = serve("acks");
    // Id 7, an empty payload; the ack covers it and no other.
    assert_eq!(exchange(connect(address), &[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 12), [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    end_cleanly(acks, Signal::TERM);
}

#[test]
fn a_verbose_server_ends_with_what_it_did() {
    let (http, address) = serve("http -v --slow-duration 1ms");
    for path in ["fast", "slow", "slow"] {
        assert!(exchange_to_end(address, format!("GET /test/{path}\r\n\r\n").as_bytes()).starts_with(b"HTTP/1.1 200"));
    }
    http.signal(Signal::TERM);
    let end = http.end();
    let counts = "in all: 3 accepted, 0 turned away, 3 closed, 0 by an error; 2 jobs, 0 panics";
    assert_eq!((end.code, end.stderr.lines().last()), (Some(0), Some(counts)), "{}", end.stderr);
}

#[test]
fn every_model_answers() {
    for model in ["single", "threads", "fork", "prefork", "loops", "tasks"] {
        let (hello, address) = serve(&format!("hello --model {model}"));
        for _ in 0..3 {
            assert_eq!(exchange_to_end(address, b"x"), b"Hello World\n", "{model}");
        }
        end_cleanly(hello, Signal::TERM);
    }
}

#[test]
fn a_request_that_does_not_come_is_not_waited_for() {
    for model in ["loops", "fork", "prefork", "tasks"] {
        let (http, address) = serve(&format!("http --idle 100ms --slow-duration 400ms --model {model}"));
        assert_eq!(exchange_to_end(address, b""), b"", "{model}: it said nothing");
        assert_eq!(exchange_to_end(address, b"GET /test/f"), b"", "{model}: half of it");
        // It drips, as slow as it is: what does not become whole is not waited for either.
        let mut drips = connect(address);
        drips.set_read_timeout(Some(Duration::from_millis(5))).expect("a time-out can be set");
        drips.write_all(b"GET /test/fast HTTP/1.1\r\nA: ").expect("the server reads");
        let ended = (0..4000).any(|_| drips.write_all(b"x").is_err() || matches!(drips.read(&mut [0]), Ok(0)));
        assert!(ended, "{model}: as many bytes as a head may have take 20 s");
        // A connection that was closed lingers until its peer has closed too.
        drop(drips);
        assert!(exchange_to_end(address, b"GET /test/slow\r\n\r\n").starts_with(b"HTTP/1.1 200"), "{model}: a job is not idle");
        end_cleanly(http, Signal::TERM);
    }
}

#[test]
fn protocol_options_arrive() {
    let answer = sockdrawer_catalog::http::ANSWER;
    let (http, address) = serve("http --workers 1 --slow-duration 0");
    assert_eq!(exchange_to_end(address, b"GET /test/fast\r\n\r\n"), answer);
    assert_eq!(exchange_to_end(address, b"GET /test/slow HTTP/1.1\r\n\r\n"), answer);
    end_cleanly(http, Signal::TERM);
    // Without workers slow is answered at once: an hour would not pass in a test.
    let (http, address) = serve("http --workers 0 --slow-duration 1h");
    assert_eq!(exchange_to_end(address, b"GET /test/slow\r\n\r\n"), answer);
    end_cleanly(http, Signal::TERM);
    let (acks, address) = serve("acks --ack reply");
    assert_eq!(exchange(connect(address), &[7, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, b'x'], 8), [7, 0, 0, 0, 0, 0, 0, 1]);
    end_cleanly(acks, Signal::TERM);
}

#[test]
fn every_listener_is_told_and_serves() {
    let path = std::env::temp_dir().join(format!("sockdrawer-serve-{}.sock", std::process::id()));
    let unix = format!("unix:{}", path.display());
    let mut server = Program::start(&["serve", "echo", "-l", "127.0.0.1:0", "--listen", &unix]);
    let told = [listening_on(&mut server), listening_on(&mut server)];
    let tcp = told.iter().find_map(|address| address.parse().ok()).expect("one is the TCP address");
    assert!(told.contains(&unix), "{told:?}");
    assert_eq!(exchange(connect(tcp), b"one", 3), b"one");
    assert_eq!(exchange(UnixStream::connect(&path).expect("the server accepts"), b"two", 3), b"two");
    end_cleanly(server, Signal::TERM);
    // It is not this test's matter whether the server removed it.
    let _ = std::fs::remove_file(&path);
}

#[test]
fn a_drain_waits_for_what_is_under_way_in_every_model() {
    // In `single`, those that wait while one is served keep the listener open: nobody is refused in the meantime.
    for model in ["threads", "fork", "prefork", "loops", "tasks"] {
        a_drain_waits_for_what_is_under_way(model);
    }
}

fn a_drain_waits_for_what_is_under_way(model: &str) {
    let (server, address) = serve(&format!("ping --model {model}"));
    let mut stream = connect(address);
    assert_eq!(exchange(&stream, b"PingPi", 4), b"Pong", "half a ping is there, too");
    server.signal(Signal::TERM);
    wait_until_refused(address);
    stream.write_all(b"ng").expect("the server still reads");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the server ends in an orderly way");
    assert_eq!(rest, b"Pong", "{model}");
    drop(stream);
    assert_eq!(server.end().code, Some(0), "{model}");
}

/// Makes a pipe that takes nothing more: its reader, which must be kept, and its writer.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("a descriptor has flags");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("a pipe need not wait");
    while writer.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).expect("as it was");
    (reader, writer)
}

/// Starts a server whose standard error nobody reads, and returns it with where it listens.
fn serve_unread(words: &str) -> (std::io::PipeReader, Child, SocketAddr) {
    let (reader, full) = full_pipe();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.arg("serve").args(words.split_whitespace()).args(["-v", "-l", "127.0.0.1:0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full);
    let mut child = command.spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it was asked for")).read_line(&mut line).expect("it prints text");
    let address = line.trim_end().strip_prefix("listening on ").expect("what a server says first");
    (reader, child, address.parse().expect("a real port"))
}

#[test]
fn a_standard_error_that_nobody_reads_keeps_no_signal_from_its_effect() {
    for model in ["loops", "threads", "fork", "prefork"] {
        let (_reader, mut server, address) = serve_unread(&format!("hello --model {model}"));
        assert_eq!(exchange_to_end(address, b"x"), b"Hello World\n", "{model}");
        kill_process(Pid::from_child(&server), Signal::TERM).expect("it runs");
        assert_eq!(server.wait().expect("it can be waited for").code(), Some(0), "{model}");
        let (_reader, mut server, address) = serve_unread(&format!("ping --model {model}"));
        let stream = connect(address);
        assert_eq!(exchange(&stream, b"PingPi", 4), b"Pong", "half a ping keeps it from ending");
        kill_process(Pid::from_child(&server), Signal::TERM).expect("it runs");
        wait_until_refused(address);
        kill_process(Pid::from_child(&server), Signal::TERM).expect("it runs");
        assert_eq!(server.wait().expect("it can be waited for").code(), Some(1), "{model}");
    }
}

#[test]
fn a_standard_output_that_nobody_reads_keeps_no_signal_from_its_effect() {
    let (_reader, full) = full_pipe();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["serve", "echo", "-v", "-l", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut told = BufReader::new(child.stderr.take().expect("it was asked for")).lines().map_while(Result::ok);
    let address = told.find_map(|line| line.strip_prefix("accepting on ")?.parse().ok()).expect("the event says where");
    assert_eq!(exchange(connect(address), b"still", 5), b"still");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it can be waited for").code(), Some(0));
}

#[test]
fn a_hang_up_drains_and_a_signal_without_a_meaning_ends_nothing() {
    for model in ["loops", "fork", "prefork"] {
        let (server, address) = serve(&format!("hello --model {model}"));
        server.signal(Signal::USR1);
        assert_eq!(exchange_to_end(address, b"x"), b"Hello World\n", "{model}");
        end_cleanly(server, Signal::HUP);
    }
    let (server, address) = serve("ping");
    let mut stream = connect(address);
    assert_eq!(exchange(&stream, b"PingPi", 4), b"Pong", "half a ping keeps it from ending");
    server.signal(Signal::TERM);
    wait_until_refused(address);
    // systemd may send both.
    server.signal(Signal::HUP);
    stream.write_all(b"ng").expect("the server still reads");
    assert_eq!(exchange(stream, b"", 4), b"Pong");
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn a_drain_that_takes_long_says_what_it_waits_for() {
    let (mut server, address) = serve("ping");
    let stream = connect(address);
    assert_eq!(exchange(&stream, b"PingPi", 4), b"Pong", "half a ping keeps it from ending");
    server.signal(Signal::TERM);
    assert_eq!(server.error_line(), "draining 1 connection, at most 30 s in all; a second signal ends now");
    drop(stream);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn a_drain_takes_as_long_as_it_may() {
    // A program that does not hear SIGTERM.
    let script = "trap '' TERM; echo in; while :; do sleep 60; done";
    let words = ["serve", "exec", "-l", "127.0.0.1:0", "--drain", "1500ms", "--", "sh", "-c", script];
    let mut server = Program::start(&words);
    let address = listening_on(&mut server).parse().expect("a real port");
    let stream = connect(address);
    assert_eq!(exchange(&stream, b"", 2), b"in");
    server.signal(Signal::HUP);
    assert_eq!(server.error_line(), "draining 1 connection, at most 1500ms in all; a second signal ends now");
    let end = server.end();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stderr.contains("1 of 1 connections had not finished after 1500ms"), "{end:?}");
}

#[test]
fn a_hang_up_that_nohup_ignores_ends_nothing() {
    let mut command = Command::new("sh");
    let script = format!("trap '' HUP; exec {} serve ping -l 127.0.0.1:0", env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["-c", &script]);
    let mut server = Program::run(command);
    let line = server.line();
    let address = line.strip_prefix("listening on ").expect("it listens").parse().expect("an address");
    let stream = connect(address);
    server.signal(Signal::HUP);
    assert_eq!(exchange(&stream, b"Ping", 4), b"Pong");
    assert_eq!(exchange(connect(address), b"Ping", 4), b"Pong", "it still accepts");
    drop(stream);
    end_cleanly(server, Signal::TERM);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for model in ["single", "threads", "fork", "prefork", "loops", "tasks"] {
        let (mut server, address) = serve(&format!("ping --model {model}"));
        let mut stream = connect(address);
        assert_eq!(exchange(&stream, b"PingPi", 4), b"Pong", "half a ping keeps it from ending");
        server.signal(Signal::TERM);
        assert_eq!(server.error_line(), "draining 1 connection, at most 30 s in all; a second signal ends now");
        server.signal(Signal::INT);
        let end = server.end();
        let told = "error: a second signal: 1 connection was ended before it had finished; send one to drain\n";
        assert_eq!((end.code, &*end.stderr), (Some(1), told), "{model}");
        // An end in order would make an answer look whole.
        assert_eq!(stream.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset, "{model}");
    }
}

/// Waits until connections are refused. A draining server closes its listeners: it is draining when nobody is let in any more.
fn wait_until_refused(address: SocketAddr) {
    while let Ok(mut late) = TcpStream::connect(address) {
        // It is let in and told to go; one at a time, so that the queue is empty in between.
        let _ = late.read(&mut [0]);
    }
}

#[test]
fn above_the_limit_connections_wait_or_are_turned_away() {
    let (server, address) = serve("echo --limit 1 --on-full reject");
    let first = connect(address);
    assert_eq!(exchange(&first, b"in", 2), b"in");
    assert_eq!(exchange_to_end(address, b""), b"", "the second is ended without a byte");
    drop(first);
    end_cleanly(server, Signal::TERM);
    let (server, address) = serve("echo --limit 1 --on-full backpressure");
    let first = connect(address);
    assert_eq!(exchange(&first, b"in", 2), b"in");
    let second = connect(address);
    (&second).write_all(b"later").expect("the kernel took the connection");
    drop(first);
    assert_eq!(exchange(&second, b"", 5), b"later");
    drop(second);
    end_cleanly(server, Signal::TERM);
}

#[test]
fn events_are_told_on_standard_error_when_asked() {
    let (server, address) = serve("hello -v");
    assert_eq!(exchange_to_end(address, b"x"), b"Hello World\n");
    server.signal(Signal::TERM);
    let end = server.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), ""));
    assert!(end.stderr.lines().any(|line| line == format!("accepting on {address}")), "{end:?}");
}

#[test]
fn a_reader_of_standard_output_that_went_away_does_not_end_it() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockdrawer"));
    command.args(["serve", "echo", "-v", "-l", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut told = BufReader::new(child.stderr.take().expect("it was asked for")).lines().map_while(Result::ok);
    let address = told.find_map(|line| line.strip_prefix("accepting on ")?.parse().ok()).expect("the event says where");
    assert_eq!(exchange(connect(address), b"still", 5), b"still");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it can be waited for").code(), Some(0));
    assert!(!told.any(|line| line.contains("panicked")));
}
