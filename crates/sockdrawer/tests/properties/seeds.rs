//! Cases that are run: their number, their first seed, and the report of one that fails.

use crate::common::BROKEN;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// Environment variable for the number of cases, where another number is asked for.
const CASES: &str = "SOCKDRAWER_CASES";
/// Environment variable for the seed of the first case; the next have the numbers after it.
const SEED: &str = "SOCKDRAWER_SEED";

/// Number of cases that run at once: most of the time they wait for the kernel. Each lane has addresses of its own.
const LANES: u8 = 4;

/// An address that no other lane listens on, nor another process that runs these tests: who has removed an address must not find
/// another's pool at the same port.
pub(crate) fn address(lane: u8, number: u8) -> Ipv4Addr {
    let (process, lanes) = (std::process::id(), u32::from(LANES));
    let net = 64 + lanes * (process / 251 % 32) + u32::from(lane);
    Ipv4Addr::new(127, net as u8, (process % 251) as u8, number)
}

fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Returns the seeds of `cases` cases, or of as many as the environment says.
pub(crate) fn seeds(cases: u64) -> impl Iterator<Item = u64> {
    let first = asked(SEED).unwrap_or_else(|| RandomState::new().hash_one(0) >> 16);
    let cases = asked(CASES).unwrap_or(cases);
    println!("{cases} cases, {SEED}={first}");
    first..first + cases
}

/// Runs a case for each seed, some at once, until one fails. It is told its lane.
pub(crate) fn run(cases: u64, case: impl Fn(u8, u64) + Sync) {
    let (seeds, failed) = (Mutex::new(seeds(cases)), AtomicBool::new(false));
    let next = || if failed.load(SeqCst) { None } else { seeds.lock().expect("no panic").next() };
    let lane = |lane: u8| {
        while let Some(seed) = next() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(lane, seed))) {
                failed.store(true, SeqCst);
                resume_unwind(panic);
            }
        }
    };
    thread::scope(|scope| {
        let lane = &lane;
        let lanes: Vec<_> = (0..LANES).map(|number| scope.spawn(move || lane(number))).collect();
        let ends: Vec<_> = lanes.into_iter().map(thread::ScopedJoinHandle::join).collect();
        if let Some(panic) = ends.into_iter().find_map(Result::err) {
            resume_unwind(panic);
        }
    });
}

/// Returns the command that runs a case again.
pub(crate) fn again(test: &str, seed: u64) -> String {
    format!("to see it again: {SEED}={seed} {CASES}=1 cargo test -p sockdrawer --all-features --test properties -- {test}")
}

/// Returns a runner that draws what this seed says, once.
pub(crate) fn runner(seed: u64) -> TestRunner {
    // Without any, the state machine trips over itself.
    let shrinks = if BROKEN { 1 } else { 300 };
    let usual = Config { max_shrink_iters: shrinks, max_shrink_time: 60_000, ..Config::default() };
    // Nothing is written to the tree: the seed says all.
    let config = Config { cases: 1, failure_persistence: None, ..usual };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// The end of a test for a case that fails, which is as small as it could be made.
pub(crate) fn fail<V: std::fmt::Debug>(test: &str, seed: u64, error: TestError<V>, show: impl Fn(V) -> String) -> ! {
    let (reason, case) = match error {
        TestError::Fail(reason, value) => (reason.to_string(), show(value)),
        TestError::Abort(reason) => (reason.to_string(), "no case".to_owned()),
    };
    panic!("{test}, seed {seed}: {reason}\nwith {case}\n{}", again(test, seed));
}
