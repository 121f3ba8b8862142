//! Supervision of processes: one that dies is replaced, its permits come back, its sockets go to its successor.

use super::link::{Ended, Listener};
use super::manager::{Control, Processes};
use super::wire::{Reply, Request};
use crate::error::Error;
use crate::flow::joint::MOST_PROCESSES;
use crate::observe::{Event, Readiness};
use crate::pool::drain::Drain;
use crate::pool::manager::Manager;
use crate::sync::atomic::Ordering;
use crate::sync::{lock, mpsc};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A pool that gave up lets its connections end by themselves for this long.
const LAST_DRAIN: Duration = Duration::from_secs(30);
/// How often processes are looked at that have said nothing.
const LOOK: Duration = Duration::from_millis(500);

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
    loop {
        let heard = reports.recv_timeout(LOOK);
        let Some(pool) = pool.upgrade() else { return };
        match heard {
            Ok(Report::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(Report::Ended { index, life, how }) => pool.process_ended(index, life, how),
            Ok(Report::GenerationEnded { generation, life }) => pool.generation_ended(generation, life),
            Ok(Report::Event(event)) => pool.tell(&event),
            Err(mpsc::RecvTimeoutError::Timeout) => pool.look(),
        }
    }
}

impl Processes {
    fn process_ended(self: &Arc<Processes>, index: usize, life: u64, how: Ended) {
        let mut control = lock(&self.control);
        // It held permits, and a part of each of its generations.
        let known = control.members.get(index).is_some_and(|member| member.life == life);
        if known {
            self.joint.reclaim(index);
            control.members[index].link = None;
            self.gate.give();
        }
        self.forget_holder(&mut control, life);
        if control.stopping || !known || control.readiness == Readiness::Draining {
            drop(control);
            return self.news.ring();
        }
        for owners in control.places.iter_mut().flat_map(|place| &mut place.owners) {
            owners.retain(|owner| *owner != index);
        }
        if !control.members[index].active {
            drop(control);
            return self.news.ring();
        }
        self.rebalance(&mut control);
        if !may_restart(&mut control) {
            drop(control);
            return self.give_up(format!("processes died too often, the last of: {how}"));
        }
        let replaced = self.replace(&mut control, index);
        drop(control);
        self.tell(&match replaced {
            Ok(()) => Event::ProcessReplaced { index, reason: how.to_string() },
            Err(error) => Event::ProcessNotStarted { reason: error.to_string() },
        });
    }

    fn replace(&self, control: &mut Control, index: usize) -> Result<(), Error> {
        let config = control.config.clone();
        let member = self.start_member(control, &config, index)?;
        control.members[index] = member;
        self.rebalance(control);
        Ok(())
    }

    fn generation_ended(&self, generation: u32, life: u64) {
        let mut control = lock(&self.control);
        let newest = control.generated.id;
        let Some(holders) = control.holders.get_mut(&generation) else { return };
        holders.remove(&life);
        if holders.is_empty() && generation != newest {
            control.holders.remove(&generation);
            drop(control);
            self.tell(&Event::GenerationEnded(generation));
        }
    }

    fn forget_holder(&self, control: &mut Control, life: u64) {
        let newest = control.generated.id;
        control.holders.values_mut().for_each(|holders| _ = holders.remove(&life));
        let ended: Vec<u32> =
            control.holders.iter().filter(|(id, holders)| **id != newest && holders.is_empty()).map(|(id, _)| *id).collect();
        for id in ended {
            control.holders.remove(&id);
            self.tell(&Event::GenerationEnded(id));
        }
    }

    /// Replaces processes that could not be started, ends those that are not wanted and have no connection left, and takes back
    /// what was given to a process that died in that moment.
    fn look(self: &Arc<Processes>) {
        let mut control = lock(&self.control);
        if control.stopping || control.readiness == Readiness::Draining {
            return;
        }
        for index in 0..control.members.len() {
            let (active, link) = (control.members[index].active, control.members[index].link.clone());
            match link {
                None if active => match self.replace(&mut control, index) {
                    Ok(()) => {}
                    Err(error) => self.tell(&Event::ProcessNotStarted { reason: error.to_string() }),
                },
                Some(link) if !active && self.joint.held(index).load(Ordering::SeqCst) == 0 => end(&link),
                _ => {}
            }
        }
        while control.members.last().is_some_and(|member| member.link.is_none() && !member.active) {
            control.members.pop();
        }
        for index in control.members.len()..MOST_PROCESSES {
            self.joint.reclaim(index);
        }
    }

    /// Ends the pool in order, on a thread of its own: what is left of it is supervised meanwhile.
    fn give_up(self: &Arc<Processes>, reason: String) {
        self.tell(&Event::GaveUp { reason: reason.clone() });
        let pool = self.clone();
        let ending = {
            let reason = reason.clone();
            move || {
                pool.shutdown(Drain::within(LAST_DRAIN), &reason);
            }
        };
        if std::thread::Builder::new().name("sockdrawer-end".to_owned()).spawn(ending).is_err() {
            // Not even a thread: then without patience.
            self.stop(&reason);
        }
    }
}

/// Ends a process that has nothing more to do.
fn end(link: &super::link::Link) {
    if let Some(Reply::Drained(_)) = link.ask(Request::Shutdown(Drain::within(Duration::ZERO))) {
        link.close();
    }
}

/// Counts a restart; false when there were too many in too short a time.
fn may_restart(control: &mut Control) -> bool {
    let (now, policy) = (Instant::now(), control.config.restarts);
    control.restarts.retain(|at| now.duration_since(*at) < policy.within);
    if control.restarts.len() >= policy.most {
        return false;
    }
    control.restarts.push_back(now);
    control.restarts_in_all += 1;
    true
}
