//! Results of jobs that protocols gave to workers.

use super::Connections;
use crate::behaviour::Callback;
use crate::event_loop::slot::Flags;
use crate::observe::Event;
use crate::protocol::JobResult;
use crate::sys::panics;

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
    // Held until the callback, so that it resumes; then the job is over.
    let answer = connections.dispatch(slot, Callback::JobDone(&mut Some(result)));
    connections.streams.slots.at(slot).flags.clear(Flags::WORKING);
    connections.follow(slot, answer, true);
    connections.streams.settle(slot, false);
}
