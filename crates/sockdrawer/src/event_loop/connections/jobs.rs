//! Jobs: what protocols give to workers, and their results.

use super::Connections;
use crate::behaviour::Callback;
use crate::event_loop::slot::Flags;
use crate::event_loop::streams::Streams;
use crate::event_loop::worker::{QueuedJob, Submitted};
use crate::observe::Event;
use crate::protocol::{Job, JobError, JobResult};
use crate::sys::panics;

/// Gives a job to the workers, or does it here where there are none.
pub(super) fn begin(streams: &mut Streams, slot: u32, job: Job) {
    if streams.slots.at(slot).flags.any(Flags::WORKING) {
        return streams.crash(slot, "a protocol asked for a second job while one runs");
    }
    streams.slots.at(slot).flags.set(Flags::WORKING.union(Flags::WORKED));
    let token = streams.slots.token(slot);
    match streams.io.shared.workers.submit(QueuedJob { job, token, inbox: streams.io.inbox.clone() }) {
        Submitted::Queued => streams.io.counters.jobs().add(1),
        Submitted::NoWorkers(task) => {
            streams.io.counters.jobs().add(1);
            streams.io.inbox.done(token, task.job.run());
        }
        Submitted::QueueFull(task) => {
            panics::discard(task.job);
            streams.io.counters.jobs_refused().add(1);
            streams.io.inbox.done(token, JobResult::refused(JobError::QueueFull));
        }
    }
}

/// Handles the result of a job.
pub(in crate::event_loop) fn done(connections: &mut Connections, token: u64, mut result: JobResult) {
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
