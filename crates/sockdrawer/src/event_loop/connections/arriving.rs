//! Connections that arrive from another process: they are restored, and nothing of them is touched until they are here for good.

use super::Connections;
use super::idle::IdleWatch;
use super::marks::marked;
use super::moving::ListenerStates;
use super::passing::Pair;
use crate::event_loop::Intake;
use crate::event_loop::incoming::{Arrival, Incoming};
use crate::event_loop::landing::Arrived;
use crate::event_loop::phase::Phase;
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

impl Connections {
    /// Restores connections of another process; their sockets are not touched.
    pub(crate) fn restore_arrivals(&mut self, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Restored {
        let Connections { landing, io, generations, read, .. } = self;
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
    fn seat(&mut self, arrived: Arrived, permit: Permit, notes: Vec<Note>, together: bool) -> u64 {
        let Arrived { socket, record: moved, table, state, remote } = arrived;
        let slot = self.slots.take(socket, permit);
        let (second, full) = (self.timers.second, self.generations.at(table).full());
        let record = self.slots.at(slot);
        record.id = ConnectionId(moved.id);
        (record.bytes_in, record.bytes_out) = (moved.bytes_in, moved.bytes_out);
        (record.table, record.state, record.opened) = (table, state, second.saturating_sub(moved.age));
        record.flags.set(marked(moved.marks));
        self.publish(slot, &Peer::new(remote, moved.marks.side()));
        if let Some(remote) = remote.filter(|_| moved.peer.is_some()) {
            self.set_remote(slot, remote);
        }
        self.kept.keep(&mut self.slots, slot, &moved.kept);
        self.unsent.keep(&mut self.slots, slot, &moved.unsent);
        if !moved.unsent.is_empty() && moved.marks.full {
            self.slots.at(slot).flags.set(full);
        }
        if let Some(tag) = &moved.tag {
            self.set_tag(slot, crate::protocol::tag(tag));
        }
        if let Some(left) = moved.timer {
            let now = Instant::now();
            self.timers.set(&mut self.slots, slot, crate::clock::deadline(now, Duration::from_nanos(left)), now);
        }
        if moved.relay.is_some() {
            self.slots.join(slot, 0);
            self.slots.at(slot).flags.enter(Phase::Relayed);
        }
        self.io.counters.moved_in().add(1);
        if together {
            self.moving.gathered = Some(0);
            self.moving.freeze(&self.io, &mut self.slots, slot);
        }
        let token = self.slots.token(slot);
        if moved.wake_below.is_some() {
            self.slots.make_extra(slot).wake_below = moved.wake_below;
        }
        if moved.wake_below.is_some() || moved.marks.held {
            // The loop whose inbox was full is another process's.
            self.io.inbox.room(token);
        }
        let progress = IdleWatch::of(self).progress(slot);
        self.tell_restored(slot);
        IdleWatch::of(self).was_idle(slot, progress, moved.idle);
        notes.into_iter().for_each(|note| self.note(token, note, Urgency::Delivered));
        token
    }

    /// Joins the sides of relays that arrived.
    fn join_arrivals(&mut self, sides: &HashMap<u64, ArrivedSide>) {
        for ArrivedSide { token, other, .. } in sides.values() {
            let Some(slot) = self.slots.find(*token) else { continue };
            match sides.get(other).filter(|other| self.slots.find(other.token).is_some()) {
                Some(to) => self.slots.join(slot, to.token),
                // The other side ended when it was restored.
                None => self.end(slot, Closed::Aborted, true),
            }
        }
        for ArrivedSide { token, .. } in sides.values() {
            let slot = self.slots.find(*token);
            if let Some((slot, other)) = slot.and_then(|slot| Some((slot, self.slots.other(slot)?)))
                && Pair::of(self, slot, other).find_filters()
            {
                self.settle_relay(*token);
            }
        }
        // Only now both sides are there, whose progress is one.
        for ArrivedSide { token, idle, .. } in sides.values() {
            if let Some(slot) = self.slots.find(*token) {
                let progress = IdleWatch::of(self).progress(slot);
                IdleWatch::of(self).was_idle(slot, progress, *idle);
            }
        }
    }

    /// Lets all connections that arrived together go on.
    pub(crate) fn release(&mut self) {
        let tokens: Vec<u64> = self.moving.tokens();
        self.thaw_all(false);
        for slot in tokens {
            if let Some(slot) = self.slots.find(slot) {
                self.resume(slot);
                self.settle(slot, false);
            }
        }
    }
}

impl Intake<'_> {
    /// Seats those of the arrivals that are this process's from now on; the others are forgotten. Their permits are taken already. Returns
    /// the address at which each came in.
    pub(crate) fn seat_arrivals(&mut self, yours: Yours, listeners: &ListenerStates, together: bool) -> Vec<Option<String>> {
        self.connections.timers.look_at_clock();
        self.acceptor.view.look(&self.connections.io);
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
            self.connections.io.shared.limiter.take_over();
            listener.iter().for_each(|listener: &Arc<ListenerState>| listener.limiter.take_over());
            let mut permit = Permit::of_parts(self.connections.io.shared.limiter.clone(), listener, None);
            // A connection whose peer is still to be learned was counted nowhere: admission is asked when its peer is known.
            let awaits =
                arrived.record.peer.is_none() && self.connections.generations.at(arrived.table).awaits_peer(arrived.state);
            let peer = arrived.remote.filter(|_| !awaits);
            self.acceptor.view.count_incoming(&mut permit, arrived.record.marks.side(), peer, true);
            let notes = notes.remove(&id).unwrap_or_default();
            match self.connections.io.shared.placement.clone() {
                None => {
                    let (relay, idle) = (arrived.record.relay, arrived.record.idle);
                    let token = self.connections.seat(arrived, permit, notes, together);
                    relay.into_iter().for_each(|other| _ = sides.insert(id, ArrivedSide { token, other, idle }));
                }
                Some(placement) => {
                    let Connections { io, generations, .. } = &mut *self.connections;
                    generations.forget(io, arrived.table, arrived.state);
                    placement.place(self, arrived.on_its_way(permit, notes, together));
                }
            }
        }
        self.connections.join_arrivals(&sides);
        let Connections { io, generations, landing, .. } = &mut *self.connections;
        landing.forget_all(io, generations);
        seated
    }

    /// Seats a connection of another program here, where it was placed.
    #[cold]
    pub(in crate::event_loop) fn seat_placed(&mut self, incoming: Incoming, arrival: Arrival) {
        let (Arrival { record, notes, together }, connections) = (arrival, &mut *self.connections);
        let id = record.id;
        connections.timers.look_at_clock();
        let Connections { landing, io, generations, read, .. } = &mut *connections;
        let _ = landing.restore(io, generations, read, record, incoming.socket);
        match connections.landing.take(id) {
            Some(arrived) => _ = connections.seat(arrived, incoming.permit, notes, together),
            // Its service restored it a moment ago and does not now: it is lost.
            None => {
                connections.io.counters.moved_in().add(1);
                connections.io.counters.closed().add(1);
            }
        }
    }
}
