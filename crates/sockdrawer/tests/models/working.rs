//! Jobs, timers and notes.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::PATIENCE;
use crate::common::{connect, connect_from};
use crate::services::frame;
use sockdrawer::Selector;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

pub(crate) fn a_job_has_a_result(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client::served(at);
    // Orders that follow a job wait for it.
    for number in 0..50 {
        client.order(b'j', number);
        client.order(b'v', 0);
    }
    for number in 0..50 {
        assert_eq!([client.answer(), client.answer()], [(b'j', number + 1), (b'v', 1)]);
    }
    client.end();
    assert_settled(&pool);
    assert_eq!(pool.status().counts.jobs, 50);
    Ok(())
}

pub(crate) fn jobs_begin_in_the_order_they_came(bench: &Bench) -> Outcome {
    const JOBS: usize = 20;
    let config = bench.actor().processes(1);
    let config = if bench.has_workers() { config.loops(1).workers(1) } else { config };
    let (pool, at) = bench.start(config)?;
    // The first job waits for a connection to this listener to end.
    let gate = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = u32::from(gate.local_addr().expect("bound").port());
    let mut first = Client::served(at);
    first.order(b'q', port);
    let (held, _) = gate.accept().expect("the first job begins");
    drop(gate);
    if !bench.has_workers() {
        drop(held);
        let (_, place) = first.answer();
        assert_eq!(first.ask(b'q', port), (b'q', if bench.model == sockdrawer::Model::Fork { 1 } else { place + 1 }));
        return Ok(());
    }
    let mut others: Vec<Client> = (0..JOBS).map(|_| Client::served(at)).collect();
    for (waiting, client) in others.iter_mut().enumerate() {
        client.order(b'q', port);
        assert!(pool.wait(PATIENCE, |status| status.jobs_waiting == waiting + 1), "{:#?}", pool.status());
    }
    drop(held);
    let (letter, begun) = first.answer();
    assert_eq!(letter, b'q');
    let places: Vec<_> = others.iter_mut().map(Client::answer).collect();
    assert_eq!(places, (1..=JOBS as u32).map(|place| (b'q', begun + place)).collect::<Vec<_>>());
    Ok(())
}

pub(crate) fn a_panic_in_a_job_ends_the_job(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client::served(at);
    for number in 0..10 {
        assert_eq!([client.ask(b'p', 0), client.ask(b'j', number)], [(b'!', 0), (b'j', number + 1)]);
    }
    client.end();
    assert_settled(&pool);
    let status = pool.status();
    assert_eq!((status.counts.job_panics, status.counts.panics, status.restarts), (10, 0, 0));
    Ok(())
}

pub(crate) fn a_timer_is_not_early(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client::served(at);
    for milliseconds in [0, 1, 7, 30, 80] {
        let began = Instant::now();
        assert_eq!(client.ask(b't', milliseconds), (b't', 0));
        assert!(began.elapsed() >= Duration::from_millis(milliseconds.into()), "{milliseconds} ms");
    }
    // The later one counts, and what is received meanwhile is answered.
    client.order(b't', 3_600_000);
    assert_eq!(client.ask(b'a', 5), (b'a', 5));
    assert_eq!(client.ask(b't', 20), (b't', 0));
    client.end();
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn notes_reach_all_who_are_meant_in_order(bench: &Bench) -> Outcome {
    const NOTES: u32 = 200;
    let (pool, at) = bench.start(bench.actor())?;
    let crowd = bench.crowd(8);
    let mut clients: Vec<Client> = (0..crowd).map(|_| Client::served(at)).collect();
    for number in 0..NOTES {
        pool.notify(&Selector::All, frame(b'n', number))?;
    }
    for client in &mut clients {
        assert!((0..NOTES).all(|number| client.answer() == (b'n', number)));
    }
    clients.drain(..).for_each(Client::end);
    assert_settled(&pool);
    assert_eq!(pool.status().counts.notes, u64::from(NOTES) * crowd as u64);

    let source = Ipv4Addr::new(127, 0, 0, 77);
    let mut meant = Client(connect_from(source, at));
    assert_eq!(meant.version(), 1);
    let mut other = bench.side_by_side().then(|| Client(connect(at)));
    other.iter_mut().for_each(|other| assert_eq!(other.version(), 1));
    pool.notify(&Selector::Peers(source.into(), 32), frame(b'n', 1))?;
    pool.notify(&Selector::Peers(Ipv4Addr::new(10, 0, 0, 0).into(), 8), frame(b'n', 2))?;
    pool.notify(&Selector::All, frame(b'n', 3))?;
    assert_eq!([meant.answer(), meant.answer()], [(b'n', 1), (b'n', 3)]);
    other.iter_mut().for_each(|other| assert_eq!(other.answer(), (b'n', 3)));
    Ok(())
}
