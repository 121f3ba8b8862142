//! Which member holds which listening socket: sockets go to their new holder first, and are given up only when they are empty, so
//! that nothing that waits in a queue is lost.

use super::control::{Control, Core, Member};
use super::members::Members;
use super::places::{Place, Replacements, Replacing};
use super::retire::{Begun, GaveUp, Keeper, Retirement, is_empty};
use crate::config::Config;
use crate::error::Error;
use crate::sync::{lock, mpsc};
use std::time::{Duration, Instant};

/// Between two looks at the members that hold the sockets that are to be given up.
const LOOK: Duration = Duration::from_millis(100);

impl<M: Members> Control<M> {
    /// The members that are given sockets: those that take new connections, but for those that are stuck while others are not.
    fn usable(&self) -> Vec<usize> {
        let usable = |stuck: bool| -> Vec<usize> {
            let is_usable = |member: &Member<M>| member.active && member.running.is_some() && (stuck || !member.stuck);
            (0..self.members.len()).filter(|index| is_usable(&self.members[*index])).collect()
        };
        let turning = usable(false);
        if turning.is_empty() { usable(true) } else { turning }
    }

    /// The members that hold the sockets of an address, each by what distinguishes it from one that it replaced.
    fn holders(&self, place: &Place) -> Vec<Vec<u64>> {
        let life = |owner: &usize| self.members.get(*owner).map_or(0, |member| member.life);
        place.owners.iter().map(|owners| owners.iter().map(life).collect()).collect()
    }
}

impl<M: Members> Core<M> {
    /// Gives sockets to the members that should have them, in turn, the new holder first; none is closed, none is left alone.
    pub(super) fn rebalance(&self, control: &mut Control<M>) {
        let usable = control.usable();
        let Control { places, members, .. } = control;
        for (turn, place) in places.all_mut().enumerate() {
            let alone = place.owners.len() == 1 && M::SHARE_A_SOCKET;
            let wanted = |shard: usize| match usable.len() {
                0 => Vec::new(),
                _ if alone => usable.clone(),
                count => vec![usable[(turn + shard) % count]],
            };
            let wanted: Vec<Vec<usize>> = (0..place.owners.len()).map(wanted).collect();
            if place.owners != wanted {
                self.hand_out(place, members, &wanted, &usable);
            }
        }
        M::balanced(self, control);
    }

    /// Gives the sockets of an address to those that should have them, and takes them from the others. What a member does not take, because
    /// it dies or has no descriptor left, stays where it was, or goes to another, until it is offered again.
    fn hand_out(&self, place: &mut Place, members: &[Member<M>], wanted: &[Vec<usize>], usable: &[usize]) {
        self.offer(place, members, wanted);
        for other in usable {
            let has_none = |owners: &Vec<usize>| if owners.is_empty() { vec![*other] } else { Vec::new() };
            let orphans: Vec<Vec<usize>> = place.owners.iter().map(has_none).collect();
            self.offer(place, members, &orphans);
        }
        let kept: Vec<Vec<usize>> = place
            .owners
            .iter()
            .zip(wanted)
            .map(|(owners, wanted)| {
                let right: Vec<usize> = owners.iter().copied().filter(|owner| wanted.contains(owner)).collect();
                if right.is_empty() { owners.clone() } else { right }
            })
            .collect();
        let releases = |(index, member)| Some((member, more(&kept, &place.owners, index)));
        let released: Vec<_> = members.iter().enumerate().filter_map(releases).filter(|(_, shards)| !shards.is_empty()).collect();
        if !released.is_empty() {
            self.own.release(place, &released);
        }
        place.owners = kept;
    }

    /// Offers what is wanted and not had; notes what was taken.
    fn offer(&self, place: &mut Place, members: &[Member<M>], wanted: &[Vec<usize>]) {
        let offers = (0..members.len()).filter(|index| members[*index].running.is_some());
        let offers = offers.map(|index| (index, more(&place.owners, wanted, index))).filter(|(_, shards)| !shards.is_empty());
        let (indexes, offers): (Vec<_>, Vec<_>) = offers.map(|(index, shards)| (index, (&members[index], shards))).unzip();
        if offers.is_empty() {
            return;
        }
        let taken = self.own.offer(place, &offers);
        for ((index, (_, shards)), _) in indexes.into_iter().zip(offers).zip(taken).filter(|(_, taken)| *taken) {
            shards.into_iter().for_each(|shard| place.owners[shard].push(index));
        }
    }

    /// Opens sockets at addresses that the pool has: all of them, or none.
    pub(super) fn open_replacements(&self, control: &mut Control<M>, wanted: &Config) -> Result<Replacing, Error> {
        let Control { config, places, next_number, .. } = control;
        let number = || {
            *next_number += 1;
            *next_number - 1
        };
        match places.open_replacements((config.listeners(), wanted), &self.retirements, number) {
            Replacements::Opened(replacing) => Ok(replacing),
            Replacements::Failed(error, gone) => {
                self.rebalance(control);
                self.retire_places(control, gone);
                Err(error)
            }
        }
    }

    /// Ends sockets by their numbers, in the background; others have taken the place of those marked so, and accept.
    pub(super) fn retire_places(&self, control: &mut Control<M>, gone: Vec<(u64, bool)>) -> Begun {
        self.retirements.start(control.places.retire(gone, &**self.own.system()))
    }
}

/// Sockets that a member has there and not here.
fn more(here: &[Vec<usize>], there: &[Vec<usize>], member: usize) -> Vec<usize> {
    (0..here.len()).filter(|shard| there[*shard].contains(&member) && !here[*shard].contains(&member)).collect()
}

impl<M: Members> Keeper for Core<M> {
    fn give_up(&self, number: u64) -> GaveUp {
        let (answers, asked) = {
            let control = lock(&self.control);
            let Some(place) = control.places.retiring(number) else { return GaveUp::Ended };
            (M::let_go(self, &control, place), control.holders(place))
        };
        loop {
            // The channel closes when a member is gone. One that is stuck neither answers nor goes: others have its sockets then, and are
            // asked next.
            let until = Instant::now() + LOOK;
            let waits = |answer: &mpsc::Receiver<M::GaveUp>| {
                matches!(
                    answer.recv_timeout(until.saturating_duration_since(Instant::now())),
                    Err(mpsc::RecvTimeoutError::Timeout)
                )
            };
            let over = !answers.iter().any(waits);
            let mut control = lock(&self.control);
            let Some(place) = control.places.retiring(number).filter(|_| !control.stopping) else { return GaveUp::Ended };
            if control.holders(place) != asked {
                return GaveUp::NotYet;
            }
            if over && is_empty(&place.listener, &**self.own.system()) {
                control.places.take_retiring(number);
                return GaveUp::Empty;
            }
            if over {
                let retiring = control.places.retiring.iter_mut().filter(|place| place.retirement == number);
                retiring.for_each(|place| place.owners.iter_mut().for_each(Vec::clear));
                self.rebalance(&mut control);
                return GaveUp::NotYet;
            }
        }
    }

    fn closed(&self, retirement: &Retirement) {
        self.tell(&retirement.told());
        self.own.bell().ring();
    }
}
