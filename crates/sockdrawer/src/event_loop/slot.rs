//! The record of a connection, whatever protocol runs on it. It survives its protocol, to linger.

use super::timer::Node;
use crate::protocol::{ConnectionId, Side};
use std::os::fd::OwnedFd;

/// In a slot, of a connection that came in at no listener.
pub(super) const NO_LISTENER: u16 = 0;

/// One connection. A million idle ones are 64 MB; the design's bound is 96 bytes each. What the kernel knows, such as the peer's
/// address, is asked there when it is wanted.
#[repr(align(64))] // So that to look at one is to fetch one line.
pub(crate) struct Slot {
    /// None while the slot is empty; `timer.next` then links the empty ones. Also None while the connection is leased.
    pub(crate) socket: Option<OwnedFd>,
    /// Counts the connections that sat here: with the slot's number, a token that goes stale with its connection.
    pub(crate) version: u32,
    pub(crate) id: ConnectionId,
    /// While it connects: when that began, in ns since the loop did.
    pub(crate) bytes_in: u64,
    /// While it connects: how late that was, in ns.
    pub(crate) bytes_out: u64,
    pub(crate) timer: Node,
    /// The state's place in the generation's slab. While it connects, the number of its target; while it lingers, bytes
    /// discarded so far.
    pub(crate) state: u32,
    /// When it opened, in seconds of the clock that all processes of the machine share.
    pub(crate) opened: u32,
    /// The generation's place among the loop's.
    pub(crate) table: u16,
    /// By which it came in, as the account numbers listeners.
    pub(crate) listener: u16,
    pub(crate) flags: Flags,
}

const _: () = assert!(size_of::<Slot>() <= 64);

/// What a connection is doing; several at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags(u32);

impl Flags {
    /// This side connected.
    pub(crate) const CONNECTED: Flags = Flags(1);
    /// Not yet connected; there is no protocol.
    pub(crate) const CONNECTING: Flags = Flags(1 << 1);
    /// epoll knows the socket.
    pub(crate) const WATCHED: Flags = Flags(1 << 2);
    /// epoll reports input.
    pub(crate) const WATCH_READ: Flags = Flags(1 << 3);
    /// epoll reports room for output.
    pub(crate) const WATCH_WRITE: Flags = Flags(1 << 4);
    /// A job runs.
    pub(crate) const WORKING: Flags = Flags(1 << 5);
    /// The protocol paused its input.
    pub(crate) const WAITING: Flags = Flags(1 << 6);
    /// Unsent output passed the high-water mark and has not fallen below the low one.
    pub(crate) const FULL: Flags = Flags(1 << 7);
    /// The peer's end was read.
    pub(crate) const PEER_ENDED: Flags = Flags(1 << 8);
    /// ... and the protocol was told.
    pub(crate) const TOLD_ENDED: Flags = Flags(1 << 9);
    /// Our end is to be told once all is sent, or was.
    pub(crate) const ENDING_OUTPUT: Flags = Flags(1 << 10);
    /// The protocol is gone; what is left is sent.
    pub(crate) const FLUSHING: Flags = Flags(1 << 11);
    /// The protocol is gone and all is sent; input is discarded until the peer's end.
    pub(crate) const LINGERING: Flags = Flags(1 << 12);
    /// Asked to end.
    pub(crate) const DRAINING: Flags = Flags(1 << 13);
    /// ... and the protocol was told.
    pub(crate) const TOLD_DRAINING: Flags = Flags(1 << 14);
    /// A job ran since the last read: more input may have come meanwhile.
    pub(crate) const WORKED: Flags = Flags(1 << 15);
    /// To be leased as soon as all output is sent.
    pub(crate) const DELEGATING: Flags = Flags(1 << 16);
    /// Leased: other code reads and writes the socket.
    pub(crate) const LEASED: Flags = Flags(1 << 17);
    /// FULL, and input waits until it is not.
    pub(crate) const PAUSED: Flags = Flags(1 << 18);
    /// There is input that the protocol did not take.
    pub(crate) const KEPT: Flags = Flags(1 << 19);
    /// There is output that the kernel did not take.
    pub(crate) const UNSENT: Flags = Flags(1 << 20);
    /// The timer is that of the idle timeout, and not the protocol's.
    pub(crate) const IDLE: Flags = Flags(1 << 21);
    /// It was purged: its end counts as that, unless it is cut off.
    pub(crate) const PURGED: Flags = Flags(1 << 23);
    /// The table has an [`Extra`](super::slots::Extra) of it.
    pub(crate) const EXTRA: Flags = Flags(1 << 22);
    /// Its end is counted as cut, and closing its socket sends a reset: nothing else happens to it any more.
    pub(crate) const CUT: Flags = Flags(1 << 24);

    /// Offered to another process: nothing happens to it here, but for its end.
    pub(crate) const FROZEN: Flags = Flags(1 << 25);
    /// Its notes found no room in the inbox of another loop.
    pub(crate) const HELD: Flags = Flags(1 << 26);
    /// epoll reports the peer's end, while input is not asked for.
    pub(crate) const WATCH_END: Flags = Flags(1 << 27);
    /// The peer's end came while input was not asked for, and there is input before it.
    pub(crate) const END_BEHIND: Flags = Flags(1 << 28);
    /// It has given handles to itself away.
    pub(crate) const HANDLED: Flags = Flags(1 << 31);
    /// Its bytes go to another connection, and that one's to it.
    pub(crate) const RELAYED: Flags = Flags(1 << 29);

    /// The kept input was searched to its end, and holds no line break. Only with `KEPT`.
    pub(crate) const NO_LINE: Flags = Flags(1 << 30);

    /// While any of these is set, the connection cannot move to another process.
    pub(crate) const UNMOVABLE: Flags = Flags(
        Flags::WORKING.0
            | Flags::DELEGATING.0
            | Flags::LEASED.0
            | Flags::RELAYED.0
            | Flags::DRAINING.0
            | Flags::PURGED.0
            | Flags::CUT.0
            | Flags::FROZEN.0,
    );

    /// While any of these is set, the connection is not read.
    pub(crate) const UNREAD: Flags = Flags(
        Flags::CUT.0
            | Flags::FROZEN.0
            | Flags::CONNECTING.0
            | Flags::FLUSHING.0
            | Flags::LINGERING.0
            | Flags::PEER_ENDED.0
            | Flags::WORKING.0
            | Flags::WAITING.0
            | Flags::HELD.0
            | Flags::PAUSED.0
            | Flags::DELEGATING.0
            | Flags::RELAYED.0
            | Flags::LEASED.0,
    );

    /// While none of these is set, and no timer, only the slot knows of the connection.
    pub(crate) const ENTANGLED: Flags = Flags(
        Flags::CONNECTING.0
            | Flags::WORKING.0
            | Flags::DELEGATING.0
            | Flags::LEASED.0
            | Flags::KEPT.0
            | Flags::UNSENT.0
            | Flags::EXTRA.0
            | Flags::HANDLED.0
            | Flags::PURGED.0,
    );

    /// Whether any of these is set.
    pub(crate) fn any(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    pub(crate) fn set(&mut self, flags: Flags) {
        self.0 |= flags.0;
    }

    pub(crate) fn clear(&mut self, flags: Flags) {
        self.0 &= !flags.0;
    }

    pub(crate) const fn and(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

impl Slot {
    pub(super) const EMPTY: Slot = Slot {
        socket: None,
        version: 1,
        id: ConnectionId(0),
        bytes_in: 0,
        bytes_out: 0,
        timer: Node::IDLE,
        state: 0,
        opened: 0,
        table: 0,
        listener: NO_LISTENER,
        flags: Flags(0),
    };

    pub(crate) fn side(&self) -> Side {
        if self.flags.any(Flags::CONNECTED) { Side::Connected } else { Side::Accepted }
    }

    /// Whether a connection sits here.
    pub(crate) fn is_taken(&self) -> bool {
        self.socket.is_some() || self.flags.any(Flags::LEASED)
    }

    /// Whether a protocol runs on it.
    pub(crate) fn has_protocol(&self) -> bool {
        self.is_taken() && !self.flags.any(Flags::CONNECTING.and(Flags::FLUSHING).and(Flags::LINGERING).and(Flags::CUT))
    }

    /// Whether epoll waits for input and nothing else, as is right where it is read and nothing is unsent.
    pub(crate) fn is_settled(&self) -> bool {
        let watching = Flags::WATCHED.0 | Flags::WATCH_READ.0;
        let looked_at = watching | Flags::WATCH_WRITE.0 | Flags::UNSENT.0 | Flags::UNREAD.0;
        self.flags.0 & looked_at == watching
    }

    /// Whether `received` and `peer_ended` may come.
    pub(crate) fn may_receive(&self) -> bool {
        let held =
            Flags::WORKING.and(Flags::WAITING).and(Flags::HELD).and(Flags::PAUSED).and(Flags::DELEGATING).and(Flags::LEASED);
        !self.flags.any(held.and(Flags::FROZEN).and(Flags::RELAYED))
    }

    /// Whether the end of the peer may be told: where the protocol has paused, too, once no input is left before it.
    pub(crate) fn may_hear_end(&self) -> bool {
        let held =
            Flags::WORKING.and(Flags::RELAYED).and(Flags::HELD).and(Flags::PAUSED).and(Flags::DELEGATING).and(Flags::LEASED);
        let has_input_before = self.flags.any(Flags::WAITING) && self.flags.any(Flags::KEPT);
        !self.flags.any(held.and(Flags::FROZEN)) && !has_input_before
    }
}

/// A connection of a loop, as epoll and messages name it.
pub(crate) fn token(slot: u32, version: u32) -> u64 {
    u64::from(version) << 32 | u64::from(slot)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_flag_is_a_bit_of_its_own() {
        let bits = include_str!("slot.rs").lines().filter_map(|line| line.trim().strip_suffix(");")?.split_once("= Flags(1 << "));
        let mut bits: Vec<&str> = bits.map(|(_, bit)| bit).collect();
        let all = bits.len();
        bits.sort_unstable();
        bits.dedup();
        assert!(all > 20 && bits.len() == all, "{all} flags, {} bits", bits.len());
    }
}
