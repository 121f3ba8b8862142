//! Random numbers for back-off and lifetimes.

use std::time::Duration;

/// A generator of random numbers, good enough to spread connects in time and for nothing secret. Equal seeds give equal numbers.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator that begins at the seed.
    pub fn seeded(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns the next number (splitmix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a time from zero up to `limit`, each equally likely.
    pub(crate) fn up_to(&mut self, limit: Duration) -> Duration {
        part(limit, (self.next() >> 32) as u32)
    }
}

/// Returns a share of the time: `share` of 2^32.
pub(crate) fn part(time: Duration, share: u32) -> Duration {
    let nanos = (time.as_nanos() * u128::from(share)) >> 32;
    // Times up to centuries do without divisions of 128 bits, which cost more than all else that is done for a lease.
    let long = |_| Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32);
    u64::try_from(nanos).map_or_else(long, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spread_below_the_limit_and_equal_seeds_give_equal_ones() {
        let (mut one, mut other) = (Random::seeded(7), Random::seeded(7));
        let limit = Duration::from_millis(100);
        let drawn: Vec<Duration> = (0..1000).map(|_| one.up_to(limit)).collect();
        assert!(drawn.iter().all(|time| *time < limit));
        for tenth in 0..10 {
            let within = |time: &&Duration| (time.as_millis() / 10) as usize == tenth;
            assert!((50..200).contains(&drawn.iter().filter(within).count()), "{tenth}");
        }
        assert!(drawn.iter().all(|time| *time == other.up_to(limit)));
        assert!(part(Duration::MAX, u32::MAX) < Duration::MAX);
    }
}
