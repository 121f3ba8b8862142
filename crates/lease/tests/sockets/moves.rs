//! Free sockets that move to a new build of the program.

use crate::server::{LONG, Server, Target, end, events, quiet, soon};
use sockdrawer::connecting::Connecting;
use sockdrawer::{Config, Upgrade};
use sockdrawer_lease::sockets::{Socket, Sockets};
use sockdrawer_lease::{Lease, Pool, Reason};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockdrawer-lease-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Place(path)
    }

    /// Returns what a build has that takes over there.
    fn build(&self) -> (Sockets, Pool<Target, Socket>, Upgrade) {
        let upgrade = Upgrade::at(&self.0).version("a test").replaces("any").stand_by(Duration::ZERO);
        let upgrade = upgrade.begin().expect("it begins");
        let start = |service| upgrade.start("sockets", Config::connect(service, Connecting::on_request()).loops(1));
        let sockets = Sockets::by(start).expect("it starts");
        let pool = Pool::new(sockets.clone(), quiet()).expect("a thread");
        sockets.arrive_in(&pool);
        upgrade.ready().expect("it takes over");
        (sockets, pool, upgrade)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Leases a socket that its server knows by this number.
fn begin(pool: &Pool<Target, Socket>, server: &Server, number: u32) -> Lease<Target, Socket> {
    let mut lease = pool.lease(&server.target(), soon()).expect("a socket");
    lease.write_all(&number.to_le_bytes()).expect("room");
    lease
}

#[test]
fn free_sockets_are_free_in_the_next_build_and_leased_ones_follow_or_end() {
    let (place, server) = (Place::new("moves"), Server::new());
    let (old_sockets, old, _upgrade) = place.build();
    let told = events(&old);
    let (one, two, mut held) = (begin(&old, &server, 1), begin(&old, &server, 2), begin(&old, &server, 3));
    let mut peers: Vec<_> = (1..=3).map(|number| server.take(number)).collect();
    drop((one, two));
    let (new_sockets, new, _upgrade) = place.build();
    assert_eq!((end(&told), end(&told)), (Reason::Moved, Reason::Moved));
    assert!(new_sockets.pool().wait(LONG, |status| status.counts.moved_in == 2), "{:#?}", new_sockets.pool().status());
    while new.status().free < 2 {
        std::thread::yield_now();
    }
    // The one that is held works where it is.
    held.write_all(b"held").expect("room");
    assert_eq!(&read(&mut peers[2]), b"held");
    // The connections that have moved are the same ones, in any order.
    let mut moved: Vec<_> = (0..2).map(|_| new.lease(&server.target(), soon()).expect("a socket")).collect();
    moved.iter_mut().zip([b"one!", b"two!"]).for_each(|(lease, word)| lease.write_all(word).expect("room"));
    let mut words: Vec<[u8; 4]> = peers[..2].iter_mut().map(read).collect();
    words.sort_unstable();
    assert_eq!((words, new.stats().connecting.count()), (vec![*b"one!", *b"two!"], 0));
    // A socket that comes back later follows while the old process has it.
    drop(held);
    assert!(new_sockets.pool().wait(LONG, |status| status.counts.moved_in == 3), "{:#?}", new_sockets.pool().status());
    // All are watched by the new build.
    let told = events(&new);
    drop(moved);
    drop(peers);
    assert!((0..3).all(|_| end(&told) == Reason::PeerEnded));
    assert_eq!(new.status().free, 0);
    assert!(old_sockets.pool().join().is_ok(), "it has nothing left");
}

fn read(peer: &mut TcpStream) -> [u8; 4] {
    let mut word = [0; 4];
    peer.read_exact(&mut word).expect("a word");
    word
}
