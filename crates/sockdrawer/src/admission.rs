//! Who is let in: a policy of two questions, asked before and after each accept.
//!
//! The pool itself keeps the count of connections and never exceeds its limits: a policy decides only what happens at a limit, and
//! whom it turns away. So a policy may be swapped while the pool runs, and no connection is closed and none is forgotten by it.

mod limits;

pub use limits::{AcceptRate, Limits, PerPeer};

use crate::config::Reject;
use crate::net::Address;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// An admission policy. [`Limits`] is the default one, and data; write another for what it cannot say.
///
/// It is asked on the pool's loops, between two connections, so it must be quick and must not wait. A panic in it is caught, counted
/// and told; that connection is decided by the default policy.
///
/// A policy of your own cannot reach other processes: [`Model::Fork`](crate::Model::Fork) and
/// [`Model::Prefork`](crate::Model::Prefork) take only `Limits`.
///
/// ```
/// use sockdrawer::{Admission, AfterAccept, NewPeer, Reject};
/// use std::net::IpAddr;
///
/// /// Turns one address away.
/// struct Deny(IpAddr);
///
/// impl Admission for Deny {
///     fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
///         let denied = peer.address.is_some_and(|address| address.ip() == self.0);
///         if denied { AfterAccept::Reject(Reject::Reset) } else { AfterAccept::Keep }
///     }
/// }
/// ```
pub trait Admission: Send + Sync + 'static {
    /// A connection waits at a listener. Without room none is accepted, whatever the answer: then `Take` means `Hold`.
    fn before(&self, request: &AcceptRequest<'_>) -> BeforeAccept {
        let _ = request;
        BeforeAccept::Accept
    }

    /// A connection was accepted, and may be turned away still.
    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        let _ = peer;
        AfterAccept::Keep
    }

    /// The lengths of prefixes by which the pool is to count peers; None, as here: it counts none, which costs nothing.
    fn peers(&self) -> Option<Prefixes> {
        None
    }

    /// The default policy, if this is it: what can be said as data is decided without a call, and reaches other processes.
    #[doc(hidden)]
    fn limits(&self) -> Option<&Limits> {
        None
    }
}

/// What is known before a connection is accepted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcceptRequest<'a> {
    /// Where it waits.
    pub listener: &'a Address,
    /// Whether there is room.
    pub capacity: Capacity,
    /// The pool's connections now.
    pub connections: usize,
    /// The pool's limit.
    pub limit: usize,
    /// The listener's connections now.
    pub listener_connections: usize,
}

impl<'a> AcceptRequest<'a> {
    pub(crate) fn new(
        listener: &'a Address,
        capacity: Capacity,
        connections: usize,
        limit: usize,
        listener_connections: usize,
    ) -> AcceptRequest<'a> {
        AcceptRequest { listener, capacity, connections, limit, listener_connections }
    }
}

/// Whether one more connection may be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capacity {
    /// Yes.
    Free,
    /// The pool is at its limit.
    PoolFull,
    /// The listener is at its limit; others may go on.
    ListenerFull,
    /// There is, but the last ones came faster than [`AcceptRate`] allows.
    TooFast,
}

/// The answer before accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeforeAccept {
    /// It is accepted.
    Accept,
    /// It waits in the kernel until there is room; where there is, the policy is asked again after 100 ms.
    Wait,
    /// The whole loop accepts nothing for this long.
    Pause(Duration),
    /// It is accepted and turned away.
    Reject(Reject),
}

/// What is known of an accepted connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewPeer<'a> {
    /// Where it came in.
    pub listener: &'a Address,
    /// Its peer's address; None for a Unix socket.
    pub address: Option<SocketAddr>,
    /// Other connections of the same peer, by [`Admission::peers`]; None where peers are not counted.
    pub peer_connections: Option<usize>,
}

impl<'a> NewPeer<'a> {
    pub(crate) fn new(listener: &'a Address, address: Option<SocketAddr>, peer_connections: Option<usize>) -> NewPeer<'a> {
        NewPeer { listener, address, peer_connections }
    }
}

/// The answer after accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterAccept {
    /// It stays.
    Keep,
    /// It is turned away, and counted as rejected.
    Reject(Reject),
}

/// By how many leading bits of their addresses peers are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Prefixes {
    /// Of 32.
    pub v4: u8,
    /// Of 128.
    pub v6: u8,
}

impl Prefixes {
    /// Each address by itself.
    pub const ADDRESS: Prefixes = Prefixes { v4: 32, v6: 128 };

    /// What is common to the peer's neighbors. An IPv4 address in IPv6's clothes is one of IPv4.
    pub(crate) fn of(self, peer: IpAddr) -> u128 {
        const V4: u128 = 0xffff_0000_0000;
        match peer.to_canonical() {
            IpAddr::V4(address) => {
                let ignored = 32 - u32::from(self.v4.min(32));
                let bits = u64::from(address.to_bits()) >> ignored << ignored;
                V4 | u128::from(bits)
            }
            IpAddr::V6(address) => {
                let ignored = 128 - u32::from(self.v6.min(128));
                address.to_bits().checked_shr(ignored).unwrap_or(0).checked_shl(ignored).unwrap_or(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_are_those_with_the_same_prefix() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let prefixes = Prefixes { v4: 24, v6: 64 };
        let same = |one: &str, other: &str| prefixes.of(ip(one)) == prefixes.of(ip(other));
        assert!(same("10.0.0.1", "10.0.0.255"));
        assert!(!same("10.0.0.1", "10.0.1.1"));
        assert!(same("::ffff:10.0.0.7", "10.0.0.8"));
        assert!(same("2001:db8::1", "2001:db8::ffff:0:0:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert_eq!(Prefixes { v4: 0, v6: 0 }.of(ip("1.2.3.4")), Prefixes { v4: 0, v6: 0 }.of(ip("4.3.2.1")));
        assert_eq!(Prefixes { v4: 0, v6: 0 }.of(ip("fe80::1")), 0);
    }
}
