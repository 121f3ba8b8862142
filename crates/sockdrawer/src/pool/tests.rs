//! A pool whose system refuses: each call of the accept, connection and change paths fails in turn.

mod itself;
mod members;
mod refusals;

use super::Pool;
use crate::config::{Config, Model, Part};
use crate::net::Address;
use crate::observe::{Event, Status};
use crate::operation::Drain;
use crate::protocol::{Context, Input, Peer, Protocol, Service, Step};
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use crate::sys::Errno;
use crate::sys::faulty::Faulty;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Echo;

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

/// A pool over a kernel that fails, and what it told.
struct Scene {
    pool: Pool,
    system: Arc<Faulty>,
    events: Arc<Mutex<Vec<String>>>,
}

const LONG: Duration = Duration::from_secs(10);

impl Scene {
    fn new() -> Scene {
        Scene::with(|config| config)
    }

    fn with(change: impl FnOnce(Config) -> Config) -> Scene {
        let system = Arc::new(Faulty::default());
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = events.clone();
        let mut config = change(Config::accept(Echo).listen("127.0.0.1:0").loops(1));
        config = config.observer(move |event: &Event| lock(&told).push(format!("{event:?}")));
        config.system = system.clone();
        Scene { pool: Pool::start(config).expect("starts"), system, events }
    }

    fn address(&self) -> SocketAddr {
        match self.pool.addresses()[0] {
            Address::Tcp(address) => address,
            _ => unreachable!("it listens on TCP"),
        }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.address()).expect("connects");
        client.set_read_timeout(Some(LONG)).expect("a time-out");
        client
    }

    fn told(&self, what: &str) -> usize {
        lock(&self.events).iter().filter(|event| event.contains(what)).count()
    }
}

fn echoes(client: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    client.write_all(b"ping").is_ok() && client.read_exact(&mut answer).is_ok() && answer == *b"ping"
}

#[test]
fn a_lack_of_descriptors_or_memory_pauses_accepting_and_loses_nobody() {
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
        let scene = Scene::new();
        let mut held = scene.client();
        assert!(echoes(&mut held));
        scene.system.fail("accept", errno, 3);
        let mut waiting = scene.client();
        assert!(echoes(&mut waiting), "served once the system has what it needs");
        assert_eq!(scene.system.left(), 0);
        let counts = scene.pool.status().counts;
        assert_eq!((counts.accept_starved, counts.accepted), (3, 2));
        assert!(scene.pool.wait(LONG, |_| scene.told("AcceptResumed") == 1));
        assert_eq!(scene.told("AcceptStarved"), 1, "told once for each pause");
        assert!(echoes(&mut held));
    }
}

#[test]
fn a_connection_that_failed_before_it_was_accepted_is_counted_and_passed() {
    for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::PERM, Errno::NETDOWN, Errno::HOSTUNREACH, Errno::INTR] {
        let scene = Scene::new();
        scene.system.fail("accept", errno, 1);
        assert!(echoes(&mut scene.client()));
        let counts = scene.pool.status().counts;
        assert_eq!((counts.accept_failed, counts.accept_starved), (1, 0));
    }
}

#[test]
fn a_listener_that_the_system_denies_pauses_alone_and_a_lack_pauses_all() {
    let listening = |config: Config| config.listen("127.0.0.1:0");
    for errno in [Errno::PERM, Errno::ACCESS] {
        let scene = Scene::with(listening);
        let Address::Tcp(other) = scene.pool.addresses()[1] else { unreachable!("it listens on TCP") };
        scene.system.deny(scene.address().port(), errno);
        let mut waiting = scene.client();
        assert!(scene.pool.wait(LONG, |status| status.counts.accept_starved >= 3), "{errno:?}");
        for _ in 0..100 {
            let mut client = TcpStream::connect(other).expect("connects");
            client.set_read_timeout(Some(LONG)).expect("a time-out");
            assert!(echoes(&mut client), "{errno:?}: the other listener goes on");
        }
        let counts = scene.pool.status().counts;
        assert_eq!((counts.accepted, counts.accept_failed), (100, 1), "{errno:?}");
        assert_eq!((scene.told("AcceptStarved"), scene.told("AcceptResumed")), (1, 0), "{errno:?}: still denied");
        scene.system.heal();
        assert!(echoes(&mut waiting), "{errno:?}: it had stayed in the queue");
        assert_eq!((scene.told("AcceptStarved"), scene.told("AcceptResumed")), (1, 1), "{errno:?}");
    }
    for errno in [Errno::MFILE, Errno::NOBUFS] {
        let scene = Scene::with(listening);
        let Address::Tcp(other) = scene.pool.addresses()[1] else { unreachable!("it listens on TCP") };
        scene.system.fail_always("accept", errno);
        let mut clients = [scene.address(), other].map(|at| TcpStream::connect(at).expect("connects"));
        assert!(scene.pool.wait(LONG, |status| status.counts.accept_starved >= 3), "{errno:?}");
        let (starved, met) = (scene.pool.status().counts.accept_starved, scene.system.met() as u64);
        assert!(met >= starved && met <= starved + 1, "{errno:?}: {met} calls in {starved} pauses, whatever listeners wait");
        assert_eq!(scene.told("AcceptStarved"), 1, "{errno:?}");
        scene.system.heal();
        for client in &mut clients {
            client.set_read_timeout(Some(LONG)).expect("a time-out");
            assert!(echoes(client), "{errno:?}: served once the process has what it needs");
        }
        assert_eq!(scene.pool.status().counts.accept_failed, 0, "{errno:?}");
    }
}

#[test]
fn accepting_that_the_system_denies_pauses_also_at_sockets_that_retire() {
    // A seccomp filter or a security module may say so: the connection stays in the queue, and the socket is reported again at once.
    for errno in [Errno::PERM, Errno::ACCESS, Errno::INVAL] {
        for retires in [false, true] {
            let scene = Scene::new();
            let (mut held, address) = (scene.client(), scene.address());
            assert!(echoes(&mut held));
            scene.system.fail_always("accept", errno);
            let mut waiting = TcpStream::connect(address).expect("connects");
            let without = retires.then(|| {
                let (pool, mut config) = (scene.pool.clone(), scene.pool.config());
                config = config.listeners(|listeners| listeners.clear());
                std::thread::spawn(move || pool.reconfigure(config).map(|_| ()))
            });
            assert!(scene.pool.wait(LONG, |status| status.counts.accept_starved >= 3), "{errno:?}");
            assert_eq!(scene.pool.status().counts.accept_failed, 1, "{errno:?}: told from a failed connection by the second");
            assert!(echoes(&mut held), "{errno:?}: the loop turns");
            scene.system.heal();
            waiting.set_read_timeout(Some(LONG)).expect("a time-out");
            assert!(echoes(&mut waiting), "{errno:?}: it had stayed in the queue");
            assert_eq!((scene.told("AcceptStarved"), scene.told("AcceptResumed")), (1, 1), "{errno:?}");
            without.into_iter().for_each(|change| change.join().expect("no panic").expect("a change"));
        }
    }
}

#[test]
fn what_waits_at_a_unix_socket_that_retires_survives_the_loop_that_empties_it() {
    let path = std::env::temp_dir().join(format!("sockdrawer-orphan-{}", std::process::id()));
    let scene = Scene::with(|config| config.limit(1).listen(Address::Unix(path.clone())));
    let mut held = scene.client();
    assert!(echoes(&mut held));
    let queued: Vec<_> = (0..6).map(|_| std::os::unix::net::UnixStream::connect(&path).expect("connects")).collect();
    let (pool, mut config) = (scene.pool.clone(), scene.pool.config());
    config = config.listeners(|listeners| listeners.retain(|listening| matches!(listening.address, Address::Tcp(_))));
    let change = std::thread::spawn(move || pool.reconfigure(config).map(|_| ()));
    assert!(scene.pool.wait(LONG, |status| status.retiring == 1 && status.listeners.len() == 1));
    // While `held` has the only permit, so that none of the others is in this loop.
    assert!(scene.pool.crash(Part::Loop, 0));
    for mut client in queued {
        let mut answer = [0; 4];
        client.set_read_timeout(Some(LONG)).expect("a time-out");
        client.write_all(b"ping").expect("it stands");
        client.read_exact(&mut answer).expect("it was accepted by the loop that came after");
    }
    change.join().expect("no panic").expect("a change");
    assert!(scene.pool.wait(LONG, |status| status.retiring == 0), "it ends when it is empty");
}

#[test]
fn what_is_kept_for_a_client_that_does_not_read_is_at_most_twice_the_mark() {
    for (model, reads_less) in [(Model::Loops, 1), (Model::Threads, 0)] {
        let scene = Scene::with(|config| config.model(model));
        let (mut clients, mut beyond) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let mut client = scene.client();
            client.set_write_timeout(Some(Duration::from_millis(300))).expect("a time-out");
            while client.write(&[b'x'; 256 * 1024]).is_ok() {}
            clients.push(client);
            let newest =
                scene.pool.connections(&crate::Selector::All).into_iter().max_by_key(|one| one.id.0).expect("it is there");
            // An echo: what came in and did not go out is kept.
            let kept = newest.bytes_in - newest.bytes_out;
            assert!(kept > 0, "{model:?}");
            beyond.extend(Some(kept).filter(|kept| *kept > 2 * 64 * 1024));
        }
        // The first that keeps so much in a loop tells it to read less, whichever of them that is.
        assert!(beyond.len() <= reads_less * scene.pool.status().loops.len(), "{model:?}: {beyond:?}");
    }
}

#[test]
fn a_flood_at_a_socket_that_retires_does_not_keep_a_loop_from_its_connections() {
    // A Unix socket: nothing keeps clients away from it while it is emptied.
    let path = std::env::temp_dir().join(format!("sockdrawer-flood-{}", std::process::id()));
    let scene = Scene::with(|config| config.limit(1).listen(Address::Unix(path.clone())));
    let mut held = scene.client();
    assert!(echoes(&mut held));
    let queued: Vec<_> = (0..100).map(|_| std::os::unix::net::UnixStream::connect(&path).expect("connects")).collect();
    let mut config = scene.pool.config().limit(200);
    config = config.listeners(|listeners| listeners.retain(|listening| matches!(listening.address, Address::Tcp(_))));
    let before = scene.pool.status().counts.turns;
    scene.pool.reconfigure(config).expect("a change");
    assert!(scene.pool.wait(LONG, |status| status.connections == 101), "each is let in");
    let turns = scene.pool.status().counts.turns - before;
    assert!(turns >= 100 / 32, "in {turns} turns");
    assert!(queued.into_iter().all(|mut client| {
        let mut answer = [0; 4];
        client.set_read_timeout(Some(LONG)).is_ok() && client.write_all(b"ping").is_ok() && client.read_exact(&mut answer).is_ok()
    }));
    assert!(echoes(&mut held));
}

#[test]
fn a_socket_that_cannot_be_watched_costs_its_own_connection_only() {
    let scene = Scene::new();
    let mut held = scene.client();
    // The connection is watched after the first answer, and before the second.
    assert!(echoes(&mut held) && echoes(&mut held));
    scene.system.fail("watch", Errno::NOSPC, 1);
    let mut unlucky = scene.client();
    assert!(matches!(unlucky.read(&mut [0]), Ok(0)), "it ends");
    assert!(echoes(&mut held));
    assert!(echoes(&mut scene.client()));
    assert_eq!(scene.pool.status().counts.errors, 1);
}

#[test]
fn errors_of_a_socket_end_its_connection_and_interrupted_calls_are_made_again() {
    let scene = Scene::new();
    scene.system.fail("receive", Errno::INTR, 1);
    scene.system.fail("send", Errno::INTR, 1);
    let mut lucky = scene.client();
    assert!(echoes(&mut lucky));
    scene.system.fail("send", Errno::PIPE, 1);
    assert!(!echoes(&mut scene.client()));
    scene.system.fail("receive", Errno::CONNRESET, 1);
    assert!(!echoes(&mut scene.client()));
    assert!(echoes(&mut lucky));
    assert_eq!(scene.pool.status().counts.errors, 2);
}

#[test]
fn a_change_that_the_system_refuses_leaves_the_pool_as_it_was() {
    for (call, errno) in [
        ("socket", Errno::MFILE),
        ("bind", Errno::ADDRINUSE),
        ("bind", Errno::ACCESS),
        ("listen", Errno::ADDRINUSE),
        ("share_port", Errno::PERM),
        ("set_options", Errno::INVAL),
        ("epoll", Errno::MFILE),
        ("event", Errno::MFILE),
    ] {
        let scene = Scene::new();
        let mut held = scene.client();
        assert!(echoes(&mut held));
        let before = scene.pool.status();
        let mut wanted = scene.pool.config().listen("127.0.0.2:0").loops(3).behaviour(Echo);
        wanted.settings.options.nodelay = false;
        scene.system.fail(call, errno, 1);
        let error = scene.pool.reconfigure(wanted.clone()).expect_err(call).to_string();
        assert!(!error.contains('\n'), "{error}");
        let after = scene.pool.status();
        assert_eq!((after.generation, after.loops.len(), after.listeners.len()), (1, 1, 1), "{call}: {error}");
        assert_eq!(after.workers, before.workers);
        assert!(echoes(&mut held) && echoes(&mut scene.client()), "{call}");
        scene.system.heal();
        scene.pool.reconfigure(wanted).expect("the system gives it now");
        assert!(echoes(&mut held) && echoes(&mut scene.client()), "{call}");
        assert_eq!(scene.pool.status().listeners.len(), 2);
    }
}

#[test]
fn a_start_that_the_system_refuses_leaves_nothing_behind() {
    let system = Arc::new(Faulty::default());
    let mut config = Config::accept(Echo).listen("127.0.0.1:0").loops(2);
    config.system = system.clone();
    for call in ["socket", "bind", "listen", "share_port", "set_options", "epoll", "event", "watch_event"] {
        system.fail(call, Errno::MFILE, 1);
        assert!(Pool::start(config.clone()).is_err(), "{call}");
        assert_eq!(system.left(), 0, "{call} was called");
    }
    let pool = Pool::start(config).expect("starts");
    assert_eq!(pool.shutdown(Drain::within(LONG)).asked, 0);
}

#[test]
fn a_listener_that_cannot_be_watched_is_tried_again_at_times_and_does_not_spin() {
    let scene = Scene::new();
    let mut held = scene.client();
    // The connection is watched after the first answer, and before the second.
    assert!(echoes(&mut held) && echoes(&mut held));
    scene.system.fail("watch", Errno::NOSPC, 8);
    scene.pool.reconfigure(scene.pool.config().listen("127.0.0.2:0")).expect("one more");
    let before = scene.pool.status().counts.turns;
    // These connections keep the old listener ready all the time.
    let queued: Vec<_> = (0..16).map(|_| scene.client()).collect();
    assert!(scene.pool.wait(LONG, |_| scene.system.left() == 0));
    let turns = scene.pool.status().counts.turns - before;
    assert!(turns < 500, "{turns} turns");
    assert!(echoes(&mut held));
    for address in scene.pool.addresses() {
        let Address::Tcp(address) = address else { unreachable!("it listens on TCP") };
        let mut client = TcpStream::connect(address).expect("connects");
        client.set_read_timeout(Some(LONG)).expect("a time-out");
        assert!(echoes(&mut client), "{address}");
    }
    drop(queued);
}

#[test]
fn a_loop_that_cannot_be_replaced_at_once_is_replaced_later_and_the_pool_lives() {
    for call in ["epoll", "event", "watch_event"] {
        for loops in [1, 2] {
            let scene = Scene::new();
            let mut config = scene.pool.config().loops(loops);
            config.stuck_after = Duration::from_millis(500);
            scene.pool.reconfigure(config).expect("a change");
            let mut clients: Vec<_> = (0..8).map(|_| scene.client()).collect();
            assert!(clients.iter_mut().all(echoes));
            scene.system.fail(call, Errno::MFILE, 2);
            assert!(scene.pool.crash(Part::Loop, 0));
            assert!(scene.pool.wait(LONG, |_| scene.told("LoopNotStarted") > 0), "{call}");
            // The loop's listeners are served by another loop, or by the new one.
            assert!(echoes(&mut scene.client()), "{call}");
            assert!(scene.pool.wait(LONG, |_| scene.system.left() == 0), "{call}");
            let serve = || (0..8).all(|_| echoes(&mut scene.client()));
            assert!(serve(), "{call}");
            let whole = scene.pool.wait(LONG, |status| status.loops.iter().all(|one| one.active) && status.restarts == 1);
            assert!(whole && scene.told("GaveUp") == 0, "{call}: {:?}", scene.pool.status());
            scene.pool.reconfigure(scene.pool.config().loops(3)).expect("it can be changed");
            assert!(serve(), "{call}");
            assert_eq!(scene.pool.shutdown(Drain::within(LONG)).cut, 0, "{call}");
        }
    }
}

#[test]
fn a_connection_for_which_there_is_no_thread_is_kept_until_there_is() {
    for (call, times) in [("epoll", 1), ("event", 3), ("watch_event", 2)] {
        let scene = Scene::with(|config| config.model(Model::Threads));
        scene.system.fail(call, Errno::MFILE, times);
        let mut clients: Vec<_> = (0..3).map(|_| scene.client()).collect();
        for client in &mut clients {
            client.write_all(b"x").expect("it stands");
            client.read_exact(&mut [0]).expect("it was kept, and the others waited");
        }
        assert_eq!(scene.system.left(), 0);
        let counts = scene.pool.status().counts;
        assert_eq!((counts.accepted, counts.accept_starved), (3, times as u64), "{call}");
        assert_eq!((scene.told("AcceptStarved"), scene.told("AcceptResumed")), (1, 1), "once for each pause");
    }
}

#[test]
fn a_pool_that_ends_places_what_it_kept() {
    let scene = Scene::with(|config| config.model(Model::Threads));
    scene.system.fail("epoll", Errno::NFILE, 2);
    let mut client = scene.client();
    client.write_all(b"x").expect("it stands");
    assert!(scene.pool.wait(LONG, |status| status.counts.accept_starved > 0));
    let pool = scene.pool.clone();
    let ending = std::thread::spawn(move || pool.shutdown(Drain::within(LONG)));
    client.read_exact(&mut [0]).expect("answered");
    drop(client);
    assert_eq!(ending.join().expect("no panic").cut, 0);
}

#[test]
fn a_connection_that_waits_for_a_thread_survives_the_loop_that_accepted_it_and_is_counted_out() {
    let scene = Scene::with(|config| config.model(Model::Threads).workers(0));
    scene.system.fail("epoll", Errno::NFILE, 100_000);
    let mut waits = scene.client();
    assert!(scene.pool.wait(LONG, |status| status.counts.accept_starved > 0));
    assert!(scene.pool.crash(Part::Loop, 0));
    assert!(scene.pool.wait(LONG, |_| scene.told("LoopNotStarted") > 0));
    assert_eq!(scene.pool.status().connections, 1, "it is still let in");
    scene.system.heal();
    assert!(echoes(&mut waits));

    scene.system.fail("epoll", Errno::NFILE, 100_000);
    let _waits = scene.client();
    assert!(scene.pool.wait(LONG, |status| status.connections == 2));
    scene.pool.shutdown(Drain::within(Duration::ZERO));
    // A loop that gets no CPU when time is up is left behind, and ends then.
    let all_ended = |status: &Status| (status.counts.accepted, status.counts.closed, status.connections) == (2, 2, 0);
    assert!(scene.pool.wait(LONG, all_ended), "{:#?}", scene.pool.status());
}

/// Connects at its first input, and tells what came of it.
struct Asker(Address, Arc<AtomicUsize>);

impl Service for Asker {
    type Protocol = AskerOf;
    fn open(&self, _peer: &Peer) -> AskerOf {
        AskerOf(self.0.clone())
    }
    fn connect_failed(&self, _failure: &crate::connecting::ConnectFailure, _local: &mut crate::Local) {
        self.1.fetch_add(1, SeqCst);
    }
}

struct AskerOf(Address);

impl Protocol for AskerOf {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.connect(&self.0, Duration::from_secs(5));
        Step::Continue
    }
    fn connected(&mut self, result: Result<crate::Handle, crate::connecting::ConnectFailure>, cx: &mut Context<'_>) -> Step {
        cx.send(format!("{:?}.", result.map(|_| ()).map_err(|failure| failure.errno)).as_bytes());
        Step::Continue
    }
}

#[test]
fn a_connect_on_request_that_cannot_be_watched_is_counted_once_and_told_its_asker_alone() {
    use std::io::{Read, Write};
    let backend = std::net::TcpListener::bind("127.0.0.1:0").expect("free");
    let told = Arc::new(AtomicUsize::new(0));
    let service = Asker(backend.local_addr().expect("bound").into(), told.clone());
    let scene = Scene::with(|config| config.behaviour(service));
    let mut client = scene.client();
    client.write_all(b"x").expect("it stands");
    let mut got = [0; 64];
    let count = client.read(&mut got).expect("an answer");
    assert_eq!(&got[..count], b"Ok(()).");
    scene.system.fail("watch", Errno::NOSPC, 1);
    client.write_all(b"x").expect("it stands");
    let count = client.read(&mut got).expect("an answer");
    let counts = scene.pool.status().counts;
    let met = (String::from_utf8_lossy(&got[..count]).into_owned(), counts.connect_failed, told.load(SeqCst));
    assert_eq!(met, ("Err(28).".to_owned(), 1, 0));
}
