//! Connections move from any model to any other, and stay where theirs cannot.

#[path = "../upgrade/joins.rs"]
mod joins;
#[path = "../upgrade/kills.rs"]
mod kills;
#[path = "../upgrade/place.rs"]
pub(crate) mod place;
#[path = "../upgrade/proxy.rs"]
mod proxy;
#[path = "../upgrade/shared.rs"]
mod shared;
#[path = "../upgrade/sums.rs"]
mod sums;

use crate::common::{PATIENCE, address, any_port, connect, kill};
use place::{Place, config, id_of, many_sums, moved};
use sockdrawer::{Address, Behaviour, Build, Config, Drain, Model, Selector};
use std::io::Write;
use std::time::{Duration, Instant};
use sums::{add, answer, build, message};

/// Tests that start this program again name themselves.
const KILLS: &str = "upgrades::a_kill_at_any_packet_costs_what_the_killed_program_had";
const STOPS: &str = "upgrades::a_program_that_is_stopped_for_a_while_costs_nothing";
const WANTS: &str = "upgrades::what_the_next_program_wants_is_undone_by_its_death";

pub(crate) const RECIPES: &[(&str, Build)] = &[
    ("sums", |options| Ok(Behaviour::from(build(options[0])))),
    ("joins", |options| Ok(Behaviour::from(joins::from_recipe(options)))),
];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("connections_move_from_model_to_model", connections_move_from_model_to_model),
    ("connections_with_a_process_to_themselves_stay_until_they_end", connections_with_a_process_to_themselves),
    ("a_limit_holds_over_the_processes_of_both", a_limit_holds_over_the_processes_of_both),
    ("a_helper_that_dies_takes_only_its_own", a_helper_that_dies_takes_only_its_own),
    ("an_upgrade_that_fails_leaves_helpers_as_they_were", an_upgrade_that_fails),
    ("threads_that_are_busy_hold_up_no_others", threads_that_are_busy),
    ("helpers_of_a_pool_that_was_never_ready_accept_nothing", helpers_that_were_never_ready),
    ("a_helper_that_hangs_at_the_commit_stops_no_other_from_accepting", a_helper_that_hangs),
    ("a_kill_at_any_packet_costs_what_the_killed_program_had", || kills::kill_at_each_packet(KILLS, Model::Prefork)),
    ("a_program_that_is_stopped_for_a_while_costs_nothing", || kills::stop_at_each_packet(STOPS, Model::Prefork)),
    ("what_the_next_program_wants_is_undone_by_its_death", || shared::what_the_next_build_wants(WANTS, Model::Prefork)),
];

fn of(model: Model, number: u8) -> Config {
    let config = Config::accept(build(number)).model(model);
    match model {
        Model::Loops => config.loops(2),
        // Each process has two loops, so that no loop has all connections of its process.
        Model::Prefork => config.processes(3).loops(2),
        _ => config,
    }
}

fn connections_move_from_model_to_model() {
    const CONNECTIONS: usize = 60;
    const TIMER: Duration = Duration::from_secs(2);
    let place = Place::new("models");
    let (mut pool, at) = place.serve(of(Model::Prefork, 1).listen(any_port()));
    let mut clients = many_sums(at, CONNECTIONS);
    clients[0].write_all(&message(b'n', 77)).expect("it stands");
    assert_eq!(add(&mut clients[0], 0).1, 1);
    let (id, mut sum) = (id_of(&pool, &clients[0]), 1);
    // Its timer goes along, and is never early.
    let (mut late, set) = (connect(at), Instant::now());
    late.write_all(&message(b't', TIMER.as_millis() as u32)).expect("it stands");
    let models = [Model::Prefork, Model::Loops, Model::Threads, Model::Prefork, Model::Threads, Model::Threads, Model::Single];
    for (number, model) in (2..).zip(models) {
        // Half a message waits, and goes along.
        clients[1].write_all(&message(b'a', 6)[..2]).expect("it stands");
        let before = id_of(&pool, &clients[1]);
        let bytes = |pool: &sockdrawer::Pool, id| pool.connections(&Selector::Id(id))[0].bytes_in % 5;
        assert!(pool.wait(PATIENCE, |_| bytes(&pool, before) == 2), "{:#?}", pool.status());
        let (new, _) = place.serve(of(model, number).listen(Address::Tcp(at)));
        moved(&pool, &new, CONNECTIONS + 1);
        clients[1].write_all(&message(b'a', 6)[2..]).expect("it stands");
        assert_eq!(answer(&mut clients[1], b'a'), (number, 7 * sum));
        for (at, client) in clients.iter_mut().enumerate() {
            let before = if at == 1 { 7 * sum } else { sum };
            assert_eq!(add(client, 1), (number, before + 1), "{model}");
        }
        sum += 1;
        assert_eq!(pool.status().connections, 0);
        let tagged: Vec<_> = new.connections(&Selector::tag("77")).into_iter().map(|one| one.id).collect();
        assert_eq!(tagged, [id], "{model}");
        pool = new;
    }
    assert_eq!(answer(&mut late, b't').1, 0);
    assert!(set.elapsed() >= TIMER);
    assert_eq!(pool.shutdown(Drain::within(PATIENCE)).ended, CONNECTIONS + 1);
}

fn connections_with_a_process_to_themselves() {
    let place = Place::new("forks");
    let (old, at) = place.serve(of(Model::Fork, 1).listen(any_port()).limit(6));
    let mut clients = many_sums(at, 5);
    let (new, _) = place.serve(of(Model::Loops, 2).listen(Address::Tcp(at)).limit(6));
    let mut late = connect(at);
    assert_eq!((add(&mut late, 1), new.status().connections), ((2, 1), 6));
    clients.iter_mut().for_each(|client| assert_eq!(add(client, 1), (1, 2)));
    let (newer, _) = place.serve(of(Model::Fork, 3).listen(Address::Tcp(at)).limit(6));
    assert_eq!((add(&mut late, 1), newer.status().connections), ((2, 2), 6));
    // Each is a process of the first pool, which the second one asks in turn.
    assert_eq!(newer.connections(&Selector::All).len(), 6);
    assert_eq!(newer.kill(&Selector::Id(id_of(&newer, &clients[4]))).cut, 1);
    crate::common::assert_reset(&mut clients[4]);
    drop(clients);
    assert!(old.join().is_ok(), "nothing is left there");
    assert!(newer.wait(PATIENCE, |status| status.connections == 1), "{:#?}", newer.status());
    assert_eq!(add(&mut connect(at), 1), (3, 1));
    drop(late);
    assert!(new.join().is_ok());
    assert!(newer.wait(PATIENCE, |status| status.connections == 0), "{:#?}", newer.status());
    let counts = newer.status().counts;
    assert_eq!((counts.accepted, counts.closed), (7, 7), "{counts:#?}");
}

fn a_limit_holds_over_the_processes_of_both() {
    let place = Place::new("limits");
    let listening = |at| sockdrawer::listening::Listening::new(at).limit(4);
    let (old, at) = place.serve(of(Model::Prefork, 1).listening(listening(any_port())));
    let mut clients = many_sums(at, 4);
    for client in &mut clients[..2] {
        client.write_all(&message(b's', 0)).expect("it stands");
        assert_eq!(add(client, 0), (1, 1));
    }
    let (new, _) = place.serve(of(Model::Prefork, 2).listening(listening(Address::Tcp(at))));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 2), "{:#?}", new.status());
    let mut next = connect(at);
    next.write_all(&message(b'a', 5)).expect("it is connected by the kernel");
    assert!(new.wait(PATIENCE, |status| status.listeners[0].queued == 1));
    assert_eq!((new.status().connections, new.status().listeners[0].connections), (4, 4), "there is no room");
    // A connection that moved ends, and then those that stayed: each leaves room for one.
    for _ in 0..3 {
        drop(clients.pop());
        assert_eq!(answer(&mut next, b'a'), (2, 5));
        assert!(new.status().listeners[0].connections <= 4);
        clients.insert(0, next);
        next = connect(at);
        next.write_all(&message(b'a', 5)).expect("it is connected by the kernel");
    }
    drop((clients, next));
    assert!(old.join().is_ok());
    let none = new.wait(PATIENCE, |status| status.connections == 0 && status.listeners[0].connections == 0);
    assert!(none, "{:#?}", new.status());
}

fn a_helper_that_dies_takes_only_its_own() {
    let place = Place::new("helper-dies");
    let (old, at) = place.serve(of(Model::Prefork, 1).listen(any_port()).limit(30));
    let mut clients = many_sums(at, 30);
    // They stay, and their permits are held for them.
    for client in &mut clients[..5] {
        client.write_all(&message(b's', 0)).expect("it stands");
        assert_eq!(add(client, 0), (1, 1));
    }
    let (new, _) = place.serve(of(Model::Prefork, 2).listen(Address::Tcp(at)).limit(30));
    assert!(new.wait(PATIENCE, |status| status.counts.moved_in == 25), "{:#?}", new.status());
    let victim = new.status().processes.into_iter().max_by_key(|process| process.connections).expect("three");
    assert!(victim.connections > 0);
    kill(victim.pid);
    let left = 30 - victim.connections;
    assert!(new.wait(PATIENCE, |status| status.connections == left && status.restarts == 1), "{:#?}", new.status());
    // Permits that no process holds are found by a tenth look, one each half second: those of the other program are held.
    assert!(!new.wait(Duration::from_secs(7), |status| status.connections != left), "{:#?}", new.status());
    let served = clients.iter_mut().filter_map(|client| sums::try_add(client, 1)).count();
    assert_eq!(served, left);
    let counts = new.status().counts;
    let open = left as u64;
    assert!(
        new.wait(PATIENCE, |status| {
            let counts = status.counts;
            counts.accepted + counts.moved_in == counts.closed + counts.moved_out + open
        }),
        "{counts:#?}"
    );
    drop(clients);
    assert!(old.join().is_ok());
    assert!(new.wait(PATIENCE, |status| status.connections == 0), "{:#?}", new.status());
}

fn an_upgrade_that_fails() {
    let place = Place::new("fails");
    let (old, at) = place.serve(of(Model::Prefork, 1).listen(any_port()));
    let mut clients = many_sums(at, 10);
    for limit in [98, 99, 100] {
        let upgrade = place.upgrade().begin().expect("it begins");
        upgrade.carry("topics", Vec::new, |_| ()).expect("it has begun");
        let pool = upgrade.start("other", of(Model::Prefork, 2).listen(any_port())).expect("it starts");
        old.reconfigure(old.config().limit(limit)).expect("it is its own");
        assert!(upgrade.ready().is_err(), "a pool was changed meanwhile");
        drop(pool);
        clients.iter_mut().for_each(|client| assert_eq!(add(client, 0), (1, 1)));
        assert_eq!(add(&mut connect(at), 3), (1, 3));
    }
    assert!(old.wait(PATIENCE, |status| status.connections == 10));
    // A helper that is stopped does not turn: the upgrade is refused, and it goes on.
    let stopped = old.status().processes[0].pid;
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(stopped.cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("it lives");
    };
    signal(rustix::process::Signal::STOP);
    let refused = place.upgrade().begin().expect_err("a helper is stopped").to_string();
    signal(rustix::process::Signal::CONT);
    assert!(refused.contains("hangs"), "{refused}");
    let (new, _) = place.serve(of(Model::Prefork, 2).listen(Address::Tcp(at)));
    moved(&old, &new, 10);
    clients.iter_mut().for_each(|client| assert_eq!(add(client, 1), (2, 2)));
}

fn threads_that_are_busy() {
    let place = Place::new("busy");
    let (old, at) = place.serve(of(Model::Threads, 1).listen(any_port()));
    let mut clients = many_sums(at, 6);
    // Longer than a thread is waited for, and than the others take.
    clients[2].write_all(&[message(b'h', 8_000), message(b'a', 1)].concat()).expect("it stands");
    let (new, _) = place.serve(config(build(2)).listen(Address::Tcp(at)));
    assert!(new.wait(Duration::from_secs(5), |status| status.counts.moved_in == 5), "{:#?}", new.status());
    assert!(!new.wait(Duration::ZERO, |status| status.counts.moved_in == 6), "it is busy");
    assert_eq!(answer(&mut clients[2], b'a'), (1, 2));
    moved(&old, &new, 6);
    clients.iter_mut().for_each(|client| assert_eq!(add(client, 1).0, 2));
}

fn helpers_that_were_never_ready() {
    let place = Place::new("never-ready");
    let (old, at) = place.serve(of(Model::Prefork, 1).listen(any_port()));
    old.suspend();
    let mut waiting: Vec<_> = (0..5).map(|_| connect(at)).collect();
    waiting.iter_mut().for_each(|client| client.write_all(&message(b'a', 1)).expect("it stands"));
    let upgrade = place.upgrade().begin().expect("it begins");
    let new = upgrade.start("sums", of(Model::Prefork, 2).listen(Address::Tcp(at))).expect("it starts");
    new.shutdown(Drain::within(PATIENCE));
    assert_eq!(new.status().counts.accepted, 0);
    old.resume();
    waiting.iter_mut().for_each(|client| assert_eq!(answer(client, b'a'), (1, 1)));
}

fn a_helper_that_hangs() {
    let place = Place::new("helper-hangs");
    let upgrade = place.upgrade().turns_within(Duration::from_millis(1_500)).begin().expect("it begins");
    let old = upgrade.start("sums", of(Model::Prefork, 1).listen(any_port())).expect("it starts");
    upgrade.ready().expect("it serves");
    let at = address(&old);
    let mut busy = many_sums(at, 1).remove(0);
    let upgrade = place.upgrade().begin().expect("it begins");
    let new = upgrade.start("sums", of(Model::Prefork, 2).listen(Address::Tcp(at))).expect("it starts");
    busy.write_all(&message(b'h', 6_000)).expect("it stands");
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 10));
    let (began, refused) = (Instant::now(), upgrade.ready().expect_err("it hangs").to_string());
    assert!(refused.contains("a loop of it hangs: its code has not returned for 1.5s"), "{refused}");
    drop(new);
    // Only some of the sockets belong to the loop that hangs.
    let served = (0..40).filter(|_| {
        let mut client = connect(at);
        client.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
        sums::try_add(&mut client, 1).is_some()
    });
    assert!(served.count() > 0 && began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    busy.write_all(&message(b'a', 1)).expect("it stands");
    assert_eq!(answer(&mut busy, b'a'), (1, 2));
}
