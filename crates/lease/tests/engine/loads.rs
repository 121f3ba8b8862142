//! Loads on a simulated server: spikes, cold starts, overloads, and all connections at the end of their life.

use crate::common::{A, Bench, ms, quiet};
use crate::world::World;
use sockdrawer_lease::{Error, Policy, Settings};

/// Creates a pool with five free connections.
fn with_five_free(min_free: usize) -> World {
    let settings = Settings { max: 50, max_connecting: 5, min_free: 5, ..quiet() };
    let mut world = World::new(settings.clone(), ms(150), ms(2));
    world.engine.add_target(world.now, &());
    // The simulation takes actions after events: this is one.
    world.ask_at(world.now, world.now.into());
    world.run(ms(500));
    world.engine.set(world.now, Settings { min_free, ..settings });
    assert_eq!((world.engine.status().free, world.connections()), (5, 5));
    world.refused.clear();
    world
}

fn spike(world: &mut World) {
    world.served.clear();
    (0..50).for_each(|_| world.ask_at(world.now, (world.now + ms(10_000)).into()));
    world.run(ms(1000));
    assert_eq!((world.served.len(), world.refused.len()), (50, 0));
}

#[test]
fn a_spike_is_served_by_returns_where_these_are_sooner_than_connects() {
    for min_free in [0, 5] {
        let mut world = with_five_free(min_free);
        spike(&mut world);
        assert!(world.connections() <= 6 && world.waited(world.now - ms(1000), 1.0) <= ms(25), "{:?}", world.engine.status());
        // Once more, now that it is known how long a use takes.
        spike(&mut world);
        assert!(world.connections() <= 6 && world.waited(world.now - ms(1000), 1.0) <= ms(25), "{:?}", world.engine.status());
    }
}

#[test]
fn a_spike_ends_with_one_connect_too_many_where_uses_were_longer_until_then() {
    let mut world = with_five_free(0);
    // All five are held for as long as it took to make them.
    world.usage(ms(600));
    (0..5).for_each(|_| world.ask_at(world.now, (world.now + ms(10)).into()));
    world.run(ms(700));
    world.usage(ms(2));
    spike(&mut world);
    assert!(world.connections() <= 6 && world.waited(world.now - ms(1000), 1.0) <= ms(25), "{:?}", world.engine.status());
}

#[test]
fn connects_are_begun_where_returns_do_not_come() {
    let mut world = with_five_free(0);
    spike(&mut world);
    world.served.clear();
    world.usage(ms(5000));
    let began = world.now;
    (0..7).for_each(|_| world.ask_at(began, (began + ms(10_000)).into()));
    world.run(ms(1000));
    assert_eq!(world.served.len(), 7);
    // The time of a connect is waited for a return, and as long for the connect.
    assert!(world.waited(began, 1.0) <= ms(320), "{:?}", world.waited(began, 1.0));
}

#[test]
fn a_connect_is_begun_at_once_where_it_is_sooner_and_held_back_for_its_own_time_where_a_return_is() {
    for (usage, sooner) in [(1000, true), (100, false)] {
        let mut bench = Bench::new(quiet());
        bench.wait(0, A);
        let connect = bench.jobs()[0];
        bench.engine.done(bench.at(150), connect, Ok(1));
        let leased = bench.woken().pop().expect("woken").1.expect("leased");
        bench.give(150 + usage, leased);
        let _leased = bench.lease(2000, A);
        bench.wait(2001, A);
        assert_eq!(bench.jobs().len(), usize::from(sooner), "a use took {usage} ms, a connect 150 ms");
        if !sooner {
            bench.engine.handle_timeout(bench.at(2150));
            assert!(bench.actions().is_empty());
            assert_eq!(bench.engine.poll_timeout(), Some(bench.at(2151)));
            bench.engine.handle_timeout(bench.at(2151));
            assert_eq!(bench.jobs().len(), 1);
        }
    }
}

#[test]
fn a_cold_pool_connects_two_at_a_time_and_none_too_many() {
    let mut world = World::new(Settings { max: 40, ..quiet() }, ms(150), ms(2000));
    (0..200).for_each(|_| world.ask_at(world.now, (world.now + ms(60_000)).into()));
    world.run(ms(60_000));
    assert_eq!((world.served.len(), world.connections(), world.max_connecting), (200, 40, 2));
    // Ten waiters of quick leases need no forty connections.
    let mut world = World::new(Settings { max: 40, ..quiet() }, ms(150), ms(2));
    (0..200).for_each(|_| world.ask_at(world.now, (world.now + ms(60_000)).into()));
    world.run(ms(60_000));
    assert!(world.served.len() == 200 && world.connections() <= 6, "{}", world.connections());
}

/// Runs twice the load that ten connections can serve, for ten seconds.
fn overload(policy: Policy) -> World {
    let mut world = World::new(Settings { policy, max_waiters: 100_000, ..quiet() }, ms(20), ms(10));
    world.load(2000, ms(10_000), ms(500));
    world.run(ms(10_000));
    world
}

#[test]
fn codel_keeps_waits_below_twice_its_target_at_the_throughput_of_fifo() {
    let policy = Policy::CoDel { target: ms(20), interval: ms(100) };
    let (codel, fifo) = (overload(policy), overload(Policy::Fifo));
    let from = codel.now - ms(9_000);
    assert!(codel.waited(from, 0.99) <= ms(40), "{:?}", codel.waited(from, 0.99));
    assert!(fifo.waited(fifo.now - ms(9_000), 0.5) >= ms(490));
    assert!(codel.served.len() * 100 >= fifo.served.len() * 99, "{} {}", codel.served.len(), fifo.served.len());
    let dropped = |(_, error): &&_| matches!(error, Error::Dropped { policy: by, .. } if *by == policy);
    assert_eq!(codel.refused.iter().filter(dropped).count(), codel.refused.len(), "nobody waits in vain until its deadline");
}

#[test]
fn a_burst_that_is_shorter_than_the_interval_of_codel_loses_nobody() {
    let policy = Policy::CoDel { target: ms(5), interval: ms(100) };
    let mut world = World::new(Settings { policy, ..quiet() }, ms(20), ms(10));
    world.load(500, ms(1000), ms(500));
    (0..45).for_each(|_| world.ask_at(world.now + ms(500), (world.now + ms(1000)).into()));
    world.run(ms(2000));
    assert_eq!((world.served.len(), world.refused.len()), (545, 0));
}

#[test]
fn callers_who_take_turns_wait_alike() {
    let mut world = World::new(Settings { max: 8, ..quiet() }, ms(20), ms(3));
    let (mut asks, began) = (80, world.now);
    for _ in 0..5_000 {
        // Each caller that was served asks again.
        (0..asks).for_each(|_| world.ask_at(world.now, (world.now + ms(60_000)).into()));
        let before = world.served.len();
        world.run(ms(1));
        asks = world.served.len() - before;
    }
    // Once all connections are there.
    let waits: Vec<_> = world.served.iter().filter(|(at, _)| *at - began >= ms(1000)).map(|(_, waited)| *waited).collect();
    let (mean, longest) = (waits.iter().sum::<std::time::Duration>() / waits.len() as u32, waits.iter().max().expect("some"));
    assert!(waits.len() > 8_000 && *longest <= 2 * mean, "{} waits, {mean:?} in the mean, {longest:?} at most", waits.len());
}

#[test]
fn adaptive_lifo_serves_some_at_once_in_an_overload_and_is_fifo_before() {
    let world = overload(Policy::AdaptiveLifo { after: ms(50) });
    let from = world.now - ms(9_000);
    assert!(world.waited(from, 0.9) <= ms(20), "{:?}", world.waited(from, 0.9));
    assert!(world.refused.iter().all(|(_, error)| matches!(error, Error::TimedOut { .. })));
}

#[test]
fn connections_at_the_end_of_their_life_are_not_seen_by_callers() {
    let aging = Settings { max: 12, lifetime: Some(ms(1000)), ..quiet() };
    let mut world = World::new(aging, ms(20), ms(10));
    world.load(700, ms(20_000), ms(1000));
    world.run(ms(20_000));
    let (from, stats) = (world.now - ms(19_000), world.engine.stats());
    assert!(stats.ends.values().sum::<u64>() >= 100, "{:?}", stats.ends);
    assert!(world.waited(from, 0.99) <= ms(10) && world.refused.is_empty(), "{:?}", world.waited(from, 0.99));
}
