//! The header of the PROXY protocol, versions 1 and 2, in bytes.
//!
//! Source: "The PROXY protocol, Versions 1 & 2", Willy Tarreau, 2020/03/05, sections 2.1 and 2.2.

use crate::layer::Refused;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Bytes that each header of version 1 begins with.
const V1_BEGINS: &[u8] = b"PROXY ";
/// Bytes that each header of version 2 begins with.
const V2_BEGINS: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The bytes of a header of version 2 before its addresses.
const V2_FIXED: usize = 16;

/// The form of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary: smaller, and quicker to read.
    #[default]
    V2,
}

/// Prints the version as it is read.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1 => "v1",
            Version::V2 => "v2",
        })
    }
}

/// Reads `v1` or `v2`.
impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Version, UnknownVersion> {
        match text {
            "v1" => Ok(Version::V1),
            "v2" => Ok(Version::V2),
            _ => Err(UnknownVersion(text.to_owned())),
        }
    }
}

/// A text that names no version of the header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no version of the PROXY protocol: write v1 or v2")]
pub struct UnknownVersion(String);

/// The content of a header.
///
/// ```
/// use sockdrawer::layer::proxy_header::{Header, Version};
///
/// let header = Header::proxied(([192, 0, 2, 7], 4321).into(), ([198, 51, 100, 1], 443).into());
/// assert_eq!(header.bytes(Version::V1), b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\n");
/// let bytes = header.bytes(Version::V2);
/// assert_eq!(Header::parse(&bytes)?, Some((header, bytes.len())));
/// # Ok::<(), sockdrawer::layer::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Header {
    /// No other peer than the one that connects: a proxy's own connection (`LOCAL`), or one whose peer it does not know (`UNKNOWN`, `UNSPEC`) or
    /// that has no address of IP.
    Local,
    /// The connection is on behalf of another peer.
    Proxied {
        /// Address of that peer.
        source: SocketAddr,
        /// Address that the peer connected to.
        destination: SocketAddr,
    },
}

impl Header {
    /// Maximum length of a header of version 1 in bytes, its line break included.
    pub const MAX_V1: usize = 107;
    /// Maximum length of a header of version 2 that is accepted, in bytes. The form allows 65,551, and nothing needs so many.
    pub const MAX_V2: usize = 4096;

    /// Returns a header on behalf of a peer that connected to `destination`.
    pub fn proxied(source: SocketAddr, destination: SocketAddr) -> Header {
        Header::Proxied { source, destination }
    }

    /// Returns the peer on whose behalf the connection is.
    pub fn source(&self) -> Option<SocketAddr> {
        if let Header::Proxied { source, .. } = self { Some(*source) } else { None }
    }

    /// Returns the header as it is sent. Where source and destination are of two families, both are sent as IPv6.
    pub fn bytes(&self, version: Version) -> Vec<u8> {
        match (version, self.family()) {
            (Version::V1, Family::None) => b"PROXY UNKNOWN\r\n".to_vec(),
            (Version::V1, Family::V4(from, to, ports)) => line("TCP4", from, to, ports),
            (Version::V1, Family::V6(from, to, ports)) => line("TCP6", from, to, ports),
            (Version::V2, Family::None) => v2(0x20, 0x00, &[]),
            (Version::V2, Family::V4(from, to, ports)) => {
                v2(0x21, 0x11, &[&from.octets(), &to.octets(), &ports.0.to_be_bytes(), &ports.1.to_be_bytes()])
            }
            (Version::V2, Family::V6(from, to, ports)) => {
                v2(0x21, 0x21, &[&from.octets(), &to.octets(), &ports.0.to_be_bytes(), &ports.1.to_be_bytes()])
            }
        }
    }

    fn family(&self) -> Family {
        let Header::Proxied { source, destination } = self else { return Family::None };
        let ports = (source.port(), destination.port());
        let mapped = |ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Family::V4(from, to, ports),
            (from, to) => Family::V6(mapped(from), mapped(to), ports),
        }
    }

    /// Reads the header that these bytes begin with, of either version, and how many bytes it has in all: of version 2 that may be more than these,
    /// because what follows the addresses is not looked at, a checksum neither. None: more bytes are needed.
    ///
    /// # Errors
    /// When they cannot become a header, as soon as that can be known; of version 1 after [`Header::MAX_V1`] bytes at the latest. A header of
    /// version 2 with more than [`Header::MAX_V2`] is refused.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, Refused> {
        let begins = |with: &[u8]| bytes.iter().zip(with).all(|(byte, expected)| byte == expected);
        if begins(V1_BEGINS) && !bytes.is_empty() {
            return if bytes.len() < V1_BEGINS.len() { Ok(None) } else { parse_v1(bytes) };
        }
        if !begins(V2_BEGINS) {
            return Err(Refused::because("it sent no PROXY header, which its address has to"));
        }
        parse_v2(bytes)
    }
}

/// The addresses as they are sent, and the two ports.
enum Family {
    None,
    V4(Ipv4Addr, Ipv4Addr, (u16, u16)),
    V6(Ipv6Addr, Ipv6Addr, (u16, u16)),
}

fn line(family: &str, from: impl Into<IpAddr>, to: impl Into<IpAddr>, ports: (u16, u16)) -> Vec<u8> {
    format!("PROXY {family} {} {} {} {}\r\n", from.into(), to.into(), ports.0, ports.1).into_bytes()
}

fn v2(command: u8, family: u8, parts: &[&[u8]]) -> Vec<u8> {
    let addresses = parts.concat();
    let length = u16::try_from(addresses.len()).expect("36 bytes at most");
    [&V2_BEGINS[..], &[command, family], &length.to_be_bytes(), &addresses].concat()
}

fn wrong_line() -> Refused {
    Refused::because("its PROXY header of version 1 has no two addresses and ports of one family")
}

fn parse_v1(bytes: &[u8]) -> Result<Option<(Header, usize)>, Refused> {
    let within = &bytes[..bytes.len().min(Header::MAX_V1)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return match within.len() {
            Header::MAX_V1 => Err(Refused::because("its PROXY header of version 1 has no end within 107 bytes")),
            _ => Ok(None),
        };
    };
    let text = std::str::from_utf8(&within[V1_BEGINS.len()..end]).map_err(|_| wrong_line())?;
    let words: Vec<&str> = text.split(' ').collect();
    let header = match words[..] {
        // Words that follow are not looked at.
        ["UNKNOWN", ..] => Header::Local,
        [family, from, to, from_port, to_port] => {
            let (from, to) = (ip(family, from)?, ip(family, to)?);
            Header::proxied(SocketAddr::new(from, port(from_port)?), SocketAddr::new(to, port(to_port)?))
        }
        _ => return Err(wrong_line()),
    };
    Ok(Some((header, end + 2)))
}

fn ip(family: &str, text: &str) -> Result<IpAddr, Refused> {
    let read = match family {
        "TCP4" => text.parse().map(IpAddr::V4),
        "TCP6" => text.parse().map(IpAddr::V6),
        _ => return Err(wrong_line()),
    };
    read.map_err(|_| wrong_line())
}

/// Digits alone, without a zero before them.
fn port(text: &str) -> Result<u16, Refused> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain).ok_or_else(wrong_line)
}

fn parse_v2(bytes: &[u8]) -> Result<Option<(Header, usize)>, Refused> {
    let (Some(command), Some(family)) = (bytes.get(12), bytes.get(13)) else { return Ok(None) };
    let addresses = match (command, family) {
        // A proxy's own connection, too: its addresses, if it sent some, are to be ignored.
        (0x20, _) | (0x21, 0x00) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        // The peer is at a Unix socket: it has no address that could be held against a network.
        (0x21, 0x31) => 216,
        (0x21, _) => return Err(Refused::because("its PROXY header of version 2 is of another transport than a stream")),
        _ => return Err(Refused::because("its PROXY header has another version or command than those of version 2")),
    };
    let Some(length) = bytes.get(14..V2_FIXED) else { return Ok(None) };
    let length = usize::from(length[0]) << 8 | usize::from(length[1]);
    if length < addresses {
        return Err(Refused::because("its PROXY header of version 2 is too short for its addresses"));
    }
    if V2_FIXED + length > Header::MAX_V2 {
        return Err(Refused::because("its PROXY header of version 2 is longer than 4,096 bytes"));
    }
    let Some(addresses) = bytes.get(V2_FIXED..V2_FIXED + addresses) else { return Ok(None) };
    let header = match family {
        0x11 if !addresses.is_empty() => pair::<4>(addresses),
        0x21 if !addresses.is_empty() => pair::<16>(addresses),
        _ => Header::Local,
    };
    Ok(Some((header, V2_FIXED + length)))
}

/// Reads two addresses of `N` bytes, then their ports.
fn pair<const N: usize>(bytes: &[u8]) -> Header
where
    IpAddr: From<[u8; N]>,
{
    let at = |from: usize| IpAddr::from(<[u8; N]>::try_from(&bytes[from..from + N]).expect("as many"));
    let port = |from: usize| u16::from_be_bytes([bytes[from], bytes[from + 1]]);
    Header::proxied(SocketAddr::new(at(0), port(2 * N)), SocketAddr::new(at(N), port(2 * N + 2)))
}
