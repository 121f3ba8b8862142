//! Addresses: parsed from text, and printed as text that parses again.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// `sun_path` has 108 bytes (unix(7)): one of them is the NUL after a path, or before an abstract name.
const UNIX_MAX: usize = 107;

/// An address to listen at or to connect to: TCP or Unix.
///
/// [`Address::parse`] and [`FromStr`] accept:
///
/// | text | address |
/// | --- | --- |
/// | `127.0.0.1:9000`, `[::1]:9000` | this IP address and port |
/// | `localhost:9000`, `:9000`, `9000` | 127.0.0.1 and this port, so that no server is reachable from outside by accident |
/// | `example.org:9000` | the first address that the system's resolver gives, asked while parsing |
/// | `unix:/run/name.sock` | a Unix socket with a path |
/// | `unix:@name` | a Unix socket with a name in Linux's abstract namespace, without a file |
///
/// For a listener, port 0 means a free port that the system chooses. In Unix addresses `\xNN` stands for a byte and `\\` for a
/// backslash. The text that [`Display`](fmt::Display) prints parses to an equal address (except for an IPv6 flow label, which has no
/// text form).
///
/// ```
/// use sockdrawer::Address;
///
/// let address: Address = "localhost:9000".parse()?;
/// assert_eq!(address.to_string(), "127.0.0.1:9000");
/// # Ok::<(), sockdrawer::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Address {
    /// A TCP address: IPv4 or IPv6, and a port.
    Tcp(SocketAddr),
    /// A Unix socket with a path.
    Unix(#[serde(with = "path")] PathBuf),
    /// A Unix socket with an abstract name, without the NUL that the kernel puts before it.
    Abstract(Vec<u8>),
}

/// A path need not be text, and goes from process to process as the bytes that it is.
mod path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { path.serialize(to) } else { to.serialize_bytes(path.as_os_str().as_bytes()) }
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<PathBuf, D::Error> {
        if from.is_human_readable() {
            return PathBuf::deserialize(from);
        }
        serde_bytes::deserialize(from).map(|bytes| OsString::from_vec(bytes).into())
    }
}

impl Address {
    /// Returns an address as a program names it. One that is wrong leads [nowhere](Address::is_nowhere), and the error says why.
    pub(crate) fn or_nowhere(address: impl TryInto<Address, Error: Into<AddressError>>) -> (Address, Option<AddressError>) {
        match address.try_into() {
            Ok(address) => (address, None),
            Err(error) => (Address::Unix(PathBuf::new()), Some(error.into())),
        }
    }

    /// Returns true where this is the empty path that stands for a wrong address: no socket can be bound to it by name.
    pub(crate) fn is_nowhere(&self) -> bool {
        matches!(self, Address::Unix(path) if path.as_os_str().is_empty())
    }

    /// Returns the address of the internet; None of a Unix socket.
    pub(crate) fn internet(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) | Address::Abstract(_) => None,
        }
    }

    /// Reads an address. Blocks on the system's resolver when the host is a name other than `localhost`.
    ///
    /// # Errors
    /// When it is no address, or the name does not resolve; the message is one line and says what to write instead.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        parse(text, &|host, port| Ok(resolve(host, port)?.swap_remove(0)))
    }

    /// Reads an address to connect to, as [`Address::parse`]: all that a name has, in the order in which the system's resolver gives them, of
    /// `localhost` 127.0.0.1 and ::1. Never empty.
    ///
    /// # Errors
    /// As those of [`Address::parse`].
    pub fn parse_all(text: &str) -> Result<Vec<Address>, AddressError> {
        let others = RefCell::new(Vec::new());
        let first = parse(text, &|host, port| {
            let mut found = resolve(host, port)?;
            let first = found.remove(0);
            *others.borrow_mut() = found;
            Ok(first)
        })?;
        let mut all = vec![first];
        if let (Some((host, _)), Address::Tcp(first)) = (text.rsplit_once(':'), &all[0])
            && host.eq_ignore_ascii_case("localhost")
        {
            others.borrow_mut().push(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), first.port()));
        }
        for other in others.into_inner().into_iter().map(Address::Tcp) {
            if !all.contains(&other) {
                all.push(other);
            }
        }
        Ok(all)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl TryFrom<&str> for Address {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Address, AddressError> {
        Address::parse(&text)
    }
}

impl TryFrom<&String> for Address {
    type Error = AddressError;

    fn try_from(text: &String) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Address {
        address.clone()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => {
                let path = path.as_os_str().as_bytes();
                // A path that begins with `@` would be read as an abstract name.
                match path.strip_prefix(b"@") {
                    Some(rest) => write!(f, r"unix:\x40{}", Escaped(rest)),
                    None => write!(f, "unix:{}", Escaped(path)),
                }
            }
            Address::Abstract(name) => write!(f, "unix:@{}", Escaped(name)),
        }
    }
}

/// Reason why a text is not an address, and what to write instead.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text, or what follows `unix:`, is empty.
    #[error("the address {0:?} is empty: write HOST:PORT, such as 127.0.0.1:9000, or unix:/path")]
    Empty(String),
    /// The text has a host and no port.
    #[error("the address {0:?} has no port: write HOST:PORT, such as 127.0.0.1:9000")]
    NoPort(String),
    /// The port is not a number.
    #[error("the port {port:?} of {address:?} is not a number: write one from 0 to 65535")]
    BadPort {
        /// The whole address.
        address: String,
        /// The text in place of the port.
        port: String,
    },
    /// The port is a number above 65,535.
    #[error("the port {port} of {address:?} is out of range: write one from 0 to 65535")]
    PortOutOfRange {
        /// The whole address.
        address: String,
        /// The port as written.
        port: String,
    },
    /// `*` in place of the host, which leaves open whether IPv6 is meant.
    #[error("\"*\" is not a host: did you mean 0.0.0.0:{port} and [::]:{port}?")]
    Star {
        /// The port after the `*`, or `PORT`.
        port: String,
    },
    /// An IPv6 address whose end cannot be told from the port.
    #[error("the IPv6 address in {0:?} needs brackets: write [ADDRESS]:PORT, such as [::1]:9000")]
    NeedsBrackets(String),
    /// The host is neither an IP address nor a name that resolves.
    #[error("the host {host:?} cannot be used: {why}; write an IP address, localhost or a name that resolves")]
    BadHost {
        /// The host.
        host: String,
        /// The mistake in the host.
        why: String,
    },
    /// A path, or an abstract name, without `unix:`.
    #[error("{0:?} looks like a Unix socket: write unix:{escaped}", escaped = .0.escape_debug())]
    LooksLikeUnix(String),
    /// More bytes than a Unix address can hold.
    #[error("the Unix address {address:?} is {length} bytes long, Linux allows {UNIX_MAX}: choose a shorter one, or unix:@name")]
    TooLong {
        /// The whole address.
        address: String,
        /// Bytes of its path or name.
        length: usize,
    },
    /// A NUL byte in a path, where the kernel would cut it.
    #[error("the path in {0:?} contains a NUL byte: remove it, or write unix:@name for an abstract name")]
    NulInPath(String),
    /// A backslash that begins neither `\\` nor `\xNN`.
    #[error(r"a backslash in {0:?} begins no escape: write \\ for a backslash, \xNN for the byte NN (hexadecimal)")]
    BadEscape(String),
}

/// Prints the line of `Display`: `fn main() -> Result<(), AddressError>` prints errors by `Debug`.
impl fmt::Debug for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An [`Address`] converts to itself without an error.
impl From<std::convert::Infallible> for AddressError {
    fn from(never: std::convert::Infallible) -> AddressError {
        match never {}
    }
}

impl AddressError {
    /// Returns the error of an empty Unix path.
    pub(crate) fn nowhere() -> AddressError {
        AddressError::Empty("unix:".to_owned())
    }
}

/// Returns the addresses of a name, at least one.
fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(|error| error.to_string())?.collect();
    if found.is_empty() { Err("it has no address".to_owned()) } else { Ok(found) }
}

/// Parses an address; `resolve` turns a host's name into an address, or returns why it cannot.
fn parse(text: &str, resolve: &dyn Fn(&str, u16) -> Result<SocketAddr, String>) -> Result<Address, AddressError> {
    if let Some(rest) = text.strip_prefix("unix:") {
        return parse_unix(text, rest);
    }
    if text.is_empty() {
        return Err(AddressError::Empty(text.to_owned()));
    }
    if text.starts_with(['/', '.', '@']) {
        return Err(AddressError::LooksLikeUnix(text.to_owned()));
    }
    if text == "*" {
        return Err(AddressError::Star { port: "PORT".to_owned() });
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(AddressError::NeedsBrackets(text.to_owned()));
    }
    let (host, port) = match text.rsplit_once(':') {
        // The last colon is inside the brackets: `[::1]`.
        Some((_, after)) if after.contains(']') => return Err(AddressError::NoPort(text.to_owned())),
        Some(halves) => halves,
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => ("", text),
        None => return Err(AddressError::NoPort(text.to_owned())),
    };
    if host == "*" {
        let port = if parse_port(text, port).is_ok() { port } else { "PORT" };
        return Err(AddressError::Star { port: port.to_owned() });
    }
    let port = parse_port(text, port)?;
    parse_host(text, host, port, resolve).map(Address::Tcp)
}

fn parse_port(text: &str, port: &str) -> Result<u16, AddressError> {
    if port.is_empty() {
        return Err(AddressError::NoPort(text.to_owned()));
    }
    let (address, port_text) = (text.to_owned(), port.to_owned());
    // Digits alone: `u16::from_str` would take `+80` too.
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(AddressError::BadPort { address, port: port_text });
    }
    port.parse().map_err(|_| AddressError::PortOutOfRange { address, port: port_text })
}

fn parse_host(
    text: &str,
    host: &str,
    port: u16,
    resolve: &dyn Fn(&str, u16) -> Result<SocketAddr, String>,
) -> Result<SocketAddr, AddressError> {
    let bad = |why: &str| AddressError::BadHost { host: host.to_owned(), why: why.to_owned() };
    if host.is_empty() || host.eq_ignore_ascii_case("localhost") {
        // Fixed for `localhost` as well: what the resolver puts first, 127.0.0.1 or ::1, differs between machines.
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    if host.starts_with('[') {
        // The standard library's own parser, because it knows scopes: `[fe80::1%2]:9000`. An interface may be named, too.
        let scope = host.strip_suffix(']').and_then(|host| host.rsplit_once('%'));
        let numbered = match scope.filter(|(_, scope)| !scope.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((address, name)) => {
                let number = interface(name).ok_or_else(|| bad("there is no network interface of that name here"))?;
                Cow::from(format!("{address}%{number}]"))
            }
            None => host.into(),
        };
        return format!("{numbered}:{port}").parse().map_err(|_| bad("there is no IPv6 address between the brackets"));
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(SocketAddr::new(IpAddr::V4(ip), port));
    }
    if host.contains(':') {
        let is_ip = host.parse::<Ipv6Addr>().is_ok();
        return Err(if is_ip { AddressError::NeedsBrackets(text.to_owned()) } else { bad("a name has no colon") });
    }
    // A resolver would accept these too, after seconds of queries, and some read 10.1 as 10.0.0.1.
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(bad("an IPv4 address has four numbers from 0 to 255"));
    }
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        let international = if host.is_ascii() { "" } else { "; an international one is written as DNS has it, xn--..." };
        return Err(bad(&format!("a name has only letters, digits, '-', '_' and '.'{international}")));
    }
    resolve(host, port).map_err(|why| bad(&why))
}

/// Returns the number of a network interface.
fn interface(name: &str) -> Option<u32> {
    let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    let number = is_name.then(|| std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok())??;
    number.trim().parse().ok()
}

fn parse_unix(text: &str, rest: &str) -> Result<Address, AddressError> {
    let name = rest.strip_prefix('@');
    let bytes = unescape(name.unwrap_or(rest)).ok_or_else(|| AddressError::BadEscape(text.to_owned()))?;
    if bytes.is_empty() {
        return Err(AddressError::Empty(text.to_owned()));
    }
    if bytes.len() > UNIX_MAX {
        return Err(AddressError::TooLong { address: text.to_owned(), length: bytes.len() });
    }
    if name.is_some() {
        return Ok(Address::Abstract(bytes));
    }
    if bytes.contains(&0) {
        return Err(AddressError::NulInPath(text.to_owned()));
    }
    Ok(Address::Unix(PathBuf::from(std::ffi::OsString::from_vec(bytes))))
}

/// Returns the bytes that `text` stands for; None if a backslash begins no escape.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [b'x', high, low, after @ ..] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                rest = after;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// Prints bytes so that [`unescape`] gives them back: one line, no control characters.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str(r"\\")?,
                    _ if character.is_control() => {
                        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                            write!(f, r"\x{byte:02x}")?;
                        }
                    }
                    _ => write!(f, "{character}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, r"\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn offline(text: &str) -> Result<Address, AddressError> {
        parse(text, &|host, port| match host {
            "example.org" => Ok(SocketAddr::from(([192, 0, 2, 7], port))),
            _ => Err("unknown name".to_owned()),
        })
    }

    fn error(text: &str) -> String {
        offline(text).expect_err(text).to_string()
    }

    #[test]
    fn every_tcp_form_is_read() {
        for (text, printed) in [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:9000", "[::1]:9000"),
            ("[::]:80", "[::]:80"),
            ("[fe80::1%2]:80", "[fe80::1%2]:80"),
            ("localhost:9000", "127.0.0.1:9000"),
            ("LocalHost:9000", "127.0.0.1:9000"),
            ("9000", "127.0.0.1:9000"),
            (":9000", "127.0.0.1:9000"),
            ("65535", "127.0.0.1:65535"),
            ("example.org:80", "192.0.2.7:80"),
        ] {
            let address = offline(text).expect(text);
            assert!(matches!(address, Address::Tcp(_)), "{text}");
            assert_eq!(address.to_string(), printed);
            assert_eq!(offline(printed), Ok(address));
        }
    }

    #[test]
    fn all_addresses_of_a_name_are_read_and_an_interface_by_its_name() {
        let all = |text: &str| Address::parse_all(text).expect(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(all("LocalHost:9000"), ["127.0.0.1:9000", "[::1]:9000"]);
        assert_eq!(
            (all("9000"), all("[::1]:1"), all("unix:/a")),
            (vec!["127.0.0.1:9000".to_owned()], vec!["[::1]:1".to_owned()], vec!["unix:/a".to_owned()])
        );
        assert!(Address::parse_all("127.0.0.1").is_err());
        let lo = std::fs::read_to_string("/sys/class/net/lo/ifindex").expect("each network has it");
        assert_eq!(offline("[fe80::1%lo]:80"), offline(&format!("[fe80::1%{}]:80", lo.trim())));
        for text in ["[fe80::1%nowhere]:80", "[fe80::1%../net/lo]:80", "[fe80::1%]:80", "[fe80::1%lo:80"] {
            assert!(matches!(offline(text), Err(AddressError::BadHost { .. })), "{text}");
        }
        assert!(error("b\u{fc}cher.example:80").contains("xn--"));
    }

    #[test]
    fn unix_paths_and_abstract_names_are_read() {
        assert_eq!(offline("unix:/run/a.sock"), Ok(Address::Unix(PathBuf::from("/run/a.sock"))));
        assert_eq!(offline("unix:a b"), Ok(Address::Unix(PathBuf::from("a b"))));
        assert_eq!(offline("unix:@name"), Ok(Address::Abstract(b"name".to_vec())));
        assert_eq!(offline(r"unix:@a\x00\\"), Ok(Address::Abstract(b"a\0\\".to_vec())));
    }

    #[test]
    fn what_is_printed_parses_to_the_same_address() {
        let every_byte: Vec<u8> = (1..=u8::MAX).collect();
        let mut all: Vec<Address> = every_byte.chunks(100).map(|part| Address::Abstract(part.to_vec())).collect();
        all.extend(every_byte.chunks(100).map(|part| Address::Unix(PathBuf::from(std::ffi::OsString::from_vec(part.to_vec())))));
        all.extend([
            Address::Unix("@relative".into()),
            Address::Unix("/tmp/é\u{85}\n".into()),
            Address::Abstract(b"\0@".to_vec()),
        ]);
        for address in &all {
            let printed = address.to_string();
            assert_eq!(printed.lines().count(), 1, "{printed}");
            assert_eq!(printed.parse().as_ref(), Ok(address), "{printed}");
        }
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    fn a_star_is_answered_with_both_families() {
        assert_eq!(error("*:80"), "\"*\" is not a host: did you mean 0.0.0.0:80 and [::]:80?");
        assert_eq!(error("*"), "\"*\" is not a host: did you mean 0.0.0.0:PORT and [::]:PORT?");
        assert_eq!(error("*:"), error("*"));
    }

    #[test]
    fn a_port_is_a_number_up_to_65535() {
        assert_eq!(error("127.0.0.1:65536"), "the port 65536 of \"127.0.0.1:65536\" is out of range: write one from 0 to 65535");
        assert!(error("99999999999999999999").contains("out of range"));
        assert_eq!(error("127.0.0.1:http"), "the port \"http\" of \"127.0.0.1:http\" is not a number: write one from 0 to 65535");
        assert!(error("127.0.0.1:+80").contains("is not a number"));
        assert!(error("127.0.0.1:-1").contains("is not a number"));
    }

    #[test]
    fn a_port_is_needed() {
        for text in ["127.0.0.1", "127.0.0.1:", "example.org", ":", "[::1]", "[::1]:"] {
            assert_eq!(offline(text), Err(AddressError::NoPort(text.to_owned())));
        }
        assert_eq!(error("example.org"), "the address \"example.org\" has no port: write HOST:PORT, such as 127.0.0.1:9000");
    }

    #[test]
    fn ipv6_needs_brackets() {
        for text in ["::1", "::1:9000", "2001:db8:1:2:3:4:5:6:80"] {
            assert_eq!(offline(text), Err(AddressError::NeedsBrackets(text.to_owned())));
        }
    }

    #[test]
    fn bad_hosts_say_why() {
        for (text, why) in [
            ("256.0.0.1:80", "four numbers"),
            ("10.1:80", "four numbers"),
            ("[1.2.3.4]:80", "no IPv6 address"),
            ("[::1:80", "no IPv6 address"),
            ("[::1]x:80", "no IPv6 address"),
            ("a:b:80", "no colon"),
            ("exa mple:80", "only letters"),
            ("http://example.org:80", "no colon"),
            ("nowhere.invalid:80", "unknown name"),
        ] {
            let error = offline(text).expect_err(text);
            assert!(matches!(&error, AddressError::BadHost { why: given, .. } if given.contains(why)), "{text}: {error}");
        }
    }

    #[test]
    fn nothing_and_forgotten_schemes_are_told_apart() {
        assert_eq!(error(""), "the address \"\" is empty: write HOST:PORT, such as 127.0.0.1:9000, or unix:/path");
        assert_eq!(offline("unix:"), Err(AddressError::Empty("unix:".to_owned())));
        assert_eq!(offline("unix:@"), Err(AddressError::Empty("unix:@".to_owned())));
        assert_eq!(error("/run/a.sock"), "\"/run/a.sock\" looks like a Unix socket: write unix:/run/a.sock");
    }

    #[test]
    fn unix_addresses_end_at_107_bytes() {
        for prefix in ["unix:", "unix:@"] {
            let longest = format!("{prefix}{}", "a".repeat(107));
            assert_eq!(offline(&longest).expect("107 bytes fit").to_string(), longest);
            let address = format!("{longest}a");
            assert_eq!(offline(&address), Err(AddressError::TooLong { address: address.clone(), length: 108 }));
        }
        // An escape counts as the byte it stands for.
        assert!(offline(&format!("unix:{}", r"\x61".repeat(107))).is_ok());
    }

    #[test]
    fn bad_bytes_in_unix_addresses_are_refused() {
        assert_eq!(offline(r"unix:/a\x00b"), Err(AddressError::NulInPath(r"unix:/a\x00b".to_owned())));
        for text in [r"unix:/a\", r"unix:/a\n", r"unix:/a\x4", r"unix:/a\xg0"] {
            assert_eq!(offline(text), Err(AddressError::BadEscape(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn every_error_is_one_line() {
        for text in ["a\nb", "a\nb:80", "1:2\n3", "*:2\n3", "/a\nb", "unix:@\n\\", "[\n]:80"] {
            assert_eq!(error(text).lines().count(), 1, "{text:?}");
        }
    }
}
