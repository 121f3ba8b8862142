//! Timers of connections that are due: the protocol's, the idle timeout, or that of a connect or an end that takes too long.

use super::Connections;
use crate::behaviour::Callback;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::idle::IdleWatch;
use crate::event_loop::timers::Seen;
use crate::protocol::Closed;
use crate::sys::Errno;
use std::time::{Duration, Instant};

/// Timers that one turn calls for: a crowd that came at once is due at once, and others of its loop wait for a part of it alone.
const MAX_DUE: usize = 64;

/// Does what is due by the timers of connections.
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

fn timer_due(connections: &mut Connections, slot: u32, now: Instant) {
    let streams = &mut connections.streams;
    if let Some(at) = streams.timers.take_far(slot) {
        return streams.timers.set(&mut streams.slots, slot, at, now);
    }
    let record = streams.slots.at(slot);
    if record.flags.is(Phase::Connecting) {
        connections.connect_failed(slot, Errno::TIMEDOUT);
    } else if record.flags.any(Flags::IDLE) {
        look_due(connections, slot, now);
    } else if record.has_protocol() {
        connections.callback(slot, Callback::Timeout);
        IdleWatch::of(&mut connections.streams).begin(slot);
    } else if record.flags.is(Phase::Flushing) {
        connections.end_now(slot, Closed::Purged);
    } else {
        streams.leave(slot, false);
    }
}

/// Looks at a connection that waits for its peer: to say something, or, where it is closed, to read what is left.
fn look_due(connections: &mut Connections, slot: u32, now: Instant) {
    let streams = &mut connections.streams;
    let progress = IdleWatch::of(streams).progress(slot);
    let record = streams.slots.at(slot);
    let (flags, table, is_closed) = (record.flags, record.table, !record.has_protocol());
    let busy = flags.any(Flags::WORKING.union(Flags::PAUSED).union(Flags::HELD)) || flags.is(Phase::Delegating);
    let before = streams.timers.seen(slot).filter(|seen| seen.progress == progress && (is_closed || !busy));
    let seen = before.unwrap_or(Seen { progress, since: now });
    let timeout =
        if is_closed { Some(streams.generations.active_settings().flush) } else { streams.generations.settings(table).idle };
    let Some(timeout) = timeout else { return };
    if now.saturating_duration_since(seen.since) < timeout {
        return streams.timers.look_again(&mut streams.slots, slot, seen, timeout);
    }
    if is_closed || flags.any(Flags::UNSENT) {
        // It had all that time to take its output.
        return connections.end_now(slot, if is_closed { Closed::Purged } else { Closed::Idle });
    }
    streams.io.counters.idle().add(1);
    streams.forget_protocol(slot, Closed::Idle);
    streams.start_closing(slot, Duration::ZERO, false);
}
