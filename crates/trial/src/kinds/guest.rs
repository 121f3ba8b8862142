//! Who connects. Clients tell themselves apart by their source addresses: all of 127.0.0.0/8 can be bound without set-up, and 64
//! addresses for the churn keep its connections in TIME_WAIT from using up the ports (28,232 for each address and minute).

use sockdrawer::Selector;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A set of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guest {
    /// Connect, exchange, end, again and again.
    Churn,
    /// Stay, and must not be lost.
    Kept,
    /// Stay, until the server asks them to end.
    Second,
    /// Stay too, and ask for answers that take a while: asked to end, they must get those under way.
    Requests,
    /// Look from outside whether a change is in force.
    Probe,
}

/// A source must not be the server's own address: a client whose kernel-chosen port is the server's would connect to itself while
/// the listener is away, and hold its port.
const FIRST_CHURN: u8 = 2;
const CHURN_ADDRESSES: u8 = 64;

impl Guest {
    /// All of them.
    pub const ALL: [Guest; 5] = [Guest::Churn, Guest::Kept, Guest::Second, Guest::Requests, Guest::Probe];

    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Guest::Churn => "churn",
            Guest::Kept => "kept",
            Guest::Second => "second set",
            Guest::Requests => "requests",
            Guest::Probe => "probe",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    fn address(self, last: u8) -> IpAddr {
        let third = u8::try_from(self.index()).expect("there are five");
        Ipv4Addr::new(127, 0, third, last).into()
    }

    /// Where this set connects from.
    pub(crate) fn sources(self) -> Vec<IpAddr> {
        match self {
            Guest::Churn => (FIRST_CHURN..FIRST_CHURN + CHURN_ADDRESSES).map(|last| self.address(last)).collect(),
            _ => vec![self.address(FIRST_CHURN)],
        }
    }

    /// An address of this set that comes again after 250 others.
    pub(crate) fn source(self, number: u64) -> IpAddr {
        let last = u8::try_from(number % 250).expect("less than 250");
        self.address(last + FIRST_CHURN)
    }

    /// This set's connections, seen from the server.
    pub(crate) fn selector(self) -> Selector {
        Selector::Peers(self.address(0), 24)
    }

    /// Whose connection this is.
    pub(crate) fn of(peer: Option<SocketAddr>) -> Option<Guest> {
        let IpAddr::V4(address) = peer?.ip().to_canonical() else { return None };
        Guest::ALL.get(usize::from(address.octets()[2])).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_its_sources() {
        for guest in Guest::ALL {
            for source in guest.sources().into_iter().chain((0..600).map(|number| guest.source(number))) {
                assert_eq!(Guest::of(Some(SocketAddr::new(source, 7))), Some(guest), "{source}");
                assert_ne!(source, IpAddr::V4(Ipv4Addr::LOCALHOST));
            }
        }
        assert_eq!(Guest::of(None), None);
    }
}
