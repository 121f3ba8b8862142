//! Random steps, each judged by the model.

use crate::common::{Dice, ms, seeds};
use crate::model::{Mode, Model, TARGETS, Target};
use sockdrawer_lease::engine::{Asked, Returned};
use sockdrawer_lease::{Error, Order, Policy, Reason, Request, Settings};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn policy(dice: &mut Dice) -> Policy {
    match dice.below(6) {
        0 => Policy::Fifo,
        1 => Policy::AdaptiveLifo { after: dice.millis(50) },
        2 | 3 => Policy::CoDel { target: dice.millis(30), interval: dice.millis(60) },
        4 => Policy::Fair,
        _ => Policy::Priority,
    }
}

fn settings(dice: &mut Dice) -> Settings {
    Settings {
        max: dice.below(15).div_ceil(2) as usize,
        max_per_target: 1 + dice.below(5) as usize,
        max_waiters: dice.below(9) as usize,
        max_connecting: dice.below(12).min(3) as usize,
        connect_timeout: ms(10) + dice.millis(90),
        backoff: dice.millis(20),
        backoff_max: dice.millis(100),
        down_after: dice.millis(200),
        lifetime: dice.maybe(ms(50)).map(|least| least + dice.millis(500)),
        lifetime_jitter: dice.below(101) as u8,
        max_uses: dice.maybe(1).map(|least| least + dice.below(5) * dice.below(6)),
        min_free: dice.below(3) as usize,
        max_free: dice.below(5) as usize,
        free_timeout: dice.maybe(ms(20)).map(|least| least + dice.millis(200)),
        check_after: dice.maybe(ms(0)).map(|_| dice.below(3) as u32 * dice.millis(30)),
        order: if dice.below(2) == 0 { Order::LastUsedFirst } else { Order::LongestFreeFirst },
        policy: policy(dice),
        held_after: dice.maybe(ms(10)).map(|least| least + dice.millis(200)),
    }
}

/// Takes a random element out.
fn pick<T>(dice: &mut Dice, all: &mut Vec<T>) -> Option<T> {
    if all.is_empty() { None } else { Some(all.swap_remove(dice.below(all.len() as u64) as usize)) }
}

fn request(model: &Model, dice: &mut Dice) -> (Request, bool) {
    let wait = dice.below(5) * dice.below(50);
    let terms = Request::from(model.now + ms(wait));
    (Request { key: dice.below(3), priority: dice.below(3) as u8, ..terms }, wait == 0)
}

fn ask(model: &mut Model, target: Target, dice: &mut Dice) {
    let (request, tries) = request(model, dice);
    let mode = model.mode;
    model.asks += 1;
    if matches!(mode, Mode::Open | Mode::Suspended) {
        model.keep(target, true);
    }
    let answer = model.engine.ask(model.now, &target, request);
    assert!(matches!(mode, Mode::Open | Mode::Suspended) || answer.is_err());
    answered(model, answer, (target, model.now), (request, tries));
}

fn answered(
    model: &mut Model,
    answer: Result<Asked<u64>, Error>,
    (target, asked): (Target, Instant),
    (request, tries): (Request, bool),
) {
    match answer {
        Ok(Asked::Leased(leased)) => model.leased_at_once(leased, target, asked),
        Ok(Asked::Waits(id)) => {
            assert!(!tries);
            model.waits(id, target, request, asked);
        }
        Err(error) => {
            // Worn connections are closed before the target counts as down.
            model.judge_actions();
            model.judge_refusal(&error, target, tries, asked);
        }
    }
}

/// Tells that a connection has gone: any, and at times one that was closed long ago.
fn tell_gone(model: &mut Model, dice: &mut Dice) {
    let mut names = model.names();
    if let Some(name) = model.stale.filter(|_| dice.below(5) == 0).or_else(|| pick(dice, &mut names)) {
        model.stale = Some(name);
        let reason = if dice.below(4) == 0 { Reason::Moved } else { Reason::PeerEnded };
        model.told_gone(name, reason);
        model.engine.gone(model.now, name, reason);
    }
}

/// Lets a holder find its connection gone before it has used it.
fn find_gone(model: &mut Model, dice: &mut Dice) {
    let Some(leased) = pick(dice, &mut model.leases) else { return };
    let (target, name, asked) = model.facts(leased.connection);
    let (request, tries) = request(model, dice);
    model.broken_gone(leased.connection, name);
    // The lease was one.
    model.asks += 1;
    let answer = model.engine.ask_again(model.now, leased, Reason::PeerEnded, request);
    assert!(!matches!(answer, Err(Error::Full { .. })), "it had its place in line");
    answered(model, answer, (target, asked), (request, tries));
}

/// Adds a connection that was made elsewhere.
fn add(model: &mut Model, target: Target) {
    model.keep(target, true);
    let connection = model.next();
    let name = model.engine.add(model.now, &target, connection, Duration::ZERO);
    assert_eq!(model.made(target, name, None), connection);
    model.arrives(connection, false);
}

fn cancel(model: &mut Model, dice: &mut Dice) {
    if !model.waiters.is_empty() {
        let at = dice.below(model.waiters.len() as u64) as usize;
        let waiter = model.leaves(at);
        model.engine.cancel(model.now, waiter);
    }
}

fn give_back(model: &mut Model, dice: &mut Dice) {
    let Some(leased) = pick(dice, &mut model.leases) else { return };
    let (connection, now) = (leased.connection, model.now);
    match dice.below(10) {
        0 => {
            model.gone(connection);
            assert_eq!(model.engine.detach(now, leased), connection);
        }
        1 => {
            model.arrives(connection, true);
            model.engine.give_back(now, leased, Returned::NeedsReset);
        }
        2 => {
            // A holder that died.
            model.broken(connection);
            model.engine.give_back(now, leased, Returned::Broken);
        }
        _ => {
            model.arrives(connection, false);
            model.engine.give_back(now, leased, Returned::Reusable);
        }
    }
}

fn end_job(model: &mut Model, dice: &mut Dice, fails: bool) {
    let Some(job) = pick(dice, &mut model.jobs) else { return };
    let (now, error) = (model.now, Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
    match (job.kind, job.connection) {
        ('x', Some(connection)) => {
            model.gone(connection);
            model.engine.closed(now, job.id);
        }
        (_, Some(connection)) if fails => {
            model.gone(connection);
            model.engine.done(now, job.id, Err(error));
        }
        (_, None) if fails => {
            if !job.late {
                model.failed(Model::target_of(&job));
            }
            model.engine.done(now, job.id, Err(error));
        }
        (_, connection) => {
            let connection = connection.unwrap_or_else(|| model.connected(&job));
            model.arrives(connection, false);
            model.engine.done(now, job.id, Ok(connection));
        }
    }
}

fn pass_time(model: &mut Model, dice: &mut Dice) {
    let next = model.engine.poll_timeout().filter(|_| dice.below(2) == 0);
    let most = if dice.below(10) == 0 { 2000 } else { 40 };
    model.now = next.map_or_else(|| model.now + dice.millis(most), |next| next.max(model.now));
    model.engine.handle_timeout(model.now);
    model.judge_actions();
    model.judge_time();
}

fn step(model: &mut Model, dice: &mut Dice) -> String {
    let target = dice.below(TARGETS) * u64::from(dice.below(3) == 0);
    let drawn = dice.below(100);
    match drawn {
        0..26 => ask(model, target, dice),
        26..28 => tell_gone(model, dice),
        28 => find_gone(model, dice),
        29 => add(model, target),
        30..35 => cancel(model, dice),
        35..55 => give_back(model, dice),
        55..72 => {
            let fails = dice.below(4) == 0;
            end_job(model, dice, fails);
        }
        72..92 => pass_time(model, dice),
        92..95 => model.set(settings(dice)),
        95 if model.mode == Mode::Open => {
            model.mode = Mode::Suspended;
            model.engine.suspend(model.now);
        }
        96 | 97 if model.mode == Mode::Suspended => {
            model.mode = Mode::Open;
            model.resumed();
            model.engine.resume(model.now);
        }
        98 => {
            let added = dice.below(2) == 0;
            if !added || matches!(model.mode, Mode::Open | Mode::Suspended) {
                model.keep(target, added);
            }
            if !added {
                model.removed(target);
            }
            let (engine, now) = (&mut model.engine, model.now);
            if added { engine.add_target(now, &target) } else { engine.remove_target(now, &target) }
        }
        99 if dice.below(4) == 0 => drain(model, dice.below(100)),
        _ => {}
    }
    format!("{drawn} target {target} after {:?}: {:?}", model.now - model.start, model.engine.status())
}

fn drain(model: &mut Model, within: u64) {
    let deadline = model.now + ms(within);
    if model.mode != Mode::Closed {
        model.mode = Mode::Draining(deadline);
    }
    model.engine.drain(model.now, deadline);
}

fn end_something(model: &mut Model, dice: &mut Dice) {
    give_back(model, dice);
    model.judge();
    end_job(model, dice, false);
    model.judge();
}

fn case(seed: u64, log: &mut Vec<String>) {
    let mut dice = Dice::new(seed);
    let mut model = Model::new(settings(&mut dice), seed);
    model.engine.observe(true);
    for _ in 0..100 {
        log.push(step(&mut model, &mut dice));
        model.judge();
    }
    // All comes back in the end, some of it after the deadline, and nothing is left.
    drain(&mut model, 1);
    model.judge();
    for _ in 0..dice.below(10) {
        end_something(&mut model, &mut dice);
    }
    model.now += ms(1);
    model.engine.handle_timeout(model.now);
    model.judge();
    while model.total() > 0 {
        end_something(&mut model, &mut dice);
    }
    assert!(model.drained > 0);
    model.judge_end();
}

#[test]
fn the_engine_does_as_the_model_at_each_random_step() {
    for seed in seeds(1000) {
        let mut log = Vec::new();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed, &mut log))) {
            println!("{}", log.join("\n"));
            println!(
                "to see it again: SOCKDRAWER_SEED={seed} SOCKDRAWER_CASES=1 cargo test -p sockdrawer-lease --test engine properties"
            );
            resume_unwind(panic);
        }
    }
}
