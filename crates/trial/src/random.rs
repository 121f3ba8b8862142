//! Random numbers that a seed reproduces.

/// SplitMix64 (Steele, Lea, Flood 2014): 8 bytes of state, any seed is good. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number, of 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "a sequence without end needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a number less than `bound`. The bias of the remainder is below `bound` in 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Puts the items into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = last as u64 + 1;
            let other = usize::try_from(self.below(bound)).expect("less than the number of items");
            items.swap(last, other);
        }
    }
}

/// Returns the number at a position of the sequence: as random as [`Random`], without computing the numbers before.
pub fn mix(place: u64) -> u64 {
    let one = (place ^ (place >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let two = (one ^ (one >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    two ^ (two >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(7).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
