//! Sockets that end, or have something to read, while nobody reads them.

use crate::server::{Numbered, Server, end, events, quiet, soon};
use sockdrawer_lease::{Pool, Reason, Settings};
use std::io::{Read, Write};

#[test]
fn a_free_socket_leaves_the_list_when_its_peer_ends_it_without_being_asked_for() {
    let (server, pool) = (Server::new(), Pool::new(Numbered::new(), quiet()).expect("a thread"));
    let told = events(&pool);
    let number = pool.lease(&server.target(), soon()).expect("one").number;
    assert_eq!(pool.status().free, 1);
    drop(server.take(number));
    assert_eq!(end(&told), Reason::PeerEnded);
    assert_eq!(pool.status().free, 0);
}

#[test]
fn a_socket_that_was_reset_leaves_the_list_too() {
    let (server, pool) = (Server::new(), Pool::new(Numbered::new(), quiet()).expect("a thread"));
    let told = events(&pool);
    let mut lease = pool.lease(&server.target(), soon()).expect("one");
    let peer = server.take(lease.number);
    // Unread input makes the peer's close a reset.
    lease.socket.write_all(b"unread").expect("room");
    while peer.peek(&mut [0; 6]).expect("input") < 6 {}
    drop(lease);
    drop(peer);
    assert_eq!(end(&told), Reason::PeerEnded);
}

#[test]
fn free_sockets_that_all_end_at_once_leave_the_list_without_being_asked_for() {
    let numbered = Numbered::new();
    let settings = Settings { max: 200, ..quiet() };
    let (server, pool) = (Server::new(), Pool::new(numbered.clone(), settings).expect("a thread"));
    let leases: Vec<_> = (0..200).map(|_| pool.lease(&server.target(), soon()).expect("one")).collect();
    let mut peers: Vec<_> = leases.iter().map(|lease| server.take(lease.number)).collect();
    drop(leases);
    assert_eq!(pool.status().free, 200);
    let told = events(&pool);
    // The loop is kept until all have ended: it hears of them in one turn.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let loops = numbered.sockets.pool().clone();
    let keeps = std::thread::spawn(move || loops.gather(move |_: &mut ()| _ = held.lock().expect("no panic").recv()));
    peers.drain(..).for_each(drop);
    drop(hold);
    assert!((0..200).all(|_| end(&told) == Reason::PeerEnded));
    assert_eq!(pool.status().free, 0);
    keeps.join().expect("no panic");
}

#[test]
fn a_peer_that_says_something_unasked_makes_its_socket_unfit() {
    let (server, pool) = (Server::new(), Pool::new(Numbered::new(), quiet()).expect("a thread"));
    let told = events(&pool);
    let number = pool.lease(&server.target(), soon()).expect("one").number;
    let mut peer = server.take(number);
    // On the loopback device what was written is there when the call returns.
    peer.write_all(b"x").expect("room");
    let lease = pool.lease(&server.target(), soon()).expect("another");
    assert_eq!((lease.number, end(&told)), (number + 1, Reason::Unasked));
    assert_eq!(peer.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
}

#[test]
fn a_leased_socket_that_ended_is_closed_when_it_comes_back() {
    let (server, pool) = (Server::new(), Pool::new(Numbered::new(), quiet()).expect("a thread"));
    let told = events(&pool);
    let mut lease = pool.lease(&server.target(), soon()).expect("one");
    let mut peer = server.take(lease.number);
    peer.write_all(b"bye").expect("room");
    drop(peer);
    let mut answer = Vec::new();
    lease.socket.read_to_end(&mut answer).expect("the answer, and the end");
    drop(lease);
    assert_eq!((answer.as_slice(), pool.status().free), (&b"bye"[..], 0));
    assert!(matches!(end(&told), Reason::Broken | Reason::PeerEnded));
}

#[test]
fn the_minimum_of_free_sockets_is_refilled_after_an_end() {
    let settings = Settings { min_free: 1, ..quiet() };
    let (server, pool) = (Server::new(), Pool::new(Numbered::new(), settings).expect("a thread"));
    pool.add_target(&server.target());
    for number in 1..20 {
        // Each connection is made in the place of the one before it, and no caller asks.
        drop(server.take(number));
    }
    assert!(pool.stats().ends[&Reason::PeerEnded] >= 18);
}

#[test]
fn sockets_that_the_pool_which_made_them_drains_leave_the_list() {
    let numbered = Numbered::new();
    let (server, pool) = (Server::new(), Pool::new(numbered.clone(), quiet()).expect("a thread"));
    let told = events(&pool);
    drop(pool.lease(&server.target(), soon()).expect("one"));
    numbered.sockets.pool().drain(&sockdrawer::Selector::All, sockdrawer::Drain::within(crate::server::LONG));
    assert_eq!((end(&told), pool.status().free), (Reason::Unneeded, 0));
}
