//! Free sockets that move to a new build of the program.

use crate::server::{LONG, Server, Target, end, events, quiet, soon};
use sockdrawer::connecting::Connecting;
use sockdrawer::{Config, Upgrade};
use sockdrawer_lease::sockets::{Socket, Sockets};
use sockdrawer_lease::{BoxError, Connect, Gone, Lease, Pool, Reason, Returned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockdrawer-lease-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Place(path)
    }

    fn begin(&self) -> (Sockets, Upgrade) {
        let upgrade = Upgrade::at(&self.0).version("a test").replaces("any").stand_by(Duration::ZERO);
        let upgrade = upgrade.begin().expect("it begins");
        let start = |service| upgrade.start("sockets", Config::connect(service, Connecting::on_request()).loops(1));
        (Sockets::by(start).expect("it starts"), upgrade)
    }

    /// Returns the sockets of a build that takes over there, without a pool for those that come.
    fn sockets(&self) -> (Sockets, Upgrade) {
        let (sockets, upgrade) = self.begin();
        upgrade.ready().expect("it takes over");
        (sockets, upgrade)
    }

    /// Returns a pool of a build that takes over there.
    fn build_with<M: Connect<Target = Target, Connection = Socket>>(
        &self,
        connect: impl FnOnce(Sockets) -> M,
    ) -> (Pool<Target, Socket>, Upgrade) {
        let (sockets, upgrade) = self.begin();
        let pool = Pool::new(connect(sockets.clone()), quiet()).expect("a thread");
        sockets.arrive_in(&pool);
        upgrade.ready().expect("it takes over");
        (pool, upgrade)
    }

    fn build(&self) -> (Sockets, Pool<Target, Socket>, Upgrade) {
        let mut made = None;
        let (pool, upgrade) = self.build_with(|sockets| made.insert(sockets).clone());
        (made.expect("it was called"), pool, upgrade)
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
    // The connections that have moved are those of before, in any order.
    let mut moved: Vec<_> = (0..2).map(|_| new.lease(&server.target(), soon()).expect("a socket")).collect();
    moved.iter_mut().zip([b"one!", b"two!"]).for_each(|(lease, word)| lease.write_all(word).expect("room"));
    let mut words: Vec<[u8; 4]> = peers[..2].iter_mut().map(read).collect();
    words.sort_unstable();
    assert_eq!((words, new.stats().connecting.count()), (vec![*b"one!", *b"two!"], 0));
    // A socket that comes back later follows while the old process has it.
    drop(held);
    assert!(new_sockets.pool().wait(LONG, |status| status.counts.moved_in == 3), "{:#?}", new_sockets.pool().status());
    while new.status().free < 1 {
        std::thread::yield_now();
    }
    // All are watched by the new build.
    let told = events(&new);
    drop(moved);
    drop(peers);
    assert!((0..3).all(|_| end(&told) == Reason::PeerEnded));
    assert_eq!(new.status().free, 0);
    assert!(old_sockets.pool().join().is_ok(), "it has nothing left");
}

/// Sockets that are reset when they come back, or are judged to be of no use.
struct Judged {
    sockets: Sockets,
    says: Arc<Mutex<Returned>>,
    resets: Sender<()>,
}

impl Connect for Judged {
    type Target = Target;
    type Connection = Socket;

    fn connect(&self, target: &Target, timeout: Duration) -> Result<Socket, BoxError> {
        Connect::connect(&self.sockets, target, timeout)
    }

    fn reset(&self, socket: &mut Socket, _timeout: Duration) -> Result<(), BoxError> {
        socket.write_all(b"rset")?;
        Ok(self.resets.send(())?)
    }

    fn watch(&self, socket: &mut Socket, gone: Gone) {
        Connect::watch(&self.sockets, socket, gone);
    }

    fn look(&self, socket: &mut Socket) -> Option<Reason> {
        Connect::look(&self.sockets, socket)
    }

    fn close(&self, socket: Socket, reason: Reason) {
        Connect::close(&self.sockets, socket, reason);
    }

    fn returned(&self, socket: &mut Socket) -> Returned {
        assert_eq!(Connect::returned(&self.sockets, socket), Returned::Reusable);
        *self.says.lock().expect("no panic")
    }
}

#[test]
fn a_leased_socket_is_reset_before_it_moves_and_one_of_no_use_does_not() {
    for says in [Returned::NeedsReset, Returned::Broken] {
        let (place, server) = (Place::new(&format!("judged-{says:?}")), Server::new());
        let ((resets, reset), judgement) = (channel(), Arc::new(Mutex::new(Returned::Reusable)));
        let judged = |sockets| Judged { sockets, says: judgement.clone(), resets };
        let (old, _upgrade) = place.build_with(judged);
        let told = events(&old);
        let (lease, free) = (begin(&old, &server, 1), begin(&old, &server, 2));
        let mut peer = server.take(1);
        drop(free);
        let (new_sockets, new, _upgrade) = place.build();
        // All are asked at once: the one that is leased was, too.
        assert!(new_sockets.pool().wait(LONG, |status| status.counts.moved_in == 1), "{:#?}", new_sockets.pool().status());
        assert_eq!(end(&told), Reason::Moved);
        *judgement.lock().expect("no panic") = says;
        drop(lease);
        if says == Returned::Broken {
            assert_eq!((end(&told), peer.read(&mut [0]).ok()), (Reason::Broken, Some(0)));
            continue;
        }
        assert_eq!(end(&told), Reason::Moved);
        reset.recv_timeout(LONG).expect("a reset");
        assert_eq!(&read(&mut peer), b"rset");
        assert!(new_sockets.pool().wait(LONG, |status| status.counts.moved_in == 2), "{:#?}", new_sockets.pool().status());
        while new.status().free < 2 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn sockets_without_a_pool_rest_in_their_loop_and_move_on() {
    let (place, server) = (Place::new("rest"), Server::new());
    let (old_sockets, old, _upgrade) = place.build();
    drop((begin(&old, &server, 1), begin(&old, &server, 2)));
    let (mut one, two) = (server.take(1), server.take(2));
    let (middle_sockets, _middle) = place.sockets();
    assert!(middle_sockets.pool().wait(LONG, |status| status.counts.moved_in == 2), "{:#?}", middle_sockets.pool().status());
    drop(two);
    assert!(middle_sockets.pool().wait(LONG, |status| status.connections == 1), "it has heard of the end");
    let (new_sockets, new, _upgrade) = place.build();
    // Both builds' moves are counted.
    assert!(new_sockets.pool().wait(LONG, |status| status.counts.moved_in == 3), "{:#?}", new_sockets.pool().status());
    while new.status().free < 1 {
        std::thread::yield_now();
    }
    let mut lease = new.lease(&server.target(), soon()).expect("a socket");
    lease.write_all(b"here").expect("room");
    assert_eq!(&read(&mut one), b"here");
    assert!(lease.born().elapsed() > Duration::ZERO);
    assert!(old_sockets.pool().join().is_ok(), "it has nothing left");
}

fn read(peer: &mut TcpStream) -> [u8; 4] {
    let mut word = [0; 4];
    peer.read_exact(&mut word).expect("a word");
    word
}
