//! Jobs that protocols give to workers.

use super::Streams;
use crate::event_loop::slot::Flags;
use crate::event_loop::worker::{QueuedJob, Submitted};
use crate::protocol::{Job, JobError, JobResult};
use crate::sys::panics;

/// Gives a job to the workers, or does it here where there are none.
pub(in crate::event_loop) fn begin(streams: &mut Streams, slot: u32, job: Job) {
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
