//! Upgrades of pools that connect, and of pools that serve one connection at a time.

use super::common::{PATIENCE, address, address_of_its_own, any_port, connect, read_all, tcp};
use super::place::{Place, config, many_sums, moved};
use super::sums::{add, answer, build, message};
use sockdrawer::admission::Reject;
use sockdrawer::listening::Listening;
use sockdrawer::observe::Readiness;
use sockdrawer::upgrade::Replace;
use sockdrawer::{Address, Config, Drain, Error, Model, Pool, Upgrade, connecting::Connecting};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn connections_that_were_made_go_on_and_none_is_made_twice() {
    for total in [None, Some(12)] {
        let target = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = Address::Tcp(target.local_addr().expect("its address"));
        let connects = |number, total: Option<u64>| {
            let mut connecting = Connecting::to([&at]).keep(10);
            connecting.total = total;
            Config::connect(build(number), connecting).loops(2)
        };
        let place = Place::new(&format!("connects-{}", total.is_some()));
        let serve = |number| {
            let upgrade = place.upgrade().begin().expect("it begins");
            let pool = upgrade.start("sums", connects(number, total)).expect("it starts");
            upgrade.ready().expect("it takes over");
            pool
        };
        let old = serve(1);
        let mut peers: Vec<TcpStream> = (0..10).map(|_| target.accept().expect("it connects").0).collect();
        peers.iter_mut().for_each(|peer| assert_eq!(add(peer, 1), (1, 1)));
        let new = serve(2);
        moved_out(&old, &new);
        peers.iter_mut().for_each(|peer| assert_eq!(add(peer, 1), (2, 2)));
        assert_eq!((new.status().connections, new.status().counts.connected), (10, 10), "there are enough");
        // Connections that end are replaced, up to the total.
        drop(peers.split_off(4));
        peers.extend((0..total.map_or(6, |total| total - 10)).map(|_| target.accept().expect("another").0));
        peers.iter_mut().skip(4).for_each(|peer| assert_eq!(add(peer, 3), (2, 3)));
        let open = peers.len();
        assert!(new.wait(PATIENCE, |status| status.connections == open), "{:#?}", new.status());
        target.set_nonblocking(true).expect("a listener");
        assert!(target.accept().is_err(), "no more of them");
        drop(peers);
        new.shutdown(Drain::within(PATIENCE));
    }
}

fn moved_out(old: &sockdrawer::Pool, new: &sockdrawer::Pool) {
    assert!(old.join().is_ok());
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 10), "{:#?}", new.status());
}

#[test]
fn what_is_suspended_or_refused_stays_so_in_the_next_build() {
    let place = Place::new("suspended");
    let (old, at) = place.serve(config(build(1)).listen(any_port()).listen(any_port()).listen(any_port()));
    let addresses = old.addresses();
    let [second, third] = [1, 2].map(|index| tcp(&addresses[index]));
    old.suspend_listener(&addresses[1]).expect("it is its own");
    old.refuse_listener(&addresses[2], Reject::text("no\n")).expect("it is its own");
    let next = |number| place.serve(addresses.iter().cloned().fold(config(build(number)), Config::listen)).0;
    let new = next(2);
    let mut waits = connect(second);
    waits.write_all(&message(b'a', 1)).expect("it is in the queue");
    assert_eq!(add(&mut connect(at), 1).0, 2);
    assert_eq!(read_all(&mut connect(third)).expect("an orderly end"), b"no\n");
    let states = |pool: &Pool| pool.status().listeners.into_iter().map(|one| one.readiness).collect::<Vec<_>>();
    assert_eq!(states(&new), [Readiness::Serving, Readiness::Suspended, Readiness::Refusing]);
    new.refuse(Reject::Fin);
    new.resume_listener(&addresses[2]).expect("it is its own");
    let newer = next(3);
    assert_eq!(newer.status().readiness, Readiness::Refusing);
    assert_eq!(states(&newer), [Readiness::Serving, Readiness::Suspended, Readiness::Serving]);
    newer.resume();
    assert_eq!(add(&mut connect(third), 1).0, 3);
    newer.resume_listener(&addresses[1]).expect("it is its own");
    assert_eq!(answer(&mut waits, b'a'), (3, 1), "it has waited in the kernel");
}

#[test]
fn one_at_a_time_it_stays_in_both() {
    let place = Place::new("single");
    let single = |number| config(build(number)).loops(1).model(Model::Single);
    let (old, at) = place.serve(single(1).listen(any_port()));
    let mut first = many_sums(at, 1).remove(0);
    let mut second = TcpStream::connect(at).expect("it waits");
    let (new, _) = place.serve(single(2).listen(Address::Tcp(at)));
    moved(&old, &new, 1);
    assert_eq!(add(&mut first, 1), (2, 2));
    assert_eq!(new.status().connections, 1);
    drop(first);
    assert_eq!(add(&mut second, 1), (2, 1));
}

#[test]
fn a_pool_that_starts_later_serves_at_once_and_is_taken_over_and_one_that_was_shut_down_is_not() {
    let place = Place::new("later");
    let old = place.upgrade().begin().expect("it begins");
    let start = |upgrade: &Upgrade, name, number, at: Address| upgrade.start(name, config(build(number)).listen(at));
    let sums = start(&old, "sums", 1, any_port()).expect("it starts");
    let brief = start(&old, "brief", 1, any_port()).expect("it starts");
    assert_eq!((old.predecessor(), old.addresses("sums")), (None, vec![]));
    old.ready().expect("it serves");
    let later = start(&old, "later", 1, any_port()).expect("it starts");
    let mut clients: Vec<_> = [&sums, &later].into_iter().flat_map(|pool| many_sums(address(pool), 3)).collect();
    let taken = start(&old, "later", 1, any_port()).expect_err("there is one").to_string();
    assert_eq!(taken, "name: a pool later runs already: shut it down before, or choose another name");
    brief.shutdown(Drain::within(PATIENCE));
    let gone = address_of_its_own();
    let again = start(&old, "brief", 1, gone.into()).expect("the name is free");
    again.shutdown(Drain::within(PATIENCE));
    let plan = Replace::at(&place.0).look().expect("it runs");
    assert_eq!(plan.pools.iter().map(|pool| (&*pool.name, pool.connections)).collect::<Vec<_>>(), [("sums", 3), ("later", 3)]);

    let new = place.upgrade().begin().expect("it begins");
    assert_eq!(new.predecessor().expect("it is met").pid, std::process::id());
    assert_eq!(new.addresses("later"), later.addresses());
    assert_eq!(new.addresses("brief"), [], "it was shut down");
    let next = ["sums", "later"].map(|name| {
        let config = new.addresses(name).into_iter().fold(config(build(2)), Config::listen);
        new.start(name, config).expect("it starts")
    });
    assert_eq!(new.addresses("later"), [], "its sockets are taken");
    let early = start(&old, "early", 1, any_port()).expect("it serves still");
    let refused = new.ready().expect_err("it does not know the pool").to_string();
    drop(early);
    assert!(refused.ends_with("a pool was started meanwhile: start the new build again"), "{refused}");
    assert!(new.ready().expect_err("once").to_string().ends_with("ready() was called before: call it once"));
    drop((next, new));

    let new = place.upgrade().begin().expect("it begins");
    let next =
        [("sums", &sums), ("later", &later)].map(|(name, old)| start(&new, name, 3, address(old).into()).expect("it starts"));
    new.ready().expect("it takes over");
    [&sums, &later].into_iter().zip(&next).for_each(|(old, new)| moved(old, new, 3));
    clients.iter_mut().for_each(|client| assert_eq!(add(client, 1), (3, 2)));
    let late = start(&old, "late", 1, any_port()).expect_err("it is replaced").to_string();
    assert!(late.ends_with("this process takes over, or is replaced: start its pools in the next one"), "{late}");
    let late = start(&new, "brief", 3, gone.into()).expect("nothing listens there");
    assert_eq!(add(&mut connect(gone), 1), (3, 1));
    drop(late);
}

#[test]
fn pools_start_again_once_a_successor_has_failed() {
    let place = Place::new("later-fails");
    let (tells, told) = std::sync::mpsc::channel();
    let old = place.upgrade().taken_back(move || tells.send(()).expect("it is waited for")).begin().expect("it begins");
    let pool = old.start("sums", config(build(1)).listen(any_port())).expect("it starts");
    let at = address(&pool);
    old.carry("table", || panic!("a mistake of the test"), |_| ()).expect("it has begun");
    old.ready().expect("it serves");
    let new = place.upgrade().begin().expect("it begins");
    let next = new.start("sums", config(build(2)).listen(at)).expect("it starts");
    new.ready().expect_err("nothing can be carried");
    assert_eq!(told.try_iter().count(), 1, "what was written is the old build's again");
    let late = new.start("later", config(build(2)).listen(any_port())).expect_err("it has not taken over").to_string();
    assert!(late.ends_with("this process takes over, or is replaced: start its pools in the next one"), "{late}");
    drop(next);
    assert_eq!(add(&mut connect(at), 1), (1, 1), "it goes on");
    let later = old.start("later", config(build(1)).listen(any_port())).expect("it starts");
    assert_eq!(add(&mut connect(address(&later)), 1), (1, 1));
}

#[test]
fn of_a_pool_that_starts_and_a_successor_that_takes_over_at_once_one_is_refused() {
    let place = Place::new("later-race");
    let mut old = place.upgrade().begin().expect("it begins");
    let mut pool = old.start("sums", config(build(1)).listen(any_port())).expect("it starts");
    let at = address(&pool);
    old.ready().expect("it serves");
    let mut replaced = 0;
    // At first the pool is earlier, then the successor.
    for round in 0..20 {
        let micros = |rounds: u64| Duration::from_micros(rounds * 200);
        let new = place.upgrade().begin().expect("it begins");
        let next = new.start("sums", config(build(1)).listen(Address::Tcp(at))).expect("it starts");
        let (started, ready) = std::thread::scope(|scope| {
            let started = scope.spawn(|| {
                // waits because: the two are to meet at each moment.
                std::thread::sleep(micros(round));
                old.start("later", config(build(1)).listen(any_port()))
            });
            // waits because: as above.
            std::thread::sleep(micros(19 - round));
            let ready = new.ready();
            (started.join().expect("no panic"), ready)
        });
        match (started, ready) {
            (Ok(later), Err(_)) => assert_eq!(add(&mut connect(address(&later)), 1), (1, 1)),
            (Err(Error::HandingOver { .. }), Ok(())) => {
                assert!(pool.join().is_ok());
                (old, pool, replaced) = (new, next, replaced + 1);
            }
            (started, ready) => panic!("{started:?} {ready:?}"),
        }
        assert_eq!(add(&mut connect(at), 1), (1, 1));
    }
    println!("{replaced} of 20 were replaced");
}

#[test]
fn the_names_of_sockets_that_a_service_manager_made_go_along() {
    let place = Place::new("named");
    let made = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = made.local_addr().expect("it is bound");
    let old = place.upgrade().begin().expect("it begins");
    let web = Listening::new(Address::Tcp(at)).named("web").inherited(Arc::new(made.into()));
    let sums = old.start("sums", config(build(1)).listening(web).listen(any_port())).expect("it starts");
    assert_eq!(old.named(), [], "there was none before");
    old.ready().expect("it serves");
    let mut client = connect(at);
    assert_eq!(add(&mut client, 7), (1, 7));
    let new = place.upgrade().begin().expect("it begins");
    assert_eq!(new.named(), [Listening::new(Address::Tcp(at)).named("web")], "the other one has no name");
    let config = new.named().into_iter().fold(config(build(2)), Config::listening);
    let next = new.start("sums", config).expect("it starts");
    assert_eq!(new.named(), [], "its sockets are taken");
    new.ready().expect("it takes over");
    moved(&sums, &next, 1);
    assert_eq!((add(&mut client, 1), add(&mut connect(at), 3)), ((2, 8), (2, 3)));
}
