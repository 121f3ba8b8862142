//! Permits: as many as there are, and a client that waits for one is served.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::{PATIENCE, Stops, connect, read_all};
use sockdrawer::admission::{OnFull, Reject};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::thread;

/// Sessions that clients know to be open.
#[derive(Default)]
struct Sessions {
    /// Now, and the most so far.
    open: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Sessions {
    /// Holds one session open until `wanted` sessions were open at once.
    fn one(&self, at: SocketAddr, wanted: usize) {
        let client = Client::served(at);
        let mut open = self.open.lock().expect("no panic");
        open.0 += 1;
        open.1 = open.1.max(open.0);
        self.changed.notify_all();
        let (mut open, late) = self.changed.wait_timeout_while(open, PATIENCE, |open| open.1 < wanted).expect("no panic");
        assert!(!late.timed_out(), "never more than {} at once", open.1);
        open.0 -= 1;
        drop(open);
        client.end();
    }
}

pub(crate) fn a_limit_is_reached_and_never_passed(bench: &Bench) -> Outcome {
    let limit = bench.crowd(8);
    let (pool, at) = bench.start(bench.actor().limit(limit))?;
    let (sessions, over) = (Sessions::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let stops = Stops(&over);
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !over.load(SeqCst) {
                most = most.max(pool.status().connections);
            }
            most
        });
        let clients: Vec<_> = (0..4 * limit).map(|_| scope.spawn(|| (0..5).for_each(|_| sessions.one(at, limit)))).collect();
        clients.into_iter().for_each(|client| client.join().expect("every session went well"));
        drop(stops);
        let most = sampler.join().expect("it samples");
        assert!(most <= limit, "{most} permits");
    });
    assert_eq!(sessions.open.lock().expect("no panic").1, limit);
    assert_settled(&pool);
    assert_eq!(pool.status().counts.accepted, 20 * limit as u64);
    Ok(())
}

pub(crate) fn who_is_rejected_sees_an_end(bench: &Bench) -> Outcome {
    let busy: &[u8] = b"busy\n";
    let reject = OnFull::Reject(Reject::Bytes(busy.into()));
    let (pool, at) = bench.start(bench.actor().limit(1).on_full(reject))?;
    let mut held = Client::served(at);
    for _ in 0..20 {
        assert_eq!(read_all(&mut connect(at)).expect("an orderly end"), busy);
    }
    assert_eq!(held.version(), 1);
    held.end();
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    Client::served(at).end();
    assert_settled(&pool);
    assert_eq!((pool.status().counts.rejected, pool.status().counts.accepted), (20, 22));
    Ok(())
}

pub(crate) fn a_limit_below_use_closes_nothing(bench: &Bench) -> Outcome {
    let crowd = bench.crowd(4);
    let (pool, at) = bench.start(bench.actor().limit(2 * crowd))?;
    let mut held: Vec<Client> = (0..crowd).map(|_| Client::served(at)).collect();
    pool.reconfigure(pool.config().limit(1))?;
    assert_eq!((pool.status().limit, pool.status().connections), (1, crowd));
    let waits = thread::spawn(move || Client::served(at).end());
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    while let Some(mut client) = held.pop() {
        assert_eq!((client.version(), pool.status().counts.accepted), (1, crowd as u64));
        client.end();
    }
    waits.join().expect("it is served when all others have ended");
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn who_came_while_it_was_suspended_is_served(bench: &Bench) -> Outcome {
    const CLIENTS: usize = 8;
    let (pool, at) = bench.start(bench.actor())?;
    let mut held = bench.side_by_side().then(|| Client::served(at));
    for round in 0..5 {
        pool.suspend();
        let before = pool.status().counts.accepted;
        let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || Client::served(at).end())).collect();
        assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == CLIENTS), "round {round}: {:#?}", pool.status());
        assert_eq!(pool.status().counts.accepted, before);
        held.iter_mut().for_each(|held| assert_eq!(held.version(), 1));
        pool.resume();
        clients.into_iter().for_each(|client| client.join().expect("it is served"));
    }
    held.into_iter().for_each(Client::end);
    assert_settled(&pool);
    Ok(())
}
