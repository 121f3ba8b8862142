//! Permits alone limit, exactly, and no client that waits for one is passed over.

use crate::common::{self, Echo, PATIENCE, Stops, assert_empty, connect, echoes, is_long, read_all, reset, start};
use rustix::net::{AddressFamily, SocketType};
use sockdrawer::{
    Address, Closing, Config, Context, Drain, Input, Peer, Pool, Protocol, Service, Step,
    admission::{OnFull, Reject},
    connecting::Connecting,
};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Service that answers once; the connection is over at once.
struct Once;

impl Service for Once {
    type Protocol = Once;
    fn open(&self, _peer: &Peer) -> Once {
        Once
    }
    fn closing(&self) -> Closing {
        Closing::PeerIsDone
    }
}

impl Protocol for Once {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.send(b"!");
        Step::Close
    }
}

#[test]
fn two_loops_with_full_queues_share_one_permit() {
    let (pool, at) = start(Config::accept(Once).loops(2).limit(1));
    let seconds = if is_long() { 10 } else { 2 };
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| keep_queues_full(at, until));
        }
    });
    let accepted: Vec<u64> = pool.status().loops.iter().map(|one| one.accepted).collect();
    let all: u64 = accepted.iter().sum();
    println!("{all} connections, by loop: {accepted:?}");
    assert!(all > 1000, "{accepted:?}");
    assert!(accepted.iter().all(|one| (40..=60).contains(&(one * 100 / all))), "{accepted:?}");
}

/// Has 32 connections wait at any time.
fn keep_queues_full(at: SocketAddr, until: Instant) {
    let mut waiting = VecDeque::new();
    let ask = || {
        let mut stream = connect(at);
        stream.write_all(b"?").expect("it stands");
        stream
    };
    while Instant::now() < until {
        while waiting.len() < 32 {
            waiting.push_back(ask());
        }
        let mut oldest = waiting.pop_front().expect("just filled");
        assert_eq!(read_all(&mut oldest).expect("served"), b"!");
    }
    waiting.into_iter().for_each(reset);
}

/// Service that greets, and ends when it is told anything.
struct Session;

impl Service for Session {
    type Protocol = Session;
    fn open(&self, _peer: &Peer) -> Session {
        Session
    }
}

impl Protocol for Session {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"hi");
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Close
    }
}

/// Sessions that clients know to be open.
#[derive(Default)]
struct Open {
    now: Mutex<usize>,
    changed: Condvar,
    most: AtomicUsize,
}

impl Open {
    /// Runs one session: it is greeted, stays open until at least `wanted` sessions were open at once, and ends.
    fn session(&self, at: SocketAddr, wanted: &AtomicUsize) {
        let mut stream = connect(at);
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).expect("greeted");
        {
            let mut now = self.now.lock().expect("no panic");
            *now += 1;
            self.most.fetch_max(*now, SeqCst);
            self.changed.notify_all();
            let enough = |_: &mut usize| self.most.load(SeqCst) < wanted.load(SeqCst);
            let (mut now, late) = self.changed.wait_timeout_while(now, PATIENCE, enough).expect("no panic");
            assert!(!late.timed_out(), "never more than {} sessions at once", self.most.load(SeqCst));
            *now -= 1;
        }
        stream.write_all(b"bye").expect("it stands");
        assert_eq!(read_all(&mut stream).expect("an orderly end"), b"");
    }
}

#[test]
fn a_limit_is_reached_and_never_passed() {
    const LIMIT: usize = 20;
    let (pool, at) = start(Config::accept(Session).loops(2).limit(LIMIT));
    let (open, over) = (Open::default(), AtomicBool::new(false));
    let wanted = AtomicUsize::new(LIMIT);
    let most_permits = std::thread::scope(|scope| {
        let stops = Stops(&over);
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !over.load(SeqCst) {
                most = most.max(pool.status().connections);
            }
            most
        });
        let clients: Vec<_> = (0..10 * LIMIT).map(|_| scope.spawn(|| (0..10).for_each(|_| open.session(at, &wanted)))).collect();
        clients.into_iter().for_each(|client| client.join().expect("a client"));
        drop(stops);
        sampler.join().expect("the sampler")
    });
    // On one core the sampler may miss the moments at which all permits are taken; clients do not.
    assert!(most_permits <= LIMIT, "{most_permits} permits");
    assert_eq!(open.most.load(SeqCst), LIMIT);
    assert_eq!(pool.status().counts.accepted, 100 * LIMIT as u64);
    assert_empty(&pool);
}

fn change(pool: &Pool, limit: usize, on_full: OnFull) {
    pool.reconfigure(pool.config().limit(limit).on_full(on_full)).expect("a limit can be changed");
}

#[test]
fn a_limit_changes_under_load() {
    let (pool, at) = start(Config::accept(Session).loops(2).limit(5));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&over);
        let clients: Vec<_> = (0..60)
            .map(|_| {
                scope.spawn(|| {
                    let (open, wanted) = (Open::default(), AtomicUsize::new(0));
                    while !over.load(SeqCst) {
                        open.session(at, &wanted);
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            change(&pool, 15, OnFull::Backpressure);
            assert!(pool.wait(PATIENCE, |status| status.connections == 15), "raised: {:?}", pool.status());
            change(&pool, 5, OnFull::Backpressure);
            assert!(pool.wait(PATIENCE, |status| status.connections <= 5), "lowered: {:?}", pool.status());
            for _ in 0..200 {
                assert!(pool.status().connections <= 5, "it stays low");
            }
        }
        drop(stops);
        clients.into_iter().for_each(|client| client.join().expect("no session failed"));
    });
    assert_empty(&pool);
}

/// Returns how a connection without a permit ends.
fn turned_away(at: SocketAddr) -> Result<Vec<u8>, ErrorKind> {
    common::turned_away(Ipv4Addr::LOCALHOST, at).map_err(|error| error.kind())
}

#[test]
fn who_is_turned_away_sees_how() {
    let (pool, at) = start(Config::accept(common::Echo).loops(2).limit(1).on_full(OnFull::Reject(Reject::Fin)));
    let mut held = connect(at);
    assert!(echoes(&mut held, b"first"));
    let busy: Arc<[u8]> = b"busy, come again\n"[..].into();
    for _ in 0..20 {
        change(&pool, 1, OnFull::Reject(Reject::Fin));
        assert_eq!(turned_away(at), Ok(Vec::new()));
        change(&pool, 1, OnFull::Reject(Reject::Reset));
        assert_eq!(turned_away(at), Err(ErrorKind::ConnectionReset));
        change(&pool, 1, OnFull::Reject(Reject::Bytes(busy.clone())));
        assert_eq!(turned_away(at), Ok(busy.to_vec()));
    }
    assert_eq!((pool.status().counts.rejected, pool.status().connections), (60, 1));
    assert!(echoes(&mut held, b"still here"));
}

#[test]
fn who_waits_is_turned_away_when_the_policy_becomes_to_reject() {
    let (pool, at) = start(Config::accept(common::Echo).loops(2).limit(1));
    let mut held = connect(at);
    assert!(echoes(&mut held, b"first"));
    let mut waiting: Vec<TcpStream> = (0..32).map(|_| connect(at)).collect();
    // Both loops have found that there is no permit: they poll no more.
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 32));
    change(&pool, 1, OnFull::Reject(Reject::Fin));
    for stream in &mut waiting {
        assert_eq!(read_all(stream).map_err(|error| error.kind()), Ok(Vec::new()));
    }
    assert_eq!(turned_away(at), Ok(Vec::new()));
    assert!(echoes(&mut held, b"still here"));
}

#[test]
fn a_target_that_refuses_is_paused_also_at_the_limit() {
    // Bound, so that nobody else gets the port, and not listening, so that it refuses.
    let refuses = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&refuses, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port is free");
    let at: SocketAddr = rustix::net::getsockname(&refuses).expect("bound").try_into().expect("an address");
    // Each pause is followed by one connect for each permit, at most 64 in a turn; each is twice as long as the one before.
    for (limit, most) in [(1, 60), (1000, 1500)] {
        let began = Instant::now();
        let connecting = Connecting::to([at]).keep(limit);
        let pool = Pool::start(Config::connect(common::Echo, connecting).loops(1).workers(0)).expect("starts");
        assert!(pool.wait(PATIENCE, |_| began.elapsed() >= Duration::from_secs(1)));
        let connects = pool.status().counts.connects;
        assert!((2..=most).contains(&connects), "{connects} connects in a second, with a limit of {limit}");
    }
}

/// Bytes that a client that came while there was no permit sends at once, and gets back.
const EARLY: &[u8] = b"early";

#[test]
fn a_shutdown_at_the_limit_answers_those_who_wait() {
    let (pool, at) = start(Config::accept(common::Echo).loops(2).limit(1));
    let mut held = connect(at);
    assert!(echoes(&mut held, b"first"));
    let mut waiting: Vec<TcpStream> = (0..16).map(|_| connect(at)).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(EARLY).expect("it stands"));
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 16));
    // Each closes as soon as it was answered: until then its connection lingers, and has the permit.
    let client = |mut stream: TcpStream| std::thread::spawn(move || read_all(&mut stream).ok());
    let held = client(held);
    let clients: Vec<_> = waiting.into_iter().map(client).collect();
    let drained = pool.shutdown(Drain::within(PATIENCE));
    assert_eq!(drained.cut, 0, "{drained:?}");
    assert_eq!(held.join().expect("no panic"), Some(Vec::new()));
    let answers = clients.into_iter().filter_map(|client| client.join().expect("no panic"));
    assert_eq!(answers.filter(|answer| answer == EARLY).count(), 16);
}

#[test]
fn a_permit_that_a_loop_waited_for_does_not_lie_there_when_its_socket_moves() {
    const WAITING: usize = 8;
    let (pool, at) = start(Config::accept(Echo).loops(2).limit(1));
    let mut first = connect(at);
    assert!(echoes(&mut first, b"x"));
    // So no loop waits for a permit before its sockets are on their way out; then both do, to empty them.
    pool.suspend_listener(&pool.addresses()[0]).expect("it listens");
    let mut waiting: Vec<_> = (0..WAITING).map(|_| connect(at)).collect();
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == WAITING));
    let elsewhere = Address::Tcp(([127, 0, 0, 2], 0).into());
    let elsewhere = Config::accept(pool.config().behaviour).listen(elsewhere).loops(2).limit(1);
    pool.reconfigure(elsewhere).expect("another address");
    // A single loop is left, which empties the sockets of both.
    pool.reconfigure(pool.config().loops(1)).expect("one loop");
    pool.reconfigure(pool.config().limit(1 + WAITING)).expect("room for all");
    for stream in &mut waiting {
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        assert!(echoes(stream, b"y"), "{:#?}", pool.status());
    }
    assert_eq!(pool.status().connections, 1 + WAITING);
}
