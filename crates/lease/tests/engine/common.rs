//! Random numbers, seeds and times for tests of the engine.

use sockdrawer_lease::engine::{Action, Asked, Engine, Job, JobId, Leased, Returned, WaiterId};
use sockdrawer_lease::{Error, Random, Request, Settings};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
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

/// Names of targets.
pub(crate) const A: &str = "a";
pub(crate) const B: &str = "b";

/// Settings under which nothing happens by time alone.
pub(crate) fn quiet() -> Settings {
    Settings { lifetime: None, free_timeout: None, check_after: None, ..Settings::default() }
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

    pub(crate) fn wait(&mut self, at: u64, target: &'static str) -> WaiterId {
        self.request(at, target, self.at(at + 10_000).into())
    }

    pub(crate) fn request(&mut self, at: u64, target: &'static str, request: Request) -> WaiterId {
        match self.engine.ask(self.at(at), &target, request) {
            Ok(Asked::Waits(waiter)) => waiter,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn lease(&mut self, at: u64, target: &'static str) -> Leased<u32> {
        match self.engine.ask(self.at(at), &target, self.at(at).into()) {
            Ok(Asked::Leased(leased)) => leased,
            other => panic!("{other:?}"),
        }
    }

    /// Leases a connection that is made for it.
    pub(crate) fn lease_new(&mut self, at: u64, target: &'static str, connection: u32) -> Leased<u32> {
        self.wait(at, target);
        let job = self.jobs()[0];
        self.engine.done(self.at(at), job, Ok(connection));
        self.woken().pop().expect("the waiter is woken").1.expect("it gets the connection")
    }

    pub(crate) fn give(&mut self, at: u64, leased: Leased<u32>) {
        self.engine.give_back(self.at(at), leased, Returned::Reusable);
    }

    pub(crate) fn fail(&mut self, at: u64, job: JobId) {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        self.engine.done(self.at(at), job, Err(Arc::new(refused)));
    }

    /// Takes the actions, all of which must wake waiters.
    pub(crate) fn woken(&mut self) -> Vec<(WaiterId, Result<Leased<u32>, Error>)> {
        let wake = |action| if let Action::Wake { waiter, result } = action { (waiter, result) } else { panic!("{action:?}") };
        self.actions().into_iter().map(wake).collect()
    }

    /// Takes the actions and closes what they say, which is returned.
    pub(crate) fn close_all(&mut self, at: u64) -> Vec<u32> {
        let mut closed = Vec::new();
        while let Some(Action::Run { id, job: Job::Close(connection, _), .. }) = self.engine.poll_action() {
            closed.push(connection);
            self.engine.closed(self.at(at), id);
        }
        closed
    }
}
