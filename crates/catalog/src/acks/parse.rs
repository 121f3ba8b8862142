//! Messages out of bytes, at the speed of memory: nothing is copied, and payloads are looked at by who wants to.

use super::consume::{Consumer, Part};

/// A larger payload closes the connection.
pub const MAX_PAYLOAD: u32 = 1_000_000;

/// Bytes before a payload.
pub(super) const HEADER: usize = 12;

/// How a message's size is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeOrder {
    Little,
    Big,
}

impl SizeOrder {
    /// Id and payload size.
    #[inline]
    pub(super) fn header(self, bytes: [u8; HEADER]) -> (u64, u32) {
        let [a, b, c, d, e, f, g, h, size @ ..] = bytes;
        let size = if self == SizeOrder::Big { u32::from_be_bytes(size) } else { u32::from_le_bytes(size) };
        (u64::from_le_bytes([a, b, c, d, e, f, g, h]), size)
    }
}

/// Where a connection is in its stream. A payload is counted down as it comes, so that it may be larger than what a connection may
/// leave untaken; only a part of a header is left.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The message whose payload is under way.
    pub(super) id: u64,
    pub(super) size: u32,
    /// What is missing of its payload; 0 between messages.
    pub(super) payload_left: u32,
}

/// What became of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) taken: usize,
    /// The message after those taken is larger than allowed, or was refused.
    pub(super) refused: bool,
}

impl Parser {
    /// Gives payloads to `consumer` as they come, and calls `message` with the id of each message that is whole now.
    pub(super) fn parse<C: Consumer>(
        &mut self,
        bytes: &[u8],
        order: SizeOrder,
        consumer: &mut C,
        mut message: impl FnMut(u64),
    ) -> Parsed {
        let mut rest = bytes;
        let until = |rest: &[u8], refused| Parsed { taken: bytes.len() - rest.len(), refused };
        if self.payload_left > 0 {
            let (part, after) = rest.split_at(rest.len().min(self.payload_left as usize));
            if self.go_on(part, consumer) {
                return until(rest, true);
            }
            rest = after;
            if self.payload_left > 0 {
                return until(rest, false);
            }
            message(self.id);
        }
        while let Some((header, after)) = rest.split_first_chunk() {
            let (id, size) = order.header(*header);
            if size > MAX_PAYLOAD {
                return until(rest, true);
            }
            let Some((payload, following)) = after.split_at_checked(size as usize) else {
                (self.id, self.size, self.payload_left) = (id, size, size);
                return until(&[], self.go_on(after, consumer));
            };
            if consumer.part(Part { id, size, begin: 0, bytes: payload }).is_break() {
                return until(rest, true);
            }
            message(id);
            rest = following;
        }
        until(rest, false)
    }

    /// A part of the payload under way. Returns whether it was refused.
    fn go_on<C: Consumer>(&mut self, bytes: &[u8], consumer: &mut C) -> bool {
        let begin = self.size - self.payload_left;
        self.payload_left -= bytes.len() as u32;
        !bytes.is_empty() && consumer.part(Part { id: self.id, size: self.size, begin, bytes }).is_break()
    }
}
