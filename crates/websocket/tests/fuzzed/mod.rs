//! Whatever a client sends after its handshake: an echo answers as a reference that has the whole stream at once says, however the bytes are split,
//! and whether or not the connection moves between two of them. For the fuzz target `websocket`, and for seeds and what is near them.
//!
//! An input is a byte that says how the stream is split (the lower three bits: pieces of so many bytes and one more) and whether it moves (the next
//! bit), and the stream.

use sockdrawer::testing::Driver;
use sockdrawer::{CannotRestore, CannotSave, Peer, Saved, Saver, State, Step};
use sockdrawer_websocket::{Answer, Echo, Message, MessageProtocol, MessageService, Opening, Part, Socket, WebSocket};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// Small, so that inputs reach it.
const MAX_MESSAGE: usize = 140;

fn service() -> WebSocket<Echo> {
    WebSocket::new(Echo::default()).max_message(MAX_MESSAGE)
}

/// An echo of its own, which joins the parts of messages.
#[derive(Clone, Default)]
struct Joins(Vec<u8>);

impl MessageService for Joins {
    type Protocol = Joins;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Joins, Answer> {
        Ok(Joins::default())
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Joins, CannotRestore> {
        Ok(Joins(from.value()?))
    }

    fn state(&self) -> State {
        State::of("joins", 1)
    }
}

impl MessageProtocol for Joins {
    fn message(&mut self, _message: Message<'_>, _socket: &mut Socket<'_>) -> Step {
        panic!("parts were asked for")
    }

    fn part(&mut self, part: Part<'_>, socket: &mut Socket<'_>) -> Step {
        assert!(!part.is_first || self.0.is_empty(), "a message begins once the one before has ended");
        self.0.extend(part.message.bytes());
        if part.is_last {
            let bytes = std::mem::take(&mut self.0);
            socket.send(match part.message {
                Message::Text(_) => Message::Text(std::str::from_utf8(&bytes).expect("parts of texts are texts")),
                Message::Binary(_) => Message::Binary(&bytes),
            });
        }
        Step::Continue
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.value(&self.0)
    }
}

/// Gives the stream in pieces. Returns what the server sent after its handshake, and whether it ended.
fn given<'a, S: MessageService>(
    service: impl Fn() -> WebSocket<S>,
    pieces: impl Iterator<Item = &'a [u8]>,
    moves: bool,
) -> (Vec<u8>, bool) {
    let mut server = Driver::open(service());
    server.receive(REQUEST);
    server.sent();
    let mut sent = Vec::new();
    for piece in pieces {
        server.receive(piece);
        sent.extend(server.sent());
        if server.closed().is_some() {
            break;
        }
        if moves {
            server = server.save_and_restore(service()).expect("an open connection moves");
        }
    }
    (sent, server.closed().is_some())
}

/// Compares the server with the reference.
pub(crate) fn check(input: &[u8]) {
    let Some((how, stream)) = input.split_first() else { return };
    let (expected, ends) = reference(stream);
    let size = usize::from(how % 8) + 1;
    let (whole, moves) = (|| [stream].into_iter(), how & 8 != 0);
    let mut all = vec![given(service, whole(), false), given(service, stream.chunks(size), moves)];
    // Parts have no maximum.
    if !matches!(ends, End::Fault(1009)) {
        let parts = || WebSocket::new(Joins::default()).parts(true);
        all.extend([given(parts, whole(), false), given(parts, stream.chunks(size), moves)]);
    }
    for (sent, closed) in all {
        let (code, same) = (|bytes: &[u8]| bytes.get(..4).map(<[u8]>::to_vec), sent == expected);
        // A close frame for a fault is compared by its code, and not by its words.
        let tail = sent.strip_prefix(&expected[..]).and_then(code);
        match ends {
            End::No => assert!(same && !closed, "{sent:?}, {closed}; {expected:?} was expected"),
            End::Close => assert!(same && closed, "{sent:?}, {closed}; {expected:?} was expected"),
            End::Fault(number) => {
                let [_, length, told @ ..] = &tail.expect("a close frame")[..] else { panic!("a close frame") };
                assert!(*length >= 2 && told == number.to_be_bytes() && closed, "{sent:?}; {number} was expected");
            }
        }
    }
}

enum End {
    No,
    Close,
    Fault(u16),
}

/// Returns true for the beginning of text, which may end within a character.
fn is_text(bytes: &[u8], whole: bool) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| !whole && error.error_len().is_none(), |_| true)
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(short as u8),
        long => {
            bytes.push(126);
            bytes.extend((long as u16).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

/// Returns the end after a close frame with this payload.
fn closed(payload: &[u8], sent: &mut Vec<u8>) -> End {
    let code = match payload {
        [] => &[][..],
        [_] => return End::Fault(1002),
        [a, b, reason @ ..] => {
            if !matches!(u16::from_be_bytes([*a, *b]), 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return End::Fault(1002);
            }
            if !is_text(reason, true) {
                return End::Fault(1007);
            }
            &payload[..2]
        }
    };
    sent.extend(frame(0x88, code));
    End::Close
}

/// Returns the bytes that an echo sends of this stream, by RFC 6455, from its first byte to its last.
fn reference(mut stream: &[u8]) -> (Vec<u8>, End) {
    let mut sent = Vec::new();
    let mut message: Option<(u8, Vec<u8>)> = None;
    loop {
        let [first, rest @ ..] = stream else { return (sent, End::No) };
        let (fin, opcode) = (first & 0x80 != 0, first & 15);
        let control = matches!(opcode, 8..=10);
        if first & 0x70 != 0 || !matches!(opcode, 0..=2 | 8..=10) || (control && !fin) {
            return (sent, End::Fault(1002));
        }
        let [second, rest @ ..] = rest else { return (sent, End::No) };
        let short = second & 0x7f;
        if second & 0x80 == 0 || (control && short > 125) {
            return (sent, End::Fault(1002));
        }
        let digits = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((digits, rest)) = rest.split_at_checked(digits) else { return (sent, End::No) };
        let length = digits.iter().fold(0_u64, |all, digit| all << 8 | u64::from(*digit));
        let length = if digits.is_empty() { u64::from(short) } else { length };
        let least = [0, 0, 126, 0, 0, 0, 0, 0, 65_536][digits.len()];
        if length < least || length >> 63 != 0 {
            return (sent, End::Fault(1002));
        }
        let Some((key, rest)) = rest.split_first_chunk::<4>() else { return (sent, End::No) };
        let there = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        let payload: Vec<u8> = rest[..there].iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        let whole = there as u64 == length;
        if control {
            if !whole {
                return (sent, End::No);
            }
            match opcode {
                8 => {
                    let end = closed(&payload, &mut sent);
                    return (sent, end);
                }
                9 => sent.extend(frame(0x8a, &payload)),
                _ => {}
            }
            stream = &rest[there..];
            continue;
        }
        let before = message.as_ref().map_or(0, |(_, bytes)| bytes.len());
        if before as u64 + length > MAX_MESSAGE as u64 {
            return (sent, End::Fault(1009));
        }
        if (opcode == 0) != message.is_some() {
            return (sent, End::Fault(1002));
        }
        let (kind, bytes) = message.get_or_insert((opcode, Vec::new()));
        bytes.extend(payload);
        if *kind == 1 && !is_text(bytes, fin && whole) {
            return (sent, End::Fault(1007));
        }
        if !whole {
            return (sent, End::No);
        }
        if fin && let Some((kind, bytes)) = message.take() {
            sent.extend(frame(0x80 | kind, &bytes));
        }
        stream = &rest[there..];
    }
}
