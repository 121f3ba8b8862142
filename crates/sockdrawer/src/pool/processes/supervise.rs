//! Supervision of processes: one that dies is replaced, its permits come back, its sockets go to its successor.

use super::change::Announced;
use super::link::{Ended, Link, Listener};
use super::manager::{Control, Member, Processes};
use super::recount::{Finding, Recount};
use super::wire::{Reply, Request};
use crate::config::{Model, Part, RestartPolicy};
use crate::error::Error;
use crate::event_loop::shared_counters::SharedCounters;
use crate::observe::{Event, Readiness};
use crate::pool::restarts::{Absence, History, Restarting, end_in_order};
use crate::sync::atomic::Ordering;
use crate::sync::{lock, mpsc};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often processes are looked at that have said nothing.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// The least time without a beat after which a process is taken to be stopped: it beats each second.
const SILENT_AFTER: Duration = Duration::from_secs(2);

/// What the supervisor hears.
pub(super) enum Report {
    Ended {
        index: usize,
        life: u64,
        how: Ended,
    },
    /// A helper has no connection left of a retired generation.
    GenerationEnded {
        generation: u32,
        life: u64,
    },
    Event(Event),
    Stop,
}

/// Hears one helper, on the thread that reads from it.
pub(super) struct Ear {
    reports: mpsc::Sender<Report>,
    index: usize,
    life: u64,
}

impl Ear {
    pub(super) fn new(pool: &Processes, index: usize, life: u64) -> Ear {
        Ear { reports: pool.reports.clone(), index, life }
    }
}

impl Listener for Ear {
    fn event(&self, event: Event) {
        let report = match event {
            Event::GenerationEnded(generation) => Report::GenerationEnded { generation, life: self.life },
            // Whether a helper is ready, and where it listens, is the pool's to say.
            Event::ReadinessChanged(_) | Event::ListenerRemoved(_) => return,
            event => Report::Event(event),
        };
        // The supervisor is gone when the pool is.
        let _ = self.reports.send(report);
    }

    fn ended(&self, how: &Ended) {
        let _ = self.reports.send(Report::Ended { index: self.index, life: self.life, how: *how });
    }
}

/// Starts the pool's supervisor. It ends with the pool.
pub(super) fn start(pool: Weak<Processes>, reports: mpsc::Receiver<Report>) -> Result<(), Error> {
    let supervisor = std::thread::Builder::new().name("sockdrawer-super".to_owned());
    let started = supervisor.spawn(move || supervise(&pool, &reports));
    started.map(|_| ()).map_err(|source| Error::System { what: "start the supervisor's thread", source })
}

fn supervise(pool: &Weak<Processes>, reports: &mpsc::Receiver<Report>) {
    let mut next_look = Instant::now() + LOOK;
    loop {
        let Some(due) = pool.upgrade().map(|pool| pool.next_return()) else { return };
        let until = due.map_or(next_look, |due| due.min(next_look));
        let heard = reports.recv_timeout(until.saturating_duration_since(Instant::now()));
        let Some(pool) = pool.upgrade() else { return };
        match heard {
            Ok(Report::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(Report::Ended { index, life, how }) => pool.process_ended(index, life, how),
            Ok(Report::GenerationEnded { generation, life }) => pool.generation_ended(generation, life),
            Ok(Report::Event(event)) => pool.tell(&event),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        // Also while there is always something to hear.
        if Instant::now() >= until {
            pool.replace_missing();
        }
        if Instant::now() >= next_look {
            pool.look();
            next_look = Instant::now() + LOOK;
        }
    }
}

impl Control {
    /// Returns the generations that nobody has any more without it.
    fn forget_holder(&mut self, life: u64) -> Vec<u32> {
        self.holders.values_mut().for_each(|holders| _ = holders.remove(&life));
        self.take_ended()
    }

    /// Forgets the generations that no process has any more, and returns them.
    pub(super) fn take_ended(&mut self) -> Vec<u32> {
        let newest = self.generated.id;
        self.holders.extract_if(.., |id, holders| *id != newest && holders.is_empty()).map(|(id, _)| id).collect()
    }
}

impl Restarting for Processes {
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

impl Processes {
    fn process_ended(self: &Arc<Processes>, index: usize, life: u64, how: Ended) {
        let mut control = lock(&self.control);
        // It held permits, connections, and a part of each of its generations.
        let known = control.members.get(index).is_some_and(|member| member.life == life);
        let mut dismissed = false;
        if known {
            self.reclaim(&control, index);
            let slots = control.slots;
            control.at_doors.begin(slots);
            control.places.all().for_each(|place| place.door.limiter.call());
            self.limiter.look_at_alarms();
            self.close_lost(index);
            control.recount = Some(Recount::default());
            let link = control.members[index].link.take();
            dismissed = link.is_some_and(|link| link.is_dismissed());
            self.limiter.call();
        }
        let ended = control.forget_holder(life);
        drop(control);
        ended.into_iter().for_each(|id| self.tell(&Event::GenerationEnded(id)));
        let mut control = lock(&self.control);
        if control.stopping || !known || control.readiness == Readiness::Draining {
            drop(control);
            return self.news.ring();
        }
        for owners in control.places.all_mut().flat_map(|place| &mut place.owners) {
            owners.retain(|owner| *owner != index);
        }
        if !control.members[index].active {
            drop(control);
            return self.news.ring();
        }
        self.rebalance(&mut control);
        drop(control);
        if dismissed {
            // A change wants it again since: another is started like one that never was.
            self.replace_missing();
            return self.news.ring();
        }
        let reason = how.to_string();
        let Some(absence) = Absence::decided(self.decide(Part::Process, Some(index), &reason), &reason) else {
            return self.give_up(format!("processes died too often, the last of: {how}"));
        };
        // A change may have done without it meanwhile.
        if let Some(member) = lock(&self.control).members.get_mut(index).filter(|member| member.life == life) {
            member.absent = Some(absence);
        }
        self.replace_missing();
    }

    /// When the first of those is due that are to be replaced later.
    fn next_return(&self) -> Option<Instant> {
        lock(&self.control).members.iter().filter_map(|member| member.absent.as_ref()).map(|absence| absence.until).min()
    }

    /// A process that is to be started by now: one that died and is due, or that was not wanted for a while.
    fn take_due(&self) -> Option<(Announced, usize, Option<Absence>)> {
        let mut control = lock(&self.control);
        if control.stopping || control.readiness == Readiness::Draining {
            return None;
        }
        let now = Instant::now();
        let is_due = |member: &Member| member.absent.as_ref().is_none_or(|absence| absence.until <= now);
        let index = control.members.iter().position(|member| member.active && member.link.is_none() && is_due(member))?;
        let absence = control.members[index].absent.take();
        let config = control.config.clone();
        Some((self.announce(&mut control, &config, index), index, absence))
    }

    /// Replaces processes that died, or could not be started, and are due.
    fn replace_missing(self: &Arc<Processes>) {
        while let Some((announced, index, absence)) = self.take_due() {
            // Without the lock: it may take its time, or never answer.
            match self.launch(&announced) {
                Ok(link) => self.joined(index, &announced, link, absence),
                Err(error) => self.not_started(index, absence, &error),
            }
        }
    }

    fn joined(&self, index: usize, announced: &Announced, link: Arc<Link>, absence: Option<Absence>) {
        let mut control = lock(&self.control);
        let over = control.stopping || control.readiness == Readiness::Draining;
        let is_missing = |member: &Member| member.active && member.link.is_none();
        if over || !announced.is_of(&control) || !control.members.get(index).is_some_and(is_missing) {
            // A change came meanwhile: if it is wanted still, it begins once more, with what is in force now.
            if let Some(member) = control.members.get_mut(index) {
                member.absent = absence;
            }
            return link.dismiss();
        }
        control.members[index] = self.join(&mut control, announced, link);
        self.rebalance(&mut control);
        // One that was not wanted for a while did not die.
        control.restarts.in_all += usize::from(absence.is_some());
        drop(control);
        if let Some(Absence { reason, .. }) = absence {
            self.tell(&Event::ProcessReplaced { index, reason });
        }
    }

    /// As much as a death: the policy says when it is tried again.
    fn not_started(self: &Arc<Processes>, index: usize, absence: Option<Absence>, error: &Error) {
        self.tell(&Event::ProcessNotStarted { reason: error.to_string() });
        let absence = absence.unwrap_or_else(|| Absence::since_now("it could not be started"));
        let later = self.decide_again(Part::Process, Some(index), absence, error);
        let gave_up = later.is_none();
        if let Some(member) = lock(&self.control).members.get_mut(index) {
            member.absent = Some(later.unwrap_or_else(|| Absence::for_good("the policy gave up")));
        }
        if gave_up {
            self.give_up(format!("a process could not be started, the last time because: {error}"));
        }
    }

    fn generation_ended(&self, generation: u32, life: u64) {
        let mut control = lock(&self.control);
        control.holders.entry(generation).and_modify(|holders| _ = holders.remove(&life));
        let ended = control.take_ended();
        drop(control);
        ended.into_iter().for_each(|id| self.tell(&Event::GenerationEnded(id)));
    }

    /// Takes back permits that nobody holds, and places at doors, see [`Recount`].
    fn recount(&self, control: &mut Control) {
        // One that is stopped may be just taking one: those that answer are not.
        let links = control.links();
        let all_answer = || links.iter().all(|link| matches!(link.ask(Request::Status), Some(Reply::Status(_))));
        if let Some(recount) = &mut control.recount
            && found(recount, &self.shared_counters, &all_answer)
        {
            control.recount = None;
            self.limiter.look_at_alarms();
        }
        control.at_doors.look(|slot, recount| found(recount, &self.shared_counters.door(slot), &all_answer));
    }

    /// Ends processes that are not wanted and have no connection left, and looks for permits and sockets that are of no use where they are.
    fn look(self: &Arc<Processes>) {
        let mut control = lock(&self.control);
        if control.stopping || control.readiness == Readiness::Draining {
            return;
        }
        for index in 0..control.members.len() {
            let (active, link) = (control.members[index].active, control.members[index].link.clone());
            match link {
                // It has no socket to accept from, and nothing more to do.
                Some(link) if !active && self.shared_counters.held(index).load(Ordering::SeqCst) == 0 => link.dismiss(),
                _ => {}
            }
        }
        while control.members.last().is_some_and(|member| member.link.is_none() && !member.active) {
            control.members.pop();
        }
        self.look_for_silent(&mut control);
        // What was not taken when it was offered.
        self.rebalance(&mut control);
        self.recount(&mut control);
        // A process that was called before it was stopped has not looked.
        self.limiter.call();
        control.places.all().for_each(|place| place.door.limiter.call());
    }

    /// A process that is stopped, or whose loops are all stuck, accepts nothing: what waits at its sockets is for the others.
    fn look_for_silent(&self, control: &mut Control) {
        if control.config.model != Model::Prefork {
            return;
        }
        let (now, patience) = (Instant::now(), control.config.stuck_after.max(SILENT_AFTER));
        for (index, member) in control.members.iter_mut().enumerate() {
            let beats = self.shared_counters.beats(index).load(Ordering::Relaxed);
            if beats != member.seen.0 || member.link.is_none() {
                member.seen = (beats, now);
            }
            member.silent = now - member.seen.1 >= patience;
        }
    }

    fn give_up(self: &Arc<Processes>, reason: String) {
        self.tell(&Event::GaveUp { reason: reason.clone() });
        end_in_order(self.clone(), reason);
    }
}

/// Whether the numbers of a limiter add up. What is lost for sure is taken back first.
fn found(recount: &mut Recount, shared_counters: &SharedCounters, all_answer: &impl Fn() -> bool) -> bool {
    match recount.look(shared_counters.unaccounted()) {
        Finding::Unclear => false,
        Finding::Whole => true,
        Finding::Lost(lost) => {
            let is_lost = all_answer() && shared_counters.unaccounted() == Some(lost);
            if is_lost {
                shared_counters.taken().fetch_sub(lost, Ordering::SeqCst);
            }
            is_lost
        }
    }
}
