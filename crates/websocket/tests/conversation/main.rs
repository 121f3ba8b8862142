//! A WebSocket without sockets: both ends, byte by byte, its times, its faults, and its moves.

mod compressed;
mod parts;

use sockdrawer::testing::{Bounds, Driver, peer};
use sockdrawer::{CannotRestore, CannotSave, Closed, Job, JobResult, Note, Peer, Saved, Saver, Side, State, Step};
use sockdrawer_websocket::{
    Answer, Close, Frame, Message, MessageProtocol, MessageService, Opening, Request, Socket, WebSocket, code,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Lines of connections of a service.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn push(&self, line: impl Into<String>) {
        self.0.lock().expect("no test panicked").push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no test panicked"))
    }
}

/// Protocol that answers each message by itself, and follows a few orders.
struct Echo {
    recorder: Recorder,
    messages: u64,
}

impl MessageService for Recorder {
    type Protocol = Echo;

    fn open(&self, opening: &mut Opening<'_>) -> Result<Echo, Answer> {
        if opening.request().path == "/forbidden" {
            return Err(Answer::text(403, "not you\n"));
        }
        if opening.subprotocols().any(|offered| offered == "echo.v2") && opening.peer().side() == Side::Accepted {
            opening.choose("echo.v2");
            opening.field("Set-Cookie", format!("seen={}", opening.cookie("seen").unwrap_or("never")));
        }
        self.push(format!("open {}", opening.subprotocols().collect::<Vec<_>>().join("+")));
        Ok(Echo { recorder: self.clone(), messages: 0 })
    }

    fn page(&self, request: &Request, _peer: &Peer) -> Answer {
        Answer::text(200, format!("page {}\n", request.path))
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Echo, CannotRestore> {
        Ok(Echo { recorder: self.clone(), messages: from.u64()? })
    }

    fn state(&self) -> State {
        State::of("echo", 1)
    }
}

impl MessageProtocol for Echo {
    fn message(&mut self, message: Message<'_>, socket: &mut Socket<'_>) -> Step {
        self.messages += 1;
        match message {
            Message::Text("close") => socket.close(4000, "as you say"),
            Message::Text("step") => return Step::Close,
            Message::Text("pause") => socket.pause(),
            Message::Text("timer") => socket.set_timer(Duration::from_secs(7)),
            Message::Text("work") => return Step::Work(Job::new(|| 42_u64)),
            Message::Text("count") => socket.text(&self.messages.to_string()),
            other => socket.send(other),
        }
        Step::Continue
    }

    fn notified(&mut self, note: Note, socket: &mut Socket<'_>) -> Step {
        self.recorder.push(format!("note {:?}", note.bytes()));
        socket.resume();
        Step::Continue
    }

    fn timeout(&mut self, socket: &mut Socket<'_>) -> Step {
        socket.text("ring");
        Step::Continue
    }

    fn job_done(&mut self, result: JobResult, socket: &mut Socket<'_>) -> Step {
        socket.text(&format!("{}", result.take::<u64>().expect("the job's")));
        Step::Continue
    }

    fn closed(&mut self, close: &Close, _socket: &mut Socket<'_>) {
        self.recorder.push(format!("closed {} {:?} {}", close.code, close.reason, close.is_clean));
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.u64(self.messages);
        Ok(())
    }
}

const REQUEST: &[u8] =
    b"GET /chat?room=1 HTTP/1.1\r\nHost: example.org\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn opened() -> (Driver<WebSocket<Recorder>>, Recorder) {
    let recorder = Recorder::default();
    let mut server = Driver::open(WebSocket::new(recorder.clone()));
    server.receive(REQUEST);
    assert_eq!(server.sent(), ANSWER);
    assert_eq!(recorder.take(), ["open "]);
    (server, recorder)
}

/// Returns a frame of a client, whose key is not zero.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let length = payload.len();
    let mut bytes = vec![first];
    match length {
        0..126 => bytes.push(0x80 | length as u8),
        126..0x1_0000 => {
            bytes.push(0xfe);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0xff);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(key);
    bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

fn text(payload: &str) -> Vec<u8> {
    frame(0x81, payload.as_bytes())
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(0x88, &[&code.to_be_bytes(), reason].concat())
}

/// Returns the close frame of a server.
fn says(code: u16, reason: &str) -> Vec<u8> {
    [&[0x88, 2 + reason.len() as u8], &code.to_be_bytes()[..], reason.as_bytes()].concat()
}

#[test]
fn messages_come_back_however_the_bytes_are_split() {
    let long = "ü".repeat(40_000);
    let stream = [
        text("hello"),
        frame(0x82, &[0, 1, 2, 255]),
        frame(0x01, "gr".as_bytes()),
        frame(0x89, b"are you there"),
        frame(0x00, &"üße".as_bytes()[..1]),
        frame(0x80, &"üße".as_bytes()[1..]),
        frame(0x02, b""),
        frame(0x80, b""),
        text(""),
        text(&long),
        frame(0x8a, b"unasked"),
        close(1000, b"bye"),
    ]
    .concat();
    let expected = [
        &b"\x81\x05hello\x82\x04\0\x01\x02\xff\x8a\x0dare you there\x81\x07gr\xc3\xbc\xc3\x9fe\x82\0\x81\0\x81\x7f\0\0\0\0\0\x01\x38\x80"[..],
        long.as_bytes(),
        &says(1000, ""),
    ]
    .concat();
    for piece in [1, 2, 3, 7, 1000, 65_536, usize::MAX] {
        let (mut server, recorder) = opened();
        for bytes in stream.chunks(piece.min(stream.len())) {
            server.receive(bytes);
        }
        assert_eq!(server.sent(), expected, "pieces of {piece}");
        assert_eq!((server.closed(), recorder.take()), (Some(Closed::Orderly), vec!["closed 1000 \"bye\" true".to_owned()]));
    }
}

#[test]
fn faults_of_the_peer_are_told_with_their_code() {
    let cut = &"ü".as_bytes()[..1];
    for (bytes, code, why) in [
        (frame(0xc1, b"x"), 1002, "a reserved bit of a frame is set, though no extension was agreed on"),
        (b"\x81\x01x".to_vec(), 1002, "a client's frame is not masked"),
        (frame(0x80, b"x"), 1002, "a message is continued that never began"),
        ([frame(0x01, b"x"), text("y")].concat(), 1002, "a message begins before the last one ended"),
        (frame(0x88, b"x"), 1002, "a close frame has one byte"),
        (close(1005, b""), 1002, "a close frame has a reserved code"),
        (close(1000, cut), 1007, "text is not UTF-8"),
        (frame(0x81, cut), 1007, "text is not UTF-8"),
        ([frame(0x01, cut), frame(0x80, b"x")].concat(), 1007, "text is not UTF-8"),
        ([frame(0x01, cut), frame(0x80, b"")].concat(), 1007, "text is not UTF-8"),
        // Told before the rest of the message comes.
        (frame(0x81, b"\xff and more")[..8].to_vec(), 1007, "text is not UTF-8"),
        (vec![0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 1, 0, 0, 0, 0], 1009, "a message has more than 1048576 bytes"),
        (
            [frame(0x02, &[0; 0x8_0000]), frame(0x02 & 0x80, &[0; 0x8_0001])].concat(),
            1009,
            "a message has more than 1048576 bytes",
        ),
    ] {
        let (mut server, recorder) = opened();
        server.receive(&bytes);
        assert_eq!(server.sent(), says(code, why), "{why}");
        assert_eq!(server.reports(), [format!("{why}: closed with {code}")]);
        assert_eq!(
            (server.closed(), recorder.take()),
            (Some(Closed::Orderly), vec!["closed 1006 \"\" false".to_owned()]),
            "{why}"
        );
    }
}

#[test]
fn a_request_that_is_no_handshake_is_answered_as_http() {
    let get = |head: &str| format!("GET {head}\r\n\r\n").into_bytes();
    let upgrade = "/ HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    for (request, status) in [
        (get("/health HTTP/1.1\r\nHost: h"), "200 OK"),
        (String::from_utf8_lossy(REQUEST).replace("HTTP/1.1", "HTTP/1.0").into_bytes(), "200 OK"),
        (
            get(&format!("{upgrade}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 8")),
            "426 Upgrade Required",
        ),
        (get(&format!("{upgrade}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")), "426 Upgrade Required"),
        (get(&format!("{upgrade}Sec-WebSocket-Key: c2hvcnQ=\r\nSec-WebSocket-Version: 13")), "400 Bad Request"),
        (get(&format!("{upgrade}Sec-WebSocket-Version: 13")), "400 Bad Request"),
        (String::from_utf8_lossy(REQUEST).replace("GET", "POST").into_bytes(), "400 Bad Request"),
        (String::from_utf8_lossy(REQUEST).replace("Host: example.org\r\n", "").into_bytes(), "400 Bad Request"),
        (String::from_utf8_lossy(REQUEST).replace("/chat", "/forbidden").into_bytes(), "403 Forbidden"),
        (b"\x16\x03\x01 no HTTP\r\n\r\n".to_vec(), "400 Bad Request"),
        (format!("GET / HTTP/1.1\r\nX: {}\r\n", "x".repeat(9000)).into_bytes(), "431 Request Header Fields Too Large"),
    ] {
        let mut server = Driver::open(WebSocket::new(Recorder::default()));
        server.receive_split(&request);
        let sent = String::from_utf8(server.sent()).expect("text");
        assert!(
            sent.starts_with(&format!("HTTP/1.1 {status}\r\n")) && sent.contains("Connection: close\r\n"),
            "{status}: {sent}"
        );
        let upgrades = sent.contains("\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
        assert_eq!((server.closed(), upgrades), (Some(Closed::Orderly), status.starts_with("426")), "{sent}");
        let is_unread = request.starts_with(b"\x16") || status.starts_with("431");
        assert_eq!(server.reports().len(), usize::from(is_unread), "{status}: {:?}", server.reports());
    }
}

#[test]
fn subprotocols_cookies_and_fields_belong_to_the_service() {
    let mut server = Driver::open(WebSocket::new(Recorder::default()));
    let request = String::from_utf8_lossy(REQUEST).replace(
        "Host",
        "Cookie: a=b; seen=\"once\"\r\nSec-WebSocket-Protocol: echo.v1\r\nSec-WebSocket-Protocol: echo.v3 ,echo.v2\r\nHost",
    );
    server.receive_split(request.as_bytes());
    let sent = String::from_utf8(server.sent()).expect("text");
    assert!(sent.contains("\r\nSec-WebSocket-Protocol: echo.v2\r\nSet-Cookie: seen=once\r\n\r\n"), "{sent}");
}

/// Passes what each end sends to the other until both are quiet.
fn talk(server: &mut Driver<WebSocket<Recorder>>, client: &mut Driver<WebSocket<Recorder>>) {
    loop {
        let (up, down) = (client.sent(), server.sent());
        if up.is_empty() && down.is_empty() {
            return;
        }
        server.receive(&up);
        client.receive(&down);
    }
}

fn client(recorder: &Recorder) -> Driver<WebSocket<Recorder>> {
    let service = WebSocket::client(recorder.clone(), "ws://example.org/chat").subprotocol("echo.v2").field("Origin", "http://o");
    Driver::open_with(service, peer(Side::Connected, Duration::ZERO), Bounds::default())
}

#[test]
fn a_client_and_a_server_agree_speak_and_close() {
    let (at_server, at_client) = (Recorder::default(), Recorder::default());
    let (mut server, mut client) = (Driver::open(WebSocket::new(at_server.clone())), client(&at_client));
    talk(&mut server, &mut client);
    assert_eq!((at_server.take(), at_client.take()), (vec!["open echo.v2".to_owned()], vec!["open echo.v2".to_owned()]));
    client.notify(Frame::text("count"));
    server.notify(Frame::text("close"));
    talk(&mut server, &mut client);
    assert_eq!(at_server.take(), ["closed 4000 \"as you say\" true"]);
    assert_eq!((server.closed(), client.closed()), (Some(Closed::Orderly), None), "the server ends first");
    client.finish();
    assert_eq!((client.closed(), at_client.take()), (Some(Closed::Orderly), vec!["closed 4000 \"\" true".to_owned()]));
}

#[test]
fn a_peer_that_reads_too_slowly_gets_what_was_sent_before_and_is_told() {
    let recorder = Recorder::default();
    let mut server = Driver::open(WebSocket::new(recorder.clone()).max_behind(1_000));
    server.receive(REQUEST);
    server.sent();
    server.block_output(true);
    let lines = ["x".repeat(496), "y".repeat(496), "z".repeat(496)];
    lines.iter().for_each(|line| server.notify(Frame::text(line)));
    assert_eq!((server.backlog(), server.reports().len()), (1500, 0), "1000 bytes were no more than the maximum");
    (0..3).for_each(|_| server.notify(Frame::text("too much")));
    assert_eq!(server.reports(), ["too slow: closed with 1013"]);
    assert_eq!(server.closed(), None, "what is unsent may still be read");
    server.block_output(false);
    let before: Vec<u8> =
        lines.iter().flat_map(|line| [b"\x81\x7e", &(line.len() as u16).to_be_bytes()[..], line.as_bytes()].concat()).collect();
    assert_eq!(server.sent(), [before, says(code::OVERLOAD, "too slow")].concat());
    server.receive(&close(code::OVERLOAD, b""));
    assert_eq!(
        (server.closed(), recorder.take()),
        (Some(Closed::Orderly), vec!["open ".to_owned(), "closed 1013 \"\" true".to_owned()])
    );
}

/// A peer that reads nothing any more is not waited for longer than for any other close.
#[test]
fn a_peer_that_never_reads_ends_when_it_has_not_closed_in_time() {
    let mut server = Driver::open(WebSocket::new(Recorder::default()).max_behind(0).close_within(Duration::from_secs(5)));
    server.receive(REQUEST);
    server.block_output(true);
    (0..2).for_each(|_| server.notify(Frame::text("more than nothing")));
    assert_eq!((server.reports().len(), server.closed()), (1, None));
    server.advance(Duration::from_secs(5));
    assert_eq!(server.closed(), Some(Closed::Orderly));
}

#[test]
fn a_client_ends_where_the_answer_opens_nothing() {
    for (answer, why) in [
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "the server refused the WebSocket with status 403"),
        ("HTTP/1.1 101 Switching\r\n\r\n", "the server switched to another protocol than WebSocket"),
        (
            "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
            "the server answered another key than was sent",
        ),
        ("SSH-2.0-x\r\n\r\n", "not an answer of HTTP/1.1: invalid HTTP version"),
    ] {
        let mut client = client(&Recorder::default());
        client.receive(answer.as_bytes());
        assert_eq!((client.reports(), client.closed()), (&[why.to_owned()][..], Some(Closed::Aborted)));
    }
}

#[test]
fn a_silent_peer_is_asked_and_ends_without_an_answer() {
    let (mut server, recorder) = opened();
    server.advance(Duration::from_secs(29));
    assert_eq!(server.sent(), b"", "not before 30 s");
    server.receive(&text("here"));
    server.advance(Duration::from_secs(29));
    assert_eq!(server.sent(), b"\x81\x04here", "not 30 s after the last sign");
    server.advance(Duration::from_secs(2));
    assert_eq!(server.sent(), b"\x89\0");
    server.receive(&frame(0x8a, b""));
    // The look for the pong, and three more.
    server.advance(Duration::from_secs(20 + 45));
    assert_eq!(server.sent(), b"\x89\0");
    server.advance(Duration::from_secs(20));
    assert_eq!((server.closed(), recorder.take()), (Some(Closed::Aborted), vec!["closed 1006 \"\" false".to_owned()]));
    assert_eq!(server.reports(), ["no pong within 20s: ended"]);
}

#[test]
fn a_peer_that_is_not_read_is_not_taken_for_silent() {
    for order in ["pause", "work"] {
        let (mut server, _) = opened();
        server.receive(&text(order));
        server.advance(Duration::from_secs(600));
        assert_eq!(server.closed(), None, "{order}");
    }
}

#[test]
fn a_peer_that_takes_much_is_not_taken_for_silent() {
    let (mut server, _) = opened();
    server.block_output(true);
    (0..12).for_each(|_| server.notify(Frame::binary(&[0; 8192])));
    for _ in 0..20 {
        server.advance(Duration::from_secs(10));
        server.read_backlog(500);
        server.receive(&frame(0x8a, b""));
        assert_eq!(server.closed(), None, "its pongs wait behind what it takes");
    }
    server.advance(Duration::from_secs(100));
    assert_eq!(server.closed(), Some(Closed::Aborted), "it takes nothing");
}

#[test]
fn a_handshake_has_a_time() {
    let mut server = Driver::open(WebSocket::new(Recorder::default()));
    server.receive(&REQUEST[..50]);
    server.advance(Duration::from_secs(10));
    assert!(server.sent().starts_with(b"HTTP/1.1 408 Request Timeout\r\n") && server.closed() == Some(Closed::Orderly));
    assert_eq!(server.reports(), ["the client did not complete the handshake in time: answered with 408"]);
    let mut client = client(&Recorder::default());
    client.advance(Duration::from_secs(10));
    assert_eq!((client.closed(), client.reports().len()), (Some(Closed::Aborted), 1));
}

#[test]
fn a_close_waits_for_the_peer_s_for_a_while() {
    let (mut server, recorder) = opened();
    server.receive(&text("close"));
    assert_eq!(server.sent(), says(4000, "as you say"));
    server.receive(&text("still on its way"));
    server.advance(Duration::from_secs(4));
    assert_eq!((server.sent(), server.closed()), (vec![], None), "nothing follows a close frame");
    server.advance(Duration::from_secs(1));
    assert_eq!((server.closed(), recorder.take()), (Some(Closed::Orderly), vec!["closed 1006 \"\" false".to_owned()]));

    let (mut server, _) = opened();
    server.receive(&text("step"));
    assert_eq!(server.sent(), says(1000, ""));
    server.receive(&close(1000, b""));
    assert_eq!(server.closed(), Some(Closed::Orderly));
}

#[test]
fn a_drain_says_that_the_server_goes_away() {
    let (mut server, recorder) = opened();
    server.drain();
    assert_eq!((server.sent(), server.closed()), (says(code::GOING_AWAY, ""), None));
    server.receive(&close(code::GOING_AWAY, b""));
    assert_eq!((server.closed(), recorder.take()), (Some(Closed::Orderly), vec!["closed 1001 \"\" true".to_owned()]));
    let mut fresh = Driver::open(WebSocket::new(Recorder::default()));
    fresh.drain();
    assert_eq!(fresh.closed(), Some(Closed::Orderly), "nothing was asked");
}

#[test]
fn jobs_pauses_and_timers_hold_messages_in_order() {
    let (mut server, recorder) = opened();
    server.receive(&[text("work"), text("after")].concat());
    assert_eq!(server.sent(), b"");
    server.run_job();
    assert_eq!(server.sent(), b"\x81\x0242\x81\x05after");
    server.receive(&[text("pause"), text("held")].concat());
    assert_eq!(server.sent(), b"");
    server.notify(Note::from(&b"any"[..]));
    assert_eq!((server.sent(), recorder.take()), (b"\x81\x04held".to_vec(), vec!["note Some([97, 110, 121])".to_owned()]));
    server.receive(&text("timer"));
    server.advance(Duration::from_secs(6));
    assert_eq!(server.sent(), b"");
    server.advance(Duration::from_secs(1));
    assert_eq!(server.sent(), b"\x81\x04ring");
}

#[test]
fn a_connection_moves_at_each_byte() {
    let stream =
        [REQUEST, &text("timer"), &frame(0x01, b"o"), &frame(0x89, b"p"), &frame(0x80, "ü".as_bytes()), &text("count")].concat();
    for at in 0..stream.len() {
        let recorder = Recorder::default();
        let mut server = Driver::open(WebSocket::new(recorder.clone()));
        server.receive(&stream[..at]);
        server.advance(Duration::from_secs(3));
        let mut sent = server.sent();
        let mut server = server.save_and_restore(WebSocket::new(recorder.clone())).expect("it moves");
        assert_eq!(recorder.take().iter().filter(|line| line.starts_with("closed")).count(), 0, "moved at {at}");
        server.receive(&stream[at..]);
        sent.extend(server.sent());
        assert_eq!(sent, [ANSWER, b"\x8a\x01p\x81\x03o\xc3\xbc\x81\x013"].concat(), "moved at {at}");
        server.advance(Duration::from_secs(7));
        assert_eq!(server.sent(), b"\x81\x04ring", "moved at {at}");
        server.advance(Duration::from_secs(38 + 15));
        assert_eq!((server.sent(), server.closed()), (b"\x89\0".to_vec(), None), "moved at {at}");
    }
}

#[test]
fn a_client_moves_while_it_waits_for_the_answer() {
    let (at_server, at_client) = (Recorder::default(), Recorder::default());
    let (mut server, mut client) = (Driver::open(WebSocket::new(at_server.clone())), client(&at_client));
    server.receive(&client.sent());
    let service = WebSocket::client(at_client.clone(), "ws://example.org/chat").subprotocol("echo.v2");
    let mut client = client.save_and_restore(service).expect("it moves");
    talk(&mut server, &mut client);
    assert_eq!(at_client.take(), ["open echo.v2"]);
}

#[test]
fn half_a_message_is_owed_an_answer() {
    use sockdrawer::{Protocol, Service};
    let (mut server, _) = opened();
    server.receive(&frame(0x01, b"half"));
    assert!(server.protocol().expect("it is open").owes());
    server.receive(&frame(0x80, b""));
    assert!(!server.protocol().expect("it is open").owes());
    assert_eq!(server.service().state().to_string(), "echo 1");
}

const DEFLATES: &str = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n";

/// Returns a request that offers compression, and the server's answer to it.
fn offered() -> (Vec<u8>, Vec<u8>) {
    let with = |head: &[u8], field: &str| [&head[..head.len() - 2], field.as_bytes(), b"\r\n"].concat();
    (with(REQUEST, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"), with(ANSWER, DEFLATES))
}

/// RFC 7692, 7.2.3.1.
const HELLO: &[u8] = &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];

#[test]
fn compressed_messages_are_read_in_fragments_and_across_a_move() {
    let (request, answer) = offered();
    let stream =
        [&request[..], &frame(0xc1, HELLO), &text("plain"), &frame(0x41, &HELLO[..3]), &frame(0x80, &HELLO[3..])].concat();
    let service = |recorder: &Recorder| WebSocket::new(recorder.clone()).deflate(true);
    for at in 0..stream.len() {
        let recorder = Recorder::default();
        let mut server = Driver::open(service(&recorder));
        server.receive(&stream[..at]);
        let mut sent = server.sent();
        let mut server = server.save_and_restore(service(&recorder)).expect("it moves");
        server.receive(&stream[at..]);
        sent.extend(server.sent());
        assert_eq!(sent, [&answer[..], b"\x81\x05Hello\x81\x05plain\x81\x05Hello"].concat(), "moved at {at}");
    }
}

#[test]
fn both_ends_compress_what_they_agreed_to_and_members_of_a_group_get_it_once_made() {
    let (at_server, at_client) = (Recorder::default(), Recorder::default());
    for (server_does, client_does) in [(true, true), (true, false), (false, true)] {
        let mut server = Driver::open(WebSocket::new(at_server.clone()).deflate(server_does));
        let service = WebSocket::client(at_client.clone(), "ws://example.org/chat").deflate(client_does);
        let mut client = Driver::open_with(service, peer(Side::Connected, Duration::ZERO), Bounds::default());
        talk(&mut server, &mut client);
        let long = "again and ".repeat(1_000);
        for _ in 0..2 {
            // Published to a server's connection: the client answers with the message.
            server.notify(Frame::text(&long));
            let down = server.sent();
            let agreed = server_does && client_does;
            assert_eq!((down[0] == 0xc1, down.len() < 1_000), (agreed, agreed));
            client.receive(&down);
            let up = client.sent();
            assert_eq!((up[0] == 0xc1, up.len() < 1_000), (agreed, agreed));
            server.receive(&up);
            client.receive(&server.sent());
            client.sent();
        }
        assert_eq!((server.closed(), client.closed()), (None, None));
    }
}

#[test]
fn faults_of_compression_are_told_with_their_code() {
    let bomb: Vec<u8> = {
        // 64 KiB of zeros in a few bytes, thirty times.
        let zeros =
            [&[0xec, 0xc1, 0x01, 0x01, 0x00, 0x00, 0x00, 0x80, 0x90, 0xfe, 0xaf, 0xee, 0x08, 0x0a][..], &[0, 0, 0]].concat();
        frame(0xc2, &zeros)
    };
    for (bytes, code) in [
        (frame(0xc9, b""), 1002),
        ([frame(0x01, b"a"), frame(0xc0, b"b")].concat(), 1002),
        (frame(0xa1, b"a"), 1002),
        (frame(0xc1, b"\xff\xff\xff\xff"), 1007),
        // Bytes that are no UTF-8 once they are decompressed: a stored block.
        (frame(0xc1, &[0x00, 0x01, 0x00, 0xfe, 0xff, 0xff, 0x00]), 1007),
        (bomb, 1009),
    ] {
        let mut server = Driver::open(WebSocket::new(Recorder::default()).deflate(true).max_message(100));
        server.receive(&offered().0);
        server.sent();
        server.receive(&bytes);
        let sent = server.sent();
        assert_eq!((sent[0], u16::from_be_bytes([sent[2], sent[3]])), (0x88, code), "{bytes:x?}");
    }
    // Without the agreement the bit is a fault.
    let (mut server, _) = opened();
    server.receive(&frame(0xc1, HELLO));
    assert_eq!(server.sent()[2..4], 1002_u16.to_be_bytes());
}
