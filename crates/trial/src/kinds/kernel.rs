//! The kernel's own count of connections, which includes connections that a server lost before it accepted them.

use std::collections::BTreeSet;
use std::fs::{File, read_to_string};
use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;

/// Returns the connections completed by listeners of this network namespace since it began. None if /proc does not tell.
pub(crate) fn passive_opens() -> Option<u64> {
    let text = read_to_string("/proc/self/net/snmp").ok()?;
    // Two lines per protocol: names, then values in the order of the names.
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "PassiveOpens")?.1.parse().ok()
}

/// Returns the inode numbers of the sockets that listen at `address`, of all processes. None if /proc does not tell.
pub(crate) fn listening(address: SocketAddrV4) -> Option<BTreeSet<u64>> {
    const LISTENS: &str = "0A";
    let wanted = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let mut found = BTreeSet::new();
    for line in BufReader::new(File::open("/proc/thread-self/net/tcp").ok()?).lines().skip(1) {
        let line = line.ok()?;
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
        // Listening sockets come first.
        if *state != LISTENS {
            break;
        }
        if *local == wanted {
            found.insert(inode.parse().ok()?);
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};

    #[test]
    fn a_socket_that_listens_is_found() {
        // At an address where no other test listens: the port stays free.
        let listener = TcpListener::bind("127.0.95.2:0").expect("binds");
        let SocketAddr::V4(address) = listener.local_addr().expect("bound") else { unreachable!("an IPv4 address") };
        assert_eq!(listening(address).expect("/proc is mounted").len(), 1);
        drop(listener);
        assert!(listening(address).is_none_or(|found| found.is_empty()));
    }
}
