//! The input of a callback.

use super::Codec;

#[cfg(test)]
mod tests;

/// Bytes received and not yet taken. Mutable, so that a layer can decrypt in place.
///
/// Bytes that are taken live as long as the input: several pieces can be held while more is taken. What is not taken when the callback
/// returns comes again, with what follows it.
///
/// ```
/// use sockdrawer::Input;
///
/// let mut received = *b"SET color\r\n\x00\x03redSET si";
/// let mut input = Input::new(&mut received);
/// let command = input.line();
/// let value = input.prefixed_u16(100)?;
/// assert_eq!((command, value.as_deref()), (Some(&b"SET color"[..]), Some(&b"red"[..])));
/// // The rest is no whole line yet.
/// assert_eq!((input.line(), input.bytes()), (None, &b"SET si"[..]));
/// # Ok::<(), sockdrawer::codec::TooLong>(())
/// ```
pub struct Input<'a> {
    /// Bytes that were not taken.
    bytes: &'a mut [u8],
    /// Number of bytes that there were.
    length: usize,
    /// Number of those, from the first, that were taken or hold no line break.
    searched: usize,
}

/// A message is longer than its reader allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes or more, at most {max} are allowed")]
pub struct TooLong {
    /// The length in bytes that the message has at least.
    pub length: usize,
    /// The maximum in bytes.
    pub max: usize,
}

impl<'a> Input<'a> {
    /// Makes an input of all these bytes, none of them taken.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Input<'a> {
        Input::searched(bytes, 0)
    }

    /// Makes an input whose first `searched` bytes hold no line break.
    #[inline]
    pub(crate) fn searched(bytes: &'a mut [u8], searched: usize) -> Input<'a> {
        Input { length: bytes.len(), bytes, searched }
    }

    /// Returns the bytes that were received and not taken.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns the bytes that were received and not taken, to change in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.searched = 0;
        self.bytes
    }

    /// Takes the first `count` bytes and returns them.
    ///
    /// # Panics
    /// When there are fewer than `count`: a bug of the protocol, which ends its connection.
    #[inline]
    #[track_caller]
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        if count > self.bytes.len() {
            took_too_much(count, self.bytes.len());
        }
        let (piece, rest) = std::mem::take(&mut self.bytes).split_at_mut(count);
        self.bytes = rest;
        piece
    }

    /// Takes all bytes and returns them.
    #[inline]
    pub fn take_all(&mut self) -> &'a [u8] {
        let all: &'a mut [u8] = std::mem::take(&mut self.bytes);
        all
    }

    /// Takes `count` bytes and returns them; None, and nothing is taken, while there are fewer.
    #[inline]
    pub fn exactly(&mut self, count: usize) -> Option<&'a [u8]> {
        (count <= self.bytes.len()).then(|| self.take(count))
    }

    /// Takes the next line with its end, `\n` or `\r\n`, and returns it without; None, and nothing is taken, where no line is whole. A `\r`
    /// elsewhere belongs to the line. Lines have no encoding and, up to the bound on [untaken input](crate::Settings::max_partial), any
    /// length: [`Lines`](crate::codec::Lines) has a maximum of its own.
    ///
    /// A line that arrives in many pieces costs no more than one that arrives at once: what was searched for its end is not searched again.
    ///
    /// ```
    /// # use sockdrawer::Input;
    /// let mut received = *b"HELO example.org\r\n\nQUI";
    /// let mut input = Input::new(&mut received);
    /// let mut lines = Vec::new();
    /// while let Some(line) = input.line() {
    ///     lines.push(line);
    /// }
    /// assert_eq!(lines, [&b"HELO example.org"[..], b""]);
    /// assert_eq!(input.bytes(), b"QUI");
    /// ```
    #[inline]
    pub fn line(&mut self) -> Option<&'a [u8]> {
        let searched = self.bytes_without_line();
        let Some(at) = find(b'\n', &self.bytes[searched..]) else {
            self.searched = self.length;
            return None;
        };
        let line = self.take(searched + at + 1);
        let line = &line[..line.len() - 1];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Takes the bytes up to `delimiter`, and the delimiter, and returns those before it; None, and nothing is taken, where it does not occur.
    /// Unlike [`Input::line`], what was kept is searched from its start each time.
    ///
    /// ```
    /// # use sockdrawer::Input;
    /// let mut received = *b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\nGET";
    /// let mut input = Input::new(&mut received);
    /// assert_eq!(input.until(b"\r\n\r\n"), Some(&b"GET / HTTP/1.1\r\nHost: example.org"[..]));
    /// assert_eq!(input.until(b"\r\n\r\n"), None);
    /// ```
    ///
    /// # Panics
    /// When `delimiter` is empty: a bug of the protocol, which ends its connection.
    #[track_caller]
    pub fn until(&mut self, delimiter: &[u8]) -> Option<&'a [u8]> {
        let at = match delimiter {
            [] => panic!("a protocol looked for an empty delimiter: it has at least one byte"),
            [byte] => find(*byte, self.bytes),
            longer => memchr::memmem::find(self.bytes, longer),
        }?;
        let piece = self.take(at + delimiter.len());
        Some(&piece[..at])
    }

    /// Takes a length of two bytes, big-endian, and as many bytes as it says, and returns those; None, and nothing is taken, while they
    /// are not all there.
    ///
    /// ```
    /// # use sockdrawer::Input;
    /// let mut received = *b"\x00\x05hello\x00\x00\x00\x09wor";
    /// let mut input = Input::new(&mut received);
    /// assert_eq!(input.prefixed_u16(1024)?.as_deref(), Some(&b"hello"[..]));
    /// assert_eq!(input.prefixed_u16(1024)?.as_deref(), Some(&b""[..]));
    /// assert_eq!(input.prefixed_u16(1024)?, None);
    /// assert_eq!(input.prefixed_u16(8).unwrap_err().to_string(), "a message of 9 bytes or more, at most 8 are allowed");
    /// # Ok::<(), sockdrawer::codec::TooLong>(())
    /// ```
    ///
    /// # Errors
    /// When the length is more than `max`; nothing is taken. `max` and two more must be within the bound on
    /// [untaken input](crate::Settings::max_partial), or a message of that length ends the connection before it is whole.
    #[inline]
    pub fn prefixed_u16(&mut self, max: usize) -> Result<Option<&'a [u8]>, TooLong> {
        let Some(length) = self.bytes.first_chunk() else { return Ok(None) };
        self.prefixed(2, u16::from_be_bytes(*length).into(), max)
    }

    /// Reads as [`Input::prefixed_u16`] does, with a length of four bytes, big-endian.
    ///
    /// # Errors
    /// When the length is more than `max`; nothing is taken. `max` and four more must be within the bound on
    /// [untaken input](crate::Settings::max_partial).
    #[inline]
    pub fn prefixed_u32(&mut self, max: usize) -> Result<Option<&'a [u8]>, TooLong> {
        let Some(length) = self.bytes.first_chunk() else { return Ok(None) };
        self.prefixed(4, u32::from_be_bytes(*length) as usize, max)
    }

    fn prefixed(&mut self, prefix: usize, length: usize, max: usize) -> Result<Option<&'a [u8]>, TooLong> {
        if length > max {
            return Err(TooLong { length, max });
        }
        if self.bytes.len() - prefix < length {
            return Ok(None);
        }
        self.take(prefix);
        Ok(Some(self.take(length)))
    }

    /// Returns the next message of a codec; None where none is whole. After an error the rest of the input is taken: a stream cannot be trusted
    /// beyond it.
    ///
    /// # Panics
    /// When the codec returns a message and took nothing, which would not end: a bug of the codec, which ends the connection.
    pub fn decode<C: Codec>(&mut self, codec: &mut C) -> Option<Result<C::Received<'a>, C::Error>> {
        let before = self.taken();
        match codec.decode(self) {
            Ok(None) => None,
            Ok(Some(message)) => {
                assert!(self.taken() > before, "a codec returned a message and took nothing");
                Some(Ok(message))
            }
            Err(error) => {
                self.take_all();
                Some(Err(error))
            }
        }
    }

    /// Returns the number of bytes taken.
    #[inline]
    pub fn taken(&self) -> usize {
        self.length - self.bytes.len()
    }

    /// Returns true where all bytes were taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns how many of the bytes that were not taken, from the first, are known to hold no line break.
    pub(crate) fn bytes_without_line(&self) -> usize {
        self.searched.saturating_sub(self.taken())
    }

    /// Returns true where what was not taken was searched to its end, and holds no line break.
    pub(crate) fn has_no_line(&self) -> bool {
        self.bytes_without_line() == self.bytes.len()
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn took_too_much(count: usize, there: usize) -> ! {
    panic!("a protocol took {count} bytes of its input, where {there} are left: ask Input::bytes, or take by Input::exactly")
}

fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    let found = memchr::memchr(byte, bytes);
    #[cfg(test)]
    SEARCHED.set(SEARCHED.get() + found.map_or(bytes.len(), |at| at + 1));
    found
}

#[cfg(test)]
thread_local!(static SEARCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

/// Returns the number of bytes that were searched on this thread.
#[cfg(test)]
pub(crate) fn input_searched() -> usize {
    SEARCHED.get()
}
