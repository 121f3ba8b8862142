//! Counts as people write them: `250`, `10k`, `1.5m`; and any other number with a unit behind it.

/// Error: the text is no count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no count: write a whole number such as 250, 10k or 2m")]
pub struct WrongCount(String);

/// Reads `0`, `250`, `10k` or `1.5m`; k is 1,000 and m is 1,000,000.
///
/// ```
/// assert_eq!(sockdrawer_catalog::count::parse("1.5k"), Ok(1_500));
/// ```
///
/// # Errors
/// When it is no number without a sign, not whole, or beyond 64 bits.
pub fn parse(text: &str) -> Result<u64, WrongCount> {
    scaled(text, &[("k", 1_000), ("m", 1_000_000), ("", 1)]).ok_or_else(|| WrongCount(text.to_owned()))
}

/// Reads a decimal number with one of `units` behind it, in the unit's parts. None when it is no such number, is too large, or is not whole in those
/// parts. The first unit that fits is taken, so the one without a name comes last.
///
/// ```
/// assert_eq!(sockdrawer_catalog::count::scaled("0.5k", &[("k", 1024), ("", 1)]), Some(512));
/// ```
pub fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let places = u32::try_from(fraction.len()).ok()?;
    let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    let tenths = 10_u128.checked_pow(places)?;
    if parts % tenths != 0 {
        return None;
    }
    let parts = u64::try_from(parts / tenths).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(parts)
}

/// Writes a number with commas: 28232 is 28,232.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_k_and_m() {
        let counts = [("0", 0), ("250", 250), ("10k", 10_000), ("2m", 2_000_000), ("1.5k", 1_500), ("0.25m", 250_000)];
        for (text, count) in counts.into_iter().chain([("18446744073709551615", u64::MAX)]) {
            assert_eq!(parse(text), Ok(count), "{text}");
        }
        for text in ["", "k", "-1", "+1", "1.5", "1.0001k", "10 k", "10K", "ten", "1.", ".5k", "1e3"] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
        for text in ["18446744073709551616", "18446744073709551615k", "0.99999999999999999999999k"] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1_000, 28_232, 1_000_000].map(thousands), ["0", "999", "1,000", "28,232", "1,000,000"]);
    }
}
