//! Local ports: the cost of a connect stays flat to the last one, and none of them is the target's own.

use crate::common::{PATIENCE, alone};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use sockdrawer::{
    Config, Context, Error, Input, Local, Peer, Pool, Protocol, Service, Step,
    connecting::{ConnectFailure, Connecting},
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("the_last_port_costs_what_the_first_one_did", the_last_port_costs_what_the_first_one_did),
    ("every_port_is_used_but_the_targets_own", every_port_is_used_but_the_targets_own),
    ("ports_that_were_asked_for_are_used_and_no_others", ports_that_were_asked_for_are_used_and_no_others),
];

/// The ports of the private network.
const FIRST: usize = 20_000;
const PORTS: usize = 16_384;
const EIGHTH: usize = PORTS / 8;
/// Number of connects at a time, where two costs are compared.
const STEP: usize = 64;

/// Notes that the connections of a pool made.
#[derive(Clone, Default)]
struct Notes {
    /// CPU time of the loop when each connection stood.
    stood: Vec<Duration>,
    failed: Vec<i32>,
}

/// Service that connects, and stays.
#[derive(Clone, Default)]
struct Client(Arc<(Mutex<Notes>, Condvar)>);

impl Client {
    fn note(&self, note: impl FnOnce(&mut Notes)) {
        note(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_all();
    }

    /// Waits until `count` connects are over, and returns their notes.
    fn notes_of(&self, count: usize) -> Notes {
        let notes = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = |notes: &mut Notes| notes.stood.len() + notes.failed.len() < count;
        let (notes, late) = self.0.1.wait_timeout_while(notes, PATIENCE, under_way).unwrap_or_else(PoisonError::into_inner);
        assert!(!late.timed_out(), "{} stand, {:?} failed, of {count}", notes.stood.len(), notes.failed);
        notes.clone()
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

/// Returns the CPU time of the loop: the kernel's part of a connect on loopback, both ends of it, is with the caller.
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

fn fill(target: SocketAddr, sources: Vec<IpAddr>, count: usize, limit: usize) -> (Pool, Client) {
    let client = Client::default();
    let connecting = Connecting::to([target]).keep(limit).sources(sources).total(count as u64);
    let pool = Pool::start(Config::connect(client.clone(), connecting).loops(1).workers(0)).expect("starts");
    client.notes_of(count);
    (pool, client)
}

/// Makes another `STEP` connects, and tells the CPU time that they took.
fn step((pool, client): &(Pool, Client), before: usize) -> Duration {
    let count = before + STEP;
    pool.update(|config| config.connecting(|connecting| connecting.total = Some(count as u64))).expect("in place");
    let stood = client.notes_of(count).stood;
    assert_eq!(stood.len(), count, "none failed");
    stood[count - 1] - stood[before - 1]
}

/// A connect in the last eighth of the ports costs at most 1.5 times one in the first. The first is another target's, and they take
/// turns on one processor: what else the machine does then meets both, and a median leaves out when it met one.
fn stays_flat(target: &str, source: Option<&str>) {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).expect("it runs there");
    set("ipv4/ip_local_port_range", &format!("{FIRST} {}", FIRST + PORTS - 1));
    set("core/somaxconn", "65535");
    let target: SocketAddr = target.parse().expect("an address");
    let other = SocketAddr::new(target.ip(), target.port() + 1);
    let _listeners = [listener(target), listener(other)];
    let sources: Vec<IpAddr> = source.iter().map(|source| source.parse().expect("an address")).collect();
    let last = fill(target, sources.clone(), PORTS - EIGHTH, PORTS);
    let first = fill(other, sources, STEP, EIGHTH + STEP);
    let steps = (0..EIGHTH).step_by(STEP);
    let times: Vec<_> = steps.map(|made| (step(&first, STEP + made), step(&last, PORTS - EIGHTH + made))).collect();
    let mut ratios: Vec<f64> = times.iter().map(|(first, last)| last.as_secs_f64() / first.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("{target} from {source:?}: a connect in the last eighth costs {median:.2} times one in the first");
    assert!(median <= 1.5, "{target} from {source:?}: {times:?}");
}

/// Tests one target after the other: a process may have descriptors for one of them only.
fn the_last_port_costs_what_the_first_one_did() {
    for (target, source) in [("127.0.0.1:9000", None), ("127.0.0.1:9000", Some("127.0.0.2")), ("[::1]:9000", Some("::1"))] {
        alone(move || stays_flat(target, source));
    }
}

/// Checks a few ports, one of them the target's own: all others are used, and then there are none.
fn every_port_is_used_but_the_targets_own() {
    alone(|| {
        set("ipv4/ip_local_port_range", "20000 20009");
        for (target, ports) in [("127.0.0.1:20003", 9), ("127.0.0.1:20000", 9), ("127.0.0.1:20009", 9), ("127.0.0.1:9000", 10)] {
            let _listener = listener(target.parse().expect("an address"));
            for sources in [vec![], vec![IpAddr::from([127, 0, 0, 3])]] {
                let (_pool, client) = fill(target.parse().expect("an address"), sources, 12, 12);
                let notes = client.notes_of(12);
                let failed = vec![rustix::io::Errno::ADDRNOTAVAIL.raw_os_error(); 12 - ports];
                assert_eq!((notes.stood.len(), &notes.failed), (ports, &failed), "{target}");
            }
        }
    });
}

fn ports_that_were_asked_for_are_used_and_no_others() {
    alone(|| {
        set("ipv4/ip_local_port_range", "20000 20009");
        // Not one of those that are asked for first: no client has the port that it connects to.
        let server = listener(([127, 0, 0, 1], 20_000).into());
        let target: SocketAddr = getsockname(&server).expect("bound").try_into().expect("an address");
        let start = |ports: (u16, u16)| {
            let client = Client::default();
            let connecting = Connecting::to([target]).keep(9).local_ports(ports.0, ports.1).total(5);
            Pool::start(Config::connect(client.clone(), connecting).loops(1)).map(|pool| (pool, client))
        };
        let (_pool, client) = start((20_004, 20_006)).expect("starts");
        let notes = client.notes_of(5);
        assert_eq!((notes.stood.len(), notes.failed.len()), (3, 2));
        let (_pool, client) = start((target.port(), target.port())).expect("starts");
        let notes = client.notes_of(5);
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
