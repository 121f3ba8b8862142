//! The hand-over between callers under many schedules of their threads: `ci/long shuttle`. A caller that is never woken, or never gets what it waits for, is a
//! deadlock there, which fails. `cargo test` runs them on threads of the system, as they happen to meet.

use crate::engine::{Engine, Job, Returned};
use crate::error::Error;
use crate::gone::Gone;
use crate::lease::{Lease, LeaseFuture, block};
use crate::random::Random;
use crate::request::Request;
use crate::settings::Settings;
use crate::shared::{Run, Shared, Task};
use crate::stats::Reason;
use crate::sync::thread;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[cfg(not(shuttle))]
fn check(test: impl Fn() + Send + Sync + 'static) {
    (0..100).for_each(|_| test());
}

#[cfg(shuttle)]
fn check(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let again = test.clone();
    shuttle::check_random(move || test(), 1_000);
    shuttle::check_pct(move || again(), 1_000, 3);
}

/// Does this with each job. A connection is nothing.
struct Runs(fn(Task<(), ()>));

/// Does a job where it is asked for.
fn at_once(mut task: Task<(), ()>) {
    match task.job.take() {
        // Told by the task's end.
        Some(Job::Close(..)) | None => {}
        Some(_) => task.tell(Ok(())),
    }
}

impl Run<(), ()> for Runs {
    fn run(&self, task: Task<(), ()>) {
        (self.0)(task);
    }
    fn returned(&self, (): &mut ()) -> Returned {
        Returned::Reusable
    }
    fn watch(&self, (): &mut (), _gone: Gone) {}
    fn look(&self, (): &mut ()) -> Option<Reason> {
        None
    }
    fn read_count(&self, (): &()) -> Option<u64> {
        None
    }
}

/// A pool of so many connections, and how many of them are in use.
#[derive(Clone)]
struct Few {
    shared: Arc<Shared<(), ()>>,
    used: Arc<AtomicUsize>,
    max: usize,
}

impl Few {
    fn new(max: usize) -> Few {
        let settings = Settings { max, max_per_target: max, ..Settings::default() };
        let shared = Shared::new(Engine::new(settings, Random::seeded(7)), Box::new(Runs(at_once)));
        Few { shared, used: Arc::default(), max }
    }

    fn lease(&self) -> Result<Lease<(), ()>, Error> {
        block(&self.shared, &(), patient())
    }

    /// Uses a connection, and gives it back.
    fn uses(&self, lease: Lease<(), ()>) {
        assert!(self.used.fetch_add(1, SeqCst) < self.max, "more are leased than there may be");
        thread::yield_now();
        self.used.fetch_sub(1, SeqCst);
        drop(lease);
    }

    /// Asks once, and goes away where it has to wait.
    fn gives_up(&self) {
        let mut future = LeaseFuture::new(self.shared.clone(), (), patient());
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        thread::yield_now();
        match polled {
            Poll::Ready(lease) => self.uses(lease.expect("it is open")),
            Poll::Pending => drop(future),
        }
    }

    /// Runs these in threads, to their ends, after which no caller waits and no connection is leased.
    fn all(&self, does: Vec<fn(&Few)>) {
        let threads: Vec<_> = does
            .into_iter()
            .map(|does| {
                let few = self.clone();
                thread::spawn(move || does(&few))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let status = self.shared.lock().engine.status();
        assert_eq!((status.leased, status.waiting), (0, 0));
    }
}

fn patient() -> Request {
    (Instant::now() + Duration::from_secs(3_600)).into()
}

fn twice(few: &Few) {
    (0..2).for_each(|_| few.uses(few.lease().expect("it is open")));
}

#[cfg(all(feature = "sockets", not(shuttle)))]
#[test]
fn a_caller_that_goes_away_when_the_engine_has_decided_keeps_no_connection() {
    let settings = Settings { max: 2, max_per_target: 2, ..Settings::default() };
    // Connects take longer than the test.
    let shared = Shared::new(Engine::new(settings, Random::seeded(7)), Box::new(Runs(std::mem::forget)));
    let mut future = LeaseFuture::new(shared.clone(), (), patient());
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The decision of the engine is left to the timer thread, of which there is none.
    shared.add(&(), (), Duration::ZERO);
    drop(future);
    let status = shared.lock().engine.status();
    assert_eq!((status.leased, status.free, shared.lock().waits.len()), (0, 1, 0));
}

#[test]
fn each_caller_gets_the_connection_in_turn() {
    check(|| Few::new(1).all(vec![twice; 3]));
    check(|| Few::new(2).all(vec![twice; 4]));
}

#[test]
fn the_turn_of_a_caller_that_goes_away_is_the_next_ones() {
    check(|| Few::new(1).all(vec![twice, Few::gives_up, twice, Few::gives_up]));
}

#[test]
fn a_pool_that_is_closed_leaves_no_caller_behind() {
    fn until_closed(few: &Few) {
        while let Ok(lease) = few.lease() {
            few.uses(lease);
        }
    }
    fn closes(few: &Few) {
        few.uses(few.lease().expect("nothing has closed it"));
        few.shared.call(|state, now| state.engine.drain(now, now));
    }
    check(|| {
        let few = Few::new(1);
        few.all(vec![until_closed, closes, until_closed]);
        assert!(matches!(few.lease(), Err(Error::Closed)));
    });
}
