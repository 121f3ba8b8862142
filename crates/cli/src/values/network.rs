//! Values that name places in a network: targets, source addresses, local ports. Each has a text that is read again as the same.

use super::BadValue;
use super::http::Path;
use sockdrawer::Address;
use sockdrawer_load::{ProxyHeader, reachable};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The most addresses of one `--source`.
const MAX_SOURCES: u64 = 65_536;

/// Servers, one or several: `127.0.0.1:9000`, `127.0.0.1:9000-9015`; or what a URL of HTTP or WebSocket asks for: `http://127.0.0.1:9000/index.html`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) addresses: Vec<Address>,
    pub(crate) url: Option<Url>,
    /// The host as it was written, where that is a name: certificates are for names.
    pub(crate) name: Option<String>,
}

/// The parts of a URL besides the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// The field `Host` of its requests: the host without the zone of an address, and the port where that is not its scheme's.
    pub(crate) host: String,
    pub(crate) path: Path,
    /// True for https and wss.
    pub(crate) tls: bool,
    /// True for ws and wss.
    pub(crate) websocket: bool,
}

impl From<Vec<Address>> for Target {
    fn from(addresses: Vec<Address>) -> Target {
        Target { addresses, url: None, name: None }
    }
}

impl FromStr for Target {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Target, BadValue> {
        if let Some((scheme, rest)) = text.split_once("://") {
            return url(text, scheme, rest);
        }
        let address = reached;
        // A range is in the last part alone: a host's name may have hyphens.
        let (host, ports) = text.rsplit_once(':').map_or(("", text), |(host, ports)| (host, ports));
        let Some((first, last)) =
            ports.split_once('-').filter(|(first, _)| !first.is_empty() && is_range(ports) && !text.starts_with("unix:"))
        else {
            return address(text).map(|address| Target { name: name(host), ..vec![address].into() });
        };
        let Address::Tcp(at) = address(&format!("{host}:{first}"))? else { return address(text).map(|one| vec![one].into()) };
        let last = last.parse::<u16>().ok().filter(|last| *last >= at.port() && at.port() > 0);
        let Some(last) = last else {
            return Err(BadValue(format!(
                "the ports {ports} of {text:?} are no range: write the first and the last, as in 9000-9015"
            )));
        };
        let addresses = (at.port()..=last).map(|port| Address::Tcp(with_port(at, port)));
        Ok(Target { name: name(host), ..addresses.collect::<Vec<_>>().into() })
    }
}

/// Returns a host that is no address. Without one it is this machine, and of a Unix socket there is none.
fn name(host: &str) -> Option<String> {
    let is_name = !host.is_empty()
        && !host.starts_with(['[', '/', '@'])
        && host.split(':').next() != Some("unix")
        && host.parse::<IpAddr>().is_err();
    // Neither SNI nor a certificate has the dot of an absolute name: RFC 6066, section 3.
    is_name.then(|| host.strip_suffix('.').unwrap_or(host).to_owned())
}

/// Returns the address with this port, and with its scope as before.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn is_range(ports: &str) -> bool {
    ports.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Reads an address to connect to: of those of a name the first that accepts.
fn reached(text: &str) -> Result<Address, BadValue> {
    let all = Address::parse_all(text).map_err(|error| BadValue(error.to_string()))?;
    Ok(reachable(&all).clone())
}

/// Reads a URL such as `http://HOST:PORT/PATH`, by RFC 3986; what is behind a `#` is of no interest to a server.
fn url(text: &str, scheme: &str, rest: &str) -> Result<Target, BadValue> {
    let wrong = |why: &str| BadValue(format!("{text:?} {why}"));
    let (websocket, tls) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (false, false),
        "https" => (false, true),
        "ws" => (true, false),
        "wss" => (true, true),
        _ => {
            let spoken =
                "HTTP/1.1 is, as http:// or https://, and WebSocket, as ws:// or wss://; write HOST:PORT for other workloads";
            return Err(wrong(&format!("is a URL of {scheme}, which is not spoken here: {spoken}")));
        }
    };
    let usual = if tls { 443 } else { 80 };
    let rest = rest.split('#').next().unwrap_or_default();
    let (host, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    if host.contains('@') {
        return Err(wrong("has a user in it: send -H 'Authorization: ...' instead"));
    }
    // A colon of an IPv6 address is inside its brackets.
    let (host, port) = match host.rfind(':').filter(|at| host.rfind(']').is_none_or(|end| end < *at)) {
        Some(at) => (&host[..at], &host[at + 1..]),
        None => (host, ""),
    };
    let host = decoded(host).ok_or_else(|| wrong("has a % in its host that begins no byte"))?;
    if host.is_empty() {
        return Err(wrong("names no host: write http://HOST:PORT/PATH"));
    }
    let address = match port {
        "" => reached(&format!("{host}:{usual}"))?,
        port => reached(&format!("{host}:{port}"))?,
    };
    let Address::Tcp(at) = address else { return Err(wrong("names no host: write http://HOST:PORT/PATH")) };
    // The zone of an address is this machine's own: RFC 6874, section 4.
    let bare = host.split('%').next().unwrap_or_default();
    let host_field = match at.port() {
        port if port == usual => format!("{bare}{}", if host.contains('%') { "]" } else { "" }),
        port => format!("{bare}{}:{port}", if host.contains('%') { "]" } else { "" }),
    };
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let url = Url { host: host_field, path: path.parse()?, tls, websocket };
    Ok(Target { addresses: vec![address], url: Some(url), name: name(&host) })
}

/// Returns a host without percent-encoding, which is UTF-8 then.
fn decoded(host: &str) -> Option<String> {
    let mut parts = host.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

impl Target {
    /// Returns texts from which these addresses are read, in this order; ports that follow each other are one range.
    pub(crate) fn texts(addresses: &[Address]) -> Vec<String> {
        let mut texts: Vec<(String, Option<SocketAddr>, u16)> = Vec::new();
        for address in addresses {
            let Address::Tcp(at) = address else {
                texts.push((address.to_string(), None, 0));
                continue;
            };
            match texts.last_mut() {
                Some((_, Some(first), last)) if last.checked_add(1).map(|next| with_port(*first, next)) == Some(*at) => {
                    *last += 1
                }
                _ => texts.push((address.to_string(), Some(*at), at.port())),
            }
        }
        let text = |(text, first, last): (String, Option<SocketAddr>, u16)| match first {
            Some(first) if last > first.port() => format!("{text}-{last}"),
            _ => text,
        };
        texts.into_iter().map(text).collect()
    }
}

/// Local IP addresses to connect from: one, or all of a network: `127.0.0.2`, `127.0.1.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    first: IpAddr,
    count: u64,
}

impl FromStr for Source {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Source, BadValue> {
        let not_one = || {
            BadValue(
                "not a local IP address: write one without a port, such as 127.0.0.2 or ::1, or a network such as 127.0.1.0/24"
                    .to_owned(),
            )
        };
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| not_one())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(not_one)?,
        };
        let most = bits - MAX_SOURCES.ilog2();
        if prefix < most {
            return Err(BadValue(format!("more than {MAX_SOURCES} addresses: write /{most} or a longer prefix")));
        }
        let count = 1 << (bits - prefix);
        let first = number(address);
        if !first.is_multiple_of(u128::from(count)) {
            let network = at(address, first - first % u128::from(count));
            return Err(BadValue(format!("not where a network begins: write {network}/{prefix}, or {address} for it alone")));
        }
        Ok(Source { first: address, count })
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns the address of this number, of the family of `like`.
fn at(like: IpAddr, number: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
    }
}

impl Source {
    /// Returns all addresses, the first and the last of a network too: on a loopback they are addresses like the others.
    pub(crate) fn addresses(self) -> impl Iterator<Item = IpAddr> {
        (0..self.count).map(move |offset| at(self.first, number(self.first) + u128::from(offset)))
    }

    /// Returns texts from which these addresses are read, in this order; those that are a network together are one.
    pub(crate) fn texts(addresses: &[IpAddr]) -> Vec<String> {
        let mut texts = Vec::new();
        let mut rest = addresses;
        while let Some(first) = rest.first() {
            let follow = |(offset, address): &(usize, &IpAddr)| {
                address.is_ipv4() == first.is_ipv4() && number(**address).checked_sub(number(*first)) == Some(*offset as u128)
            };
            let in_order = rest.iter().take(MAX_SOURCES as usize).enumerate().take_while(follow).count();
            let aligned = number(*first).trailing_zeros().min(in_order.ilog2());
            let bits = if first.is_ipv4() { 32 } else { 128 };
            texts.push(if aligned == 0 { first.to_string() } else { format!("{first}/{}", bits - aligned) });
            rest = &rest[1 << aligned..];
        }
        texts
    }
}

/// Reads the first and the last local port: `20000-29999`.
pub(crate) fn local_ports(text: &str) -> Result<(u16, u16), BadValue> {
    let ports = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let ports = ports.filter(|(first, last)| 0 < *first && first <= last && is_range(text));
    ports.ok_or_else(|| BadValue("not a range of ports: write the first and the last, such as 20000-29999".to_owned()))
}

/// Reads the header of the PROXY protocol: `v2,source=192.0.2.7:4321`.
pub(crate) fn proxy_header(text: &str) -> Result<ProxyHeader, BadValue> {
    let (version, source) = text.split_once(',').map_or((text, None), |(version, source)| (version, Some(source)));
    let source = source.map(|source| source.strip_prefix("source=")?.parse().ok());
    match (version.parse(), source) {
        (Ok(version), None) => Ok(ProxyHeader { version, source: None }),
        (Ok(version), Some(Some(source))) => Ok(ProxyHeader { version, source: Some(source) }),
        _ => Err(BadValue("not a PROXY header: write v1 or v2, and of a client such as v2,source=192.0.2.7:4321".to_owned())),
    }
}

/// Returns a proxy header as it is read.
pub(crate) fn proxy_header_text(header: ProxyHeader) -> String {
    let source = header.source.map(|source| format!(",source={source}")).unwrap_or_default();
    format!("{}{source}", header.version)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{accepts, refuses};
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        let addresses = text.parse::<Target>().unwrap_or_else(|error| panic!("{text}: {error}")).addresses;
        assert_eq!(Target::texts(&addresses).join(" ").parse(), Ok(Target::from(addresses.clone())), "{text}");
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_target_may_have_a_range_of_ports() {
        assert_eq!(targets("127.0.0.1:9000-9002"), ["127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"]);
        assert_eq!(targets("[::1]:7-8"), ["[::1]:7", "[::1]:8"]);
        assert_eq!((targets("9000-9001"), targets(":9000-9000")), (targets("localhost:9000-9001"), targets("9000")));
        assert_eq!(targets("unix:/run/a:1-2"), ["unix:/run/a:1-2"]);
        assert_eq!(targets("127.0.0.1:1-65535").len(), 65_535);
        for text in ["127.0.0.1:9001-9000", "127.0.0.1:0-5", "127.0.0.1:9-65536", "127.0.0.1:1-2-3", "127.0.0.1:-5"] {
            let BadValue(line) = text.parse::<Target>().expect_err(text);
            assert!(line.contains(text), "{line}");
        }
    }

    #[test]
    fn a_url_is_an_address_a_path_and_a_name() {
        for (url, at, host, name, path) in [
            ("http://127.0.0.1:8080/a/b?c", "127.0.0.1:8080", "127.0.0.1:8080", None, "/a/b?c"),
            ("http://127.0.0.1/", "127.0.0.1:80", "127.0.0.1", None, "/"),
            ("http://[::1]/", "[::1]:80", "[::1]", None, "/"),
            ("HTTP://[::1]:81", "[::1]:81", "[::1]:81", None, "/"),
            ("http://[fe80::1%251]:81", "[fe80::1%1]:81", "[fe80::1]:81", None, "/"),
            ("http://[fe80::1%25lo]/", "[fe80::1%lo]:80", "[fe80::1]", None, "/"),
            ("http://localhost:81?x#y", "127.0.0.1:81", "localhost:81", Some("localhost"), "/?x"),
            ("http://localhost", "127.0.0.1:80", "localhost", Some("localhost"), "/"),
            ("http://localhost:/", "127.0.0.1:80", "localhost", Some("localhost"), "/"),
            ("http://localhost:80/", "127.0.0.1:80", "localhost", Some("localhost"), "/"),
            ("http://localhost:443/", "127.0.0.1:443", "localhost:443", Some("localhost"), "/"),
            ("http://%6cocalhost:81/", "127.0.0.1:81", "localhost:81", Some("localhost"), "/"),
            ("hTTps://localhost/b", "127.0.0.1:443", "localhost", Some("localhost"), "/b"),
            ("https://[::1]", "[::1]:443", "[::1]", None, "/"),
        ] {
            let target = url.parse::<Target>().unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(target.addresses, [at.parse().expect(at)], "{url}");
            let tls = url.to_lowercase().starts_with("https");
            assert_eq!(
                target.url,
                Some(Url { host: host.to_owned(), path: Path(path.to_owned()), tls, websocket: false }),
                "{url}"
            );
            assert_eq!(target.name.as_deref(), name, "{url}");
        }
        assert_eq!(super::name("example.org."), Some("example.org".to_owned()), "a certificate has no dot");
        for (url, hint) in [
            ("ftp://127.0.0.1/", "a URL of ftp, which is not spoken here: HTTP/1.1 is, as http:// or https://, and WebSocket"),
            ("http://me@127.0.0.1:80", "-H 'Authorization: ...'"),
            ("http://%zz/", "begins no byte"),
            ("http://%+1/", "begins no byte"),
            ("http://b\u{fc}cher.example/", "xn--"),
            ("http://127.0.0.1:http/", "is not a number"),
            ("http://[::1/", "no IPv6 address"),
            ("http://[fe80::1%25nowhere]/", "no network interface"),
            ("http://me:pw@127.0.0.1/", "-H 'Authorization: ...'"),
            ("http://127.0.0.1/a b", "not a path"),
            ("http://", "names no host"),
            ("http://:80/", "names no host"),
        ] {
            let BadValue(line) = url.parse::<Target>().expect_err(url);
            assert!(line.contains(hint), "{line}");
        }
    }

    #[test]
    fn targets_are_written_in_ranges() {
        let parse = |text: &str| text.parse::<Address>().expect(text);
        let all =
            ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:4", "unix:/a", "127.0.0.1:5", "127.0.0.2:6", "127.0.0.2:5"].map(parse);
        let texts = Target::texts(&all);
        assert_eq!(texts, ["127.0.0.1:1-2", "127.0.0.1:4", "unix:/a", "127.0.0.1:5", "127.0.0.2:6", "127.0.0.2:5"]);
    }

    fn sources(text: &str) -> Vec<IpAddr> {
        text.parse::<Source>().expect(text).addresses().collect()
    }

    #[test]
    fn a_source_is_an_address_or_a_network_and_has_no_port() {
        assert_eq!(sources("127.0.0.2"), [IpAddr::from([127, 0, 0, 2])]);
        assert_eq!(sources("::1"), [IpAddr::from(Ipv6Addr::LOCALHOST)]);
        let network = sources("127.0.0.0/28");
        assert_eq!((network.len(), network[0], network[15]), (16, [127, 0, 0, 0].into(), [127, 0, 0, 15].into()));
        assert_eq!(
            (sources("10.1.0.0/16").len(), sources("fd00::/112").len(), sources("10.0.0.7/32").len()),
            (65_536, 65_536, 1)
        );
        refuses(
            str::parse::<Source>,
            &["", "127.0.0.2:80", "[::1]", "localhost", "127.0.0.0/8", "127.0.0.0/33", "127.0.0.0/", "::/0", "127.0.0.1/28"],
        );
        let BadValue(line) = "127.0.0.17/28".parse::<Source>().expect_err("it begins at 16");
        assert!(line.contains("127.0.0.16/28"), "{line}");
    }

    #[test]
    fn sources_are_written_as_networks() {
        for texts in [
            &["127.0.0.0/28"][..],
            &["127.0.0.2", "127.0.0.3"],
            &["10.0.0.0/16", "10.1.0.0/16", "::1", "fd00::/120"],
            &["0.0.0.0/16", "255.255.255.255", "0.0.0.0"],
        ] {
            let addresses: Vec<IpAddr> = texts.iter().flat_map(|text| sources(text)).collect();
            let written = Source::texts(&addresses);
            assert_eq!(written.iter().flat_map(|text| sources(text)).collect::<Vec<_>>(), addresses);
            assert!(written.len() <= texts.len(), "{written:?}");
        }
    }

    #[test]
    fn a_proxy_header_is_a_version_and_a_client() {
        for text in ["v1", "v2", "v1,source=192.0.2.7:4321", "v2,source=[2001:db8::7]:1"] {
            assert_eq!(proxy_header_text(proxy_header(text).expect("it is one")), text);
        }
        refuses(
            proxy_header,
            &["", "v3", "2", "v2,", "v2,192.0.2.7:4321", "v2,source=192.0.2.7", "v2,source=", "source=192.0.2.7:1"],
        );
    }

    #[test]
    fn local_ports_are_a_range() {
        accepts(local_ports, &[("20000-29999", (20_000, 29_999)), ("1-1", (1, 1))]);
        refuses(local_ports, &["", "1", "0-5", "5-4", "1-65536", "a-b", "+1-5", "1-2-3", "1-"]);
    }
}
