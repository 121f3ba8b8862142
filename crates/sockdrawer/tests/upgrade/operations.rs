//! Operations of the new build's pool reach the connections that stayed before it, too.

use super::common::{PATIENCE, address, any_port, assert_reset, connect, hear, play, read_all, role, say, tcp};
use super::place::{Place, config, id_of, many_sums};
use super::sums::{add, answer, build, message};
use rustix::process::{Pid, Signal, kill_process};
use sockdrawer::{Address, Config, ConnectionId, Drain, Drained, Keepalive, Model, Pool, Selector, Upgrade};
use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A build, the one before it, and the clients of both.
struct Scene {
    place: Place,
    at: SocketAddr,
    old: Pool,
    new: Pool,
    stay: Vec<TcpStream>,
    moved: Vec<TcpStream>,
}

/// Returns a scene in which `stay` connections stay and `moves` connections move.
fn scene(name: &str, stay: usize, moves: usize) -> Scene {
    let place = Place::new(name);
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let (mut stay, moved) = (many_sums(at, stay), many_sums(at, moves));
    stay_from_now_on(&mut stay);
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == moves as u64), "{:#?}", new.status());
    Scene { place, at, old, new, stay, moved }
}

fn stay_from_now_on(clients: &mut [TcpStream]) {
    for client in clients {
        client.write_all(&message(b's', 0)).expect("it stands");
        add(client, 0);
    }
}

fn ids(pool: &Pool, selector: &Selector) -> HashSet<ConnectionId> {
    let listed = pool.connections(selector);
    let ids: HashSet<_> = listed.iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), listed.len(), "each is listed once");
    ids
}

/// Lets each client read what comes until the end, and end too.
fn ending(clients: Vec<TcpStream>) -> Vec<JoinHandle<std::io::Result<Vec<u8>>>> {
    clients.into_iter().map(|mut client| std::thread::spawn(move || read_all(&mut client))).collect()
}

fn drained(count: usize) -> Drained {
    let mut all = Drained::default();
    (all.asked, all.ended) = (count, count);
    all
}

#[test]
fn what_stayed_is_listed_and_found() {
    let Scene { old, new, at, stay, moved, .. } = scene("listed", 3, 4);
    let stayed = ids(&old, &Selector::All);
    assert_eq!((stayed.len(), ids(&new, &Selector::All).len(), new.status().connections), (3, 7, 7));
    for one in new.connections(&Selector::All) {
        assert_eq!(one.generation, u32::from(!stayed.contains(&one.id)), "a generation of this pool, or 0");
        assert_eq!((one.listener, one.bytes_out), (Some(Address::Tcp(at)), if stayed.contains(&one.id) { 12 } else { 6 }));
    }
    let peers: HashSet<_> = new.connections(&Selector::All).into_iter().map(|one| one.peer).collect();
    assert!(stay.iter().chain(&moved).all(|client| peers.contains(&client.local_addr().ok())));
    let id = id_of(&old, &stay[0]);
    assert_eq!(ids(&new, &Selector::Id(id)), HashSet::from([id]));
    // Connections that stayed there are older than all generations here.
    assert_eq!(ids(&new, &Selector::Before(1)), stayed);
    assert_eq!(ids(&new, &!Selector::Before(1)).len(), 4);
    assert_eq!((ids(&new, &Selector::Generation(1)).len(), ids(&new, &!Selector::Generation(1))), (4, stayed));
    assert_eq!(ids(&new, &Selector::Listener(Address::Tcp(at))).len(), 7);
    let nested = (0..1000).fold(Selector::All, |inner, _| Selector::Every(vec![inner]));
    assert_eq!(ids(&new, &nested).len(), 4, "too long a way for it");
    assert_eq!(new.adopt(&Selector::All), new.adopt(&Selector::Any(Vec::new())), "nothing is adopted there");
}

#[test]
fn what_stayed_is_named_and_told_notes() {
    let Scene { old, new, mut stay, mut moved, .. } = scene("named", 3, 4);
    let id = id_of(&old, &stay[1]);
    assert_eq!((new.tag(&Selector::Id(id), "one"), ids(&new, &Selector::tag("one"))), (1, HashSet::from([id])));
    new.notify(&Selector::tag("one"), *b"note").expect("few notes");
    assert_eq!(answer(&mut stay[1], b'n'), (1, 1));
    assert_eq!((new.tag(&Selector::All, "all"), ids(&old, &Selector::tag("all")).len()), (7, 3));
    assert_eq!(new.tag(&!Selector::tag("all"), "none"), 0);
    (0..3).for_each(|_| new.notify(&Selector::All, *b"note").expect("few notes"));
    let both = stay.iter_mut().map(|client| (1, client)).chain(moved.iter_mut().map(|client| (2, client)));
    for (build, client) in both {
        (0..3).for_each(|_| assert_eq!(answer(client, b'n'), (build, 1)));
        assert_eq!(add(client, 1), (build, 2), "no more notes");
    }
}

#[test]
fn options_of_what_stayed_are_read_and_set() {
    let Scene { old, new, stay, moved: _moved, .. } = scene("set", 2, 3);
    let id = id_of(&old, &stay[0]);
    assert_eq!(new.options(id).expect("it is found").keepalive, None);
    let probes = Keepalive { idle: Duration::from_secs(70), interval: Duration::from_secs(7), probes: 3 };
    new.update(|mut config| {
        config.settings.options.keepalive = Some(probes);
        config
    })
    .expect("it runs");
    assert_eq!(new.apply_options(&Selector::All), 5);
    assert_eq!(new.options(id).expect("it is found").keepalive, Some(probes));
    assert_eq!(new.options(ConnectionId(u64::MAX)), None);
}

#[test]
fn what_stayed_is_killed() {
    let Scene { old, new, mut stay, mut moved, .. } = scene("killed", 3, 3);
    assert_eq!(new.kill(&Selector::Id(id_of(&old, &stay[0]))).cut, 1);
    assert_reset(&mut stay.remove(0));
    assert_eq!(new.kill(&Selector::Id(id_of(&new, &moved[0]))).cut, 1);
    assert_reset(&mut moved.remove(0));
    assert_eq!((add(&mut stay[0], 1), add(&mut moved[0], 1)), ((1, 2), (2, 2)));
    assert_eq!(new.kill(&Selector::All).cut, 4);
    stay.iter_mut().chain(&mut moved).for_each(assert_reset);
    assert!(old.join().is_ok(), "nothing is left there");
    assert!(new.wait(PATIENCE, |status| status.connections == 0), "{:#?}", new.status());
    assert_eq!(new.status().counts.killed, 6);
}

#[test]
fn what_stayed_is_purged_and_drained() {
    let Scene { old, new, stay, mut moved, .. } = scene("purged", 4, 4);
    let first = [id_of(&old, &stay[0]), id_of(&new, &moved[0])].map(Selector::Id);
    let last = moved.split_off(1);
    let (stay, moved) = (ending(stay), ending(moved));
    assert_eq!(new.purge(&first[0], PATIENCE), drained(1));
    assert_eq!(new.drain(&first[1], Drain::within(PATIENCE)), drained(1));
    assert_eq!(new.purge(&Selector::Before(1), PATIENCE), drained(3));
    assert!(old.join().is_ok(), "nothing is left there");
    let last = ending(last);
    assert_eq!(new.drain(&Selector::All, Drain::within(PATIENCE)), drained(3));
    let ends = stay.into_iter().chain(moved).chain(last).map(|end| end.join().expect("no panic"));
    assert_eq!(ends.filter(|bytes| bytes.as_ref().is_ok_and(Vec::is_empty)).count(), 8, "orderly ends");
}

#[test]
fn a_part_of_what_stayed_is_drained_with_its_part_of_the_others() {
    let Scene { old, new, stay, moved, .. } = scene("parts", 6, 3);
    let _ends = (ending(stay), ending(moved));
    let most = |most| Drain::within(PATIENCE).max_connections(most);
    assert_eq!(new.drain(&Selector::All, most(3)), drained(3));
    assert_eq!((old.connections(&Selector::All).len(), new.connections(&Selector::All).len()), (4, 6));
    assert_eq!(new.drain(&Selector::Before(1), most(1).rate(1000.0)), drained(1), "all of it where the connections are");
    assert_eq!(new.drain(&Selector::Generation(1), most(100)), drained(2));
    assert_eq!(new.drain(&Selector::All, Drain::within(PATIENCE).rate(1000.0)), drained(3));
    assert!(old.join().is_ok(), "nothing is left there");
}

#[test]
fn what_stayed_before_what_stayed_is_reached_too() {
    let Scene { place, at, old, new, mut stay, mut moved } = scene("chained", 2, 3);
    let mut middle = moved.split_off(1);
    stay_from_now_on(&mut middle);
    let (last, _) = place.serve(config(build(3)).listen(Address::Tcp(at)));
    let is_here = |status: &sockdrawer::observe::Status| status.loops.iter().map(|one| one.connections).sum::<usize>() == 1;
    assert!(last.wait(PATIENCE, is_here), "{:#?}", last.status());
    assert_eq!([&old, &new, &last].map(|pool| ids(pool, &Selector::All).len()), [2, 4, 5]);
    assert_eq!((ids(&last, &Selector::Before(1)).len(), last.tag(&Selector::All, "all")), (4, 5));
    assert_eq!([&old, &new, &last].map(|pool| ids(pool, &Selector::tag("all")).len()), [2, 4, 5]);
    last.notify(&Selector::All, *b"note").expect("few notes");
    for (build, clients) in [(1, &mut stay), (2, &mut middle), (3, &mut moved)] {
        clients.iter_mut().for_each(|client| assert_eq!((answer(client, b'n').0, add(client, 1)), (build, (build, 2))));
    }
    assert_eq!(last.kill(&Selector::Id(id_of(&old, &stay[0]))).cut, 1);
    assert_reset(&mut stay[0]);
    assert!(last.options(id_of(&old, &stay[1])).is_some());
    let _ends = [stay, middle, moved].map(ending);
    assert_eq!(last.drain(&Selector::All, Drain::within(PATIENCE).max_connections(4)), drained(4));
    assert!(old.join().is_ok() && new.join().is_ok());
}

#[test]
fn each_connection_is_reached_once_while_it_moves() {
    const CONNECTIONS: usize = 300;
    let place = Place::new("each");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let (mut clients, mut notes) = (many_sums(at, CONNECTIONS), 0);
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    loop {
        let over = new.status().counts.moved_in == CONNECTIONS as u64;
        assert_eq!(ids(&new, &Selector::All).len(), CONNECTIONS);
        new.notify(&Selector::All, *b"note").expect("few notes");
        notes += 1;
        // Not each time: what is named while it is offered moves later.
        if over || notes % 16 == 1 {
            assert_eq!(new.tag(&Selector::All, &notes.to_string()), CONNECTIONS);
        }
        if over {
            break;
        }
    }
    assert!(old.join().is_ok());
    for client in &mut clients {
        (0..notes).for_each(|_| _ = answer(client, b'n'));
        assert_eq!(add(client, 1), (2, 2), "no more than {notes}");
    }
    let (newer, _) = place.serve(config(build(3)).listen(Address::Tcp(at)));
    assert_eq!(newer.kill(&Selector::All).cut, CONNECTIONS);
    assert!(new.join().is_ok() && newer.connections(&Selector::All).is_empty());
    clients.iter_mut().for_each(assert_reset);
}

/// Checks that without the predecessor's answer, what is here is done.
#[test]
fn a_predecessor_that_is_stopped_or_gone_holds_up_nothing() {
    let name = "operations::a_predecessor_that_is_stopped_or_gone_holds_up_nothing";
    if let Some(path) = role() {
        let upgrade = Upgrade::at(path).replaces("any").begin().expect("it begins");
        let pool = upgrade.start("sums", config(build(1)).listen(any_port())).expect("it starts");
        upgrade.ready().expect("it serves");
        say(&address(&pool).to_string());
        hear();
        return;
    }
    let place = Place::new("stopped");
    let mut old = play(name, &place.0.display().to_string());
    let at: SocketAddr = old.hear().parse().expect("an address");
    let (mut stay, mut moved) = (many_sums(at, 2), many_sums(at, 3));
    stay_from_now_on(&mut stay);
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 3), "{:#?}", new.status());
    let here: Vec<_> = moved.iter().map(|client| id_of(&new, client)).collect();
    assert_eq!(new.connections(&Selector::All).len(), 5);
    let pid = Pid::from_raw(old.0.id().cast_signed()).expect("a pid");
    let there = id_of(&new, &stay[0]);
    kill_process(pid, Signal::STOP).expect("it lives");
    let killed = new.kill(&Selector::Id(there));
    assert_eq!((killed.cut, killed.silent), (0, 1), "it is killed once that process goes on");
    let began = Instant::now();
    // It is here: no answer is waited for. A note waits for none.
    assert_eq!((new.kill(&Selector::Id(here[0])).cut, new.tag(&Selector::Id(here[1]), "here")), (1, 1));
    assert_reset(&mut moved.remove(0));
    (0..2000).for_each(|_| _ = new.notify(&Selector::All, *b"note"));
    (0..2000).for_each(|_| _ = answer(&mut moved[0], b'n'));
    std::thread::scope(|scope| {
        let asks = [
            scope.spawn(|| new.connections(&Selector::All).len()),
            scope.spawn(|| new.tag(&Selector::All, "all")),
            scope.spawn(|| new.drain(&Selector::Any(Vec::new()), Drain::within(PATIENCE)).asked),
        ];
        old.0.kill().expect("it lives");
        assert_eq!(asks.map(|asks| asks.join().expect("no panic")), [2, 2, 0]);
    });
    // Asking waits for some seconds at most, and not for as long as the drain may take.
    assert!(began.elapsed() < PATIENCE * 2 / 3, "{:?}", began.elapsed());
    assert_eq!(new.purge(&Selector::All, PATIENCE), drained(2));
    assert!(connect(at).write_all(b"close").is_ok());
}

#[test]
fn a_long_list_has_each_connection_once_in_whatever_process_it_is() {
    for model in [Model::Loops, Model::Threads] {
        let place = Place::new(&format!("list-{model}"));
        let (old, at) = place.serve(config(build(1)).listen(any_port()));
        let mut clients = many_sums(at, 600);
        for client in clients.iter_mut().step_by(2) {
            client.write_all(&message(b's', 0)).expect("it stands");
            assert_eq!(add(client, 1), (1, 2));
        }
        let (new, _) = place.serve(config(build(2)).model(model).listen(Address::Tcp(at)));
        let list = || new.each_connection(&Selector::All).map(|one| one.id.0).collect::<Vec<_>>();
        // While they move, and once those have moved that can.
        while new.status().counts.moved_in < 300 {
            let listed = list();
            assert!(listed.is_sorted_by(|one, next| one < next) && listed.len() == 600, "{} of 600", listed.len());
        }
        let listed = list();
        assert!(listed.is_sorted_by(|one, next| one < next) && listed.len() == 600, "{} of 600", listed.len());
        assert_eq!(old.connections(&Selector::All).len(), 300);
        drop(clients);
        assert!(old.join().is_ok() && new.wait(PATIENCE, |status| status.connections == 0));
    }
}

#[test]
fn an_end_waits_for_no_loop_that_hangs_before_the_predecessor_stands_by_no_more() {
    let place = Place::new("ends-early");
    let serve = |config: Config| {
        let upgrade = place.upgrade().stand_by(Duration::from_millis(300)).begin().expect("it begins");
        let pool = upgrade.start("sums", config).expect("it starts");
        upgrade.ready().expect("it takes over");
        pool
    };
    let three = (0..3).fold(config(build(1)), |config, _| config.listen(any_port()));
    let old = serve(three);
    let addresses = old.addresses();
    let new = serve(addresses.iter().fold(config(build(2)), |config, at| config.listen(at.clone())));
    let mut busy = many_sums(tcp(&addresses[0]), 1).remove(0);
    let received = new.status().counts.bytes_in;
    busy.write_all(&message(b'h', 20_000)).expect("it stands");
    assert!(new.wait(PATIENCE, |status| status.counts.bytes_in == received + 5));
    old.join().expect("it stands by no more");
    let began = Instant::now();
    new.shutdown(Drain::within(Duration::from_secs(1)));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
