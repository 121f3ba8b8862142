//! Replacing what is no loop: workers, threads of connections, and connections that lost the loop they were on their way through.

use super::Loops;
use crate::event_loop::inbox::Message;
use crate::observe::Event;
use crate::pool::control::{Control, Core};
use crate::pool::restarts::PendingRestart;
use crate::sync::lock;
use std::sync::Arc;
use std::time::Instant;

impl Core<Loops> {
    /// Starts the workers that are missing and due.
    pub(super) fn replace_workers(self: &Arc<Self>) {
        let mut control = lock(&self.control);
        if control.stopping {
            return;
        }
        let now = Instant::now();
        let Some(restart) = control.workers_absent.take_if(|restart| restart.until <= now) else { return };
        // Under the lock: no change of what is wanted comes meanwhile. Until the system has a thread the queue is served by the others.
        match self.start_workers(control.config.workers) {
            Ok(()) => {
                control.restarts.in_all += restart.parts;
                drop(control);
                self.tell(&Event::WorkerReplaced { reason: restart.reason });
            }
            Err(error) => {
                drop(control);
                match self.next_restart() {
                    Some(pause) => lock(&self.control).workers_absent = Some(restart.put_off(pause)),
                    None => self.give_up(format!("a worker could not be started, the last time because: {error}")),
                }
            }
        }
    }

    /// Passes connections whose loop died before they had a place to one that runs.
    pub(super) fn pass_on_stranded(&self, control: &Control<Loops>) {
        let active = control.members.iter().filter(|member| member.active && !control.stopping);
        let inbox = active.filter_map(|member| member.running.as_ref()).map(|running| &running.inbox).next();
        let stranded = std::mem::take(&mut *lock(&self.own.shared.stranded));
        for message in stranded.into_iter().map(Message::Adopt) {
            let left = match inbox {
                Some(inbox) => inbox.put(message),
                None => Err(message),
            };
            if let Err(Message::Adopt(incoming)) = left {
                lock(&self.own.shared.stranded).push(incoming);
            }
        }
    }

    /// Drops stranded connections, because no loop is started any more.
    pub(super) fn drop_stranded(&self) {
        let stranded = std::mem::take(&mut *lock(&self.own.shared.stranded));
        lock(&self.control).own.past.closed += stranded.len() as u64;
    }

    /// Counts a thread that died: the next connection gets another.
    pub(super) fn thread_died(self: &Arc<Self>, reason: String) {
        let stopping = lock(&self.control).stopping;
        if !stopping && self.next_restart().is_none() {
            return self.give_up(format!("threads died too often, the last of: {reason}"));
        }
        lock(&self.control).restarts.in_all += usize::from(!stopping);
        self.tell(&Event::ThreadDied { reason });
    }

    pub(super) fn worker_died(self: &Arc<Self>, reason: &str) {
        if lock(&self.control).stopping {
            return;
        }
        let Some(pause) = self.next_restart() else {
            return self.give_up(format!("workers died too often, the last of: {reason}"));
        };
        let mut restart = PendingRestart::after(pause, reason);
        let mut control = lock(&self.control);
        // Missing workers come back together, when the first is due.
        if let Some(others) = control.workers_absent.take() {
            restart = PendingRestart { until: others.until.min(restart.until), parts: others.parts + 1, ..restart };
        }
        control.workers_absent = Some(restart);
        drop(control);
        self.replace_missing();
    }
}
