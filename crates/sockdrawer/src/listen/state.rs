//! What the loops know of one address beside its sockets: its limit, its connections, and whether it is open. It lives as long as the
//! address, or the last connection that came in there.

use crate::admission::Reject;
use crate::ipc::operations::Accepts;
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::{Limiter, Process};
use crate::net::Address;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// Whether connections are taken, of a pool or of one of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum AcceptState {
    #[default]
    Open,
    /// They wait in the kernel.
    Suspended,
    /// They are accepted and turned away.
    Refusing(Reject),
}

impl AcceptState {
    /// Returns what the next process is told of it. None: connections are taken.
    pub(crate) fn told(&self) -> Option<Accepts> {
        Some(match self {
            AcceptState::Open => return None,
            AcceptState::Suspended => Accepts::default(),
            AcceptState::Refusing(Reject::Fin) => Accepts { refuses: true, ..Accepts::default() },
            AcceptState::Refusing(Reject::Reset) => Accepts { refuses: true, resets: true, says: Vec::new() },
            AcceptState::Refusing(Reject::Bytes(bytes)) => Accepts { refuses: true, resets: false, says: bytes.to_vec() },
        })
    }

    /// Returns what the process before this one did, where it did not take connections.
    pub(crate) fn heard(accepts: Option<&Accepts>) -> Option<AcceptState> {
        Some(match accepts? {
            Accepts { refuses: false, .. } => AcceptState::Suspended,
            Accepts { resets: true, .. } => AcceptState::Refusing(Reject::Reset),
            Accepts { says, .. } if says.is_empty() => AcceptState::Refusing(Reject::Fin),
            Accepts { says, .. } => AcceptState::Refusing(Reject::Bytes(says.as_slice().into())),
        })
    }
}

const OPEN: u8 = 0;
const SUSPENDED: u8 = 1;
const REFUSING: u8 = 2;

/// One address.
pub(crate) struct ListenerState {
    pub(crate) address: Address,
    /// The address that was asked for, where it has layers of its own.
    pub(crate) own: Option<Address>,
    /// Counts those that came in here.
    pub(crate) limiter: Arc<Limiter>,
    mode: AtomicU8,
    reject: Mutex<Reject>,
}

impl ListenerState {
    /// `shared_counters` has the numbers of this listener; a `limit` only where this process sets it.
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

    /// None: no limit.
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

    /// How new connections are turned away; None: they are not.
    pub(crate) fn refuses(&self) -> Option<Reject> {
        self.is_refusing().then(|| lock(&self.reject).clone())
    }
}
