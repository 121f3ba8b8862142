//! Local ports that a connect may have. A socket with a range of its own is given a free port at a cost that stays flat to the last
//! one (`IP_LOCAL_PORT_RANGE`, Linux 6.3); else the kernel tries one half of the ports before the other, which costs twenty times as
//! much as soon as the first is used up.

use crate::sys;
use std::net::SocketAddr;

/// First and last port of a range, both included.
pub(super) type Range = (u16, u16);

/// The ports of one dialer.
pub(super) struct Ports {
    range: Option<Range>,
    /// The range was asked for: without it there is no connection.
    pub(super) asked: bool,
}

impl Ports {
    /// Takes the ports that were asked for, or all that the system gives out.
    pub(super) fn new(asked: Option<Range>) -> Ports {
        Ports { range: asked.or_else(sys::local_ports), asked: asked.is_some() }
    }

    /// Returns the ranges for a connect, in the order of the attempts. The target's own port is in none of them: a connect from it
    /// meets itself where no socket listens. Which part is the first one depends on `turn`, so that both fill up at the same pace.
    pub(super) fn towards(&self, target: SocketAddr, turn: usize) -> [Option<Range>; 2] {
        let Some((from, to)) = self.range else { return [None; 2] };
        let port = target.port();
        if port < from || to < port {
            return [self.range, None];
        }
        let (below, above) = (port - from, to - port);
        let parts = [(below > 0).then(|| (from, port - 1)), (above > 0).then(|| (port + 1, to))];
        // Multiples of the golden ratio: however many turns there were, each part had its share of them.
        let spread = (turn as u32).wrapping_mul(0x9E37_79B9);
        let first = (u64::from(spread) * (u64::from(below) + u64::from(above))) >> 32;
        if first < u64::from(below) { parts } else { [parts[1], parts[0]] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn towards(range: Range, port: u16, turn: usize) -> [Option<Range>; 2] {
        Ports::new(Some(range)).towards(([127, 0, 0, 1], port).into(), turn)
    }

    #[test]
    fn a_target_outside_the_range_leaves_it_whole() {
        for port in [1, 19_999, 30_001] {
            assert_eq!(towards((20_000, 30_000), port, 0), [Some((20_000, 30_000)), None]);
        }
    }

    #[test]
    fn the_targets_own_port_is_left_out_and_each_part_has_its_share() {
        let (below, above) = (Some((20_000, 22_499)), Some((22_501, 30_000)));
        for turns in [100, 10_000] {
            let firsts: Vec<_> = (0..turns).map(|turn| towards((20_000, 30_000), 22_500, turn)).collect();
            let lower = firsts.iter().filter(|parts| **parts == [below, above]).count();
            let upper = firsts.iter().filter(|parts| **parts == [above, below]).count();
            assert_eq!(lower + upper, turns);
            assert!((lower * 4).abs_diff(turns) < 20, "{lower} of {turns}");
        }
    }

    #[test]
    fn at_the_edge_there_is_one_part_and_of_one_port_none() {
        let parts = |port, turn| towards((20_000, 20_001), port, turn).into_iter().flatten().collect::<Vec<_>>();
        for turn in 0..10 {
            assert_eq!(parts(20_000, turn), [(20_001, 20_001)]);
            assert_eq!(parts(20_001, turn), [(20_000, 20_000)]);
            assert_eq!(towards((20_000, 20_000), 20_000, turn), [None; 2]);
        }
    }
}
