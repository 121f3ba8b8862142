//! Calls of a protocol: what it sees of its connection, and doing as its step says.

use super::Connections;
use super::idle::IdleWatch;
use crate::behaviour::{Answer, Callback, More, Table};
use crate::event_loop::SCRATCH_BYTES;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::{Flags, Slot};
use crate::protocol::{Asks, Closed, Context, Local, Note, Output, Post, Statements, Timer, Urgency};
use crate::sys::{Errno, panics};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// Answer of the last read of a connection to the question if input is still to come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// The last read was short and all was taken: as far as can be known, nothing is unread.
    Clean,
    /// There may be more.
    Unknown,
}

/// Makes the context in which a callback sees its connection.
#[allow(clippy::too_many_arguments)] // The parts of an event loop that it borrows, each for itself.
#[inline(always)]
pub(super) fn context<'a>(
    slot: u32,
    record: &Slot,
    (generation, max_partial): (u32, usize),
    local: &'a mut Local,
    out: &'a mut Output,
    timer: &'a mut Timer,
    now: &'a Cell<Option<Instant>>,
    post: &'a Arc<dyn Post>,
) -> Context<'a> {
    let token = crate::event_loop::slot::token(slot, record.version);
    let draining = record.flags.any(Flags::DRAINING);
    Context { out, timer, local, now, post, token, id: record.id, generation, max_partial, draining, carried: None }
}

impl Connections {
    /// Calls the protocol. What it appended waits in the scratch; what it answered besides the answer, in `more`.
    pub(super) fn dispatch(&mut self, slot: u32, event: Callback<'_>) -> Answer {
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let answer = self.with_context(slot, &mut timer, &now, |table, state, cx, more| table.dispatch(state, event, cx, more));
        self.after_call(slot, timer, &now);
        answer
    }

    /// Does what a callback said beside its answer.
    #[inline]
    pub(super) fn after_call(&mut self, slot: u32, timer: Timer, now: &Cell<Option<Instant>>) {
        if !self.scratch.asks.is_nothing() {
            self.hear(slot);
        }
        match timer {
            Timer::Keep => {}
            // The timer is the idle timeout's, or is free for it.
            Timer::Off if self.slots.at(slot).flags.any(Flags::IDLE) => {}
            Timer::Off => {
                self.timers.clear(&mut self.slots, slot);
                IdleWatch::of(self).begin(slot);
            }
            Timer::At(at) => self.timers.set(&mut self.slots, slot, at, now.get().unwrap_or_else(Instant::now)),
        }
    }

    /// Does what a callback asked for beside its step.
    #[inline(never)]
    fn hear(&mut self, slot: u32) {
        let asks = std::mem::take(&mut self.scratch.asks);
        let flags = &mut self.slots.at(slot).flags;
        if asks.has(Asks::PAUSE) {
            flags.set(Flags::PAUSED);
        }
        if asks.has(Asks::RESUME) {
            flags.clear(Flags::PAUSED.union(Flags::END_BEHIND));
        }
        if asks.has(Asks::HOLD) {
            flags.set(Flags::HELD);
        }
        if asks.has(Asks::HANDLE) {
            flags.set(Flags::HANDLED);
        }
        if asks.has(Asks::SHAKEN) && !asks.has(Asks::SHAKING) {
            self.shook(slot, true);
        }
        self.connects.shaking |= asks.has(Asks::SHAKING);
        if asks.has(Asks::WAKE) {
            self.slots.make_extra(slot).wake_below = Some(asks.wake_below);
            // Once the output of this callback is sent.
            let token = self.slots.token(slot);
            self.io.wake_again(&mut self.slots, token);
        }
        if let Some(said) = self.scratch.said.take() {
            self.heard(slot, *said);
        }
    }

    /// Handles room for the notes of a connection, or its wish to be woken.
    pub(in crate::event_loop) fn room(&mut self, token: u64) {
        let Some(slot) = self.slots.with_protocol(token) else { return };
        let held = self.slots.at(slot).flags.any(Flags::HELD);
        self.slots.at(slot).flags.clear(Flags::HELD);
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Frozen) || flags.is(Phase::Leased) {
            return;
        }
        if held {
            self.input_goes_on(slot, true);
            self.settle(slot, false);
        }
        let unsent = self.unsent.bytes(slot).len();
        if self.slots.at(slot).has_protocol() && self.slots.extra_of(slot).is_some_and(|extra| extra.takes_wake(unsent)) {
            self.callback(slot, Callback::Writable);
        }
    }

    #[cold]
    fn heard(&mut self, slot: u32, said: Statements) {
        self.io.count_handshakes(&said.handshakes);
        if let Some(learned) = said.learned {
            self.peer_learned(slot, learned);
        }
        if let Some(tag) = said.tag {
            self.set_tag(slot, tag);
        }
        for connect in said.connects {
            self.slots.make_extra(slot).connects += 1;
            self.asked.push((self.slots.token(slot), connect));
        }
        if let Some(report) = said.report {
            let token = self.slots.token(slot);
            self.io.tell_report(&mut self.slots, token, report);
        }
    }

    #[inline(always)]
    pub(super) fn with_context<T>(
        &mut self,
        slot: u32,
        timer: &mut Timer,
        now: &Cell<Option<Instant>>,
        call: impl FnOnce(&mut dyn Table, u32, &mut Context<'_>, &mut Option<More>) -> T,
    ) -> T {
        let record = self.slots.at(slot);
        let generation = self.generations.at(record.table);
        self.scratch.backlog = if record.flags.any(Flags::UNSENT) { self.unsent.bytes(slot).len() } else { 0 };
        self.scratch.high_water = generation.high_water;
        let of = (generation.id, generation.max_partial);
        let mut cx = context(slot, record, of, &mut *generation.local, &mut self.scratch, timer, now, &self.post);
        call(&mut *generation.table, record.state, &mut cx, &mut self.more)
    }

    /// Makes a callback other than `received`, and does all that follows from it.
    pub(super) fn callback(&mut self, slot: u32, event: Callback<'_>) {
        let held = !self.slots.at(slot).may_receive();
        let answer = self.dispatch(slot, event);
        if matches!(answer, Answer::Close) && self.leaves_unanswered(slot) {
            self.cut(slot, Closed::Purged);
        } else {
            self.follow(slot, answer, held);
        }
        self.settle(slot, false);
    }

    /// Acts on the answer of a callback, and offers input that was held until it may be offered again.
    pub(super) fn follow(&mut self, slot: u32, answer: Answer, held: bool) {
        self.act(slot, answer, Tail::Unknown, false);
        self.input_goes_on(slot, held);
    }

    /// Offers input again where its hold has ended, and asks to drain: a drain that waits for a quiet point may find one.
    pub(super) fn input_goes_on(&mut self, slot: u32, held: bool) {
        if held {
            self.resume(slot);
        }
        self.ask_to_drain(slot);
    }

    /// Offers input again: first what was kept, then the peer's end if it was read meanwhile.
    pub(super) fn resume(&mut self, slot: u32) {
        if self.slots.at(slot).may_receive() {
            self.offer_kept(slot);
        }
        if self.slots.at(slot).flags.any(Flags::PEER_ENDED) {
            self.tell_ended(slot);
        }
    }

    pub(super) fn tell_ended(&mut self, slot: u32) {
        let record = self.slots.at(slot);
        if !record.has_protocol() || !record.may_hear_end() || record.flags.any(Flags::TOLD_ENDED) {
            return;
        }
        record.flags.set(Flags::TOLD_ENDED);
        let answer = self.dispatch(slot, Callback::PeerEnded);
        self.act(slot, answer, Tail::Unknown, false);
        self.ask_to_drain(slot);
    }

    /// Does what the protocol asked for.
    #[inline]
    pub(super) fn act(&mut self, slot: u32, answer: Answer, tail: Tail, more_follows: bool) {
        match answer {
            Answer::Continue => {
                // The mark is looked at after each call: above it, what is read next stays in the kernel.
                let waits = self.scratch.backlog + self.scratch.bytes.len();
                if !more_follows || waits >= SCRATCH_BYTES.min(self.scratch.high_water) {
                    self.send(slot, false);
                }
            }
            Answer::EndOutput => self.end_output(slot),
            Answer::Close => {
                if self.take_back(slot) {
                    self.close(slot, tail);
                }
            }
            Answer::Abort => self.end(slot, Closed::Aborted, true),
            Answer::More => self.act_more(slot),
        }
    }

    #[cold]
    fn act_more(&mut self, slot: u32) {
        if !self.take_back(slot) {
            panics::discard(self.more.take());
            return;
        }
        match self.more.take().expect("the answer said so") {
            More::Work(job) => {
                if self.send(slot, false) {
                    self.work(slot, job);
                }
            }
            More::Delegate(delegate) => self.start_leaving(slot, delegate),
            More::Relay(to) => self.start_relaying(slot, &to),
            More::Panicked(message) => self.crash(slot, message),
        }
    }

    /// Brings a note to the connection. Above its high-water mark it does without what is only offered, and ends where too much is unsent.
    pub(in crate::event_loop) fn note(&mut self, token: u64, note: Note, urgency: Urgency) {
        let Some(slot) = self.slots.with_protocol(token) else {
            panics::discard(note);
            return;
        };
        if self.slots.at(slot).flags.is(Phase::Leased) {
            return self.note_leased(slot, note, urgency);
        }
        let heard = if self.slots.at(slot).flags.is(Phase::Frozen) { self.keep_note(slot, note) } else { Some(note) };
        let Some(note) = heard else { return };
        if self.slots.at(slot).flags.any(Flags::FULL) {
            let (table, unsent) = (self.slots.at(slot).table, self.unsent.bytes(slot).len());
            let is_too_much = self.generations.settings(table).max_unsent.is_some_and(|max| unsent > max);
            if is_too_much || urgency == Urgency::Offered {
                self.io.counters.notes_dropped().add(1);
                panics::discard(note);
                if is_too_much {
                    self.end(slot, Closed::Overflow, true);
                }
                return;
            }
        }
        self.io.counters.notes().add(1);
        self.callback(slot, Callback::Notified(&mut Some(note)));
    }

    pub(super) fn timer_due(&mut self, slot: u32, now: Instant) {
        if let Some(at) = self.timers.take_far(slot) {
            return self.timers.set(&mut self.slots, slot, at, now);
        }
        let record = self.slots.at(slot);
        if record.flags.is(Phase::Connecting) {
            self.connect_failed(slot, Errno::TIMEDOUT);
        } else if record.has_protocol() && record.flags.any(Flags::IDLE) {
            self.idle_due(slot, now);
        } else if record.has_protocol() {
            self.callback(slot, Callback::Timeout);
            IdleWatch::of(self).begin(slot);
        } else if record.flags.is(Phase::Flushing) {
            self.flush_due(slot, now);
        } else {
            self.leave(slot, false);
        }
    }
}
