//! Which connections an operation means.

use crate::flow::orders::{Choice, Traits};
use crate::protocol::ConnectionId;
use std::net::IpAddr;
use std::time::Duration;

/// Connections of a pool. An operation takes those that match at the moment each loop hears of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Selector {
    /// All.
    All,
    /// One.
    Id(ConnectionId),
    /// Those of this generation.
    Generation(u32),
    /// Those of generations before this one.
    Before(u32),
    /// Those whose peer is in this network: an address and the length of its prefix.
    Peers(IpAddr, u8),
    /// Those open for at least this long, exact to about a second.
    OlderThan(Duration),
}

impl Choice for Selector {
    fn needs_peer(&self) -> bool {
        matches!(self, Selector::Peers(..))
    }

    fn takes(&self, connection: &Traits) -> bool {
        match self {
            Selector::All => true,
            Selector::Id(id) => connection.id == *id,
            Selector::Generation(generation) => connection.generation == *generation,
            Selector::Before(generation) => connection.generation < *generation,
            Selector::Peers(network, prefix) => connection.peer.is_some_and(|peer| in_network(peer.ip(), *network, *prefix)),
            Selector::OlderThan(age) => connection.age >= *age,
        }
    }
}

fn in_network(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (address, network, width) = match (address.to_canonical(), network.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u128::from(a.to_bits()), u128::from(n.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits(), n.to_bits(), 128),
        _ => return false,
    };
    let ignored = width - u32::from(prefix).min(width);
    address.checked_shr(ignored).unwrap_or(0) == network.checked_shr(ignored).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_its_prefix() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(in_network(ip("10.1.2.3"), ip("10.1.0.0"), 16));
        assert!(!in_network(ip("10.2.2.3"), ip("10.1.0.0"), 16));
        assert!(in_network(ip("::ffff:10.1.2.3"), ip("10.0.0.0"), 8));
        assert!(in_network(ip("fe80::1"), ip("::"), 0));
        assert!(!in_network(ip("fe80::1"), ip("10.0.0.0"), 0));
        assert!(!in_network(ip("10.1.2.3"), ip("10.1.2.4"), 32));
    }
}
