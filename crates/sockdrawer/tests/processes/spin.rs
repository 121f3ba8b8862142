//! A loop that spins uses CPU for as long as it was told after it had something to do, and no longer.

use crate::common::{Echo, PATIENCE, connect, echoes, kill, start};
use sockdrawer::{
    Behaviour, Build, Config, Context, Drain, Error, Input, Model, Peer, Pool, Protocol, Recipe, Selector, Service, Step,
};
use std::time::{Duration, Instant};

const SPIN: Duration = Duration::from_millis(400);

pub(crate) const RECIPES: &[(&str, Build)] = &[("spin", |_| Ok(Behaviour::from(Echo)))];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_loop_spins_for_as_long_as_it_was_told_and_then_sleeps", || spins_and_sleeps(Model::Loops)),
    ("so_does_the_one_thread_of_single", || spins_and_sleeps(Model::Single)),
    ("so_do_the_loops_of_helper_processes", || spins_and_sleeps(Model::Prefork)),
    ("a_process_in_the_place_of_a_dead_one_spins_as_is_wanted_now", the_next_process_spins_too),
    ("timers_and_letters_are_not_held_up_by_a_loop_that_spins", timers_and_letters_are_not_held_up),
    ("who_does_not_loop_does_not_spin", who_does_not_loop_does_not_spin),
];

fn echo(model: Model) -> Config {
    let recipe = Recipe { name: "spin".to_owned(), options: Vec::new() };
    Config::accept(Behaviour::from(Echo).with_recipe(recipe)).model(model).loops(1).processes(1)
}

/// Returns for how long the threads of this process and of the pool's others ran or could have: to wait for a CPU is not to sleep.
fn awake(pool: &Pool) -> Duration {
    let processes = pool.status().processes;
    let folders = std::iter::once(std::process::id()).chain(processes.iter().map(|process| process.pid));
    let tasks = folders.flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs"));
    let times = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        Some(text.split(' ').take(2).map(|number| number.parse::<u64>().expect("nanoseconds")).sum::<u64>())
    });
    Duration::from_nanos(times.sum())
}

/// Returns how much of a second that begins with an exchange, or with nothing, the threads were awake.
fn awake_after(pool: &Pool, exchange: impl FnOnce()) -> Duration {
    let before = awake(pool);
    exchange();
    // waits because: that a loop sleeps can only be seen by what it does not use in a time.
    std::thread::sleep(Duration::from_secs(1));
    awake(pool) - before
}

fn spins_and_sleeps(model: Model) {
    let (pool, at) = start(echo(model).spin(SPIN));
    let mut client = connect(at);
    let spun = awake_after(&pool, || assert!(echoes(&mut client, b"one")));
    assert!(spun > SPIN * 3 / 4, "it slept: {spun:?}");
    assert!(spun < SPIN * 2, "it went on: {spun:?}");
    let idle = awake_after(&pool, || {});
    // A loop that spins is awake all the time; others wake for a moment, and may wait for a CPU then.
    assert!(idle < SPIN * 2, "a loop without events spins: {idle:?}");
    pool.update(|config| config.spin(Duration::ZERO)).expect("in place");
    let asleep = awake_after(&pool, || assert!(echoes(&mut client, b"two")));
    assert!(asleep < SPIN * 3 / 4, "it spins still: {asleep:?}");
    drop(client);
    pool.shutdown(Drain::within(PATIENCE));
}

fn the_next_process_spins_too() {
    let (pool, at) = start(echo(Model::Prefork));
    pool.update(|config| config.spin(SPIN)).expect("in place");
    kill(pool.status().processes[0].pid);
    assert!(pool.wait(PATIENCE, |status| status.restarts == 1), "{:#?}", pool.status());
    let mut client = connect(at);
    let spun = awake_after(&pool, || assert!(echoes(&mut client, b"one")));
    assert!(spun > SPIN * 3 / 4, "it slept: {spun:?}");
    drop(client);
    pool.shutdown(Drain::within(PATIENCE));
}

/// Service that answers 50 ms after it was asked.
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

fn timers_and_letters_are_not_held_up() {
    let (pool, at) = start(Config::accept(Later).loops(1).spin(Duration::from_secs(1)));
    let mut client = connect(at);
    let asked = Instant::now();
    assert!(echoes(&mut client, b"one"));
    assert!(asked.elapsed() < Duration::from_millis(500), "{:?}", asked.elapsed());
    let began = Instant::now();
    let status = pool.connections(&Selector::All);
    assert!(status.len() == 1 && began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    drop(client);
    pool.shutdown(Drain::within(PATIENCE));
}

fn who_does_not_loop_does_not_spin() {
    let refuses =
        |refused: Result<(), Error>| assert!(matches!(refused, Err(Error::Invalid { setting: "spin", .. })), "{refused:?}");
    let tasks = cfg!(feature = "tokio").then_some(Model::Tasks);
    for model in [Model::Threads, Model::Fork].into_iter().chain(tasks) {
        refuses(Pool::start(echo(model).spin(Duration::from_micros(50))).map(drop));
        let (pool, _) = start(echo(model));
        refuses(pool.update(|config| config.spin(Duration::from_micros(50))).map(drop));
    }
    refuses(Pool::start(echo(Model::Loops).spin(Duration::from_secs(2))).map(drop));
}
