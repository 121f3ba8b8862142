//! The configuration of a pool: typed data, parsed and not validated later.

mod restart_policy;
mod restarts;
mod revision;

pub use restart_policy::{Death, Part, Replace, RestartPolicy};
pub use restarts::Restarts;
pub(crate) use revision::{Revision, Stamp};

use crate::admission::{Admission, Limits, OnFull};
use crate::behaviour::Behaviour;
use crate::net::{Address, Listen, ListenOptions, SocketOptions};
use crate::observe::{Alarm, NoObserver, Observer};
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
    /// Bytes of stack per thread of [`Model::Threads`], and per thread that runs a delegated connection. Default: 256 KiB.
    pub stack: usize,
    /// Maximum of jobs that wait for a worker; another job ends with [`JobError::QueueFull`](crate::JobError::QueueFull). Default:
    /// 65,536.
    pub worker_queue: usize,
    /// Maximum of threads for delegated connections, started on demand; more delegations wait, first in, first out. Default: 1,024.
    /// [`Model::Threads`] has as many as connections.
    pub delegates: usize,
    /// Connections per loop for which memory is allocated in advance. Not a limit. Default: 1,024.
    pub capacity: usize,
    /// How long a loop that had something to do polls for more before it sleeps. Zero, the default: it sleeps at once. A connection that
    /// asks and waits in turn gets each answer without two wake-ups; with many busy connections it costs CPU time for little gain. At
    /// most a second. Not with [`Model::Threads`], [`Model::Fork`] and [`Model::Tasks`].
    pub spin: Duration,
    /// Maximum of connections at once. None, the default: as many as the process's descriptors allow.
    pub limit: Option<usize>,
    /// The admission policy: [`Limits`], or your own.
    pub admission: Arc<dyn Admission>,
    /// Numbers of connections at which an event is sent. Default: none.
    pub alarms: Vec<Alarm>,
    /// Maximum of live generations, the one in force included: at least 2. At the maximum, a change that needs another generation is
    /// refused with [`Error::TooManyGenerations`](crate::Error::TooManyGenerations). None, the default: 65,000.
    pub max_generations: Option<usize>,
    /// Maximum of notes in a loop's inbox; at the maximum a sender gets [`NotifyError::Full`](crate::NotifyError::Full). Default: 65,536.
    pub inbox: usize,
    /// Decides what is done when a loop, a worker or a process dies. Default: [`Restarts::default`].
    pub restarts: Arc<dyn RestartPolicy>,
    /// How long a loop may spend in one turn before it is reported as stuck and its listeners move to other loops. Default: 5 s.
    pub stuck_after: Duration,
    /// Receives the pool's events. Default: [`NoObserver`].
    pub observer: Arc<dyn Observer>,
    /// Makes listening sockets. Sockets that are open stay when this changes.
    pub(crate) listen_by: Option<Arc<dyn Listen>>,
    pub(crate) system: Arc<dyn System>,
    /// The pool and revision that this configuration was copied from; None if it was made from nothing.
    pub(crate) based_on: Option<Stamp>,
}

/// What runs the connections: threads, processes or loops. A protocol is written once for all models. What a model cannot do is refused
/// when the pool starts, with an error that names the model and what to use instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Model {
    /// One connection at a time, each to its end.
    Single,
    /// A thread for each connection.
    Threads,
    /// A process for each connection. Needs the feature `processes`.
    Fork,
    /// N processes, each with loops. Needs the feature `processes`.
    Prefork,
    /// N threads, each an event loop with many connections.
    #[default]
    Loops,
    /// Event loops that are runtimes of async tasks. Needs the feature `tokio`.
    Tasks,
}

impl Model {
    /// All models.
    pub const ALL: [Model; 6] = [Model::Single, Model::Threads, Model::Fork, Model::Prefork, Model::Loops, Model::Tasks];

    /// The model's name, as on the command line.
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

    /// Whether the model has any number of loops and workers. The other models accept in one loop, and run jobs where the connection
    /// runs.
    pub(crate) fn has_loops(self) -> bool {
        matches!(self, Model::Prefork | Model::Loops | Model::Tasks)
    }

    /// Whether connections run in other processes.
    pub(crate) fn has_processes(self) -> bool {
        matches!(self, Model::Fork | Model::Prefork)
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Whether a pool accepts connections or makes them.
#[derive(Clone)]
#[non_exhaustive]
pub enum Endpoint {
    /// The pool accepts connections.
    Accept {
        /// The addresses to listen at.
        listeners: Vec<Listening>,
        /// Maximum of connections in the accept queue, per listening socket; the kernel cuts it to `net.core.somaxconn`. Default: 4,096.
        backlog: u32,
    },
    /// The pool makes connections.
    Connect(Connecting),
}

/// An address to listen at, with the options and the limit of its sockets.
#[derive(Clone, Debug)]
pub struct Listening {
    /// The address.
    pub address: Address,
    /// A socket that already listens at this address, from a parent process or systemd. The pool shares it: its owner keeps the `Arc`, and
    /// the socket is closed when the last copy is dropped.
    pub inherited: Option<Arc<OwnedFd>>,
    /// Options that the sockets get before they are bound. Changing them replaces the sockets at the address.
    pub options: ListenOptions,
    /// Maximum of connections at once that were accepted here. None: only the pool's limit counts. Changed in place.
    pub limit: Option<usize>,
}

impl Listening {
    /// New sockets at this address, with default options and without a limit of their own.
    pub fn new(address: Address) -> Listening {
        Listening { address, inherited: None, options: ListenOptions::default(), limit: None }
    }

    /// Maximum of connections at once that were accepted here.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Listening {
        self.limit = Some(limit);
        self
    }

    /// Whether both describe the same sockets, whatever their limits.
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

/// The targets of a pool that connects, and how many connects it makes at what rate.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Connecting {
    /// Addresses to connect to, taken in turn.
    pub targets: Vec<Address>,
    /// Local addresses; the pool goes on to the next when each target had its turn, so that every source reaches every target. Empty: the
    /// kernel chooses.
    pub sources: Vec<IpAddr>,
    /// The first and the last local port of these connections, within the range of the system (sysctl `net.ipv4.ip_local_port_range`):
    /// the kernel ignores ports outside it. Needs Linux 6.3; on older kernels connects fail with `ENOPROTOOPT`. None: the whole range of
    /// the system. The port of a target is never used: if no server listens there, such a connect would connect to itself.
    pub local_ports: Option<(u16, u16)>,
    /// Total number of connects. None: each connection that ends is replaced by a new connect.
    pub total: Option<u64>,
    /// Connects per second. None: as fast as possible.
    pub rate: Option<f64>,
    /// Whether connects that could not begin when the rate had them due are made up for.
    pub late: Late,
    /// The timeout of a connect.
    pub timeout: Duration,
}

impl Connecting {
    /// Connects to `targets`: a new connect for each connection that ends, as fast as possible, with a timeout of 5 s.
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

/// What becomes of a connect that was due and could not begin, because the pool was at its limit or the loop was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Late {
    /// A connect that is late by more than 100 ms is not made up for, so that no burst follows a pause: for a rate that is a limit.
    #[default]
    Forget,
    /// Every late connect is made up for as soon as the limit allows: for a schedule. [`Peer::lag`](crate::Peer::lag) tells how late it was.
    MakeUp,
}

/// Settings of the connections of a generation.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Settings {
    /// Options of the sockets of connections.
    pub options: SocketOptions,
    /// The high-water mark: unsent bytes above which `received` waits, and notes that are only offered are dropped. Default: 64 KiB.
    pub high_water: usize,
    /// The low-water mark: unsent bytes below which `writable` is called. Default: 32 KiB.
    pub low_water: usize,
    /// Maximum of input, in bytes, that a protocol may leave untaken. Default: 64 KiB.
    pub max_partial: usize,
    /// Maximum of unsent bytes at which a connection still gets notes. At a note above it the connection ends with
    /// [`Closed::Overflow`](crate::Closed::Overflow), so that a peer that does not read holds bounded memory and loses nothing unseen. None: no
    /// maximum. Default: 1 MiB.
    pub max_unsent: Option<usize>,
    /// The idle timeout: a connection is closed when for this long its protocol took no input and its peer no output. It may take a quarter
    /// longer. Time does not count while a job runs, its input is paused ([`Context::pause`](crate::Context::pause)), or the protocol has its timer set, or the
    /// connection is delegated. None, the default: no timeout.
    pub idle: Option<Duration>,
    /// How long a closed connection reads and discards, waiting for the peer's end. Default: 2 s.
    pub linger: Duration,
    /// How long a closed connection tries to send its unsent output, before it lingers. Default: 30 s.
    pub flush: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            options: SocketOptions::default(),
            high_water: 64 * 1024,
            low_water: 32 * 1024,
            max_partial: 64 * 1024,
            max_unsent: Some(1024 * 1024),
            idle: None,
            linger: Duration::from_secs(2),
            flush: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// The configuration of a pool that accepts; add addresses with [`Config::listen`].
    pub fn accept(behaviour: impl Into<Behaviour>) -> Config {
        Config::new(behaviour.into(), Endpoint::Accept { listeners: Vec::new(), backlog: 4096 })
    }

    /// The configuration of a pool that connects.
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

    /// Adds an address to listen at.
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn listen(self, address: Address) -> Config {
        self.listen_with(address, ListenOptions::default())
    }

    /// Adds an address to listen at, with sockets that have these options.
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn listen_with(self, address: Address, options: ListenOptions) -> Config {
        self.listening(Listening { options, ..Listening::new(address) })
    }

    /// Sets what makes listening sockets from now on. Default: [`Bind`](crate::listening::Bind).
    #[must_use]
    pub fn listen_by(mut self, listen: impl Listen) -> Config {
        self.listen_by = Some(Arc::new(listen));
        self
    }

    /// Adds a socket that already listens at `address`: see [`Listening::inherited`].
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn inherit(self, address: Address, socket: Arc<OwnedFd>) -> Config {
        self.listening(Listening { inherited: Some(socket), ..Listening::new(address) })
    }

    /// Adds an address to listen at, with its options and limit.
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

    /// Sets the code that runs on each connection. A different behaviour starts a new generation.
    #[must_use]
    pub fn behaviour(mut self, behaviour: impl Into<Behaviour>) -> Config {
        self.behaviour = behaviour.into();
        self
    }

    /// Sets the model that runs the connections, and the loops and workers that follow from it: `single`, `threads` and `fork` have one
    /// loop that accepts and no workers, `prefork` has one loop and one worker per process.
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

    /// Sets the number of processes of [`Model::Prefork`].
    #[must_use]
    pub fn processes(mut self, processes: usize) -> Config {
        self.processes = processes;
        self
    }

    /// Sets the number of threads that run connections.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Config {
        self.loops = loops;
        self
    }

    /// Sets the number of threads that run jobs; with 0 the loops run them.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Config {
        self.workers = workers;
        self
    }

    /// Sets the bytes of stack per thread of [`Model::Threads`], and per thread that runs a delegated connection.
    #[must_use]
    pub fn stack(mut self, bytes: usize) -> Config {
        self.stack = bytes;
        self
    }

    /// Sets the maximum of threads for delegated connections.
    #[must_use]
    pub fn delegates(mut self, delegates: usize) -> Config {
        self.delegates = delegates;
        self
    }

    /// Sets the connections per loop for which memory is allocated in advance. Not a limit.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Config {
        self.capacity = capacity;
        self
    }

    /// Sets how long a loop that had something to do polls for more before it sleeps: [`Config::spin`](struct@Config).
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Config {
        self.spin = time;
        self
    }

    /// Sets the maximum of connections at once.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Config {
        self.limit = Some(limit);
        self
    }

    /// Sets the admission policy.
    #[must_use]
    pub fn admission(mut self, policy: impl Admission) -> Config {
        self.admission = Arc::new(policy);
        self
    }

    /// Sets what happens to connections above a limit: short for [`Limits::on_full`]. An admission policy of your own is replaced by
    /// [`Limits`].
    #[must_use]
    pub fn on_full(self, on_full: OnFull) -> Config {
        let limits = self.limits().cloned().unwrap_or_default();
        self.admission(limits.on_full(on_full))
    }

    /// The [`Limits`], if the admission policy is the default one.
    pub fn limits(&self) -> Option<&Limits> {
        self.admission.limits()
    }

    /// Sets the numbers of connections at which an event is sent, at most 16.
    #[must_use]
    pub fn alarms(mut self, alarms: Vec<Alarm>) -> Config {
        self.alarms = alarms;
        self
    }

    /// Sets the maximum of live generations; None: 65,000.
    #[must_use]
    pub fn max_generations(mut self, max: Option<usize>) -> Config {
        self.max_generations = max;
        self
    }

    /// Sets the settings of each connection. Different settings start a new generation.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Config {
        self.settings = settings;
        self
    }

    /// Sets the restart policy: [`Restarts`], or your own.
    #[must_use]
    pub fn restarts(mut self, policy: impl RestartPolicy) -> Config {
        self.restarts = Arc::new(policy);
        self
    }

    /// Sets the observer, which receives the pool's events.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Config {
        self.observer = Arc::new(observer);
        self
    }

    /// Removes the revision that this copy is based on, to go back to an older configuration: it is applied whatever the pool's revision
    /// is now, and undoes what was changed meanwhile.
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
