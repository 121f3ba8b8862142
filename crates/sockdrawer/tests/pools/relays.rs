//! Connects that connections ask for, and relays: what is misuse, what comes of either at an end, and that neither costs turns while it waits.

mod filtered;
mod meeting;
mod records;
pub(crate) mod script;

use crate::common::{
    self, PATIENCE, any_port, assert_empty, assert_reset, connect, echoes, in_time, read, read_all, reset, start,
};
use script::{Call, accept, assert_sleeps, backend, full_backend, joins, script};
use sockdrawer::testing::crash_loop;
use sockdrawer::{Address, After, Closed, Config, Delegate, Drain, Job, Model, Pool, Selector, Side, Step};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A proxy, and a connection through it that works.
struct Scene {
    script: script::Script,
    pool: Pool,
    client: TcpStream,
    far: TcpStream,
}

impl Scene {
    fn new() -> Scene {
        let (backend, target) = backend();
        Scene::of(&backend, script(move |call, cx, side| joins(call, cx, side, &target)))
    }

    fn of(backend: &TcpListener, script: script::Script) -> Scene {
        let mut config = Config::accept(script.clone()).loops(1);
        // Little is between a writer and a reader that does not read.
        config.settings.options.send_buffer = Some(4096);
        rustix::net::sockopt::set_socket_recv_buffer_size(backend, 4096).expect("a socket");
        let (pool, at) = start(config);
        let (mut client, mut far) = (connect(at), accept(backend));
        client.write_all(b"x").expect("it stands");
        assert_eq!(read(&mut far, 1).as_deref(), Some(&b"x"[..]));
        Scene { script, pool, client, far }
    }

    /// Sends more from the client than goes through while the other does not read, and its end behind that. Returns how much.
    fn stuff(&mut self) -> usize {
        // All of it has room in the proxy's buffer in the kernel: so has the end, which is what this is about.
        const SENT: usize = 60_000;
        self.client.write_all(&[7; SENT]).expect("it stands");
        self.client.shutdown(Shutdown::Write).expect("it stands");
        let is_stuck = |pool: &Pool| {
            let counts = pool.status().counts;
            counts.bytes_in > counts.bytes_out && counts.bytes_in < SENT as u64
        };
        assert!(self.pool.wait(PATIENCE, |_| is_stuck(&self.pool)));
        SENT
    }
}

#[test]
fn a_peer_that_has_hung_up_behind_input_that_waits_costs_no_turns() {
    in_time(|| {
        let mut scene = Scene::new();
        scene.far.shutdown(Shutdown::Write).expect("it stands");
        assert!(read_all(&mut scene.client).expect("an orderly end").is_empty());
        let sent = scene.stuff();
        assert_sleeps(&scene.pool);
        assert_eq!(read_all(&mut scene.far).expect("an orderly end").len(), sent);
        assert_empty(&scene.pool);
    });
}

#[test]
fn a_pause_in_a_relay_changes_nothing_and_costs_no_turns() {
    in_time(|| {
        let (backend, target) = backend();
        let mut scene = Scene::of(
            &backend,
            script(move |call, cx, side| match call {
                Call::Notified(_) => {
                    cx.pause();
                    Step::Continue
                }
                call => joins(call, cx, side, &target),
            }),
        );
        scene.pool.notify(&Selector::All, &b"pause"[..]).expect("there is room");
        assert!(scene.pool.wait(PATIENCE, |status| status.counts.notes == 2));
        let sent = scene.stuff();
        assert_sleeps(&scene.pool);
        assert_eq!(read_all(&mut scene.far).expect("an orderly end").len(), sent);
        drop(scene.far);
        assert_empty(&scene.pool);
    });
}

#[test]
fn what_was_sent_before_a_reset_is_passed_on_before_it() {
    in_time(|| {
        let ((backend, target), gate) = (backend(), Arc::new(Barrier::new(2)));
        let blocks = gate.clone();
        let mut scene = Scene::of(
            &backend,
            script(move |call, cx, side| match call {
                Call::Notified(_) if side == Side::Accepted => {
                    blocks.wait();
                    blocks.wait();
                    Step::Continue
                }
                call => joins(call, cx, side, &target),
            }),
        );
        scene.pool.notify(&Selector::All, &b"block"[..]).expect("there is room");
        gate.wait();
        // The loop meets both at once.
        scene.far.write_all(b"answer").expect("it stands");
        reset(scene.far);
        gate.wait();
        assert_eq!(read(&mut scene.client, 6).as_deref(), Some(&b"answer"[..]));
        assert_reset(&mut scene.client);
        assert_empty(&scene.pool);
    });
}

/// Checks that where a side ends and closes its socket and the other speaks on, which the kernel refuses, the pair has ended in
/// order.
#[test]
fn a_side_that_closes_its_socket_after_its_end_is_no_failure() {
    in_time(|| {
        for client_closes in [true, false] {
            let Scene { script, pool, client, far } = Scene::new();
            let (closes, mut speaks) = if client_closes { (client, far) } else { (far, client) };
            drop(closes);
            assert!(read_all(&mut speaks).expect("an orderly end").is_empty());
            speaks.write_all(b"late").expect("it stands");
            let ends = || [Side::Accepted, Side::Connected].map(|side| script.ends(side));
            assert!(pool.wait(PATIENCE, |_| ends().concat().len() == 2));
            // It has not ended itself, and is not reset.
            assert!(read_all(&mut speaks).expect("an orderly end").is_empty());
            drop(speaks);
            assert_empty(&pool);
            let counts = pool.status().counts;
            assert_eq!((counts.errors, counts.aborted, counts.closed), (0, 0, 2));
            assert_eq!(ends(), [[Closed::Orderly]; 2]);
        }
    });
}

/// Delegates to blocking code that takes a byte.
fn delegate() -> Step {
    Step::Delegate(Delegate::new(|connection| {
        // It may have ended meanwhile.
        let _ = connection.read(&mut [0; 16]);
        After::End
    }))
}

#[test]
fn a_connection_that_connects_cannot_be_delegated() {
    in_time(|| {
        let (backend, target) = backend();
        let service = script(move |call, cx, _| {
            if let Call::Received(input) = call {
                if input.take_all() == b"misuse" {
                    cx.connect(&target, PATIENCE);
                    return delegate();
                }
                cx.send(b"hello");
            }
            Step::Continue
        });
        let (pool, at) = start(Config::accept(service.clone()).loops(1));
        let (mut client, mut other) = (connect(at), connect(at));
        client.write_all(b"misuse").expect("it stands");
        assert_reset(&mut client);
        assert!(echoes(&mut other, b"hello"), "the loop goes on");
        drop(other);
        assert_empty(&pool);
        assert_eq!(service.ends(Side::Accepted)[0], Closed::Panicked);
        let status = pool.status();
        assert_eq!((status.restarts, status.counts.delegated), (0, 0));
        assert_connects_to_nothing(&pool, &backend);
    });
}

#[test]
fn a_relayed_connection_cannot_be_delegated() {
    in_time(|| {
        let (backend, target) = backend();
        let mut scene = Scene::of(
            &backend,
            script(move |call, cx, side| match call {
                Call::Notified(_) if side == Side::Accepted => delegate(),
                call => joins(call, cx, side, &target),
            }),
        );
        scene.pool.notify(&Selector::All, &b"misuse"[..]).expect("there is room");
        assert_reset(&mut scene.client);
        assert_reset(&mut scene.far);
        assert_empty(&scene.pool);
        let ends = [Side::Accepted, Side::Connected].map(|side| scene.script.ends(side));
        assert_eq!(ends, [[Closed::Panicked], [Closed::Aborted]]);
        let status = scene.pool.status();
        assert_eq!((status.restarts, status.counts.delegated), (0, 0));
    });
}

#[test]
fn a_relay_to_a_connection_that_is_busy_ends_both() {
    in_time(|| {
        for delegated in [false, true] {
            let (backend, target) = backend();
            let (ends, works) = mpsc::channel::<()>();
            let works = Arc::new(Mutex::new(works));
            let service = script(move |call, cx, side| match call {
                Call::Opened if side == Side::Connected => {
                    let works = works.clone();
                    let work = move || _ = works.lock().expect("no panic").recv_timeout(PATIENCE);
                    if !delegated {
                        return Step::Work(Job::new(work));
                    }
                    Step::Delegate(Delegate::new(move |_| {
                        work();
                        After::End
                    }))
                }
                call => joins(call, cx, side, &target),
            });
            let (pool, at) = start(Config::accept(service.clone()).loops(1));
            let (mut client, mut far) = (connect(at), accept(&backend));
            assert_reset(&mut client);
            if !delegated {
                assert_reset(&mut far);
                assert!(pool.wait(PATIENCE, |status| status.counts.closed == 2), "also while the job runs");
            }
            drop(ends);
            // Blocking code has the connection until it returns.
            assert!(read_all(&mut far).map_or(true, |left| left.is_empty()));
            assert_empty(&pool);
            assert_eq!(service.ends(Side::Accepted), [Closed::Panicked]);
            assert_eq!(service.ends(Side::Connected).len(), 1, "delegated: {delegated}");
            assert_eq!(pool.status().restarts, 0);
        }
    });
}

#[test]
fn a_relayed_connection_is_not_told_that_there_is_room() {
    in_time(|| {
        const MUCH: usize = 1 << 20;
        let ((backend, target), told) = (backend(), Arc::new(AtomicUsize::new(0)));
        let count = told.clone();
        let service = script(move |call, cx, side| {
            match call {
                Call::Opened if side == Side::Connected => cx.pause(),
                // Input that was not taken goes to the other side at once, and is more than its high-water mark.
                Call::Received(input) if input.bytes().len() > MUCH / 2 => {
                    cx.connect(&target, PATIENCE);
                    cx.pause();
                }
                Call::Connected(made) => return Step::Relay(made.expect("it listens")),
                Call::Writable => _ = count.fetch_add(1, SeqCst),
                _ => {}
            }
            Step::Continue
        });
        let mut config = Config::accept(service).loops(1);
        config.settings.options.send_buffer = Some(8 * 1024);
        config.settings.max_partial = 4 * MUCH;
        (config.settings.high_water, config.settings.low_water) = (8 * 1024, 4 * 1024);
        let (pool, at) = start(config);
        let mut client = connect(at);
        let writer = thread::spawn(move || {
            client.write_all(&vec![7; MUCH]).expect("it stands");
            client.shutdown(Shutdown::Write).expect("it stands");
            client
        });
        let mut far = accept(&backend);
        assert_eq!(read_all(&mut far).expect("an orderly end").len(), MUCH);
        drop((far, writer.join().expect("no panic")));
        assert_empty(&pool);
        assert_eq!(told.load(SeqCst), 0);
    });
}

#[test]
fn a_purged_relay_is_cut_and_does_not_look_whole() {
    in_time(|| {
        let mut scene = Scene::new();
        let mut far = scene.far;
        let writer = thread::spawn(move || {
            // It is cut off in the middle.
            let cut = far.write_all(&vec![7; 32_000_000]);
            cut.map_err(|error| error.kind())
        });
        let is_stuck = |pool: &Pool| pool.status().counts.bytes_in > pool.status().counts.bytes_out;
        assert!(scene.pool.wait(PATIENCE, |_| is_stuck(&scene.pool)));
        let purged = scene.pool.purge(&Selector::All, PATIENCE);
        assert_eq!((purged.asked, purged.cut), (2, 2), "{purged:?}");
        assert_reset(&mut scene.client);
        assert!(writer.join().expect("no panic").is_err());
        assert_empty(&scene.pool);
        let ends = [Side::Accepted, Side::Connected].map(|side| scene.script.ends(side));
        assert_eq!(ends, [[Closed::Purged], [Closed::Purged]]);
        assert_eq!(scene.pool.status().counts.cut, 2);
    });
}

#[test]
fn a_relay_stands_under_changes() {
    in_time(|| {
        let (backend, target) = backend();
        let service = script(move |call, cx, side| joins(call, cx, side, &target));
        let (pool, at) = start(Config::accept(service.clone()).loops(2));
        let mut pairs: Vec<_> = (0..10).map(|_| (connect(at), accept(&backend))).collect();
        for round in 0..20 {
            pool.update(|config| config.behaviour(service.clone())).expect("valid");
            pool.adopt(&Selector::All);
            pool.tag(&Selector::All, &format!("round {round}"));
            pool.notify(&Selector::All, &b"note"[..]).expect("there is room");
            if round == 10 {
                pool.update(|config| config.loops(1)).expect("valid");
            }
            for (client, far) in &mut pairs {
                client.write_all(b"question").expect("it stands");
                assert_eq!(read(far, 8).as_deref(), Some(&b"question"[..]), "round {round}");
                far.write_all(b"answer").expect("it stands");
                assert_eq!(read(client, 6).as_deref(), Some(&b"answer"[..]), "round {round}");
            }
        }
        assert_eq!(pool.status().connections, 20);
        drop(pairs);
        assert_empty(&pool);
        let counts = pool.status().counts;
        assert_eq!((counts.accepted, counts.connected, counts.closed, counts.aborted), (10, 10, 20, 0));
    });
}

/// End of a connection while it is told what came of its connect.
#[derive(Clone, Copy, Debug)]
enum AtConnected {
    Panic,
    Close,
    Abort,
}

#[test]
fn a_connection_whose_asker_ends_when_it_is_told_ends_with_a_reset() {
    in_time(|| {
        for how in [AtConnected::Panic, AtConnected::Close, AtConnected::Abort] {
            let (backend, target) = backend();
            let service = script(move |call, cx, side| match (call, how) {
                (Call::Connected(_), AtConnected::Panic) => panic!("asked to"),
                (Call::Connected(_), AtConnected::Close) => Step::Close,
                (Call::Connected(_), AtConnected::Abort) => Step::Abort,
                (call, _) => joins(call, cx, side, &target),
            });
            let (pool, at) = start(Config::accept(service.clone()).loops(1));
            let client = connect(at);
            assert_reset(&mut accept(&backend));
            assert_eq!(service.ends(Side::Connected), [Closed::Aborted], "{how:?}");
            drop(client);
            assert_empty(&pool);
            assert_eq!(service.ends(Side::Accepted).len(), 1, "{how:?}");
        }
    });
}

/// Asserts that a connection that ends by the callback in which it asks does not connect.
#[track_caller]
fn assert_connects_to_nothing(pool: &Pool, backend: &TcpListener) {
    assert_adds_up(pool, 0, 0);
    backend.set_nonblocking(true).expect("it is a socket");
    assert!(backend.accept().is_err(), "nothing has connected");
}

/// Asserts that each connect was counted once, however it went.
#[track_caller]
fn assert_adds_up(pool: &Pool, connects: u64, connected: u64) {
    let counts = pool.status().counts;
    assert_eq!((counts.connects, counts.connected, counts.connect_failed), (connects, connected, connects - connected));
}

#[test]
fn a_connect_that_fails_at_once_was_one() {
    let (_backend, target) = backend();
    let service = script(move |call, cx, side| joins(call, cx, side, &target));
    let (pool, at) = start(Config::accept(service).loops(1).limit(1));
    assert_reset(&mut connect(at));
    assert_adds_up(&pool, 1, 0);
}

#[test]
fn a_connection_that_ends_by_the_callback_in_which_it_asks_connects_to_nothing() {
    let (backend, target) = backend();
    let service = script(move |call, cx, _| {
        let Call::Received(input) = call else { return Step::Continue };
        input.take_all();
        cx.connect(&target, PATIENCE);
        Step::Abort
    });
    let (pool, at) = start(Config::accept(service).loops(1));
    for _ in 0..3 {
        let mut client = connect(at);
        client.write_all(b"x").expect("it stands");
        assert_reset(&mut client);
    }
    assert_empty(&pool);
    assert_connects_to_nothing(&pool, &backend);
}

#[test]
fn single_has_no_room_for_a_connection_that_is_made() {
    let (_backend, target) = backend();
    let service = script(move |call, cx, side| joins(call, cx, side, &target));
    let pool = Pool::start(Config::accept(service).model(Model::Single).listen(any_port())).expect("the pool starts");
    assert_reset(&mut connect(common::address(&pool)));
    assert_adds_up(&pool, 1, 0);
}

/// Connects when it gets something, and again when that fails.
fn insists(target: Address) -> script::Script {
    script(move |call, cx, _| {
        match call {
            Call::Received(input) => {
                input.take_all();
                cx.connect(&target, PATIENCE);
            }
            Call::Connected(Err(_)) => cx.connect(&target, PATIENCE),
            _ => {}
        }
        Step::Continue
    })
}

#[test]
fn connects_that_are_under_way_when_a_loop_goes_add_up() {
    in_time(|| {
        for crashes in [true, false] {
            let (_full, target, _one) = full_backend();
            let (pool, at) = start(Config::accept(insists(target)).loops(1));
            // The connection that is made is to have a lower slot than its asker, which ends after it then: one is free.
            let (first, mut client) = (connect(at), connect(at));
            assert!(pool.wait(PATIENCE, |status| status.counts.accepted == 2));
            drop(first);
            assert!(pool.wait(PATIENCE, |status| status.counts.closed == 1));
            client.write_all(b"x").expect("it stands");
            assert!(pool.wait(PATIENCE, |status| status.counts.connects == 1));
            assert_eq!(pool.status().counts.connect_failed, 0, "it is under way");
            if crashes {
                assert!(crash_loop(&pool, 0));
                assert!(pool.wait(PATIENCE, |status| status.restarts == 1));
            } else {
                pool.shutdown(Drain::within(Duration::ZERO));
            }
            assert_empty(&pool);
            let counts = pool.status().counts;
            assert_eq!(counts.connects, counts.connected + counts.connect_failed, "crashes: {crashes}");
            assert!(!crashes || counts.connects == 1, "a loop that goes begins none");
        }
    });
}

/// Makes so many connects for each byte: `n` to new targets, any other to the first.
const EACH: u64 = 500;

#[test]
fn a_connect_costs_no_more_for_all_the_targets_that_were_named_before() {
    in_time(|| {
        const KNOWN: usize = 60;
        let next = AtomicUsize::new(0);
        let service = script(move |call, cx, _| {
            if let Call::Received(input) = call {
                let are_new = input.take_all() == b"n";
                for _ in 0..EACH {
                    let number = if are_new { next.fetch_add(1, SeqCst) as u32 } else { 0 };
                    // No program listens there.
                    let ip = Ipv4Addr::from(0x7f01_0000 + (number >> 8));
                    cx.connect(&SocketAddr::from((ip, 40_000 + (number & 255) as u16)).into(), PATIENCE);
                }
            }
            Step::Continue
        });
        let (pool, at) = start(Config::accept(service).loops(1));
        let (mut client, mut asked) = (connect(at), 0);
        let mut ask = |what: &[u8]| {
            let began = Instant::now();
            asked += EACH;
            client.write_all(what).expect("it stands");
            assert!(pool.wait(PATIENCE, |status| status.counts.connected + status.counts.connect_failed == asked));
            began.elapsed()
        };
        (0..KNOWN).for_each(|_| _ = ask(b"n"));
        // In turn, and the quickest of so many as it takes on a machine that does something else besides.
        let (mut new, mut first) = (Duration::MAX, Duration::MAX);
        let holds = (0..500).any(|round| {
            (new, first) = (new.min(ask(b"n")), first.min(ask(b"1")));
            round >= 20 && new < 3 * first
        });
        assert!(holds, "{new:?} for new ones, {first:?} for the first, of {} targets", KNOWN as u64 * EACH);
    });
}
