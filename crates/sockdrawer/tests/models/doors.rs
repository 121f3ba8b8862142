//! Connections and the addresses they came in by: which belong together, and what becomes of clients that wait when an address goes.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::PATIENCE;
use crate::services::frame;
use sockdrawer::{Address, Config, Drain, Drained, Pool, Selector, changing::How};
use std::net::SocketAddr;
use std::thread;

/// A second address of a pool that has one, on a free port of another IP address: two that are asked for alike could be taken for each
/// other.
fn second(pool: &Pool) -> Result<SocketAddr, sockdrawer::Error> {
    pool.reconfigure(pool.config().listen(Address::Tcp(([127, 0, 0, 2], 0).into())))?;
    match pool.addresses()[1] {
        Address::Tcp(at) => Ok(at),
        ref other => panic!("{other} was not asked for"),
    }
}

/// Returns the configuration with new sockets at the first address.
fn replaced(config: Config) -> Config {
    config.listeners(|listeners| listeners[0].options.freebind = !listeners[0].options.freebind)
}

/// Returns the configuration without the address at `index`.
fn without(config: Config, index: usize) -> Config {
    config.listeners(|listeners| drop(listeners.remove(index)))
}

fn replace(pool: &Pool) -> Outcome {
    let applied = pool.reconfigure(replaced(pool.config()))?;
    assert!(applied.plan.has(How::NewSocket), "{}", applied.plan);
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    Ok(())
}

fn of(at: SocketAddr) -> Selector {
    Selector::Listener(at.into())
}

/// Checks that the connections of one address are listed and ended, also when its sockets were replaced since; the others stay.
pub(crate) fn connections_are_chosen_by_their_listener(bench: &Bench) -> Outcome {
    let (pool, first) = bench.start(bench.actor())?;
    let other = second(&pool)?;
    let mut client = Client::served(first);
    let mut others: Vec<Client> = (1..bench.crowd(4)).map(|_| Client::served(other)).collect();
    let listed = |selector: &Selector| pool.connections(selector).len();
    assert_eq!((listed(&of(first)), listed(&of(other)), listed(&!of(first))), (1, others.len(), others.len()));
    assert_eq!(pool.connections(&of(first))[0].peer, client.0.local_addr().ok());
    replace(&pool)?;
    assert_eq!((listed(&of(first)), listed(&of(other))), (1, others.len()), "the address is the same");
    let mut late = bench.side_by_side().then(|| Client::served(first));
    let meant = 1 + usize::from(late.is_some());
    assert_eq!((listed(&of(first)), listed(&of(other))), (meant, others.len()));

    let drained = thread::scope(|scope| {
        let drain = scope.spawn(|| pool.drain(&of(first), Drain::within(PATIENCE)));
        assert_eq!(client.rest(), frame(b'd', 0));
        late.iter_mut().for_each(|late| assert_eq!(late.rest(), frame(b'd', 0)));
        drop((client, late.take()));
        drain.join().expect("it ends")
    });
    assert_eq!(drained, Drained { asked: meant, ended: meant, cut: 0, silent: 0 });
    others.iter_mut().for_each(|other| assert_eq!(other.version(), 1));
    assert_eq!((pool.kill(&of(first)).cut, pool.kill(&of(other)).cut), (0, others.len()));
    assert_settled(&pool);
    Ok(())
}

/// Clients of a suspended address that have connected and are not served.
fn waiting(pool: &Pool, at: SocketAddr, wanted: usize) -> Vec<thread::JoinHandle<()>> {
    let clients = (0..wanted).map(|_| thread::spawn(move || Client::served(at).end())).collect();
    let queued = pool.wait(PATIENCE, |status| {
        let own = status.listeners.iter().filter(|one| one.address == at.into());
        own.map(|one| one.queued).sum::<usize>() == wanted
    });
    assert!(queued, "{:#?}", pool.status());
    clients
}

/// Checks that a suspended listener stays suspended when its sockets are replaced, until it is resumed. Clients that waited at
/// the old sockets have been let in.
pub(crate) fn a_suspended_listener_is_replaced(bench: &Bench) -> Outcome {
    let (pool, first) = bench.start(bench.actor())?;
    let other = second(&pool)?;
    pool.suspend_listener(&first.into())?;
    let before = waiting(&pool, first, 6);
    replace(&pool)?;
    before.into_iter().for_each(|client| client.join().expect("it is served"));
    assert_settled(&pool);
    let accepted = pool.status().counts.accepted;
    assert_eq!(accepted, 6);

    let after = waiting(&pool, first, 4);
    Client::served(other).end();
    assert_settled(&pool);
    assert_eq!(pool.status().counts.accepted, accepted + 1, "only the other address takes connections");
    replace(&pool)?;
    after.into_iter().for_each(|client| client.join().expect("it is served"));
    let last = waiting(&pool, first, 3);
    pool.resume_listener(&first.into())?;
    last.into_iter().for_each(|client| client.join().expect("it is served"));
    Client::served(first).end();
    assert_settled(&pool);
    Ok(())
}

/// Checks that a client that waits at a listener that is suspended and removed has been let in, and is served.
pub(crate) fn a_suspended_listener_is_removed(bench: &Bench) -> Outcome {
    let (pool, first) = bench.start(bench.actor())?;
    let other = second(&pool)?;
    pool.suspend_listener(&other.into())?;
    let clients = waiting(&pool, other, 6);
    assert_eq!(pool.status().counts.accepted, 0);
    pool.reconfigure(without(pool.config(), 1))?;
    clients.into_iter().for_each(|client| client.join().expect("it is served"));
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0 && status.listeners.len() == 1), "{:#?}", pool.status());
    Client::served(first).end();
    assert_settled(&pool);
    assert_eq!(pool.status().counts.accepted, 7);
    assert!(pool.suspend_listener(&other.into()).is_err(), "it is gone");
    Ok(())
}
