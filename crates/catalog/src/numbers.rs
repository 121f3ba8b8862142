//! A stream of numbered bytes: what is lost, doubled, changed or from another connection shows as wrong bytes.

use sockdrawer::{ConnectionId, Output};

/// 8-byte little-endian counters from a start that differs for each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    start: u64,
}

/// Spreads nearby values over all 64 bits: the SplitMix64 finaliser (Steele, Lea, Flood 2014).
pub(crate) fn scatter(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Numbers {
    pub(crate) fn new(seed: u64, id: ConnectionId) -> Numbers {
        Numbers { start: scatter(seed ^ scatter(id.0)) }
    }

    /// Returns the words that hold the `count` bytes from `offset`, each with the part of it that belongs to them.
    fn words(self, offset: u64, count: u64) -> impl Iterator<Item = ([u8; 8], std::ops::Range<usize>)> {
        let end = offset + count;
        (offset / 8..end.div_ceil(8)).map(move |word| {
            let first = word * 8;
            let part = offset.saturating_sub(first) as usize..(end - first).min(8) as usize;
            (self.start.wrapping_add(word).to_le_bytes(), part)
        })
    }

    /// Appends the `count` bytes from `offset`.
    pub(crate) fn send(self, offset: u64, count: u64, out: &mut Output) {
        self.words(offset, count).for_each(|(word, part)| out.push(&word[part]));
    }

    /// Returns the number of bytes in `bytes` that are not those from `offset`.
    pub(crate) fn wrong(self, offset: u64, bytes: &[u8]) -> u64 {
        let mut rest = bytes;
        let mut wrong = 0;
        for (word, part) in self.words(offset, bytes.len() as u64) {
            let (here, after) = rest.split_at(part.len());
            if *here != word[part.clone()] {
                wrong += here.iter().zip(&word[part]).filter(|(got, wanted)| got != wanted).count() as u64;
            }
            rest = after;
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_the_stream_is_the_same_and_every_wrong_byte_is_counted() {
        let numbers = Numbers::new(7, ConnectionId(3));
        let mut whole = Output::default();
        numbers.send(0, 64, &mut whole);
        for from in 0..40 {
            for count in 0..24 {
                let mut part = Output::default();
                numbers.send(from, count, &mut part);
                assert_eq!(part.bytes(), &whole.bytes()[from as usize..(from + count) as usize]);
                assert_eq!(numbers.wrong(from, part.bytes()), 0);
                let mut changed = part.bytes().to_vec();
                changed.iter_mut().step_by(5).for_each(|byte| *byte ^= 1);
                assert_eq!(numbers.wrong(from, &changed), count.div_ceil(5));
            }
        }
    }

    #[test]
    fn connections_and_seeds_differ() {
        let mut one = Output::default();
        Numbers::new(7, ConnectionId(3)).send(0, 8, &mut one);
        assert!(Numbers::new(7, ConnectionId(4)).wrong(0, one.bytes()) > 4);
        assert!(Numbers::new(8, ConnectionId(3)).wrong(0, one.bytes()) > 4);
        assert!(Numbers::new(7, ConnectionId(3)).wrong(8, one.bytes()) > 0);
    }
}
