//! Admission: limits of listeners and peers, the rate, alarms, policies that are swapped, and doors that are closed.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::{PATIENCE, Stops, address, any_port, connect, connect_from, read_all, tcp, turned_away};
use sockdrawer::{
    Config, Pool,
    admission::{AcceptRate, Admission, AfterAccept, Limits, NewPeer, OnFull, PerPeer, Reject},
    listening::Listening,
    observe::{Alarm, Counts, Event, Readiness},
    testing::crash_loop,
};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

fn limit(config: Config, listener: usize, limit: usize) -> Config {
    config.listeners(|listeners| listeners[listener].limit = Some(limit))
}

pub(crate) fn a_listener_has_a_limit_of_its_own(bench: &Bench) -> Outcome {
    let most = bench.crowd(3);
    let config = bench.actor().listening(Listening::new(any_port()).limit(most)).listen(any_port());
    let pool = Pool::start(config)?;
    let at: Vec<SocketAddr> = pool.addresses().iter().map(tcp).collect();
    let (over, sessions) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let stops = Stops(&over);
        for client in 0..6 * most {
            let (over, sessions, at) = (&over, &sessions, at[usize::from(client % 4 == 0)]);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    Client::served(at).end();
                    sessions.fetch_add(1, SeqCst);
                }
            });
        }
        for round in 0..30 {
            pool.reconfigure(limit(pool.config(), 0, [most, 1][round % 2])).expect("it can be changed");
            for _ in 0..10 {
                let status = pool.status();
                assert!(status.listeners[0].connections <= most, "{status:#?}");
            }
        }
        pool.reconfigure(limit(pool.config(), 0, most)).expect("it can be changed");
        drop(stops);
    });
    assert_settled(&pool);
    assert_eq!(pool.status().counts.accepted, sessions.load(SeqCst) as u64);
    // A place may be on its way to a loop for whom there is nobody any more.
    let none = |status: &sockdrawer::observe::Status| status.listeners.iter().all(|listener| listener.connections == 0);
    assert!(pool.wait(PATIENCE, none), "{:#?}", pool.status());
    if bench.side_by_side() {
        let held: Vec<Client> = (0..most).map(|_| Client::served(at[0])).collect();
        let waits = connect(at[0]);
        assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1 && status.listeners[0].connections == most));
        Client::served(at[1]).end();
        let listed = pool.connections(&sockdrawer::Selector::All);
        assert!(listed.iter().filter(|one| one.listener.as_ref() == Some(&pool.addresses()[0])).count() == most, "{listed:#?}");
        held.into_iter().for_each(Client::end);
        drop(waits);
        assert_settled(&pool);
    }
    Ok(())
}

pub(crate) fn a_limit_holds_while_policies_are_swapped(bench: &Bench) -> Outcome {
    let most = bench.crowd(3);
    let (pool, at) = bench.start(bench.actor().limit(most))?;
    let (over, sessions) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let stops = Stops(&over);
        for _ in 0..4 * most {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    Client::served(at).end();
                    sessions.fetch_add(1, SeqCst);
                }
            });
        }
        for round in 0..40_u32 {
            let limits = Limits::default().rate(AcceptRate::new(1e6 + f64::from(round), 1000));
            let limits = if round % 2 == 0 { limits } else { Limits::default() };
            pool.reconfigure(pool.config().admission(limits)).expect("it can be swapped");
            (0..5).for_each(|_| assert!(pool.status().connections <= most));
        }
        drop(stops);
    });
    assert_settled(&pool);
    assert_eq!(pool.status().counts.accepted, sessions.load(SeqCst) as u64);
    Ok(())
}

pub(crate) fn the_accept_rate_is_kept(bench: &Bench) -> Outcome {
    const RATE: f64 = 100.0;
    let (pool, at) = bench.start(bench.actor().admission(Limits::default().rate(AcceptRate::new(RATE, 30))))?;
    let (began, over) = (Instant::now(), AtomicBool::new(false));
    let (accepted, seconds) = thread::scope(|scope| {
        let stops = Stops(&over);
        for _ in 0..12 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    Client::served(at).end();
                }
            });
        }
        assert!(pool.wait(PATIENCE, |_| began.elapsed().as_secs_f64() >= 1.5));
        let accepted = pool.status().counts.accepted as f64;
        let seconds = began.elapsed().as_secs_f64();
        drop(stops);
        (accepted, seconds)
    });
    let allowed = 30.0 + RATE * seconds;
    assert!(accepted <= allowed + 1.0, "{accepted} of {allowed}");
    // On a machine that is busy with other things clients may not come faster.
    assert!(accepted >= 0.6 * allowed, "{accepted} of {allowed}");
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_peer_has_as_many_as_it_may(bench: &Bench) -> Outcome {
    let most = bench.crowd(2);
    let (pool, at) = bench.start(bench.actor().on_full(OnFull::Reject(Reject::Fin)))?;
    let source = Ipv4Addr::new(127, 0, 4, 1);
    let client = || Client(connect_from(source, at));
    let mut there: Vec<Client> = (0..most).map(|_| client()).collect();
    there.iter_mut().for_each(|client| assert_eq!(client.ask(b'a', 0), (b'a', 0)));
    let limits = Limits::default().on_full(OnFull::Reject(Reject::Fin)).per_peer(PerPeer::address(most));
    pool.reconfigure(pool.config().admission(limits))?;
    for _ in 0..10 {
        assert_eq!(read_all(&mut client().0).expect("an orderly end"), b"");
        if bench.side_by_side() {
            Client::served(at).end();
        }
        there.pop().expect("it has one").end();
        assert!(pool.wait(PATIENCE, |status| status.connections == most - 1));
        let mut next = client();
        assert_eq!(next.ask(b'a', 0), (b'a', 0), "there is room again");
        there.push(next);
    }
    there.into_iter().for_each(Client::end);
    assert_settled(&pool);
    let Counts { rejected, rejected_per_peer, rejected_pool_full, .. } = pool.status().counts;
    // The model that serves one connection at a time has that as a limit of the pool.
    let [of_peer, of_pool] = if bench.side_by_side() { [10, 0] } else { [0, 10] };
    assert_eq!((rejected, rejected_per_peer, rejected_pool_full), (10, of_peer, of_pool));
    Ok(())
}

pub(crate) fn rejects_are_counted_by_their_reasons(bench: &Bench) -> Outcome {
    let (fin, most) = (OnFull::Reject(Reject::Fin), bench.crowd(2));
    let listening = Listening::new(any_port()).limit(100);
    let pool = Pool::start(bench.actor().listening(listening).limit(most).on_full(fin.clone()))?;
    let at = address(&pool);
    let rejects = |count: usize| {
        (0..count).for_each(|_| assert_eq!(read_all(&mut connect(at)).expect("an orderly end"), b""));
    };
    let held: Vec<Client> = (0..most).map(|_| Client::served(at)).collect();
    rejects(3);
    if bench.side_by_side() {
        pool.reconfigure(limit(pool.config().limit(100), 0, most))?;
        rejects(4);
    }
    held.into_iter().for_each(Client::end);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    let mut rate = AcceptRate::new(0.001, 1);
    rate.on_excess = fin;
    pool.reconfigure(pool.config().admission(Limits::default().rate(rate)))?;
    Client::served(at).end();
    rejects(5);
    pool.refuse(Reject::Fin);
    rejects(6);
    pool.resume();
    pool.reconfigure(pool.config().admission(Limits::default()))?;
    pool.refuse_listener(&pool.addresses()[0], Reject::Fin)?;
    rejects(7);
    assert_settled(&pool);
    let counts = pool.status().counts;
    let listener_full = if bench.side_by_side() { 4 } else { 0 };
    assert_eq!(counts.rejected, 3 + listener_full + 5 + 6 + 7);
    assert_eq!((counts.rejected_pool_full, counts.rejected_listener_full), (3, listener_full));
    assert_eq!((counts.rejected_too_fast, counts.rejected_refusing), (5, 6 + 7));
    assert_eq!((counts.rejected_per_peer, counts.rejected_by_policy), (0, 0));
    // The counts of a process that is gone are kept.
    assert!(crash_loop(&pool, 0));
    assert!(pool.wait(PATIENCE, |status| status.restarts == 1));
    assert_eq!(pool.status().counts.rejected, counts.rejected);
    Ok(())
}

/// Policy that turns one address away.
struct Deny(Ipv4Addr);

impl Admission for Deny {
    fn after(&self, peer: &NewPeer<'_>) -> AfterAccept {
        let denied = peer.address.is_some_and(|address| address.ip() == self.0);
        if denied { AfterAccept::Reject(Reject::Reset) } else { AfterAccept::Keep }
    }
}

pub(crate) fn a_policy_of_its_own_decides(bench: &Bench) -> Outcome {
    let denied = Ipv4Addr::new(127, 0, 4, 2);
    let (pool, at) = bench.start(bench.actor())?;
    let mut kept = bench.side_by_side().then(|| Client::served(at));
    pool.reconfigure(pool.config().admission(Deny(denied)))?;
    for _ in 0..5 {
        assert_eq!(turned_away(denied, at).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        Client::served(at).end();
    }
    kept.iter_mut().for_each(|kept| assert_eq!(kept.version(), 1));
    kept.into_iter().for_each(Client::end);
    assert_settled(&pool);
    let counts = pool.status().counts;
    assert_eq!((counts.rejected, counts.rejected_by_policy), (5, 5));
    Ok(())
}

pub(crate) fn an_alarm_is_told_once(bench: &Bench) -> Outcome {
    let most = bench.crowd(4);
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = told.clone();
    let alarm = Alarm { at: most, clear_at: 0 };
    let config = bench.actor().alarms(vec![alarm]).observer(move |event: &Event| {
        let raised = match event {
            Event::AlarmRaised { .. } => true,
            Event::AlarmCleared { .. } => false,
            _ => return,
        };
        hears.lock().expect("no panic").push(raised);
    });
    let (pool, at) = bench.start(config)?;
    for round in 1..=3 {
        let held: Vec<Client> = (0..most).map(|_| Client::served(at)).collect();
        let heard = |count: usize| pool.wait(PATIENCE, |_| told.lock().expect("no panic").len() >= count);
        assert!(heard(2 * round - 1), "raised");
        held.into_iter().for_each(Client::end);
        assert!(heard(2 * round), "cleared");
        assert_settled(&pool);
    }
    assert_eq!(*told.lock().expect("no panic"), [true, false].repeat(3));
    Ok(())
}

pub(crate) fn a_listener_is_suspended_and_refuses_by_itself(bench: &Bench) -> Outcome {
    let pool = Pool::start(bench.actor().listen(any_port()).listen(any_port()))?;
    let addresses = pool.addresses();
    let at: Vec<SocketAddr> = addresses.iter().map(tcp).collect();
    for _ in 0..3 {
        pool.suspend_listener(&addresses[0])?;
        let mut waits = connect(at[0]);
        Client::served(at[1]).end();
        assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
        assert_eq!(pool.status().listeners[0].readiness, Readiness::Suspended);
        pool.refuse_listener(&addresses[0], Reject::Bytes(b"closed"[..].into()))?;
        assert_eq!(read_all(&mut waits).expect("an orderly end"), b"closed");
        assert_eq!(read_all(&mut connect(at[0])).expect("an orderly end"), b"closed");
        Client::served(at[1]).end();
        pool.resume_listener(&addresses[0])?;
        Client::served(at[0]).end();
    }
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_pool_refuses_and_goes_on(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut kept = bench.side_by_side().then(|| Client::served(at));
    for _ in 0..3 {
        pool.refuse(Reject::Bytes(b"closed"[..].into()));
        assert_eq!(pool.status().readiness, Readiness::Refusing);
        assert_eq!(read_all(&mut connect(at)).expect("an orderly end"), b"closed");
        kept.iter_mut().for_each(|kept| assert_eq!(kept.version(), 1));
        pool.suspend();
        let mut waits = Client(connect(at));
        assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
        pool.resume();
        assert_eq!(waits.ask(b'a', 0), (b'a', 0));
        waits.end();
    }
    kept.into_iter().for_each(Client::end);
    assert_settled(&pool);
    assert_eq!(pool.status().counts.rejected, 3);
    Ok(())
}
