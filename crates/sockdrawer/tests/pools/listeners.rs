//! Where a pool listens: paths of Unix sockets, inherited sockets, addresses that come and go, and the loops that accept from them.

use crate::common::{Echo, Holding, PATIENCE, address_of_its_own, any_port, connect, in_time, start};
use crate::folder::Folder;
use sockdrawer::testing::crash_loop;
use sockdrawer::{Address, Config, Drain, Error, Local, Model, Peer, Pool, Service, observe::Readiness};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn at_path(path: &Path) -> Config {
    Config::accept(Echo).listen(Address::Unix(path.to_owned())).loops(2)
}

fn connect_to_path(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

fn answers(mut stream: impl Read + Write) -> bool {
    let mut back = [0];
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut back).is_ok() && back == *b"x"
}

fn tcp_addresses(pool: &Pool) -> Vec<SocketAddr> {
    let tcp = |address| if let Address::Tcp(address) = address { Some(address) } else { None };
    pool.addresses().into_iter().filter_map(tcp).collect()
}

/// Returns true where the refusal says that the path has a file that is no socket: nothing listens there that could be stopped.
fn is_no_socket<T>(refused: Result<T, Error>) -> bool {
    refused.is_err_and(|error| error.to_string().contains("a file that is no socket has this path"))
}

#[test]
fn a_file_that_is_no_socket_is_refused_and_untouched() {
    let folder = Folder::new("file");
    let path = folder.path();
    std::fs::write(&path, b"precious").expect("writable");
    assert!(is_no_socket(Pool::start(at_path(&path))));
    assert_eq!(std::fs::read(&path).expect("it is there"), b"precious");
    let (pool, _) = start(Config::accept(Echo).loops(1));
    let wanted = pool.config().listen(Address::Unix(path.clone()));
    assert!(is_no_socket(pool.reconfigure(wanted)));
    drop(pool);
    assert_eq!(std::fs::read(&path).expect("it is there"), b"precious");
}

#[test]
fn a_link_to_a_dead_socket_is_refused_and_untouched() {
    let folder = Folder::new("link");
    let (path, target) = (folder.path(), folder.0.join("target"));
    drop(UnixListener::bind(&target).expect("binds"));
    std::os::unix::fs::symlink(&target, &path).expect("writable");
    assert!(is_no_socket(Pool::start(at_path(&path))));
    assert!(path.is_symlink() && target.exists());
}

#[test]
fn the_path_of_a_dead_socket_is_taken_over_and_that_of_a_living_one_is_not() {
    let folder = Folder::new("stale");
    let path = folder.path();
    drop(UnixListener::bind(&path).expect("binds"));
    let pool = Pool::start(at_path(&path)).expect("nobody listens there");
    assert!(matches!(Pool::start(at_path(&path)), Err(Error::AddressInUse(_))));
    assert!(answers(connect_to_path(&path)), "whoever was refused took nothing away");
    drop(pool);
}

#[test]
fn a_path_is_removed_when_its_owner_ends_in_any_way() {
    let folder = Folder::new("owner");
    let path = folder.path();
    let ended = |how: &str, end: &dyn Fn(Pool)| {
        let pool = Pool::start(at_path(&path)).expect("the path is free");
        assert!(answers(connect_to_path(&path)), "{how}");
        end(pool);
        assert!(!path.exists(), "{how}");
    };
    ended("dropped", &|pool| {
        let others = pool.clone();
        drop(pool);
        drop(others);
    });
    ended("shut down", &|pool| _ = pool.shutdown(Drain::within(PATIENCE)));
    ended("removed by a change", &|pool| {
        let wanted = Config::accept(pool.config().behaviour).listen(any_port()).loops(2);
        pool.reconfigure(wanted).expect("an address can be exchanged");
        assert!(pool.wait(PATIENCE, |_| !path.exists()));
    });
}

/// Service that counts the loops for which something was built.
#[derive(Clone, Default)]
struct Builds(Arc<AtomicUsize>);

impl Service for Builds {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
    fn local(&self) -> Box<Local> {
        Box::new(self.0.fetch_add(1, SeqCst))
    }
}

#[test]
fn nothing_is_built_of_a_service_whose_address_is_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let taken = Address::Tcp(listener.local_addr().expect("bound"));
    for model in [Model::Loops, Model::Threads, Model::Single] {
        let builds = Builds::default();
        let config = Config::accept(builds.clone()).model(model).listen(any_port());
        assert!(matches!(Pool::start(config.clone().listen(taken.clone())), Err(Error::AddressInUse(_))));
        assert_eq!(builds.0.load(SeqCst), 0, "{model}");
        let _pool = Pool::start(config).expect("starts");
        assert!(builds.0.load(SeqCst) > 0, "{model}");
    }
}

#[test]
fn a_start_or_change_that_fails_leaves_no_path() {
    let folder = Folder::new("failed");
    let path = folder.path();
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let taken = Address::Tcp(listener.local_addr().expect("bound"));
    assert!(matches!(Pool::start(at_path(&path).listen(taken.clone())), Err(Error::AddressInUse(_))));
    assert!(!path.exists());
    let (pool, _) = start(Config::accept(Echo).loops(1));
    let wanted = pool.config().listen(Address::Unix(path.clone())).listen(taken);
    assert!(matches!(pool.reconfigure(wanted), Err(Error::AddressInUse(_))));
    assert!(!path.exists());
}

#[test]
fn the_end_of_a_predecessor_leaves_its_successor_the_path() {
    let folder = Folder::new("successor");
    let path = folder.path();
    for end in ["drop", "shutdown", "change"] {
        let old = Pool::start(at_path(&path)).expect("the path is free");
        std::fs::remove_file(&path).expect("it is there");
        let successor = Pool::start(at_path(&path)).expect("the path is free");
        match end {
            "drop" => drop(old),
            "shutdown" => _ = old.shutdown(Drain::within(PATIENCE)),
            _ => {
                let wanted = Config::accept(old.config().behaviour).listen(any_port()).loops(2);
                _ = old.reconfigure(wanted).expect("an address can be exchanged");
            }
        }
        assert!(path.exists() && answers(connect_to_path(&path)), "{end}");
        drop(successor);
        assert!(!path.exists(), "{end}");
    }
}

/// Returns a listener in the mode in which std and most parents make them: blocking.
fn blocking_listener() -> (Config, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let at = listener.local_addr().expect("bound");
    (Config::accept(Echo).loops(1).inherit(Address::Tcp(at), Arc::new(listener.into())), at)
}

#[test]
fn an_inherited_blocking_listener_that_is_removed_does_not_freeze_its_loop() {
    in_time(|| {
        let (config, at) = blocking_listener();
        let pool = Pool::start(config.listen(any_port())).expect("the socket listens");
        let mut held = connect(at);
        assert!(answers(&mut held));
        pool.reconfigure(Config::accept(pool.config().behaviour).loops(1).listen(any_port())).expect("an address can go");
        assert!(answers(&mut held), "the loop turns");
        assert!(answers(connect(tcp_addresses(&pool)[0])), "and accepts");
    });
}

#[test]
fn an_inherited_blocking_listener_does_not_freeze_a_shutdown() {
    in_time(|| {
        let (config, at) = blocking_listener();
        let pool = Pool::start(config).expect("the socket listens");
        let held = connect(at);
        assert!(answers(&held));
        assert_eq!(pool.shutdown(Drain::within(PATIENCE)).ended, 1);
        assert!(matches!(pool.status().readiness, Readiness::Stopped(_)));
    });
}

#[test]
fn an_inherited_socket_that_another_program_empties_ends() {
    let others = TcpListener::bind("127.0.0.1:0").expect("binds");
    let at = others.local_addr().expect("bound");
    let inherited = Arc::new(others.try_clone().expect("a descriptor").into());
    let (pool, _) = start(Config::accept(Echo).loops(1).limit(1).inherit(Address::Tcp(at), inherited));
    let served = connect(at);
    assert!(answers(&served));
    let _waits = connect(at);
    // It waits for room at a socket on its way out, and no room comes.
    pool.reconfigure(Config::accept(pool.config().behaviour).loops(1).limit(1).listen(any_port())).expect("an address can go");
    assert_eq!(pool.status().retiring, 1);
    others.accept().expect("it is in the queue");
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    assert_eq!(pool.status().counts.accepted, 1);
}

#[test]
fn two_listeners_may_ask_for_any_port_and_each_has_its_own() {
    let (pool, first) = start(Config::accept(Echo).loops(2).listen(any_port()));
    let addresses = tcp_addresses(&pool);
    assert_eq!(addresses.len(), 2);
    assert!(addresses[0] != addresses[1] && addresses.iter().all(|at| answers(connect(*at))));
    pool.reconfigure(pool.config().listen(any_port())).expect("one more");
    let addresses = tcp_addresses(&pool);
    assert_eq!(addresses.len(), 3);
    assert!(addresses.iter().all(|at| answers(connect(*at))), "{addresses:?}");
    pool.reconfigure(Config::accept(pool.config().behaviour).loops(2).listen(any_port())).expect("two less");
    let left = tcp_addresses(&pool);
    assert!(left.len() == 1 && answers(connect(left[0])), "{left:?}");
    assert!(left[0] == first || TcpStream::connect(first).is_err(), "the others listen no more");
}

#[test]
fn every_loop_accepts_however_many_there_are() {
    for (before, loops) in [(24, 24), (2, 24)] {
        let (pool, at) = start(Config::accept(Echo).loops(before).workers(0).limit(2000));
        if before != loops {
            pool.reconfigure(pool.config().loops(loops)).expect("loops can be added");
        }
        // The kernel spreads by hash: that one of 24 gets none of 600 happens once in 10^10 runs.
        let streams: Vec<_> = (0..600).map(|_| connect(at)).collect();
        assert!(streams.iter().all(answers));
        let status = pool.status();
        assert!(status.loops.len() == loops && status.loops.iter().all(|one| one.connections > 0), "{status:#?}");
    }
}

/// Returns a connection in loop 1; others may come to be in loop 0.
fn connection_in_loop_1(pool: &Pool, path: &Path) -> (UnixStream, Vec<UnixStream>) {
    let mut others = Vec::new();
    loop {
        let stream = connect_to_path(path);
        assert!(answers(&stream));
        let all = others.len() + 1;
        let counted = |status: &sockdrawer::observe::Status| status.loops.iter().map(|one| one.connections).sum::<usize>() == all;
        assert!(pool.wait(PATIENCE, counted), "{:#?}", pool.status());
        if pool.status().loops[1].connections == 1 {
            return (stream, others);
        }
        others.push(stream);
    }
}

#[test]
fn connections_on_their_way_to_a_loop_survive_its_death() {
    let folder = Folder::new("parcels");
    let path = folder.path();
    let ((lets_go, waits), (holds, held)) = (mpsc::channel(), mpsc::channel());
    let service = Holding { holds, lets_go: Arc::new(Mutex::new(waits)) };
    // The path has one socket, held by loop 0, which gives every other connection to loop 1.
    let pool = Pool::start(Config::accept(service).listen(Address::Unix(path.clone())).loops(2)).expect("the path is free");
    let (mut holder, others) = connection_in_loop_1(&pool, &path);
    let before = pool.status().counts.accepted;
    holder.write_all(b"h").expect("it stands");
    held.recv_timeout(PATIENCE).expect("loop 1 is held up");
    assert!(crash_loop(&pool, 1), "as soon as it is let go");
    let late: Vec<_> = (0..20).map(|_| connect_to_path(&path)).collect();
    assert!(pool.wait(PATIENCE, |status| status.counts.accepted == before + 20), "{:#?}", pool.status());
    lets_go.send(()).expect("it waits");
    assert!(pool.wait(PATIENCE, |status| status.restarts == 1), "{:#?}", pool.status());
    assert_eq!(late.iter().filter(|stream| answers(*stream)).count(), 20);
    assert!(others.iter().all(answers));
}

#[test]
fn the_queue_of_an_address_removed_while_the_pool_is_suspended_and_full_is_served_later() {
    let (pool, first) = start(Config::accept(Echo).loops(1).limit(1));
    let base = pool.config();
    pool.reconfigure(base.clone().listen(address_of_its_own())).expect("one more");
    let second = tcp_addresses(&pool)[1];
    let held = connect(first);
    assert!(answers(&held));
    pool.suspend();
    let queued = connect(second);
    pool.reconfigure(base.unconditional()).expect("an address can go");
    drop(held);
    assert!(answers(&queued));
    pool.resume();
    drop(queued);
    assert!(answers(connect(first)));
    assert!(pool.wait(PATIENCE, |_| TcpStream::connect_timeout(&second, Duration::from_secs(1)).is_err()), "it listens no more");
}
