//! The default policy: limits, as data.

use super::{Admission, Prefixes};
use crate::config::{OnFull, Reject};
use std::time::Duration;

/// The default admission policy. The limits of the pool and of its listeners stand in [`Config`](crate::Config); this says what happens
/// at them, and what else is limited.
///
/// ```
/// use sockdrawer::{AcceptRate, Limits, OnFull, PerPeer, Reject};
/// let limits = Limits::default()
///     .on_full(OnFull::Reject(Reject::Fin))
///     .per_peer(PerPeer::address(10))
///     .rate(AcceptRate::new(500.0, 50));
/// # let _ = limits;
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// What happens to a connection above the pool's or its listener's limit.
    pub on_full: OnFull,
    /// The most connections of one peer.
    pub per_peer: Option<PerPeer>,
    /// How fast connections are accepted.
    pub rate: Option<AcceptRate>,
}

impl Default for Limits {
    /// Who is above a limit waits; nothing else is limited.
    fn default() -> Limits {
        Limits { on_full: OnFull::Backpressure, per_peer: None, rate: None }
    }
}

impl Limits {
    /// What happens above a limit.
    #[must_use]
    pub fn on_full(mut self, on_full: OnFull) -> Limits {
        self.on_full = on_full;
        self
    }

    /// The most connections of one peer.
    #[must_use]
    pub fn per_peer(mut self, per_peer: PerPeer) -> Limits {
        self.per_peer = Some(per_peer);
        self
    }

    /// How fast connections are accepted.
    #[must_use]
    pub fn rate(mut self, rate: AcceptRate) -> Limits {
        self.rate = Some(rate);
        self
    }

    /// Why it makes no sense, if so.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if let Some(rate) = &self.rate {
            if !rate.per_second.is_finite() || rate.per_second <= 0.0 {
                return Err(("admission.rate", "a rate is above 0 connections a second: leave it out for no limit"));
            }
            if rate.burst == 0 {
                return Err(("admission.rate", "a burst of 0 lets nobody in: use at least 1"));
            }
        }
        match &self.per_peer {
            Some(peer) if peer.max == 0 => {
                Err(("admission.per_peer", "0 connections for each peer serve nobody: use at least 1"))
            }
            Some(peer) if peer.prefixes.v4 > 32 || peer.prefixes.v6 > 128 => {
                Err(("admission.per_peer", "a prefix is at most 32 bits long for IPv4, and 128 for IPv6"))
            }
            _ => Ok(()),
        }
    }
}

impl Admission for Limits {
    fn peers(&self) -> Option<Prefixes> {
        self.per_peer.as_ref().map(|peer| peer.prefixes)
    }

    fn limits(&self) -> Option<&Limits> {
        Some(self)
    }
}

/// The most connections of one peer. Who has more cannot be left in the kernel's queue, where others wait behind: they are rejected.
/// A peer without an address, as on a Unix socket, is not limited.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PerPeer {
    /// The most.
    pub max: usize,
    /// Who counts as one peer.
    pub prefixes: Prefixes,
    /// How those above are turned away.
    pub reject: Reject,
}

impl PerPeer {
    /// For each address; those above see an orderly end.
    pub fn address(max: usize) -> PerPeer {
        PerPeer { max, prefixes: Prefixes::ADDRESS, reject: Reject::Fin }
    }
}

/// How fast connections are accepted, by the whole pool.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct AcceptRate {
    /// Connections in a second, on average.
    pub per_second: f64,
    /// The most at once, after a while without any.
    pub burst: u32,
    /// What happens to those that come faster.
    pub on_excess: OnFull,
}

impl AcceptRate {
    /// Those that come faster wait.
    pub fn new(per_second: f64, burst: u32) -> AcceptRate {
        AcceptRate { per_second, burst, on_excess: OnFull::Backpressure }
    }

    /// From one connection to the next.
    pub(crate) fn gap(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.per_second).unwrap_or(Duration::MAX)
    }
}
