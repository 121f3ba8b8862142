//! Source addresses of the sets of clients, by which the server's side tells them apart. All of 127.0.0.0/8 can be bound without set-up,
//! and 64 addresses for the churn keep its connections in TIME_WAIT from using up the ports (28,232 per address and minute).

use crate::Group;
use sockdrawer::Selector;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The third byte of these addresses, which servers do not use: on a server's address, a client whose kernel-chosen port is the server's
/// would connect to itself while the listener is closed, and hold the port.
const NETWORK: u8 = 100;
const FIRST: u8 = 2;
const CHURN_ADDRESSES: u8 = 64;
const PROBE_ADDRESSES: u8 = 8;

impl Group {
    fn address(self, last: u8) -> IpAddr {
        let third = u8::try_from(self.index()).expect("there are few");
        Ipv4Addr::new(127, 0, NETWORK + third, last).into()
    }

    /// Returns the addresses from which this set connects on the loopback.
    pub(crate) fn sources(self) -> Vec<IpAddr> {
        let addresses = match self {
            Group::Churn | Group::Secure | Group::Proxied => CHURN_ADDRESSES,
            Group::Probe => PROBE_ADDRESSES,
            _ => 1,
        };
        (FIRST..FIRST + addresses).map(|last| self.address(last)).collect()
    }

    /// Returns a source address of this set, for up to 250 numbers a different one.
    pub(crate) fn source(self, number: u64) -> IpAddr {
        let last = u8::try_from(number % 250).expect("less than 250");
        self.address(last + FIRST)
    }

    /// Selects this set's connections in the server's pool.
    pub(crate) fn selector(self) -> Selector {
        Selector::Peers(self.address(0), 24)
    }

    /// Returns the set to which a connection belongs, by its peer's address.
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
