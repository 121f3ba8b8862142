//! A pool whose members are loops: threads of this process, each of which runs an event loop.

pub(super) mod apply;
pub(super) mod change;
mod drain;
pub(super) mod ending;
mod members;
#[cfg(feature = "upgrade")]
mod moving;
mod replace;
mod shutdown;
pub(super) mod status;

use super::control::{Core, FromMember};
use super::listeners::Inherited;
use super::validate::{effective_limit, make_room, validate_start, warm};
use crate::config::{Config, Endpoint, Listening, Model};
use crate::error::Error;
use crate::event_loop::delegates::Delegates;
use crate::event_loop::dialer::Dialer;
use crate::event_loop::generation::{Generation, Services};
use crate::event_loop::inbox::{Command, Inbox, Message};
use crate::event_loop::worker::Workers;
use crate::event_loop::{Basis, EventLoop, EventLoopError, Shared};
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::Limiter;
use crate::model;
use crate::model::loops::Running;
use crate::observe::Counts;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{lock, mpsc};
use crate::sys::{self, panics};
use shutdown::ShutdownSignal;
use std::sync::{Arc, Weak};

/// Data that the loops of a pool share.
pub(crate) struct Loops {
    pub(crate) shared: Arc<Shared>,
    /// Loops make the connects that are asked of the pool in turn.
    turn: AtomicUsize,
    /// The signal that the pool begins to end.
    shutdown: ShutdownSignal,
}

/// The state of a pool of loops under its lock.
pub(crate) struct LoopsState {
    /// The generation in force, after retired ones. They belong to the switch and to the loops that have connections of them.
    generations: Vec<Weak<Generation>>,
    dialer: Option<Arc<Dialer>>,
    /// Counts of loops that are gone.
    past: Counts,
    /// Descriptors the program had open before the pool.
    others: usize,
}

/// A loop that runs.
pub(crate) struct LoopHandle {
    pub(crate) inbox: Arc<Inbox>,
    running: Running,
    /// The connects that the loop was told to make.
    dials: Option<Arc<Dialer>>,
}

/// News of a pool's threads, beside the end of a loop.
pub(crate) enum LoopNews {
    /// A thread that served one connection died.
    ThreadDied { panic: String },
    /// A worker thread died.
    WorkerDied { panic: String },
}

/// The parts that a pool is started with.
pub(crate) struct Foundation {
    pub(crate) shared_counters: SharedCounters,
    pub(crate) limiter: Arc<Limiter>,
    /// The number of its first generation.
    pub(crate) generation: u32,
    /// Index of this process, in a pool of several.
    pub(crate) process: Option<usize>,
    /// Descriptors that are open beside it.
    pub(crate) others: usize,
    /// Listening sockets of a process that it replaces: it takes no connection until it is told to.
    pub(crate) inherited: Option<Inherited>,
}

impl LoopHandle {
    /// Has the loop do something. One that died meanwhile is replaced, and the new one begins with what is in force then.
    pub(crate) fn command(&self, command: impl FnOnce(&mut EventLoop) + Send + 'static) {
        let command: Command = Box::new(command);
        let _ = self.inbox.put(Message::Command(command));
    }
}

/// Starts a pool; a failure leaves nothing behind.
pub(in crate::pool) fn start(config: Config, inherited: Option<Inherited>) -> Result<Arc<Core<Loops>>, Error> {
    validate_start(&config)?;
    let others = sys::descriptors_open();
    let limit = effective_limit(&config, others)?;
    let shared_counters = SharedCounters::private();
    let limiter = Limiter::shared(shared_counters.clone(), limit, None);
    start_on(config, Foundation { shared_counters, limiter, generation: 1, process: None, others, inherited })
}

/// Starts a pool on a limiter and counters that may be shared with other processes.
pub(in crate::pool) fn start_on(config: Config, on: Foundation) -> Result<Arc<Core<Loops>>, Error> {
    // Each loop builds its own once the addresses are had: where one is taken nothing of the service has begun.
    let generation = prepare_generation(on.generation, &config, 0)?;
    let state = LoopsState {
        generations: vec![Arc::downgrade(&generation)],
        dialer: match &config.endpoint {
            Endpoint::Connect(connecting) => Some(Dialer::new(connecting.clone(), None)),
            Endpoint::Accept { .. } => None,
        },
        past: Counts::default(),
        others: on.others,
    };
    let (others, limit) = (on.others, on.limiter.limit());
    let shared = |reports: &mpsc::Sender<FromMember<LoopNews>>| {
        let died = reports.clone();
        let shared = Shared::new(Basis {
            system: config.system.clone(),
            shared_counters: on.shared_counters,
            process: on.process,
            limiter: on.limiter,
            generation: generation.clone(),
            workers: Workers::new(config.worker_queue),
            delegates: Delegates::new(model::delegates(&config), config.stack),
            observer: config.observer.clone(),
            admission: config.admission.clone(),
            placement: model::placement(&config, move |panic| _ = died.send(FromMember::News(LoopNews::ThreadDied { panic }))),
        });
        shared.set_spin(config.spin);
        shared.set_spare(config.spare);
        if on.process.is_none() {
            shared.limiter.set_alarms(&config.alarms);
        }
        Loops { shared, turn: AtomicUsize::new(0), shutdown: ShutdownSignal::default() }
    };
    let (core, heard) = Core::new(shared, config.clone(), on.generation, state);
    lock(&core.control).inherit(on.inherited);
    make_room(&config, limit, others);
    start_workers(&core, config.workers).inspect_err(|_| core.stop("it could not be started"))?;
    core.begin(heard)?;
    Ok(core)
}

/// Makes a loop's own things; it does not run yet.
fn prepare_loop(core: &Core<Loops>, index: usize, config: &Config) -> Result<EventLoop, Error> {
    let system = |source: crate::sys::Errno| Error::System { what: "start a loop", source: source.into() };
    let inbox = Inbox::new(config.system.clone(), config.inbox).map_err(system)?;
    EventLoop::new(index, core.own.shared.clone(), inbox, warm(config)).map_err(|error| match error {
        EventLoopError::System(errno) => system(errno),
        EventLoopError::Service(panicked) => Error::ServicePanicked { message: panicked.0 },
    })
}

/// Starts the thread of a prepared loop. It accepts nothing until it has listening sockets.
fn launch_loop(core: &Core<Loops>, model: Model, index: usize, life: u64, event_loop: EventLoop) -> Result<LoopHandle, Error> {
    let (inbox, reports) = (event_loop.inbox().clone(), core.reports.clone());
    let running = model::start(model, index, event_loop, move |panic| {
        // A loop that was asked to end says nothing. The supervisor is gone when the pool is.
        let _ = panic.map(|reason| reports.send(FromMember::Ended { index, life, reason }));
    });
    let running = running.map_err(|source| Error::System { what: "start a thread", source })?;
    Ok(LoopHandle { inbox, running, dials: None })
}

/// Starts worker threads until as many run as are wanted.
fn start_workers(core: &Core<Loops>, wanted: usize) -> Result<(), Error> {
    let workers = &core.own.shared.workers;
    let missing = workers.set_wanted(wanted);
    for started in 0..missing {
        let (workers, reports) = (workers.clone(), core.reports.clone());
        let thread = std::thread::Builder::new().name("sockdrawer-worker".to_owned()).spawn(move || {
            panics::caught_on_this_thread();
            if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| workers.serve())) {
                workers.died();
                let _ = reports.send(FromMember::News(LoopNews::WorkerDied { panic: panics::message(payload) }));
            }
        });
        if let Err(source) = thread {
            core.own.shared.workers.not_started(missing - started);
            return Err(Error::System { what: "start a worker thread", source });
        }
    }
    Ok(())
}

fn prepare_generation(id: u32, config: &Config, loops: usize) -> Result<Arc<Generation>, Error> {
    let own = |listening: &Listening| {
        let layered = !listening.layers.is_empty();
        layered.then(|| (listening.address.clone(), listening.layers.around(&config.behaviour).service().clone()))
    };
    let own = config.listened().iter().filter_map(own).collect();
    let services = Services { service: config.behaviour.service().clone(), own };
    Generation::prepare(id, services, config.settings.clone(), warm(config), loops)
        .map_err(|panicked| Error::ServicePanicked { message: panicked.0 })
}
