//! The kernel's own count of connections, which sees every one that a server lost before accepting it.

use std::fs;

/// Connections of this network namespace that listeners completed since it began. None where /proc does not tell.
pub(crate) fn passive_opens() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/net/snmp").ok()?)
}

/// /proc/net/snmp has two lines for each protocol: names, then values in the same order.
fn parse(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "PassiveOpens")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_by_its_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 12 345\nUdp: A\nUdp: 1\n";
        assert_eq!(parse(snmp), Some(345));
        assert_eq!(parse("Tcp: PassiveOpens\n"), None);
        assert!(passive_opens().is_some());
    }
}
