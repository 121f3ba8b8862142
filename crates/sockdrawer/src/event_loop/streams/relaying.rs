//! Relays: the bytes of one connection go to another, through the loop's buffer. What the receiver's kernel does not take is kept, and until that is
//! sent the other side is not read. Where a side has layers, `passing.rs` puts their filters between.

use super::Streams;
use crate::event_loop::READS_PER_TURN;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Relay;
use crate::protocol::Closed;
use crate::sys::Errno;
use std::os::fd::AsFd;

/// Result of one read of a relay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::event_loop) enum Relayed {
    /// The other side has all that there was.
    All,
    /// The buffer was filled: there is probably more.
    More,
    /// The other side has not taken all, or the stream has ended: epoll is to be asked for something else.
    Stuck,
    /// The relay is over.
    Over,
}

/// Two connections that are joined: bytes go from the first to the other.
pub(in crate::event_loop) struct Pair<'c> {
    pub(super) streams: &'c mut Streams,
    pub(super) from: u32,
    pub(super) to: u32,
}

impl<'c> Pair<'c> {
    pub(in crate::event_loop) fn of(streams: &'c mut Streams, from: u32, to: u32) -> Pair<'c> {
        Pair { streams, from, to }
    }

    /// Relays input that the protocol of the first side left, and the end, if it was read already.
    pub(in crate::event_loop) fn relay_kept(&mut self) {
        if self.pass_kept() != Relayed::Over && self.streams.slots.at(self.from).flags.any(Flags::PEER_ENDED) {
            self.pass_end();
        }
    }

    /// Reads what there is, a few times at most, and sends it to the other side.
    pub(in crate::event_loop) fn relay(&mut self) {
        if self.streams.slots.at(self.from).flags.any(Flags::PEER_ENDED) || !self.streams.slots.other_takes(self.from) {
            return;
        }
        for _ in 0..READS_PER_TURN {
            let Some((relay, _)) = self.streams.slots.relay_of(self.from) else { return };
            if self.relay_once(relay) != Relayed::More {
                return;
            }
        }
    }

    #[inline]
    pub(in crate::event_loop) fn relay_once(&mut self, Relay { most, filtered, .. }: Relay) -> Relayed {
        if filtered {
            return self.pass_once(most);
        }
        let Streams { slots, io, read, unsent, .. } = &mut *self.streams;
        let record = slots.at(self.from);
        let socket = record.socket.as_ref().expect("a connection that is relayed has its socket");
        let count = match io.system.receive(socket.as_fd(), &mut read.pages[..most]) {
            Ok(0) => {
                record.flags.set(Flags::PEER_ENDED);
                return self.ended();
            }
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Relayed::All,
            Err(errno) => return self.failed(self.from, errno),
        };
        record.bytes_in += count as u64;
        io.counters.bytes_in().add(count as u64);
        let record = slots.at(self.to);
        let socket = record.socket.as_ref().expect("a connection that is relayed has its socket");
        let sent = match io.system.send(socket.as_fd(), &read.pages[..count], false) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return self.failed(self.to, errno),
        };
        record.bytes_out += sent as u64;
        io.counters.bytes_out().add(sent as u64);
        if sent < count {
            unsent.keep(slots, self.to, &read.pages[sent..count]);
            slots.read_next(self.from, most / 4);
            return Relayed::Stuck;
        }
        if count < most {
            return Relayed::All;
        }
        slots.read_next(self.from, 2 * most);
        Relayed::More
    }

    /// Ends the relay: the socket of this side failed.
    pub(super) fn failed(&mut self, side: u32, errno: Errno) -> Relayed {
        self.streams.fail(side, errno);
        Relayed::Over
    }

    /// Handles the end of the first side's input.
    pub(super) fn ended(&mut self) -> Relayed {
        self.pass_end();
        Relayed::Stuck
    }

    /// Tells the other side, when it has all, that this side sends no more. Once both have ended, both are over.
    fn pass_end(&mut self) {
        let (slot, other) = (self.from, self.to);
        let (token, other_token) = (self.streams.slots.token(slot), self.streams.slots.token(other));
        // The side that was first may be known only to the process from which both came.
        let is_first = !self.streams.slots.at(other).flags.any(Flags::PEER_ENDED);
        for (one, is_this) in [(slot, true), (other, false)].into_iter().filter(|_| is_first) {
            if let Some(extra) = self.streams.slots.extra_of(one) {
                extra.ended_first.get_or_insert(is_this);
            }
        }
        if self.streams.slots.relay_of(slot).is_some_and(|(relay, _)| relay.filtered) && !self.says_end() {
            return;
        }
        // The close of the socket tells the end, where nothing else comes before or after it.
        let closes =
            !is_first && !self.streams.slots.at(other).flags.any(Flags::UNSENT) && self.streams.slots.at(slot).has_ended();
        if closes {
            self.streams.slots.at(other).flags.set(Flags::ENDING_OUTPUT);
        } else {
            self.streams.end_output(other);
        }
        if self.streams.slots.is_relayed(token) && self.streams.slots.is_relayed(other_token) {
            self.end_if_over();
        }
    }

    /// Ends both sides, where each has ended in its direction.
    pub(in crate::event_loop) fn end_if_over(&mut self) {
        let both = [self.from, self.to];
        if both.iter().all(|side| self.streams.slots.at(*side).has_ended()) {
            // To forget one side's protocol ends the other side, which so leaves first: the permit of a connection that was made is free before that of the one it was
            // for.
            let made_first = self.streams.slots.at(self.to).flags.any(Flags::CONNECTED);
            let last = if made_first { self.from } else { self.to };
            self.streams.forget_protocol(last, Closed::Orderly);
            self.streams.leave(last, false);
        }
    }
}
