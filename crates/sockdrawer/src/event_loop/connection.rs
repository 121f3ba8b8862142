//! One connection's life between its first and last byte: read, call the protocol, do as its step says.

use super::seat::{Flags, Seat};
use super::{ENDS_PER_TURN, EventLoop, SCRATCH_BYTES};
use crate::behaviour::{Answer, Event, More, Panicked, Table};
use crate::config::NotesWhenFull;
use crate::observe::Event as Told;
use crate::protocol::{Closed, ConnectionId, Context, Local, Note, Output, Peer, Post, Side, Timer};
use crate::sync::atomic::Ordering;
use crate::sys::{Errno, Ready, panics};
use std::cell::Cell;
use std::os::fd::AsFd;
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
    let token = super::seat::token(seat, seat_of.epoch);
    let draining = seat_of.flags.any(Flags::DRAINING);
    Context { out, timer, local, now, post, token, id: seat_of.id, generation, draining }
}

impl EventLoop {
    /// Begins a seated connection under the active generation and lets it speak. It is read at once: most peers have sent by now.
    #[inline(always)]
    pub(super) fn enter(&mut self, seat: u32, peer: &Peer) {
        self.seats.at(seat).id = self.next_id();
        if peer.side() == Side::Connected {
            self.seats.at(seat).flags.set(Flags::CONNECTED);
            self.set_active_options(seat);
        }
        self.open_protocol(seat, peer);
    }

    /// Gives a seat its protocol.
    pub(super) fn open_protocol(&mut self, seat: u32, peer: &Peer) {
        match self.join_generation() {
            Ok(()) => self.open_joined(seat, peer),
            Err(panicked) => self.not_opened(seat, panicked),
        }
    }

    /// The same where the generation in force counts it. Nearly always its protocol goes on and has nothing to say before it is
    /// read: that way looks nothing up twice.
    pub(super) fn open_joined(&mut self, seat: u32, peer: &Peer) {
        if self.names_peers & peer.is_unnamed() {
            // The generation came into force after the accept.
            let named = Peer::new(self.remote(seat), Side::Accepted);
            return self.open_joined(seat, &named);
        }
        if self.card.is_some() {
            self.write_card(seat, peer);
        }
        let (table, opened) = (self.active, self.second);
        let place = self.seats.at(seat);
        (place.table, place.opened) = (table, opened);
        let epoch = place.epoch;
        let of = self.places[usize::from(table)].as_mut().expect("the generation in force has a place");
        (self.scratch.backlog, self.scratch.high_water) = (0, of.high_water);
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let mut cx = context(seat, place, of.id, &mut *of.local, &mut self.scratch, &mut timer, &now, &self.post);
        match of.table.open(peer, &mut cx, &mut self.more) {
            Ok((slot, answer)) => {
                place.slot = slot;
                let silent = self.scratch.bytes.is_empty() & self.scratch.said.is_none() & (timer == Timer::Keep);
                let usual = silent && matches!(answer, Answer::Continue);
                if !usual && !self.has_spoken(seat, epoch, answer, timer, &now) {
                    return;
                }
                // epoll hears of the connection only when it has been read and stays: many are over by then. Who connected
                // has just sent its first words, if any: there can be no answer yet.
                match peer.side() {
                    Side::Accepted => self.readable(seat),
                    Side::Connected => self.settle(seat, false),
                }
            }
            Err(panicked) => {
                self.left_generation(table);
                self.not_opened(seat, panicked);
            }
        }
    }

    /// Does what a protocol asked for when it was opened. Whether the connection goes on.
    #[inline(never)]
    fn has_spoken(&mut self, seat: u32, epoch: u32, answer: Answer, timer: Timer, now: &Cell<Option<Instant>>) -> bool {
        self.after_call(seat, timer, now);
        self.act(seat, answer, Tail::Unknown, false);
        self.is_still(seat, epoch)
    }

    #[cold]
    fn not_opened(&mut self, seat: u32, Panicked(message): Panicked) {
        self.count_panic(seat, message);
        self.counters.crashed().add(1);
        self.leave(seat, true);
    }

    /// Counts one more connection of the generation in force. Counted before it is looked at again: who retires a generation
    /// sees this connection, or it sees the newer generation.
    #[inline(always)]
    pub(super) fn join_generation(&mut self) -> Result<(), Panicked> {
        loop {
            self.refresh()?;
            let active = self.active;
            self.place(active).generation.live.fetch_add(1, Ordering::SeqCst);
            if self.shared.switch.epoch() == self.epoch {
                return Ok(());
            }
            self.left_generation(active);
        }
    }

    #[inline]
    pub(super) fn is_still(&mut self, seat: u32, epoch: u32) -> bool {
        // A seat that is left begins another epoch.
        self.seats.at(seat).epoch == epoch
    }

    /// epoll speaks.
    pub(super) fn connection_event(&mut self, token: u64, ready: Ready) {
        let Some(seat) = self.seats.find(token) else { return };
        // Nearly always: there is input, and it is wanted.
        if ready.is_input() && !self.seats.at(seat).flags.any(Flags::UNREAD) {
            return self.readable(seat);
        }
        self.rare_event(seat, token, ready);
    }

    #[cold]
    fn rare_event(&mut self, seat: u32, token: u64, ready: Ready) {
        let flags = self.seats.at(seat).flags;
        if flags.any(Flags::CUT) {
            return;
        }
        if ready.is_ended() {
            if self.ends == ENDS_PER_TURN {
                // epoll tells of it again, behind what the others have to say now.
                return;
            }
            self.ends += 1;
        }
        if flags.any(Flags::CONNECTING) {
            return self.connect_event(seat);
        }
        if flags.any(Flags::LINGERING) {
            return self.discard(seat);
        }
        if flags.any(Flags::AWAY) {
            return self.waited_in_vain(seat);
        }
        let may_receive = !flags.any(Flags::UNREAD);
        // A reset is seen by reading; where nobody reads it must be asked for, else it would be reported for ever.
        if ready.is_broken() && !may_receive {
            return self.check_broken(seat);
        }
        if ready.is_writable() && flags.any(Flags::WATCH_WRITE) {
            self.flush(seat);
        }
        if let Some(seat) = self.seats.find(token) {
            if (ready.is_readable() || ready.is_broken()) && may_receive && self.seats.at(seat).has_protocol() {
                self.readable(seat);
            } else {
                self.settle(seat, ready.is_readable());
            }
        }
    }

    /// epoll calls a connection broken that nobody reads now.
    fn check_broken(&mut self, seat: u32) {
        match self.with_socket(seat, |system, socket| system.take_error(socket)) {
            Err(errno) => self.fail(seat, errno),
            // Hung up on both sides: what is unsent can only fail now.
            Ok(()) if self.seats.at(seat).flags.any(Flags::UNSENT) => self.flush(seat),
            // While a job runs or the protocol waits epoll would say so for ever, and nobody reads.
            Ok(()) => self.unwatch(seat),
        }
    }

    pub(super) fn with_socket<T>(
        &mut self,
        seat: u32,
        call: impl FnOnce(&dyn crate::sys::System, std::os::fd::BorrowedFd<'_>) -> T,
    ) -> T {
        match &self.seats.at(seat).socket {
            Some(socket) => call(&*self.system, socket.as_fd()),
            None => call(&*self.system, self.away_socket(seat)),
        }
    }

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
            Timer::At(at) => self.set_timer(seat, at, now.get().unwrap_or_else(Instant::now)),
        }
    }

    /// The timer is free for the idle timeout.
    fn protocol_clears_timer(&mut self, seat: u32) {
        if !self.seats.at(seat).flags.any(Flags::IDLE) {
            self.clear_timer(seat);
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
        let place = self.places[usize::from(seat_of.table)].as_mut().expect("a generation with connections stays");
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
    fn resume(&mut self, seat: u32) {
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
            match self.place(table).generation.settings.notes_when_full {
                NotesWhenFull::Keep => {}
                policy => {
                    self.counters.notes_dropped().add(1);
                    panics::discard(note);
                    if policy == NotesWhenFull::Close {
                        self.end(seat, Closed::Overflow, true);
                    }
                    return;
                }
            }
        }
        self.counters.notes().add(1);
        self.callback(seat, Event::Notified(&mut Some(note)));
    }

    pub(super) fn timer_due(&mut self, seat: u32, now: Instant) {
        if let Some(at) = self.far.remove(&seat) {
            return self.set_timer(seat, at, now);
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

    /// Sends what the scratch holds; the rest of it, if any, waits for the socket to have room. False where the connection is gone.
    #[inline]
    pub(super) fn send(&mut self, seat: u32, more: bool) -> bool {
        self.scratch.bytes.is_empty() || self.send_scratch(seat, more)
    }

    fn send_scratch(&mut self, seat: u32, more: bool) -> bool {
        let place = self.seats.at(seat);
        let mut sent = 0;
        if !place.flags.any(Flags::UNSENT) {
            let socket = place.socket.as_ref().expect("a taken seat has a socket");
            match self.system.send(socket.as_fd(), &self.scratch.bytes, more) {
                Ok(count) => {
                    sent = count;
                    place.bytes_out += count as u64;
                    self.counters.bytes_out().add(count as u64);
                }
                // A call that does not wait is not interrupted; if it were, epoll would say when to go on.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => {
                    self.scratch.clear();
                    self.fail(seat, errno);
                    return false;
                }
            }
        }
        if sent < self.scratch.bytes.len() {
            self.keep_unsent(seat, sent);
        }
        self.scratch.clear();
        if self.scratch.bytes.capacity() > 4 * SCRATCH_BYTES {
            self.scratch.bytes.shrink_to(4 * SCRATCH_BYTES);
        }
        true
    }

    #[cold]
    fn keep_unsent(&mut self, seat: u32, from: usize) {
        self.unsent.push(seat, &self.scratch.bytes[from..]);
        let place = self.seats.at(seat);
        place.flags.set(Flags::UNSENT);
        let (backlog, table) = (self.unsent.bytes(seat).len(), place.table);
        if backlog > self.place(table).high_water {
            let (full, most) = (self.place(table).full(), self.place(table).high_water);
            self.seats.at(seat).flags.set(full);
            self.swollen = true;
            if backlog > 2 * most {
                self.read_less(most);
            }
        }
    }

    #[inline]
    pub(super) fn forget_unsent(&mut self, seat: u32) {
        let flags = &mut self.seats.at(seat).flags;
        if flags.any(Flags::UNSENT) {
            flags.clear(Flags::UNSENT);
            self.unsent.release(seat);
        }
    }

    /// The socket has room: sends the backlog.
    pub(super) fn flush(&mut self, seat: u32) {
        if !self.seats.at(seat).flags.any(Flags::UNSENT) {
            return;
        }
        let bytes = std::mem::take(self.unsent.at(seat));
        let sent = self.with_socket(seat, |system, socket| system.send(socket, bytes.bytes(), false));
        *self.unsent.at(seat) = bytes;
        match sent {
            Ok(sent) => {
                self.unsent.at(seat).take(sent);
                self.counters.bytes_out().add(sent as u64);
                self.seats.at(seat).bytes_out += sent as u64;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return self.fail(seat, errno),
        }
        let left = self.unsent.bytes(seat).len();
        if left == 0 {
            self.forget_unsent(seat);
        }
        let (flags, epoch) = (self.seats.at(seat).flags, self.seats.at(seat).epoch);
        if left == 0 && flags.any(Flags::FINISHING.and(Flags::FLUSHING)) {
            self.all_sent(seat);
        }
        if !self.is_still(seat, epoch) || !self.seats.at(seat).has_protocol() {
            return;
        }
        let table = self.seats.at(seat).table;
        if flags.any(Flags::FULL) && left <= self.place(table).generation.settings.low_water {
            self.seats.at(seat).flags.clear(Flags::FULL.and(Flags::PAUSED));
            self.callback(seat, Event::Writable);
            if self.is_still(seat, epoch) {
                self.resume(seat);
            }
        }
    }

    #[cold]
    pub(super) fn count_panic(&mut self, seat: u32, message: String) {
        self.counters.panics().add(1);
        let id: ConnectionId = self.seats.at(seat).id;
        self.tell_some(Told::ConnectionPanicked { id, message });
    }

    /// The socket failed.
    pub(super) fn fail(&mut self, seat: u32, errno: Errno) {
        self.counters.errors().add(1);
        self.end(seat, Closed::Error(errno.raw_os_error()), false);
    }
}
