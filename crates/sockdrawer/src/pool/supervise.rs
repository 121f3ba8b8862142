//! Supervision: a loop or worker that dies is replaced, a loop that hangs loses its listeners, and a pool in which parts die
//! again and again stops in order and says why.

use super::control::{Control, Core, Member, Report};
use super::restarts::{Absence, History, Restarting, end_in_order};
use crate::clock::deadline;
use crate::config::{Config, Part, Replace, RestartPolicy};
use crate::error::Error;
use crate::event_loop::inbox::Message;
use crate::observe::Event;
use crate::sync::atomic::Ordering;
use crate::sync::{lock, mpsc};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The longest time between two looks at the loops.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

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
        (lock(&self.control).config.stuck_after / 5).clamp(Duration::from_millis(1), LONGEST_LOOK)
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

    /// A loop that is due to be replaced.
    fn take_due(&self) -> Option<(usize, Absence, Config)> {
        let mut control = lock(&self.control);
        if control.stopping {
            return None;
        }
        let now = Instant::now();
        let mut members = control.members.iter_mut().enumerate();
        let (index, absence) =
            members.find_map(|(index, member)| Some((index, member.absent.take_if(|absence| absence.until <= now)?)))?;
        Some((index, absence, control.config.clone()))
    }

    /// Starts a loop in place of a dead one. Without the lock of changes: to start one calls the service. Where it cannot be started,
    /// the others do its work until the policy has it tried again.
    fn replace_loop(self: &Arc<Core>, index: usize, absence: Absence, config: &Config) {
        let launched = self.prepare_loop(index, config).and_then(|event_loop| self.launch_loop(config.model, index, event_loop));
        let member = match launched {
            Ok(member) => member,
            Err(error) => {
                self.tell(&Event::LoopNotStarted { reason: error.to_string() });
                return match self.decide_again(Part::Loop, Some(index), absence, &error) {
                    Some(absence) => lock(&self.control).members[index].absent = Some(absence),
                    None => {
                        self.drop_stranded();
                        self.give_up(format!("a loop could not be started, the last time because: {error}"));
                    }
                };
            }
        };
        let mut control = lock(&self.control);
        if control.stopping {
            return Core::dismiss_loops(&[member]);
        }
        // A change may have come meanwhile.
        member.inbox.set_bound(control.config.inbox);
        let _ = member.inbox.put(Message::Command(Box::new(|event_loop| event_loop.look_at_switch())));
        let active = control.members[index].active;
        control.members[index] = Member { active, ..member };
        self.rebalance(&mut control);
        self.pass_on_stranded(&control);
        control.restarts.in_all += absence.parts;
        drop(control);
        self.tell(&Event::LoopReplaced { index, reason: absence.reason });
    }

    /// Replaces what died and is due.
    fn replace_missing(self: &Arc<Core>) {
        while let Some((index, absence, config)) = self.take_due() {
            self.replace_loop(index, absence, &config);
        }
        let mut control = lock(&self.control);
        if control.stopping {
            return;
        }
        self.pass_on_stranded(&control);
        let now = Instant::now();
        let Some(absence) = control.workers_absent.take_if(|absence| absence.until <= now) else { return };
        // Under the lock: nobody changes what is wanted meanwhile. Until the system has a thread the queue is served by the others.
        match self.start_workers(control.config.workers) {
            Ok(()) => {
                control.restarts.in_all += absence.parts;
                drop(control);
                self.tell(&Event::WorkerReplaced { reason: absence.reason });
            }
            Err(error) => {
                drop(control);
                match self.decide_again(Part::Worker, None, absence, &error) {
                    Some(absence) => lock(&self.control).workers_absent = Some(absence),
                    None => self.give_up(format!("a worker could not be started, the last time because: {error}")),
                }
            }
        }
    }

    /// Connections whose loop died before they had a place go to one that runs.
    fn pass_on_stranded(&self, control: &Control) {
        let inbox = control.members.iter().find(|member| member.running.is_some() && member.active).map(|member| &member.inbox);
        let stranded = std::mem::take(&mut *lock(&self.shared.stranded));
        for message in stranded.into_iter().map(Message::Adopt) {
            let left = match inbox {
                Some(inbox) => inbox.put(message),
                None => Err(message),
            };
            if let Err(Message::Adopt(incoming)) = left {
                lock(&self.shared.stranded).push(incoming);
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
            // A runtime that is busy with other tasks turns its event loop only when there is something for it.
            member.inbox.wake();
            let since = now - member.seen.1;
            if since >= patience && !member.stuck {
                member.stuck = true;
                events.push(Event::LoopStuck { index, since });
            }
        }
        if !events.is_empty() {
            self.rebalance(&mut control);
        }
        let turns = control.members.iter().any(|member| member.running.is_some() && !member.stuck);
        // A loop that was called before it was stuck has not looked.
        self.shared.limiter.call();
        control.places.all().for_each(|place| place.door.limiter.call());
        drop(control);
        events.iter().for_each(|event| self.tell(event));
        if let Some(process) = self.shared.process {
            self.shared.shared_counters.beats(process).fetch_add(u64::from(turns), Ordering::Relaxed);
        }
    }
}
