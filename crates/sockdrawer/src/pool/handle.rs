//! The handle of a running pool.

use super::commit::{effective_limit, open, prepare_generation, validate};
use super::control::{Control, Core, Report};
use super::drain::{Drain, Drained};
use super::plan::{Plan, plan};
use super::selector::Selector;
use super::supervise;
use crate::behaviour::Behaviour;
use crate::clock::deadline;
use crate::config::{Config, Endpoint};
use crate::error::Error;
use crate::flow::Shared;
use crate::flow::bell::Bell;
use crate::flow::connector::Course;
use crate::flow::delegates::Delegates;
use crate::flow::gate::Gate;
use crate::flow::generation::Switch;
use crate::flow::inbox::Letter;
use crate::flow::orders::{Choice, Traits};
use crate::flow::worker::Workers;
use crate::model::loops::Pulse;
use crate::net::{Address, AddressError, SocketOptions};
use crate::observe::{ConnectionStatus, Counts, Event, GenerationStatus, ListenerStatus, LoopStatus, Readiness, Status};
use crate::protocol::ConnectionId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, lock, mpsc, wait};
use crate::sys::{self, panics};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A running pool. Clones speak to the same one; when the last is dropped, the pool ends and its connections with it, so keep
/// one, or call [`Pool::shutdown`] or [`Pool::join`].
///
/// Its methods wait for the pool's threads: do not call them from a protocol's callback or an observer.
#[derive(Clone)]
pub struct Pool {
    core: Arc<Core>,
    _last: Arc<StopWhenDropped>,
}

/// A loop that hangs in user code is waited for so long when its pool ends.
const STOP_WITHIN: Duration = Duration::from_secs(5);

struct StopWhenDropped(Arc<Core>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop("every handle of it was dropped");
    }
}

/// How an adoption went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Connections that have the newest generation now.
    pub moved: usize,
    /// Connections of older ones that stayed: their state cannot be saved or restored, or a job runs.
    pub stayed: usize,
}

/// What a reconfigure did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The differences.
    pub plan: Plan,
    /// The generation in force now.
    pub generation: u32,
    /// From the first check to the end.
    pub took: Duration,
}

impl Pool {
    /// Starts a pool. When this returns, it accepts, or connects.
    ///
    /// # Errors
    /// By who is at fault: see [`Error`]. Nothing is left behind.
    pub fn start(config: Config) -> Result<Pool, Error> {
        validate(&config)?;
        let others = sys::descriptors_open();
        let limit = effective_limit(&config, others)?;
        let generation = prepare_generation(1, &config, config.loops)?;
        let places = config.listeners().iter().map(|listening| open(&config, listening)).collect::<Result<Vec<_>, _>>()?;
        let course = match &config.endpoint {
            Endpoint::Connect(connecting) => Some(Course::new(connecting.clone(), None)),
            Endpoint::Accept { .. } => None,
        };
        let shared = Arc::new(Shared {
            system: config.system.clone(),
            gate: Gate::new(limit),
            switch: Switch::new(generation.clone()),
            workers: Workers::new(config.worker_queue),
            delegates: Delegates::new(config.delegates),
            observer: Mutex::new(config.observer.clone()),
            on_full: Mutex::new(config.on_full.clone()),
            roster: Mutex::new(Vec::new()),
            ids: AtomicU64::new(1),
            lives: AtomicU64::new(1),
            bell: Bell::default(),
        });
        let control = Control {
            config: config.clone(),
            readiness: Readiness::Serving,
            generations: vec![Arc::downgrade(&generation)],
            generation: generation.id,
            places,
            members: Vec::new(),
            course,
            restarts: VecDeque::new(),
            restarts_in_all: 0,
            past: Counts::default(),
            others,
            stopping: false,
        };
        let (reports, heard) = mpsc::channel();
        let core = Arc::new(Core { shared, control: Mutex::new(control), stopped: Condvar::new(), reports });
        let pool = Pool { core: core.clone(), _last: Arc::new(StopWhenDropped(core.clone())) };
        core.start_workers(config.workers)?;
        let flows = (0..config.loops).map(|index| core.prepare_loop(index, &config)).collect::<Result<Vec<_>, _>>()?;
        supervise::start(Arc::downgrade(&core), heard)?;
        let mut control = lock(&core.control);
        for (index, flow) in flows.into_iter().enumerate() {
            core.start_loop(&mut control, index, flow)?;
        }
        core.tell(&Event::GenerationStarted(1));
        for place in &control.places {
            core.tell(&Event::Listening(place.listener.address.clone()));
        }
        core.rebalance(&mut control);
        drop(control);
        Ok(pool)
    }

    /// Serves one address with the defaults.
    ///
    /// # Errors
    /// When the text is no address, and as [`Pool::start`].
    pub fn serve(behaviour: impl Into<Behaviour>, address: &str) -> Result<Pool, Error> {
        let address: Address =
            address.parse().map_err(|error: AddressError| Error::Invalid { setting: "listeners", reason: error.to_string() })?;
        Pool::start(Config::accept(behaviour).listen(address))
    }

    /// The running configuration, to change a copy of it.
    pub fn config(&self) -> Config {
        lock(&self.core.control).config.clone()
    }

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> Vec<Address> {
        lock(&self.core.control).places.iter().map(|place| place.listener.address.clone()).collect()
    }

    /// What [`Pool::reconfigure`] would do. Changes nothing.
    pub fn plan(&self, wanted: &Config) -> Plan {
        plan(&lock(&self.core.control).config, wanted)
    }

    /// Changes the pool to what is wanted. No connection is lost, refused or ended by it. When this returns, every connection
    /// accepted from then on, by any loop, has the new generation.
    ///
    /// # Errors
    /// What is wrong with the wanted configuration, or what the system refuses; the pool goes on as it was.
    pub fn reconfigure(&self, wanted: Config) -> Result<Applied, Error> {
        let began = Instant::now();
        let (plan, _before) = {
            let mut control = lock(&self.core.control);
            self.core.change(&mut control, wanted)?
        };
        Ok(Applied { plan, generation: self.core.shared.switch.current().id, took: began.elapsed() })
    }

    /// Stops accepting, or connecting: what comes waits in the kernel. When this returns, no loop accepts any more.
    pub fn suspend(&self) {
        self.set_readiness(&Readiness::Serving, Readiness::Suspended);
    }

    /// Goes on after [`Pool::suspend`].
    pub fn resume(&self) {
        self.set_readiness(&Readiness::Suspended, Readiness::Serving);
    }

    fn set_readiness(&self, from: &Readiness, to: Readiness) {
        let mut control = lock(&self.core.control);
        if control.readiness == *from {
            self.core.set_readiness(&mut control, to);
        }
    }

    /// Moves connections to the newest generation, between two of their events: the old service saves their state and the new
    /// one restores it; sockets, buffers and timers are untouched. Those that cannot move stay as they are.
    pub fn adopt(&self, selector: &Selector) -> Adopted {
        let (inboxes, selector) = (self.core.inboxes(), selector.clone());
        let newest = self.core.shared.switch.current().id;
        let counts = self.core.ask(&inboxes, move |flow| {
            let older = flow.choose(&Older(newest, &selector));
            let moved = older.iter().filter(|token| flow.adopt_one(**token)).count();
            Adopted { moved, stayed: older.len() - moved }
        });
        counts.into_iter().fold(Adopted::default(), |sum, (_, count)| Adopted {
            moved: sum.moved + count.moved,
            stayed: sum.stayed + count.stayed,
        })
    }

    /// Asks connections to end, those that have received part of a message, or work on one, after answering it. Returns when
    /// all have ended; what is left at the deadline is purged.
    pub fn drain(&self, selector: &Selector, how: Drain) -> Drained {
        self.core.drain(selector, how)
    }

    /// Ends connections: each protocol may say goodbye, and every byte already written is delivered to a peer that reads;
    /// after `within` what is left is reset. Returns how many, when they have ended.
    pub fn purge(&self, selector: &Selector, within: Duration) -> usize {
        self.core.purge(selector, within)
    }

    /// Ends one connection with a reset. False when there is none of that number.
    pub fn kill(&self, id: ConnectionId) -> bool {
        let found = self.core.ask(&self.core.inboxes(), move |flow| {
            let tokens = flow.choose(&Selector::Id(id));
            tokens.into_iter().any(|token| flow.kill_one(token))
        });
        found.into_iter().any(|(_, killed)| killed)
    }

    /// Brings a note of shared bytes to all connections that match, never waiting for them.
    ///
    /// # Errors
    /// [`Error::InboxFull`] when a loop is slower than its senders; the other loops' connections got the note.
    pub fn notify(&self, selector: &Selector, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        let bytes = bytes.into();
        let mut result = Ok(());
        for inbox in self.core.inboxes() {
            let (selector, bytes) = (selector.clone(), bytes.clone());
            let order = Box::new(move |flow: &mut crate::flow::Flow| {
                flow.notify(&selector, &bytes);
            });
            if !inbox.put_bounded(order) {
                result = Err(Error::InboxFull);
            }
        }
        result
    }

    /// Gives live connections the socket options of the running configuration; how many took them.
    pub fn apply_options(&self, selector: &Selector) -> usize {
        let (selector, options) = (selector.clone(), self.config().settings.options);
        let counts = self.core.ask(&self.core.inboxes(), move |flow| {
            let tokens = flow.choose(&selector);
            tokens.into_iter().filter(|token| flow.set_options_of(*token, &options)).count()
        });
        counts.into_iter().map(|(_, count)| count).sum()
    }

    /// A connection's socket options, read from the kernel. It reports twice the buffer size that was asked for.
    pub fn options(&self, id: ConnectionId) -> Option<SocketOptions> {
        let found = self.core.ask(&self.core.inboxes(), move |flow| {
            let token = flow.choose(&Selector::Id(id)).pop()?;
            flow.options_of(token)
        });
        found.into_iter().find_map(|(_, options)| options)
    }

    /// The connections that match, in no order.
    pub fn connections(&self, selector: &Selector) -> Vec<ConnectionStatus> {
        let selector = selector.clone();
        let lists = self.core.ask(&self.core.inboxes(), move |flow| flow.list(&selector));
        lists.into_iter().flat_map(|(_, list)| list).collect()
    }

    /// Visits what [`Service::local`](crate::Service::local) made, in each loop and for each live generation, where it is a
    /// `T`; runs on the loops' threads.
    pub fn gather<T: 'static, R: Send + 'static>(&self, visit: impl Fn(&mut T) -> R + Send + Sync + 'static) -> Vec<R> {
        let lists = self.core.ask(&self.core.inboxes(), move |flow| {
            let mut results = Vec::new();
            flow.visit_locals(&mut |local| {
                let visited = AssertUnwindSafe(|| local.downcast_mut::<T>().map(&visit));
                // A visitor's panic is no reason to end a loop: it has no result.
                results.extend(catch_unwind(visited).unwrap_or_else(|payload| {
                    panics::discard(payload);
                    None
                }));
            });
            results
        });
        lists.into_iter().flat_map(|(_, list)| list).collect()
    }

    /// What it is now.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Waits until the status satisfies `condition`; false when `within` passed first.
    pub fn wait(&self, within: Duration, mut condition: impl FnMut(&Status) -> bool) -> bool {
        self.core.shared.bell.wait(deadline(Instant::now(), within), || condition(&self.core.status()))
    }

    /// Ends the pool: accepts what already waits in the kernel, stops listening, drains all connections and stops its threads.
    pub fn shutdown(&self, how: Drain) -> Drained {
        self.core.shutdown(how, "it was shut down")
    }

    /// Waits until the pool has stopped: by [`Pool::shutdown`] on another thread, or because it gave up.
    ///
    /// # Errors
    /// [`Error::Stopped`] when it gave up, with the reason.
    pub fn join(&self) -> Result<(), Error> {
        let mut control = lock(&self.core.control);
        loop {
            match &control.readiness {
                Readiness::Stopped(reason) if reason == "it was shut down" => return Ok(()),
                Readiness::Stopped(reason) => return Err(Error::Stopped { reason: reason.clone() }),
                _ => control = wait(&self.core.stopped, control),
            }
        }
    }

    /// Ends a loop as a bug in it would, for tests of what survives that. Its connections end with it. False when there is no
    /// such loop.
    pub(crate) fn crash_loop(&self, index: usize) -> bool {
        let control = lock(&self.core.control);
        let Some(member) = control.members.get(index) else { return false };
        let crash: crate::flow::inbox::Order = Box::new(|_| panic!("a test crashed this loop"));
        member.inbox.put(Letter::Order(crash)).is_ok()
    }
}

/// Those of a selector's that are of an older generation.
struct Older<'a>(u32, &'a Selector);

impl Choice for Older<'_> {
    fn needs_peer(&self) -> bool {
        self.1.needs_peer()
    }

    fn takes(&self, connection: &Traits) -> bool {
        connection.generation != self.0 && self.1.takes(connection)
    }
}

impl Core {
    pub(crate) fn set_readiness(&self, control: &mut Control, to: Readiness) {
        let serving = to == Readiness::Serving;
        control.readiness = to;
        let inboxes: Vec<_> = control.members.iter().map(|member| member.inbox.clone()).collect();
        let courses: Vec<_> =
            control.members.iter().map(|member| if serving && member.active { control.course.clone() } else { None }).collect();
        for (inbox, course) in inboxes.iter().zip(courses) {
            let order: crate::flow::inbox::Order = Box::new(move |flow| {
                flow.set_course(course);
                if serving { flow.resume_accepting() } else { flow.suspend() }
            });
            let _ = inbox.put(Letter::Order(order));
        }
        self.settle(&inboxes);
    }

    pub(crate) fn status(&self) -> Status {
        let mut control = lock(&self.control);
        let live = Core::live_generations(&mut control);
        let mut counts = control.past;
        let loops = control.members.iter().map(|member| {
            let running = member.running.as_ref();
            if let Some(running) = running {
                running.counters.add_to(&mut counts);
            }
            LoopStatus {
                connections: running.map_or(0, |running| running.pulse.connections.load(Ordering::Relaxed)),
                accepted: running.map_or(0, |running| running.counters.accepted.get()),
                active: member.active,
                stuck: member.stuck,
            }
        });
        let loops = loops.collect();
        let system = &*self.shared.system;
        let listeners = control.places.iter().map(|place| ListenerStatus {
            address: place.listener.address.clone(),
            queued: place.listener.queued(system),
            sockets: place.listener.shards.len(),
        });
        let generations = live
            .iter()
            .map(|generation| GenerationStatus { id: generation.id, connections: generation.live.load(Ordering::Acquire) });
        let status = Status {
            readiness: control.readiness.clone(),
            generation: control.generation,
            generations: generations.collect(),
            connections: self.shared.gate.taken(),
            limit: self.shared.gate.limit(),
            listeners: listeners.collect(),
            loops,
            workers: self.shared.workers.running(),
            jobs_waiting: self.shared.workers.waiting(),
            delegates: self.shared.delegates.running(),
            delegates_waiting: self.shared.delegates.waiting(),
            counts,
            restarts: control.restarts_in_all,
        };
        drop(control);
        // One of them may be the last of its service, whose Drop may call the pool.
        drop(live);
        status
    }

    /// The end of a pool, in order: what waits in the kernel is accepted, what is connected is drained, then all stops.
    pub(crate) fn shutdown(&self, how: Drain, reason: &str) -> Drained {
        let retired = {
            let mut control = lock(&self.control);
            if matches!(control.readiness, Readiness::Draining | Readiness::Stopped(_)) {
                return Drained::default();
            }
            let gone = std::mem::take(&mut control.places);
            let retired = self.retire(&control, gone);
            self.set_readiness(&mut control, Readiness::Draining);
            retired
        };
        let is_over = || {
            // Nothing is sent: the channel closes when the last shard was given up. Lingering connections have permits too.
            retired.try_recv() == Err(mpsc::TryRecvError::Disconnected) && self.shared.gate.taken() == 0
        };
        let drained = self.drain_to_the_end(how, is_over);
        self.stop(reason);
        drained
    }

    /// Stops every thread now. Connections that are left end with their loops. A loop that hangs in user code is left behind.
    pub(crate) fn stop(&self, reason: &str) {
        let mut threads = Vec::new();
        {
            let mut control = lock(&self.control);
            if std::mem::replace(&mut control.stopping, true) {
                return;
            }
            control.readiness = Readiness::Draining;
            control.places.clear();
            for member in &control.members {
                let _ = member.inbox.put(Letter::Order(Box::new(|flow| flow.stopping = true)));
                threads.extend(member.running.as_ref().map(|running| running.pulse.clone()));
            }
            self.shared.workers.set_wanted(0);
        }
        self.shared.delegates.stop();
        // The supervisor may be the one who stops the pool: then nobody listens.
        let _ = self.reports.send(Report::Stop);
        // A loop that drops the last handle of its own pool does not wait for itself.
        let own = |pulse: &Arc<Pulse>| {
            let control = lock(&self.control);
            let mut running = control.members.iter().filter_map(|member| member.running.as_ref());
            running
                .any(|running| Arc::ptr_eq(&running.pulse, pulse) && running.thread.thread().id() == std::thread::current().id())
        };
        threads.retain(|pulse| !own(pulse));
        let loops_ended = || threads.iter().all(|pulse| pulse.ended.load(Ordering::Acquire));
        let ended = || loops_ended() && self.shared.delegates.have_ended();
        self.shared.bell.wait(Instant::now() + STOP_WITHIN, ended);
        lock(&self.control).readiness = Readiness::Stopped(reason.to_owned());
        self.stopped.notify_all();
    }
}
