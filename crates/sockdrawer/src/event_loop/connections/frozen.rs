//! Connections that are between two processes: epoll does not know them, and nothing is read. Until all that move together are frozen they still
//! hear notes; then all that happens to them is kept for later.

use super::Connections;
use super::slices::Slices;
use crate::event_loop::io::Io;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::{Flags, Slot};
use crate::event_loop::slots::Slots;
use crate::event_loop::timers::LoopTimers;
use crate::protocol::Note;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Maximum of notes that go along with a frozen connection, and of their bytes for all of a loop; with one more it goes on here, or more notes, up to
/// [`MAX_LATER`], wait until it does.
const MAX_NOTES: usize = 1024;
const MAX_NOTE_BYTES: usize = 4 * 1024 * 1024;
const MAX_LATER: usize = 16 * MAX_NOTES;

/// The connections of a loop that are between two processes.
#[derive(Default)]
pub(super) struct MovingConnections {
    /// Frozen connections, by id.
    pub(super) frozen: HashMap<u64, Frozen>,
    /// Some: connections that move together are being frozen, and those that were not offered yet hear notes still; the number of these since
    /// the last look. None: notes are kept.
    pub(super) gathered: Option<u64>,
    /// Notes that came for frozen connections, in order: one for many connections stands here once.
    pub(super) notes: Vec<Arc<[u8]>>,
    note_bytes: usize,
    /// Code that has leased connections was asked for them: a connection that it gives back waits, frozen, for the next offer.
    pub(super) asks: bool,
    pub(super) slices: Slices,
}

impl MovingConnections {
    pub(super) fn tokens(&self) -> Vec<u64> {
        self.frozen.values().map(|frozen| frozen.token).collect()
    }

    /// Returns the ids of the frozen connections that are selected.
    pub(super) fn ids(&self, is_meant: impl Fn(&Frozen) -> bool) -> Vec<u64> {
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
    pub(super) fn thaw(&mut self, slots: &mut Slots, timers: &mut LoopTimers, id: u64) -> Vec<Thawed> {
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
    pub(super) fn keep(&mut self, id: u64, note: Note) -> NoteFate {
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
    pub(super) fn goes_whole(&self, slots: &mut Slots, id: u64, restored: &[u64]) -> bool {
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
    pub(super) fn not_kept(&mut self, ids: &[(u32, u64)]) -> Vec<u64> {
        let mut keeps = |id: &u64| self.frozen.get_mut(id).is_some_and(|one| one.with_set && std::mem::take(&mut one.offered));
        ids.iter().map(|(_, id)| *id).filter(|id| !keeps(id)).collect()
    }

    /// Forgets the notes once no connection is frozen.
    pub(super) fn forget_notes(&mut self) {
        if self.frozen.is_empty() {
            self.notes.clear();
            self.note_bytes = 0;
        }
    }
}

/// A connection that is frozen.
#[derive(Default)]
pub(super) struct Frozen {
    pub(super) token: u64,
    /// The state of the connection was saved.
    pub(super) offered: bool,
    /// The set that it moves with is frozen: what it did here from then on would change what they share, of which the other process may have a copy.
    pub(super) with_set: bool,
    /// Moment at which its timer is due.
    pub(super) due: Option<Instant>,
    /// The protocol waited.
    pub(super) waited: bool,
    /// Places of the notes that came since.
    pub(super) notes: Vec<u32>,
    /// Events from the first on that does not go along: the connection stays, but nothing of it happens before that is known. If it acted while
    /// the other process has a copy, and this process died then, the copy would be an old one.
    pub(super) later: Vec<Later>,
    /// The connection stays, because its end is counted here.
    pub(super) stays: bool,
}

impl Frozen {
    /// Returns false where something has happened to it that is this process's to do.
    pub(super) fn may_go(&self) -> bool {
        !self.stays && self.later.is_empty()
    }
}

/// Something that happens to a frozen connection, kept until it is known that it stays: for as long as the other process may take to answer.
pub(super) enum Later {
    Note(Note),
    Act(Act),
}

/// A connection that goes on, and what is left to be done for it.
pub(super) struct Thawed {
    pub(super) token: u64,
    pub(super) waited: bool,
    pub(super) later: Vec<Later>,
}

/// The fate of a note for a frozen connection.
pub(super) enum NoteFate {
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
