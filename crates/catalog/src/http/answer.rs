//! Answers of HTTP/1 servers, read as their bytes come: where one ends, and what it is made of. Nothing is copied or kept: what is
//! not whole, such as half a head, is left to the caller, who brings it again with what follows it.
//!
//! ```
//! use sockdrawer_catalog::http::answer::{Answer, Piece, Progress, Reader};
//!
//! let mut body = Vec::new();
//! let mut keep = |piece: Piece<'_>| {
//!     if let Piece::Body(bytes) = piece {
//!         body.extend_from_slice(bytes);
//!     }
//! };
//! let mut reader = Reader::default();
//! let (used, progress) = reader.read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP", &mut keep)?;
//! assert_eq!((used, progress), (41, Progress::Whole(Answer { status: 200, body: 3, last: false })));
//! assert_eq!(body, b"abc");
//! # Ok::<(), sockdrawer_catalog::http::answer::Unreadable>(())
//! ```

use httparse::Status;
use std::mem::MaybeUninit;

/// The longest head that is read, in bytes.
pub const MOST_HEAD: usize = 64 * 1024;
/// Maximum of fields in a head.
const MOST_FIELDS: usize = 100;
/// The longest line between chunks.
const MOST_LINE: usize = 4096;

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A head and the empty line behind it. Interim answers, such as 103, have heads of their own.
    Head(&'a [u8]),
    /// The next bytes of the body, without what frames chunks.
    Body(&'a [u8]),
}

/// An answer that is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status, such as 200.
    pub status: u16,
    /// Bytes of its body.
    pub body: u64,
    /// Whether the server ends the connection after it.
    pub last: bool,
}

/// What there is of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is to come.
    Part,
    /// All; the reader is ready for the next one.
    Whole(Answer),
}

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It does not begin as one, or its head has lines that are no fields. Told by the first byte that is wrong.
    #[error("it is no HTTP/1")]
    NotHttp,
    /// It has more than [`MOST_HEAD`] bytes.
    #[error("its head is longer than 64 KiB")]
    LongHead,
    /// No hexadecimal number where a chunk should begin, or no line end where it should end.
    #[error("its chunks have no sizes")]
    Chunks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many bytes are left.
    Body(u64),
    /// To the end of the connection.
    Rest,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    /// Fields behind the last chunk; an empty line ends them.
    Trailer,
}

/// Reads one answer after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    state: State,
    answer: Answer,
    /// Answers have no bodies, whatever their heads say: those to HEAD.
    of_head: bool,
    /// Bytes at the front that are known not to hold the end of the head or line, so that what drips in is not searched again for each
    /// byte.
    looked_at: usize,
}

impl Reader {
    /// For answers to HEAD, which have no bodies.
    pub fn of_head() -> Reader {
        Reader { of_head: true, ..Reader::default() }
    }

    /// Reads on in `bytes`, to the end of the answer at most: how many of them were used, and whether it is whole. What was not used
    /// must come again, in front of what follows it.
    ///
    /// # Errors
    /// When it is no answer. The reader is of no use then.
    pub fn read(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Result<(usize, Progress), Unreadable> {
        let mut used = 0;
        loop {
            let Some(step) = self.step(&bytes[used..], piece)? else { return Ok((used, Progress::Part)) };
            used += step;
            if self.state == State::Body(0) {
                return Ok((used, Progress::Whole(self.whole())));
            }
        }
    }

    /// The connection has ended: the answer, when it was one that ends so.
    pub fn ended(&mut self) -> Option<Answer> {
        (self.state == State::Rest).then(|| self.whole())
    }

    fn whole(&mut self) -> Answer {
        self.state = State::Head;
        std::mem::take(&mut self.answer)
    }

    /// Takes the next whole part from the front of `bytes`; None when there is none. In the state `Body(0)` the answer is whole.
    fn step(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Result<Option<usize>, Unreadable> {
        let used = match self.state {
            State::Head => return self.head(bytes, piece),
            _ if bytes.is_empty() => return Ok(None),
            State::Rest => self.body(bytes, piece),
            State::Body(left) | State::Chunk(left) => {
                let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                let left = left - self.body(&bytes[..here], piece) as u64;
                self.state = match self.state {
                    State::Chunk(_) if left == 0 => State::ChunkEnd,
                    State::Chunk(_) => State::Chunk(left),
                    _ => State::Body(left),
                };
                here
            }
            State::ChunkSize | State::ChunkEnd | State::Trailer => return self.line(bytes),
        };
        Ok(Some(used))
    }

    fn body(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> usize {
        piece(Piece::Body(bytes));
        self.answer.body += bytes.len() as u64;
        bytes.len()
    }

    fn head(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Result<Option<usize>, Unreadable> {
        // Nothing that came since the last look ends a line.
        if self.looked_at > 0 && !bytes[self.looked_at..].contains(&b'\n') {
            self.looked_at = bytes.len();
        } else if let Some((length, head)) = Head::read(bytes)? {
            self.looked_at = 0;
            piece(Piece::Head(&bytes[..length]));
            // Interim answers come before the one that counts.
            if head.status >= 200 || head.status == 101 {
                self.state = if self.of_head { State::Body(0) } else { head.body };
                self.answer = Answer { status: head.status, body: 0, last: head.last || self.state == State::Rest };
            }
            return Ok(Some(length));
        } else {
            self.looked_at = bytes.len();
        }
        if bytes.len() > MOST_HEAD { Err(Unreadable::LongHead) } else { Ok(None) }
    }

    /// Where this begins. It may have begun in the bytes that were looked at before.
    fn find_on(&mut self, bytes: &[u8], what: &[u8]) -> Option<usize> {
        let from = self.looked_at.saturating_sub(what.len() - 1).min(bytes.len());
        let found = find(&bytes[from..], what).map(|at| from + at);
        self.looked_at = if found.is_some() { 0 } else { bytes.len() };
        found
    }

    fn line(&mut self, bytes: &[u8]) -> Result<Option<usize>, Unreadable> {
        let Some(length) = self.find_on(bytes, b"\r\n") else {
            return if bytes.len() > MOST_LINE { Err(Unreadable::Chunks) } else { Ok(None) };
        };
        let line = &bytes[..length];
        self.state = match self.state {
            State::ChunkSize => match chunk_size(line).ok_or(Unreadable::Chunks)? {
                0 => State::Trailer,
                size => State::Chunk(size),
            },
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::ChunkEnd => return Err(Unreadable::Chunks),
            _ if line.is_empty() => State::Body(0),
            state => state,
        };
        Ok(Some(length + 2))
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The hexadecimal number before any extension.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?, 16).ok()
}

struct Head {
    status: u16,
    /// The state that reads it.
    body: State,
    last: bool,
}

impl Head {
    /// The head, and how many bytes it has; None while it is not whole.
    fn read(bytes: &[u8]) -> Result<Option<(usize, Head)>, Unreadable> {
        let mut room = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut room);
        let length = match parsed {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err(Unreadable::NotHttp),
        };
        let (status, old) = (response.code.unwrap_or_default(), response.version == Some(0));
        let mut head = Head { status, body: State::Rest, last: old };
        for field in response.headers {
            head.field(field).ok_or(Unreadable::NotHttp)?;
        }
        if matches!(status, 204 | 304) {
            head.body = State::Body(0);
        }
        Ok(Some((length, head)))
    }

    fn field(&mut self, field: &httparse::Header<'_>) -> Option<()> {
        let (name, value) = (field.name, field.value.trim_ascii());
        let has = |word: &[u8]| value.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word));
        if name.eq_ignore_ascii_case("content-length") {
            let length = number(value)?;
            if self.body != State::ChunkSize {
                self.body = State::Body(length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") && has(b"chunked") {
            self.body = State::ChunkSize;
        } else if name.eq_ignore_ascii_case("connection") {
            self.last = has(b"close") || (self.last && !has(b"keep-alive"));
        }
        Some(())
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with their bodies, and the bytes left.
    type Read = (Vec<(Answer, Vec<u8>)>, Vec<u8>);

    /// What a reader makes of bytes that come in these pieces: all answers with their bodies, and the bytes left.
    fn read_all(pieces: &[&[u8]]) -> Result<Read, Unreadable> {
        let (mut reader, mut kept, mut answers, mut body) = (Reader::default(), Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                let mut keep = |piece: Piece<'_>| {
                    if let Piece::Body(bytes) = piece {
                        body.extend_from_slice(bytes);
                    }
                };
                let (used, progress) = reader.read(&kept, &mut keep)?;
                kept.drain(..used);
                match progress {
                    Progress::Part => break,
                    Progress::Whole(answer) => answers.push((answer, std::mem::take(&mut body))),
                }
            }
        }
        Ok((answers, kept))
    }

    /// Twice in one stream, cut in two anywhere and byte by byte: two answers each time, and what follows is left.
    fn check(text: &[u8], status: u16, body: &[u8], last: bool) {
        let answer = || (Answer { status, body: body.len() as u64, last }, body.to_vec());
        let stream = [text, text, b"HTTP/1.1 200"].concat();
        let expected = (vec![answer(), answer()], b"HTTP/1.1 200".to_vec());
        for at in 0..stream.len() {
            let (one, other) = stream.split_at(at);
            assert_eq!(read_all(&[one, other]).as_ref(), Ok(&expected), "cut at {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read_all(&bytes).as_ref(), Ok(&expected));
    }

    #[test]
    fn answers_end_as_their_heads_say() {
        check(b"HTTP/1.1 200 OK\r\nDate: x\r\ncontent-length: 3\r\n\r\nabc", 200, b"abc", false);
        check(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 404, b"", true);
        check(b"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x", true);
        check(b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx", 200, b"x", false);
        check(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n", 304, b"", false);
        check(b"HTTP/1.1 103 Early\r\nLink: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", false);
        check(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
            200,
            b"abc0123456789",
            false,
        );
        check(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nExpires: z\r\n\r\n", 200, b"a", false);
        check(b"HTTP/1.1 200 OK\r\nServer: \xe9\r\nContent-Length: 0\r\n\r\n", 200, b"", false);
    }

    #[test]
    fn a_long_head_may_come_byte_by_byte() {
        let head = format!("HTTP/1.1 200 OK\r\nA: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(MOST_HEAD - 100));
        let mut reader = Reader::default();
        for length in 1..head.len() {
            assert_eq!(reader.read(&head.as_bytes()[..length], &mut |_| ()), Ok((0, Progress::Part)));
        }
        let whole = Answer { status: 200, body: 0, last: false };
        assert_eq!(reader.read(head.as_bytes(), &mut |_| ()), Ok((head.len(), Progress::Whole(whole))));
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let mut reader = Reader::default();
        let text = b"HTTP/1.1 200 OK\r\n\r\nall of it";
        assert_eq!(reader.read(text, &mut |_| ()), Ok((text.len(), Progress::Part)));
        assert_eq!(reader.ended(), Some(Answer { status: 200, body: 9, last: true }));
        let mut cut = Reader::default();
        cut.read(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", &mut |_| ()).expect("it is an answer so far");
        assert_eq!(cut.ended(), None);
        assert_eq!(Reader::default().ended(), None);
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let wrong = |text: &str| read_all(&[text.as_bytes()]).expect_err(text);
        for text in ["Pong\r\n\r\n", "HTTP/1.1 x OK\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\nfield\r\n\r\n"] {
            assert_eq!(wrong(text), Unreadable::NotHttp, "{text}");
        }
        assert_eq!(wrong("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), Unreadable::NotHttp);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for chunks in ["zz\r\n", "+1\r\n", "\r\n", "1\r\nab\r\n", &"1".repeat(MOST_LINE + 1)] {
            assert_eq!(wrong(&format!("{chunked}{chunks}")), Unreadable::Chunks, "{chunks}");
        }
        assert_eq!(wrong("SSH"), Unreadable::NotHttp, "no more is awaited");
        assert_eq!(wrong(&format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MOST_HEAD))), Unreadable::LongHead);
    }
}
