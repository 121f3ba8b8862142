//! Listening sockets and the members that hold them: sockets go to their new holder first, and are given up only when they are empty, so
//! that nothing that waits in a queue is lost.

use super::control::{Control, Core, Member};
use super::listeners::{ListenerEntry, Replacements, Replacing};
use super::members::Members;
use super::retire::{GaveUp, Keeper, Retirement, RetiringAddresses, is_empty};
use crate::config::Config;
use crate::error::Error;
use crate::sync::lock;
use std::time::{Duration, Instant};

/// Time between two looks at the members that hold the sockets that are to be given up.
const LOOK: Duration = Duration::from_millis(100);

impl<M: Members> Control<M> {
    /// Returns the members that are given sockets: those that take new connections, but for those that are stuck while others are not.
    fn usable(&self) -> Vec<usize> {
        let usable = |stuck: bool| -> Vec<usize> {
            let is_usable = |member: &Member<M>| {
                member.active && member.running.as_ref().is_some_and(M::can_take) && (stuck || !member.stuck)
            };
            (0..self.members.len()).filter(|index| is_usable(&self.members[*index])).collect()
        };
        let turning = usable(false);
        if turning.is_empty() { usable(true) } else { turning }
    }

    /// Returns the members that hold the sockets of an address, each by what distinguishes it from one that it replaced.
    fn holders(&self, entry: &ListenerEntry) -> Vec<Vec<u64>> {
        let life = |owner: &usize| self.members.get(*owner).map_or(0, |member| member.life);
        entry.owners.iter().map(|owners| owners.iter().map(life).collect()).collect()
    }
}

impl<M: Members> Core<M> {
    /// Gives sockets to the members that should have them, in turn, the new holder first; none is closed, none is left alone.
    pub(super) fn rebalance(&self, control: &mut Control<M>) {
        let usable = control.usable();
        let Control { listeners, members, .. } = control;
        for (turn, entry) in listeners.all_mut().enumerate() {
            let alone = entry.owners.len() == 1 && M::SHARE_A_SOCKET;
            let wanted = |socket: usize| match usable.len() {
                0 => Vec::new(),
                _ if alone => usable.clone(),
                count => vec![usable[(turn + socket) % count]],
            };
            let wanted: Vec<Vec<usize>> = (0..entry.owners.len()).map(wanted).collect();
            if entry.owners != wanted {
                self.hand_out(entry, members, &wanted, &usable);
            }
        }
        M::balanced(self, control);
    }

    /// Gives the sockets of an address to those that should have them, and takes them from the others. What a member does not take, because
    /// it dies or has no descriptor left, stays where it was, or goes to another, until it is offered again.
    fn hand_out(&self, entry: &mut ListenerEntry, members: &[Member<M>], wanted: &[Vec<usize>], usable: &[usize]) {
        self.offer(entry, members, wanted);
        for other in usable {
            let has_none = |owners: &Vec<usize>| if owners.is_empty() { vec![*other] } else { Vec::new() };
            let orphans: Vec<Vec<usize>> = entry.owners.iter().map(has_none).collect();
            self.offer(entry, members, &orphans);
        }
        let kept: Vec<Vec<usize>> = entry
            .owners
            .iter()
            .zip(wanted)
            .map(|(owners, wanted)| {
                let right: Vec<usize> = owners.iter().copied().filter(|owner| wanted.contains(owner)).collect();
                if right.is_empty() { owners.clone() } else { right }
            })
            .collect();
        let releases = |(index, member)| Some((member, more(&kept, &entry.owners, index)));
        let released: Vec<_> =
            members.iter().enumerate().filter_map(releases).filter(|(_, sockets)| !sockets.is_empty()).collect();
        if !released.is_empty() {
            self.own.release(entry, &released);
        }
        entry.owners = kept;
    }

    /// Offers what is wanted and not had; notes what was taken.
    fn offer(&self, entry: &mut ListenerEntry, members: &[Member<M>], wanted: &[Vec<usize>]) {
        let offers = (0..members.len()).filter(|index| members[*index].running.is_some());
        let offers = offers.map(|index| (index, more(&entry.owners, wanted, index))).filter(|(_, sockets)| !sockets.is_empty());
        let (indexes, offers): (Vec<_>, Vec<_>) = offers.map(|(index, sockets)| (index, (&members[index], sockets))).unzip();
        if offers.is_empty() {
            return;
        }
        let taken = self.own.offer(entry, &offers);
        for ((index, (_, sockets)), _) in indexes.into_iter().zip(offers).zip(taken).filter(|(_, taken)| *taken) {
            sockets.into_iter().for_each(|socket| entry.owners[socket].push(index));
        }
    }

    /// Opens sockets at addresses that the pool has: all of them, or none.
    pub(super) fn open_replacements(&self, control: &mut Control<M>, wanted: &Config) -> Result<Replacing, Error> {
        let Control { config, listeners, next_number, .. } = control;
        let number = || {
            *next_number += 1;
            *next_number - 1
        };
        match listeners.open_replacements((config.listened(), wanted), &self.retirements, number) {
            Replacements::Opened(replacing) => Ok(replacing),
            Replacements::Failed(error, gone) => {
                self.rebalance(control);
                self.retire_listeners(control, gone);
                Err(error)
            }
        }
    }

    /// Takes listening sockets for good: no other process takes them back any more. What it had is given what the configuration says, and addresses
    /// that were removed meanwhile go.
    pub(super) fn take_for_good(&self) {
        {
            let mut control = lock(&self.control);
            // Handed over in turn: then they are the next one's.
            if control.handing_over {
                return;
            }
            let Control { listeners, config, .. } = &mut *control;
            let (taken, gone) = listeners.take_for_good(config);
            let taken = control.listeners.listening.iter().filter(|entry| taken.contains(&entry.number));
            // Not waited for: the end of the pool may be next.
            M::pass_listener_accept_states(self, &control, &taken.collect::<Vec<_>>(), Duration::ZERO);
            self.retire_listeners(&mut control, gone);
        }
        self.retirements.carry_out_left();
        self.own.notifier().notify();
    }

    /// Takes these sockets from all members; nothing is done to what waits there.
    pub(super) fn release_all(&self, entry: &mut ListenerEntry, members: &[Member<M>]) {
        let owners = &entry.owners;
        let sockets = |index| {
            let held = owners.iter().enumerate().filter(move |(_, owners)| owners.contains(&index));
            held.map(|(socket, _)| socket).collect()
        };
        let released: Vec<_> = members.iter().enumerate().map(|(index, member)| (member, sockets(index))).collect();
        self.own.release(entry, &released);
        entry.owners.iter_mut().for_each(Vec::clear);
    }

    /// Ends sockets by their numbers, in the background; others have taken the place of those marked so, and accept.
    pub(super) fn retire_listeners(&self, control: &mut Control<M>, gone: Vec<(u64, bool)>) -> RetiringAddresses {
        self.retirements.start(control.listeners.retire(gone, &**self.own.system()))
    }
}

/// Sockets that a member has there and not here.
fn more(here: &[Vec<usize>], there: &[Vec<usize>], member: usize) -> Vec<usize> {
    (0..here.len()).filter(|socket| there[*socket].contains(&member) && !here[*socket].contains(&member)).collect()
}

impl<M: Members> Keeper for Core<M> {
    fn give_up(&self, number: u64) -> GaveUp {
        let (mut answers, asked) = {
            let control = lock(&self.control);
            let Some(entry) = control.listeners.retiring(number) else { return GaveUp::Ended };
            (M::let_go(self, &control, entry), control.holders(entry))
        };
        loop {
            // A member that is stuck neither answers nor goes: others have its sockets then, and are asked next.
            let over = answers.rest_by(Instant::now() + LOOK);
            let mut control = lock(&self.control);
            let Some(entry) = control.listeners.retiring(number).filter(|_| !control.stopping) else { return GaveUp::Ended };
            if control.holders(entry) != asked {
                return GaveUp::NotYet;
            }
            if over && is_empty(&entry.listener, &**self.own.system()) {
                control.listeners.take_retiring(number);
                return GaveUp::Empty;
            }
            if over {
                let retiring = control.listeners.retiring.iter_mut().filter(|entry| entry.retirement == number);
                retiring.for_each(|entry| entry.owners.iter_mut().for_each(Vec::clear));
                self.rebalance(&mut control);
                return GaveUp::NotYet;
            }
        }
    }

    fn closed(&self, retirement: &Retirement) {
        self.tell(&retirement.told());
        self.own.notifier().notify();
    }
}
