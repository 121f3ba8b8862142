//! Calls of a protocol: what it sees of its connection, and doing as its step says.

use super::SCRATCH_BYTES;
use super::connections::Connections;
use super::slot::{Flags, Seat};
use crate::behaviour::{Answer, Event, More, Table};
use crate::config::NotesWhenFull;
use crate::observe::Event as Told;
use crate::protocol::{Closed, ConnectionId, Context, Local, Note, Output, Post, Said, Timer};
use crate::sys::{Errno, panics};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// What the last read of a connection says about input still to come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// The last read was short and all was taken: as far as can be known, nothing is unread.
    Clean,
    /// There may be more.
    Unknown,
}

/// What a callback gets to see of its connection.
#[allow(clippy::too_many_arguments)] // The parts of an event loop that it borrows, each for itself.
#[inline(always)]
pub(super) fn context<'a>(
    seat: u32,
    seat_of: &Seat,
    generation: u32,
    local: &'a mut Local,
    out: &'a mut Output,
    timer: &'a mut Timer,
    now: &'a Cell<Option<Instant>>,
    post: &'a Arc<dyn Post>,
) -> Context<'a> {
    let token = super::slot::token(seat, seat_of.epoch);
    let draining = seat_of.flags.any(Flags::DRAINING);
    Context { out, timer, local, now, post, token, id: seat_of.id, generation, draining }
}

impl Connections {
    /// Calls the protocol. What it appended waits in the scratch; what it answered besides the answer, in `more`.
    pub(super) fn dispatch(&mut self, seat: u32, event: Event<'_>) -> Answer {
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let answer = self.with_context(seat, &mut timer, &now, |table, slot, cx, more| table.dispatch(slot, event, cx, more));
        self.after_call(seat, timer, &now);
        answer
    }

    /// Does what a callback said beside its answer.
    #[inline]
    pub(super) fn after_call(&mut self, seat: u32, timer: Timer, now: &Cell<Option<Instant>>) {
        self.hear(seat);
        match timer {
            Timer::Keep => {}
            Timer::Off => self.protocol_clears_timer(seat),
            Timer::At(at) => self.timers.set(&mut self.seats, seat, at, now.get().unwrap_or_else(Instant::now)),
        }
    }

    /// Does what a callback said about its connection.
    #[inline]
    pub(super) fn hear(&mut self, seat: u32) {
        if let Some(said) = self.scratch.said.take() {
            self.heard(seat, *said);
        }
    }

    #[cold]
    fn heard(&mut self, seat: u32, said: Said) {
        if let Some(tag) = said.tag {
            self.set_tag(seat, tag);
        }
        if let Some(message) = said.report {
            let id = self.seats.at(seat).id;
            self.io.tell_some(&Told::Reported { id, message });
        }
    }

    /// The timer is free for the idle timeout.
    fn protocol_clears_timer(&mut self, seat: u32) {
        if !self.seats.at(seat).flags.any(Flags::IDLE) {
            self.timers.clear(&mut self.seats, seat);
            self.begin_idle(seat);
        }
    }

    #[inline(always)]
    pub(super) fn with_context<T>(
        &mut self,
        seat: u32,
        timer: &mut Timer,
        now: &Cell<Option<Instant>>,
        call: impl FnOnce(&mut dyn Table, u32, &mut Context<'_>, &mut Option<More>) -> T,
    ) -> T {
        let seat_of = self.seats.at(seat);
        let place = self.generations.at(seat_of.table);
        self.scratch.backlog = if seat_of.flags.any(Flags::UNSENT) { self.unsent.bytes(seat).len() } else { 0 };
        self.scratch.high_water = place.high_water;
        let mut cx = context(seat, seat_of, place.id, &mut *place.local, &mut self.scratch, timer, now, &self.post);
        call(&mut *place.table, seat_of.slot, &mut cx, &mut self.more)
    }

    /// A callback other than `received`, and all that follows from it.
    pub(super) fn callback(&mut self, seat: u32, event: Event<'_>) {
        let epoch = self.seats.at(seat).epoch;
        self.call(seat, event);
        if self.is_still(seat, epoch) {
            self.settle(seat, false);
        }
    }

    fn call(&mut self, seat: u32, event: Event<'_>) {
        let epoch = self.seats.at(seat).epoch;
        let held = !self.seats.at(seat).may_receive();
        let answer = self.dispatch(seat, event);
        self.follow(seat, epoch, answer, held);
    }

    /// What follows from a callback; input that was held until it may be offered again.
    pub(super) fn follow(&mut self, seat: u32, epoch: u32, answer: Answer, held: bool) {
        self.act(seat, answer, Tail::Unknown, false);
        if held && self.is_still(seat, epoch) {
            self.resume(seat);
        }
        if self.is_still(seat, epoch) {
            self.ask_to_drain(seat);
        }
    }

    /// Input may be offered again: first what was kept, then the peer's end if it was read meanwhile.
    pub(super) fn resume(&mut self, seat: u32) {
        let epoch = self.seats.at(seat).epoch;
        if !self.seats.at(seat).has_protocol() || !self.seats.at(seat).may_receive() {
            return;
        }
        let kept = self.kept.bytes(seat);
        let length = kept.len();
        if length > 0 {
            self.read[..length].copy_from_slice(kept);
            self.forget_kept(seat);
            self.offer(seat, length, false, false);
        }
        if self.is_still(seat, epoch) && self.seats.at(seat).flags.any(Flags::PEER_FINISHED) {
            self.tell_finished(seat);
        }
    }

    pub(super) fn tell_finished(&mut self, seat: u32) {
        let place = self.seats.at(seat);
        if !place.has_protocol() || !place.may_receive() || place.flags.any(Flags::TOLD_FINISHED) {
            return;
        }
        place.flags.set(Flags::TOLD_FINISHED);
        let epoch = place.epoch;
        let answer = self.dispatch(seat, Event::Finished);
        self.act(seat, answer, Tail::Unknown, false);
        if self.is_still(seat, epoch) {
            self.ask_to_drain(seat);
        }
    }

    /// Does what the protocol asked for.
    #[inline]
    pub(super) fn act(&mut self, seat: u32, answer: Answer, tail: Tail, more_follows: bool) {
        match answer {
            Answer::Continue => {
                self.seats.at(seat).flags.clear(Flags::WAITING);
                // The mark is looked at after each call: above it, what is read next stays in the kernel.
                let waits = self.scratch.backlog + self.scratch.bytes.len();
                if !more_follows || waits >= SCRATCH_BYTES.min(self.scratch.high_water) {
                    self.send(seat, false);
                }
            }
            Answer::Wait => {
                self.seats.at(seat).flags.set(Flags::WAITING);
                self.send(seat, false);
            }
            Answer::Finish => {
                self.seats.at(seat).flags.clear(Flags::WAITING);
                self.finish_sending(seat);
            }
            Answer::Close => self.close(seat, tail),
            Answer::Abort => self.end(seat, Closed::Aborted, true),
            Answer::More => self.act_more(seat),
        }
    }

    #[cold]
    fn act_more(&mut self, seat: u32) {
        match self.more.take().expect("the answer said so") {
            More::Work(job) => {
                self.seats.at(seat).flags.clear(Flags::WAITING);
                if self.send(seat, false) {
                    self.work(seat, job);
                }
            }
            More::Delegate(delegate) => {
                self.seats.at(seat).flags.clear(Flags::WAITING);
                self.start_leaving(seat, delegate);
            }
            More::Panicked(message) => {
                self.count_panic(seat, message);
                self.end(seat, Closed::Panicked, true);
            }
        }
    }

    /// Somebody speaks to the connection. Above its high-water mark the generation's policy says what it gets.
    pub(super) fn note(&mut self, token: u64, note: Note) {
        let Some(seat) = self.seats.find(token).filter(|seat| self.seats.at(*seat).has_protocol()) else {
            panics::discard(note);
            return;
        };
        if self.seats.at(seat).flags.any(Flags::AWAY) {
            return self.note_away(seat, note);
        }
        if self.seats.at(seat).flags.any(Flags::FULL) {
            let table = self.seats.at(seat).table;
            match self.generations.settings(table).notes_when_full {
                NotesWhenFull::Keep => {}
                policy => {
                    self.io.counters.notes_dropped().add(1);
                    panics::discard(note);
                    if policy == NotesWhenFull::Close {
                        self.end(seat, Closed::Overflow, true);
                    }
                    return;
                }
            }
        }
        self.io.counters.notes().add(1);
        self.callback(seat, Event::Notified(&mut Some(note)));
    }

    pub(super) fn timer_due(&mut self, seat: u32, now: Instant) {
        if let Some(at) = self.timers.take_far(seat) {
            return self.timers.set(&mut self.seats, seat, at, now);
        }
        let place = self.seats.at(seat);
        if place.flags.any(Flags::CONNECTING) {
            self.connect_failed(seat, Errno::TIMEDOUT);
        } else if place.has_protocol() && place.flags.any(Flags::IDLE) {
            self.idle_due(seat, now);
        } else if place.has_protocol() {
            let epoch = place.epoch;
            self.callback(seat, Event::Timeout);
            if self.is_still(seat, epoch) {
                self.begin_idle(seat);
            }
        } else {
            self.closing_is_over(seat);
        }
    }

    #[cold]
    pub(super) fn count_panic(&mut self, seat: u32, message: String) {
        self.io.counters.panics().add(1);
        let id: ConnectionId = self.seats.at(seat).id;
        self.io.tell_some(&Told::ConnectionPanicked { id, message });
    }
}
