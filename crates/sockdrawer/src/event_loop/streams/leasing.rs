//! Leasing a connection to other code. Its slot, permit and protocol state stay; epoll forgets the socket.

use super::Streams;
use crate::event_loop::delegation::Delegation;
use crate::event_loop::lease::{Lease, LeaseStart};
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Extra;
use crate::protocol::{Closed, Delegate, Note, Peer, Urgency};
use crate::sys::panics;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Does Step::Delegate: the connection goes as soon as all is sent.
pub(in crate::event_loop) fn start(streams: &mut Streams, slot: u32, delegate: Delegate) {
    let connects = streams.slots.extra(slot).is_some_and(|extra| extra.connects > 0);
    if connects || !streams.slots.at(slot).is_free() {
        panics::discard(delegate);
        let why = "a protocol gave its connection away while a job runs, a connect is under way or it is relayed, or twice";
        return streams.crash(slot, why);
    }
    // It comes back by message, from another thread.
    if let Err(errno) = streams.io.awaken() {
        panics::discard(delegate);
        return streams.fail(slot, errno);
    }
    streams.slots.at(slot).flags.enter(Phase::Delegating);
    streams.slots.make_extra(slot).delegation = Some(Delegation::Pending(delegate));
    streams.send(slot, false);
}

/// Leases a connection whose output is all sent: the last that is done with it in this turn.
pub(super) fn hand_over(streams: &mut Streams, slot: u32) {
    let (table, state) = (streams.slots.at(slot).table, streams.slots.at(slot).state);
    let lent = streams.generations.at(table).table.lend(state);
    let Some(Delegation::Pending(mut delegate)) = streams.slots.make_extra(slot).delegation.take() else {
        unreachable!("a pending delegation has its delegate")
    };
    streams.timers.clear(&mut streams.slots, slot);
    if streams.slots.at(slot).flags.any(Flags::WATCHED) {
        streams.io.unwatch(streams.slots.at(slot));
    }
    let token = streams.slots.token(slot);
    let of = streams.generations.at(table);
    let (generation, max_wire) = (of.id, of.max_partial);
    let kept = streams.kept.bytes(slot).to_vec();
    streams.kept.forget(&mut streams.slots, slot);
    let ends_by = streams.slots.extra(slot).and_then(Extra::ends_by);
    let (known, remote) = (delegate.peer.take(), streams.slots.extra(slot).and_then(Extra::learned_remote));
    let record = streams.slots.at(slot);
    let leaving = LeaseStart {
        token,
        id: record.id,
        generation,
        peer: known.map_or_else(|| Peer::new(remote, record.side()), |peer| *peer),
        system: streams.io.system.system().clone(),
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
    let lease = Lease::new(leaving, socket.clone(), streams.io.inbox.clone());
    let leased = lease.leased.clone();
    streams.slots.make_extra(slot).delegation =
        Some(Delegation::Leased { leased: leased.clone(), socket, watched: false, purge_by: None });
    streams.io.counters.delegated().add(1);
    if delegate.blocks {
        return streams.io.shared.delegates.submit(delegate, lease);
    }
    // A panic drops the hold, which comes back and says so.
    let take = AssertUnwindSafe(move || (delegate.take)(Box::new(lease)));
    let _ = catch_unwind(take).map_err(panics::discard);
    if leased.is_watched()
        && let Some(delegation) = &mut streams.slots.make_extra(slot).delegation
    {
        delegation.watch(&*streams.io.system, streams.io.epoll.as_fd(), token);
    }
}

/// Gives a note to the lessee.
pub(in crate::event_loop) fn note(streams: &mut Streams, slot: u32, note: Note, urgency: Urgency) {
    let Some(leased) = streams.slots.extra(slot).and_then(Extra::leased).cloned() else { return };
    if let Err(note) = leased.put_note(note) {
        streams.io.counters.notes_dropped().add(1);
        panics::discard(note);
        if urgency == Urgency::Delivered {
            streams.end(slot, Closed::Overflow, true);
        }
    }
}

/// Handles the end or reset, by its peer, of a connection that waits to be taken.
pub(in crate::event_loop) fn peer_ended(streams: &mut Streams, slot: u32) {
    let side = streams.slots.at(slot).side();
    let delegation = streams.slots.extra(slot).and_then(|extra| extra.delegation.as_ref());
    if delegation.is_some_and(|delegation| delegation.peer_ended(&*streams.io.system, side)) {
        streams.io.counters.untaken().add(1);
    }
}
