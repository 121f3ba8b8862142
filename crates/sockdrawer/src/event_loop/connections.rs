//! Calls protocols and does as their steps say. All that a callback can lead to, and that can lead to a callback again, is one type here, above the sockets in
//! `streams`; most modules below are functions, each for something that happens.

pub(crate) mod arriving;
pub(crate) mod connecting;
mod deadlines;
pub(super) mod due;
pub(crate) mod ending;
pub(crate) mod entering;
pub(super) mod events;
mod frozen;
mod marks;
pub(crate) mod moving;
pub(crate) mod operations;
pub(super) mod publishing;
mod reading;
pub(super) mod returning;
pub(crate) mod selecting;
mod slices;

use super::SCRATCH_BYTES;
use super::inbox::{Asker, Inbox};
use super::landing::Landing;
use super::phase::Phase;
use super::shared::Shared;
use super::slot::Flags;
use super::streams::idle::IdleWatch;
use super::streams::relaying::Pair;
use super::streams::{Streams, Tail, connects, jobs, leasing, peers};
use crate::behaviour::{Answer, Callback, More};
use crate::observe::Event;
use crate::protocol::{Asks, Closed, Connect, ConnectFailure, Handle, Note, Statements, Tag, Timer, Urgency};
use crate::sys::{Errno, panics};
use deadlines::Deadlines;
use frozen::{Later, MovingConnections, NoteFate, Thawed};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// The connections of one event loop, of whatever generation, and those that are being made.
pub(crate) struct Connections {
    pub(crate) streams: Streams,
    pub(super) deadlines: Deadlines,
    moving: MovingConnections,
    /// Connects that protocols asked for in this turn, each with the token of its asker. Each begins at the end of the turn.
    pub(super) asked: Vec<(u64, Connect)>,
    landing: Landing,
    /// Number of connections whose peers have ended, found in this turn.
    pub(super) ends: usize,
    /// The loop is going: nothing is begun any more.
    pub(super) abandoned: bool,
}

impl Connections {
    pub(super) fn new(index: Option<usize>, shared: Arc<Shared>, inbox: Arc<Inbox>, capacity: usize) -> Connections {
        Connections {
            streams: Streams::new(index, shared, inbox, capacity),
            deadlines: Deadlines::default(),
            moving: MovingConnections::default(),
            asked: Vec::new(),
            landing: Landing::default(),
            ends: 0,
            abandoned: false,
        }
    }

    /// Calls the protocol. What it appended waits in the scratch; what it answered besides the answer, in `more`.
    fn dispatch(&mut self, slot: u32, event: Callback<'_>) -> Answer {
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let answer =
            self.streams.with_context(slot, &mut timer, &now, |table, state, cx, more| table.dispatch(state, event, cx, more));
        self.after_call(slot, timer, &now);
        answer
    }

    /// Does what a callback asked for and stated beside its answer, and sets its timer.
    #[inline]
    fn after_call(&mut self, slot: u32, timer: Timer, now: &Cell<Option<Instant>>) {
        if !self.streams.scratch.asks.is_nothing() {
            self.do_asks(slot);
        }
        match timer {
            Timer::Keep => {}
            // The timer is the idle timeout's, or is free for it.
            Timer::Off if self.streams.slots.at(slot).flags.any(Flags::IDLE) => {}
            Timer::Off => {
                self.streams.timers.clear(&mut self.streams.slots, slot);
                IdleWatch::of(&mut self.streams).begin(slot);
            }
            Timer::At(at) => self.streams.timers.set(&mut self.streams.slots, slot, at, now.get().unwrap_or_else(Instant::now)),
        }
    }

    /// Does what a callback asked for by its context: to pause, to hold, to be woken.
    #[inline(never)]
    fn do_asks(&mut self, slot: u32) {
        let asks = std::mem::take(&mut self.streams.scratch.asks);
        let flags = &mut self.streams.slots.at(slot).flags;
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
            connects::handshake_ended(&mut self.streams, slot, true);
        }
        self.streams.connects.in_handshake |= asks.has(Asks::SHAKING);
        if asks.has(Asks::WAKE) {
            self.streams.slots.make_extra(slot).wake_below = Some(asks.wake_below);
            // Once the output of this callback is sent.
            let token = self.streams.slots.token(slot);
            self.streams.io.wake_again(&mut self.streams.slots, token);
        }
        if let Some(said) = self.streams.scratch.said.take() {
            self.do_statements(slot, *said);
        }
    }

    /// Does what a callback stated: handshakes, the peer, a tag, connects, a report.
    #[cold]
    fn do_statements(&mut self, slot: u32, said: Statements) {
        self.streams.io.count_handshakes(&said.handshakes);
        if let Some(learned) = said.learned {
            peers::learned(&mut self.streams, slot, learned);
        }
        if let Some(tag) = said.tag {
            self.set_tag(slot, tag);
        }
        for connect in said.connects {
            self.streams.slots.make_extra(slot).connects += 1;
            self.asked.push((self.streams.slots.token(slot), connect));
        }
        if let Some(report) = said.report {
            let token = self.streams.slots.token(slot);
            self.streams.io.tell_report(&mut self.streams.slots, token, report);
        }
    }

    /// Makes a callback other than `received`, and does all that follows from it.
    fn callback(&mut self, slot: u32, event: Callback<'_>) {
        let held = !self.streams.slots.at(slot).may_receive();
        let answer = self.dispatch(slot, event);
        if matches!(answer, Answer::Close) && self.streams.leaves_unanswered(slot) {
            self.end_now(slot, Closed::Purged);
        } else {
            self.follow(slot, answer, held);
        }
        self.streams.settle(slot, false);
    }

    /// Acts on the answer of a callback, and offers input that was held until it may be offered again.
    fn follow(&mut self, slot: u32, answer: Answer, held: bool) {
        self.act(slot, answer, Tail::Unknown, false);
        self.input_goes_on(slot, held);
    }

    /// Offers input again where its hold has ended, and asks to drain: a drain that waits for a quiet point may find one.
    fn input_goes_on(&mut self, slot: u32, held: bool) {
        if held {
            self.resume(slot);
        }
        self.ask_to_drain(slot);
    }

    /// Offers input again: first what was kept, then the peer's end if it was read meanwhile.
    fn resume(&mut self, slot: u32) {
        if self.streams.slots.at(slot).may_receive() {
            self.offer_kept(slot);
        }
        if self.streams.slots.at(slot).flags.any(Flags::PEER_ENDED) {
            self.tell_ended(slot);
        }
    }

    fn tell_ended(&mut self, slot: u32) {
        let record = self.streams.slots.at(slot);
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
    fn act(&mut self, slot: u32, answer: Answer, tail: Tail, more_follows: bool) {
        match answer {
            Answer::Continue => {
                // The mark is looked at after each call: above it, what is read next stays in the kernel.
                let waits = self.streams.scratch.backlog + self.streams.scratch.bytes.len();
                if !more_follows || waits >= SCRATCH_BYTES.min(self.streams.scratch.high_water) {
                    self.streams.send(slot, false);
                }
            }
            Answer::EndOutput => self.streams.end_output(slot),
            Answer::Close => {
                if self.take_back(slot) {
                    self.streams.close(slot, tail);
                }
            }
            Answer::Abort => self.streams.end(slot, Closed::Aborted, true),
            Answer::More => self.act_more(slot),
        }
    }

    #[cold]
    fn act_more(&mut self, slot: u32) {
        if !self.take_back(slot) {
            panics::discard(self.streams.more.take());
            return;
        }
        match self.streams.more.take().expect("the answer said so") {
            More::Work(job) => {
                if self.streams.send(slot, false) {
                    jobs::begin(&mut self.streams, slot, job);
                }
            }
            More::Delegate(delegate) => leasing::start(&mut self.streams, slot, delegate),
            More::Relay(to) => self.start_relaying(slot, &to),
            More::Panicked(message) => self.streams.crash(slot, message),
        }
    }

    /// Brings a note to the connection. Above its high-water mark it does without what is only offered, and ends where too much is unsent.
    pub(in crate::event_loop) fn note(&mut self, token: u64, note: Note, urgency: Urgency) {
        let Some(slot) = self.streams.slots.with_protocol(token) else {
            panics::discard(note);
            return;
        };
        if self.streams.slots.at(slot).flags.is(Phase::Leased) {
            return leasing::note(&mut self.streams, slot, note, urgency);
        }
        let heard = if self.streams.slots.at(slot).flags.is(Phase::Frozen) { self.keep_note(slot, note) } else { Some(note) };
        let Some(note) = heard else { return };
        if self.streams.slots.at(slot).flags.any(Flags::FULL) {
            let (table, unsent) = (self.streams.slots.at(slot).table, self.streams.unsent.bytes(slot).len());
            let is_too_much = self.streams.generations.settings(table).max_unsent.is_some_and(|max| unsent > max);
            if is_too_much || urgency == Urgency::Offered {
                self.streams.io.counters.notes_dropped().add(1);
                panics::discard(note);
                if is_too_much {
                    self.streams.end(slot, Closed::Overflow, true);
                }
                return;
            }
        }
        self.streams.io.counters.notes().add(1);
        self.callback(slot, Callback::Notified(&mut Some(note)));
    }

    /// Tells what came of a connect to what has asked for it.
    pub(in crate::event_loop) fn tell_asker(&mut self, asker: Asker, result: Result<Handle, ConnectFailure>) {
        let Asker::Connection(token) = asker else { return asker.tell_later(&self.streams.io.inbox, result) };
        let made = result.as_ref().ok().map(|handle| handle.token);
        if let Some(slot) = self.streams.slots.with_protocol(token) {
            if let Some(extra) = self.streams.slots.extra_of(slot) {
                extra.connects -= 1;
            }
            self.callback(slot, Callback::Connected(&mut Some(result)));
        }
        // Made for a connection that is gone, it would stay alone.
        if self.streams.slots.with_protocol(token).is_none()
            && let Some(slot) = made.and_then(|made| self.streams.slots.with_protocol(made))
        {
            self.streams.end(slot, Closed::Aborted, true);
        }
    }

    /// Handles a connect that failed: there will be no connection.
    fn connect_failed(&mut self, slot: u32, errno: Errno) {
        let (target, (lag, after)) =
            (self.streams.slots.target(slot), self.streams.slots.at(slot).connect_times(self.streams.io.start));
        let reset = errno == Errno::TIMEDOUT;
        let asker = self.streams.slots.extra_of(slot).and_then(|extra| extra.asked.take()).map(|asked| asked.by);
        self.streams.leave(slot, reset);
        let failure = ConnectFailure { target, errno: errno.raw_os_error(), after, lag };
        match asker {
            None => connects::tell_failed(&mut self.streams, &failure),
            Some(asker) => {
                self.streams.io.counters.connect_failed().add(1);
                self.tell_asker(asker, Err(failure));
            }
        }
    }

    /// Tells the protocol, once, when nothing partial was received and no job runs.
    #[inline]
    fn ask_to_drain(&mut self, slot: u32) {
        if self.streams.slots.at(slot).flags.any(Flags::DRAINING) {
            self.tell_draining(slot);
        }
    }

    fn tell_draining(&mut self, slot: u32) {
        let record = self.streams.slots.at(slot);
        let asked = !record.flags.any(Flags::TOLD_DRAINING);
        // Partial input stays partial once the peer has finished.
        let whole = !record.flags.any(Flags::KEPT) || record.flags.any(Flags::PEER_ENDED);
        if asked && whole && record.is_free() {
            record.flags.set(Flags::TOLD_DRAINING);
            self.callback(slot, Callback::Draining);
        }
    }

    /// Ends a connection now: in order where nothing is owed to its peer, else by a reset, which is the only way to tell the peer
    /// that something is missing.
    pub(in crate::event_loop) fn end_now(&mut self, slot: u32, why: Closed) {
        if self.streams.slots.at(slot).flags.is(Phase::Connecting) {
            return self.connect_failed(slot, Errno::CONNABORTED);
        }
        if self.streams.slots.at(slot).flags.is(Phase::Cut) {
            return self.streams.leave(slot, true);
        }
        let owes = self.streams.owes(slot);
        let record = self.streams.slots.at(slot);
        if owes {
            self.streams.io.counters.cut().add(1);
        } else if record.has_protocol() || record.flags.any(Flags::PURGED) {
            self.streams.io.counters.purged().add(1);
        }
        self.streams.end(slot, why, owes);
    }

    /// Lets the connection go on here, and with it the other side of its relay.
    fn thaw(&mut self, id: u64) {
        let thawed = self.moving.thaw(&mut self.streams.slots, &mut self.streams.timers, id);
        thawed.into_iter().for_each(|thawed| self.goes_on(thawed));
    }

    fn goes_on(&mut self, Thawed { token, waited, later }: Thawed) {
        let Some(slot) = self.streams.slots.with_protocol(token) else { return };
        let seen = self.streams.timers.seen(slot);
        if waited && !self.streams.slots.at(slot).flags.any(Flags::PAUSED.union(Flags::HELD)) {
            // The reason for which input was held ended meanwhile.
            self.resume(slot);
        }
        self.streams.settle(slot, false);
        IdleWatch::of(&mut self.streams).go_on(slot, seen);
        for later in later {
            match later {
                Later::Note(note) => self.note(token, note, Urgency::Delivered),
                Later::Act(act) => act(self, token),
            }
        }
        self.streams.io.wake_again(&mut self.streams.slots, token);
    }

    /// Keeps a note for a frozen connection. Returns it where it is heard now.
    #[cold]
    fn keep_note(&mut self, slot: u32, note: Note) -> Option<Note> {
        let id = self.streams.slots.at(slot).id.0;
        let left = match self.moving.keep(id, note) {
            NoteFate::Waits => return None,
            NoteFate::Heard(note) => return Some(note),
            NoteFate::Dropped(note) => {
                self.streams.io.counters.notes_dropped().add(1);
                note
            }
            NoteFate::GoesOn(note) => {
                self.thaw(id);
                // It may have ended by a note that came before.
                if self.streams.slots.at(slot).has_protocol() {
                    return Some(note);
                }
                note
            }
        };
        panics::discard(left);
        None
    }

    /// Takes back a connection that may be frozen, because something happens to it: it is not the other process's then, and is offered again
    /// later. Returns false where it ended, by a note that had come meanwhile.
    #[inline]
    fn take_back(&mut self, slot: u32) -> bool {
        !self.streams.slots.at(slot).flags.is(Phase::Frozen) || self.thaw_one(slot)
    }

    #[cold]
    fn thaw_one(&mut self, slot: u32) -> bool {
        let id = self.streams.slots.at(slot).id.0;
        self.thaw(id);
        self.streams.slots.at(slot).is_taken()
    }

    /// Takes back a connection for an action: now, where this returns true. Else it was offered to another process, and `act` is called once it goes on here; or it
    /// has ended.
    #[inline]
    fn happens_now(&mut self, slot: u32, act: impl FnOnce(&mut Connections, u32) + Send + 'static) -> bool {
        match self.moving.offered(self.streams.slots.at(slot)) {
            None => self.take_back(slot),
            Some(frozen) => {
                let act = move |connections: &mut Connections, token| {
                    if let Some(slot) = connections.streams.slots.find(token) {
                        act(connections, slot);
                    }
                };
                frozen.later.push(Later::Act(Box::new(act)));
                false
            }
        }
    }

    /// Ends a connection with a reset.
    fn kill_one(&mut self, token: u64) -> bool {
        let Some(slot) = self.streams.slots.find(token) else { return false };
        if self.moving.offered(self.streams.slots.at(slot)).is_some() {
            return !self.happens_now(slot, move |connections, _| _ = connections.kill_one(token));
        }
        if self.streams.slots.at(slot).flags.is(Phase::Connecting) {
            self.connect_failed(slot, Errno::CONNABORTED);
        } else {
            let (id, peer) = (self.streams.slots.at(slot).id, self.streams.io.remote(&mut self.streams.slots, slot));
            self.streams.end(slot, Closed::Killed, true);
            self.streams.io.shared.tell(&Event::ConnectionKilled { id, peer });
        }
        true
    }

    /// Sets the tag; an empty tag is none.
    fn set_tag(&mut self, slot: u32, tag: Tag) {
        let later = tag.clone();
        if self.moving.offered(self.streams.slots.at(slot)).is_some()
            && !self.happens_now(slot, move |connections, slot| connections.set_tag(slot, later))
        {
            return;
        }
        self.streams.snapshot.iter().for_each(|snapshot| snapshot.tagged(tag.clone()));
        if !tag.is_empty() {
            self.streams.slots.make_extra(slot).tag = Some(tag);
        } else if let Some(extra) = self.streams.slots.extra_of(slot) {
            extra.tag = None;
        }
    }

    /// Does Step::Relay. What the protocols have not taken, or not sent, goes first.
    fn start_relaying(&mut self, slot: u32, to: &Handle) {
        if !self.streams.send(slot, false) {
            return;
        }
        if !Arc::ptr_eq(&to.post, &self.streams.post)
            || to.token == self.streams.slots.token(slot)
            || !self.streams.slots.at(slot).is_free()
        {
            return self.streams.crash(slot, "a protocol relays to a connection of another loop, to itself, or twice");
        }
        // A connection that is offered to another process is not that one's: it stays with this.
        let stays = self.streams.slots.with_protocol(to.token).is_some_and(|other| self.take_back(other));
        let Some(other) = self.streams.slots.with_protocol(to.token).filter(|_| stays) else {
            // The other connection has ended meanwhile, and this one with it.
            return self.streams.end(slot, Closed::Aborted, true);
        };
        if !self.streams.slots.at(other).is_free() {
            self.streams.crash(slot, "a protocol relays to a connection that is relayed, delegated or runs a job");
            self.kill_one(to.token);
            return;
        }
        let token = self.streams.slots.token(slot);
        for (one, to) in [(slot, to.token), (other, token)] {
            self.streams.slots.join(one, to);
            let extra = self.streams.slots.make_extra(one);
            (extra.wake_below, extra.asked) = (None, None);
            let flags = &mut self.streams.slots.at(one).flags;
            flags.enter(Phase::Relayed);
            flags.clear(Flags::PAUSED.union(Flags::HELD).union(Flags::FULL).union(Flags::BACKED_UP));
        }
        if !Pair::of(&mut self.streams, slot, other).find_filters() {
            return;
        }
        let directions = [(slot, other), (other, slot)];
        for (from, to) in directions {
            if self.streams.slots.is_relayed(token) {
                Pair::of(&mut self.streams, from, to).relay_kept();
            }
        }
        for (from, to) in directions {
            if self.streams.slots.is_relayed(token) {
                Pair::of(&mut self.streams, from, to).relay();
            }
        }
        self.streams.settle_relay(token);
    }
}
