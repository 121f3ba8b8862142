//! Local ports: the cost of a connect stays flat to the last one, and none of them is the target's own.

mod common;

use common::{PATIENCE, alone};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use rustix::time::{ClockId, clock_gettime};
use sockdrawer::{
    Address, Config, ConnectFailure, Connecting, Context, Error, Input, Local, Peer, Pool, Protocol, Service, Step,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The ports of the private network.
const FIRST: u16 = 20_000;
const PORTS: u16 = 16_384;
const EIGHTH: usize = PORTS as usize / 8;

/// What the connections of a pool noted.
#[derive(Clone, Default)]
struct Notes {
    /// The CPU time of the loop when each stood.
    stood: Vec<Duration>,
    failed: Vec<i32>,
}

/// Connects, and stays.
#[derive(Clone, Default)]
struct Client(Arc<Mutex<Notes>>);

impl Client {
    fn note(&self, note: impl FnOnce(&mut Notes)) {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn notes(&self) -> Notes {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Service for Client {
    type Protocol = Stays;
    fn open(&self, _peer: &Peer) -> Stays {
        self.note(|notes| notes.stood.push(cpu_time()));
        Stays
    }
    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.note(|notes| notes.failed.push(failure.errno));
    }
}

struct Stays;

impl Protocol for Stays {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Abort
    }
}

/// Of the loop: the kernel's part of a connect on loopback, both ends of it, is with the caller.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn set(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{name}"), value).expect("the network is ours");
}

/// Its queue takes all connections, so that nobody need accept them.
fn listener(at: SocketAddr) -> OwnedFd {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let listener = socket(family, SocketType::STREAM, None).expect("a socket");
    bind(&listener, &at).expect("the port is free");
    listen(&listener, 65_535).expect("bound");
    listener
}

fn fill(target: SocketAddr, sources: Vec<IpAddr>, count: u64) -> (Pool, Client) {
    let client = Client::default();
    let mut connecting = Connecting::to(vec![Address::Tcp(target)]);
    (connecting.sources, connecting.total) = (sources, Some(count));
    let pool = Pool::start(Config::connect(client.clone(), connecting).loops(1).workers(0).limit(PORTS.into())).expect("starts");
    let done = pool.wait(PATIENCE, |status| status.counts.connected + status.counts.connect_failed == count);
    assert!(done, "{:#?}", pool.status());
    (pool, client)
}

/// The mean cost of a connect in the last eighth of the ports is at most 1.5 times that in the first.
fn stays_flat(target: &str, source: Option<&str>) {
    set("ipv4/ip_local_port_range", &format!("{FIRST} {}", FIRST + PORTS - 1));
    set("core/somaxconn", "65535");
    let target: SocketAddr = target.parse().expect("an address");
    let _listener = listener(target);
    let sources = source.iter().map(|source| source.parse().expect("an address")).collect();
    let (_pool, client) = fill(target, sources, PORTS.into());
    let notes = client.notes();
    assert_eq!((notes.stood.len(), &notes.failed[..]), (PORTS.into(), &[][..]));
    let each = |eighth: usize| (notes.stood[(eighth + 1) * EIGHTH - 1] - notes.stood[eighth * EIGHTH]) / EIGHTH as u32;
    let costs: Vec<Duration> = (0..8).map(each).collect();
    println!("{target} from {source:?}: {costs:?} for each connect, by eighths");
    assert!(costs[7] * 2 <= costs[0] * 3, "{target} from {source:?}: {costs:?}");
}

/// One after the other: a process may have descriptors for one of them only.
#[test]
fn the_last_port_costs_what_the_first_one_did() {
    for (target, source) in [("127.0.0.1:9000", None), ("127.0.0.1:9000", Some("127.0.0.2")), ("[::1]:9000", Some("::1"))] {
        alone(move || stays_flat(target, source));
    }
}

/// A few ports, one of them the target's own: all others are used, and then there are none.
#[test]
fn every_port_is_used_but_the_targets_own() {
    alone(|| {
        set("ipv4/ip_local_port_range", "20000 20009");
        for (target, ports) in [("127.0.0.1:20003", 9), ("127.0.0.1:20000", 9), ("127.0.0.1:20009", 9), ("127.0.0.1:9000", 10)] {
            let _listener = listener(target.parse().expect("an address"));
            for sources in [vec![], vec![IpAddr::from([127, 0, 0, 3])]] {
                let (_pool, client) = fill(target.parse().expect("an address"), sources, 12);
                let notes = client.notes();
                let failed = vec![rustix::io::Errno::ADDRNOTAVAIL.raw_os_error(); 12 - ports];
                assert_eq!((notes.stood.len(), &notes.failed), (ports, &failed), "{target}");
            }
        }
    });
}

#[test]
fn ports_that_were_asked_for_are_used_and_no_others() {
    alone(|| {
        set("ipv4/ip_local_port_range", "20000 20009");
        // Not one of those that are asked for first: no client has the port that it connects to.
        let server = listener(([127, 0, 0, 1], 20_000).into());
        let target: SocketAddr = getsockname(&server).expect("bound").try_into().expect("an address");
        let start = |ports| {
            let client = Client::default();
            let mut connecting = Connecting::to(vec![Address::Tcp(target)]);
            (connecting.local_ports, connecting.total) = (Some(ports), Some(5));
            Pool::start(Config::connect(client.clone(), connecting).loops(1).limit(9)).map(|pool| (pool, client))
        };
        let (pool, client) = start((20_004, 20_006)).expect("starts");
        assert!(pool.wait(PATIENCE, |status| status.counts.connect_failed + status.counts.connected == 5));
        let notes = client.notes();
        assert_eq!((notes.stood.len(), notes.failed.len()), (3, 2));
        let (pool, client) = start((target.port(), target.port())).expect("starts");
        assert!(pool.wait(PATIENCE, |status| status.counts.connect_failed + status.counts.connected == 5));
        let notes = client.notes();
        let none = vec![rustix::io::Errno::ADDRNOTAVAIL.raw_os_error(); 5];
        assert_eq!((notes.stood.len(), notes.failed), (0, none), "the target's own port alone");
        for wrong in [(0, 5), (20_006, 20_004), (19_999, 20_004), (20_004, 20_010)] {
            assert!(
                matches!(start(wrong).err(), Some(Error::Invalid { setting: "connecting.local_ports", .. })),
                "{wrong:?} is refused"
            );
        }
    });
}
