//! The second part of a trial: this program serves, and is replaced by itself again and again, each time by a new process, under the clients
//! of a trial of any server.

use crate::outcome::Failure;
use sockdrawer::Model;
use sockdrawer_trial::command::{Builds, Options, Programs, Refused, Report, Table, Trial, Workload};
use sockdrawer_trial::{Progress, Stopped, Until, Verdict};
use std::fmt;
use std::time::Duration;

/// Minimum time for which each process serves.
const EVERY: Duration = Duration::from_millis(200);

/// Outcome of the second part of a trial.
pub(crate) struct Itself(Report);

/// Returns the number of take-overs after a trial of this length: ten, fewer after a short one, and two at least, since what took over is to be
/// replaced too.
pub(crate) fn times(until: Until) -> u64 {
    let asked = match until {
        Until::Changes(changes) => changes,
        Until::Passed(time) => time.as_secs(),
    };
    asked.clamp(2, 10)
}

/// Has this program replace itself so often under so many clients.
pub(crate) fn run(
    times: u64,
    (model, connections, kept, seed): (Model, usize, usize, u64),
    stop: Stopped<'_>,
    progress: impl FnMut(&Progress),
) -> Result<Itself, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::run(format_args!("cannot find this program: {error}")))?;
    let programs = Programs {
        builds: [program.clone(), program],
        arguments: ["serve", "echo", "--listen", "127.0.0.1:0", "--model", model.name()].map(Into::into).to_vec(),
        path: None,
        not_for_clients: Vec::new(),
        upgrades: times,
        kills: 0,
        seed,
    };
    let refused = |refused| match refused {
        Refused::Server(line) => Failure::run(line),
        Refused::Clients(error) => error.into(),
    };
    let mut builds = Builds::start(programs, None, stop).map_err(refused)?;
    let options = Options {
        target: builds.target().clone(),
        command: builds.line(),
        workload: Workload::Echo,
        every: EVERY,
        until: Until::Changes(times),
        connections,
        kept,
        allow_idle_close: false,
        require_all: false,
        seed,
        tls: None,
        websocket: None,
        broadcast: None,
    };
    let trial = Trial::start(&options).map_err(refused)?;
    Ok(Itself(trial.upgrade(&mut builds, stop, progress)))
}

impl Itself {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(&self.0)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        self.0.json()
    }
}

/// Writes one line, or all of it where something was lost.
impl fmt::Display for Itself {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, total) = (&self.0, self.0.total());
        if self.verdict() != Verdict::Good {
            writeln!(f, "{}", Table(report))?;
        }
        write!(
            f,
            "this program: {} times another process took over, under {} connects; {} of {} kept connections open, {} round trips",
            report.changes.len(),
            total.connects,
            report.standing,
            report.options.kept,
            total.kept_exchanges
        )
    }
}
