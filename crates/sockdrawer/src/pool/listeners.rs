//! The addresses of a pool: those it listens at, and those whose sockets are on their way out. How they are opened, beside others or
//! alone, and how they change.

use super::plan::Sockets;
use super::retire::{Retirement, Retirements};
use super::validate::sockets_per_address;
use crate::config::{Config, Listening};
use crate::error::Error;
use crate::listen::listener::{Ask, BoundListener, NotOpened};
use crate::listen::passed_on::PassedOn;
use crate::listen::probe::probe;
use crate::listen::state::ListenerState;
use crate::net::Address;
use crate::sys::System;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An address of the pool, and the members that accept from it.
pub(crate) struct ListenerEntry {
    /// The number by which processes name it.
    pub(crate) number: u64,
    /// The number among listeners that retire, once it does.
    pub(crate) retirement: u64,
    pub(crate) asked: Listening,
    pub(crate) listener: BoundListener,
    pub(crate) state: Arc<ListenerState>,
    /// Place of the listener's numbers among those that processes share.
    pub(crate) slot: usize,
    /// The members that hold each socket, by their indexes: one, or all of those that share the only one.
    pub(crate) owners: Vec<Vec<usize>>,
}

/// All of a pool.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) listening: Vec<ListenerEntry>,
    /// Sockets that get no new connections; what comes out of their handshakes is still accepted.
    pub(crate) retiring: Vec<ListenerEntry>,
    /// Sockets of a process that this one replaces, until the pool listens at them.
    pub(crate) inherited: Inherited,
    /// Numbers of the listeners that the process before this one may take back, and whether they were replaced: they retire once it does not any
    /// more.
    waiting: Vec<(u64, bool)>,
    /// Addresses that are another process's now, while it may still die and leave them to this one.
    pub(crate) handed_over: Vec<ListenerEntry>,
}

/// The listening sockets of a process that this one replaces.
pub(crate) type Inherited = Vec<ListeningSockets<OwnedFd>>;

/// The listening sockets of an address, on their way to another process.
pub(crate) struct ListeningSockets<S> {
    pub(crate) address: Address,
    pub(crate) sockets: Vec<S>,
    /// The sockets are another program's too, such as a service manager's.
    pub(crate) is_shared: bool,
    /// The name that a service manager gives the sockets.
    pub(crate) name: Option<String>,
}

/// New sockets, each by the index of the place that it takes.
pub(super) type Replacing = Vec<(usize, ListenerEntry)>;

/// The result of opening a change's replacements.
pub(super) enum Replacements {
    Opened(Replacing),
    /// A socket could not be opened. Those that were opened retire: a client may have connected by now.
    Failed(Error, Vec<(u64, bool)>),
}

impl ListenerEntry {
    pub(super) fn new(
        number: u64,
        asked: &Listening,
        listener: BoundListener,
        state: Arc<ListenerState>,
        slot: usize,
    ) -> ListenerEntry {
        let owners = vec![Vec::new(); listener.sockets.len()];
        ListenerEntry { number, retirement: 0, asked: asked.clone(), listener, state, slot, owners }
    }

    /// Puts back what another pool passed on, for the next: the pool has not begun to listen here, and will not.
    pub(super) fn put_back(self) {
        if let Some(passed_on) = passed_on(&self.asked) {
            passed_on.put_back(self.listener);
        }
    }
}

impl Listeners {
    pub(crate) fn all(&self) -> impl Iterator<Item = &ListenerEntry> {
        self.listening.iter().chain(&self.retiring)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut ListenerEntry> {
        self.listening.iter_mut().chain(&mut self.retiring)
    }

    pub(super) fn take_all(&mut self) -> Vec<ListenerEntry> {
        let mut all = std::mem::take(&mut self.listening);
        all.append(&mut self.retiring);
        all
    }

    /// Opens a new address beside these, those that are on their way out, and those that the same change adds.
    pub(super) fn listen(
        &mut self,
        (config, listening): (&Config, &Listening),
        retirements: &Retirements,
        added: &[ListenerEntry],
    ) -> Result<BoundListener, Error> {
        if let Some(taken) = passed_on(listening).and_then(|passed_on| passed_on.take(&ask(config, listening))) {
            return taken;
        }
        if let Some(at) = self.inherited.iter().position(|inherited| goes_on(&inherited.address, &listening.address)) {
            let ListeningSockets { sockets, is_shared, .. } = self.inherited.swap_remove(at);
            return BoundListener::go_on(&ask(config, listening), sockets, is_shared);
        }
        let retiring = retirements.listeners();
        let here = self.listening.iter().chain(added).map(|entry| &entry.listener);
        listen(config, listening, here.chain(retiring.iter().map(|listener| &**listener)))
    }

    /// Takes the place of an address out of the list, by its real port or by what was asked for.
    pub(super) fn take(&mut self, address: &Address) -> Result<ListenerEntry, Error> {
        let is_meant = |entry: &ListenerEntry| entry.listener.address == *address || entry.asked.address == *address;
        let found = self.listening.iter().rposition(is_meant);
        let at = found.ok_or_else(|| Error::NoSuchListener { address: address.clone(), known: self.addresses() })?;
        Ok(self.listening.remove(at))
    }

    /// Returns the addresses, also those that another process has while this one stands by.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.held().map(|entry| entry.listener.address.clone()).collect()
    }

    fn held(&self) -> impl Iterator<Item = &ListenerEntry> {
        let stands_by = |entry: &&ListenerEntry| !entry.listener.sockets.is_empty();
        self.listening.iter().chain(self.handed_over.iter().filter(stands_by))
    }

    pub(super) fn find(&self, address: &Address) -> Result<&ListenerEntry, Error> {
        let found = self.held().find(|entry| entry.listener.address == *address);
        found.ok_or_else(|| Error::NoSuchListener { address: address.clone(), known: self.addresses() })
    }

    /// Opens sockets at addresses that the pool has, beside those that are there.
    pub(super) fn open_replacements(
        &mut self,
        (running, wanted): (&[Listening], &Config),
        retirements: &Retirements,
        mut number: impl FnMut() -> u64,
    ) -> Replacements {
        let mut opened: Replacing = Vec::new();
        for (old, new) in Sockets::between(running, wanted.listened()).replaced {
            let taken = |at: usize| opened.iter().any(|(other, _)| *other == at);
            let found = (0..self.listening.len()).rev().find(|at| !taken(*at) && self.listening[*at].asked.is_same_place(old));
            let Some(at) = found else { continue };
            let before = &self.listening[at];
            // Connections that came in there stay counted: the state is the address's.
            let (state, slot) = (before.state.clone(), before.slot);
            let listener = BoundListener::open_beside(&before.listener, &ask(wanted, new)).and_then(|mut listener| {
                listener.exchange_paths(&mut self.listening[at].listener, &*wanted.system)?;
                Ok(listener)
            });
            match listener {
                Ok(listener) => opened.push((at, ListenerEntry::new(number(), new, listener, state, slot))),
                Err(NotOpened { error, left }) => {
                    for (at, entry) in &mut opened {
                        // The old listener had the path before, so it can have it again.
                        let _ = entry.listener.exchange_paths(&mut self.listening[*at].listener, &*wanted.system);
                    }
                    let left = left.map(|listener| ListenerEntry::new(number(), new, *listener, state, slot));
                    let gone = opened.into_iter().map(|(_, entry)| entry).chain(left);
                    return Replacements::Failed(
                        error,
                        gone.map(|entry| (self.begin_to_retire(retirements, entry), true)).collect(),
                    );
                }
            }
        }
        Replacements::Opened(opened)
    }

    /// Has this accepted from as before, but as one on its way out. Its number among those.
    fn begin_to_retire(&mut self, retirements: &Retirements, mut entry: ListenerEntry) -> u64 {
        entry.retirement = retirements.number(&entry.listener);
        let number = entry.retirement;
        self.retiring.push(entry);
        number
    }

    /// Takes the places of addresses that are gone or replaced; they go on as retiring ones. Their numbers, and whether others
    /// have taken their place.
    pub(super) fn take_listeners(
        &mut self,
        (before, wanted): (&[Listening], &Config),
        retirements: &Retirements,
        replacing: Replacing,
    ) -> Vec<(u64, bool)> {
        let mut gone = Vec::new();
        for (at, entry) in replacing {
            let old = std::mem::replace(&mut self.listening[at], entry);
            gone.push((self.begin_to_retire(retirements, old), true));
        }
        for listening in Sockets::between(before, wanted.listened()).removed {
            // If two alike were asked for, as with port 0, the later one goes.
            if let Some(at) = self.listening.iter().rposition(|entry| entry.asked.is_same_place(listening)) {
                let old = self.listening.remove(at);
                gone.push((self.begin_to_retire(retirements, old), false));
            }
        }
        gone
    }

    /// Keeps new connections away from those with these numbers. Those that another process may take back go on until [`Listeners::take_for_good`].
    pub(super) fn retire(&mut self, gone: Vec<(u64, bool)>, system: &dyn System) -> Vec<Retirement> {
        let may_go_back = |number| self.retiring(number).is_some_and(|entry| entry.listener.is_handed_over());
        let (waiting, gone): (Vec<_>, Vec<_>) = gone.into_iter().partition(|(number, _)| may_go_back(*number));
        self.waiting.extend(waiting);
        let begun = gone.into_iter().filter_map(|(number, replaced)| {
            let entry = self.retiring.iter_mut().find(|entry| entry.retirement == number)?;
            Some(Retirement::begin(number, &mut entry.listener, replaced, system))
        });
        begun.collect()
    }

    pub(super) fn retiring(&self, number: u64) -> Option<&ListenerEntry> {
        self.retiring.iter().find(|entry| entry.retirement == number)
    }

    pub(super) fn take_retiring(&mut self, number: u64) -> Option<ListenerEntry> {
        let at = self.retiring.iter().position(|entry| entry.retirement == number)?;
        Some(self.retiring.remove(at))
    }

    /// Addresses that stay get the limits that are wanted of them.
    pub(super) fn set_limits(&mut self, wanted: &Config) {
        let mut left: Vec<&Listening> = wanted.listened().iter().collect();
        for entry in &mut self.listening {
            if let Some(at) = left.iter().position(|listening| listening.is_same_place(&entry.asked)) {
                entry.asked = left.swap_remove(at).clone();
                entry.state.set_limit(entry.asked.limit);
            }
        }
    }

    /// Takes all of them for good: no other process takes any back any more. Returns the numbers of those that it could have, and what is to retire
    /// now.
    pub(super) fn take_for_good(&mut self, config: &Config) -> (Vec<u64>, Vec<(u64, bool)>) {
        let mut taken = Vec::new();
        for entry in self.all_mut().filter(|entry| entry.listener.is_handed_over()) {
            entry.listener.take_for_good(&ask(config, &entry.asked));
            taken.push(entry.number);
        }
        (taken, std::mem::take(&mut self.waiting))
    }

    pub(super) fn set_backlog(&self, backlog: u32, system: &dyn System) {
        for entry in &self.listening {
            // listen() on a socket that listens fails only if another process shut it down, which accepting tells.
            let _ = entry.listener.set_backlog(system, backlog);
        }
    }
}

/// Returns true where an address asked for is this `inherited` one of a process before: port 0 stands for the port that it had.
pub(crate) fn goes_on(inherited: &Address, asked: &Address) -> bool {
    match (inherited, asked) {
        (Address::Tcp(inherited), Address::Tcp(asked)) if asked.port() == 0 => inherited.ip() == asked.ip(),
        (inherited, asked) => inherited == asked,
    }
}

/// Opens an address beside the pool's `others`. It may share the port of some: one that was removed so shortly before that its sockets
/// are still emptied, or one of the same machine that is wider or narrower.
pub(super) fn listen<'a>(
    config: &Config,
    listening: &Listening,
    others: impl Iterator<Item = &'a BoundListener>,
) -> Result<BoundListener, Error> {
    let ask = ask(config, listening);
    if let Some(socket) = &listening.inherited {
        return BoundListener::inherit(&ask, socket.clone());
    }
    let met = others.filter_map(|other| Some((other.meets(&listening.address)?, other)));
    match met.min_by_key(|(meeting, _)| *meeting) {
        Some((_, other)) => BoundListener::open_beside(other, &ask).map_err(|failed| failed.error),
        None => BoundListener::open(&ask),
    }
}

/// Returns what another pool of this process had at this address.
fn passed_on(listening: &Listening) -> Option<&PassedOn> {
    listening.passed_on.as_ref()?.downcast_ref()
}

/// Fails if an address could not be listened at.
pub(super) fn rehearse(config: &Config, listening: &Listening) -> Result<(), Error> {
    let goes_on = listening.inherited.is_some() || listening.passed_on.is_some();
    if goes_on || config.listen_by.is_some() { Ok(()) } else { probe(&ask(config, listening)) }
}

fn ask<'a>(config: &'a Config, listening: &'a Listening) -> Ask<'a> {
    Ask {
        system: &*config.system,
        address: &listening.address,
        options: &listening.options,
        accepted: &config.settings.options,
        backlog: config.accept_queue(),
        sockets: sockets_per_address(config),
        by: config.listen_by.as_deref(),
    }
}
