//! The output of a callback.

use super::asks::{Asks, HandshakeKind, Statements};
use std::fmt;
use std::io;

/// Bytes to send. The buffer belongs to the loop, not to the connection: bytes that the kernel does not take at once are copied by the loop.
///
/// Text is written with `write!` and `writeln!`, which need no import here and have no result, because nothing can fail. An output is also an
/// [`io::Write`] and a [`fmt::Write`], for functions that write to one, such as an encoder; they never fail either.
///
/// ```
/// use sockdrawer::Output;
///
/// let mut out = Output::default();
/// writeln!(out, "OK {}", 42);
/// std::io::copy(&mut &b"and bytes\n"[..], &mut out)?;
/// assert_eq!(out.bytes(), b"OK 42\nand bytes\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Default)]
pub struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Unsent bytes of this connection from before.
    pub(crate) backlog: usize,
    pub(crate) high_water: usize,
    /// A next build takes the connections over, which move as one set: those that are made now are opened there.
    pub(crate) leaves: bool,
    /// Requests of the callback beside its step; nearly always none.
    pub(crate) asks: Asks,
    /// A tag or a report of the callback about its connection; rare.
    pub(crate) said: Option<Box<Statements>>,
}

impl Output {
    /// Returns an empty output with this high-water mark in bytes, for a layer's inner protocol.
    pub fn with_high_water(high_water: usize) -> Output {
        Output { high_water, ..Output::default() }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends text: `write!` and `writeln!` call this.
    ///
    /// # Panics
    /// When a value that is written says that it cannot be, as with [`format!`].
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        fmt::Write::write_fmt(self, text).expect("a value that is written has a text");
    }

    /// Returns the bytes appended since the callback began.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes appended since the callback began, to change in place: a prepared block is appended at once and its numbers written into it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns the box for what is said beside a step.
    pub(crate) fn say(&mut self) -> &mut Statements {
        self.asks.add(Asks::SAID);
        self.said.get_or_insert_default()
    }

    /// Counts a handshake, for layers, if it is one that counts.
    pub(crate) fn count_handshake(&mut self, kind: Option<HandshakeKind>, completed: bool) {
        if kind.is_some() {
            self.say().handshakes.push(kind.filter(|_| completed));
        }
    }

    /// Discards what was appended and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the number of unsent bytes of this connection: those from before, and those that were appended since.
    pub fn unsent(&self) -> usize {
        self.backlog + self.bytes.len()
    }

    /// Bytes left below the high-water mark, unsent bytes counted. Advice: more is kept too, but `received` then waits until the
    /// peer has read, unless the service is [`Receiving::Always`](super::Receiving::Always); [`Protocol::writable`](super::Protocol::writable) tells
    /// when it has.
    pub fn room(&self) -> usize {
        self.high_water.saturating_sub(self.unsent())
    }
}

impl io::Write for Output {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.push(bytes);
        Ok(())
    }

    /// Does nothing: what was appended leaves when the callback returns.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Write for Output {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes as code does that knows no output.
    fn written(to: &mut impl io::Write, text: &mut impl fmt::Write) -> io::Result<()> {
        write!(to, "{:>4}", 7)?;
        to.write_all(b"")?;
        assert_eq!((to.write(b"a")?, to.write(b"")?), (1, 0));
        to.flush()?;
        text.write_char('ü').and_then(|()| text.write_str("")).map_err(io::Error::other)
    }

    #[test]
    fn an_output_is_a_writer_of_bytes_and_of_text() {
        let (mut bytes, mut text) = (Output::default(), Output::with_high_water(100));
        written(&mut bytes, &mut text).expect("it never fails");
        assert_eq!((bytes.bytes(), text.bytes()), (&b"   7a"[..], "ü".as_bytes()));
        writeln!(text, "{}:{:02}", 1, 2);
        assert_eq!((text.bytes(), text.unsent(), text.room()), ("ü1:02\n".as_bytes(), 7, 93));
    }

    /// Both traits may be in scope.
    #[test]
    fn a_text_is_written_without_a_result_in_any_scope() {
        use std::{fmt::Write as _, io::Write as _};
        let mut out = Output::default();
        write!(out, "x");
        assert_eq!((out.write(b"y").expect("it never fails"), out.write_str("z")), (1, Ok(())));
        assert_eq!(out.bytes(), b"xyz");
    }
}
