//! Supervision of processes: one that dies is replaced, its permits come back, its sockets go to its successor.

use super::channel::FromChannel;
use super::helpers::{Helpers, HelpersState, parts};
use super::recount::{Finding, Recount};
use crate::ipc::shared_counters::SharedCounters;
use crate::observe::Event;
use crate::pool::control::{Control, Core, FromMember};
use crate::sync::atomic::Ordering;
use crate::sync::lock;

/// News of helpers for their pool, beside their end.
pub(crate) enum HelperNews {
    /// A helper has no connection left of a retired generation.
    GenerationEnded {
        generation: u32,
        life: u64,
    },
    Event(Event),
}

/// Returns what the supervisor of a pool has to hear of a helper's news. None: nothing.
pub(super) fn report(index: usize, life: u64, news: FromChannel) -> Option<FromMember<HelperNews>> {
    Some(match news {
        FromChannel::Ended(how) => FromMember::Ended { index, life, reason: how.to_string() },
        FromChannel::Event(Event::GenerationEnded(generation)) => {
            FromMember::News(HelperNews::GenerationEnded { generation, life })
        }
        // The pool says itself that it is ready, and where it listens.
        FromChannel::Event(Event::ReadinessChanged(_) | Event::ListenerRemoved(_)) => return None,
        FromChannel::Event(event) => FromMember::News(HelperNews::Event(event)),
    })
}

impl HelpersState {
    /// Returns the generations that no process has any more without it.
    fn forget_holder(&mut self, life: u64) -> Vec<u32> {
        self.holders.values_mut().for_each(|holders| _ = holders.remove(&life));
        self.take_ended()
    }

    /// Forgets the generations that no process has any more, and returns them.
    pub(super) fn take_ended(&mut self) -> Vec<u32> {
        let newest = self.generated.id;
        let ended = self.holders.iter().filter(|(id, holders)| **id != newest && holders.is_empty());
        let ended: Vec<u32> = ended.map(|(id, _)| *id).collect();
        ended.iter().for_each(|id| _ = self.holders.remove(id));
        ended
    }
}

/// Takes back what a process that has ended held: permits, connections, and its part of each of its generations.
pub(super) fn helper_ended(core: &Core<Helpers>, control: &mut Control<Helpers>, index: usize, life: u64) -> (Vec<Event>, bool) {
    let mut dismissed = false;
    if control.members.get(index).is_some_and(|member| member.life == life) {
        let slots = control.own.slots;
        core.own.reclaim(slots, index);
        control.own.at_listeners.begin(slots);
        control.listeners.all().for_each(|entry| entry.state.limiter.call());
        core.own.limiter.look_at_alarms();
        core.own.close_lost(index);
        control.own.recount = Some(Recount::default());
        dismissed = control.members[index].running.take().is_some_and(|channel| channel.is_dismissed());
        core.own.limiter.call();
    }
    let ended = control.own.forget_holder(life);
    (ended.into_iter().map(Event::GenerationEnded).collect(), dismissed)
}

pub(super) fn generation_ended(core: &Core<Helpers>, generation: u32, life: u64) {
    let mut control = lock(&core.control);
    control.own.holders.entry(generation).and_modify(|holders| _ = holders.remove(&life));
    let ended = control.own.take_ended();
    drop(control);
    ended.into_iter().for_each(|id| core.tell(&Event::GenerationEnded(id)));
}

/// Takes back permits of the pool and of listeners that no process holds, see [`Recount`].
fn recount(core: &Core<Helpers>, control: &mut Control<Helpers>) {
    // A helper stopped by SIGSTOP may have taken a permit that it has not noted yet: permits count as lost only where every helper answers. Where one
    // is known to be stopped nothing is asked: that would hold the lock for as long as an answer is waited for, at each look.
    if control.members.iter().any(|member| member.stuck) {
        return;
    }
    let channels: Vec<_> = control.running().cloned().collect();
    let all_answer = || parts(&channels).len() == channels.len();
    if let Some(recount) = &mut control.own.recount
        && found(recount, &core.own.shared_counters, &all_answer)
    {
        control.own.recount = None;
        core.own.limiter.look_at_alarms();
    }
    control.own.at_listeners.look(|slot, recount| found(recount, &core.own.shared_counters.listener(slot), &all_answer));
}

/// Ends processes that are not wanted and have no connection left, and looks for permits that no process holds.
pub(super) fn look_after(core: &Core<Helpers>, control: &mut Control<Helpers>) {
    for (index, member) in control.members.iter().enumerate().filter(|(_, member)| !member.active) {
        // The helper has no socket to accept from, and nothing more to do.
        if core.own.shared_counters.held(index).load(Ordering::SeqCst) == 0 {
            member.running.iter().for_each(|channel| channel.dismiss());
        }
    }
    recount(core, control);
}

/// Returns true where the numbers of a limiter add up. Permits that are lost for sure are taken back first.
fn found(recount: &mut Recount, shared_counters: &SharedCounters, all_answer: &impl Fn() -> bool) -> bool {
    match recount.look(shared_counters.unaccounted()) {
        Finding::Unclear => false,
        Finding::Whole => true,
        Finding::Lost(lost) => {
            let is_lost = all_answer() && shared_counters.unaccounted() == Some(lost);
            if is_lost {
                shared_counters.taken().fetch_sub(lost, Ordering::SeqCst);
            }
            is_lost
        }
    }
}
