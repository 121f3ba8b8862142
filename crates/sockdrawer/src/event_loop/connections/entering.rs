//! The way of a connection into its loop: what is ready for it, its number and generation, and the first call of its protocol.

use super::Connections;
use crate::behaviour::{Answer, Panicked};
use crate::event_loop::PREPARED_BYTES;
use crate::event_loop::generation::Generation;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::{Streams, Tail, context, peers};
use crate::net::Address;
use crate::protocol::{ConnectionId, Peer, Side, Timer};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// Prepares all that a short connection needs, so that it allocates nothing.
pub(in crate::event_loop) fn prepare(streams: &mut Streams) {
    streams.scratch.bytes.reserve(PREPARED_BYTES);
    streams.look_at_switch();
    streams.slots.prepare();
}

/// Names the next connection: it has this number and came in there, as the process says that accepted it.
pub(crate) fn name_next(streams: &mut Streams, id: ConnectionId, listener: Option<&Address>) {
    streams.ids = id.0..id.0 + 1;
    streams.slots.parents_listener = listener.cloned().map(Arc::new);
}

/// Counts one more connection of the generation in force, for a model that runs connections elsewhere. Returns that generation and an id.
pub(crate) fn join(streams: &mut Streams) -> Result<(Arc<Generation>, ConnectionId), Panicked> {
    streams.generations.join(&streams.io, &mut streams.read)?;
    Ok((streams.generations.active().generation.clone(), streams.next_id()))
}

/// Returns true where new connections are leased to blocking code at once.
pub(crate) fn gives_all_away(streams: &mut Streams) -> bool {
    streams.generations.refresh(&streams.io, &mut streams.read).is_ok()
        && streams.generations.active().generation.gives_all_away()
}

/// Keeps memory ready for `capacity` connections.
pub(crate) fn reserve(streams: &mut Streams, capacity: usize) {
    streams.slots.reserve(capacity);
    streams.generations.active().table.reserve(capacity);
}

/// Begins a connection that has its slot under the active generation and lets it speak. An accepted one is read at once: most peers have sent by now.
#[inline(always)]
pub(in crate::event_loop) fn enter(connections: &mut Connections, slot: u32, peer: &Peer) {
    let streams = &mut connections.streams;
    streams.slots.at(slot).id = streams.next_id();
    if peer.side() == Side::Connected {
        streams.slots.at(slot).flags.set(Flags::CONNECTED);
        set_active_options(streams, slot);
    }
    open_protocol(connections, slot, peer);
}

/// Gives a slot its protocol.
#[inline(always)]
pub(super) fn open_protocol(connections: &mut Connections, slot: u32, peer: &Peer) {
    let streams = &mut connections.streams;
    match streams.generations.join(&streams.io, &mut streams.read) {
        Ok(()) => open_joined(connections, slot, peer),
        Err(panicked) => not_opened(streams, slot, panicked),
    }
}

/// Gives a slot its protocol where the generation in force counts it already. Nearly always the protocol has nothing to say before it is
/// read: that way looks nothing up twice.
fn open_joined(connections: &mut Connections, slot: u32, peer: &Peer) {
    let streams = &mut connections.streams;
    if streams.generations.names_peers & peer.is_unnamed() {
        // The generation came into force after the accept.
        let named =
            Peer::new(streams.io.remote(&mut streams.slots, slot), Side::Accepted).came_in_at(streams.slots.came_in_at(slot));
        return open_joined(connections, slot, &named);
    }
    if streams.snapshot.is_some() {
        peers::show(streams, slot, peer);
    }
    let (table, opened) = (streams.generations.active_for(&mut streams.slots, slot), streams.timers.second);
    let record = streams.slots.at(slot);
    (record.table, record.opened) = (table, opened);
    let of = streams.generations.at(table);
    (streams.scratch.backlog, streams.scratch.high_water) = (0, of.high_water);
    let (mut timer, now) = (Timer::Keep, Cell::new(None));
    let mut cx =
        context(slot, record, (of.id, of.max_partial), &mut *of.local, &mut streams.scratch, &mut timer, &now, &streams.post);
    match of.table.open(peer, &mut cx, &mut streams.more) {
        Ok((state, answer)) => {
            record.state = state;
            let silent = streams.scratch.bytes.is_empty() & streams.scratch.asks.is_nothing() & (timer == Timer::Keep);
            let usual = silent && matches!(answer, Answer::Continue);
            if !usual && !has_spoken(connections, slot, answer, timer, &now) {
                return;
            }
            // epoll hears of the connection only when it has been read and stays: many are over by then. A side that connected
            // has just sent its first words, if any: there can be no answer yet.
            match peer.side() {
                Side::Accepted => connections.readable(slot),
                Side::Connected => connections.streams.settle(slot, false),
            }
        }
        Err(panicked) => {
            streams.generations.leave(&streams.io, table);
            not_opened(streams, slot, panicked);
        }
    }
}

/// Does what a protocol asked for when it was opened. Whether the connection goes on.
#[inline(never)]
fn has_spoken(connections: &mut Connections, slot: u32, answer: Answer, timer: Timer, now: &Cell<Option<Instant>>) -> bool {
    connections.after_call(slot, timer, now);
    connections.act(slot, answer, Tail::Unknown, false);
    connections.streams.slots.at(slot).is_taken()
}

#[cold]
fn not_opened(streams: &mut Streams, slot: u32, Panicked(message): Panicked) {
    streams.io.count_panic(&mut streams.slots, slot, message);
    streams.io.counters.crashed().add(1);
    // The scratch may hold what was to go before all that its protocol says.
    streams.scratch.clear();
    streams.leave(slot, true);
}

/// Gives a connection made here the options that an accepted one has from its listener.
pub(super) fn set_active_options(streams: &mut Streams, slot: u32) {
    if streams.generations.refresh(&streams.io, &mut streams.read).is_ok() {
        let options = streams.generations.active_settings().options;
        // It fails where the connection is gone, which using it will tell.
        let _ = streams.io.system.set_first_options(streams.slots.socket(slot), &options);
    }
}
