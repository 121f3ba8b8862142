//! A run, from the first connect to the report: a pool that connects, followed until the plan's end.

use crate::acks::Acks;
use crate::clients;
use crate::cost::{Cost, Watch, own_time};
use crate::http::{self, Begun, Http};
use crate::machine::Machine;
use crate::plan::{End, Plan};
use crate::report::{Client, Connections, Errors, Latencies, Operations, Report, Server};
use crate::shared::Shared;
use crate::tally::{Numbers, Recorder, Tally, cause};
use sockdrawer::{Address, Config, Connecting, Drain, Endpoint, Error, NotesWhenFull, Pool, Readiness, Selector, Status};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two calls of the progress callback.
const TICK: Duration = Duration::from_millis(500);
/// Between two looks at the run. Looking takes the pool's lock: one look at each of its turns would cost a fifth of the client.
const SLICE: Duration = Duration::from_millis(50);
/// The first looks come sooner, so that a run of few operations does not wait for one.
const FIRST_SLICE: Duration = Duration::from_millis(1);
/// After a [`Stop`], what is under way may take this long.
const IMPATIENCE: Duration = Duration::from_secs(1);
/// What is cut off has this long to take what was written already.
const CUT_WITHIN: Duration = Duration::from_millis(100);
/// How long a connection that this side ends may wait for the peer's end: a run is over when its numbers are, and what a server
/// still sends then is nobody's.
const LINGER: Duration = Duration::from_millis(250);

/// Ends a run early, from another thread; what was reached until then is reported.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Not stopped.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends the run.
    pub fn stop(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for it, so long at most.
    pub(crate) fn wait(&self, within: Duration) {
        let set = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.1.wait_timeout_while(set, within, |set| !*set));
    }
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Since the first connect.
    pub elapsed: Duration,
    /// Connections that stand.
    pub standing: u64,
    /// What happened so far.
    pub numbers: Numbers,
}

/// A run that has begun.
pub struct Run<'a> {
    plan: &'a Plan,
    server: Option<Pool>,
    pool: Pool,
    shared: Arc<Shared>,
    watch: Watch,
    start: Instant,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// Its time has passed, or somebody stopped it.
    Time,
    /// There is nothing left to do.
    Done,
}

impl<'a> Run<'a> {
    /// Begins what `plan` asks for.
    ///
    /// # Errors
    /// When the clients' pool, or that of the server in this process, cannot start.
    pub fn start(plan: &'a Plan) -> Result<Run<'a>, Error> {
        let (server, watch) = match plan.targets.as_slice() {
            [] => Watch::here(|| Pool::start(clients::server(plan))).map(|(server, watch)| (Some(server), watch))?,
            targets => (None, Watch::there(targets)),
        };
        let targets = server.as_ref().map_or_else(|| plan.targets.clone(), Pool::addresses);
        let shared = Arc::new(Shared::new(plan.operations));
        let start = Instant::now();
        let pool = Pool::start(config(plan, targets, &shared))?;
        Ok(Run { plan, server, pool, shared, watch, start })
    }

    /// Follows it to its end and tells its progress twice a second. What fails in it is in the report, not an error.
    ///
    /// # Errors
    /// When a pool gives up.
    pub fn finish(self, stop: &Stop, tell: impl FnMut(&Progress)) -> Result<Report, Error> {
        let over = self.follow(stop, tell)?;
        let end = Instant::now();
        let begun = Begun { connects: self.pool.status().counts.connects, at: end };
        let drained = self.settle(stop)?;
        let cost = self.watch.cost(drained);
        let mut tally = self.tally();
        self.pool.shutdown(Drain::within(Duration::ZERO));
        if let Some(server) = &self.server {
            server.shutdown(Drain::within(Duration::ZERO));
        }
        let seconds = seconds(self.start, end, over, tally.last);
        let mut report = report(self.plan, &tally, self.shared.peak(), seconds, cost);
        if let Some(wanted) = self.plan.http() {
            Http::complete(&mut report, (self.plan, wanted), &mut tally, begun);
        }
        Ok(report)
    }

    /// Waits for the plan's end.
    fn follow(&self, stop: &Stop, mut tell: impl FnMut(&Progress)) -> Result<Over, Error> {
        let mut connected = None;
        let mut tick = self.start + TICK;
        let mut slice = FIRST_SLICE;
        loop {
            let status = self.pool.status();
            let now = Instant::now();
            if let Readiness::Stopped(reason) = status.readiness {
                return Err(Error::Stopped { reason });
            }
            if self.is_done(&status) {
                return Ok(Over::Done);
            }
            if connected.is_none() && self.is_connected(&status) {
                connected = Some(now);
            }
            if now >= tick {
                tell(&self.progress());
                tick = now + TICK;
            }
            let deadline = self.deadline(connected);
            if stop.is_set() || deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Over::Time);
            }
            let next = deadline.map_or(tick, |deadline| deadline.min(tick));
            stop.wait(next.saturating_duration_since(now).min(slice));
            slice = (2 * slice).min(SLICE);
        }
    }

    /// Whether every connect that will be made has succeeded or failed.
    fn is_connected(&self, status: &Status) -> bool {
        self.plan.connects().is_some_and(|total| status.counts.connects >= total) && is_settled(status)
    }

    fn is_done(&self, status: &Status) -> bool {
        self.shared.is_spent() || (self.is_connected(status) && status.connections == 0)
    }

    fn deadline(&self, connected: Option<Instant>) -> Option<Instant> {
        match self.plan.end {
            End::Never | End::AfterStages => None,
            End::AfterFirstConnect(time) => Some(self.start + time),
            End::AfterLastConnect(time) => connected.map(|connected| connected + time),
        }
    }

    /// No more connects, and the end of those and of the operations under way. Every operation begun is counted: one that does
    /// not end in time is cut off, and failed. Returns the CPU time of a thread that was needed for it and has ended.
    fn settle(&self, stop: &Stop) -> Result<Duration, Error> {
        let mut config = self.pool.config();
        if let Endpoint::Connect(connecting) = &mut config.endpoint {
            connecting.total = Some(0);
        }
        self.pool.reconfigure(config)?;
        // Clients give up after the time-out by themselves: the second more is for a loaded machine.
        let within = self.plan.timeout + IMPATIENCE;
        let mut patience = Patience::new(stop, within);
        self.wait(&mut patience, is_settled);
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
        Ok(drained)
    }

    /// Waits for `condition` with this patience.
    fn wait(&self, patience: &mut Patience<'_>, condition: impl Fn(&Status) -> bool) {
        while let Some(left) = patience.left() {
            if self.pool.wait(left.min(SLICE), &condition) {
                return;
            }
        }
    }

    fn progress(&self) -> Progress {
        let mut numbers = Numbers::default();
        self.pool.gather(|recorder: &mut Recorder| recorder.tally.numbers).iter().for_each(|one| numbers.add(one));
        Progress { elapsed: self.start.elapsed(), standing: self.shared.standing(), numbers }
    }

    fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.pool.gather(|recorder: &mut Recorder| recorder.tally.clone()).iter().for_each(|one| sum.add(one));
        sum
    }
}

fn config(plan: &Plan, targets: Vec<Address>, shared: &Arc<Shared>) -> Config {
    let mut connecting = Connecting::to(targets);
    connecting.sources.clone_from(&plan.sources);
    connecting.total = plan.connects();
    connecting.rate = plan.connect_rate;
    http::pace(plan, &mut connecting);
    connecting.timeout = plan.timeout;
    let mut config = Config::connect(clients::client(plan, shared), connecting);
    config.settings.linger = LINGER;
    // Clients of acks speak to themselves, with unsent messages too.
    config.settings.notes_when_full = NotesWhenFull::Keep;
    // Clients have no jobs.
    config.limit(plan.connections).workers(0)
}

/// How long to wait for what is under way: as long as it may take, and no longer than [`IMPATIENCE`] once somebody stopped the
/// run.
struct Patience<'a> {
    stop: &'a Stop,
    until: Instant,
    stopped: bool,
}

impl Patience<'_> {
    fn new(stop: &Stop, within: Duration) -> Patience<'_> {
        Patience { stop, until: Instant::now() + within, stopped: false }
    }

    /// None: it is at its end.
    fn left(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if !self.stopped && self.stop.is_set() {
            self.stopped = true;
            self.until = self.until.min(now + IMPATIENCE);
        }
        Some(self.until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// For the next step. A stop is not forgotten.
    fn renew(&mut self, within: Duration) {
        if !self.stopped {
            self.until = Instant::now() + within;
        }
    }
}

/// Whether no connect is under way.
fn is_settled(status: &Status) -> bool {
    status.counts.connected + status.counts.connect_failed >= status.counts.connects
}

/// How long the operations took that were counted: to the last one when there was nothing left to do; else to the end of the
/// run's time, or to the last operation that was under way then.
fn seconds(start: Instant, end: Instant, over: Over, last: Option<Instant>) -> f64 {
    let end = match (over, last) {
        (Over::Done, Some(last)) => last,
        (_, last) => last.map_or(end, |last| last.max(end)),
    };
    end.saturating_duration_since(start).as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "2^53 operations take years")]
fn report(plan: &Plan, tally: &Tally, peak: u64, seconds: f64, cost: Cost) -> Report {
    let numbers = &tally.numbers;
    let per_second = if seconds > 0.0 { numbers.operations_ok as f64 / seconds } else { 0.0 };
    let errors = tally.errors.iter().map(|((phase, errno), count)| Errors {
        phase: phase.name().into(),
        errno: cause(*phase, *errno),
        count: *count,
    });
    let unfinished = (tally.unfinished > 0).then(|| Errors {
        phase: "unfinished".into(),
        errno: "CUT_OFF".to_owned(),
        count: tally.unfinished,
    });
    let [client, server] = [cost.client, cost.server].map(|time| time.map(|time| time.as_secs_f64()));
    Report {
        schema: 1,
        workload: plan.workload.name().into(),
        machine: Machine::this(),
        seconds,
        connections: Connections {
            attempted: numbers.established + numbers.failed,
            established: numbers.established,
            failed: numbers.failed,
            lost: numbers.lost,
            closed: 0,
            open: 0,
            peak,
        },
        operations: Operations { ok: numbers.operations_ok, failed: numbers.operations_failed, per_second },
        latency_us: Latencies {
            connect: tally.connect.percentiles(),
            first_byte: (tally.first_byte.count() > 0).then(|| tally.first_byte.percentiles()),
            operation: tally.operation.percentiles(),
            uncorrected: tally.uncorrected.percentiles(),
            lag: tally.lag.percentiles(),
        },
        errors: errors.chain(unfinished).collect(),
        client: Client { cpu_seconds: client, processes: 1 },
        server: Server { cpu_seconds: server, bytes_per_connection: None },
        wall: None,
        thresholds: Vec::new(),
        actions: Vec::new(),
        acks: Acks::of(plan, tally, seconds, [client, server]),
        http: None,
    }
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

    #[test]
    fn time_runs_to_the_last_operation_that_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seconds = |end, over, last: Option<u64>| seconds(start, at(end), over, last.map(at)).round();
        assert_eq!(seconds(10, Over::Time, Some(9)), 10.0);
        assert_eq!(seconds(10, Over::Time, Some(12)), 12.0);
        assert_eq!(seconds(10, Over::Time, None), 10.0);
        assert_eq!(seconds(10, Over::Done, Some(9)), 9.0);
        assert_eq!(seconds(10, Over::Done, None), 10.0);
    }
}
