//! Questions with a number in them, and answers that must have the number of their question: `PING {n}\n` and `PONG {n}\n`.
//!
//! ```
//! use sockdrawer_catalog::Answer;
//! use sockdrawer_catalog::dialogue::{Reading, Reply, Template};
//!
//! let (ping, pong): (Template, Reply) = (r"PING {n}\n".parse()?, r"PONG {n}\n".parse()?);
//! assert_eq!(ping.bytes(7), b"PING 7\n");
//! let mut reading = Reading::default();
//! assert_eq!(pong.take(&mut reading, b"PONG 7\n"), (7, Answer::Complete));
//! assert_eq!(reading.number(), Some(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::{Expect, MAX_ANSWER, Pattern, Seen, WrongExpect};
use crate::escapes::{self, WrongEscape};
use crate::pace::Answer;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The place of the number in a text.
const NUMBER: &str = "{n}";
/// The place of the number of the connection, which all of its questions share.
const OF_CONNECTION: &str = "{c}";

/// Returns the text with `{n}` for each place of its number, and whether that is the connection's. None: it has both.
fn told(text: &str) -> Option<(Cow<'_, str>, bool)> {
    match (text.contains(NUMBER), text.contains(OF_CONNECTION)) {
        (true, true) => None,
        (_, false) => Some((text.into(), false)),
        (false, true) => Some((text.replace(OF_CONNECTION, NUMBER).into(), true)),
    }
}

/// Returns the place of the number as it is written.
fn place(of_connection: bool) -> &'static str {
    if of_connection { OF_CONNECTION } else { NUMBER }
}

/// Bytes to send. In text: the bytes with the escapes of [`escapes`], and `{n}` for each place of the number, or `{c}` if that is the number of the
/// connection; `\x7bn}` is `{n}` itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The bytes between the places of the number.
    parts: Vec<Vec<u8>>,
    of_connection: bool,
}

/// The reason why a text is no [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongTemplate {
    /// There is nothing to send.
    #[error("no bytes: write what is sent")]
    Empty,
    /// Both numbers are in it.
    #[error("it has {{n}} and {{c}}: write one of them, the other in a question of its own")]
    TwoNumbers,
    /// The bytes cannot be read.
    #[error(transparent)]
    Escape(#[from] WrongEscape),
}

impl Template {
    /// Returns the bytes with this number.
    pub fn bytes(&self, number: u64) -> Vec<u8> {
        self.parts.join(number.to_string().as_bytes())
    }

    /// Returns whether the number is in it.
    pub fn has_number(&self) -> bool {
        self.parts.len() > 1
    }

    /// Returns whether its number is that of the connection.
    pub fn is_of_connection(&self) -> bool {
        self.of_connection
    }
}

impl FromStr for Template {
    type Err = WrongTemplate;

    fn from_str(text: &str) -> Result<Template, WrongTemplate> {
        let (text, of_connection) = told(text).ok_or(WrongTemplate::TwoNumbers)?;
        let parts = text.split(NUMBER).map(escapes::parse).collect::<Result<Vec<_>, _>>()?;
        if text.is_empty() { Err(WrongTemplate::Empty) } else { Ok(Template { parts, of_connection }) }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(|part| literal(&escapes::format(part))).collect();
        f.write_str(&parts.join(place(self.of_connection)))
    }
}

/// Returns a text in which no number has a place.
fn literal(text: &str) -> String {
    text.replace(NUMBER, r"\x7bn}").replace(OF_CONNECTION, r"\x7bc}")
}

/// An answer with a number. In text: an [`Expect`], with `{n}` for each place of the number, or `{c}` if that is the number of the connection, which has
/// all digits that come there.
///
/// In a regular expression `{n}` parts it into expressions that follow each other: each begins where the one before has its first match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pieces: Vec<Piece>,
    of_connection: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Number,
    Other(Expect),
}

impl Reply {
    /// Returns whether a number is in it.
    pub fn has_number(&self) -> bool {
        self.pieces.contains(&Piece::Number)
    }

    /// Returns whether its number is that of the connection.
    pub fn is_of_connection(&self) -> bool {
        self.of_connection
    }

    /// Takes the bytes that came next, up to the answer's end. Returns how many bytes those are. Numbers that differ are wrong.
    pub fn take(&self, reading: &mut Reading, bytes: &[u8]) -> (usize, Answer) {
        let mut at = 0;
        while let Some(piece) = self.pieces.get(reading.piece) {
            let rest = &bytes[at..];
            let (taken, answer) = match piece {
                Piece::Number => reading.digits(rest),
                Piece::Other(expect) => expect.take(reading.seen.get_or_insert_with(|| expect.nothing_yet()), rest),
            };
            at += taken;
            if answer != Answer::Complete {
                return (at, answer);
            }
            (reading.piece, reading.seen) = (reading.piece + 1, None);
        }
        (at, Answer::Complete)
    }
}

/// The state of an answer that comes in pieces, and the number in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    piece: usize,
    seen: Option<Seen>,
    /// The number whose digits come.
    coming: Option<u64>,
    number: Option<u64>,
}

impl Reading {
    /// Returns the number of the answer, once it has come.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Takes digits up to the first byte that is none.
    fn digits(&mut self, bytes: &[u8]) -> (usize, Answer) {
        for (index, byte) in bytes.iter().enumerate() {
            let digit = char::from(*byte).to_digit(10).map(u64::from);
            self.coming = match (self.coming, digit) {
                (Some(came), None) => {
                    let differs = self.number.is_some_and(|number| number != came);
                    (self.number, self.coming) = (Some(came), None);
                    return (index, if differs { Answer::Wrong } else { Answer::Complete });
                }
                (None, Some(digit)) => Some(digit),
                // No number is sent with a zero before it.
                (Some(0), Some(_)) | (None, None) => return (index, Answer::Wrong),
                (Some(came), Some(digit)) => match came.checked_mul(10).and_then(|came| came.checked_add(digit)) {
                    None => return (index, Answer::Wrong),
                    longer => longer,
                },
            };
        }
        (bytes.len(), Answer::Partial)
    }
}

impl FromStr for Reply {
    type Err = WrongExpect;

    fn from_str(text: &str) -> Result<Reply, WrongExpect> {
        let (text, of_connection) = told(text).ok_or(WrongExpect::TwoNumbers)?;
        if !text.contains(NUMBER) {
            return Ok(Reply { pieces: vec![Piece::Other(text.parse()?)], of_connection });
        }
        let pattern = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let parts: Vec<&str> = pattern.unwrap_or(&text).split(NUMBER).collect();
        let [first, between @ .., last] = &parts[..] else { unreachable!("the number is in it") };
        if last.is_empty() {
            return Err(WrongExpect::NumberAtEnd);
        }
        if between.contains(&"") {
            return Err(WrongExpect::NumberBesideNumber);
        }
        let mut pieces = Vec::new();
        if !first.is_empty() {
            pieces.push(Piece::Other(part(first, pattern.is_some())?));
        }
        for text in parts.iter().skip(1) {
            let other = part(text, pattern.is_some())?;
            if matches!(&other, Expect::Literal(bytes) if bytes[0].is_ascii_digit()) {
                return Err(WrongExpect::NumberBesideNumber);
            }
            pieces.extend([Piece::Number, Piece::Other(other)]);
        }
        Ok(Reply { pieces, of_connection })
    }
}

fn part(text: &str, in_pattern: bool) -> Result<Expect, WrongExpect> {
    if in_pattern {
        return Pattern::between(text).map(Expect::Pattern);
    }
    match escapes::parse(text)? {
        bytes if bytes.len() > MAX_ANSWER => Err(WrongExpect::TooLong),
        bytes => Ok(Expect::Literal(bytes)),
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [Piece::Other(expect)] = &self.pieces[..] {
            return f.write_str(&literal(&expect.to_string()));
        }
        let slash = if self.pieces.iter().any(|piece| matches!(piece, Piece::Other(Expect::Pattern(_)))) { "/" } else { "" };
        f.write_str(slash)?;
        for piece in &self.pieces {
            match piece {
                Piece::Number => f.write_str(place(self.of_connection))?,
                Piece::Other(Expect::Pattern(pattern)) => write!(f, "{pattern}")?,
                Piece::Other(Expect::Literal(bytes)) => f.write_str(&literal(&escapes::format(bytes)))?,
            }
        }
        f.write_str(slash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Reads these bytes cut at each place. Returns the length of a right answer, the judgement and the number.
    fn read(text: &str, bytes: &[u8]) -> (usize, Answer, Option<u64>) {
        let expected = reply(text);
        let mut results = (0..=bytes.len()).map(|at| {
            let (mut reading, (first, rest)) = (Reading::default(), bytes.split_at(at));
            match expected.take(&mut reading, first) {
                (taken, Answer::Partial) => {
                    assert_eq!(taken, first.len(), "{text}");
                    let (more, answer) = expected.take(&mut reading, rest);
                    (if answer == Answer::Wrong { 0 } else { taken + more }, answer, reading.number())
                }
                (taken, answer) => (if answer == Answer::Wrong { 0 } else { taken }, answer, reading.number()),
            }
        });
        let first = results.next().expect("one at least");
        results.enumerate().for_each(|(at, other)| assert_eq!(other, first, "{text} at {}", at + 1));
        first
    }

    #[test]
    fn a_question_has_its_number_at_each_place() {
        for (text, bytes) in
            [(r"PING {n}\n", "PING 17\n"), ("{n}", "17"), ("{n}{n}", "1717"), ("{m} {}", "{m} {}"), ("GET {c}", "GET 17")]
        {
            let template: Template = text.parse().expect(text);
            assert_eq!(template.bytes(17), bytes.as_bytes());
            assert_eq!(
                (template.to_string(), template.has_number()),
                (text.to_owned(), text.contains("{n}") || text.contains("{c}"))
            );
            assert_eq!(template.is_of_connection(), text.contains("{c}"));
        }
        let braces: Template = r"\x7bn} {n}".parse().expect("an escape");
        assert_eq!((braces.bytes(1), braces.to_string()), (b"{n} 1".to_vec(), r"\x7bn} {n}".to_owned()));
    }

    #[test]
    fn an_answer_tells_its_number_however_it_is_cut() {
        assert_eq!(read(r"PONG {n}\n", b"PONG 40\nx"), (8, Answer::Complete, Some(40)));
        assert_eq!(read("{n};", b"0;"), (2, Answer::Complete, Some(0)));
        assert_eq!(read(r"/\w+ {n} .*\n/", b"MSG 18446744073709551615 a b\n\n"), (29, Answer::Complete, Some(u64::MAX)));
        assert_eq!(read("{n},{n}.", b"7,7."), (4, Answer::Complete, Some(7)));
        assert_eq!(read("PONG.", b"PONG."), (5, Answer::Complete, None));
        assert_eq!(read("PONG {n}.", b"PONG 4").1, Answer::Partial);
    }

    #[test]
    fn another_number_or_none_is_wrong() {
        for (text, wrong) in [
            ("{n},{n}.", &b"7,8."[..]),
            ("PONG {n}.", b"PONG ."),
            ("PONG {n}.", b"PONG x"),
            ("PONG {n}.", b"PONG 07."),
            ("PONG {n}.", b"PONG 18446744073709551616."),
            ("PONG {n}.", b"PANG 1."),
            ("/(PO|PI)NG {n}[.]/", b"PING 1x"),
        ] {
            assert_eq!(read(text, wrong).1, Answer::Wrong, "{text}");
        }
    }

    #[test]
    fn written_texts_are_read_again() {
        for text in [
            r"PONG {n}\n",
            r"/a{2} {n} (b|c)\r\n/",
            "{n}.",
            r"\x7bn} {n} \x00.",
            "PONG",
            r"/\d+\n/",
            r"\x2fa/",
            "{c}.",
            r"\x7bc}",
        ] {
            assert_eq!(reply(text).to_string(), text.replace(r"\x00", r"\0"));
            assert_eq!(reply(text).has_number(), text.contains(" {n}") || text.starts_with("{n}") || text.starts_with("{c}"));
        }
        assert_eq!(reply(&reply(r"\x7bn}").to_string()), reply(r"\x7bn}"));
    }

    #[test]
    fn texts_that_leave_the_number_open_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "at least one byte"),
            ("{n} {c}.", "it has {n} and {c}"),
            ("PONG {n}", "whose end nothing tells"),
            ("/PONG {n}/", "whose end nothing tells"),
            ("{n}{n}.", "cannot be told from the digits"),
            ("{n}0.", "cannot be told from the digits"),
            (r"{n}\q", r"`\q` begins no escape"),
            ("/(a{n})b/", "unclosed group"),
            ("/a|b{n}c/", "put the alternatives into ( and )"),
            ("/{n}b|c/", "put the alternatives into ( and )"),
            ("/{n}.*/", "matches an answer without bytes"),
        ] {
            let error = text.parse::<Reply>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert_eq!("".parse::<Template>(), Err(WrongTemplate::Empty));
        assert!(r"{n}\".parse::<Template>().is_err());
    }
}
