//! The listening sockets of an address are replaced under traffic, and nobody notices.

mod common;

use common::{Echo, PATIENCE, address, connect, echoes, percentile, start};
use sockdrawer::{Config, Endpoint, How, Model, Pool};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 32;

/// What clients saw.
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
        seen.stop.store(true, Ordering::Relaxed);
    });
    assert!(seen.visits.load(Ordering::Relaxed) > 20 * times as u64);
    seen.failures.load(Ordering::Relaxed)
}

/// The same configuration with the other value of an option that takes new sockets.
fn toggled(mut config: Config) -> Config {
    if let Endpoint::Accept { listeners, .. } = &mut config.endpoint {
        listeners[0].options.freebind = !listeners[0].options.freebind;
    }
    config
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
    assert!(Pool::start(Config::accept(Echo).listen(at.into())).is_err(), "a second program is refused");
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
