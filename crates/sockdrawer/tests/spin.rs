//! A loop that spins burns CPU for as long as it was told after it had something to do, and no longer.

mod common;

use common::{Echo, PATIENCE, connect, echoes, kill, start};
use sockdrawer::{Behaviour, Config, Context, Drain, Error, Input, Model, Peer, Pool, Protocol, Recipe, Selector, Service, Step};
use std::time::{Duration, Instant};

const SPIN: Duration = Duration::from_millis(400);

/// One test at a time: the CPU of the process is looked at.
fn main() {
    sockdrawer::processes(&[("echo", |_| Ok(Behaviour::from(Echo)))]);
    common::run_tests(&[
        ("a_loop_spins_for_as_long_as_it_was_told_and_then_sleeps", || spins_and_sleeps(Model::Loops)),
        ("so_does_the_one_thread_of_single", || spins_and_sleeps(Model::Single)),
        ("so_do_the_loops_of_helper_processes", || spins_and_sleeps(Model::Prefork)),
        ("a_process_in_the_place_of_a_dead_one_spins_as_is_wanted_now", the_next_process_spins_too),
        ("timers_and_letters_are_not_held_up_by_a_loop_that_spins", timers_and_letters_are_not_held_up),
        ("who_does_not_loop_does_not_spin", who_does_not_loop_does_not_spin),
    ]);
}

fn echo(model: Model) -> Config {
    let recipe = Recipe { name: "echo".to_owned(), options: Vec::new() };
    Config::accept(Behaviour::from(Echo).with_recipe(recipe)).model(model).loops(1).processes(1)
}

/// What the threads of this process and of the pool's others have run for.
fn cpu(pool: &Pool) -> Duration {
    let processes = pool.status().processes;
    let folders = std::iter::once(std::process::id()).chain(processes.iter().map(|process| process.pid));
    let tasks = folders.flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs"));
    let ran = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(ran.sum())
}

/// How much of a second after an exchange the loops run.
fn burnt(pool: &Pool) -> Duration {
    let before = cpu(pool);
    // waits because: that a loop sleeps can only be seen by what it does not use in a time.
    std::thread::sleep(Duration::from_secs(1));
    cpu(pool) - before
}

fn spins_and_sleeps(model: Model) {
    let (pool, at) = start(echo(model).spin(SPIN));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"one"));
    let spun = burnt(&pool);
    assert!(spun > SPIN / 8, "it slept: {spun:?}");
    assert!(spun < SPIN * 3 / 2, "it went on: {spun:?}");
    let idle = burnt(&pool);
    assert!(idle < SPIN / 8, "a loop without events spins: {idle:?}");
    pool.update(|config| config.spin(Duration::ZERO)).expect("in place");
    assert!(echoes(&mut client, b"two"));
    let asleep = burnt(&pool);
    assert!(asleep < SPIN / 8, "it spins still: {asleep:?}");
    drop(client);
    pool.shutdown(Drain::within(PATIENCE));
}

fn the_next_process_spins_too() {
    let (pool, at) = start(echo(Model::Prefork));
    pool.update(|config| config.spin(SPIN)).expect("in place");
    kill(pool.status().processes[0].pid);
    assert!(pool.wait(PATIENCE, |status| status.restarts == 1), "{:#?}", pool.status());
    let mut client = connect(at);
    assert!(echoes(&mut client, b"one"));
    let spun = burnt(&pool);
    assert!(spun > SPIN / 8, "it slept: {spun:?}");
    drop(client);
    pool.shutdown(Drain::within(PATIENCE));
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
