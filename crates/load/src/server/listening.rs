//! Listening sockets of this machine, by their addresses, out of the kernel's tables.

use super::unix_diag;
use sockdrawer::{Address, listening::AcceptQueue};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a TCP socket that listens.
const LISTEN: &str = "0A";
/// The flag of a Unix socket that listens.
const ACCEPTS: &str = "00010000";

/// Returns the sockets, by their numbers, that get what is sent to `target`. None where there is none on this machine, or in another network of it.
pub(super) fn sockets(target: &Address) -> Option<BTreeSet<u64>> {
    let found = match target {
        Address::Tcp(target) => tcp(target.ip().to_canonical(), target.port()),
        // A kernel that does not tell files is asked for names.
        Address::Unix(path) => {
            unix_diag::at_file(path).ok().filter(|found| !found.is_empty()).or_else(|| path.to_str().map(unix))?
        }
        Address::Abstract(name) => unix(&format!("@{}", std::str::from_utf8(name).ok()?)),
    };
    (!found.is_empty()).then_some(found)
}

fn tcp(address: IpAddr, port: u16) -> BTreeSet<u64> {
    if !is_of_this_machine(address) {
        return BTreeSet::new();
    }
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    let all: Vec<(SocketAddr, u64)> = tables.into_iter().flat_map(listeners).filter(|(local, _)| local.port() == port).collect();
    let at = |wanted: &[IpAddr]| -> BTreeSet<u64> {
        all.iter().filter(|(local, _)| wanted.contains(&local.ip())).map(|(_, socket)| *socket).collect()
    };
    // A socket of the one address goes before those of all addresses. One of all IPv6 addresses may take IPv4 too.
    let exact = at(&[address]);
    let family: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let of_family = at(&[family]);
    match (exact.is_empty(), of_family.is_empty()) {
        (false, _) => exact,
        (true, false) => of_family,
        (true, true) => at(&[Ipv6Addr::UNSPECIFIED.into()]),
    }
}

/// Returns the listening sockets of a table, where they come first: a connection ends the reading, or a million of them would be read.
fn listeners(table: &str) -> Vec<(SocketAddr, u64)> {
    let lines = File::open(table).map(|file| BufReader::new(file).lines().skip(1).map_while(Result::ok)).into_iter().flatten();
    lines.map_while(|line| listener(&line)).collect()
}

/// Reads a line of /proc/net/tcp or tcp6, where it is of a socket that listens.
fn listener(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, LISTEN, _, _, _, _, _, socket, ..] = fields.as_slice() else {
        return None;
    };
    let (address, port) = local.split_once(':')?;
    let address = address_of(address)?.to_canonical();
    Some((SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?), socket.parse().ok()?))
}

/// Reads an address as these tables have it: words in the order of this machine's bytes.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Some(IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => None,
    }
}

pub(super) fn is_of_this_machine(address: IpAddr) -> bool {
    let table = |path| fs::read_to_string(path).unwrap_or_default();
    address.is_loopback()
        || match address {
            IpAddr::V4(address) => has_local(&table("/proc/net/fib_trie"), address),
            IpAddr::V6(address) => table("/proc/net/if_inet6").lines().any(|line| line.starts_with(&hex(address))),
        }
}

/// Returns true where the routing table has the address of a host of its own: a line with the address, then one that says so.
fn has_local(trie: &str, address: Ipv4Addr) -> bool {
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let leaf = format!("|-- {address}");
    lines.windows(2).any(|pair| pair == [leaf.as_str(), "/32 host LOCAL"])
}

fn hex(address: Ipv6Addr) -> String {
    address.octets().map(|byte| format!("{byte:02x}")).concat()
}

fn unix(path: &str) -> BTreeSet<u64> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    table.lines().filter_map(|line| unix_listener(line, path)).collect()
}

/// Reads a line of /proc/net/unix, where it is of a socket that listens at `path`, which may have blanks.
fn unix_listener(line: &str, path: &str) -> Option<u64> {
    let fields: Vec<&str> = line.strip_suffix(path)?.strip_suffix(' ')?.split_whitespace().collect();
    match fields.as_slice() {
        [_, _, _, ACCEPTS, _, _, socket] => socket.parse().ok(),
        _ => None,
    }
}

/// Returns the accept queues of these targets that are in this network.
pub(crate) fn accept_queues<'a>(targets: impl IntoIterator<Item = &'a Address>) -> Vec<AcceptQueue> {
    let of = |target: &Address| {
        if let Address::Tcp(target) = target { sockdrawer::listening::accept_queues(*target).ok() } else { None }
    };
    targets.into_iter().filter_map(of).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    #[cfg(target_endian = "little")]
    fn the_kernels_tables_are_read() {
        let line =
            "   3: 0100007F:2329 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0";
        assert_eq!(listener(line), Some(("127.0.0.1:9001".parse().expect("an address"), 4711)));
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None, "a connection");
        let line = "   0: 00000000000000000000000001000000:0050 0:0 0A 0:0 00:0 0 0 0 12 1";
        assert_eq!(listener(line), Some(("[::1]:80".parse().expect("an address"), 12)));
        let mapped = "   0: 0000000000000000FFFF00000100007F:0050 0:0 0A 0:0 00:0 0 0 0 12 1";
        assert_eq!(listener(mapped), Some(("127.0.0.1:80".parse().expect("an address"), 12)));
        assert_eq!(listener("  sl  local_address rem_address   st"), None);
        let line = "00000000f515ab09: 00000002 00000000 00010000 0001 01  1130 /a b";
        assert_eq!((unix_listener(line, "/a b"), unix_listener(line, "b"), unix_listener(line, "/a")), (Some(1130), None, None));
    }

    #[test]
    fn addresses_of_other_machines_have_no_sockets_here() {
        let trie = "  |-- 10.0.0.5\n     /32 host LOCAL\n  |-- 10.0.0.0\n     /24 link UNICAST\n";
        assert!(has_local(trie, [10, 0, 0, 5].into()));
        assert!(!has_local(trie, [10, 0, 0, 0].into()) && !has_local(trie, [10, 0, 0, 50].into()));
        let everywhere = TcpListener::bind("0.0.0.0:0").expect("a free port");
        let port = everywhere.local_addr().expect("it is bound").port();
        let at = |host: [u8; 4]| sockets(&Address::Tcp((host, port).into()));
        assert!(at([127, 0, 0, 9]).is_some_and(|sockets| sockets.len() == 1));
        // A network for documents: no machine has this address.
        assert_eq!(at([203, 0, 113, 77]), None);
    }

    #[test]
    fn a_socket_of_the_very_address_goes_before_one_of_all() {
        let one = TcpListener::bind("[::1]:0").expect("a free port");
        let port = one.local_addr().expect("it is bound").port();
        let at = |address: IpAddr| sockets(&Address::Tcp((address, port).into()));
        assert!(at(Ipv6Addr::LOCALHOST.into()).is_some());
        // An address where no other test listens, which may have the port at the usual one.
        assert_eq!(at(Ipv4Addr::new(127, 0, 96, 5).into()), None);
    }

    #[test]
    fn unix_sockets_are_found_by_their_names_and_by_their_files() {
        let path = std::env::temp_dir().join(format!("sockdrawer-cost-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a free name");
        let stream = UnixStream::connect(&path).expect("it listens");
        let accepted = listener.accept().expect("a connection");
        let found = sockets(&Address::Unix(path.clone()));
        assert_eq!(unix_diag::at_file(&path).ok(), found);
        assert_eq!(found, Some(unix(path.to_str().expect("text"))));
        // A socket that is bound at another name and renamed is at the path, and the name leads to nothing.
        let moved = path.with_extension("moved");
        std::fs::rename(&path, &moved).expect("it is there");
        assert_eq!(sockets(&Address::Unix(moved.clone())), found);
        std::fs::rename(&moved, &path).expect("it is there");
        std::fs::remove_file(&path).expect("it is there");
        assert!(found.is_some_and(|sockets| sockets.len() == 1), "the connections have the name too, and do not listen");
        drop((stream, accepted));
        assert_eq!(sockets(&Address::Abstract(b"nobody has this name".to_vec())), None);
    }
}
