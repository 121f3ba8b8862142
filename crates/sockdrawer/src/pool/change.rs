//! Changing a pool: prepare all that can fail, commit by one store, retire. A failure leaves everything as it was.

use super::control::{Control, Core, Started, is_running};
use super::listeners::{ListenerEntry, Replacing};
use super::members::{Changing, Members};
use super::plan::{Applied, How, Plan, Sockets, plan};
use super::retire::RetiringAddresses;
use super::validate::{validate, validate_addresses};
use crate::admission::AcceptState;
use crate::config::{Config, Listening, Revision};
use crate::error::Error;
use crate::event_loop::generation::MAX_GENERATIONS;
use crate::listen::passed_on::PassedOn;
use crate::net::Address;
use crate::observe::{Event, Readiness};
use crate::sync::lock;
use std::sync::Arc;
use std::time::Duration;

/// All that a change needs, made before anything is changed.
struct PreparedChange<M: Members> {
    next: Option<M::Next>,
    added: Vec<ListenerEntry>,
    /// New sockets by the index of the listener that each replaces.
    replacing: Replacing,
    started: Started<M>,
    limit: Option<usize>,
}

impl<M: Members> Core<M> {
    /// Makes a change from its beginning to its end. Also returns the configuration before it: its service and observer are the user's, and are
    /// dropped without the lock, under which changes come one after another.
    pub(super) fn change(&self, wanted: Config) -> Result<(Applied, Config, RetiringAddresses), Error> {
        let mut control = lock(&self.control);
        if control.handing_over {
            let reason = match control.listeners.handed_over.is_empty() && control.accept_state == AcceptState::Suspended {
                true => "it takes no connections before Upgrade::ready: change it after that",
                false => "a new build of the program takes over: change its pool",
            };
            return Err(Error::HandingOver { reason });
        }
        self.change_now(&mut control, wanted)
    }

    /// Makes a change as [`Core::change`] does, also where another process may have, or take back, what the pool listens at.
    pub(super) fn change_now(
        &self,
        control: &mut Control<M>,
        wanted: Config,
    ) -> Result<(Applied, Config, RetiringAddresses), Error> {
        let plan = check(&control.readiness, (&control.config, control.revision), &wanted)?;
        let prepared = self.prepare(control, &plan, &wanted)?;
        let (before, begun) = self.commit(control, wanted, prepared);
        if !plan.changes.is_empty() {
            control.revision.raise();
        }
        let (generation, revision) = (control.generation, control.revision.number());
        Ok((Applied { plan, generation, revision, took: Duration::ZERO }, before, begun))
    }

    fn prepare(&self, control: &mut Control<M>, plan: &Plan, wanted: &Config) -> Result<PreparedChange<M>, Error> {
        let limit = self.own.limit(&control.own, wanted)?;
        let next = if plan.has(How::NewGeneration) {
            check_generations(wanted, M::live_generations(self, control, wanted).into_iter())?;
            Some(self.own.next(control, wanted)?)
        } else {
            None
        };
        // Only in a build with this mistake: the generation comes into force before all that can fail was done.
        #[cfg(sockdrawer_broken = "switch-before-prepare")]
        let next = next.and_then(|next| {
            M::commit(self, control, wanted, Some(next), limit);
            None
        });
        let added = self.open_added(control, wanted)?;
        let (started, outcome) = self.start_members(control, wanted);
        let change = Changing { wanted, next, started };
        match outcome.and_then(|()| self.prepare_members(control, &change)) {
            Ok(replacing) => Ok(PreparedChange { next: change.next, started: change.started, added, replacing, limit }),
            Err(error) => {
                change.started.iter().filter_map(|(_, member)| member.running.as_ref()).for_each(M::dismiss);
                added.into_iter().for_each(ListenerEntry::put_back);
                Err(error)
            }
        }
    }

    /// Opens the addresses that the pool has not: all of them, or none.
    fn open_added(&self, control: &mut Control<M>, wanted: &Config) -> Result<Vec<ListenerEntry>, Error> {
        let mut added = Vec::new();
        let running = control.config.listened().to_vec();
        for listening in Sockets::between(&running, wanted.listened()).added {
            match M::open(self, control, &added, (wanted, listening)) {
                Ok(entry) => added.push(entry),
                Err(error) => {
                    added.into_iter().for_each(ListenerEntry::put_back);
                    return Err(error);
                }
            }
        }
        Ok(added)
    }

    fn prepare_members(&self, control: &mut Control<M>, change: &Changing<'_, M>) -> Result<Replacing, Error> {
        let prepared = M::tune(self, control, change.wanted).and_then(|()| M::prepare(self, control, change));
        // Last, because connections come to these sockets.
        let replacing = prepared.and_then(|()| self.open_replacements(control, change.wanted));
        replacing.inspect_err(|_| M::undo(self, control, change))
    }

    /// Commits a change: nothing here can fail for a reason that the caller could mend. Returns the configuration before.
    fn commit(&self, control: &mut Control<M>, wanted: Config, prepared: PreparedChange<M>) -> (Config, RetiringAddresses) {
        // First: the members hear of the switch.
        control.put(prepared.started);
        // Members that are not wanted go on with the connections they have; members that come back are the first of the list.
        for (index, member) in control.members.iter_mut().enumerate() {
            member.active = index < M::wanted(&wanted);
        }
        M::commit(self, control, &wanted, prepared.next, prepared.limit);
        let limiter = self.own.limiter();
        if let Some(limit) = prepared.limit {
            limiter.set_limit(limit);
            if control.config.alarms != wanted.alarms {
                limiter.set_alarms(&wanted.alarms);
            }
        }
        let system = &**self.own.system();
        if control.config.accept_queue() != wanted.accept_queue() {
            control.listeners.set_backlog(wanted.accept_queue(), system);
        }
        let Control { config, listeners, .. } = control;
        let gone = listeners.take_listeners((config.listened(), &wanted), &self.retirements, prepared.replacing);
        listeners.set_limits(&wanted);
        for mut entry in prepared.added {
            entry.asked.passed_on = None;
            // A pool that takes over tells it once it takes connections.
            if !control.handing_over {
                self.tell(&Event::Listening(entry.listener.address.clone()));
            }
            control.listeners.listening.push(entry);
        }
        let before = std::mem::replace(&mut control.config, wanted);
        self.rebalance(control);
        M::committed(self, control, &before);
        (before, self.retire_listeners(control, gone))
    }
}

impl<M: Members> Core<M> {
    /// Stops accepting at an address, whose sockets another pool of this process gets, with all that waits there.
    pub(super) fn pass_on(&self, address: &Address) -> Result<Listening, Error> {
        let mut control = lock(&self.control);
        is_running(&control.readiness)?;
        if control.handing_over {
            return Err(Error::HandingOver { reason: "a new build of the program takes over: change its pool" });
        }
        let Control { listeners, members, config, .. } = &mut *control;
        let mut entry = listeners.take(address)?;
        self.release_all(&mut entry, members);
        let before = config.clone();
        *config = before.clone().listeners(|listeners| {
            let at = listeners.iter().rposition(|listening| listening.is_same_place(&entry.asked));
            at.into_iter().for_each(|at| _ = listeners.remove(at));
        });
        control.revision.raise();
        M::committed(self, &control, &before);
        self.tell(&Event::ListenerRemoved(entry.listener.address.clone()));
        let mut listening = entry.asked;
        listening.passed_on = Some(Arc::new(PassedOn::new(entry.listener)));
        Ok(listening)
    }
}

/// Returns the plan of a change, if it may be made at all.
fn check(readiness: &Readiness, running: (&Config, Revision), wanted: &Config) -> Result<Plan, Error> {
    is_running(readiness)?;
    let (running, revision) = running;
    if let Some(based_on) = revision.conflicts_with(wanted.based_on) {
        return Err(Error::Conflict { based_on, current: revision.number() });
    }
    let plan = checked_plan(running, wanted)?;
    match plan.changes.iter().find(|change| change.how == How::Refused) {
        Some(refused) => Err(Error::CannotChange { setting: refused.setting, reason: refused.detail.clone() }),
        None => Ok(plan),
    }
}

/// Returns the plan of a change to a configuration that makes sense, or in which at least each address is one where the plan refuses a change.
pub(super) fn checked_plan(running: &Config, wanted: &Config) -> Result<Plan, Error> {
    validate_addresses(wanted)?;
    let plan = plan(running, wanted);
    if !plan.has(How::Refused) {
        validate(wanted)?;
    }
    Ok(plan)
}

/// Fails if there may not be one more generation than the `live` ones: those in force or with connections, oldest first.
fn check_generations(wanted: &Config, live: impl ExactSizeIterator<Item = (u32, usize)>) -> Result<(), Error> {
    let (count, mut live) = (live.len(), live);
    let most = wanted.max_generations.map_or(MAX_GENERATIONS, |most| most.min(MAX_GENERATIONS));
    match live.next() {
        Some((oldest, connections)) if count >= most => Err(Error::TooManyGenerations { live: count, oldest, connections }),
        _ => Ok(()),
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
}
