//! Units of charts, and how their numbers are written where there is little room.

use std::fmt::Write;

/// The unit of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChartUnit {
    Count,
    Rate,
    /// Microseconds.
    Time,
    Bytes,
    BitsPerSecond,
    /// CPUs that are busy.
    Cpus,
}

impl ChartUnit {
    /// Returns the name of the unit as the script of the page knows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            ChartUnit::Count => "count",
            ChartUnit::Rate => "rate",
            ChartUnit::Time => "time",
            ChartUnit::Bytes => "bytes",
            ChartUnit::BitsPerSecond => "bits",
            ChartUnit::Cpus => "cpus",
        }
    }

    /// Writes a value with three digits and a unit: `12.5k`, `250 µs`, `4.1 KiB`, `1.21 Gbit/s`.
    pub(super) fn short(self, value: f64) -> String {
        let scaled = |step: f64, names: &[&str]| {
            let mut names = names.iter();
            let (mut value, mut name) = (value, names.next().copied().unwrap_or_default());
            // A value that would be rounded up to the next unit is written in it.
            for larger in names {
                if value < step * 0.9995 {
                    break;
                }
                (value, name) = (value / step, larger);
            }
            format!("{}{name}", digits(value))
        };
        match self {
            ChartUnit::Count => scaled(1000.0, &["", "k", "M", "G"]),
            ChartUnit::Rate => scaled(1000.0, &["/s", "k/s", "M/s", "G/s"]),
            ChartUnit::Time if value > 0.0 && value < 0.9995 => format!("{} ns", digits(value * 1000.0)),
            ChartUnit::Time => scaled(1000.0, &[" µs", " ms", " s"]),
            ChartUnit::Bytes => scaled(1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
            ChartUnit::BitsPerSecond => scaled(1000.0, &[" bit/s", " kbit/s", " Mbit/s", " Gbit/s"]),
            ChartUnit::Cpus => digits(value),
        }
    }
}

/// Writes three digits, without zeros at the end.
fn digits(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 99.95 => return format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes a moment of a run: `45 s`, `2:05`, `1:02:05`.
pub(super) fn moment(seconds: f64) -> String {
    if seconds < 99.95 { format!("{} s", digits((seconds * 10.0).round() / 10.0)) } else { clock(seconds) }
}

/// Writes a moment beside longer ones: `0:45`.
pub(super) fn clock(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a run has fewer than 2^64 seconds")]
    let whole = seconds.round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours == 0 { format!("{minutes}:{seconds:02}") } else { format!("{hours}:{minutes:02}:{seconds:02}") }
}

/// Escapes text so that it stands for itself in a page, and in an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => drop(escaped.write_char(other)),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let written = [
            (ChartUnit::Count, 0.0, "0"),
            (ChartUnit::Count, 999.6, "1k"),
            (ChartUnit::Count, 12_500.0, "12.5k"),
            (ChartUnit::Rate, 3_000_000.0, "3M/s"),
            (ChartUnit::Time, 0.25, "250 ns"),
            (ChartUnit::Time, 0.0, "0 µs"),
            (ChartUnit::Time, 1_500_000.0, "1.5 s"),
            (ChartUnit::Time, 90_000_000.0, "90 s"),
            (ChartUnit::Bytes, 4_198.4, "4.1 KiB"),
            (ChartUnit::BitsPerSecond, 1.21e9, "1.21 Gbit/s"),
            (ChartUnit::Cpus, 1.975, "1.98"),
        ];
        for (unit, value, text) in written {
            assert_eq!(unit.short(value), text);
        }
    }

    #[test]
    fn moments_are_read_as_on_a_clock() {
        for (seconds, text) in [(0.0, "0 s"), (45.04, "45 s"), (125.0, "2:05"), (3725.0, "1:02:05"), (86_400.0, "24:00:00")] {
            assert_eq!(moment(seconds), text);
        }
    }
}
