//! The change of targets: a proxy, beside the server that the other kinds change, whose targets come and go, get more clients or fewer, and die. It runs in
//! loops of this process, whatever the model of the server.

use super::beside::{Beside, CONNECTS, KEPT};
use super::schedule::another;
use super::served::{Dish, Props};
use crate::{Group, PATIENCE, Tally};
use sockdrawer::{Address, Behaviour, Config, Drain, Error, Pool, Selector};
use sockdrawer_catalog::proxy::{Known, Proxy, ProxyOptions, Target};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Targets listen at these addresses and the proxy's own port, which no other program gets meanwhile.
const ADDRESSES: [Ipv4Addr; 3] = [Ipv4Addr::new(127, 0, 9, 2), Ipv4Addr::new(127, 0, 9, 3), Ipv4Addr::new(127, 0, 9, 4)];
/// The target that dies; connections that stay have the others.
const MORTAL: usize = 2;

/// The part of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It gets clients, by this weight.
    Serves(u32),
    /// It keeps its clients and gets no others.
    Rests,
    /// It is written no more.
    Removed,
    /// It is written, and refuses connects.
    Dead,
}

use Part::{Dead, Removed, Rests, Serves};

/// The first is the beginning.
const TURNS: [[Part; 3]; 5] = [
    [Serves(1), Serves(1), Removed],
    [Serves(1), Serves(2), Serves(3)],
    [Rests, Serves(1), Serves(1)],
    [Serves(1), Removed, Serves(2)],
    [Serves(1), Serves(1), Dead],
];

/// A proxy with its targets and its clients.
pub(crate) struct Targets {
    proxy: Pool,
    clients: Beside,
    known: Known,
    targets: Mutex<Backends>,
}

/// The targets' servers.
struct Backends {
    behaviour: Behaviour,
    addresses: [Address; 3],
    now: [Part; 3],
    pools: [Option<Pool>; 3],
    /// Connections of servers that have ended.
    ended: u64,
}

impl Backends {
    fn start(behaviour: Behaviour, port: u16) -> Result<Backends, Error> {
        let addresses = ADDRESSES.map(|address| Address::Tcp(SocketAddr::new(address.into(), port)));
        let mut backends = Backends { behaviour, addresses, now: TURNS[0], pools: [const { None }; 3], ended: 0 };
        for number in 0..backends.pools.len() {
            backends.revive(number)?;
        }
        Ok(backends)
    }

    fn revive(&mut self, number: usize) -> Result<(), Error> {
        if self.pools[number].is_none() {
            let config = Config::accept(self.behaviour.clone()).listen(self.addresses[number].clone()).loops(1).workers(0);
            self.pools[number] = Some(Pool::start(config)?);
        }
        Ok(())
    }

    fn kill(&mut self, number: usize) {
        if let Some(pool) = self.pools[number].take() {
            pool.shutdown(Drain::within(Duration::ZERO));
            self.ended += pool.status().counts.accepted;
        }
    }

    fn accepted(&self) -> [u64; 3] {
        std::array::from_fn(|number| self.pools[number].as_ref().map_or(0, |pool| pool.status().counts.accepted))
    }

    /// Returns the proxy's settings while its targets are these.
    fn settings(&self, turns: [Part; 3], known: &Known) -> Behaviour {
        let written = self.addresses.iter().zip(turns).filter_map(|(address, turn)| {
            let text = match turn {
                Serves(weight) => format!("{address},weight={weight}"),
                Rests => format!("{address},weight=0"),
                Removed => return None,
                Dead => address.to_string(),
            };
            Some(text.parse::<Target>().expect("a target"))
        });
        Proxy::new(ProxyOptions::to(written.collect()), known.clone()).into()
    }
}

impl Targets {
    pub(crate) fn start(tally: &Arc<Tally>, props: &Props, seed: u64) -> Result<Targets, Error> {
        let known = Known::default();
        // Before its targets have a port.
        let none = Proxy::new(ProxyOptions::to(Vec::new()), known.clone());
        let config = Config::accept(none).listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())).loops(2).workers(0);
        let proxy = Pool::start(config)?;
        let Some(Address::Tcp(address)) = proxy.addresses().pop() else { unreachable!("it listens by TCP") };
        let backends = Backends::start(Dish::Plain.behaviour(props), address.port())?;
        proxy.reconfigure(proxy.config().behaviour(backends.settings(backends.now, &known)))?;
        let clients = Beside::start(Group::Proxied, &proxy, tally, seed, |clients| clients)?;
        // A client has its target's name once the two are a pair.
        let pairs = || proxy.connections(&Selector::All).iter().filter(|one| one.tag.is_some()).count();
        proxy.wait(PATIENCE, |_| pairs() >= KEPT);
        Ok(Targets { proxy, clients, known, targets: Mutex::new(backends) })
    }

    fn backends(&self) -> MutexGuard<'_, Backends> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the targets while clients are connected to those before. All that come afterwards have one of the new ones.
    pub(crate) fn change(&self, value: u64) -> Result<Duration, String> {
        let mut backends = self.backends();
        let next = another(&TURNS, backends.now, value);
        self.clients.connect()?;
        if next[MORTAL] != Dead {
            backends.revive(MORTAL).map_err(|error| error.to_string())?;
        }
        let (settings, begun) = (backends.settings(next, &self.known), Instant::now());
        self.proxy.reconfigure(self.proxy.config().behaviour(settings)).map_err(|error| error.to_string())?;
        let took = begun.elapsed();
        backends.now = next;
        let stay = self.proxy.adopt(&Selector::All).moved;
        self.clients.ended()?;
        if next[MORTAL] == Dead {
            backends.kill(MORTAL);
        }
        let before = backends.accepted();
        self.clients.connect()?;
        self.clients.ended()?;
        if stay < KEPT {
            return Err(format!("{stay} of {KEPT} pairs went on under the new generation"));
        }
        let after = backends.accepted();
        let came: [u64; 3] = std::array::from_fn(|number| after[number] - before[number]);
        let astray = came.iter().zip(next).any(|(came, turn)| *came > 0 && !matches!(turn, Serves(_)));
        match came.iter().sum::<u64>() {
            CONNECTS if !astray => Ok(took),
            _ => Err(format!("{came:?} of {CONNECTS} clients after the change came to the targets, which are {next:?}")),
        }
    }

    /// Ends the clients in order.
    pub(crate) fn stop(&self) {
        self.clients.stop();
        self.proxy.wait(2 * PATIENCE, |status| status.connections == 0);
    }

    /// Returns what was accepted by the proxy and by its targets, what is open, what waits, and the connections that the proxy made; and ends them.
    pub(crate) fn end(&self) -> Accounts {
        let mut backends = self.backends();
        let status = self.proxy.status();
        for pool in backends.pools.iter().flatten() {
            pool.wait(2 * PATIENCE, |status| status.connections == 0);
        }
        self.proxy.shutdown(Drain::within(PATIENCE));
        let open: usize = backends.pools.iter().flatten().map(|pool| pool.status().connections).sum();
        (0..backends.pools.len()).for_each(|number| backends.kill(number));
        Accounts {
            accepted: status.counts.accepted + backends.ended,
            made: status.counts.connects - status.counts.connect_failed,
            open: status.connections + open,
        }
    }
}

/// Counts of the proxy and its targets at the end.
pub(crate) struct Accounts {
    pub(crate) accepted: u64,
    pub(crate) made: u64,
    pub(crate) open: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_client_is_lost_through_changes_of_targets() {
        let tally = Arc::new(Tally::new());
        let targets = Targets::start(&tally, &Props::new(false).expect("a file in memory"), 1).expect("it starts");
        let mut seen = BTreeSet::new();
        for number in 0..40 {
            targets.change(number).unwrap_or_else(|why| panic!("change {number}: {why}: {:?}", tally.failures()));
            seen.insert(format!("{:?}", targets.backends().now));
        }
        assert_eq!(seen.len(), TURNS.len(), "{seen:?}");
        let failed: u64 = targets.known.status(Instant::now()).iter().map(|target| target.failed).sum();
        assert!(failed > 0, "a connect met the target that was dead");
        targets.stop();
        let (seen, established, ended) = (tally.total(), tally.stood(Group::Proxied), targets.end());
        assert!(seen.is_clean(), "{seen:?}: {:?}", tally.failures());
        assert_eq!((ended.accepted, ended.made, ended.open), (2 * established, established, 0));
        assert_eq!(established, KEPT as u64 + 40 * 2 * CONNECTS);
    }
}
