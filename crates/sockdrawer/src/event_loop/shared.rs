//! State that the loops of a pool share, and the place where connections run in models in which that is elsewhere.

use super::delegates::Delegates;
use super::endings::Endings;
use super::generation::{Generation, Switch};
use super::inbox::Inbox;
use super::incoming::Incoming;
use super::notifier::Notifier;
use super::worker::Workers;
use super::{Intake, user_code};
use crate::admission::Admission;
use crate::config::Config;
use crate::ipc::shared_counters::{MAX_LOOPS, SharedCounters};
use crate::limit::alarms::Teller;
use crate::limit::limiter::Limiter;
use crate::limit::policy::{Admitted, CurrentPolicy, Policy};
use crate::observe::counters::Counters;
use crate::observe::{ConnectionStatus, Counts};
use crate::observe::{Event, Observer};
use crate::operation::Selector;
use crate::protocol::{LateAdmission, Peer, Side};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, OnceLock, lock};
use crate::sys::{self, System, panics};
use std::any::Any;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// State that the loops of a pool share.
pub(crate) struct Shared {
    pub(crate) system: Arc<dyn System>,
    /// Numbers that the pool's processes share.
    pub(crate) shared_counters: SharedCounters,
    /// Number of this process among several.
    pub(crate) process: Option<usize>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) switch: Switch,
    pub(crate) workers: Arc<Workers>,
    pub(crate) delegates: Arc<Delegates>,
    pub(crate) observer: Mutex<Option<Arc<dyn Observer>>>,
    /// The admission policy in force.
    pub(crate) policy: CurrentPolicy,
    /// The loops that take connections from sockets that are alone at their address.
    pub(crate) roster: Mutex<Vec<Arc<Inbox>>>,
    pub(crate) notifier: Notifier,
    /// Time in ns for which loops that had something to do ask for more before they sleep.
    spin: AtomicU64,
    /// Descriptors of this number and above are left to the rest of the program.
    spared_from: AtomicUsize,
    /// Addresses whose sockets loops still have to empty and give up.
    pub(crate) leaving: AtomicUsize,
    /// Connections that have lost the loop they were in before they had a place to run, and wait for another.
    pub(crate) stranded: Mutex<Vec<Incoming>>,
    /// Place where connections run, in models in which that is not the event loop that accepted them.
    pub(crate) placement: Option<Arc<dyn Placement>>,
    /// Endings that are set when all connections are asked to end: event loops that begin later ask theirs, too.
    pub(crate) ending: OnceLock<Arc<Endings>>,
}

/// State that loops share from their first moment on.
pub(crate) struct Basis {
    pub(crate) system: Arc<dyn System>,
    pub(crate) shared_counters: SharedCounters,
    pub(crate) process: Option<usize>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) delegates: Arc<Delegates>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) placement: Option<Arc<dyn Placement>>,
}

/// Finds each new connection its place to run.
pub(crate) trait Placement: Send + Sync {
    /// Takes the incoming connection away, or gives it back with [`Intake::place_later`] where the system has nothing for it now. Called on the
    /// thread of that loop; the control plane may be waiting for that thread, so it must not wait for the control plane.
    fn place(&self, intake: &mut Intake<'_>, incoming: Incoming);

    /// Returns the inboxes of event loops that run connections it placed.
    fn inboxes(&self) -> Vec<Arc<Inbox>> {
        Vec::new()
    }

    /// Returns the inboxes of event loops that have a connection it placed, with its number; None where it has not arrived there yet.
    fn numbered(&self) -> Vec<(Option<u64>, Arc<Inbox>)> {
        Vec::new()
    }

    /// Returns the selected connections of these event loops, as far as they can be seen from outside.
    fn seen(&self, _flows: &[&Arc<Inbox>], _selector: &Selector) -> Vec<ConnectionStatus> {
        Vec::new()
    }

    /// Returns the number of threads of this process that run, beside the one that asks.
    fn threads(&self) -> usize {
        0
    }

    /// Adds what was counted where connections run, or ran.
    fn add_to(&self, _counts: &mut Counts) {}

    /// Takes the parts of the configuration that it needs: they have changed.
    fn reconfigured(&self, _config: &Config) {}

    /// Places nothing from now on, and tells what runs to stop.
    fn stop(&self) {}
}

impl Shared {
    pub(crate) fn new(on: Basis) -> Arc<Shared> {
        let (policy, panicked) = Policy::new(on.admission, &on.shared_counters, None);
        let shared = Arc::new(Shared {
            system: on.system,
            switch: Switch::new(on.shared_counters.clone(), on.generation),
            shared_counters: on.shared_counters,
            process: on.process,
            limiter: on.limiter,
            workers: on.workers,
            delegates: on.delegates,
            observer: Mutex::new(on.observer),
            policy: CurrentPolicy::new(policy),
            roster: Mutex::new(Vec::new()),
            notifier: Notifier::default(),
            spin: AtomicU64::new(0),
            spared_from: AtomicUsize::new(usize::MAX),
            leaving: AtomicUsize::new(0),
            stranded: Mutex::default(),
            placement: on.placement,
            ending: OnceLock::new(),
        });
        let teller: Weak<dyn Teller> = Arc::downgrade(&(shared.clone() as Arc<dyn Teller>));
        shared.limiter.alarms.tell_by(teller);
        panicked.into_iter().for_each(|message| shared.tell(&Event::AdmissionPanicked { message }));
        shared
    }

    /// Sets another policy, from the next connection on. What was counted stays counted.
    pub(crate) fn set_admission(&self, policy: Arc<dyn Admission>) {
        let before = self.policy.get();
        let (policy, panicked) = Policy::new(policy, &self.shared_counters, Some(&before));
        let same_rate = policy.pace.as_ref().map(|pace| &pace.rate) == before.pace.as_ref().map(|pace| &pace.rate);
        // Among several processes that is for the one that started the others.
        if !same_rate && self.process.is_none() {
            self.shared_counters.pace().store(0, Ordering::SeqCst);
        }
        self.policy.set(policy);
        panics::discard(before);
        panicked.into_iter().for_each(|message| self.tell(&Event::AdmissionPanicked { message }));
    }

    pub(crate) fn set_spin(&self, time: Duration) {
        self.spin.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns how long loops ask for more before they sleep; None: not at all.
    pub(super) fn spin(&self) -> Option<Duration> {
        let time = self.spin.load(Ordering::Relaxed);
        (time > 0).then(|| Duration::from_nanos(time))
    }

    pub(crate) fn set_spare(&self, descriptors: usize) {
        let from = if descriptors == 0 { usize::MAX } else { sys::descriptor_limit().saturating_sub(descriptors) };
        self.spared_from.store(from, Ordering::Relaxed);
    }

    /// Returns the number from which on descriptors are left to the rest of the program. The kernel gives the lowest that is free.
    pub(super) fn spared_from(&self) -> RawFd {
        RawFd::try_from(self.spared_from.load(Ordering::Relaxed)).unwrap_or(RawFd::MAX)
    }

    /// Returns the counters of a loop. In a pool of several processes they are shared, and not lost with the process.
    pub(super) fn counters(&self, index: Option<usize>) -> Counters {
        match (self.process, index) {
            (Some(process), Some(index)) if index < MAX_LOOPS => self.shared_counters.counters(process, index),
            _ => Counters::default(),
        }
    }

    pub(crate) fn tell(&self, event: &Event) {
        if let Some(observer) = lock(&self.observer).clone() {
            user_code::tell(self, || observer.event(event));
        }
    }
}

/// Admits by the policy in force, which has nothing to say of a connection that this side made.
impl LateAdmission for Shared {
    fn admit(&self, peer: &Peer) -> (bool, Box<dyn Any + Send>) {
        let admitted: Admitted = match (peer.side(), peer.listener()) {
            (Side::Accepted, Some(listener)) => self.policy.get().after(listener, peer.remote()),
            _ => (Ok(None), None),
        };
        (admitted.0.is_ok(), Box::new(admitted))
    }
}

impl Teller for Shared {
    fn tell_event(&self, event: &Event) {
        self.tell(event);
    }
}
