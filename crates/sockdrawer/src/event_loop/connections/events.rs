//! Events of epoll about a connection, and a wake from its loop's inbox.

use super::{Connections, connecting};
use crate::behaviour::Callback;
use crate::event_loop::ENDS_PER_TURN;
use crate::event_loop::incoming::Incoming;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::leasing;
use crate::event_loop::streams::relaying::{Pair, Relayed};
use crate::sys::{Errno, Ready};

/// Handles an event of epoll.
/// A connection that was made and is to run elsewhere is returned.
#[inline(always)]
pub(in crate::event_loop) fn event(connections: &mut Connections, token: u64, ready: Ready) -> Option<Incoming> {
    let streams = &mut connections.streams;
    let slot = streams.slots.find(token)?;
    // Nearly always: there is input, and it is wanted.
    if ready.is_input() && !streams.slots.at(slot).flags.any(Flags::UNREAD) {
        connections.readable(slot);
        return None;
    }
    if streams.slots.at(slot).flags.is(Phase::Connecting) {
        return connecting::connect_event(connections, slot, ready);
    }
    if streams.slots.at(slot).flags.is(Phase::Relayed) {
        relay_event(connections, slot, ready);
    } else {
        rare_event(connections, slot, token, ready);
    }
    None
}

/// Ends are few in a turn: false leaves the event to the next, because epoll tells of it again, behind what the others have to say now.
pub(super) fn may_end(connections: &mut Connections, ready: Ready) -> bool {
    if ready.is_ended() {
        connections.ends += 1;
    }
    !ready.is_ended() || connections.ends <= ENDS_PER_TURN
}

#[cold]
fn rare_event(connections: &mut Connections, slot: u32, token: u64, ready: Ready) {
    let streams = &mut connections.streams;
    let flags = streams.slots.at(slot).flags;
    if flags.is(Phase::Cut) {
        return;
    }
    // epoll tells the end of a leased connection once, and it takes no time here.
    if flags.is(Phase::Leased) {
        return leasing::peer_ended(streams, slot);
    }
    if !may_end(connections, ready) {
        return;
    }
    if flags.is(Phase::Lingering) {
        return connections.streams.discard(slot);
    }
    let may_receive = !flags.any(Flags::UNREAD);
    // A reset is seen by reading; where the connection is not read it must be asked for, else it would be reported for ever.
    if ready.is_broken() && !may_receive {
        return check_broken(connections, slot);
    }
    if ready.is_ended() && flags.any(Flags::WATCH_END) {
        return ended_while_paused(connections, slot);
    }
    if ready.is_writable() && flags.any(Flags::WATCH_WRITE) {
        flush(connections, slot);
    }
    if let Some(slot) = connections.streams.slots.find(token) {
        if (ready.is_readable() || ready.is_broken()) && may_receive && connections.streams.slots.at(slot).has_protocol() {
            connections.readable(slot);
        } else {
            connections.streams.settle(slot, ready.is_readable());
        }
    }
}

/// Checks a connection that is not read now, and of which epoll reports an error.
fn check_broken(connections: &mut Connections, slot: u32) {
    let streams = &mut connections.streams;
    match streams.io.system.take_error(streams.slots.socket(slot)) {
        Err(errno) => streams.fail(slot, errno),
        // Hung up on both sides: what is unsent can only fail now.
        Ok(()) if streams.slots.at(slot).flags.any(Flags::UNSENT) => flush(connections, slot),
        // While a job runs or the protocol waits, epoll would report it for ever, and the connection is not read.
        Ok(()) => {
            streams.io.unwatch(streams.slots.at(slot));
            if streams.slots.at(slot).flags.any(Flags::PAUSED) {
                ended_while_paused(connections, slot);
            }
        }
    }
}

/// Handles the end of a peer's stream while the protocol wants no input. The protocol is told if none is left.
fn ended_while_paused(connections: &mut Connections, slot: u32) {
    let streams = &mut connections.streams;
    match streams.io.system.peek(streams.slots.socket(slot)) {
        Ok(0) => {
            streams.slots.at(slot).flags.set(Flags::PEER_ENDED);
            connections.tell_ended(slot);
        }
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => streams.slots.at(slot).flags.set(Flags::END_BEHIND),
        Err(errno) => streams.fail(slot, errno),
    }
    // A socket that was hung up on both sides is not watched any more: epoll would tell of that for ever.
    if connections.streams.slots.at(slot).flags.any(Flags::WATCHED) {
        connections.streams.settle(slot, false);
    }
}

/// Handles room for the notes of a connection, or its wish to be woken.
pub(in crate::event_loop) fn room(connections: &mut Connections, token: u64) {
    let streams = &mut connections.streams;
    let Some(slot) = streams.slots.with_protocol(token) else { return };
    let held = streams.slots.at(slot).flags.any(Flags::HELD);
    streams.slots.at(slot).flags.clear(Flags::HELD);
    let flags = streams.slots.at(slot).flags;
    if flags.is(Phase::Frozen) || flags.is(Phase::Leased) {
        return;
    }
    if held {
        connections.input_goes_on(slot, true);
        connections.streams.settle(slot, false);
    }
    let unsent = connections.streams.unsent.bytes(slot).len();
    if connections.streams.slots.at(slot).has_protocol()
        && connections.streams.slots.extra_of(slot).is_some_and(|extra| extra.takes_wake(unsent))
    {
        connections.callback(slot, Callback::Writable);
    }
}

/// Sends the backlog: the socket has room. A protocol that waits for room is told.
pub(super) fn flush(connections: &mut Connections, slot: u32) {
    let streams = &mut connections.streams;
    let Some(left) = streams.flush(slot) else { return };
    let record = streams.slots.at(slot);
    let (flags, table) = (record.flags, record.table);
    if flags.any(Flags::FULL) && left <= streams.generations.settings(table).low_water {
        streams.slots.at(slot).flags.clear(Flags::FULL.union(Flags::BACKED_UP));
        streams.slots.extra_of(slot).map(|extra| extra.takes_wake(left));
        connections.callback(slot, Callback::Writable);
        connections.resume(slot);
    } else if flags.any(Flags::EXTRA) && streams.slots.extra_of(slot).is_some_and(|extra| extra.takes_wake(left)) {
        connections.callback(slot, Callback::Writable);
    }
}

/// Handles an event of epoll about a connection that is relayed.
fn relay_event(connections: &mut Connections, slot: u32, ready: Ready) {
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
        flush(connections, slot);
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
            flush(connections, slot);
        } else if !connections.streams.slots.other_takes(slot) {
            return connections.streams.settle(slot, true);
        } else {
            Pair::of(&mut connections.streams, slot, other).relay();
        }
    }
    connections.streams.settle_relay(token);
}
