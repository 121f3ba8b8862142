//! How long things took: histograms, and the few numbers that people read of them.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Times, kept to three digits from 1 ns to an hour. About 270 KB whatever it counts, so there is one for each loop, not for each
/// connection.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Latency {
    const LONGEST: u64 = 3_600_000_000_000;

    /// None yet.
    pub fn new() -> Latency {
        Latency(Histogram::new_with_bounds(1, Latency::LONGEST, 3).expect("three digits of 1 ns to 1 h are valid bounds"))
    }

    /// One more. Longer than an hour counts as an hour.
    pub fn record(&mut self, took: Duration) {
        self.record_many(took, 1);
    }

    /// So many more, alike.
    pub fn record_many(&mut self, took: Duration, count: u64) {
        self.0.saturating_record_n(nanoseconds(took), count);
    }

    /// All of `other` too.
    pub fn add(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("histograms of equal bounds add up");
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// How many took from `from` to `to`, to three digits.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> u64 {
        self.0.count_between(nanoseconds(from), nanoseconds(to))
    }

    /// What half of them did not exceed.
    pub(crate) fn median(&self) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_nanos(self.0.value_at_quantile(0.5)))
    }

    /// Microseconds that this part of them did not exceed; None where nothing was measured, as in all that follows.
    pub(crate) fn at(&self, quantile: f64) -> Option<f64> {
        (self.count() > 0).then(|| microseconds(self.0.value_at_quantile(quantile)))
    }

    pub(crate) fn min(&self) -> Option<f64> {
        (self.count() > 0).then(|| microseconds(self.0.min()))
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean() / 1000.0)
    }

    /// The standard deviation.
    pub(crate) fn deviation(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.stdev() / 1000.0)
    }

    /// The numbers that people read; None where nothing was measured.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.at(quantile);
        let max = (self.count() > 0).then(|| microseconds(self.0.max()));
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max }
    }
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

/// Microseconds that so many of the times did not exceed; None when there were no times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of them.
    pub p50: Option<f64>,
    /// 90 %.
    pub p90: Option<f64>,
    /// 99 %.
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
    /// All of them.
    pub max: Option<f64>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "an hour in nanoseconds has 42 bits, a float 53")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value / expected - 1.0).abs() < 0.002)
    }

    #[test]
    fn percentiles_are_microseconds_of_what_was_recorded() {
        let (mut one, mut other) = (Latency::new(), Latency::new());
        (1..=500).for_each(|count| one.record(Duration::from_micros(count)));
        (501..=1000).for_each(|count| other.record(Duration::from_micros(count)));
        one.add(&other);
        let percentiles = one.percentiles();
        assert_eq!(one.count(), 1000);
        assert!(near(percentiles.p50, 500.0) && near(percentiles.p90, 900.0), "{percentiles:?}");
        assert!(near(percentiles.p99, 990.0) && near(percentiles.p999, 999.0), "{percentiles:?}");
        assert!(near(percentiles.max, 1000.0), "{percentiles:?}");
    }

    #[test]
    fn nothing_measured_has_no_percentiles() {
        assert_eq!(Latency::new().percentiles(), Percentiles::default());
    }

    #[test]
    fn a_day_counts_as_an_hour_and_zero_counts() {
        let mut latency = Latency::new();
        latency.record(Duration::from_secs(86_400));
        latency.record(Duration::ZERO);
        assert_eq!(latency.count(), 2);
        assert!(near(latency.percentiles().max, 3_600_000_000.0));
    }
}
