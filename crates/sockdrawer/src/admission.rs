//! Admission: a policy that is asked before and after each accept.
//!
//! The pool itself keeps the count of connections and never exceeds its limits: a policy decides only what happens at a limit, and
//! which connections are turned away. So a policy may be replaced while the pool runs: no connection is closed, and every connection
//! stays counted.

mod accept_state;
mod limits;

pub(crate) use accept_state::AcceptState;
pub use limits::{AcceptRate, Limits, PerPeer};

use crate::net::Address;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// An admission policy. The default is [`Limits`], which is data; implement this trait for what `Limits` cannot express.
///
/// The pool's loops call it between two connections, so it must be quick and must not block. A panic in it is caught, counted and
/// reported; the default policy decides about that connection.
///
/// Other processes cannot call a policy of your own: [`Model::Fork`](crate::Model::Fork) and
/// [`Model::Prefork`](crate::Model::Prefork) accept only `Limits`.
///
/// ```
/// use sockdrawer::admission::{Admission, AfterAccept, NewPeer, Reject};
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
    /// Called when a connection waits at a listener. Without capacity none is accepted: then `Accept` is treated as `Wait`.
    fn before(&self, request: &AcceptRequest<'_>) -> BeforeAccept {
        let _ = request;
        BeforeAccept::Accept
    }

    /// Called when a connection was accepted, which may still be turned away. Behind a layer that
    /// [learns who the peer is](crate::layer::Filtering::learns_peer_address) it is called when that is known, and not before.
    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        let _ = peer;
        AfterAccept::Keep
    }

    /// Returns the prefix lengths by which the pool counts connections per peer. None, the default: connections per peer are not counted, which
    /// costs nothing.
    fn peers(&self) -> Option<Prefixes> {
        None
    }

    /// Returns the policy as data, if it is the default one: such a policy decides without a call, and in other processes too.
    #[doc(hidden)]
    fn limits(&self) -> Option<&Limits> {
        None
    }
}

/// Facts about a connection before it is accepted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcceptRequest<'a> {
    /// The listener at which the connection waits.
    pub listener: &'a Address,
    /// Room that the limits leave for the connection.
    pub capacity: Capacity,
    /// The number of connections of the pool now.
    pub connections: usize,
    /// The maximum of connections of the pool.
    pub limit: usize,
    /// The number of connections of the listener now.
    pub listener_connections: usize,
}

impl<'a> AcceptRequest<'a> {
    /// Makes a request, for tests of a policy.
    pub fn new(
        listener: &'a Address,
        capacity: Capacity,
        connections: usize,
        limit: usize,
        listener_connections: usize,
    ) -> AcceptRequest<'a> {
        AcceptRequest { listener, capacity, connections, limit, listener_connections }
    }
}

/// Room for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capacity {
    /// It may be accepted.
    Free,
    /// The pool is at its limit.
    PoolFull,
    /// The listener is at its limit; other listeners may go on.
    ListenerFull,
    /// No limit is reached, but the last connections came faster than [`AcceptRate`] allows.
    TooFast,
}

/// Decision about a connection that waits at a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeforeAccept {
    /// The connection is accepted.
    Accept,
    /// The connection waits in the kernel until a limit leaves room; if there is room already, the policy is asked again after 100 ms.
    Wait,
    /// The loop that asked accepts no connection, at any listener, for this long.
    Pause(Duration),
    /// The connection is accepted and turned away.
    Reject(Reject),
}

/// Facts about an accepted connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewPeer<'a> {
    /// The listener that accepted the connection.
    pub listener: &'a Address,
    /// The peer's address, behind a proxy the real one; None for a Unix socket.
    pub address: Option<SocketAddr>,
    /// The number of other connections of this peer, as [`Admission::peers`] tells peers apart; None if they are not counted.
    pub peer_connections: Option<usize>,
}

impl<'a> NewPeer<'a> {
    /// Makes an accepted connection's facts, for tests of a policy.
    pub fn new(listener: &'a Address, address: Option<SocketAddr>, peer_connections: Option<usize>) -> NewPeer<'a> {
        NewPeer { listener, address, peer_connections }
    }
}

/// Decision about an accepted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterAccept {
    /// The connection stays.
    Keep,
    /// The connection is turned away, and counted as rejected.
    Reject(Reject),
}

/// The prefix lengths by which peers are told apart: addresses with equal leading bits are one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Prefixes {
    /// Bits of an IPv4 address, at most 32.
    pub v4: u8,
    /// Bits of an IPv6 address, at most 128.
    pub v6: u8,
}

impl Prefixes {
    /// Each address is a peer of its own.
    pub const ADDRESS: Prefixes = Prefixes { v4: 32, v6: 128 };

    /// Returns the leading bits of the peer's address. An IPv4-mapped IPv6 address counts as IPv4.
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

/// Treatment of a connection above a limit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum OnFull {
    /// The connection waits in the kernel's accept queue.
    Backpressure,
    /// The connection is accepted and turned away.
    Reject(Reject),
}

/// Way in which a connection is turned away.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Reject {
    /// The peer sees an orderly end (FIN).
    Fin,
    /// The peer sees a reset (RST).
    Reset,
    /// The peer gets these bytes, then an orderly end.
    Bytes(Arc<[u8]>),
}

impl Reject {
    /// Makes a [`Reject::Bytes`] of this text: the peer gets it, then an orderly end.
    pub fn text(text: &str) -> Reject {
        Reject::Bytes(text.as_bytes().into())
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
