//! Connections that arrive from another process: they are restored, and nothing of them is touched until they are here for good.

use super::marks::marked;
use super::moving::ListenerStates;
use super::{Connections, moving, operations};
use crate::event_loop::Intake;
use crate::event_loop::incoming::{Arrival, Incoming};
use crate::event_loop::landing::Arrived;
use crate::event_loop::phase::Phase;
use crate::event_loop::streams::idle::IdleWatch;
use crate::event_loop::streams::relaying::Pair;
use crate::event_loop::streams::{Streams, peers};
use crate::ipc::record::{Record, Restored};
use crate::ipc::yours::{Noted, Yours};
use crate::listen::permit::Permit;
use crate::listen::state::ListenerState;
use crate::protocol::{Closed, ConnectionId, Note, Peer, Sender, Urgency};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A side of a relay that arrived.
struct ArrivedSide {
    token: u64,
    /// Id of the other side.
    other: u64,
    /// Time for which it was idle, in nanoseconds.
    idle: Option<u64>,
}

/// Restores connections of another process; their sockets are not touched.
pub(crate) fn restore_arrivals(connections: &mut Connections, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Restored {
    let Connections { landing, streams: Streams { io, generations, read, .. }, .. } = connections;
    let mut restored = Restored::default();
    for (record, socket) in records.into_iter().zip(sockets) {
        let id = record.id;
        match landing.restore(io, generations, read, record, socket) {
            Ok(()) => restored.ids.push(id),
            Err(why) if !restored.reasons.contains(&why) => restored.reasons.push(why),
            Err(_) => {}
        }
    }
    landing.forget_halves(io, generations, &mut restored);
    restored
}

/// Seats a connection that arrived, and goes on here; with `together` it reads nothing before all of them are here. Returns its token.
fn seat(connections: &mut Connections, arrived: Arrived, permit: Permit, notes: Vec<Note>, together: bool) -> u64 {
    let streams = &mut connections.streams;
    let Arrived { socket, record: moved, table, state, remote } = arrived;
    let slot = streams.slots.take(socket, permit);
    let (second, full) = (streams.timers.second, streams.generations.at(table).full());
    let record = streams.slots.at(slot);
    record.id = ConnectionId(moved.id);
    (record.bytes_in, record.bytes_out) = (moved.bytes_in, moved.bytes_out);
    (record.table, record.state, record.opened) = (table, state, second.saturating_sub(moved.age));
    record.flags.set(marked(moved.marks));
    peers::show(streams, slot, &Peer::new(remote, moved.marks.side()));
    if let Some(remote) = remote.filter(|_| moved.peer.is_some()) {
        peers::set_remote(streams, slot, remote);
    }
    streams.kept.keep(&mut streams.slots, slot, &moved.kept);
    streams.unsent.keep(&mut streams.slots, slot, &moved.unsent);
    if !moved.unsent.is_empty() && moved.marks.full {
        streams.slots.at(slot).flags.set(full);
    }
    if let Some(tag) = &moved.tag {
        connections.set_tag(slot, crate::protocol::tag(tag));
    }
    let Connections { streams, moving, .. } = connections;
    if let Some(left) = moved.timer {
        let now = Instant::now();
        streams.timers.set(&mut streams.slots, slot, crate::clock::deadline(now, Duration::from_nanos(left)), now);
    }
    if moved.relay.is_some() {
        streams.slots.join(slot, 0);
        streams.slots.at(slot).flags.enter(Phase::Relayed);
    }
    streams.io.counters.moved_in().add(1);
    if together {
        moving.gathered = Some(0);
        moving.freeze(&streams.io, &mut streams.slots, slot);
    }
    let token = streams.slots.token(slot);
    if moved.wake_below.is_some() {
        streams.slots.make_extra(slot).wake_below = moved.wake_below;
    }
    if moved.wake_below.is_some() || moved.marks.held {
        // The loop whose inbox was full is another process's.
        streams.io.inbox.room(token);
    }
    let seen = IdleWatch::of(streams).seen(slot, moved.idle);
    operations::tell_restored(connections, slot);
    IdleWatch::of(&mut connections.streams).go_on(slot, seen);
    notes.into_iter().for_each(|note| connections.note(token, note, Urgency::Delivered));
    token
}

/// Joins the sides of relays that arrived.
fn join_arrivals(streams: &mut Streams, sides: &HashMap<u64, ArrivedSide>) {
    for ArrivedSide { token, other, .. } in sides.values() {
        let Some(slot) = streams.slots.find(*token) else { continue };
        match sides.get(other).filter(|other| streams.slots.find(other.token).is_some()) {
            Some(to) => streams.slots.join(slot, to.token),
            // The other side ended when it was restored.
            None => streams.end(slot, Closed::Aborted, true),
        }
    }
    for ArrivedSide { token, .. } in sides.values() {
        let slot = streams.slots.find(*token);
        if let Some((slot, other)) = slot.and_then(|slot| Some((slot, streams.slots.other(slot)?)))
            && Pair::of(streams, slot, other).find_filters()
        {
            streams.settle_relay(*token);
        }
    }
    // Only now both sides are there, whose progress is one.
    for ArrivedSide { token, idle, .. } in sides.values() {
        if let Some(slot) = streams.slots.find(*token) {
            let seen = IdleWatch::of(streams).seen(slot, *idle);
            IdleWatch::of(streams).go_on(slot, seen);
        }
    }
}

/// Lets all connections that arrived together go on.
pub(crate) fn release(connections: &mut Connections) {
    let tokens: Vec<u64> = connections.moving.tokens();
    moving::thaw_all(connections, false);
    for token in tokens {
        if let Some(slot) = connections.streams.slots.find(token) {
            connections.resume(slot);
            connections.streams.settle(slot, false);
        }
    }
}

impl Intake<'_> {
    /// Seats those of the arrivals that are this process's from now on; the others are forgotten. Their permits are taken already. Returns
    /// the address at which each came in.
    pub(crate) fn seat_arrivals(&mut self, yours: Yours, listeners: &ListenerStates, together: bool) -> Vec<Option<String>> {
        self.connections.streams.timers.look_at_clock();
        self.acceptor.view.look(&self.connections.streams.io);
        let (mut seated, mut notes) = (Vec::new(), HashMap::<u64, Vec<Note>>::new());
        let all: Vec<Arc<[u8]>> = yours.notes.into_iter().map(|note| note.into_vec().into()).collect();
        for Noted { id, notes: at } in yours.noted {
            let of_one = at.iter().filter_map(|at| all.get(*at as usize)).map(|note| Note::Bytes(note.clone()));
            notes.insert(id, of_one.collect());
        }
        let mut sides = HashMap::new();
        for id in yours.ids {
            let Some(arrived) = self.connections.landing.take(id) else { continue };
            let of =
                |address: &String| listeners.iter().find(|known| known.address == *address).and_then(|known| known.state.clone());
            let listener = arrived.record.listener.as_ref().and_then(of);
            seated.push(arrived.record.listener.clone());
            self.connections.streams.io.shared.limiter.take_over();
            listener.iter().for_each(|listener: &Arc<ListenerState>| listener.limiter.take_over());
            let mut permit = Permit::of_parts(self.connections.streams.io.shared.limiter.clone(), listener, None);
            // A connection whose peer is still to be learned was counted nowhere: admission is asked when its peer is known.
            let awaits = arrived.record.peer.is_none()
                && self.connections.streams.generations.at(arrived.table).awaits_peer(arrived.state);
            let peer = arrived.remote.filter(|_| !awaits);
            self.acceptor.view.count_incoming(&mut permit, arrived.record.marks.side(), peer, true);
            let notes = notes.remove(&id).unwrap_or_default();
            match self.connections.streams.io.shared.placement.clone() {
                None => {
                    let (relay, idle) = (arrived.record.relay, arrived.record.idle);
                    let token = seat(self.connections, arrived, permit, notes, together);
                    relay.into_iter().for_each(|other| _ = sides.insert(id, ArrivedSide { token, other, idle }));
                }
                Some(placement) => {
                    let Streams { io, generations, .. } = &mut self.connections.streams;
                    generations.forget(io, arrived.table, arrived.state);
                    placement.place(self, arrived.on_its_way(permit, notes, together));
                }
            }
        }
        join_arrivals(&mut self.connections.streams, &sides);
        let Connections { landing, streams: Streams { io, generations, .. }, .. } = &mut *self.connections;
        landing.forget_all(io, generations);
        seated
    }

    /// Seats a connection of another program here, where it was placed.
    #[cold]
    pub(in crate::event_loop) fn seat_placed(&mut self, incoming: Incoming, arrival: Arrival) {
        let (Arrival { record, notes, together }, connections) = (arrival, &mut *self.connections);
        let id = record.id;
        connections.streams.timers.look_at_clock();
        let Connections { landing, streams: Streams { io, generations, read, .. }, .. } = &mut *connections;
        let _ = landing.restore(io, generations, read, record, incoming.socket);
        match connections.landing.take(id) {
            Some(arrived) => _ = seat(connections, arrived, incoming.permit, notes, together),
            // Its service restored it a moment ago and does not now: it is lost.
            None => {
                connections.streams.io.counters.moved_in().add(1);
                connections.streams.io.counters.closed().add(1);
            }
        }
    }
}
