//! Sockets retire while handshakes are under way, and while the system refuses to help.

use super::{Retirement, Retirements, RetiringAddresses};
use crate::config::{Config, Model};
use crate::error::Error;
use crate::net::Address;
use crate::pool::Pool;
use crate::pool::listeners::listen;
use crate::pool::tests::Echo;
use crate::sync::lock;
use crate::sys::faulty::Faulty;
use crate::sys::{Errno, Kernel, System, steering};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn start(model: Model) -> (Pool, Arc<Faulty>, SocketAddr) {
    let system = Arc::new(Faulty::default());
    let any: Address = "127.0.0.1:0".parse().expect("an address");
    let mut config = Config::accept(Echo).model(model).listen(any.clone()).listen(any);
    config.system = system.clone();
    let pool = Pool::start(config).expect("starts");
    let Address::Tcp(at) = pool.addresses()[1] else { unreachable!("it listens on TCP") };
    (pool, system, at)
}

fn replaced(config: Config) -> Config {
    config.listeners(|listeners| listeners[1].options.freebind ^= true)
}

fn removed(config: Config) -> Config {
    config.listeners(|listeners| drop(listeners.remove(1)))
}

fn echoes(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    stream.set_read_timeout(Some(LONG)).is_ok()
        && stream.write_all(b"ping").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == *b"ping"
}

/// Returns a connect that cannot go on: the client hears nothing.
fn begun(at: SocketAddr) -> OwnedFd {
    let address = Address::Tcp(at);
    let socket = Kernel.socket(&address).expect("a socket");
    steering::deafen(socket.as_fd()).expect("needs no privilege");
    assert_eq!(Kernel.connect(socket.as_fd(), &address), Err(Errno::INPROGRESS));
    let until = Instant::now() + LONG;
    while Kernel.handshakes(at).expect("sock_diag").is_empty() {
        assert!(Instant::now() < until, "the server got the first segment");
        std::thread::yield_now();
    }
    socket
}

/// Has the client hear again: the server's segment comes once more, after a second at most.
fn goes_on(socket: OwnedFd) -> TcpStream {
    steering::undeafen(socket.as_fd()).expect("needs no privilege");
    let (event, both) = (Kernel.event().expect("an event"), crate::sys::Interest::WRITE);
    Kernel.wait_for(socket.as_fd(), both, event.as_fd(), Some(LONG)).expect("waits");
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false).expect("a socket");
    stream
}

#[test]
fn a_client_that_has_begun_to_connect_is_served_though_the_socket_goes() {
    for change in [replaced, removed] {
        for model in [Model::Loops, Model::Threads] {
            let (pool, _, at) = start(model);
            let client = begun(at);
            // The client hears again as soon as the socket is on its way out: the server repeats its segment after one second, and
            // then only after two more.
            let mut client = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let begun = Instant::now();
                    pool.reconfigure(change(pool.config())).expect("nothing fails");
                    assert!(begun.elapsed() < LONG / 4, "a change does not wait for the slowest");
                });
                assert!(pool.wait(LONG, |status| status.retiring == 1), "{:#?}", pool.status());
                goes_on(client)
            });
            assert!(echoes(&mut client), "{model}");
            assert!(pool.wait(LONG, |status| status.retiring == 0), "{:#?}", pool.status());
            assert!(echoes(&mut client), "it stays");
            let other = TcpStream::connect(at);
            assert_eq!(other.is_ok_and(|mut other| echoes(&mut other)), pool.addresses().len() == 2);
        }
    }
}

#[test]
fn an_address_comes_back_while_its_former_sockets_retire() {
    let (pool, system, at) = start(Model::Loops);
    let client = begun(at);
    // Beside the change, which waits for the client: its handshake goes on with the first repetition, not at the end of the time that it is given.
    std::thread::scope(|scope| {
        scope.spawn(|| pool.reconfigure(removed(pool.config())).expect("nothing fails"));
        assert!(pool.wait(LONG, |status| status.retiring == 1), "{:#?}", pool.status());
        system.spare("listen", 7);
        system.fail("listen", Errno::NOBUFS, 1);
        assert!(pool.reconfigure(pool.config().listen(Address::Tcp(at))).is_err());
        pool.reconfigure(pool.config().listen(Address::Tcp(at))).expect("it is the pool's own");
        assert!(echoes(&mut TcpStream::connect(at).expect("it listens")));
        assert!(echoes(&mut goes_on(client)));
    });
    assert!(pool.wait(LONG, |status| status.retiring == 0), "{:#?}", pool.status());
    assert!((0..50).all(|_| echoes(&mut TcpStream::connect(at).expect("it listens"))));
}

#[test]
fn an_address_comes_back_while_there_is_no_room_for_who_waits_at_its_former_sockets() {
    let (pool, _, at) = start(Model::Loops);
    pool.update(|config| config.limit(1)).expect("nothing fails");
    let mut only = TcpStream::connect(at).expect("it listens");
    assert!(echoes(&mut only));
    let mut waits = TcpStream::connect(at).expect("it listens");
    pool.reconfigure(removed(pool.config())).expect("nothing fails");
    assert_eq!(pool.status().retiring, 1, "a connection waits there");
    pool.reconfigure(pool.config().listen(Address::Tcp(at))).expect("it is the pool's own");
    drop(only);
    assert!(echoes(&mut waits));
    drop(waits);
    assert!(pool.wait(LONG, |status| status.retiring == 0), "{:#?}", pool.status());
    assert!((0..50).all(|_| echoes(&mut TcpStream::connect(at).expect("it listens"))));
}

#[test]
fn what_had_no_thread_is_done_by_who_waits_or_ends_with_the_pool() {
    let config = Config::accept(Echo).listen("127.0.0.1:0");
    let ends: [fn(&Retirements); 3] =
        [|all| all.settle(&RetiringAddresses::default()), |all| all.carry_out_left(), |all| all.stop()];
    for end in ends {
        let all = Retirements::new(config.system.clone());
        let mut listener = listen(&config, &config.listened()[0], std::iter::empty()).expect("a free port");
        let number = all.number(&listener);
        let retirement = Retirement::begin(number, &mut listener, true, &*config.system);
        lock(&all.state).left.push(retirement);
        assert_eq!(all.under_way(), 1);
        end(&all);
        assert_eq!(all.under_way(), 0);
    }
}

#[test]
fn what_the_system_refuses_makes_it_slower_and_loses_nobody() {
    let ways: [&[(&str, Errno)]; 5] = [
        &[("steer", Errno::PERM), ("steer", Errno::PERM)],
        &[("steer", Errno::NOPROTOOPT), ("await_input", Errno::INVAL)],
        &[("await_input", Errno::PERM)],
        &[("handshakes", Errno::AFNOSUPPORT)],
        &[("unsteer", Errno::PERM)],
    ];
    for way in ways {
        let (pool, system, at) = start(Model::Loops);
        way.iter().for_each(|(call, errno)| system.fail(call, *errno, 1));
        std::thread::scope(|scope| {
            let client = || (0..100).all(|_| TcpStream::connect(at).is_ok_and(|mut stream| echoes(&mut stream)));
            let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
            pool.reconfigure(replaced(pool.config())).expect("there is another way");
            assert!(clients.into_iter().all(|client| client.join().expect("no panic")), "{way:?}");
        });
        assert!(pool.wait(LONG, |status| status.retiring == 0), "{way:?} {:#?}", pool.status());
        assert_eq!(system.left(), 0, "{way:?}");
    }
}

#[test]
fn sockets_that_cannot_be_made_leave_those_that_are_there() {
    let calls = ["socket", "set_listen_options", "share_port", "bind", "set_options", "listen"];
    for (call, errno) in
        calls.into_iter().zip([Errno::MFILE, Errno::PERM, Errno::PERM, Errno::ADDRINUSE, Errno::INVAL, Errno::NOBUFS])
    {
        let (pool, system, at) = start(Model::Loops);
        system.fail(call, errno, 1);
        let refused = pool.reconfigure(replaced(pool.config()));
        assert!(refused.is_err() && system.left() == 0, "{call}: {refused:?}");
        assert!((0..50).all(|_| echoes(&mut TcpStream::connect(at).expect("it listens"))), "{call}");
        pool.reconfigure(replaced(pool.config())).expect("now it goes");
        assert!((0..50).all(|_| echoes(&mut TcpStream::connect(at).expect("it listens"))), "{call}");
    }
}

#[test]
fn sockets_that_listened_before_a_change_failed_are_served() {
    let (pool, system, at) = start(Model::Loops);
    for listening in [1, 7, 15] {
        system.spare("listen", listening);
        system.fail("listen", Errno::NOBUFS, 1);
        std::thread::scope(|scope| {
            let client = || (0..200).all(|_| TcpStream::connect(at).is_ok_and(|mut stream| echoes(&mut stream)));
            let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
            assert!(pool.reconfigure(replaced(pool.config())).is_err());
            assert!(clients.into_iter().all(|client| client.join().expect("no panic")), "{listening}");
        });
        assert!(pool.wait(LONG, |status| status.retiring == 0), "{:#?}", pool.status());
        assert_eq!((system.left(), pool.status().listeners[1].sockets), (0, 16));
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let (pool, _, _) = start(Model::Loops);
    let mut wanted = pool.config();
    wanted = wanted.listeners(|listeners| listeners[1].options.v6_only = true);
    assert!(matches!(pool.reconfigure(wanted), Err(Error::Invalid { setting: "listeners", .. })));
}
