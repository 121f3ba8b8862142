//! Properties of the model `threads` alone: each connection has a thread, which is used again and ends when it is idle; there is
//! never one thread more than the limit.

use crate::common::{Echo, PATIENCE, Stops, assert_empty, connect, echoes, in_time, read, read_all, start};
use sockdrawer::testing::crash_loop;
use sockdrawer::{
    Config, Context, Drain, Drained, Error, Input, Local, Model, Peer, Pool, Protocol, Selector, Service, Side, Step,
    connecting::Connecting,
    observe::{ConnectionState, Event},
    restarting::Restarts,
};
use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

fn threads(service: impl sockdrawer::IntoBehaviour) -> Config {
    Config::accept(service).model(Model::Threads)
}

/// Blocks its thread at an `s` until it is let go; echoes all else.
#[derive(Clone, Default)]
struct Slow(Arc<(Mutex<bool>, Condvar)>);

impl Slow {
    fn let_go(&self) {
        *self.0.0.lock().expect("no panic") = true;
        self.0.1.notify_all();
    }
}

impl Service for Slow {
    type Protocol = Slow;
    fn open(&self, _peer: &Peer) -> Slow {
        self.clone()
    }
}

impl Protocol for Slow {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"s" {
            drop(self.0.1.wait_while(self.0.0.lock().expect("no panic"), |go| !*go).expect("no panic"));
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

#[test]
fn a_slow_connection_holds_up_no_other_and_is_not_taken_for_a_stuck_loop() {
    let (slow, stuck) = (Slow::default(), Arc::new(AtomicUsize::new(0)));
    let counted = stuck.clone();
    let observer = move |event: &Event| _ = counted.fetch_add(usize::from(matches!(event, Event::LoopStuck { .. })), SeqCst);
    let mut config = threads(slow.clone()).observer(observer);
    config.stuck_after = Duration::from_millis(500);
    let (pool, at) = start(config);
    let mut held: Vec<_> = (0..20).map(|_| connect(at)).collect();
    for stream in &mut held {
        stream.write_all(b"s").expect("it stands");
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1200) {
        assert!(echoes(&mut connect(at), b"quick"));
    }
    assert_eq!((stuck.load(SeqCst), pool.status().loops[0].stuck), (0, false));
    assert!(pool.status().threads > 20);
    slow.let_go();
    for stream in &mut held {
        assert_eq!(read(stream, 1).as_deref(), Some(&b"s"[..]));
    }
    drop(held);
    assert_empty(&pool);
}

#[test]
fn a_thread_that_is_busy_holds_up_nobody_who_asks_about_another() {
    let slow = Slow::default();
    let (pool, at) = start(threads(slow.clone()));
    let mut quick = connect(at);
    assert!(echoes(&mut quick, b"quick"));
    let id = pool.connections(&Selector::All)[0].id;
    let mut busy = connect(at);
    busy.write_all(b"s").expect("it stands");
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == 6), "it is busy");
    let began = Instant::now();
    assert!(pool.options(id).is_some() && pool.kill(&Selector::Id(id)).cut == 1);
    let mut listed = pool.connections(&Selector::All);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let seen = listed.pop().expect("the busy one is listed, too");
    assert_eq!((listed.len(), seen.state, seen.bytes_in, seen.peer), (0, ConnectionState::Working, 1, busy.local_addr().ok()));
    slow.let_go();
    assert_eq!(read(&mut busy, 1).as_deref(), Some(&b"s"[..]));
    drop((quick, busy));
    assert_empty(&pool);
}

#[test]
fn a_thread_that_is_busy_holds_up_no_drain() {
    let how = Drain::within(PATIENCE);
    let ways: [fn(&Pool, Drain) -> Drained; 2] = [|pool, how| pool.drain(&Selector::All, how), |pool, how| pool.shutdown(how)];
    for end in ways {
        let slow = Slow::default();
        let (pool, at) = start(threads(slow.clone()));
        let mut busy = connect(at);
        busy.write_all(b"s").expect("it stands");
        let mut others: Vec<_> = (0..5).map(|_| connect(at)).collect();
        for stream in &mut others {
            assert!(echoes(stream, b"quick"));
        }
        let drained = std::thread::scope(|scope| {
            let ending = scope.spawn(|| end(&pool, how));
            for mut stream in others {
                assert_eq!(read_all(&mut stream).expect("an orderly end"), b"");
            }
            assert!(pool.wait(PATIENCE, |status| status.connections == 1), "the busy one");
            slow.let_go();
            assert_eq!(read_all(&mut busy).expect("an orderly end"), b"s");
            drop(busy);
            ending.join().expect("no panic")
        });
        assert_eq!((drained.asked, drained.ended, drained.cut), (6, 6, 0));
    }
}

/// Service that answers once with what it got, and notes on which threads it ran.
#[derive(Clone, Default)]
struct Once(Arc<Mutex<HashSet<ThreadId>>>);

impl Once {
    fn threads(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

impl Service for Once {
    type Protocol = Once;
    fn open(&self, _peer: &Peer) -> Once {
        self.0.lock().expect("no panic").insert(std::thread::current().id());
        self.clone()
    }
}

impl Protocol for Once {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.bytes());
        input.take_all();
        Step::Close
    }
}

/// Makes one connection, from its first to its last byte.
fn visit(at: SocketAddr) {
    let mut stream = connect(at);
    stream.write_all(b"visit").expect("it stands");
    assert_eq!(read_all(&mut stream).expect("an orderly end"), b"visit");
}

#[test]
fn threads_are_used_again_and_never_more_than_the_limit() {
    for limit in [1, 3] {
        let (once, over) = (Once::default(), AtomicBool::new(false));
        let (pool, at) = start(threads(once.clone()).limit(limit));
        let most = std::thread::scope(|scope| {
            let stops = Stops(&over);
            let sampler = scope.spawn(|| {
                let mut most = 0;
                while !over.load(SeqCst) {
                    most = most.max(pool.status().threads);
                }
                most
            });
            let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| (0..100).for_each(|_| visit(at)))).collect();
            clients.into_iter().for_each(|client| client.join().expect("a client"));
            drop(stops);
            sampler.join().expect("the sampler")
        });
        assert!(most <= limit, "{most} threads for {limit} connections");
        assert!(once.threads() <= limit, "{} threads were started", once.threads());
        assert_empty(&pool);
        let counts = pool.status().counts;
        assert_eq!((counts.accepted, counts.closed, counts.bytes_in), (800, 800, 4000));
    }
}

#[test]
fn idle_threads_end_and_what_they_counted_stays() {
    let once = Once::default();
    let (pool, at) = start(threads(once.clone()));
    let mut streams: Vec<_> = (0..30).map(|_| connect(at)).collect();
    assert!(pool.wait(PATIENCE, |status| status.threads == 30));
    for stream in &mut streams {
        stream.write_all(b"visit").expect("it stands");
        assert_eq!(read_all(stream).expect("an orderly end"), b"visit");
    }
    drop(streams);
    assert_empty(&pool);
    let before = pool.status().counts;
    assert_eq!((before.closed, before.bytes_out), (30, 150));
    assert!(pool.wait(PATIENCE, |status| status.threads == 0));
    let after = pool.status().counts;
    assert_eq!((after.closed, after.bytes_in, after.bytes_out), (30, 150, 150));
    visit(at);
    assert_eq!(once.threads(), 31);
}

/// Service that counts the places it is prepared in.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Service for Counted {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
    fn local(&self) -> Box<Local> {
        self.0.fetch_add(1, SeqCst);
        Box::new(())
    }
}

#[test]
fn a_change_reaches_idle_threads_and_a_connection_keeps_its_generation() {
    let first = Arc::new(Counted::default());
    let (pool, at) = start(threads(first.clone()));
    let mut streams: Vec<_> = (0..10).map(|_| connect(at)).collect();
    for stream in &mut streams {
        assert!(echoes(stream, b"stands"));
    }
    let mut kept = streams.pop().expect("ten");
    drop(streams);
    assert!(pool.wait(PATIENCE, |status| status.connections == 1));
    let second = Counted::default();
    pool.reconfigure(pool.config().behaviour(second.clone())).expect("a service can be changed");
    // The accepting event loop and each thread, without another connection.
    assert!(pool.wait(PATIENCE, |_| second.0.load(SeqCst) == 11), "{} of 11", second.0.load(SeqCst));
    let of_kept = pool.connections(&Selector::All);
    assert_eq!((of_kept.len(), of_kept[0].generation), (1, 1));
    assert!(echoes(&mut kept, b"still here"));
    drop(kept);
    assert!(pool.wait(PATIENCE, |status| status.generations.len() == 1));
    let gone = || Arc::strong_count(&first) == 1;
    assert!(pool.wait(PATIENCE, |_| gone()), "no thread holds what was retired");
    assert!(echoes(&mut connect(at), b"new"));
}

#[test]
fn what_the_control_plane_asks_reaches_every_thread() {
    let (pool, at) = start(threads(Echo));
    let mut streams: Vec<_> = (0..10).map(|_| connect(at)).collect();
    for stream in &mut streams {
        assert!(echoes(stream, b"stands"));
    }
    let listed = pool.connections(&Selector::All);
    let ids: HashSet<_> = listed.iter().map(|connection| connection.id).collect();
    assert_eq!((listed.len(), ids.len()), (10, 10));
    assert_eq!(pool.kill(&Selector::Id(listed[3].id)).cut, 1);
    assert!(pool.wait(PATIENCE, |status| status.connections == 9));
    pool.suspend();
    let mut waiting = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    let alive = streams.iter_mut().filter_map(|stream| echoes(stream, b"suspended").then_some(())).count();
    assert_eq!(alive, 9, "suspending concerns who accepts");
    pool.resume();
    assert!(echoes(&mut waiting, b"resumed"));
    drop(waiting);
    assert!(pool.wait(PATIENCE, |status| status.connections == 9));
    let drained = pool.drain(&Selector::All, Drain::within(PATIENCE));
    assert_eq!((drained.asked, drained.cut), (9, 0));
}

#[test]
fn questions_do_not_wait_for_threads_that_end() {
    let mut config = threads(Once::default());
    config = config.restarts(Restarts { max: 1000, within: PATIENCE, ..Restarts::default() });
    let (pool, at) = start(config);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| (0..300).for_each(|_| drop(pool.connections(&Selector::All))));
        for _ in 0..5 {
            (0..20).for_each(|_| visit(at));
            // Threads die while they are asked.
            (1..=3).for_each(|index| _ = crash_loop(&pool, index));
        }
        asking.join().expect("no panic");
    });
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_crash_costs_one_connection_and_is_told() {
    let deaths = Arc::new(Mutex::new(Vec::new()));
    let told = deaths.clone();
    let observer = move |event: &Event| {
        if let Event::ThreadDied { reason } = event {
            told.lock().expect("no panic").push(reason.clone());
        }
    };
    let (pool, at) = start(threads(Echo).observer(observer));
    let (mut first, mut second) = (connect(at), connect(at));
    assert!(echoes(&mut first, b"1") && echoes(&mut second, b"2"));
    // 0 is the accepting event loop; the first connection's thread was started first.
    assert!(crash_loop(&pool, 1));
    assert!(read(&mut first, 1).is_none(), "it is over");
    assert!(echoes(&mut second, b"still here"));
    assert!(pool.wait(PATIENCE, |status| status.threads == 1 && status.restarts == 1 && status.counts.closed == 1));
    assert!(pool.wait(PATIENCE, |_| deaths.lock().expect("no panic").len() == 1));
    assert!(crash_loop(&pool, 0), "the accepting event loop");
    assert!(echoes(&mut second, b"still here"));
    assert!(echoes(&mut connect(at), b"3"));
}

#[test]
fn threads_that_die_too_often_end_the_pool() {
    in_time(|| {
        let mut config = threads(Echo);
        config = config.restarts(Restarts { max: 2, within: Duration::from_secs(600), ..Restarts::default() });
        let (pool, at) = start(config);
        for _ in 0..3 {
            let mut stream = connect(at);
            assert!(echoes(&mut stream, b"stands"));
            assert!(crash_loop(&pool, 1));
            assert!(read(&mut stream, 1).is_none(), "it is over");
            assert!(pool.wait(PATIENCE, |status| status.threads == 0));
        }
        assert!(matches!(pool.join(), Err(Error::Stopped { reason }) if reason.contains("threads died too often")));
    });
}

#[test]
fn a_stop_waits_for_every_thread() {
    let service = Arc::new(Counted::default());
    let (pool, at) = start(threads(service.clone()));
    let mut streams: Vec<_> = (0..20).map(|_| connect(at)).collect();
    for stream in &mut streams {
        assert!(echoes(stream, b"stands"));
    }
    // Half of them idle, half not.
    streams.truncate(10);
    assert!(pool.wait(PATIENCE, |status| status.connections == 10));
    assert_eq!(pool.status().threads, 20);
    let counts = pool.status().counts;
    pool.shutdown(Drain::within(Duration::ZERO));
    // On a busy machine some may end a moment after the deadline.
    assert!(pool.wait(PATIENCE, |status| status.threads == 0), "{:#?}", pool.status());
    assert_eq!(pool.status().counts.accepted, counts.accepted);
    for stream in &mut streams {
        assert_eq!(read_all(stream).expect("an orderly end"), b"");
    }
}

/// Service that says which side it is and how long connecting took, if it did.
struct Sides;

impl Service for Sides {
    type Protocol = Sides;
    fn open(&self, peer: &Peer) -> Sides {
        assert_eq!((peer.side(), peer.connect_time() > Duration::ZERO), (Side::Connected, true));
        assert!(peer.remote().is_some());
        Sides
    }
}

impl Protocol for Sides {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"hello");
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Close
    }
}

#[test]
fn connections_that_are_made_have_their_threads_too() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let connecting = Connecting::to([server.local_addr().expect("bound")]).keep(4).total(12);
    let pool = Pool::start(Config::connect(Sides, connecting).model(Model::Threads)).expect("starts");
    let peers = |count: usize| -> Vec<_> { (0..count).map(|_| server.accept().expect("it connects").0).collect() };
    for _ in 0..3 {
        let mut four = peers(4);
        for peer in &mut four {
            peer.set_read_timeout(Some(PATIENCE)).expect("not zero");
            assert_eq!(read(peer, 5).as_deref(), Some(&b"hello"[..]));
        }
        assert_eq!((pool.status().connections, pool.status().threads), (4, 4));
        assert!(pool.connections(&Selector::All).iter().all(|connection| connection.side == Side::Connected));
        for peer in &mut four {
            peer.write_all(b"x").expect("it stands");
            assert_eq!(read_all(peer).expect("an orderly end"), b"");
        }
    }
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    let counts = pool.status().counts;
    assert_eq!((counts.connects, counts.connected, counts.closed, counts.panics), (12, 12, 12, 0));
}

#[test]
fn the_default_limit_has_room_for_three_descriptors_each() {
    let loops = start(Config::accept(Echo)).0.status().limit;
    let threads = start(threads(Echo)).0.status().limit;
    // Other tests of this process have descriptors too, now more and now fewer.
    assert!(threads * 3 <= loops + 2_000 && threads * 4 > loops, "{threads} threads, {loops} connections");
}

#[test]
fn stacks_have_the_size_that_is_asked_for() {
    /// Uses more than 1 MiB of stack.
    #[derive(Clone)]
    struct Deep;
    impl Service for Deep {
        type Protocol = Deep;
        fn open(&self, _peer: &Peer) -> Deep {
            Deep
        }
    }
    impl Protocol for Deep {
        fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
            let large = std::hint::black_box([input.bytes()[0]; 1 << 20]);
            cx.send(&large[large.len() - 1..]);
            input.take_all();
            Step::Close
        }
    }
    let (pool, at) = start(threads(Echo));
    assert!(echoes(&mut connect(at), b"small"));
    assert!(pool.wait(PATIENCE, |status| status.threads == 0), "started with the small stack");
    pool.reconfigure(pool.config().behaviour(Deep).stack(8 << 20)).expect("in place");
    assert!(echoes(&mut connect(at), b"d"));
}
