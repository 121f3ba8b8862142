//! A question and its answer in any protocol: bytes to send, and what must come back, such as `PING\r\n` and `+PONG\r\n`.
//!
//! ```
//! use sockdrawer_catalog::dialogue::Expect;
//!
//! let pong: Expect = r"+PONG\r\n".parse()?;
//! let any_integer: Expect = r"/:\d+\r\n/".parse()?;
//! assert_eq!(any_integer.to_string(), r"/:\d+\r\n/");
//! # Ok::<(), sockdrawer_catalog::dialogue::WrongExpect>(())
//! ```

mod client;
mod numbered;
mod pattern;

pub use client::Question;
pub use numbered::{Reading, Reply, Template, WrongTemplate};
pub use pattern::Pattern;

use crate::escapes::{self, WrongEscape};
use crate::pace::Answer;
use regex_automata::util::primitives::StateID;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum length of an answer, in bytes.
pub const MAX_ANSWER: usize = 65_536;

/// Answer that is expected. In text: the bytes themselves, with the escapes of [`escapes`]; or a regular expression between slashes.
///
/// Of both it holds: the answer is complete with the first byte that makes it match, however it is cut into segments, and what
/// comes beyond answers nothing that was asked. So a pattern ends with what ends the answer: `/:\d+/` is complete after one digit,
/// `/:\d+\r\n/` after the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Expect {
    /// Bytes of the answer, at least 1 and at most [`MAX_ANSWER`].
    Literal(Vec<u8>),
    /// Bytes that match.
    Pattern(Pattern),
}

/// Reason why a text is no [`Expect`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongExpect {
    /// No bytes are no answer.
    #[error("an answer has at least one byte: write what is expected")]
    Empty,
    /// The answer is larger than any may be.
    #[error("an answer has at most {MAX_ANSWER} bytes: expect less")]
    TooLong,
    /// The bytes cannot be read.
    #[error(transparent)]
    Escape(#[from] WrongEscape),
    /// The regular expression cannot be read.
    #[error("`{pattern}` is no regular expression: {why}")]
    Pattern {
        /// Text between the slashes.
        pattern: String,
        /// Reason why it is no regular expression.
        why: String,
    },
    /// The answer ends with its number.
    #[error("it ends with {{n}}, whose end nothing tells: write what follows the number, as in `PONG {{n}}\\n`")]
    NumberAtEnd,
    /// Both numbers are in it.
    #[error("it has {{n}} and {{c}}: write one of them, the other in an answer of its own")]
    TwoNumbers,
    /// The number is followed by digits.
    #[error("{{n}} cannot be told from the digits behind it: write what stands between them")]
    NumberBesideNumber,
}

impl FromStr for Expect {
    type Err = WrongExpect;

    fn from_str(text: &str) -> Result<Expect, WrongExpect> {
        if let Some(pattern) = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            return Pattern::new(pattern).map(Expect::Pattern);
        }
        match escapes::parse(text)? {
            bytes if bytes.is_empty() => Err(WrongExpect::Empty),
            bytes if bytes.len() > MAX_ANSWER => Err(WrongExpect::TooLong),
            bytes => Ok(Expect::Literal(bytes)),
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expect::Pattern(pattern) => write!(f, "/{pattern}/"),
            Expect::Literal(bytes) => {
                let text = escapes::format(bytes);
                match text.strip_prefix('/') {
                    // With a slash at both ends it would be read as a pattern.
                    Some(rest) if rest.ends_with('/') => write!(f, r"\x2f{rest}"),
                    _ => f.write_str(&text),
                }
            }
        }
    }
}

impl TryFrom<String> for Expect {
    type Error = WrongExpect;

    fn try_from(text: String) -> Result<Expect, WrongExpect> {
        text.parse()
    }
}

impl From<Expect> for String {
    fn from(expect: Expect) -> String {
        expect.to_string()
    }
}

/// State of an answer that has come in part: the number of its bytes, and where the automaton of a pattern is.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes: u32,
    state: StateID,
}

impl Expect {
    fn nothing_yet(&self) -> Seen {
        let state = if let Expect::Pattern(pattern) = self { pattern.start() } else { StateID::ZERO };
        Seen { bytes: 0, state }
    }

    /// Takes what has come next, up to the answer's end. Returns how many bytes that is.
    fn take(&self, seen: &mut Seen, bytes: &[u8]) -> (usize, Answer) {
        let before = seen.bytes as usize;
        let fits = &bytes[..bytes.len().min(MAX_ANSWER - before)];
        let (taken, answer) = match self {
            Expect::Literal(literal) => {
                let awaited = &literal[before..];
                let taken = awaited.len().min(fits.len());
                match fits[..taken] == awaited[..taken] {
                    false => (taken, Answer::Wrong),
                    true if taken == awaited.len() => (taken, Answer::Complete),
                    true => (taken, Answer::Partial),
                }
            }
            Expect::Pattern(pattern) => pattern.step(&mut seen.state, fits),
        };
        seen.bytes = (before + taken) as u32;
        if answer == Answer::Partial && taken < bytes.len() { (taken, Answer::Wrong) } else { (taken, answer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes these bytes in two parts, cut at `at`. Returns how many of them are the answer, and what became of it.
    fn split(expect: &Expect, bytes: &[u8], at: usize) -> (usize, Answer) {
        let mut seen = expect.nothing_yet();
        let (first, rest) = bytes.split_at(at);
        match expect.take(&mut seen, first) {
            (taken, Answer::Partial) => {
                assert_eq!(taken, first.len());
                let (more, answer) = expect.take(&mut seen, rest);
                (taken + more, answer)
            }
            end => end,
        }
    }

    #[track_caller]
    fn answers(expect: &str, cases: &[(&[u8], usize, Answer)]) {
        let expect: Expect = expect.parse().expect(expect);
        for (bytes, taken, answer) in cases {
            for at in 0..=bytes.len() {
                let (got, became) = split(&expect, bytes, at);
                assert_eq!(became, *answer, "{expect} of {} at {at}", escapes::format(bytes));
                if *answer != Answer::Wrong {
                    assert_eq!(got, *taken, "{expect} of {} at {at}", escapes::format(bytes));
                }
            }
        }
    }

    #[test]
    fn a_literal_is_right_to_the_byte_however_it_is_cut() {
        answers(
            r"+PONG\r\n",
            &[
                (b"+PONG\r\n", 7, Answer::Complete),
                (b"+PONG\r\nx", 7, Answer::Complete),
                (b"+PON", 4, Answer::Partial),
                (b"+PUNG\r\n", 0, Answer::Wrong),
                (b"-", 0, Answer::Wrong),
            ],
        );
        answers(r"\xff\0", &[(b"\xff\0", 2, Answer::Complete), (b"\xc3", 0, Answer::Wrong)]);
    }

    #[test]
    fn a_pattern_is_complete_with_its_first_match_however_it_is_cut() {
        answers(
            r"/:\d+\r\n/",
            &[
                (b":1\r\n", 4, Answer::Complete),
                (b":123456\r\n:1\r\n", 9, Answer::Complete),
                (b":12", 3, Answer::Partial),
                (b"-ERR\r\n", 0, Answer::Wrong),
                (b":1x", 0, Answer::Wrong),
            ],
        );
        answers("/a+/", &[(b"aaa", 1, Answer::Complete), (b"ba", 0, Answer::Wrong)]);
        answers("/ab|a/", &[(b"ab", 1, Answer::Complete)]);
        answers("/^ab/", &[(b"ab", 2, Answer::Complete)]);
        answers(r"/(?s).*\xff\x00\n/", &[(b"\r\n\xff\0\n\n", 5, Answer::Complete), (b"\n", 1, Answer::Partial)]);
        answers(r"/HTTP\/1.1 200 [^!]*!/", &[("HTTP/1.1 200 \r\n\r\né!".as_bytes(), 20, Answer::Complete)]);
        answers("/(?i)é./", &[("éa".as_bytes(), 3, Answer::Complete)]);
    }

    #[test]
    fn an_answer_has_a_bound() {
        let expect: Expect = r"/(?s).*\n\n/".parse().expect("a pattern");
        let mut whole = vec![b'x'; MAX_ANSWER - 2];
        whole.extend_from_slice(b"\n\n");
        assert_eq!(split(&expect, &whole, 7), (MAX_ANSWER, Answer::Complete));
        whole.insert(0, b'x');
        assert_eq!(split(&expect, &whole, 7).1, Answer::Wrong);
        assert_eq!(split(&expect, &whole, MAX_ANSWER).1, Answer::Wrong);
        let literal = "y".repeat(MAX_ANSWER);
        let expect: Expect = literal.parse().expect("it is just short enough");
        assert_eq!(split(&expect, literal.as_bytes(), 9), (MAX_ANSWER, Answer::Complete));
        assert_eq!((literal + "y").parse::<Expect>(), Err(WrongExpect::TooLong));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in [r"+PONG\r\n", r"/:\d+\r\n/", "/", "/a", r"\x2fa/", "a/", r"\x01"] {
            let expect: Expect = text.parse().expect(text);
            assert_eq!(expect.to_string(), text);
            let json = serde_json::to_string(&expect).expect("it is text");
            assert_eq!(serde_json::from_str::<Expect>(&json).expect("it is an Expect"), expect, "{json}");
        }
        assert!(serde_json::from_str::<Expect>(r#""/(/""#).is_err());
    }

    #[test]
    fn what_no_answer_can_be_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "at least one byte"),
            ("//", "matches an answer without bytes"),
            ("/a*/", "matches an answer without bytes"),
            ("/[a&&b]/", "matches nothing"),
            ("/(/", "unclosed group"),
            ("/a$/", "looks at what follows"),
            (r"/a\b/", "looks at what follows"),
            (r"/\p{Greek}/", "Unicode"),
            ("/(.{9000}){9000}/", "too large"),
            (r"a\q", r"`\q` begins no escape"),
        ] {
            let error = text.parse::<Expect>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
