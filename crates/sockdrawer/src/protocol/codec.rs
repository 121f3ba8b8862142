//! Messages out of a stream of bytes, and back into it.

use super::{Input, Output, TooLong};

/// The messages of a protocol: how they are told apart in the input, and written to the output. A codec is state of one connection and
/// belongs into its protocol; [`Input::decode`] asks it for one message after another.
///
/// A codec is worth its trait where a server and its clients share it, or where its tests are its own. It is not for input that is passed
/// on as it comes, as by an echo or a relay, not for messages larger than is kept
/// ([`Settings::max_partial`](crate::Settings::max_partial)), which a protocol takes in pieces, and not for what one method of [`Input`]
/// does already. What changes all bytes, such as encryption, is a [layer](crate::layer).
///
/// ```
/// use sockdrawer::codec::{Codec, Lines, TooLong};
/// use sockdrawer::testing::Driver;
/// use sockdrawer::{Context, Input, Output, Peer, Protocol, Service, Step};
///
/// /// Whole numbers, one a line.
/// struct Numbers(Lines);
///
/// #[derive(Debug, thiserror::Error)]
/// enum NoNumber {
///     #[error(transparent)]
///     TooLong(#[from] TooLong),
///     #[error("a line is no number")]
///     Malformed,
/// }
///
/// impl Codec for Numbers {
///     type Received<'a> = u64;
///     type Sent<'a> = u64;
///     type Error = NoNumber;
///     fn decode(&mut self, input: &mut Input<'_>) -> Result<Option<u64>, NoNumber> {
///         let Some(line) = self.0.decode(input)? else { return Ok(None) };
///         let number = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
///         number.map(Some).ok_or(NoNumber::Malformed)
///     }
///     fn encode(&mut self, number: u64, out: &mut Output) {
///         writeln!(out, "{number}");
///     }
/// }
///
/// struct Sums {
///     codec: Numbers,
///     sum: u64,
/// }
///
/// impl Protocol for Sums {
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
///         while let Some(number) = input.decode(&mut self.codec) {
///             match number {
///                 Ok(number) => self.sum = self.sum.wrapping_add(number),
///                 Err(error) => {
///                     cx.report(error.to_string());
///                     return Step::Close;
///                 }
///             }
///             self.codec.encode(self.sum, cx.out());
///         }
///         Step::Continue
///     }
/// }
/// # struct Summing;
/// # impl Service for Summing {
/// #     type Protocol = Sums;
/// #     fn open(&self, _peer: &Peer) -> Sums {
/// #         Sums { codec: Numbers(Lines::up_to(20)), sum: 0 }
/// #     }
/// # }
///
/// let mut connection = Driver::open(Summing);
/// connection.receive_split(b"20\n22\r\n");
/// assert_eq!(connection.sent(), b"20\n42\n");
/// connection.receive(b"two\n1\n");
/// assert_eq!((connection.sent(), connection.reports()), (vec![], &["a line is no number".to_owned()][..]));
/// ```
pub trait Codec {
    /// A message that was received; it may borrow from the input.
    type Received<'a>;
    /// A message to send. A server and its clients may have messages of different types.
    type Sent<'a>;
    /// Reason why input is malformed.
    type Error: std::error::Error;

    /// Takes the next message from the input; None, and nothing is taken, while it is not whole.
    ///
    /// # Errors
    /// When the input is malformed. No message follows: the protocol should end the connection.
    fn decode<'a>(&mut self, input: &mut Input<'a>) -> Result<Option<Self::Received<'a>>, Self::Error>;

    /// Appends a message to the output. A message that cannot be sent is a bug of the protocol and may panic, which ends its connection.
    fn encode(&mut self, message: Self::Sent<'_>, out: &mut Output);
}

/// Lines with a maximum length, ended by `\n` or `\r\n`; those that are sent end with `\n`.
///
/// ```
/// use sockdrawer::Input;
/// use sockdrawer::codec::{Lines, TooLong};
///
/// let mut received = *b"one\ntwo\r\nthree and more";
/// let (mut input, mut lines) = (Input::new(&mut received), Lines::up_to(10));
/// assert_eq!(input.decode(&mut lines), Some(Ok(&b"one"[..])));
/// assert_eq!(input.decode(&mut lines), Some(Ok(&b"two"[..])));
/// assert_eq!(input.decode(&mut lines), Some(Err(TooLong { length: 14, max: 10 })));
/// assert_eq!(input.decode(&mut lines), None);
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    max: usize,
}

impl Lines {
    /// Lines of at most `max` bytes, their ends not counted. More than a connection keeps
    /// ([`Settings::max_partial`](crate::Settings::max_partial)) cannot be received.
    pub fn up_to(max: usize) -> Lines {
        Lines { max }
    }

    fn within(&self, line: &[u8]) -> Result<(), TooLong> {
        let (length, max) = (line.len(), self.max);
        if length > max { Err(TooLong { length, max }) } else { Ok(()) }
    }
}

impl Codec for Lines {
    type Received<'a> = &'a [u8];
    type Sent<'a> = &'a [u8];
    type Error = TooLong;

    fn decode<'a>(&mut self, input: &mut Input<'a>) -> Result<Option<&'a [u8]>, TooLong> {
        let Some(line) = input.line() else {
            // The line's end may have begun.
            self.within(input.bytes().strip_suffix(b"\r").unwrap_or(input.bytes()))?;
            return Ok(None);
        };
        self.within(line)?;
        Ok(Some(line))
    }

    /// # Panics
    /// When the line holds `\n`, and would be received as two, or is longer than the maximum: a bug of the protocol, which ends its connection.
    fn encode(&mut self, line: &[u8], out: &mut Output) {
        assert!(memchr::memchr(b'\n', line).is_none(), "a line holds a line break");
        assert!(line.len() <= self.max, "a line of {} bytes, at most {} are allowed", line.len(), self.max);
        out.push(line);
        out.push(b"\n");
    }
}

/// Messages with a maximum length, each behind its length as four bytes, big-endian.
///
/// ```
/// use sockdrawer::codec::{Codec, Prefixed, TooLong};
/// use sockdrawer::{Input, Output};
///
/// let (mut messages, mut out) = (Prefixed::up_to(1024), Output::default());
/// messages.encode(b"hello", &mut out);
/// assert_eq!(out.bytes(), b"\x00\x00\x00\x05hello");
///
/// let mut input = Input::new(out.bytes_mut());
/// assert_eq!(input.decode(&mut messages), Some(Ok(&b"hello"[..])));
/// assert_eq!(input.decode(&mut messages), None);
/// ```
#[derive(Clone, Debug)]
pub struct Prefixed {
    max: usize,
}

impl Prefixed {
    /// Messages of at most `max` bytes. With the four of the length they must fit into what a connection keeps
    /// ([`Settings::max_partial`](crate::Settings::max_partial)).
    pub fn up_to(max: usize) -> Prefixed {
        Prefixed { max }
    }
}

impl Codec for Prefixed {
    type Received<'a> = &'a [u8];
    type Sent<'a> = &'a [u8];
    type Error = TooLong;

    fn decode<'a>(&mut self, input: &mut Input<'a>) -> Result<Option<&'a [u8]>, TooLong> {
        input.prefixed_u32(self.max)
    }

    /// # Panics
    /// When the message is longer than the maximum, or than a length of four bytes can say: a bug of the protocol, which ends its connection.
    fn encode(&mut self, message: &[u8], out: &mut Output) {
        assert!(message.len() <= self.max, "a message of {} bytes, at most {} are allowed", message.len(), self.max);
        let length = u32::try_from(message.len()).expect("a message has at most 4 GiB");
        out.push(&length.to_be_bytes());
        out.push(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(max: usize, bytes: &[u8]) -> (Vec<Result<Vec<u8>, usize>>, usize) {
        let (mut bytes, mut codec) = (bytes.to_vec(), Lines::up_to(max));
        let mut input = Input::new(&mut bytes);
        let mut seen = Vec::new();
        while let Some(line) = input.decode(&mut codec) {
            seen.push(line.map(<[u8]>::to_vec).map_err(|error| error.length));
        }
        (seen, input.bytes().len())
    }

    #[test]
    fn a_line_is_measured_without_its_end() {
        assert_eq!(lines(3, b"abc\nabc\r\n\n\r\nabc"), (vec![Ok(b"abc".into()), Ok(b"abc".into()), Ok(vec![]), Ok(vec![])], 3));
        assert_eq!(lines(3, b"abc\r"), (vec![], 4), "the end may have begun");
        assert_eq!(lines(3, b"abcd"), (vec![Err(4)], 0));
        assert_eq!(lines(3, b"abc\r\r"), (vec![Err(4)], 0), "only one return belongs to the end");
        assert_eq!(lines(3, b"a\rb\nabcd\na\n"), (vec![Ok(b"a\rb".into()), Err(4)], 0), "nothing comes after an error");
        assert_eq!(lines(0, b"\n\r\nx"), (vec![Ok(vec![]), Ok(vec![]), Err(1)], 0));
    }

    #[test]
    fn what_a_codec_sends_it_receives() {
        let (mut lines, mut messages) = (Lines::up_to(5), Prefixed::up_to(5));
        for message in [&b""[..], b"x", b"a\rb", b"12345"] {
            let mut out = Output::default();
            lines.encode(message, &mut out);
            messages.encode(message, &mut out);
            let mut input = Input::new(out.bytes_mut());
            assert_eq!(input.decode(&mut lines), Some(Ok(message)));
            assert_eq!(input.decode(&mut messages).map(|message| message.map(|bytes| bytes.to_vec())), Some(Ok(message.into())));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn what_could_not_be_received_is_not_sent() {
        fn refuses<C: for<'a> Codec<Sent<'a> = &'a [u8]>>(mut codec: C, message: &[u8]) -> bool {
            let mut out = Output::default();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| codec.encode(message, &mut out))).is_err()
        }
        assert!(
            refuses(Lines::up_to(9), b"two\nlines") && refuses(Lines::up_to(3), b"four") && refuses(Prefixed::up_to(3), b"four")
        );
        assert!(!refuses(Lines::up_to(4), b"four") && !refuses(Prefixed::up_to(4), b"four"));
    }

    #[test]
    fn a_huge_length_is_an_error_before_its_bytes_come() {
        let mut bytes = [0xff; 4];
        let error = Input::new(&mut bytes).decode(&mut Prefixed::up_to(1 << 20)).expect("an error").expect_err("too long");
        assert_eq!(error, TooLong { length: u32::MAX as usize, max: 1 << 20 });
    }

    /// Gives messages for nothing.
    struct Endless;

    impl Codec for Endless {
        type Received<'a> = ();
        type Sent<'a> = ();
        type Error = TooLong;
        fn decode(&mut self, _input: &mut Input<'_>) -> Result<Option<()>, TooLong> {
            Ok(Some(()))
        }
        fn encode(&mut self, _message: (), _out: &mut Output) {}
    }

    #[test]
    #[should_panic(expected = "took nothing")]
    fn a_codec_that_takes_nothing_does_not_spin_a_loop() {
        let _ = Input::new(&mut [1, 2, 3]).decode(&mut Endless);
    }
}
