//! Which connections an operation means.

use crate::net::Address;
use crate::observe::{ConnectionState, ConnectionStatus};
use crate::protocol::{ConnectionId, Side};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// What a connection is chosen by.
pub(crate) struct Traits<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    /// Only where the selector asks for it: it costs a system call.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) age: Duration,
    /// Where it was accepted, as far as that is known.
    pub(crate) listener: Option<&'a Address>,
    pub(crate) tag: Option<&'a str>,
}

impl Traits<'_> {
    /// The same in a list of connections, with what is asked of a connection only then.
    pub(crate) fn status(self, side: Side, bytes: (u64, u64), state: ConnectionState, draining: bool) -> ConnectionStatus {
        let Traits { id, generation, peer, age, listener, tag } = self;
        let (bytes_in, bytes_out) = bytes;
        let (listener, tag) = (listener.cloned(), tag.map(str::to_owned));
        ConnectionStatus { id, generation, peer, listener, side, age, bytes_in, bytes_out, state, draining, tag }
    }
}

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
    /// Those called so: see [`Context::tag`](crate::Context::tag) and [`Pool::tag`](crate::Pool::tag).
    Tag(String),
    /// Those accepted at this address, by its real port.
    Listener(Address),
    /// Those that the other does not mean.
    Not(Box<Selector>),
    /// Those that each of these means; of none, all.
    Every(Vec<Selector>),
    /// Those that one of these means; of none, none.
    Any(Vec<Selector>),
}

impl Selector {
    /// Those called so.
    pub fn tag(text: impl Into<String>) -> Selector {
        Selector::Tag(text.into())
    }

    /// Those that both mean.
    ///
    /// ```
    /// use sockdrawer::Selector;
    /// // What a tenant has left of old versions.
    /// let meant = Selector::tag("tenant-7").and(Selector::Before(9));
    /// assert_eq!(meant, Selector::Every(vec![Selector::Tag("tenant-7".to_owned()), Selector::Before(9)]));
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

    /// Those that this one or the other means.
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

    /// Whether a part of it is of this kind.
    fn has(&self, kind: &impl Fn(&Selector) -> bool) -> bool {
        kind(self)
            || match self {
                Selector::Not(other) => other.has(kind),
                Selector::Every(parts) | Selector::Any(parts) => parts.iter().any(|part| part.has(kind)),
                _ => false,
            }
    }
}

/// Those that it does not mean.
impl std::ops::Not for Selector {
    type Output = Selector;

    fn not(self) -> Selector {
        Selector::Not(Box::new(self))
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
