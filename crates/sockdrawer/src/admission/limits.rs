//! The default policy: limits, as data.

use super::{AcceptRequest, Admission, AfterAccept, BeforeAccept, Capacity, NewPeer, OnFull, Prefixes, Reject};
use std::time::Duration;

/// The default admission policy. The limits of the pool and of its listeners are in [`Config`](crate::Config); `Limits` says what
/// happens at these limits, and bounds the connections per peer and the accept rate. A policy of your own may keep `Limits` and ask them, in
/// [`Admission::before`], [`after`](Admission::after) and [`peers`](Admission::peers); the accept rate is kept where `Limits` are the policy itself.
///
/// ```
/// use sockdrawer::admission::{AcceptRate, Limits, OnFull, PerPeer, Reject};
/// let limits = Limits::default()
///     .on_full(OnFull::Reject(Reject::Fin))
///     .per_peer(PerPeer::address(10))
///     .rate(AcceptRate::new(500.0, 50));
/// # let _ = limits;
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// Treatment of a connection above the limit of the pool or of its listener. Default: [`OnFull::Backpressure`].
    pub on_full: OnFull,
    /// Maximum of connections per peer. Default: none, no maximum.
    pub per_peer: Option<PerPeer>,
    /// Maximum rate at which connections are accepted. Default: none, no maximum.
    pub rate: Option<AcceptRate>,
}

impl Default for Limits {
    /// Connections above a limit wait; connections per peer and the accept rate are not limited.
    fn default() -> Limits {
        Limits { on_full: OnFull::Backpressure, per_peer: None, rate: None }
    }
}

impl Limits {
    /// Sets what happens to connections above a limit.
    #[must_use]
    pub fn on_full(mut self, on_full: OnFull) -> Limits {
        self.on_full = on_full;
        self
    }

    /// Sets the maximum of connections per peer.
    #[must_use]
    pub fn per_peer(mut self, per_peer: PerPeer) -> Limits {
        self.per_peer = Some(per_peer);
        self
    }

    /// Sets the maximum rate at which connections are accepted.
    #[must_use]
    pub fn rate(mut self, rate: AcceptRate) -> Limits {
        self.rate = Some(rate);
        self
    }

    /// Checks the settings. Returns the setting that makes no sense, and the reason.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if let Some(rate) = &self.rate {
            if !rate.per_second.is_finite() || rate.per_second <= 0.0 {
                return Err(("admission.rate", "a rate is above 0 connections a second: leave it out for no limit"));
            }
            if rate.burst == 0 {
                return Err(("admission.rate", "a burst of 0 accepts no connection: use at least 1"));
            }
        }
        match &self.per_peer {
            Some(peer) if peer.max == 0 => {
                Err(("admission.per_peer", "a maximum of 0 connections per peer accepts none: use at least 1"))
            }
            Some(peer) if peer.prefixes.v4 > 32 || peer.prefixes.v6 > 128 => {
                Err(("admission.per_peer", "a prefix is at most 32 bits long for IPv4, and 128 for IPv6"))
            }
            _ => Ok(()),
        }
    }
}

impl Admission for Limits {
    fn before(&self, request: &AcceptRequest<'_>) -> BeforeAccept {
        let above = match request.capacity {
            Capacity::Free => return BeforeAccept::Accept,
            Capacity::PoolFull | Capacity::ListenerFull => &self.on_full,
            Capacity::TooFast => self.rate.as_ref().map_or(&self.on_full, |rate| &rate.on_excess),
        };
        match above {
            OnFull::Backpressure => BeforeAccept::Wait,
            OnFull::Reject(reject) => BeforeAccept::Reject(reject.clone()),
        }
    }

    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        match (&self.per_peer, peer.peer_connections) {
            (Some(per_peer), Some(others)) if others >= per_peer.max => AfterAccept::Reject(per_peer.reject.clone()),
            _ => AfterAccept::Keep,
        }
    }

    fn peers(&self) -> Option<Prefixes> {
        self.per_peer.as_ref().map(|peer| peer.prefixes)
    }

    fn limits(&self) -> Option<&Limits> {
        Some(self)
    }
}

/// Maximum of connections per peer. A connection above it is rejected: it cannot be left in the kernel's queue, where connections of other
/// peers wait behind it. Peers without an address, as on a Unix socket, are not limited.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PerPeer {
    /// Maximum of connections per peer.
    pub max: usize,
    /// The leading bits of the address by which peers are told apart.
    pub prefixes: Prefixes,
    /// Way in which a connection above the maximum is turned away.
    pub reject: Reject,
}

impl PerPeer {
    /// Makes a maximum per address; a connection above it sees an orderly end.
    pub fn address(max: usize) -> PerPeer {
        PerPeer { max, prefixes: Prefixes::ADDRESS, reject: Reject::Fin }
    }

    /// Sets what a connection above the maximum sees.
    #[must_use]
    pub fn reject(mut self, reject: Reject) -> PerPeer {
        self.reject = reject;
        self
    }
}

/// Maximum rate at which the whole pool accepts connections.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct AcceptRate {
    /// Connections per second, on average.
    pub per_second: f64,
    /// Maximum of connections at once, after a time without any.
    pub burst: u32,
    /// Treatment of connections that come faster.
    pub on_excess: OnFull,
}

impl AcceptRate {
    /// Makes a maximum rate; connections that come faster wait.
    pub fn new(per_second: f64, burst: u32) -> AcceptRate {
        AcceptRate { per_second, burst, on_excess: OnFull::Backpressure }
    }

    /// Returns the time from one connection to the next.
    pub(crate) fn gap(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Address;

    #[test]
    fn limits_answer_another_policy_that_asks_them() {
        let address: Address = "127.0.0.1:9000".parse().expect("an address");
        let limits = Limits::default()
            .on_full(OnFull::Reject(Reject::text("full")))
            .per_peer(PerPeer::address(2).reject(Reject::Reset))
            .rate(AcceptRate::new(1.0, 1));
        let before = |capacity| limits.before(&AcceptRequest::new(&address, capacity, 5, 5, 5));
        let full = BeforeAccept::Reject(Reject::text("full"));
        assert_eq!(
            [Capacity::Free, Capacity::PoolFull, Capacity::ListenerFull].map(before),
            [BeforeAccept::Accept, full.clone(), full]
        );
        assert_eq!(before(Capacity::TooFast), BeforeAccept::Wait);
        let after = |others| limits.after(&NewPeer::new(&address, None, others));
        assert_eq!([after(None), after(Some(1))], [AfterAccept::Keep, AfterAccept::Keep]);
        assert_eq!(after(Some(2)), AfterAccept::Reject(Reject::Reset));
    }
}
