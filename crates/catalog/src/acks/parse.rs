//! Messages out of bytes, at the speed of memory: nothing is copied, and payloads are looked at by consumers that want to.

use super::consume::{Consumer, Part};

/// A larger payload closes the connection.
pub const MAX_PAYLOAD: u32 = 1_000_000;

/// Bytes before a payload.
pub(super) const HEADER: usize = 12;

/// Byte order of a message's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeOrder {
    Little,
    Big,
}

impl SizeOrder {
    /// Returns id and payload size.
    #[inline]
    pub(super) fn header(self, bytes: [u8; HEADER]) -> (u64, u32) {
        let [a, b, c, d, e, f, g, h, size @ ..] = bytes;
        let size = if self == SizeOrder::Big { u32::from_be_bytes(size) } else { u32::from_le_bytes(size) };
        (u64::from_le_bytes([a, b, c, d, e, f, g, h]), size)
    }
}

/// Place of a connection in its stream. A payload is counted down as it comes, so that it may be larger than what a connection may leave untaken;
/// only a part of a header is left.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The message whose payload is under way.
    pub(super) id: u64,
    pub(super) size: u32,
    /// Number of bytes that are missing of the payload; 0 between messages.
    pub(super) payload_left: u32,
}

/// Result of parsing: the bytes taken, and the reason why no more were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedAcks {
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
    ) -> ParsedAcks {
        let mut rest = bytes;
        let until = |rest: &[u8], refused| ParsedAcks { taken: bytes.len() - rest.len(), refused };
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
        let (rest, refused) = whole(rest, order, consumer, message);
        match rest.split_first_chunk() {
            Some((header, after)) if !refused => {
                let (id, size) = order.header(*header);
                if size > MAX_PAYLOAD {
                    return until(rest, true);
                }
                (self.id, self.size, self.payload_left) = (id, size, size);
                until(&[], self.go_on(after, consumer))
            }
            _ => until(rest, refused),
        }
    }

    /// Takes a part of the payload under way. Returns whether it was refused.
    fn go_on<C: Consumer>(&mut self, bytes: &[u8], consumer: &mut C) -> bool {
        let begin = self.size - self.payload_left;
        self.payload_left -= bytes.len() as u32;
        !bytes.is_empty() && consumer.part(Part { id: self.id, size: self.size, begin, bytes }).is_break()
    }
}

/// Takes the whole messages at the beginning of `bytes`. Returns what follows them, and whether the next one was refused.
///
/// Where one message ends and the next begins is known only when its size has been read, and to wait for that is most of the time
/// a small message takes. So after two of one size the next is taken to be as large, until it is not: half the time. Nothing is
/// guessed where sizes differ, because a wrong guess costs more than it saves.
fn whole<'a, C: Consumer>(bytes: &'a [u8], order: SizeOrder, consumer: &mut C, mut message: impl FnMut(u64)) -> (&'a [u8], bool) {
    let (mut rest, mut before) = (bytes, None);
    while let Some((header, _)) = rest.split_first_chunk() {
        let (_, size) = order.header(*header);
        let (begin, alike) = (rest.len(), before == Some(size));
        before = Some(size);
        if size > MAX_PAYLOAD {
            break;
        }
        while let Some((one, following)) = rest.split_at_checked(HEADER + size as usize) {
            let Some((header, payload)) = one.split_first_chunk() else { break };
            let (id, here) = order.header(*header);
            if here != size {
                break;
            }
            if consumer.part(Part { id, size, begin: 0, bytes: payload }).is_break() {
                return (rest, true);
            }
            message(id);
            rest = following;
            if !alike {
                break;
            }
        }
        if rest.len() == begin {
            break;
        }
    }
    (rest, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acks::Ignore;
    use crate::numbers::scatter;
    use std::ops::ControlFlow;

    /// Ids, sizes and payloads of whole messages.
    #[derive(Default)]
    struct Collect {
        payload: Vec<u8>,
        messages: Vec<(u64, u32, Vec<u8>)>,
    }

    impl Consumer for Collect {
        fn part(&mut self, part: Part<'_>) -> ControlFlow<()> {
            assert_eq!(part.begin as usize, self.payload.len());
            self.payload.extend_from_slice(part.bytes);
            if part.is_last() {
                self.messages.push((part.id, part.size, std::mem::take(&mut self.payload)));
            }
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn messages_of_like_and_unlike_sizes_are_told_apart_wherever_they_are_split() {
        for seed in 0..300 {
            let random = |number: u64, bound: u64| scatter(seed << 32 | number) % bound;
            let (kinds, order) = (1 + random(0, 3), if seed % 2 == 0 { SizeOrder::Little } else { SizeOrder::Big });
            let (mut stream, mut expected) = (Vec::new(), Vec::new());
            for number in 1..60 {
                let id = random(number, u64::MAX);
                let payload: Vec<u8> = (0..random(id, kinds) * 13).map(|index| random(index, 256) as u8).collect();
                let size = payload.len() as u32;
                stream.extend_from_slice(&id.to_le_bytes());
                stream.extend(if order == SizeOrder::Big { size.to_be_bytes() } else { size.to_le_bytes() });
                stream.extend_from_slice(&payload);
                expected.push((id, size, payload));
            }
            let (mut parser, mut collect, mut ids) = (Parser::default(), Collect::default(), Vec::new());
            let (mut begin, mut end) = (0, 0);
            while begin < stream.len() {
                end = (end + 1 + random(begin as u64 + 1000, 200) as usize).min(stream.len());
                let parsed = parser.parse(&stream[begin..end], order, &mut collect, |id| ids.push(id));
                assert!(!parsed.refused && end - begin - parsed.taken < HEADER, "no more than a part of a header is left");
                begin += parsed.taken;
            }
            assert_eq!(collect.messages, expected, "{seed}");
            assert!(ids.iter().eq(expected.iter().map(|(id, ..)| id)), "{seed}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_also_after_messages_of_one_size() {
        for alike in 0..4 {
            let message = |size: u32| [&7_u64.to_le_bytes()[..], &size.to_le_bytes()].concat();
            let stream = [message(0).repeat(alike), message(MAX_PAYLOAD + 1)].concat();
            let mut count = 0;
            let parsed = Parser::default().parse(&stream, SizeOrder::Little, &mut Ignore, |_| count += 1);
            assert_eq!((parsed, count), (ParsedAcks { taken: alike * HEADER, refused: true }, alike));
        }
    }
}
