//! The connections of one event loop: how one enters, what epoll says of it, and all that they need meanwhile.

mod arriving;
mod calling;
mod closing;
pub(super) mod connecting;
mod deadlines;
mod delegation;
mod draining;
pub(crate) mod ending;
mod groups;
mod idle;
mod interest;
mod jobs;
mod learned;
mod marks;
pub(crate) mod moving;
mod operations;
mod passing;
mod reading;
mod relaying;
pub(crate) mod selecting;
mod slices;
mod writing;

use super::buffer::Buffers;
use super::generation::Generation;
use super::generations::Generations;
use super::groups::LoopGroups;
use super::inbox::Inbox;
use super::incoming::Incoming;
use super::io::Io;
use super::landing::Landing;
use super::phase::Phase;
use super::read_buffer::ReadBuffer;
use super::shared::Shared;
use super::slot::Flags;
use super::slots::Slots;
use super::snapshot::SnapshotCell;
use super::timers::LoopTimers;
use super::{ENDS_PER_TURN, PREPARED_BYTES};
use crate::behaviour::{Answer, More, Panicked};
use crate::ipc::child_page::ChildPage;
use crate::listen::permit::Permit;
use crate::net::Address;
use crate::protocol::{Connect, ConnectionId, LateAdmission, Local, Output, Peer, Post, Side, Timer};
use crate::sync::atomic::Ordering;
use crate::sys::{Errno, Ready};
use calling::{Tail, context};
use deadlines::Deadlines;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Timers that one turn calls for: a crowd that came at once is due at once, and others of its loop wait for a part of it alone.
const MAX_DUE: usize = 64;

/// The connections of one event loop, of whatever generation, and those that are being made.
pub(crate) struct Connections {
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
    pub(super) deadlines: Deadlines,
    /// Permits of connections that ended while their job runs: the job uses what the limit is there to bound.
    pub(super) orphans: HashMap<u64, Permit>,
    moving: moving::MovingConnections,
    /// Connects that protocols asked for in this turn, each with the token of its asker. Each begins at the end of the turn.
    pub(super) asked: Vec<(u64, Connect)>,
    pub(super) groups: LoopGroups,
    pub(super) landing: Landing,
    /// Results of connects since the event loop looked last.
    pub(super) connects: connecting::Connects,
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
    ids: std::ops::Range<u64>,
    /// Number of connections whose peers have ended, found in this turn.
    pub(super) ends: usize,
    /// A descriptor was closed, of which the acceptor may be short.
    pub(super) descriptor_freed: bool,
    /// The loop is going: nothing is begun any more.
    pub(super) abandoned: bool,
}

impl Connections {
    pub(super) fn new(index: Option<usize>, shared: Arc<Shared>, inbox: Arc<Inbox>, capacity: usize) -> Connections {
        let late_admission: Arc<dyn LateAdmission> = shared.clone();
        inbox.admits_by(Arc::downgrade(&late_admission));
        let io = Io::new(index, shared, inbox);
        Connections {
            snapshot: None,
            page: None,
            post: io.inbox.clone(),
            slots: Slots::with_capacity(capacity, io.shared.limiter.clone()),
            generations: Generations::default(),
            timers: LoopTimers::new(io.start, capacity.min(64)),
            deadlines: Deadlines::default(),
            orphans: HashMap::new(),
            moving: moving::MovingConnections::default(),
            asked: Vec::new(),
            groups: LoopGroups::new(io.inbox.clone()),
            landing: Landing::default(),
            connects: connecting::Connects::default(),
            kept: Buffers::marked(Flags::KEPT, Flags::NO_LINE),
            unsent: Buffers::marked(Flags::UNSENT, Flags::default()),
            scratch: Output::default(),
            more: None,
            read: ReadBuffer::default(),
            swollen: false,
            ids: 0..0,
            ends: 0,
            descriptor_freed: false,
            abandoned: false,
            io,
        }
    }

    /// Prepares all that a short connection needs, so that it allocates nothing.
    pub(super) fn prepare(&mut self) {
        self.scratch.bytes.reserve(PREPARED_BYTES);
        self.look_at_switch();
        self.slots.prepare();
    }

    /// Names the next connection: it has this number and came in there, as the process says that accepted it.
    pub(crate) fn name_next(&mut self, id: ConnectionId, listener: Option<&Address>) {
        self.ids = id.0..id.0 + 1;
        self.slots.parents_listener = listener.cloned().map(Arc::new);
    }

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

    /// Counts one more connection of the generation in force, for a model that runs connections elsewhere. Returns that generation and an id.
    pub(crate) fn join(&mut self) -> Result<(Arc<Generation>, ConnectionId), Panicked> {
        self.generations.join(&self.io, &mut self.read)?;
        Ok((self.generations.active().generation.clone(), self.next_id()))
    }

    /// Returns true where new connections are leased to blocking code at once.
    pub(crate) fn gives_all_away(&mut self) -> bool {
        self.generations.refresh(&self.io, &mut self.read).is_ok() && self.generations.active().generation.gives_all_away()
    }

    /// Keeps memory ready for `capacity` connections.
    pub(crate) fn reserve(&mut self, capacity: usize) {
        self.slots.reserve(capacity);
        self.generations.active().table.reserve(capacity);
    }

    pub(super) fn fire_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut due = std::mem::take(&mut self.timers.due);
        // The next turn takes those that are left.
        self.timers.wheel.advance(&mut self.slots, now, &mut due, MAX_DUE);
        for slot in due.drain(..) {
            // A callback earlier in this list may have ended the connection, or set its timer again.
            if self.slots.at(slot).is_taken() && !self.slots.at(slot).timer.is_set() {
                self.timer_due(slot, now);
            }
        }
        self.timers.due = due;
    }

    /// Visits what each generation's service made for this loop.
    pub(crate) fn visit_locals(&mut self, visit: &mut dyn FnMut(&mut Local)) {
        self.generations.visit_locals(visit);
    }

    /// Connections, lingering ones included.
    pub(crate) fn count(&self) -> usize {
        self.slots.taken()
    }

    /// Begins a connection that has its slot under the active generation and lets it speak. It is read at once: most peers have sent by now.
    #[inline(always)]
    pub(super) fn enter(&mut self, slot: u32, peer: &Peer) {
        self.slots.at(slot).id = self.next_id();
        if peer.side() == Side::Connected {
            self.slots.at(slot).flags.set(Flags::CONNECTED);
            self.set_active_options(slot);
        }
        self.open_protocol(slot, peer);
    }

    /// Gives a slot its protocol.
    #[inline(always)]
    pub(super) fn open_protocol(&mut self, slot: u32, peer: &Peer) {
        match self.generations.join(&self.io, &mut self.read) {
            Ok(()) => self.open_joined(slot, peer),
            Err(panicked) => self.not_opened(slot, panicked),
        }
    }

    /// Gives a slot its protocol where the generation in force counts it already. Nearly always the protocol has nothing to say before it is
    /// read: that way looks nothing up twice.
    pub(super) fn open_joined(&mut self, slot: u32, peer: &Peer) {
        if self.generations.names_peers & peer.is_unnamed() {
            // The generation came into force after the accept.
            let named = Peer::new(self.io.remote(&mut self.slots, slot), Side::Accepted).came_in_at(self.slots.came_in_at(slot));
            return self.open_joined(slot, &named);
        }
        if self.snapshot.is_some() {
            self.publish(slot, peer);
        }
        let (table, opened) = (self.generations.active_for(&mut self.slots, slot), self.timers.second);
        let record = self.slots.at(slot);
        (record.table, record.opened) = (table, opened);
        let of = self.generations.at(table);
        (self.scratch.backlog, self.scratch.high_water) = (0, of.high_water);
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let mut cx =
            context(slot, record, (of.id, of.max_partial), &mut *of.local, &mut self.scratch, &mut timer, &now, &self.post);
        match of.table.open(peer, &mut cx, &mut self.more) {
            Ok((state, answer)) => {
                record.state = state;
                let silent = self.scratch.bytes.is_empty() & self.scratch.asks.is_nothing() & (timer == Timer::Keep);
                let usual = silent && matches!(answer, Answer::Continue);
                if !usual && !self.has_spoken(slot, answer, timer, &now) {
                    return;
                }
                // epoll hears of the connection only when it has been read and stays: many are over by then. A side that connected
                // has just sent its first words, if any: there can be no answer yet.
                match peer.side() {
                    Side::Accepted => self.readable(slot),
                    Side::Connected => self.settle(slot, false),
                }
            }
            Err(panicked) => {
                self.generations.leave(&self.io, table);
                self.not_opened(slot, panicked);
            }
        }
    }

    /// Does what a protocol asked for when it was opened. Whether the connection goes on.
    #[inline(never)]
    fn has_spoken(&mut self, slot: u32, answer: Answer, timer: Timer, now: &Cell<Option<Instant>>) -> bool {
        self.after_call(slot, timer, now);
        self.act(slot, answer, Tail::Unknown, false);
        self.slots.at(slot).is_taken()
    }

    #[cold]
    fn not_opened(&mut self, slot: u32, Panicked(message): Panicked) {
        self.io.count_panic(&mut self.slots, slot, message);
        self.io.counters.crashed().add(1);
        // The scratch may hold what was to go before all that its protocol says.
        self.scratch.clear();
        self.leave(slot, true);
    }

    /// Handles an event of epoll.
    /// A connection that was made and is to run elsewhere is returned.
    #[inline(always)]
    pub(super) fn event(&mut self, token: u64, ready: Ready) -> Option<Incoming> {
        let slot = self.slots.find(token)?;
        // Nearly always: there is input, and it is wanted.
        if ready.is_input() && !self.slots.at(slot).flags.any(Flags::UNREAD) {
            self.readable(slot);
            return None;
        }
        if self.slots.at(slot).flags.is(Phase::Connecting) {
            return self.connect_event(slot, ready);
        }
        if self.slots.at(slot).flags.is(Phase::Relayed) {
            self.relay_event(slot, ready);
        } else {
            self.rare_event(slot, token, ready);
        }
        None
    }

    /// Ends are few in a turn: false leaves the event to the next, because epoll tells of it again, behind what the others have to say now.
    pub(super) fn may_end(&mut self, ready: Ready) -> bool {
        if ready.is_ended() {
            self.ends += 1;
        }
        !ready.is_ended() || self.ends <= ENDS_PER_TURN
    }

    #[cold]
    fn rare_event(&mut self, slot: u32, token: u64, ready: Ready) {
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Cut) {
            return;
        }
        // epoll tells the end of a leased connection once, and it takes no time here.
        if flags.is(Phase::Leased) {
            return self.leased_ended(slot);
        }
        if !self.may_end(ready) {
            return;
        }
        if flags.is(Phase::Lingering) {
            return self.discard(slot);
        }
        let may_receive = !flags.any(Flags::UNREAD);
        // A reset is seen by reading; where the connection is not read it must be asked for, else it would be reported for ever.
        if ready.is_broken() && !may_receive {
            return self.check_broken(slot);
        }
        if ready.is_ended() && flags.any(Flags::WATCH_END) {
            return self.ended_while_paused(slot);
        }
        if ready.is_writable() && flags.any(Flags::WATCH_WRITE) {
            self.flush(slot);
        }
        if let Some(slot) = self.slots.find(token) {
            if (ready.is_readable() || ready.is_broken()) && may_receive && self.slots.at(slot).has_protocol() {
                self.readable(slot);
            } else {
                self.settle(slot, ready.is_readable());
            }
        }
    }

    /// Checks a connection that is not read now, and of which epoll reports an error.
    fn check_broken(&mut self, slot: u32) {
        match self.io.system.take_error(self.slots.socket(slot)) {
            Err(errno) => self.fail(slot, errno),
            // Hung up on both sides: what is unsent can only fail now.
            Ok(()) if self.slots.at(slot).flags.any(Flags::UNSENT) => self.flush(slot),
            // While a job runs or the protocol waits, epoll would report it for ever, and the connection is not read.
            Ok(()) => {
                self.io.unwatch(self.slots.at(slot));
                if self.slots.at(slot).flags.any(Flags::PAUSED) {
                    self.ended_while_paused(slot);
                }
            }
        }
    }

    /// Handles the end of a peer's stream while the protocol wants no input. The protocol is told if none is left.
    fn ended_while_paused(&mut self, slot: u32) {
        match self.io.system.peek(self.slots.socket(slot)) {
            Ok(0) => {
                self.slots.at(slot).flags.set(Flags::PEER_ENDED);
                self.tell_ended(slot);
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => self.slots.at(slot).flags.set(Flags::END_BEHIND),
            Err(errno) => self.fail(slot, errno),
        }
        // A socket that was hung up on both sides is not watched any more: epoll would tell of that for ever.
        if self.slots.at(slot).flags.any(Flags::WATCHED) {
            self.settle(slot, false);
        }
    }
}
