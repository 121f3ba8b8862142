//! Durations as people write them: `30ms`, `5s`, `2m`, `1h`; a bare number is seconds.

use std::time::Duration;

/// Units in nanoseconds, the larger before the smaller. `ms` before `m` and `s`: the first suffix that fits is taken.
const UNITS: [(&str, u64); 6] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)];

/// What was written is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no duration: write a number and one of ns, us, ms, s, m, h, such as 30ms")]
pub struct WrongDuration(String);

/// Reads `30ms`, `1.5s` or `2` (seconds).
///
/// # Errors
/// When the number or the unit is unknown, negative or beyond some 584 years.
pub fn parse(text: &str) -> Result<Duration, WrongDuration> {
    let wrong = || WrongDuration(text.to_owned());
    let (number, unit) =
        UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit))).unwrap_or((text, 1_000_000_000));
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).map(Duration::from_nanos).ok_or_else(wrong);
    }
    // Not "inf", "NaN", "1e3" or "-1", which a float would accept too.
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(wrong());
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * unit as f64 / 1e9).map_err(|_| wrong())
}

/// Writes it so that [`parse`] reads the same: in the largest unit that divides it.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let (name, unit) = UNITS
        .iter()
        .filter(|(_, unit)| nanos.is_multiple_of(u128::from(*unit)))
        .max_by_key(|(_, unit)| unit)
        .unwrap_or(&UNITS[0]);
    format!("{}{name}", nanos / u128::from(*unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_written_back() {
        for text in ["7ns", "250us", "30ms", "5s", "90s", "2m", "1h", "0s"] {
            assert_eq!(parse(&format(parse(text).expect(text))), parse(text), "{text}");
        }
        for text in ["7ns", "250us", "30ms", "5s", "2m", "1h", "0s"] {
            assert_eq!(format(parse(text).expect(text)), text);
        }
        assert_eq!(parse("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn what_is_no_duration_is_named_in_the_error() {
        for text in ["", "s", "-1s", "1d", "infs", "1e3s", "5 ms", "1.2.3s", "99999999999h"] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
