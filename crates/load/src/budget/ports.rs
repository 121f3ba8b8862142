//! Ports of this side, and how long one rests after its connection: how many short connections there may be.
//!
//! What a kernel 6.18 does, measured in a network of its own with 1,000 ports and connects one after the other:
//!
//! | who ends a connection | `tcp_tw_reuse` | connects until EADDRNOTAVAIL |
//! | --- | --- | --- |
//! | the server, or a reset | any | no end |
//! | this side | 0, or 2 to an address that is not 127.0.0.0/8 though it is this machine's | 1,000 in 60 s |
//! | this side | 1, or 2 to 127.0.0.0/8 | 1,000 in each second: 3,802 in 3.5 s |
//! | this side | 1, without `tcp_timestamps` | 1,000 in 60 s |
//!
//! A second address to connect from or to has all ports for itself, also a second port to connect to. `tcp_tw_reuse_delay` is the
//! second; with 3,000 ms there were 2,000 connects in 4 s. Reserved ports are left out. Beyond `tcp_max_tw_buckets` connections in
//! TIME_WAIT the kernel forgets them at once, which nobody should count on.

use crate::numbers::float;
use crate::plan::{End, Plan};
use crate::proc;
use sockdrawer::Address;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// TCP_TIMEWAIT_LEN of the kernel, which no setting changes.
const TIME_WAIT: Duration = Duration::from_secs(60);

/// Condition for the use of a pair of ports in TIME_WAIT before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reuse {
    Never,
    Always,
    OnLoopback,
}

/// Ports that this machine gives to connections that it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first and the last.
    range: (u16, u16),
    /// Ranges that are left out.
    reserved: Vec<(u16, u16)>,
    reuse: Reuse,
    /// Time after which a pair may be used again.
    delay: Duration,
}

impl Ports {
    /// Returns the ports as the settings of this machine say now; None where they cannot be read.
    pub fn of_this_machine() -> Option<Ports> {
        let number = |name: &str| proc::number(&format!("net.ipv4.{name}"));
        let range = range(&proc::setting("net.ipv4.ip_local_port_range")?)?;
        let reserved = reserved(&proc::setting("net.ipv4.ip_local_reserved_ports").unwrap_or_default());
        let reuse = match (number("tcp_tw_reuse"), number("tcp_timestamps")) {
            (_, Some(0)) => Reuse::Never,
            (Some(1), _) => Reuse::Always,
            (Some(2), _) => Reuse::OnLoopback,
            _ => Reuse::Never,
        };
        // Kernels before 6.14 have no such setting and wait for a second.
        let delay = Duration::from_millis(number("tcp_tw_reuse_delay").unwrap_or(1000));
        Some(Ports { range, reserved, reuse, delay })
    }

    /// Returns the free ports, of the range `of` alone where one is given: the kernel takes none outside its own range.
    fn given(&self, of: Option<(u16, u16)>) -> impl Iterator<Item = u16> {
        let (first, last) = of.unwrap_or(self.range);
        let is_free = |port: &u16| !self.reserved.iter().any(|(from, to)| (from..=to).contains(&port));
        (first.max(self.range.0)..=last.min(self.range.1)).filter(is_free)
    }

    /// Returns the number of free ports.
    fn count(&self, of: Option<(u16, u16)>) -> u64 {
        self.given(of).count() as u64
    }

    /// Returns what the ports allow this run. None: it connects by Unix sockets only, which have no ports.
    pub fn room(&self, plan: &Plan) -> Option<Room> {
        let tcp = |target: &Address| match target {
            Address::Tcp(target) => Some(*target),
            _ => None,
        };
        let targets: BTreeSet<_> = plan.targets.iter().filter_map(tcp).collect();
        if targets.is_empty() && !plan.targets.is_empty() {
            return None;
        }
        // The kernel looks at IPv4 addresses here, and at those of IPv6 that stand for one.
        let on_loopback = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        };
        let local = targets.iter().all(|target| on_loopback(target.ip()));
        let sources: BTreeSet<IpAddr> = plan.sources.iter().copied().collect();
        let rest = match self.reuse {
            Reuse::Always => self.delay,
            Reuse::OnLoopback if local => self.delay,
            _ => TIME_WAIT,
        };
        let is_own = |target: &&SocketAddr| self.given(plan.local_ports).any(|port| port == target.port());
        // A server in this process has a port that the kernel has given it, most likely one of these.
        let own = if targets.is_empty() { 1 } else { targets.iter().filter(is_own).count() as u64 };
        let (targets, sources) = (targets.len().max(1) as u64, sources.len().max(1) as u64);
        Some(Room { pairs: Pairs { ports: self.count(plan.local_ports), targets, sources, own }, rest })
    }
}

/// Parses a range such as `32768 60999`.
fn range(text: &str) -> Option<(u16, u16)> {
    let mut ends = text.split_whitespace().map(|end| end.parse::<u16>().ok());
    Some((ends.next()??, ends.next()??))
}

/// Parses ranges such as `40000-40499,50000`.
fn reserved(text: &str) -> Vec<(u16, u16)> {
    let part = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    text.trim().split(',').filter_map(part).collect()
}

/// Connections that differ in an address or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// Ports of each local address.
    pub ports: u64,
    /// Addresses connected to.
    pub targets: u64,
    /// Addresses connected from.
    pub sources: u64,
    /// Targets whose own port is one of these: no connect to them comes from it.
    pub own: u64,
}

impl Pairs {
    /// Returns the number of all pairs.
    pub fn count(&self) -> u64 {
        self.of_each_source().saturating_mul(self.sources)
    }

    /// Returns the number of pairs of one source.
    pub(super) fn of_each_source(&self) -> u64 {
        self.ports.saturating_mul(self.targets).saturating_sub(self.own)
    }
}

/// Connections that the machine's ports allow a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Connections at once, those in TIME_WAIT included.
    pub pairs: Pairs,
    /// Time that a pair of ports rests in TIME_WAIT when this side has ended its connection.
    pub rest: Duration,
}

/// Shortage of ports for a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shortage {
    /// The run has more connections at once than pairs.
    AtOnce,
    /// The run may make this number of connects while the first of them still rests.
    Resting {
        /// Connects.
        connects: u64,
        /// Number of connects that there is room for.
        room: u64,
    },
}

impl Room {
    /// Returns the maximum of connects per second that `plan` must keep to because of the ports; None: there is no such bound.
    ///
    /// # Errors
    /// When what it asks for does not fit.
    pub fn fit(&self, plan: &Plan) -> Result<Option<f64>, Shortage> {
        let pairs = self.pairs.count();
        let room = pairs.checked_sub(plan.connections as u64).ok_or(Shortage::AtOnce)?;
        // In a run that is over sooner, the last connect comes before the first pair is free again.
        let window = match plan.end {
            End::AfterFirstConnect(time) => self.rest.min(time),
            End::AfterLastConnect(_) | End::AfterStages | End::Never => self.rest,
        };
        if let Some(lifetime) = plan.lifetime {
            let connects = whole(float(plan.connections as u64) * window.as_secs_f64() / lifetime.as_secs_f64());
            return if connects <= room { Ok(None) } else { Err(Shortage::Resting { connects, room }) };
        }
        let properties = plan.workload.properties();
        if !properties.ends_first {
            return Ok(None);
        }
        let asked = properties.schedule.or(plan.connect_rate);
        let most = asked.map(|rate| whole(rate * window.as_secs_f64()));
        let connects = match (most, plan.operations) {
            (Some(most), Some(operations)) => Some(most.min(operations)),
            (most, operations) => most.or(operations),
        };
        match connects {
            Some(connects) if connects <= room => Ok(None),
            // The rate of a closed loop shows when it runs: where pairs rest for long, it would run out of them for sure.
            Some(connects) if asked.is_some() || self.rest == TIME_WAIT => Err(Shortage::Resting { connects, room }),
            _ => Ok(Some(self.rate(room, window))),
        }
    }

    fn rate(&self, room: u64, window: Duration) -> f64 {
        (float(room) / window.as_secs_f64()).floor().max(1.0)
    }

    /// Returns the connects per second that never run out of pairs, however long the run goes on.
    pub fn for_ever(&self, connections: usize) -> f64 {
        self.rate(self.pairs.count().saturating_sub(connections as u64), self.rest)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0, and more than 2^64 is all")]
fn whole(connects: f64) -> u64 {
    connects.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use crate::workload::{Workload, http::Wanted};
    use sockdrawer_catalog::http::Close;

    fn plan(targets: &[&str], close: Close) -> Plan {
        wanted(targets, Wanted { close: Some(close), ..Wanted::default() })
    }

    fn wanted(targets: &[&str], wanted: Wanted) -> Plan {
        let targets = targets.iter().map(|target| target.parse().expect("an address")).collect();
        Plan { targets, ..plan::tests::plan(Workload::Http(wanted)) }
    }

    /// Returns 1,050 ports.
    fn ports(reuse: Reuse) -> Ports {
        Ports {
            range: (10_000, 11_149),
            reserved: vec![(10_000, 10_098), (20_000, 20_001), (11_149, 11_149)],
            reuse,
            delay: Duration::from_secs(1),
        }
    }

    const FAR: &[&str] = &["192.0.2.1:80"];

    fn fit(plan: &Plan) -> Result<Option<f64>, Shortage> {
        ports(Reuse::OnLoopback).room(plan).expect("TCP has ports").fit(plan)
    }

    #[test]
    fn ports_are_those_of_the_range_without_the_reserved_ones() {
        let count =
            |text, without, of| Some(Ports { range: range(text)?, reserved: reserved(without), ..ports(Reuse::Never) }.count(of));
        assert_eq!(count("32768\t60999\n", "\n", None), Some(28_232));
        assert_eq!(count("40000 40999", "40000-40499,40998,80", None), Some(499));
        assert_eq!(count("40000 40999", "40000-40499,40998,80", Some((40_900, 50_000))), Some(99));
        assert_eq!(count("65535 65535", "", None), Some(1));
        assert_eq!(count("", "", None), None);
        assert!(Ports::of_this_machine().is_some_and(|ports| ports.count(None) > 0));
    }

    #[test]
    fn where_pairs_rest_and_for_how_long() {
        let room = |targets: &[&str], reuse| ports(reuse).room(&plan(targets, Close::Fin)).expect("TCP has ports");
        let rest = |targets: &[&str], reuse| room(targets, reuse).rest.as_secs();
        assert_eq!((rest(&[], Reuse::OnLoopback), rest(&["127.0.0.9:80"], Reuse::OnLoopback)), (1, 1));
        assert_eq!((rest(FAR, Reuse::OnLoopback), rest(&["127.0.0.1:80", FAR[0]], Reuse::OnLoopback)), (60, 60));
        assert_eq!((rest(FAR, Reuse::Always), rest(&["127.0.0.1:80"], Reuse::Never)), (1, 60));
        assert_eq!(room(&["192.0.2.1:80", "192.0.2.1:81", "192.0.2.1:80"], Reuse::Never).pairs.count(), 2100);
        let from = Plan { sources: vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()], ..plan(FAR, Close::Fin) };
        assert_eq!(ports(Reuse::OnLoopback).room(&from).map(|room| room.pairs.count()), Some(2100));
        assert_eq!(ports(Reuse::OnLoopback).room(&plan(&["unix:/run/x"], Close::Fin)), None);
    }

    #[test]
    fn a_targets_own_port_is_none_to_connect_from() {
        let to = |targets: &[&str], connections| Plan { connections, ..plan(targets, Close::Rst) };
        for (target, most) in [("127.0.0.1:10500", 1049), ("127.0.0.1:10050", 1050), ("127.0.0.1:11150", 1050)] {
            assert_eq!((fit(&to(&[target], most)), fit(&to(&[target], most + 1))), (Ok(None), Err(Shortage::AtOnce)), "{target}");
        }
        let alone = Plan { local_ports: Some((10_500, 10_500)), ..to(&["127.0.0.1:10500"], 1) };
        assert_eq!(fit(&alone), Err(Shortage::AtOnce), "it alone is no port at all");
        let sources = vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
        let several = Plan { sources, ..to(&["127.0.0.1:10500", "127.0.0.1:10501", "127.0.0.1:80"], 1) };
        assert_eq!(ports(Reuse::Never).room(&several).map(|room| room.pairs.count()), Some(2 * (3 * 1050 - 2)));
    }

    #[test]
    fn what_this_side_ends_must_fit() {
        let far = |operations| Plan { operations: Some(operations), ..plan(FAR, Close::Fin) };
        assert_eq!((fit(&far(1000)), fit(&far(1001))), (Ok(None), Err(Shortage::Resting { connects: 1001, room: 1000 })));
        let paced = |rate| wanted(FAR, Wanted { close: Some(Close::Fin), rate: Some(rate), ..Wanted::default() });
        assert_eq!(fit(&paced(16.0)), Ok(None));
        assert_eq!(fit(&paced(17.0)), Err(Shortage::Resting { connects: 1020, room: 1000 }));
        assert_eq!(fit(&Plan { operations: Some(900), ..paced(17.0) }), Ok(None), "few enough in all");
        assert_eq!(fit(&Plan { end: End::AfterFirstConnect(Duration::from_secs(50)), ..paced(17.0) }), Ok(None), "short enough");
        let limited = Plan { connect_rate: Some(17.0), ..plan(FAR, Close::Fin) };
        assert_eq!(fit(&limited), Err(Shortage::Resting { connects: 1020, room: 1000 }));
    }

    #[test]
    fn what_ends_by_its_lifetime_must_fit_too() {
        let ping = Workload::ping(Duration::ZERO);
        let ends = |seconds| Plan {
            targets: vec![FAR[0].parse().expect("an address")],
            lifetime: Some(Duration::from_secs(seconds)),
            ..plan::tests::plan(ping.clone())
        };
        assert_eq!((fit(&ends(3)), fit(&ends(2))), (Ok(None), Err(Shortage::Resting { connects: 1500, room: 1000 })));
    }

    #[test]
    fn a_closed_loop_is_kept_within() {
        assert_eq!(fit(&plan(FAR, Close::Fin)), Ok(Some(16.0)));
        let short = Plan { end: End::AfterFirstConnect(Duration::from_secs(10)), ..plan(FAR, Close::Fin) };
        assert_eq!(fit(&short), Ok(Some(100.0)));
        assert_eq!(fit(&Plan { operations: Some(5000), ..plan(&[], Close::Fin) }), Ok(Some(999.0)));
    }

    #[test]
    fn what_the_server_ends_or_a_reset_needs_pairs_for_those_at_once_only() {
        for close in [Close::Server, Close::Rst] {
            let many = |connections| Plan { operations: Some(1_000_000), connections, ..plan(FAR, close) };
            assert_eq!((fit(&many(1050)), fit(&many(1051))), (Ok(None), Err(Shortage::AtOnce)));
        }
        let kept = wanted(FAR, Wanted { close: None, ..Wanted::default() });
        assert_eq!(fit(&Plan { operations: Some(1_000_000), ..kept }), Ok(None));
    }
}
