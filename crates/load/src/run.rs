//! A run, from the first connect to the report: a pool that connects, followed until the plan's end.

use crate::clients;
use crate::machine::{Machine, cpu_time};
use crate::plan::{End, Plan};
use crate::report::{Client, Connections, Errors, Latencies, Operations, Report, Server};
use crate::shared::Shared;
use crate::tally::{Numbers, Recorder, Tally, cause};
use sockdrawer::{Address, Config, Connecting, Drain, Endpoint, Error, Pool, Readiness, Selector, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two calls of the progress callback.
const TICK: Duration = Duration::from_millis(500);
/// A [`Stop`] is seen after this at the latest.
const SLICE: Duration = Duration::from_millis(50);
/// After a [`Stop`], what is under way may take this long.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Ends a run early, from another thread; what was reached until then is reported.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Not stopped.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends the run.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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

/// How long a connection that this side ends may wait for the peer's end: a run is over when its numbers are, and what a server
/// still sends then is nobody's.
const LINGER: Duration = Duration::from_millis(250);

/// Runs `plan` and tells its progress twice a second. What fails in it is in the report, not an error.
///
/// # Errors
/// When the clients' pool, or that of the server in this process, cannot start or gives up.
pub fn run(plan: &Plan, stop: &Stop, tell: impl FnMut(&Progress)) -> Result<Report, Error> {
    let server = if plan.targets.is_empty() { Some(Pool::start(clients::server(plan))?) } else { None };
    let targets = server.as_ref().map_or_else(|| plan.targets.clone(), Pool::addresses);
    let shared = Arc::new(Shared::new(plan.operations));
    let cpu_before = cpu_time();
    let start = Instant::now();
    let pool = Pool::start(config(plan, targets, &shared))?;
    let run = Run { plan, stop, pool: &pool, shared: &shared, start };
    let over = run.follow(tell)?;
    let end = Instant::now();
    run.settle()?;
    let cpu = cpu_time().saturating_sub(cpu_before);
    let tally = run.tally();
    pool.shutdown(Drain::within(Duration::ZERO));
    let client = Client { cpu_seconds: server.is_none().then_some(cpu.as_secs_f64()), processes: 1 };
    if let Some(server) = server {
        server.shutdown(Drain::within(Duration::ZERO));
    }
    let seconds = seconds(start, end, over, tally.last);
    Ok(report(plan, &tally, shared.peak(), seconds, client))
}

fn config(plan: &Plan, targets: Vec<Address>, shared: &Arc<Shared>) -> Config {
    let mut connecting = Connecting::to(targets);
    connecting.sources.clone_from(&plan.sources);
    connecting.total = plan.connects();
    connecting.rate = plan.connect_rate;
    connecting.timeout = plan.timeout;
    let mut config = Config::connect(clients::client(plan, shared), connecting);
    config.settings.linger = LINGER;
    // Clients have no jobs.
    config.limit(plan.connections).workers(0)
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// Its time has passed, or somebody stopped it.
    Time,
    /// There is nothing left to do.
    Done,
}

struct Run<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    pool: &'a Pool,
    shared: &'a Shared,
    start: Instant,
}

impl Run<'_> {
    /// Waits for the plan's end.
    fn follow(&self, mut tell: impl FnMut(&Progress)) -> Result<Over, Error> {
        let mut connected = None;
        let mut tick = self.start + TICK;
        loop {
            let now = Instant::now();
            if now >= tick {
                tell(&self.progress());
                tick = now + TICK;
            }
            let deadline = self.deadline(connected);
            if self.stop.is_set() || deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Over::Time);
            }
            let next = deadline.map_or(tick, |deadline| deadline.min(tick));
            let mut gave_up = None;
            let done = self.pool.wait(next.saturating_duration_since(now).min(SLICE), |status| {
                if connected.is_none() && self.is_connected(status) {
                    connected = Some(Instant::now());
                }
                if let Readiness::Stopped(reason) = &status.readiness {
                    gave_up = Some(reason.clone());
                }
                gave_up.is_some() || self.is_done(status)
            });
            if let Some(reason) = gave_up {
                return Err(Error::Stopped { reason });
            }
            if done {
                return Ok(Over::Done);
            }
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
            End::Never => None,
            End::AfterFirstConnect(time) => Some(self.start + time),
            End::AfterLastConnect(time) => connected.map(|connected| connected + time),
        }
    }

    /// No more connects, and the end of those and of the operations under way, so that every one begun is counted.
    fn settle(&self) -> Result<(), Error> {
        let mut config = self.pool.config();
        if let Endpoint::Connect(connecting) = &mut config.endpoint {
            connecting.total = Some(0);
        }
        self.pool.reconfigure(config)?;
        // Clients give up after the time-out by themselves: the second more is for a loaded machine.
        let patience = if self.stop.is_set() { IMPATIENCE } else { self.plan.timeout + IMPATIENCE };
        self.pool.wait(patience, is_settled);
        self.pool.drain(&Selector::All, Drain::within(patience));
        Ok(())
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
fn report(plan: &Plan, tally: &Tally, peak: u64, seconds: f64, client: Client) -> Report {
    let numbers = &tally.numbers;
    let per_second = if seconds > 0.0 { numbers.operations_ok as f64 / seconds } else { 0.0 };
    let errors = tally.errors.iter().map(|((phase, errno), count)| Errors {
        phase: phase.name(),
        errno: cause(*phase, *errno),
        count: *count,
    });
    Report {
        schema: 1,
        workload: plan.workload.name(),
        machine: Machine::this(),
        seconds,
        connections: Connections {
            attempted: numbers.established + numbers.failed,
            established: numbers.established,
            failed: numbers.failed,
            lost: numbers.lost,
            peak,
        },
        operations: Operations { ok: numbers.operations_ok, failed: numbers.operations_failed, per_second },
        latency_us: Latencies { connect: tally.connect.percentiles(), operation: tally.operation.percentiles() },
        errors: errors.collect(),
        client,
        server: Server::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
