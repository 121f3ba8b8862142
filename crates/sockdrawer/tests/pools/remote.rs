//! Addresses of the clients that come: the kernel is asked only for a service that wants to know.

use crate::common::{Stops, assert_empty, connect, connect_from, in_time, read_all, start};
use sockdrawer::{
    Config, Context, Input, Peer, Pool, Protocol, Service, Step,
    admission::{Limits, PerPeer},
};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Service that says who came: the last byte of an address, or 0 for nobody; and ends.
struct Naming {
    asks: bool,
}

struct Said(u8);

/// Byte that a service says of a peer that it wanted to know and does not.
const MISSED: u8 = 255;

impl Service for Naming {
    type Protocol = Said;

    fn open(&self, peer: &Peer) -> Said {
        match peer.remote() {
            Some(SocketAddr::V4(remote)) => Said(remote.ip().octets()[3]),
            _ => Said(if self.asks { MISSED } else { 0 }),
        }
    }

    fn needs_peer_address(&self) -> bool {
        self.asks
    }
}

impl Protocol for Said {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&[self.0]);
        Step::Close
    }

    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
}

fn said(mut stream: TcpStream) -> u8 {
    let said = read_all(&mut stream).expect("an orderly end");
    assert_eq!(said.len(), 1, "it says one byte");
    said[0]
}

fn put(pool: &Pool, asks: bool) {
    pool.reconfigure(pool.config().behaviour(Naming { asks })).expect("it changes");
}

#[test]
fn who_comes_is_known_where_the_service_asks() {
    in_time(|| {
        let (pool, at) = start(Config::accept(Naming { asks: false }).loops(1));
        let from_7 = || said(connect_from(Ipv4Addr::new(127, 0, 0, 7), at));
        for _ in 0..3 {
            assert_eq!(from_7(), 0);
            put(&pool, true);
            assert_eq!(from_7(), 7);
            put(&pool, false);
            // The loop hears of the change by this one, for which it had asked already.
            assert!([0, 7].contains(&from_7()));
        }
        assert_empty(&pool);
    });
}

#[test]
fn a_policy_knows_who_comes_whatever_the_service_wants() {
    in_time(|| {
        let limits = Limits::default().per_peer(PerPeer::address(2));
        let (pool, at) = start(Config::accept(Naming { asks: false }).loops(1).admission(limits));
        assert_eq!(said(connect_from(Ipv4Addr::new(127, 0, 0, 7), at)), 7);
        assert_empty(&pool);
    });
}

/// Checks connections that are accepted for a service that does not ask, and served by the next, which does.
#[test]
fn who_asks_knows_it_also_of_those_who_come_while_it_comes_into_force() {
    in_time(|| {
        let (pool, at) = start(Config::accept(Naming { asks: false }).loops(2));
        let (over, known) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        match said(connect(at)) {
                            byte @ 0..=1 => known[usize::from(byte)].fetch_add(1, Ordering::Relaxed),
                            other => panic!("{other} came, or nobody for who asked"),
                        };
                    }
                });
            }
            let _over = Stops(&over);
            let mut changes = 0;
            // A busy machine makes many changes before a client has come.
            while changes < 400 || known.iter().any(|kind| kind.load(Ordering::Relaxed) == 0) {
                put(&pool, changes % 2 == 0);
                changes += 1;
            }
        });
        assert_empty(&pool);
    });
}
