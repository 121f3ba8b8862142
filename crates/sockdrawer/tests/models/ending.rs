//! Ends that are asked for: in order, with every answer that is owed.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::{PATIENCE, connect};
use crate::services::{SIZE, frame, pattern};
use sockdrawer::{Drain, Drained, Pool, Selector, observe::Readiness};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the letters and numbers of all that is left to read.
fn answers(client: &mut Client) -> Vec<(u8, u32)> {
    let rest = client.rest();
    rest.chunks(SIZE).map(|bytes| crate::services::parts(bytes.try_into().expect("whole answers"))).collect()
}

pub(crate) fn a_drain_answers_what_was_received(bench: &Bench) -> Outcome {
    const ORDERS: u32 = 100;
    let (pool, at) = bench.start(bench.actor())?;
    let crowd = bench.crowd(6);
    let mut clients: Vec<Client> = (0..crowd).map(|_| Client(connect(at))).collect();
    for client in &mut clients {
        (0..ORDERS).for_each(|number| client.order(b'j', number));
    }
    let all = u64::from(ORDERS) * (crowd * SIZE) as u64;
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == all), "{:#?}", pool.status());
    // Each closes as soon as it was answered: until then its connection lingers.
    let readers: Vec<_> = clients.into_iter().map(|mut client| thread::spawn(move || answers(&mut client))).collect();
    let drained = pool.drain(&Selector::All, Drain::within(PATIENCE));
    assert_eq!(drained, Drained { asked: crowd, ended: crowd, cut: 0, silent: 0 });
    let wanted: Vec<_> = (1..=ORDERS).map(|number| (b'j', number)).chain([(b'd', 0)]).collect();
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().expect("an orderly end"), wanted));
    Client::served(at).end();
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_connection_that_is_idle_is_closed(bench: &Bench) -> Outcome {
    const IDLE: Duration = Duration::from_millis(400);
    let mut config = bench.actor();
    config.settings.idle = Some(IDLE);
    let (pool, at) = bench.start(config)?;
    let began = Instant::now();
    assert_eq!(Client(connect(at)).rest(), b"", "it said nothing");
    assert!(began.elapsed() >= IDLE);
    let mut partial = Client(connect(at));
    partial.0.write_all(&frame(b'a', 1)[..SIZE - 1]).expect("it stands");
    assert_eq!(partial.rest(), b"", "it said nothing whole");
    let mut timed = Client(connect(at));
    // While its protocol's timer is set, the connection is its protocol's affair.
    let twice = 2 * IDLE.as_millis() as u32;
    assert_eq!(timed.ask(b't', twice), (b't', 0));
    assert_eq!(timed.rest(), b"", "it said no more");
    assert_settled(&pool);
    assert_eq!((pool.status().counts.idle, pool.status().counts.errors), (3, 0));
    Ok(())
}

pub(crate) fn a_drain_takes_no_longer_than_its_deadline(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut stays = Client::served(at);
    stays.order(b'k', 0);
    assert_eq!(stays.version(), 1);
    let reader = thread::spawn(move || answers(&mut stays));
    let drained = pool.drain(&Selector::All, Drain::within(Duration::from_millis(100)));
    assert_eq!((drained.asked, drained.ended + drained.cut), (1, 1));
    let seen = reader.join();
    // A loop that has no CPU at the deadline counts as if it had cut it.
    assert!(drained.cut == 1 || seen.is_ok_and(|answers| answers.is_empty()), "an orderly end: {drained:?}");
    assert_settled(&pool);
    Client::served(at).end();
    Ok(())
}

pub(crate) fn a_drain_ends_as_many_as_it_is_to(bench: &Bench) -> Outcome {
    const AT_ONCE: usize = 5;
    let (pool, at) = bench.start(bench.actor())?;
    let crowd = bench.crowd(24);
    let readers: Vec<_> = (0..crowd)
        .map(|_| {
            let mut client = Client::served(at);
            thread::spawn(move || answers(&mut client))
        })
        .collect();
    let mut left = crowd;
    if crowd > 1 {
        let in_time = pool.drain(&Selector::All, Drain::within(Duration::from_millis(600)).rate(5.0).max_connections(crowd));
        assert!((1..=4).contains(&in_time.asked) && in_time.cut == 0, "{in_time:?}");
        assert!(pool.wait(PATIENCE, |status| status.connections == crowd - in_time.asked), "{:#?}", pool.status());
        left -= in_time.asked + 2 * AT_ONCE;
        let slowly = pool.clone();
        let slowly =
            thread::spawn(move || slowly.drain(&Selector::All, Drain::within(PATIENCE).rate(20.0).max_connections(AT_ONCE)));
        assert!(pool.wait(PATIENCE, |status| status.connections < crowd - in_time.asked), "{:#?}", pool.status());
        let expected = Drained { asked: AT_ONCE, ended: AT_ONCE, cut: 0, silent: 0 };
        assert_eq!(pool.drain(&Selector::All, Drain::within(PATIENCE).max_connections(AT_ONCE)), expected);
        assert_eq!(slowly.join().expect("no panic"), expected);
        assert!(pool.wait(PATIENCE, |status| status.connections == left), "nobody was asked twice: {:#?}", pool.status());
    }
    for (how, most) in [
        (Drain::within(PATIENCE), 0),
        (Drain::within(PATIENCE), crowd / 2),
        (Drain::within(PATIENCE).rate(1_000.0), crowd / 3),
        (Drain::within(PATIENCE), crowd),
    ] {
        let asked = most.min(left);
        assert_eq!(pool.drain(&Selector::All, how.max_connections(most)), Drained { asked, ended: asked, cut: 0, silent: 0 });
        left -= asked;
        assert!(pool.wait(PATIENCE, |status| status.connections == left), "{left}: {:#?}", pool.status());
    }
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().expect("an orderly end"), [(b'd', 0)]));
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_drain_keeps_its_rate(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    ends_at_its_rate(bench, &pool, at, |how| pool.drain(&Selector::All, how));
    Client::served(at).end();
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_shutdown_keeps_its_rate(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    ends_at_its_rate(bench, &pool, at, |how| pool.shutdown(how));
    Ok(())
}

fn ends_at_its_rate(bench: &Bench, pool: &Pool, at: SocketAddr, end: impl Fn(Drain) -> Drained) {
    const RATE: f64 = 100.0;
    let crowd = bench.crowd(40);
    let readers: Vec<_> = (0..crowd)
        .map(|_| {
            let mut client = Client::served(at);
            thread::spawn(move || (answers(&mut client), Instant::now()))
        })
        .collect();
    assert!(pool.wait(PATIENCE, |status| status.connections == crowd), "{:#?}", pool.status());
    let drained = end(Drain::within(PATIENCE).rate(RATE));
    assert_eq!(drained, Drained { asked: crowd, ended: crowd, cut: 0, silent: 0 });
    let mut ended: Vec<Instant> = readers
        .into_iter()
        .map(|reader| {
            let (answers, at) = reader.join().expect("an orderly end");
            assert_eq!(answers, [(b'd', 0)]);
            at
        })
        .collect();
    ended.sort_unstable();
    // However many processes share the rate: it takes as long as one would need.
    let (took, wanted) = (ended[crowd - 1] - ended[0], Duration::from_secs_f64((crowd - 1) as f64 / RATE));
    // Nor does anything wait for the last words, which come shortly before the deadline.
    assert!(took >= wanted.mul_f64(0.8) && took < PATIENCE / 2, "{took:?} for {wanted:?}");
}

pub(crate) fn a_drain_without_time_ends_all_the_same(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut stays = Client::served(at);
    stays.order(b'k', 0);
    assert_eq!(stays.version(), 1);
    let reader = thread::spawn(move || answers(&mut stays));
    let drained = pool.drain(&Selector::All, Drain::within(Duration::ZERO));
    assert_eq!(drained, Drained { asked: 1, ended: 1, cut: 0, silent: 0 });
    assert_eq!(reader.join().expect("an orderly end"), []);
    assert_settled(&pool);
    Client::served(at).end();
    Ok(())
}

pub(crate) fn a_purge_delivers_what_was_written(bench: &Bench) -> Outcome {
    const MUCH: u32 = 16_000_000;
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client(connect(at));
    client.order(b'w', MUCH);
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out > 0));
    assert!(pool.status().counts.bytes_out < u64::from(MUCH), "it must not fit into the kernel's buffers");
    let reader = thread::spawn(move || client.rest());
    assert_eq!(pool.purge(&Selector::All, PATIENCE).asked, 1);
    let bytes = reader.join().expect("an orderly end");
    assert_settled(&pool);
    let (written, goodbye) = bytes.split_at(MUCH as usize);
    assert!(written == pattern(0, written.len()));
    assert_eq!((goodbye, bytes.len() as u64), (&frame(b'd', 0)[..], pool.status().counts.bytes_out));
    Client::served(at).end();
    Ok(())
}

pub(crate) fn a_shutdown_serves_who_waits(bench: &Bench) -> Outcome {
    const WAITING: usize = 8;
    let (pool, at) = bench.start(bench.actor())?;
    pool.suspend();
    let mut clients: Vec<Client> = (0..WAITING).map(|_| Client(connect(at))).collect();
    for client in &mut clients {
        client.order(b'j', 4);
    }
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == WAITING));
    let readers: Vec<_> = clients.into_iter().map(|mut client| thread::spawn(move || answers(&mut client))).collect();
    let drained = pool.shutdown(Drain::within(PATIENCE));
    assert_eq!(drained.cut, 0, "{drained:?}");
    for reader in readers {
        let answers = reader.join().expect("an orderly end");
        assert_eq!(answers.first(), Some(&(b'j', 5)), "{answers:?}");
    }
    TcpStream::connect(at).expect_err("nobody listens");
    let counts = pool.status().counts;
    assert_eq!((counts.accepted, counts.closed), (WAITING as u64, WAITING as u64));
    Ok(())
}

pub(crate) fn who_joins_learns_of_the_end(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    Client::served(at).end();
    let joined = pool.clone();
    let joins = thread::spawn(move || joined.join().map_err(|error| error.to_string()));
    assert_eq!(pool.status().readiness, Readiness::Serving);
    pool.shutdown(Drain::within(PATIENCE));
    assert_eq!(joins.join().expect("no panic"), Ok(()));
    assert!(matches!(pool.status().readiness, Readiness::Stopped(_)));
    Ok(())
}

pub(crate) fn the_last_handle_ends_the_pool(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client::served(at);
    let other = pool.clone();
    drop(pool);
    assert_eq!(client.version(), 1);
    drop(other);
    // In order or by a reset: it ends.
    let _ = crate::common::read_all(&mut client.0);
    TcpStream::connect(at).expect_err("nobody listens");
    Ok(())
}
