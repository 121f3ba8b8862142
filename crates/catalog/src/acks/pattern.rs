//! Patterns by which messages are acknowledged.

use crate::time;
use std::time::Duration;

/// Pattern by which a server of `acks` acknowledges. Written `reply`, `timer=5ms`, `read`, `async=20,5ms`, `every=100`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum AckPattern {
    /// An ack of each message, by its id alone.
    Reply,
    /// An ack of all that came, this long after the first of them; up to 71 minutes.
    Timer(Duration),
    /// An ack of all that a read brought, after each read.
    #[default]
    Read,
    /// An ack after this number of reads or this time, whichever is first.
    Async {
        /// Reads, at least 1.
        reads: u32,
        /// The time a message waits at most; up to 71 minutes.
        after: Duration,
    },
    /// An ack after this number of messages, at least 1; or 5 ms, so that the last ones are acknowledged too.
    Every(u32),
}

/// Error: the text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no way to acknowledge: write reply, timer=5ms, read, async=20,5ms or every=100")]
pub struct WrongPattern(String);

impl std::str::FromStr for AckPattern {
    type Err = WrongPattern;

    fn from_str(text: &str) -> Result<AckPattern, WrongPattern> {
        let wrong = || WrongPattern(text.to_owned());
        let count = |text: &str| text.parse().ok().filter(|count| *count > 0).ok_or_else(wrong);
        let time = |text: &str| {
            let fits = |time: &Duration| !time.is_zero() && time.as_micros() <= u128::from(u32::MAX);
            time::parse(text).ok().filter(fits).ok_or_else(wrong)
        };
        match text.split_once('=') {
            None if text == "reply" => Ok(AckPattern::Reply),
            None if text == "read" => Ok(AckPattern::Read),
            Some(("timer", after)) => Ok(AckPattern::Timer(time(after)?)),
            Some(("every", messages)) => Ok(AckPattern::Every(count(messages)?)),
            Some(("async", both)) => {
                let (reads, after) = both.split_once(',').ok_or_else(wrong)?;
                Ok(AckPattern::Async { reads: count(reads)?, after: time(after)? })
            }
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for AckPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AckPattern::Reply => f.write_str("reply"),
            AckPattern::Timer(after) => write!(f, "timer={}", time::format(*after)),
            AckPattern::Read => f.write_str("read"),
            AckPattern::Async { reads, after } => write!(f, "async={reads},{}", time::format(*after)),
            AckPattern::Every(messages) => write!(f, "every={messages}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_read_as_it_is_written() {
        let after = Duration::from_millis(5);
        for (text, pattern) in [
            ("reply", AckPattern::Reply),
            ("timer=5ms", AckPattern::Timer(after)),
            ("read", AckPattern::Read),
            ("async=20,5ms", AckPattern::Async { reads: 20, after }),
            ("every=100", AckPattern::Every(100)),
        ] {
            assert_eq!((text.parse(), pattern.to_string().as_str()), (Ok(pattern), text));
        }
    }

    #[test]
    fn anything_else_is_an_error_that_shows_how() {
        for text in
            ["", "Reply", "timer", "timer=", "timer=0ms", "timer=2h", "every=0", "every=-1", "async=20", "async=0,5ms", "read=1"]
        {
            let error = text.parse::<AckPattern>().expect_err(text);
            assert!(error.to_string().starts_with(&format!("`{text}` is no way to acknowledge: write reply")), "{error}");
        }
    }
}
