//! Numbers: as floats, in the middle of others, and as people read them.

pub use sockdrawer_catalog::count::thousands;
pub use sockdrawer_catalog::time::short as time;

/// Converts a count: all that is counted here stays below 2^53, or is shown with a few digits.
#[expect(clippy::cast_precision_loss, reason = "2^53 of anything takes years")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// Returns the value in the middle, or the mean of the two there.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Writes a rate, with a digit behind the point where there are few before it.
pub(crate) fn per_second(rate: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is not negative, and far below 2^53")]
    let whole = |rate: f64| thousands(rate.round() as u64);
    if rate < 1_000.0 { format!("{rate:.1}") } else { whole(rate) }
}

/// Writes bytes as people read them, by powers of 1,024.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
