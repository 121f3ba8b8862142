//! A trial of any server: two sets of clients exchange with it while a command changes it again and again, or two builds of it replace each
//! other ([`Builds`]), and all losses that a client could see are counted for each change.
//!
//! This module prints nothing.

mod builds;
mod preflight;
mod report;
mod shell;
mod table;
mod upgrades;
mod victim;
mod web;

#[cfg(test)]
mod tests;

pub use builds::{Builds, Programs};
pub use preflight::Refused;
pub use report::{Change, Report};
pub use shell::{Ended, Promise, Ran};
pub use table::Table;
pub use upgrades::{Upgrades, upgrades};

use crate::deliveries::ARRIVES;
use crate::{
    Broadcast, Clients, Delivered, Echo, Exchange, Group, Losses, Pairs, Plan, Probe, Script, Scripted, Tally, Tls, mix,
};
use crate::{Progress, Stopped, Until};
use sockdrawer::{Address, Error};
use sockdrawer_websocket::Carrier;
use std::sync::Arc;
use std::time::{Duration, Instant};
use web::{Expected, Web};

/// The time for which the server is watched before the first change, to see what it loses without changes. Shorter if the interval of
/// changes is.
const BEFORE: Duration = Duration::from_secs(1);
/// The minimum time for which the server is watched after the last command ended.
const SETTLES: Duration = Duration::from_secs(1);
/// Connects that end under each change before the next begins, if the server still answers any, and their timeout.
const CONNECTS_PER_CHANGE: u64 = 20;
const CONNECTS_WITHIN: Duration = Duration::from_secs(1);
/// The time between two calls of the progress callback.
const TICK: Duration = Duration::from_millis(100);

/// The protocol of the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Random bytes, which the server sends back.
    Echo,
    /// `Ping`, which is answered with `Pong`.
    Ping,
    /// GET requests for this path: one per connection of the churn, one after the other on connections that stay. The status and the body
    /// of each answer must be those of the first.
    Http {
        /// The path.
        path: String,
        /// The server's name in the requests; None: its address.
        host: Option<String>,
    },
    /// Exchanges of a protocol of one's own: all of them per connection of the churn, one after the other on connections that stay.
    Script(Script),
}

impl Workload {
    /// Returns the name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Echo => "echo",
            Workload::Ping => "ping",
            Workload::Http { .. } => "http",
            Workload::Script(_) => "script",
        }
    }
}

/// The options of a trial by a command.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of the server.
    pub target: Address,
    /// The protocol of the clients.
    pub workload: Workload,
    /// The command that changes the server, run by `sh -c`; of [`Builds`], the line that starts them.
    pub command: String,
    /// The time from the start of a command to the start of the next; a longer command is waited for.
    pub every: Duration,
    /// End of the trial.
    pub until: Until,
    /// The number of clients that connect, exchange and end all the time.
    pub connections: usize,
    /// The number of connections that exchange from the first to the last change.
    pub kept: usize,
    /// The server may close connections at rest: [`Seen::closed_at_rest`](crate::Seen::closed_at_rest).
    pub allow_idle_close: bool,
    /// For builds: whether the verdict is bad if a connection stayed behind in an upgrade without a kill.
    pub require_all: bool,
    /// The seed of all random choices.
    pub seed: u64,
    /// TLS with the server; None: without.
    pub tls: Option<Tls>,
    /// The WebSocket that carries the exchanges, none of `http`; None: none does.
    pub websocket: Option<Carrier>,
    /// The messages of connections that stay and hear each other, in the place of their exchanges; None: they do not.
    pub broadcast: Option<Broadcast>,
}

impl Options {
    fn plan(&self) -> Plan {
        Plan {
            target: self.target.clone(),
            connections: self.connections,
            kept: self.kept,
            seed: mix(self.seed),
            tls: self.tls.clone(),
            websocket: self.websocket.clone(),
            broadcast: self.broadcast.clone(),
        }
    }

    /// Returns the maximum of connects per second; None: as fast as possible.
    pub fn connect_rate(&self) -> Option<f64> {
        self.plan().connect_rate()
    }
}

/// A trial whose clients run.
pub struct Trial<'a> {
    options: &'a Options,
    clients: Clients,
    probe: Probe,
    tally: Arc<Tally>,
}

impl<'a> Trial<'a> {
    /// Checks that the server is there and answers, then starts the clients.
    ///
    /// # Errors
    /// When the server is not there, or does not answer as the workload expects; when a pool of clients cannot start.
    pub fn start(options: &'a Options) -> Result<Trial<'a>, Refused> {
        let expected = Arc::new(Expected::default());
        match &options.workload {
            Workload::Echo => {
                let echo = |set: u64| Echo::new(mix(options.seed ^ set), 16, 2048);
                Trial::with(options, &expected, echo)
            }
            Workload::Ping => Trial::with(options, &expected, |_| Pairs::new(|_| (b"Ping".to_vec(), b"Pong".to_vec()))),
            Workload::Http { path, host } => {
                let asked = (path.as_str(), host.as_deref());
                let web = |set: u64| Web::new(&options.target, asked, set == CHURN, expected.clone());
                Trial::with(options, &expected, web)
            }
            Workload::Script(script) => {
                let kept = Scripted::new(script.clone()).hearing_others(options.broadcast.is_some());
                Trial::with(options, &expected, |set| if set == CHURN { kept.whole() } else { kept.clone() })
            }
        }
    }

    /// Starts it with exchanges of another form than those of [`Options::workload`]: `churn` for clients that come and go, `kept` for those that stay.
    ///
    /// # Errors
    /// As [`Trial::start`].
    pub fn start_with<E: Exchange + Clone>(options: &'a Options, churn: &E, kept: &E) -> Result<Trial<'a>, Refused> {
        Trial::with(options, &Expected::default(), |set| if set == CHURN { churn.clone() } else { kept.clone() })
    }

    fn with<E: Exchange>(options: &'a Options, expected: &Expected, exchange: impl Fn(u64) -> E) -> Result<Trial<'a>, Refused> {
        let plan = options.plan();
        preflight::look(&plan, exchange(CHURN), exchange(KEPT), expected)?;
        let tally = Arc::new(Tally::new());
        let clients = Clients::start(&plan, exchange(CHURN), exchange(KEPT), &tally)?;
        if clients.standing() < plan.kept {
            let refused = preflight::too_few(&plan, clients.standing(), &tally);
            clients.cut();
            return Err(refused);
        }
        let probe = Probe::start(&plan, exchange(CHURN), &tally)?;
        Ok(Trial { options, clients, probe, tally })
    }

    /// Runs the command until the end. `tell` is called about ten times per second, on this thread; `stop` ends the trial, and the running
    /// command. Failures are part of the report.
    pub fn finish(self, stop: Stopped<'_>, tell: impl FnMut(&Progress)) -> Report {
        let command = &self.options.command;
        self.finish_by(|tick| shell::run(command, stop, tick), stop, tell)
    }

    /// Has the builds replace each other until the end, in the place of the command.
    pub fn upgrade(self, builds: &mut Builds, stop: Stopped<'_>, tell: impl FnMut(&Progress)) -> Report {
        let mut report = self.finish_by(|tick| builds.change(stop, tick), stop, tell);
        if let Some(last) = report.changes.last_mut() {
            builds.tell_late_deaths(&mut last.ran.ended);
        }
        report
    }

    fn finish_by(
        self,
        mut change: impl FnMut(&mut dyn FnMut()) -> Ran,
        stop: Stopped<'_>,
        tell: impl FnMut(&Progress),
    ) -> Report {
        let mut watch =
            Watch { trial: &self, stop, tell, begun: Instant::now(), changes: 0, messages: Default::default(), standing: 0 };
        watch.wait_until(Instant::now() + self.options.every.min(BEFORE));
        let before = self.tally.next();
        watch.begun = Instant::now();
        let changes = watch.all(&mut change);
        let begun: Vec<Instant> = changes.iter().map(|change| watch.begun + change.at).collect();
        let (elapsed, (delivered, lost_messages)) = (watch.begun.elapsed(), watch.messages);
        let standing = watch.standing;
        let replaced = self.tally.stood(Group::Kept).saturating_sub(self.options.kept as u64);
        let failures = self.tally.failures();
        // Failures of clients from here on are not the server's fault.
        self.probe.cut();
        self.clients.cut();
        Report {
            options: self.options.clone(),
            interrupted: stop(Duration::ZERO),
            elapsed,
            before,
            changes,
            failures,
            standing,
            replaced,
            odd: self.tally.unexpected().map(|(odd, asked)| {
                let change = begun.partition_point(|change| *change <= asked);
                if change == 0 { format!("{odd} (before the first change)") } else { format!("{odd} (in change {change})") }
            }),
            closed: self.tally.closed(),
            delivered,
            lost_messages,
        }
    }
}

/// Time for which the new build serves once it has taken over from itself: longer than the old process stands by.
const HELD: Duration = Duration::from_secs(5);
/// A trial ends after this number of upgrades in a row that failed.
const IN_A_ROW: usize = 3;

/// Numbers of the two sets, by which [`Web`] and the seeds tell them apart.
const CHURN: u64 = 1;
const KEPT: u64 = 2;

/// A trial that is under way.
struct Watch<'a, T> {
    trial: &'a Trial<'a>,
    stop: Stopped<'a>,
    tell: T,
    begun: Instant,
    changes: u64,
    /// The messages of each sender, and those that were lost by the change in which they were published, once they are counted.
    messages: (Vec<Delivered>, Losses),
    /// Kept connections that were open at the end.
    standing: usize,
}

impl<T: FnMut(&Progress)> Watch<'_, T> {
    fn all(&mut self, change: &mut impl FnMut(&mut dyn FnMut()) -> Ran) -> Vec<Change> {
        let Options { every, until, .. } = self.trial.options;
        let mut changes: Vec<Change> = Vec::new();
        let mut ended = Instant::now();
        while !self.is_over(*until) && !give_up(&changes) {
            let start = Instant::now();
            self.trial.clients.next_change();
            let ran = change(&mut || self.progress());
            ended = Instant::now();
            self.changes += 1;
            let killed = ran.is_kill();
            self.trial.clients.change_ends(killed);
            // Messages that were published after a kill, and before the next change, are due: some of them have to arrive.
            let calm = if killed && self.trial.options.broadcast.is_some() { ended + 2 * ARRIVES } else { ended };
            // The new build has taken over from itself: once it serves for longer than changes take, and ends if it ends by itself.
            let is_held = ran.promise.as_ref().is_some_and(|promise| promise.change == builds::NEW_AGAIN);
            let calm = if is_held { calm.max(ended + HELD) } else { calm };
            let next = (start + *every).max(calm);
            self.wait_until(if let Until::Passed(time) = until { next.min(self.begun + *time) } else { next });
            if !(self.stop)(Duration::ZERO) {
                self.trial.clients.await_connects(CONNECTS_PER_CHANGE, CONNECTS_WITHIN.saturating_sub(start.elapsed()));
            }
            let at = start.saturating_duration_since(self.begun);
            changes.push(Change { number: self.changes, at, ran, seen: self.trial.tally.next() });
        }
        self.wait_until(ended + SETTLES);
        self.messages = self.trial.clients.settle_with_losses();
        self.standing = self.trial.clients.standing();
        // An answer that never comes is lost, also if it was asked for a moment ago.
        self.trial.clients.leave(self.stop);
        if let Some(last) = changes.last_mut() {
            last.seen = last.seen.plus(&self.trial.tally.next());
        }
        changes
    }

    fn is_over(&self, until: Until) -> bool {
        let enough = match until {
            Until::Changes(most) => self.changes >= most,
            Until::Passed(time) => self.begun.elapsed() >= time,
        };
        enough || (self.stop)(Duration::ZERO)
    }

    fn wait_until(&mut self, end: Instant) {
        while !(self.stop)(Duration::ZERO) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (self.stop)(left.min(TICK));
            self.progress();
        }
    }

    fn progress(&mut self) {
        let progress = Progress { elapsed: self.begun.elapsed(), changes: self.changes, seen: self.trial.tally.total() };
        (self.tell)(&progress);
    }
}

/// Returns true where the next upgrade would fail, too, as each of the last few has: one whose build hangs takes 30 s.
pub(crate) fn give_up(changes: &[Change]) -> bool {
    let last = changes.iter().rev().take(IN_A_ROW);
    last.filter(|change| change.ran.promise.is_some() && change.ran.ended.has_failed()).count() == IN_A_ROW
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Clients(error)
    }
}
