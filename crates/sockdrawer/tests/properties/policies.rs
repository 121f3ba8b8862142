//! Admission policies, all of which let in as many as there is room for, and turn away or hold the others alike.

use sockdrawer::{
    Config,
    admission::{
        AcceptRate, AcceptRequest, Admission, AfterAccept, BeforeAccept, Capacity, Limits, NewPeer, OnFull, PerPeer, Prefixes,
        Reject,
    },
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Bytes for a client that is turned away for want of room; `CLOSED` is for one that comes where nobody is let in.
const FULL: &[u8] = b"full";
pub(crate) const CLOSED: &[u8] = b"closed";

/// Number that is more than any case has, and a rate that is faster than it comes.
const PLENTY: usize = 1_000_000;

/// Policy above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Wait,
    Fin,
    Bytes,
}

/// Origin of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Limits,
    /// Limits that count peers, too.
    PerPeer,
    /// Limits that count connections in a second, too.
    Rate,
    /// A policy of this program.
    Own,
}

impl Policy {
    pub(crate) fn on_full(self) -> OnFull {
        match self {
            Policy::Wait => OnFull::Backpressure,
            Policy::Fin => OnFull::Reject(Reject::Fin),
            Policy::Bytes => OnFull::Reject(Reject::Bytes(FULL.into())),
        }
    }

    /// Returns the bytes that a client reads that is turned away.
    pub(crate) fn farewell(self) -> &'static [u8] {
        if self == Policy::Bytes { FULL } else { b"" }
    }
}

impl By {
    /// A configuration with this policy. One of this program says in `of_peer` how many others of its peer each connection found.
    pub(crate) fn admit(self, config: Config, on_full: OnFull, of_peer: &Arc<AtomicUsize>) -> Config {
        let limits = Limits::default().on_full(on_full.clone());
        match self {
            By::Limits => config.admission(limits),
            By::PerPeer => config.admission(limits.per_peer(PerPeer::address(PLENTY))),
            By::Rate => config.admission(limits.rate(AcceptRate::new(PLENTY as f64, 1000))),
            By::Own => config.admission(Own { on_full, of_peer: of_peer.clone() }),
        }
    }
}

struct Own {
    on_full: OnFull,
    of_peer: Arc<AtomicUsize>,
}

impl Admission for Own {
    fn before(&self, request: &AcceptRequest<'_>) -> BeforeAccept {
        match (request.capacity, &self.on_full) {
            (Capacity::Free, _) => BeforeAccept::Accept,
            (_, OnFull::Backpressure) => BeforeAccept::Wait,
            (_, OnFull::Reject(reject)) => BeforeAccept::Reject(reject.clone()),
        }
    }

    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        self.of_peer.store(peer.peer_connections.expect("peers are counted, and have addresses"), SeqCst);
        AfterAccept::Keep
    }

    fn peers(&self) -> Option<Prefixes> {
        Some(Prefixes::ADDRESS)
    }
}
