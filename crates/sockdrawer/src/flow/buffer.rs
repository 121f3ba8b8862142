//! Pooled buffers for what a connection cannot be rid of at once: input not taken, output not sent. Most connections have none.

/// No buffer.
pub(crate) const NONE: u32 = u32::MAX;
/// A buffer that grew beyond this gives its memory back.
const KEPT_BYTES: usize = 64 * 1024;
/// So many empty buffers keep their memory.
const KEPT_BUFFERS: usize = 256;

/// A queue of bytes.
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

/// The buffers of one loop, by number.
#[derive(Default)]
pub(crate) struct Buffers {
    all: Vec<Buffer>,
    free: Vec<u32>,
    /// How many of the free ones keep memory; they are taken first.
    warm: usize,
}

impl Buffers {
    pub(crate) fn at(&mut self, number: u32) -> &mut Buffer {
        &mut self.all[number as usize]
    }

    /// Bytes in a buffer that may be none.
    pub(crate) fn len(&self, number: u32) -> usize {
        if number == NONE { 0 } else { self.all[number as usize].bytes().len() }
    }

    /// Appends to a buffer, one that is taken for it when there is none.
    #[inline]
    pub(crate) fn push(&mut self, number: &mut u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.append(number, bytes);
        }
    }

    fn append(&mut self, number: &mut u32, bytes: &[u8]) {
        if *number == NONE {
            self.warm = self.warm.saturating_sub(1);
            *number = self.free.pop().unwrap_or_else(|| {
                self.all.push(Buffer::default());
                u32::try_from(self.all.len() - 1).expect("fewer buffers than seats")
            });
        }
        self.at(*number).push(bytes);
    }

    /// Gives a buffer back, if there is one; what it holds is forgotten.
    #[inline]
    pub(crate) fn release(&mut self, number: &mut u32) {
        if *number != NONE {
            self.put_back(std::mem::replace(number, NONE));
        }
    }

    fn put_back(&mut self, number: u32) {
        let room = self.warm < KEPT_BUFFERS;
        let buffer = self.at(number);
        buffer.start = 0;
        buffer.bytes.clear();
        if room && buffer.bytes.capacity() <= KEPT_BYTES {
            self.warm += 1;
            self.free.push(number);
        } else {
            buffer.bytes = Vec::new();
            // Below the warm ones, which are the last `warm` of the list.
            let below = self.free.len() - self.warm;
            self.free.push(number);
            let last = self.free.len() - 1;
            self.free.swap(below, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut buffers = Buffers::default();
        let mut number = NONE;
        let (mut written, mut read) = (0_u32, 0_u32);
        for round in 1..200_usize {
            for _ in 0..round % 7 + 1 {
                buffers.push(&mut number, &written.to_le_bytes());
                written += 1;
            }
            for _ in 0..(round % 5).min((written - read) as usize) {
                assert_eq!(buffers.at(number).bytes()[..4], read.to_le_bytes());
                buffers.at(number).take(4);
                read += 1;
            }
        }
        assert_eq!(buffers.len(number), (written - read) as usize * 4);
        buffers.release(&mut number);
        assert_eq!((number, buffers.len(number)), (NONE, 0));
    }

    #[test]
    fn a_buffer_given_back_is_used_again_and_large_memory_is_not_kept() {
        let mut buffers = Buffers::default();
        let (mut one, mut two) = (NONE, NONE);
        buffers.push(&mut one, &vec![1; KEPT_BYTES + 1]);
        let first = one;
        buffers.release(&mut one);
        buffers.push(&mut two, b"x");
        assert_eq!((first, buffers.len(two)), (two, 1));
        assert!(buffers.at(two).bytes.capacity() <= KEPT_BYTES);
    }

    #[test]
    fn memory_kept_before_a_burst_is_used_again_after_it() {
        let mut buffers = Buffers::default();
        let mut burst = vec![NONE; 4 * KEPT_BUFFERS];
        burst.iter_mut().for_each(|number| buffers.push(number, b"x"));
        burst.iter_mut().for_each(|number| buffers.release(number));
        for used_at_once in [1, KEPT_BUFFERS / 2, KEPT_BUFFERS] {
            for _ in 0..3 {
                let mut numbers = vec![NONE; used_at_once];
                for number in &mut numbers {
                    let top = *buffers.free.last().expect("the burst left more");
                    assert!(buffers.at(top).bytes.capacity() > 0, "it allocates again");
                    buffers.push(number, b"x");
                }
                numbers.iter_mut().for_each(|number| buffers.release(number));
            }
        }
        let kept = buffers.all.iter().filter(|buffer| buffer.bytes.capacity() > 0).count();
        assert!(kept <= KEPT_BUFFERS, "{kept} keep memory");
    }
}
