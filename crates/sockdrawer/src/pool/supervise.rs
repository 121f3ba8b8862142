//! Supervision: a loop or worker that dies is replaced, a loop that hangs loses its listeners, and a pool in which parts die
//! again and again stops in order and says why.

use super::control::{Control, Core, Report};
use super::restarts::{Absence, History, Restarting, end_in_order};
use crate::clock::deadline;
use crate::config::{Part, Replace, RestartPolicy};
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
    let mut looked = Instant::now();
    loop {
        let Some((look, due)) = core.upgrade().map(|core| (deadline(looked, core.look_interval()), core.next_return())) else {
            return;
        };
        let until = due.map_or(look, |due| due.min(look));
        let heard = reports.recv_timeout(until.saturating_duration_since(Instant::now()));
        let Some(core) = core.upgrade() else { return };
        match heard {
            Ok(Report::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(Report::LoopEnded { index, life, panic }) => core.loop_ended(index, life, panic),
            Ok(Report::ThreadDied { panic }) => core.thread_died(panic),
            Ok(Report::WorkerDied { panic }) => core.worker_died(&panic),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        // Also while there is always something to hear.
        let now = Instant::now();
        if now >= look {
            core.look_for_stuck_loops();
            looked = now;
        }
        if now >= until {
            core.replace_missing();
        }
    }
}

impl Restarting for Core {
    fn policy(&self) -> Arc<dyn RestartPolicy> {
        lock(&self.control).config.restarts.clone()
    }

    fn history<T>(&self, visit: impl FnOnce(&mut History) -> T) -> T {
        visit(&mut lock(&self.control).restarts)
    }

    fn tell_of(&self, event: &Event) {
        self.tell(event);
    }
}

impl Core {
    fn look_interval(&self) -> Duration {
        (lock(&self.control).config.stuck_after / 5).max(Duration::from_millis(1))
    }

    fn loop_ended(self: &Arc<Core>, index: usize, life: u64, panic: Option<String>) {
        let Some(reason) = panic else { return };
        let mut control = lock(&self.control);
        // One that was launched for a change that did not come about is no member.
        if control.stopping || control.members.get(index).is_none_or(|member| member.life != life) {
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
        for place in control.places.all_mut() {
            place.owners.iter_mut().filter(|owner| **owner == Some(index)).for_each(|owner| *owner = None);
        }
        self.rebalance(&mut control);
        drop(control);
        let Some(absence) = Absence::decided(self.decide(Part::Loop, Some(index), &reason), &reason) else {
            self.drop_stranded();
            return self.give_up(format!("loops died too often, the last of: {reason}"));
        };
        let mut control = lock(&self.control);
        // Somebody may have ended the pool meanwhile.
        if !control.stopping {
            control.members[index].absent = Some(absence);
            self.pass_on_stranded(&control);
        }
        drop(control);
        self.replace_missing();
    }

    /// When the first of those is due that are to be replaced later.
    fn next_return(&self) -> Option<Instant> {
        let control = lock(&self.control);
        let absences = control.members.iter().filter_map(|member| member.absent.as_ref()).chain(&control.workers_absent);
        absences.map(|absence| absence.until).min()
    }

    /// Starts a loop in place of a dead one. Where the system has nothing for it, the others do its work until the next look.
    fn replace_loop(&self, control: &mut Control, index: usize, absence: Absence) -> Event {
        let active = control.members[index].active;
        let config = control.config.clone();
        let started = self.prepare_loop(index, &config).and_then(|flow| self.start_loop(control, index, flow));
        match started {
            Ok(()) => {
                control.members[index].active = active;
                self.rebalance(control);
                control.restarts.in_all += absence.parts;
                Event::LoopReplaced { index, reason: absence.reason }
            }
            Err(error) => {
                control.members[index].absent = Some(absence.prolong(control.config.stuck_after / 5));
                Event::LoopNotStarted { reason: error.to_string() }
            }
        }
    }

    /// Replaces what died and is due.
    fn replace_missing(&self) {
        let mut control = lock(&self.control);
        if control.stopping {
            return;
        }
        let (now, mut events) = (Instant::now(), Vec::new());
        for index in 0..control.members.len() {
            if let Some(absence) = control.members[index].absent.take_if(|absence| absence.until <= now) {
                events.push(self.replace_loop(&mut control, index, absence));
            }
        }
        self.pass_on_stranded(&control);
        if let Some(absence) = control.workers_absent.take_if(|absence| absence.until <= now) {
            // Under the lock: nobody changes what is wanted meanwhile. Until the system has a thread the queue is served by the
            // others.
            match self.start_workers(control.config.workers) {
                Ok(()) => {
                    control.restarts.in_all += absence.parts;
                    events.push(Event::WorkerReplaced { reason: absence.reason });
                }
                Err(_) => control.workers_absent = Some(absence.prolong(control.config.stuck_after / 5)),
            }
        }
        drop(control);
        events.iter().for_each(|event| self.tell(event));
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
        let stopping = lock(&self.control).stopping;
        if !stopping && self.decide(Part::Thread, None, &reason) == Replace::GiveUp {
            return self.give_up(format!("threads died too often, the last of: {reason}"));
        }
        lock(&self.control).restarts.in_all += usize::from(!stopping);
        self.tell(&Event::ThreadDied { reason });
    }

    fn worker_died(self: &Arc<Core>, reason: &str) {
        if lock(&self.control).stopping {
            return;
        }
        let Some(mut absence) = Absence::decided(self.decide(Part::Worker, None, reason), reason) else {
            return self.give_up(format!("workers died too often, the last of: {reason}"));
        };
        let mut control = lock(&self.control);
        // Those that are missing come back together, when the first is due.
        if let Some(others) = control.workers_absent.take() {
            absence = Absence { until: others.until.min(absence.until), parts: others.parts + 1, ..absence };
        }
        control.workers_absent = Some(absence);
        drop(control);
        self.replace_missing();
    }

    fn give_up(self: &Arc<Core>, reason: String) {
        self.tell(&Event::GaveUp { reason: reason.clone() });
        end_in_order(self.clone(), reason);
    }

    fn look_for_stuck_loops(&self) {
        let mut control = lock(&self.control);
        let (now, patience) = (Instant::now(), control.config.stuck_after);
        let mut events = Vec::new();
        let doors: Vec<_> = control.places.listening.iter().map(|place| place.door.clone()).collect();
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
