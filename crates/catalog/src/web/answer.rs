//! Answers: whole, streamed by code that writes them, or streamed by what a group is told.

use super::Request;
use sockdrawer::Group;
use std::fmt;
use std::io::{self, Write};

/// Bytes of a streamed answer that are sent together.
const CHUNK: usize = 16 * 1024;
/// Maximum of bytes that a loop sends of an answer, so that no thread waits for a client that does not read.
const MAX_UNSENT: usize = 512 * 1024;

type Stream = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// An answer.
pub struct Answer {
    status: u16,
    kind: &'static str,
    fields: Vec<(&'static str, String)>,
    body: Body,
}

enum Body {
    Whole(Vec<u8>),
    Stream(Stream),
    Group(Group),
}

/// Extent to which an answer is written.
pub(super) enum WrittenAnswer {
    /// The whole answer.
    Sent,
    /// Nothing is written: these bytes are the connection's to send.
    Unsent(Vec<u8>),
    /// The head: what this group is told follows.
    Group(Group),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Answer {
    /// Creates a whole answer, with its `Content-Type`.
    pub fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, kind, fields: Vec::new(), body: Body::Whole(body.into()) }
    }

    /// Creates an answer of plain text.
    pub fn text(status: u16, text: impl Into<String>) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", text.into())
    }

    /// Creates an answer that is an object with one key, `error`: what, why, what to do, in a line.
    pub fn error(status: u16, line: impl fmt::Display) -> Answer {
        let mut text = String::new();
        for sign in line.to_string().chars() {
            match sign {
                '"' | '\\' => text.extend(['\\', sign]),
                sign if sign.is_control() => text.push(' '),
                sign => text.push(sign),
            }
        }
        Answer::new(status, "application/json", format!("{{\"error\":\"{text}\"}}\n"))
    }

    /// Creates an answer that `write` writes while it is sent. An error of it ends the connection: the client sees that the answer is not whole.
    pub fn stream(kind: &'static str, write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Answer {
        Answer { status: 200, kind, fields: Vec::new(), body: Body::Stream(Box::new(write)) }
    }

    /// Creates an answer that goes on until the client or the pool ends it: all that is published to the group.
    pub fn group(kind: &'static str, group: Group) -> Answer {
        Answer { status: 200, kind, fields: Vec::new(), body: Body::Group(group) }
    }

    /// Adds a field to the head.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.fields.push((name, value.into()));
        self
    }

    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the bytes of a whole answer after which the connection ends; without the body where only the head is asked for. A stream has none.
    pub fn bytes(&self, request: &Request) -> Vec<u8> {
        let mut bytes = self.head(false, true);
        if !request.wants_head {
            bytes.extend(self.body_bytes());
        }
        bytes
    }

    pub(super) fn body_bytes(&self) -> &[u8] {
        if let Body::Whole(bytes) = &self.body { bytes } else { &[] }
    }

    pub(super) fn head(&self, in_chunks: bool, closes: bool) -> Vec<u8> {
        let Answer { status, kind, fields, .. } = self;
        let mut head = format!("HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\n", reason(*status));
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        if in_chunks {
            head += "Transfer-Encoding: chunked\r\n";
        } else {
            head += &format!("Content-Length: {}\r\n", self.body_bytes().len());
        }
        head += if closes { "Connection: close\r\n\r\n" } else { "\r\n" };
        head.into_bytes()
    }

    /// Writes it, unless the connection does: what is short and whole it sends, and what a group is told once it has joined that.
    pub(super) fn write(self, request: &Request, closes: bool, to: &mut impl Write) -> io::Result<WrittenAnswer> {
        let in_chunks = !matches!(self.body, Body::Whole(_));
        let mut head = self.head(in_chunks, closes);
        if request.wants_head {
            return Ok(WrittenAnswer::Unsent(head));
        }
        match self.body {
            Body::Whole(body) => {
                head.extend(body);
                if head.len() <= MAX_UNSENT {
                    return Ok(WrittenAnswer::Unsent(head));
                }
                to.write_all(&head)?;
                Ok(WrittenAnswer::Sent)
            }
            Body::Stream(write) => {
                to.write_all(&head)?;
                let mut chunks = io::BufWriter::with_capacity(CHUNK, Chunks(to));
                write(&mut chunks)?;
                let chunks = chunks.into_inner().map_err(io::IntoInnerError::into_error)?;
                chunks.0.write_all(b"0\r\n\r\n")?;
                Ok(WrittenAnswer::Sent)
            }
            Body::Group(group) => {
                to.write_all(&head)?;
                Ok(WrittenAnswer::Group(group))
            }
        }
    }
}

/// Writer of which each write is a chunk.
struct Chunks<'a, W: Write>(&'a mut W);

impl<W: Write> Write for Chunks<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
            self.0.write_all(&chunk)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
