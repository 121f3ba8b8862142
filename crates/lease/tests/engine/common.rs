//! Random numbers, seeds and times for tests of the engine.

use sockdrawer_lease::engine::{Action, Engine, JobId};
use sockdrawer_lease::{Random, Settings};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Draws for a test; equal seeds draw alike.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Draws a number below the limit (xorshift).
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub(crate) fn millis(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }

    pub(crate) fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(2) == 0).then_some(value)
    }
}

fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Returns the seeds of as many cases, or of as many as `SOCKDRAWER_CASES` says, from `SOCKDRAWER_SEED` on.
pub(crate) fn seeds(cases: u64) -> std::ops::Range<u64> {
    let first = asked("SOCKDRAWER_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 16);
    let cases = asked("SOCKDRAWER_CASES").unwrap_or(cases);
    println!("{cases} cases, SOCKDRAWER_SEED={first}");
    first..first + cases
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An engine whose connections are numbers, and its time.
pub(crate) struct Bench {
    pub(crate) engine: Engine<&'static str, u32>,
    pub(crate) start: Instant,
}

impl Bench {
    pub(crate) fn new(settings: Settings) -> Self {
        Bench { engine: Engine::new(settings, Random::seeded(1)), start: Instant::now() }
    }

    pub(crate) fn at(&self, millis: u64) -> Instant {
        self.start + ms(millis)
    }

    pub(crate) fn actions(&mut self) -> Vec<Action<&'static str, u32>> {
        std::iter::from_fn(|| self.engine.poll_action()).collect()
    }

    /// Takes the actions, all of which must be jobs, and returns their names.
    pub(crate) fn jobs(&mut self) -> Vec<JobId> {
        let name = |action| if let Action::Run { id, .. } = action { id } else { panic!("{action:?} is no job") };
        self.actions().into_iter().map(name).collect()
    }
}
