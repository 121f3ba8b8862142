//! A pool takes over from another by the real conversation: listeners, then connections, each with all that belongs to it.

#[path = "upgrade/blobs.rs"]
mod blobs;
#[path = "upgrade/busy.rs"]
mod busy;
#[path = "upgrade/carried.rs"]
mod carried;
mod common;
#[path = "upgrade/crossings.rs"]
mod crossings;
#[path = "upgrade/edges.rs"]
mod edges;
#[path = "upgrade/filtered.rs"]
mod filtered;
#[path = "upgrade/given_up.rs"]
mod given_up;
#[cfg(feature = "tokio")]
#[path = "upgrade/handlers.rs"]
mod handlers;
#[path = "upgrade/joins.rs"]
mod joins;
#[path = "upgrade/kills.rs"]
mod kills;
#[path = "upgrade/left.rs"]
mod left;
#[path = "upgrade/limit.rs"]
mod limit;
#[path = "upgrade/made.rs"]
mod made;
#[path = "upgrade/operations.rs"]
mod operations;
#[path = "upgrade/place.rs"]
mod place;
#[path = "upgrade/pools.rs"]
mod pools;
#[path = "upgrade/proxy.rs"]
mod proxy;
#[path = "pools/relays/records.rs"]
mod records;
#[path = "upgrade/relayed.rs"]
mod relayed;
#[path = "pools/relays/script.rs"]
mod script;
#[path = "upgrade/shaking.rs"]
mod shaking;
#[path = "upgrade/shared.rs"]
mod shared;
#[path = "upgrade/sums.rs"]
mod sums;

use common::{PATIENCE, Stops, address, any_port, connect, read, read_all, reset, tcp};
use place::{Place, config, id_of, many_sums, moved};
use sockdrawer::listening::{ListenOptions, Listening};
use sockdrawer::{Address, Drain, Model, Pool, Selector, Upgrade, observe::Status};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use sums::{add, answer, build, message};

#[test]
fn connections_go_on_in_the_next_build() {
    let place = Place::new("go-on");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut clients: Vec<_> = (0..100).map(|_| connect(at)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(add(client, number as u32 + 100), (1, number as u32 + 100));
    }
    // Half a message waits, and goes along.
    clients[0].write_all(&message(b'a', 5)[..2]).expect("it stands");
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 502));
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    moved(&old, &new, 100);
    clients[0].write_all(&message(b'a', 5)[2..]).expect("it stands");
    assert_eq!(answer(&mut clients[0], b'a'), (2, 105));
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        assert_eq!(add(client, 1), (2, number as u32 + 101));
    }
    let before: Vec<_> = new.connections(&Selector::All).into_iter().map(|one| one.id).collect();
    let mut late = connect(at);
    assert_eq!(add(&mut late, 7), (2, 7), "it listens at the same place");
    assert!(!before.contains(&id_of(&new, &late)), "numbers are not given twice");
    drop(late);
    assert!(new.wait(PATIENCE, |status| status.connections == 100));
    // And so on.
    let (newer, _) = place.serve(config(build(3)).listen(Address::Tcp(at)));
    moved(&new, &newer, 100);
    assert_eq!(add(&mut clients[99], 1), (3, 201));
}

#[test]
fn what_belongs_to_a_connection_comes_along() {
    // On a busy machine the way to the other build may take longer than the timer that is to come along.
    let tries = [2, 8, 32].map(Duration::from_secs);
    assert!(tries.into_iter().any(comes_along_before), "no upgrade within 32 s");
}

/// Returns whether the connections had moved before a timer of this time was due; if so, all that belongs to them came along.
fn comes_along_before(timer: Duration) -> bool {
    const MUCH: u32 = 8_000_000;
    let place = Place::new("belongs");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let (mut late, mut full, mut waits, mut named) = (connect(at), connect(at), connect(at), connect(at));
    late.set_read_timeout(Some(timer + PATIENCE)).expect("not zero");
    let began = Instant::now();
    late.write_all(&message(b't', timer.as_millis() as u32)).expect("it stands");
    assert_eq!(add(&mut full, 7), (1, 7));
    full.write_all(&[message(b'b', MUCH), message(b'a', 1)].concat()).expect("it stands");
    waits.write_all(&[message(b'a', 3), message(b'w', 0), message(b'a', 1)].concat()).expect("it stands");
    assert_eq!(answer(&mut waits, b'a'), (1, 3));
    named.write_all(&message(b'n', 77)).expect("it stands");
    assert_eq!(add(&mut named, 9), (1, 9));
    let listed = old.connections(&Selector::tag("77"));
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 5 + 15 + 15 + 10 && status.counts.bytes_out > 18));
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    moved(&old, &new, 4);
    if began.elapsed() >= timer {
        return false;
    }
    assert_eq!(answer(&mut late, b't'), (2, 0));
    assert!(began.elapsed() >= timer, "{:?}: never early", began.elapsed());
    let bytes = read(&mut full, MUCH as usize).expect("all of it");
    assert!(bytes.iter().all(|byte| *byte == 7));
    assert_eq!(answer(&mut full, b'a').1, 8, "what was held back is done after it");
    let again = new.connections(&Selector::tag("77"));
    assert_eq!((again.len(), again[0].id, again[0].peer), (1, listed[0].id, listed[0].peer));
    assert_eq!((again[0].bytes_in, again[0].bytes_out), (10, 6));
    // It waits until it is told something else.
    new.notify(&Selector::Id(id_of(&new, &waits)), *b"go on").expect("it is told");
    assert_eq!((answer(&mut waits, b'n'), answer(&mut waits, b'a')), ((2, 3), (2, 4)));
    true
}

#[test]
fn what_cannot_move_is_served_where_it_is() {
    let place = Place::new("stays");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut clients = (0..3).map(|_| connect(at)).collect::<Vec<_>>();
    clients[0].write_all(&message(b's', 0)).expect("it stands");
    for (client, number) in clients.iter_mut().zip([1, 13, 3]) {
        assert_eq!(add(client, number), (1, number));
    }
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 1));
    assert_eq!(add(&mut clients[0], 1), (1, 2), "its state cannot be saved");
    // Refused by the other; once it has another sum, it can move.
    assert_eq!(add(&mut clients[1], 1).1, 14);
    assert_eq!(add(&mut clients[2], 1), (2, 4));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2));
    assert_eq!(add(&mut clients[1], 1), (2, 15));
    drop(clients.remove(0));
    assert!(old.join().is_ok(), "nothing is left there");
    assert!(new.wait(PATIENCE, |status| status.connections == 2), "{:#?}", new.status());
}

#[test]
fn the_limit_holds_over_both() {
    let place = Place::new("limit");
    let (old, at) = place.serve(config(build(1)).listen(any_port()).limit(4));
    let mut clients: Vec<_> = (0..4).map(|_| connect(at)).collect();
    for client in &mut clients {
        client.write_all(&message(b's', 0)).expect("it stands");
        assert_eq!(add(client, 1), (1, 1));
    }
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)).limit(4));
    assert_eq!(old.status().connections, 4);
    freed_places_are_used(&new, |status| status.connections, clients, at);
}

/// Checks that freed places are used: there are four connections, some of them in the old process, and there is room for four.
fn freed_places_are_used(new: &Pool, counted: fn(Status) -> usize, mut clients: Vec<std::net::TcpStream>, at: SocketAddr) {
    let mut next = connect(at);
    next.write_all(&message(b'a', 5)).expect("it is connected by the kernel");
    assert!(new.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    assert_eq!(new.status().connections, 4, "there is no room");
    drop(clients.pop());
    assert_eq!(answer(&mut next, b'a'), (2, 5));
    assert!(counted(new.status()) <= 4);
}

#[test]
fn the_limit_of_an_address_holds_over_both() {
    let place = Place::new("address-limit");
    let listening = |at| Listening::new(at).limit(4);
    let (old, at) = place.serve(config(build(1)).listening(listening(any_port())));
    let mut clients = many_sums(at, 4);
    clients.iter_mut().take(2).for_each(|client| client.write_all(&message(b's', 0)).expect("it stands"));
    clients.iter_mut().for_each(|client| _ = add(client, 1));
    let (new, _) = place.serve(config(build(2)).listening(listening(Address::Tcp(at))));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2));
    assert_eq!((new.status().listeners[0].connections, old.status().connections), (4, 2));
    freed_places_are_used(&new, |status| status.listeners[0].connections, clients, at);
}

/// Starts five builds with five connections: each build but the last keeps one that cannot leave it. Calls `then` once a build
/// has taken over.
fn five_builds(
    place: &Place,
    mut then: impl FnMut(u8, &[Pool], &mut [std::net::TcpStream]),
) -> (Vec<Pool>, Vec<std::net::TcpStream>, SocketAddr) {
    let (first, at) = place.serve(config(build(1)).listen(any_port()).limit(20));
    let (mut pools, mut stays) = (vec![first], many_sums(at, 5));
    for next in 2..=5 {
        let client = &mut stays[usize::from(next) - 2];
        client.write_all(&message(b's', 0)).expect("it stands");
        assert_eq!(add(client, 1).0, next - 1);
        let (new, _) = place.serve(config(build(next)).listen(Address::Tcp(at)).limit(20));
        let here = |status: &Status| status.loops.iter().map(|one| one.connections).sum::<usize>();
        assert!(new.wait(PATIENCE, |status| here(status) == usize::from(6 - next)), "{:#?}", new.status());
        pools.push(new);
        then(next, &pools, &mut stays);
    }
    (pools, stays, at)
}

#[test]
fn an_upgrade_follows_while_a_process_before_still_has_connections() {
    let place = Place::new("chain");
    let (pools, mut stays, at) = five_builds(&place, |_, _, _| ());
    let last = pools.last().expect("five").clone();
    let refused = place.upgrade().begin().expect_err("four before it have connections").to_string();
    assert!(refused.ends_with("4 processes before it still have connections: end those first"), "{refused}");
    for (number, client) in stays.iter_mut().enumerate() {
        assert_eq!(add(client, 1).0, number as u8 + 1);
    }
    assert_eq!(last.status().connections, 5, "all count for the limit of the last");
    // A build in the middle ends first, and the first build last.
    for at in [1, 2, 3, 0] {
        stays[at].write_all(b"close").expect("it stands");
    }
    pools.iter().take(4).for_each(|pool| assert!(pool.join().is_ok()));
    assert!(last.wait(PATIENCE, |status| status.connections == 1), "{:#?}", last.status());
    let counts = last.status().counts;
    assert_eq!((counts.accepted + counts.moved_in, counts.accepted), (counts.closed + counts.moved_out + 1, 5), "{counts:#?}");
    let (next, _) = place.serve(config(build(6)).listen(Address::Tcp(at)));
    assert!(last.join().is_ok());
    assert_eq!((add(&mut stays[4], 1).0, next.status().connections), (6, 1));
}

#[test]
fn a_process_that_has_ended_is_counted_by_no_later_build() {
    let place = Place::new("counted");
    let (pools, _stays, _) = five_builds(&place, |build, pools, stays| {
        if build == 3 {
            // It met the second when that had the first before it.
            stays[0].write_all(b"close").expect("it stands");
            assert!(pools[0].join().is_ok());
        }
    });
    let began = Instant::now();
    let upgrade = loop {
        match place.upgrade().begin() {
            Ok(upgrade) => break upgrade,
            // Each tells the next within 200 ms.
            Err(refused) => assert!(began.elapsed() < PATIENCE, "three before it have connections: {refused}"),
        }
    };
    drop(upgrade);
    assert_eq!(pools[4].status().connections, 4);
}

#[test]
fn an_address_that_is_not_wanted_any_more_is_served_to_its_end_and_port_0_is_the_port_that_it_was() {
    let place = Place::new("given-up");
    let (old, at) = place.serve(config(build(1)).listen(any_port()).listen(Address::Tcp(([127, 0, 0, 2], 0).into())));
    let given_up = tcp(&old.addresses()[1]);
    let mut clients = [at, given_up].map(|at| many_sums(at, 1).remove(0));
    let upgrade = place.upgrade().stand_by(PATIENCE).begin().expect("it begins");
    let new = upgrade.start("sums", config(build(2)).listen(any_port())).expect("it starts");
    upgrade.ready().expect("it takes over");
    assert_eq!(address(&new), at);
    for at in [at, given_up] {
        assert_eq!(add(&mut connect(at), 1).0, 2, "while the other stands by");
    }
    // The next one makes it stand.
    let (next, _) = place.serve(config(build(3)).listen(any_port()));
    assert!(old.join().is_ok() && new.join().is_ok());
    assert!(next.wait(PATIENCE, |status| status.listeners.len() == 1 && status.retiring == 0), "{:#?}", next.status());
    assert_eq!((next.addresses(), next.config().limit), (vec![Address::Tcp(at)], None));
    assert!(std::net::TcpStream::connect(given_up).is_err(), "it is refused");
    clients.iter_mut().for_each(|client| assert_eq!(add(client, 1), (3, 2)));
}

#[test]
fn a_unix_path_is_passed_on_and_removed_by_the_last() {
    let (place, path) = (Place::new("unix"), Place::new("unix-path"));
    let with_mode = |mode| {
        let mut options = ListenOptions::default();
        options.mode = mode;
        options
    };
    let serve = |number, mode| {
        let upgrade = place.upgrade().begin().expect("it begins");
        let config = config(build(number)).listen_with(Address::Unix(path.0.clone()), with_mode(mode));
        let pool = upgrade.start("sums", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        pool
    };
    let add = |client: &mut UnixStream, number: u32| {
        let mut told = [0; 6];
        client.write_all(&message(b'a', number)).expect("it stands");
        client.read_exact(&mut told).expect("an answer");
        (told[1], told[2])
    };
    let inode = || std::fs::metadata(&path.0).map(|meta| meta.ino()).ok();
    let mode = || std::fs::metadata(&path.0).map(|meta| meta.mode() & 0o777).ok();
    let old = serve(1, None);
    // Its socket is one that took the path from another.
    old.update(|config| config.listeners(|listeners| listeners[0].options = with_mode(Some(0o666)))).expect("it is its path");
    let (mut client, before) = (UnixStream::connect(&path.0).expect("it listens"), inode());
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    assert_eq!(add(&mut client, 3), (1, 3));
    // A build that begins and gives up leaves the path alone.
    let unready = place.upgrade().begin().expect("it begins");
    let other_mode = config(build(2)).listen_with(Address::Unix(path.0.clone()), with_mode(Some(0o600)));
    let pool = unready.start("sums", other_mode).expect("it starts");
    pool.shutdown(Drain::within(PATIENCE));
    drop((pool, unready));
    assert_eq!((inode(), mode(), add(&mut client, 0)), (before, Some(0o666), (1, 3)));
    let new = serve(2, Some(0o660));
    moved(&old, &new, 1);
    drop(old);
    assert!(new.wait(PATIENCE, |_| mode() == Some(0o660)), "the mode is the new build's: {:?}", mode());
    assert_eq!(add(&mut client, 3), (2, 6));
    assert_eq!(add(&mut UnixStream::connect(&path.0).expect("it listens"), 1), (2, 1));
    assert!(before.is_some() && inode() == before, "it is the path that it was");
    new.shutdown(Drain::within(Duration::ZERO));
    assert_eq!(inode(), None);
}

#[test]
fn a_predecessor_that_is_shut_down_leaves_the_listeners_alone() {
    let place = Place::new("shut-down");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut client = many_sums(at, 1).remove(0);
    client.write_all(&message(b's', 0)).expect("it stands");
    assert_eq!(add(&mut client, 1), (1, 2));
    let upgrade = place.upgrade().stand_by(PATIENCE).begin().expect("it begins");
    let new = upgrade.start("sums", config(build(2)).listen(Address::Tcp(at))).expect("it starts");
    upgrade.ready().expect("it takes over");
    let refused = old.reconfigure(old.config().limit(7)).expect_err("it has been handed over").to_string();
    assert!(refused.contains("a new build of the program takes over"), "{refused}");
    assert_eq!(old.addresses(), [Address::Tcp(at)], "it may take it back");
    old.shutdown(Drain::within(Duration::from_millis(10)));
    let served = (0..50).map(|_| add(&mut connect(at), 1).0).collect::<Vec<_>>();
    assert!(served.iter().all(|build| *build == 2), "{served:?}");
    drop(client);
    new.shutdown(Drain::within(Duration::ZERO));
}

#[test]
fn a_successor_that_is_shut_down_ends_what_stayed_before_it() {
    let place = Place::new("both-end");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut clients = many_sums(at, 2);
    clients[0].write_all(&message(b's', 0)).expect("it stands");
    assert_eq!(add(&mut clients[0], 1), (1, 2));
    let upgrade = place.upgrade().stand_by(PATIENCE).begin().expect("it begins");
    let new = upgrade.start("sums", config(build(2)).listen(any_port())).expect("it starts");
    upgrade.ready().expect("it takes over");
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 1));
    assert_eq!(new.shutdown(Drain::within(PATIENCE)).cut, 0);
    assert!(old.join().is_ok(), "it is not to take over again");
    clients.iter_mut().for_each(|client| assert_eq!(read_all(client).expect("an orderly end"), b""));
    assert!(std::net::TcpStream::connect(at).is_err());
}

#[test]
fn a_pool_that_is_changed_meanwhile_is_not_taken_over_and_one_successor_waits_for_no_other() {
    let place = Place::new("changed");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let upgrade = place.upgrade().begin().expect("it begins");
    let pool = upgrade.start("sums", config(build(2)).listen(Address::Tcp(at))).expect("it starts");
    let refused = place.upgrade().begin().expect_err("another is at it").to_string();
    assert!(refused.contains(&format!("pid {} is taking over since 0 s", std::process::id())), "{refused}");
    old.reconfigure(old.config().limit(7)).expect("it is its own");
    let refused = upgrade.ready().expect_err("it knows another pool").to_string();
    assert!(refused.contains("the pool sums was changed meanwhile"), "{refused}");
    drop(pool);
    old.reconfigure(old.config().limit(8)).expect("it is its own again");
    assert_eq!(add(&mut connect(at), 1), (1, 1));
    assert!(old.wait(PATIENCE, |status| status.connections == 0));
    // A build that takes too long is not waited for.
    let within = Duration::from_secs(1);
    let slow = place.upgrade().within(within).begin().expect("it begins");
    let pool = slow.start("sums", config(build(2)).listen(Address::Tcp(at))).expect("it starts");
    // waits because: it is time that the predecessor measures.
    std::thread::sleep(2 * within);
    assert!(slow.ready().is_err(), "it came too late");
    let (new, _) = place.serve(config(build(3)).listen(Address::Tcp(at)));
    drop(pool);
    moved(&old, &new, 0);
}

#[test]
fn a_wider_address_at_a_port_of_the_old_build_is_refused_with_what_to_do() {
    let place = Place::new("wider");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let upgrade = place.upgrade().begin().expect("it begins");
    let wider = config(build(2)).listen(Address::Tcp(([0, 0, 0, 0], at.port()).into()));
    let refused = upgrade.start("sums", wider).expect_err("the port is taken").to_string();
    assert!(refused.contains("listens at another address of this port: have it listen there first"), "{refused}");
    drop(upgrade);
    assert_eq!(add(&mut connect(at), 1), (1, 1));
    old.shutdown(Drain::within(Duration::ZERO));
}

#[test]
fn a_second_start_by_mistake_is_told_what_to_do() {
    let place = Place::new("mistake");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut client = connect(at);
    assert_eq!(add(&mut client, 1), (1, 1));
    let refused = Upgrade::at(&place.0).begin().expect_err("nobody said that it may").to_string();
    let pid = std::process::id();
    assert!(
        refused.ends_with(&format!("pid {pid} serves here; start it with SOCKDRAWER_REPLACES={pid} to replace it")),
        "{refused}"
    );
    // A build that goes away before it is ready leaves nothing behind.
    drop(place.upgrade().begin().expect("it begins"));
    assert_eq!(add(&mut client, 1), (1, 2));
    assert_eq!(add(&mut connect(at), 1), (1, 1));
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    moved(&old, &new, 1);
}

#[test]
fn an_unknown_state_stays_and_a_path_that_is_no_meeting_place_is_refused() {
    let place = Place::new("unknown");
    let (old, at) = place.serve(config(build(2)).listen(any_port()));
    let mut client = connect(at);
    assert_eq!(add(&mut client, 1), (2, 1));
    // An older build reads version 1 only.
    let (new, _) = place.serve(config(build(1)).listen(Address::Tcp(at)));
    assert_eq!((add(&mut client, 1), add(&mut connect(at), 1)), ((2, 2), (1, 1)));
    assert_eq!(new.status().counts.moved_in, 0);
    drop(client);
    assert!(old.join().is_ok());
    let file = Place::new("file");
    std::fs::write(&file.0, "").expect("a file");
    let refused = Upgrade::at(&file.0).replaces("any").begin().expect_err("it is a file").to_string();
    assert!(refused.ends_with("what is there is no socket: choose another path"), "{refused}");
    assert!(file.0.exists());
    assert!(Upgrade::at(std::env::temp_dir()).replaces("any").begin().is_err());
}

#[test]
fn clients_that_come_meanwhile_notice_nothing() {
    const UPGRADES: u8 = 10;
    let place = Place::new("meanwhile");
    let (mut pool, at) = place.serve(config(build(1)).listen(any_port()));
    let over = std::sync::atomic::AtomicBool::new(false);
    let mut stay = many_sums(at, 50);
    std::thread::scope(|scope| {
        let stops = Stops(&over);
        let visitors: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut visits = 0;
                    while !over.load(std::sync::atomic::Ordering::SeqCst) {
                        let mut client = connect(at);
                        let first = add(&mut client, 2);
                        assert_eq!((first.1, add(&mut client, 2).1), (2, 4));
                        visits += 1;
                        // Leaves no port behind that is in use for a minute.
                        reset(client);
                    }
                    visits
                })
            })
            .collect();
        for next in 2..2 + UPGRADES {
            let (new, _) = place.serve(config(build(next)).listen(Address::Tcp(at)));
            assert!(pool.join().is_ok());
            pool = new;
            for client in &mut stay {
                add(client, 1);
            }
        }
        drop(stops);
        visitors.into_iter().for_each(|visitor| assert!(visitor.join().expect("served") > 0));
    });
    for client in &mut stay {
        assert_eq!(add(client, 1), (1 + UPGRADES, 1 + u32::from(UPGRADES) + 1));
    }
    let counts = pool.status().counts;
    let open = pool.status().connections as u64;
    assert_eq!(counts.accepted + counts.moved_in, counts.closed + counts.rejected + counts.moved_out + open, "{counts:#?}");
}

#[test]
fn notes_on_their_way_come_along() {
    for together in [false, true] {
        let place = Place::new("notes");
        let of = |number| {
            let mut service = build(number);
            service.state = if together { service.state.together() } else { service.state };
            service
        };
        let (old, at) = place.serve(config(of(1)).listen(any_port()));
        let mut clients = many_sums(at, 100);
        let (service, sender) = (of(2), old.clone());
        // The others are frozen then, or are there still.
        let notify = move || sender.notify(&Selector::All, *b"hear").expect("it runs");
        *service.on_restore.lock().expect("no panic") = Some(Box::new(notify));
        let (new, _) = place.serve(config(service).listen(Address::Tcp(at)));
        moved(&old, &new, 100);
        for client in &mut clients {
            assert_eq!((answer(client, b'n').1, add(client, 1)), (1, (2, 2)), "once");
        }
        assert_eq!((new.status().counts.notes, new.status().counts.notes_dropped), (100, 0));
    }
}

#[test]
fn what_a_service_shares_comes_along() {
    let place = Place::new("carry");
    let serve = |listen: Address, write: fn() -> Vec<u8>| {
        let (told, hears) = std::sync::mpsc::channel();
        let upgrade = place.upgrade().begin().expect("it begins");
        let pool = upgrade.start("sums", config(build(1)).listen(listen)).expect("it starts");
        upgrade.carry("topics", write, move |bytes| told.send(bytes.to_vec()).expect("it is waited for")).expect("it has begun");
        let ready = upgrade.ready();
        (pool, ready, hears)
    };
    let (old, ready, hears) = serve(any_port(), || vec![7; 300_000]);
    assert!(ready.is_ok() && hears.try_recv().is_err(), "there was none before it");
    let at = address(&old);
    let mut client = many_sums(at, 1).remove(0);
    let (new, ready, hears) = serve(Address::Tcp(at), || panic!("on purpose"));
    assert!(ready.is_ok() && hears.recv_timeout(PATIENCE) == Ok(vec![7; 300_000]));
    moved(&old, &new, 1);
    let (_, ready, hears) = serve(Address::Tcp(at), Vec::new);
    let refused = ready.expect_err("what it shares is not there").to_string();
    assert!(refused.contains("what is carried as topics could not be written: a panic"), "{refused}");
    assert!(hears.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected));
    assert_eq!((add(&mut client, 1), add(&mut connect(at), 1).1), ((1, 2), 1), "the one before goes on");
}

#[test]
fn a_kill_at_any_packet_costs_what_the_killed_process_had() {
    kills::kill_at_each_packet("a_kill_at_any_packet_costs_what_the_killed_process_had", Model::Loops);
}

#[test]
fn a_process_that_is_stopped_for_a_while_costs_nothing() {
    kills::stop_at_each_packet("a_process_that_is_stopped_for_a_while_costs_nothing", Model::Loops);
}

#[test]
fn an_age_goes_along_and_nothing_is_changed_before_the_upgrade() {
    let place = Place::new("age");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut client = many_sums(at, 1).remove(0);
    let aged = |pool: &Pool| pool.connections(&Selector::All).first().is_some_and(|one| one.age >= Duration::from_secs(2));
    assert!(old.wait(PATIENCE, |_| aged(&old)));
    let upgrade = place.upgrade().begin().expect("it begins");
    let new = upgrade.start("sums", config(build(2)).listen(Address::Tcp(at))).expect("it starts");
    let refused = new.reconfigure(new.config().limit(7)).expect_err("the sockets are the other's").to_string();
    assert!(refused.contains("the pool cannot be changed now: it takes no connections before Upgrade::ready"), "{refused}");
    upgrade.ready().expect("it takes over");
    moved(&old, &new, 1);
    assert!(aged(&new), "{:#?}", new.connections(&Selector::All));
    new.reconfigure(new.config().limit(7)).expect("it is its own");
    assert_eq!(add(&mut client, 1), (2, 2));
}

#[test]
fn what_the_next_build_wants_is_undone_by_its_death() {
    shared::what_the_next_build_wants("what_the_next_build_wants_is_undone_by_its_death", Model::Loops);
}
