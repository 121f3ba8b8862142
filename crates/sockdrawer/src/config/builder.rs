//! The methods that change a configuration, one setting each.

use super::{Config, Connecting, Endpoint, Listening, Model, Restarts, Settings};
use crate::admission::{Admission, Limits, OnFull};
use crate::behaviour::IntoBehaviour;
use crate::net::{Address, AddressError, Listen, ListenOptions};
use crate::observe::{Alarm, Observer};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

impl Config {
    /// Adds an address to listen at: a text such as `"127.0.0.1:9000"` or `"unix:/run/name.sock"`, a
    /// [`SocketAddr`](std::net::SocketAddr), or an [`Address`]. A text that is no address is reported when the pool starts, is planned for
    /// or changes: see [`Error::Address`](crate::Error::Address).
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn listen(self, address: impl TryInto<Address, Error: Into<AddressError>>) -> Config {
        self.listening(Listening::new(address))
    }

    /// Adds an address to listen at, with sockets that have these options. A text that is no address is reported as by [`Config::listen`].
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn listen_with(self, address: impl TryInto<Address, Error: Into<AddressError>>, options: ListenOptions) -> Config {
        self.listening(Listening::new(address).options(options))
    }

    /// Sets what makes listening sockets from now on. Default: [`Bind`](crate::listening::Bind).
    #[must_use]
    pub fn listen_by(mut self, listen: impl Listen) -> Config {
        self.listen_by = Some(Arc::new(listen));
        self
    }

    /// Adds a socket that already listens at `address`: see [`Listening::inherited`](struct@Listening). A text that is no address is
    /// reported as by [`Config::listen`].
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn inherit(self, address: impl TryInto<Address, Error: Into<AddressError>>, socket: Arc<OwnedFd>) -> Config {
        self.listening(Listening::new(address).inherited(socket))
    }

    /// Adds an address to listen at, with its options and limit.
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    pub fn listening(self, listening: Listening) -> Config {
        self.listeners(|listeners| listeners.push(listening))
    }

    /// Changes where a pool listens: the limit of one listener, or an address more or less.
    ///
    /// ```no_run
    /// # use sockdrawer::{Config, Pool};
    /// # fn more(pool: &Pool) -> Result<(), sockdrawer::Error> {
    /// pool.update(|config| config.listeners(|listeners| listeners[0].limit = Some(500)))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    #[track_caller]
    pub fn listeners(mut self, change: impl FnOnce(&mut Vec<Listening>)) -> Config {
        match &mut self.endpoint {
            Endpoint::Accept { listeners, .. } => change(listeners),
            Endpoint::Connect(_) => panic!("a pool that connects does not listen: use Config::accept"),
        }
        self
    }

    /// Sets the maximum of connections in the accept queue, per listening socket; the kernel cuts it to `net.core.somaxconn`.
    ///
    /// # Panics
    /// For a pool that connects.
    #[must_use]
    #[track_caller]
    pub fn backlog(mut self, connections: u32) -> Config {
        match &mut self.endpoint {
            Endpoint::Accept { backlog, .. } => *backlog = connections,
            Endpoint::Connect(_) => panic!("a pool that connects has no accept queue: use Config::accept"),
        }
        self
    }

    /// Changes what a pool connects to, how many connections it keeps, and at what rate it makes them.
    ///
    /// ```no_run
    /// # use sockdrawer::{Config, Pool};
    /// # fn more(pool: &Pool) -> Result<(), sockdrawer::Error> {
    /// pool.update(|config| config.connecting(|connecting| connecting.keep = Some(64)))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// For a pool that accepts.
    #[must_use]
    #[track_caller]
    pub fn connecting(mut self, change: impl FnOnce(&mut Connecting)) -> Config {
        match &mut self.endpoint {
            Endpoint::Connect(connecting) => change(connecting),
            Endpoint::Accept { .. } => panic!("a pool that accepts does not connect: use Config::connect"),
        }
        self
    }

    /// Sets the code that runs on each connection. A different behaviour starts a new generation.
    #[must_use]
    pub fn behaviour(mut self, behaviour: impl IntoBehaviour) -> Config {
        self.behaviour = behaviour.into_behaviour();
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

    /// Sets the maximum of jobs that wait for a worker.
    #[must_use]
    pub fn worker_queue(mut self, jobs: usize) -> Config {
        self.worker_queue = jobs;
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

    /// Sets the maximum of connections at once of a pool that accepts. A pool that connects says [`Connecting::keep`].
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

    /// Returns the [`Limits`], if the admission policy is the default one.
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

    /// Changes the settings of each connection. Different settings start a new generation.
    ///
    /// ```
    /// # use sockdrawer::Config;
    /// # fn patient(config: Config) -> Config {
    /// config.settings(|settings| {
    ///     settings.high_water = 1 << 20;
    ///     settings.idle = Some(std::time::Duration::from_secs(60));
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Config {
        change(&mut self.settings);
        self
    }

    /// Sets how many descriptors are left to the rest of the program.
    #[must_use]
    pub fn spare(mut self, descriptors: usize) -> Config {
        self.spare = descriptors;
        self
    }

    /// Sets the maximum of notes in a loop's inbox.
    #[must_use]
    pub fn inbox(mut self, notes: usize) -> Config {
        self.inbox = notes;
        self
    }

    /// Sets how often parts that die are replaced.
    #[must_use]
    pub fn restarts(mut self, restarts: Restarts) -> Config {
        self.restarts = restarts;
        self
    }

    /// Sets how long a loop may spend in one turn before it is reported as stuck and its listeners move to other loops.
    #[must_use]
    pub fn stuck_after(mut self, time: Duration) -> Config {
        self.stuck_after = time;
        self
    }

    /// Sets the observer, which receives the pool's events.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Config {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Removes the revision that this copy is based on, to go back to an older configuration: it is applied whatever the pool's revision
    /// is now, and undoes what was changed meanwhile.
    #[must_use]
    pub fn unconditional(mut self) -> Config {
        self.based_on = None;
        self
    }

    /// Returns the maximum of connections at once that is asked for: the limit of a pool that accepts, the number that a pool keeps that connects.
    pub(crate) fn asked_limit(&self) -> Option<usize> {
        match &self.endpoint {
            Endpoint::Accept { .. } => self.limit,
            Endpoint::Connect(connecting) => connecting.keep,
        }
    }

    pub(crate) fn listened(&self) -> &[Listening] {
        match &self.endpoint {
            Endpoint::Accept { listeners, .. } => listeners,
            Endpoint::Connect(_) => &[],
        }
    }

    pub(crate) fn accept_queue(&self) -> u32 {
        match &self.endpoint {
            Endpoint::Accept { backlog, .. } => *backlog,
            Endpoint::Connect(_) => 0,
        }
    }
}
