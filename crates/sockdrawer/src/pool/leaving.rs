//! How a pool of loops gives addresses up: what waits in a queue is accepted by who has the socket, then it lets go.

use super::control::{Control, Core, ListeningPlace};
use super::places::{Replacements, Replacing};
use super::retire::{Begun, GaveUp, Keeper, Retirement, is_empty};
use crate::config::Config;
use crate::error::Error;
use crate::event_loop::acceptor::Retiring;
use crate::event_loop::inbox::{Command, Message};
use crate::net::Address;
use crate::sync::{lock, mpsc};
use std::time::Duration;

/// Between two looks at who holds the sockets that are to be given up.
const LOOK: Duration = Duration::from_millis(100);

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
                let order: Command = Box::new(move |event_loop| event_loop.retire_shard(&shard, &retiring));
                let _ = member.inbox.put(Message::Command(order));
            }
        }
    }
}

/// The loops that hold the sockets of an address, each by what distinguishes it from one that it replaced.
fn holders(control: &Control, place: &ListeningPlace) -> Vec<Option<u64>> {
    place.owners.iter().map(|owner| owner.and_then(|owner| control.members.get(owner)).map(|member| member.life)).collect()
}

impl Keeper for Core {
    fn give_up(&self, number: u64) -> GaveUp {
        let (given_up, waits) = mpsc::channel::<()>();
        let asked = {
            let control = lock(&self.control);
            let Some(place) = control.places.retiring(number) else { return GaveUp::Ended };
            self.let_go(&control, place, None, given_up);
            holders(&control, place)
        };
        loop {
            // Nothing is sent: the channel closes when the last socket was given up, or its holder is gone. A holder that is stuck does
            // neither: others have its sockets then, and are asked next.
            let over = waits.recv_timeout(LOOK) != Err(mpsc::RecvTimeoutError::Timeout);
            let mut control = lock(&self.control);
            let Some(place) = control.places.retiring(number).filter(|_| !control.stopping) else { return GaveUp::Ended };
            if holders(&control, place) != asked {
                return GaveUp::NotYet;
            }
            if over && is_empty(&place.listener, &*self.shared.system) {
                control.places.take_retiring(number);
                return GaveUp::Empty;
            }
            if over {
                let retiring = control.places.retiring.iter_mut().filter(|place| place.retirement == number);
                retiring.for_each(|place| place.owners.fill(None));
                self.rebalance(&mut control);
                return GaveUp::NotYet;
            }
        }
    }

    fn closed(&self, retirement: &Retirement) {
        self.tell(&retirement.told());
        self.shared.bell.ring();
    }
}
