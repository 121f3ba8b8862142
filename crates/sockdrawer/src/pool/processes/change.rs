//! Changing a pool of processes: every helper prepares, then one word is stored that all of them look at when they accept.

use super::link::{ANSWERS_WITHIN, Link};
use super::manager::{Control, Member, Processes, generated, live_generations, parts};
use super::supervise::{Ear, LOOK};
use super::wire::{Generated, Refusal, Reply, Request, Start, Tuning, VERSION};
use crate::behaviour::Kind;
use crate::config::{Config, Listening, Model};
use crate::error::Error;
use crate::event_loop::door::Door;
use crate::event_loop::generation::MOST_GENERATIONS;
use crate::event_loop::limiter::Process;
use crate::event_loop::shared_counters::MOST_DOORS;
use crate::model::fork::MOST;
use crate::model::prefork;
use crate::observe::{Event, Readiness};
use crate::pool::commit;
use crate::pool::handle::Applied;
use crate::pool::places::{self, Replacements, Replacing};
use crate::pool::plan::{How, Sockets};
use crate::pool::retire::{Begun, GaveUp, Keeper, Retirement, is_empty};
use crate::sync::atomic::Ordering;
use crate::sync::{lock, mpsc};
use crate::sys;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An address, and the helpers that accept from each of its sockets.
type Place = places::Place<Vec<usize>>;

/// A process that is to be started, and what it begins with.
pub(super) struct Announced {
    life: u64,
    start: Start,
    /// Of the configuration that it begins with.
    revision: u64,
}

impl Announced {
    /// Whether what it began with is what is in force.
    pub(super) fn is_of(&self, control: &Control) -> bool {
        self.revision == control.revision.number() && self.start.intake == control.intake
    }
}

/// New places, those that take another's, and new helpers.
type Prepared = (Vec<Place>, Replacing<Vec<usize>>, Vec<Member>);

/// The connections that one of several processes may have, by its descriptors; it may get every listening socket.
fn fits_in_process(config: &Config) -> usize {
    if config.model == Model::Fork {
        let free = sys::descriptor_limit().saturating_sub(commit::own_descriptors(config));
        // The helper keeps the connection of another program; any other it has only until its process is made.
        let each = config.behaviour.service().kind() == Kind::Program;
        return if each { free.min(MOST) } else { free.min(1) * MOST };
    }
    let own = commit::own_descriptors(config) + 2 * config.loops;
    sys::descriptor_limit().saturating_sub(own)
}

impl Processes {
    /// Permits that descriptors allow, in all processes together.
    pub(super) fn effective_limit(config: &Config) -> Result<usize, Error> {
        let most = fits_in_process(config).saturating_mul(prefork::processes(config));
        match config.limit {
            asked if config.model == Model::Fork && most < asked.unwrap_or(1).min(MOST) => {
                let (asked, own) = (asked.unwrap_or(1), commit::own_descriptors(config));
                Err(Error::LimitTooHigh { asked, needed: asked + own, allowed: sys::descriptor_limit(), fits: most })
            }
            Some(asked) if config.model == Model::Fork && asked > most => Err(Error::Invalid {
                setting: "limit",
                reason: format!("{asked} connections are more processes than the {most} that `fork` takes: use prefork or loops"),
            }),
            Some(asked) if asked > most => Err(Error::Invalid {
                setting: "limit",
                reason: format!(
                    "{asked} connections need more descriptors than {} processes may open: at most {most} fit; use more \
                     processes or raise `ulimit -n`",
                    config.processes
                ),
            }),
            Some(asked) => Ok(asked),
            None => Ok(most),
        }
    }

    /// Returns what was done, and the configuration before: its service and observer are the user's, and are dropped without the
    /// lock.
    pub(super) fn change(&self, wanted: Config) -> Result<(Applied, Config, Begun), Error> {
        let mut control = lock(&self.control);
        let plan = commit::accept(&control.readiness, (&control.config, control.revision), &wanted)?;
        prefork::check(&wanted)?;
        let limit = Processes::effective_limit(&wanted)?;
        let next = if plan.has(How::NewGeneration) {
            // Helpers are asked only where it may matter: those of a generation may be gone without having said so yet.
            if wanted.max_generations.is_some() || control.holders.len() >= MOST_GENERATIONS {
                let live = live_generations(control.generated.id, &parts(&control.links()));
                commit::check_generations(&wanted, live.into_iter())?;
            }
            Some(generated(&wanted, control.generated.id + 1)?)
        } else {
            None
        };
        let (added, replacing, started) = self.prepare(&mut control, &wanted, next.as_ref())?;
        control.members.extend(started);
        if let Some(next) = next {
            self.switch_to(&mut control, next);
        }
        let rate = |config: &Config| config.limits().and_then(|limits| limits.rate.clone());
        if rate(&control.config) != rate(&wanted) {
            self.shared_counters.pace().store(0, Ordering::SeqCst);
        }
        self.limiter.set_limit(limit);
        if control.config.alarms != wanted.alarms {
            self.limiter.set_alarms(&wanted.alarms);
        }
        *lock(&self.observer) = wanted.observer.clone();
        if control.config.backlog() != wanted.backlog() {
            control.places.set_backlog(wanted.backlog(), &*self.system);
        }
        let Control { config, places, .. } = &mut *control;
        let gone = places.take_listeners((config.listeners(), &wanted), &self.retirements, replacing);
        places.set_limits(&wanted);
        for place in added {
            self.tell(&Event::Listening(place.listener.address.clone()));
            control.places.listening.push(place);
        }
        for (index, member) in control.members.iter_mut().enumerate() {
            member.active = index < prefork::processes(&wanted);
        }
        let before = std::mem::replace(&mut control.config, wanted);
        self.rebalance(&mut control);
        let begun = self.retire_places(&mut control, gone);
        if !plan.changes.is_empty() {
            control.revision.raise();
        }
        let (generation, revision) = (control.generated.id, control.revision.number());
        Ok((Applied { plan, generation, revision, took: Duration::ZERO }, before, begun))
    }

    /// All that can fail. A failure leaves everything as it was.
    fn prepare(&self, control: &mut Control, wanted: &Config, next: Option<&Generated>) -> Result<Prepared, Error> {
        let mut places = Vec::new();
        let running = control.config.listeners().to_vec();
        for listening in Sockets::between(&running, wanted.listeners()).added {
            places.push(self.open(control, &places, wanted, listening)?);
        }
        let (before, after) = (Tuning::of(&control.config), Tuning::of(wanted));
        let tuned = if before == after { Ok(()) } else { agree(&control.links(), || Request::Tune(after.clone())) };
        let mut started: Vec<Member> = Vec::new();
        let built = tuned.and_then(|()| {
            let missing = control.members.len()..prefork::processes(wanted);
            for index in missing {
                started.push(self.start_member(control, wanted, index)?);
            }
            let newer = started.iter().filter_map(|member| member.link.clone());
            let links: Vec<_> = control.links().into_iter().chain(newer).collect();
            next.map_or(Ok(()), |next| agree(&links, || Request::Prepare(next.clone())))
        });
        // Last, because connections come to these sockets.
        let error = match built.and_then(|()| self.open_replacements(control, wanted)) {
            Ok(replacing) => return Ok((places, replacing, started)),
            Err(error) => error,
        };
        // They had it this way before, so they can have it again.
        let links = control.links();
        if next.is_some() {
            let _ = agree(&links, || Request::Forget);
        }
        if before != after {
            let _ = agree(&links, || Request::Tune(before.clone()));
        }
        started.iter().filter_map(|member| member.link.as_ref()).for_each(|link| link.close());
        Err(error)
    }

    /// Opens sockets at addresses that the pool has: all of them, or none.
    fn open_replacements(&self, control: &mut Control, wanted: &Config) -> Result<Replacing<Vec<usize>>, Error> {
        let Control { config, places, next_number, .. } = control;
        match places.open_replacements((config.listeners(), wanted), &self.retirements, || next(next_number)) {
            Replacements::Opened(replacing) => Ok(replacing),
            Replacements::Failed(error, gone) => {
                self.rebalance(control);
                self.retire_places(control, gone);
                Err(error)
            }
        }
    }

    /// Ends sockets by their numbers, in the background; others have taken the place of those marked so, and accept.
    fn retire_places(&self, control: &mut Control, gone: Vec<(u64, bool)>) -> Begun {
        self.retirements.start(control.places.retire(gone, &*self.system))
    }

    /// The commit: one store, and from here on every accept, in whatever process, sees the new generation.
    fn switch_to(&self, control: &mut Control, next: Generated) {
        let id = next.id;
        let lives = control.members.iter().filter(|member| member.link.is_some()).map(|member| member.life);
        control.holders.insert(id, lives.collect());
        self.shared_counters.epoch().fetch_add(1, Ordering::SeqCst);
        self.tell(&Event::GenerationStarted(id));
        control.generated = next;
        // One that is gone is replaced, and its successor begins with this generation.
        let _ = agree(&control.links(), || Request::Committed);
        // Nobody may have had the one before: every process was dead in that moment.
        control.take_ended().into_iter().for_each(|id| self.tell(&Event::GenerationEnded(id)));
    }

    /// A new address, with a door of its own, beside those that the same change adds.
    pub(super) fn open(
        &self,
        control: &mut Control,
        pending: &[Place],
        config: &Config,
        listening: &Listening,
    ) -> Result<Place, Error> {
        let listener = control.places.listen((config, listening), &self.retirements, pending)?;
        let slot = self.free_slot(control, pending)?;
        control.slots = control.slots.max(slot + 1);
        let shared_counters = self.shared_counters.door(slot);
        shared_counters.clear_gate();
        let process = Process { index: None, most: 0, bell: self.bell.clone(), system: self.system.clone() };
        let door = Door::new(listener.address.clone(), shared_counters, listening.limit, Some(process));
        Ok(Place::new(control.take_number(), listening, listener, door, slot))
    }

    /// A process is gone, and with it what it held of each limiter.
    pub(super) fn reclaim(&self, control: &Control, index: usize) {
        self.shared_counters.reclaim(index);
        (0..control.slots).for_each(|slot| self.shared_counters.door(slot).reclaim(index));
    }

    /// A place for the numbers of a door: one that no address has, nor any connection of one that is gone.
    fn free_slot(&self, control: &Control, pending: &[Place]) -> Result<usize, Error> {
        let mut used: BTreeSet<usize> = control.places.all().chain(pending).map(|one| one.slot).collect();
        used.extend(&control.given_up);
        let free = |slot: &usize| !used.contains(slot) && self.shared_counters.door(*slot).taken().load(Ordering::SeqCst) == 0;
        (0..MOST_DOORS).find(free).ok_or_else(|| Error::Invalid {
            setting: "listeners",
            reason: format!("more than {MOST_DOORS} addresses, with those that are gone and still have connections"),
        })
    }

    /// Starts a process in the generation in force; it accepts nothing yet.
    pub(super) fn start_member(&self, control: &mut Control, config: &Config, index: usize) -> Result<Member, Error> {
        let announced = self.announce(control, config, index);
        let link = self.launch(&announced)?;
        Ok(self.join(control, &announced, link))
    }

    /// What a process begins with.
    pub(super) fn announce(&self, control: &mut Control, config: &Config, index: usize) -> Announced {
        // What a process of this number left behind, if there was one.
        self.reclaim(control, index);
        let start = Start {
            version: VERSION.to_owned(),
            model: config.model,
            index,
            most: fits_in_process(config),
            generated: control.generated.clone(),
            tuning: Tuning::of(config),
            intake: control.intake.clone(),
        };
        Announced { life: control.take_number(), start, revision: control.revision.number() }
    }

    /// Starts it and waits until it is there, which needs no lock.
    pub(super) fn launch(&self, announced: &Announced) -> Result<Arc<Link>, Error> {
        let failed = |source| Error::System { what: "start a process", source };
        let ear = Ear::new(self, announced.start.index, announced.life);
        let link = Link::start(&format!("{} {}", announced.start.model, announced.start.index), ear).map_err(failed)?;
        let descriptors = [self.numbers.as_fd(), self.bell.as_fd()];
        let answer = link.ask_later(Request::Start(Box::new(announced.start.clone())), &descriptors);
        match answer.recv_timeout(ANSWERS_WITHIN) {
            Ok(Reply::Done) => Ok(link),
            Ok(Reply::Refused(refusal)) => Err(refused(refusal)),
            _ => {
                // It ends, or is killed.
                link.close();
                Err(failed(std::io::Error::other("the helper does not answer: does main begin with sockdrawer::processes?")))
            }
        }
    }

    /// It is one of the pool's from now on.
    pub(super) fn join(&self, control: &mut Control, announced: &Announced, link: Arc<Link>) -> Member {
        control.holders.entry(control.generated.id).or_default().insert(announced.life);
        let beats = self.shared_counters.beats(announced.start.index).load(Ordering::Relaxed);
        Member {
            link: Some(link),
            absent: None,
            active: true,
            life: announced.life,
            seen: (beats, Instant::now()),
            silent: false,
        }
    }

    /// Gives sockets to whom they should belong, the new holder first; none is closed, none is left alone.
    pub(super) fn rebalance(&self, control: &mut Control) {
        let usable: Vec<_> = control
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.active && member.link.as_ref().is_some_and(|link| !link.is_closed()))
            .collect();
        let turning = usable.iter().filter(|(_, member)| !member.silent);
        // What waits at the sockets of a process that is stopped is for the others, where there are others.
        let usable: Vec<usize> = match turning.clone().count() {
            0 => usable.iter().map(|(index, _)| *index).collect(),
            _ => turning.map(|(index, _)| *index).collect(),
        };
        let Control { places, members, .. } = control;
        for (turn, place) in places.all_mut().enumerate() {
            let alone = place.listener.shards.len() == 1;
            let wanted: Vec<Vec<usize>> = (0..place.owners.len())
                .map(|shard| match usable.len() {
                    0 => Vec::new(),
                    _ if alone => usable.clone(),
                    count => vec![usable[(turn + shard) % count]],
                })
                .collect();
            place.hand_out(members, &wanted, &usable);
        }
    }
}

impl Keeper for Processes {
    fn give_up(&self, number: u64) -> GaveUp {
        let (mut place, answers) = {
            let mut control = lock(&self.control);
            let Some(place) = control.places.take_retiring(number) else { return GaveUp::Ended };
            control.given_up.push(place.slot);
            let holds = |index: usize| place.owners.iter().flatten().any(|owner| *owner == index);
            let holders = control.members.iter().enumerate().filter(|(index, _)| holds(*index));
            let links = holders.filter_map(|(_, member)| member.link.clone());
            let answers: Vec<_> = links.map(|link| link.ask_later(Request::Retire { listener: place.number }, &[])).collect();
            (place, answers)
        };
        self.await_retired(&place, &answers);
        let mut control = lock(&self.control);
        if let Some(at) = control.given_up.iter().position(|slot| *slot == place.slot) {
            control.given_up.swap_remove(at);
        }
        if control.stopping || control.readiness == Readiness::Draining {
            return GaveUp::Ended;
        }
        if is_empty(&place.listener, &*self.system) {
            return GaveUp::Empty;
        }
        place.owners.iter_mut().for_each(Vec::clear);
        // To the helpers they are others.
        place.number = control.take_number();
        control.places.retiring.push(place);
        self.rebalance(&mut control);
        GaveUp::NotYet
    }

    fn closed(&self, retirement: &Retirement) {
        self.tell(&retirement.told());
    }
}

impl Processes {
    /// Until each has given its sockets up. The channel closes when a helper is gone; whoever waits in a queue stays there. One that
    /// is stopped does neither: others are asked in its place, where there are others.
    fn await_retired(&self, place: &Place, answers: &[mpsc::Receiver<Reply>]) {
        for answer in answers {
            while let Err(mpsc::RecvTimeoutError::Timeout) = answer.recv_timeout(LOOK) {
                let control = lock(&self.control);
                let silent = |index: &usize| control.members.get(*index).is_some_and(|member| member.silent);
                let others = control.members.iter().any(|member| member.active && member.link.is_some() && !member.silent);
                if others && place.owners.iter().flatten().any(silent) {
                    return;
                }
            }
        }
    }
}

impl Place {
    /// Gives sockets to those that should have them, and takes them from the others. What one does not take, because it dies or has
    /// no descriptor left, stays with whom it was, or goes to another, until it is offered again.
    fn hand_out(&mut self, members: &[Member], wanted: &[Vec<usize>], usable: &[usize]) {
        self.offer(members, wanted);
        for other in usable {
            let orphans: Vec<_> =
                self.owners.iter().map(|owners| if owners.is_empty() { vec![*other] } else { Vec::new() }).collect();
            self.offer(members, &orphans);
        }
        let kept: Vec<Vec<usize>> = self
            .owners
            .iter()
            .zip(wanted)
            .map(|(owners, wanted)| {
                let right: Vec<usize> = owners.iter().copied().filter(|owner| wanted.contains(owner)).collect();
                if right.is_empty() { owners.clone() } else { right }
            })
            .collect();
        let leaving = (0..members.len()).filter_map(|member| {
            let shards = Place::more(&kept, &self.owners, member);
            let link = members[member].link.as_ref().filter(|_| !shards.is_empty())?;
            let answer = link.ask_later(Request::Release { listener: self.number, shards }, &[]);
            // One that is stopped has it in its mail.
            Some(answer).filter(|_| !members[member].silent)
        });
        let _ = wait_for(leaving.collect());
        self.owners = kept;
    }

    /// Offers what is wanted and not had; notes what was taken.
    fn offer(&mut self, members: &[Member], wanted: &[Vec<usize>]) {
        let offered = (0..members.len()).filter_map(|member| {
            let shards = Place::more(&self.owners, wanted, member);
            let link = members[member].link.as_ref().filter(|_| !shards.is_empty())?;
            let sockets: Vec<BorrowedFd<'_>> = shards.iter().map(|shard| self.listener.shards[*shard].socket()).collect();
            let address = self.listener.address.clone();
            let intake = self.door.intake();
            let take = Request::Take { listener: self.number, address, slot: self.slot, intake, shards: shards.clone() };
            Some((member, shards, link.ask_later(take, &sockets)))
        });
        for (member, shards, answer) in offered.collect::<Vec<_>>() {
            // One that is stopped has it in its mail.
            if matches!(answer.recv_timeout(ANSWERS_WITHIN), Ok(Reply::Done) | Err(mpsc::RecvTimeoutError::Timeout)) {
                shards.into_iter().for_each(|shard| self.owners[shard].push(member));
            }
        }
    }

    /// Sockets that a member has there and not here.
    fn more(here: &[Vec<usize>], there: &[Vec<usize>], member: usize) -> Vec<usize> {
        (0..here.len()).filter(|shard| there[*shard].contains(&member) && !here[*shard].contains(&member)).collect()
    }
}

impl Control {
    fn take_number(&mut self) -> u64 {
        next(&mut self.next_number)
    }

    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        self.members.iter().filter_map(|member| member.link.clone()).collect()
    }
}

fn next(number: &mut u64) -> u64 {
    *number += 1;
    *number - 1
}

/// Asks all; the first refusal is the answer. One that is gone refuses nothing: its successor begins with what is in force then.
fn agree(links: &[Arc<Link>], request: impl Fn() -> Request) -> Result<(), Error> {
    wait_for(links.iter().map(|link| link.ask_later(request(), &[])).collect())
}

fn wait_for(asked: Vec<mpsc::Receiver<Reply>>) -> Result<(), Error> {
    let mut outcome = Ok(());
    for answer in asked {
        match answer.recv_timeout(ANSWERS_WITHIN) {
            Ok(Reply::Refused(refusal)) if outcome.is_ok() => outcome = Err(refused(refusal)),
            Err(mpsc::RecvTimeoutError::Timeout) if outcome.is_ok() => {
                outcome = Err(Error::System { what: "reach a process", source: std::io::ErrorKind::TimedOut.into() });
            }
            _ => {}
        }
    }
    outcome
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Panicked(message) => Error::ServicePanicked { message },
        Refusal::Other(reason) => Error::InProcess { reason },
    }
}
