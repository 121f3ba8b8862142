//! A protocol of bytes that WebSocket carries, at both ends, byte by byte.

use sockdrawer::layer::Layer;
use sockdrawer::testing::{Bounds, Driver, peer};
use sockdrawer::{Closed, Context, Input, Peer, Protocol, Service, Side, Step};
use sockdrawer_catalog::echo::Echo;
use sockdrawer_websocket::Carrier;
use std::time::Duration;

type Server = Layer<Carrier, Echo>;

const REQUEST: &[u8] =
    b"GET /any HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn server() -> Server {
    Layer::new(Carrier::server(), Echo)
}

/// Returns a frame whose mask is zero.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, 0x80 | u8::try_from(payload.len()).expect("a short one")], &[0; 4][..], payload].concat()
}

#[test]
fn bytes_pass_in_messages_however_they_are_split_and_moved() {
    let stream = [
        REQUEST,
        &frame(0x82, b"one"),
        &frame(0x01, b"tw"),
        &frame(0x89, b"p"),
        &frame(0x00, b""),
        &frame(0x80, b"o"),
        &frame(0x82, b""),
        &frame(0x81, b"three"),
    ]
    .concat();
    for at in 0..=stream.len() {
        let mut connection = Driver::open(server());
        connection.receive(&stream[..at]);
        let mut sent = connection.sent();
        let mut connection = connection.save_and_restore(server()).expect("it moves");
        connection.receive(&stream[at..]);
        sent.extend(connection.sent());
        assert!(sent.starts_with(ANSWER), "moved at {at}");
        // In which messages the bytes come back depends on the reads; each is one of bytes.
        let (mut frames, mut bytes, mut pongs) = (&sent[ANSWER.len()..], Vec::new(), Vec::new());
        while let [kind, length, rest @ ..] = frames {
            let (payload, next) = rest.split_at((*length).into());
            if *kind == 0x8a { &mut pongs } else { &mut bytes }.extend_from_slice(payload);
            assert!([0x82, 0x8a].contains(kind), "moved at {at}: {kind}");
            frames = next;
        }
        assert_eq!((&bytes[..], &pongs[..]), (&b"onetwothree"[..], &b"p"[..]), "moved at {at}");
        connection.receive(&frame(0x88, b"\x03\xe8"));
        assert_eq!((connection.sent(), connection.closed()), (b"\x88\x02\x03\xe8".to_vec(), Some(Closed::Orderly)));
    }
}

#[test]
fn the_first_subprotocol_that_is_offered_and_spoken_is_chosen() {
    let carrier = || Carrier::server().subprotocol("mqttv5").subprotocol("mqtt");
    for (carrier, offered, chosen) in [
        (carrier(), "mqttv3.1, mqtt", Some("mqtt")),
        (carrier(), "mqtt, mqttv5", Some("mqtt")),
        (carrier(), "mqttv3.1", None),
        (Carrier::server(), "mqtt", None),
    ] {
        let mut connection = Driver::open(Layer::new(carrier, Echo));
        let field = format!("Sec-WebSocket-Protocol: {offered}\r\nHost");
        connection.receive(String::from_utf8_lossy(REQUEST).replace("Host", &field).as_bytes());
        let field = chosen.map(|chosen| format!("Sec-WebSocket-Protocol: {chosen}\r\n")).unwrap_or_default();
        let expected = [&ANSWER[..ANSWER.len() - 2], field.as_bytes(), b"\r\n"].concat();
        assert_eq!(String::from_utf8(connection.sent()), String::from_utf8(expected), "{offered}");
    }
}

#[test]
fn what_is_no_websocket_is_told_and_ended() {
    for (bytes, begins) in [
        (&b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..], &b"HTTP/1.1 426 Upgrade Required\r\n"[..]),
        (b"\x16\x03\x01 is TLS\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (&[REQUEST, b"\x82\x01x"].concat(), &[ANSWER, b"\x88\x20\x03\xeaa client's frame is not masked"].concat()),
    ] {
        let mut connection = Driver::open(server());
        connection.receive_split(bytes);
        let sent = connection.sent();
        assert!(sent.starts_with(begins), "{:?}", String::from_utf8_lossy(&sent));
        assert!(connection.closed().is_some());
        assert_eq!(connection.reports().len(), 1, "{:?}", connection.reports());
    }
}

#[test]
fn a_stream_that_is_cut_within_a_message_is_no_orderly_end() {
    let cut = &frame(0x82, b"0123456789")[..9];
    for (bytes, is_cut) in [
        (cut, true),
        (&frame(0x82, b"whole")[..1], true),
        (&frame(0x02, b"a fragment"), true),
        (&frame(0x89, b"ping")[..8], true),
        (&frame(0x82, b"whole"), false),
        (&[frame(0x02, b"who"), frame(0x80, b"le")].concat(), false),
        (&[], false),
        (&[&frame(0x88, b""), cut].concat(), false),
    ] {
        let mut connection = Driver::open(server());
        connection.receive(REQUEST);
        connection.receive_split(bytes);
        connection.finish();
        let (end, reports) = if is_cut { (Closed::Aborted, 1) } else { (Closed::Orderly, 0) };
        assert_eq!((connection.closed(), connection.reports().len()), (Some(end), reports), "{bytes:x?}");
    }
}

/// Takes what has come, and wants no more for now.
struct Takes;

impl Service for Takes {
    type Protocol = Takes;
    fn open(&self, _peer: &Peer) -> Takes {
        Takes
    }
}

impl Protocol for Takes {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.pause();
        Step::Continue
    }
}

#[test]
fn a_message_that_came_whole_is_not_cut_where_its_protocol_pauses_behind_it() {
    let mut connection = Driver::open(Layer::new(Carrier::server(), Takes));
    connection.receive(REQUEST);
    let message = frame(0x82, b"a");
    connection.receive(&message[..1]);
    connection.receive(&message[1..]);
    connection.finish();
    assert_eq!((connection.closed(), connection.reports()), (Some(Closed::Orderly), &[][..]));
}

/// A client that asks once, and closes with the whole answer.
struct Asks;

impl Service for Asks {
    type Protocol = Asks;
    fn open(&self, _peer: &Peer) -> Asks {
        Asks
    }
}

impl Protocol for Asks {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send("grüße".as_bytes());
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        if input.exactly("grüße".len()).is_some() { Step::Close } else { Step::Continue }
    }
}

#[test]
fn both_ends_agree_and_say_goodbye() {
    let carrier = Carrier::client("ws://h/any").expect("a URL").text().field("X-Any", "1");
    let mut client = Driver::open_with(Layer::new(carrier, Asks), peer(Side::Connected, Duration::ZERO), Bounds::default());
    let mut server = Driver::open(server());
    loop {
        let (up, down) = (client.sent(), server.sent());
        if up.is_empty() && down.is_empty() {
            break;
        }
        server.receive(&up);
        client.receive(&down);
    }
    assert_eq!((client.closed(), server.closed()), (Some(Closed::Orderly), Some(Closed::Orderly)));
    assert!(client.reports().is_empty() && server.reports().is_empty());
    assert!(Carrier::client("http://h/").is_none());
}
