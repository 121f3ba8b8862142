//! A server, its clients and their clock, simulated: connects and uses take their time, and no test waits for it.

use sockdrawer_lease::engine::{Action, Asked, Engine, Job, JobId, Leased, Returned};
use sockdrawer_lease::{Error, Random, Request, Settings};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Something that happens by itself.
enum Happens {
    Asks(Request),
    Connects(JobId),
    Returns(Leased<u32>),
}

pub(crate) struct World {
    pub(crate) engine: Engine<(), u32>,
    pub(crate) now: Instant,
    connect: Duration,
    usage: Duration,
    next: BTreeMap<(Instant, u64), Happens>,
    last: u64,
    /// Moments and waits of leases.
    pub(crate) served: Vec<(Instant, Duration)>,
    pub(crate) refused: Vec<(Instant, Error)>,
    began: BTreeMap<sockdrawer_lease::engine::WaiterId, Instant>,
    /// Most connects that were under way at once.
    pub(crate) max_connecting: usize,
}

impl World {
    pub(crate) fn new(settings: Settings, connect: Duration, usage: Duration) -> Self {
        World {
            engine: Engine::new(settings, Random::seeded(1)),
            now: Instant::now(),
            connect,
            usage,
            next: BTreeMap::new(),
            last: 0,
            served: Vec::new(),
            refused: Vec::new(),
            began: BTreeMap::new(),
            max_connecting: 0,
        }
    }

    fn add(&mut self, at: Instant, happens: Happens) {
        self.last += 1;
        self.next.insert((at, self.last), happens);
    }

    pub(crate) fn ask_at(&mut self, at: Instant, request: Request) {
        self.add(at, Happens::Asks(request));
    }

    /// Asks as often as that in each second until the moment, each caller with that much time.
    pub(crate) fn load(&mut self, per_second: u32, until: Duration, patience: Duration) {
        let (from, every) = (self.now, Duration::from_secs(1) / per_second);
        for number in 0..(until.as_nanos() / every.as_nanos()) as u32 {
            let at = from + every * number;
            self.ask_at(at, (at + patience).into());
        }
    }

    /// Changes how long leases last that are taken from now on.
    pub(crate) fn usage(&mut self, usage: Duration) {
        self.usage = usage;
    }

    /// Lets all happen until the moment.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let (event, timer) = (self.next.first_key_value().map(|((at, _), _)| *at), self.engine.poll_timeout());
            let Some(at) = event.into_iter().chain(timer).min().filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            if event.is_some_and(|event| event <= at) {
                let (_, happens) = self.next.pop_first().expect("looked at above");
                self.happen(happens);
            } else {
                self.engine.handle_timeout(self.now);
            }
            self.act();
        }
        self.now = until;
    }

    fn happen(&mut self, happens: Happens) {
        let now = self.now;
        match happens {
            Happens::Asks(request) => match self.engine.ask(now, &(), request) {
                Ok(Asked::Leased(leased)) => self.leased(leased, Duration::ZERO),
                Ok(Asked::Waits(waiter)) => _ = self.began.insert(waiter, now),
                Err(error) => self.refused.push((now, error)),
            },
            Happens::Connects(job) => {
                self.last += 1;
                self.engine.done(now, job, Ok(self.last as u32));
            }
            Happens::Returns(leased) => self.engine.give_back(now, leased, Returned::Reusable),
        }
    }

    fn leased(&mut self, leased: Leased<u32>, waited: Duration) {
        self.served.push((self.now, waited));
        self.add(self.now + self.usage, Happens::Returns(leased));
    }

    fn act(&mut self) {
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Run { id, job: Job::Connect(()), .. } => self.add(self.now + self.connect, Happens::Connects(id)),
                Action::Run { id, job: Job::Close(..), .. } => self.engine.closed(self.now, id),
                Action::Run { id, job: Job::Check(connection) | Job::Reset(connection), .. } => {
                    self.engine.done(self.now, id, Ok(connection));
                }
                Action::Wake { waiter, result } => {
                    let began = self.began.remove(&waiter).expect("it waits");
                    match result {
                        Ok(leased) => self.leased(leased, self.now - began),
                        Err(error) => self.refused.push((self.now, error)),
                    }
                }
                Action::Cancel(_) | Action::Drained { .. } | Action::Tell(_) => {}
            }
        }
        self.max_connecting = self.engine.status().connecting.max(self.max_connecting);
    }

    /// Returns how many connections there are.
    pub(crate) fn connections(&self) -> usize {
        let status = self.engine.status();
        status.free + status.leased + status.connecting + status.checking
    }

    /// Returns the wait that this share of those served from then on did not exceed.
    pub(crate) fn waited(&self, from: Instant, share: f64) -> Duration {
        let mut waits: Vec<_> = self.served.iter().filter(|(at, _)| *at >= from).map(|(_, waited)| *waited).collect();
        waits.sort_unstable();
        waits[((waits.len() - 1) as f64 * share) as usize]
    }
}
