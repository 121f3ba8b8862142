//! The sockets of one event loop's connections: how bytes leave, what epoll is asked, and how each ends. Nothing here calls a protocol but for its end,
//! so that what happens to a socket never leads back into what a protocol asked for: `connections` does that.

mod closing;
pub(super) mod idle;
pub(super) mod passing;
pub(super) mod relaying;

use super::SCRATCH_BYTES;
use super::buffer::Buffers;
use super::delegation::Delegation;
use super::generations::Generations;
use super::groups::LoopGroups;
use super::inbox::Inbox;
use super::io::Io;
use super::lease::{Lease, LeaseStart};
use super::phase::Phase;
use super::read_buffer::ReadBuffer;
use super::shared::Shared;
use super::slot::{Flags, Slot};
use super::slots::{Extra, Slots};
use super::snapshot::SnapshotCell;
use super::timers::LoopTimers;
use super::worker::{QueuedJob, Submitted};
use crate::behaviour::{More, Table};
use crate::ipc::child_page::ChildPage;
use crate::limit::policy::Admitted;
use crate::listen::permit::Permit;
use crate::observe::Event;
use crate::protocol::{
    Closed, ConnectFailure, Context, Delegate, Job, JobError, JobResult, LateAdmission, Learned, Local, Note, Output, Peer, Post,
    Timer, Urgency,
};
use crate::sys::{Errno, Interest, panics};
use idle::IdleWatch;
use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Results of connects since the connector looked last.
#[derive(Clone, Copy, Default)]
pub(super) struct Connects {
    /// Number of connects that failed, since the last that did not.
    pub(super) failed: u32,
    pub(super) established: bool,
    /// The connection that was opened last has a handshake before it.
    pub(super) shaking: bool,
}

impl Connects {
    pub(super) fn established(&mut self) {
        *self = Connects { failed: 0, established: true, shaking: false };
    }

    /// Counts the handshake that is under way as not over yet: what was before `established` is so still.
    pub(super) fn wait_for_handshake(&mut self, before: Connects) {
        if std::mem::take(&mut self.shaking) {
            *self = Connects { failed: before.failed + self.failed, ..before };
        }
    }

    pub(super) fn take(&mut self) -> Connects {
        std::mem::take(self)
    }
}

/// The sockets of an event loop's connections, with all that belongs to them.
pub(crate) struct Streams {
    pub(crate) io: Io,
    /// Snapshot of the connection of an event loop that only serves, in a thread among others.
    pub(crate) snapshot: Option<Arc<SnapshotCell>>,
    /// Page by which the orderly end of a connection in its own process is decided. Until then its peer sees a reset when the process
    /// dies.
    pub(crate) page: Option<ChildPage>,
    pub(super) post: Arc<dyn Post>,
    pub(super) slots: Slots,
    pub(super) generations: Generations,
    pub(super) timers: LoopTimers,
    /// Permits of connections that ended while their job runs: the job uses what the limit is there to bound.
    pub(super) orphans: HashMap<u64, Permit>,
    pub(super) groups: LoopGroups,
    /// Results of connects since the event loop looked last.
    pub(super) connects: Connects,
    /// Input that protocols did not take.
    pub(super) kept: Buffers,
    /// Output that the kernel did not take.
    pub(super) unsent: Buffers,
    pub(super) scratch: Output,
    /// Value that the answer of the last callback carries.
    pub(super) more: Option<More>,
    pub(super) read: ReadBuffer,
    /// Output was kept, for a connection that does not read.
    pub(super) swollen: bool,
    /// A descriptor was closed, of which the acceptor may be short.
    pub(super) descriptor_freed: bool,
    /// Ids that this loop has to give.
    pub(super) ids: std::ops::Range<u64>,
}

impl Streams {
    pub(super) fn new(index: Option<usize>, shared: Arc<Shared>, inbox: Arc<Inbox>, capacity: usize) -> Streams {
        let late_admission: Arc<dyn LateAdmission> = shared.clone();
        inbox.admits_by(Arc::downgrade(&late_admission));
        let io = Io::new(index, shared, inbox);
        Streams {
            snapshot: None,
            page: None,
            post: io.inbox.clone(),
            slots: Slots::with_capacity(capacity, io.shared.limiter.clone()),
            generations: Generations::default(),
            timers: LoopTimers::new(io.start, capacity.min(64)),
            orphans: HashMap::new(),
            groups: LoopGroups::new(io.inbox.clone()),
            connects: Connects::default(),
            kept: Buffers::marked(Flags::KEPT, Flags::NO_LINE),
            unsent: Buffers::marked(Flags::UNSENT, Flags::default()),
            scratch: Output::default(),
            more: None,
            read: ReadBuffer::default(),
            swollen: false,
            descriptor_freed: false,
            ids: 0..0,
            io,
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

    /// Sends what the scratch holds; the rest of it, if any, waits for the socket to have room. False where the connection is gone.
    #[inline]
    pub(super) fn send(&mut self, slot: u32, more: bool) -> bool {
        self.scratch.bytes.is_empty() || self.send_scratch(slot, more)
    }

    fn send_scratch(&mut self, slot: u32, more: bool) -> bool {
        let record = self.slots.at(slot);
        let mut sent = 0;
        if !record.flags.any(Flags::UNSENT) {
            let socket = record.socket.as_ref().expect("a taken slot has a socket");
            match self.io.system.send(socket.as_fd(), &self.scratch.bytes, more) {
                Ok(count) => {
                    sent = count;
                    record.bytes_out += count as u64;
                    self.io.counters.bytes_out().add(count as u64);
                }
                // A call that does not wait is not interrupted; if it were, epoll would say when to go on.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => {
                    self.scratch.clear();
                    self.fail(slot, errno);
                    return false;
                }
            }
        }
        if sent < self.scratch.bytes.len() {
            self.keep_unsent(slot, sent);
        }
        self.scratch.clear();
        if self.scratch.bytes.capacity() > 4 * SCRATCH_BYTES {
            self.scratch.bytes.shrink_to(4 * SCRATCH_BYTES);
        }
        true
    }

    #[cold]
    fn keep_unsent(&mut self, slot: u32, from: usize) {
        self.unsent.keep(&mut self.slots, slot, &self.scratch.bytes[from..]);
        let (backlog, table) = (self.unsent.bytes(slot).len(), self.slots.at(slot).table);
        if backlog > self.generations.at(table).high_water && !self.slots.at(slot).flags.is(Phase::Relayed) {
            let (full, most) = (self.generations.at(table).full(), self.generations.at(table).high_water);
            self.slots.at(slot).flags.set(full);
            self.swollen = true;
            if backlog > 2 * most {
                self.read.read_less(most);
            }
        }
    }

    /// Ends a connection whose socket failed.
    #[cold]
    pub(super) fn fail(&mut self, slot: u32, errno: Errno) {
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Relayed)
            && flags.any(Flags::PEER_ENDED)
            && matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)
        {
            // Its peer ended in order and closed its socket, which refuses what the other side says later: no fault of either.
            return self.end(slot, Closed::Orderly, false);
        }
        self.end(slot, Closed::Error(errno.raw_os_error()), false);
    }

    /// Lets epoll know what the connection waits for. Input that is not wanted is unwatched only when it comes: a job is
    /// usually done before the peer's next message.
    #[inline]
    pub(super) fn settle(&mut self, slot: u32, unwanted: bool) {
        if !self.slots.at(slot).is_settled() {
            self.change_interest(slot, unwanted);
        }
    }

    fn change_interest(&mut self, slot: u32, unwanted: bool) {
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Empty) || flags.is(Phase::Frozen) || flags.is(Phase::Leased) {
            return;
        }
        if flags.is(Phase::Delegating) && !flags.any(Flags::UNSENT) {
            return self.hand_over(slot);
        }
        let relays = self.slots.at(slot).flags.is(Phase::Relayed) && self.slots.other_takes(slot);
        let record = self.slots.at(slot);
        let flags = record.flags;
        let finished = flags.any(Flags::PEER_ENDED);
        let wanted = match () {
            () if flags.is(Phase::Lingering) => true,
            () if flags.is(Phase::Relayed) => relays && !finished,
            () => record.may_receive() && !finished,
        };
        let watched = flags.any(Flags::WATCH_READ);
        let read = wanted || (watched && !unwanted && !finished && !flags.is(Phase::Flushing));
        let write = flags.any(Flags::UNSENT);
        // The end of a peer is told also while its input is paused, once none is left before it.
        let over = Flags::PEER_ENDED.union(Flags::END_BEHIND).union(Flags::KEPT).union(Flags::WORKING);
        let end = !read && record.is_open() && flags.any(Flags::PAUSED) && !flags.any(over);
        let interest = Interest { read, write, end };
        if !flags.any(Flags::WATCHED) {
            // A job ends by itself; a protocol that waits for something else, or whose peer has sent its end, must hear when the peer is
            // gone, which epoll always tells.
            let waits = (flags.any(Flags::PAUSED.union(Flags::HELD)) || finished && record.has_protocol())
                && !flags.any(Flags::WORKING)
                && !flags.is(Phase::Flushing);
            if !read && !write && !waits {
                return;
            }
        } else if flags.watches(interest) {
            return;
        }
        let token = self.slots.token(slot);
        match self.io.watch(token, self.slots.at(slot), interest) {
            Ok(true) => IdleWatch::of(self).begin(slot),
            Ok(false) => {}
            // ENOMEM, ENOSPC (max_user_watches): the connection cannot be served.
            Err(errno) => self.fail(slot, errno),
        }
    }

    pub(super) fn settle_relay(&mut self, token: u64) {
        let Some(slot) = self.slots.find(token).filter(|slot| self.slots.at(*slot).flags.is(Phase::Relayed)) else { return };
        let other = self.slots.other(slot);
        self.settle(slot, false);
        if let Some(other) = other.filter(|_| self.slots.is_relayed(token)) {
            self.settle(other, false);
        }
    }

    /// Does Step::Delegate: the connection goes as soon as all is sent.
    pub(super) fn start_leaving(&mut self, slot: u32, delegate: Delegate) {
        let connects = self.slots.extra(slot).is_some_and(|extra| extra.connects > 0);
        if connects || !self.slots.at(slot).is_free() {
            panics::discard(delegate);
            let why = "a protocol gave its connection away while a job runs, a connect is under way or it is relayed, or twice";
            return self.crash(slot, why);
        }
        // It comes back by message, from another thread.
        if let Err(errno) = self.io.awaken() {
            panics::discard(delegate);
            return self.fail(slot, errno);
        }
        self.slots.at(slot).flags.enter(Phase::Delegating);
        self.slots.make_extra(slot).delegation = Some(Delegation::Pending(delegate));
        self.send(slot, false);
    }

    /// Leases a connection whose output is all sent: the last that is done with it in this turn.
    pub(super) fn hand_over(&mut self, slot: u32) {
        let (table, state) = (self.slots.at(slot).table, self.slots.at(slot).state);
        let lent = self.generations.at(table).table.lend(state);
        let Some(Delegation::Pending(mut delegate)) = self.slots.make_extra(slot).delegation.take() else {
            unreachable!("a pending delegation has its delegate")
        };
        self.timers.clear(&mut self.slots, slot);
        if self.slots.at(slot).flags.any(Flags::WATCHED) {
            self.io.unwatch(self.slots.at(slot));
        }
        let token = self.slots.token(slot);
        let of = self.generations.at(table);
        let (generation, max_wire) = (of.id, of.max_partial);
        let kept = self.kept.bytes(slot).to_vec();
        self.kept.forget(&mut self.slots, slot);
        let ends_by = self.slots.extra(slot).and_then(Extra::ends_by);
        let (known, remote) = (delegate.peer.take(), self.slots.extra(slot).and_then(Extra::learned_remote));
        let record = self.slots.at(slot);
        let leaving = LeaseStart {
            token,
            id: record.id,
            generation,
            peer: known.map_or_else(|| Peer::new(remote, record.side()), |peer| *peer),
            system: self.io.system.system().clone(),
            draining: record.flags.any(Flags::DRAINING),
            kept,
            peer_ended: record.flags.any(Flags::PEER_ENDED),
            owes: record.bytes_in > 0,
            ends_by,
            lent,
            max_wire,
        };
        let socket = Arc::new(record.socket.take().expect("a taken slot has a socket"));
        record.flags.enter(Phase::Leased);
        let lease = Lease::new(leaving, socket.clone(), self.io.inbox.clone());
        let leased = lease.leased.clone();
        self.slots.make_extra(slot).delegation =
            Some(Delegation::Leased { leased: leased.clone(), socket, watched: false, purge_by: None });
        self.io.counters.delegated().add(1);
        if delegate.blocks {
            return self.io.shared.delegates.submit(delegate, lease);
        }
        // A panic drops the hold, which comes back and says so.
        let take = AssertUnwindSafe(move || (delegate.take)(Box::new(lease)));
        let _ = catch_unwind(take).map_err(panics::discard);
        if leased.is_watched()
            && let Some(delegation) = &mut self.slots.make_extra(slot).delegation
        {
            delegation.watch(&*self.io.system, self.io.epoll.as_fd(), token);
        }
    }

    /// Gives a note to the lessee.
    pub(super) fn note_leased(&mut self, slot: u32, note: Note, urgency: Urgency) {
        let Some(leased) = self.slots.extra(slot).and_then(Extra::leased).cloned() else { return };
        if let Err(note) = leased.put_note(note) {
            self.io.counters.notes_dropped().add(1);
            panics::discard(note);
            if urgency == Urgency::Delivered {
                self.end(slot, Closed::Overflow, true);
            }
        }
    }

    pub(super) fn work(&mut self, slot: u32, job: Job) {
        if self.slots.at(slot).flags.any(Flags::WORKING) {
            return self.crash(slot, "a protocol asked for a second job while one runs");
        }
        self.slots.at(slot).flags.set(Flags::WORKING.union(Flags::WORKED));
        let token = self.slots.token(slot);
        match self.io.shared.workers.submit(QueuedJob { job, token, inbox: self.io.inbox.clone() }) {
            Submitted::Queued => self.io.counters.jobs().add(1),
            Submitted::NoWorkers(task) => {
                self.io.counters.jobs().add(1);
                self.io.inbox.done(token, task.job.run());
            }
            Submitted::QueueFull(task) => {
                panics::discard(task.job);
                self.io.counters.jobs_refused().add(1);
                self.io.inbox.done(token, JobResult::refused(JobError::QueueFull));
            }
        }
    }

    /// Handles the end of a handshake of layers, or of the connection before that. The asker is told after this callback.
    pub(super) fn shook(&mut self, slot: u32, hands: bool) {
        let asked = self.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut());
        match asked {
            None if hands => self.connects.established(),
            None => (self.connects.failed, self.connects.shaking) = (self.connects.failed + 1, true),
            // It is being opened, or its asker was told.
            Some(asked) if !asked.shaking => self.connects.shaking |= !hands,
            Some(asked) => {
                asked.shaking = false;
                let (by, failure) = (asked.take_asker(), not_shaken(asked.target.internet(), asked.began.elapsed()));
                let result = if hands { Ok(self.slots.at(slot).handle(slot, &self.post)) } else { Err(failure) };
                by.tell_later(&self.io.inbox, result);
            }
        }
    }

    /// Handles a peer that is known now. A connection that is turned away is rejected as it would have been at the accept; its layer aborts it.
    pub(super) fn peer_learned(&mut self, slot: u32, Learned { real, answer }: Learned) {
        let (entered, panicked) =
            answer.and_then(|answer| answer.downcast::<Admitted>().ok()).map_or((Ok(None), None), |answer| *answer);
        if let Some(message) = panicked {
            self.io.counters.admission_panics().add(1);
            self.io.tell_some(&Event::AdmissionPanicked { message });
        }
        if let Some(real) = real {
            self.set_remote(slot, real);
        }
        match entered {
            Ok(Some(peer_count)) => self.slots.make_extra(slot).peer_count = Some(peer_count),
            Ok(None) => {}
            Err((how, reason)) => {
                let Some(socket) = self.slots.at(slot).socket.take() else { return };
                self.io.reject(&mut self.read, &socket, (&how, reason));
                self.slots.at(slot).socket = Some(socket);
                self.slots.make_extra(slot).turned_away = true;
            }
        }
    }

    /// Sets the address of the peer, whatever the kernel says.
    pub(super) fn set_remote(&mut self, slot: u32, remote: SocketAddr) {
        self.slots.make_extra(slot).remote = Some(Box::new(remote));
        self.snapshot.iter().for_each(|snapshot| snapshot.came_from(remote));
        self.page.iter().for_each(|page| page.set_peer(remote));
    }

    /// Returns whether a protocol that was asked to end does so without a word to a peer whose request was begun.
    #[cold]
    pub(super) fn leaves_unanswered(&mut self, slot: u32) -> bool {
        let flags = self.slots.at(slot).flags;
        let is_begun = flags.any(Flags::KEPT) && !flags.any(Flags::PEER_ENDED);
        flags.any(Flags::TOLD_DRAINING)
            && (is_begun && self.scratch.bytes.is_empty() || self.generations.owes(self.slots.at(slot)))
    }

    pub(in crate::event_loop) fn tell_connect_failed(&mut self, failure: &ConnectFailure) {
        self.io.counters.connect_failed().add(1);
        self.connects.failed += 1;
        let told = self.generations.refresh(&self.io, &mut self.read).and_then(|()| {
            let generation = self.generations.active();
            generation.table.connect_failed(failure, &mut *generation.local)
        });
        if let Err(panicked) = told {
            self.io.tell_panic("connect_failed", panicked);
        }
    }
}

/// Makes the failure of a connect where the peer has accepted, and its layers have not shaken hands.
pub(super) fn not_shaken(target: Option<SocketAddr>, after: Duration) -> ConnectFailure {
    ConnectFailure { target, errno: Errno::PROTO.raw_os_error(), after, lag: Duration::ZERO }
}
