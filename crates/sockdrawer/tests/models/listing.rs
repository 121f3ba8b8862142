//! Connections as the pool sees them, and which of them an operation means.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::{PATIENCE, Stops, connect, connect_from};
use crate::services::SIZE;
use sockdrawer::{ConnectionId, Model, Selector, Side, observe::ConnectionState};
use std::collections::HashSet;
use std::io::{ErrorKind, Read};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

fn source(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 50 + number as u8)
}

pub(crate) fn connections_are_listed_as_they_are(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut clients: Vec<Client> = (0..bench.crowd(6)).map(|number| Client(connect_from(source(number), at))).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        (0..=number).for_each(|_| assert_eq!(client.version(), 1));
    }
    // The answer is there before it is counted.
    let all = (1..=clients.len()).map(|answers| (answers * SIZE) as u64).sum::<u64>();
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_out == all), "{:#?}", pool.status());
    let listed = pool.connections(&Selector::All);
    assert_eq!(listed.len(), clients.len());
    let ids: HashSet<ConnectionId> = listed.iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), clients.len());
    for (number, client) in clients.iter().enumerate() {
        let local = client.0.local_addr().expect("connected");
        let one = listed.iter().find(|one| one.peer == Some(local)).expect("each is listed");
        let bytes = ((number + 1) * SIZE) as u64;
        assert_eq!((one.generation, one.side, one.bytes_in, one.bytes_out), (1, Side::Accepted, bytes, bytes));
        // A connection in a process of its own does not say what it is doing.
        let state = if bench.model == Model::Fork { ConnectionState::Delegated } else { ConnectionState::Idle };
        assert!(one.state == state && !one.draining && one.age < 2 * PATIENCE, "{one:?}");
    }
    clients.into_iter().for_each(Client::end);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert!(pool.connections(&Selector::All).is_empty());
    Ok(())
}

pub(crate) fn selectors_mean_what_they_say(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut clients: Vec<Client> = (0..bench.crowd(4)).map(|number| Client(connect_from(source(number), at))).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.version(), 1));
    let count = |selector: &Selector| pool.connections(selector).len();
    let all = clients.len();
    assert_eq!((count(&Selector::Generation(1)), count(&Selector::Generation(2)), count(&Selector::Before(2))), (all, 0, all));
    assert_eq!((count(&Selector::Before(1)), count(&Selector::OlderThan(Duration::ZERO))), (0, all));
    assert_eq!(count(&Selector::OlderThan(Duration::from_secs(3600))), 0);
    assert_eq!(count(&Selector::Peers(Ipv4Addr::new(127, 0, 0, 0).into(), 8)), all);
    assert_eq!(count(&Selector::Peers(source(200).into(), 32)), 0);
    for number in 0..all {
        let found = pool.connections(&Selector::Peers(source(number).into(), 32));
        assert_eq!(found.len(), 1);
        let again = pool.connections(&Selector::Id(found[0].id));
        assert_eq!(again.iter().map(|one| one.peer).collect::<Vec<_>>(), [found[0].peer]);
    }
    Ok(())
}

pub(crate) fn who_is_killed_is_alone(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut victim = Client(connect_from(source(0), at));
    assert_eq!(victim.version(), 1);
    let mut others: Vec<Client> = (1..bench.crowd(5)).map(|_| Client::served(at)).collect();
    let id = pool.connections(&Selector::Peers(source(0).into(), 32))[0].id;
    assert_eq!(pool.kill(&Selector::Id(id)).cut, 1);
    let end = victim.0.read(&mut [0]).expect_err("a reset");
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert!(pool.wait(PATIENCE, |status| status.connections == others.len()));
    assert_eq!(pool.kill(&Selector::Id(id)).cut, 0, "it is gone");
    others.iter_mut().for_each(|other| assert_eq!(other.version(), 1));
    others.into_iter().for_each(Client::end);
    Client::served(at).end();
    Ok(())
}

/// Checks the list of more connections than a loop lists in one part, while others come and go.
pub(crate) fn what_stays_is_listed_once(bench: &Bench) -> Outcome {
    let stay = match bench.model {
        Model::Fork => 300,
        _ => bench.crowd(700),
    };
    let config = bench.actor().limit(stay + 50 * usize::from(bench.side_by_side()));
    // So that one of them has more than are looked at for one part.
    let (pool, at) = bench.start(if bench.model == Model::Prefork { config.loops(1) } else { config })?;
    let mut clients: Vec<Client> = (0..stay).map(|_| Client(connect(at))).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.version(), 1));
    let peers: HashSet<_> = clients.iter().map(|client| client.0.local_addr().expect("connected")).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let stops = Stops(&over);
        for _ in 0..if bench.side_by_side() { 3 } else { 0 } {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    Client::served(at).end();
                }
            });
        }
        for _ in 0..5 {
            let listed: Vec<_> = pool.each_connection(&Selector::All).collect();
            assert!(listed.is_sorted_by(|one, next| one.id < next.id), "each has its place");
            let there = listed.iter().filter(|one| one.peer.is_some_and(|peer| peers.contains(&peer)));
            assert_eq!(there.count(), stay, "of {}", listed.len());
        }
        drop(stops);
    });
    let listed = pool.connections(&Selector::All);
    for one in [&listed[0], &listed[stay / 2]] {
        assert_eq!(pool.connections(&Selector::Id(one.id)).len(), 1);
    }
    let some = &listed[stay / 2];
    let network = Selector::Peers(some.peer.expect("a TCP peer").ip(), 32).and(!Selector::Id(some.id));
    assert_eq!(pool.each_connection(&network).filter(|one| one.peer.is_some_and(|peer| peers.contains(&peer))).count(), stay - 1);
    drop(clients);
    assert_settled(&pool);
    Ok(())
}
