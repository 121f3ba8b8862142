//! Properties of pools: whatever is done to one in whatever order, it is what a small reference says, and everybody who must be
//! answered is.

mod common;

#[path = "properties/changes.rs"]
mod changes;
#[path = "properties/client.rs"]
mod client;
#[path = "properties/concurrent.rs"]
mod concurrent;
#[path = "properties/crowd.rs"]
mod crowd;
#[path = "properties/endings.rs"]
mod endings;
#[path = "properties/oracle.rs"]
mod oracle;
#[path = "properties/policies.rs"]
mod policies;
#[path = "properties/pool.rs"]
mod pool;
#[path = "properties/reference.rs"]
mod reference;
#[path = "properties/seeds.rs"]
mod seeds;
#[path = "properties/service.rs"]
mod service;
#[path = "properties/steps.rs"]
mod steps;

use proptest_state_machine::StateMachineTest;
use sockdrawer::Model;
use std::panic::{self, PanicHookInfo};

/// Cases of the model that most pools have, and of each other.
const CASES: u64 = 200;
const CASES_OF_OTHERS: u64 = 50;
/// Cases whose connections the kernel counts too.
const CASES_OF_ORACLE: u64 = 10;

fn main() {
    // In a helper this is where it ends.
    sockdrawer::processes(&service::RECIPES);
    // While a case is made smaller it fails again and again.
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        if !is_shrinking() {
            usual(info);
        }
    }));
    common::run_tests(&[(
        "properties",
        &[
            ("sequential_loops", || sequential("sequential_loops", Model::Loops, CASES)),
            ("sequential_threads", || sequential("sequential_threads", Model::Threads, CASES_OF_OTHERS)),
            ("sequential_prefork", || sequential("sequential_prefork", Model::Prefork, CASES_OF_OTHERS)),
            #[cfg(feature = "tokio")]
            ("sequential_tasks", || sequential("sequential_tasks", Model::Tasks, CASES_OF_OTHERS)),
            ("concurrent_loops", || concurrent("concurrent_loops", Model::Loops)),
            ("concurrent_threads", || concurrent("concurrent_threads", Model::Threads)),
            ("concurrent_prefork", || concurrent("concurrent_prefork", Model::Prefork)),
            #[cfg(feature = "tokio")]
            ("concurrent_tasks", || concurrent("concurrent_tasks", Model::Tasks)),
            ("oracle_loops", || oracle::test("oracle_loops", Model::Loops, CASES_OF_ORACLE)),
            ("oracle_prefork", || oracle::test("oracle_prefork", Model::Prefork, CASES_OF_ORACLE)),
        ],
    )]);
}

thread_local! {
    static SHRINKING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn is_shrinking() -> bool {
    SHRINKING.get()
}

fn sequential(test: &str, model: Model, cases: u64) {
    seeds::run(cases, |lane, seed| {
        let mut runner = seeds::runner(seed);
        let config = runner.config().clone();
        SHRINKING.set(true);
        let ran = runner.run(&steps::cases(model, lane), |(begin, steps, seen)| {
            steps::Machine::test_sequential(config.clone(), begin, steps, seen);
            Ok(())
        });
        SHRINKING.set(false);
        if let Err(error) = ran {
            seeds::fail(test, seed, error, |(_, steps, _)| format!("{steps:?}"));
        }
    });
}

fn concurrent(test: &str, model: Model) {
    seeds::run(CASES_OF_OTHERS, |lane, seed| {
        if let Err(panic) = panic::catch_unwind(|| concurrent::case(model, lane, seed)) {
            println!("{test}, seed {seed}: {}", seeds::again(test, seed));
            panic::resume_unwind(panic);
        }
    });
}
