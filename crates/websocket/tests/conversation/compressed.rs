//! Compression by which a peer makes much of little.

use super::{REQUEST, Recorder, frame, says, talk, text};
use sockdrawer::testing::{Bounds, Driver, peer};
use sockdrawer::{Config, Note, Pool, Side};
use sockdrawer_websocket::{Frame, WebSocket};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Returns the request of a client that takes messages which are made with a window of 9 bits.
fn small_window() -> Vec<u8> {
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9\r\nHost";
    String::from_utf8_lossy(REQUEST).replace("Host", offer).into_bytes()
}

/// Returns a connection of such a client.
fn of_a_small_window(service: WebSocket<Recorder>) -> Driver<WebSocket<Recorder>> {
    let mut server = Driver::open(service);
    server.receive(&small_window());
    let answer = String::from_utf8(server.sent()).expect("text");
    assert!(answer.contains("; server_max_window_bits=9\r\n"), "{answer}");
    server
}

#[test]
fn no_compressor_is_made_for_a_peer_with_a_small_window() {
    let mut server = of_a_small_window(WebSocket::new(Recorder::default()).deflate(true));
    server.notify(Frame::text(&"x".repeat(100)));
    assert_eq!(server.sent()[..2], [0x81, 100], "it is sent as it is");
}

/// Returns messages of 1 MiB as a client that compresses sends them. The first byte of each is its number.
fn bombs(count: u8) -> Vec<u8> {
    let service = WebSocket::client(Recorder::default(), "ws://example.org/chat").deflate(true);
    let mut client = Driver::open_with(service, peer(Side::Connected, Duration::ZERO), Bounds::default());
    talk(&mut Driver::open(WebSocket::new(Recorder::default()).deflate(true)), &mut client);
    let mut message = vec![0; 1 << 20];
    for number in 0..count {
        message[0] = number;
        client.notify(Frame::binary(&message));
    }
    client.sent()
}

/// Stored blocks are longer than what is in them.
#[test]
fn a_message_that_does_not_compress_may_have_the_maximum() {
    let stored = |length: u8| {
        let bytes: Vec<u8> = (0..length).collect();
        frame(0xc2, &[&[0, length, 0, !length, 0xff][..], &bytes, &[0]].concat())
    };
    let mut server = of_a_small_window(WebSocket::new(Recorder::default()).deflate(true).max_message(100));
    server.receive(&stored(100));
    let sent = server.sent();
    assert_eq!((&sent[..2], sent.len()), (&[0x82, 100][..], 102), "it comes back");
    server.receive(&stored(101));
    assert_eq!(server.sent(), says(1009, "a message has more than 100 bytes"));
}

const BOMBS: u8 = 6;
/// Bytes that the echo of a message of 1 MiB has, which is sent as it is.
const ECHO: usize = 10 + (1 << 20);

/// Asserts that all messages came back, in their order.
fn assert_echoed(sent: &[u8]) {
    let numbers: Vec<u8> = sent.chunks(ECHO).map(|echo| echo[10]).collect();
    assert_eq!((numbers, sent.len()), ((0..BOMBS).collect(), usize::from(BOMBS) * ECHO));
}

#[test]
fn what_is_decompressed_waits_for_its_turn_and_for_the_peer() {
    let service = || WebSocket::new(Recorder::default()).deflate(true);
    for (blocked, moves) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut server = of_a_small_window(service());
        server.block_output(blocked);
        server.receive(&bombs(BOMBS));
        let mut sent = server.sent();
        assert_eq!(sent.len() + server.backlog(), ECHO, "the others wait for a turn of the loop");
        for _ in 0..BOMBS {
            if moves {
                server = server.save_and_restore(service()).expect("it moves");
            }
            server.advance(Duration::ZERO);
            assert!(server.backlog() <= ECHO, "the peer has read nothing of {}", server.backlog());
            server.block_output(false);
            server.block_output(blocked);
            sent.extend(server.sent());
        }
        assert_echoed(&sent);
        assert_eq!((server.closed(), server.kept()), (None, &[][..]));
    }
}

/// The protocol holds the rest of its messages back, whatever time passes.
#[test]
fn a_protocol_that_pauses_among_them_stays_paused() {
    let mut server = of_a_small_window(WebSocket::new(Recorder::default()).deflate(true));
    server.receive(&[bombs(1), text("pause"), bombs(1)].concat());
    assert_eq!(server.sent().len(), ECHO);
    server.advance(Duration::ZERO);
    server.advance(Duration::from_secs(1));
    assert_eq!(server.sent(), b"");
    server.notify(Note::from(&b"any"[..]));
    assert_eq!(server.sent().len(), ECHO);
}

/// No event of the socket comes between one turn and the next: the peer has sent all, and its end.
#[test]
fn a_loop_goes_on_with_them_by_itself() {
    let service = WebSocket::new(Recorder::default()).deflate(true);
    let pool = Pool::start(Config::accept(service).listen("127.0.0.1:0").loops(1).workers(0)).expect("a pool");
    let mut stream = TcpStream::connect(pool.addresses().remove(0).to_string()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    stream.write_all(&[&small_window()[..], &bombs(BOMBS)].concat()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut sent = Vec::new();
    stream.read_to_end(&mut sent).expect("it answers, and ends");
    let head = sent.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    assert_echoed(&sent[head..]);
}
