//! Supervision: a loop or worker that dies is replaced, a loop that hangs loses its listeners, and a pool in which parts die
//! again and again stops in order and says why.

use super::control::{Control, Core, Report};
use super::restarts::end_in_order;
use crate::error::Error;
use crate::flow::inbox::Letter;
use crate::observe::Event;
use crate::sync::{lock, mpsc};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

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
            Ok(Report::ThreadDied { panic }) => core.thread_died(panic),
            Ok(Report::WorkerDied { panic }) => core.worker_died(&panic),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                core.look_for_stuck_loops();
                core.replace_missing_loops();
            }
        }
    }
}

impl Core {
    fn look_interval(&self) -> Duration {
        (lock(&self.control).config.stuck_after / 5).max(Duration::from_millis(1))
    }

    fn loop_ended(self: &Arc<Core>, index: usize, life: u64, panic: Option<String>) {
        let Some(reason) = panic else { return };
        let mut control = lock(&self.control);
        if control.stopping || control.members[index].life != life {
            return;
        }
        if let Some(dead) = control.members[index].running.take() {
            let mut past = control.past;
            if self.shared.process.is_none() {
                dead.counters.add_to(&mut past);
            }
            control.past = past;
            // It has reported: it ends at once.
            let _ = dead.thread.join();
        }
        // The next holder has nothing: shards are given as if they had moved.
        for place in &mut control.places {
            place.owners.iter_mut().filter(|owner| **owner == Some(index)).for_each(|owner| *owner = None);
        }
        self.rebalance(&mut control);
        let policy = control.config.restarts;
        if !control.restarts.may_restart(policy) {
            drop(control);
            self.drop_stranded();
            return self.give_up(format!("loops died too often, the last of: {reason}"));
        }
        self.replace_loop(&mut control, index);
        self.pass_on_stranded(&control);
        drop(control);
        self.tell(&Event::LoopReplaced { index, reason });
    }

    /// Starts a loop in place of a dead one. Where the system has nothing for it, the others do its work until the next look.
    fn replace_loop(&self, control: &mut Control, index: usize) {
        let active = control.members[index].active;
        let config = control.config.clone();
        let started = self.prepare_loop(index, &config).and_then(|flow| self.start_loop(control, index, flow));
        match started {
            Ok(()) => {
                control.members[index].active = active;
                self.rebalance(control);
            }
            Err(error) => self.tell(&Event::LoopNotStarted { reason: error.to_string() }),
        }
    }

    fn replace_missing_loops(&self) {
        let mut control = lock(&self.control);
        for index in 0..control.members.len() {
            if control.members[index].running.is_none() && !control.stopping {
                self.replace_loop(&mut control, index);
            }
        }
        self.pass_on_stranded(&control);
    }

    /// Connections whose loop died before they had a place go to one that runs.
    fn pass_on_stranded(&self, control: &Control) {
        let inbox = control.members.iter().find(|member| member.running.is_some() && member.active).map(|member| &member.inbox);
        let stranded = std::mem::take(&mut *lock(&self.shared.stranded));
        for letter in stranded.into_iter().map(Letter::Adopt) {
            let left = match inbox {
                Some(inbox) => inbox.put(letter),
                None => Err(letter),
            };
            if let Err(Letter::Adopt(parcel)) = left {
                lock(&self.shared.stranded).push(parcel);
            }
        }
    }

    /// The same where no loop comes any more.
    pub(super) fn drop_stranded(&self) {
        let stranded = std::mem::take(&mut *lock(&self.shared.stranded));
        lock(&self.control).past.closed += stranded.len() as u64;
    }

    /// The next connection gets another.
    fn thread_died(self: &Arc<Core>, reason: String) {
        let mut control = lock(&self.control);
        let policy = control.config.restarts;
        let may_go_on = control.stopping || control.restarts.may_restart(policy);
        drop(control);
        if may_go_on {
            self.tell(&Event::ThreadDied { reason });
        } else {
            self.give_up(format!("threads died too often, the last of: {reason}"));
        }
    }

    fn worker_died(self: &Arc<Core>, reason: &str) {
        let mut control = lock(&self.control);
        if control.stopping {
            return;
        }
        let policy = control.config.restarts;
        if !control.restarts.may_restart(policy) {
            drop(control);
            return self.give_up(format!("workers died too often, the last of: {reason}"));
        }
        // Under the lock: nobody changes what is wanted meanwhile. What the system has no thread for is tried at the next death
        // or change; the queue is served by the others.
        let started = self.start_workers(control.config.workers);
        drop(control);
        if started.is_ok() {
            self.tell(&Event::WorkerReplaced { reason: reason.to_owned() });
        }
    }

    fn give_up(self: &Arc<Core>, reason: String) {
        self.tell(&Event::GaveUp { reason: reason.clone() });
        end_in_order(self.clone(), reason);
    }

    fn look_for_stuck_loops(&self) {
        let mut control = lock(&self.control);
        let (now, patience) = (Instant::now(), control.config.stuck_after);
        let mut events = Vec::new();
        let doors: Vec<_> = control.places.iter().map(|place| place.door.clone()).collect();
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
            // A runtime that is busy with other tasks turns its flow only when there is something for it.
            member.inbox.wake();
            let since = now - member.seen.1;
            if since >= patience && !member.stuck {
                member.stuck = true;
                // Permits it was given go round among the others.
                // When it turns again it asks for permits anew.
                let _ = member.inbox.put(Letter::Order(Box::new(|flow| flow.policy_changed())));
                for waiter in &member.waiters {
                    self.shared.gate.stop_waiting(waiter);
                    doors.iter().for_each(|door| door.gate.stop_waiting(waiter));
                    while let Some(permit) = waiter.claim() {
                        drop(permit);
                    }
                }
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
