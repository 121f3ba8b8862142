//! Replacing what is no loop: workers, threads of connections, and connections that lost the loop they were on their way through.

use super::Loops;
use crate::event_loop::inbox::Message;
use crate::observe::Event;
use crate::pool::control::{Control, Core};
use crate::pool::restarts::PendingRestart;
use crate::sync::lock;
use std::sync::Arc;
use std::time::Instant;

/// Starts the workers that are missing and due.
pub(super) fn replace_workers(core: &Arc<Core<Loops>>) {
    let mut control = lock(&core.control);
    if control.stopping {
        return;
    }
    let now = Instant::now();
    let Some(restart) = control.workers_absent.take_if(|restart| restart.until <= now) else { return };
    // Under the lock: no change of what is wanted comes meanwhile. Until the system has a thread the queue is served by the others.
    match super::start_workers(core, control.config.workers) {
        Ok(()) => {
            control.restarts.in_all += restart.parts;
            drop(control);
            core.tell(&Event::WorkerReplaced { reason: restart.reason });
        }
        Err(error) => {
            drop(control);
            match core.next_restart() {
                Some(pause) => lock(&core.control).workers_absent = Some(restart.put_off(pause)),
                None => core.give_up(format!("a worker could not be started, the last time because: {error}")),
            }
        }
    }
}

/// Passes connections whose loop died before they had a place to one that runs.
pub(super) fn pass_on_stranded(core: &Core<Loops>, control: &Control<Loops>) {
    let active = control.members.iter().filter(|member| member.active && !control.stopping);
    let inbox = active.filter_map(|member| member.running.as_ref()).map(|running| &running.inbox).next();
    let stranded = std::mem::take(&mut *lock(&core.own.shared.stranded));
    for message in stranded.into_iter().map(Message::Adopt) {
        let left = match inbox {
            Some(inbox) => inbox.put(message),
            None => Err(message),
        };
        if let Err(Message::Adopt(incoming)) = left {
            lock(&core.own.shared.stranded).push(incoming);
        }
    }
}

/// Drops stranded connections, because no loop is started any more.
pub(super) fn drop_stranded(core: &Core<Loops>) {
    let stranded = std::mem::take(&mut *lock(&core.own.shared.stranded));
    lock(&core.control).own.past.closed += stranded.len() as u64;
}

/// Counts a thread that died: the next connection gets another.
pub(super) fn thread_died(core: &Arc<Core<Loops>>, reason: String) {
    let stopping = lock(&core.control).stopping;
    if !stopping && core.next_restart().is_none() {
        return core.give_up(format!("threads died too often, the last of: {reason}"));
    }
    lock(&core.control).restarts.in_all += usize::from(!stopping);
    core.tell(&Event::ThreadDied { reason });
}

pub(super) fn worker_died(core: &Arc<Core<Loops>>, reason: &str) {
    if lock(&core.control).stopping {
        return;
    }
    let Some(pause) = core.next_restart() else {
        return core.give_up(format!("workers died too often, the last of: {reason}"));
    };
    let mut restart = PendingRestart::after(pause, reason);
    let mut control = lock(&core.control);
    // Missing workers come back together, when the first is due.
    if let Some(others) = control.workers_absent.take() {
        restart = PendingRestart { until: others.until.min(restart.until), parts: others.parts + 1, ..restart };
    }
    control.workers_absent = Some(restart);
    drop(control);
    core.replace_missing();
}
