//! Examples, one promise each.

use crate::common::{A, B, Bench, ms, quiet};
use sockdrawer_lease::engine::{Action, Asked, Job};
use sockdrawer_lease::{Error, Order, Settings};
use std::io;
use std::sync::Arc;

#[test]
fn a_cold_pool_never_has_more_connects_under_way_than_two_and_none_too_many() {
    let mut bench = Bench::new(Settings { max: 40, ..quiet() });
    let waiters: Vec<_> = (0..200).map(|_| bench.wait(0, A)).collect();
    let (mut connects, mut served) = (bench.jobs(), Vec::new());
    let mut number = 0;
    while let Some(job) = connects.pop() {
        assert!(bench.engine.status().connecting <= 2);
        number += 1;
        bench.engine.done(bench.at(number.into()), job, Ok(number));
        for action in bench.actions() {
            match action {
                Action::Run { id, job: Job::Connect(_), .. } => connects.push(id),
                Action::Wake { waiter, result } => served.push((waiter, result.expect("served"))),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((number, served.len()), (40, 40));
    while let Some((_, leased)) = (!served.is_empty()).then(|| served.remove(0)) {
        bench.give(1000, leased);
        served.extend(bench.woken().into_iter().map(|(waiter, result)| (waiter, result.expect("served"))));
    }
    assert_eq!((bench.engine.status().free, bench.engine.status().waiting), (40, 0));
    assert_eq!(waiters.len(), 200);
}

#[test]
fn a_return_goes_to_the_oldest_waiter_and_what_was_connected_for_it_to_the_next() {
    let mut bench = Bench::new(quiet());
    let leased = bench.lease_new(0, A, 1);
    let (first, second) = (bench.wait(1, A), bench.wait(2, A));
    let connects = bench.jobs();
    bench.give(3, leased);
    let woken = bench.woken();
    assert_eq!((woken.len(), woken[0].0), (1, first));
    bench.engine.done(bench.at(4), connects[0], Ok(2));
    assert_eq!(bench.woken()[0].0, second);
    // No waiter is left: the other connect is not ended, its connection is kept.
    bench.engine.done(bench.at(5), connects[1], Ok(3));
    assert_eq!(bench.engine.status().free, 1);
}

#[test]
fn who_gives_up_ends_no_connect_and_loses_no_connection() {
    let mut bench = Bench::new(quiet());
    let waiter = bench.wait(0, A);
    let job = bench.jobs()[0];
    bench.engine.cancel(bench.at(1), waiter);
    bench.engine.done(bench.at(2), job, Ok(1));
    assert_eq!(bench.actions().len(), 0);
    assert_eq!(bench.lease(3, A).connection, 1);
}

#[test]
fn a_time_out_says_why() {
    let mut bench = Bench::new(Settings { max: 2, ..quiet() });
    let _leased = bench.lease_new(0, A, 1);
    let _other = bench.lease_new(0, B, 2);
    bench.wait(1, A);
    bench.wait(2, A);
    bench.engine.handle_timeout(bench.at(10_002));
    let errors: Vec<_> = bench.woken().into_iter().map(|(_, result)| result.expect_err("timed out").to_string()).collect();
    let says = "place 1 in line, 1 leased, 0 free or being checked, 0 connecting, 1 to other targets";
    assert_eq!(errors, [format!("no connection within 10.001s: {says}"), format!("no connection within 10s: {says}")]);
}

#[test]
fn a_target_that_is_down_fails_fast_and_who_asks_first_after_a_pause_finds_out() {
    let mut bench = Bench::new(Settings { down_after: ms(100), backoff: ms(50), backoff_max: ms(50), ..quiet() });
    bench.wait(0, A);
    let (mut now, mut connects) = (bench.start, 0);
    let down = loop {
        match bench.engine.poll_action() {
            Some(Action::Run { id, job: Job::Connect(A), .. }) => {
                connects += 1;
                bench.engine.done(now, id, Err(Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused))));
            }
            Some(Action::Wake { result, .. }) => break result.expect_err("it is down"),
            other => {
                assert!(other.is_none(), "{other:?}");
                now = bench.engine.poll_timeout().expect("it tries again");
                bench.engine.handle_timeout(now);
            }
        }
    };
    assert!(connects > 1 && now == bench.at(100), "{connects}");
    let Error::Down { error, since, next_try } = down else { panic!("{down}") };
    assert_eq!((error.to_string().as_str(), since), ("connection refused", bench.start));
    assert!(next_try > bench.start && next_try <= bench.at(150));
    // The first is not refused after the pause, the next is.
    bench.wait(150, A);
    let found = bench.jobs();
    let refused = bench.engine.ask(bench.at(151), &A, bench.at(200).into());
    assert!(matches!(refused, Err(Error::Down { .. })), "{refused:?}");
    bench.engine.done(bench.at(152), found[0], Ok(1));
    let leased = bench.woken().pop().expect("woken").1.expect("leased");
    bench.give(153, leased);
    assert_eq!(bench.lease(154, A).connection, 1);
}

#[test]
fn pauses_after_failures_are_drawn_up_to_a_limit_that_doubles() {
    let mut longest = [0; 6];
    for seed in 0..200 {
        let settings = Settings { backoff: ms(100), backoff_max: ms(800), down_after: ms(1_000_000), ..quiet() };
        let engine = sockdrawer_lease::engine::Engine::new(settings, sockdrawer_lease::Random::seeded(seed));
        let mut bench = Bench { engine, ..Bench::new(quiet()) };
        assert!(matches!(bench.engine.ask(bench.start, &A, bench.at(1_000_000).into()), Ok(Asked::Waits(_))));
        let mut now = bench.start;
        for longest in &mut longest {
            let job = bench.jobs()[0];
            bench.engine.done(now, job, Err(Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused))));
            let next = bench.engine.poll_timeout().expect("it tries again").max(now);
            *longest = (next - now).as_millis().max(*longest);
            now = next;
            bench.engine.handle_timeout(now);
        }
    }
    for (longest, limit) in longest.into_iter().zip([100, 200, 400, 800, 800, 800]) {
        assert!((limit * 9 / 10..=limit).contains(&longest), "{longest} of {limit}");
    }
}

#[test]
fn a_connect_that_comes_late_is_used() {
    let mut bench = Bench::new(Settings { connect_timeout: ms(100), backoff: ms(0), max_connecting: 1, ..quiet() });
    let waiter = bench.wait(0, A);
    let job = bench.jobs()[0];
    bench.engine.handle_timeout(bench.at(100));
    assert!(matches!(bench.actions()[..], [Action::Cancel(late)] if late == job));
    bench.engine.done(bench.at(200), job, Ok(1));
    assert_eq!(bench.woken()[0].0, waiter);
}

#[test]
fn connections_made_together_do_not_end_together() {
    let mut bench = Bench::new(Settings { max: 100, max_connecting: 100, min_free: 0, lifetime: Some(ms(1000)), ..quiet() });
    (0..100).for_each(|_| _ = bench.wait(0, A));
    for (number, job) in (0..).zip(bench.jobs()) {
        bench.engine.done(bench.start, job, Ok(number));
    }
    for (_, result) in bench.woken() {
        bench.give(0, result.expect("leased"));
    }
    let mut ended = Vec::new();
    while let Some(next) = bench.engine.poll_timeout() {
        bench.engine.handle_timeout(next);
        let at = (next - bench.start).as_millis() as u64;
        ended.resize(ended.len() + bench.close_all(at).len(), at);
    }
    assert_eq!(ended.len(), 100);
    assert!(ended[0] >= 760 && ended[99] <= 1000 && ended[99] - ended[0] > 150, "{ended:?}");
}

#[test]
fn a_free_connection_of_one_target_makes_room_for_another() {
    let mut bench = Bench::new(Settings { max: 1, ..quiet() });
    let leased = bench.lease_new(0, A, 1);
    bench.give(1, leased);
    bench.wait(2, B);
    assert_eq!(bench.close_all(3), [1]);
    let connects: Vec<_> = bench.actions();
    assert!(connects.is_empty(), "taken above");
    assert_eq!(bench.engine.status().connecting, 1);
}

#[test]
fn a_target_under_load_lets_another_have_its_turn() {
    let mut bench = Bench::new(Settings { max: 1, ..quiet() });
    let leased = bench.lease_new(0, A, 1);
    bench.wait(1, A);
    let other = bench.wait(2, B);
    bench.wait(3, A);
    bench.give(4, leased);
    // The older waiter for that target comes first; then the other target has waited for longest.
    let leased = bench.woken().pop().expect("woken").1.expect("leased");
    bench.give(5, leased);
    let Some(Action::Run { id, job: Job::Close(1, _), .. }) = bench.engine.poll_action() else { panic!("it goes") };
    bench.engine.closed(bench.at(6), id);
    let Some(Action::Run { id, job: Job::Connect(B), .. }) = bench.engine.poll_action() else { panic!("for the other") };
    bench.engine.done(bench.at(7), id, Ok(2));
    assert_eq!(bench.woken()[0].0, other);
}

#[test]
fn a_stale_connection_is_checked_before_it_is_leased_and_replaced_where_it_is_dead() {
    let mut bench = Bench::new(Settings { check_after: Some(ms(10)), ..quiet() });
    let leased = bench.lease_new(0, A, 1);
    bench.give(0, leased);
    let leased = bench.lease(9, A);
    bench.give(10, leased);
    let waiter = bench.wait(20, A);
    let [Action::Run { id, job: Job::Check(1), .. }] = bench.actions()[..] else { panic!("no check") };
    bench.fail(21, id);
    let [Action::Run { id, job: Job::Connect(A), .. }] = bench.actions()[..] else { panic!("no connect") };
    bench.engine.done(bench.at(22), id, Ok(2));
    assert_eq!(bench.woken()[0].0, waiter);
}

#[test]
fn a_lower_limit_keeps_the_line_and_closes_what_comes_back() {
    let mut bench = Bench::new(Settings { max: 3, ..quiet() });
    let leases: Vec<_> = (0..3).map(|number| bench.lease_new(0, A, number)).collect();
    let waiter = bench.wait(1, A);
    bench.engine.set(bench.at(2), Settings { max: 1, max_waiters: 0, ..quiet() });
    for (number, leased) in (0..).zip(leases) {
        assert!(bench.engine.status().waiting == 1 && bench.actions().is_empty());
        bench.give(3, leased);
        if number < 2 {
            assert_eq!(bench.close_all(3), [number]);
        }
    }
    assert_eq!(bench.woken()[0].0, waiter);
    let full = bench.engine.ask(bench.at(4), &A, bench.at(5).into());
    assert!(matches!(full, Err(Error::Full { waiting: 0 })), "{full:?}");
}

#[test]
fn a_suspended_pool_keeps_its_line_and_serves_it_when_it_is_resumed() {
    let mut bench = Bench::new(quiet());
    let leased = bench.lease_new(0, A, 1);
    bench.engine.suspend(bench.at(1));
    bench.give(1, leased);
    let (first, _second) = (bench.wait(2, A), bench.wait(3, A));
    assert!(bench.actions().is_empty());
    assert!(matches!(bench.engine.ask(bench.at(3), &A, bench.at(3).into()), Err(Error::Suspended)));
    bench.engine.resume(bench.at(4));
    let actions = bench.actions();
    assert!(matches!(&actions[0], Action::Wake { waiter, result: Ok(_) } if *waiter == first), "{actions:?}");
    assert!(matches!(actions[1], Action::Run { job: Job::Connect(A), .. }), "{actions:?}");
}

#[test]
fn a_drain_serves_those_in_line_and_ends_at_its_deadline() {
    let mut bench = Bench::new(Settings { max: 1, ..quiet() });
    let leased = bench.lease_new(0, A, 1);
    let (first, _second) = (bench.wait(1, A), bench.wait(2, A));
    bench.engine.drain(bench.at(3), bench.at(100));
    assert!(matches!(bench.engine.ask(bench.at(4), &A, bench.at(50).into()), Err(Error::Closed)));
    bench.give(5, leased);
    let (served, result) = bench.woken().pop().expect("woken");
    assert_eq!(served, first);
    bench.engine.handle_timeout(bench.at(100));
    let actions = bench.actions();
    assert!(
        matches!(&actions[..], [Action::Wake { result: Err(Error::Closed), .. }, Action::Drained { leased: 1 }]),
        "{actions:?}"
    );
    bench.give(101, result.expect("leased"));
    assert_eq!(bench.close_all(101), [1]);
}

#[test]
fn free_connections_are_kept_between_a_minimum_and_a_maximum() {
    let mut bench = Bench::new(quiet());
    let leases: Vec<_> = (0..4).map(|number| bench.lease_new(0, A, number)).collect();
    bench.engine.set(bench.start, Settings { min_free: 1, max_free: 2, free_timeout: Some(ms(100)), ..quiet() });
    let refill = bench.jobs();
    assert_eq!(refill.len(), 1, "one is to be free at any time");
    bench.engine.done(bench.at(1), refill[0], Ok(4));
    leases.into_iter().for_each(|leased| bench.give(1, leased));
    assert_eq!(bench.close_all(1), [0, 1, 2], "the oldest go");
    bench.engine.handle_timeout(bench.at(101));
    assert_eq!(bench.close_all(101), [4]);
    bench.engine.handle_timeout(bench.at(1000));
    assert_eq!(bench.engine.status().free, 1);
    let leased = bench.lease(1001, A);
    assert_eq!((leased.connection, bench.jobs().len()), (3, 1));
}

#[test]
fn the_order_of_free_connections_is_a_setting() {
    for (order, next) in [(Order::LastUsedFirst, 2), (Order::LongestFreeFirst, 1)] {
        let mut bench = Bench::new(Settings { order, max_uses: Some(2), ..quiet() });
        let (one, two) = (bench.lease_new(0, A, 1), bench.lease_new(0, A, 2));
        bench.give(1, one);
        bench.give(2, two);
        let leased = bench.lease(3, A);
        assert_eq!(leased.connection, next);
        // Its second use was its last.
        bench.give(4, leased);
        assert_eq!(bench.close_all(4), [next]);
    }
}

#[test]
fn a_target_that_made_room_serves_its_own_line_from_what_it_has_left() {
    let oldest_first = Settings { order: Order::LongestFreeFirst, check_after: Some(ms(10)), ..quiet() };
    let mut bench = Bench::new(Settings { max: 3, ..oldest_first });
    let leases: Vec<_> = (1..4).map(|number| bench.lease_new(0, A, number)).collect();
    for (leased, at) in leases.into_iter().zip([0, 0, 15]) {
        bench.give(at, leased);
    }
    let waiter = bench.wait(16, A);
    assert!(matches!(bench.actions()[..], [Action::Run { job: Job::Check(1), .. }]));
    bench.wait(17, B);
    let actions = bench.actions();
    let [Action::Run { job: Job::Close(2, _), .. }, Action::Wake { waiter: woken, result: Ok(leased) }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((*woken, leased.connection), (waiter, 3));
}
