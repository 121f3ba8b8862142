//! A pool whose members are helpers: processes that run loops. This process holds every listening socket, so that a process that dies
//! takes no queue with it.

use super::channel::{ANSWERS_WITHIN, Channel};
use super::recount::{Recount, Recounts};
use super::registry::generated;
use super::wire::{Generated, HelperRequest, Start};
use crate::clock::deadline;
use crate::config::{Config, Model, Part};
use crate::error::Error;
use crate::event_loop::notifier::Notifier;
use crate::gather::{Answers, gather};
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::alarms::Teller;
use crate::limit::limiter::{Limiter, Process};
use crate::net::Address;
use crate::observe::{Event, GenerationStatus, Observer, ProcessStatus, Status};
use crate::operation::{Drain, Drained, Op, Outcome, Selector};
use crate::pool::control::{Control, Core};
use crate::pool::drain::share;
use crate::pool::listeners::Inherited;
use crate::pool::request::{PartStatus, Reply};
use crate::pool::validate::validate_start;
use crate::sync::{Mutex, lock};
use crate::sys::System;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The maximum time that a helper may take to say what it has, and after the deadline of a drain or purge, what came of it. A helper that is stopped
/// does not answer.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// The maximum by which a helper is to be done before the deadline of the pool's end, because on a busy machine it may run late. It is a tenth of the
/// time where that is less.
const EARLIER: Duration = Duration::from_millis(500);
/// The time after the deadline until a helper is killed.
const KILLED_AFTER: Duration = Duration::from_millis(80);

/// The call that has no substitute: a filter of system calls has to allow it.
const SHARE: &str = "make memory that processes share (memfd_create, Linux 3.17 and later)";

/// Data that the processes of a pool share.
pub(crate) struct Helpers {
    pub(super) shared_counters: SharedCounters,
    /// The descriptor by which helpers map the shared numbers. `event` wakes them when permits are given.
    pub(super) numbers: OwnedFd,
    pub(super) event: Arc<OwnedFd>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) system: Arc<dyn System>,
    pub(super) observer: Mutex<Option<Arc<dyn Observer>>>,
    /// The notifier that is rung when a helper tells something.
    pub(super) news: Notifier,
}

/// The state of a pool of processes under its lock.
pub(crate) struct HelpersState {
    /// The generation in force.
    pub(super) generated: Generated,
    /// The helpers that have each generation.
    pub(super) holders: BTreeMap<u32, BTreeSet<u64>>,
    /// The maximum number of listeners that had numbers among the shared ones at a time.
    pub(super) slots: usize,
    /// The recount that runs since a process died, until no permit is found to be lost.
    pub(super) recount: Option<Recount>,
    /// Recounts of the permits of listeners.
    pub(super) at_listeners: Recounts,
}

/// The data that a process begins with.
pub(crate) struct Announced {
    pub(super) start: Start,
    /// The revision of the configuration that it begins with.
    pub(super) revision: u64,
}

pub(in crate::pool) fn start(config: Config, inherited: Option<Inherited>) -> Result<Arc<Core<Helpers>>, Error> {
    validate_start(&config)?;
    let limit = Helpers::effective_limit(&config)?;
    let generated = generated(&config, 1)?;
    let failed = |source: crate::sys::Errno| Error::System { what: "start processes", source: source.into() };
    let no_memory = |source: crate::sys::Errno| Error::System { what: SHARE, source: source.into() };
    let (shared_counters, numbers) = SharedCounters::create().map_err(no_memory)?;
    let event = Arc::new(config.system.event().map_err(failed)?);
    let process = Process { index: None, most: 0, event: event.clone(), system: config.system.clone() };
    let state = HelpersState { generated, holders: BTreeMap::new(), slots: 0, recount: None, at_listeners: Recounts::default() };
    let helpers = Helpers {
        limiter: Limiter::shared(shared_counters.clone(), limit, Some(process)),
        shared_counters,
        numbers,
        event,
        system: config.system.clone(),
        observer: Mutex::new(config.observer.clone()),
        news: Notifier::default(),
    };
    let (core, heard) = Core::new(|_| helpers, config.clone(), 1, state);
    let teller: Weak<dyn Teller> = Arc::downgrade(&(core.clone() as Arc<dyn Teller>));
    core.own.limiter.alarms.tell_by(teller);
    core.own.limiter.set_alarms(&config.alarms);
    lock(&core.control).inherit(inherited);
    core.begin(heard)?;
    Ok(core)
}

/// Returns every helper that lives, those that take no new connections included.
pub(super) fn channels(core: &Core<Helpers>) -> Vec<Arc<Channel>> {
    lock(&core.control).running().cloned().collect()
}

/// Returns the share of each helper in a drain: its part of the rate, and of the number, is its part of the connections, so that all are done at
/// the same time. A helper that does not say within `within` how many it has counts as one that has none.
fn shares(channels: &[Arc<Channel>], how: Drain, selector: &Selector, within: Duration) -> Vec<Drain> {
    if channels.len() < 2 || (how.rate.is_none() && how.max_connections.is_none()) {
        return vec![how; channels.len()];
    }
    let mut counts = vec![0; channels.len()];
    for (index, reply) in told(channels, within, || HelperRequest::Apply(Op::Count, selector.clone())) {
        if let Some(Reply::Outcome(answer)) = reply {
            counts[index] = answer.done;
        }
    }
    share(how, &counts)
}

/// Asks every helper. Of a drain each does its share.
pub(super) fn apply(core: &Core<Helpers>, op: Op, selector: &Selector) -> Result<Outcome, Error> {
    let model = lock(&core.control).config.model;
    if model == Model::Fork && matches!(op, Op::Notify(_)) {
        let (what, remedy) = ("bring notes to connections, each of which is a process of its own", "use another model");
        return Err(Error::NotInModel { model, what, remedy });
    }
    let (held, channels): (Vec<usize>, Vec<Arc<Channel>>) = {
        let control = lock(&core.control);
        let members = control.members.iter().enumerate();
        members.filter_map(|(index, member)| Some((core.own.held(index), member.running.clone()?))).unzip()
    };
    // A drain of so many connections means none that a helper without an answer has.
    let ends_all = matches!(op, Op::Drain(Drain { max_connections: None, .. }) | Op::Purge(_)) && *selector == Selector::All;
    let within = match &op {
        Op::Drain(Drain { deadline: within, .. }) | Op::Purge(within) => within.saturating_add(TOLD_WITHIN),
        _ => ANSWERS_WITHIN,
    };
    let ops = match op {
        Op::Drain(how) => shares(&channels, how, selector, TOLD_WITHIN).into_iter().map(Op::Drain).collect(),
        op => vec![op; channels.len()],
    };
    let until = deadline(Instant::now(), within);
    let answers = gather(channels.iter().zip(ops), until, |(channel, op), reply| {
        channel.tell(HelperRequest::Apply(op, selector.clone()), &[], reply);
    });
    let mut late = held;
    let outcomes = answers.filter_map(|(index, reply)| {
        late[index] = 0;
        match reply {
            Some(Reply::Outcome(answer)) => Some(*answer),
            Some(_) => None,
            // The helper is gone, and its connections with it.
            None => Some(Outcome::default()),
        }
    });
    let mut outcome = Outcome::gathered(channels.len(), outcomes, selector);
    // The helper counts as a loop that does not answer: which of its connections are meant is known only if all are.
    if ends_all {
        let held: usize = late.into_iter().sum();
        outcome += Drained { asked: held, ended: 0, cut: held, silent: 0 }.into();
    }
    Ok(outcome)
}

pub(super) fn status(core: &Core<Helpers>) -> Status {
    let parts = parts(&channels(core));
    let control = lock(&core.control);
    let generations = live_generations(control.generation, &parts);
    let members = control.members.iter().enumerate().filter_map(|(index, member)| {
        let channel = member.running.as_ref()?;
        Some(ProcessStatus { pid: channel.pid, connections: core.own.held(index), active: member.active })
    });
    let common = core.common_status(&control);
    let mut counts = parts.iter().find_map(|part| part.counts.as_deref().copied()).unwrap_or_else(|| core.own.counts());
    counts += control.predecessors;
    Status {
        generations: generations.into_iter().map(|(id, connections)| GenerationStatus { id, connections }).collect(),
        processes: members.collect(),
        signalled: core.own.signalled(),
        loops: parts.iter().flat_map(|part| part.loops.iter().copied()).collect(),
        workers: parts.iter().map(|part| part.workers).sum(),
        jobs_waiting: parts.iter().map(|part| part.jobs_waiting).sum(),
        delegates: parts.iter().map(|part| part.delegates).sum(),
        delegates_waiting: parts.iter().map(|part| part.delegates_waiting).sum(),
        counts,
        restarts: common.restarts + parts.iter().map(|part| part.restarts).sum::<usize>(),
        ..common
    }
}

/// Ends the helpers. The sockets are theirs alone when they are told to end, so that what waits in a queue is accepted by them.
pub(super) fn end(core: &Core<Helpers>, how: Drain) -> (Drained, Instant) {
    let until = deadline(Instant::now(), how.deadline);
    let how = Drain { notice: Duration::ZERO, max_connections: None, ..how };
    let members: Vec<_> = {
        let mut control = lock(&core.control);
        let Control { listeners, members, .. } = &mut *control;
        // Sockets handed over to another process are released: that process accepts what waits there.
        for entry in listeners.listening.iter_mut().filter(|entry| entry.listener.is_handed_over()) {
            core.release_all(entry, members);
        }
        let members = members.iter().enumerate();
        members.filter_map(|(index, member)| Some((index, member.running.clone()?))).collect()
    };
    let channels: Vec<_> = members.iter().map(|(_, channel)| channel.clone()).collect();
    // A helper that is stopped does not take the time that the others have to end.
    let shares = shares(&channels, how, &Selector::All, TOLD_WITHIN.min(how.deadline / 4));
    let late = members.iter().map(|(index, _)| Some((core.own.held(*index), core.own.cut(*index)))).collect();
    let by = deadline(until, KILLED_AFTER);
    let answers = gather(channels.iter().zip(shares), by, |(channel, share), reply| {
        let left = until.saturating_duration_since(Instant::now());
        let share = Drain { deadline: left.saturating_sub((left / 10).min(EARLIER)), ..share };
        channel.tell(HelperRequest::Shutdown(share), &[], reply);
    });
    let gone = lock(&core.control).listeners.take_all();
    core.retirements.stop();
    let addresses: Vec<Address> = gone.iter().map(|entry| entry.listener.address.clone()).collect();
    drop(gone);
    let drained = ended(core, &members, late, answers);
    addresses.into_iter().for_each(|address| core.tell(&Event::ListenerRemoved(address)));
    (drained, by)
}

/// Returns what came of the connections of helpers that were told to end. `late` has what each held, and what it had cut before.
fn ended(
    core: &Core<Helpers>,
    members: &[(usize, Arc<Channel>)],
    mut late: Vec<Option<(usize, usize)>>,
    answers: Answers<Reply>,
) -> Drained {
    let mut parts = Vec::new();
    for (at, reply) in answers {
        let (held, cut_before) = late[at].take().unwrap_or_default();
        // A helper that is gone has taken its connections with it, and may not have counted them.
        parts.push(match reply {
            Some(Reply::Outcome(answer)) => answer.drained,
            _ => Drained::of((0, core.own.count_cut(members[at].0, held, cut_before))),
        });
    }
    for ((index, channel), late) in members.iter().zip(late) {
        let Some((held, cut_before)) = late else { continue };
        // It is stopped, or has other things to do: what it has left is cut with it. Under the lock: by its death its permits are taken back,
        // and what it had left would not be seen.
        let _control = lock(&core.control);
        channel.kill();
        let cut = core.own.cut_rest(*index, cut_before);
        parts.push(Drained::of((held.saturating_sub(cut), cut)));
    }
    parts.into_iter().sum()
}

/// Loops and workers are numbered through all processes.
pub(super) fn crash(core: &Core<Helpers>, part: Part, index: usize) -> bool {
    let channels = channels(core);
    if channels.is_empty() {
        return false;
    }
    let (channel, inner) = (&channels[index % channels.len()], index / channels.len());
    match part {
        // Any process with the right to do so may kill it, too.
        Part::Process => inner == 0 && channel.kill(),
        part => {
            let answer = told([channel], ANSWERS_WITHIN, || HelperRequest::Crash(part, inner)).next();
            matches!(answer, Some((_, Some(Reply::Done))))
        }
    }
}

impl Teller for Core<Helpers> {
    fn tell_event(&self, event: &Event) {
        self.tell(event);
    }
}

/// Tells these helpers something, and returns their answers that come in time. Under the lock the last one that changes it is also the last that
/// helpers hear.
pub(super) fn told<'a>(
    channels: impl IntoIterator<Item = &'a Arc<Channel>>,
    within: Duration,
    request: impl Fn() -> HelperRequest,
) -> Answers<Reply> {
    gather(channels, None, |channel, reply| channel.tell(request(), &[], reply)).within(within)
}

/// Returns the state of each of these helpers, as far as it answers in time.
pub(super) fn parts(channels: &[Arc<Channel>]) -> Vec<PartStatus> {
    let parts = told(channels, TOLD_WITHIN, || HelperRequest::Status);
    parts.filter_map(|(_, reply)| if let Some(Reply::Status(part)) = reply { Some(*part) } else { None }).collect()
}

/// Returns the generation in force and those with connections, oldest first, and how many they have.
pub(super) fn live_generations(newest: u32, parts: &[PartStatus]) -> BTreeMap<u32, usize> {
    let mut generations: BTreeMap<u32, usize> = BTreeMap::from([(newest, 0)]);
    for one in parts.iter().flat_map(|part| &part.generations) {
        *generations.entry(one.id).or_default() += one.connections;
    }
    generations.retain(|id, connections| *id == newest || *connections > 0);
    generations
}
