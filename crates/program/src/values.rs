//! Values of options, parsed once into types: counts, times, rates, and where a report goes. An error says what is wrong and shows a right one;
//! [`crate::usage`] puts the option's name before it.

use sockdrawer_catalog::count;
use sockdrawer_operate::written;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A value that could not be understood: what it is not, and what would be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue(pub String);

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadValue {}

/// Reads a count, 0 included: `0`, `250`, `10k`, `1.5m`.
pub fn count<T: TryFrom<u64>>(text: &str) -> Result<T, BadValue> {
    let count = count::parse(text).ok().and_then(|count| T::try_from(count).ok());
    count.ok_or_else(|| BadValue("not a count: write a whole number such as 250, 10k or 2m".to_owned()))
}

/// Reads a length of time, 0 included: `5` and `5s` are seconds, `250us`, `50ms`, `1.5m`, `1h`.
pub fn time(text: &str) -> Result<Duration, BadValue> {
    written::time(text).map_err(BadValue)
}

/// Reads a length of time that is more than 0.
pub fn positive_time(text: &str) -> Result<Duration, BadValue> {
    match time(text)? {
        Duration::ZERO => Err(BadValue("must be more than 0: write 50ms or 5s".to_owned())),
        time => Ok(time),
    }
}

/// Reads a part of all: `95%`, `95`, `99.9%`.
pub fn percent(text: &str) -> Result<f64, BadValue> {
    match text.strip_suffix('%').unwrap_or(text).parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(BadValue("not a part of all: write percent, such as 95% or 99.9%".to_owned())),
    }
}

/// Reads a rate per second: `1000`, `10k`, `0.5`, `200/s`.
pub fn rate(text: &str) -> Result<f64, BadValue> {
    written::rate(text).map_err(BadValue)
}

/// The place of a report: `-` or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file, replaced when it exists.
    File(PathBuf),
}

impl FromStr for Destination {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Destination, BadValue> {
        match text {
            "" => Err(BadValue("no file: name one, or - for standard output".to_owned())),
            "-" => Ok(Destination::Stdout),
            path => Ok(Destination::File(PathBuf::from(path))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parse<T> = fn(&str) -> Result<T, BadValue>;

    fn accepts<T: PartialEq + fmt::Debug>(parse: Parse<T>, texts: &[(&str, T)]) {
        for (text, expected) in texts {
            assert_eq!(parse(text).as_ref(), Ok(expected), "{text}");
        }
    }

    fn refuses<T: fmt::Debug>(parse: Parse<T>, texts: &[&str]) {
        for text in texts {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn a_bare_time_is_seconds() {
        let of = Duration::from_millis;
        accepts(time, &[("5", of(5_000)), ("50ms", of(50)), ("2s", of(2_000)), ("1m", of(60_000)), ("1h", of(3_600_000))]);
        accepts(time, &[("0", of(0)), ("0.5", of(500)), ("1.5m", of(90_000)), ("250us", Duration::from_micros(250))]);
        refuses(time, &["", "s", "ms", "-5", "5 s", "5sec", "1m30s", "99999999h"]);
        refuses(positive_time, &["0", "0ms", "0.0h"]);
        accepts(positive_time, &[("1ms", of(1))]);
    }

    #[test]
    fn a_rate_is_per_second() {
        accepts(rate, &[("500", 500.0), ("10k", 10_000.0), ("0.5", 0.5), ("200/s", 200.0)]);
        refuses(rate, &["", "0", "0/s", "/s", "-1", "5/m", "fast", "inf", "nan"]);
    }

    #[test]
    fn a_dash_is_standard_output() {
        accepts(str::parse, &[("-", Destination::Stdout), ("a.json", Destination::File("a.json".into()))]);
        refuses(str::parse::<Destination>, &[""]);
    }
}
