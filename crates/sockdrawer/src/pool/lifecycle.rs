//! The begin and the end of a pool.

use super::control::{Control, Core, FromMember, Member, Started};
use super::listeners::ListenerEntry;
use super::members::Members;
use super::supervise;
use crate::clock::deadline;
use crate::config::Config;
use crate::error::Error;
use crate::observe::{Event, Readiness};
use crate::operation::{Drain, Drained};
use crate::sync::{lock, mpsc, wait};
use std::sync::Arc;
use std::time::Instant;

impl<M: Members> Core<M> {
    /// Opens the addresses and starts the members. What was started ends when the rest could not be.
    pub(super) fn begin(self: &Arc<Self>, heard: mpsc::Receiver<FromMember<M::News>>) -> Result<(), Error> {
        let begun = supervise::start(Arc::downgrade(self), heard).and_then(|()| self.start_all());
        begun.inspect_err(|_| {
            std::mem::take(&mut lock(&self.control).listeners.listening).into_iter().for_each(ListenerEntry::put_back);
            self.stop("it could not be started");
        })
    }

    fn start_all(&self) -> Result<(), Error> {
        let mut control = lock(&self.control);
        let config = control.config.clone();
        for listening in config.listened() {
            let entry = M::open(self, &mut control, &[], (&config, listening))?;
            control.listeners.listening.push(entry);
        }
        let (members, started) = self.start_members(&mut control, &config);
        control.put(members);
        started?;
        self.tell(&Event::GenerationStarted(control.generation));
        control.listeners.listening.iter_mut().for_each(|entry| entry.asked.passed_on = None);
        // A pool that takes over accepts nothing before it is opened, and may never be.
        if !control.handing_over {
            self.tell_listening(&control);
        }
        self.rebalance(&mut control);
        Ok(())
    }

    /// Tells at which addresses connections are accepted from now on.
    pub(super) fn tell_listening(&self, control: &Control<M>) {
        for entry in &control.listeners.listening {
            self.tell(&Event::Listening(entry.listener.address.clone()));
        }
    }

    /// Starts those of the members that a configuration asks for which the pool does not have. An error leaves those that were started to the caller.
    pub(super) fn start_members(&self, control: &mut Control<M>, config: &Config) -> (Started<M>, Result<(), Error>) {
        let mut started = Vec::new();
        for index in 0..M::wanted(config) {
            // A wanted member that died is the supervisor's to start.
            let is_had = |member: &Member<M>| member.active || member.running.is_some() || member.absent.is_some();
            if control.members.get(index).is_some_and(is_had) {
                continue;
            }
            let (life, start) = (control.take_number(), M::start(self, control, config, index));
            match M::launch(self, index, life, &start) {
                Ok(running) => started.push((index, self.join(control, index, life, running))),
                Err(error) => return (started, Err(error)),
            }
        }
        (started, Ok(()))
    }

    /// Makes a member one of the pool's.
    pub(super) fn join(&self, control: &mut Control<M>, index: usize, life: u64, running: M::Running) -> Member<M> {
        M::join(control, life, &running);
        let seen = (M::beat(self, index, &running), Instant::now());
        Member { running: Some(running), absent: None, active: true, life, stuck: false, seen }
    }

    /// Ends the pool, in order. What came of the connections is told before the members are waited for.
    pub(super) fn shutdown(&self, how: Drain, reason: &str, tell: impl FnOnce(Drained)) -> Drained {
        {
            let mut control = lock(&self.control);
            while control.readiness == Readiness::Draining {
                // Another thread ends it: what came of that is the answer here too.
                control = wait(&self.stopped, control);
            }
            if matches!(control.readiness, Readiness::Stopped(_)) {
                tell(control.drained);
                return control.drained;
            }
            control.readiness = Readiness::Draining;
            let behind = control.behind.clone();
            drop(control);
            behind.iter().for_each(|behind| behind.shut_down(how));
            self.take_for_good();
        }
        self.tell(&Event::ReadinessChanged(Readiness::Draining));
        self.own.notifier().wait(deadline(Instant::now(), how.notice), || lock(&self.control).stopping);
        let (drained, until) = M::end(self, how);
        lock(&self.control).drained = drained;
        tell(drained);
        self.stop_by(until, reason);
        drained
    }

    /// Stops every member now. Connections that are left end with them.
    pub(crate) fn stop(&self, reason: &str) {
        self.stop_by(Instant::now() + M::STOP_WITHIN, reason);
    }

    /// Stops every member now and waits for them until then.
    fn stop_by(&self, until: Instant, reason: &str) {
        {
            let mut control = lock(&self.control);
            if std::mem::replace(&mut control.stopping, true) {
                return;
            }
            control.readiness = Readiness::Draining;
            control.listeners.take_all();
            self.retirements.stop();
        }
        M::stop(self, until);
        // The supervisor may be the one that stops the pool: then nothing listens.
        let _ = self.reports.send(FromMember::Stop);
        lock(&self.control).readiness = Readiness::Stopped(reason.to_owned());
        self.stopped.notify_all();
    }
}
