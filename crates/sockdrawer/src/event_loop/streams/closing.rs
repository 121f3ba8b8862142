//! The end of a connection. Closing a socket with unread input sends a reset, which can destroy the last answer on its way; so
//! unless the peer is known to be silent, the socket lingers: it says that no more comes, reads and discards, then closes.

use super::idle::IdleWatch;
use super::relaying::Pair;
use super::{Streams, Tail, connects};
use crate::behaviour::Panicked;
use crate::clock::deadline;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Extra;
use crate::protocol::{Asks, Carried, Closed, Closing, Timer};
use crate::sys::{Errno, Interest};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A lingering socket is not read any more when its peer has sent more than this.
const DISCARD_BYTES: u32 = 64 * 1024;
/// A lingering connection with more input than this many reads is taken for one that goes on sending.
const LAST_READS: usize = 4;

impl Streams {
    /// Does Step::Close. Where nothing can be unread the end rides on the last bytes and the slot is free at once.
    pub(in crate::event_loop) fn close(&mut self, slot: u32, tail: Tail) {
        let record = self.slots.at(slot);
        let (flags, table) = (record.flags, record.table);
        let clean = tail == Tail::Clean && !flags.any(Flags::WORKED);
        let peer_is_done = clean && self.generations.at(table).closing == Closing::PeerIsDone;
        if !self.send(slot, true) {
            return;
        }
        let peer_is_done = peer_is_done || flags.any(Flags::PEER_ENDED);
        if peer_is_done && !self.is_entangled(slot) {
            return self.end_plainly(slot, table);
        }
        self.close_otherwise(slot, Closed::Orderly, peer_is_done);
    }

    /// Drops the protocol, then sends what is left: where output is unsent, input may be unread, or more than the slot knows of the connection.
    #[inline(never)]
    pub(super) fn close_otherwise(&mut self, slot: u32, why: Closed, peer_is_done: bool) {
        let unsent = self.slots.at(slot).flags.any(Flags::UNSENT);
        self.forget_protocol(slot, why);
        if peer_is_done && !unsent {
            return self.leave(slot, false);
        }
        // The protocol has left its generation, which may be gone: the times of the generation in force apply.
        let flush = self.generations.active_settings().flush;
        self.start_closing(slot, flush, !flush.is_zero());
    }

    /// Does the usual end: all is sent, the peer is silent, and only the slot knows of the connection.
    #[inline(always)]
    fn end_plainly(&mut self, slot: u32, table: u16) {
        if let Err(Panicked(message)) = self.close_protocol(slot, Closed::Orderly) {
            self.io.count_panic(&mut self.slots, slot, message);
        }
        let listener = self.empty_slot(slot);
        self.generations.leave(&self.io, table);
        self.slots.put_back(listener);
    }

    /// Closes the socket of a connection that only its slot knows of. Returns its listener's number: the permit is still taken.
    #[inline(always)]
    fn empty_slot(&mut self, slot: u32) -> u16 {
        self.io.counters.closed().add(1);
        let listener = self.slots.vacate(slot);
        self.descriptor_freed = true;
        listener
    }

    /// Returns true where more than the slot knows of its connection.
    #[inline(always)]
    fn is_entangled(&mut self, slot: u32) -> bool {
        let record = self.slots.at(slot);
        record.flags.any(Flags::ENTANGLED) || record.timer.is_set() || self.snapshot.is_some() || self.page.is_some()
    }

    /// Does Step::EndOutput: sends what was appended, then our end.
    pub(in crate::event_loop) fn end_output(&mut self, slot: u32) {
        self.slots.at(slot).flags.set(Flags::ENDING_OUTPUT);
        if self.send(slot, true) && !self.slots.at(slot).flags.any(Flags::UNSENT) {
            self.all_sent(slot);
        }
    }

    /// Starts to close a connection whose protocol is gone: what is left is sent, then the socket lingers. `flush` is the time for that; with
    /// `while_it_reads` it begins anew whenever the peer has read something.
    pub(in crate::event_loop) fn start_closing(&mut self, slot: u32, flush: Duration, while_it_reads: bool) {
        let flags = &mut self.slots.at(slot).flags;
        flags.enter(Phase::Flushing);
        flags.clear(Flags::PAUSED.union(Flags::HELD).union(Flags::FULL).union(Flags::BACKED_UP));
        if flags.any(Flags::EXTRA) && self.slots.extra(slot).is_some_and(|extra| extra.is_cut_short) {
            // A reset drops what the kernel has not sent, so epoll is asked to tell of room only when it has nothing left. Unix sockets refuse that: their bytes are
            // with the peer already.
            let _ = self.io.system.has_room_once_sent(self.slots.socket(slot));
            self.slots.at(slot).flags.set(Flags::UNSENT);
        }
        if !self.slots.at(slot).flags.any(Flags::UNSENT) {
            return self.all_sent(slot);
        }
        if while_it_reads {
            IdleWatch::of(self).watch(slot, flush);
        } else {
            let now = Instant::now();
            self.timers.set(&mut self.slots, slot, deadline(now, flush), now);
        }
        self.settle(slot, false);
    }

    /// Tells the peer that all was sent that ever will be.
    pub(in crate::event_loop) fn all_sent(&mut self, slot: u32) {
        if self.slots.at(slot).flags.is(Phase::Flushing) && !self.ends_in_order(slot) {
            return self.leave(slot, true);
        }
        if self.io.system.finish(self.slots.socket(slot)).is_err() {
            // ENOTCONN: the connection is gone in both directions.
            return if self.slots.at(slot).has_protocol() { self.fail(slot, Errno::NOTCONN) } else { self.leave(slot, false) };
        }
        let record = self.slots.at(slot);
        if !record.flags.is(Phase::Flushing) {
            return;
        }
        if record.flags.any(Flags::PEER_ENDED) {
            return self.leave(slot, false);
        }
        record.flags.enter(Phase::Lingering);
        record.state = 0;
        let (now, linger) = (Instant::now(), self.generations.active_settings().linger);
        self.timers.set(&mut self.slots, slot, deadline(now, linger), now);
        self.discard(slot);
    }

    /// Reads and discards until the peer's end or the timer, at most [`DISCARD_BYTES`]. After that it only waits: to close would send a reset,
    /// which destroys what the peer has not taken yet.
    pub(in crate::event_loop) fn discard(&mut self, slot: u32) {
        let socket = self.slots.at(slot).socket.as_ref().expect("a taken slot has a socket");
        match self.io.system.receive(socket.as_fd(), &mut self.read.pages) {
            Ok(count) if count > 0 && self.slots.at(slot).state <= DISCARD_BYTES => {
                let discarded = &mut self.slots.at(slot).state;
                *discarded = discarded.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
                self.settle(slot, false);
            }
            Err(Errno::AGAIN | Errno::INTR) => self.settle(slot, false),
            Ok(count) if count > 0 => self.watch_for_end(slot),
            Ok(_) | Err(_) => self.leave(slot, false),
        }
    }

    /// Watches for the end of a connection whose input is not read any more. epoll tells the peer's end or reset also where nothing is
    /// asked for: then what is left is read at once.
    fn watch_for_end(&mut self, slot: u32) {
        let token = self.slots.token(slot);
        let record = self.slots.at(slot);
        if record.flags.any(Flags::WATCH_READ.union(Flags::WATCH_WRITE)) {
            // It fails only for a socket that is not watched.
            let _ = self.io.watch(token, record, Interest::NONE);
        }
    }

    /// Ends a connection now. What was appended and not sent is lost.
    pub(in crate::event_loop) fn end(&mut self, slot: u32, why: Closed, reset: bool) {
        self.scratch.bytes.clear();
        if self.slots.at(slot).flags.is(Phase::Cut) {
            return self.leave(slot, true);
        }
        self.slots.at(slot).flags.clear(Flags::PURGED);
        // It has its end already, of the kind that the policy asked for.
        let turned_away = why == Closed::Aborted && self.slots.extra(slot).is_some_and(|extra| extra.turned_away);
        match why {
            Closed::Aborted if turned_away => {}
            Closed::Aborted => self.io.counters.aborted().add(1),
            Closed::Panicked => self.io.counters.crashed().add(1),
            Closed::Overflow => self.io.counters.overflow().add(1),
            Closed::Killed => self.io.counters.killed().add(1),
            Closed::TooLong => self.io.counters.too_long().add(1),
            Closed::Error(_) => self.io.counters.errors().add(1),
            _ => {}
        }
        if self.slots.at(slot).has_protocol() {
            self.forget_protocol(slot, why);
        }
        self.leave(slot, reset && !turned_away);
    }

    /// Ends a connection whose protocol, or code that has it, panicked or asked for what cannot be.
    #[cold]
    pub(in crate::event_loop) fn crash(&mut self, slot: u32, why: impl Into<String>) {
        self.io.count_panic(&mut self.slots, slot, why.into());
        self.end(slot, Closed::Panicked, true);
    }

    /// Tells the protocol and drops it; the slot stays.
    #[inline(always)]
    pub(in crate::event_loop) fn forget_protocol(&mut self, slot: u32, why: Closed) {
        let closed = self.close_protocol(slot, why);
        self.timers.clear(&mut self.slots, slot);
        self.kept.forget(&mut self.slots, slot);
        let mut is_relayed = false;
        if let Some(extra) = self.slots.extra_of(slot) {
            let (groups, connects) = (std::mem::take(&mut extra.groups), extra.connects);
            is_relayed = extra.relay.is_some();
            self.groups.leave(&mut self.slots, groups);
            if connects > 0 {
                self.give_connects_up(slot);
            }
        }
        let table = self.slots.at(slot).table;
        if let Err(Panicked(message)) = closed {
            self.io.count_panic(&mut self.slots, slot, message);
        }
        self.generations.leave(&self.io, table);
        if self.slots.at(slot).flags.any(Flags::HANDLED) {
            self.slots.at(slot).flags.clear(Flags::HANDLED);
            self.io.inbox.forget_handles(self.slots.token(slot));
        }
        if is_relayed {
            self.end_other(slot, why);
        }
    }

    /// Makes the last call of a protocol. But for a report, what it asks for is ignored.
    #[inline(always)]
    pub(in crate::event_loop) fn close_protocol(&mut self, slot: u32, why: Closed) -> Result<(), Panicked> {
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let record = self.slots.at(slot);
        let (received, sent) = (record.bytes_in, record.bytes_out);
        let extra = if record.flags.any(Flags::EXTRA) { self.slots.extra(slot) } else { None };
        let ended_first = extra.and_then(|extra| match why {
            Closed::Error(_) | Closed::Aborted if extra.relay.is_some() => Some(true),
            _ => extra.ended_first,
        });
        let closed = self.with_context(slot, &mut timer, &now, |table, state, cx, _| {
            cx.carried = Some(Carried { received, sent, ended_first });
            table.close(state, why, cx)
        });
        self.scratch.clear();
        if !self.scratch.asks.is_nothing() {
            self.forget_asks(slot, why);
        }
        closed
    }

    /// Drops the requests of the last call of a protocol: they are not done, but a handle may have been given away.
    #[cold]
    fn forget_asks(&mut self, slot: u32, why: Closed) {
        if let Some(said) = self.scratch.said.take() {
            self.io.count_handshakes(&said.handshakes);
            if let Some(report) = said.report {
                let token = self.slots.token(slot);
                self.io.tell_report(&mut self.slots, token, report);
            }
        }
        let asks = std::mem::take(&mut self.scratch.asks);
        if asks.has(Asks::SHAKING) {
            connects::handshake_ended(self, slot, false);
        }
        if !asks.has(Asks::HANDLE) {
            return;
        }
        match why {
            Closed::Adopted => self.slots.at(slot).flags.set(Flags::HANDLED),
            _ => self.io.inbox.forget_handles(self.slots.token(slot)),
        }
    }

    /// Gives up the slot: the socket is closed and the permit goes back.
    pub(in crate::event_loop) fn leave(&mut self, slot: u32, reset: bool) {
        if reset || self.is_entangled(slot) {
            return self.leave_entangled(slot, reset);
        }
        let listener = self.empty_slot(slot);
        self.slots.put_back(listener);
    }

    /// Returns true where the connection may end in order: not where the parent of its own process has said that it is cut.
    fn ends_in_order(&mut self, slot: u32) -> bool {
        let Some(page) = self.page.take() else { return true };
        let may = page.end_in_order();
        if may {
            // It fails only where the connection is gone already.
            let _ = self.io.system.end_on_close(self.slots.socket(slot));
        }
        may
    }

    /// Gives up a slot that timers, leases, counts or other processes know of.
    fn leave_entangled(&mut self, slot: u32, reset: bool) {
        if !reset {
            self.ends_in_order(slot);
        } else if !self.slots.at(slot).flags.is(Phase::Leased) {
            // It fails only where the connection is gone already.
            let _ = self.io.system.reset_on_close(self.slots.socket(slot));
        }
        let extra = self.slots.take_extra(slot);
        debug_assert!(extra.groups.is_empty(), "a connection leaves its groups with its protocol");
        let leased = extra.delegation.and_then(|delegation| delegation.end(&*self.io.system, &self.io.counters, reset));
        if let Some(snapshot) = &self.snapshot {
            snapshot.write(None);
        }
        self.timers.clear(&mut self.slots, slot);
        self.kept.forget(&mut self.slots, slot);
        self.unsent.forget(&mut self.slots, slot);
        let record = self.slots.at(slot);
        let (flags, token) = (record.flags, crate::event_loop::slot::token(slot, record.version));
        if !flags.is(Phase::Connecting) && !extra.turned_away {
            self.io.counters.closed().add(1);
        }
        if flags.any(Flags::PURGED) && !reset {
            self.io.counters.purged().add(1);
        }
        let held = flags.any(Flags::WORKING) || leased.is_some();
        if held {
            let (socket, mut permit) = self.slots.give_up(slot);
            drop(socket);
            permit.count_by(extra.peer_count);
            match leased {
                // Whatever has the socket has the permit.
                Some(leased) => leased.keep_permit(permit),
                None => _ = self.orphans.insert(token, permit),
            }
        } else {
            drop(extra.peer_count);
            self.slots.leave(slot);
        }
        // The permit has gone back before: an end that is counted while it is taken would leave a permit that looks like that of a connection that was not counted.
        extra.endings.iter().for_each(|endings| endings.ended(reset, held, flags.is(Phase::Cut)));
        self.descriptor_freed = true;
    }

    /// Returns true where the peer still has something to come: output that the kernel has not taken, or an answer to what it has sent.
    /// Also true for a connection that was told as cut.
    pub(in crate::event_loop) fn owes(&mut self, slot: u32) -> bool {
        if self.slots.extra(slot).is_some_and(Extra::is_told) {
            return true;
        }
        let flags = self.slots.at(slot).flags;
        if flags.phase().owes
            || self.slots.other(slot).is_some()
            || flags.any(Flags::UNSENT.union(Flags::KEPT).union(Flags::WORKING).union(Flags::PAUSED))
        {
            return true;
        }
        if flags.is(Phase::Leased) {
            return self.slots.extra(slot).and_then(Extra::leased).is_some_and(|leased| leased.owes());
        }
        if self.generations.owes(self.slots.at(slot)) {
            return true;
        }
        if flags.any(Flags::PEER_ENDED) {
            return false;
        }
        let Some(socket) = &self.slots.at(slot).socket else { return false };
        // To close a socket with unread input is to reset it. All input of a lingering connection that is there is discarded first.
        let mut reads = if flags.is(Phase::Lingering) { 0..LAST_READS } else { 0..0 };
        let goes_on = reads.all(|_| matches!(self.io.system.receive(socket.as_fd(), &mut self.read.pages), Ok(1..)));
        goes_on && matches!(self.io.system.peek(socket.as_fd()), Ok(1..))
    }

    /// Ends the other connection of a relay likewise: the protocol of this one is gone, for this reason.
    #[cold]
    fn end_other(&mut self, slot: u32, why: Closed) {
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

    /// Gives up connects that a connection asked for whose protocol is gone: there is nothing to tell what comes of them.
    #[cold]
    fn give_connects_up(&mut self, asker: u32) {
        let token = self.slots.token(asker);
        for made in self.slots.having(|extra| extra.asker() == Some(token)) {
            let Some(slot) = self.slots.find(made) else { continue };
            if self.slots.at(slot).flags.is(Phase::Connecting) {
                self.io.counters.connect_failed().add(1);
                self.leave(slot, true);
            } else if self.slots.extra(slot).and_then(|extra| extra.asked.as_ref()).is_some_and(|asked| asked.in_handshake) {
                self.end(slot, Closed::Aborted, true);
            }
        }
    }
}
