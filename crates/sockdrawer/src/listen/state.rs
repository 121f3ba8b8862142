//! The state of one address that its loops know beside its sockets: its limit, its connections, and whether it is open. It lives as long as the
//! address, or the last connection that came in there.

use crate::admission::{AcceptState, Reject};
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::{Limiter, Process};
use crate::net::Address;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Mutex, lock};
use std::sync::Arc;

const OPEN: u8 = 0;
const SUSPENDED: u8 = 1;
const REFUSING: u8 = 2;

/// The state of an address.
pub(crate) struct ListenerState {
    pub(crate) address: Address,
    /// The address that was asked for, where it has layers of its own.
    pub(crate) own: Option<Address>,
    /// Counts connections that came in here.
    pub(crate) limiter: Arc<Limiter>,
    mode: AtomicU8,
    reject: Mutex<Reject>,
}

impl ListenerState {
    /// Makes the state of a listener. `shared_counters` has its numbers; there is a `limit` only where this process sets it.
    pub(crate) fn new(
        (address, own): (Address, Option<Address>),
        shared_counters: SharedCounters,
        limit: Option<usize>,
        process: Option<Process>,
    ) -> Arc<ListenerState> {
        let limiter = Limiter::shared(shared_counters, limit.unwrap_or(usize::MAX), process);
        Arc::new(ListenerState { address, own, limiter, mode: AtomicU8::new(OPEN), reject: Mutex::new(Reject::Fin) })
    }

    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        self.limiter.set_limit(limit.unwrap_or(usize::MAX));
    }

    /// Returns the limit. None: no limit.
    pub(crate) fn limit(&self) -> Option<usize> {
        Some(self.limiter.limit()).filter(|limit| *limit != usize::MAX)
    }

    pub(crate) fn set_accept_state(&self, accept_state: &AcceptState) {
        let mode = match accept_state {
            AcceptState::Open => OPEN,
            AcceptState::Suspended => SUSPENDED,
            AcceptState::Refusing(reject) => {
                *lock(&self.reject) = reject.clone();
                REFUSING
            }
        };
        self.mode.store(mode, Ordering::SeqCst);
    }

    pub(crate) fn accept_state(&self) -> AcceptState {
        match self.mode.load(Ordering::SeqCst) {
            OPEN => AcceptState::Open,
            SUSPENDED => AcceptState::Suspended,
            _ => AcceptState::Refusing(lock(&self.reject).clone()),
        }
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.mode.load(Ordering::SeqCst) == SUSPENDED
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.mode.load(Ordering::SeqCst) == REFUSING
    }

    /// Returns how new connections are turned away; None: they are not.
    pub(crate) fn refuses(&self) -> Option<Reject> {
        self.is_refusing().then(|| lock(&self.reject).clone())
    }
}
