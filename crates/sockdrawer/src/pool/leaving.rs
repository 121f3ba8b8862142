//! How a pool of loops gives addresses up: what waits in a queue is accepted by who has the socket, then it lets go.

use super::control::{Control, Core, ListeningPlace};
use super::places::{Replacements, Replacing};
use super::retire::{Begun, GaveUp, Keeper, Retirement, is_empty};
use crate::config::Config;
use crate::error::Error;
use crate::flow::acceptor::Retiring;
use crate::flow::inbox::{Letter, Order};
use crate::net::Address;
use crate::sync::{lock, mpsc};

impl Core {
    /// Opens sockets at addresses that the pool has: all of them, or none.
    pub(super) fn open_replacements(&self, control: &mut Control, wanted: &Config) -> Result<Replacing<Option<usize>>, Error> {
        // Nobody but processes names places by numbers.
        let change = (control.config.listeners(), wanted);
        match control.places.open_replacements(change, &self.retirements, || 0) {
            Replacements::Opened(replacing) => Ok(replacing),
            Replacements::Failed(error, gone) => {
                self.rebalance(control);
                self.retire_places(control, gone);
                Err(error)
            }
        }
    }

    /// Ends sockets by their numbers, in the background; others have taken the place of those marked so, and accept.
    pub(super) fn retire_places(&self, control: &mut Control, gone: Vec<(u64, bool)>) -> Begun {
        self.retirements.start(control.places.retire(gone, &*self.shared.system))
    }

    /// Has the holders of these addresses accept what waits and then give them up; the channel closes when all have. It is told as
    /// their end.
    pub(crate) fn retire(&self, control: &Control, gone: Vec<ListeningPlace>) -> mpsc::Receiver<()> {
        let (done, all_done) = mpsc::channel::<()>();
        for place in gone {
            self.let_go(control, &place, Some(place.listener.address.clone()), done.clone());
        }
        all_done
    }

    /// The same for one address; it is told where there is one to tell.
    fn let_go(&self, control: &Control, place: &ListeningPlace, told: Option<Address>, done: mpsc::Sender<()>) {
        let retiring = Retiring::new(told, self.shared.clone(), done);
        for (shard, owner) in place.listener.shards.iter().zip(&place.owners) {
            if let Some(member) = owner.and_then(|owner| control.members.get(owner)) {
                let (shard, retiring) = (shard.clone(), retiring.clone());
                let order: Order = Box::new(move |flow| flow.retire_shard(&shard, &retiring));
                let _ = member.inbox.put(Letter::Order(order));
            }
        }
    }
}

impl Keeper for Core {
    fn give_up(&self, number: u64) -> GaveUp {
        let (given_up, waits) = mpsc::channel::<()>();
        let mut place = {
            let mut control = lock(&self.control);
            let Some(place) = control.places.take_retiring(number) else { return GaveUp::Ended };
            self.let_go(&control, &place, None, given_up);
            place
        };
        // Nothing is sent: the channel closes when the last socket was given up, or its holder is gone.
        let _ = waits.recv();
        let mut control = lock(&self.control);
        if control.stopping {
            return GaveUp::Ended;
        }
        if is_empty(&place.listener, &*self.shared.system) {
            return GaveUp::Empty;
        }
        place.owners.fill(None);
        control.places.retiring.push(place);
        self.rebalance(&mut control);
        GaveUp::NotYet
    }

    fn closed(&self, retirement: &Retirement) {
        self.tell(&retirement.told());
        self.shared.bell.ring();
    }
}
