//! The configuration of a pool: typed data, parsed and not validated later.

mod restart_policy;
mod restarts;
mod revision;

pub use restart_policy::{Death, Part, Replace, RestartPolicy};
pub use restarts::Restarts;
pub(crate) use revision::{Revision, Stamp};

use crate::admission::{Admission, Limits};
use crate::behaviour::Behaviour;
use crate::net::{Address, Listen, ListenOptions, SocketOptions};
use crate::observe::{NoObserver, Observer};
use crate::sys::{Kernel, System};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The configuration of a pool. To change a running pool, change a copy of its configuration and give it to
/// [`Pool::reconfigure`](crate::Pool::reconfigure). A copy taken from a pool remembers the revision that it is based on: see
/// [`Error::Conflict`](crate::Error::Conflict).
///
/// ```
/// # use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step};
/// # struct Echo;
/// # impl Service for Echo { type Protocol = Echo; fn open(&self, _: &Peer) -> Echo { Echo } }
/// # impl Protocol for Echo {
/// #     fn received(&mut self, i: &mut Input<'_>, cx: &mut Context<'_>) -> Step { cx.send(i.bytes()); i.take_all(); Step::Continue }
/// # }
/// let config = Config::accept(Echo).listen("127.0.0.1:0".parse()?).loops(2).limit(100);
/// # Ok::<(), sockdrawer::AddressError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The code that runs on each connection. A different behaviour starts a new generation.
    pub behaviour: Behaviour,
    /// Whether connections are accepted or made, with addresses and limits of that.
    pub endpoint: Endpoint,
    /// The model that runs the connections; it cannot be changed while the pool runs.
    pub model: Model,
    /// Settings of each connection. Different settings start a new generation.
    pub settings: Settings,
    /// Threads that run connections; with [`Model::Prefork`], per process. Default: the number of CPUs.
    pub loops: usize,
    /// Processes of [`Model::Prefork`]; the other models ignore it. Default: the number of CPUs.
    pub processes: usize,
    /// Threads that run jobs; with 0 the loops run them. Default: the number of CPUs.
    pub workers: usize,
    /// Bytes of stack for each thread of [`Model::Threads`], and for each that runs a delegated connection.
    pub stack: usize,
    /// Jobs that may wait for a worker; beyond it a job ends with [`JobError::QueueFull`](crate::JobError::QueueFull).
    pub worker_queue: usize,
    /// The most threads for delegated connections, started on demand; beyond it they wait, first in first out. With
    /// [`Model::Threads`] there are as many as connections.
    pub delegates: usize,
    /// Connections for which memory is kept ready in each loop. Not a limit.
    pub capacity: usize,
    /// How long a loop that had something to do asks for more before it sleeps. Zero, the default: not at all. One connection that
    /// asks, waits and asks again gets its answers without two wake-ups each; who has many busy ones pays CPU for little. At most a
    /// second. Not with [`Model::Threads`], [`Model::Fork`] and [`Model::Tasks`].
    pub spin: Duration,
    /// The most connections at once; None: as many as descriptors allow.
    pub limit: Option<usize>,
    /// Who is let in: [`Limits`], or a policy of your own.
    pub admission: Arc<dyn Admission>,
    /// Numbers of connections that are told when they are reached.
    pub alarms: Vec<Alarm>,
    /// The most generations that may be live at once, the one in force included: at least 2. While there are as many, a change that
    /// needs another is refused with [`Error::TooManyGenerations`](crate::Error::TooManyGenerations). None, the default: 65,000.
    pub max_generations: Option<usize>,
    /// Notes that may wait in a loop's inbox; beyond it a sender gets [`NotifyError::Full`](crate::NotifyError::Full).
    pub inbox: usize,
    /// What is done when a loop, a worker or a process dies.
    pub restarts: Arc<dyn RestartPolicy>,
    /// How long a loop may spend in one turn before it is reported and its listeners move.
    pub stuck_after: Duration,
    /// Who is told of what happens.
    pub observer: Arc<dyn Observer>,
    /// Who makes listening sockets. Those that are there stay when it is another.
    pub(crate) listen_by: Option<Arc<dyn Listen>>,
    pub(crate) system: Arc<dyn System>,
    /// Of which pool and revision it is a copy; None: it was made from nothing.
    pub(crate) based_on: Option<Stamp>,
}

/// Who runs the connections. The protocol is the same under each; what a model cannot do is refused when the pool starts, with an
/// error that names the model and what to use instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Model {
    /// One connection at a time, each to its end.
    Single,
    /// A thread for each connection.
    Threads,
    /// A process for each connection. Needs the feature `processes`.
    Fork,
    /// N processes, each of which runs loops. Needs the feature `processes`.
    Prefork,
    /// N threads, each with many connections.
    #[default]
    Loops,
    /// Loops that are runtimes of async tasks. Needs the feature `tokio`.
    Tasks,
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 6] = [Model::Single, Model::Threads, Model::Fork, Model::Prefork, Model::Loops, Model::Tasks];

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Model::Single => "single",
            Model::Threads => "threads",
            Model::Fork => "fork",
            Model::Prefork => "prefork",
            Model::Loops => "loops",
            Model::Tasks => "tasks",
        }
    }

    /// Whether it has any number of loops and workers. The others have one place that accepts, and run jobs where the connection
    /// runs.
    pub(crate) fn has_loops(self) -> bool {
        matches!(self, Model::Prefork | Model::Loops | Model::Tasks)
    }

    /// Whether connections live in other processes.
    pub(crate) fn has_processes(self) -> bool {
        matches!(self, Model::Fork | Model::Prefork)
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Where connections come from.
#[derive(Clone)]
#[non_exhaustive]
pub enum Endpoint {
    /// They are accepted.
    Accept {
        /// From here.
        listeners: Vec<Listening>,
        /// The most that wait in the kernel, for each socket; the kernel cuts it to `net.core.somaxconn`.
        backlog: u32,
    },
    /// They are made.
    Connect(Connecting),
}

/// One place to accept from.
#[derive(Clone, Debug)]
pub struct Listening {
    /// The address.
    pub address: Address,
    /// A socket that already listens there, from a parent or systemd. It is never closed by the pool's last word: its owner
    /// keeps the `Arc`.
    pub inherited: Option<Arc<OwnedFd>>,
    /// What its sockets are given before they are bound. Other ones are new sockets at the same address.
    pub options: ListenOptions,
    /// The most connections at once that came in here; None: as many as the pool's limit allows. Changed in place.
    pub limit: Option<usize>,
}

impl Listening {
    /// A new socket at this address, without a limit of its own.
    pub fn new(address: Address) -> Listening {
        Listening { address, inherited: None, options: ListenOptions::default(), limit: None }
    }

    /// The most connections at once that came in here.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Listening {
        self.limit = Some(limit);
        self
    }

    /// Whether both mean the same sockets, whatever else differs.
    pub(crate) fn is_same_place(&self, other: &Listening) -> bool {
        self.address == other.address
            && self.options == other.options
            && match (&self.inherited, &other.inherited) {
                (None, None) => true,
                (Some(one), Some(two)) => Arc::ptr_eq(one, two),
                _ => false,
            }
    }
}

impl PartialEq for Listening {
    fn eq(&self, other: &Listening) -> bool {
        self.is_same_place(other) && self.limit == other.limit
    }
}

/// Towards whom, how many and how fast.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Connecting {
    /// Taken in turn.
    pub targets: Vec<Address>,
    /// Local addresses; the next one is taken when each target had its turn, so that every source gets to every target. None: the
    /// kernel chooses.
    pub sources: Vec<IpAddr>,
    /// From and to, both included: the local ports of these connections, within the range that the system gives out (sysctl
    /// `net.ipv4.ip_local_port_range`), which the kernel lets nobody leave. Takes Linux 6.3; before, connects fail with
    /// `ENOPROTOOPT`. None: that whole range. A target's own port is never used: where nobody listens, a connect from it would meet
    /// itself.
    pub local_ports: Option<(u16, u16)>,
    /// How many connects in all; None: whenever one ends, another is made.
    pub total: Option<u64>,
    /// Connects per second; None: as fast as it goes.
    pub rate: Option<f64>,
    /// What becomes of connects that could not begin when the rate had them due.
    pub late: Late,
    /// How long one connect may take.
    pub timeout: Duration,
}

impl Connecting {
    /// To `targets`, one connect for each that ends, as fast as it goes, 5 s each.
    pub fn to(targets: Vec<Address>) -> Connecting {
        Connecting {
            targets,
            sources: Vec::new(),
            local_ports: None,
            total: None,
            rate: None,
            late: Late::Forget,
            timeout: Duration::from_secs(5),
        }
    }
}

/// What becomes of a connect that was due and could not begin, because as many connections as the limit allows stood, or the loop
/// was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Late {
    /// What is late by more than 100 ms is not made up for, so that no burst follows a pause: for a rate that is a limit.
    #[default]
    Forget,
    /// Each is made up for, as soon as there is room: for a schedule. [`Peer::lag`](crate::Peer::lag) tells how late it was.
    MakeUp,
}

/// What each connection of one generation is given.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Settings {
    /// Options of accepted sockets.
    pub options: SocketOptions,
    /// Unsent bytes above which `received` waits, and the note policy begins.
    pub high_water: usize,
    /// Unsent bytes below which `writable` comes.
    pub low_water: usize,
    /// The most input that a protocol may leave untaken.
    pub max_partial: usize,
    /// What a connection above its high-water mark does with a note.
    pub notes_when_full: NotesWhenFull,
    /// How long a connection may stay without its protocol taking input or its peer taking output; then it is closed. It may take a
    /// quarter longer, and does not count while a job runs, the protocol waits ([`Step::Wait`](crate::Step::Wait)) or has its timer set,
    /// or the connection is delegated. None, the default: for ever.
    pub idle: Option<Duration>,
    /// How long a closed connection reads and discards, waiting for the peer's end.
    pub linger: Duration,
    /// How long a closed connection tries to send what is left before that.
    pub flush: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            options: SocketOptions::default(),
            high_water: 64 * 1024,
            low_water: 32 * 1024,
            max_partial: 64 * 1024,
            notes_when_full: NotesWhenFull::Drop,
            idle: None,
            linger: Duration::from_secs(2),
            flush: Duration::from_secs(30),
        }
    }
}

/// What a receiver above its high-water mark gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum NotesWhenFull {
    /// Every note, whatever memory its answers take.
    Keep,
    /// Nothing until it has read; what was dropped is counted.
    Drop,
    /// Its end.
    Close,
}

/// What happens to a connection above the limit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum OnFull {
    /// It waits in the kernel's queue.
    Backpressure,
    /// It is accepted and ended.
    Reject(Reject),
}

/// How a connection is turned away.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Reject {
    /// It sees an orderly end.
    Fin,
    /// It sees a reset.
    Reset,
    /// It gets these bytes, then an orderly end.
    Bytes(Arc<[u8]>),
}

/// A number of connections that is told when it is reached, and when it is past. Between the two numbers nothing is told, so that a
/// count that sways does not tell again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Alarm {
    /// Raised when the pool has so many connections.
    pub at: usize,
    /// Cleared when it has this few again; below `at`.
    pub clear_at: usize,
}

impl Config {
    /// A pool that accepts; add addresses with [`Config::listen`].
    pub fn accept(behaviour: impl Into<Behaviour>) -> Config {
        Config::new(behaviour.into(), Endpoint::Accept { listeners: Vec::new(), backlog: 4096 })
    }

    /// A pool that connects.
    pub fn connect(behaviour: impl Into<Behaviour>, connecting: Connecting) -> Config {
        Config::new(behaviour.into(), Endpoint::Connect(connecting))
    }

    fn new(behaviour: Behaviour, endpoint: Endpoint) -> Config {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            behaviour,
            endpoint,
            model: Model::default(),
            settings: Settings::default(),
            loops: cores,
            processes: cores,
            workers: cores,
            stack: 256 * 1024,
            worker_queue: 65_536,
            delegates: 1024,
            capacity: 1024,
            spin: Duration::ZERO,
            limit: None,
            admission: Arc::new(Limits::default()),
            alarms: Vec::new(),
            max_generations: None,
            inbox: 65_536,
            restarts: Arc::new(Restarts::default()),
            stuck_after: Duration::from_secs(5),
            observer: Arc::new(NoObserver),
            listen_by: None,
            system: Arc::new(Kernel),
            based_on: None,
        }
    }

    /// Accepts there too.
    #[must_use]
    pub fn listen(self, address: Address) -> Config {
        self.listen_with(address, ListenOptions::default())
    }

    /// Accepts there too, from sockets with these options.
    #[must_use]
    pub fn listen_with(self, address: Address, options: ListenOptions) -> Config {
        self.listening(Listening { options, ..Listening::new(address) })
    }

    /// Who makes listening sockets from now on.
    #[must_use]
    pub fn listen_by(mut self, listen: impl Listen) -> Config {
        self.listen_by = Some(Arc::new(listen));
        self
    }

    /// Accepts from a socket that already listens.
    #[must_use]
    pub fn inherit(self, address: Address, socket: Arc<OwnedFd>) -> Config {
        self.listening(Listening { inherited: Some(socket), ..Listening::new(address) })
    }

    /// Accepts there too, with what else is to be said about it.
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn listening(mut self, listening: Listening) -> Config {
        match &mut self.endpoint {
            Endpoint::Accept { listeners, .. } => listeners.push(listening),
            Endpoint::Connect(_) => panic!("a pool that connects does not listen: use Config::accept"),
        }
        self
    }

    /// Another behaviour: a new generation.
    #[must_use]
    pub fn behaviour(mut self, behaviour: impl Into<Behaviour>) -> Config {
        self.behaviour = behaviour.into();
        self
    }

    /// Who runs the connections. Also sets what follows from it: `single`, `threads` and `fork` have one place that accepts and no
    /// workers, `prefork` has one loop and one worker in each process.
    #[must_use]
    pub fn model(mut self, model: Model) -> Config {
        self.model = model;
        (self.loops, self.workers) = match model {
            Model::Single | Model::Threads | Model::Fork => (1, 0),
            Model::Prefork => (1, 1),
            Model::Loops | Model::Tasks => (self.loops, self.workers),
        };
        self
    }

    /// Processes of [`Model::Prefork`].
    #[must_use]
    pub fn processes(mut self, processes: usize) -> Config {
        self.processes = processes;
        self
    }

    /// Threads that run connections.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Config {
        self.loops = loops;
        self
    }

    /// Threads that run jobs.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Config {
        self.workers = workers;
        self
    }

    /// Bytes of stack for each thread of [`Model::Threads`], and for each that runs a delegated connection.
    #[must_use]
    pub fn stack(mut self, bytes: usize) -> Config {
        self.stack = bytes;
        self
    }

    /// The most threads for delegated connections.
    #[must_use]
    pub fn delegates(mut self, delegates: usize) -> Config {
        self.delegates = delegates;
        self
    }

    /// Connections for which memory is kept ready in each loop.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Config {
        self.capacity = capacity;
        self
    }

    /// How long a loop that had something to do asks for more before it sleeps: [`Config::spin`](struct@Config).
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Config {
        self.spin = time;
        self
    }

    /// The most connections at once.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Config {
        self.limit = Some(limit);
        self
    }

    /// Who is let in.
    #[must_use]
    pub fn admission(mut self, policy: impl Admission) -> Config {
        self.admission = Arc::new(policy);
        self
    }

    /// What happens above a limit: the short way to set it in [`Limits`]. A policy of your own is replaced by them.
    #[must_use]
    pub fn on_full(self, on_full: OnFull) -> Config {
        let limits = self.limits().cloned().unwrap_or_default();
        self.admission(limits.on_full(on_full))
    }

    /// The default admission policy, if it is in use.
    pub fn limits(&self) -> Option<&Limits> {
        self.admission.limits()
    }

    /// Numbers of connections that are told when they are reached, 16 at most.
    #[must_use]
    pub fn alarms(mut self, alarms: Vec<Alarm>) -> Config {
        self.alarms = alarms;
        self
    }

    /// The most generations that may be live at once.
    #[must_use]
    pub fn max_generations(mut self, most: Option<usize>) -> Config {
        self.max_generations = most;
        self
    }

    /// What each connection is given.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Config {
        self.settings = settings;
        self
    }

    /// What is done when a part dies: [`Restarts`], or a policy of your own.
    #[must_use]
    pub fn restarts(mut self, policy: impl RestartPolicy) -> Config {
        self.restarts = Arc::new(policy);
        self
    }

    /// Who is told of what happens.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Config {
        self.observer = Arc::new(observer);
        self
    }

    /// Forgets of which revision of a pool it is a copy, for going back to an older one: it is applied whatever the pool is now, and
    /// undoes what was changed meanwhile.
    #[must_use]
    pub fn unconditional(mut self) -> Config {
        self.based_on = None;
        self
    }

    pub(crate) fn listeners(&self) -> &[Listening] {
        match &self.endpoint {
            Endpoint::Accept { listeners, .. } => listeners,
            Endpoint::Connect(_) => &[],
        }
    }

    pub(crate) fn backlog(&self) -> u32 {
        match &self.endpoint {
            Endpoint::Accept { backlog, .. } => *backlog,
            Endpoint::Connect(_) => 0,
        }
    }
}
