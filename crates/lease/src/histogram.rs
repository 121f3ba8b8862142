//! Histogram of times.

use std::time::Duration;

/// Buckets of a power of two, as a power of two.
const PARTS: u32 = 3;
const BUCKETS: usize = (64 - PARTS as usize + 1) << PARTS;

/// Histogram of times from a nanosecond to centuries, log-linear: each power of two has eight buckets, so that a time is known to an eighth
/// of itself. It has a fixed size of 4 kB.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: Box::new([0; BUCKETS]), count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }
}

fn index(time: Duration) -> usize {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let shift = nanos.max(1).ilog2().saturating_sub(PARTS);
    ((shift as usize) << PARTS) + (nanos >> shift) as usize
}

/// Returns the longest time of a bucket.
fn longest(index: usize) -> Duration {
    let shift = (index >> PARTS).saturating_sub(1);
    let first = ((index - (shift << PARTS)) as u64) << shift;
    Duration::from_nanos(first + ((1 << shift) - 1))
}

impl Histogram {
    pub(crate) fn record(&mut self, time: Duration) {
        self.counts[index(time)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
    }

    /// Returns how many times were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all times.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the longest time, exactly.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Returns the time that this share of all did not exceed, to an eighth of it: 0.99 is the 99th percentile. None without any.
    ///
    /// ```
    /// # use sockdrawer_lease::Stats;
    /// assert_eq!(Stats::default().waiting.quantile(0.99), None);
    /// ```
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        bucket.map(|bucket| longest(bucket).min(self.max))
    }

    /// Returns the buckets that hold any time: the longest time of each, and how many it holds.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, count)| (longest(index), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_a_bucket_that_is_an_eighth_of_it_wide_at_most() {
        let mut last = None;
        for nanos in
            (0..4096).chain((12..64).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])).chain([u64::MAX])
        {
            let (bucket, time) = (index(Duration::from_nanos(nanos)), Duration::from_nanos(nanos));
            assert!(last.is_none_or(|last| bucket == last || bucket == last + 1 || nanos > 4096), "{nanos}");
            assert!(bucket < BUCKETS && longest(bucket) >= time && longest(bucket) - time <= time / 8, "{nanos}");
            assert!(bucket == 0 || longest(bucket - 1) < time, "{nanos}");
            last = Some(bucket);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        let quantile = |share| histogram.quantile(share).expect("there are some").as_micros();
        assert!((500..=563).contains(&quantile(0.5)) && (990..=1000).contains(&quantile(0.99)));
        assert_eq!(
            (quantile(1.0), histogram.max(), histogram.sum()),
            (1000, Duration::from_millis(1), Duration::from_micros(500_500))
        );
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), histogram.count());
    }
}
