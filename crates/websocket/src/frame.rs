//! Frames: the header of RFC 6455, 5.2, masks, and frames that are encoded once for many receivers.

use crate::close::Fault;
use crate::mask;
use sockdrawer::{Note, Output, Side};
use std::sync::Arc;

/// The longest header: two bytes, a length of eight and a mask of four.
const MAX_HEADER: usize = 14;
/// A control frame has at most this many bytes of payload.
pub(crate) const MAX_CONTROL: usize = 125;

const FIN: u8 = 0x80;
/// The first reserved bit: the message is compressed, where that was agreed on.
const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
/// Lengths in two bytes, and in eight, follow these.
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn from_number(number: u8) -> Option<Opcode> {
        Some(match number {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        match self {
            Opcode::Continuation => 0,
            Opcode::Text => 1,
            Opcode::Binary => 2,
            Opcode::Close => 8,
            Opcode::Ping => 9,
            Opcode::Pong => 10,
        }
    }

    pub(crate) fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }
}

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) opcode: Opcode,
    /// The message ends with this frame.
    pub(crate) fin: bool,
    /// The message that begins with this frame is compressed.
    pub(crate) compressed: bool,
    pub(crate) mask: Option<[u8; 4]>,
    /// Bytes of payload.
    pub(crate) payload: u64,
    /// Bytes of the header.
    pub(crate) length: usize,
}

impl Header {
    /// Reads the header of a frame that the other side of this one sent, compressed perhaps where that was agreed on. None while it is not whole.
    ///
    /// # Errors
    /// When RFC 6455 forbids it: as soon as the byte that shows it is there.
    pub(crate) fn read(bytes: &[u8], side: Side, deflates: bool) -> Result<Option<Header>, Fault> {
        let [first, rest @ ..] = bytes else { return Ok(None) };
        let compressed = first & RESERVED == COMPRESSED && deflates;
        if first & RESERVED != 0 && !compressed {
            return Err(Fault::protocol("a reserved bit of a frame is set, though no extension was agreed on"));
        }
        let Some(opcode) = Opcode::from_number(first & OPCODE) else {
            return Err(Fault::protocol("a frame has a reserved opcode"));
        };
        if compressed && !matches!(opcode, Opcode::Text | Opcode::Binary) {
            return Err(Fault::protocol("a frame is compressed that begins no message"));
        }
        let fin = first & FIN != 0;
        if opcode.is_control() && !fin {
            return Err(Fault::protocol("a control frame is fragmented"));
        }
        let [second, rest @ ..] = rest else { return Ok(None) };
        if (second & MASKED != 0) != (side == Side::Accepted) {
            return Err(Fault::protocol(match side {
                Side::Accepted => "a client's frame is not masked",
                Side::Connected => "a server's frame is masked",
            }));
        }
        let short = second & !MASKED;
        if opcode.is_control() && usize::from(short) > MAX_CONTROL {
            return Err(Fault::protocol("a control frame has more than 125 bytes"));
        }
        let (payload, rest) = match short {
            LENGTH_16 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (u64::from(u16::from_be_bytes(*length)), rest)
            }
            LENGTH_64 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (u64::from_be_bytes(*length), rest)
            }
            short => (u64::from(short), rest),
        };
        let shortest = match short {
            LENGTH_16 => payload >= u64::from(LENGTH_16),
            LENGTH_64 => payload > u64::from(u16::MAX) && payload >> 63 == 0,
            _ => true,
        };
        if !shortest {
            return Err(Fault::protocol("the length of a frame is not written in the fewest bytes"));
        }
        let (mask, rest) = if second & MASKED == 0 {
            (None, rest)
        } else {
            let Some((mask, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (Some(*mask), rest)
        };
        Ok(Some(Header { opcode, fin, compressed, mask, payload, length: bytes.len() - rest.len() }))
    }
}

/// Appends a frame to the output. A client's are masked.
pub(crate) fn write(opcode: Opcode, payload: &[u8], side: Side, out: &mut Output) {
    put(header(opcode, payload.len(), side), payload, side, out);
}

/// Appends a frame whose payload is a compressed message.
pub(crate) fn write_compressed(opcode: Opcode, payload: &[u8], side: Side, out: &mut Output) {
    let (mut header, length) = header(opcode, payload.len(), side);
    header[0] |= COMPRESSED;
    put((header, length), payload, side, out);
}

fn put((header, length): ([u8; MAX_HEADER], usize), payload: &[u8], side: Side, out: &mut Output) {
    out.push(&header[..length]);
    out.push(payload);
    if side == Side::Connected {
        let key = mask::key();
        let bytes = out.bytes_mut();
        let begin = bytes.len() - payload.len();
        bytes[begin - key.len()..begin].copy_from_slice(&key);
        mask::apply(&mut bytes[begin..], key, 0);
    }
}

/// Returns the header of a whole message, with room for a client's mask.
fn header(opcode: Opcode, payload: usize, side: Side) -> ([u8; MAX_HEADER], usize) {
    let mut header = [0; MAX_HEADER];
    let masked = if side == Side::Connected { MASKED } else { 0 };
    header[0] = FIN | opcode.number();
    let length = match (u8::try_from(payload), u16::try_from(payload)) {
        (Ok(short), _) if short < LENGTH_16 => {
            header[1] = masked | short;
            2
        }
        (_, Ok(length)) => {
            header[1] = masked | LENGTH_16;
            header[2..4].copy_from_slice(&length.to_be_bytes());
            4
        }
        _ => {
            header[1] = masked | LENGTH_64;
            header[2..10].copy_from_slice(&(payload as u64).to_be_bytes());
            10
        }
    };
    (header, length + if masked == 0 { 0 } else { 4 })
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Text, in UTF-8.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Returns the bytes of the message, of either kind.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(bytes) => bytes,
        }
    }

    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            Message::Text(_) => Opcode::Text,
            Message::Binary(_) => Opcode::Binary,
        }
    }
}

/// A part of a message, for [`MessageProtocol::part`](crate::MessageProtocol::part).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part<'a> {
    /// The bytes that come next; of text, whole characters. None in a last part that only ends the message.
    pub message: Message<'a>,
    /// The message begins with this part.
    pub is_first: bool,
    /// The message ends with this part.
    pub is_last: bool,
}

/// A message that was encoded once, for any number of receivers: publish it to a [`Group`](sockdrawer::Group), or send it by a
/// [`Handle`](sockdrawer::Handle), from any thread. Clones share the bytes.
///
/// ```
/// use sockdrawer::Group;
/// use sockdrawer_websocket::Frame;
///
/// let room = Group::new();
/// room.publish(Frame::text("hello, all"))?;
/// # Ok::<(), sockdrawer::NotifyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(Arc<[u8]>);

impl Frame {
    /// Makes a frame of text.
    pub fn text(text: &str) -> Frame {
        Frame::new(Message::Text(text))
    }

    /// Makes a frame of bytes.
    pub fn binary(bytes: &[u8]) -> Frame {
        Frame::new(Message::Binary(bytes))
    }

    /// Makes a frame of a message of either kind.
    pub fn new(message: Message<'_>) -> Frame {
        let mut out = Output::default();
        write(message.opcode(), message.bytes(), Side::Accepted, &mut out);
        Frame(out.bytes().into())
    }

    /// Returns the frame that a note is, or the note.
    pub(crate) fn of(note: Note) -> Result<Frame, Note> {
        match note {
            Note::Bytes(bytes) if message(&bytes).is_some() => Ok(Frame(bytes)),
            other => Err(other),
        }
    }

    /// Returns the message.
    pub fn message(&self) -> Message<'_> {
        message(&self.0).unwrap_or(Message::Binary(&[]))
    }

    /// Returns the bytes that a server sends.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the message of bytes that are one whole frame of a server; `None` where they are anything else. Text was checked when
/// it was encoded.
fn message(bytes: &[u8]) -> Option<Message<'_>> {
    let header = Header::read(bytes, Side::Connected, false).ok().flatten().filter(|header| header.fin)?;
    let payload = &bytes[header.length..];
    if payload.len() as u64 != header.payload {
        return None;
    }
    match header.opcode {
        Opcode::Text => std::str::from_utf8(payload).ok().map(Message::Text),
        Opcode::Binary => Some(Message::Binary(payload)),
        _ => None,
    }
}

impl From<Frame> for Arc<[u8]> {
    fn from(frame: Frame) -> Arc<[u8]> {
        frame.0
    }
}

impl From<Frame> for Note {
    fn from(frame: Frame) -> Note {
        Note::Bytes(frame.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<Header>, u16> {
        Header::read(bytes, Side::Accepted, false).map_err(|fault| fault.code)
    }

    #[test]
    fn a_frame_is_read_as_it_was_written_from_either_side() {
        for length in [0, 1, 125, 126, 65_535, 65_536, 70_000] {
            let payload = vec![7; length];
            for (from, to) in [(Side::Connected, Side::Accepted), (Side::Accepted, Side::Connected)] {
                let mut out = Output::default();
                write(Opcode::Binary, &payload, from, &mut out);
                let header = Header::read(out.bytes(), to, false).expect("it is right").expect("it is whole");
                assert_eq!((header.opcode, header.fin, header.payload), (Opcode::Binary, true, length as u64));
                let mut received = out.bytes()[header.length..].to_vec();
                mask::apply(&mut received, header.mask.unwrap_or_default(), 0);
                assert_eq!(received, payload);
                for end in 0..header.length {
                    assert_eq!(Header::read(&out.bytes()[..end], to, false).expect("nothing is wrong"), None);
                }
                assert!(Header::read(out.bytes(), from, false).is_err(), "no side masks as the other does");
            }
        }
    }

    #[test]
    fn faults_are_found_at_the_byte_that_shows_them() {
        for (bytes, what) in [
            (&[0xc1][..], "a reserved bit"),
            (&[0xb1], "two reserved bits"),
            (&[0x83], "a reserved opcode"),
            (&[0x8b], "a reserved opcode of a control frame"),
            (&[0x09], "a fragmented ping"),
            (&[0x81, 0x05], "no mask"),
            (&[0x89, 0xfe], "a long ping"),
            (&[0x82, 0xfe, 0, 125], "a short length in two bytes"),
            (&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], "a short length in eight"),
            (&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], "a length of 2^63"),
        ] {
            assert_eq!(read(bytes), Err(1002), "{what}");
            assert_eq!(read(&bytes[..bytes.len() - 1]), Ok(None), "{what}: not before");
        }
    }

    #[test]
    fn a_note_is_a_frame_or_stays_what_it_is() {
        assert_eq!(Frame::of(Frame::text("ü").into()).expect("a frame").message(), Message::Text("ü"));
        assert_eq!(Frame::of(Frame::binary(b"\x81\0").into()).expect("a frame").message(), Message::Binary(b"\x81\0"));
        for other in [&b""[..], b"hello", b"\x81", b"\x81\x05abcd", b"\x81\x01ab", b"\x01\x01a", b"\x89\0", b"\x81\x01\xff"] {
            assert_eq!(Frame::of(other.into()).expect_err("no frame").bytes(), Some(other));
        }
        assert!(Frame::of(Note::value(7)).is_err());
    }
}
