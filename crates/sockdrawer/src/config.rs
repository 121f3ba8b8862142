//! The configuration of a pool: typed data, parsed and not validated later.

mod builder;
mod connecting;
mod debug;
mod endpoint;
mod model;
mod restarts;
mod revision;

pub use connecting::{Connecting, Late};
pub use endpoint::{Endpoint, Layers, Listening};
pub use model::Model;
pub use restarts::{Part, Restarts};
pub(crate) use revision::{Revision, Stamp};

use crate::admission::{Admission, Limits};
use crate::behaviour::{Behaviour, IntoBehaviour};
use crate::net::{Listen, SocketOptions};
use crate::observe::{Alarm, Observer};
use crate::sys::{Kernel, System};
use std::sync::Arc;
use std::time::Duration;

/// The configuration of a pool. To change a running pool, change a copy of its configuration and give it to
/// [`PoolHandle::reconfigure`](crate::PoolHandle::reconfigure). A copy taken from a pool remembers the revision that it is based on: see
/// [`Error::Conflict`](crate::Error::Conflict).
///
/// ```
/// # use sockdrawer::{Config, Context, Input, Peer, Protocol, Service, Step};
/// # struct Echo;
/// # impl Service for Echo { type Protocol = Echo; fn open(&self, _: &Peer) -> Echo { Echo } }
/// # impl Protocol for Echo {
/// #     fn received(&mut self, i: &mut Input<'_>, cx: &mut Context<'_>) -> Step { cx.send(i.bytes()); i.take_all(); Step::Continue }
/// # }
/// let config = Config::accept(Echo).listen("127.0.0.1:0").loops(2).limit(100).settings(|settings| settings.high_water = 1 << 20);
/// # let _ = config;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The code that runs on each connection. A different behaviour starts a new generation.
    pub behaviour: Behaviour,
    /// Addresses at which connections are accepted, or targets to which they are made, with the limits of that.
    pub endpoint: Endpoint,
    /// The model that runs the connections; it cannot be changed while the pool runs. Default: [`Model::Loops`].
    pub model: Model,
    /// Settings of each connection. Different settings start a new generation. Default: [`Settings::default`].
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
    /// Time for which a loop that had something to do polls for more before it sleeps. A connection that asks and waits in turn gets each answer
    /// without two wake-ups; with many busy connections it costs CPU time for little gain. At most a second. Not with [`Model::Threads`],
    /// [`Model::Fork`] and [`Model::Tasks`]. Default: 0 s, a loop sleeps at once.
    pub spin: Duration,
    /// Maximum of connections at once of a pool that accepts. Not for pools that connect: they use [`Connecting::keep`], and
    /// [`Pool::start`](crate::Pool::start) refuses this. Default: none, as many as the process's descriptors allow.
    pub limit: Option<usize>,
    /// Descriptors that are left to the rest of the program, so that it can still open files and be asked what it does where connections have all
    /// others: while fewer are free, nothing is accepted. Of no effect where helper processes accept. Default: 0.
    pub spare: usize,
    /// The admission policy: [`Limits`], or your own. Default: [`Limits::default`].
    pub admission: Arc<dyn Admission>,
    /// Numbers of connections at which an event is sent. Default: none.
    pub alarms: Vec<Alarm>,
    /// Maximum of live generations, the one in force included: at least 2. At the maximum, a change that needs another generation is
    /// refused with [`Error::TooManyGenerations`](crate::Error::TooManyGenerations). Default: none, 65,000.
    pub max_generations: Option<usize>,
    /// Maximum of notes in a loop's inbox, in which each KiB of a note's bytes counts as another; at the maximum a thread gets
    /// [`NotifyError::Full`](crate::NotifyError::Full), and a connection that sends receives nothing until there is room. Default: 65,536.
    pub inbox: usize,
    /// Limits on how often a loop, a worker or a process that died is replaced. Default: [`Restarts::default`].
    pub restarts: Restarts,
    /// Maximum time of a loop's turn before the loop is reported as stuck and its listeners move to other loops. Default: 5 s.
    pub stuck_after: Duration,
    /// Receives the pool's events. Without one Rust prints the panics of protocols, as it does those of any thread; once a pool of the process
    /// has one, they are told to that alone. Default: none.
    pub observer: Option<Arc<dyn Observer>>,
    /// Makes listening sockets. Sockets that are open stay when this changes.
    pub(crate) listen_by: Option<Arc<dyn Listen>>,
    pub(crate) system: Arc<dyn System>,
    /// The pool and revision that this configuration was copied from; None if it was made from nothing.
    pub(crate) based_on: Option<Stamp>,
}

/// Settings of the connections of a generation.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Settings {
    /// Options of the sockets of connections. Default: [`SocketOptions::default`].
    pub options: SocketOptions,
    /// The high-water mark: unsent bytes above which `received` waits, and notes that are only offered are dropped. Default: 64 KiB.
    pub high_water: usize,
    /// The low-water mark: unsent bytes below which `writable` is called. Default: 32 KiB.
    pub low_water: usize,
    /// Maximum of input, in bytes, that a protocol may leave untaken; under a layer at least a record of the layer. Default: 64 KiB.
    pub max_partial: usize,
    /// Maximum of unsent bytes at which a connection still gets notes. At a note above it the connection ends with
    /// [`Closed::Overflow`](crate::Closed::Overflow), so that a peer that does not read holds bounded memory and loses nothing unseen. None: no
    /// maximum; at least `high_water`. Default: 1 MiB.
    pub max_unsent: Option<usize>,
    /// The idle timeout: a connection is closed when for this long its protocol took no input and its peer no output. It may take a quarter
    /// longer. Time does not count while a job runs, its input is paused ([`Context::pause`](crate::Context::pause)), or the protocol has its timer
    /// set, or the connection is delegated. Only for a [`Service`](crate::Service): what a handler or another program reads, the loop does not see,
    /// so that [`Pool::start`](crate::Pool::start) refuses it with one. Default: none, no timeout.
    pub idle: Option<Duration>,
    /// Maximum time in which a closed connection reads and discards, waiting for the peer's end. A change is in force also for connections
    /// that are older and close later, but not in the processes of `fork`. Default: 2 s.
    pub linger: Duration,
    /// Time for which a closed connection with unsent output waits while its peer reads none of it; then it is reset, up to a quarter of this time later. A peer
    /// that goes on reading gets all, and a drain, purge or kill of all connections ends it nevertheless. As `linger`, that of the newest settings.
    /// Default: 30 s.
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
    /// Makes the configuration of a pool that accepts; add addresses with [`Config::listen`].
    pub fn accept(behaviour: impl IntoBehaviour) -> Config {
        Config::new(behaviour.into_behaviour(), Endpoint::Accept { listeners: Vec::new(), backlog: 4096 })
    }

    /// Makes the configuration of a pool that connects: it holds as many connections as [`Connecting::keep`] says, and replaces each that ends.
    ///
    /// ```no_run
    /// # use sockdrawer::{Config, Context, Input, Peer, Pool, Protocol, Service, Step};
    /// # struct Client;
    /// # impl Service for Client { type Protocol = Client; fn open(&self, _: &Peer) -> Client { Client } }
    /// # impl Protocol for Client { fn received(&mut self, _: &mut Input<'_>, _: &mut Context<'_>) -> Step { Step::Close } }
    /// use sockdrawer::connecting::Connecting;
    ///
    /// let pool = Pool::start(Config::connect(Client, Connecting::to(["127.0.0.1:9000"]).keep(32)))?;
    /// # Ok::<(), sockdrawer::Error>(())
    /// ```
    pub fn connect(behaviour: impl IntoBehaviour, connecting: Connecting) -> Config {
        Config::new(behaviour.into_behaviour(), Endpoint::Connect(connecting))
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
            spare: 0,
            admission: Arc::new(Limits::default()),
            alarms: Vec::new(),
            max_generations: None,
            inbox: 65_536,
            restarts: Restarts::default(),
            stuck_after: Duration::from_secs(5),
            observer: None,
            listen_by: None,
            system: Arc::new(Kernel),
            based_on: None,
        }
    }
}
