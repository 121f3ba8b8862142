//! Timers of connections that are due: the protocol's, the idle timeout, or that of a connect or an end that takes too long.

use super::Connections;
use crate::behaviour::Callback;
use crate::clock::deadline;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::idle::IdleWatch;
use crate::event_loop::timers::Seen;
use crate::protocol::Closed;
use crate::sys::Errno;
use std::time::{Duration, Instant};

/// Timers that one turn calls for: a crowd that came at once is due at once, and others of its loop wait for a part of it alone.
const MAX_DUE: usize = 64;

pub(in crate::event_loop) fn fire_timers(connections: &mut Connections) {
    let streams = &mut connections.streams;
    if streams.timers.is_empty() {
        return;
    }
    let now = Instant::now();
    let mut due = std::mem::take(&mut streams.timers.due);
    // The next turn takes those that are left.
    streams.timers.wheel.advance(&mut streams.slots, now, &mut due, MAX_DUE);
    for slot in due.drain(..) {
        // A callback earlier in this list may have ended the connection, or set its timer again.
        if connections.streams.slots.at(slot).is_taken() && !connections.streams.slots.at(slot).timer.is_set() {
            timer_due(connections, slot, now);
        }
    }
    connections.streams.timers.due = due;
}

pub(super) fn timer_due(connections: &mut Connections, slot: u32, now: Instant) {
    let streams = &mut connections.streams;
    if let Some(at) = streams.timers.take_far(slot) {
        return streams.timers.set(&mut streams.slots, slot, at, now);
    }
    let record = streams.slots.at(slot);
    if record.flags.is(Phase::Connecting) {
        connections.connect_failed(slot, Errno::TIMEDOUT);
    } else if record.has_protocol() && record.flags.any(Flags::IDLE) {
        idle_due(connections, slot, now);
    } else if record.has_protocol() {
        connections.callback(slot, Callback::Timeout);
        IdleWatch::of(&mut connections.streams).begin(slot);
    } else if record.flags.is(Phase::Flushing) {
        flush_due(connections, slot, now);
    } else {
        connections.streams.leave(slot, false);
    }
}

/// Handles the timer of a connection that waits: it is due.
pub(super) fn idle_due(connections: &mut Connections, slot: u32, now: Instant) {
    let streams = &mut connections.streams;
    let progress = IdleWatch::of(streams).progress(slot);
    let record = streams.slots.at(slot);
    let busy = record.flags.any(Flags::WORKING.union(Flags::PAUSED).union(Flags::HELD)) || record.flags.is(Phase::Delegating);
    let before = streams.timers.seen(slot).filter(|seen| seen.progress == progress && !busy);
    let seen = before.unwrap_or(Seen { progress, since: now });
    let Some(timeout) = streams.generations.settings(record.table).idle else { return };
    if now.saturating_duration_since(seen.since) < timeout {
        return streams.timers.look_again(&mut streams.slots, slot, seen, timeout);
    }
    if record.flags.any(Flags::UNSENT) {
        // It had all that time to take its output.
        return connections.cut(slot, Closed::Idle);
    }
    connections.streams.io.counters.idle().add(1);
    connections.streams.forget_protocol(slot, Closed::Idle);
    connections.streams.start_closing(slot, Duration::ZERO, false);
}

/// Cuts a closing connection off, unless its peer has read since it was looked at last.
pub(super) fn flush_due(connections: &mut Connections, slot: u32, now: Instant) {
    let streams = &mut connections.streams;
    let unread = streams.unread(slot);
    if unread >= streams.slots.at(slot).state {
        return connections.cut(slot, Closed::Purged);
    }
    connections.streams.slots.at(slot).state = unread;
    let flush = connections.streams.generations.active_settings().flush;
    connections.streams.timers.set(&mut connections.streams.slots, slot, deadline(now, flush), now);
}
