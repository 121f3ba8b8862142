//! GET requests, whose answers are to be the same each time.

use sockdrawer::Address;
use sockdrawer::testing::trial::{Dialogue, Exchange, Judgement};
use std::sync::{Arc, OnceLock};

/// The longest head of an answer that is read, in bytes.
const MOST_HEAD: usize = 64 * 1024;
/// The longest body that is compared, in bytes.
const MOST_BODY: usize = 1024 * 1024;

/// What an answer has that is the same each time: neither dates nor other fields.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    /// Bytes that differ; a status that differs is one.
    fn differs(&self, other: &Answer) -> usize {
        let (one, two) = (&self.body, &other.body);
        let wrong = one.iter().zip(two).filter(|(one, two)| one != two).count() + one.len().abs_diff(two.len());
        wrong + usize::from(self.status != other.status)
    }
}

/// The first answer, which the others are compared with.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    first: OnceLock<Answer>,
    odd: OnceLock<String>,
}

impl Expected {
    fn wrong(&self, answer: Answer) -> usize {
        let first = self.first.get_or_init(|| answer.clone());
        let wrong = first.differs(&answer);
        if wrong > 0 {
            let tell = |answer: &Answer| format!("status {} and {} bytes", answer.status, answer.body.len());
            self.note(format!("an answer had {}, the first one {}", tell(&answer), tell(first)));
        }
        wrong
    }

    fn note(&self, odd: String) {
        let _ = self.odd.set(odd);
    }

    /// The first answer that was not as expected.
    pub(crate) fn odd(&self) -> Option<String> {
        self.odd.get().cloned()
    }
}

/// The requests of one set of clients.
pub(crate) struct Web {
    request: Arc<[u8]>,
    expected: Arc<Expected>,
}

impl Web {
    /// Requests for `path`; with `once`, each asks the server to end the connection after its answer.
    pub(crate) fn new(target: &Address, path: &str, once: bool, expected: Arc<Expected>) -> Web {
        let host = match target {
            Address::Tcp(address) => address.to_string(),
            _ => "localhost".to_owned(),
        };
        let connection = if once { "close" } else { "keep-alive" };
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sockdrawer\r\nConnection: {connection}\r\n\r\n");
        Web { request: request.into_bytes().into(), expected }
    }
}

impl Exchange for Web {
    type Dialogue = Visitor;

    fn dialogue(&self) -> Visitor {
        Visitor { request: self.request.clone(), expected: self.expected.clone(), came: Vec::new() }
    }
}

/// One connection of [`Web`].
pub(crate) struct Visitor {
    request: Arc<[u8]>,
    expected: Arc<Expected>,
    /// Of the answer that is under way.
    came: Vec<u8>,
}

impl Dialogue for Visitor {
    fn ask(&mut self, send: &mut dyn FnMut(&[u8])) {
        self.came.clear();
        send(&self.request);
    }

    fn judge(&mut self, came: &[u8]) -> Judgement {
        let before = self.came.len();
        self.came.extend_from_slice(came);
        match parse(&self.came, false) {
            Parsed::Part => Judgement::More,
            Parsed::Whole { answer, used, last } => match self.expected.wrong(answer) {
                0 if last => Judgement::Last(used - before),
                0 => Judgement::Whole(used - before),
                wrong => Judgement::Wrong(wrong),
            },
            Parsed::Bad(why) => {
                self.expected.note(format!("no answer that can be read: {why}"));
                Judgement::Wrong(came.len())
            }
        }
    }

    fn ended(&mut self) -> bool {
        match parse(&self.came, true) {
            Parsed::Whole { answer, .. } => self.expected.wrong(answer) == 0,
            _ => false,
        }
    }
}

/// What there is of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    /// More is to come.
    Part,
    /// All, in so many bytes; `last`: the server says that it ends the connection.
    Whole { answer: Answer, used: usize, last: bool },
    /// It is none.
    Bad(&'static str),
}

/// The answer at the start of `bytes`; `ended`: no more will come.
fn parse(bytes: &[u8], ended: bool) -> Parsed {
    let mut start = 0;
    loop {
        let Some(length) = find(&bytes[start..], b"\r\n\r\n") else {
            let long = bytes.len() - start > MOST_HEAD;
            return if long { Parsed::Bad("its head is longer than 64 KiB") } else { Parsed::Part };
        };
        let Some(head) = Head::read(&bytes[start..start + length]) else { return Parsed::Bad("it is no HTTP/1") };
        start += length + 4;
        // Interim answers come before the one that counts.
        if head.status >= 200 || head.status == 101 {
            return head.with_body(bytes, start, ended);
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Chunks,
    Connection,
}

#[derive(Debug)]
struct Head {
    status: u16,
    length: Length,
    last: bool,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Head> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.split("\r\n");
        let mut start = lines.next()?.split(' ');
        let old = match start.next()? {
            "HTTP/1.1" => false,
            "HTTP/1.0" => true,
            _ => return None,
        };
        let status = start.next()?.parse().ok()?;
        let mut head = Head { status, length: Length::Connection, last: old };
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let value = value.trim().to_ascii_lowercase();
            match name.to_ascii_lowercase().as_str() {
                "content-length" if head.length != Length::Chunks => head.length = Length::Bytes(value.parse().ok()?),
                "transfer-encoding" if value.ends_with("chunked") => head.length = Length::Chunks,
                "connection" if value.contains("close") => head.last = true,
                "connection" if value.contains("keep-alive") => head.last = false,
                _ => {}
            }
        }
        if matches!(status, 204 | 304) {
            head.length = Length::Bytes(0);
        }
        Some(head)
    }

    fn with_body(self, bytes: &[u8], start: usize, ended: bool) -> Parsed {
        let rest = &bytes[start..];
        let (body, used) = match self.length {
            Length::Bytes(length) if length > MOST_BODY => return Parsed::Bad("its body is longer than 1 MiB"),
            Length::Bytes(length) if rest.len() < length => return Parsed::Part,
            Length::Bytes(length) => (rest[..length].to_vec(), length),
            Length::Connection if rest.len() > MOST_BODY => return Parsed::Bad("its body is longer than 1 MiB"),
            Length::Connection if !ended => return Parsed::Part,
            Length::Connection => (rest.to_vec(), rest.len()),
            Length::Chunks => match chunks(rest) {
                Ok(Some(all)) => all,
                Ok(None) => return Parsed::Part,
                Err(why) => return Parsed::Bad(why),
            },
        };
        let last = self.last || self.length == Length::Connection;
        Parsed::Whole { answer: Answer { status: self.status, body }, used: start + used, last }
    }
}

/// A body in chunks and how many bytes it takes; None when more is to come.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
    const BAD: &str = "its chunks have no sizes";
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(length) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&bytes[at..at + length]).map_err(|_| BAD)?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).map_err(|_| BAD)?;
        at += length + 2;
        if size > MOST_BODY - body.len() {
            return Err("its body is longer than 1 MiB");
        }
        if size == 0 {
            // Fields may follow; an empty line ends them.
            return Ok(trailer(&bytes[at..]).map(|used| (body, at + used)));
        }
        if bytes.len() < at + size + 2 {
            return Ok(None);
        }
        body.extend_from_slice(&bytes[at..at + size]);
        at += size + 2;
    }
}

fn trailer(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"\r\n") {
        return Some(2);
    }
    find(bytes, b"\r\n\r\n").map(|length| length + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(status: u16, body: &[u8], used: usize, last: bool) -> Parsed {
        Parsed::Whole { answer: Answer { status, body: body.to_vec() }, used, last }
    }

    /// Every beginning of it is a part, and the whole is whole, whatever follows.
    fn check(text: &[u8], status: u16, body: &[u8], last: bool) {
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end], false), Parsed::Part, "{end}");
        }
        assert_eq!(parse(&[text, b"HTTP/1.1 200"].concat(), false), whole(status, body, text.len(), last));
    }

    #[test]
    fn answers_end_as_their_heads_say() {
        check(b"HTTP/1.1 200 OK\r\nDate: x\r\ncontent-length: 3\r\n\r\nabc", 200, b"abc", false);
        check(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 404, b"", true);
        check(b"HTTP/1.0 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x", true);
        check(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n", 304, b"", false);
        check(b"HTTP/1.1 103 Early\r\nLink: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", false);
        check(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
            200,
            b"abc0123456789",
            false,
        );
        check(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nExpires: z\r\n\r\n", 200, b"a", false);
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let text = b"HTTP/1.1 200 OK\r\n\r\nall of it";
        assert_eq!(parse(text, false), Parsed::Part);
        assert_eq!(parse(text, true), whole(200, b"all of it", text.len(), true));
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", true), Parsed::Part, "it was cut");
    }

    #[test]
    fn what_is_no_answer_is_bad() {
        for text in ["Pong\r\n\r\n", "HTTP/1.1 x OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"] {
            assert!(matches!(parse(text.as_bytes(), false), Parsed::Bad(_)), "{text}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MOST_BODY + 1);
        assert!(matches!(parse(long.as_bytes(), false), Parsed::Bad(_)));
    }

    #[test]
    fn answers_are_compared_with_the_first_one() {
        let expected = Arc::new(Expected::default());
        let target = "127.0.0.1:80".parse().expect("an address");
        let judged = |answer: &str| {
            let mut visitor = Web::new(&target, "/", false, expected.clone()).dialogue();
            visitor.judge(format!("HTTP/1.1 {answer}").as_bytes())
        };
        let first = "200 OK\r\nDate: 1\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(judged(first), Judgement::Whole(9 + first.len()));
        assert!(matches!(judged("200 OK\r\nDate: 2345\r\nContent-Length: 2\r\n\r\nab"), Judgement::Whole(_)));
        assert!(matches!(judged("200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"), Judgement::Last(_)));
        assert_eq!(judged("200 OK\r\nContent-Length: 2\r\n\r\nax"), Judgement::Wrong(1));
        assert_eq!(judged("502 Bad Gateway\r\nContent-Length: 4\r\n\r\nabcd"), Judgement::Wrong(3));
        assert_eq!(expected.odd().as_deref(), Some("an answer had status 200 and 2 bytes, the first one status 200 and 2 bytes"));
    }
}
