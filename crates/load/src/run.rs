//! A run, from the first connect to the report: agents that are told how many connections there are to be, followed until the plan's
//! end.

mod obeying;
mod over;
mod reached;

use over::{Over, ended_early, seconds};

use crate::agent::{Account, Agents, Clients, Hosts, ServerAgent, State};
use crate::latency::{Latency, Percentiles};
use crate::machine::Machine;
use crate::numbers::float;
use crate::orders::{Orders, STOPPED};
use crate::plan::{End, Plan};
use crate::proc::{self, resident_bytes};
use crate::rate::Due;
use crate::report::{Action, Client, Connections, Report};
use crate::schedule::StageClock;
use crate::series::{ClientSample, Counted, Done, Interval, PerSecond, Phase, Progress, Sample};
use crate::server::{LEAST_CONNECTIONS, Server, ServerSample, Watch};
use crate::stop::Stop;
use crate::tls;
use crate::wall::Evidence;
use crate::workload::{Ended, Latencies, Numbers, Operations, Tally};
use sockdrawer::{Address, Config, Drain, Error, Pool};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant, SystemTime};

/// Time between two calls of the progress callback.
const TICK: Duration = Duration::from_millis(500);
/// Time from one sample to the next.
const SECOND: Duration = Duration::from_secs(1);
/// A run that ends so soon after a sample has no sample of the rest alone: its end takes some milliseconds of CPU and packets, which would be
/// told as many times as much per second.
const SHORT: Duration = Duration::from_millis(250);
/// Minimum time between two looks that shows that this process was stopped: a busy machine does not make it as long.
const STOPPED_FOR: Duration = Duration::from_millis(250);
/// Time between two looks at the run. Looking takes the pool's lock: one look at each of its turns would cost a fifth of the client.
const SLICE: Duration = Duration::from_millis(50);
/// The first looks come sooner, so that a run of few operations does not wait for one.
const FIRST_SLICE: Duration = Duration::from_millis(1);
/// Maximum number of slow answers at once: they wait, and cost a stack each.
const MAX_WORKERS: usize = 128;

/// Observer of a run that goes on.
pub trait Observer {
    /// Shows the progress. Called twice a second.
    fn progress(&mut self, _progress: &Progress) {}

    /// Takes a sample. Called each second, and once more when all is over.
    fn sample(&mut self, _sample: &Sample, _interval: &Interval<'_>) {}
}

impl<F: FnMut(&Progress)> Observer for F {
    fn progress(&mut self, progress: &Progress) {
        self(progress);
    }
}

/// A run that has begun.
pub struct Run<'a> {
    plan: &'a Plan,
    server: Option<Pool>,
    agents: Agents<'a>,
    watch: Watch,
    /// An agent beside the server, which sees more of it than this process.
    server_agent: Option<&'a mut ServerAgent>,
    start: Instant,
    started: SystemTime,
    schedule: StageClock,
    orders: Orders,
    actions: Vec<Action>,
    /// Moment since which nothing begins.
    suspended: Option<Duration>,
    /// Moment and length of the last time between two looks in which this process did not run.
    gap: (Duration, Duration),
    /// The last look at the clock.
    looked: Duration,
    /// Moments at which all connections that are wanted had been tried, and at which the run was over.
    connected: Option<Duration>,
    over: Option<Duration>,
    phase: Phase,
    peak: u64,
    /// Connections that are aimed for, and all that were ever wanted besides those that replace others.
    aimed: u64,
    wanted: u64,
    /// Counts up to the sample before, and since then.
    sum: Tally,
    recent: Tally,
    /// Operations that were due until now.
    due: Due,
    /// The sample before, and the one before that.
    last: Mark,
    earlier: Mark,
    /// Times that operations took in the time of the last sample.
    operation: Percentiles,
    /// CPU time and memory of other processes of this side.
    elsewhere: (Duration, u64),
    /// Maximum growth of the memory of all clients.
    grown_bytes: u64,
    evidence: Evidence,
    /// CPU time of all programs of this machine when it began.
    busy: Option<Duration>,
}

/// Counts at the moment when a sample was told.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Duration,
    cpu: Duration,
    numbers: Numbers,
}

impl<'a> Run<'a> {
    /// Begins what `plan` asks for.
    ///
    /// # Errors
    /// When the clients' pool, or that of the server in this process, cannot start; nor a process for clients.
    pub fn start(plan: &'a Plan) -> Result<Run<'a>, Error> {
        Run::begin(plan, |targets, schedule| {
            let clients = Clients::Processes { force: true };
            let now = || Ok(Instant::now());
            Ok((Agents::start(plan, targets, schedule.aim(), clients, now)?, None))
        })
    }

    /// Begins what `plan` asks for on other machines: each agent does its part of it, from one moment on. What a machine has too little
    /// for is refused by its agent, unless it is forced.
    ///
    /// # Errors
    /// When an agent cannot begin, and the run does not go on without it; when none can. A plan without a target has its server in this
    /// process, where other machines may not reach it.
    pub fn start_on(plan: &'a Plan, hosts: &'a mut Hosts, force: bool) -> Result<Run<'a>, Error> {
        Run::begin(plan, |targets, schedule| {
            let at = hosts.begin(plan, targets, schedule.aim(), force)?;
            Ok((Agents::Hosts(hosts), Some(at)))
        })
    }

    fn begin(
        plan: &'a Plan,
        start: impl FnOnce(&[Address], &StageClock) -> Result<(Agents<'a>, Option<Instant>), Error>,
    ) -> Result<Run<'a>, Error> {
        let (server, watch) = match plan.targets.as_slice() {
            [] => Watch::here(|| Pool::start(server(plan)?), |pool| pool.addresses())
                .map(|(server, watch)| (Some(server), watch))?,
            targets => (None, Watch::there(targets, &plan.server_pids)),
        };
        let targets = server.as_ref().map_or_else(|| plan.targets.clone(), |pool| pool.addresses());
        let schedule = StageClock::new(plan);
        let aimed = schedule.aim().connections as u64;
        let now = Instant::now();
        let (agents, at) = start(&targets, &schedule)?;
        let start = at.unwrap_or(now);
        Ok(Run {
            plan,
            server,
            agents,
            watch,
            server_agent: None,
            start,
            started: SystemTime::now(),
            schedule,
            orders: Orders::new(),
            actions: Vec::new(),
            suspended: None,
            gap: Default::default(),
            looked: Duration::ZERO,
            connected: None,
            over: None,
            phase: Phase::default(),
            peak: 0,
            aimed,
            wanted: aimed,
            sum: Tally::default(),
            recent: Tally::default(),
            due: due(plan),
            last: Mark::default(),
            earlier: Mark::default(),
            operation: Percentiles::default(),
            elsewhere: (Duration::ZERO, 0),
            grown_bytes: 0,
            evidence: Evidence { connect_rate: plan.connect_rate.filter(|_| plan.is_short()), ..Evidence::new() },
            busy: proc::busy_time(),
        })
    }

    /// Tells what an agent beside the server sees, on the time axis of the run.
    #[must_use]
    pub fn watching(mut self, agent: &'a mut ServerAgent) -> Run<'a> {
        agent.begin(&self.plan.targets, &self.plan.server_pids);
        self.evidence.server_is_on(agent.cpus());
        self.server_agent = Some(agent);
        self
    }

    /// Takes orders there while it goes on.
    #[must_use]
    pub fn obeying(mut self, orders: &Orders) -> Run<'a> {
        self.orders = orders.clone();
        self
    }

    /// Follows it to its end and tells how it goes. What fails in it is in the report, not an error.
    ///
    /// # Errors
    /// When a pool gives up.
    pub fn finish(mut self, stop: &Stop, mut observer: impl Observer) -> Result<Report, Error> {
        let over = self.follow(stop, &mut observer)?;
        let end = Instant::now();
        let ended_at = self.start.elapsed();
        self.over = Some(ended_at);
        let state = self.agents.state();
        self.fall_due(&state);
        let standing = state.standing;
        self.agents.halt()?;
        self.gather(false);
        let recent = self.recent.operation.percentiles();
        self.operation = if recent.max.is_some() { recent } else { self.operation };
        self.tell_progress(standing, Phase::Ending, &mut observer);
        // Before any is closed: what stands to the end is what memory is told of.
        match &mut self.server_agent {
            Some(agent) => agent.weigh(standing),
            None => self.watch.weigh(standing),
        }
        // Connections that this side ends from now on were open when the time was over.
        let closed = self.sum.numbers.closed + self.recent.numbers.closed;
        let ended = self.agents.settle(self.plan, stop)?;
        let connects = self.agents.state().connects;
        self.gather(true);
        self.peak = self.peak.max(self.agents.state().peak);
        self.sample(ended, &mut observer);
        let (mut cost, mut server) = self.watch.end(ended, self.sum.numbers.operations_ok);
        if let Some(agent) = &mut self.server_agent {
            server = agent.end(self.sum.numbers.operations_ok);
            cost.server = server.cpu_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            if let Some(why) = agent.lost() {
                self.actions
                    .push(Action { at: ended_at.as_secs_f64(), what: format!("the agent beside the server was lost: {why}") });
            }
        }
        cost.client = cost.client.map(|client| client + self.elsewhere.0);
        self.agents.release();
        if let Some(server) = &self.server {
            server.shutdown(Drain::within(Duration::ZERO));
        }
        let seconds = seconds(self.start, end, over, &self.sum);
        let run = Ended {
            connections: self.plan.connections as u64,
            operations: self.plan.operations,
            seconds,
            cpu: [cost.client, cost.server].map(|time| time.map(|time| time.as_secs_f64())),
            connects,
            at: end,
        };
        let mut report = self.report(closed, &run, server);
        report.connections.not_begun = self.not_begun(over, connects);
        report.others_cpus = self.others(cost.client, cost.server);
        report.ended_early = ended_early(over, self.plan, &report);
        report.complete = report.ended_early.is_none();
        self.evidence.sent_again = self.watch.sent_again();
        self.evidence.see_quotas(self.watch.quota());
        if let Agents::Hosts(hosts) = &self.agents {
            self.evidence.see_agents(hosts.throttled());
        }
        // Clients that were stopped are late for that reason.
        let was_stopped = report.actions.iter().any(|action| action.what.starts_with(STOPPED));
        report.wall = self.evidence.wall(&report).filter(|wall| !was_stopped || wall.name != "client CPU");
        Ok(report)
    }

    /// Returns the time since the begin, and finds out whether this process was stopped since the last look.
    fn look_at_clock(&mut self) -> Duration {
        let now = self.start.elapsed();
        let gap = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        if gap >= STOPPED_FOR {
            self.gap = (now, gap);
        }
        now
    }

    /// Waits for the plan's end.
    fn follow(&mut self, stop: &Stop, observer: &mut impl Observer) -> Result<Over, Error> {
        let (mut tick, mut second) = (TICK, SECOND);
        let mut slice = FIRST_SLICE;
        loop {
            let state = self.agents.state();
            let now = self.look_at_clock();
            if let Some(reason) = state.stopped {
                return Err(Error::Stopped { reason });
            }
            self.peak = self.peak.max(state.peak);
            self.fall_due(&state);
            let is_connected = self.schedule.is_over() && state.is_connected();
            if state.spent || (is_connected && state.connections == 0 && self.schedule.target(now) > 0) {
                return Ok(over::nothing_left(state.spent || self.plan.renews(), self.agents.lost()));
            }
            // Where a connection may be replaced at any time, all were made once each that is wanted was tried.
            if self.connected.is_none() && (is_connected || self.phase == Phase::Holding) {
                self.connected = Some(now);
            }
            if now >= tick {
                let is_sampled = now >= second && self.ends().is_none_or(|ends| ends >= now + SHORT);
                // Measurements of agents of other machines are told once a second, to spare the network.
                if is_sampled || !matches!(self.agents, Agents::Hosts(_)) {
                    self.gather(false);
                }
                self.phase = self.phase(&state);
                if is_sampled {
                    self.sample(Duration::ZERO, observer);
                    // Counted from the begin: a tick that is a little late costs no second.
                    second = SECOND + Duration::from_secs(now.as_secs());
                }
                // The end of its time is told with what its last second took.
                if self.ends().is_none_or(|ends| now < ends) {
                    self.tell_progress(state.standing, self.phase, observer);
                }
                tick = (tick + TICK).max(now);
            }
            if self.is_refused() {
                return Ok(Over::Refused);
            }
            if let Agents::Hosts(hosts) = &mut self.agents {
                if hosts.is_broken() {
                    return Ok(Over::AgentLost);
                }
                let joined = hosts.admit(self.plan, &self.plan.targets, self.schedule.aim(), now.as_secs_f64());
                if !joined.is_empty() {
                    let what = format!("agent {} joined", joined.join(", "));
                    self.actions.push(Action { at: now.as_secs_f64(), what });
                    self.aim()?;
                }
            }
            if self.obey()? {
                return Ok(Over::Stopped);
            }
            if stop.is_set() {
                return Ok(Over::Interrupted);
            }
            if self.ends().is_some_and(|ends| now >= ends) {
                return Ok(Over::Time);
            }
            let next = [self.ends(), self.schedule.ends()].into_iter().flatten().fold(tick, Duration::min);
            stop.wait(next.saturating_sub(now).min(slice));
            slice = (2 * slice).min(SLICE);
        }
    }

    /// Counts what was due since the last time: of connections that are replaced, for those too that are down now.
    fn fall_due(&mut self, state: &State) {
        let now = self.start.elapsed();
        let have_been = if self.plan.renews() { self.peak } else { state.standing };
        let connections = have_been.min(self.schedule.target(self.suspended.unwrap_or(now)) as u64);
        self.due.pass(now, connections, self.suspended.is_some());
        if state.made {
            self.due.all_begun();
        }
    }

    /// Returns when the time of the run is over, as far as that is known yet.
    fn ends(&self) -> Option<Duration> {
        match self.plan.end {
            End::Never => None,
            // A pause is no part of a stage.
            End::AfterStages => {
                let paused = self.suspended.map_or(Duration::ZERO, |since| self.start.elapsed().saturating_sub(since));
                Some(self.schedule.ends_all() + paused)
            }
            End::AfterFirstConnect(time) => Some(time),
            End::AfterLastConnect(time) => self.connected.map(|connected| connected + time),
        }
    }

    /// Returns the phase of the run. Connections that are replaced are made all the time: once each that is wanted was tried, the run is in its
    /// course.
    fn phase(&self, state: &State) -> Phase {
        let numbers = self.numbers();
        let wanted = match self.plan.workload.properties().schedule {
            Some(_) => 1,
            None => self.schedule.target(self.start.elapsed()) as u64,
        };
        let all_tried = state.is_connected() || (self.plan.renews() && numbers.established + numbers.failed >= wanted);
        match (self.schedule.is_ramping(), all_tried) {
            (true, _) => Phase::Ramping,
            (false, true) => Phase::Holding,
            (false, false) => Phase::Connecting,
        }
    }

    /// Returns all that was counted until now.
    fn numbers(&self) -> Numbers {
        let mut numbers = self.sum.numbers;
        numbers.add(&self.recent.numbers);
        numbers
    }

    /// Adds up what came of the clients since the last time.
    fn gather(&mut self, last: bool) {
        let Account { tally, cpu, rss_bytes, grown_bytes, .. } = self.agents.take(last);
        self.recent.add(&tally);
        self.elsewhere = (cpu, rss_bytes);
        if !last {
            self.grown_bytes = self.grown_bytes.max(grown_bytes);
        }
    }

    /// Returns the number of connections that took the place of another one; None: none is replaced, or each is for one operation.
    fn reconnected(&self) -> Option<u64> {
        let replaces = self.plan.renews() && !self.plan.is_short();
        replaces.then(|| self.numbers().established.saturating_sub(self.wanted))
    }

    fn tell_progress(&self, standing: u64, phase: Phase, observer: &mut impl Observer) {
        let elapsed = self.start.elapsed();
        let progress = Progress {
            elapsed,
            ends: self.ends(),
            phase,
            target: self.schedule.target(self.suspended.unwrap_or(elapsed)) as u64,
            standing,
            numbers: self.numbers(),
            reconnected: self.reconnected().unwrap_or(0),
            operation: self.operation,
            suspended: self.suspended.is_some(),
        };
        self.orders.show(progress);
        observer.progress(&progress);
    }

    /// Tells of the time since the sample before. Rates of a short rest are those since the sample before that one, and what only that
    /// sample knew is not told again.
    fn sample(&mut self, ended: Duration, observer: &mut impl Observer) {
        let at = self.start.elapsed();
        let recent = std::mem::take(&mut self.recent);
        self.sum.add(&recent);
        let length = at.saturating_sub(self.last.at);
        let is_short = length < SHORT;
        let since = if is_short { self.earlier } else { self.last };
        let stretch = at.saturating_sub(since.at).as_secs_f64().max(1e-9);
        let rate = |now: u64, before: u64| float(now - before) / stretch;
        let numbers = self.sum.numbers;
        let cpu = self.watch.client(ended).map(|client| client + self.elsewhere.0);
        let busy =
            cpu.filter(|_| !since.at.is_zero() || !is_short).map(|cpu| cpu.saturating_sub(since.cpu).as_secs_f64() / stretch);
        let standing = numbers.established.saturating_sub(numbers.closed + numbers.lost);
        // Times of first bytes are told for the whole run only.
        let latency_us = Latencies { first_byte: None, ..recent.latencies() };
        let mut server = self.watch.sample(standing, numbers);
        if let Some(agent) = &mut self.server_agent {
            server = agent.sample(standing, numbers);
        }
        // An end that takes longer than what was before it in this time is what this time is about.
        let ending = self.over.is_some_and(|over| at - over > length / 2);
        let sample = Sample {
            at: at.as_secs_f64(),
            phase: if ending { Phase::Ending } else { self.phase },
            target: self.schedule.target(at) as u64,
            standing,
            connections: Counted {
                attempted: numbers.established + numbers.failed,
                established: numbers.established,
                failed: numbers.failed,
                lost: numbers.lost,
                closed: numbers.closed,
            },
            operations: Done { ok: numbers.operations_ok, failed: numbers.operations_failed },
            per_second: PerSecond {
                connects: rate(numbers.established, since.numbers.established),
                operations: rate(numbers.operations_ok, since.numbers.operations_ok),
            },
            latency_us,
            handshakes: self.sum.tls.as_ref().map(|tls| tls.counts),
            errors: self.sum.errors(self.start),
            client: ClientSample {
                cpu: busy,
                rss_bytes: resident_bytes().map(|own| own + self.elsewhere.1),
                processes: self.agents.count(),
            },
            server: if is_short { server.map(ServerSample::without_rates) } else { server },
        };
        match &mut self.agents {
            Agents::Hosts(hosts) => self.evidence.see_hosts(&sample, hosts.busiest(stretch)),
            _ => self.evidence.see(&sample, sample.client.cpu, proc::memory_left()),
        }
        let (none, Tally { connect, operation, .. }) = (Latency::new(), &recent);
        let handshake = recent.tls.as_ref().map_or(&none, |tls| &tls.took);
        observer.sample(&sample, &Interval { from: self.last.at, length, connect, handshake, operation });
        self.operation = latency_us.operation;
        self.earlier = std::mem::replace(&mut self.last, Mark { at, cpu: cpu.unwrap_or_default(), numbers });
    }

    /// Returns the growth of the clients' memory per connection at the peak; None below 1,000: what is not theirs would weigh too much.
    fn bytes_per_connection(&self) -> Option<f64> {
        (self.peak >= LEAST_CONNECTIONS).then(|| float(self.grown_bytes) / float(self.peak))
    }

    fn report(&mut self, closed: u64, run: &Ended, server: Server) -> Report {
        let (plan, tally) = (self.plan, &self.sum);
        let numbers = &tally.numbers;
        let (acks, http) = plan.workload.own(tally, run);
        Report {
            schema: Report::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: None,
            plan: None,
            target: Some(plan.targets.iter().map(Address::to_string).collect::<Vec<_>>().join(" ")).filter(|all| !all.is_empty()),
            started: rfc3339(self.started),
            ended: rfc3339(SystemTime::now()),
            complete: true,
            ended_early: None,
            seed: plan.seed,
            workload: plan.workload.name().into(),
            machine: Machine::this(),
            seconds: run.seconds,
            connections: Connections {
                attempted: numbers.established + numbers.failed,
                established: numbers.established,
                failed: numbers.failed,
                lost: numbers.lost,
                closed,
                open: numbers.established.saturating_sub(closed + numbers.lost),
                peak: self.peak,
                not_begun: 0,
                per_second: self.connects_per_second(run.seconds),
                reconnected: self.reconnected(),
            },
            operations: Operations {
                ok: numbers.operations_ok,
                failed: numbers.operations_failed,
                per_second: run.per_second(numbers.operations_ok),
            },
            rate: self.due.rate(
                if plan.is_short() { run.connects } else { numbers.operations_ok + numbers.operations_failed },
                plan.operations,
                numbers.established,
            ),
            latency_us: tally.latencies(),
            errors: tally.errors(self.start),
            agents: if let Agents::Hosts(hosts) = &self.agents { hosts.parts(run.seconds) } else { Vec::new() },
            client: Client {
                bytes_per_connection: self.bytes_per_connection(),
                cpu_seconds: run.cpu[0],
                processes: self.agents.count(),
                lost: self.agents.lost(),
            },
            server,
            others_cpus: None,
            wall: None,
            thresholds: Vec::new(),
            actions: std::mem::take(&mut self.actions),
            tls: tally.tls.as_ref().map(|tls| tls.report(run.seconds)),
            websocket: tally.websocket.as_ref().map(|websocket| websocket.report(run.seconds)),
            acks,
            http,
        }
    }
}

/// Returns a server for the clients in this process, on a free port. A short connection may end here a moment after its client began the next; of
/// those that stay people may want more while the run goes on.
fn server(plan: &Plan) -> Result<Config, Error> {
    let (mut behaviour, model) = plan.workload.kind().server();
    if let Some(tls) = &plan.tls {
        behaviour = tls::server(behaviour, &tls.alpn)?;
    }
    let workers = if plan.workload.properties().has_slow_answers { plan.connections.min(MAX_WORKERS) } else { 0 };
    let mut config =
        Config::accept(behaviour).model(model).workers(workers).listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()));
    config.limit = plan.is_short().then(|| plan.connections.saturating_mul(2));
    Ok(config)
}

/// Returns what will be due by a plan, whose operations may be back to back.
fn due(plan: &Plan) -> Due {
    let properties = plan.workload.properties();
    let interval = if plan.has_interval() { properties.interval } else { Duration::ZERO };
    let due = Due::new(interval, properties.schedule);
    if plan.stages.is_empty() { due.of_all(plan.connections as u64) } else { due }
}

fn rfc3339(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}
