//! Relays: two connections of a loop whose bytes go to each other, through the loop's buffer. What the receiver's kernel does not take is kept,
//! and until that is sent the other side is not read. Where a side has layers, `passing.rs` puts their filters between.

use super::Connections;
use super::passing::Pair;
use crate::event_loop::READS_PER_TURN;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Relay;
use crate::protocol::{Closed, Handle};
use crate::sys::{Errno, Ready};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Result of one read of a relay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Relayed {
    /// The other side has all that there was.
    All,
    /// The buffer was filled: there is probably more.
    More,
    /// The other side has not taken all, or the stream has ended: epoll is to be asked for something else.
    Stuck,
    /// The relay is over.
    Over,
}

impl Connections {
    /// Does Step::Relay. What the protocols have not taken, or not sent, goes first.
    pub(super) fn start_relaying(&mut self, slot: u32, to: &Handle) {
        if !self.send(slot, false) {
            return;
        }
        if !Arc::ptr_eq(&to.post, &self.post) || to.token == self.slots.token(slot) || !self.slots.at(slot).is_free() {
            return self.crash(slot, "a protocol relays to a connection of another loop, to itself, or twice");
        }
        // A connection that is offered to another process is not that one's: it stays with this.
        let stays = self.slots.with_protocol(to.token).is_some_and(|other| self.take_back(other));
        let Some(other) = self.slots.with_protocol(to.token).filter(|_| stays) else {
            // The other connection has ended meanwhile, and this one with it.
            return self.end(slot, Closed::Aborted, true);
        };
        if !self.slots.at(other).is_free() {
            self.crash(slot, "a protocol relays to a connection that is relayed, delegated or runs a job");
            self.kill_one(to.token);
            return;
        }
        let token = self.slots.token(slot);
        for (one, to) in [(slot, to.token), (other, token)] {
            self.slots.join(one, to);
            let extra = self.slots.make_extra(one);
            (extra.wake_below, extra.asked) = (None, None);
            let flags = &mut self.slots.at(one).flags;
            flags.enter(Phase::Relayed);
            flags.clear(Flags::PAUSED.union(Flags::HELD).union(Flags::FULL).union(Flags::BACKED_UP));
        }
        if !Pair::of(self, slot, other).find_filters() {
            return;
        }
        self.relay_kept(slot, other);
        if self.slots.is_relayed(token) {
            self.relay_kept(other, slot);
        }
        for one in [slot, other] {
            if self.slots.is_relayed(token) {
                self.relay(one);
            }
        }
        self.settle_relay(token);
    }

    pub(super) fn settle_relay(&mut self, token: u64) {
        let Some(slot) = self.slots.find(token).filter(|slot| self.slots.at(*slot).flags.is(Phase::Relayed)) else { return };
        let other = self.slots.other(slot);
        self.settle(slot, false);
        if let Some(other) = other.filter(|_| self.slots.is_relayed(token)) {
            self.settle(other, false);
        }
    }

    /// Relays input that the protocol of this connection left, and the end, if it was read already.
    fn relay_kept(&mut self, slot: u32, other: u32) {
        if Pair::of(self, slot, other).pass_kept() == Relayed::Over {
            return;
        }
        if self.slots.at(slot).flags.any(Flags::PEER_ENDED) {
            self.pass_end(slot, other);
        }
    }

    /// Handles an event of epoll about a connection that is relayed.
    pub(super) fn relay_event(&mut self, slot: u32, ready: Ready) {
        let token = self.slots.token(slot);
        // Nearly always: there is input, one read brings it, and the other side takes it.
        let Some((relay, other)) = self.slots.relay_of(slot) else { return };
        let flags = self.slots.at(other).flags;
        if ready.is_input() && !flags.any(Flags::UNSENT) {
            match self.relay_once(slot, other, relay) {
                Relayed::All | Relayed::Over => return,
                Relayed::More => self.relay(slot),
                Relayed::Stuck => {}
            }
            return self.settle_relay(token);
        }
        let reads = !self.slots.at(slot).flags.any(Flags::PEER_ENDED) && !flags.any(Flags::UNSENT);
        // A socket that is read gives the input before a reset first, and then the reset.
        if ready.is_broken() && !(reads && ready.is_readable()) {
            if let Err(errno) = self.io.system.take_error(self.slots.socket(slot)) {
                return self.fail(slot, errno);
            }
            if !reads && !self.slots.at(slot).flags.any(Flags::UNSENT) {
                // Both directions have ended, and what is left waits for the other side: epoll would tell of it for ever.
                return self.io.unwatch(self.slots.at(slot));
            }
        }
        if ready.is_writable() && self.slots.at(slot).flags.any(Flags::UNSENT) {
            self.flush(slot);
            if !self.slots.is_relayed(token) {
                return;
            }
            if !self.slots.at(slot).flags.any(Flags::UNSENT) {
                self.end_relay_if_over(slot, other);
                if self.slots.is_relayed(token) {
                    self.relay(other);
                }
            }
        }
        if self.slots.is_relayed(token) && (ready.is_readable() || ready.is_broken()) {
            if self.slots.at(slot).flags.any(Flags::PEER_ENDED) {
                // Hung up on both sides: what is unsent can only fail now.
                self.flush(slot);
            } else if !self.slots.other_takes(slot) {
                return self.settle(slot, true);
            } else {
                self.relay(slot);
            }
        }
        self.settle_relay(token);
    }

    /// Reads what there is, a few times at most, and sends it to the other side.
    fn relay(&mut self, slot: u32) {
        if self.slots.at(slot).flags.any(Flags::PEER_ENDED) || !self.slots.other_takes(slot) {
            return;
        }
        for _ in 0..READS_PER_TURN {
            let Some((relay, other)) = self.slots.relay_of(slot) else { return };
            if self.relay_once(slot, other, relay) != Relayed::More {
                return;
            }
        }
    }

    #[inline]
    fn relay_once(&mut self, slot: u32, other: u32, Relay { most, filtered, .. }: Relay) -> Relayed {
        if filtered {
            return Pair::of(self, slot, other).pass_once(most);
        }
        let record = self.slots.at(slot);
        let socket = record.socket.as_ref().expect("a connection that is relayed has its socket");
        let count = match self.io.system.receive(socket.as_fd(), &mut self.read.pages[..most]) {
            Ok(0) => {
                record.flags.set(Flags::PEER_ENDED);
                self.pass_end(slot, other);
                return Relayed::Stuck;
            }
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Relayed::All,
            Err(errno) => {
                self.fail(slot, errno);
                return Relayed::Over;
            }
        };
        record.bytes_in += count as u64;
        self.io.counters.bytes_in().add(count as u64);
        let record = self.slots.at(other);
        let socket = record.socket.as_ref().expect("a connection that is relayed has its socket");
        let sent = match self.io.system.send(socket.as_fd(), &self.read.pages[..count], false) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => {
                self.fail(other, errno);
                return Relayed::Over;
            }
        };
        record.bytes_out += sent as u64;
        self.io.counters.bytes_out().add(sent as u64);
        if sent < count {
            self.unsent.keep(&mut self.slots, other, &self.read.pages[sent..count]);
            self.slots.read_next(slot, most / 4);
            return Relayed::Stuck;
        }
        if count < most {
            return Relayed::All;
        }
        self.slots.read_next(slot, 2 * most);
        Relayed::More
    }

    /// Tells the other side, when it has all, that this side sends no more. Once both have ended, both are over.
    pub(super) fn pass_end(&mut self, slot: u32, other: u32) {
        let (token, other_token) = (self.slots.token(slot), self.slots.token(other));
        // The side that was first may be known only to the process from which both came.
        let is_first = !self.slots.at(other).flags.any(Flags::PEER_ENDED);
        for (one, is_this) in [(slot, true), (other, false)].into_iter().filter(|_| is_first) {
            if let Some(extra) = self.slots.extra_of(one) {
                extra.ended_first.get_or_insert(is_this);
            }
        }
        if self.slots.relay_of(slot).is_some_and(|(relay, _)| relay.filtered) && !Pair::of(self, slot, other).says_end() {
            return;
        }
        // The close of the socket tells the end, where nothing else comes before or after it.
        let closes = !is_first && !self.slots.at(other).flags.any(Flags::UNSENT) && self.slots.at(slot).has_ended();
        if closes {
            self.slots.at(other).flags.set(Flags::ENDING_OUTPUT);
        } else {
            self.end_output(other);
        }
        if self.slots.is_relayed(token) && self.slots.is_relayed(other_token) {
            self.end_relay_if_over(slot, other);
        }
    }

    fn end_relay_if_over(&mut self, slot: u32, other: u32) {
        if self.slots.at(slot).has_ended() && self.slots.at(other).has_ended() {
            // The other one follows, and is gone first: the permit of a connection that was made is free before that of the one it was for.
            let made_first = self.slots.at(other).flags.any(Flags::CONNECTED);
            let last = if made_first { slot } else { other };
            self.forget_protocol(last, Closed::Orderly);
            self.leave(last, false);
        }
    }

    /// Ends the other connection of a relay likewise: the protocol of this one is gone, for this reason.
    #[cold]
    pub(super) fn end_other(&mut self, slot: u32, why: Closed) {
        let (other, cut) = (self.slots.other(slot), why == Closed::Idle && self.slots.at(slot).flags.any(Flags::UNSENT));
        let filtered = self.slots.relay_of(slot).is_some_and(|(relay, _)| relay.filtered);
        for one in self.slots.sides(slot) {
            self.slots.at(one).flags.enter(Phase::Open);
            self.slots.part(one);
        }
        let Some(other) = other else { return };
        // An end in order was that of one direction; this one is that of both, by the first side or by this process.
        let ended_first = matches!(why, Closed::Error(_) | Closed::Aborted).then_some(false);
        if why != Closed::Orderly
            && let Some(extra) = self.slots.extra_of(other)
        {
            extra.ended_first = ended_first;
        }
        match why {
            Closed::Orderly | Closed::Idle if !cut => {
                if filtered && why == Closed::Orderly && !Pair::of(self, slot, other).says_goodbye() {
                    return;
                }
                let peer_is_done = self.slots.at(other).flags.any(Flags::PEER_ENDED);
                self.close_otherwise(other, why, peer_is_done);
            }
            Closed::Aborted if self.slots.extra(other).is_some_and(|extra| extra.is_cut_short) => {
                self.io.counters.aborted().add(1);
                self.close_otherwise(other, why, false);
            }
            // Input that was relayed is not whole, and must not look like it.
            Closed::Purged => {
                self.io.counters.cut().add(1);
                self.end(other, why, true);
            }
            _ => self.end(other, Closed::Aborted, true),
        }
    }
}
