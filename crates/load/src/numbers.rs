//! Numbers: as floats, in the middle of others, and as people read them.

/// What is counted here stays below 2^53, or is shown with a few digits.
#[expect(clippy::cast_precision_loss, reason = "2^53 of anything takes years")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// The one in the middle, or the mean of the two there.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// 28232 is 28,232.
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

/// A rate, with a digit behind the point where there are few before it.
pub(crate) fn per_second(rate: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is not negative, and far below 2^53")]
    let whole = |rate: f64| thousands(rate.round() as u64);
    if rate < 1_000.0 { format!("{rate:.1}") } else { whole(rate) }
}

/// Bytes as people read them, by powers of 1,024.
pub(crate) fn bytes(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{value:.0} B") } else { format!("{value:.1} {unit}") }
}

/// Microseconds in the unit that people read them in.
pub fn time(microseconds: f64) -> String {
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
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1_000, 28_232, 1_000_000].map(thousands), ["0", "999", "1,000", "28,232", "1,000,000"]);
    }
}
