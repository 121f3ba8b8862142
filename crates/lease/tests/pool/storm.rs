//! Many tasks and threads at once, which give up, fail and panic at random: nothing is lost.

use crate::books::{Books, Counted, blocking, in_runtime, long, runtime};
use sockdrawer_lease::{Error, Lease, Pool, Settings};
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

fn judge(error: &Error) {
    assert!(matches!(error, Error::TimedOut { .. } | Error::Down { .. }), "{error}");
}

/// Leases and gives back, until as many leases were had by all.
fn of_thread(pool: &Pool<u8, Counted>, left: &AtomicU64, seed: u64) {
    let mut dice = Dice(seed);
    while left.load(SeqCst) > 0 {
        let target = target(&mut dice);
        let wait = if dice.below(10) == 0 { Duration::from_micros(dice.below(300)) } else { Duration::from_secs(60) };
        match pool.lease(&target, Instant::now() + wait) {
            Ok(lease) => {
                lease.begin();
                let _ = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                lease.end();
                finish(lease, &mut dice);
            }
            Err(error) => judge(&error),
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
            Some(Err(error)) => judge(&error),
            None => tokio::task::yield_now().await,
        }
    }
}

fn storm(runtime: &tokio::runtime::Runtime, pool: Pool<u8, Counted>, books: &Arc<Books>) {
    let text = std::env::var("SOCKDRAWER_LEASES").unwrap_or_else(|_| "20000".to_owned());
    let left = Arc::new(AtomicU64::new(text.parse().expect("SOCKDRAWER_LEASES is a number")));
    books.fail_each.store(20, SeqCst);
    let tasks: Vec<_> = (1..=TASKS).map(|seed| runtime.spawn(of_task(pool.clone(), left.clone(), seed))).collect();
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (pool, left) = (&pool, &*left);
            scope.spawn(move || of_thread(pool, left, seed << 32));
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
    storm(&runtime, pool, &books);
}

#[test]
fn nothing_is_lost_in_a_storm_over_async_connects() {
    let runtime = runtime();
    let (pool, books) = in_runtime(&runtime, settings());
    storm(&runtime, pool, &books);
}
