//! Selectors: the connections that an operation applies to.

use crate::net::Address;
use crate::observe::{ConnectionState, ConnectionStatus};
use crate::protocol::{ConnectionId, Side};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The properties of a connection that a selector looks at.
pub(crate) struct Traits<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    /// The peer's address, only if the selector needs it: it costs a system call.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) age: Duration,
    /// The listener that accepted the connection, if known.
    pub(crate) listener: Option<&'a Address>,
    pub(crate) tag: Option<&'a str>,
}

impl Traits<'_> {
    /// Returns an entry for a list of connections: these properties, and those that only a list shows.
    pub(crate) fn status(self, side: Side, bytes: (u64, u64), state: ConnectionState, draining: bool) -> ConnectionStatus {
        let Traits { id, generation, peer, age, listener, tag } = self;
        let (bytes_in, bytes_out) = bytes;
        let (listener, tag) = (listener.cloned(), tag.map(str::to_owned));
        ConnectionStatus { id, generation, peer, listener, side, age, bytes_in, bytes_out, state, draining, tag }
    }
}

/// Selects connections of a pool. Each loop matches its connections at the moment it receives the operation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Selector {
    /// All connections. An end of all reaches those, too, that are closed and have something to send still, which no list has.
    All,
    /// The connection with this number.
    Id(ConnectionId),
    /// Connections of this generation.
    Generation(u32),
    /// Connections of generations before this one.
    Before(u32),
    /// Connections whose peer is in this network: an address and a prefix length. Never matches a Unix socket.
    Peers(IpAddr, u8),
    /// Connections open for at least this long, exact to about a second.
    OlderThan(Duration),
    /// Connections with this tag: see [`Context::tag`](crate::Context::tag) and [`Pool::tag`](crate::Pool::tag).
    Tag(String),
    /// Connections accepted at this address, with the port that the system chose.
    Listener(Address),
    /// Connections that this selector does not match.
    Not(Box<Selector>),
    /// Connections that all of these selectors match; an empty list matches all.
    Every(Vec<Selector>),
    /// Connections that at least one of these selectors matches; an empty list matches none.
    Any(Vec<Selector>),
}

impl Selector {
    /// Returns connections with this tag.
    pub fn tag(text: impl Into<String>) -> Selector {
        Selector::Tag(text.into())
    }

    /// Returns connections that both selectors match.
    ///
    /// ```
    /// use sockdrawer::Selector;
    /// // Connections of a tenant that run versions before 9.
    /// let old = Selector::tag("tenant-7").and(Selector::Before(9));
    /// assert_eq!(old, Selector::Every(vec![Selector::Tag("tenant-7".to_owned()), Selector::Before(9)]));
    /// ```
    #[must_use]
    pub fn and(self, other: Selector) -> Selector {
        match self {
            Selector::Every(mut all) => {
                all.push(other);
                Selector::Every(all)
            }
            one => Selector::Every(vec![one, other]),
        }
    }

    /// Returns connections that this selector or the other matches.
    #[must_use]
    pub fn or(self, other: Selector) -> Selector {
        match self {
            Selector::Any(mut all) => {
                all.push(other);
                Selector::Any(all)
            }
            one => Selector::Any(vec![one, other]),
        }
    }

    pub(crate) fn needs_peer(&self) -> bool {
        self.has(&|part| matches!(part, Selector::Peers(..)))
    }

    pub(crate) fn takes(&self, connection: &Traits<'_>) -> bool {
        match self {
            Selector::All => true,
            Selector::Id(id) => connection.id == *id,
            Selector::Generation(generation) => connection.generation == *generation,
            Selector::Before(generation) => connection.generation < *generation,
            Selector::Peers(network, prefix) => connection.peer.is_some_and(|peer| in_network(peer.ip(), *network, *prefix)),
            Selector::OlderThan(age) => connection.age >= *age,
            Selector::Tag(text) => connection.tag == Some(text),
            Selector::Listener(address) => connection.listener == Some(address),
            Selector::Not(other) => !other.takes(connection),
            Selector::Every(parts) => parts.iter().all(|part| part.takes(connection)),
            Selector::Any(parts) => parts.iter().any(|part| part.takes(connection)),
        }
    }

    /// Returns true where this selector, or a part of it, is of this kind.
    fn has(&self, kind: &impl Fn(&Selector) -> bool) -> bool {
        kind(self)
            || match self {
                Selector::Not(other) => other.has(kind),
                Selector::Every(parts) | Selector::Any(parts) => parts.iter().any(|part| part.has(kind)),
                _ => false,
            }
    }
}

/// Connections that the selector does not match.
impl std::ops::Not for Selector {
    type Output = Selector;

    fn not(self) -> Selector {
        Selector::Not(Box::new(self))
    }
}

pub(crate) fn in_network(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
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
    fn selectors_combine() {
        let address: Address = "127.0.0.1:9000".parse().expect("an address");
        let traits = Traits {
            id: ConnectionId(1),
            generation: 3,
            peer: None,
            age: Duration::from_secs(5),
            listener: Some(&address),
            tag: Some("red"),
        };
        let takes = |selector: &Selector| selector.takes(&traits);
        let (red, blue, old) = (Selector::tag("red"), Selector::tag("blue"), Selector::Before(4));
        assert!(takes(&red) && !takes(&blue) && takes(&old) && takes(&!blue.clone()));
        assert!(takes(&red.clone().and(old.clone())) && !takes(&red.clone().and(old.clone()).and(blue.clone())));
        assert!(takes(&blue.clone().or(old)) && !takes(&blue.clone().or(Selector::Generation(1))));
        assert!(takes(&Selector::Every(Vec::new())) && !takes(&Selector::Any(Vec::new())));
        assert!(takes(&Selector::Listener(address.clone())) && takes(&!Selector::Listener("127.0.0.2:1".parse().expect("one"))));
        let deep = !Selector::All.and(blue.or(Selector::Peers(IpAddr::from([127, 0, 0, 1]), 8)));
        assert!(deep.needs_peer() && !red.needs_peer());
        assert!(!Selector::tag("r").takes(&Traits { tag: None, ..traits }));
    }

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
