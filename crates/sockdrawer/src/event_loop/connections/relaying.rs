//! Relays: two connections of a loop are joined, and epoll tells of them; [`Pair`] brings their bytes across.

use super::{Connections, events};
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::passing::Pair;
use crate::event_loop::streams::relaying::Relayed;
use crate::sys::Ready;

/// Handles an event of epoll about a connection that is relayed.
pub(super) fn relay_event(connections: &mut Connections, slot: u32, ready: Ready) {
    let streams = &mut connections.streams;
    let token = streams.slots.token(slot);
    // Nearly always: there is input, one read brings it, and the other side takes it.
    let Some((relay, other)) = streams.slots.relay_of(slot) else { return };
    let flags = streams.slots.at(other).flags;
    if ready.is_input() && !flags.any(Flags::UNSENT) {
        match Pair::of(streams, slot, other).relay_once(relay) {
            Relayed::All | Relayed::Over => return,
            Relayed::More => Pair::of(streams, slot, other).relay(),
            Relayed::Stuck => {}
        }
        return streams.settle_relay(token);
    }
    let reads = !streams.slots.at(slot).flags.any(Flags::PEER_ENDED) && !flags.any(Flags::UNSENT);
    // A socket that is read gives the input before a reset first, and then the reset.
    if ready.is_broken() && !(reads && ready.is_readable()) {
        if let Err(errno) = streams.io.system.take_error(streams.slots.socket(slot)) {
            return streams.fail(slot, errno);
        }
        if !reads && !streams.slots.at(slot).flags.any(Flags::UNSENT) {
            // Both directions have ended, and what is left waits for the other side: epoll would tell of it for ever.
            return streams.io.unwatch(streams.slots.at(slot));
        }
    }
    if ready.is_writable() && streams.slots.at(slot).flags.any(Flags::UNSENT) {
        events::flush(connections, slot);
        if !connections.streams.slots.is_relayed(token) {
            return;
        }
        if !connections.streams.slots.at(slot).flags.any(Flags::UNSENT) {
            Pair::of(&mut connections.streams, slot, other).end_if_over();
            if connections.streams.slots.is_relayed(token) {
                Pair::of(&mut connections.streams, other, slot).relay();
            }
        }
    }
    if connections.streams.slots.is_relayed(token) && (ready.is_readable() || ready.is_broken()) {
        if connections.streams.slots.at(slot).flags.any(Flags::PEER_ENDED) {
            // Hung up on both sides: what is unsent can only fail now.
            events::flush(connections, slot);
        } else if !connections.streams.slots.other_takes(slot) {
            return connections.streams.settle(slot, true);
        } else {
            Pair::of(&mut connections.streams, slot, other).relay();
        }
    }
    connections.streams.settle_relay(token);
}
