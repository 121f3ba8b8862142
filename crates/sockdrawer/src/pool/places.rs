//! The addresses of a pool: how their sockets are opened, beside others or alone, and how they go.

use super::commit::shards;
use super::control::{Control, Core, ListeningPlace};
use super::plan::Sockets;
use super::retire::{Begun, GaveUp, Keeper, Retirement, Retirements, is_empty};
use crate::config::{Config, Listening};
use crate::error::Error;
use crate::flow::acceptor::Retiring;
use crate::flow::door::Door;
use crate::flow::inbox::Letter;
use crate::flow::joint::Joint;
use crate::flow::listener::{Ask, Listener, NotOpened, Ownership};
use crate::net::Address;
use crate::observe::Event;
use crate::sync::{lock, mpsc};
use std::sync::Arc;

/// New sockets, each by the index of the place that it takes.
pub(super) type Replacing = Vec<(usize, ListeningPlace)>;

impl Core {
    /// Opens sockets at addresses that the pool has, beside those that are there. When one cannot be opened, those that were are
    /// retired: somebody may have connected by now.
    pub(super) fn open_replacements(&self, control: &mut Control, wanted: &Config) -> Result<Replacing, Error> {
        let mut opened: Vec<(usize, ListeningPlace)> = Vec::new();
        let sockets = Sockets::between(control.config.listeners(), wanted.listeners());
        for (old, new) in sockets.replaced {
            let taken = |at: usize| opened.iter().any(|(other, _)| *other == at);
            let found = (0..control.places.len()).rev().find(|at| !taken(*at) && control.places[*at].asked.is_same_place(old));
            let Some(at) = found else { continue };
            // Who is in by the address is in by the same door.
            let door = control.places[at].door.clone();
            match listen_beside(wanted, new, &control.places[at].listener) {
                Ok(listener) => opened.push((at, place_of(new, listener, door))),
                Err(NotOpened { error, left }) => {
                    let left = left.map(|listener| place_of(new, *listener, door));
                    let gone = opened.into_iter().map(|(_, place)| place).chain(left).collect::<Vec<_>>();
                    let numbers = gone.into_iter().map(|place| (Core::begin_to_retire(control, &self.retirements, place), true));
                    let numbers: Vec<_> = numbers.collect();
                    self.rebalance(control);
                    self.retire_places(control, numbers);
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Has these accepted from as before, but as sockets on their way out. Their number.
    pub(super) fn begin_to_retire(control: &mut Control, retirements: &Retirements, mut place: ListeningPlace) -> u64 {
        place.number = retirements.number(&place.listener);
        let number = place.number;
        control.retiring.push(place);
        number
    }

    /// Ends sockets by their numbers, in the background; others have taken the place of those marked so, and accept.
    pub(super) fn retire_places(&self, control: &mut Control, gone: Vec<(u64, bool)>) -> Begun {
        let mut retirements = Vec::new();
        for (number, replaced) in gone {
            let place = control.retiring.iter_mut().find(|place| place.number == number);
            let system = &*self.shared.system;
            retirements.extend(place.map(|place| Retirement::begin(number, &mut place.listener, replaced, system)));
        }
        self.retirements.start(retirements)
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
                let order: crate::flow::inbox::Order = Box::new(move |flow| flow.retire_shard(&shard, &retiring));
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
            let Some(at) = control.retiring.iter().position(|place| place.number == number) else { return GaveUp::Ended };
            let place = control.retiring.remove(at);
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
        control.retiring.push(place);
        self.rebalance(&mut control);
        GaveUp::NotYet
    }

    fn closed(&self, retirement: &Retirement) {
        let address = retirement.address.clone();
        self.tell(&if retirement.replaced { Event::ListenerReplaced(address) } else { Event::ListenerRemoved(address) });
        self.shared.bell.ring();
    }
}

/// Takes the places of addresses that are gone or replaced; they go on as retiring ones. Their numbers, and whether others
/// have taken their place.
pub(super) fn take_listeners(
    control: &mut Control,
    retirements: &Retirements,
    wanted: &Config,
    replacing: Vec<(usize, ListeningPlace)>,
) -> Vec<(u64, bool)> {
    let mut gone = Vec::new();
    for (at, place) in replacing {
        let old = std::mem::replace(&mut control.places[at], place);
        gone.push((Core::begin_to_retire(control, retirements, old), true));
    }
    let before = control.config.listeners().to_vec();
    for listening in Sockets::between(&before, wanted.listeners()).removed {
        // Of two that were asked for alike, as with port 0, the later one goes.
        if let Some(at) = control.places.iter().rposition(|place| place.asked.is_same_place(listening)) {
            let old = control.places.remove(at);
            gone.push((Core::begin_to_retire(control, retirements, old), false));
        }
    }
    gone
}

/// Addresses that stay get the limits that are wanted of them.
pub(super) fn limit_places(control: &mut Control, wanted: &Config) {
    let mut left: Vec<&Listening> = wanted.listeners().iter().collect();
    for place in &mut control.places {
        if let Some(at) = left.iter().position(|listening| listening.is_same_place(&place.asked)) {
            place.asked = left.swap_remove(at).clone();
            place.door.set_limit(place.asked.limit);
        }
    }
}

pub(super) fn open(config: &Config, listening: &Listening, joint: &Joint) -> Result<ListeningPlace, Error> {
    let listener = listen(config, listening)?;
    let door = Door::new(listener.address.clone(), joint.door(0), listening.limit, None);
    Ok(place_of(listening, listener, door))
}

pub(super) fn listen(config: &Config, listening: &Listening) -> Result<Listener, Error> {
    let ask = ask(config, listening);
    match &listening.inherited {
        Some(socket) => Listener::inherit(&ask, socket.clone()),
        None => Listener::open(&ask),
    }
}

/// The same at an address where the pool listens already.
pub(super) fn listen_beside(config: &Config, listening: &Listening, old: &Listener) -> Result<Listener, NotOpened> {
    Listener::open_beside(old, &ask(config, listening))
}

/// An address may have been removed so shortly before that its sockets are still emptied.
pub(super) fn open_or_join(
    config: &Config,
    listening: &Listening,
    retirements: &Retirements,
    joint: &Joint,
) -> Result<ListeningPlace, Error> {
    let listener = listen_or_join(config, listening, retirements)?;
    let door = Door::new(listener.address.clone(), joint.door(0), listening.limit, None);
    Ok(place_of(listening, listener, door))
}

pub(super) fn listen_or_join(config: &Config, listening: &Listening, retirements: &Retirements) -> Result<Listener, Error> {
    let tcp = listening.inherited.is_none() && matches!(listening.address, Address::Tcp(_));
    let own = |old: &Listener| !matches!(old.ownership, Ownership::Shared);
    match retirements.listeners().iter().find(|old| tcp && own(old) && old.address == listening.address) {
        Some(old) => listen_beside(config, listening, old).map_err(|failed| failed.error),
        None => listen(config, listening),
    }
}

fn place_of(listening: &Listening, listener: Listener, door: Arc<Door>) -> ListeningPlace {
    let owners = vec![None; listener.shards.len()];
    ListeningPlace { number: 0, asked: listening.clone(), listener, door, owners }
}

fn ask<'a>(config: &'a Config, listening: &'a Listening) -> Ask<'a> {
    Ask {
        system: &*config.system,
        address: &listening.address,
        options: &listening.options,
        accepted: &config.settings.options,
        backlog: config.backlog(),
        shards: shards(config),
        by: config.listen_by.as_deref(),
    }
}
