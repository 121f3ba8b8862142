//! Leases from taking to giving back, and changes of a running pool.

use crate::books::{blocking, in_runtime, long, runtime};
use sockdrawer_lease::{Error, Event, Policy, Reason, Request, Settings};
use std::panic::Location;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[test]
fn threads_and_tasks_lease_from_one_pool_in_one_line() {
    let runtime = runtime();
    let (pool, books) = in_runtime(&runtime, Settings { max: 1, ..Settings::default() });
    let lease = pool.lease(&0, long()).expect("leased");
    let task = runtime.spawn(pool.lease_async(&0, long()));
    let by_task = runtime.spawn(async move { task.await.expect("no panic").map(|lease| lease.number) });
    let by_thread = thread::spawn({
        let pool = pool.clone();
        move || pool.lease(&0, long()).map(|lease| lease.number)
    });
    drop(lease);
    let numbers = (runtime.block_on(by_task).expect("no panic"), by_thread.join().expect("no panic"));
    assert!(matches!(numbers, (Ok(1), Ok(1))), "{numbers:?}");
    assert_eq!((books.connects.load(SeqCst), books.max_alive()), (1, 1));
}

#[test]
fn what_is_free_is_had_without_a_wait_and_nothing_is_begun_for_who_only_tries() {
    let (pool, books) = blocking(Settings::default());
    assert!(matches!(pool.try_lease(&0), Err(Error::TimedOut { waited: Duration::ZERO, place: 1, .. })));
    assert_eq!(books.connects.load(SeqCst), 0);
    drop(pool.lease(&0, long()));
    assert_eq!(pool.try_lease(&0).expect("one is free").uses(), 2);
}

#[test]
fn a_dead_connection_is_replaced_before_anybody_gets_it() {
    let (pool, books) = blocking(Settings { max: 1, check_after: Some(Duration::ZERO), ..Settings::default() });
    drop(pool.lease(&0, long()));
    assert_eq!(pool.lease(&0, long()).expect("it passes the check").number, 1);
    books.checks_fail.store(true, SeqCst);
    assert_eq!(pool.lease(&0, long()).expect("another").number, 2);
    assert_eq!(books.max_alive(), 1);
}

#[test]
fn a_check_that_hangs_is_dropped_in_time_and_another_connection_is_made() {
    let runtime = runtime();
    let connect_timeout = Duration::from_millis(100);
    let settings = Settings { max: 1, connect_timeout, check_after: Some(Duration::ZERO), ..Settings::default() };
    let (pool, books) = in_runtime(&runtime, settings);
    drop(pool.lease(&0, long()));
    books.checks_hang.store(true, SeqCst);
    assert_eq!(pool.lease(&0, long()).expect("another is made").number, books.connects.load(SeqCst));
    assert!(books.connects.load(SeqCst) > 1 && books.max_alive() == 1);
}

#[test]
fn a_connection_is_reset_where_it_says_so() {
    for is_async in [false, true] {
        let runtime = runtime();
        let settings = Settings { max: 1, ..Settings::default() };
        let (pool, books) = if is_async { in_runtime(&runtime, settings) } else { blocking(settings) };
        let mut lease = pool.lease(&0, long()).expect("leased");
        lease.is_dirty = true;
        drop(lease);
        let lease = pool.lease(&0, long()).expect("leased");
        assert_eq!((lease.number, lease.is_dirty, books.resets.load(SeqCst)), (1, false, 1));
        drop(lease);
        assert_eq!((pool.status().free, books.resets.load(SeqCst)), (1, 1));
    }
}

#[test]
fn what_is_discarded_or_detached_makes_room() {
    let (pool, books) = blocking(Settings { max: 1, ..Settings::default() });
    pool.lease(&0, long()).expect("leased").discard();
    let detached = pool.lease(&0, long()).expect("leased").detach();
    let third = pool.lease(&0, long()).expect("leased");
    assert_eq!((detached.number, third.number, books.max_alive()), (2, 3, 2));
}

#[test]
fn settings_change_while_others_wait() {
    let (pool, _books) = blocking(Settings { max: 1, ..Settings::default() });
    let _lease = pool.lease(&0, long()).expect("leased");
    let waits = thread::spawn({
        let pool = pool.clone();
        move || pool.lease(&0, long()).map(|lease| lease.number)
    });
    while pool.status().waiting == 0 {
        thread::yield_now();
    }
    pool.set(Settings { max: 2, ..pool.settings() });
    assert_eq!(waits.join().expect("no panic").expect("there is room"), 2);
}

#[test]
fn a_minimum_of_free_connections_is_there_without_a_lease() {
    let (pool, books) = blocking(Settings { min_free: 2, ..Settings::default() });
    pool.add_target(&0);
    while pool.status().free < 2 {
        thread::yield_now();
    }
    let (_one, _two) = (pool.try_lease(&0).expect("free"), pool.try_lease(&0).expect("free"));
    while pool.status().free < 2 {
        thread::yield_now();
    }
    pool.remove_target(&0);
    books.await_alive(2);
}

#[test]
fn a_lease_is_unused_until_something_is_read() {
    for is_async in [false, true] {
        let runtime = runtime();
        let (pool, _books) = if is_async { in_runtime(&runtime, Settings::default()) } else { blocking(Settings::default()) };
        let mut lease = pool.lease(&0, long()).expect("leased");
        assert!(lease.unused());
        lease.read = Some(7);
        assert!(!lease.unused());
        drop(lease);
        let mut lease = pool.lease(&0, long()).expect("leased");
        assert!(lease.unused(), "an earlier holder read it");
        lease.read = None;
        assert!(!lease.unused(), "it is not known");
    }
}

#[test]
fn a_lease_that_is_held_for_too_long_is_told_with_the_line_that_asked_for_it() {
    let runtime = runtime();
    let (pool, _books) = in_runtime(&runtime, Settings { held_after: Some(Duration::from_millis(1)), ..Settings::default() });
    let (told, events) = mpsc::channel();
    pool.observe(move |event| told.send(event.clone()).expect("it is heard"));
    let here = Location::caller().line();
    let by_thread = pool.lease(&0, long()).expect("leased");
    let by_task = runtime.block_on(pool.lease_async(&0, long())).expect("leased");
    let lines: Vec<_> = events
        .iter()
        .filter_map(
            |event| if let Event::Held { caller, target: 0, .. } = event { Some((caller.file(), caller.line())) } else { None },
        )
        .take(2)
        .collect();
    assert_eq!(lines, [(file!(), here + 1), (file!(), here + 2)]);
    drop((by_thread, by_task));
    assert_eq!(pool.stats().held, 2);
}

#[test]
fn events_tell_the_life_of_a_connection_and_an_observer_may_panic_or_use_the_pool() {
    let (pool, books) = blocking(Settings { down_after: Duration::ZERO, ..Settings::default() });
    let (told, events) = mpsc::channel();
    let handle = pool.clone();
    pool.observe(move |event| {
        told.send((event.clone(), handle.status())).expect("it is heard");
        std::panic::resume_unwind(Box::new("an observer panics"));
    });
    pool.lease(&0, long()).expect("leased").discard();
    books.fail_each.store(1, SeqCst);
    assert!(pool.lease(&1, long()).is_err());
    let mut told: Vec<_> = events.iter().take(3).map(|(event, _)| event).collect();
    told.sort_by_key(|event| match event {
        Event::Connected { target: 0, .. } => 0,
        Event::Ended { target: 0, reason: Reason::Broken, uses: 1, .. } => 1,
        Event::ConnectFailed { target: 1, is_down: true, .. } => 2,
        other => panic!("{other:?}"),
    });
    assert!(matches!(told[2], Event::ConnectFailed { .. }) && matches!(told[0], Event::Connected { .. }));
    // The observer holds the pool, which holds the observer.
    pool.observe(|_| {});
}

#[test]
fn requests_carry_priorities_which_count_once_the_policy_says_so() {
    let (pool, _books) = blocking(Settings { max: 1, policy: Policy::Priority, ..Settings::default() });
    let first = pool.lease(&0, long()).expect("leased");
    let mut waits: Vec<_> =
        (0..3).map(|priority| Box::pin(pool.lease_async(&0, Request { priority, ..long().into() }))).collect();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waits.iter_mut().all(|wait| wait.as_mut().poll(&mut cx).is_pending()));
    drop(first);
    let high = waits[2].as_mut().poll(&mut cx);
    assert!(matches!(high, std::task::Poll::Ready(Ok(_))));
    pool.set(Settings { policy: Policy::Fifo, ..pool.settings() });
    drop(high);
    assert!(waits[0].as_mut().poll(&mut cx).is_ready() && waits[1].as_mut().poll(&mut cx).is_ready());
    assert_eq!(pool.stats().waiting.count(), 4);
}
