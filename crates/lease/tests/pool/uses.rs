//! Leases from taking to giving back, and changes of a running pool.

use crate::books::{blocking, in_runtime, long, runtime};
use sockdrawer_lease::{Error, Settings};
use std::sync::atomic::Ordering::SeqCst;
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
