//! Leased connections that come back, and results of jobs. The slot, permit and protocol state stayed here meanwhile.

use super::Connections;
use super::ending::purge;
use crate::behaviour::Callback;
use crate::event_loop::delegation::Delegation;
use crate::event_loop::lease::{GivenBack, LeaseEnd, Returned};
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::Tail;
use crate::observe::Event;
use crate::protocol::{Closed, JobResult, Urgency};
use crate::sys::panics;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Takes back a connection that was leased.
pub(in crate::event_loop) fn came_back(connections: &mut Connections, mut returned: Returned) {
    let streams = &mut connections.streams;
    let (received, sent) = returned.leased.count_bytes(&streams.io.counters);
    let notes = returned.leased.count_notes(&streams.io.counters);
    let found = streams.slots.find(returned.leased.token);
    let (Some(slot), Some(back)) = (found, returned.back.take_if(|_| found.is_some())) else {
        panics::discard(notes);
        panics::discard(returned);
        return streams.descriptor_freed = true;
    };
    let Some(Delegation::Leased { purge_by, watched, .. }) = streams.slots.make_extra(slot).delegation.take() else {
        unreachable!("it was away")
    };
    let GivenBack { socket, kept, unsent, peer_ended, finished, outcome } = back;
    if watched {
        // It fails only for what is not watched.
        let _ = streams.io.system.unwatch(streams.io.epoll.as_fd(), socket.as_fd());
    }
    let record = streams.slots.at(slot);
    // The event loop's own share was dropped with the delegation, and the lessee gave its share back.
    record.socket = Some(Arc::into_inner(socket).expect("the lease gave back the other share"));
    record.flags.enter(Phase::Open);
    if peer_ended {
        record.flags.set(Flags::PEER_ENDED);
    }
    if finished {
        record.flags.set(Flags::ENDING_OUTPUT);
    }
    record.bytes_in += received;
    record.bytes_out += sent;
    let token = returned.leased.token;
    streams.timers.clear(&mut streams.slots, slot);
    streams.kept.keep(&mut streams.slots, slot, &kept);
    if !unsent.is_empty() {
        streams.scratch.push(&unsent);
        if finished { streams.end_output(slot) } else { _ = streams.send(slot, false) }
    }
    if streams.slots.at(slot).is_taken() {
        go_on(connections, slot, outcome);
    } else {
        panics::discard(outcome);
    }
    if connections.moving.asks && returned.leased.is_asked_to_move() {
        let flags = connections.streams.slots.at(slot).flags;
        if flags.is(Phase::Open) && !flags.any(Flags::DRAINING.union(Flags::PURGED)) {
            connections.moving.freeze(&connections.streams.io, &mut connections.streams.slots, slot);
        }
    }
    notes.into_iter().for_each(|note| connections.note(token, note, Urgency::Delivered));
    connections.streams.io.wake_again(&mut connections.streams.slots, token);
    if let Some(by) = purge_by {
        purge(connections, slot, by.saturating_duration_since(Instant::now()));
    }
}

/// Does with a connection that is back as its lessee said.
fn go_on(connections: &mut Connections, slot: u32, outcome: LeaseEnd) {
    match outcome {
        LeaseEnd::Note(note) => {
            connections.streams.io.counters.notes().add(1);
            let answer = connections.dispatch(slot, Callback::Notified(&mut Some(note)));
            connections.follow(slot, answer, true);
            connections.streams.settle(slot, false);
        }
        LeaseEnd::End => connections.streams.close(slot, Tail::Unknown),
        LeaseEnd::Abort => connections.streams.end(slot, Closed::Aborted, true),
        LeaseEnd::Failed => {
            connections.streams.io.counters.errors().add(1);
            connections.streams.close(slot, Tail::Unknown);
        }
        LeaseEnd::Panicked(message) => connections.streams.crash(slot, message),
    }
}

/// Handles the result of a job.
pub(in crate::event_loop) fn job_done(connections: &mut Connections, token: u64, mut result: JobResult) {
    let streams = &mut connections.streams;
    if let Some(payload) = result.take_panic() {
        let message = panics::message(payload);
        streams.io.counters.job_panics().add(1);
        streams.io.tell_some(&Event::JobPanicked { message });
    }
    let Some(slot) = streams.slots.find(token) else {
        panics::discard(result);
        return drop(streams.orphans.remove(&token));
    };
    let record = streams.slots.at(slot);
    if !record.has_protocol() {
        record.flags.clear(Flags::WORKING);
        panics::discard(result);
        return;
    }
    // The flag stays until the callback has returned: input is held that long, and offered again by `follow`.
    let answer = connections.dispatch(slot, Callback::JobDone(&mut Some(result)));
    connections.streams.slots.at(slot).flags.clear(Flags::WORKING);
    connections.follow(slot, answer, true);
    connections.streams.settle(slot, false);
}
