//! The record of a connection, whatever protocol runs on it. It survives its protocol, to linger.

use super::phase::{PHASES, Phase, Row};
use super::timer::Node;
use crate::protocol::{ConnectionId, Handle, Post, Side};
use crate::sys::Interest;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of no listener, in the slot of a connection that came in at none.
pub(super) const NO_LISTENER: u16 = 0;

/// Connection of a loop. A million idle ones are 64 MB; the design's bound is 96 bytes each. Facts that the kernel knows, such as the
/// peer's address, are asked there when they are wanted.
#[repr(align(64))] // So that to look at one is to fetch one line.
pub(crate) struct Slot {
    /// The socket; None while the slot is empty; `timer.next` then links the empty ones. Also None while the connection is leased.
    pub(crate) socket: Option<OwnedFd>,
    /// Counts the connections that sat here: with the slot's number, a token that goes stale with its connection.
    pub(crate) version: u32,
    pub(crate) id: ConnectionId,
    /// Input so far. While it connects: the beginning of the connect, in ns since the loop began.
    pub(crate) bytes_in: u64,
    /// Output so far. While it connects: the delay of the connect behind its schedule, in ns.
    pub(crate) bytes_out: u64,
    pub(crate) timer: Node,
    /// The state's place in the generation's slab. While it connects, the number of its target; while it lingers, bytes discarded so far.
    pub(crate) state: u32,
    /// Moment at which it opened, in seconds of the clock that all processes of the machine share.
    pub(crate) opened: u32,
    /// The generation's place among the loop's.
    pub(crate) table: u16,
    /// Number of the listener by which the connection came in, as the table of slots numbers listeners.
    pub(crate) listener: u16,
    pub(crate) flags: Flags,
}

const _: () = assert!(size_of::<Slot>() <= 64);

/// Facts about a connection, several at once, and its phase.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags(u32);

/// The phase is a number in the highest bits.
const PHASE_SHIFT: u32 = 28;

impl Flags {
    /// This side connected.
    pub(crate) const CONNECTED: Flags = Flags(1);
    /// epoll knows the socket.
    pub(crate) const WATCHED: Flags = Flags(1 << 1);
    /// epoll reports input.
    pub(crate) const WATCH_READ: Flags = Flags(1 << 2);
    /// epoll reports room for output.
    pub(crate) const WATCH_WRITE: Flags = Flags(1 << 3);
    /// epoll reports the peer's end, while input is not asked for.
    pub(crate) const WATCH_END: Flags = Flags(1 << 4);
    const WATCHING: Flags = Flags::WATCH_READ.union(Flags::WATCH_WRITE).union(Flags::WATCH_END);
    /// A job runs.
    pub(crate) const WORKING: Flags = Flags(1 << 5);
    /// A job ran since the last read: more input may have come meanwhile.
    pub(crate) const WORKED: Flags = Flags(1 << 6);
    /// The protocol paused its input.
    pub(crate) const PAUSED: Flags = Flags(1 << 7);
    /// The notes of the connection found no room in the inbox of another loop.
    pub(crate) const HELD: Flags = Flags(1 << 8);
    /// Unsent output passed the high-water mark and has not fallen below the low one.
    pub(crate) const FULL: Flags = Flags(1 << 9);
    /// FULL, and no input is offered until it is not.
    pub(crate) const BACKED_UP: Flags = Flags(1 << 10);
    /// There is input that the protocol did not take.
    pub(crate) const KEPT: Flags = Flags(1 << 11);
    /// The kept input was searched to its end, and holds no line break. Only with `KEPT`.
    pub(crate) const NO_LINE: Flags = Flags(1 << 12);
    /// There is output that the kernel did not take.
    pub(crate) const UNSENT: Flags = Flags(1 << 13);
    /// The peer's end was read.
    pub(crate) const PEER_ENDED: Flags = Flags(1 << 14);
    /// The protocol was told of the peer's end.
    pub(crate) const TOLD_ENDED: Flags = Flags(1 << 15);
    /// The peer's end came while input was not asked for, and there is input before it.
    pub(crate) const END_BEHIND: Flags = Flags(1 << 16);
    /// Our end is to be told once all is sent, or was.
    pub(crate) const ENDING_OUTPUT: Flags = Flags(1 << 17);
    /// The connection is asked to end.
    pub(crate) const DRAINING: Flags = Flags(1 << 18);
    /// The protocol was told that the connection is asked to end.
    pub(crate) const TOLD_DRAINING: Flags = Flags(1 << 19);
    /// The connection was purged: its end counts as that, unless it is cut off.
    pub(crate) const PURGED: Flags = Flags(1 << 20);
    /// The timer is that of the idle timeout, and not the protocol's.
    pub(crate) const IDLE: Flags = Flags(1 << 21);
    /// The table has an [`Extra`](super::slots::Extra) of it.
    pub(crate) const EXTRA: Flags = Flags(1 << 22);
    /// The connection has given handles to itself away.
    pub(crate) const HANDLED: Flags = Flags(1 << 23);

    /// The connection is not open.
    const BUSY: Flags = Flags(!0 << PHASE_SHIFT);

    /// While any of these is set, input is not offered.
    const HOLDING: Flags = Flags::WORKING.union(Flags::PAUSED).union(Flags::HELD).union(Flags::BACKED_UP);

    /// While any of these is set, the connection is not read.
    pub(crate) const UNREAD: Flags = Flags::HOLDING.union(Flags::PEER_ENDED).union(Flags::BUSY);

    /// While none of these is set, and no timer, only the slot knows of the connection.
    pub(crate) const ENTANGLED: Flags = Flags::WORKING
        .union(Flags::KEPT)
        .union(Flags::UNSENT)
        .union(Flags::EXTRA)
        .union(Flags::HANDLED)
        .union(Flags::PURGED)
        .union(Flags::BUSY);

    /// Returns true where any of these flags is set.
    pub(crate) const fn any(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    pub(crate) fn set(&mut self, flags: Flags) {
        self.0 |= flags.0;
    }

    pub(crate) fn clear(&mut self, flags: Flags) {
        self.0 &= !flags.0;
    }

    /// Returns what epoll reports by this interest.
    pub(crate) fn watching(Interest { read, write, end }: Interest) -> Flags {
        let mut flags = Flags::default();
        for (is_asked, flag) in [(read, Flags::WATCH_READ), (write, Flags::WATCH_WRITE), (end, Flags::WATCH_END)] {
            flags.0 |= if is_asked { flag.0 } else { 0 };
        }
        flags
    }

    /// Returns whether epoll reports just what it would by this interest.
    pub(crate) fn watches(self, interest: Interest) -> bool {
        self.0 & Flags::WATCHING.0 == Flags::watching(interest).0
    }

    /// Notes what epoll reports from now on; with None, it does not know the socket.
    pub(crate) fn set_watched(&mut self, interest: Option<Interest>) {
        self.clear(Flags::WATCHED.union(Flags::WATCHING));
        if let Some(interest) = interest {
            self.set(Flags::WATCHED.union(Flags::watching(interest)));
        }
    }

    /// Returns the flags of both sets.
    pub(crate) const fn union(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }

    pub(crate) const fn is(self, phase: Phase) -> bool {
        self.0 >> PHASE_SHIFT == phase as u32
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.clear(Flags::BUSY);
        self.0 |= (phase as u32) << PHASE_SHIFT;
    }

    /// Returns what the phase means.
    pub(crate) fn phase(self) -> &'static Row {
        &PHASES[(self.0 >> PHASE_SHIFT) as usize]
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
        flags: Flags((Phase::Empty as u32) << PHASE_SHIFT),
    };

    pub(crate) fn side(&self) -> Side {
        if self.flags.any(Flags::CONNECTED) { Side::Connected } else { Side::Accepted }
    }

    /// Returns whether a connection sits here.
    pub(crate) fn is_taken(&self) -> bool {
        !self.flags.is(Phase::Empty)
    }

    /// Returns true where a protocol runs on the connection.
    pub(crate) fn has_protocol(&self) -> bool {
        self.flags.phase().protocol
    }

    /// Returns whether there is a connection with a protocol, or one that still connects, which is of the active generation.
    pub(crate) fn is_operated(&self) -> bool {
        self.has_protocol() || self.flags.is(Phase::Connecting)
    }

    /// Returns whether the protocol is to be told now that it is to end, whatever it is doing: once.
    pub(crate) fn is_told_first(&mut self) -> bool {
        let is_first = self.flags.phase().called && !self.flags.any(Flags::TOLD_DRAINING);
        if is_first {
            self.flags.set(Flags::DRAINING.union(Flags::TOLD_DRAINING));
        }
        is_first
    }

    /// Returns how many bytes went either way, but for those that were not taken. Input that is left untaken is no progress: half a request that grows byte
    /// by byte is still half a request.
    pub(crate) fn progress(&self, untaken: usize) -> u64 {
        (self.bytes_in + self.bytes_out).wrapping_sub(untaken as u64)
    }

    /// Returns how late the connect was, in a loop that began at `start`, and how long it has taken.
    pub(crate) fn connect_times(&self, start: Instant) -> (Duration, Duration) {
        let began = start + Duration::from_nanos(self.bytes_in);
        (Duration::from_nanos(self.bytes_out), began.elapsed())
    }

    /// Gives a handle to the connection, which has this slot, away.
    pub(crate) fn handle(&mut self, slot: u32, post: &Arc<dyn Post>) -> Handle {
        self.flags.set(Flags::HANDLED);
        let token = token(slot, self.version);
        post.give(token);
        Handle { post: post.clone(), token, id: self.id }
    }

    /// Returns whether neither side has anything to send any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.flags.any(Flags::PEER_ENDED) && self.flags.any(Flags::ENDING_OUTPUT) && !self.flags.any(Flags::UNSENT)
    }

    /// Returns whether its protocol is served by this loop.
    pub(crate) fn is_open(&self) -> bool {
        self.flags.is(Phase::Open)
    }

    /// Returns whether nothing else has the connection or is done for it: no lease, relay, move or job.
    pub(crate) fn is_free(&self) -> bool {
        self.is_open() && !self.flags.any(Flags::WORKING)
    }

    /// Returns true where epoll waits for input and nothing else, as is right where it is read and nothing is unsent.
    pub(crate) fn is_settled(&self) -> bool {
        let watching = Flags::WATCHED.union(Flags::WATCH_READ);
        let looked_at = watching.union(Flags::WATCH_WRITE).union(Flags::UNSENT).union(Flags::UNREAD);
        self.flags.0 & looked_at.0 == watching.0
    }

    /// Returns true where `received` and `peer_ended` may come.
    pub(crate) fn may_receive(&self) -> bool {
        !self.flags.any(Flags::HOLDING.union(Flags::BUSY))
    }

    /// Returns true where the end of the peer may be told: where the protocol has paused, too, once no input is left before it.
    pub(crate) fn may_hear_end(&self) -> bool {
        let has_input_before = self.flags.any(Flags::PAUSED) && self.flags.any(Flags::KEPT);
        !self.flags.any(Flags::WORKING.union(Flags::HELD).union(Flags::BACKED_UP).union(Flags::BUSY)) && !has_input_before
    }
}

/// Returns the name of a connection of a loop, by which epoll and messages know it.
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
