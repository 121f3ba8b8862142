//! Times that things took: histograms, and the few numbers that people read of them.

use crate::numbers::time;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize, de};
use std::fmt;
use std::time::Duration;

/// Times, kept to three digits from 1 ns to an hour. About 270 KB from the first one on, so there is one for each loop, not for each
/// connection. Serialized for people, it is the text of [`Latency::encode`]; between processes, which do it often, the times that there are
/// and how many took each.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Option<Histogram<u64>>);

/// A text that is no [`Latency`]: it says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLatency(String);

impl fmt::Display for NoLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a histogram of times: {}", self.0)
    }
}

impl std::error::Error for NoLatency {}

impl Latency {
    const LONGEST: u64 = 3_600_000_000_000;

    /// Creates a histogram of no times.
    pub fn new() -> Latency {
        Latency(None)
    }

    fn counters() -> Histogram<u64> {
        Histogram::new_with_bounds(1, Latency::LONGEST, 3).expect("three digits of 1 ns to 1 h are valid bounds")
    }

    /// Records a time. A time longer than an hour counts as an hour.
    pub fn record(&mut self, took: Duration) {
        self.record_many(took, 1);
    }

    /// Records a time `count` times.
    pub fn record_many(&mut self, took: Duration, count: u64) {
        if count > 0 {
            self.0.get_or_insert_with(Latency::counters).saturating_record_n(nanoseconds(took), count);
        }
    }

    /// Adds all times of `other`.
    pub fn add(&mut self, other: &Latency) {
        // Most are empty at most times, or the first of a sum, and each has 33,000 counters.
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (none @ None, Some(other)) => *none = Some(other.clone()),
            (Some(sum), Some(other)) => sum.add(other).expect("histograms of equal bounds add up"),
        }
    }

    /// Subtracts the times of `other`, which are among these.
    pub(crate) fn subtract(&mut self, other: &Latency) {
        if let (Some(all), Some(other)) = (&mut self.0, &other.0) {
            all.subtract(other).expect("what is subtracted was added");
        }
    }

    /// Encodes it as text that other programs read too: the HDR histogram's form V2, compressed, in base64. No count is lost.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(self.0.as_ref().unwrap_or(&Latency::counters()), &mut bytes)
            .expect("memory takes counts below 2^63");
        BASE64_STANDARD.encode(bytes)
    }

    /// Decodes the times that [`Latency::encode`] wrote.
    ///
    /// # Errors
    /// When the text is something else, or its histogram has other bounds: it could not be added to one of these.
    ///
    /// ```
    /// # use sockdrawer_load::Latency;
    /// let mut latency = Latency::new();
    /// latency.record(std::time::Duration::from_micros(20));
    /// assert_eq!(Latency::decode(&latency.encode()), Ok(latency));
    /// assert!(Latency::decode("20 us").is_err());
    /// ```
    pub fn decode(text: &str) -> Result<Latency, NoLatency> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|error| NoLatency(error.to_string()))?;
        let histogram = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice());
        let histogram = histogram.map_err(|error| NoLatency(error.to_string()))?;
        let bounds = |of: &Histogram<u64>| (of.low(), of.high(), of.sigfig());
        if bounds(&histogram) != bounds(&Latency::counters()) {
            return Err(NoLatency("its bounds are not 1 ns to 1 h with three digits".to_owned()));
        }
        Ok(Latency((!histogram.is_empty()).then_some(histogram)))
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// Returns the number of times from `from` to `to`, to three digits.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> u64 {
        self.0.as_ref().map_or(0, |times| times.count_between(nanoseconds(from), nanoseconds(to)))
    }

    /// Returns the median: half of the times did not exceed it.
    pub(crate) fn median(&self) -> Option<Duration> {
        self.0.as_ref().map(|times| Duration::from_nanos(times.value_at_quantile(0.5)))
    }

    /// Microseconds that this part of them did not exceed; None where nothing was measured, as in all that follows.
    pub(crate) fn at(&self, quantile: f64) -> Option<f64> {
        self.0.as_ref().map(|times| microseconds(times.value_at_quantile(quantile)))
    }

    pub(crate) fn min(&self) -> Option<f64> {
        self.0.as_ref().map(|times| microseconds(times.min()))
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        self.0.as_ref().map(|times| times.mean() / 1000.0)
    }

    /// Returns the standard deviation.
    pub(crate) fn deviation(&self) -> Option<f64> {
        self.0.as_ref().map(|times| times.stdev() / 1000.0)
    }

    /// Returns the numbers that people read; None where nothing was measured.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.at(quantile);
        Percentiles {
            min: self.min(),
            mean: self.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.as_ref().map(|times| microseconds(times.max())),
        }
    }
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl Serialize for Latency {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            return to.serialize_str(&self.encode());
        }
        let times = self.0.iter().flat_map(Histogram::iter_recorded);
        // From each time to the next is a number of fewer bytes than the time.
        let mut before = 0;
        let counts: Vec<(u64, u64)> = times
            .map(|time| {
                let value = time.value_iterated_to();
                (value - std::mem::replace(&mut before, value), time.count_at_value())
            })
            .collect();
        counts.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Latency, D::Error> {
        if from.is_human_readable() {
            return Latency::decode(&String::deserialize(from)?).map_err(de::Error::custom);
        }
        let (mut latency, mut time) = (Latency::new(), 0_u64);
        for (more, count) in Vec::<(u64, u64)>::deserialize(from)? {
            time = time.saturating_add(more);
            latency.record_many(Duration::from_nanos(time), count);
        }
        Ok(latency)
    }
}

/// Microseconds that so many of the times did not exceed, their minimum and mean; null when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Percentiles {
    /// The minimum.
    pub min: Option<f64>,
    /// The mean.
    pub mean: Option<f64>,
    /// Half of the times did not exceed it.
    pub p50: Option<f64>,
    /// 90 %.
    pub p90: Option<f64>,
    /// 95 %.
    pub p95: Option<f64>,
    /// 99 %.
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
    /// The maximum.
    pub max: Option<f64>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "an hour in nanoseconds has 42 bits, a float 53")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

/// The names above [`row`].
pub(crate) struct Columns;

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ["mean", "p50", "p95", "p99", "p99.9", "max"].iter().enumerate().try_for_each(|(index, name)| {
            let width = if index == 0 { 10 } else { 11 };
            write!(f, "{name:>width$}")
        })
    }
}

/// Writes the percentiles in one line, each in the unit that people read it in.
pub(crate) fn row(f: &mut fmt::Formatter<'_>, name: &str, values: &Percentiles) -> fmt::Result {
    write!(f, "  {name:<10}")?;
    for value in [values.mean, values.p50, values.p95, values.p99, values.p999, values.max] {
        write!(f, " {:>10}", value.map_or_else(|| "-".to_owned(), time))?;
    }
    Ok(())
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
        assert!(near(percentiles.min, 1.0) && near(percentiles.mean, 500.5) && near(percentiles.p95, 950.0), "{percentiles:?}");
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

    /// Returns a time of many that are spread over nine decades, some of them longer than can be told apart from an hour.
    fn sample(number: u64) -> Duration {
        let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Duration::from_nanos(scattered >> (20 + number % 44))
    }

    fn buckets(latency: &Latency) -> Vec<(u64, u64)> {
        latency
            .0
            .iter()
            .flat_map(Histogram::iter_recorded)
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
            .collect()
    }

    #[test]
    fn four_parts_that_crossed_a_process_boundary_equal_the_whole_bucket_by_bucket() {
        let (mut whole, mut parts) = (Latency::new(), [(); 4].map(|()| Latency::new()));
        for (number, part) in (0..100_000).zip((0..4).cycle()) {
            whole.record(sample(number));
            parts[part].record(sample(number));
        }
        let mut merged = Latency::new();
        for part in &parts {
            let bytes = postcard::to_allocvec(part).expect("memory takes it");
            let crossed: Latency = postcard::from_bytes(&bytes).expect("the same bytes");
            let text = serde_json::to_string(&crossed).expect("a text");
            merged.add(&serde_json::from_str(&text).expect("the same text"));
        }
        assert!(buckets(&whole).len() > 1_000, "the samples are in few buckets");
        assert_eq!(buckets(&merged), buckets(&whole));
        assert_eq!((merged.count(), merged.percentiles()), (100_000, whole.percentiles()));
        assert_eq!(merged, whole);
    }

    #[test]
    fn counts_of_a_long_run_and_none_at_all_survive_the_crossing() {
        let mut latency = Latency::new();
        assert_eq!(Latency::decode(&latency.encode()), Ok(latency.clone()));
        latency.record_many(Duration::from_micros(7), 1 << 50);
        latency.record(Duration::from_secs(86_400));
        assert_eq!(Latency::decode(&latency.encode()), Ok(latency));
    }

    #[test]
    fn what_is_no_histogram_of_these_bounds_is_refused() {
        let whole = Latency::new().encode();
        for text in ["", "HISTF", &whole[..whole.len() / 2], "!"] {
            Latency::decode(text).expect_err(text);
        }
        let mut bytes = Vec::new();
        let other = Histogram::<u64>::new_with_bounds(1, 1_000, 2).expect("valid bounds");
        V2DeflateSerializer::new().serialize(&other, &mut bytes).expect("memory takes it");
        let refused = Latency::decode(&BASE64_STANDARD.encode(bytes)).expect_err("it has other bounds");
        assert_eq!(refused.to_string(), "not a histogram of times: its bounds are not 1 ns to 1 h with three digits");
    }
}
