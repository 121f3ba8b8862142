//! Durations as people write them: `250us`, `30ms`, `5s`, `2m`, `1h`; a bare number is seconds.

use crate::count::scaled;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// Units in nanoseconds. `ms` before `m` and `s`: the first suffix that fits is taken.
const UNITS: [(&str, u64); 7] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("h", 3600 * SECOND), ("m", 60 * SECOND), ("s", SECOND), ("", SECOND)];

/// Error: the text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no duration: write a number and one of ns, us, ms, s, m, h, such as 30ms")]
pub struct WrongDuration(String);

/// Reads `30ms`, `1.5s` or `2` (seconds).
///
/// # Errors
/// When the number or the unit is unknown, negative, not whole in nanoseconds or beyond some 584 years.
pub fn parse(text: &str) -> Result<Duration, WrongDuration> {
    scaled(text, &UNITS).map(Duration::from_nanos).ok_or_else(|| WrongDuration(text.to_owned()))
}

/// Writes it so that [`parse`] reads it back: in the largest unit that divides it, or where that would be many nanoseconds, as milliseconds with a
/// fraction.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let divides = |unit: u64| nanos.is_multiple_of(u128::from(unit));
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos > 1_000_000 && !divides(1_000) {
        let text = format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
        return format!("{}ms", text.trim_end_matches('0'));
    }
    let named = UNITS.iter().filter(|(name, unit)| !name.is_empty() && divides(*unit));
    let (name, unit) = named.max_by_key(|(_, unit)| unit).unwrap_or(&UNITS[0]);
    format!("{}{name}", nanos / u128::from(*unit))
}

/// Microseconds in the unit that people read them in.
pub fn short(microseconds: f64) -> String {
    match microseconds {
        us if us < 1.0 => format!("{:.1} ns", us * 1_000.0),
        us if us < 1_000.0 => format!("{us:.1} us"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1_000.0),
        us => format!("{:.2} s", us / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_written_back() {
        for text in ["7ns", "250us", "30ms", "1500ms", "5s", "90s", "2m", "36h", "0s", "21.333333ms"] {
            assert_eq!(format(parse(text).expect(text)), text);
        }
        assert_eq!(parse("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn what_is_no_duration_is_named_in_the_error() {
        for text in ["", "s", "-1s", "1d", "infs", "1e3s", "5 ms", "1.2.3s", "1.", ".5s", "0.5ns", "99999999999h"] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
