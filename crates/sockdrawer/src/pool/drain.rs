//! The course of a drain: when each of many connections is asked to end, which process asks how many, and how long what it is told may take.

use crate::clock::deadline;
use crate::operation::Drain;
use std::time::{Duration, Instant};

/// A loop that is busy for longer is asked again later.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Moments of what is done at a rate, so that an error of one does not add to the next. A rate of 0, or none that is a number, means all at once.
pub(super) struct Moments {
    began: Instant,
    gap: f64,
    done: u32,
}

impl Default for Moments {
    fn default() -> Moments {
        Moments { began: Instant::now(), gap: 0.0, done: 0 }
    }
}

impl Moments {
    pub(super) fn at(rate: f64, began: Instant) -> Moments {
        let gap = if rate > 0.0 { rate.recip() } else { 0.0 };
        Moments { began, gap, done: 0 }
    }

    pub(super) fn next(&mut self) -> Instant {
        let after = Duration::try_from_secs_f64(self.gap * f64::from(self.done)).unwrap_or(Duration::MAX);
        self.done = self.done.saturating_add(1);
        deadline(self.began, after)
    }
}

/// Brings items into a random order.
pub(super) fn shuffle<T>(items: &mut [T]) {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut random = RandomState::new().build_hasher().finish() | 1;
    for index in (1..items.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        items.swap(index, (random % (index as u64 + 1)) as usize);
    }
}

/// Returns the parts of a drain for processes with these counts of connections.
pub(super) fn share(how: Drain, counts: &[usize]) -> Vec<Drain> {
    // A process that has no connections now may have some in a moment.
    let weight = |count: usize| count.max(1) as f64;
    let (weights, all): (f64, usize) = (counts.iter().copied().map(weight).sum(), counts.iter().sum());
    // The part of the first so many connections: the differences add up to the whole.
    let reached = |most: usize, count: usize| (most as u128 * count as u128 / all.max(1) as u128) as usize;
    let mut before = 0;
    let shares = counts.iter().map(|count| {
        let from = before;
        before += count;
        Drain {
            rate: how.rate.map(|rate| rate * weight(*count) / weights),
            max_connections: how.max_connections.map(|most| reached(most, before) - reached(most, from)),
            ..how
        }
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_a_gap_apart() {
        let began = Instant::now();
        let mut moments = Moments::at(3.0, began);
        let due: Vec<Duration> = (0..3001).map(|_| moments.next() - began).collect();
        assert_eq!(due[0], Duration::ZERO);
        assert!(due[3000].abs_diff(Duration::from_secs(1000)) < Duration::from_micros(1), "{:?}", due[3000]);
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX] {
            let mut moments = Moments::at(rate, began);
            assert!((0..3).all(|_| moments.next() == began), "{rate}");
        }
        let mut moments = Moments::at(1e-300, began);
        assert_eq!(moments.next(), began);
        assert!(moments.next() > began + Duration::from_secs(1 << 30));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<u32> = (0..1000).collect();
        shuffle(&mut items);
        assert!(items.windows(2).any(|pair| pair[0] > pair[1]));
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_parts_of_a_drain_are_the_whole() {
        for (most, counts, expected) in [
            (100, &[500, 300, 200][..], &[50, 30, 20][..]),
            (1000, &[500, 300, 200], &[500, 300, 200]),
            (7, &[1, 1, 1], &[2, 2, 3]),
            (0, &[5, 0], &[0, 0]),
            (5, &[0, 5], &[0, 5]),
        ] {
            let shares = share(Drain::within(Duration::ZERO).rate(30.0).max_connections(most), counts);
            let parts: Vec<_> = shares.iter().filter_map(|share| share.max_connections).collect();
            assert_eq!(parts, expected, "{most} of {counts:?}");
            assert!((shares.iter().filter_map(|share| share.rate).sum::<f64>() - 30.0).abs() < 1e-9);
        }
    }
}
