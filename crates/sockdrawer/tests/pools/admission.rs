//! Admission of clients: the policy is swapped, counts stay, and each limit is exact.

use crate::common::{
    self, Echo, PATIENCE, Stops, any_port, assert_empty, connect, connect_from, echoes, in_time, read_all, start, tcp,
};
use sockdrawer::{
    Config, Drain, Error, Pool,
    admission::{
        AcceptRate, AcceptRequest, Admission, AfterAccept, BeforeAccept, Limits, NewPeer, OnFull, PerPeer, Prefixes, Reject,
    },
    listening::Listening,
    observe::{Alarm, Event, Readiness},
};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn set_limit(pool: &Pool, listener: usize, limit: Option<usize>) {
    let mut config = pool.config();
    config = config.listeners(|listeners| listeners[listener].limit = limit);
    pool.reconfigure(config).expect("a limit can be changed");
}

/// Waits until no listener has a connection; a place may be on its way to a loop for whom there is nobody any more.
fn assert_no_place(pool: &Pool) {
    let none = |status: &sockdrawer::observe::Status| status.listeners.iter().all(|listener| listener.connections == 0);
    assert!(pool.wait(PATIENCE, none), "{:?}", pool.status());
}

/// Returns a client that is served within a moment, as far as `served` tells.
fn served(at: SocketAddr) -> TcpStream {
    let mut stream = connect(at);
    assert!(echoes(&mut stream, b"hello"), "it is served");
    stream
}

#[test]
fn a_listener_at_its_limit_holds_up_no_other() {
    let config = Config::accept(Echo).loops(2).listening(Listening::new(any_port()).limit(2)).listen(any_port());
    let pool = Pool::start(config).expect("it starts");
    let at: Vec<SocketAddr> = pool.addresses().iter().map(tcp).collect();
    let mut first: Vec<TcpStream> = (0..2).map(|_| served(at[0])).collect();
    let waiting: Vec<TcpStream> = (0..4).map(|_| connect(at[0])).collect();
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 4));
    let other: Vec<TcpStream> = (0..8).map(|_| served(at[1])).collect();
    let status = pool.status();
    assert_eq!((status.listeners[0].connections, status.listeners[0].limit), (2, Some(2)));
    assert_eq!((status.listeners[1].connections, status.listeners[1].limit), (8, None));
    let here = pool.connections(&sockdrawer::Selector::All);
    assert_eq!(here.iter().filter(|one| one.listener.as_ref() == Some(&pool.addresses()[0])).count(), 2);
    // Each that ends lets one in.
    for left in [3, 2] {
        drop(first.pop());
        let one_more =
            |status: &sockdrawer::observe::Status| status.listeners[0].queued == left && status.listeners[0].connections == 2;
        assert!(pool.wait(PATIENCE, one_more), "{:?}", pool.status());
    }
    set_limit(&pool, 0, None);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 0));
    drop((first, waiting, other));
    assert_empty(&pool);
    assert_no_place(&pool);
}

/// Clients that come and go at each of two listeners, while `change` is made again and again until it says that it is enough.
fn under_sessions(pool: &Pool, at: &[SocketAddr], clients: usize, mut change: impl FnMut() -> bool) -> u64 {
    let over = AtomicBool::new(false);
    let sessions = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let stops = Stops(&over);
        let running: Vec<_> = (0..clients)
            .map(|client| {
                let (over, sessions, at) = (&over, &sessions, at[client % at.len()]);
                scope.spawn(move || {
                    while !over.load(SeqCst) {
                        drop(served(at));
                        sessions.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        while change() {}
        drop(stops);
        running.into_iter().for_each(|client| client.join().expect("no session failed"));
    });
    assert_empty(pool);
    sessions.load(SeqCst) as u64
}

#[test]
fn limits_of_listeners_and_pool_hold_while_both_change() {
    let config = Config::accept(Echo)
        .loops(2)
        .limit(6)
        .listening(Listening::new(any_port()).limit(4))
        .listening(Listening::new(any_port()).limit(3));
    let pool = Pool::start(config).expect("it starts");
    let at: Vec<SocketAddr> = pool.addresses().iter().map(tcp).collect();
    let mut round = 0;
    let mut most = [0; 2];
    let sessions = under_sessions(&pool, &at, 40, || {
        round += 1;
        set_limit(&pool, 0, Some([4, 2, 1][round % 3]));
        pool.reconfigure(pool.config().limit([6, 5][round % 2])).expect("it can be changed");
        for _ in 0..20 {
            let status = pool.status();
            assert!(status.connections <= 6, "{status:?}");
            assert!(status.listeners[0].connections <= 4 && status.listeners[1].connections <= 3, "{status:?}");
            (0..2).for_each(|one| most[one] = most[one].max(status.listeners[one].connections));
        }
        round < 100
    });
    assert_eq!(pool.status().counts.accepted, sessions);
    assert_no_place(&pool);
    println!("{sessions} sessions, at most {most:?} at once");
}

/// Policy that takes all, and is another type.
struct Plain(Arc<AtomicUsize>);

impl Admission for Plain {
    fn before(&self, request: &AcceptRequest<'_>) -> BeforeAccept {
        assert!(request.connections <= request.limit);
        self.0.fetch_add(1, SeqCst);
        BeforeAccept::Accept
    }
}

#[test]
fn policies_are_swapped_under_load_and_the_limit_holds() {
    let (pool, at) = start(Config::accept(Echo).loops(2).limit(5));
    let mut kept: Vec<TcpStream> = (0..2).map(|_| served(at)).collect();
    let (mut round, asked) = (0, Arc::new(AtomicUsize::new(0)));
    let sessions = under_sessions_with(&pool, at, 40, || {
        round += 1;
        let config = pool.config();
        let config = match round % 4 {
            0 => config.admission(Limits::default()),
            1 => config.admission(Plain(asked.clone())),
            2 => config.admission(Limits::default().per_peer(PerPeer::address(1000))),
            _ => config.admission(Limits::default().rate(AcceptRate::new(1e6, 1000))),
        };
        pool.reconfigure(config).expect("it can be swapped");
        for _ in 0..10 {
            assert!(pool.status().connections <= 5);
        }
        assert!(kept.iter_mut().all(|kept| echoes(kept, b"still here")));
        round < 200
    });
    assert!(asked.load(SeqCst) > 0);
    assert_eq!((pool.status().counts.accepted, pool.status().counts.admission_panics), (sessions + 2, 0));
    drop(kept);
    assert_empty(&pool);
}

/// Does as [`under_sessions`] where others stay.
fn under_sessions_with(pool: &Pool, at: SocketAddr, clients: usize, mut change: impl FnMut() -> bool) -> u64 {
    let (over, sessions) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let stops = Stops(&over);
        for _ in 0..clients {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    drop(served(at));
                    sessions.fetch_add(1, SeqCst);
                }
            });
        }
        while change() {}
        drop(stops);
    });
    let all = sessions.load(SeqCst) as u64;
    assert!(pool.wait(PATIENCE, |status| status.counts.closed == all));
    all
}

struct Panics;

impl Admission for Panics {
    fn before(&self, _request: &AcceptRequest<'_>) -> BeforeAccept {
        panic!("before")
    }
    fn after(&self, _peer: &NewPeer<'_>) -> AfterAccept {
        panic!("after")
    }
}

/// Events that were told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Event>>>);

impl Told {
    fn to(&self, config: Config) -> Config {
        let told = self.0.clone();
        config.observer(move |event: &Event| told.lock().expect("no panic").push(event.clone()))
    }

    fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().expect("no panic").iter().filter(|event| which(event)).count()
    }
}

#[test]
fn a_policy_that_panics_is_counted_and_the_default_decides() {
    let told = Told::default();
    let (pool, at) = start(told.to(Config::accept(Echo).loops(2).limit(3)));
    let mut kept = served(at);
    pool.reconfigure(pool.config().admission(Panics)).expect("nobody asks it yet");
    let second: Vec<TcpStream> = (0..2).map(|_| served(at)).collect();
    assert!(echoes(&mut kept, b"still here"));
    let waits = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1 && status.counts.admission_panics >= 5));
    let told_of = |event: &Event| matches!(event, Event::AdmissionPanicked { message } if message.starts_with("before") || message.starts_with("after"));
    assert!(told.count(told_of) >= 5);
    assert_eq!((pool.status().connections, pool.status().restarts), (3, 0));
    pool.reconfigure(pool.config().admission(Limits::default())).expect("it can be swapped");
    drop((second, waits, kept));
    assert_empty(&pool);
}

/// Policy that turns one source away, and counts what it is told of the others.
struct Deny(Ipv4Addr, Arc<AtomicUsize>);

impl Admission for Deny {
    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        self.1.fetch_max(peer.peer_connections.expect("peers are counted"), SeqCst);
        let denied = peer.address.is_some_and(|address| address.ip() == self.0);
        if denied { AfterAccept::Reject(Reject::Bytes(b"no"[..].into())) } else { AfterAccept::Keep }
    }
    fn peers(&self) -> Option<Prefixes> {
        Some(Prefixes::ADDRESS)
    }
}

#[test]
fn a_policy_turns_away_whom_it_will() {
    let (denied, most) = (Ipv4Addr::new(127, 0, 0, 66), Arc::new(AtomicUsize::new(0)));
    let (pool, at) = start(Config::accept(Echo).loops(2).admission(Deny(denied, most.clone())));
    let held: Vec<TcpStream> = (0..3).map(|_| served(at)).collect();
    for _ in 0..10 {
        assert_eq!(read_all(&mut connect_from(denied, at)).expect("an orderly end"), b"no");
    }
    let counts = pool.status().counts;
    assert_eq!((counts.rejected, counts.accepted, pool.status().connections), (10, 13, 3));
    assert_eq!(most.load(SeqCst), 2, "those that were turned away are not counted");
    drop(held);
    assert_empty(&pool);
}

#[test]
fn peers_are_counted_exactly_also_those_that_were_there_and_those_that_reset() {
    const MOST: usize = 4;
    let (pool, at) = start(Config::accept(Echo).loops(2));
    let client = |last: u8| connect_from(Ipv4Addr::new(127, 0, 3, last), at);
    let turned_away = |last: u8| match common::turned_away(Ipv4Addr::new(127, 0, 3, last), at) {
        Ok(said) => said.is_empty(),
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    let mut there: Vec<TcpStream> = (0..MOST).map(|_| client(1)).collect();
    assert!(there.iter_mut().all(|stream| echoes(stream, b"hello")));
    let limits = Limits::default().per_peer(PerPeer::address(MOST));
    pool.reconfigure(pool.config().admission(limits.clone())).expect("it can be swapped");
    for round in 0..20 {
        assert!(turned_away(1), "round {round}: it has {MOST}");
        assert!(echoes(&mut client(2), b"hello"), "another peer is let in");
        // A client leaves, in order or by a reset that the server hears of; then there is room for just one.
        let closed = pool.status().counts.closed;
        let leaves = there.pop().expect("it has some");
        if round % 2 == 0 {
            common::reset(leaves)
        } else {
            drop(leaves)
        }
        assert!(pool.wait(PATIENCE, |status| status.counts.closed > closed && status.connections == MOST - 1));
        let mut next = client(1);
        assert!(echoes(&mut next, b"hello"), "round {round}: there is room");
        there.push(next);
        if round == 10 {
            // A restart of the policy, and another of the same kind, lose no count.
            pool.reconfigure(pool.config().admission(Limits::default())).expect("it can be swapped");
            pool.reconfigure(pool.config().admission(limits.clone())).expect("it can be swapped");
        }
    }
    let wide = PerPeer { prefixes: Prefixes { v4: 24, v6: 64 }, ..PerPeer::address(MOST) };
    pool.reconfigure(pool.config().admission(Limits::default().per_peer(wide))).expect("it can be swapped");
    assert!(turned_away(77), "its network has {MOST}");
    drop(there);
    assert_empty(&pool);
}

#[test]
fn the_rate_is_kept_over_loops() {
    const RATE: f64 = 400.0;
    // A machine that is busy with other things may let the pool wait for so many: they are made up for.
    const BURST: u32 = 200;
    const WAITING: usize = 1000;
    let config = Config::accept(Echo).loops(2).admission(Limits::default().rate(AcceptRate::new(RATE, BURST)));
    let (pool, at) = start(config);
    // A client is always in the queues.
    pool.suspend();
    let waiting: Vec<TcpStream> = (0..WAITING).map(|_| connect(at)).collect();
    let (before, began) = (pool.status().counts, Instant::now());
    pool.resume();
    let enough = |status: &sockdrawer::observe::Status| status.counts.accepted >= WAITING as u64 * 9 / 10;
    assert!(pool.wait(PATIENCE, enough), "{:?}", pool.status());
    let took = began.elapsed();
    let counts = pool.status().counts;
    let (earned, allowed) = (RATE * took.as_secs_f64(), f64::from(BURST) + RATE * began.elapsed().as_secs_f64());
    let (accepted, turns) = (counts.accepted - before.accepted, counts.turns - before.turns);
    println!("{accepted} accepted in {took:?}, {turns} turns; {allowed:.0} allowed");
    assert!(accepted as f64 <= allowed + 2.0, "{accepted} of {allowed}");
    let least = (0.95 * (f64::from(BURST) + earned)).min(WAITING as f64 * 0.9);
    assert!(accepted as f64 >= least, "{accepted} of {least}");
    // A loop that waits for the next token turns twice for it at most, beside what this test asks it.
    assert!(turns <= 4 * accepted + 2000, "{turns} turns for {accepted} connections");
    drop(waiting);
    assert_empty(&pool);
}

#[test]
fn alarms_are_told_once_for_each_crossing() {
    let (told, alarm) = (Told::default(), Alarm { at: 8, clear_at: 2 });
    let (pool, at) = start(told.to(Config::accept(Echo).loops(2).alarms(vec![alarm])));
    let raised = |event: &Event| matches!(event, Event::AlarmRaised { connections, .. } if *connections >= 8);
    let cleared = |event: &Event| matches!(event, Event::AlarmCleared { connections, .. } if *connections <= 2);
    for round in 1..=5 {
        let mut held: Vec<TcpStream> = (0..10).map(|_| served(at)).collect();
        assert_eq!((told.count(raised), told.count(cleared)), (round, round - 1));
        for _ in 0..3 {
            held.truncate(4);
            assert!(pool.wait(PATIENCE, |status| status.connections == 4));
            held.extend((0..6).map(|_| served(at)));
        }
        assert_eq!((told.count(raised), told.count(cleared)), (round, round - 1), "it swayed between the two numbers");
        drop(held);
        assert_empty(&pool);
        assert_eq!((told.count(raised), told.count(cleared)), (round, round));
    }
    let refused = pool.reconfigure(pool.config().alarms(vec![Alarm { at: 2, clear_at: 2 }]));
    assert!(matches!(refused, Err(Error::Invalid { setting: "alarms", .. })), "{refused:?}");
}

#[test]
fn a_listener_is_suspended_or_refuses_by_itself() {
    let pool = Pool::start(Config::accept(Echo).loops(2).listen(any_port()).listen(any_port())).expect("it starts");
    let addresses = pool.addresses();
    let at: Vec<SocketAddr> = addresses.iter().map(tcp).collect();
    let mut kept: Vec<TcpStream> = at.iter().map(|at| served(*at)).collect();
    for _ in 0..5 {
        pool.suspend_listener(&addresses[0]).expect("it listens there");
        let mut waits = connect(at[0]);
        drop(served(at[1]));
        assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
        assert_eq!(pool.status().listeners[0].readiness, Readiness::Suspended);
        assert_eq!(pool.status().readiness, Readiness::Serving);
        pool.refuse_listener(&addresses[0], Reject::Bytes(b"closed"[..].into())).expect("it listens there");
        assert_eq!(read_all(&mut waits).expect("an orderly end"), b"closed");
        assert_eq!(read_all(&mut connect(at[0])).expect("an orderly end"), b"closed");
        drop(served(at[1]));
        // A loop that is new knows, too.
        pool.reconfigure(pool.config().loops(3)).expect("it grows");
        assert_eq!(read_all(&mut connect(at[0])).expect("an orderly end"), b"closed");
        pool.reconfigure(pool.config().loops(2)).expect("it shrinks");
        pool.resume_listener(&addresses[0]).expect("it listens there");
        drop(served(at[0]));
        assert!(kept.iter_mut().all(|kept| echoes(kept, b"still here")));
    }
    assert_eq!(pool.status().counts.rejected, 15);
    let unknown = "127.0.0.1:1".parse().expect("an address");
    let error = pool.suspend_listener(&unknown).expect_err("it does not listen there").to_string();
    assert!(error.contains("127.0.0.1:1") && error.contains(&addresses[0].to_string()), "{error}");
    drop(kept);
    assert_empty(&pool);
}

#[test]
fn a_pool_that_refuses_says_so_and_keeps_what_it_has() {
    let told = Told::default();
    let (pool, at) = start(told.to(Config::accept(Echo).loops(2).limit(1)));
    let mut kept = served(at);
    let mut waits = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    pool.refuse(Reject::Fin);
    assert_eq!(pool.status().readiness, Readiness::Refusing);
    assert_eq!(read_all(&mut waits).expect("an orderly end"), b"");
    pool.refuse(Reject::Reset);
    assert_eq!(read_all(&mut connect(at)).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    pool.suspend();
    let mut waits = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    assert!(echoes(&mut kept, b"still here"));
    drop(kept);
    assert_empty(&pool);
    pool.resume();
    assert!(echoes(&mut waits, b"hello"));
    let readiness = |event: &Event| match event {
        Event::ReadinessChanged(readiness) => Some(readiness.clone()),
        _ => None,
    };
    let passed: Vec<Readiness> = told.0.lock().expect("no panic").iter().filter_map(readiness).collect();
    assert_eq!(passed, [Readiness::Refusing, Readiness::Refusing, Readiness::Suspended, Readiness::Serving]);
}

#[test]
fn a_full_pool_turns_away_where_it_refuses() {
    let pool = Pool::start(Config::accept(Echo).loops(2).limit(1).listen(any_port()).listen(any_port())).expect("it starts");
    let addresses = pool.addresses();
    let at: Vec<SocketAddr> = addresses.iter().map(tcp).collect();
    let kept = served(at[0]);
    let mut waits = connect(at[0]);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    for _ in 0..5 {
        pool.refuse_listener(&addresses[1], Reject::Bytes(b"closed"[..].into())).expect("it listens there");
        // Each loop is met, those too that wait for a permit.
        for _ in 0..8 {
            assert_eq!(read_all(&mut connect(at[1])).expect("an orderly end"), b"closed");
        }
        pool.resume_listener(&addresses[1]).expect("it listens there");
    }
    drop(kept);
    assert!(echoes(&mut waits, b"hello"));
    drop(waits);
    assert_empty(&pool);
}

#[test]
fn who_waits_at_sockets_on_their_way_out_is_turned_away_too() {
    let (pool, at) = start(Config::accept(Echo).loops(2).limit(1));
    let kept = served(at);
    let mut waits = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    let renewed = pool.update(|config| config.listeners(|listeners| listeners[0].options.freebind = true));
    renewed.expect("other sockets take over");
    assert_eq!((pool.status().retiring, pool.status().listeners[0].queued), (1, 0));
    pool.refuse(Reject::Fin);
    assert_eq!(read_all(&mut waits).expect("an orderly end"), b"");
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0));
    // A client that waits while it is suspended is served, though it refused before.
    pool.suspend();
    let mut waits = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    drop(kept);
    let renewed = pool.update(|config| config.listeners(|listeners| listeners[0].options.freebind = false));
    renewed.expect("other sockets take over");
    assert!(echoes(&mut waits, b"hello"));
    drop(waits);
    assert_empty(&pool);
}

#[test]
fn a_shutdown_is_announced_before_accepting_stops() {
    in_time(|| {
        let told = Told::default();
        let (pool, at) = start(told.to(Config::accept(Echo).loops(2)));
        let ending = pool.clone();
        let end = std::thread::spawn(move || ending.shutdown(Drain::within(PATIENCE).notice(Duration::from_millis(500))));
        assert!(pool.wait(PATIENCE, |status| status.readiness == Readiness::Draining));
        let draining = |event: &Event| matches!(event, Event::ReadinessChanged(Readiness::Draining));
        let removed = |event: &Event| matches!(event, Event::ListenerRemoved(_));
        assert_eq!(told.count(draining), 1);
        let late = served(at);
        assert_eq!(told.count(removed), 0, "it serves until then");
        drop(late);
        let drained = end.join().expect("no panic");
        assert_eq!((drained.cut, told.count(removed)), (0, 1));
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (pool, _) = start(Config::accept(Echo).loops(1));
    let refused = |config: Config| pool.reconfigure(config).expect_err("it makes no sense").to_string();
    let limits = Limits::default;
    let error = refused(pool.config().admission(limits().rate(AcceptRate::new(0.0, 1))));
    assert!(error.starts_with("admission.rate"), "{error}");
    let error = refused(pool.config().admission(limits().per_peer(PerPeer::address(0))));
    assert!(error.starts_with("admission.per_peer"), "{error}");
    let policy = pool.config().admission(limits().on_full(OnFull::Reject(Reject::Fin)));
    assert_eq!(
        pool.plan(&policy).expect("it makes sense").changes.iter().map(|change| change.setting).collect::<Vec<_>>(),
        ["admission.on_full"]
    );
}

#[test]
fn a_dead_loop_leaves_no_place_and_no_peer_counted() {
    let limits = Limits::default().per_peer(PerPeer::address(4));
    let config = Config::accept(Echo).loops(2).admission(limits).listening(Listening::new(any_port()).limit(4));
    let pool = Pool::start(config).expect("it starts");
    let at = tcp(&pool.addresses()[0]);
    for round in 0..6 {
        let held: Vec<TcpStream> = (0..4).map(|_| served(at)).collect();
        let waits = connect(at);
        assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1 && status.listeners[0].connections == 4));
        assert!(sockdrawer::testing::crash_loop(&pool, round % 2));
        assert!(pool.wait(PATIENCE, |status| status.restarts == round + 1 && status.loops.iter().all(|one| one.active)));
        drop((held, waits));
        assert_empty(&pool);
        assert_no_place(&pool);
    }
}
