//! Addresses that go from one pool to another in a change: their sockets go over, and nothing that waits there is lost.

use crate::change::Step;
use sockdrawer::listening::Listening;
use sockdrawer::{Address, Config, Endpoint, Pool};

/// An address that one pool has and another is to have.
#[derive(Clone)]
pub(crate) struct Move {
    /// The pool that has it, by name.
    from: String,
    giver: Pool,
    to: String,
    /// Address as the giver has it; `new` is the address as the taker is to have it.
    old: Address,
    new: Address,
}

impl Move {
    /// Returns the name of the pool that has it.
    pub(crate) fn from(&self) -> &str {
        &self.from
    }
}

/// Pool as it is to be, and as it is now.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    /// Configuration that it is to have. None: it is to end.
    pub(crate) config: Option<&'a Config>,
    /// Pool that is running. None: it is to start.
    pub(crate) running: Option<&'a Pool>,
}

fn listeners(config: &Config) -> &[Listening] {
    match &config.endpoint {
        Endpoint::Accept { listeners, .. } => listeners,
        _ => &[],
    }
}

/// Returns whether sockets of both would be in each other's way: at one address, or at a port where one takes all addresses.
fn meets(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) if one != other => {
            let wide = one.ip().is_unspecified() || other.ip().is_unspecified();
            one.port() == other.port() && one.port() != 0 && wide
        }
        (one, other) => one == other,
    }
}

/// Finds the addresses that one pool gives up and another begins to listen at.
pub(crate) fn between(all: &[Wanted<'_>]) -> Vec<Move> {
    let now = |wanted: &Wanted<'_>| wanted.running.map(|pool| listeners(&pool.config()).to_vec()).unwrap_or_default();
    let has = |all: &[Listening], address: &Address| all.iter().any(|one| one.address == *address);
    let mut begun: Vec<(&str, Address)> = Vec::new();
    for wanted in all {
        let now = now(wanted);
        let new = wanted.config.into_iter().flat_map(listeners).filter(|one| one.inherited.is_none() && !has(&now, &one.address));
        begun.extend(new.map(|one| (wanted.name, one.address.clone())));
    }
    let mut moves = Vec::new();
    for wanted in all {
        let Some(giver) = wanted.running else { continue };
        let kept = wanted.config.map(listeners).unwrap_or_default();
        for old in now(wanted).into_iter().filter(|one| one.inherited.is_none() && !has(kept, &one.address)) {
            let Some(at) = begun.iter().position(|(name, new)| *name != wanted.name && meets(&old.address, new)) else {
                continue;
            };
            let (to, new) = begun.swap_remove(at);
            moves.push(Move { from: wanted.name.to_owned(), giver: giver.clone(), to: to.to_owned(), old: old.address, new });
        }
    }
    moves
}

/// Returns the configuration of a pool without what goes over: what else changes of its addresses.
pub(crate) fn without(moves: &[Move], name: &str, config: Config) -> Config {
    if moves.is_empty() {
        return config;
    }
    config.listeners(|all| {
        all.retain(|one| !moves.iter().any(|one_move| one_move.to == name && one_move.new == one.address));
        for given in moves.iter().filter(|one_move| one_move.from == name) {
            let running = given.giver.config();
            all.extend(listeners(&running).iter().find(|one| one.address == given.old).cloned());
        }
    })
}

/// Returns the configuration of a pool with those addresses alone that no pool of this program is at, or in the way of. None: there is none.
pub(crate) fn new_alone<'a>(all: impl Iterator<Item = &'a Pool>, running: Option<&Pool>, config: &Config) -> Option<Config> {
    let mut here: Vec<Address> = all.flat_map(|pool| listeners(&pool.config()).to_vec()).map(|one| one.address).collect();
    here.extend(running.into_iter().flat_map(|pool| pool.addresses()));
    let is_new = |one: &Listening| one.inherited.is_none() && !here.iter().any(|address| meets(address, &one.address));
    let config = config.clone().listeners(|all| all.retain(is_new));
    (!listeners(&config).is_empty()).then_some(config)
}

/// Returns the steps of a pool that are addresses which go over.
pub(crate) fn steps(moves: &[Move], name: &str) -> Vec<Step> {
    let step = |detail: String| Step::new(name, "listen", "socket moves", detail);
    let given = moves.iter().filter(|one| one.from == name).map(|one| step(format!("{} to {}", one.old, one.to)));
    let taken = moves.iter().filter(|one| one.to == name).map(|one| match one.old == one.new {
        true => step(format!("{} from {}", one.new, one.from)),
        false => step(format!("{}, with the sockets of {} from {}", one.new, one.old, one.from)),
    });
    given.chain(taken).collect()
}

/// Addresses on their way: no pool accepts there, what comes waits.
#[derive(Default)]
pub(crate) struct UnderWay(Vec<(Move, Listening)>);

impl UnderWay {
    /// Has all pools give up what goes to others.
    pub(crate) fn begin(&mut self, moves: &[Move]) -> Result<(), String> {
        for one in moves {
            let given = one.giver.give_up(&one.old).map_err(|error| format!("pool.{}.listen: {error}", one.from))?;
            self.0.push((one.clone(), given));
        }
        Ok(())
    }

    /// Returns the configuration of the pool of this name with the sockets that it takes, and the one that follows it.
    pub(crate) fn taken_by(&self, name: &str, config: Config) -> (Config, Option<Config>) {
        let taken = self.0.iter().filter(|(one, _)| one.to == name);
        going_on(config, &taken.map(|(one, listening)| (one.new.clone(), listening.clone())).collect::<Vec<_>>())
    }

    /// Takes the sockets back from pools that have them by now.
    pub(crate) fn turn_back(&mut self, pool: impl Fn(&str) -> Option<Pool>) {
        for (one, listening) in &mut self.0 {
            let had = pool(&one.to).and_then(|taker| taker.give_up(&one.new).or_else(|_| taker.give_up(&one.old)).ok());
            *listening = had.unwrap_or_else(|| listening.clone());
        }
    }

    /// Returns the configuration of the pool of this name as it was, with the sockets that it had, and the one that follows it.
    pub(crate) fn given_back(&self, name: &str, config: Config) -> (Config, Option<Config>) {
        let given = self.0.iter().filter(|(one, _)| one.from == name);
        going_on(config, &given.map(|(one, listening)| (one.old.clone(), listening.clone())).collect::<Vec<_>>())
    }
}

/// Returns a configuration that goes on with sockets of other pools, and the one that follows it: sockets with other options, or at an address that
/// is wider or narrower, are replaced once they are the pool's own.
fn going_on(config: Config, taken: &[(Address, Listening)]) -> (Config, Option<Config>) {
    if taken.is_empty() {
        return (config, None);
    }
    let (then, mut differs) = (config.clone().unconditional(), false);
    let first = config.listeners(|all| {
        for wanted in all {
            let Some((_, listening)) = taken.iter().find(|(at, _)| *at == wanted.address) else { continue };
            differs |= listening.address != wanted.address || listening.options != wanted.options;
            let (limit, layers) = (wanted.limit, wanted.layers.clone());
            *wanted = listening.clone();
            (wanted.limit, wanted.layers) = (limit, layers);
        }
    });
    (first, differs.then_some(then))
}
