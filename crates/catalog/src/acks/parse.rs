//! Messages out of bytes, at the speed of memory: nothing is copied and payloads are not looked at.

/// A larger payload closes the connection.
pub const MAX_PAYLOAD: u32 = 1_000_000;

const HEADER: usize = 12;

/// How a message's size is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeOrder {
    Little,
    Big,
}

/// Where a connection is in its stream. A payload is counted down as it comes, so that it may be larger than what a connection may
/// leave untaken; only a part of a header is left.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The message whose payload is under way.
    pub(super) id: u64,
    /// What is missing of its payload; 0 between messages.
    pub(super) payload_left: u32,
}

/// What became of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) taken: usize,
    /// The message after those taken is larger than allowed.
    pub(super) oversize: bool,
}

impl Parser {
    /// Calls `message` with the id of each message that is whole now.
    pub(super) fn parse(&mut self, bytes: &[u8], order: SizeOrder, mut message: impl FnMut(u64)) -> Parsed {
        let mut rest = bytes;
        if self.payload_left > 0 {
            let count = rest.len().min(self.payload_left as usize);
            rest = &rest[count..];
            self.payload_left -= count as u32;
            if self.payload_left > 0 {
                return Parsed { taken: count, oversize: false };
            }
            if count > 0 {
                message(self.id);
            }
        }
        while let Some((header, after)) = rest.split_first_chunk::<HEADER>() {
            let [a, b, c, d, e, f, g, h, size @ ..] = *header;
            let id = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let size = if order == SizeOrder::Big { u32::from_be_bytes(size) } else { u32::from_le_bytes(size) };
            match after.get(size as usize..) {
                Some(following) if size <= MAX_PAYLOAD => {
                    message(id);
                    rest = following;
                }
                None if size <= MAX_PAYLOAD => {
                    (self.id, self.payload_left) = (id, size - after.len() as u32);
                    return Parsed { taken: bytes.len(), oversize: false };
                }
                _ => return Parsed { taken: bytes.len() - rest.len(), oversize: true },
            }
        }
        Parsed { taken: bytes.len() - rest.len(), oversize: false }
    }
}
