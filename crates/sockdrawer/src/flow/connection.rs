//! One connection's life between its first and last byte: read, call the protocol, do as its step says.

use super::inbox::Letter;
use super::seat::Flags;
use super::worker::{Submitted, Task};
use super::{Flow, READ_BYTES, READS_PER_TURN, SCRATCH_BYTES};
use crate::behaviour::{Event, Frame, Panicked, Table};
use crate::config::NotesWhenFull;
use crate::observe::Event as Told;
use crate::protocol::{Closed, ConnectionId, Input, Job, JobError, JobResult, Note, Peer, Side, Step, Timer};
use crate::sync::atomic::Ordering;
use crate::sys::{Errno, Interest, Ready, panics};
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// What the last read of a connection says about input still to come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// The last read was short and all was taken: as far as can be known, nothing is unread.
    Clean,
    /// There may be more.
    Unknown,
}

/// How one read went.
enum Read {
    /// The buffer was filled: there is probably more.
    Full,
    /// All there was.
    Short,
    /// The connection is gone, or must not be read now.
    Over,
}

impl Flow {
    /// Seats a connection under the active generation and lets it speak. It is read at once: most peers have sent by now.
    pub(super) fn enter(&mut self, socket: OwnedFd, permit: super::gate::Permit, peer: &Peer) {
        let seat = self.seats.take(socket, permit);
        self.seats.at(seat).id = self.next_id();
        if peer.side() == Side::Connected {
            self.seats.at(seat).flags.set(Flags::CONNECTED);
            self.set_active_options(seat);
        }
        self.open_protocol(seat, peer);
    }

    /// Gives a seat its protocol.
    pub(super) fn open_protocol(&mut self, seat: u32, peer: &Peer) {
        let opened = self.join_generation().and_then(|()| {
            let active = self.active;
            self.place(active).table.open(peer).inspect_err(|_| self.left_generation(active))
        });
        match opened {
            Ok(slot) => {
                let (table, opened) = (self.active, self.seconds_open());
                let place = self.seats.at(seat);
                (place.table, place.slot, place.opened) = (table, slot, opened);
                let epoch = self.seats.at(seat).epoch;
                self.write_card(seat, peer);
                // epoll hears of the connection only when it has been read and stays: many are over by then.
                self.call(seat, Event::Opened);
                if self.is_still(seat, epoch) {
                    // Who connected has just sent its first words, if any: there can be no answer yet.
                    match self.seats.at(seat).side() {
                        Side::Accepted => self.readable(seat),
                        Side::Connected => self.settle(seat, false),
                    }
                }
            }
            Err(Panicked(message)) => {
                self.count_panic(seat, message);
                self.leave(seat, true);
            }
        }
    }

    /// Counts one more connection of the generation in force. Counted before it is looked at again: who retires a generation
    /// sees this connection, or it sees the newer generation.
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

    pub(super) fn is_still(&mut self, seat: u32, epoch: u32) -> bool {
        let seat = self.seats.at(seat);
        seat.epoch == epoch && seat.is_taken()
    }

    /// epoll speaks.
    pub(super) fn connection_event(&mut self, token: u64, ready: Ready) {
        let Some(seat) = self.seats.find(token) else { return };
        let flags = self.seats.at(seat).flags;
        if flags.any(Flags::CONNECTING) {
            return self.connect_event(seat);
        }
        if flags.any(Flags::LINGERING) {
            return self.discard(seat);
        }
        if flags.any(Flags::AWAY) {
            return;
        }
        let may_receive = self.seats.at(seat).may_receive() && !flags.any(Flags::FLUSHING.and(Flags::PEER_FINISHED));
        // A reset is seen by reading; where nobody reads it must be asked for, else it would be reported for ever.
        if ready.broken && !may_receive {
            return self.check_broken(seat);
        }
        if ready.write && flags.any(Flags::WATCH_WRITE) {
            self.flush(seat);
        }
        if let Some(seat) = self.seats.find(token) {
            if (ready.read || ready.broken) && may_receive && self.seats.at(seat).has_protocol() {
                self.readable(seat);
            } else {
                self.settle(seat, ready.read);
            }
        }
    }

    /// epoll calls a connection broken that nobody reads now.
    fn check_broken(&mut self, seat: u32) {
        match self.with_socket(seat, |system, socket| system.take_error(socket)) {
            Err(errno) => self.fail(seat, errno),
            // Hung up on both sides: what is unsent can only fail now.
            Ok(()) if self.unsent.has(seat) => self.flush(seat),
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

    /// Reads until a short read, a few times at most, and offers what came.
    pub(super) fn readable(&mut self, seat: u32) {
        let epoch = self.seats.at(seat).epoch;
        for turn in 1..=READS_PER_TURN {
            let last = turn == READS_PER_TURN;
            match self.read_once(seat, last) {
                Read::Full => {}
                Read::Short | Read::Over => break,
            }
        }
        if self.is_still(seat, epoch) {
            self.send(seat, false);
        }
        if self.is_still(seat, epoch) {
            self.settle(seat, false);
        }
    }

    fn read_once(&mut self, seat: u32, last: bool) -> Read {
        let place = self.seats.at(seat);
        if !place.has_protocol() || !place.may_receive() || place.flags.any(Flags::PEER_FINISHED) {
            return Read::Over;
        }
        place.flags.clear(Flags::WORKED);
        let kept = self.kept.bytes(seat);
        let length = kept.len();
        if length > 0 {
            self.read[..length].copy_from_slice(kept);
        }
        let socket = self.seats.at(seat).socket.as_ref().expect("a taken seat has a socket");
        match self.system.receive(socket.as_fd(), &mut self.read[length..length + READ_BYTES]) {
            Ok(0) => {
                self.seats.at(seat).flags.set(Flags::PEER_FINISHED);
                self.tell_finished(seat);
                Read::Over
            }
            Ok(count) => {
                self.counters.bytes_in().add(count as u64);
                self.seats.at(seat).bytes_in += count as u64;
                self.kept.release(seat);
                let full = count == READ_BYTES;
                self.offer(seat, length + count, !full, full && !last);
                if full { Read::Full } else { Read::Short }
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Short,
            Err(errno) => {
                self.fail(seat, errno);
                Read::Over
            }
        }
    }

    /// Offers the first `length` bytes of the read buffer to the protocol and keeps what it leaves.
    fn offer(&mut self, seat: u32, length: usize, short: bool, more_follows: bool) {
        let mut read = std::mem::take(&mut self.read);
        let mut input = Input::new(&mut read[..length]);
        let outcome = self.dispatch(seat, Event::Received(&mut input));
        let taken = input.taken();
        let tail = if taken == length && short { Tail::Clean } else { Tail::Unknown };
        self.kept.push(seat, &read[taken..length]);
        self.read = read;
        let epoch = self.seats.at(seat).epoch;
        self.act(seat, outcome, tail, more_follows);
        if !self.is_still(seat, epoch) || !self.seats.at(seat).has_protocol() {
            return;
        }
        let (table, may_receive) = (self.seats.at(seat).table, self.seats.at(seat).may_receive());
        if may_receive && length - taken > self.place(table).generation.settings.max_partial {
            self.counters.too_long().add(1);
            return self.end(seat, Closed::TooLong, true);
        }
        // After a read that filled the buffer there is probably more that the peer has sent already.
        if short {
            self.ask_to_drain(seat);
        }
    }

    /// Calls the protocol. What it appended waits in the scratch.
    pub(super) fn dispatch(&mut self, seat: u32, event: Event<'_, '_>) -> Result<Step, Panicked> {
        let (table, slot) = (self.seats.at(seat).table, self.seats.at(seat).slot);
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let outcome = self.with_frame(seat, table, &mut timer, &now, |table, frame| table.dispatch(slot, event, frame));
        self.take_tag(seat);
        match timer {
            Timer::Keep => {}
            Timer::Off => self.clear_timer(seat),
            Timer::At(at) => self.set_timer(seat, at, now.get().unwrap_or_else(Instant::now)),
        }
        outcome
    }

    pub(super) fn with_frame<T>(
        &mut self,
        seat: u32,
        table: u16,
        timer: &mut Timer,
        now: &Cell<Option<Instant>>,
        call: impl FnOnce(&mut dyn Table, Frame<'_>) -> T,
    ) -> T {
        let place = self.places[usize::from(table)].as_mut().expect("a generation with connections stays");
        let seat_of = self.seats.at(seat);
        self.scratch.backlog = self.unsent.bytes(seat).len();
        (self.scratch.high_water, self.scratch.tag) = (place.generation.settings.high_water, None);
        let frame = Frame {
            out: &mut self.scratch,
            timer,
            now,
            post: &self.post,
            token: super::seat::token(seat, seat_of.epoch),
            id: seat_of.id,
            generation: place.generation.id,
            draining: seat_of.flags.any(Flags::DRAINING),
        };
        call(&mut *place.table, frame)
    }

    /// A callback other than `received`, and all that follows from it.
    pub(super) fn callback(&mut self, seat: u32, event: Event<'_, '_>) {
        let epoch = self.seats.at(seat).epoch;
        self.call(seat, event);
        if self.is_still(seat, epoch) {
            self.settle(seat, false);
        }
    }

    fn call(&mut self, seat: u32, event: Event<'_, '_>) {
        let epoch = self.seats.at(seat).epoch;
        let held = !self.seats.at(seat).may_receive();
        let outcome = self.dispatch(seat, event);
        self.follow(seat, epoch, outcome, held);
    }

    /// What follows from a callback; input that was held until it may be offered again.
    pub(super) fn follow(&mut self, seat: u32, epoch: u32, outcome: Result<Step, Panicked>, held: bool) {
        self.act(seat, outcome, Tail::Unknown, false);
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
            self.kept.release(seat);
            self.offer(seat, length, false, false);
        }
        if self.is_still(seat, epoch) && self.seats.at(seat).flags.any(Flags::PEER_FINISHED) {
            self.tell_finished(seat);
        }
    }

    fn tell_finished(&mut self, seat: u32) {
        let place = self.seats.at(seat);
        if !place.has_protocol() || !place.may_receive() || place.flags.any(Flags::TOLD_FINISHED) {
            return;
        }
        place.flags.set(Flags::TOLD_FINISHED);
        let epoch = place.epoch;
        let outcome = self.dispatch(seat, Event::Finished);
        self.act(seat, outcome, Tail::Unknown, false);
        if self.is_still(seat, epoch) {
            self.ask_to_drain(seat);
        }
    }

    /// Does what the protocol asked for.
    fn act(&mut self, seat: u32, outcome: Result<Step, Panicked>, tail: Tail, more_follows: bool) {
        let step = match outcome {
            Ok(step) => step,
            Err(Panicked(message)) => {
                self.count_panic(seat, message);
                return self.end(seat, Closed::Panicked, true);
            }
        };
        if !matches!(step, Step::Wait) {
            self.seats.at(seat).flags.clear(Flags::WAITING);
        }
        match step {
            Step::Continue => {
                if !more_follows || self.scratch.bytes.len() >= SCRATCH_BYTES {
                    self.send(seat, false);
                }
            }
            Step::Wait => {
                self.seats.at(seat).flags.set(Flags::WAITING);
                self.send(seat, false);
            }
            Step::Work(job) => {
                let epoch = self.seats.at(seat).epoch;
                self.send(seat, false);
                if self.is_still(seat, epoch) {
                    self.work(seat, job);
                }
            }
            Step::Delegate(delegate) => self.start_leaving(seat, delegate),
            Step::Finish => self.finish_sending(seat),
            Step::Close => self.close(seat, tail),
            Step::Abort => self.end(seat, Closed::Aborted, true),
        }
    }

    fn work(&mut self, seat: u32, job: Job) {
        if self.seats.at(seat).flags.any(Flags::WORKING) {
            self.count_panic(seat, "a protocol asked for a second job while one runs".to_owned());
            return self.end(seat, Closed::Panicked, true);
        }
        self.seats.at(seat).flags.set(Flags::WORKING.and(Flags::WORKED));
        let token = self.seats.token(seat);
        match self.shared.workers.submit(Task { job, token, inbox: self.inbox.clone() }) {
            Submitted::Queued => self.counters.jobs().add(1),
            Submitted::NoWorkers(task) => {
                self.counters.jobs().add(1);
                self.unread.push_back(Letter::Done(token, task.job.run()));
            }
            Submitted::QueueFull(task) => {
                panics::discard(task.job);
                self.counters.jobs_refused().add(1);
                self.unread.push_back(Letter::Done(token, JobResult::refused(JobError::QueueFull)));
            }
        }
    }

    pub(super) fn job_done(&mut self, token: u64, mut result: JobResult) {
        if let Some(payload) = result.take_panic() {
            let message = panics::message(payload);
            self.counters.job_panics().add(1);
            self.tell_panic(Told::JobPanicked { message });
        }
        let Some(seat) = self.seats.find(token) else {
            panics::discard(result);
            return drop(self.orphans.remove(&token));
        };
        let place = self.seats.at(seat);
        if !place.has_protocol() {
            place.flags.clear(Flags::WORKING);
            panics::discard(result);
            return;
        }
        let epoch = place.epoch;
        // Held until the callback, so that it resumes; then the job is over.
        let outcome = self.dispatch(seat, Event::Done(result));
        self.seats.at(seat).flags.clear(Flags::WORKING);
        self.follow(seat, epoch, outcome, true);
        if self.is_still(seat, epoch) {
            self.settle(seat, false);
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
        self.callback(seat, Event::Notified(note));
    }

    pub(super) fn timer_due(&mut self, seat: u32, now: Instant) {
        if let Some(at) = self.far.remove(&seat) {
            return self.set_timer(seat, at, now);
        }
        let place = self.seats.at(seat);
        if place.flags.any(Flags::CONNECTING) {
            self.connect_failed(seat, Errno::TIMEDOUT);
        } else if place.flags.any(Flags::AWAY) {
            self.deadline_away(seat);
        } else if place.has_protocol() {
            self.callback(seat, Event::Timeout);
        } else {
            self.closing_is_over(seat);
        }
    }

    /// Sends what the scratch holds; the rest of it, if any, waits for the socket to have room.
    pub(super) fn send(&mut self, seat: u32, more: bool) {
        if self.scratch.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.scratch.bytes);
        let backlog = self.unsent.bytes(seat).len();
        let sent = if backlog > 0 { Ok(0) } else { self.send_some(seat, &bytes, more) };
        match sent {
            Ok(sent) => {
                self.unsent.push(seat, &bytes[sent..]);
                let table = self.seats.at(seat).table;
                if backlog + bytes.len() - sent > self.place(table).generation.settings.high_water {
                    let full = self.place(table).full();
                    self.seats.at(seat).flags.set(full);
                }
                self.recycle(bytes);
            }
            Err(errno) => {
                self.recycle(bytes);
                self.fail(seat, errno);
            }
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.shrink_to(4 * SCRATCH_BYTES);
        self.scratch.bytes = bytes;
    }

    fn send_some(&mut self, seat: u32, bytes: &[u8], more: bool) -> Result<usize, Errno> {
        loop {
            match self.with_socket(seat, |system, socket| system.send(socket, bytes, more)) {
                Ok(sent) => {
                    self.counters.bytes_out().add(sent as u64);
                    self.seats.at(seat).bytes_out += sent as u64;
                    return Ok(sent);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The socket has room: sends the backlog.
    pub(super) fn flush(&mut self, seat: u32) {
        if !self.unsent.has(seat) {
            return;
        }
        let bytes = std::mem::take(self.unsent.at(seat));
        let sent = self.send_some(seat, bytes.bytes(), false);
        *self.unsent.at(seat) = bytes;
        match sent {
            Ok(sent) => self.unsent.at(seat).take(sent),
            Err(errno) => return self.fail(seat, errno),
        }
        let left = self.unsent.bytes(seat).len();
        if left == 0 {
            self.unsent.release(seat);
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

    /// Lets epoll know what the connection waits for. Input that nobody wants is unwatched only when it comes: a job is
    /// usually done before the peer's next message.
    pub(super) fn settle(&mut self, seat: u32, unwanted: bool) {
        if self.leaves(seat) {
            return;
        }
        let place = self.seats.at(seat);
        let flags = place.flags;
        let finished = flags.any(Flags::PEER_FINISHED);
        let wanted = if flags.any(Flags::LINGERING) { true } else { place.has_protocol() && place.may_receive() && !finished };
        let watched = flags.any(Flags::WATCH_READ);
        let read = wanted || (watched && !unwanted && !finished && !flags.any(Flags::FLUSHING));
        let write = self.unsent.has(seat);
        let interest = Interest { read, write };
        if !flags.any(Flags::WATCHED) {
            // A job ends by itself; who waits for somebody else must hear when the peer is gone, which epoll always tells.
            let waits = flags.any(Flags::WAITING) && !flags.any(Flags::WORKING.and(Flags::FLUSHING));
            if !read && !write && !waits {
                return;
            }
        } else if read == watched && write == flags.any(Flags::WATCH_WRITE) {
            return;
        }
        if let Err(errno) = self.awaken() {
            return self.fail(seat, errno);
        }
        let token = self.seats.token(seat);
        let epoll = self.epoll.as_fd();
        let socket = self.seats.at(seat).socket.as_ref().expect("a taken seat has a socket").as_fd();
        let done = if flags.any(Flags::WATCHED) {
            self.system.rewatch(epoll, socket, token, interest)
        } else {
            self.system.watch(epoll, socket, token, interest)
        };
        match done {
            Ok(()) => {
                let flags = &mut self.seats.at(seat).flags;
                flags.clear(Flags::WATCH_READ.and(Flags::WATCH_WRITE));
                flags.set(Flags::WATCHED);
                if read {
                    flags.set(Flags::WATCH_READ);
                }
                if write {
                    flags.set(Flags::WATCH_WRITE);
                }
            }
            // ENOMEM, ENOSPC (max_user_watches): the connection cannot be served.
            Err(errno) => self.fail(seat, errno),
        }
    }

    pub(super) fn unwatch(&mut self, seat: u32) {
        let socket = self.seats.at(seat).socket.as_ref().expect("a taken seat has a socket").as_fd();
        // It fails only for a socket that is not watched.
        let _ = self.system.unwatch(self.epoll.as_fd(), socket);
        self.seats.at(seat).flags.clear(Flags::WATCHED.and(Flags::WATCH_READ).and(Flags::WATCH_WRITE));
    }

    pub(super) fn count_panic(&mut self, seat: u32, message: String) {
        self.counters.panics().add(1);
        let id: ConnectionId = self.seats.at(seat).id;
        self.tell_panic(Told::ConnectionPanicked { id, message });
    }

    /// The socket failed.
    pub(super) fn fail(&mut self, seat: u32, errno: Errno) {
        self.counters.errors().add(1);
        self.end(seat, Closed::Error(errno.raw_os_error()), false);
    }
}
