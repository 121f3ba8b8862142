//! The axum example over real sockets: limit, address and app change while a thousand WebSockets stay, and all of them are asked
//! to end, at a rate.

#[expect(dead_code, reason = "an example has a main of its own")]
#[path = "../../examples/axum.rs"]
mod example;

use crate::common::*;
use sockdrawer::{Address, Drain, Pool, Selector};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const SOCKETS: usize = 1000;

/// Returns a WebSocket with an answer to its upgrade.
fn upgraded(at: SocketAddr) -> TcpStream {
    let mut stream = connect(at);
    let request = "GET /echo HTTP/1.1\r\nHost: pool\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("open");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    // The answer to the key is the one of RFC 6455, section 1.3.
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    stream
}

/// Sends a binary message, and waits until it comes back.
fn returns(socket: &mut TcpStream, message: &[u8]) -> bool {
    let (mask, length) = ([1, 2, 3, 4], u8::try_from(message.len()).expect("a short one"));
    let mut frame = vec![0x82, 0x80 | length];
    frame.extend(mask);
    frame.extend(message.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    let answer = [&[0x82, length], message].concat();
    socket.write_all(&frame).is_ok() && read(socket, answer.len()) == Some(answer)
}

/// Returns the answer of the plain route.
fn greeting(at: SocketAddr) -> String {
    let mut client = connect(at);
    client.write_all(b"GET / HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n").expect("open");
    let answer = String::from_utf8(read_all(&mut client).expect("no reset")).expect("text");
    answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
}

struct Scene {
    pool: Pool,
    at: SocketAddr,
    sockets: Vec<TcpStream>,
}

impl Scene {
    /// Asserts that all connections are there, for their clients and for the pool.
    #[track_caller]
    fn nobody_is_lost(&mut self, message: &str) {
        let lost = self.sockets.iter_mut().filter_map(|socket| (!returns(socket, message.as_bytes())).then_some(())).count();
        assert_eq!(lost, 0, "{message}");
        // Connections of the plain route end by themselves.
        assert!(self.pool.wait(PATIENCE, |status| status.connections == SOCKETS), "{message}: {:#?}", self.pool.status());
        assert_eq!(self.pool.connections(&Selector::Generation(1)).len(), SOCKETS, "{message}");
    }
}

#[test]
fn everything_changes_under_a_thousand_websockets_and_they_are_drained_at_a_rate() {
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let pool = Pool::start(example::config("127.0.0.1:0").loops(2)).expect("it starts");
    let stop = example::Stop::default();
    let first = runtime.spawn(example::serve(&pool, "Hello", &stop));
    let at = address(&pool);
    let sockets = (0..SOCKETS).map(|_| upgraded(at)).collect();
    let mut scene = Scene { pool: pool.clone(), at, sockets };
    scene.nobody_is_lost("before all");
    assert_eq!(greeting(scene.at), "Hello");

    pool.reconfigure(pool.config().limit(SOCKETS + 10)).expect("another limit");
    scene.nobody_is_lost("under a limit");

    let second = pool.config().listen("127.0.0.2:0");
    pool.reconfigure(second).expect("a second address");
    let mut elsewhere = pool.config();
    let Address::Tcp(second) = pool.addresses()[1] else { panic!("TCP") };
    assert_eq!((greeting(scene.at), greeting(second)), ("Hello".to_owned(), "Hello".to_owned()));
    elsewhere = elsewhere.listeners(|listeners| drop(listeners.remove(0)));
    pool.reconfigure(elsewhere).expect("without the first");
    scene.at = address(&pool);
    assert!(TcpStream::connect(at).is_err(), "it is gone");
    scene.nobody_is_lost("at another address");

    let other = runtime.spawn(runtime.block_on(example::say(&pool, "Good day", &stop)).expect("another app"));
    assert_eq!(greeting(scene.at), "Good day");
    scene.nobody_is_lost("beside another app");

    let began = Instant::now();
    let drained = pool.drain(&Selector::Generation(1), Drain::within(PATIENCE).rate(2000.0));
    assert_eq!((drained.asked, drained.ended, drained.cut), (SOCKETS, SOCKETS, 0));
    assert!(began.elapsed() >= Duration::from_millis(450), "a thousand at 2,000 a second: {:?}", began.elapsed());
    for mut socket in scene.sockets {
        // A WebSocket's own goodbye, then the end.
        assert_eq!(read_all(&mut socket).expect("no reset"), [0x88, 0]);
    }
    // The old app has nothing left to serve, and ends by itself; the new one goes on.
    runtime.block_on(first).expect("no panic").expect("axum never fails");
    assert_eq!(greeting(scene.at), "Good day");
    assert_empty(&pool);
    assert_eq!(pool.status().counts.panics, 0);
    pool.shutdown(Drain::within(PATIENCE));
    runtime.block_on(other).expect("no panic").expect("axum never fails");
}

/// Checks the end of a program: connections that wait for a request end at once, and a WebSocket with its goodbye.
#[test]
fn a_shutdown_of_pool_and_app_waits_for_no_idle_connection() {
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let pool = Pool::start(example::config("127.0.0.1:0").loops(2)).expect("it starts");
    let stop = example::Stop::default();
    let served = runtime.spawn(example::serve(&pool, "Hello", &stop));
    let at = address(&pool);
    let mut idle: Vec<TcpStream> = (0..50).map(|_| connect(at)).collect();
    for client in &mut idle {
        client.write_all(b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n").expect("open");
    }
    for client in &mut idle {
        let mut answer = Vec::new();
        while !answer.ends_with(b"Hello") {
            answer.extend(read(client, 1).expect("an answer"));
        }
    }
    let mut socket = upgraded(at);
    assert!(returns(&mut socket, b"before"));
    let began = Instant::now();
    let drained = runtime.block_on(example::shut_down(&pool, &stop, PATIENCE)).expect("no panic");
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert_eq!((drained.asked, drained.ended, drained.cut), (51, 51, 0));
    for client in &mut idle {
        assert!(read_all(client).expect("no reset").is_empty());
    }
    assert_eq!(read_all(&mut socket).expect("no reset"), [0x88, 0]);
    runtime.block_on(served).expect("no panic").expect("axum never fails");
}
