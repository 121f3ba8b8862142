//! Connections that move to another process: frozen ones are saved and offered, and are gone from here, or go on, once it is known which of them the other process has.

use super::Connections;
use super::frozen::Frozen;
use super::marks::marks;
use crate::event_loop::phase::{ENDING, Phase};
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Extra;
use crate::event_loop::streams::Streams;
use crate::event_loop::streams::idle::IdleWatch;
use crate::ipc::record::Record;
use crate::ipc::yours::{Noted, Yours};
use crate::listen::state::ListenerState;
use crate::protocol::{Closed, Saver, State};
use crate::sys::{Errno, cookie};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of one offer, but for one record that is longer: as many as the buffer of a socket takes, so that 100 connections under TLS go along in one.
const MAX_BYTES: usize = 96 * 1024;
/// Bytes that wait at a connection, or are its state: with more it stays for now. Both processes hold an offer in memory.
const MAX_WAITS: usize = 16 * 1024 * 1024;

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

/// Freezes the next connections, from this slot on, whose state is one of those that the successor `reads`, and has them sent.
///
/// # Errors
/// The error of `send`: the connections go on here.
pub(crate) fn offer_next(
    connections: &mut Connections,
    Reading { state: reads, listeners }: &Reading,
    from: u32,
    send: SendOffer,
) -> Result<Offered, Errno> {
    connections.streams.timers.look_at_clock();
    let (mut saved, mut bytes, mut next, mut awaited) = (Vec::new(), 0, from, 0);
    let most = connections.moving.slices.next();
    while next < connections.streams.slots.len() && saved.len() < most && bytes < MAX_BYTES {
        let before = saved.len();
        if connections.streams.generations.gives_back(&mut connections.streams.slots, next, reads) {
            connections.moving.asks = true;
            connections.streams.slots.extra(next).and_then(Extra::leased).iter().for_each(|leased| leased.ask_to_move());
            awaited += 1;
        }
        freeze_and_save(connections, next, reads, listeners, &mut saved);
        bytes += saved[before..].iter().map(|(_, record)| record.size()).sum::<usize>();
        next += 1;
    }
    let ids: Vec<(u32, u64)> = saved.iter().map(|(slot, record)| (*slot, record.id)).collect();
    let offered = Offered { count: ids.len(), next: (next < connections.streams.slots.len()).then_some(next.into()), awaited };
    if ids.is_empty() {
        return Ok(offered);
    }
    // Out of their slots for the call: a table lends one slot at a time.
    let sockets: Vec<OwnedFd> = ids.iter().filter_map(|(slot, _)| connections.streams.slots.at(*slot).socket.take()).collect();
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let sent = send(saved.into_iter().map(|(_, record)| record).collect(), offered.next, &descriptors);
    for ((slot, _), socket) in ids.iter().zip(sockets) {
        connections.streams.slots.at(*slot).socket = Some(socket);
    }
    let go_on = if sent.is_err() { connections.moving.not_kept(&ids) } else { Vec::new() };
    go_on.into_iter().for_each(|id| connections.thaw(id));
    sent.map(|()| offered)
}

/// Freezes the connections that can move, of those whose state a successor `reads`: `together` all, which hear notes still, else those
/// whose peers are still to be learned. Only the successor knows all connections of a peer.
pub(crate) fn freeze_first(connections: &mut Connections, reads: &State, together: bool) {
    let Connections { streams, moving, .. } = connections;
    if together {
        moving.gathered = Some(0);
        streams.scratch.leaves = true;
    }
    for token in streams.slots.tokens() {
        let Some(slot) = streams.slots.find(token) else { continue };
        let is_first = together || streams.generations.awaits_peer(&mut streams.slots, slot);
        if is_first && !streams.slots.at(slot).flags.is(Phase::Frozen) && why_it_stays(streams, slot, reads).is_none() {
            moving.freeze(&streams.io, &mut streams.slots, slot);
        }
    }
}

/// Returns how many notes frozen connections heard since the last look; with `last` they hear no more of them, and their timers are not due.
pub(crate) fn gathered(connections: &mut Connections, last: bool) -> u64 {
    let Connections { streams, moving, .. } = connections;
    if last {
        for frozen in moving.frozen.values_mut() {
            frozen.with_set = true;
            if let Some(slot) = streams.slots.find(frozen.token) {
                frozen.due = streams.timers.take(&mut streams.slots, slot);
            }
        }
    }
    std::mem::replace(&mut moving.gathered, (!last).then_some(0)).unwrap_or(0)
}

/// Freezes a connection, if it is not frozen, and saves it, and with it the other side of its relay. Neither is saved where one cannot move, now or
/// ever.
fn freeze_and_save(
    connections: &mut Connections,
    slot: u32,
    reads: &State,
    listeners: &ListenerStates,
    saved: &mut Vec<(u32, Record)>,
) {
    let record = connections.streams.slots.at(slot);
    let (id, is_frozen) = (record.id.0, record.flags.is(Phase::Frozen));
    if is_frozen && connections.moving.frozen.get(&id).is_none_or(|frozen| frozen.offered) {
        return;
    }
    if !is_frozen {
        if why_it_stays(&mut connections.streams, slot, reads).is_some() {
            return;
        }
        connections.moving.freeze(&connections.streams.io, &mut connections.streams.slots, slot);
    }
    let before = saved.len();
    for one in connections.streams.slots.sides(slot) {
        // A frozen one may have asked by a note that it heard since.
        let connects = connections.streams.slots.extra(one).is_some_and(|extra| extra.connects > 0);
        let Some(record) = (!connects).then(|| save(connections, one, listeners)).flatten() else {
            saved.truncate(before);
            return connections.thaw(id);
        };
        saved.push((one, record));
    }
}

fn save(Connections { streams, moving, .. }: &mut Connections, slot: u32, listeners: &ListenerStates) -> Option<Record> {
    let record = streams.slots.at(slot);
    let (table, state) = (record.table, record.state);
    let live = streams.generations.at(table);
    let written = live.state.clone();
    let mut saver = Saver::default();
    live.table.save(state, &mut saver).map_err(|panicked| streams.io.tell_panic("save", panicked)).ok()?.ok()?;
    if saver.bytes.len() > MAX_WAITS {
        return None;
    }
    let cookie = cookie(streams.slots.socket(slot)).ok()?;
    let due = streams.timers.take(&mut streams.slots, slot);
    let listener = streams.slots.at(slot).listener;
    // A connection that came in at an address that was removed counts at none, also where the address has come back.
    let is_known = |listener: &&Arc<ListenerState>| {
        listeners.iter().filter_map(|known| known.state.as_ref()).any(|known| Arc::ptr_eq(known, listener))
    };
    let listener = streams.slots.listener(listener).filter(is_known).map(|listener| listener.address.to_string());
    let extra = streams.slots.extra(slot);
    let tag = extra.and_then(|extra| extra.tag.as_ref()).map(|tag| tag.to_string());
    let wake_below = extra.and_then(|extra| extra.wake_below);
    let peer = extra.and_then(|extra| extra.remote.as_ref()).map(|remote| remote.to_string());
    let progress = IdleWatch::of(streams).progress(slot);
    let seen = streams.timers.seen(slot).filter(|seen| seen.progress == progress);
    let idle = seen.map(|seen| streams.timers.idle_for(streams.slots.at(slot), seen));
    let idle = idle.map(|idle| idle.as_nanos().try_into().unwrap_or(u64::MAX));
    let relay = streams.slots.other(slot).map(|other| streams.slots.at(other).id.0);
    let record = streams.slots.at(slot);
    let id = record.id.0;
    let frozen = moving.frozen.get_mut(&id)?;
    frozen.offered = true;
    frozen.due = frozen.due.or(due);
    let due = frozen.due;
    Some(Record {
        id,
        cookie,
        age: streams.timers.second.saturating_sub(record.opened),
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        state: std::mem::take(&mut saver.bytes),
        versions: written.versions(),
        names: written.names(),
        // Only in builds with these mistakes: input that was read and not taken, or output that was not sent, stays behind.
        kept: if cfg!(sockdrawer_broken = "forgets-kept") { Vec::new() } else { streams.kept.bytes(slot).to_vec() },
        unsent: if cfg!(sockdrawer_broken = "forgets-unsent") { Vec::new() } else { streams.unsent.bytes(slot).to_vec() },
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
fn why_it_stays(streams: &mut Streams, slot: u32, reads: &State) -> Option<String> {
    streams.slots.sides(slot).find_map(|one| {
        let asker = streams.slots.extra(one).and_then(Extra::asker);
        let is_made = asker.is_some_and(|asker| streams.slots.find(asker).is_some());
        let waits = streams.kept.bytes(one).len() + streams.unsent.bytes(one).len();
        let (flags, table) = (streams.slots.at(one).flags, streams.slots.at(one).table);
        let why = why_one_stays(flags, streams.slots.extra(one), is_made, waits).map(str::to_owned);
        why.or_else(|| reads.can_read(&streams.generations.at(table).state).err().map(|why| why.to_string()))
    })
}

/// Returns the number of connections that can move to a build that reads these states, and the number of the others by the reason.
pub(crate) fn plan_to_move(streams: &mut Streams, reads: &State) -> (u64, BTreeMap<String, u64>) {
    let (mut moves, mut stay) = (0, BTreeMap::new());
    for token in streams.slots.tokens() {
        let Some(slot) = streams.slots.find(token) else { continue };
        match why_it_stays(streams, slot, reads) {
            None => moves += 1,
            Some(_) if streams.generations.gives_back(&mut streams.slots, slot, reads) => moves += 1,
            Some(why) => *stay.entry(why).or_default() += 1,
        }
    }
    (moves, stay)
}

/// Lets all frozen connections go on here: the other process does not take them now, or for good where this one `stays`.
pub(crate) fn thaw_all(connections: &mut Connections, stays: bool) {
    (connections.moving.gathered, connections.moving.asks) = (None, false);
    connections.streams.scratch.leaves &= !stays;
    connections.moving.ids(|_| true).into_iter().for_each(|id| connections.thaw(id));
}

/// Closes the copies of connections that the other process has restored; the others that were offered go on here. Returns those that are the other's: one
/// that ended meanwhile is not.
pub(crate) fn let_go(connections: &mut Connections, restored: &[u64]) -> Yours {
    let mut gone = Yours::default();
    for id in restored {
        if connections.moving.goes_whole(&mut connections.streams.slots, *id, restored)
            && let Some(notes) = let_one_go(connections, *id)
        {
            gone.ids.push(*id);
            if !notes.is_empty() {
                gone.noted.push(Noted { id: *id, notes });
            }
        }
    }
    if !gone.noted.is_empty() {
        gone.notes = connections.moving.notes.iter().map(|note| note.to_vec().into()).collect();
    }
    connections.moving.ids(|frozen| frozen.offered).into_iter().for_each(|id| connections.thaw(id));
    connections.moving.forget_notes();
    // Only in a build with this mistake: the next process does not get what it restored.
    if cfg!(sockdrawer_broken = "drops-slice") { Yours::default() } else { gone }
}

fn let_one_go(Connections { streams, moving, .. }: &mut Connections, id: u64) -> Option<Vec<u32>> {
    if !moving.frozen.get(&id)?.may_go() {
        return None;
    }
    let Frozen { token, notes, .. } = moving.frozen.remove(&id)?;
    let slot = streams.slots.find(token).filter(|slot| streams.slots.at(*slot).flags.is(Phase::Frozen))?;
    // Only in a build with this mistake: the connection goes on here, too.
    if cfg!(sockdrawer_broken = "two-owners") {
        streams.slots.at(slot).flags.enter(Phase::Open);
        streams.settle(slot, false);
        return Some(notes);
    }
    // Only in a build with this mistake: the peer is told of an end. That it is gone already is no matter.
    if cfg!(sockdrawer_broken = "ends-first") {
        _ = streams.io.system.finish(streams.slots.socket(slot));
    }
    streams.forget_protocol(slot, Closed::Adopted);
    streams.unsent.forget(&mut streams.slots, slot);
    drop(streams.slots.take_extra(slot));
    streams.io.counters.moved_out().add(1);
    streams.slots.leave(slot);
    streams.descriptor_freed = true;
    Some(notes)
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
