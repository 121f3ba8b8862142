//! The sockets of one event loop's connections: how bytes leave, what epoll is asked, and how each ends. No protocol is asked for a step here, so that what
//! happens to a socket never leads back into what a protocol asked for: `connections` does that.

mod closing;
pub(super) mod connects;
pub(super) mod idle;
pub(super) mod jobs;
pub(super) mod leasing;
mod passing;
pub(super) mod peers;
pub(super) mod relaying;

use super::buffer::Buffers;
use super::generations::Generations;
use super::groups::LoopGroups;
use super::inbox::Inbox;
use super::io::Io;
use super::phase::Phase;
use super::read_buffer::ReadBuffer;
use super::shared::Shared;
use super::slot::{Flags, Slot};
use super::slots::Slots;
use super::snapshot::SnapshotCell;
use super::timers::LoopTimers;
use super::{PREPARED_BYTES, SCRATCH_BYTES};
use crate::behaviour::{More, Table};
use crate::ipc::child_page::ChildPage;
use crate::listen::permit::Permit;
use crate::protocol::{Closed, ConnectionId, Context, LateAdmission, Local, Output, Post, Timer};
use crate::sync::atomic::Ordering;
use crate::sys::{Errno, Interest};
use connects::Connects;
use idle::IdleWatch;
use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Tells whether input may be unread after the last read of a connection.
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

    /// Calls with the protocol of a connection and the context in which it sees that.
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

    /// Sends the backlog. Returns what is left of it, where the connection has a protocol still; None also where there was none.
    pub(super) fn flush(&mut self, slot: u32) -> Option<usize> {
        if !self.slots.at(slot).flags.any(Flags::UNSENT) {
            return None;
        }
        if self.unsent.bytes(slot).is_empty() {
            // Nothing is kept, and the kernel has sent all: a relay that was cut short can be reset now without a loss.
            self.leave(slot, true);
            return None;
        }
        match self.io.system.send(self.slots.socket(slot), self.unsent.bytes(slot), false) {
            Ok(sent) => {
                self.unsent.at(slot).take(sent);
                self.io.counters.bytes_out().add(sent as u64);
                self.slots.at(slot).bytes_out += sent as u64;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                self.fail(slot, errno);
                return None;
            }
        }
        let left = self.unsent.bytes(slot).len();
        if left == 0 {
            if self.slots.extra(slot).is_some_and(|extra| extra.is_cut_short) {
                // The kernel has it: `start_closing` asked epoll to tell when all of that is sent.
                self.unsent.release(slot);
                return None;
            }
            self.unsent.forget(&mut self.slots, slot);
        }
        let flags = self.slots.at(slot).flags;
        if left == 0 && (flags.any(Flags::ENDING_OUTPUT) || flags.is(Phase::Flushing)) {
            self.all_sent(slot);
        }
        self.slots.at(slot).has_protocol().then_some(left)
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

    /// Asks epoll for what the connection waits for. Input that the protocol does not want now is unwatched only when some has come (`input_came`): a
    /// job is usually done before the peer's next message.
    #[inline]
    pub(super) fn settle(&mut self, slot: u32, input_came: bool) {
        if !self.slots.at(slot).is_settled() {
            self.change_interest(slot, input_came);
        }
    }

    fn change_interest(&mut self, slot: u32, input_came: bool) {
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Empty) || flags.is(Phase::Frozen) || flags.is(Phase::Leased) {
            return;
        }
        if flags.is(Phase::Delegating) && !flags.any(Flags::UNSENT) {
            return leasing::hand_over(self, slot);
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
        let read = wanted || (watched && !input_came && !finished && !flags.is(Phase::Flushing));
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

    /// Returns whether a protocol that was asked to end does so without a word to a peer whose request was begun.
    #[cold]
    pub(super) fn leaves_unanswered(&mut self, slot: u32) -> bool {
        let flags = self.slots.at(slot).flags;
        let is_begun = flags.any(Flags::KEPT) && !flags.any(Flags::PEER_ENDED);
        flags.any(Flags::TOLD_DRAINING)
            && (is_begun && self.scratch.bytes.is_empty() || self.generations.owes(self.slots.at(slot)))
    }

    /// Returns the id of the next connection.
    pub(super) fn next_id(&mut self) -> ConnectionId {
        if self.ids.is_empty() {
            let first = self.io.shared.shared_counters.ids().fetch_add(64, Ordering::Relaxed);
            self.ids = first..first + 64;
        }
        ConnectionId(self.ids.next().expect("just filled"))
    }

    /// Takes the generation in force even if no connection comes, and lets go of the one before.
    pub(crate) fn look_at_switch(&mut self) {
        // A panic of the service's `local` is met again, and told, by the next connection.
        let _ = self.generations.refresh(&self.io, &mut self.read);
    }

    /// Gives back the memory that reading and output need, where the loop's connection does not read: it is made again when it goes on.
    pub(crate) fn give_memory_back(&mut self) {
        if std::mem::take(&mut self.swollen) {
            self.scratch.bytes.shrink_to(PREPARED_BYTES);
            self.read.pages.give_back();
        }
    }
}
