//! Jobs: what a protocol asked workers to do, and what came of it.

use super::Connections;
use crate::behaviour::Callback;
use crate::event_loop::slot::Flags;
use crate::event_loop::worker::{QueuedJob, Submitted};
use crate::observe::Event;
use crate::protocol::{Job, JobError, JobResult};
use crate::sys::panics;

impl Connections {
    pub(super) fn work(&mut self, slot: u32, job: Job) {
        if self.slots.at(slot).flags.any(Flags::WORKING) {
            return self.crash(slot, "a protocol asked for a second job while one runs");
        }
        self.slots.at(slot).flags.set(Flags::WORKING.union(Flags::WORKED));
        let token = self.slots.token(slot);
        match self.io.shared.workers.submit(QueuedJob { job, token, inbox: self.io.inbox.clone() }) {
            Submitted::Queued => self.io.counters.jobs().add(1),
            Submitted::NoWorkers(task) => {
                self.io.counters.jobs().add(1);
                self.io.inbox.done(token, task.job.run());
            }
            Submitted::QueueFull(task) => {
                panics::discard(task.job);
                self.io.counters.jobs_refused().add(1);
                self.io.inbox.done(token, JobResult::refused(JobError::QueueFull));
            }
        }
    }

    pub(in crate::event_loop) fn job_done(&mut self, token: u64, mut result: JobResult) {
        if let Some(payload) = result.take_panic() {
            let message = panics::message(payload);
            self.io.counters.job_panics().add(1);
            self.io.tell_some(&Event::JobPanicked { message });
        }
        let Some(slot) = self.slots.find(token) else {
            panics::discard(result);
            return drop(self.orphans.remove(&token));
        };
        let record = self.slots.at(slot);
        if !record.has_protocol() {
            record.flags.clear(Flags::WORKING);
            panics::discard(result);
            return;
        }
        // Held until the callback, so that it resumes; then the job is over.
        let answer = self.dispatch(slot, Callback::JobDone(&mut Some(result)));
        self.slots.at(slot).flags.clear(Flags::WORKING);
        self.follow(slot, answer, true);
        self.settle(slot, false);
    }
}
