//! Values of options, parsed once into types: counts, times, rates and sizes. An error says what is wrong and shows a right one;
//! [`crate::usage`] puts the option's name before it.

mod network;

pub(crate) use network::{LocalPorts, Source, Target};

use sockdrawer_catalog::count::{self, scaled};
use sockdrawer_catalog::{escapes, time};
use sockdrawer_load::{Processes, Stage};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A value that could not be understood: what it is not, and what would be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadValue(pub(crate) String);

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadValue {}

/// How many, 0 included: `0`, `250`, `10k`, `1.5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl Count {
    /// The same for what is counted in memory.
    pub(crate) fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Count {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Count, BadValue> {
        let not_one = |_| BadValue("not a count: write a whole number such as 250, 10k or 2m".to_owned());
        count::parse(text).map(Count).map_err(not_one)
    }
}

/// In the largest unit in which it is whole.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            count if count > 0 && count % 1_000_000 == 0 => write!(f, "{}m", count / 1_000_000),
            count if count > 0 && count % 1_000 == 0 => write!(f, "{}k", count / 1_000),
            count => count.fmt(f),
        }
    }
}

/// How many, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positive(pub(crate) u64);

impl Positive {
    /// The same for what is counted in memory.
    pub(crate) fn in_memory(self) -> usize {
        Count(self.0).in_memory()
    }
}

impl FromStr for Positive {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Positive, BadValue> {
        match text.parse()? {
            Count(0) => Err(BadValue("must be at least 1".to_owned())),
            Count(count) => Ok(Positive(count)),
        }
    }
}

impl fmt::Display for Positive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A length of time, 0 included: `5` and `5s` are seconds, `250us`, `50ms`, `1.5m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

impl FromStr for Time {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Time, BadValue> {
        let not_one = |_| BadValue("not a time: write 5 or 5s (seconds), 250us, 50ms, 2m (minutes) or 1h".to_owned());
        time::parse(text).map(Time).map_err(not_one)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&time::format(self.0))
    }
}

/// A length of time that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PositiveTime(pub(crate) Duration);

impl FromStr for PositiveTime {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<PositiveTime, BadValue> {
        match text.parse()? {
            Time(Duration::ZERO) => Err(BadValue("must be more than 0: write 50ms or 5s".to_owned())),
            Time(time) => Ok(PositiveTime(time)),
        }
    }
}

/// How many per second: `1000`, `10k`, `0.5`, `200/s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate(pub(crate) f64);

impl FromStr for Rate {
    type Err = BadValue;

    #[expect(clippy::cast_precision_loss, reason = "a rate of 9,000,000 per second is the most that is exact to a billionth")]
    fn from_str(text: &str) -> Result<Rate, BadValue> {
        const BILLION: u64 = 1_000_000_000;
        let units = [("k", 1_000 * BILLION), ("m", 1_000_000 * BILLION), ("", BILLION)];
        match scaled(text.strip_suffix("/s").unwrap_or(text), &units) {
            Some(0) => Err(BadValue("must be more than 0 per second".to_owned())),
            Some(billionths) => Ok(Rate(billionths as f64 / BILLION as f64)),
            None => Err(BadValue("not a rate: write how many per second, such as 500, 10k or 0.5".to_owned())),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(format!("{:.9}", self.0).trim_end_matches('0').trim_end_matches('.'))
    }
}

/// So many for each peer, and by how many bits of an IPv4 address peers are told apart: `10`, `50/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerLimit {
    pub(crate) most: Positive,
    pub(crate) prefix: u8,
}

impl FromStr for PeerLimit {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<PeerLimit, BadValue> {
        let (most, prefix) = text.split_once('/').unwrap_or((text, "32"));
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32);
        match (most.parse(), prefix) {
            (Ok(most), Some(prefix)) => Ok(PeerLimit { most, prefix }),
            (Ok(_), None) => Err(BadValue("has no prefix of 0 to 32 bits: write one such as 50/24".to_owned())),
            (Err(_), _) => Err(BadValue("not a limit for each peer: write at least 1, such as 10 or 50/24".to_owned())),
        }
    }
}

/// Bytes, at least one and less than 4 GiB: `64`, `4k`, `1m`; k is 1,024 and m is 1,048,576.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u32);

impl FromStr for Size {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Size, BadValue> {
        let units = [("k", 1024), ("m", 1024 * 1024), ("", 1)];
        match scaled(text, &units).and_then(|bytes| u32::try_from(bytes).ok()) {
            Some(0) => Err(BadValue("must be at least 1 byte".to_owned())),
            Some(bytes) => Ok(Size(bytes)),
            None => Err(BadValue("not a size below 4096m: write bytes, such as 64, 4k (4,096) or 1m (1,048,576)".to_owned())),
        }
    }
}

/// A way to so many connections: `30s:10k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ramp(pub(crate) Stage);

impl FromStr for Ramp {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Ramp, BadValue> {
        let stage = text.split_once(':').and_then(|(time, connections)| {
            let PositiveTime(time) = time.parse().ok()?;
            Some(Stage { time, connections: connections.parse::<Count>().ok()?.in_memory() })
        });
        stage.map(Ramp).ok_or_else(|| {
            BadValue("not a stage: write how long and to how many connections, such as 30s:10k or 30s:0".to_owned())
        })
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Time(self.0.time), Count(self.0.connections as u64))
    }
}

/// How many processes: `auto` or `4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessCount(pub(crate) Processes);

impl FromStr for ProcessCount {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<ProcessCount, BadValue> {
        const MOST: u64 = 1_000;
        match text.parse() {
            _ if text == "auto" => Ok(ProcessCount(Processes::Auto)),
            Ok(Positive(count)) if count <= MOST => Ok(ProcessCount(Processes::Exactly(count as u32))),
            _ => Err(BadValue(format!("not a number of processes: write auto, or 1 to {MOST}"))),
        }
    }
}

impl fmt::Display for ProcessCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Processes::Auto => f.write_str("auto"),
            Processes::Exactly(count) => count.fmt(f),
        }
    }
}

/// A process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(pub(crate) u32);

impl FromStr for ProcessId {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<ProcessId, BadValue> {
        match text.parse() {
            Ok(pid) if pid > 0 => Ok(ProcessId(pid)),
            _ => Err(BadValue("not a process: write its number, such as 4711".to_owned())),
        }
    }
}

/// At least one byte, as text with escapes: `PING\r\n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl FromStr for Bytes {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Bytes, BadValue> {
        match escapes::parse(text) {
            Ok(bytes) if bytes.is_empty() => Err(BadValue("no bytes: write what is sent".to_owned())),
            Ok(bytes) => Ok(Bytes(bytes)),
            Err(error) => Err(BadValue(error.to_string())),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escapes::format(&self.0))
    }
}

/// What random choices begin with: any whole number that fits 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) u64);

impl FromStr for Seed {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Seed, BadValue> {
        let not_one = |_| BadValue("not a seed: write a whole number from 0 to 18446744073709551615".to_owned());
        text.parse().map(Seed).map_err(not_one)
    }
}

impl Seed {
    /// Differs from run to run: the standard library keys its hash maps with the system's random numbers.
    pub(crate) fn chosen() -> Seed {
        Seed(RandomState::new().hash_one(0))
    }
}

/// Where a report goes: `-` or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
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

/// A number with the digits that matter.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if (value - value.round()).abs() < 1e-6 * value => format!("{}", value.round()),
        value if value < 0.1 => format!("{value:.4}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn accepts<T: FromStr<Err = BadValue> + PartialEq + fmt::Debug>(texts: &[(&str, T)]) {
        for (text, expected) in texts {
            assert_eq!(text.parse::<T>().as_ref(), Ok(expected), "{text}");
        }
    }

    pub(crate) fn refuses<T: FromStr<Err = BadValue> + fmt::Debug>(texts: &[&str]) {
        for text in texts {
            text.parse::<T>().expect_err(text);
        }
    }

    #[test]
    fn counts_take_k_and_m() {
        accepts(&[("0", Count(0)), ("250", Count(250)), ("10k", Count(10_000)), ("2m", Count(2_000_000))]);
        refuses::<Count>(&["", "-1", "1.5", "10K"]);
        refuses::<Positive>(&["0", "0k", "0.0m"]);
        accepts(&[("1", Positive(1)), ("3k", Positive(3_000))]);
    }

    #[test]
    fn a_bare_time_is_seconds() {
        let time = |milliseconds| Time(Duration::from_millis(milliseconds));
        accepts(&[("5", time(5_000)), ("50ms", time(50)), ("2s", time(2_000)), ("1m", time(60_000)), ("1h", time(3_600_000))]);
        accepts(&[("0", time(0)), ("0.5", time(500)), ("1.5m", time(90_000)), ("250us", Time(Duration::from_micros(250)))]);
        refuses::<Time>(&["", "s", "ms", "-5", "5 s", "5sec", "1m30s", "99999999h"]);
        refuses::<PositiveTime>(&["0", "0ms", "0.0h"]);
        accepts(&[("1ms", PositiveTime(Duration::from_millis(1)))]);
    }

    #[test]
    fn a_rate_is_per_second() {
        accepts(&[("500", Rate(500.0)), ("10k", Rate(10_000.0)), ("0.5", Rate(0.5)), ("200/s", Rate(200.0))]);
        refuses::<Rate>(&["", "0", "0/s", "/s", "-1", "5/m", "fast", "inf", "nan"]);
    }

    #[test]
    fn sizes_are_binary() {
        accepts(&[("64", Size(64)), ("4k", Size(4096)), ("1m", Size(1_048_576)), ("0.5k", Size(512))]);
        refuses::<Size>(&["", "0", "0k", "-1", "4kb", "0.3k", "1.5", "4096m"]);
    }

    #[test]
    fn a_stage_is_a_time_and_a_count() {
        let stage = |seconds, connections| Ramp(Stage { time: Duration::from_secs(seconds), connections });
        accepts(&[("30s:10k", stage(30, 10_000)), ("2m:100", stage(120, 100)), ("5:0", stage(5, 0))]);
        refuses::<Ramp>(&["", "30s", "30s:", ":10", "0s:5", "10k:30s", "30s:10k:5", "30s:-1"]);
    }

    #[test]
    fn processes_are_counted_or_chosen() {
        accepts(&[("auto", ProcessCount(Processes::Auto)), ("4", ProcessCount(Processes::Exactly(4)))]);
        accepts(&[("4711", ProcessId(4711))]);
        refuses::<ProcessId>(&["", "0", "-1", "self", "4294967296"]);
        refuses::<ProcessCount>(&["", "0", "Auto", "1001", "-1"]);
    }

    #[test]
    fn bytes_have_escapes_and_are_at_least_one() {
        accepts(&[(r"PING\r\n", Bytes(b"PING\r\n".to_vec()))]);
        refuses::<Bytes>(&["", r"\q"]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        fn again<T: FromStr<Err = BadValue> + fmt::Display>(texts: &[&str]) {
            for text in texts {
                let value: T = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(value.to_string(), *text);
            }
        }
        again::<Count>(&["0", "7", "1k", "1001", "20m"]);
        again::<Time>(&["0s", "5s", "90s", "2m", "36h", "250ms", "1500ms", "250us", "21.333333ms"]);
        again::<Rate>(&["1000", "0.5", "12.000000001", "1000000"]);
        again::<Ramp>(&["30s:10k", "1500ms:7", "2m:0"]);
        again::<ProcessCount>(&["auto", "3"]);
        again::<Bytes>(&[r"GET / HTTP/1.1\r\n\r\n", r"\xff\0"]);
    }

    #[test]
    fn a_seed_is_any_number_and_chosen_ones_differ() {
        accepts(&[("0", Seed(0)), ("18446744073709551615", Seed(u64::MAX))]);
        refuses::<Seed>(&["", "-1", "0x10", "18446744073709551616"]);
        assert_ne!(Seed::chosen(), Seed::chosen());
    }

    #[test]
    fn a_dash_is_standard_output() {
        accepts(&[("-", Destination::Stdout), ("a.json", Destination::File("a.json".into()))]);
        refuses::<Destination>(&[""]);
    }

    #[test]
    fn numbers_keep_what_matters() {
        assert_eq!([12.8, 100.0, 99_999.999_999_9, 9.142, 0.0166].map(number), ["12.8", "100", "100000", "9.1", "0.0166"]);
    }
}
