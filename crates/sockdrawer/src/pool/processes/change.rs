//! A change of a pool of processes: every helper prepares, then one word is stored that all of them look at when they accept.

use super::channel::{ANSWERS_WITHIN, Channel};
use super::helpers::{Announced, Helpers, told};
use super::supervise::report;
use super::wire::{Generated, HelperRequest, Start, Tuning, VERSION};
use crate::behaviour::Kind;
use crate::config::{Config, Listening, Model};
use crate::error::Error;
use crate::gather;
use crate::ipc::shared_counters::MAX_LISTENERS;
use crate::limit::limiter::Process;
use crate::listen::state::ListenerState;
use crate::model::fork::MOST;
use crate::model::prefork;
use crate::observe::Event;
use crate::pool::control::{Control, Core};
use crate::pool::listeners::ListenerEntry;
use crate::pool::request::{Refusal, Reply};
use crate::pool::validate::own_descriptors;
use crate::sync::atomic::Ordering;
use crate::sys;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Returns the connections that one of several processes may have, by its descriptors; it may get every listening socket.
fn fits_in_process(config: &Config) -> usize {
    if config.model == Model::Fork {
        let free = sys::descriptor_limit().saturating_sub(own_descriptors(config));
        // The helper keeps the connection of another program; any other it has only until its process is made.
        let each = config.behaviour.service().kind() == Kind::Program;
        return if each { free.min(MOST) } else { free.min(1) * MOST };
    }
    let own = own_descriptors(config) + 2 * config.loops;
    sys::descriptor_limit().saturating_sub(own)
}

impl Helpers {
    /// Returns permits that descriptors allow, in all processes together.
    pub(super) fn effective_limit(config: &Config) -> Result<usize, Error> {
        prefork::check(config)?;
        let most = fits_in_process(config).saturating_mul(prefork::processes(config));
        match config.limit {
            asked if config.model == Model::Fork && most < asked.unwrap_or(1).min(MOST) => {
                let (asked, own) = (asked.unwrap_or(1), own_descriptors(config));
                Err(Error::LimitTooHigh {
                    setting: "limit",
                    asked,
                    needed: asked + own,
                    allowed: sys::descriptor_limit(),
                    open: 0,
                    fits: most,
                })
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

    /// Takes back what a process that is gone held of each limiter.
    pub(super) fn reclaim(&self, slots: usize, index: usize) {
        self.shared_counters.reclaim(index);
        (0..slots).for_each(|slot| self.shared_counters.listener(slot).reclaim(index));
    }
}

/// Commits a change: one store, and from here on every accept, in whatever process, sees the new generation.
pub(super) fn switch_to(core: &Core<Helpers>, control: &mut Control<Helpers>, next: Generated) {
    let id = next.id;
    let lives = control.members.iter().filter(|member| member.running.is_some()).map(|member| member.life);
    control.own.holders.insert(id, lives.collect());
    core.own.shared_counters.epoch().fetch_add(1, Ordering::SeqCst);
    core.tell(&Event::GenerationStarted(id));
    (control.generation, control.own.generated) = (id, next);
    // A helper that is gone is replaced, and its successor begins with this generation.
    let _ = agree(control.running(), || HelperRequest::Committed);
    // Perhaps no process had the generation before: every process was dead in that moment.
    control.own.take_ended().into_iter().for_each(|id| core.tell(&Event::GenerationEnded(id)));
}

/// Opens a new address, with a listener of its own, beside those that the same change adds.
pub(super) fn open(
    core: &Core<Helpers>,
    control: &mut Control<Helpers>,
    pending: &[ListenerEntry],
    config: &Config,
    listening: &Listening,
) -> Result<ListenerEntry, Error> {
    let listener = control.listeners.listen((config, listening), &core.retirements, pending)?;
    let slot = free_slot(core, control, pending)?;
    control.own.slots = control.own.slots.max(slot + 1);
    let shared_counters = core.own.shared_counters.listener(slot);
    shared_counters.clear_limiter();
    let process = Process { index: None, most: 0, event: core.own.event.clone(), system: core.own.system.clone() };
    let state = ListenerState::new((listener.address.clone(), None), shared_counters, listening.limit, Some(process));
    Ok(ListenerEntry::new(control.take_number(), listening, listener, state, slot))
}

/// Returns a place for the numbers of a listener: one that no address has, nor any connection of one that is gone.
fn free_slot(core: &Core<Helpers>, control: &Control<Helpers>, pending: &[ListenerEntry]) -> Result<usize, Error> {
    let used: BTreeSet<usize> = control.listeners.all().chain(pending).map(|one| one.slot).collect();
    let free =
        |slot: &usize| !used.contains(slot) && core.own.shared_counters.listener(*slot).taken().load(Ordering::SeqCst) == 0;
    (0..MAX_LISTENERS).find(free).ok_or_else(|| Error::Invalid {
        setting: "listeners",
        reason: format!("more than {MAX_LISTENERS} addresses, with those that are gone and still have connections"),
    })
}

/// Returns what a process begins with.
pub(super) fn announce(core: &Core<Helpers>, control: &Control<Helpers>, config: &Config, index: usize) -> Announced {
    // A process that had this number before may have left something behind.
    core.own.reclaim(control.own.slots, index);
    let start = Start {
        version: VERSION.to_owned(),
        model: config.model,
        index,
        most: fits_in_process(config),
        generated: control.own.generated.clone(),
        tuning: Tuning::of(config),
        accept_state: control.accept_state.clone(),
        observed: config.observer.is_some(),
    };
    Announced { start, revision: control.revision.number() }
}

/// Starts it and waits until it is there, which needs no lock.
pub(super) fn launch(core: &Core<Helpers>, life: u64, announced: &Announced) -> Result<Arc<Channel>, Error> {
    let failed = |source| Error::System { what: "start a process", source };
    let (reports, index) = (core.reports.clone(), announced.start.index);
    // The supervisor is gone when the pool is.
    let tell = move |news| report(index, life, news).into_iter().for_each(|news| _ = reports.send(news));
    let channel = Channel::start(&format!("{} {index}", announced.start.model), tell).map_err(failed)?;
    let descriptors = [core.own.numbers.as_fd(), core.own.event.as_fd()];
    let start = HelperRequest::Start(Box::new(announced.start.clone()));
    match gather::ask(Instant::now() + ANSWERS_WITHIN, |reply| channel.tell(start, &descriptors, reply)) {
        Some(Reply::Done) => Ok(channel),
        Some(Reply::Refused(refusal)) => {
            // It may not have been told at all, and would wait for that.
            channel.close();
            Err(refused(refusal))
        }
        _ => {
            // At once: this program may end before it would, and leave it behind.
            channel.kill();
            channel.close();
            Err(failed(std::io::Error::other("the helper does not answer: does main begin with sockdrawer::processes?")))
        }
    }
}

/// Tells all; the first refusal is the answer. One that is gone refuses nothing: its successor begins with what is in force then.
pub(super) fn agree<'a>(
    channels: impl Iterator<Item = &'a Arc<Channel>>,
    request: impl Fn() -> HelperRequest,
) -> Result<(), Error> {
    let mut answers = told(channels, ANSWERS_WITHIN, request);
    let refusal =
        answers.by_ref().find_map(|(_, reply)| if let Some(Reply::Refused(refusal)) = reply { Some(refusal) } else { None });
    // The others are waited for too: what they do is over then.
    match (refusal, answers.rest()) {
        (Some(refusal), _) => Err(refused(refusal)),
        (None, true) => Ok(()),
        (None, false) => Err(Error::System { what: "reach a process", source: std::io::ErrorKind::TimedOut.into() }),
    }
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Panicked(message) => Error::ServicePanicked { message },
        Refusal::Other(reason) => Error::InProcess { reason },
    }
}
