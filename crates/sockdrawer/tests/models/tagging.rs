//! Tags of connections, their states, and the operations that choose connections by them.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::PATIENCE;
use crate::services::{Actor, frame};
use sockdrawer::{Drain, Drained, Pool, Selector, observe::ConnectionState};
use std::io::{ErrorKind, Read, Write};
use std::thread;

fn tags(pool: &Pool, selector: &Selector) -> Vec<Option<String>> {
    let mut tags: Vec<_> = pool.connections(selector).into_iter().map(|one| one.tag).collect();
    tags.sort();
    tags
}

fn named(tag: &str) -> Option<String> {
    Some(tag.to_owned())
}

pub(crate) fn operations_mean_connections_by_their_tags(bench: &Bench) -> Outcome {
    if !bench.side_by_side() {
        return Ok(());
    }
    let (pool, at) = bench.start(bench.actor())?;
    bench.reaches_connections(&pool)?;
    let mut clients: Vec<Client> = (0..6).map(|_| Client::served(at)).collect();
    assert_eq!(tags(&pool, &Selector::All), [const { None }; 6]);
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        let letter = if number < 4 { b'n' } else { b'h' };
        // The second answer comes when what the handle was told was done.
        assert_eq!([client.ask(letter, number as u32 % 2).1, client.version()], [number as u32 % 2, 1]);
    }
    let (even, odd) = (Selector::tag("tag-0"), Selector::tag("tag-1"));
    let [zero, one] = [named("tag-0"), named("tag-1")];
    assert_eq!(tags(&pool, &Selector::All), [None, zero.clone(), zero.clone(), one.clone(), one.clone(), one.clone()]);
    assert_eq!((tags(&pool, &even).len(), tags(&pool, &odd).len(), tags(&pool, &!odd.clone()).len()), (2, 3, 3));
    assert_eq!((tags(&pool, &even.clone().or(odd.clone())).len(), tags(&pool, &even.clone().and(odd.clone())).len()), (5, 0));

    pool.notify(&even, frame(b'e', 7))?;
    assert_eq!([clients[2].answer(), clients[4].answer()], [(b'e', 7); 2]);
    assert_eq!((pool.tag(&even, "green"), pool.tag(&Selector::tag("none"), "x")), (2, 0));
    assert_eq!((pool.apply_options(&Selector::tag("green")), tags(&pool, &even).len()), (2, 0));

    // Tags stay when another service takes over, and only those meant are taken over.
    pool.reconfigure(pool.config().behaviour(Actor { version: 2 }))?;
    let adopted = pool.adopt(&odd);
    assert_eq!((adopted.moved, adopted.stayed), (3, 0));
    assert_eq!((clients[1].version(), clients[2].version()), (2, 1));
    assert_eq!(tags(&pool, &Selector::Generation(2)), [one.clone(), one.clone(), one]);

    assert_eq!(pool.tag(&Selector::tag("green").or(odd), ""), 5);
    assert_eq!(tags(&pool, &Selector::All), [const { None }; 6]);
    clients.into_iter().for_each(Client::end);
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn connections_are_ended_by_their_tags(bench: &Bench) -> Outcome {
    if !bench.side_by_side() {
        return Ok(());
    }
    let (pool, at) = bench.start(bench.actor())?;
    bench.reaches_connections(&pool)?;
    let mut clients: Vec<Client> = (0..8).map(|_| Client::served(at)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(b'n', number as u32 / 2), (b'n', number as u32 / 2));
    }
    assert_eq!(pool.kill(&Selector::tag("tag-0")).cut, 2);
    for client in &mut clients[..2] {
        assert_eq!(client.0.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    }
    let mut left = clients.split_off(2).into_iter();
    let mut ends = |count: usize| -> Vec<_> {
        let meant: Vec<Client> = left.by_ref().take(count).collect();
        meant.into_iter().map(|mut client| thread::spawn(move || client.rest())).collect()
    };
    let readers = ends(2);
    let drained = pool.drain(&Selector::tag("tag-1"), Drain::within(PATIENCE));
    assert_eq!(drained, Drained { asked: 2, ended: 2, cut: 0, silent: 0 });
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().expect("an orderly end"), frame(b'd', 0)));
    let readers = ends(2);
    assert_eq!(pool.purge(&!Selector::tag("tag-3"), PATIENCE).asked, 2);
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().expect("an orderly end"), frame(b'd', 0)));
    for mut client in left {
        assert_eq!(client.version(), 1);
        client.end();
    }
    assert_settled(&pool);
    Ok(())
}

/// Checks that a connection that is asked to end, or named, is found by what it is doing.
pub(crate) fn connections_are_listed_by_what_they_do(bench: &Bench) -> Outcome {
    if !bench.side_by_side() {
        return Ok(());
    }
    let (pool, at) = bench.start(bench.actor())?;
    bench.reaches_connections(&pool)?;
    let mut all = [(); 4].map(|()| Client::served(at));
    let [_, receiving, sending, waiting] = &mut all;
    receiving.0.write_all(b"v").expect("it stands");
    sending.order(b'w', 16_000_000);
    waiting.order(b'x', 0);
    let states = |pool: &Pool| {
        let state = |client: &Client| {
            let peer = client.0.local_addr().expect("connected");
            pool.connections(&Selector::All).into_iter().find(|one| one.peer == Some(peer)).map(|one| one.state)
        };
        all.each_ref().map(state)
    };
    let wanted =
        [ConnectionState::Idle, ConnectionState::Receiving, ConnectionState::Sending, ConnectionState::Waiting].map(Some);
    assert!(pool.wait(PATIENCE, |_| states(&pool) == wanted), "{:?}", states(&pool));
    assert_eq!(all[0].version(), 1);
    assert_eq!(pool.kill(&Selector::All).cut, 4);
    Ok(())
}
