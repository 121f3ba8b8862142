//! Connections that move to another process: they are frozen, epoll does not know them, nothing is read, written or called.

use super::Connections;
use super::idle::IdleWatch;
use super::marks::marks;
use super::slices::Slices;
use crate::event_loop::io::Io;
use crate::event_loop::phase::{ENDING, Phase};
use crate::event_loop::slot::{Flags, Slot};
use crate::event_loop::slots::{Extra, Slots};
use crate::event_loop::timers::LoopTimers;
use crate::ipc::record::Record;
use crate::ipc::yours::{Noted, Yours};
use crate::listen::state::ListenerState;
use crate::protocol::{Closed, Note, Saver, State, Urgency};
use crate::sys::{Errno, cookie, panics};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of one offer, but for one record that is longer: as many as the buffer of a socket takes, so that 100 connections under TLS go along in one.
const MAX_BYTES: usize = 96 * 1024;
/// Bytes that wait at a connection, or are its state: with more it stays for now. Both processes hold an offer in memory.
const MAX_WAITS: usize = 16 * 1024 * 1024;
/// Maximum of notes that go along with a frozen connection, and of their bytes for all of a loop; with one more it goes on here, or more notes, up to
/// [`MAX_LATER`], wait until it does.
const MAX_NOTES: usize = 1024;
const MAX_NOTE_BYTES: usize = 4 * 1024 * 1024;
const MAX_LATER: usize = 16 * MAX_NOTES;

/// The connections of a loop that are between two processes.
#[derive(Default)]
pub(crate) struct MovingConnections {
    /// Frozen connections, by id.
    frozen: HashMap<u64, Frozen>,
    /// Frozen connections that were not offered yet hear their notes: some were sent before all were frozen. How many did since the last look.
    pub(super) gathered: Option<u64>,
    /// Notes that came for frozen connections, in order: one for many connections stands here once.
    notes: Vec<Arc<[u8]>>,
    note_bytes: usize,
    /// Code that has leased connections was asked for them: a connection that it gives back waits, frozen, for the next offer.
    pub(super) asks: bool,
    slices: Slices,
}

impl MovingConnections {
    pub(super) fn tokens(&self) -> Vec<u64> {
        self.frozen.values().map(|frozen| frozen.token).collect()
    }

    /// Returns the ids of the frozen connections that are selected.
    fn ids(&self, is_meant: impl Fn(&Frozen) -> bool) -> Vec<u64> {
        self.frozen.iter().filter(|(_, frozen)| is_meant(frozen)).map(|(id, _)| *id).collect()
    }

    /// Freezes a connection, and with it the other side of its relay.
    pub(super) fn freeze(&mut self, io: &Io, slots: &mut Slots, slot: u32) {
        for one in slots.sides(slot) {
            let token = slots.token(one);
            let record = slots.at(one);
            if record.flags.any(Flags::WATCHED) {
                io.unwatch(record);
            }
            record.flags.enter(Phase::Frozen);
            let waited = record.flags.any(Flags::PAUSED.union(Flags::HELD));
            self.frozen.insert(record.id.0, Frozen { token, waited, ..Frozen::default() });
        }
    }

    /// Ends that a connection is frozen, and with it the other side of its relay: before anything happens to one, neither is. Returns what is
    /// left to be done for them.
    fn thaw(&mut self, slots: &mut Slots, timers: &mut LoopTimers, id: u64) -> Vec<Thawed> {
        let Some(frozen) = self.frozen.remove(&id) else { return Vec::new() };
        let other = slots.find(frozen.token).and_then(|slot| slots.other(slot));
        let other = other.and_then(|other| self.frozen.remove(&slots.at(other).id.0));
        let both = [Some(frozen), other].into_iter().flatten();
        let thawed = both.map(|frozen| self.thaw_one(slots, timers, frozen)).collect();
        self.forget_notes();
        thawed
    }

    fn thaw_one(&self, slots: &mut Slots, timers: &mut LoopTimers, frozen: Frozen) -> Thawed {
        let Frozen { token, due, waited, notes, later, .. } = frozen;
        let notes = notes.into_iter().map(|at| Later::Note(Note::Bytes(self.notes[at as usize].clone())));
        if let Some(slot) = slots.find(token).filter(|slot| slots.at(*slot).flags.is(Phase::Frozen)) {
            let phase = if slots.other(slot).is_some() { Phase::Relayed } else { Phase::Open };
            slots.at(slot).flags.enter(phase);
            if let Some(due) = due {
                timers.set(slots, slot, due, Instant::now());
            }
        }
        Thawed { token, waited, later: notes.chain(later).collect() }
    }

    /// Returns the connection if what happens to it now would not go along.
    #[inline]
    pub(super) fn offered(&mut self, record: &Slot) -> Option<&mut Frozen> {
        let id = record.flags.is(Phase::Frozen).then_some(record.id.0)?;
        self.frozen.get_mut(&id).filter(|frozen| frozen.offered)
    }

    /// Keeps a note for a frozen connection, if it can wait.
    fn keep(&mut self, id: u64, note: Note) -> NoteFate {
        let MovingConnections { frozen, gathered, notes, note_bytes, .. } = self;
        let Some(frozen) = frozen.get_mut(&id) else { return NoteFate::Heard(note) };
        match (&note, gathered) {
            (_, Some(gathered)) if !frozen.offered => {
                *gathered += 1;
                NoteFate::Heard(note)
            }
            (Note::Bytes(bytes), _)
                if frozen.later.is_empty() && frozen.notes.len() < MAX_NOTES && *note_bytes + bytes.len() <= MAX_NOTE_BYTES =>
            {
                // Members of a group get a run of messages each, one member after the other.
                let at = notes.iter().rev().take(MAX_NOTES).position(|note| Arc::ptr_eq(note, bytes));
                let at = at.map_or(notes.len(), |behind| notes.len() - 1 - behind);
                if at == notes.len() {
                    notes.push(bytes.clone());
                    *note_bytes += bytes.len();
                }
                frozen.notes.push(at as u32);
                NoteFate::Waits
            }
            // A value stays in its process, and its connection with it; so does one that was sent too many.
            _ if frozen.offered && frozen.later.len() < MAX_LATER => {
                frozen.later.push(Later::Note(note));
                NoteFate::Waits
            }
            _ if frozen.offered => NoteFate::Dropped(note),
            _ => NoteFate::GoesOn(note),
        }
    }

    /// Returns whether both sides of a relay go, which are two connections from then on; true for any other connection.
    fn goes_whole(&self, slots: &mut Slots, id: u64, restored: &[u64]) -> bool {
        let slot = self.frozen.get(&id).and_then(|frozen| slots.find(frozen.token));
        let Some((slot, other)) = slot.and_then(|slot| Some((slot, slots.other(slot)?))) else { return true };
        let other_id = slots.at(other).id.0;
        let go = [id, other_id].iter().all(|id| restored.contains(id) && self.frozen.get(id).is_some_and(Frozen::may_go));
        for one in [slot, other].into_iter().filter(|_| go) {
            slots.part(one);
        }
        go
    }

    /// Takes back an offer that was not sent. Returns those of its connections that do not stay frozen, because no set of theirs does.
    fn not_kept(&mut self, ids: &[(u32, u64)]) -> Vec<u64> {
        let mut keeps = |id: &u64| self.frozen.get_mut(id).is_some_and(|one| one.with_set && std::mem::take(&mut one.offered));
        ids.iter().map(|(_, id)| *id).filter(|id| !keeps(id)).collect()
    }

    /// Forgets the notes once no connection is frozen.
    fn forget_notes(&mut self) {
        if self.frozen.is_empty() {
            self.notes.clear();
            self.note_bytes = 0;
        }
    }
}

/// A connection that nothing happens to but its end.
#[derive(Default)]
pub(super) struct Frozen {
    token: u64,
    /// The state of the connection was saved.
    offered: bool,
    /// The set that it moves with is frozen: what it did here from then on would change what they share, of which the other process may have a copy.
    with_set: bool,
    /// Moment at which its timer is due.
    due: Option<Instant>,
    /// The protocol waited.
    waited: bool,
    /// Places of the notes that came since.
    notes: Vec<u32>,
    /// Events from the first on that does not go along: the connection stays, but nothing of it happens before that is known. If it acted while
    /// the other process has a copy, and this process died then, the copy would be an old one.
    later: Vec<Later>,
    /// The connection stays, because its end is counted here.
    pub(super) stays: bool,
}

impl Frozen {
    /// Returns false where something has happened to it that is this process's to do.
    fn may_go(&self) -> bool {
        !self.stays && self.later.is_empty()
    }
}

/// Something that happens to a frozen connection, kept until it is known that it stays: for as long as the other process may take to answer.
enum Later {
    Note(Note),
    Act(Act),
}

/// A connection that goes on, and what is left to be done for it.
struct Thawed {
    token: u64,
    waited: bool,
    later: Vec<Later>,
}

/// The fate of a note for a frozen connection.
enum NoteFate {
    /// The note waits, or goes along.
    Waits,
    /// The connection hears it now.
    Heard(Note),
    /// Too many wait.
    Dropped(Note),
    /// The connection goes on here, and hears it then.
    GoesOn(Note),
}

/// Action on a connection, by its token, that is there still.
type Act = Box<dyn FnOnce(&mut Connections, u64) + Send>;

/// Result of an offer.
#[derive(Default)]
pub(crate) struct Offered {
    /// Number of connections that were offered.
    pub(crate) count: usize,
    /// Slot at which the next offer begins; None: the end of the table was reached.
    pub(crate) next: Option<u64>,
    /// Leased connections that were asked for.
    pub(crate) awaited: usize,
}

/// State and listeners that a successor can take.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) state: State,
    /// The addresses that it knows.
    pub(crate) listeners: ListenerStates,
}

/// The listeners by which connections came in.
pub(crate) type ListenerStates = Arc<[KnownListener]>;

/// An address at which connections come in.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct KnownListener {
    pub(crate) address: String,
    /// Place of its numbers among those that processes share.
    pub(crate) slot: usize,
    /// State of the listener in this process: each has its own.
    #[serde(skip)]
    pub(crate) state: Option<Arc<ListenerState>>,
}

impl std::fmt::Debug for KnownListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

/// Sends an offer: the records, of which the sockets come along in the same order, and where the next one begins.
pub(crate) type SendOffer = Box<dyn FnOnce(Vec<Record>, Option<u64>, &[BorrowedFd<'_>]) -> Result<(), Errno> + Send>;

impl Connections {
    /// Freezes the next connections, from this slot on, whose state is one of those that the successor `reads`, and has them sent.
    ///
    /// # Errors
    /// The error of `send`: the connections go on here.
    pub(crate) fn offer_next(
        &mut self,
        Reading { state: reads, listeners }: &Reading,
        from: u32,
        send: SendOffer,
    ) -> Result<Offered, Errno> {
        self.timers.look_at_clock();
        let (mut saved, mut bytes, mut next, mut awaited) = (Vec::new(), 0, from, 0);
        let most = self.moving.slices.next();
        while next < self.slots.len() && saved.len() < most && bytes < MAX_BYTES {
            let before = saved.len();
            if self.generations.gives_back(&mut self.slots, next, reads) {
                self.moving.asks = true;
                self.slots.extra(next).and_then(Extra::leased).iter().for_each(|leased| leased.ask_to_move());
                awaited += 1;
            }
            self.freeze_and_save(next, reads, listeners, &mut saved);
            bytes += saved[before..].iter().map(|(_, record)| record.size()).sum::<usize>();
            next += 1;
        }
        let ids: Vec<(u32, u64)> = saved.iter().map(|(slot, record)| (*slot, record.id)).collect();
        let offered = Offered { count: ids.len(), next: (next < self.slots.len()).then_some(next.into()), awaited };
        if ids.is_empty() {
            return Ok(offered);
        }
        // Out of their slots for the call: a table lends one slot at a time.
        let sockets: Vec<OwnedFd> = ids.iter().filter_map(|(slot, _)| self.slots.at(*slot).socket.take()).collect();
        let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        let sent = send(saved.into_iter().map(|(_, record)| record).collect(), offered.next, &descriptors);
        for ((slot, _), socket) in ids.iter().zip(sockets) {
            self.slots.at(*slot).socket = Some(socket);
        }
        let go_on = if sent.is_err() { self.moving.not_kept(&ids) } else { Vec::new() };
        go_on.into_iter().for_each(|id| self.thaw(id));
        sent.map(|()| offered)
    }

    /// Freezes the connections that can move, of those whose state a successor `reads`: `together` all, which hear notes still, else those
    /// whose peers are still to be learned. Only the successor knows all connections of a peer.
    pub(crate) fn freeze_first(&mut self, reads: &State, together: bool) {
        if together {
            self.moving.gathered = Some(0);
            self.scratch.leaves = true;
        }
        for token in self.slots.tokens() {
            let Some(slot) = self.slots.find(token) else { continue };
            let is_first = together || self.generations.awaits_peer(&mut self.slots, slot);
            if is_first && !self.slots.at(slot).flags.is(Phase::Frozen) && self.why_it_stays(slot, reads).is_none() {
                self.moving.freeze(&self.io, &mut self.slots, slot);
            }
        }
    }

    /// Returns how many notes frozen connections heard since the last look; with `last` they hear no more of them, and their timers are not due.
    pub(crate) fn gathered(&mut self, last: bool) -> u64 {
        if last {
            for frozen in self.moving.frozen.values_mut() {
                frozen.with_set = true;
                if let Some(slot) = self.slots.find(frozen.token) {
                    frozen.due = self.timers.take(&mut self.slots, slot);
                }
            }
        }
        std::mem::replace(&mut self.moving.gathered, (!last).then_some(0)).unwrap_or(0)
    }

    /// Freezes a connection, if it is not frozen, and saves it, and with it the other side of its relay. Neither is saved where one cannot move, now or
    /// ever.
    fn freeze_and_save(&mut self, slot: u32, reads: &State, listeners: &ListenerStates, saved: &mut Vec<(u32, Record)>) {
        let record = self.slots.at(slot);
        let (id, is_frozen) = (record.id.0, record.flags.is(Phase::Frozen));
        if is_frozen && self.moving.frozen.get(&id).is_none_or(|frozen| frozen.offered) {
            return;
        }
        if !is_frozen {
            if self.why_it_stays(slot, reads).is_some() {
                return;
            }
            self.moving.freeze(&self.io, &mut self.slots, slot);
        }
        let before = saved.len();
        for one in self.slots.sides(slot) {
            // A frozen one may have asked by a note that it heard since.
            let connects = self.slots.extra(one).is_some_and(|extra| extra.connects > 0);
            let Some(record) = (!connects).then(|| self.save(one, listeners)).flatten() else {
                saved.truncate(before);
                return self.thaw(id);
            };
            saved.push((one, record));
        }
    }

    fn save(&mut self, slot: u32, listeners: &ListenerStates) -> Option<Record> {
        let record = self.slots.at(slot);
        let (table, state) = (record.table, record.state);
        let live = self.generations.at(table);
        let written = live.state.clone();
        let mut saver = Saver::default();
        live.table.save(state, &mut saver).map_err(|panicked| self.io.tell_panic("save", panicked)).ok()?.ok()?;
        if saver.bytes.len() > MAX_WAITS {
            return None;
        }
        let cookie = cookie(self.slots.socket(slot)).ok()?;
        let due = self.timers.take(&mut self.slots, slot);
        let listener = self.slots.at(slot).listener;
        // A connection that came in at an address that was removed counts at none, also where the address has come back.
        let is_known = |listener: &&Arc<ListenerState>| {
            listeners.iter().filter_map(|known| known.state.as_ref()).any(|known| Arc::ptr_eq(known, listener))
        };
        let listener = self.slots.listener(listener).filter(is_known).map(|listener| listener.address.to_string());
        let extra = self.slots.extra(slot);
        let tag = extra.and_then(|extra| extra.tag.as_ref()).map(|tag| tag.to_string());
        let wake_below = extra.and_then(|extra| extra.wake_below);
        let peer = extra.and_then(|extra| extra.remote.as_ref()).map(|remote| remote.to_string());
        let progress = IdleWatch::of(self).progress(slot);
        let seen = self.timers.seen(slot).filter(|seen| seen.progress == progress);
        let idle = seen.map(|seen| self.timers.idle_for(self.slots.at(slot), seen));
        let idle = idle.map(|idle| idle.as_nanos().try_into().unwrap_or(u64::MAX));
        let relay = self.slots.other(slot).map(|other| self.slots.at(other).id.0);
        let record = self.slots.at(slot);
        let id = record.id.0;
        let frozen = self.moving.frozen.get_mut(&id)?;
        frozen.offered = true;
        frozen.due = frozen.due.or(due);
        let due = frozen.due;
        Some(Record {
            id,
            cookie,
            age: self.timers.second.saturating_sub(record.opened),
            bytes_in: record.bytes_in,
            bytes_out: record.bytes_out,
            state: std::mem::take(&mut saver.bytes),
            versions: written.versions(),
            names: written.names(),
            // The mistakes: input that was read and not taken, or output that was not sent, stays behind.
            kept: if cfg!(sockdrawer_broken = "forgets-kept") { Vec::new() } else { self.kept.bytes(slot).to_vec() },
            unsent: if cfg!(sockdrawer_broken = "forgets-unsent") { Vec::new() } else { self.unsent.bytes(slot).to_vec() },
            timer: due.map(|due| due.saturating_duration_since(Instant::now()).as_nanos().try_into().unwrap_or(u64::MAX)),
            tag,
            listener,
            marks: marks(record.flags),
            wake_below,
            peer,
            idle,
            relay,
        })
    }

    /// Returns why a connection cannot move now, as far as that is known without its protocol: of a relay, one of its sides.
    fn why_it_stays(&mut self, slot: u32, reads: &State) -> Option<String> {
        self.slots.sides(slot).find_map(|one| {
            let asker = self.slots.extra(one).and_then(Extra::asker);
            let is_made = asker.is_some_and(|asker| self.slots.find(asker).is_some());
            let waits = self.kept.bytes(one).len() + self.unsent.bytes(one).len();
            let (flags, table) = (self.slots.at(one).flags, self.slots.at(one).table);
            let why = why_one_stays(flags, self.slots.extra(one), is_made, waits).map(str::to_owned);
            why.or_else(|| reads.can_read(&self.generations.at(table).state).err().map(|why| why.to_string()))
        })
    }

    /// Returns the number of connections that can move to a build that reads these states, and the number of the others by the reason.
    pub(crate) fn plan_to_move(&mut self, reads: &State) -> (u64, BTreeMap<String, u64>) {
        let (mut moves, mut stay) = (0, BTreeMap::new());
        for token in self.slots.tokens() {
            let Some(slot) = self.slots.find(token) else { continue };
            match self.why_it_stays(slot, reads) {
                None => moves += 1,
                Some(_) if self.generations.gives_back(&mut self.slots, slot, reads) => moves += 1,
                Some(why) => *stay.entry(why).or_default() += 1,
            }
        }
        (moves, stay)
    }

    /// Lets the connection go on here, and with it the other side of its relay.
    fn thaw(&mut self, id: u64) {
        let thawed = self.moving.thaw(&mut self.slots, &mut self.timers, id);
        thawed.into_iter().for_each(|thawed| self.goes_on(thawed));
    }

    fn goes_on(&mut self, Thawed { token, waited, later }: Thawed) {
        let Some(slot) = self.slots.with_protocol(token) else { return };
        let seen = self.timers.seen(slot);
        if waited && !self.slots.at(slot).flags.any(Flags::PAUSED.union(Flags::HELD)) {
            // The reason for which input was held ended meanwhile.
            self.resume(slot);
        }
        self.settle(slot, false);
        IdleWatch::of(self).go_on(slot, seen);
        for later in later {
            match later {
                Later::Note(note) => self.note(token, note, Urgency::Delivered),
                Later::Act(act) => act(self, token),
            }
        }
        self.io.wake_again(&mut self.slots, token);
    }

    /// Keeps a note for a frozen connection. Returns it where it is heard now.
    #[cold]
    pub(super) fn keep_note(&mut self, slot: u32, note: Note) -> Option<Note> {
        let id = self.slots.at(slot).id.0;
        let left = match self.moving.keep(id, note) {
            NoteFate::Waits => return None,
            NoteFate::Heard(note) => return Some(note),
            NoteFate::Dropped(note) => {
                self.io.counters.notes_dropped().add(1);
                note
            }
            NoteFate::GoesOn(note) => {
                self.thaw(id);
                // It may have ended by a note that came before.
                if self.slots.at(slot).has_protocol() {
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
    pub(super) fn take_back(&mut self, slot: u32) -> bool {
        !self.slots.at(slot).flags.is(Phase::Frozen) || self.thaw_one(slot)
    }

    #[cold]
    fn thaw_one(&mut self, slot: u32) -> bool {
        let id = self.slots.at(slot).id.0;
        self.thaw(id);
        self.slots.at(slot).is_taken()
    }

    /// Takes back a connection for an action: now, where this returns true; else `act` is called later, if it was offered to another process.
    #[inline]
    pub(super) fn happens_now(&mut self, slot: u32, act: impl FnOnce(&mut Connections, u32) + Send + 'static) -> bool {
        match self.moving.offered(self.slots.at(slot)) {
            None => self.take_back(slot),
            Some(frozen) => {
                let act = move |connections: &mut Connections, token| {
                    if let Some(slot) = connections.slots.find(token) {
                        act(connections, slot);
                    }
                };
                frozen.later.push(Later::Act(Box::new(act)));
                false
            }
        }
    }

    /// Lets all frozen connections go on here: the other process does not take them now, or for good where this one `stays`.
    pub(crate) fn thaw_all(&mut self, stays: bool) {
        (self.moving.gathered, self.moving.asks) = (None, false);
        self.scratch.leaves &= !stays;
        self.moving.ids(|_| true).into_iter().for_each(|id| self.thaw(id));
    }

    /// Closes the copies of connections that the other process has restored; the others that were offered go on here. Returns those that are the other's: one
    /// that ended meanwhile is not.
    pub(crate) fn let_go(&mut self, restored: &[u64]) -> Yours {
        let mut gone = Yours::default();
        for id in restored {
            if self.moving.goes_whole(&mut self.slots, *id, restored)
                && let Some(notes) = self.let_one_go(*id)
            {
                gone.ids.push(*id);
                if !notes.is_empty() {
                    gone.noted.push(Noted { id: *id, notes });
                }
            }
        }
        if !gone.noted.is_empty() {
            gone.notes = self.moving.notes.iter().map(|note| note.to_vec().into()).collect();
        }
        self.moving.ids(|frozen| frozen.offered).into_iter().for_each(|id| self.thaw(id));
        self.moving.forget_notes();
        // The mistake: the next process does not get what it restored.
        if cfg!(sockdrawer_broken = "drops-slice") { Yours::default() } else { gone }
    }

    fn let_one_go(&mut self, id: u64) -> Option<Vec<u32>> {
        if !self.moving.frozen.get(&id)?.may_go() {
            return None;
        }
        let Frozen { token, notes, .. } = self.moving.frozen.remove(&id)?;
        let slot = self.slots.find(token).filter(|slot| self.slots.at(*slot).flags.is(Phase::Frozen))?;
        // The mistake: it goes on here, too.
        if cfg!(sockdrawer_broken = "two-owners") {
            self.slots.at(slot).flags.enter(Phase::Open);
            self.settle(slot, false);
            return Some(notes);
        }
        // The mistake: its peer is told of an end. That it is gone already is no matter.
        if cfg!(sockdrawer_broken = "ends-first") {
            _ = self.io.system.finish(self.slots.socket(slot));
        }
        self.forget_protocol(slot, Closed::Adopted);
        self.unsent.forget(&mut self.slots, slot);
        drop(self.slots.take_extra(slot));
        self.io.counters.moved_out().add(1);
        self.slots.leave(slot);
        self.descriptor_freed = true;
        Some(notes)
    }
}

/// Returns why a connection with these flags cannot move now, if it was made for one that is here still, and `waits` of its bytes wait.
fn why_one_stays(flags: Flags, extra: Option<&Extra>, is_made: bool, waits: usize) -> Option<&'static str> {
    let is_counted = extra.is_some_and(|extra| !extra.endings.is_empty());
    if flags.any(Flags::DRAINING.union(Flags::PURGED)) || is_counted {
        return Some(ENDING);
    }
    let connects = extra.is_some_and(|extra| extra.connects > 0);
    let others = [
        (flags.any(Flags::WORKING), "a job runs"),
        (connects, "connecting"),
        (is_made, "made for another"),
        (waits > MAX_WAITS, "much is unsent"),
    ];
    let of_others = || others.into_iter().find(|(holds, _)| *holds).map(|(_, why)| why);
    flags.phase().stays.or_else(of_others)
}
