//! The trial of two builds as a test of a program's own.

use super::{Builds, Options, Programs, Refused, Report, Trial, Workload};
use crate::{Broadcast, Exchange, Script, Tls, Until};
use sockdrawer::Address;
use sockdrawer_websocket::Carrier;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A trial of two builds of a program: see [`upgrades`].
#[derive(Clone, Debug)]
#[must_use = "it is carried out by run"]
pub struct Upgrades {
    programs: Programs,
    target: Option<Address>,
    clients: [usize; 2],
    every: Duration,
    workload: Workload,
    tls: Option<Tls>,
    websocket: Option<Carrier>,
    broadcast: Option<Broadcast>,
    allow_idle_close: bool,
    require_all: bool,
    exchanges: Option<Exchanges>,
}

/// Exchanges of any form, by which a trial is started.
#[derive(Clone)]
struct Exchanges(Arc<Starts>);

type Starts = dyn for<'a> Fn(&'a Options) -> Result<Trial<'a>, Refused> + Send + Sync;

impl fmt::Debug for Exchanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchanges").finish_non_exhaustive()
    }
}

/// Has two builds of a program take over from each other under clients, and kills some of their processes: the first build is started with `arguments`, to which
/// `--upgrade PATH` is added. It is the command `sockdrawer trial upgrade` for a test.
///
/// ```no_run
/// # use sockdrawer_trial::command::upgrades;
/// // In a test of the program, the new build is env!("CARGO_BIN_EXE_chat").
/// let [old, new] = ["target/last-release/chat", "target/debug/chat"];
/// let script = r"
///     > PING {n}\n
///     < PONG {n}\n
/// ".parse()?;
/// let trial = upgrades([old, new], ["serve", "--listen", "127.0.0.1:0"]).script(script).changes(4).kills(0);
/// trial.run()?.assert_nothing_lost();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// This process becomes the parent of all processes of the program, and waits for all of its own children: other tests that start processes belong into another test program, and
/// tests of two builds take turns. With kills, have the builds listen at a port that stays, or at a Unix path. Lines that refuse a trial name the command's options, such as
/// `--target`: the methods have their names.
pub fn upgrades<P: Into<PathBuf>, A: Into<OsString>>(builds: [P; 2], arguments: impl IntoIterator<Item = A>) -> Upgrades {
    let programs = Programs {
        builds: builds.map(Into::into),
        arguments: arguments.into_iter().map(Into::into).collect(),
        path: None,
        not_for_clients: ["control", "metrics"].map(str::to_owned).to_vec(),
        upgrades: 4,
        kills: 2,
        seed: 1,
    };
    let (every, workload) = (Duration::from_millis(500), Workload::Echo);
    Upgrades {
        programs,
        target: None,
        clients: [8, 16],
        every,
        workload,
        tls: None,
        websocket: None,
        broadcast: None,
        allow_idle_close: false,
        require_all: false,
        exchanges: None,
    }
}

impl Upgrades {
    /// Sets the number of upgrades that are left alone. Default: 4.
    pub fn changes(mut self, number: u64) -> Upgrades {
        self.programs.upgrades = number;
        self
    }

    /// Sets the number of upgrades in which one of the two processes is killed, the new and the old one in turn. Default: 2.
    pub fn kills(mut self, number: u64) -> Upgrades {
        self.programs.kills = number;
        self
    }

    /// Sets the time from the start of a change to the start of the next. Default: 500 ms.
    pub fn every(mut self, time: Duration) -> Upgrades {
        self.every = time;
        self
    }

    /// Sets the number of clients that come and go, and of those that stay. Default: 8, 16.
    pub fn clients(mut self, come_and_go: usize, stay: usize) -> Upgrades {
        self.clients = [come_and_go, stay];
        self
    }

    /// Sets the seed of all random choices. Default: 1.
    pub fn seed(mut self, seed: u64) -> Upgrades {
        self.programs.seed = seed;
        self
    }

    /// Sets the address of the clients, where the builds listen at several. Default: their only one.
    pub fn target(mut self, target: Address) -> Upgrades {
        self.target = Some(target);
        self
    }

    /// Sets the path at which the builds meet, for programs without the option `--upgrade`.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Upgrades {
        self.programs.path = Some(path.into());
        self
    }

    /// Sets the exchanges of the clients. Default: random bytes that come back.
    pub fn script(self, script: Script) -> Upgrades {
        self.workload(Workload::Script(script))
    }

    /// Sets the exchanges of the clients, where they are not those of a script, such as [`Workload::Http`].
    pub fn workload(mut self, workload: Workload) -> Upgrades {
        self.workload = workload;
        self
    }

    /// Sets exchanges of any form: `churn` for clients that come and go, `kept` for those that stay. A client that writes again and again, and expects its own
    /// last value, is such an [`Exchange`].
    pub fn exchanges<E: Exchange + Clone>(mut self, churn: E, kept: E) -> Upgrades {
        self.exchanges = Some(Exchanges(Arc::new(move |options| Trial::start_with(options, &churn, &kept))));
        self
    }

    /// Sets the messages that the clients that stay publish and hear, in the place of their exchanges.
    pub fn broadcast(mut self, broadcast: Broadcast) -> Upgrades {
        self.broadcast = Some(broadcast);
        self
    }

    /// Sets the TLS of the clients.
    pub fn tls(mut self, tls: Tls) -> Upgrades {
        self.tls = Some(tls);
        self
    }

    /// Has the clients speak WebSocket, which carries their exchanges.
    pub fn websocket(mut self, carrier: Carrier) -> Upgrades {
        self.websocket = Some(carrier);
        self
    }

    /// Allows the server to close connections that stay while they are idle, as HTTP does, and an app of axum whose process is replaced.
    pub fn allow_idle_close(mut self) -> Upgrades {
        self.allow_idle_close = true;
        self
    }

    /// Has the trial fail if a connection stayed behind in an upgrade without a kill, as all do where a build cannot read the other's states; not if it ends.
    pub fn require_all(mut self) -> Upgrades {
        self.require_all = true;
        self
    }

    /// Carries the trial out.
    ///
    /// # Errors
    /// When the first build does not serve, or does not answer as the clients expect.
    pub fn run(self) -> Result<Report, Refused> {
        let Upgrades {
            programs,
            target,
            clients: [connections, kept],
            every,
            workload,
            tls,
            websocket,
            broadcast,
            allow_idle_close,
            require_all,
            exchanges,
        } = self;
        let (seed, until) = (programs.seed, Until::Changes(programs.upgrades + programs.kills));
        let goes_on: crate::Stopped<'_> = &|within| {
            // waits because: this is the pause between two looks of the trial, which nothing ends early.
            std::thread::sleep(within);
            false
        };
        let mut builds = Builds::start(programs, target, goes_on)?;
        let (target, command) = (builds.target().clone(), builds.line());
        let options = Options {
            target,
            workload,
            command,
            every,
            until,
            connections,
            kept,
            allow_idle_close,
            require_all,
            seed,
            tls,
            websocket,
            broadcast,
        };
        let trial = match exchanges {
            Some(Exchanges(start)) => start(&options)?,
            None => Trial::start(&options)?,
        };
        Ok(trial.upgrade(&mut builds, goes_on, |_| {}))
    }
}
