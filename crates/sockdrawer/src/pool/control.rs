//! What a pool is made of, whatever its members are, and what is changed of it under one lock.

use super::change::is_running;
use super::listeners::Listeners;
use super::members::Members;
use super::restarts::{History, PendingRestart};
use super::retire::{Keeper, Retirements};
use super::supervise::{self, Report};
use crate::clock::deadline;
use crate::config::{Config, Revision};
use crate::error::Error;
use crate::listen::state::AcceptState;
use crate::net::Address;
use crate::observe::{Counts, Event, Readiness, Status};
use crate::operation::{Drain, Drained};
use crate::sync::{Condvar, Mutex, lock, mpsc, wait};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// One pool.
pub(crate) struct Core<M: Members> {
    /// What the members share.
    pub(crate) own: M,
    pub(crate) control: Mutex<Control<M>>,
    /// Told when the pool has stopped.
    pub(crate) stopped: Condvar,
    /// To the supervisor.
    pub(crate) reports: mpsc::Sender<Report<M::News>>,
    pub(super) retirements: Arc<Retirements>,
}

/// What is changed under one lock.
pub(crate) struct Control<M: Members> {
    pub(crate) config: Config,
    pub(crate) revision: Revision,
    pub(crate) readiness: Readiness,
    /// What the members do, whatever is said of it.
    pub(crate) accept_state: AcceptState,
    /// The number of the generation in force.
    pub(crate) generation: u32,
    pub(crate) listeners: Listeners,
    pub(crate) members: Vec<Member<M>>,
    pub(crate) restarts: History,
    /// Parts that are no members are missing until then.
    pub(crate) workers_absent: Option<PendingRestart>,
    /// The next member's or address's: one that takes the place of another is another.
    pub(crate) next_number: u64,
    /// The members are being stopped, or have been.
    pub(crate) stopping: bool,
    /// What came of the connections of a pool that was shut down.
    pub(crate) drained: Drained,
    pub(crate) own: M::State,
}

/// One of those that run connections.
pub(crate) struct Member<M: Members> {
    /// None: it ended and was not replaced yet, or is not wanted any more.
    pub(crate) running: Option<M::Running>,
    /// ... and will not be before that.
    pub(crate) absent: Option<PendingRestart>,
    /// Whether it takes new connections; else it only runs those it has.
    pub(crate) active: bool,
    /// Distinguishes it from the one it replaced.
    pub(crate) life: u64,
    pub(crate) stuck: bool,
    /// Its beat when it was last well, and when that was.
    pub(crate) seen: (Option<u64>, Instant),
}

/// Members that a change has started, by their indexes.
pub(super) type Started<M> = Vec<(usize, Member<M>)>;

impl<M: Members> Control<M> {
    pub(super) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Makes started members the pool's.
    pub(super) fn put(&mut self, started: Started<M>) {
        for (index, member) in started {
            match self.members.get_mut(index) {
                Some(missing) => *missing = member,
                None => self.members.push(member),
            }
        }
    }

    /// Those that run, also those that take no new connections.
    pub(super) fn running(&self) -> impl Iterator<Item = &M::Running> {
        self.members.iter().filter_map(|member| member.running.as_ref())
    }

    /// Whether no member is replaced any more.
    pub(super) fn is_over(&self) -> bool {
        self.stopping || (self.readiness == Readiness::Draining && !M::REPLACED_WHILE_DRAINING)
    }
}

impl<M: Members> Core<M> {
    /// A pool that has no address and no member yet, and what its supervisor is to hear.
    pub(super) fn new(
        own: impl FnOnce(&mpsc::Sender<Report<M::News>>) -> M,
        config: Config,
        generation: u32,
        state: M::State,
    ) -> (Arc<Core<M>>, mpsc::Receiver<Report<M::News>>) {
        let (reports, heard) = mpsc::channel();
        let retirements = Arc::new(Retirements::new(config.system.clone()));
        let control = Control {
            config,
            revision: Revision::first(),
            readiness: Readiness::Serving,
            accept_state: AcceptState::Open,
            generation,
            listeners: Listeners::default(),
            members: Vec::new(),
            restarts: History::default(),
            workers_absent: None,
            next_number: 1,
            stopping: false,
            drained: Drained::default(),
            own: state,
        };
        let own = own(&reports);
        let core = Arc::new(Core { own, control: Mutex::new(control), stopped: Condvar::new(), reports, retirements });
        let keeper: Weak<dyn Keeper> = Arc::<Core<M>>::downgrade(&core);
        core.retirements.belong_to(keeper);
        (core, heard)
    }

    /// Opens the addresses and starts the members. What was started ends when the rest could not be.
    pub(super) fn begin(self: &Arc<Self>, heard: mpsc::Receiver<Report<M::News>>) -> Result<(), Error> {
        let begun = supervise::start(Arc::downgrade(self), heard).and_then(|()| self.start_all());
        begun.inspect_err(|_| self.stop("it could not be started"))
    }

    fn start_all(&self) -> Result<(), Error> {
        let mut control = lock(&self.control);
        let config = control.config.clone();
        for listening in config.listeners() {
            let entry = M::open(self, &mut control, &[], (&config, listening))?;
            control.listeners.listening.push(entry);
        }
        let (members, started) = self.start_members(&mut control, &config);
        control.put(members);
        started?;
        self.tell(&Event::GenerationStarted(control.generation));
        for entry in &control.listeners.listening {
            self.tell(&Event::Listening(entry.listener.address.clone()));
        }
        self.rebalance(&mut control);
        Ok(())
    }

    /// Starts those of the members that a configuration asks for which the pool does not have. An error leaves those that were started to the caller.
    pub(super) fn start_members(&self, control: &mut Control<M>, config: &Config) -> (Started<M>, Result<(), Error>) {
        let mut started = Vec::new();
        for index in 0..M::wanted(config) {
            // One that died, or could not be started, comes back when the policy says.
            if control.members.get(index).is_some_and(|member| member.running.is_some() || member.absent.is_some()) {
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

    /// It is one of the pool's from now on.
    pub(super) fn join(&self, control: &mut Control<M>, index: usize, life: u64, running: M::Running) -> Member<M> {
        M::join(control, life, &running);
        let seen = (M::beat(self, index, &running), Instant::now());
        Member { running: Some(running), absent: None, active: true, life, stuck: false, seen }
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.own.tell(event);
    }

    pub(super) fn config(&self) -> Config {
        let control = lock(&self.control);
        Config { based_on: Some(control.revision.stamp()), ..control.config.clone() }
    }

    /// What every pool says of itself. The rest is added by what the members are.
    pub(super) fn common_status(&self, control: &Control<M>) -> Status {
        let (system, backlog) = (&**self.own.system(), control.config.backlog());
        let listeners = control.listeners.listening.iter();
        Status {
            readiness: control.readiness.clone(),
            revision: control.revision.number(),
            generation: control.generation,
            connections: self.own.limiter().taken(),
            limit: self.own.limiter().limit(),
            listeners: listeners.map(|entry| entry.listener.status(system, &entry.state, backlog)).collect(),
            retiring: self.retirements.under_way(),
            restarts: control.restarts.in_all,
            generations: Vec::new(),
            processes: Vec::new(),
            signalled: Vec::new(),
            loops: Vec::new(),
            threads: 0,
            workers: 0,
            jobs_waiting: 0,
            delegates: 0,
            delegates_waiting: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn set_accept_state(&self, accept_state: &AcceptState) {
        let mut control = lock(&self.control);
        if is_running(&control.readiness).is_err() || control.accept_state == *accept_state {
            return;
        }
        let (before, now) = (control.readiness.clone(), readiness(accept_state));
        control.accept_state = accept_state.clone();
        // Who looks must not see it ready when a listener stops, nor before one goes on.
        if *accept_state != AcceptState::Open {
            control.readiness = now.clone();
            self.tell(&Event::ReadinessChanged(now));
            return M::pass_accept_state(self, &mut control);
        }
        M::pass_accept_state(self, &mut control);
        control.readiness = now.clone();
        if before != now {
            self.tell(&Event::ReadinessChanged(now));
        }
    }

    pub(super) fn set_listener_accept_state(&self, address: &Address, accept_state: &AcceptState) -> Result<(), Error> {
        let control = lock(&self.control);
        let entry = control.listeners.find(address)?;
        entry.state.set_accept_state(accept_state);
        M::pass_listener_accept_state(self, &control, entry, accept_state);
        Ok(())
    }

    /// The end of a pool, in order. What came of the connections is told before the members are waited for.
    pub(super) fn shutdown(&self, how: Drain, reason: &str, tell: impl FnOnce(Drained)) -> Drained {
        {
            let mut control = lock(&self.control);
            while control.readiness == Readiness::Draining {
                // Another ends it: what came of that is the answer here too.
                control = wait(&self.stopped, control);
            }
            if matches!(control.readiness, Readiness::Stopped(_)) {
                tell(control.drained);
                return control.drained;
            }
            control.readiness = Readiness::Draining;
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

    /// The same; members are waited for until then.
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
        let _ = self.reports.send(Report::Stop);
        lock(&self.control).readiness = Readiness::Stopped(reason.to_owned());
        self.stopped.notify_all();
    }
}

/// What is said of a pool that takes connections, or does not.
fn readiness(accept_state: &AcceptState) -> Readiness {
    match accept_state {
        AcceptState::Open => Readiness::Serving,
        AcceptState::Suspended => Readiness::Suspended,
        AcceptState::Refusing(_) => Readiness::Refusing,
    }
}
