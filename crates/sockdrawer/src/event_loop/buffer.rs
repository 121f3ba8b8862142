//! Pooled buffers for what a connection cannot be rid of at once: input not taken, output not sent. Most connections have none.

use super::slot::Flags;
use super::slots::Slots;
use std::collections::HashMap;

/// A buffer that grew beyond this gives its memory back.
const KEPT_BYTES: usize = 64 * 1024;
/// A piece of this size gets the memory that it needs and no more.
const EXACT_BYTES: usize = 16 * 1024;
/// Maximum number of empty buffers that keep their memory.
const KEPT_BUFFERS: usize = 256;

/// Queue of bytes.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // A large piece is likely to be the last: twice what is needed would be touched for nothing when it moves.
        if bytes.len() >= EXACT_BYTES {
            self.bytes.reserve_exact(bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Forgets the first bytes. Moves the rest only when more than half is forgotten, so that a byte moves once on average.
    pub(crate) fn take(&mut self, count: usize) {
        self.start += count;
        if self.start * 2 > self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

/// The buffers of one loop for one purpose, by the slots that have one: an idle slot has no room for it.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Flag that is set in a slot that has a buffer.
    mark: Flags,
    /// Flags about the bytes that the buffer held, cleared with them.
    also: Flags,
    taken: HashMap<u32, Buffer>,
    /// Empty buffers with memory.
    warm: Vec<Buffer>,
}

impl Buffers {
    /// Makes buffers that slots have while they have this mark. The flags in `also` are about a buffer's bytes, and forgotten with them.
    pub(super) fn marked(mark: Flags, also: Flags) -> Buffers {
        Buffers { mark, also, ..Buffers::default() }
    }

    /// Keeps bytes behind those that a slot's buffer holds.
    pub(super) fn keep(&mut self, slots: &mut Slots, slot: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push(slot, bytes);
            let flags = &mut slots.at(slot).flags;
            flags.clear(self.also);
            flags.set(self.mark);
        }
    }

    /// Forgets what a slot's buffer holds, if it has one.
    #[inline]
    pub(super) fn forget(&mut self, slots: &mut Slots, slot: u32) {
        let flags = &mut slots.at(slot).flags;
        if flags.any(self.mark) {
            flags.clear(self.mark.union(self.also));
            self.release(slot);
        }
    }

    #[cfg(test)]
    fn has(&self, slot: u32) -> bool {
        !self.taken.is_empty() && self.taken.contains_key(&slot)
    }

    /// Returns the bytes in a slot's buffer; nothing where it has none.
    #[inline(never)]
    pub(crate) fn bytes(&self, slot: u32) -> &[u8] {
        // Nearly always, and no hash is needed.
        if self.taken.is_empty() {
            return &[];
        }
        self.taken.get(&slot).map_or(&[], Buffer::bytes)
    }

    /// Returns the buffer of a slot that has one.
    pub(crate) fn at(&mut self, slot: u32) -> &mut Buffer {
        self.taken.get_mut(&slot).expect("the slot has a buffer")
    }

    /// Appends to a slot's buffer, one that is taken for it when there is none.
    fn push(&mut self, slot: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.taken.entry(slot).or_insert_with(|| self.warm.pop().unwrap_or_default()).push(bytes);
    }

    /// Takes a slot's buffer away; what it holds is forgotten.
    pub(crate) fn release(&mut self, slot: u32) {
        if self.taken.is_empty() {
            return;
        }
        let Some(mut buffer) = self.taken.remove(&slot) else { return };
        if self.warm.len() < KEPT_BUFFERS && buffer.bytes.capacity() <= KEPT_BYTES {
            buffer.start = 0;
            buffer.bytes.clear();
            self.warm.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut buffers = Buffers::default();
        let (mut written, mut read) = (0_u32, 0_u32);
        for round in 1..200_usize {
            for _ in 0..round % 7 + 1 {
                buffers.push(7, &written.to_le_bytes());
                written += 1;
            }
            for _ in 0..(round % 5).min((written - read) as usize) {
                assert_eq!(buffers.bytes(7)[..4], read.to_le_bytes());
                buffers.at(7).take(4);
                read += 1;
            }
        }
        assert_eq!((buffers.bytes(7).len(), buffers.has(7)), ((written - read) as usize * 4, true));
        buffers.release(7);
        assert_eq!((buffers.bytes(7), buffers.has(7)), (&[][..], false));
    }

    #[test]
    fn each_seat_has_its_own() {
        let mut buffers = Buffers::default();
        buffers.push(1, b"one");
        buffers.push(2, b"");
        buffers.push(3, b"three");
        assert_eq!([1, 2, 3].map(|slot| buffers.bytes(slot)), [&b"one"[..], b"", b"three"]);
        assert!(!buffers.has(2), "nothing needs no buffer");
        buffers.release(1);
        assert_eq!((buffers.bytes(1), buffers.bytes(3)), (&b""[..], &b"three"[..]));
    }

    #[test]
    fn a_buffer_given_back_is_used_again_and_large_memory_is_not_kept() {
        let mut buffers = Buffers::default();
        buffers.push(1, &vec![1; KEPT_BYTES + 1]);
        buffers.release(1);
        assert!(buffers.warm.is_empty());
        buffers.push(1, b"x");
        let memory = buffers.bytes(1).as_ptr();
        buffers.release(1);
        buffers.push(2, b"y");
        assert_eq!((buffers.bytes(2), buffers.bytes(2).as_ptr()), (&b"y"[..], memory));
    }

    #[test]
    fn memory_kept_before_a_burst_is_used_again_after_it() {
        let mut buffers = Buffers::default();
        let burst = 4 * KEPT_BUFFERS as u32;
        (0..burst).for_each(|slot| buffers.push(slot, b"x"));
        (0..burst).for_each(|slot| buffers.release(slot));
        assert_eq!(buffers.warm.len(), KEPT_BUFFERS, "so many keep memory");
        (0..KEPT_BUFFERS as u32).for_each(|slot| buffers.push(slot, b"x"));
        assert!(buffers.warm.is_empty(), "those are used before memory is asked for");
    }
}
