//! Many tasks and threads at once, which give up, fail and panic at random: nothing is lost.

use crate::books::{Books, Counted, blocking, in_runtime, long, runtime};
use sockdrawer_lease::{Error, Lease, Policy, Pool, Settings};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};
use std::{panic, thread};

const TASKS: u64 = 64;
const THREADS: u64 = 16;
const MAX: usize = 8;

/// Draws (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn settings() -> Settings {
    Settings {
        max: MAX,
        max_per_target: 6,
        backoff: Duration::from_micros(100),
        backoff_max: Duration::from_millis(1),
        lifetime: Some(Duration::from_millis(100)),
        max_uses: Some(100),
        check_after: Some(Duration::from_micros(50)),
        ..Settings::default()
    }
}

fn target(dice: &mut Dice) -> u8 {
    u8::from(dice.below(4) == 0)
}

/// Does something with a lease, and gives it back in any way.
fn finish(mut lease: Lease<u8, Counted>, dice: &mut Dice) {
    match dice.below(50) {
        0 => lease.discard(),
        1 => {
            lease.leave();
            drop(lease.detach());
        }
        2 => lease.is_dirty = true,
        3 => {
            let _ = panic::catch_unwind(panic::AssertUnwindSafe(|| {
                let _held = lease;
                panic::resume_unwind(Box::new("a holder panics"));
            }));
        }
        _ => {}
    }
}

/// Asserts that a caller gets no lease only if it did not wait for long, or the target was down.
fn judge(error: &Error, waits_long: bool) {
    let is_due = matches!(error, Error::Down { .. }) || !waits_long && matches!(error, Error::TimedOut { .. } | Error::Suspended);
    assert!(is_due, "{error}");
}

/// Leases and gives back, until as many leases were had by all.
fn of_thread(pool: &Pool<u8, Counted>, left: &AtomicU64, seed: u64) {
    let mut dice = Dice(seed);
    while left.load(SeqCst) > 0 {
        let target = target(&mut dice);
        let waits_long = dice.below(10) > 0;
        let deadline = if waits_long { long() } else { Instant::now() + Duration::from_micros(dice.below(300)) };
        match pool.lease(&target, deadline) {
            Ok(lease) => {
                lease.begin();
                let _ = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                lease.end();
                finish(lease, &mut dice);
            }
            Err(error) => judge(&error, waits_long),
        }
    }
}

async fn of_task(pool: Pool<u8, Counted>, left: Arc<AtomicU64>, seed: u64) {
    let mut dice = Dice(seed);
    while left.load(SeqCst) > 0 {
        let target = target(&mut dice);
        let mut polls = if dice.below(4) == 0 { dice.below(4) } else { u64::MAX };
        let asked = {
            let mut future = pin!(pool.lease_async(&target, long()));
            // None where it is given up: after a poll, maybe with the lease on its way.
            std::future::poll_fn(|cx| {
                if polls == 0 {
                    return Poll::Ready(None);
                }
                polls -= 1;
                if polls < 4 {
                    cx.waker().wake_by_ref();
                }
                future.as_mut().poll(cx).map(Some)
            })
            .await
        };
        match asked {
            Some(Ok(lease)) => {
                lease.begin();
                let _ = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                if dice.below(3) == 0 {
                    tokio::task::yield_now().await;
                }
                lease.end();
                finish(lease, &mut dice);
            }
            Some(Err(error)) => judge(&error, true),
            None => tokio::task::yield_now().await,
        }
    }
}

/// Changes the limits, the policy or the targets, or suspends the pool, so many times, each once some more leases were had. Then no more are wanted.
fn change(pool: &Pool<u8, Counted>, left: &AtomicU64, times: u64) {
    let mut dice = Dice(7);
    for _ in 0..times {
        let before = left.load(SeqCst);
        while before - left.load(SeqCst) < 20 {
            thread::yield_now();
        }
        match dice.below(4) {
            0 => pool.remove_target(&target(&mut dice)),
            1 => {
                pool.suspend();
                thread::yield_now();
                pool.resume();
            }
            _ => {
                let policies =
                    [Policy::Fifo, Policy::AdaptiveLifo { after: Duration::from_millis(1) }, Policy::Fair, Policy::Priority];
                let max = 2 + usize::try_from(dice.below(MAX as u64 - 1)).expect("it is small");
                let (policy, max_per_target) = (policies[usize::try_from(dice.below(4)).expect("it is small")], max - 1);
                pool.set(Settings { max, max_per_target, policy, ..settings() });
            }
        }
    }
    pool.set(settings());
    left.store(0, SeqCst);
}

fn leases() -> u64 {
    let text = std::env::var("SOCKDRAWER_LEASES").unwrap_or_else(|_| "20000".to_owned());
    text.parse().expect("SOCKDRAWER_LEASES is a number")
}

fn storm(runtime: &tokio::runtime::Runtime, pool: Pool<u8, Counted>, books: &Arc<Books>, leases: u64, changes: u64) {
    let left = Arc::new(AtomicU64::new(leases));
    books.fail_each.store(20, SeqCst);
    let tasks: Vec<_> = (1..=TASKS).map(|seed| runtime.spawn(of_task(pool.clone(), left.clone(), seed))).collect();
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (pool, left) = (&pool, &*left);
            scope.spawn(move || of_thread(pool, left, seed << 32));
        }
        if changes > 0 {
            change(&pool, &left, changes);
        }
    });
    for task in tasks {
        runtime.block_on(task).expect("no task panics");
    }
    books.fail_each.store(0, SeqCst);
    assert_eq!((pool.status().leased, pool.status().waiting), (0, 0));
    assert!(books.max_alive() <= MAX, "{} at once", books.max_alive());
    // All places are still there.
    let mut leases: Vec<_> = (0..6).map(|_| pool.lease(&0, long()).expect("there is room")).collect();
    leases.extend((0..2).map(|_| pool.lease(&1, long()).expect("there is room")));
    assert!(matches!(pool.try_lease(&1), Err(Error::TimedOut { leased: 2, others: 6, .. })));
    drop(leases);
    assert_eq!(pool.drain(long()), 0);
    books.await_alive(0);
    assert!(books.max_alive() <= MAX);
}

#[test]
fn nothing_is_lost_in_a_storm_over_blocking_connects() {
    let runtime = runtime();
    let (pool, books) = blocking(settings());
    storm(&runtime, pool, &books, leases(), 0);
}

#[test]
fn nothing_is_lost_in_a_storm_over_async_connects() {
    let runtime = runtime();
    let (pool, books) = in_runtime(&runtime, settings());
    storm(&runtime, pool, &books, leases(), 0);
}

#[test]
fn nothing_is_lost_by_a_thousand_changes_in_a_storm() {
    let runtime = runtime();
    let (pool, books) = in_runtime(&runtime, settings());
    storm(&runtime, pool, &books, u64::MAX, 1000);
    let (pool, books) = blocking(settings());
    storm(&runtime, pool, &books, u64::MAX, 1000);
}
