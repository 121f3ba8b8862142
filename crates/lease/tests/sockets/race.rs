//! Ends of free sockets, raced with takers.

use crate::server::{Client, Numbered, Server, Target, quiet, soon};
use sockdrawer_lease::{Lease, Pool, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

/// Sockets that are ended between two looks at the kernel's table.
const AT_ONCE: usize = 200;
/// States of a TCP socket whose end its peer has not acknowledged, in /proc/net/tcp: FIN_WAIT1 and CLOSING.
const UNACKNOWLEDGED: [&str; 2] = ["04", "0B"];

/// Moments, counted, at which ends of sockets were known to be received, by the sockets' numbers.
struct Ends {
    clock: AtomicU64,
    received: Vec<AtomicU64>,
}

impl Ends {
    fn new(count: usize) -> Self {
        Ends { clock: AtomicU64::new(1), received: (0..=count).map(|_| AtomicU64::new(u64::MAX)).collect() }
    }

    /// Judges a lease that was asked for at a moment.
    fn judge(&self, asked: u64, lease: &Lease<Target, Client>) {
        let received = self.received.get(lease.number as usize).map_or(u64::MAX, |moment| moment.load(SeqCst));
        assert!(received > asked, "socket {} was handed out after its end was received", lease.number);
    }
}

/// Returns the ports of clients whose kernel has not acknowledged the end that the server has sent. A port that is used again is another's.
fn unacknowledged(server: u16) -> BTreeSet<u16> {
    let table = fs::read_to_string("/proc/net/tcp").expect("a table");
    let line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
        let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
        (port(local)? == server && UNACKNOWLEDGED.contains(&state)).then(|| port(remote)).flatten()
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Ends the sockets, some by half, and notes of each when its end was received.
fn end_all(server: &Server, mut peers: Vec<(u32, TcpStream)>, ends: &Ends) {
    while !peers.is_empty() {
        let mut waiting: BTreeMap<u16, u32> = BTreeMap::new();
        let batch = peers.split_off(peers.len().saturating_sub(AT_ONCE));
        for (number, peer) in &batch {
            waiting.insert(peer.peer_addr().expect("it is connected").port(), *number);
            peer.shutdown(Shutdown::Write).expect("it is connected");
        }
        let until = soon();
        let mut before = unacknowledged(server.address.port());
        while !waiting.is_empty() {
            let now = unacknowledged(server.address.port());
            // The kernel may leave a line out of a table that changes while it is read: of two, none has it.
            waiting.retain(|port, number| {
                let is_received = !now.contains(port) && !before.contains(port);
                if is_received {
                    ends.received[*number as usize].store(ends.clock.fetch_add(1, SeqCst), SeqCst);
                }
                !is_received
            });
            before = now;
            assert!(Instant::now() < until, "no end is received of {waiting:?}");
            thread::yield_now();
        }
    }
}

fn round(count: usize) {
    let settings = Settings { max: count, min_free: count, max_connecting: 32, ..quiet() };
    let (server, pool) = (Server::new(), Pool::new(Numbered::new(), settings.clone()).expect("a thread"));
    let target = server.target();
    pool.add_target(&target);
    let peers: Vec<_> = (1..=count as u32).map(|number| (number, server.take(number))).collect();
    // All are free once the last connect was told; from then on the pool makes no more.
    while pool.status().free < count {
        thread::yield_now();
    }
    pool.set(Settings { min_free: 0, max_waiters: 1000, ..settings });
    let (ends, is_over) = (Ends::new(count), AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    thread::scope(|scope| {
        let take = |taken: &dyn Fn() -> Option<Lease<Target, Client>>| {
            while !is_over.load(SeqCst) {
                let asked = ends.clock.load(SeqCst);
                taken().iter().for_each(|lease| ends.judge(asked, lease));
            }
        };
        let (pool, target, runtime) = (&pool, &target, &runtime);
        scope.spawn(move || take(&|| pool.try_lease(target).ok()));
        scope.spawn(move || take(&|| pool.lease(target, soon()).ok()));
        scope.spawn(move || take(&|| runtime.block_on(pool.lease_async(target, soon())).ok()));
        scope.spawn(|| {
            end_all(&server, peers, &ends);
            is_over.store(true, SeqCst);
        });
    });
    let until = soon();
    let ended = || pool.stats().ends.values().sum::<u64>();
    while ended() < count as u64 {
        assert!(Instant::now() < until, "{} of {count} have left the pool", ended());
        thread::yield_now();
    }
}

/// Returns how many sockets are raced in all: as many as `SOCKDRAWER_ENDS` says.
fn asked() -> usize {
    let said = std::env::var("SOCKDRAWER_ENDS").ok();
    said.map_or(2_000, |said| said.parse().unwrap_or_else(|_| panic!("SOCKDRAWER_ENDS={said} is no number")))
}

#[test]
fn no_socket_is_handed_out_after_its_end_was_received() {
    let mut left = asked();
    while left > 0 {
        // Each needs two descriptors of this process.
        let count = left.min(5_000);
        round(count);
        left -= count;
    }
}
