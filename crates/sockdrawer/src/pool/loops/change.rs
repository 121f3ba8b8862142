//! Changes of a configuration, as loops carry them out.

use super::apply::{ASK_WITHIN, ask, inboxes_of};
use super::{Loops, LoopsState, prepare_generation};
use crate::admission::AcceptState;
use crate::clock::deadline;
use crate::config::{Config, Endpoint};
use crate::error::Error;
use crate::event_loop::connections::entering;
use crate::event_loop::dialer::Dialer;
use crate::event_loop::generation::Generation;
use crate::event_loop::inbox::Message;
use crate::limit::policy::Policy;
use crate::model;
use crate::net::SocketOptions;
use crate::observe::Event;
use crate::pool::control::{Control, Core};
use crate::pool::plan::is_same_policy;
use crate::pool::validate::{validate, warm};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub(super) fn commit(
    core: &Core<Loops>,
    control: &mut Control<Loops>,
    wanted: &Config,
    next: Option<Arc<Generation>>,
    limit: Option<usize>,
) {
    if let Some(generation) = next {
        core.own.switch_to(control, generation);
    }
    core.own.commit_dialer(control, wanted, limit);
    let shared = &core.own.shared;
    if !is_same_policy(&*control.config.admission, &*wanted.admission) {
        shared.set_admission(wanted.admission.clone());
        control.running().for_each(|running| running.command(|event_loop| event_loop.intake().policy_changed()));
    }
    *lock(&shared.observer) = wanted.observer.clone();
    // A worker that died in this moment and cannot be started is the supervisor's matter.
    let _ = super::start_workers(core, wanted.workers);
    shared.workers.set_bound(wanted.worker_queue);
    shared.set_spin(wanted.spin);
    shared.set_spare(wanted.spare);
    shared.placement.iter().for_each(|placement| placement.reconfigured(wanted));
    shared.delegates.tune(model::delegates(wanted), wanted.stack);
    for running in control.running() {
        running.inbox.set_bound(wanted.inbox);
        if control.config.spare != wanted.spare {
            running.command(|event_loop| event_loop.intake().policy_changed());
        }
        if control.config.capacity != wanted.capacity {
            let capacity = warm(wanted);
            running.command(move |event_loop| entering::reserve(&mut event_loop.connections.streams, capacity));
        }
    }
}

/// Builds, in one of several processes, what comes into force when the pool stores the switch word. Returns the generation in force until then.
pub(in crate::pool) fn prepare_next(core: &Core<Loops>, id: u32, wanted: &Config) -> Result<Arc<Generation>, Error> {
    validate(wanted)?;
    let control = lock(&core.control);
    let generation = prepare_generation(id, wanted, control.members.len())?;
    core.own.set_listener_options(&control, &control.config.settings.options, &wanted.settings.options)?;
    let before = core.own.shared.switch.current();
    core.own.shared.switch.prepare(Some(generation));
    Ok(before)
}

/// Forgets the prepared generation, which will not come.
pub(in crate::pool) fn forget_next(core: &Core<Loops>, next: &Config) -> Result<(), Error> {
    core.own.shared.switch.prepare(None);
    let control = lock(&core.control);
    core.own.set_listener_options(&control, &next.settings.options, &control.config.settings.options)
}

/// Notes that the switch word was stored. Returns the configuration before.
pub(in crate::pool) fn next_is_in_force(core: &Core<Loops>, next: Config) -> Config {
    let mut control = lock(&core.control);
    core.own.retire_before(&mut control);
    std::mem::replace(&mut control.config, next)
}

impl Loops {
    fn commit_dialer(&self, control: &mut Control<Loops>, wanted: &Config, limit: Option<usize>) {
        let limiter = &self.shared.limiter;
        let (before, same) = (control.own.dialer.clone(), same_dialer(&control.config, wanted));
        if let Endpoint::Connect(connecting) = &wanted.endpoint
            && !same
        {
            control.own.dialer = Some(Dialer::new(connecting.clone(), before.as_deref()));
        }
        if let (Some(before), Some(dialer)) = (&before, &control.own.dialer)
            && (!same || limit.is_some_and(|limit| limit != limiter.limit()))
        {
            // Before there is room for more.
            dialer.follow(before, limiter.taken() >= limiter.limit(), Instant::now());
        }
    }

    /// Tells each loop what it connects, and all loops which of them take connections from sockets that are alone at their address.
    pub(super) fn balanced(&self, control: &mut Control<Loops>) {
        let Control { listeners, members, accept_state, own: LoopsState { dialer, .. }, .. } = control;
        for member in members.iter_mut() {
            let wanted = dialer.as_ref().filter(|_| member.active && *accept_state == AcceptState::Open);
            let Some(running) = &mut member.running else { continue };
            if running.dials.as_ref().map(Arc::as_ptr) != wanted.map(Arc::as_ptr) {
                running.dials = wanted.cloned();
                let dialer = wanted.cloned();
                running.command(move |event_loop| event_loop.set_dialer(dialer));
            }
        }
        let usable = members.iter().filter(|member| member.active && !member.stuck).filter_map(|member| member.running.as_ref());
        let roster: Vec<_> = usable.map(|running| running.inbox.clone()).collect();
        listeners.all().for_each(|entry| entry.listener.spread_over(roster.len()));
        *lock(&self.shared.roster) = roster;
    }

    /// Has every loop take connections or not; when this returns, they do, but for those that have not turned until then.
    pub(super) fn pass_accept_state(&self, control: &mut Control<Loops>, until: Instant) {
        if let Some(dialer) = &control.own.dialer {
            dialer.set_paused(control.accept_state != AcceptState::Open, Instant::now());
        }
        self.balanced(control);
        for running in control.running() {
            let accept_state = control.accept_state.clone();
            running.command(move |event_loop| event_loop.intake().set_accept_state(&accept_state));
        }
        ask(&inboxes_of(control), until, |_| ()).for_each(drop);
    }

    /// Sets the options that connections inherit from their listener, for no system call of their own. Undone when one socket refuses.
    pub(super) fn set_listener_options(
        &self,
        control: &Control<Loops>,
        old: &SocketOptions,
        new: &SocketOptions,
    ) -> Result<(), Error> {
        if old == new {
            return Ok(());
        }
        for entry in &control.listeners.retiring {
            // A connection still to come out of a retiring socket may get them too late: that socket is on its way out.
            let _ = entry.listener.set_options(&*self.shared.system, new);
        }
        for entry in &control.listeners.listening {
            if let Err(errno) = entry.listener.set_options(&*self.shared.system, new) {
                for entry in &control.listeners.listening {
                    // The old options were set before, so they can be set again.
                    let _ = entry.listener.set_options(&*self.shared.system, old);
                }
                let reason = format!("the system refuses it: {}", std::io::Error::from(errno));
                return Err(Error::Invalid { setting: "settings.options", reason });
            }
        }
        Ok(())
    }

    /// Has every connection counted as the policy asks for when this returns. Connections that were on their way from one loop to another when the
    /// first looked have arrived when the second has looked twice.
    pub(super) fn count_peers(&self, control: &Control<Loops>) {
        let counts = |policy: &Policy| policy.peer_counts.is_some();
        if !counts(&self.shared.policy.get()) {
            return;
        }
        for _ in 0..2 {
            let mut inboxes = inboxes_of(control);
            inboxes.extend(self.shared.placement.iter().flat_map(|placement| placement.inboxes()));
            ask(&inboxes, Instant::now() + ASK_WITHIN, |event_loop| event_loop.intake().count_peers()).for_each(drop);
        }
    }

    fn switch_to(&self, control: &mut Control<Loops>, generation: Arc<Generation>) {
        let id = generation.id;
        self.shared.switch.commit(generation);
        self.shared.tell(&Event::GenerationStarted(id));
        self.retire_before(control);
    }

    /// Does what follows from the switch: ended generations are told, and loops without traffic look at it.
    fn retire_before(&self, control: &mut Control<Loops>) {
        let generation = self.shared.switch.current();
        let live = control.own.live_generations(control.generation);
        for old in live.iter().filter(|old| old.has_ended()) {
            self.shared.tell(&Event::GenerationEnded(old.id));
        }
        control.generation = generation.id;
        control.own.generations.push(Arc::downgrade(&generation));
        let placed = self.shared.placement.iter().flat_map(|placement| placement.inboxes());
        for inbox in inboxes_of(control).into_iter().chain(placed) {
            // A loop without traffic would hold the old service until its next connection.
            let _ = inbox.put(Message::Command(Box::new(|event_loop| event_loop.connections.streams.look_at_switch())));
        }
    }
}

impl LoopsState {
    /// Returns the generation in force and those with connections. Retired ones without any are forgotten.
    pub(crate) fn live_generations(&mut self, newest: u32) -> Vec<Arc<Generation>> {
        let live: Vec<_> = self
            .generations
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|generation| generation.id == newest || generation.live.load(Ordering::SeqCst) > 0)
            .collect();
        self.generations = live.iter().map(Arc::downgrade).collect();
        live
    }
}

/// Listeners were opened or closed; when this returns, every loop knows that has answered within this time.
pub(crate) fn listener_states_changed(control: &Control<Loops>, within: Duration) {
    let until = deadline(Instant::now(), within);
    ask(&inboxes_of(control), until, |event_loop| event_loop.intake().policy_changed()).for_each(drop);
}

/// Returns true where a change leaves the connects of a pool as they are.
pub(super) fn same_dialer(one: &Config, other: &Config) -> bool {
    match (&one.endpoint, &other.endpoint) {
        (Endpoint::Connect(one), Endpoint::Connect(other)) => one.has_same_connects(other),
        _ => true,
    }
}
