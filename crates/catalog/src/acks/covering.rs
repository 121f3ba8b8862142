//! Acks out of bytes, as a client reads them.

use super::AckPattern;

/// Acks that were read: the messages that they cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covered {
    /// The id after the last message covered.
    pub(super) next: u64,
    /// Bytes of whole acks.
    pub(super) taken: usize,
    /// Number of whole acks.
    pub(super) acks: u64,
    /// The ack after those is none that a server may send.
    pub(super) wrong: bool,
}

/// Reads the whole acks in `bytes` where the messages before `next` are acknowledged, and those from `written` on were not sent.
/// Each ack must go on where the one before ended: `last_ack + skipped + 1 == id`.
pub(super) fn read(pattern: AckPattern, bytes: &[u8], next: u64, written: u64) -> Covered {
    let mut covered = Covered { next, taken: 0, acks: 0, wrong: false };
    if pattern == AckPattern::Reply {
        bytes.as_chunks().0.iter().all(|id| covered.go_on(u64::from_le_bytes(*id), 0, written, 8));
    } else {
        bytes.as_chunks().0.iter().all(|ack: &[u8; 12]| {
            let [a, b, c, d, e, f, g, h, skipped @ ..] = *ack;
            covered.go_on(u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(skipped), written, 12)
        });
    }
    covered
}

impl Covered {
    /// Takes one more ack, of `length` bytes. Returns false where it is wrong.
    fn go_on(&mut self, id: u64, skipped: u32, written: u64, length: usize) -> bool {
        self.wrong = id >= written || self.next.checked_add(skipped.into()) != Some(id);
        if !self.wrong {
            (self.next, self.taken, self.acks) = (id + 1, self.taken + length, self.acks + 1);
        }
        !self.wrong
    }
}
