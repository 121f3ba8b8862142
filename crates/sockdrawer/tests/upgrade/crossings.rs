//! Where an upgrade meets something else: an end, a change, a death, or a connection that has much to send.

use super::common::{PATIENCE, address, address_of_its_own, any_port, connect, kill, play, read, role, say};
use super::place::{Place, config, id_of, many_sums, moved};
use super::sums::{CANNOT_BE_RESTORED, CANNOT_BE_SAVED, OnRestore, Sums, add, answer, build, message};
use sockdrawer::{
    Address, Drain, Pool, Selector, Upgrade,
    admission::{Limits, PerPeer},
    observe::Event,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Returns a second build, which does something before it restores the first connection: all are in the first then, some of them
/// frozen.
fn while_offered(act: OnRestore) -> Sums {
    let service = build(2);
    *service.on_restore.lock().expect("no panic") = Some(act);
    service
}

fn end(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).map(|_| rest)
}

#[test]
fn those_that_a_purge_ends_do_not_move() {
    let place = Place::new("purge");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut clients = many_sums(at, 100);
    let (sender, (told, purged)) = (old.clone(), std::sync::mpsc::channel());
    let purge = move || told.send(sender.purge(&Selector::All, PATIENCE)).expect("it is waited for");
    let (new, _) = place.serve(config(while_offered(Box::new(purge))).listen(Address::Tcp(at)));
    // None that was frozen is closed twice, or goes on elsewhere.
    clients.iter_mut().for_each(|client| assert!(end(client).expect("in order").is_empty()));
    assert!(old.join().is_ok());
    let purged = purged.recv_timeout(PATIENCE).expect("it was done");
    assert_eq!((purged.asked, purged.ended, purged.cut), (100, 100, 0));
    assert_eq!((old.status().counts.moved_out, new.status().counts.moved_in), (0, 0));
    assert_eq!(add(&mut connect(at), 1), (2, 1));
}

#[test]
fn panics_of_save_and_restore_are_told_and_their_connections_move_later() {
    let place = Place::new("panics");
    let (tells, told) = std::sync::mpsc::channel();
    let observed = |service| {
        let tells = tells.clone();
        config(service).observer(move |event: &Event| {
            if let Event::ServicePanicked { message } = event {
                let _ = tells.send(message.split(", at ").next().unwrap_or_default().to_owned());
            }
        })
    };
    let (old, at) = place.serve(observed(build(1)).listen(any_port()));
    let mut clients = many_sums(at, 3);
    add(&mut clients[0], CANNOT_BE_RESTORED - 1);
    add(&mut clients[1], CANNOT_BE_SAVED - 1);
    let (new, _) = place.serve(observed(build(2)).listen(Address::Tcp(at)));
    let mut heard = std::collections::BTreeSet::new();
    while heard.len() < 2 {
        heard.insert(told.recv_timeout(PATIENCE).expect("both are told"));
    }
    assert_eq!(heard.into_iter().collect::<Vec<_>>(), ["in restore: a mistake of restore", "in save: a mistake of save"]);
    assert!(old.status().counts.panics > 0 && new.status().counts.panics > 0);
    // Each of them is where it was, and goes along once it can.
    clients.iter_mut().for_each(|client| _ = add(client, 16));
    moved(&old, &new, 3);
}

/// Checks that a connection does not act while the other process has a copy, which would be an old one if this process died then.
#[test]
fn what_is_done_to_those_that_are_offered_happens_once_they_are_known_to_stay() {
    /// Time that is as long as the first waits for the second, and more than go along.
    const WAITS: Duration = Duration::from_secs(1);
    const NOTES: usize = 2100;
    let place = Place::new("later");
    // All are offered at once.
    let (old, at) = place.serve(config(build(1)).loops(1).listen(any_port()));
    let mut clients = many_sums(at, 20);
    let ids = clients[..5].iter().map(|client| Selector::Id(id_of(&old, client))).collect::<Vec<_>>();
    let [killed, tagged, noted, drained, purged] = ids.try_into().expect("five");
    let (sender, watched) = (old.clone(), clients[2].try_clone().expect("a copy"));
    let ends = move |sender: Pool| {
        [
            std::thread::spawn({
                let sender = sender.clone();
                move || sender.drain(&drained, Drain::within(PATIENCE)).ended
            }),
            std::thread::spawn(move || sender.purge(&purged, PATIENCE).ended),
        ]
    };
    let (told, ending) = std::sync::mpsc::channel();
    let act = move || {
        let began = Instant::now();
        told.send(ends(sender.clone())).expect("it is waited for");
        assert_eq!((sender.kill(&killed).asked, sender.tag(&tagged, "later")), (1, 1));
        (0..NOTES).for_each(|_| sender.notify(&noted, *b"x").expect("it is told"));
        watched.set_nonblocking(true).expect("a socket");
        let acted = [
            sender.connections(&killed).is_empty(),
            !sender.connections(&Selector::tag("later")).is_empty(),
            watched.peek(&mut [0]).is_ok(),
        ];
        watched.set_nonblocking(false).expect("a socket");
        assert!(acted == [false; 3] || began.elapsed() >= WAITS, "{acted:?}");
    };
    let (new, _) = place.serve(config(while_offered(Box::new(act))).listen(Address::Tcp(at)));
    for ended in ending.recv_timeout(PATIENCE).expect("it was done") {
        assert_eq!(ended.join().expect("no panic"), 1);
    }
    assert_eq!(end(&mut clients[0]).expect_err("it was killed").kind(), ErrorKind::ConnectionReset);
    clients[3..5].iter_mut().for_each(|client| assert!(end(client).expect("in order").is_empty()));
    (0..NOTES).for_each(|_| assert_eq!(answer(&mut clients[2], b'n').1, 1));
    assert!(new.wait(PATIENCE, |status| status.connections == 17 && status.counts.moved_in == 17), "{:#?}", new.status());
    assert_eq!((old.status().counts.killed, new.connections(&Selector::tag("later")).len()), (1, 1));
    clients.drain(3..5);
    clients[1..].iter_mut().for_each(|client| assert_eq!(add(client, 1), (2, 2)));
}

#[test]
fn those_that_are_cut_at_once_do_not_move() {
    let place = Place::new("cut");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut clients = many_sums(at, 40);
    // They are owed an answer.
    for client in &mut clients {
        client.write_all(&[message(b'w', 0), message(b'a', 1)].concat()).expect("it stands");
    }
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 40 * 15));
    let (sender, (told, ended)) = (old.clone(), std::sync::mpsc::channel());
    let shutdown = move || told.send(sender.shutdown(Drain::within(Duration::ZERO))).expect("it is waited for");
    let (new, _) = place.serve(config(while_offered(Box::new(shutdown))).listen(Address::Tcp(at)));
    for client in &mut clients {
        assert_eq!(end(client).expect_err("cut off").kind(), ErrorKind::ConnectionReset);
    }
    let ended = ended.recv_timeout(PATIENCE).expect("it was done");
    assert_eq!((ended.asked, ended.cut), (40, 40));
    assert!(new.wait(PATIENCE, |status| status.connections == 0), "{:#?}", new.status());
    assert_eq!((add(&mut connect(at), 1), new.status().counts.moved_in), ((2, 1), 0));
}

#[test]
fn an_address_that_came_back_counts_only_its_own() {
    let place = Place::new("came-back");
    let (old, at) = place.serve(config(build(1)).listen(address_of_its_own()));
    let clients = many_sums(at, 5);
    for address in [any_port(), Address::Tcp(at)] {
        old.update(|config| without_listeners(config).listen(address.clone())).expect("another, and the first again");
    }
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    moved(&old, &new, 5);
    assert_eq!(new.status().listeners[0].connections, 0, "they came in before");
    drop(clients);
    assert!(new.wait(PATIENCE, |status| status.connections == 0));
    assert_eq!(add(&mut connect(at), 1), (2, 1), "it accepts");
}

fn without_listeners(config: sockdrawer::Config) -> sockdrawer::Config {
    config.listeners(|listeners| listeners.clear())
}

#[test]
fn one_with_much_unsent_follows_later() {
    const MUCH: u32 = 40_000_000;
    let place = Place::new("much");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut clients = many_sums(at, 3);
    clients[0].write_all(&message(b'b', MUCH)).expect("it stands");
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_out > 3 * 6));
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2), "{:#?}", new.status());
    assert_eq!((add(&mut clients[1], 1), old.status().connections), ((2, 2), 1));
    assert!(read(&mut clients[0], MUCH as usize).expect("all of it").iter().all(|byte| *byte == 1));
    moved(&old, &new, 3);
    assert_eq!(add(&mut clients[0], 1), (2, 2));
}

#[test]
fn a_pool_that_was_shut_down_is_no_part_of_an_upgrade() {
    let place = Place::new("was-shut-down");
    let upgrade = place.upgrade().begin().expect("it begins");
    let pool = upgrade.start("sums", config(build(1)).listen(any_port())).expect("it starts");
    let other = upgrade.start("admin", config(build(1)).listen(any_port())).expect("it starts");
    upgrade.ready().expect("it serves");
    other.shutdown(Drain::within(PATIENCE));
    let mut client = many_sums(address(&pool), 1).remove(0);
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(address(&pool))));
    moved(&pool, &new, 1);
    assert_eq!(add(&mut client, 1), (2, 2));
}

#[test]
fn the_place_is_free_when_the_successor_is_dead_though_a_connection_stayed() {
    let place = Place::new("dead");
    if let Some(role) = role() {
        let [path, at] = role.split(' ').collect::<Vec<_>>().try_into().expect("two words");
        let upgrade = Upgrade::at(path).replaces("any").stand_by(Duration::ZERO).begin().expect("it begins");
        let at = Address::Tcp(at.parse().expect("an address"));
        let pool: Pool = upgrade.start("sums", config(build(2)).listen(at)).expect("it starts");
        upgrade.ready().expect("it takes over");
        say("ready");
        return pool.join().expect("it is killed");
    }
    // Another build that serves may be found before the end of the next one is noticed: what stayed may stay even so.
    let first = place.upgrade().stays(Duration::from_secs(3600), Drain::within(PATIENCE)).begin().expect("it begins");
    let old = first.start("sums", config(build(1)).listen(address_of_its_own())).expect("it starts");
    first.ready().expect("it serves");
    let at = address(&old);
    let mut clients = many_sums(at, 2);
    clients[0].write_all(&message(b's', 0)).expect("it stands");
    add(&mut clients[0], 0);
    let name = "crossings::the_place_is_free_when_the_successor_is_dead_though_a_connection_stayed";
    let mut next = play(name, &format!("{} {at}", place.0.display()));
    next.hear();
    assert!(old.wait(PATIENCE, |status| status.connections == 1), "{:#?}", old.status());
    assert_eq!(add(&mut clients[1], 1), (2, 2));
    // It stands once it has said so: then this process has none of the listening sockets.
    let began = Instant::now();
    while listens(at.port()) {
        assert!(began.elapsed() < PATIENCE, "it still stands by");
        // waits because: nothing tells it from outside.
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(next.id());
    // It has ended, in whichever way.
    let _ = end(&mut clients[1]);
    drop(next);
    let (new, _) = place.serve(config(build(3)).listen(Address::Tcp(at)));
    assert_eq!((add(&mut clients[0], 1), add(&mut connect(at), 1)), ((1, 2), (3, 1)));
    assert_eq!(answer_to(&mut clients[0], 5), 7);
    drop(clients);
    assert!(old.join().is_ok());
    new.shutdown(Drain::within(PATIENCE));
}

#[test]
fn a_limit_of_a_peer_holds_over_both() {
    let place = Place::new("peer");
    let of = |number| config(build(number)).admission(Limits::default().per_peer(PerPeer::address(4)));
    let (old, at) = place.serve(of(1).listen(any_port()));
    let mut clients = many_sums(at, 4);
    clients.iter_mut().take(2).for_each(|client| {
        client.write_all(&message(b's', 0)).expect("it stands");
        add(client, 1);
    });
    let turned_away =
        || end(&mut connect(at)).map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |bytes| bytes.is_empty());
    assert!(turned_away(), "it has four");
    let (new, _) = place.serve(of(2).listen(Address::Tcp(at)));
    assert!(turned_away(), "it has four still, some of them on their way");
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2), "{:#?}", new.status());
    assert!(turned_away(), "two of them stayed");
    // A connection that stayed ends, then one that moved: each leaves room for one.
    for at_end in [0, 2] {
        drop(clients.remove(at_end));
        assert!(new.wait(PATIENCE, |status| status.connections == 3), "{:#?}", new.status());
        let mut next = connect(at);
        assert_eq!(add(&mut next, 1), (2, 1));
        assert!(turned_away());
        clients.push(next);
    }
    drop(clients);
    assert!(old.join().is_ok());
    assert!(new.wait(PATIENCE, |status| status.connections == 0));
    assert_eq!(many_sums(at, 4).len(), 4);
}

/// Returns true where this process has a socket that listens at this port.
fn listens(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("a list");
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A").then(|| format!("socket:[{}]", fields[9]))
    };
    let listening: Vec<String> = sockets.lines().skip(1).filter_map(listening).collect();
    let open = std::fs::read_dir("/proc/self/fd").expect("a list").filter_map(Result::ok);
    let mut links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| listening.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

fn answer_to(client: &mut TcpStream, number: u32) -> u32 {
    client.write_all(&message(b'a', number)).expect("it stands");
    answer(client, b'a').1
}
