//! The state of a pool, whatever its members are, and the part of it that changes under one lock.

use super::behind::Behind;
use super::listeners::{Inherited, Listeners};
use super::members::Members;
use super::restarts::{History, PendingRestart};
use super::retire::{Keeper, Retirements};
use crate::admission::AcceptState;
use crate::config::{Config, Revision};
use crate::error::Error;
use crate::observe::{Counts, Event, Readiness, Status};
use crate::operation::Drained;
use crate::sync::{Condvar, Mutex, mpsc};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Messages to the supervisor.
pub(crate) enum FromMember<N> {
    /// A member ended; also one that was dismissed, where only the pool can tell the difference.
    Ended {
        index: usize,
        life: u64,
        reason: String,
    },
    /// News that only members of this kind tell.
    News(N),
    Stop,
}

/// A pool.
pub(crate) struct Core<M: Members> {
    /// Data that the members share.
    pub(crate) own: M,
    pub(crate) control: Mutex<Control<M>>,
    /// The condition that the pool has stopped.
    pub(crate) stopped: Condvar,
    /// The way to the supervisor.
    pub(crate) reports: mpsc::Sender<FromMember<M::News>>,
    pub(super) retirements: Arc<Retirements>,
}

/// The state of a pool that changes under one lock.
pub(crate) struct Control<M: Members> {
    pub(crate) config: Config,
    pub(crate) revision: Revision,
    pub(crate) readiness: Readiness,
    /// The state that the members are in, also where another one is asked for meanwhile.
    pub(crate) accept_state: AcceptState,
    /// The state asked for while the pool is handed over: members get it once that is over.
    pub(crate) accepts_then: Option<AcceptState>,
    /// The number of the generation in force.
    pub(crate) generation: u32,
    pub(crate) listeners: Listeners,
    pub(crate) members: Vec<Member<M>>,
    pub(crate) restarts: History,
    /// Parts that are no members are missing until then.
    pub(crate) workers_absent: Option<PendingRestart>,
    /// The number of the next member or address. No number is used again: a replacement differs from the one that it replaces.
    pub(crate) next_number: u64,
    /// Another process takes over, or this one from another: what they told each other of this pool is not changed meanwhile.
    pub(crate) handing_over: bool,
    /// The connections that stayed in the process before this one, of a pool that took over from it.
    pub(crate) behind: Option<Arc<dyn Behind>>,
    /// Counts of the processes that this one has replaced.
    pub(crate) predecessors: Counts,
    /// The members are being stopped, or have been.
    pub(crate) stopping: bool,
    /// The result for the connections of a pool that was shut down.
    pub(crate) drained: Drained,
    pub(crate) own: M::State,
}

/// A member: it runs connections of the pool.
pub(crate) struct Member<M: Members> {
    /// None: the member ended and was not replaced yet, or is not wanted any more.
    pub(crate) running: Option<M::Running>,
    /// The restart that is due, of a member that ended: it is not replaced earlier.
    pub(crate) absent: Option<PendingRestart>,
    /// The member takes new connections. Otherwise it only runs those it has.
    pub(crate) active: bool,
    /// Distinguishes it from the one it replaced.
    pub(crate) life: u64,
    pub(crate) stuck: bool,
    /// Beat of the member when it was last well, and when that was.
    pub(crate) seen: (Option<u64>, Instant),
}

/// Members that a change has started, by their indexes.
pub(super) type Started<M> = Vec<(usize, Member<M>)>;

impl<M: Members> Control<M> {
    pub(super) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Takes the listening sockets of a process that this one replaces: the pool takes no connection until it is told to.
    pub(super) fn inherit(&mut self, inherited: Option<Inherited>) {
        if let Some(inherited) = inherited {
            self.listeners.inherited = inherited;
            (self.accept_state, self.readiness) = (AcceptState::Suspended, Readiness::Suspended);
            self.handing_over = true;
        }
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

    /// Returns the members that run, also those that take no new connections.
    pub(super) fn running(&self) -> impl Iterator<Item = &M::Running> {
        self.members.iter().filter_map(|member| member.running.as_ref())
    }

    /// Returns true where no member is replaced any more.
    pub(super) fn is_over(&self) -> bool {
        self.stopping || (self.readiness == Readiness::Draining && !M::REPLACED_WHILE_DRAINING)
    }
}

impl<M: Members> Core<M> {
    /// Returns a pool that has no address and no member yet, and what its supervisor is to hear.
    pub(super) fn new(
        own: impl FnOnce(&mpsc::Sender<FromMember<M::News>>) -> M,
        config: Config,
        generation: u32,
        state: M::State,
    ) -> (Arc<Core<M>>, mpsc::Receiver<FromMember<M::News>>) {
        let (reports, heard) = mpsc::channel();
        let retirements = Arc::new(Retirements::new(config.system.clone()));
        let control = Control {
            config,
            revision: Revision::first(),
            readiness: Readiness::Serving,
            accept_state: AcceptState::Open,
            accepts_then: None,
            generation,
            listeners: Listeners::default(),
            members: Vec::new(),
            restarts: History::default(),
            workers_absent: None,
            next_number: 1,
            handing_over: false,
            behind: None,
            predecessors: Counts::default(),
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

    pub(crate) fn tell(&self, event: &Event) {
        self.own.tell(event);
    }

    /// Returns the part of the status that every pool has. The rest is added by each kind of members.
    pub(super) fn common_status(&self, control: &Control<M>) -> Status {
        let (system, backlog) = (&**self.own.system(), control.config.accept_queue());
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
}

/// Fails unless the pool runs: a pool that ends is not changed.
pub(super) fn is_running(readiness: &Readiness) -> Result<(), Error> {
    match readiness {
        Readiness::Serving | Readiness::Suspended | Readiness::Refusing => Ok(()),
        Readiness::Draining => Err(Error::Stopped { reason: "it is draining".to_owned() }),
        Readiness::Stopped(reason) => Err(Error::Stopped { reason: reason.clone() }),
    }
}
