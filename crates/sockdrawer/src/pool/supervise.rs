//! Supervision: a member that dies is replaced, the sockets of one that does not turn go to others, and a pool in which parts die
//! again and again ends in order and says why.

use super::control::{Control, Core, FromMember, Member};
use super::manager::Manager;
use super::members::Members;
use super::restarts::PendingRestart;
use crate::clock::deadline;
use crate::config::Part;
use crate::error::Error;
use crate::observe::Event;
use crate::operation::Drain;
use crate::sync::{lock, mpsc};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A pool that gave up lets its connections end by themselves for this long.
const LAST_DRAIN: Duration = Duration::from_secs(30);

/// A member that is to be started: its index and life, what it begins with, and why it is absent; None: it was not wanted for a while.
type Due<M> = (usize, u64, <M as Members>::Start, Option<PendingRestart>);

/// Starts the pool's supervisor. It ends with the pool.
pub(super) fn start<M: Members>(core: Weak<Core<M>>, reports: mpsc::Receiver<FromMember<M::News>>) -> Result<(), Error> {
    let supervisor = std::thread::Builder::new().name("sockdrawer-super".to_owned());
    let started = supervisor.spawn(move || supervise(&core, &reports));
    started.map(|_| ()).map_err(|source| Error::System { what: "start the supervisor's thread", source })
}

fn supervise<M: Members>(core: &Weak<Core<M>>, reports: &mpsc::Receiver<FromMember<M::News>>) {
    let mut looked = Instant::now();
    loop {
        let Some((look, due)) = core.upgrade().map(|core| core.next_times(looked)) else { return };
        let until = due.map_or(look, |due| due.min(look));
        let heard = reports.recv_timeout(until.saturating_duration_since(Instant::now()));
        let Some(core) = core.upgrade() else { return };
        match heard {
            Ok(FromMember::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(FromMember::Ended { index, life, reason }) => core.member_ended(index, life, &reason),
            Ok(FromMember::News(news)) => M::hear(&core, news),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        // Looks are made also while there is always something to hear.
        let now = Instant::now();
        if now >= look {
            core.look();
            looked = now;
        }
        if now >= until {
            core.replace_missing();
        }
    }
}

impl<M: Members> Core<M> {
    /// Returns when all members are looked at next, and when the first of those is due that are to be replaced later.
    pub(super) fn next_times(&self, looked: Instant) -> (Instant, Option<Instant>) {
        let control = lock(&self.control);
        let look = deadline(looked, M::look_interval(&control.config));
        if control.is_over() {
            return (look, None);
        }
        // The restart of a member that is not wanted any more is due when it is wanted again.
        let missing = control.members.iter().filter(|member| member.active && member.running.is_none());
        let restarts = missing.filter_map(|member| member.absent.as_ref()).chain(&control.workers_absent);
        (look, restarts.map(|restart| restart.until).min())
    }

    pub(super) fn member_ended(self: &Arc<Self>, index: usize, life: u64, reason: &str) {
        let mut control = lock(&self.control);
        // A member that was started for a change that did not come about is none of the pool's.
        let known = control.members.get(index).is_some_and(|member| member.life == life);
        let (events, was_wanted) = M::ended(self, &mut control, index, life);
        let over = !known || control.is_over();
        if !over {
            // The next holder has nothing: sockets are given as if they had moved.
            for owners in control.listeners.all_mut().flat_map(|entry| &mut entry.owners) {
                owners.retain(|owner| *owner != index);
            }
            self.rebalance(&mut control);
        }
        let active = !over && control.members[index].active;
        drop(control);
        events.iter().for_each(|event| self.tell(event));
        self.own.notifier().notify();
        if over {
            return;
        }
        if active && !was_wanted {
            let restart = self.next_restart().map(|pause| PendingRestart::after(pause, reason));
            self.put_off(index, restart, || format!("{} died too often, the last of: {reason}", parts(M::PART)));
        } else if !was_wanted {
            // The member only ran the connections that it had: others accept in its place already.
            self.tell(&replaced(M::PART, index, reason.to_owned()));
        }
        self.replace_missing();
    }

    /// Has a member started later; None: never, it died too often, and the pool ends in order.
    fn put_off(self: &Arc<Self>, index: usize, restart: Option<PendingRestart>, why: impl FnOnce() -> String) {
        let gave_up = restart.is_none();
        // A change may have started it meanwhile, or done without it.
        if let Some(member) = lock(&self.control).members.get_mut(index).filter(|member| member.running.is_none()) {
            member.absent = Some(restart.unwrap_or_else(PendingRestart::never));
        }
        if gave_up {
            M::gave_up(self);
            self.give_up(why());
        }
    }

    /// Takes a member that is to be started by now: one that died and is due, or that was not wanted for a while.
    fn take_due(&self) -> Option<Due<M>> {
        let mut control = lock(&self.control);
        if control.is_over() {
            return None;
        }
        let now = Instant::now();
        let is_due = |member: &Member<M>| member.absent.as_ref().is_none_or(|restart| restart.until <= now);
        let index = control.members.iter().position(|member| member.active && member.running.is_none() && is_due(member))?;
        let restart = control.members[index].absent.take();
        let (config, life) = (control.config.clone(), control.take_number());
        Some((index, life, M::start(self, &control, &config, index), restart))
    }

    /// Replaces what died, or could not be started, and is due.
    pub(super) fn replace_missing(self: &Arc<Self>) {
        while let Some((index, life, start, restart)) = self.take_due() {
            // Without the lock: it calls the service, and may take its time.
            match M::launch(self, index, life, &start) {
                Ok(running) => self.launched((index, life, start, restart), running),
                Err(error) => self.not_started(index, restart, &error),
            }
        }
        M::replace_others(self);
    }

    fn launched(&self, (index, life, start, restart): Due<M>, running: M::Running) {
        let mut control = lock(&self.control);
        let is_missing = |member: &Member<M>| member.active && member.running.is_none();
        if control.is_over() || !M::is_current(&control, &start) || !control.members.get(index).is_some_and(is_missing) {
            // A change came meanwhile: if it is wanted still, it begins once more, with what is in force now.
            if let Some(member) = control.members.get_mut(index) {
                member.absent = restart;
            }
            return M::dismiss(&running);
        }
        let member = self.join(&mut control, index, life, running);
        control.members[index] = member;
        self.rebalance(&mut control);
        // A member that was not wanted for a while did not die.
        control.restarts.in_all += restart.as_ref().map_or(0, |restart| restart.parts);
        drop(control);
        if let Some(PendingRestart { reason, .. }) = restart {
            self.tell(&replaced(M::PART, index, reason));
        }
    }

    /// Counts a start that failed as much as a death. Until it is tried again the others do its work.
    fn not_started(self: &Arc<Self>, index: usize, restart: Option<PendingRestart>, error: &Error) {
        let reason = error.to_string();
        self.tell(&match M::PART {
            Part::Process => Event::ProcessNotStarted { reason },
            _ => Event::LoopNotStarted { reason },
        });
        let restart = restart.unwrap_or_else(|| PendingRestart::since_now("it could not be started"));
        let later = self.next_restart().map(|pause| restart.put_off(pause));
        self.put_off(index, later, || format!("a {} could not be started, the last time because: {error}", M::PART));
    }

    pub(super) fn give_up(self: &Arc<Self>, reason: String) {
        self.tell(&Event::GaveUp { reason: reason.clone() });
        end_in_order(self.clone(), reason);
    }

    pub(super) fn look(&self) {
        let mut control = lock(&self.control);
        if control.is_over() {
            return;
        }
        let events = self.look_for_stuck(&mut control);
        // First, because what follows may wait for a member. Also what was not taken when it was offered.
        self.rebalance(&mut control);
        M::look(self, &mut control);
        while control.members.last().is_some_and(|member| member.running.is_none() && !member.active) {
            control.members.pop();
        }
        // A member that was called before it was stuck has not looked.
        self.own.limiter().call();
        control.listeners.all().for_each(|entry| entry.state.limiter.call());
        drop(control);
        events.iter().for_each(|event| self.tell(event));
    }

    /// Looks for members that do not turn: they accept nothing, and what waits at their sockets is for the others.
    fn look_for_stuck(&self, control: &mut Control<M>) -> Vec<Event> {
        let (now, patience) = (Instant::now(), M::patience(&control.config));
        let mut events = Vec::new();
        for (index, member) in control.members.iter_mut().enumerate() {
            let Some(running) = &member.running else { continue };
            let beat = M::beat(self, index, running);
            if beat.is_none() || beat != member.seen.0 {
                member.seen = (beat, now);
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
        // Nothing is told of a process that is stopped: its loops are not the pool's to name.
        if M::PART == Part::Process {
            events.clear();
        }
        events
    }
}

fn replaced(part: Part, index: usize, reason: String) -> Event {
    match part {
        Part::Process => Event::ProcessReplaced { index, reason },
        _ => Event::LoopReplaced { index, reason },
    }
}

fn parts(part: Part) -> &'static str {
    if part == Part::Process { "processes" } else { "loops" }
}

impl<M: Members> Core<M> {
    /// Returns the pause before a part that died, or could not be started, is replaced; None where there were too many.
    pub(super) fn next_restart(&self) -> Option<Duration> {
        let mut control = lock(&self.control);
        let restarts = control.config.restarts;
        control.restarts.next(restarts, Instant::now())
    }
}

/// Ends a pool in order, on a thread of its own: what is left of it is supervised meanwhile.
pub(super) fn end_in_order(manager: Arc<dyn Manager>, reason: String) {
    let (ending, why) = (manager.clone(), reason.clone());
    let end = move || {
        ending.shutdown(Drain::within(LAST_DRAIN), &why);
    };
    if std::thread::Builder::new().name("sockdrawer-end".to_owned()).spawn(end).is_err() {
        // There is not even a thread: the pool is stopped without patience.
        manager.stop(&reason);
    }
}
