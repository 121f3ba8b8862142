//! Changing a pool: prepare all that can fail, commit by one store, retire. A failure leaves everything as it was.

use super::control::{Control, Core, ListeningPlace, Member};
use super::places::Replacing;
use super::plan::{How, Plan, Sockets, plan};
use super::retire::Begun;
use crate::admission::Admission;
use crate::config::{Config, Connecting, Endpoint, Listening, Model, Revision};
use crate::error::Error;
use crate::event_loop::EventLoop;
use crate::event_loop::alarms::MOST_ALARMS;
use crate::event_loop::dialer::Dialer;
use crate::event_loop::generation::{Generation, MOST_GENERATIONS};
use crate::event_loop::inbox::Message;
use crate::event_loop::listener::{MOST_SHARDS, SHARDS};
use crate::event_loop::rules::Rules;
use crate::model;
use crate::net::{Address, ListenOptions, SocketOptions};
use crate::observe::{Event, Readiness};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::sys;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The longest time to spin.
const MOST_SPIN: Duration = Duration::from_secs(1);

/// Descriptors left to the program around the pool.
const SPARE_DESCRIPTORS: usize = 32;
/// Room in the table of descriptors is made for so many connections at least, where as many may come: 512 KiB.
const ROOM: usize = 1 << 16;
/// And for so many at most: 8 MiB.
const MOST_ROOM: usize = 1 << 20;
/// Connections that memory is kept for at most, in each loop, where descriptors are not limited.
const MOST_WARM: usize = 1 << 20;
/// Connections that memory is kept for at least, in each loop.
const FEWEST_WARM: usize = 64;
/// More loops than this are a mistake.
const MOST_LOOPS: usize = 1024;
/// More stack than this for a thread is a mistake.
const MOST_STACK: usize = 1 << 30;
/// More input than this cannot be kept for a connection.
const MOST_PARTIAL: usize = 256 * 1024 * 1024;
/// All that a change needs, made before anything is changed.
struct Prepared {
    generation: Option<Arc<Generation>>,
    listeners: Vec<ListeningPlace>,
    /// By the index of the place that they take.
    replacing: Replacing<Option<usize>>,
    /// Their threads run.
    loops: Vec<Member>,
    dialer: Option<Arc<Dialer>>,
    limit: Option<usize>,
}

impl Core {
    /// The whole of a change. The lock is held by the caller, so changes come one after another.
    /// Returns the configuration before it too: its service and observer are the user's, and are dropped without the lock.
    pub(crate) fn change(&self, control: &mut Control, wanted: Config) -> Result<(Plan, Config, Begun), Error> {
        let plan = accept(&control.readiness, (&control.config, control.revision), &wanted)?;
        if plan.has(How::NewGeneration) && self.shared.process.is_none() {
            let live = Core::live_generations(control);
            check_generations(&wanted, live.iter().map(|live| (live.id, live.live.load(Ordering::SeqCst))))?;
        }
        let prepared = self.prepare(control, &plan, &wanted)?;
        let begun = self.commit(control, &wanted, prepared);
        if !plan.changes.is_empty() {
            control.revision.raise();
        }
        Ok((plan, std::mem::replace(&mut control.config, wanted), begun))
    }

    fn prepare(&self, control: &mut Control, plan: &Plan, wanted: &Config) -> Result<Prepared, Error> {
        // Among several processes the limit is not this one's matter.
        let limit = if self.shared.process.is_some() { None } else { Some(effective_limit(wanted, control.others)?) };
        let generation = if plan.has(How::NewGeneration) {
            Some(prepare_generation(control.generation + 1, wanted, wanted.loops.max(control.members.len()))?)
        } else {
            None
        };
        // The mistake: it comes into force before all that can fail was done.
        #[cfg(sockdrawer_broken = "switch-before-prepare")]
        let generation = generation.and_then(|generation| {
            self.switch_to(control, generation);
            None
        });
        let mut listeners = Vec::new();
        for listening in Sockets::between(control.config.listeners(), wanted.listeners()).added {
            let opened = control.places.listen((wanted, listening), &self.retirements, &listeners)?;
            listeners.push(ListeningPlace::at(listening, opened, &self.shared.shared_counters));
        }
        let missing = wanted.loops.saturating_sub(control.members.len());
        let first = control.members.len();
        let event_loops: Vec<EventLoop> =
            (first..first + missing).map(|index| self.prepare_loop(index, wanted)).collect::<Result<Vec<_>, _>>()?;
        let dialer = match (&wanted.endpoint, &control.config.endpoint) {
            (Endpoint::Connect(new), Endpoint::Connect(old)) if new == old => control.dialer.clone(),
            (Endpoint::Connect(new), _) => Some(Dialer::new(new.clone(), control.dialer.as_deref())),
            (Endpoint::Accept { .. }, _) => None,
        };
        self.set_listener_options(control, &control.config.settings.options, &wanted.settings.options)?;
        // Last, because the threads are there from then on, and connections come to the sockets.
        match self.launch(control, wanted, event_loops) {
            Ok((loops, replacing)) => Ok(Prepared { generation, listeners, replacing, loops, dialer, limit }),
            Err(error) => {
                // They were set before, so they can be set again.
                let _ = self.set_listener_options(control, &wanted.settings.options, &control.config.settings.options);
                Err(error)
            }
        }
    }

    /// Threads, and sockets that take the place of others: all of them, or none.
    fn launch(
        &self,
        control: &mut Control,
        wanted: &Config,
        event_loops: Vec<EventLoop>,
    ) -> Result<(Vec<Member>, Replacing<Option<usize>>), Error> {
        let loops = self.launch_loops(control, event_loops)?;
        // Workers that are to go stay until nothing can fail any more: they could not be started again for sure.
        let most = wanted.workers.max(control.config.workers);
        let outcome = self.start_workers(most).and_then(|()| self.open_replacements(control, wanted));
        let workers = if outcome.is_ok() { wanted.workers } else { control.config.workers };
        // Lets those go that are too many. A worker that died in this moment and cannot be started is the supervisor's matter.
        let _ = self.start_workers(workers);
        match outcome {
            Ok(replacing) => Ok((loops, replacing)),
            Err(error) => {
                Core::dismiss_loops(&loops);
                Err(error)
            }
        }
    }

    /// Starts the threads of more loops: all of them, or none.
    fn launch_loops(&self, control: &Control, event_loops: Vec<EventLoop>) -> Result<Vec<Member>, Error> {
        let mut launched = Vec::new();
        for event_loop in event_loops {
            match self.launch_loop(control.config.model, control.members.len() + launched.len(), event_loop) {
                Ok(member) => launched.push(member),
                Err(error) => {
                    Core::dismiss_loops(&launched);
                    return Err(error);
                }
            }
        }
        Ok(launched)
    }

    /// Connections inherit options from their listener, for no system call of their own. Undone when one socket refuses.
    fn set_listener_options(&self, control: &Control, old: &SocketOptions, new: &SocketOptions) -> Result<(), Error> {
        if old == new {
            return Ok(());
        }
        for place in &control.places.retiring {
            // Whoever is still to come out of one may get them too late: it is on its way out.
            let _ = place.listener.set_options(&*self.shared.system, new);
        }
        for place in &control.places.listening {
            if let Err(errno) = place.listener.set_options(&*self.shared.system, new) {
                for place in &control.places.listening {
                    // They were set before, so they can be set again.
                    let _ = place.listener.set_options(&*self.shared.system, old);
                }
                let reason = format!("the system refuses it: {}", std::io::Error::from(errno));
                return Err(Error::Invalid { setting: "settings.options", reason });
            }
        }
        Ok(())
    }

    /// Nothing here can fail for a reason that the caller could mend.
    fn commit(&self, control: &mut Control, wanted: &Config, prepared: Prepared) -> Begun {
        let more_loops = !prepared.loops.is_empty();
        // First: who is a member hears of the switch.
        control.members.extend(prepared.loops);
        // Parked loops with connections go on as they are; those that come back are the first of the list.
        for (index, member) in control.members.iter_mut().enumerate() {
            member.active = index < wanted.loops;
        }
        if let Some(generation) = prepared.generation {
            self.switch_to(control, generation);
        }
        let same_dialer = match (&control.config.endpoint, &wanted.endpoint) {
            (Endpoint::Connect(old), Endpoint::Connect(new)) => old == new,
            _ => true,
        };
        let limiter = &self.shared.limiter;
        if let (Some(before), Some(dialer)) = (&control.dialer, &prepared.dialer)
            && (!same_dialer || prepared.limit.is_some_and(|limit| limit != limiter.limit()))
        {
            // Before there is room for more.
            dialer.follow(before, limiter.taken() >= limiter.limit(), Instant::now());
        }
        if let Some(limit) = prepared.limit {
            limiter.set_limit(limit);
        }
        let same_policy = is_same_policy(&*control.config.admission, &*wanted.admission);
        if !same_policy {
            self.shared.set_admission(wanted.admission.clone());
            for member in &control.members {
                let _ = member.inbox.put(Message::Command(Box::new(|event_loop| event_loop.policy_changed())));
            }
        }
        if self.shared.process.is_none() && control.config.alarms != wanted.alarms {
            self.shared.limiter.set_alarms(&wanted.alarms);
        }
        *lock(&self.shared.observer) = wanted.observer.clone();
        self.shared.workers.set_bound(wanted.worker_queue);
        self.shared.set_spin(wanted.spin);
        self.shared.placement.iter().for_each(|placement| placement.reconfigured(wanted));
        self.shared.delegates.tune(model::delegates(wanted), wanted.stack);
        if control.config.backlog() != wanted.backlog() {
            control.places.set_backlog(wanted.backlog(), &*self.shared.system);
        }
        let Control { config, places, .. } = control;
        let gone = places.take_listeners((config.listeners(), wanted), &self.retirements, prepared.replacing);
        places.set_limits(wanted);
        for place in prepared.listeners {
            self.tell(&Event::Listening(place.listener.address.clone()));
            control.places.listening.push(place);
        }
        control.dialer = prepared.dialer;
        for member in &control.members {
            member.inbox.set_bound(wanted.inbox);
            if control.config.capacity != wanted.capacity {
                let capacity = warm(wanted);
                let _ = member.inbox.put(Message::Command(Box::new(move |event_loop| event_loop.reserve(capacity))));
            }
        }
        if more_loops || control.config.loops != wanted.loops || control.config.listeners() != wanted.listeners() || !same_dialer
        {
            self.rebalance(control);
            let inboxes: Vec<_> = control.members.iter().map(|member| member.inbox.clone()).collect();
            self.settle(&inboxes);
        }
        if !same_policy {
            self.count_peers(control);
        }
        self.retire_places(control, gone)
    }

    /// When this returns every connection is counted as the policy asks for. What was on its way from one loop to another when the
    /// first looked has arrived when the second has looked twice.
    fn count_peers(&self, control: &Control) {
        let counts = |rules: &Rules| rules.peer_counts.is_some();
        if !counts(&self.shared.rules.get()) {
            return;
        }
        for _ in 0..2 {
            let mut inboxes: Vec<_> = control.members.iter().map(|member| member.inbox.clone()).collect();
            inboxes.extend(self.shared.placement.iter().flat_map(|placement| placement.inboxes()));
            self.ask(&inboxes, |event_loop| event_loop.count_peers());
        }
    }

    fn switch_to(&self, control: &mut Control, generation: Arc<Generation>) {
        let id = generation.id;
        self.shared.switch.commit(generation);
        self.tell(&Event::GenerationStarted(id));
        self.retire_before(control);
    }

    /// What follows from the switch: ended generations are told, and loops without traffic look at it.
    fn retire_before(&self, control: &mut Control) {
        let generation = self.shared.switch.current();
        let live = Core::live_generations(control);
        for old in live.iter().filter(|old| old.has_ended()) {
            self.tell(&Event::GenerationEnded(old.id));
        }
        control.generation = generation.id;
        control.generations.push(Arc::downgrade(&generation));
        let placed = self.shared.placement.iter().flat_map(|placement| placement.inboxes());
        for inbox in control.members.iter().map(|member| member.inbox.clone()).chain(placed) {
            // Who has no traffic would hold the old service until its next connection.
            let _ = inbox.put(Message::Command(Box::new(|event_loop| event_loop.look_at_switch())));
        }
    }

    /// In one of several processes: builds what comes into force when the pool stores the switch word. Returns the generation in
    /// force until then.
    pub(super) fn prepare_next(&self, id: u32, wanted: &Config) -> Result<Arc<Generation>, Error> {
        validate(wanted)?;
        let control = lock(&self.control);
        let generation = prepare_generation(id, wanted, control.members.len())?;
        self.set_listener_options(&control, &control.config.settings.options, &wanted.settings.options)?;
        let before = self.shared.switch.current();
        self.shared.switch.prepare(Some(generation));
        Ok(before)
    }

    /// It will not come.
    pub(super) fn forget_next(&self, next: &Config) -> Result<(), Error> {
        self.shared.switch.prepare(None);
        let control = lock(&self.control);
        self.set_listener_options(&control, &next.settings.options, &control.config.settings.options)
    }

    /// The word was stored. Returns the configuration before.
    pub(super) fn next_is_in_force(&self, next: Config) -> Config {
        let mut control = lock(&self.control);
        self.retire_before(&mut control);
        std::mem::replace(&mut control.config, next)
    }

    /// The generation in force and those with connections. Retired ones without any are forgotten.
    pub(crate) fn live_generations(control: &mut Control) -> Vec<Arc<Generation>> {
        let newest = control.generation;
        let live: Vec<_> = control
            .generations
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|generation| generation.id == newest || generation.live.load(Ordering::SeqCst) > 0)
            .collect();
        control.generations = live.iter().map(Arc::downgrade).collect();
        live
    }
}

/// Whether a change of policy is none.
pub(super) fn is_same_policy(one: &dyn Admission, other: &dyn Admission) -> bool {
    match (one.limits(), other.limits()) {
        (Some(one), Some(other)) => one == other,
        _ => std::ptr::addr_eq(one, other),
    }
}

/// The plan of a change, if it may be made at all.
pub(super) fn accept(readiness: &Readiness, running: (&Config, Revision), wanted: &Config) -> Result<Plan, Error> {
    match readiness {
        Readiness::Serving | Readiness::Suspended | Readiness::Refusing => {}
        Readiness::Draining => return Err(Error::Stopped { reason: "it is draining".to_owned() }),
        Readiness::Stopped(reason) => return Err(Error::Stopped { reason: reason.clone() }),
    }
    let (running, revision) = running;
    if let Some(based_on) = revision.conflicts_with(wanted.based_on) {
        return Err(Error::Conflict { based_on, current: revision.number() });
    }
    let plan = plan(running, wanted);
    if let Some(refused) = plan.changes.iter().find(|change| change.how == How::Refused) {
        return Err(Error::CannotChange { setting: refused.setting, reason: refused.detail.clone() });
    }
    validate(wanted)?;
    Ok(plan)
}

/// Whether there may be one more than the live generations: those in force or with connections, oldest first.
pub(super) fn check_generations(wanted: &Config, live: impl ExactSizeIterator<Item = (u32, usize)>) -> Result<(), Error> {
    let (count, mut live) = (live.len(), live);
    let most = wanted.max_generations.map_or(MOST_GENERATIONS, |most| most.min(MOST_GENERATIONS));
    match live.next() {
        Some((oldest, connections)) if count >= most => Err(Error::TooManyGenerations { live: count, oldest, connections }),
        _ => Ok(()),
    }
}

/// Connections to keep memory for: never more than there can be. Loops grow by as much, so a few.
pub(super) fn warm(config: &Config) -> usize {
    if config.model.has_loops() { config.capacity.min(sys::descriptor_limit()).clamp(FEWEST_WARM, MOST_WARM) } else { 1 }
}

pub(super) fn prepare_generation(id: u32, config: &Config, loops: usize) -> Result<Arc<Generation>, Error> {
    let service = config.behaviour.service().clone();
    Generation::prepare(id, service, config.settings.clone(), warm(config), loops)
        .map_err(|panicked| Error::ServicePanicked { message: panicked.0 })
}

/// The same of a pool that begins. Once it runs it may lose its last address, or let nobody in for a while: a change may come.
pub(super) fn validate_start(config: &Config) -> Result<(), Error> {
    validate(config)?;
    let invalid = |setting, reason: &str| Err(Error::Invalid { setting, reason: reason.to_owned() });
    if matches!(&config.endpoint, Endpoint::Accept { .. }) && config.listeners().is_empty() {
        return invalid("listeners", "a pool that listens nowhere serves nobody: name an address with Config::listen");
    }
    if matches!(&config.endpoint, Endpoint::Accept { .. }) && config.limit == Some(0) {
        return invalid("limit", "0 connections serve nobody: use at least 1, or suspend the pool");
    }
    Ok(())
}

/// Checks what types cannot.
pub(super) fn validate(config: &Config) -> Result<(), Error> {
    model::check(config)?;
    let invalid = |setting, reason: &str| Err(Error::Invalid { setting, reason: reason.to_owned() });
    if config.loops == 0 {
        return invalid("loops", "0 loops serve nobody: use at least 1, or suspend the pool");
    }
    if config.stack > MOST_STACK {
        return invalid("stack", "more than 1 GiB for each thread: a connection needs a few KiB of stack");
    }
    if config.loops > MOST_LOOPS {
        return invalid("loops", "more than 1024 loops: a loop for each CPU is enough");
    }
    if config.spin > MOST_SPIN {
        return invalid("spin", "more than 1 s: a loop that never sleeps; some 50 us are what a wake-up costs");
    }
    if !config.spin.is_zero() && matches!(config.model, Model::Threads | Model::Fork | Model::Tasks) {
        return invalid("spin", "only loops spin: those of the models loops, prefork and single");
    }
    if config.stuck_after.is_zero() {
        return invalid("stuck_after", "0: each loop would be stuck as soon as it has something to do; use some seconds");
    }
    if config.delegates == 0 {
        return invalid("delegates", "0 threads: a delegated connection would wait for ever; use at least 1");
    }
    if config.max_generations.is_some_and(|most| most < 2) {
        return invalid("max_generations", "fewer than 2: the one in force counts, so none could ever follow it");
    }
    let settings = &config.settings;
    if settings.max_partial > MOST_PARTIAL {
        return invalid("settings.max_partial", "more than 256 MiB: take input in parts instead of keeping it");
    }
    if settings.low_water > settings.high_water {
        return invalid("settings.low_water", "the low-water mark is above the high one: lower it");
    }
    if let Endpoint::Connect(connecting) = &config.endpoint {
        validate_connecting(connecting)?;
    }
    if let Some(Err((setting, reason))) = config.limits().map(|limits| limits.check()) {
        return invalid(setting, reason);
    }
    if config.alarms.len() > MOST_ALARMS {
        return invalid("alarms", "more than 16 alarms: a few say as much");
    }
    if config.alarms.iter().any(|alarm| alarm.clear_at >= alarm.at) {
        return invalid("alarms", "an alarm is cleared below the number at which it is raised: lower clear_at");
    }
    let listeners = config.listeners();
    if listeners.iter().any(|listening| listening.limit == Some(0)) {
        return invalid("listeners.limit", "0 connections serve nobody: use at least 1, or suspend the listener");
    }
    for (index, listening) in listeners.iter().enumerate() {
        let wrong = |reason| Error::Invalid { setting: "listeners", reason };
        listening.options.check(&listening.address).map_err(wrong)?;
        if listening.inherited.is_some() && listening.options != ListenOptions::default() {
            let reason = format!("the socket inherited for {} is bound already: leave its options out", listening.address);
            return Err(wrong(reason));
        }
        let port_zero = matches!(listening.address, Address::Tcp(address) if address.port() == 0);
        if !port_zero && listeners[..index].iter().any(|other| other.address == listening.address) {
            let reason = format!("{} is named twice: name it once", listening.address);
            return Err(Error::Invalid { setting: "listeners", reason });
        }
    }
    Ok(())
}

fn validate_connecting(connecting: &Connecting) -> Result<(), Error> {
    let invalid = |setting, reason: String| Err(Error::Invalid { setting, reason });
    if connecting.targets.is_empty() {
        return invalid("connecting.targets", "there is no target to connect to: name one".to_owned());
    }
    if connecting.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return invalid("connecting.rate", "a rate is above 0 connects a second: leave it out for as fast as it goes".to_owned());
    }
    let Some((from, to)) = connecting.local_ports else { return Ok(()) };
    if from == 0 || to < from {
        return invalid("connecting.local_ports", format!("{from} to {to} is no range of ports: name the lower one first"));
    }
    match sys::local_ports() {
        Some((first, last)) if from < first || last < to => {
            let remedy = format!("sysctl -w net.ipv4.ip_local_port_range='{} {}'", from.min(first), to.max(last));
            let reason = format!("{from} to {to} is not within the ports that the system gives out, {first} to {last}: {remedy}");
            invalid("connecting.local_ports", reason)
        }
        _ => Ok(()),
    }
}

/// Sockets of a TCP address: loops that come and go take them over from each other; who accepts in one place has one. Among processes
/// each has as many as the others: what is hashed to its sockets waits for its descriptors alone.
pub(super) fn shards(config: &Config) -> usize {
    match config.model {
        Model::Prefork => {
            let loops = config.loops.saturating_mul(config.processes).clamp(1, MOST_SHARDS);
            SHARDS.next_multiple_of(loops)
        }
        model if model.has_loops() => config.loops.clamp(SHARDS, MOST_SHARDS),
        _ => 1,
    }
}

/// Listening sockets of a configuration.
fn sockets(config: &Config) -> usize {
    let sockets = |listening: &Listening| match (&listening.inherited, &listening.address) {
        (None, Address::Tcp(_)) => shards(config),
        _ => 1,
    };
    config.listeners().iter().map(sockets).sum()
}

/// Descriptors that a process of a pool needs for itself, beside those of its loops.
pub(super) fn own_descriptors(config: &Config) -> usize {
    sockets(config) + SPARE_DESCRIPTORS
}

/// Room in the table for all descriptors that a process of the pool may have at once, made before it has threads. 8 bytes each: without a
/// limit of the configuration's own, not for all that the system would allow.
pub(super) fn make_room(config: &Config, limit: usize, others: usize) {
    let connections = limit.min(if config.limit.is_some() { MOST_ROOM } else { ROOM });
    let each = model::descriptors(config.model);
    sys::make_room_for_descriptors(of_loops(config, others) + connections * each);
}

/// What a pool of loops has open beside its connections.
fn of_loops(config: &Config, others: usize) -> usize {
    others + own_descriptors(config) + model::descriptors_for_loop(config.model) * config.loops
}

/// The permits that descriptors allow: what is left beside the `others` that the program had open when the pool started, and
/// the pool's own.
pub(super) fn effective_limit(config: &Config, others: usize) -> Result<usize, Error> {
    let allowed = sys::descriptor_limit();
    let own = of_loops(config, others);
    let (each, most) = (model::descriptors(config.model), model::most_connections(config.model));
    let fits = allowed.saturating_sub(own) / each;
    match config.limit.map(|asked| asked.min(most)) {
        Some(asked) if asked > fits => {
            Err(Error::LimitTooHigh { asked, needed: asked.saturating_mul(each).saturating_add(own), allowed, fits })
        }
        Some(asked) => Ok(asked),
        None if fits == 0 => Err(Error::LimitTooHigh { asked: 1, needed: own + each, allowed, fits }),
        None => Ok(fits.min(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::tests::Echo;

    #[test]
    fn there_are_never_more_generations_than_loops_can_name() {
        let check = |config: &Config, count: u32| check_generations(config, (0..count).map(|id| (id + 1, 7)));
        let any = Config::accept(Echo);
        assert!(check(&any, 64_999).is_ok());
        let refused = check(&any, 65_000);
        assert!(matches!(refused, Err(Error::TooManyGenerations { live: 65_000, oldest: 1, connections: 7 })), "{refused:?}");
        let most = Config::accept(Echo).max_generations(Some(usize::MAX));
        assert!(check(&most, 65_000).is_err());
        let few = Config::accept(Echo).max_generations(Some(3));
        assert!(check(&few, 2).is_ok() && check(&few, 3).is_err());
    }

    #[test]
    fn every_loop_of_every_process_has_as_many_sockets() {
        let shards = |model, processes, loops| shards(&Config::accept(Echo).model(model).processes(processes).loops(loops));
        for (processes, loops, expected) in [(1, 1, 16), (4, 1, 16), (6, 1, 18), (5, 2, 20), (24, 1, 24), (64, 4, 256)] {
            assert_eq!(shards(Model::Prefork, processes, loops), expected, "{processes} processes of {loops} loops");
        }
        assert_eq!((shards(Model::Loops, 1, 3), shards(Model::Loops, 1, 20), shards(Model::Threads, 1, 1)), (16, 20, 1));
        assert_eq!((shards(Model::Prefork, 0, 1), shards(Model::Prefork, usize::MAX, 2)), (16, 1024));
    }
}
