//! Sources of connections that have to bring a header.

use crate::net::Address;
use crate::operation::in_network;
use crate::protocol::{Peer, Side};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Peers whose connections have to begin with a header, because they are proxies.
///
/// ```
/// use sockdrawer::layer::proxy_header::Source;
///
/// assert_eq!("10.0.0.0/8".parse(), Ok(Source::Network([10, 0, 0, 0].into(), 8)));
/// assert_eq!("::1".parse(), Ok(Source::Network("::1".parse()?, 128)));
/// assert_eq!("unix".parse(), Ok(Source::Unix));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Addresses with the leading bits of this one. An IPv4-mapped IPv6 address counts as IPv4.
    Network(IpAddr, u8),
    /// All that connect to a Unix socket of the pool.
    Unix,
}

/// A text that names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no source of PROXY headers: write an address, a network such as 10.0.0.0/8, or unix")]
pub struct UnknownSource(String);

impl Source {
    /// Returns true where the peer of an accepted connection is one of these.
    pub(super) fn takes(&self, peer: &Peer) -> bool {
        let at_path = matches!(peer.listener(), Some(Address::Unix(_) | Address::Abstract(_)));
        match (self, peer.remote()) {
            (Source::Network(network, prefix), Some(remote)) => in_network(remote.ip(), *network, *prefix),
            // A TCP connection that is gone already has no address either.
            (Source::Unix, None) => peer.side() == Side::Accepted && at_path,
            _ => false,
        }
    }
}

/// Reads an address, an address and a number of bits, or `unix`.
impl FromStr for Source {
    type Err = UnknownSource;

    fn from_str(text: &str) -> Result<Source, UnknownSource> {
        if text == "unix" {
            return Ok(Source::Unix);
        }
        let unknown = || UnknownSource(text.to_owned());
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| unknown())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), str::parse).ok().filter(|prefix| *prefix <= bits);
        prefix.map(|prefix| Source::Network(address, prefix)).ok_or_else(unknown)
    }
}

/// Prints the source as it is read.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Network(address, prefix) => write!(f, "{address}/{prefix}"),
            Source::Unix => f.write_str("unix"),
        }
    }
}
