//! Answers of HTTP/1 servers, read as their bytes come: where one ends, and what it is made of, by RFC 9112. Where that leaves it open, they are
//! read as curl reads them. Nothing is copied or kept: what is not whole, such as half a line that says how long the body is, is left to the
//! caller, who brings it again with what follows it.
//!
//! ```
//! use sockdrawer_catalog::http::answer::{Answer, Progress, Reader};
//!
//! let mut body = Vec::new();
//! let mut reader = Reader::default();
//! let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP";
//! let (used, progress) = reader.read(text, &mut |bytes| body.extend_from_slice(bytes))?;
//! assert_eq!((used, progress), (41, Progress::Whole(Answer { status: 200, body: 3, last: false })));
//! assert_eq!(body, b"abc");
//! # Ok::<(), sockdrawer_catalog::http::answer::Unreadable>(())
//! ```

/// The longest head that is read, in bytes, with those of interim answers before it; and the longest trailer.
pub const MAX_HEAD: usize = 300 * 1024;
/// The longest line that is left to the caller until it is whole. Others may be as long as the head.
const MAX_LINE: usize = 8 * 1024;
/// The longest name of a field, with spaces behind it.
const MAX_NAME: usize = 256;

/// An answer that is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Status of the answer, such as 200.
    pub status: u16,
    /// Bytes of its body.
    pub body: u64,
    /// The connection has no other answer after it.
    pub last: bool,
}

/// State of an answer after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is to come.
    Part,
    /// The whole answer; the reader is ready for the next one.
    Whole(Answer),
}

/// Reason why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It does not begin as one, or its head has lines that are no fields. Told by the first byte that is wrong.
    #[error("it is no HTTP/1")]
    NotHttp,
    /// It has more than [`MAX_HEAD`] bytes, or a line that says how long the body is has more than 8 KiB.
    #[error("its head is longer than 300 KiB")]
    LongHead,
    /// Its `Content-Length` is no number, or there are two that differ.
    #[error("its Content-Length is no number, or there are two that differ")]
    Lengths,
    /// There is no hexadecimal number where a chunk should begin, or no line end where it should end.
    #[error("its chunks have no sizes")]
    Chunks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AnswerState {
    #[default]
    Status,
    /// The reader is at the start of a line of the head.
    Field,
    /// The reader is within a line of the head that says nothing of the body or the connection.
    RestOfField,
    /// Number of bytes of the body that are left.
    Body(u64),
    /// The body goes on to the end of the connection.
    Rest,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    /// The reader is at the start of a line behind the last chunk; an empty one ends them.
    Trailer,
    RestOfTrailer,
}

/// Facts of the head about the body and the connection.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// Number of bytes of this head and of those before it, or of the trailer.
    bytes: usize,
    status: u16,
    /// The answer is of HTTP/1.0.
    is_old: bool,
    length: Option<u64>,
    /// A length was no number, or another than the first.
    has_wrong_length: bool,
    /// True where the last transfer coding is `chunked`; None: there is none.
    is_chunked: Option<bool>,
    closes: bool,
    keeps: bool,
}

/// Reads one answer after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    state: AnswerState,
    head: Head,
    body: u64,
    /// Answers have no bodies, whatever their heads say: those to HEAD.
    of_head: bool,
    /// Bytes at the front that are known not to hold the end of the line, so that what drips in is not searched again for each byte.
    looked_at: usize,
}

impl Reader {
    /// Creates a reader for answers to HEAD, which have no bodies.
    pub fn of_head() -> Reader {
        Reader { of_head: true, ..Reader::default() }
    }

    /// Reads on in `bytes`, to the end of the answer at most, and hands `body` what is of its body, without what frames chunks. Returns how many
    /// bytes were used, and whether the answer is whole. Those that were not used must come again, in front of what follows them.
    ///
    /// # Errors
    /// When it is no answer. The reader is of no use then.
    pub fn read(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<(usize, Progress), Unreadable> {
        let mut used = 0;
        while let Some(step) = self.step(&bytes[used..], body)? {
            used += step;
            if self.state == AnswerState::Body(0) {
                return Ok((used, Progress::Whole(self.whole())));
            }
        }
        Ok((used, Progress::Part))
    }

    /// Returns the answer, when the connection has ended and it was one that ends so.
    pub fn ended(&mut self) -> Option<Answer> {
        (self.state == AnswerState::Rest).then(|| self.whole())
    }

    fn whole(&mut self) -> Answer {
        let Head { status, is_old, is_chunked, closes, keeps, .. } = self.head;
        // RFC 9112, 9.3; and 6.1: an answer of HTTP/1.0 with a transfer coding is not to be trusted with another behind it.
        let last = closes || self.state == AnswerState::Rest || status == 101 || (is_old && (!keeps || is_chunked.is_some()));
        let body = self.body;
        *self = Reader { of_head: self.of_head, ..Reader::default() };
        Answer { status, body, last }
    }

    /// Takes the next part from the front of `bytes`; None when there is none. In the state `Body(0)` the answer is whole.
    fn step(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> Result<Option<usize>, Unreadable> {
        if bytes.is_empty() {
            return Ok(None);
        }
        match self.state {
            AnswerState::Status => self.status(bytes),
            AnswerState::Field => self.field(bytes),
            AnswerState::RestOfField => self.rest_of_line(bytes, AnswerState::Field),
            AnswerState::Trailer => match end_of_lines(bytes) {
                None => Ok(None),
                Some(0) => self.rest_of_line(bytes, AnswerState::Trailer),
                Some(end) => {
                    self.state = AnswerState::Body(0);
                    Ok(Some(end))
                }
            },
            AnswerState::RestOfTrailer => self.rest_of_line(bytes, AnswerState::Trailer),
            AnswerState::Rest => Ok(Some(self.body(bytes, body))),
            AnswerState::Body(left) | AnswerState::Chunk(left) => {
                let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                let left = left - self.body(&bytes[..here], body) as u64;
                self.state = match self.state {
                    AnswerState::Chunk(_) if left == 0 => AnswerState::ChunkEnd,
                    AnswerState::Chunk(_) => AnswerState::Chunk(left),
                    _ => AnswerState::Body(left),
                };
                Ok(Some(here))
            }
            AnswerState::ChunkEnd => match end_of_lines(bytes) {
                Some(0) => Err(Unreadable::Chunks),
                None => Ok(None),
                end => {
                    self.state = AnswerState::ChunkSize;
                    Ok(end)
                }
            },
            AnswerState::ChunkSize => self.chunk_size(bytes),
        }
    }

    fn body(&mut self, bytes: &[u8], body: &mut impl FnMut(&[u8])) -> usize {
        body(bytes);
        self.body += bytes.len() as u64;
        bytes.len()
    }

    /// Counts bytes of the head or trailer.
    fn counted(&mut self, bytes: usize) -> Result<Option<usize>, Unreadable> {
        self.head.bytes += bytes;
        if self.head.bytes > MAX_HEAD { Err(Unreadable::LongHead) } else { Ok(Some(bytes)) }
    }

    /// Takes what there is of a line of no interest. `then` is the state at the start of the next.
    fn rest_of_line(&mut self, bytes: &[u8], then: AnswerState) -> Result<Option<usize>, Unreadable> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.state = match (end, then) {
            (Some(_), then) => then,
            (None, AnswerState::Trailer) => AnswerState::RestOfTrailer,
            (None, _) => AnswerState::RestOfField,
        };
        self.counted(end.map_or(bytes.len(), |end| end + 1))
    }

    /// Returns where the line ends, its end included. It does not end in the bytes that were looked at before.
    fn line(&mut self, bytes: &[u8], too_long: Unreadable) -> Result<Option<usize>, Unreadable> {
        let from = self.looked_at.min(bytes.len());
        match bytes[from..].iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.looked_at = 0;
                Ok(Some(from + end + 1))
            }
            None if bytes.len() > MAX_LINE => Err(too_long),
            None => {
                self.looked_at = bytes.len();
                Ok(None)
            }
        }
    }

    fn status(&mut self, bytes: &[u8]) -> Result<Option<usize>, Unreadable> {
        let fits = |(at, byte): (usize, &u8)| match at {
            0..7 => *byte == b"HTTP/1."[at],
            7 => matches!(byte, b'0' | b'1'),
            8 => *byte == b' ',
            9 => matches!(byte, b'1'..=b'9'),
            10 | 11 => byte.is_ascii_digit(),
            _ => matches!(byte, b' ' | b'\r' | b'\n'),
        };
        if !bytes.iter().take(13).enumerate().all(fits) {
            return Err(Unreadable::NotHttp);
        }
        let Some(end) = self.line(bytes, Unreadable::LongHead)? else { return Ok(None) };
        // A whole line has all 13 bytes.
        self.head.is_old = bytes[7] == b'0';
        self.head.status = bytes[9..12].iter().fold(0, |status, digit| 10 * status + u16::from(digit - b'0'));
        self.state = AnswerState::Field;
        self.counted(end)
    }

    fn field(&mut self, bytes: &[u8]) -> Result<Option<usize>, Unreadable> {
        match end_of_lines(bytes) {
            None => return Ok(None),
            Some(0) => {}
            Some(end) => return self.head_ends(end),
        }
        // The line before it goes on (RFC 9112, 5.2), and was of no interest: else it was taken with this one.
        if matches!(bytes[0], b' ' | b'\t') {
            return self.rest_of_line(bytes, AnswerState::Field);
        }
        let name = bytes.iter().take(MAX_NAME).take_while(|byte| is_of_token(**byte)).count();
        // RFC 9112, 5.1: spaces before the colon are taken off.
        let spaces = bytes[name..].iter().take(MAX_NAME).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match bytes.get(name + spaces) {
            None if name + spaces < MAX_NAME => return Ok(None),
            Some(b':') if name > 0 => {}
            _ => return Err(Unreadable::NotHttp),
        }
        let is = |word: &[u8]| bytes[..name].eq_ignore_ascii_case(word);
        let apply = match name {
            14 if is(b"content-length") => Head::lengths,
            17 if is(b"transfer-encoding") => Head::codings,
            10 if is(b"connection") => Head::options,
            _ => return self.rest_of_line(bytes, AnswerState::Field),
        };
        let Some(end) = self.folded(bytes)? else { return Ok(None) };
        apply(&mut self.head, &bytes[name + spaces + 1..end]);
        self.counted(end)
    }

    /// Returns where a field ends: with a line behind which none begins with a space.
    fn folded(&mut self, bytes: &[u8]) -> Result<Option<usize>, Unreadable> {
        loop {
            let Some(end) = self.line(bytes, Unreadable::LongHead)? else { return Ok(None) };
            match bytes.get(end) {
                Some(b' ' | b'\t') => self.looked_at = end,
                Some(_) => return Ok(Some(end)),
                None => {
                    // The next byte will tell.
                    self.looked_at = end - 1;
                    return Ok(None);
                }
            }
        }
    }

    /// Ends the head and chooses what follows it: RFC 9112, 6.3.
    fn head_ends(&mut self, end: usize) -> Result<Option<usize>, Unreadable> {
        let Head { status, length, has_wrong_length, is_chunked, .. } = self.head;
        self.state = match (status, is_chunked, length) {
            // Interim answers come before the one that counts.
            (102..200 | 100, ..) => {
                self.head = Head { bytes: self.head.bytes, ..Head::default() };
                AnswerState::Status
            }
            // Behind 101 it is another protocol.
            (101 | 204 | 304, ..) => AnswerState::Body(0),
            _ if self.of_head => AnswerState::Body(0),
            (_, Some(true), _) => AnswerState::ChunkSize,
            (_, Some(false), _) => AnswerState::Rest,
            _ if has_wrong_length => return Err(Unreadable::Lengths),
            (_, None, Some(length)) => AnswerState::Body(length),
            (_, None, None) => AnswerState::Rest,
        };
        self.counted(end)
    }

    fn chunk_size(&mut self, bytes: &[u8]) -> Result<Option<usize>, Unreadable> {
        // Told by the first byte that is wrong.
        if !bytes[0].is_ascii_hexdigit() {
            return Err(Unreadable::Chunks);
        }
        let Some(end) = self.line(bytes, Unreadable::Chunks)? else { return Ok(None) };
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        // Behind it are spaces and extensions.
        let size = std::str::from_utf8(&bytes[..digits]).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let ends = matches!(bytes[digits], b'\r' | b'\n' | b' ' | b'\t' | b';');
        self.state = match size.filter(|_| ends).ok_or(Unreadable::Chunks)? {
            0 => {
                self.head.bytes = 0;
                AnswerState::Trailer
            }
            size => AnswerState::Chunk(size),
        };
        Ok(Some(end))
    }
}

impl Head {
    /// Reads the lengths of a field, of which one that is repeated counts once: RFC 9112, 6.3.
    fn lengths(&mut self, value: &[u8]) {
        for length in list(value).map(number) {
            self.has_wrong_length |= length.is_none() || self.length.is_some_and(|before| Some(before) != length);
            self.length = self.length.or(length);
        }
    }

    /// Reads the transfer codings of a field: RFC 9112, 6.1 and 6.3. `identity` is a word of the HTTP/1.1 before: no coding.
    fn codings(&mut self, value: &[u8]) {
        let codings = list(value).filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
        self.is_chunked = codings.last().map(|coding| coding.eq_ignore_ascii_case(b"chunked")).or(self.is_chunked);
    }

    /// Reads the options of a `Connection` field: RFC 9112, 9.3.
    fn options(&mut self, value: &[u8]) {
        let has = |word: &[u8]| list(value).any(|option| option.eq_ignore_ascii_case(word));
        self.closes |= has(b"close");
        self.keeps |= has(b"keep-alive");
    }
}

/// Returns the parts of a value, between commas.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Returns the length of an empty line at the front, 0 where there is another; None while that is open. A line may end without CR: RFC 9112, 2.2.
fn end_of_lines(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\n', ..] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        [b'\r'] | [] => None,
        _ => Some(0),
    }
}

fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
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

    /// Returns what a reader makes of bytes that come in these pieces: all answers with their bodies, and the bytes left.
    fn read_all(pieces: &[&[u8]]) -> Result<Read, Unreadable> {
        let (mut reader, mut kept, mut answers, mut body) = (Reader::default(), Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                let (used, progress) = reader.read(&kept, &mut |bytes| body.extend_from_slice(bytes))?;
                kept.drain(..used);
                match progress {
                    Progress::Part => break,
                    Progress::Whole(answer) => answers.push((answer, std::mem::take(&mut body))),
                }
            }
        }
        Ok((answers, kept))
    }

    /// Checks an answer twice in one stream, cut in two anywhere and byte by byte: two answers each time, and what follows is left.
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
        check(b"HTTP/1.1 200 OK\r\nServer: \xe9\r\nContent-Length: 0\r\n\r\n", 200, b"", false);
        check(b"HTTP/1.1 103 Early\r\nLink: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", false);
        // An interim answer says nothing of the one behind it.
        check(b"HTTP/1.1 100 x\r\nConnection: close\r\nContent-Length: 7\r\n\r\nHTTP/1.1 204 OK\r\n\r\n", 204, b"", false);
        // 2.2 and 4: line ends without CR, no reason.
        check(b"HTTP/1.1 200\nContent-Length: 1\n\nx", 200, b"x", false);
        check(b"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x", true);
        // 5.1 and 5.2: spaces around names and values, and folded lines.
        check(b"HTTP/1.1 200 OK\r\nContent-Length \t:\t 1 \r\n\r\nx", 200, b"x", false);
        check(b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 1\r\nA: b\r\n c\r\n\td: e\r\n\r\nx", 200, b"x", false);
        check(b"HTTP/1.1 200 OK\r\nConnection: a,\r\n close\r\nContent-Length: 1\r\n\r\nx", 200, b"x", true);
    }

    #[test]
    fn the_length_of_a_body_is_that_of_rfc_9112_6_3() {
        // 1: some have none, whatever they say.
        check(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n", 304, b"", false);
        check(b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", 204, b"", false);
        check(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 304, b"", false);
        check(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", 101, b"", true);
        // 3: a transfer coding is stronger than a length.
        let chunked =
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: Chunked\r\nContent-Length: 9\r\n\r\n1\r\na\r\n0\r\n\r\n";
        check(chunked, 200, b"a", false);
        // 4: the last coding counts, of all fields.
        check(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 200, b"a", false);
        check(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, b"", false);
        check(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx", 200, b"x", false);
        // 5: a length that is repeated is one.
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\nContent-Length: 1\r\n\r\nx", 200, b"x", false);
        // 4 and 8: to the end of the connection.
        for head in ["Transfer-Encoding: gzip\r\nContent-Length: 1", "Transfer-Encoding: chunked, gzip", "A: b"] {
            let (mut reader, text) = (Reader::default(), format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nall of it"));
            assert_eq!(reader.read(text.as_bytes(), &mut |_| ()), Ok((text.len(), Progress::Part)), "{head}");
            assert_eq!(reader.ended(), Some(Answer { status: 200, body: 9, last: true }), "{head}");
        }
        let (mut of_head, text) = (Reader::of_head(), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..2 {
            let whole = Answer { status: 200, body: 0, last: false };
            assert_eq!(of_head.read(text, &mut |_| ()), Ok((text.len(), Progress::Whole(whole))));
        }
    }

    #[test]
    fn chunks_are_those_of_rfc_9112_7_1() {
        let chunks = |chunks: &[u8], body: &[u8]| {
            check(&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunks].concat(), 200, body, false);
        };
        chunks(b"3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", b"abc0123456789");
        chunks(b"1\r\na\r\n0\r\nExpires: z\r\nB: c\r\n d\r\n\r\n", b"a");
        chunks(b"1 ; a = \"b\"\r\na\r\n000;last\r\n\r\n", b"a");
        // Line ends without CR.
        chunks(b"3\nabc\n0\nA: b\n\n", b"abc");
        chunks(b"00000000000000000000001\r\na\r\n0\r\n\r\n", b"a");
    }

    #[test]
    fn connections_last_as_rfc_9112_9_3_says() {
        for (version, fields, last) in [
            ("1.1", "", false),
            ("1.1", "Connection: Close\r\n", true),
            ("1.1", "Connection: a, close ,b\r\n", true),
            ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", true),
            ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", true),
            ("1.1", "Connection: closed\r\nProxy-Connection: close\r\n", false),
            ("1.0", "", true),
            ("1.0", "Connection: Keep-Alive\r\n", false),
            ("1.0", "Connection: keep-alive\r\nConnection: close\r\n", true),
        ] {
            let text = format!("HTTP/{version} 200 OK\r\n{fields}Content-Length: 1\r\n\r\nx");
            check(text.as_bytes(), 200, b"x", last);
        }
        // 6.1: framing that HTTP/1.0 does not know.
        let text = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        check(text, 200, b"a", true);
    }

    #[test]
    fn a_head_may_have_many_fields_and_long_lines_however_they_are_cut() {
        let many: String = (0..5_000).map(|number| format!("Set-Cookie: {number}={}\r\n", "x".repeat(30))).collect();
        for fields in [many, format!("A: {}\r\n", "x".repeat(MAX_HEAD - 100))] {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 1\r\n\r\n");
            for size in [1, 7, 1024, 65_536, head.len()] {
                let mut pieces: Vec<&[u8]> = head.as_bytes().chunks(size).collect();
                pieces.push(b"x");
                let whole = (Answer { status: 200, body: 1, last: false }, b"x".to_vec());
                assert_eq!(read_all(&pieces), Ok((vec![whole], Vec::new())), "by {size}");
            }
        }
        // The caller keeps little of the head.
        let (mut reader, head) = (Reader::default(), format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(100_000)));
        assert_eq!(reader.read(head.as_bytes(), &mut |_| ()), Ok((head.len(), Progress::Part)));
    }

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n\r",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        ] {
            let mut cut = Reader::default();
            assert!(matches!(cut.read(text.as_bytes(), &mut |_| ()), Ok((_, Progress::Part))), "{text}");
            assert_eq!(cut.ended(), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let wrong = |text: &str| read_all(&[text.as_bytes()]).expect_err(text);
        for text in [
            "Pong\r\n\r\n",
            "HTTP/1.1 x OK\r\n\r\n",
            "HTTP/1.1 20\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.2 200\r\n\r\n",
            "HTTP/1.1 000\r\n\r\n",
            "\r\nHTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 200 OK\r\nfield\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
            &format!("HTTP/1.1 200 OK\r\n{}", "x".repeat(MAX_NAME)),
        ] {
            assert_eq!(wrong(text), Unreadable::NotHttp, "{text}");
        }
        assert_eq!(wrong("SSH"), Unreadable::NotHttp, "no more is awaited");
        for lengths in ["-1", "+1", "", "1 2", "1,", "99999999999999999999", "1\r\nContent-Length: 2", "1, 2"] {
            assert_eq!(wrong(&format!("HTTP/1.1 200 OK\r\nContent-Length: {lengths}\r\n\r\n")), Unreadable::Lengths, "{lengths}");
        }
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let long = format!("1;{}", "x".repeat(MAX_LINE));
        for chunks in ["zz\r\n", "z", "+1\r\n", "\r\n", " 1\r\n", "1\r\nab", "1x\r\n", "11111111111111111\r\n", &long] {
            assert_eq!(wrong(&format!("{chunked}{chunks}")), Unreadable::Chunks, "{chunks}");
        }
        for endless in [
            format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MAX_HEAD)),
            format!("HTTP/1.1 200 {}", "x".repeat(MAX_LINE)),
            format!("HTTP/1.1 200 OK\r\nConnection: {}", "x".repeat(MAX_LINE)),
            "HTTP/1.1 100 a\r\n\r\n".repeat(MAX_HEAD / 16),
            format!("{chunked}0\r\na: {}", "x".repeat(MAX_HEAD)),
        ] {
            assert_eq!(wrong(&endless), Unreadable::LongHead);
        }
    }
}
