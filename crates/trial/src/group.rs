//! Who connects. Sets of clients tell themselves apart by their source addresses: all of 127.0.0.0/8 can be bound without set-up, and
//! 64 addresses for the churn keep its connections in TIME_WAIT from using up the ports (28,232 for each address and minute).

use crate::Group;
use sockdrawer::Selector;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Not addresses that servers use: a client whose kernel-chosen port is the server's would connect to itself while the listener is
/// away, and hold its port.
const NETWORK: u8 = 100;
const FIRST: u8 = 2;
const CHURN_ADDRESSES: u8 = 64;
const PROBE_ADDRESSES: u8 = 8;

impl Group {
    fn address(self, last: u8) -> IpAddr {
        let third = u8::try_from(self.index()).expect("there are five");
        Ipv4Addr::new(127, 0, NETWORK + third, last).into()
    }

    /// Where this set connects from, on the loopback.
    pub(crate) fn sources(self) -> Vec<IpAddr> {
        let addresses = match self {
            Group::Churn => CHURN_ADDRESSES,
            Group::Probe => PROBE_ADDRESSES,
            _ => 1,
        };
        (FIRST..FIRST + addresses).map(|last| self.address(last)).collect()
    }

    /// An address of this set that comes again after 250 others.
    pub(crate) fn source(self, number: u64) -> IpAddr {
        let last = u8::try_from(number % 250).expect("less than 250");
        self.address(last + FIRST)
    }

    /// This set's connections, seen from the server.
    pub(crate) fn selector(self) -> Selector {
        Selector::Peers(self.address(0), 24)
    }

    /// Whose connection this is.
    pub(crate) fn of(peer: Option<SocketAddr>) -> Option<Group> {
        let IpAddr::V4(address) = peer?.ip().to_canonical() else { return None };
        Group::ALL.get(usize::from(address.octets()[2].checked_sub(NETWORK)?)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_its_sources() {
        for guest in Group::ALL {
            for source in guest.sources().into_iter().chain((0..600).map(|number| guest.source(number))) {
                assert_eq!(Group::of(Some(SocketAddr::new(source, 7))), Some(guest), "{source}");
                assert_ne!(source, IpAddr::V4(Ipv4Addr::LOCALHOST));
            }
        }
        assert_eq!(Group::of(None), None);
    }
}
