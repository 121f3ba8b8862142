//! The manager of a pool whose connections live in other processes. It holds every listening socket, so that a process that dies
//! takes no queue with it.

use super::link::{ANSWERS_WITHIN, Link};
use super::recount::{Recount, Recounts};
use super::registry;
use super::supervise::{self, Report};
use super::wire::{Generated, PartStatus, Reply, Request};
use crate::clock::deadline;
use crate::config::{Config, Model, Part, Revision};
use crate::error::Error;
use crate::event_loop::alarms::Teller;
use crate::event_loop::bell::Bell;
use crate::event_loop::door::Intake;
use crate::event_loop::here;
use crate::event_loop::limiter::{Limiter, Process};
use crate::event_loop::shared_counters::SharedCounters;
use crate::model::prefork;
use crate::net::Address;
use crate::observe::{Event, GenerationStatus, Observer, ProcessStatus, Readiness, Status};
use crate::operation::{Op, Outcome, Selector};
use crate::pool::drain::{Drain, Drained};
use crate::pool::handle::{Applied, ended};
use crate::pool::intake::{may_change, readiness};
use crate::pool::manager::{Manager, Visit};
use crate::pool::places::Places;
use crate::pool::restarts::{Absence, History};
use crate::pool::retire::{Keeper, Retirements};
use crate::sync::{Condvar, Mutex, lock, mpsc, wait};
use crate::sys::System;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a helper may take to say what it has, and after the deadline of a drain or purge, what came of it. A helper that is stopped
/// does not answer.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// When the pool ends, a helper is told to be done so much before the deadline, and killed so much after it.
const ANSWER_WITHIN: Duration = Duration::from_millis(80);

/// A pool of processes.
pub(crate) struct Processes {
    pub(super) control: Mutex<Control>,
    pub(super) shared_counters: SharedCounters,
    /// What helpers map the shared numbers by, and what wakes them when permits are given.
    pub(super) numbers: OwnedFd,
    pub(super) bell: Arc<OwnedFd>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) system: Arc<dyn System>,
    pub(super) observer: Mutex<Arc<dyn Observer>>,
    pub(super) stopped: Condvar,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) retirements: Arc<Retirements>,
    /// Rung when a helper tells something.
    pub(super) news: Bell,
}

/// What is changed under one lock.
pub(super) struct Control {
    pub(super) config: Config,
    pub(super) revision: Revision,
    pub(super) readiness: Readiness,
    /// What the helpers do, whatever is said of it.
    pub(super) intake: Intake,
    /// In force.
    pub(super) generated: Generated,
    /// Of each generation, the helpers that have it.
    pub(super) holders: BTreeMap<u32, BTreeSet<u64>>,
    /// The members that hold each socket: one, or all of them where the address has one socket only.
    pub(super) places: Places<Vec<usize>>,
    pub(super) members: Vec<Member>,
    pub(super) restarts: History,
    pub(super) next_number: u64,
    /// So many doors had numbers among the shared ones at a time.
    pub(super) slots: usize,
    /// Since a process died, until no permit is found to be lost.
    pub(super) recount: Option<Recount>,
    /// The same of the places at doors.
    pub(super) at_doors: Recounts,
    /// The numbers' places of sockets that helpers are giving up; nobody else may have them yet.
    pub(super) given_up: Vec<usize>,
    pub(super) stopping: bool,
    /// What came of the connections of a pool that was shut down.
    pub(super) drained: Drained,
}

/// A process.
pub(super) struct Member {
    /// None: it died and was not replaced yet, or is not wanted any more.
    pub(super) link: Option<Arc<Link>>,
    /// ... and will not be before that.
    pub(super) absent: Option<Absence>,
    /// Whether it takes new connections.
    pub(super) active: bool,
    /// Distinguishes it from the one it replaced.
    pub(super) life: u64,
    /// Its beats when they were last seen to be others, and when.
    pub(super) seen: (u64, Instant),
    /// It has not beaten for so long that it must be stopped, or stuck.
    pub(super) silent: bool,
}

/// What a helper builds, by what the configuration asks for.
pub(super) fn generated(config: &Config, id: u32) -> Result<Generated, Error> {
    let refuse = |what, remedy| Err(Error::NotInModel { model: config.model, what, remedy });
    let Some(recipe) = config.behaviour.service().recipe() else {
        return refuse("run a service without a recipe", "implement Service::recipe, or use the model loops");
    };
    if !registry::is_ready() {
        return refuse("start a helper", "call sockdrawer::processes first of all in main, or use the model loops");
    }
    if !registry::knows(&recipe) {
        return refuse("build a service of an unknown recipe", "name it in the call of sockdrawer::processes");
    }
    Ok(Generated { id, recipe, settings: config.settings.clone() })
}

impl Processes {
    pub(crate) fn start(config: Config) -> Result<Arc<Processes>, Error> {
        crate::pool::commit::validate_start(&config)?;
        prefork::check(&config)?;
        let generated = generated(&config, 1)?;
        let limit = Processes::effective_limit(&config)?;
        let failed = |source: crate::sys::Errno| Error::System { what: "start processes", source: source.into() };
        let (shared_counters, numbers) = SharedCounters::create().map_err(failed)?;
        let bell = Arc::new(config.system.event().map_err(failed)?);
        let process = Process { index: None, most: 0, bell: bell.clone(), system: config.system.clone() };
        let (reports, heard) = mpsc::channel();
        let control = Control {
            config: config.clone(),
            revision: Revision::first(),
            readiness: Readiness::Serving,
            intake: Intake::Open,
            generated,
            holders: BTreeMap::new(),
            places: Vec::new().into(),
            members: Vec::new(),
            restarts: History::default(),
            next_number: 1,
            slots: 0,
            recount: None,
            at_doors: Recounts::default(),
            given_up: Vec::new(),
            stopping: false,
            drained: Drained::default(),
        };
        let pool = Arc::new(Processes {
            control: Mutex::new(control),
            limiter: Limiter::shared(shared_counters.clone(), limit, Some(process)),
            shared_counters,
            numbers,
            bell,
            system: config.system.clone(),
            observer: Mutex::new(config.observer.clone()),
            stopped: Condvar::new(),
            reports,
            retirements: Arc::new(Retirements::new(config.system.clone())),
            news: Bell::default(),
        });
        let keeper: Weak<dyn Keeper> = Arc::<Processes>::downgrade(&pool);
        pool.retirements.belong_to(keeper);
        let begun = pool.begin(&config).and_then(|()| supervise::start(Arc::downgrade(&pool), heard));
        let teller: Weak<dyn Teller> = Arc::downgrade(&(pool.clone() as Arc<dyn Teller>));
        pool.limiter.alarms.tell_by(teller);
        pool.limiter.set_alarms(&config.alarms);
        // What was started ends with its links.
        begun.inspect_err(|_| pool.stop("it could not be started"))?;
        Ok(pool)
    }

    fn begin(&self, config: &Config) -> Result<(), Error> {
        let mut control = lock(&self.control);
        for listening in config.listeners() {
            let place = self.open(&mut control, &[], config, listening)?;
            control.places.listening.push(place);
        }
        for index in 0..prefork::processes(config) {
            let member = self.start_member(&mut control, config, index)?;
            control.members.push(member);
        }
        self.tell(&Event::GenerationStarted(1));
        for place in &control.places.listening {
            self.tell(&Event::Listening(place.listener.address.clone()));
        }
        self.rebalance(&mut control);
        Ok(())
    }

    pub(super) fn tell(&self, event: &Event) {
        let observer = lock(&self.observer).clone();
        here::tell(self, || observer.event(event));
        self.news.ring();
    }

    /// Every helper that lives, those that take no new connections included.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.control).members.iter().filter_map(|member| member.link.clone()).collect()
    }

    /// Asks all helpers at once and waits. Those that are gone, or do not answer in time, are left out.
    fn ask_all(&self, within: Duration, request: impl Fn() -> Request) -> Vec<Reply> {
        let until = deadline(Instant::now(), within);
        answers(self.links().iter().map(|link| link.ask_later(request(), &[])).collect(), until)
    }

    /// Of a drain, what each helper does: its part of the rate, and of the number, is its part of the connections, so that all are done
    /// at the same time.
    fn shares(links: &[Arc<Link>], how: Drain, selector: &Selector) -> Vec<Drain> {
        if links.len() < 2 || (how.rate.is_none() && how.at_most.is_none()) {
            return vec![how; links.len()];
        }
        let until = deadline(Instant::now(), TOLD_WITHIN);
        let count = |link: &Arc<Link>| link.ask_later(Request::Apply(Op::Count, selector.clone()), &[]);
        let asked: Vec<_> = links.iter().map(count).collect();
        let counts = asked.into_iter().map(|asked| match answers(vec![asked], until).pop() {
            Some(Reply::Outcome(answer)) => answer.done,
            _ => 0,
        });
        share(how, &counts.collect::<Vec<_>>())
    }

    /// Under the lock: the last one that changes it is also the last that helpers hear.
    fn pass(&self, control: &Control, request: impl Fn() -> Request) {
        let links = control.links();
        answers(links.iter().map(|link| link.ask_later(request(), &[])).collect(), deadline(Instant::now(), ANSWERS_WITHIN));
    }

    /// Ends all helpers. One that has not ended by then ends later, or is killed by the thread that reads what it says.
    fn stop_by(&self, until: Instant, reason: &str) {
        let links = {
            let mut control = lock(&self.control);
            if std::mem::replace(&mut control.stopping, true) {
                return;
            }
            control.readiness = Readiness::Draining;
            control.places.take_all();
            self.retirements.stop();
            control.members.iter().filter_map(|member| member.link.clone()).collect::<Vec<_>>()
        };
        links.iter().for_each(|link| link.close());
        let over = || links.iter().all(|link| link.has_ended());
        self.news.wait(until, over);
        let _ = self.reports.send(Report::Stop);
        lock(&self.control).readiness = Readiness::Stopped(reason.to_owned());
        self.stopped.notify_all();
    }
}

impl Teller for Processes {
    fn tell_event(&self, event: &Event) {
        self.tell(event);
    }
}

/// The answers that come in time.
fn answers(asked: Vec<mpsc::Receiver<Reply>>, until: Instant) -> Vec<Reply> {
    let in_time = |answer: &mpsc::Receiver<Reply>| answer.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    asked.iter().filter_map(in_time).collect()
}

/// What each of these helpers is now, as far as it says so in time.
pub(super) fn parts(links: &[Arc<Link>]) -> Vec<PartStatus> {
    let asked = links.iter().map(|link| link.ask_later(Request::Status, &[])).collect();
    let parts = answers(asked, deadline(Instant::now(), TOLD_WITHIN)).into_iter();
    parts.filter_map(|reply| if let Reply::Status(part) = reply { Some(*part) } else { None }).collect()
}

/// The generation in force and those with connections, oldest first, and how many they have.
pub(super) fn live_generations(newest: u32, parts: &[PartStatus]) -> BTreeMap<u32, usize> {
    let mut generations: BTreeMap<u32, usize> = BTreeMap::from([(newest, 0)]);
    for one in parts.iter().flat_map(|part| &part.generations) {
        *generations.entry(one.id).or_default() += one.connections;
    }
    generations.retain(|id, connections| *id == newest || *connections > 0);
    generations
}

/// The parts of a drain for helpers with so many connections each.
fn share(how: Drain, counts: &[usize]) -> Vec<Drain> {
    // One that has none now may have some in a moment.
    let weight = |count: usize| count.max(1) as f64;
    let (weights, all): (f64, usize) = (counts.iter().copied().map(weight).sum(), counts.iter().sum());
    // The part of the first so many connections: the differences add up to the whole.
    let reached = |most: usize, count: usize| (most as u128 * count as u128 / all.max(1) as u128) as usize;
    let mut before = 0;
    let shares = counts.iter().map(|count| {
        let from = before;
        before += count;
        Drain {
            rate: how.rate.map(|rate| rate * weight(*count) / weights),
            at_most: how.at_most.map(|most| reached(most, before) - reached(most, from)),
            ..how
        }
    });
    shares.collect()
}

fn drained(answers: Vec<Reply>) -> Drained {
    let answers = answers.into_iter();
    let drained = answers.map(|reply| match reply {
        Reply::Drained(drained) => drained,
        _ => Drained::default(),
    });
    drained.sum()
}

impl Manager for Processes {
    fn config(&self) -> Config {
        let control = lock(&self.control);
        Config { based_on: Some(control.revision.stamp()), ..control.config.clone() }
    }

    fn addresses(&self) -> Vec<Address> {
        lock(&self.control).places.addresses()
    }

    fn reconfigure(&self, wanted: Config) -> Result<Applied, Error> {
        let began = Instant::now();
        let (applied, _before, begun) = self.change(wanted).inspect_err(|_| self.retirements.carry_out_left())?;
        self.retirements.settle(&begun);
        Ok(Applied { took: began.elapsed(), ..applied })
    }

    fn set_intake(&self, intake: &Intake) {
        let mut control = lock(&self.control);
        if !may_change(&control.readiness) || control.intake == *intake {
            return;
        }
        let (before, now) = (control.readiness.clone(), readiness(intake));
        control.intake = intake.clone();
        let opens = *intake == Intake::Open;
        // Who looks must not see it ready when a listener stops, nor before one goes on.
        if !opens {
            control.readiness = now.clone();
            self.tell(&Event::ReadinessChanged(now.clone()));
        }
        self.pass(&control, || Request::Intake(intake.clone()));
        if opens && before != now {
            control.readiness = now.clone();
            self.tell(&Event::ReadinessChanged(now));
        }
    }

    fn set_listener_intake(&self, address: &Address, intake: &Intake) -> Result<(), Error> {
        let control = lock(&self.control);
        let place = control.places.find(address)?;
        place.door.set_intake(intake);
        // A helper may have only those of the address that are on their way out.
        let all = control.places.all().filter(|other| other.slot == place.slot);
        for listener in all.map(|place| place.number) {
            self.pass(&control, || Request::ListenerIntake { listener, intake: intake.clone() });
        }
        Ok(())
    }

    fn apply(&self, op: Op, selector: &Selector) -> Result<Outcome, Error> {
        let model = lock(&self.control).config.model;
        if model == Model::Fork && matches!(op, Op::Notify(_)) {
            let (what, remedy) = ("bring notes to connections, each of which is a process of its own", "use another model");
            return Err(Error::NotInModel { model, what, remedy });
        }
        let links = self.links();
        let asked: Vec<_> = links.iter().map(|link| link.ask_later(Request::Apply(op.clone(), selector.clone()), &[])).collect();
        let until = deadline(Instant::now(), ANSWERS_WITHIN);
        let answers = asked.iter().filter_map(|answer| {
            match answer.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Reply::Outcome(answer)) => Some(*answer),
                // It is gone, and its connections with it.
                Err(mpsc::RecvTimeoutError::Disconnected) => Some(Outcome::default()),
                Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => None,
            }
        });
        Ok(Outcome::gathered(links.len(), answers, selector))
    }

    /// Each helper asks its own, at its share of the rate.
    fn drain(&self, selector: &Selector, how: Drain) -> Drained {
        let links = self.links();
        let shares = Processes::shares(&links, how, selector);
        let until = deadline(Instant::now(), how.deadline.saturating_add(TOLD_WITHIN));
        let asked = links.iter().zip(shares).map(|(link, share)| link.ask_later(Request::Drain(selector.clone(), share), &[]));
        drained(answers(asked.collect(), until))
    }

    fn purge(&self, selector: &Selector, within: Duration) -> Drained {
        drained(self.ask_all(within.saturating_add(TOLD_WITHIN), || Request::Purge(selector.clone(), within)))
    }

    fn visit_locals(&self, _visit: Visit) {}

    fn status(&self) -> Status {
        let parts = parts(&self.links());
        let control = lock(&self.control);
        let newest = control.generated.id;
        let generations = live_generations(newest, &parts);
        let backlog = control.config.backlog();
        let listeners = control.places.listening.iter().map(|place| place.listener.status(&*self.system, &place.door, backlog));
        let members = control.members.iter().enumerate().filter_map(|(index, member)| {
            let link = member.link.as_ref()?;
            Some(ProcessStatus { pid: link.pid, connections: self.held(index), active: member.active })
        });
        Status {
            readiness: control.readiness.clone(),
            revision: control.revision.number(),
            generation: newest,
            generations: generations.into_iter().map(|(id, connections)| GenerationStatus { id, connections }).collect(),
            connections: self.limiter.taken(),
            limit: self.limiter.limit(),
            listeners: listeners.collect(),
            retiring: self.retirements.under_way(),
            processes: members.collect(),
            signalled: self.signalled(),
            loops: parts.iter().flat_map(|part| part.loops.iter().copied()).collect(),
            threads: 0,
            workers: parts.iter().map(|part| part.workers).sum(),
            jobs_waiting: parts.iter().map(|part| part.jobs_waiting).sum(),
            delegates: parts.iter().map(|part| part.delegates).sum(),
            delegates_waiting: parts.iter().map(|part| part.delegates_waiting).sum(),
            counts: parts.iter().find_map(|part| part.counts.as_deref().copied()).unwrap_or_else(|| self.counts()),
            restarts: control.restarts.in_all + parts.iter().map(|part| part.restarts).sum::<usize>(),
        }
    }

    fn wait(&self, within: Duration, condition: &mut dyn FnMut(&Status) -> bool) -> bool {
        self.news.wait(deadline(Instant::now(), within), || condition(&self.status()))
    }

    /// The sockets are the helpers' alone when they are told to end, so that what waits in a queue is accepted by them.
    fn shutdown(&self, how: Drain, reason: &str) -> Drained {
        {
            let mut control = lock(&self.control);
            while control.readiness == Readiness::Draining {
                // Another ends it: what came of that is the answer here too.
                control = wait(&self.stopped, control);
            }
            if matches!(control.readiness, Readiness::Stopped(_)) {
                return control.drained;
            }
            control.readiness = Readiness::Draining;
        }
        self.tell(&Event::ReadinessChanged(Readiness::Draining));
        self.news.wait(deadline(Instant::now(), how.notice), || lock(&self.control).stopping);
        let until = deadline(Instant::now(), how.deadline);
        let how = Drain { notice: Duration::ZERO, at_most: None, ..how };
        let members: Vec<_> = {
            let control = lock(&self.control);
            let members = control.members.iter().enumerate();
            members.filter_map(|(index, member)| Some((index, member.link.clone()?))).collect()
        };
        let links: Vec<_> = members.iter().map(|(_, link)| link.clone()).collect();
        let shares = Processes::shares(&links, how, &Selector::All);
        let ends = members.into_iter().zip(shares).map(|((index, link), share)| {
            // A little sooner, so that the answer is here in time.
            let left = until.saturating_duration_since(Instant::now());
            let share = Drain { deadline: left.saturating_sub((left / 10).min(ANSWER_WITHIN)), ..share };
            let (held, cut) = (self.held(index), self.cut(index));
            (index, held, cut, link.ask_later(Request::Shutdown(share), &[]), link)
        });
        let ends: Vec<_> = ends.collect();
        let gone = lock(&self.control).places.take_all();
        self.retirements.stop();
        let addresses: Vec<Address> = gone.iter().map(|place| place.listener.address.clone()).collect();
        drop(gone);
        let by = deadline(until, ANSWER_WITHIN);
        let ended = ends.into_iter().map(|(index, held, cut_before, answer, link)| {
            match answer.recv_timeout(by.saturating_duration_since(Instant::now())) {
                Ok(Reply::Drained(drained)) => drained,
                // It is gone, and its connections with it.
                Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => Drained { asked: held, ended: 0, cut: held },
                // It is stopped, or has other things to do: what it has left is cut with it.
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    link.kill();
                    let cut = self.cut_rest(index, cut_before);
                    Drained { asked: held.max(cut), ended: held.saturating_sub(cut), cut }
                }
            }
        });
        let drained = ended.sum();
        addresses.into_iter().for_each(|address| self.tell(&Event::ListenerRemoved(address)));
        lock(&self.control).drained = drained;
        self.stop_by(by, reason);
        drained
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
        self.stop_by(Instant::now() + ANSWERS_WITHIN, reason);
    }

    /// Loops and workers are numbered through all processes.
    fn waited_code(&self) -> Option<&'static str> {
        here::code_of(self)
    }

    fn crash(&self, part: Part, index: usize) -> bool {
        let links = self.links();
        if links.is_empty() {
            return false;
        }
        let (link, inner) = (&links[index % links.len()], index / links.len());
        match part {
            // As anybody with the right to may kill it.
            Part::Process => inner == 0 && link.kill(),
            part => matches!(link.ask(Request::Crash(part, inner)), Some(Reply::Done)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_drain_are_the_whole() {
        for (most, counts, expected) in [
            (100, &[500, 300, 200][..], &[50, 30, 20][..]),
            (1000, &[500, 300, 200], &[500, 300, 200]),
            (7, &[1, 1, 1], &[2, 2, 3]),
            (0, &[5, 0], &[0, 0]),
            (5, &[0, 5], &[0, 5]),
        ] {
            let shares = share(Drain::within(Duration::ZERO).rate(30.0).at_most(most), counts);
            let parts: Vec<_> = shares.iter().filter_map(|share| share.at_most).collect();
            assert_eq!(parts, expected, "{most} of {counts:?}");
            assert!((shares.iter().filter_map(|share| share.rate).sum::<f64>() - 30.0).abs() < 1e-9);
        }
    }
}
