//! How a connection ends. Closing a socket with unread input sends a reset, which can destroy the last answer on its way; so
//! unless the peer is known to be silent, the socket lingers: it says that no more comes, reads and discards, then closes.

use super::calling::Tail;
use super::connections::Connections;
use super::slot::Flags;
use crate::behaviour::{Event, Panicked};
use crate::clock::deadline;
use crate::observe::Event as Told;
use crate::protocol::{Closed, Closing, Timer};
use crate::sync::atomic::Ordering;
use crate::sys::{Errno, Interest};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A lingering socket is not read any more when its peer has sent more than this.
const DISCARD_BYTES: u32 = 64 * 1024;

impl Connections {
    /// Step::Close. Where nothing can be unread the end rides on the last bytes and the seat is free at once.
    pub(super) fn close(&mut self, seat: u32, tail: Tail) {
        let place = self.seats.at(seat);
        let (flags, table) = (place.flags, place.table);
        let clean = tail == Tail::Clean && !flags.any(Flags::WORKED);
        let peer_is_done = clean && self.generations.at(table).closing == Closing::PeerIsDone;
        if !self.send(seat, true) {
            return;
        }
        let peer_is_done = peer_is_done || flags.any(Flags::PEER_FINISHED);
        if peer_is_done && !self.is_entangled(seat) {
            return self.end_plainly(seat, table);
        }
        self.close_otherwise(seat, peer_is_done);
    }

    /// Something is unsent, or may be unread, or somebody else knows of the connection.
    #[inline(never)]
    fn close_otherwise(&mut self, seat: u32, peer_is_done: bool) {
        let unsent = self.seats.at(seat).flags.any(Flags::UNSENT);
        self.forget_protocol(seat, Closed::Done);
        if peer_is_done && !unsent {
            return self.leave(seat, false);
        }
        let flush = self.generations.active_settings().flush;
        self.start_closing(seat, flush);
    }

    /// The usual end: all is sent, the peer is silent, and nobody but the seat knows of the connection.
    #[inline(always)]
    fn end_plainly(&mut self, seat: u32, table: u16) {
        if let Err(Panicked(message)) = self.close_protocol(seat, Closed::Done) {
            self.count_panic(seat, message);
        }
        let door = self.empty_seat(seat);
        self.left_generation(table);
        self.seats.put_back(door);
    }

    /// Closes the socket of a seat that nobody else knows of. By which door its connection came in: it is counted still.
    #[inline(always)]
    fn empty_seat(&mut self, seat: u32) -> u16 {
        self.io.counters.closed().add(1);
        let door = self.seats.vacate(seat);
        self.descriptor_freed = true;
        door
    }

    /// Whether somebody else than the seat knows of its connection.
    #[inline(always)]
    fn is_entangled(&mut self, seat: u32) -> bool {
        let place = self.seats.at(seat);
        place.flags.any(Flags::ENTANGLED) || place.timer.is_set() || self.card.is_some() || self.page.is_some()
    }

    /// Step::Finish: sends what was appended, then our end.
    pub(super) fn finish_sending(&mut self, seat: u32) {
        self.seats.at(seat).flags.set(Flags::FINISHING);
        if self.send(seat, true) && !self.seats.at(seat).flags.any(Flags::UNSENT) {
            self.all_sent(seat);
        }
    }

    /// Asks a connection to end. What it has received already is answered first.
    pub(super) fn drain(&mut self, seat: u32) {
        let place = self.seats.at(seat);
        if place.flags.any(Flags::CONNECTING) {
            return self.connect_failed(seat, Errno::CONNABORTED);
        }
        if place.has_protocol() && place.flags.any(Flags::AWAY) {
            place.flags.set(Flags::DRAINING);
            // Also when it was asked before: the deadline may be nearer now.
            return self.drain_away(seat);
        }
        if !place.has_protocol() || place.flags.any(Flags::DRAINING) {
            return;
        }
        let epoch = place.epoch;
        place.flags.set(Flags::DRAINING);
        self.readable(seat);
        if self.is_still(seat, epoch) {
            self.ask_to_drain(seat);
        }
    }

    /// Tells the protocol, once, when nothing partial was received and no job runs.
    #[inline]
    pub(super) fn ask_to_drain(&mut self, seat: u32) {
        if self.seats.at(seat).flags.any(Flags::DRAINING) {
            self.tell_draining(seat);
        }
    }

    fn tell_draining(&mut self, seat: u32) {
        let place = self.seats.at(seat);
        let asked = !place.flags.any(Flags::TOLD_DRAINING);
        // What is partial stays partial once the peer has finished.
        let whole = !place.flags.any(Flags::KEPT) || place.flags.any(Flags::PEER_FINISHED);
        let busy = place.flags.any(Flags::WORKING.and(Flags::LEAVING).and(Flags::AWAY));
        if asked && place.has_protocol() && whole && !busy {
            place.flags.set(Flags::TOLD_DRAINING);
            self.callback(seat, Event::Draining);
        }
    }

    /// Tells the protocol, once, whatever it is doing.
    pub(super) fn tell_draining_now(&mut self, seat: u32) {
        let place = self.seats.at(seat);
        if place.has_protocol() && !place.flags.any(Flags::TOLD_DRAINING.and(Flags::AWAY)) {
            place.flags.set(Flags::DRAINING.and(Flags::TOLD_DRAINING));
            self.callback(seat, Event::Draining);
        }
    }

    /// Ends a connection: the protocol may say goodbye, all that was written is delivered, and what takes longer than `within`
    /// is reset.
    pub(super) fn purge(&mut self, seat: u32, within: Duration) {
        let place = self.seats.at(seat);
        if place.flags.any(Flags::CONNECTING) {
            return self.connect_failed(seat, Errno::CONNABORTED);
        }
        let epoch = place.epoch;
        self.tell_draining_now(seat);
        if !self.is_still(seat, epoch) {
            return;
        }
        if self.seats.at(seat).flags.any(Flags::AWAY) {
            return self.purge_away(seat, within);
        }
        if self.seats.at(seat).has_protocol() {
            self.forget_protocol(seat, Closed::Purged);
            self.seats.at(seat).flags.set(Flags::PURGED);
            self.start_closing(seat, within);
        } else if self.seats.at(seat).flags.any(Flags::FLUSHING) {
            // It was closing by itself, with more patience; one that lingers has less already.
            let now = Instant::now();
            self.timers.set(&mut self.seats, seat, deadline(now, within), now);
        }
    }

    /// The protocol is gone: what is left is sent, then the socket lingers.
    pub(super) fn start_closing(&mut self, seat: u32, flush: Duration) {
        let flags = &mut self.seats.at(seat).flags;
        flags.set(Flags::FLUSHING);
        flags.clear(Flags::WAITING.and(Flags::FULL).and(Flags::PAUSED));
        if !self.seats.at(seat).flags.any(Flags::UNSENT) {
            return self.all_sent(seat);
        }
        let now = Instant::now();
        self.timers.set(&mut self.seats, seat, deadline(now, flush), now);
        self.settle(seat, false);
    }

    /// All is sent that ever will be: the peer is told.
    pub(super) fn all_sent(&mut self, seat: u32) {
        if self.seats.at(seat).flags.any(Flags::FLUSHING) && !self.ends_in_order(seat) {
            return self.leave(seat, true);
        }
        if self.with_socket(seat, |system, socket| system.finish(socket)).is_err() {
            // ENOTCONN: the connection is gone in both directions.
            return if self.seats.at(seat).has_protocol() { self.fail(seat, Errno::NOTCONN) } else { self.leave(seat, false) };
        }
        let place = self.seats.at(seat);
        if !place.flags.any(Flags::FLUSHING) {
            return;
        }
        if place.flags.any(Flags::PEER_FINISHED) {
            return self.leave(seat, false);
        }
        place.flags.clear(Flags::FLUSHING);
        place.flags.set(Flags::LINGERING);
        place.slot = 0;
        let (now, linger) = (Instant::now(), self.generations.active_settings().linger);
        self.timers.set(&mut self.seats, seat, deadline(now, linger), now);
        self.discard(seat);
    }

    /// Reads and forgets, until the peer's end, too much, or the timer. Too much is no reason to close: the reset would destroy what
    /// the peer has not taken yet.
    pub(super) fn discard(&mut self, seat: u32) {
        let socket = self.seats.at(seat).socket.as_ref().expect("a taken seat has a socket");
        match self.io.system.receive(socket.as_fd(), &mut self.read) {
            Ok(count) if count > 0 && self.seats.at(seat).slot <= DISCARD_BYTES => {
                let discarded = &mut self.seats.at(seat).slot;
                *discarded = discarded.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
                self.settle(seat, false);
            }
            Err(Errno::AGAIN | Errno::INTR) => self.settle(seat, false),
            Ok(count) if count > 0 => self.watch_for_end(seat),
            Ok(_) | Err(_) => self.leave(seat, false),
        }
    }

    /// Input is not read any more. That the peer has ended or reset the connection epoll tells who asks for nothing, too: then
    /// what is left is read at once.
    fn watch_for_end(&mut self, seat: u32) {
        if !self.seats.at(seat).flags.any(Flags::WATCH_READ.and(Flags::WATCH_WRITE)) {
            return;
        }
        let token = self.seats.token(seat);
        let socket = self.seats.at(seat).socket.as_ref().expect("a taken seat has a socket").as_fd();
        let nothing = Interest { read: false, write: false };
        // It fails only for a socket that is not watched.
        let _ = self.io.system.rewatch(self.io.epoll.as_fd(), socket, token, nothing);
        self.seats.at(seat).flags.clear(Flags::WATCH_READ.and(Flags::WATCH_WRITE));
    }

    /// The timer of a connection without protocol: what is unsent now is lost.
    pub(super) fn closing_is_over(&mut self, seat: u32) {
        let unsent = self.seats.at(seat).flags.any(Flags::FLUSHING);
        if unsent {
            self.io.counters.cut().add(1);
        }
        self.leave(seat, unsent);
    }

    /// Ends a connection now. What was appended and not sent is lost.
    pub(super) fn end(&mut self, seat: u32, why: Closed, reset: bool) {
        self.scratch.bytes.clear();
        if self.seats.at(seat).flags.any(Flags::CUT) {
            return self.leave(seat, true);
        }
        self.seats.at(seat).flags.clear(Flags::PURGED);
        match why {
            Closed::Aborted => self.io.counters.aborted().add(1),
            Closed::Panicked => self.io.counters.crashed().add(1),
            Closed::Overflow => self.io.counters.overflow().add(1),
            Closed::Killed => self.io.counters.killed().add(1),
            _ => {}
        }
        if self.seats.at(seat).has_protocol() {
            self.forget_protocol(seat, why);
        }
        self.leave(seat, reset);
    }

    /// Tells the protocol and drops it; the seat stays.
    #[inline(always)]
    pub(super) fn forget_protocol(&mut self, seat: u32, why: Closed) {
        let closed = self.close_protocol(seat, why);
        self.timers.clear(&mut self.seats, seat);
        self.forget_kept(seat);
        let table = self.seats.at(seat).table;
        if let Err(Panicked(message)) = closed {
            self.count_panic(seat, message);
        }
        self.left_generation(table);
    }

    /// The last call of a protocol. What it asks for is ignored.
    #[inline(always)]
    pub(super) fn close_protocol(&mut self, seat: u32, why: Closed) -> Result<(), Panicked> {
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let closed = self.with_context(seat, &mut timer, &now, |table, slot, cx, _| table.close(slot, why, cx));
        self.scratch.clear();
        self.scratch.said = None;
        closed
    }

    /// A connection is no longer of this generation.
    #[inline]
    pub(super) fn left_generation(&mut self, table: u16) {
        let generation = &self.generations.at(table).generation;
        generation.live.fetch_sub(1, Ordering::SeqCst);
        if generation.retired.load(Ordering::SeqCst) {
            self.left_retired(table);
        }
    }

    #[cold]
    fn left_retired(&mut self, table: u16) {
        let generation = &self.generations.at(table).generation;
        if generation.has_ended() {
            let id = generation.id;
            self.io.shared.tell(&Told::GenerationEnded(id));
        }
        if table != self.generations.active {
            self.generations.drop_empty(false);
        }
    }

    /// Gives up the seat: the socket is closed and the permit goes back.
    pub(super) fn leave(&mut self, seat: u32, reset: bool) {
        if reset || self.is_entangled(seat) {
            return self.leave_entangled(seat, reset);
        }
        let door = self.empty_seat(seat);
        self.seats.put_back(door);
    }

    /// Whether it may: in a process of its own, whose parent may have said that the connection is cut.
    fn ends_in_order(&mut self, seat: u32) -> bool {
        let Some(page) = self.page.take() else { return true };
        let may = page.end_in_order();
        if may {
            // It fails only where the connection is gone already.
            let _ = self.with_socket(seat, |system, socket| system.end_on_close(socket));
        }
        may
    }

    /// The same where the seat is known elsewhere.
    fn leave_entangled(&mut self, seat: u32, reset: bool) {
        if !reset {
            self.ends_in_order(seat);
        } else if !self.seats.at(seat).flags.any(Flags::AWAY) {
            // It fails only where the connection is gone already.
            let _ = self.with_socket(seat, |system, socket| system.reset_on_close(socket));
        }
        let extra = self.seats.take_extra(seat);
        let away = extra.trip.and_then(|trip| self.end_trip(trip, reset));
        if let Some(card) = &self.card {
            card.write(None);
        }
        self.timers.clear(&mut self.seats, seat);
        self.forget_kept(seat);
        self.forget_unsent(seat);
        let place = self.seats.at(seat);
        let (flags, token) = (place.flags, super::slot::token(seat, place.epoch));
        if !flags.any(Flags::CONNECTING) {
            self.io.counters.closed().add(1);
        }
        if flags.any(Flags::PURGED) && !reset {
            self.io.counters.purged().add(1);
        }
        let held = flags.any(Flags::WORKING) || away.is_some();
        if held {
            let (socket, mut permit) = self.seats.give_up(seat);
            drop(socket);
            permit.count_by(extra.ticket);
            match away {
                // Whatever has the socket has the permit.
                Some(away) => away.keep_permit(permit),
                None => _ = self.orphans.insert(token, permit),
            }
        } else {
            drop(extra.ticket);
            self.seats.leave(seat);
        }
        // After its permit went back, which else would be taken for one of a connection that no loop has told of.
        extra.endings.iter().for_each(|endings| endings.ended(reset, held, flags.any(Flags::CUT)));
        self.descriptor_freed = true;
    }
}
