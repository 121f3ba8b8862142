//! Overload of a server under three policies, in simulated time: waits of the callers that are served, and counts of those that are not.
//!
//! Ten connections, each used for 10 ms at a time, serve 1,000 callers in a second. 800 ask in a second, but between 1 s and 3 s it is 2,000.
//! Each gives up after 500 ms.
//!
//! `cargo run -p sockdrawer-lease --example overload`

use sockdrawer_lease::engine::{Action, Asked, Engine, Job, JobId, Leased, Returned, WaiterId};
use sockdrawer_lease::{Policy, Random, Settings};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_millis(20);
const USE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_millis(500);
/// Rows of a chart, and the time of each.
const ROWS: usize = 20;
const ROW: Duration = Duration::from_millis(200);

enum Happens {
    Asks,
    Connects(JobId),
    Returns(Leased<u32>),
}

/// Outcome of the callers that were served, or sent away, within the time of a row.
#[derive(Default)]
struct Row {
    waits: Vec<Duration>,
    refused: usize,
}

struct Simulation {
    engine: Engine<(), u32>,
    start: Instant,
    now: Instant,
    agenda: BTreeMap<(Instant, u64), Happens>,
    last: u64,
    asked: BTreeMap<WaiterId, Instant>,
    rows: Vec<Row>,
}

impl Simulation {
    fn run(policy: Policy) -> Vec<Row> {
        let settings = Settings { max: 10, max_waiters: 10_000, policy, ..Settings::default() };
        let start = Instant::now();
        let mut simulation = Simulation {
            engine: Engine::new(settings, Random::seeded(1)),
            start,
            now: start,
            agenda: BTreeMap::new(),
            last: 0,
            asked: BTreeMap::new(),
            rows: (0..ROWS).map(|_| Row::default()).collect(),
        };
        let mut at = Duration::ZERO;
        while at < ROW * ROWS as u32 {
            simulation.add(start + at, Happens::Asks);
            let is_peak = (Duration::from_secs(1)..Duration::from_secs(3)).contains(&at);
            at += Duration::from_secs(1) / if is_peak { 2000 } else { 800 };
        }
        simulation.go();
        simulation.rows
    }

    fn add(&mut self, at: Instant, happens: Happens) {
        self.last += 1;
        self.agenda.insert((at, self.last), happens);
    }

    fn go(&mut self) {
        let end = self.start + ROW * ROWS as u32;
        loop {
            let (event, timer) = (self.agenda.first_key_value().map(|((at, _), _)| *at), self.engine.poll_timeout());
            let Some(at) = event.into_iter().chain(timer).min().filter(|at| *at < end) else { break };
            self.now = at.max(self.now);
            match self.agenda.pop_first() {
                Some(((event, _), happens)) if event <= at => self.happen(happens),
                Some(((event, number), later)) => {
                    self.agenda.insert((event, number), later);
                    self.engine.handle_timeout(self.now);
                }
                None => self.engine.handle_timeout(self.now),
            }
            while let Some(action) = self.engine.poll_action() {
                self.act(action);
            }
        }
    }

    fn happen(&mut self, happens: Happens) {
        match happens {
            Happens::Asks => match self.engine.ask(self.now, &(), (self.now + PATIENCE).into()) {
                Ok(Asked::Leased(leased)) => self.leased(leased, self.now),
                Ok(Asked::Waits(waiter)) => _ = self.asked.insert(waiter, self.now),
                Err(_) => self.row().refused += 1,
            },
            Happens::Connects(job) => self.engine.done(self.now, job, Ok(0)),
            Happens::Returns(leased) => self.engine.give_back(self.now, leased, Returned::Reusable),
        }
    }

    fn act(&mut self, action: Action<(), u32>) {
        match action {
            Action::Run { id, job: Job::Connect(()), .. } => self.add(self.now + CONNECT, Happens::Connects(id)),
            Action::Run { id, job: Job::Close(..), .. } => self.engine.closed(self.now, id),
            Action::Run { id, job: Job::Check(it) | Job::Reset(it), .. } => self.engine.done(self.now, id, Ok(it)),
            Action::Wake { waiter, result } => {
                let since = self.asked.remove(&waiter).unwrap_or(self.now);
                match result {
                    Ok(leased) => self.leased(leased, since),
                    Err(_) => self.row().refused += 1,
                }
            }
            Action::Cancel(_) | Action::Drained { .. } | Action::Tell(_) => {}
        }
    }

    fn leased(&mut self, leased: Leased<u32>, since: Instant) {
        let waited = self.now - since;
        self.row().waits.push(waited);
        self.add(self.now + USE, Happens::Returns(leased));
    }

    fn row(&mut self) -> &mut Row {
        let at = ((self.now - self.start).as_millis() / ROW.as_millis()) as usize;
        &mut self.rows[at]
    }
}

fn chart(rows: &mut [Row]) {
    println!("  from ms   served   refused   median ms   99 % ms   wait of the median, # is 10 ms");
    for (number, row) in rows.iter_mut().enumerate() {
        row.waits.sort_unstable();
        let share = |share: usize| row.waits.get(row.waits.len() * share / 100).map_or(0, Duration::as_millis) as usize;
        let (median, most) = (share(50), share(99));
        let (from, served, bar) = (number as u128 * ROW.as_millis(), row.waits.len(), "#".repeat(median.div_ceil(10)));
        println!("{from:9}{served:9}{:10}{median:12}{most:10}   {bar}", row.refused);
    }
    let served: usize = rows.iter().map(|row| row.waits.len()).sum();
    let refused: usize = rows.iter().map(|row| row.refused).sum();
    println!("  {served} served, {refused} refused\n");
}

fn main() {
    let [after, target, interval] = [50, 20, 100].map(Duration::from_millis);
    for policy in [Policy::Fifo, Policy::AdaptiveLifo { after }, Policy::CoDel { target, interval }] {
        println!("Policy: {policy}");
        chart(&mut Simulation::run(policy));
    }
}
