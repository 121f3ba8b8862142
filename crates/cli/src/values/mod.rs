//! Values of options, parsed once into types: counts, times, rates and sizes. An error says what is wrong and shows a right one;
//! [`crate::usage`] puts the option's name before it.

mod hosts;
mod http;
mod network;

pub(crate) use hosts::{Hosts, host, object_name};
pub(crate) use http::{Body, Field, Method, Path};
pub(crate) use network::{Source, Target, Url, local_ports, proxy_header, proxy_header_text};

pub(crate) use sockdrawer_program::values::{BadValue, Destination, count, positive_time, rate, time};

use sockdrawer_catalog::escapes;
use sockdrawer_catalog::time::format as time_text;
use sockdrawer_load::{Processes, Stage};
use sockdrawer_operate::written;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::str::FromStr;

/// Reads the name of a file, which standard output is not.
pub(crate) fn file(path: PathBuf) -> Result<PathBuf, BadValue> {
    if path.as_os_str() == "-" {
        return Err(BadValue("must be the name of a file, ./- for one of this name".to_owned()));
    }
    Ok(path)
}

/// Reads a count that is at least one.
pub(crate) fn positive<T: TryFrom<u64> + Default + PartialEq>(text: &str) -> Result<T, BadValue> {
    match count(text)? {
        zero if zero == T::default() => Err(BadValue("must be at least 1".to_owned())),
        count => Ok(count),
    }
}

/// Returns a count in the largest unit in which it is whole.
pub(crate) fn count_text(count: usize) -> String {
    match count {
        count if count > 0 && count % 1_000_000 == 0 => format!("{}m", count / 1_000_000),
        count if count > 0 && count % 1_000 == 0 => format!("{}k", count / 1_000),
        count => count.to_string(),
    }
}

/// Returns a rate as it is read again.
pub(crate) fn rate_text(rate: f64) -> String {
    format!("{rate:.9}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reads bytes, at least one and less than 4 GiB: `64`, `4k`, `1m`; k is 1,024 and m is 1,048,576.
pub(crate) fn size(text: &str) -> Result<u32, BadValue> {
    match written::size(text).map_err(BadValue)? {
        0 => Err(BadValue("must be at least 1 byte".to_owned())),
        bytes => Ok(bytes),
    }
}

/// Reads a stage, the way to so many connections: `30s:10k`.
pub(crate) fn stage(text: &str) -> Result<Stage, BadValue> {
    let parts = text.split_once(':');
    let stage = parts
        .and_then(|(time, connections)| Some(Stage { time: positive_time(time).ok()?, connections: count(connections).ok()? }));
    stage.ok_or_else(|| BadValue("not a stage: write how long and to how many connections, such as 30s:10k or 30s:0".to_owned()))
}

/// Returns a stage as it is read again.
pub(crate) fn stage_text(stage: &Stage) -> String {
    format!("{}:{}", time_text(stage.time), count_text(stage.connections))
}

/// Reads a number of processes: `auto` or `4`.
pub(crate) fn processes(text: &str) -> Result<Processes, BadValue> {
    const MOST: u32 = 1_000;
    match positive(text) {
        _ if text == "auto" => Ok(Processes::Auto),
        Ok(count) if count <= MOST => Ok(Processes::Exactly(count)),
        _ => Err(BadValue(format!("not a number of processes: write auto, or 1 to {MOST}"))),
    }
}

/// Processes as they are read again.
pub(crate) fn processes_text(processes: Processes) -> String {
    match processes {
        Processes::Auto => "auto".to_owned(),
        Processes::Exactly(count) => count.to_string(),
    }
}

/// Reads the number of a process.
pub(crate) fn process(text: &str) -> Result<u32, BadValue> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| BadValue("not a process: write its number, such as 4711".to_owned()))
}

/// Bytes, at least one, as text with escapes: `PING\r\n`.
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

/// Reads the seed that random choices begin with: any whole number that fits 64 bits.
pub(crate) fn seed(text: &str) -> Result<u64, BadValue> {
    text.parse().map_err(|_| BadValue("not a seed: write a whole number from 0 to 18446744073709551615".to_owned()))
}

/// Returns a seed that differs from run to run: the standard library keys its hash maps with the system's random numbers.
pub(crate) fn chosen_seed() -> u64 {
    // Short enough to be typed again, and for programs that read numbers of JSON as floats.
    RandomState::new().hash_one(0) >> 32
}

/// Returns a number with the digits that matter.
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
    use std::time::Duration;

    type Parse<T> = fn(&str) -> Result<T, BadValue>;

    pub(crate) fn accepts<T: PartialEq + fmt::Debug>(parse: Parse<T>, texts: &[(&str, T)]) {
        for (text, expected) in texts {
            assert_eq!(parse(text).as_ref(), Ok(expected), "{text}");
        }
    }

    pub(crate) fn refuses<T: fmt::Debug>(parse: Parse<T>, texts: &[&str]) {
        for text in texts {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn counts_take_k_and_m() {
        accepts(count::<u64>, &[("0", 0), ("250", 250), ("10k", 10_000), ("2m", 2_000_000)]);
        refuses(count::<u64>, &["", "-1", "1.5", "10K"]);
        refuses(positive::<u64>, &["0", "0k", "0.0m"]);
        accepts(positive::<usize>, &[("1", 1), ("3k", 3_000)]);
    }

    #[test]
    fn sizes_are_binary() {
        accepts(size, &[("64", 64), ("4k", 4096), ("1m", 1_048_576), ("0.5k", 512)]);
        refuses(size, &["", "0", "0k", "-1", "4kb", "0.3k", "1.5", "4096m"]);
    }

    #[test]
    fn a_stage_is_a_time_and_a_count() {
        let of = |seconds, connections| Stage { time: Duration::from_secs(seconds), connections };
        accepts(stage, &[("30s:10k", of(30, 10_000)), ("2m:100", of(120, 100)), ("5:0", of(5, 0))]);
        refuses(stage, &["", "30s", "30s:", ":10", "0s:5", "10k:30s", "30s:10k:5", "30s:-1"]);
    }

    #[test]
    fn processes_are_counted_or_chosen() {
        accepts(processes, &[("auto", Processes::Auto), ("4", Processes::Exactly(4))]);
        accepts(process, &[("4711", 4711)]);
        refuses(process, &["", "0", "-1", "self", "4294967296"]);
        refuses(processes, &["", "0", "Auto", "1001", "-1"]);
    }

    #[test]
    fn bytes_have_escapes_and_are_at_least_one() {
        accepts(str::parse, &[(r"PING\r\n", Bytes(b"PING\r\n".to_vec()))]);
        refuses(str::parse::<Bytes>, &["", r"\q"]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        fn again<T>(parse: Parse<T>, write: fn(T) -> String, texts: &[&str]) {
            for text in texts {
                let value = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(write(value), *text);
            }
        }
        again(count, count_text, &["0", "7", "1k", "1001", "20m"]);
        again(time, time_text, &["0s", "5s", "90s", "2m", "36h", "250ms", "1500ms", "250us", "21.333333ms"]);
        again(rate, rate_text, &["1000", "0.5", "12.000000001", "1000000"]);
        again(stage, |stage| stage_text(&stage), &["30s:10k", "1500ms:7", "2m:0"]);
        again(processes, processes_text, &["auto", "3"]);
        again(str::parse, |bytes: Bytes| bytes.to_string(), &[r"GET / HTTP/1.1\r\n\r\n", r"\xff\0"]);
    }

    #[test]
    fn a_seed_is_any_number_and_chosen_ones_differ() {
        accepts(seed, &[("0", 0), ("18446744073709551615", u64::MAX)]);
        refuses(seed, &["", "-1", "0x10", "18446744073709551616"]);
        assert_ne!(chosen_seed(), chosen_seed());
    }

    #[test]
    fn numbers_keep_what_matters() {
        assert_eq!([12.8, 100.0, 99_999.999_999_9, 9.142, 0.0166].map(number), ["12.8", "100", "100000", "9.1", "0.0166"]);
    }
}
