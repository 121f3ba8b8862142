//! Holders, waiters, connects and pools that end before their time.

use crate::books::{Async, Books, blocking, in_runtime, long, runtime};
use sockdrawer_lease::{Error, Pool, Settings, Spawned};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use std::{panic, thread};

fn one() -> Settings {
    Settings { max: 1, ..Settings::default() }
}

#[test]
fn a_panicking_holder_loses_its_connection_and_no_place() {
    let (pool, books) = blocking(one());
    let lease = pool.lease(&0, long()).expect("leased");
    let ended = thread::spawn(move || {
        let _held = lease;
        panic::resume_unwind(Box::new("a holder panics"));
    });
    assert!(ended.join().is_err());
    let lease = pool.lease(&0, long()).expect("leased");
    assert_eq!((lease.number, books.max_alive()), (2, 1));
}

#[test]
fn a_future_that_is_dropped_with_its_lease_on_the_way_passes_it_on() {
    let (pool, _books) = blocking(one());
    let lease = pool.lease(&0, long()).expect("leased");
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = Box::pin(pool.lease_async(&0, long()));
    let mut second = pin!(pool.lease_async(&0, long()));
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    drop(lease);
    assert!(second.as_mut().poll(&mut cx).is_pending(), "it is the first one's turn");
    drop(first);
    let Poll::Ready(Ok(lease)) = second.as_mut().poll(&mut cx) else { panic!("the turn was lost") };
    assert_eq!(lease.uses(), 3);
}

#[test]
fn a_future_that_is_dropped_in_line_leaves_the_line() {
    let (pool, _books) = blocking(one());
    let lease = pool.lease(&0, long()).expect("leased");
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = Box::pin(pool.lease_async(&0, long()));
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    assert_eq!(pool.status().waiting, 1);
    drop(waits);
    assert_eq!(pool.status().waiting, 0);
    drop(lease);
    assert_eq!(pool.status().free, 1);
}

#[test]
fn a_connect_that_panics_has_failed() {
    let (pool, books) = blocking(Settings { down_after: Duration::ZERO, ..one() });
    books.panics.store(true, SeqCst);
    let error = pool.lease(&0, long()).err().expect("it is down");
    assert!(error.to_string().starts_with("the target is down: it panicked"), "{error}");
    books.panics.store(false, SeqCst);
    let Error::Down { next_try, .. } = error else { panic!("{error}") };
    // waits because: the pause is one of the clock's.
    thread::sleep(next_try.saturating_duration_since(Instant::now()));
    assert!(pool.lease(&0, long()).is_ok());
}

#[test]
fn a_connect_that_hangs_is_dropped_in_time() {
    let runtime = runtime();
    let timeout = Duration::from_millis(20);
    let (pool, books) = in_runtime(&runtime, Settings { connect_timeout: timeout, down_after: Duration::ZERO, ..one() });
    books.hangs.store(true, SeqCst);
    let error = runtime.block_on(pool.lease_async(&0, long())).err().expect("it is down");
    assert_eq!(error.to_string(), "the target is down: the connect took too long");
    // Its place is free again.
    assert_eq!(pool.drain(long()), 0);
}

#[test]
fn an_executor_that_drops_its_work_loses_no_place() {
    let books = Arc::new(Books::default());
    let settings = Settings { down_after: Duration::from_millis(20), backoff: Duration::from_millis(1), ..one() };
    let pool = Pool::new_async(Async(books), drop, settings).expect("it starts");
    let error = pool.lease(&0, long()).err().expect("it is down");
    assert!(matches!(error, Error::Down { .. }), "{error}");
    assert_eq!(pool.drain(long()), 0);
    assert_eq!(pool.status(), sockdrawer_lease::Status::default());
}

/// A waker that counts.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Returns an executor that does all work within the call that gives it.
fn at_once(wakes: Arc<Counting>) -> impl Fn(Spawned) + Send + Sync {
    move |mut job| {
        let waker = Waker::from(wakes.clone());
        while job.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {}
    }
}

#[test]
fn nothing_is_kept_of_a_job_that_has_ended() {
    let (executor, books) = (Arc::new(Counting::default()), Arc::new(Books::default()));
    let pool = Pool::new_async(Async(books.clone()), at_once(executor.clone()), one()).expect("it starts");
    for number in 1..=3 {
        let lease = pool.lease(&0, long()).expect("leased");
        assert_eq!(lease.number, number);
        lease.discard();
    }
    assert_eq!(pool.drain(long()), 0);
    assert_eq!(Arc::strong_count(&executor), 2, "this one, and the pool's way to run jobs");
}

#[test]
fn a_wait_ends_at_its_deadline_in_threads_and_tasks() {
    let (pool, _books) = blocking(one());
    let _lease = pool.lease(&0, long()).expect("leased");
    let deadline = Instant::now() + Duration::from_millis(20);
    let by_thread = thread::spawn({
        let pool = pool.clone();
        move || pool.lease(&0, deadline).err().expect("timed out")
    });
    let by_task = runtime().block_on(pool.lease_async(&0, deadline)).err().expect("timed out");
    for error in [by_thread.join().expect("no panic"), by_task] {
        assert!(matches!(error, Error::TimedOut { free: 0, leased: 1, connecting: 0, .. }), "{error}");
    }
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_drain_waits_for_leases_until_its_deadline() {
    let (pool, books) = blocking(Settings { max: 2, ..one() });
    let (one, two) = (pool.lease(&0, long()).expect("leased"), pool.lease(&0, long()).expect("leased"));
    let mut drains = pin!(pool.drain_async(long()));
    assert!(drains.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(one);
    // Asked again, the drain has another deadline.
    assert_eq!(pool.drain(Instant::now() + Duration::from_millis(50)), 1);
    assert_eq!(runtime().block_on(drains), 1);
    assert!(matches!(pool.lease(&0, long()), Err(Error::Closed)));
    books.await_alive(1);
    drop(two);
    books.await_alive(0);
}

#[test]
fn a_drain_ends_when_nothing_is_left() {
    let (pool, books) = blocking(one());
    let lease = pool.lease(&0, long()).expect("leased");
    let (runtime, drained) = (runtime(), pool.drain_async(long()));
    let drained = runtime.spawn(drained);
    drop(lease);
    assert_eq!(runtime.block_on(drained).expect("no panic"), 0);
    books.await_alive(0);
}

#[test]
fn a_drain_that_is_polled_often_wakes_its_task_once() {
    let executor = at_once(Arc::default());
    let pool = Pool::new_async(Async(Arc::default()), executor, one()).expect("it starts");
    let lease = pool.lease(&0, long()).expect("leased");
    let task = Arc::new(Counting::default());
    let waker = Waker::from(task.clone());
    let mut drained = pin!(pool.drain_async(long()));
    for _ in 0..1_000 {
        assert!(drained.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(lease);
    assert_eq!(task.0.load(SeqCst), 1);
    assert_eq!(drained.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(0));
}

#[test]
fn the_last_handle_closes_the_pool() {
    let (pool, books) = blocking(one());
    let lease = pool.lease(&0, long()).expect("leased");
    let waits = pool.lease_async(&0, long());
    let waits = {
        let mut waits = Box::pin(waits);
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        waits
    };
    drop(pool);
    assert!(matches!(runtime().block_on(waits), Err(Error::Closed)));
    books.await_alive(1);
    drop(lease);
    books.await_alive(0);
}

#[test]
fn closes_that_hang_end_in_time_when_the_last_handle_is_gone_too() {
    for pool_goes_first in [false, true] {
        let (runtime, books) = (runtime(), Arc::new(Books::default()));
        let (kept, gone) = mpsc::channel::<()>();
        let handle = runtime.handle().clone();
        let spawn = move |job: Spawned| {
            let _kept_with_the_pool = &kept;
            drop(handle.spawn(job));
        };
        let pool = Pool::new_async(Async(books.clone()), spawn, one()).expect("it starts");
        let lease = runtime.block_on(pool.lease_async(&0, long())).expect("leased");
        books.closes_hang.store(true, SeqCst);
        pool.set(Settings { connect_timeout: Duration::from_millis(20), ..one() });
        if pool_goes_first {
            drop(pool);
            drop(lease);
        } else {
            drop(lease);
            drop(pool);
        }
        books.await_alive(0);
        let left = gone.recv_timeout(Duration::from_secs(60));
        assert_eq!(left, Err(RecvTimeoutError::Disconnected), "nothing is left of the pool");
    }
}
