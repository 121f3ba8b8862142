//! The manager of a pool whose parts are threads of this process.

use super::commit::{effective_limit, make_room, prepare_generation, validate_start};
use super::control::{Control, Core, ListeningPlace, Report};
use super::drain::{Drain, Drained};
use super::halt::{End, Halt};
use super::handle::{Applied, ended};
use super::manager::{Manager, Visit};
use super::places::listen;
use super::restarts::History;
use super::retire::{Keeper, Retirements};
use super::supervise;
use crate::clock::deadline;
use crate::config::{Config, Endpoint, Part, Revision};
use crate::error::Error;
use crate::event_loop::delegates::Delegates;
use crate::event_loop::dialer::Dialer;
use crate::event_loop::door::Intake;
use crate::event_loop::inbox::{Command, Message};
use crate::event_loop::limiter::Limiter;
use crate::event_loop::shared_counters::SharedCounters;
use crate::event_loop::worker::Workers;
use crate::event_loop::{Basis, Shared, here};
use crate::model::{self, loops::Pulse};
use crate::net::Address;
use crate::observe::{Counts, Event, GenerationStatus, LoopStatus, Readiness, Status};
use crate::operation::{Op, Outcome, Selector};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{Condvar, Mutex, lock, mpsc, wait};
use crate::sys::{self, panics};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A loop that hangs in user code is waited for so long when its pool is dropped.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// The same after the deadline of a shutdown.
const STOPPED_WITHIN: Duration = Duration::from_millis(90);

/// What a pool stands on.
pub(super) struct Foundation {
    pub(super) shared_counters: SharedCounters,
    pub(super) limiter: Arc<Limiter>,
    /// The number of its first generation.
    pub(super) generation: u32,
    /// Which process this is, of a pool of several.
    pub(super) process: Option<usize>,
    /// Descriptors that are open beside it.
    pub(super) others: usize,
}

/// Ends what was started of a pool when the rest could not be.
struct StopUnlessForgotten<'a>(&'a Core);

impl Drop for StopUnlessForgotten<'_> {
    fn drop(&mut self) {
        Core::stop(self.0, "it could not be started");
    }
}

impl Core {
    /// Starts a pool; a failure leaves nothing behind.
    pub(super) fn start(config: Config) -> Result<Arc<Core>, Error> {
        validate_start(&config)?;
        let others = sys::descriptors_open();
        let limit = effective_limit(&config, others)?;
        let shared_counters = SharedCounters::private();
        let mut places: Vec<ListeningPlace> = Vec::new();
        for listening in config.listeners() {
            let opened = listen(&config, listening, places.iter().map(|place| &place.listener))?;
            places.push(ListeningPlace::at(listening, opened, &shared_counters));
        }
        let limiter = Limiter::shared(shared_counters.clone(), limit, None);
        Core::begin(config, Foundation { shared_counters, limiter, generation: 1, process: None, others }, places)
    }

    /// The same on what others may have laid.
    pub(super) fn begin(config: Config, on: Foundation, places: Vec<ListeningPlace>) -> Result<Arc<Core>, Error> {
        let generation = prepare_generation(on.generation, &config, config.loops)?;
        let dialer = match &config.endpoint {
            Endpoint::Connect(connecting) => Some(Dialer::new(connecting.clone(), None)),
            Endpoint::Accept { .. } => None,
        };
        let (reports, heard) = mpsc::channel();
        let died = reports.clone();
        let limiter = on.limiter.clone();
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
            placement: model::placement(&config, move |panic| _ = died.send(Report::ThreadDied { panic })),
        });
        shared.set_spin(config.spin);
        if on.process.is_none() {
            limiter.set_alarms(&config.alarms);
        }
        let control = Control {
            config: config.clone(),
            revision: Revision::first(),
            readiness: Readiness::Serving,
            intake: Intake::Open,
            generations: vec![Arc::downgrade(&generation)],
            generation: generation.id,
            places: places.into(),
            members: Vec::new(),
            dialer,
            restarts: History::default(),
            workers_absent: None,
            past: Counts::default(),
            others: on.others,
            stopping: false,
            drained: Drained::default(),
        };
        let retirements = Arc::new(Retirements::new(config.system.clone()));
        let (stopped, halt) = (Condvar::new(), Halt::default());
        let core = Arc::new(Core { shared, control: Mutex::new(control), stopped, halt, reports, retirements });
        let keeper: Weak<dyn Keeper> = Arc::<Core>::downgrade(&core);
        core.retirements.belong_to(keeper);
        let half_started = StopUnlessForgotten(&core);
        make_room(&config, core.shared.limiter.limit(), on.others);
        core.start_workers(config.workers)?;
        let event_loops = (0..config.loops).map(|index| core.prepare_loop(index, &config)).collect::<Result<Vec<_>, _>>()?;
        supervise::start(Arc::downgrade(&core), heard)?;
        let mut control = lock(&core.control);
        for (index, event_loop) in event_loops.into_iter().enumerate() {
            core.start_loop(&mut control, index, event_loop)?;
        }
        core.tell(&Event::GenerationStarted(on.generation));
        for place in &control.places.listening {
            core.tell(&Event::Listening(place.listener.address.clone()));
        }
        core.rebalance(&mut control);
        drop(control);
        std::mem::forget(half_started);
        Ok(core)
    }

    /// What was counted, by whom ever. Others count meanwhile: what ended was counted as begun before that, so it is read first.
    fn counts(&self, control: &Control) -> Counts {
        let read = || {
            let mut counts = control.past;
            control.members.iter().filter_map(|member| member.running.as_ref()).for_each(|one| one.counters.add_to(&mut counts));
            self.shared.placement.iter().for_each(|placement| placement.add_to(&mut counts));
            counts
        };
        let closed = read().closed;
        fence(Ordering::SeqCst);
        Counts { closed, ..read() }
    }

    pub(crate) fn status(&self) -> Status {
        let mut control = lock(&self.control);
        let live = Core::live_generations(&mut control);
        let counts = self.counts(&control);
        let loops = control.members.iter().map(|member| {
            let running = member.running.as_ref();
            LoopStatus {
                connections: running.map_or(0, |running| running.pulse.connections.load(Ordering::Relaxed)),
                accepted: running.map_or(0, |running| running.counters.accepted().get()),
                active: member.active,
                stuck: member.stuck,
            }
        });
        let loops = loops.collect();
        let placement = self.shared.placement.as_ref();
        let (system, backlog) = (&*self.shared.system, control.config.backlog());
        let listeners = control.places.listening.iter().map(|place| place.listener.status(system, &place.door, backlog));
        let generations = live
            .iter()
            .map(|generation| GenerationStatus { id: generation.id, connections: generation.live.load(Ordering::Acquire) });
        let status = Status {
            readiness: control.readiness.clone(),
            revision: control.revision.number(),
            generation: control.generation,
            generations: generations.collect(),
            connections: self.shared.limiter.taken(),
            limit: self.shared.limiter.limit(),
            listeners: listeners.collect(),
            retiring: self.retirements.under_way(),
            processes: Vec::new(),
            signalled: Vec::new(),
            loops,
            threads: placement.map_or(0, |placement| placement.threads()),
            workers: self.shared.workers.running(),
            jobs_waiting: self.shared.workers.waiting(),
            delegates: self.shared.delegates.running(),
            delegates_waiting: self.shared.delegates.waiting(),
            counts,
            restarts: control.restarts.in_all,
        };
        drop(control);
        // One of them may be the last of its service, whose Drop may call the pool.
        drop(live);
        status
    }

    /// The end of a pool, in order: what waits in the kernel is accepted, what is connected is drained, then all stops.
    pub(crate) fn shutdown(&self, how: Drain, reason: &str) -> Drained {
        self.shutdown_telling(how, reason, |_| ())
    }

    /// The same; what came of the connections is told before the threads are waited for.
    pub(crate) fn shutdown_telling(&self, how: Drain, reason: &str, tell: impl FnOnce(Drained)) -> Drained {
        {
            let mut control = lock(&self.control);
            while control.readiness == Readiness::Draining {
                // Another ends it: what came of that is the answer here too.
                control = wait(&self.stopped, control);
            }
            if matches!(control.readiness, Readiness::Stopped(_)) {
                tell(control.drained);
                return control.drained;
            }
            control.readiness = Readiness::Draining;
        }
        self.tell(&Event::ReadinessChanged(Readiness::Draining));
        self.shared.bell.wait(deadline(Instant::now(), how.notice), || lock(&self.control).stopping);
        {
            let mut control = lock(&self.control);
            let gone = control.places.take_all();
            self.retirements.stop();
            self.retire(&control, gone);
            self.pass_intake(&mut control, Intake::Suspended);
        }
        // Drains that run take their time no more: all are asked to end now.
        self.halt.raise(End::Begun);
        let is_over = || {
            // In this order: who was accepted before a socket was given up has a permit. Lingering connections have one too.
            self.shared.leaving.load(Ordering::SeqCst) == 0
                && self.retirements.under_way() == 0
                && self.shared.limiter.taken_here() == 0
        };
        let until = deadline(Instant::now(), how.deadline);
        let drained = self.drain_to_the_end(how, is_over);
        lock(&self.control).drained = drained;
        tell(drained);
        // Loops may still be closing what was cut, which is no reason to be late.
        self.stop_by(deadline(until, STOPPED_WITHIN), reason);
        drained
    }

    /// Stops every thread now. Connections that are left end with their loops. A loop that hangs in user code is left behind.
    pub(crate) fn stop(&self, reason: &str) {
        self.stop_by(Instant::now() + STOP_WITHIN, reason);
    }

    /// The same; a loop that hangs is waited for until then.
    fn stop_by(&self, until: Instant, reason: &str) {
        let mut threads = Vec::new();
        {
            let mut control = lock(&self.control);
            if std::mem::replace(&mut control.stopping, true) {
                return;
            }
            control.readiness = Readiness::Draining;
            control.places.take_all();
            self.retirements.stop();
            for member in &control.members {
                let _ = member.inbox.put(Message::Command(Box::new(|event_loop| event_loop.stopping = true)));
                threads.extend(member.running.as_ref().map(|running| running.pulse.clone()));
            }
            self.shared.placement.iter().for_each(|placement| placement.stop());
            self.shared.workers.set_wanted(0);
        }
        self.halt.raise(End::Here);
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
        let placed = || self.shared.placement.as_ref().map_or(0, |placement| placement.threads());
        let loops_ended = || threads.iter().all(|pulse| pulse.ended.load(Ordering::Acquire));
        let ended = || loops_ended() && placed() == 0 && self.shared.delegates.have_ended();
        self.shared.bell.wait(until, ended);
        self.drop_stranded();
        #[cfg(feature = "tokio")]
        self.end_listeners();
        lock(&self.control).readiness = Readiness::Stopped(reason.to_owned());
        self.stopped.notify_all();
    }
}

#[cfg(feature = "tokio")]
impl Core {
    /// Whoever takes the pool's connections hears that no more come.
    fn end_listeners(&self) {
        let behaviour = lock(&self.control).config.behaviour.clone();
        if let Some(queue) = crate::tasks::queue(&behaviour) {
            queue.end();
        }
    }
}

impl Manager for Core {
    fn config(&self) -> Config {
        let control = lock(&self.control);
        Config { based_on: Some(control.revision.stamp()), ..control.config.clone() }
    }

    fn addresses(&self) -> Vec<Address> {
        lock(&self.control).places.addresses()
    }

    fn reconfigure(&self, wanted: Config) -> Result<Applied, Error> {
        let began = Instant::now();
        let changed = {
            let mut control = lock(&self.control);
            let changed = self.change(&mut control, wanted);
            changed.map(|(plan, before, begun)| (plan, control.generation, control.revision.number(), before, begun))
        };
        let (plan, generation, revision, _before, begun) = changed.inspect_err(|_| self.retirements.carry_out_left())?;
        self.retirements.settle(&begun);
        Ok(Applied { plan, generation, revision, took: began.elapsed() })
    }

    fn set_intake(&self, intake: &Intake) {
        Core::set_intake(self, intake);
    }

    fn set_listener_intake(&self, address: &Address, intake: &Intake) -> Result<(), Error> {
        Core::set_listener_intake(self, address, intake)
    }

    fn apply(&self, op: Op, selector: &Selector) -> Result<Outcome, Error> {
        Ok(Core::apply(self, op, selector))
    }

    fn drain(&self, selector: &Selector, how: Drain) -> Drained {
        Core::drain(self, selector, how)
    }

    fn purge(&self, selector: &Selector, within: Duration) -> Drained {
        Core::purge(self, selector, within)
    }

    fn visit_locals(&self, visit: Visit) {
        self.ask(&self.inboxes(), move |event_loop| {
            event_loop.visit_locals(&mut |local| {
                // A visitor's panic is no reason to end a loop: it has no result.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| visit(local))) {
                    panics::discard(payload);
                }
            });
        });
    }

    fn status(&self) -> Status {
        Core::status(self)
    }

    fn wait(&self, within: Duration, condition: &mut dyn FnMut(&Status) -> bool) -> bool {
        self.shared.bell.wait(deadline(Instant::now(), within), || condition(&Core::status(self)))
    }

    fn shutdown(&self, how: Drain, reason: &str) -> Drained {
        Core::shutdown(self, how, reason)
    }

    fn join(&self) -> Result<(), Error> {
        let mut control = lock(&self.control);
        loop {
            match &control.readiness {
                Readiness::Stopped(reason) => return ended(reason),
                _ => control = wait(&self.stopped, control),
            }
        }
    }

    fn stop(&self, reason: &str) {
        Core::stop(self, reason);
    }

    fn waited_code(&self) -> Option<&'static str> {
        here::code_of(&*self.shared)
    }

    fn crash(&self, part: Part, index: usize) -> bool {
        let inbox = match part {
            Part::Loop => self.inboxes().get(index).cloned(),
            Part::Thread => {
                let placed: Vec<_> = self.shared.placement.iter().flat_map(|placement| placement.inboxes()).collect();
                placed.get(index % placed.len().max(1)).cloned()
            }
            Part::Worker => return self.shared.workers.crash_one(),
            Part::Process => None,
        };
        let crash: Command = Box::new(|_| panic!("a test crashed this loop"));
        inbox.is_some_and(|inbox| inbox.put(Message::Command(crash)).is_ok())
    }
}
