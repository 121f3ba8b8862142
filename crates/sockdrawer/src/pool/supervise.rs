//! Supervision: a loop or worker that dies is replaced, a loop that hangs loses its listeners, and a pool in which parts die
//! again and again stops in order and says why.

use super::control::{Control, Core, Report};
use super::drain::Drain;
use crate::error::Error;
use crate::observe::{Event, Readiness};
use crate::sync::{lock, mpsc};
use std::sync::Weak;
use std::time::{Duration, Instant};

/// A pool that gave up lets its connections end by themselves for this long.
const LAST_DRAIN: Duration = Duration::from_secs(30);

/// Starts the pool's supervisor. It ends with the pool.
pub(super) fn start(core: Weak<Core>, reports: mpsc::Receiver<Report>) -> Result<(), Error> {
    let supervisor = std::thread::Builder::new().name("sockdrawer-super".to_owned());
    let started = supervisor.spawn(move || supervise(&core, &reports));
    started.map(|_| ()).map_err(|source| Error::System { what: "start the supervisor's thread", source })
}

fn supervise(core: &Weak<Core>, reports: &mpsc::Receiver<Report>) {
    loop {
        let Some(pause) = core.upgrade().map(|core| core.look_interval()) else { return };
        let heard = reports.recv_timeout(pause);
        let Some(core) = core.upgrade() else { return };
        match heard {
            Ok(Report::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(Report::LoopEnded { index, life, panic }) => core.loop_ended(index, life, panic),
            Ok(Report::WorkerDied { panic }) => core.worker_died(&panic),
            Err(mpsc::RecvTimeoutError::Timeout) => core.look_for_stuck_loops(),
        }
    }
}

impl Core {
    fn look_interval(&self) -> Duration {
        (lock(&self.control).config.stuck_after / 5).max(Duration::from_millis(1))
    }

    fn loop_ended(&self, index: usize, life: u64, panic: Option<String>) {
        let Some(reason) = panic else { return };
        let mut control = lock(&self.control);
        if matches!(control.readiness, Readiness::Stopped(_)) || control.members[index].life != life {
            return;
        }
        if let Some(dead) = control.members[index].running.take() {
            let mut past = control.past;
            dead.counters.add_to(&mut past);
            control.past = past;
            // It has reported: it ends at once.
            let _ = dead.thread.join();
        }
        if !self.may_restart(&mut control) {
            drop(control);
            return self.give_up(format!("loops died too often, the last of: {reason}"));
        }
        let active = control.members[index].active;
        match self.prepare_loop(index, &control.config.clone()).and_then(|flow| self.start_loop(&mut control, index, flow)) {
            Ok(()) => {
                control.members[index].active = active;
                // The new loop has nothing: it is given its shards as if they had moved.
                for place in &mut control.places {
                    for owner in place.owners.iter_mut().filter(|owner| **owner == Some(index)) {
                        *owner = None;
                    }
                }
                self.rebalance(&mut control);
                drop(control);
                self.tell(&Event::LoopReplaced { index, reason });
            }
            Err(error) => {
                drop(control);
                self.give_up(format!("a dead loop could not be replaced: {error}"));
            }
        }
    }

    fn worker_died(&self, reason: &str) {
        let (allowed, wanted) = {
            let mut control = lock(&self.control);
            if matches!(control.readiness, Readiness::Stopped(_)) {
                return;
            }
            (self.may_restart(&mut control), control.config.workers)
        };
        if !allowed {
            return self.give_up(format!("workers died too often, the last of: {reason}"));
        }
        match self.start_workers(wanted) {
            Ok(()) => self.tell(&Event::WorkerReplaced { reason: reason.to_owned() }),
            Err(error) => self.give_up(format!("a dead worker could not be replaced: {error}")),
        }
    }

    /// Counts a restart; false when there were too many in too short a time.
    fn may_restart(&self, control: &mut Control) -> bool {
        let (now, policy) = (Instant::now(), control.config.restarts);
        control.restarts.retain(|at| now.duration_since(*at) < policy.within);
        if control.restarts.len() >= policy.most {
            return false;
        }
        control.restarts.push_back(now);
        control.restarts_in_all += 1;
        true
    }

    /// Ends the pool in order, from the supervisor's own thread.
    fn give_up(&self, reason: String) {
        self.tell(&Event::GaveUp { reason: reason.clone() });
        self.shutdown(Drain::within(LAST_DRAIN), &reason);
    }

    fn look_for_stuck_loops(&self) {
        let mut control = lock(&self.control);
        let (now, patience) = (Instant::now(), control.config.stuck_after);
        let mut events = Vec::new();
        for (index, member) in control.members.iter_mut().enumerate() {
            let Some(running) = &member.running else { continue };
            let turn = running.pulse.turn();
            if turn.is_none() || turn != member.seen.0 {
                member.seen = (turn, now);
                if std::mem::take(&mut member.stuck) {
                    events.push(Event::LoopRecovered { index });
                }
                continue;
            }
            let since = now - member.seen.1;
            if since >= patience && !member.stuck {
                member.stuck = true;
                events.push(Event::LoopStuck { index, since });
            }
        }
        if !events.is_empty() {
            self.rebalance(&mut control);
        }
        drop(control);
        events.iter().for_each(|event| self.tell(event));
    }
}
