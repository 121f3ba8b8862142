//! Clients of this process: a pool that connects.

use super::frames::{Account, Aim, State, Word};
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::proc::Growth;
use crate::server::own_time;
use crate::stop::Stop;
use crate::tls::Secured;
use crate::workload::{Layers, Recorder, Shared, Tally};
use sockdrawer::{
    Address, Config, Drain, Error, Pool, Selector,
    connecting::{Connecting, Late},
    observe::{Readiness, Status},
};
use sockdrawer_catalog::Interval;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the pool while its end is awaited.
const SLICE: Duration = Duration::from_millis(50);
/// Time between two looks whether all was answered.
const ANSWERED: Duration = Duration::from_millis(5);
/// Maximum time after a [`Stop`] for what is under way.
const IMPATIENCE: Duration = Duration::from_secs(1);
/// Time in which connections that are cut off take what was written already.
const CUT_WITHIN: Duration = Duration::from_millis(100);
/// Time in which at least one of many connections that were cut off ends.
const CLOSES_SOME: Duration = Duration::from_secs(2);
/// Time that a connection that this side ends may wait for the peer's end: a run is over when its numbers are, and what a server still sends then is
/// of no use.
const LINGER: Duration = Duration::from_millis(250);

/// The clients.
pub(crate) struct Here {
    pool: Pool,
    shared: Arc<Shared>,
    aim: Aim,
    timeout: Duration,
    /// A connection that ends is replaced.
    renews: bool,
    /// Connections look at the interval again when they are told to.
    has_interval: bool,
    /// True where an order said that nothing shall begin.
    suspended: bool,
    /// Connects in all.
    total: Option<u64>,
    /// Connects per second on a schedule of their own, whatever is aimed for.
    scheduled: Option<f64>,
    /// Aim of the thread that ends connections, and the lock of the thread whose turn it is.
    ending: Arc<(Mutex<Aim>, Mutex<()>)>,
    growth: Growth,
    /// The handshakes of TLS and WebSocket, where clients speak one of them.
    handshakes: Option<Arc<Ledger>>,
    /// Tallies that loops handed over and that were not taken yet: a loop that is asked while it is busy hands its tally over later.
    handed_over: Arc<Mutex<Vec<Tally>>>,
}

impl Here {
    /// Starts the clients of this process, which is one of `processes` that run clients of the plan: together they have a loop for each CPU, or one
    /// each. Each loop of clients has histograms, and time that is cut into more threads than there are CPUs is lost to changing between them.
    pub(crate) fn start(plan: &Plan, targets: Vec<Address>, aim: Aim, processes: usize) -> Result<Here, Error> {
        let (growth, properties) = (Growth::from_now(), plan.workload.properties());
        let mut shared = Shared::new(plan.operations, properties.interval);
        (shared.timeout, shared.lifetime, shared.seed) = (plan.timeout, plan.lifetime, plan.seed);
        let renews = plan.renews();
        if !renews {
            shared.interval = Interval::without_successors(properties.interval);
        }
        if plan.poisson {
            shared.interval = shared.interval.poisson(plan.seed);
        }
        let shared = Arc::new(shared);
        let total = if renews { plan.connects() } else { Some(aim.connections as u64) };
        let keep = if renews { aim.connections } else { plan.connections };
        let mut connecting = Connecting::to(targets).keep(keep.max(1));
        connecting.sources.clone_from(&plan.sources);
        connecting.local_ports = plan.local_ports;
        connecting.total = total;
        connecting.rate = properties.schedule.or(aim.rate);
        if properties.schedule.is_some() {
            connecting.late = Late::MakeUp;
        }
        connecting.timeout = plan.timeout;
        let mut client = plan.workload.kind().client(&shared);
        let layers = Layers { tls: plan.tls.is_some(), websocket: plan.websocket.is_some() };
        let ledger = Ledger::new(plan.timeout, layers);
        if let Some(websocket) = &plan.websocket {
            client = client.layered(websocket.layer(&ledger)?);
        }
        if let Some(tls) = &plan.tls {
            client = client.layered(Secured::new(tls, &ledger)?);
        }
        let handshakes = (layers.tls || layers.websocket).then_some(ledger);
        // Before the handshake.
        if let Some(header) = plan.proxy_header {
            client = client.layered(header.sends());
        }
        let config = Config::connect(client, connecting).settings(|settings| {
            settings.linger = LINGER;
            // Clients of acks speak to themselves, with unsent messages too.
            settings.max_unsent = None;
        });
        let loops = (config.loops / processes).max(1);
        // Clients have no jobs.
        let pool = Pool::start(config.loops(loops).workers(0))?;
        let here = Here {
            pool,
            shared,
            aim,
            timeout: plan.timeout,
            renews,
            has_interval: plan.has_interval(),
            suspended: false,
            total,
            scheduled: properties.schedule,
            ending: Arc::new((Mutex::new(aim), Mutex::new(()))),
            growth,
            handshakes,
            handed_over: Arc::default(),
        };
        here.suspend_or_resume();
        Ok(here)
    }

    /// Sets the number of connections from now on, or as many as descriptors allow. Where none is replaced, one that was lost is not either: only
    /// what is new in the aim is made.
    pub(crate) fn aim(&mut self, aim: Aim) -> Result<(), Error> {
        let before = std::mem::replace(&mut self.aim, aim);
        // Connections that are missing of both are replaced; what is due of others that have ended is nobody's.
        let standing = usize::try_from(self.shared.standing()).unwrap_or(usize::MAX);
        self.shared.interval().keep(before.connections.min(aim.connections).saturating_sub(standing));
        let made = self.pool.status().counts.connects;
        if let Some(total) = self.total.as_mut().filter(|_| !self.renews) {
            let all = total.saturating_add(aim.connections as u64);
            *total = all.saturating_sub(before.connections as u64).max(made);
        }
        // Where connections are not replaced, the total says how many there are: the pool keeps as many as descriptors allow.
        match self.change(if self.renews { aim.connections.max(1) } else { usize::MAX }) {
            Err(Error::LimitTooHigh { fits, .. }) => self.change(fits.max(1))?,
            changed => changed?,
        }
        self.suspend_or_resume();
        *lock(&self.ending.0) = aim;
        if aim.connections < before.connections {
            self.end_some();
        }
        Ok(())
    }

    fn change(&self, keep: usize) -> Result<(), Error> {
        let (total, rate) = (self.total, self.scheduled.or(self.aim.rate));
        let change = |connecting: &mut Connecting| {
            (connecting.total, connecting.rate, connecting.keep) = (total, rate, Some(keep));
        };
        self.pool.update(|config| config.connecting(change)).map(drop)
    }

    /// Ends connections until there are no more than are aimed for, at the rate of the aim: by one thread at a time, which sees when
    /// the aim changes.
    fn end_some(&self) {
        let (pool, shared, ending, within) =
            (self.pool.clone(), self.shared.clone(), self.ending.clone(), self.timeout + IMPATIENCE);
        let end = move || {
            let _turn = lock(&ending.1);
            loop {
                let aim = *lock(&ending.0);
                let standing = usize::try_from(shared.standing()).unwrap_or(usize::MAX);
                let Some(count) = standing.checked_sub(aim.connections).filter(|count| *count > 0) else { return };
                // A second's worth, and then the aim is looked at again.
                let count = aim.rate.map_or(count, |rate| count.min(whole(rate)));
                let mut how = Drain::within(within + IMPATIENCE).max_connections(count);
                how.rate = aim.rate;
                if pool.drain(&Selector::All, how).asked == 0 {
                    return;
                }
            }
        };
        // Without a thread for it no connection ends, which the numbers show.
        let _ = thread::Builder::new().name("fewer".to_owned()).spawn(end);
    }

    pub(crate) fn tell(&mut self, word: Word) {
        match word {
            Word::Interval(interval) => self.shared.interval().set(interval),
            Word::Suspend => {
                self.suspended = true;
                self.shared.interval().suspend();
            }
            Word::Resume => {
                self.suspended = false;
                self.shared.interval().resume();
            }
        }
        self.suspend_or_resume();
        if self.has_interval {
            // Connections at rest look at it again. A pool that has ended has none.
            let _ = self.pool.notify(&Selector::All, &b""[..]);
        }
    }

    /// Suspends or resumes the pool. Where connections are replaced, a limit of none is a pause: there is no such limit.
    fn suspend_or_resume(&self) {
        if self.suspended || (self.renews && self.aim.connections == 0) {
            self.pool.suspend();
        } else {
            self.pool.resume();
        }
    }

    pub(crate) fn state(&self) -> State {
        let status = self.pool.status();
        State {
            connects: status.counts.connects,
            settled: self.settled(&status),
            made: self.total.is_some_and(|total| status.counts.connects >= total),
            connections: status.connections as u64,
            standing: self.shared.standing(),
            peak: self.shared.peak(),
            aims: 0,
            spent: self.shared.is_spent(),
            stopped: match status.readiness {
                Readiness::Stopped(reason) => Some(reason),
                _ => None,
            },
        }
    }

    /// Returns the connects whose end is known: a connection with handshakes is established, or has failed, when they are over.
    fn settled(&self, status: &Status) -> u64 {
        let connected = self.handshakes.as_ref().map_or(status.counts.connected, |handshakes| handshakes.over());
        connected + status.counts.connect_failed
    }

    /// Returns the results of the clients since the last time. Their cost is in that of this process, but for their memory.
    pub(crate) fn take(&self) -> Account {
        let to = self.handed_over.clone();
        self.pool.gather(move |recorder: &mut Recorder| lock(&to).push(std::mem::take(&mut recorder.tally)));
        let mut sum = Tally::default();
        if let Some(handshakes) = &self.handshakes {
            sum.add_handshakes(handshakes.take());
        }
        std::mem::take(&mut *lock(&self.handed_over)).iter().for_each(|one| sum.add(one));
        Account { tally: sum, grown_bytes: self.growth.bytes(), ..Account::default() }
    }

    /// Halts the clients: no more connects, and no more questions of clients at rest.
    pub(crate) fn halt(&self) -> Result<(), Error> {
        self.shared.interval().suspend();
        // The thread that ends connections has no more to do.
        *lock(&self.ending.0) = Aim { connections: usize::MAX, rate: None };
        self.pool.update(|config| config.connecting(|connecting| connecting.total = Some(0)))?;
        Ok(())
    }

    /// Waits, once halted, for the end of the connects and of the operations under way. Every operation begun is counted: one that does not end in
    /// time is cut off, and failed. Returns the CPU time of a thread that was needed for it and has ended.
    pub(crate) fn settle(&self, stop: &Stop) -> Result<Duration, Error> {
        // Clients give up after the timeout by themselves: the second more is for a loaded machine.
        let within = self.timeout + IMPATIENCE;
        let mut patience = Patience::new(stop, within);
        self.wait(&mut patience, |status| self.settled(status) >= status.counts.connects);
        if let Some(handshakes) = &self.handshakes {
            handshakes.ends();
        }
        patience.renew(within);
        // To close many connections keeps both ends busy: connections that wait for an answer have it first.
        while patience.left().is_some() && self.under_way() > 0 {
            thread::sleep(ANSWERED);
        }
        patience.renew(within);
        let pool = self.pool.clone();
        // A drain waits for its deadline and does not know of `stop`. Without a thread for it, all is cut off at once.
        let drain = move || {
            pool.drain(&Selector::All, Drain::within(2 * within));
            own_time()
        };
        let mut drained = Duration::ZERO;
        if let Ok(draining) = thread::Builder::new().name("drain".to_owned()).spawn(drain) {
            self.wait(&mut patience, |_| draining.is_finished());
            if draining.is_finished() {
                drained = draining.join().unwrap_or_default();
            }
        }
        self.pool.purge(&Selector::All, CUT_WITHIN);
        self.wait_for_ends(stop);
        Ok(drained)
    }

    /// Waits for connections to end as long as there are fewer and fewer: the counts of all are known when all have ended.
    fn wait_for_ends(&self, stop: &Stop) {
        let mut left = usize::MAX;
        while self.pool.status().connections < left {
            left = self.pool.status().connections;
            self.wait(&mut Patience::new(stop, CLOSES_SOME), |status| status.connections == 0);
        }
    }

    /// Returns the number of questions without answer.
    fn under_way(&self) -> i64 {
        self.pool.gather(|recorder: &mut Recorder| recorder.under_way).iter().sum()
    }

    /// Waits for `condition` with this patience.
    fn wait(&self, patience: &mut Patience<'_>, condition: impl Fn(&Status) -> bool) {
        while let Some(left) = patience.left() {
            if self.pool.wait(left.min(SLICE), &condition) {
                return;
            }
        }
    }

    pub(crate) fn shut_down(&self) {
        self.pool.shutdown(Drain::within(Duration::ZERO));
    }
}

/// Time to wait for what is under way: as long as it may take, and no longer than [`IMPATIENCE`] once the run is stopped.
struct Patience<'a> {
    stop: &'a Stop,
    until: Instant,
    stopped: bool,
}

impl Patience<'_> {
    fn new(stop: &Stop, within: Duration) -> Patience<'_> {
        Patience { stop, until: Instant::now() + within, stopped: false }
    }

    /// Returns the time that is left. None: the patience is at its end.
    fn left(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if !self.stopped && self.stop.is_set() {
            self.stopped = true;
            self.until = self.until.min(now + IMPATIENCE);
        }
        Some(self.until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Renews the patience for the next step. A stop is not forgotten.
    fn renew(&mut self, within: Duration) {
        if !self.stopped {
            self.until = Instant::now() + within;
        }
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0, and more than 2^64 is all")]
fn whole(rate: f64) -> usize {
    (rate.ceil() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_patience_soon_and_for_good() {
        const LONG: Duration = Duration::from_secs(3_600);
        let stop = Stop::new();
        let mut patience = Patience::new(&stop, LONG);
        assert!(patience.left() > Some(LONG - IMPATIENCE));
        stop.stop();
        assert!(patience.left() <= Some(IMPATIENCE));
        patience.renew(LONG);
        assert!(patience.left() <= Some(IMPATIENCE));
        let mut short = Patience::new(&stop, Duration::ZERO);
        assert_eq!(short.left(), None, "a stop makes it no longer");
    }
}
