//! Times, counted by length, as histograms show them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The upper bounds of a histogram's buckets, in seconds.
pub(crate) const BOUNDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Times, counted by length.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// Number of values for each bound: those that are at most it, and above the bound before.
    buckets: Vec<u64>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.buckets.resize(BOUNDS.len(), 0);
        if let Some(bucket) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Makes them of counts of times, and of their sum.
    #[cfg(feature = "lease")]
    pub(crate) fn of(counts: impl Iterator<Item = (Duration, u64)>, sum: Duration) -> Times {
        let mut times = Times { sum: sum.as_secs_f64(), buckets: vec![0; BOUNDS.len()], ..Times::default() };
        for (time, count) in counts {
            if let Some(bucket) = BOUNDS.iter().position(|bound| time.as_secs_f64() <= *bound) {
                times.buckets[bucket] += count;
            }
            times.count += count;
        }
        times
    }

    /// Adds the values of another one.
    pub(crate) fn merge(&mut self, other: &Times) {
        self.buckets.resize(BOUNDS.len(), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(bucket, count)| *bucket = bucket.saturating_add(*count));
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
    }

    /// Returns for each bound how many values were at most that.
    pub(crate) fn up_to(&self) -> impl Iterator<Item = (f64, u64)> {
        let counts = self.buckets.iter().copied().chain(std::iter::repeat(0));
        BOUNDS.into_iter().zip(counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader whose floats are off by the last bit shows a lower sum than the writer did.
    #[test]
    fn the_next_build_reads_the_sum_that_was_written() {
        let mut times = Times::default();
        for nanoseconds in 1..1_000 {
            times.add(Duration::from_nanos(nanoseconds * 7_919));
            let text = serde_json::to_string(&times).expect("JSON");
            let read: Times = serde_json::from_str(&text).expect("JSON");
            assert_eq!(read.sum.to_bits(), times.sum.to_bits(), "{text}");
        }
    }
}
