//! The second part of a trial: this program serves, and is replaced by itself again and again, each time by a new process, under the clients
//! of a trial of any server.

use crate::outcome::Failure;
use rustix::process::{Pid, Signal, kill_process};
use sockdrawer::upgrade::Replace;
use sockdrawer::{Address, Model};
use sockdrawer_trial::command::{Options, Refused, Report, Table, Trial, Workload};
use sockdrawer_trial::{Progress, Stopped, Until, Verdict};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How often it is replaced, and how long each process serves at least.
pub(crate) const TIMES: u64 = 10;
const EVERY: Duration = Duration::from_millis(200);
/// A server that does not listen within this time does not start.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// The server, whichever process it is now.
struct Server {
    path: PathBuf,
    first: Child,
    address: Address,
}

/// What came of it.
pub(crate) struct Itself(Report);

/// Has this program replace itself under so many clients.
pub(crate) fn run(
    (model, connections, kept, seed): (Model, usize, usize, u64),
    stop: Stopped<'_>,
    progress: impl FnMut(&Progress),
) -> Result<Itself, Failure> {
    let server = Server::start(model)?;
    let program = std::env::current_exe().map_err(cannot)?;
    let [program, path] = [&program, &server.path].map(|path| format!("'{}'", path.to_string_lossy().replace('\'', r"'\''")));
    let options = Options {
        target: server.address.clone(),
        workload: Workload::Echo,
        command: format!("{program} upgrade {path}"),
        every: EVERY,
        until: Until::Changes(TIMES),
        connections,
        kept,
        allow_idle_close: false,
        seed,
        tls: None,
        broadcast: None,
    };
    let trial = Trial::start(&options).map_err(|refused| match refused {
        Refused::Server(line) => Failure::run(line),
        Refused::Clients(error) => error.into(),
    })?;
    Ok(Itself(trial.finish(stop, progress)))
}

impl Itself {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(&self.0)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        self.0.json()
    }
}

/// One line, or all of it where something was lost.
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

impl Server {
    fn start(model: Model) -> Result<Server, Failure> {
        let path = std::env::temp_dir().join(format!("sockdrawer-trial-of-{}", std::process::id()));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args(["serve", "echo", "--listen", "127.0.0.1:0", "--model", model.name(), "--upgrade"]).arg(&path);
        let mut first = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let (says, said) = mpsc::channel();
        let mut lines = BufReader::new(first.stdout.take().expect("piped")).lines();
        let reads = move || {
            // All of its processes have the pipe: what they say is read as long as the trial lasts.
            while let Some(Ok(line)) = lines.next() {
                let _ = says.send(line);
            }
        };
        let mut server = Server { path, first, address: Address::Tcp(([127, 0, 0, 1], 0).into()) };
        std::thread::Builder::new().name("server".to_owned()).spawn(reads).map_err(cannot)?;
        let line = said.recv_timeout(STARTS_WITHIN).unwrap_or_default();
        let address = line.strip_prefix("listening on ").and_then(|address| address.parse().ok());
        server.address = address.ok_or_else(|| Failure::run("this program did not start as a server"))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The one that serves now ends in order, and with it what is left in those before it.
        let last = Replace::at(&self.path).build().ok().and_then(|build| Pid::from_raw(build.pid.cast_signed()));
        match last {
            Some(last) => _ = kill_process(last, Signal::TERM),
            None => _ = self.first.kill(),
        }
        let _ = self.first.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

fn cannot(error: std::io::Error) -> Failure {
    Failure::run(format_args!("cannot start this program as a server: {error}"))
}
