//! New builds whose pools are not those of the old one: dropped, renamed, with addresses that went from one to another.

use super::common::{PATIENCE, address, address_of_its_own, any_port, connect, hear, play, read_all, role, say, tcp};
use super::kills::kill_with_helpers;
use super::place::{Place, config, many_sums};
use super::sums::{add, answer, build, message};
use sockdrawer::observe::Readiness;
use sockdrawer::{Address, Drain, Model, Pool, Upgrade};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

fn start(upgrade: &Upgrade, name: &str, number: u8, model: Model, at: &[Address]) -> Pool {
    let config = at.iter().cloned().fold(config(build(number)).model(model), sockdrawer::Config::listen);
    upgrade.start(name, config).expect("it starts")
}

/// The models whose connections a new build can go on with, and one whose connections stay.
const MODELS: [Model; 3] = [Model::Loops, Model::Threads, Model::Tasks];

/// Starts a process with two pools, and returns where they listen: the second at two addresses.
fn two_pools(place: &Place, model: Model) -> (Upgrade, [Pool; 2], [SocketAddr; 3]) {
    let upgrade = place.upgrade().ends(Drain::within(PATIENCE)).begin().expect("it begins");
    let one = start(&upgrade, "one", 1, model, &[any_port()]);
    let two = start(&upgrade, "two", 1, model, &[any_port(), any_port()]);
    upgrade.ready().expect("it serves");
    let at = [address(&one), address(&two), tcp(&two.addresses()[1])];
    (upgrade, [one, two], at)
}

fn at(address: SocketAddr) -> Address {
    Address::Tcp(address)
}

fn is_ended(client: &mut TcpStream) {
    assert_eq!(read_all(client).expect("an end in order"), b"");
}

#[test]
fn a_pool_that_the_new_build_drops_is_served_until_that_stands_and_then_drained() {
    for model in MODELS {
        let place = Place::new("dropped");
        let (_old, [one, two], [first, second, third]) = two_pools(&place, model);
        let mut clients = [first, second, third].map(|at| many_sums(at, 1).remove(0));
        two.suspend_listener(&at(third)).expect("it is its own");
        let mut queued = connect(third);
        queued.write_all(&message(b'a', 1)).expect("it is in the queue");
        let upgrade = place.upgrade().stand_by(PATIENCE).begin().expect("it begins");
        let new = start(&upgrade, "one", 2, Model::Loops, &[at(first)]);
        upgrade.ready().expect("it takes over");
        assert!(one.wait(PATIENCE, |status| status.counts.moved_out == 1));
        assert_eq!((add(&mut clients[0], 1), add(&mut clients[1], 1), add(&mut connect(second), 1)), ((2, 2), (1, 2), (1, 1)));
        assert_eq!(two.status().readiness, Readiness::Serving, "the new build does not stand yet");
        two.resume_listener(&at(third)).expect("it is its own");
        assert_eq!(answer(&mut queued, b'a').0, 1);
        // The next one makes it stand.
        let last = place.upgrade().begin().expect("it begins");
        let newer = start(&last, "one", 3, Model::Loops, &[at(first)]);
        last.ready().expect("it takes over");
        clients[1..].iter_mut().chain([&mut queued]).for_each(is_ended);
        assert!(two.join().is_ok() && one.join().is_ok() && new.join().is_ok());
        assert!(TcpStream::connect(second).is_err(), "it is refused");
        assert_eq!(add(&mut clients[0], 1), (3, 3));
        assert_eq!(newer.status().connections, 1);
    }
}

#[test]
fn a_renamed_pool_has_the_sockets_at_once_and_the_connections_of_the_old_name_are_drained() {
    for model in MODELS {
        let place = Place::new("renamed");
        let (_old, [one, two], [first, second, third]) = two_pools(&place, model);
        let mut clients = [first, second, third].map(|at| many_sums(at, 1).remove(0));
        let upgrade = place.upgrade().stand_by(PATIENCE).begin().expect("it begins");
        let kept = start(&upgrade, "one", 2, Model::Loops, &[at(first)]);
        let renamed = start(&upgrade, "three", 2, Model::Loops, &[at(second)]);
        upgrade.ready().expect("it takes over");
        assert_eq!(add(&mut connect(second), 1), (2, 1), "it is the new pool's");
        assert_eq!(add(&mut connect(third), 1), (1, 1), "it is given up once the new build stands");
        assert!(one.wait(PATIENCE, |status| status.counts.moved_out == 1));
        assert_eq!((add(&mut clients[0], 1), add(&mut clients[1], 1)), ((2, 2), (1, 2)));
        // That makes it stand, and the old pool end.
        assert_eq!(renamed.shutdown(Drain::within(PATIENCE)).cut, 0);
        clients[1..].iter_mut().for_each(is_ended);
        assert!(two.join().is_ok() && one.join().is_ok());
        assert!(TcpStream::connect(third).is_err(), "it is refused");
        assert_eq!((add(&mut clients[0], 1), kept.status().connections), ((2, 3), 1));
    }
}

#[test]
fn the_old_build_has_again_what_it_gave_up_where_the_new_one_dies() {
    if let Some(role) = role() {
        let [path, first, second] = role.split(' ').collect::<Vec<_>>().try_into().expect("three words");
        let upgrade = Upgrade::at(path).replaces("any").stand_by(PATIENCE).begin().expect("it begins");
        let listening = |address: &str| [Address::Tcp(address.parse().expect("an address"))];
        let _pools = [
            start(&upgrade, "uno", 2, Model::Loops, &listening(first)),
            start(&upgrade, "tres", 2, Model::Loops, &listening(second)),
        ];
        upgrade.ready().expect("it takes over");
        say("ready");
        hear();
        return;
    }
    let place = Place::new("renamed-back");
    let (_old, [one, two], [first, second, third]) = two_pools(&place, Model::Loops);
    let mut kept = many_sums(second, 1).remove(0);
    let name = "given_up::the_old_build_has_again_what_it_gave_up_where_the_new_one_dies";
    let mut new = play(name, &format!("{} {first} {second}", place.0.display()));
    new.hear();
    assert_eq!([first, second, third].map(|at| add(&mut connect(at), 1).0), [2, 2, 1]);
    kill_with_helpers(new.id());
    let is_back = |pool: &Pool, count| pool.wait(PATIENCE, |status| status.listeners.len() == count);
    assert!(is_back(&one, 1) && is_back(&two, 2));
    for (pool, addresses) in [(&one, vec![first]), (&two, vec![second, third])] {
        addresses.into_iter().for_each(|at| assert_eq!(add(&mut connect(at), 1), (1, 1)));
        pool.reconfigure(pool.config().limit(9)).expect("it is its own again");
    }
    assert_eq!(add(&mut kept, 1), (1, 2));
}

/// Nobody counts what the first has once the second is dead, and nobody would ask it to end.
#[test]
fn the_death_of_the_middle_one_of_three_builds_leaves_no_process_behind() {
    if let Some(role) = role() {
        let (path, first) = role.split_once(' ').expect("two words");
        let upgrade = Upgrade::at(path).replaces("any").stand_by(Duration::ZERO).begin().expect("it begins");
        let _pool = start(&upgrade, "one", 2, Model::Loops, &[Address::Tcp(first.parse().expect("an address"))]);
        upgrade.ready().expect("it takes over");
        say("ready");
        hear();
        return;
    }
    for stays in [None, Some(PATIENCE * 60)] {
        let place = Place::new("middle");
        let mut upgrade = place.upgrade().ends(Drain::within(PATIENCE));
        if let Some(time) = stays {
            upgrade = upgrade.stays(time, Drain::within(PATIENCE));
        }
        let upgrade = upgrade.begin().expect("it begins");
        let old = start(&upgrade, "one", 1, Model::Loops, &[any_port()]);
        upgrade.ready().expect("it serves");
        let listening = address(&old);
        let mut clients = many_sums(listening, 2);
        clients[0].write_all(&message(b's', 0)).expect("it stands");
        let name = "given_up::the_death_of_the_middle_one_of_three_builds_leaves_no_process_behind";
        let mut middle = play(name, &format!("{} {listening}", place.0.display()));
        middle.hear();
        let last = place.upgrade().begin().expect("it begins");
        let new = start(&last, "one", 3, Model::Loops, &[at(listening)]);
        last.ready().expect("it takes over");
        assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2 && status.connections == 2), "{:#?}", new.status());
        assert_eq!(add(&mut clients[0], 1), (1, 2), "it may stay while it is counted");
        kill_with_helpers(middle.id());
        // The permit of the first one's is free: nobody counts it.
        assert!(new.wait(PATIENCE, |status| status.connections == 1), "{:#?}", new.status());
        match stays {
            None => is_ended(&mut clients[0]),
            Some(_) => assert_eq!(add(&mut clients[0], 1), (1, 3), "it may stay for an hour"),
        }
        let mut moved = clients.remove(1);
        drop(clients);
        assert!(old.join().is_ok());
        assert_eq!(add(&mut moved, 1), (3, 2));
    }
}

/// The first may take back what the second has, and the third has its listeners: only one of them may serve.
#[test]
fn one_build_serves_where_the_middle_one_of_three_dies_while_the_last_prepares() {
    if let Some(role) = role() {
        let (path, first) = role.split_once(' ').expect("two words");
        let upgrade = Upgrade::at(path).replaces("any").stand_by(PATIENCE * 60).begin().expect("it begins");
        let _pool = start(&upgrade, "one", 2, Model::Loops, &[Address::Tcp(first.parse().expect("an address"))]);
        upgrade.ready().expect("it takes over");
        say("ready");
        hear();
        return;
    }
    let place = Place::new("middle-prepares");
    let upgrade = place.upgrade().begin().expect("it begins");
    let old = start(&upgrade, "one", 1, Model::Loops, &[any_port()]);
    upgrade.ready().expect("it serves");
    let listening = address(&old);
    let name = "given_up::one_build_serves_where_the_middle_one_of_three_dies_while_the_last_prepares";
    let mut middle = play(name, &format!("{} {listening}", place.0.display()));
    middle.hear();
    let last = place.upgrade().begin().expect("it begins");
    kill_with_helpers(middle.id());
    let _new = start(&last, "one", 3, Model::Loops, &[at(listening)]);
    last.ready().expect("it serves");
    // It asks at the path what serves now, once the last one answers there.
    let (says, ended) = mpsc::channel();
    std::thread::spawn(move || says.send(old.join().is_ok()));
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(true), "it was replaced for good");
    (0..20).for_each(|_| assert_eq!(add(&mut connect(listening), 1), (3, 1)));
}

#[test]
fn addresses_that_two_pools_exchange_have_their_sockets() {
    let place = Place::new("exchanged");
    let (_old, [one, two], [first, second, third]) = two_pools(&place, Model::Loops);
    let mut clients = [first, second, third].map(|at| many_sums(at, 1).remove(0));
    let upgrade = place.upgrade().stand_by(PATIENCE).begin().expect("it begins");
    let _one = start(&upgrade, "one", 2, Model::Loops, &[at(second)]);
    let new = start(&upgrade, "two", 2, Model::Loops, &[at(first)]);
    upgrade.ready().expect("it takes over");
    for at in [first, second, third] {
        assert_eq!(add(&mut connect(at), 1), (2, 1));
    }
    assert!(one.wait(PATIENCE, |status| status.connections == 0) && two.wait(PATIENCE, |status| status.connections == 0));
    clients.iter_mut().for_each(|client| assert_eq!(add(client, 1), (2, 2), "each moves to the pool of its name"));
    assert_eq!(new.addresses(), [at(first), at(third)], "nobody else wants the last until the old build is gone");
}

#[test]
fn nothing_is_given_up_while_a_next_build_prepares_that_was_told_of_it() {
    const STANDS_BY: Duration = Duration::from_millis(100);
    let place = Place::new("given-up-meanwhile");
    let (old, first) = place.serve(config(build(1)).listen(any_port()).listen(any_port()));
    let upgrade = place.upgrade().stand_by(STANDS_BY).begin().expect("it begins");
    let new = start(&upgrade, "sums", 2, Model::Loops, &[at(first)]);
    upgrade.ready().expect("it takes over");
    let next = place.upgrade().begin().expect("it begins");
    // waits because: the second build would stand, and give the other address up.
    std::thread::sleep(3 * STANDS_BY);
    assert_eq!(new.addresses().len(), 2);
    drop(next);
    assert!(new.wait(PATIENCE, |status| status.listeners.len() == 1 && status.retiring == 0), "{:#?}", new.status());
    assert!(old.join().is_ok());
    // It does the same with what it was given itself.
    new.reconfigure(new.config().listen(address_of_its_own())).expect("it is changed");
    let second = tcp(&new.addresses()[1]);
    let upgrade = place.upgrade().begin().expect("it begins");
    let third = start(&upgrade, "sums", 3, Model::Loops, &[at(first)]);
    upgrade.ready().expect("nothing of what it was told was changed");
    assert_eq!(add(&mut connect(first), 1).0, 3);
    assert!(third.wait(PATIENCE, |status| status.listeners.len() == 1 && status.retiring == 0), "{:#?}", third.status());
    assert!(new.join().is_ok() && TcpStream::connect(second).is_err());
}
