//! The listening sockets of an address are replaced under traffic, and nobody notices.

use crate::common::{Echo, PATIENCE, Stops, address, alone, connect, echoes, percentile, start};
use sockdrawer::{
    Address, Config, Drain, Error, Model, Pool,
    changing::How,
    listening::{Bind, Listen, ListenOptions, ListenRequest, Listening},
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 32;

/// Counts of what clients saw, and the flag that stops them.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    visits: AtomicU64,
    failures: AtomicU64,
}

/// Connects, sends, checks the answer and closes, again and again.
fn churn(seen: &Seen, at: SocketAddr, client: usize) {
    let mut visits = 0_u64;
    while !seen.stop.load(Ordering::Relaxed) {
        let bytes = [client as u8, visits as u8, (visits >> 8) as u8, 7];
        let served = TcpStream::connect(at).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(echoes(&mut stream, &bytes))
        });
        if !matches!(served, Ok(true)) {
            seen.failures.fetch_add(1, Ordering::Relaxed);
        }
        visits += 1;
        seen.visits.fetch_add(1, Ordering::Relaxed);
    }
}

/// Clients churn while `change` is done `times` times, each after some visits under the one before. What failed.
fn under_churn(at: SocketAddr, times: usize, mut change: impl FnMut(usize)) -> u64 {
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let _stops = Stops(&seen.stop);
        for client in 0..CLIENTS {
            let seen = &seen;
            scope.spawn(move || churn(seen, at, client));
        }
        for turn in 0..times {
            let before = seen.visits.load(Ordering::Relaxed);
            change(turn);
            let begun = Instant::now();
            while seen.visits.load(Ordering::Relaxed) < before + 20 && begun.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
        }
    });
    assert!(seen.visits.load(Ordering::Relaxed) > 20 * times as u64);
    seen.failures.load(Ordering::Relaxed)
}

/// Returns the configuration with the other value of an option that takes new sockets.
fn toggled(config: Config) -> Config {
    config.listeners(|listeners| listeners[0].options.freebind = !listeners[0].options.freebind)
}

/// Replaces the sockets; how long it took.
fn replace(pool: &Pool) -> Duration {
    let applied = pool.reconfigure(toggled(pool.config())).expect("the system lets us");
    assert!(applied.plan.has(How::NewSocket), "{}", applied.plan);
    applied.took
}

fn replaced_under_churn(config: Config) {
    let (pool, at) = start(config);
    let mut kept = connect(at);
    let mut took = Vec::new();
    let failures = under_churn(at, 200, |turn| {
        took.push(replace(&pool));
        assert!(echoes(&mut kept, &[turn as u8]), "connections that are there stay");
    });
    assert_eq!(failures, 0);
    assert_eq!(address(&pool), at, "the port stays, though port 0 was asked for");
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    let (p50, p99) = (percentile(&mut took, 0.5), percentile(&mut took, 0.99));
    println!("a replacement: p50 {p50:?}, p99 {p99:?}");
    // All that is left listens, and is ours.
    assert!(Pool::start(Config::accept(Echo).listen(at)).is_err(), "a second program is refused");
    (0..100).for_each(|_| assert!(echoes(&mut connect(at), b"ping")));
}

#[test]
fn in_the_model_loops_nobody_notices() {
    replaced_under_churn(Config::accept(Echo).loops(2));
}

#[test]
fn in_the_model_threads_nobody_notices() {
    replaced_under_churn(Config::accept(Echo).model(Model::Threads));
}

#[cfg(feature = "tokio")]
#[test]
fn in_the_model_tasks_nobody_notices() {
    replaced_under_churn(Config::accept(Echo).model(Model::Tasks).loops(2));
}

fn listening(config: Config, change: impl FnOnce(&mut ListenOptions)) -> Config {
    config.listeners(|listeners| change(&mut listeners[0].options))
}

#[test]
fn the_kernel_counts_as_many_connections_as_were_accepted() {
    alone(|| {
        let (pool, at) = start(Config::accept(Echo).loops(2));
        let failures = under_churn(at, 60, |_| _ = replace(&pool));
        assert_eq!(failures, 0);
        assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
        let status = pool.status();
        let queued: usize = status.listeners.iter().map(|listener| listener.queued).sum();
        let made = status.counts.accepted + queued as u64;
        // The kernel counts a connection twice where two CPUs make a socket for it at once: one of some 100,000.
        assert!((made..=made + 1).contains(&passive_opens()), "{} of {made}", passive_opens());
    });
}

/// Connections that the listeners of this thread's network have made.
fn passive_opens() -> u64 {
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("/proc is mounted");
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let found = pairs.find(|(name, _)| *name == "PassiveOpens").expect("it is counted");
    found.1.parse().expect("a number")
}

#[test]
fn a_device_comes_and_goes_under_traffic() {
    let (pool, at) = start(Config::accept(Echo).loops(2));
    let failures = under_churn(at, 6, |turn| {
        let device = (turn % 2 == 0).then(|| "lo".to_owned());
        pool.reconfigure(listening(pool.config(), |options| options.device = device)).expect("there is a loopback");
        // These sockets are no group: a client that asks in the meantime asks twice.
        assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    });
    assert_eq!(failures, 0);
}

#[test]
fn an_address_becomes_wider_and_narrower_under_traffic() {
    alone(wider_and_narrower);
}

fn wider_and_narrower() {
    for model in [Model::Loops, Model::Threads] {
        let (pool, at) = start(Config::accept(Echo).model(model));
        let mut kept = connect(at);
        let addresses = [IpAddr::from(Ipv4Addr::UNSPECIFIED), at.ip(), Ipv6Addr::UNSPECIFIED.into(), at.ip()];
        let failures = under_churn(at, addresses.len(), |turn| {
            let applied = pool.update(|config| only_at(config, SocketAddr::new(addresses[turn], at.port())));
            assert!(applied.expect("the port is the pool's own").plan.has(How::NewSocket));
            assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
        });
        assert_eq!(failures, 0);
        assert!(echoes(&mut kept, b"connections that are there stay"));
        assert!(Pool::start(Config::accept(Echo).listen(at)).is_err(), "a second program is refused");
    }
}

fn only_at(config: Config, at: SocketAddr) -> Config {
    config.listeners(|listeners| *listeners = vec![Listening::new(at)])
}

#[test]
fn one_address_may_have_its_port_to_itself_among_all() {
    alone(narrow_beside_wide);
}

fn narrow_beside_wide() {
    let (pool, at) = start(Config::accept(Echo));
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, at.port()));
    pool.update(|config| config.listen(everywhere)).expect("the port is the pool's own");
    assert!(echoes(&mut connect(at), b"narrow"));
    assert!(echoes(&mut connect((Ipv4Addr::new(127, 0, 0, 2), at.port()).into()), b"wide"));
    let both = Config::accept(Echo).listen(at).listen(everywhere);
    assert!(matches!(Pool::start(both.clone()), Err(Error::AddressInUse(_))), "a second program is refused");
    drop((pool.shutdown(Drain::within(PATIENCE)), pool));
    let pool = Pool::start(both).expect("nobody else has the port");
    assert!(echoes(&mut connect(at), b"narrow again"));
    drop(pool);
}

#[test]
fn a_device_that_is_not_there_is_refused_and_changes_nothing() {
    let (pool, at) = start(Config::accept(Echo).loops(2));
    let refused = pool.reconfigure(listening(pool.config(), |options| options.device = Some("no-such".to_owned())));
    assert!(matches!(refused, Err(Error::Listen { .. })), "{refused:?}");
    assert_eq!(pool.plan(&pool.config()).expect("it is a copy").to_string(), "nothing to change");
    (0..50).for_each(|_| assert!(echoes(&mut connect(at), b"ping")));
}

#[test]
fn both_families_have_a_port_each_when_one_is_alone() {
    let mut options = ListenOptions::default();
    options.v6_only = true;
    let (pool, at) = start(Config::accept(Echo).loops(2));
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, at.port()));
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return println!("skipped: there is no IPv6 here");
    }
    let wanted = pool.config().listen_with(both, options);
    pool.reconfigure(wanted).expect("the port is free in the other family");
    let mut v6 = TcpStream::connect((Ipv6Addr::LOCALHOST, at.port())).expect("it listens");
    assert!(echoes(&mut v6, b"six") && echoes(&mut connect(at), b"four"));
    // It is still an address like others: replaced, and removed.
    let mut wanted = pool.config();
    wanted = wanted.listeners(|listeners| listeners[1].options.freebind = true);
    let plan = pool.plan(&wanted).expect("it makes sense").to_string();
    assert!(plan.contains(&format!("replace the sockets of {both}")), "{plan}");
    pool.reconfigure(wanted).expect("nothing fails");
    let mut v6 = TcpStream::connect((Ipv6Addr::LOCALHOST, at.port())).expect("it listens");
    assert!(echoes(&mut v6, b"six"));
}

/// Sockets of std, as a broker's.
struct Broker {
    asked: Arc<AtomicU64>,
}

impl Listen for Broker {
    fn listen(&self, wanted: &ListenRequest<'_>) -> io::Result<Vec<OwnedFd>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match wanted.address {
            // Many, of which the pool knows no order.
            Address::Tcp(_) if wanted.options.freebind => Bind.listen(wanted),
            Address::Tcp(address) if address.port() == 0 => Ok(vec![TcpListener::bind(address)?.into()]),
            Address::Tcp(address) if address.port() == 1 => {
                let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)?;
                Ok(vec![socket])
            }
            Address::Tcp(address) if address.port() == 2 => Ok(Vec::new()),
            _ => Err(io::Error::other("not today")),
        }
    }

    fn exclusive(&self) -> bool {
        true
    }
}

#[test]
fn sockets_may_come_from_elsewhere() {
    let asked = Arc::new(AtomicU64::new(0));
    let (pool, at) = start(Config::accept(Echo).loops(2).listen_by(Broker { asked: asked.clone() }));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert!(echoes(&mut connect(at), b"ping"));
    let failures = under_churn(at, 10, |_| {
        pool.reconfigure(listening(pool.config(), |options| options.freebind = true)).expect("it gives others");
        assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
        assert_eq!(address(&pool), at);
    });
    assert_eq!((failures, asked.load(Ordering::Relaxed)), (0, 2), "an option that stays needs no socket");
    for (port, why) in [(1, "does not listen"), (2, "no socket"), (3, "not today")] {
        let wrong = Address::Tcp(([127, 0, 0, 1], port).into());
        let refused = pool.reconfigure(pool.config().listen(wrong.clone())).expect_err("the broker fails");
        let told = refused.to_string();
        assert!(told.contains(why) && told.contains(&wrong.to_string()), "{told}");
        assert!(echoes(&mut connect(at), b"ping"));
    }
}

#[test]
fn options_of_a_socket_that_is_bound_already_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let at = listener.local_addr().expect("bound");
    let config = Config::accept(Echo).inherit(at, Arc::new(listener.into()));
    let refused = Pool::start(listening(config, |options| options.freebind = true)).expect_err("it is refused");
    assert!(refused.to_string().contains("bound already"), "{refused}");
}
