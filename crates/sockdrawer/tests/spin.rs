//! A loop that spins burns CPU for as long as it was told after it had something to do, and no longer.

mod common;

use common::{Echo, connect, echoes, start};
use sockdrawer::{Config, Context, Error, Input, Model, Peer, Protocol, Service, Step};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What this process's threads have run for.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    let ran = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(ran.sum())
}

/// How much of a second after an exchange the loops of this process run.
fn burnt() -> Duration {
    let before = cpu();
    // waits because: that a loop sleeps can only be seen by what it does not use in a time.
    std::thread::sleep(Duration::from_secs(1));
    cpu() - before
}

/// One test at a time: the CPU of the process is looked at.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_loop_spins_for_as_long_as_it_was_told_and_then_sleeps() {
    const SPIN: Duration = Duration::from_millis(400);
    let _alone = ALONE.lock();
    let (pool, at) = start(Config::accept(Echo).loops(1).spin(SPIN));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"one"));
    let spun = burnt();
    assert!(spun > SPIN / 8, "it slept: {spun:?}");
    assert!(spun < SPIN * 3 / 2, "it went on: {spun:?}");
    let idle = burnt();
    assert!(idle < SPIN / 8, "a loop without events spins: {idle:?}");
    pool.update(|config| config.spin(Duration::ZERO)).expect("in place");
    assert!(echoes(&mut client, b"two"));
    let asleep = burnt();
    assert!(asleep < SPIN / 8, "it spins still: {asleep:?}");
    drop(client);
    pool.shutdown(sockdrawer::Drain::within(Duration::from_secs(5)));
}

/// Answers 50 ms after it was asked.
struct Later;

impl Service for Later {
    type Protocol = Later;
    fn open(&self, _peer: &Peer) -> Later {
        Later
    }
}

impl Protocol for Later {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        input.take_all();
        cx.set_timer(Duration::from_millis(50));
        Step::Continue
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"one");
        Step::Continue
    }
}

#[test]
fn timers_and_letters_are_not_held_up_by_a_loop_that_spins() {
    let _alone = ALONE.lock();
    let (pool, at) = start(Config::accept(Later).loops(1).spin(Duration::from_secs(1)));
    let mut client = connect(at);
    let asked = Instant::now();
    assert!(echoes(&mut client, b"one"));
    assert!(asked.elapsed() < Duration::from_millis(500), "{:?}", asked.elapsed());
    let began = Instant::now();
    let status = pool.connections(&sockdrawer::Selector::All);
    assert!(status.len() == 1 && began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    drop(client);
    pool.shutdown(sockdrawer::Drain::within(Duration::from_secs(5)));
}

#[test]
fn who_does_not_loop_does_not_spin() {
    for model in [Model::Threads, Model::Fork] {
        let refused = sockdrawer::Pool::start(Config::accept(Echo).model(model).spin(Duration::from_micros(50)));
        assert!(matches!(refused, Err(Error::Invalid { setting: "spin", .. })), "{model:?}");
    }
    let refused = sockdrawer::Pool::start(Config::accept(Echo).spin(Duration::from_secs(2)));
    assert!(matches!(refused, Err(Error::Invalid { setting: "spin", .. })));
}
