//! The admission policy as a loop asks it: guarded, and not at all where its answer is known.

use crate::admission::{AcceptRequest, Admission, AfterAccept, BeforeAccept, Limits, NewPeer, Reject};
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::pacer::Pace;
use crate::limit::peer_counts::{PeerCount, PeerCounts};
use crate::net::Address;
use crate::observe::counters::RejectReason;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::panics;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A policy and what the pool keeps for it.
pub(crate) struct Policy {
    /// The policy. None: it is being dropped.
    policy: Option<Arc<dyn Admission>>,
    /// The limits of the policy, where it is data.
    limits: Option<Limits>,
    pub(crate) pace: Option<Pace>,
    pub(crate) peer_counts: Option<Arc<PeerCounts>>,
}

/// The count of a connection that stays, if peers are counted; or how it is turned away.
pub(crate) type Entered = Result<Option<Box<PeerCount>>, (Reject, RejectReason)>;

/// A policy's panic, with its message. The default policy has answered.
pub(crate) type Panicked = Option<String>;

/// The answer of a policy after an accept.
pub(crate) type Admitted = (Entered, Panicked);

impl Policy {
    /// Keeps what those before it counted, where the policy asks for the same.
    pub(crate) fn new(
        policy: Arc<dyn Admission>,
        shared_counters: &SharedCounters,
        before: Option<&Policy>,
    ) -> (Policy, Panicked) {
        let (asked, panicked) = guarded(|| (policy.limits().cloned(), policy.peers()), || (None, None));
        let (limits, prefixes) = asked;
        let rate = limits.as_ref().and_then(|limits| limits.rate.clone());
        let known = before.and_then(|before| before.peer_counts.clone());
        let peer_counts = prefixes
            .map(|prefixes| known.filter(|known| known.prefixes == prefixes).unwrap_or_else(|| PeerCounts::new(prefixes)));
        (
            Policy { policy: Some(policy), limits, pace: rate.map(|rate| Pace::new(shared_counters.clone(), rate)), peer_counts },
            panicked,
        )
    }

    fn policy(&self) -> &dyn Admission {
        &**self.policy.as_ref().expect("only Drop takes it")
    }

    /// Returns true where it wants to be asked also where there is room.
    pub(crate) fn asks_before(&self) -> bool {
        self.limits.is_none() || self.pace.is_some()
    }

    pub(crate) fn asks_after(&self) -> bool {
        self.limits.is_none() || self.peer_counts.is_some()
    }

    pub(crate) fn before(&self, request: &AcceptRequest<'_>) -> (BeforeAccept, Panicked) {
        match &self.limits {
            Some(limits) => (limits.before(request), None),
            None => guarded(|| self.policy().before(request), || Limits::default().before(request)),
        }
    }

    /// Returns whether an accepted connection stays, and how it is counted then.
    pub(crate) fn after(&self, listener: &Address, peer: Option<SocketAddr>) -> Admitted {
        let per_peer = self.limits.as_ref().and_then(|limits| limits.per_peer.as_ref());
        let most = per_peer.map_or(usize::MAX, |per_peer| per_peer.max);
        let entered = match (&self.peer_counts, peer) {
            (Some(peer_counts), Some(peer)) => Some(peer_counts.enter(peer.ip(), most)),
            _ => None,
        };
        let (peer_count, others) = match entered {
            Some(Ok((peer_count, others))) => (Some(peer_count), Some(others)),
            Some(Err(_)) => {
                let reject = per_peer.map_or(Reject::Fin, |per_peer| per_peer.reject.clone());
                return (Err((reject, RejectReason::PerPeer)), None);
            }
            None => (None, None),
        };
        if self.limits.is_some() {
            return (Ok(peer_count), None);
        }
        let peer = NewPeer::new(listener, peer, others);
        let (after, panicked) = guarded(|| self.policy().after(&peer), || AfterAccept::Keep);
        match after {
            AfterAccept::Keep => (Ok(peer_count), panicked),
            AfterAccept::Reject(reject) => (Err((reject, RejectReason::Policy)), panicked),
        }
    }
}

/// The last that has a policy may be a loop, and its end is user code too.
impl Drop for Policy {
    fn drop(&mut self) {
        panics::discard(self.policy.take());
    }
}

/// Has user code answer; in case of a panic the default answers.
fn guarded<T>(ask: impl FnOnce() -> T, default: impl FnOnce() -> T) -> (T, Panicked) {
    match catch_unwind(AssertUnwindSafe(ask)) {
        Ok(answer) => (answer, None),
        Err(payload) => (default(), Some(panics::message(payload))),
    }
}

/// The policy in force. Loops compare a number, and look closer only when it is another.
pub(crate) struct CurrentPolicy {
    policy: Mutex<Arc<Policy>>,
    version: AtomicU64,
}

impl CurrentPolicy {
    pub(crate) fn new(policy: Policy) -> CurrentPolicy {
        CurrentPolicy { policy: Mutex::new(Arc::new(policy)), version: AtomicU64::new(1) }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> Arc<Policy> {
        lock(&self.policy).clone()
    }

    /// Sets the policy. The one before is the user's, and is dropped without the lock.
    pub(crate) fn set(&self, policy: Policy) {
        let before = std::mem::replace(&mut *lock(&self.policy), Arc::new(policy));
        self.version.fetch_add(1, Ordering::SeqCst);
        panics::discard(before);
    }
}
