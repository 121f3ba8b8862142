//! Counters of a network of this machine: of a server, those of its process.

use crate::proc;

/// Counters since the network began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    /// TCP segments of all sockets in it.
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    /// Segments of `packets_out` that had been sent before.
    pub(super) sent_again: u64,
    /// Bytes of IP packets, with their headers.
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Connections that were complete for their clients and found the accept queue full.
    pub(super) overflows: u64,
    /// Those, and all others that a listener turned away.
    pub(super) drops: u64,
    /// Handshakes that found the queue of handshakes full.
    pub(super) handshakes_dropped: u64,
}

/// Reads the network that this process is in; None: that of the calling thread.
pub(super) fn read(process: Option<u32>) -> Option<Network> {
    let folder = process.map_or_else(|| "/proc/thread-self/net".to_owned(), |id| format!("/proc/{id}/net"));
    let table = |name: &str| proc::text(&format!("{folder}/{name}"));
    parse(&table("snmp")?, &table("netstat")?, &table("snmp6").unwrap_or_default())
}

fn parse(snmp: &str, netstat: &str, snmp6: &str) -> Option<Network> {
    let tcp = |name| proc::counter(snmp, "Tcp", name);
    let more = |name| proc::counter(netstat, "TcpExt", name).unwrap_or(0);
    let ip = |name| proc::counter(netstat, "IpExt", name);
    let ip6 = |name| snmp6.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(Network {
        packets_in: tcp("InSegs")?,
        packets_out: tcp("OutSegs")?,
        sent_again: tcp("RetransSegs").unwrap_or(0),
        bytes_in: ip("InOctets")? + ip6("Ip6InOctets"),
        bytes_out: ip("OutOctets")? + ip6("Ip6OutOctets"),
        overflows: more("ListenOverflows"),
        drops: more("ListenDrops"),
        handshakes_dropped: more("TCPReqQFullDrop"),
    })
}

impl Network {
    /// Returns the counts since `before`.
    pub(super) fn since(&self, before: &Network) -> Network {
        Network {
            packets_in: self.packets_in.saturating_sub(before.packets_in),
            packets_out: self.packets_out.saturating_sub(before.packets_out),
            sent_again: self.sent_again.saturating_sub(before.sent_again),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            overflows: self.overflows.saturating_sub(before.overflows),
            drops: self.drops.saturating_sub(before.drops),
            handshakes_dropped: self.handshakes_dropped.saturating_sub(before.handshakes_dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_by_name() {
        let snmp = "Tcp: InSegs OutSegs RetransSegs\nTcp: 10 20 2\n";
        let netstat =
            "TcpExt: ListenOverflows ListenDrops TCPReqQFullDrop\nTcpExt: 3 4 5\nIpExt: InOctets OutOctets\nIpExt: 100 200\n";
        let network = parse(snmp, netstat, "Ip6InOctets                     \t7\nIp6OutOctets\t8\n").expect("whole tables");
        let expected = Network {
            packets_in: 10,
            packets_out: 20,
            sent_again: 2,
            bytes_in: 107,
            bytes_out: 208,
            overflows: 3,
            drops: 4,
            handshakes_dropped: 5,
        };
        assert_eq!(network, expected);
        assert_eq!(network.since(&network), Network::default());
        assert_eq!(parse(snmp, "", ""), None);
        assert!(read(None).is_some() && read(Some(std::process::id())).is_some());
    }
}
