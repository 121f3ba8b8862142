//! The two sets of clients that run: two pools that connect.

use super::clients::{Cause, Churn, Keep, PATIENCE, Phase, Witness};
use super::deliveries::{Delivered, Deliveries, Losses};
use super::exchange::Exchange;
use super::script::Broadcast;
use super::subscribers::Subscribers;
use super::tally::{Group, Tally};
use crate::websocket::Carried;
use crate::{Stopped, Tls};
use sockdrawer::{Address, Behaviour, Config, Drain, Error, IntoBehaviour, Pool, Selector, connecting::Connecting};
use sockdrawer_websocket::Carrier;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum of connects per second, and local address, to a target that is not on the loopback. Closed short connections keep their ports
/// in TIME_WAIT for a minute, and there are 28,000 ports per pair of addresses; this end has a single address.
const CONNECTS_PER_SECOND_AND_ADDRESS: f64 = 400.0;
/// Handshakes of TLS per second by which connections that stay begin: they cost both ends about a millisecond of CPU time in all, and thousands at once would
/// take longer than a client waits.
const HANDSHAKES_PER_SECOND: f64 = 500.0;
/// Connects per second of a probe on the loopback; there are ports enough for them and the other clients.
const PROBES_PER_SECOND: f64 = 1_000.0;
const PROBES_PER_SECOND_AND_ADDRESS: f64 = 50.0;
/// Maximum of connections of a probe at once, while the server accepts and does not answer.
const PROBES_AT_ONCE: usize = 64;
/// The time for which connections that are cut off may still send their output.
const CUT_WITHIN: Duration = Duration::from_millis(100);
/// The time between two looks whether clients that leave have left.
const LOOK: Duration = Duration::from_millis(50);

/// The clients of a trial: their target and their numbers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address that the clients connect to.
    pub target: Address,
    /// The number of clients, at once, that connect, exchange and end.
    pub connections: usize,
    /// The number of connections that stay.
    pub kept: usize,
    /// The seed of the pauses of connections that stay.
    pub seed: u64,
    /// TLS with the target; None: without.
    pub tls: Option<Tls>,
    /// The WebSocket that carries the exchanges; None: none does.
    pub websocket: Option<Carrier>,
    /// The messages of connections that stay and hear each other, in the place of their exchanges; None: they do not.
    pub broadcast: Option<Broadcast>,
}

impl Plan {
    /// Creates clients that stay: they have this exchange, or hear each other.
    pub(crate) fn keep<E: Exchange, W: Witness>(&self, kept: E, witness: &Arc<W>, deliveries: &Arc<Deliveries>) -> Behaviour {
        match &self.broadcast {
            None => {
                let in_pieces = self.websocket.is_none() && kept.may_split();
                self.secured(Keep::new(kept, witness.clone(), self.seed).of(self.kept).in_pieces(in_pieces), witness)
            }
            Some(broadcast) => {
                let subscribers = Subscribers::new(broadcast.clone(), deliveries.clone(), witness.clone(), self.kept, self.seed);
                self.secured(subscribers, witness)
            }
        }
    }

    /// Returns clients that report to this witness, by WebSocket and under TLS if they are to be.
    pub(crate) fn secured<W: Witness>(&self, clients: impl IntoBehaviour, witness: &Arc<W>) -> Behaviour {
        let clients = clients.into_behaviour();
        let clients = match &self.websocket {
            Some(carrier) => clients.layered(Carried::new(carrier, witness)),
            None => clients,
        };
        match &self.tls {
            Some(tls) => clients.layered(tls.layer(witness)),
            None => clients,
        }
    }

    /// Returns the maximum of connects per second that this machine can make to the target; None on the loopback, which has addresses enough.
    pub fn connect_rate(&self) -> Option<f64> {
        match &self.target {
            Address::Tcp(target) if !target.ip().to_canonical().is_loopback() => Some(CONNECTS_PER_SECOND_AND_ADDRESS),
            _ => None,
        }
    }
}

/// Two sets of clients that run.
pub struct Clients {
    churn: Pool,
    kept: Option<Pool>,
    tally: Arc<Tally>,
    deliveries: Arc<Deliveries>,
}

impl Clients {
    /// Starts the clients. Connections that stay are established first; see [`Clients::standing`] for those that are not, once none has been
    /// for 5 s.
    ///
    /// # Errors
    /// When a pool cannot start.
    pub fn start<E: Exchange>(plan: &Plan, churn: E, kept: E, tally: &Arc<Tally>) -> Result<Clients, Error> {
        let deliveries = Arc::default();
        let keep = plan.keep(kept, &tally.witness(Group::Kept), &deliveries);
        let keep = (plan.kept > 0).then(|| pool(plan, Group::Kept, keep, plan.kept)).transpose()?;
        if let Some(kept) = &keep {
            let (wanted, mut stood) = (plan.kept as u64, 0);
            while !kept.wait(PATIENCE, |_| tally.stood(Group::Kept) >= wanted) && tally.stood(Group::Kept) > stood {
                stood = tally.stood(Group::Kept);
            }
        }
        tally.start_churn();
        let witness = tally.witness(Group::Churn);
        let churn = plan.secured(Churn::new(churn, witness.clone()), &witness);
        let churn = pool(plan, Group::Churn, churn, plan.connections)?;
        Ok(Clients { churn, kept: keep, tally: tally.clone(), deliveries })
    }

    /// Returns the number of kept connections that are established now.
    pub fn standing(&self) -> usize {
        let left = self.tally.stood(Group::Kept).saturating_sub(self.tally.total().lost());
        // Connections that gave up after wrong bytes are not lost, and gone nevertheless.
        let there = self.kept.as_ref().map_or(0, |kept| kept.status().connections);
        usize::try_from(left).unwrap_or(usize::MAX).min(there)
    }

    /// Waits until `count` connects of the churn have ended from now on. Returns false after `within`.
    pub fn await_connects(&self, count: u64, within: Duration) -> bool {
        let wanted = self.tally.total().connects + count;
        self.churn.wait(within, |_| self.tally.total().connects >= wanted)
    }

    /// Waits until connections that stay have got an answer, or heard a message, for each of them on the average. Returns false after `within`.
    pub fn await_answers(&self, within: Duration) -> bool {
        let Some(kept) = &self.kept else { return true };
        let wanted = self.tally.total().kept_exchanges + self.standing() as u64;
        kept.wait(within, |_| self.tally.total().kept_exchanges >= wanted)
    }

    /// Lets clients that hear each other publish no more, and waits until all have heard everything, for at most [`PATIENCE`]. Returns the counts of
    /// each sender.
    pub fn settle(&self) -> Vec<Delivered> {
        self.settle_with_losses().0
    }

    /// Says that the next change begins.
    pub(crate) fn next_change(&self) {
        self.deliveries.next_change();
    }

    /// Says that the change is over, in which a process was `killed` or not: one serves alone.
    pub(crate) fn change_ends(&self, killed: bool) {
        self.deliveries.change_ends(killed);
    }

    /// Does as [`Clients::settle`]. Returns also what was lost.
    pub(crate) fn settle_with_losses(&self) -> (Vec<Delivered>, Losses) {
        self.deliveries.be_quiet();
        if let Some(kept) = &self.kept {
            kept.wait(PATIENCE, |_| self.deliveries.is_complete());
        }
        let lost = self.deliveries.close();
        (self.deliveries.by_sender(), lost)
    }

    /// Ends the churn, each client after its answer, then the connections that stay. Failures of their ends are still counted.
    pub fn stop(&self) {
        stop_connecting(&self.churn);
        // Each client ends by itself: a step that lasts longer than the patience is a failure.
        self.churn.wait(4 * PATIENCE, |status| status.connections == 0);
        self.churn.shutdown(Drain::within(PATIENCE));
        if let Some(kept) = &self.kept {
            stop_connecting(kept);
            kept.shutdown(Drain::within(2 * PATIENCE));
        }
    }

    /// Lets no client begin anything more, and waits until each has its answer or has given up, unless `stop` says so before. Then all leave: how the server
    /// ends connections that stay is not counted.
    pub(crate) fn leave(&self, stop: Stopped<'_>) {
        let until = Instant::now() + 4 * PATIENCE;
        let pools = || self.kept.iter().chain([&self.churn]);
        pools().for_each(stop_connecting);
        while pools().any(|pool| pool.status().connections > 0) && Instant::now() < until && !stop(Duration::ZERO) {
            if let Some(kept) = &self.kept {
                // Also to those that have connected since.
                let _ = kept.notify(&Selector::All, &b""[..]);
            }
            pools().for_each(|pool| _ = pool.wait(LOOK, |status| status.connections == 0));
        }
    }

    /// Cuts off all connections at once. Read the tally before.
    pub fn cut(&self) {
        for pool in self.kept.iter().chain([&self.churn]) {
            pool.shutdown(Drain::within(CUT_WITHIN));
        }
    }
}

/// Connects and asks at a steady rate, whether or not the connect before succeeded. It measures how long a server answers no client: the
/// churn would see that too late, because its clients rest up to half a second after a failed connect.
pub struct Probe(Pool);

impl Probe {
    /// Starts a probe that reports only answers to `tally`, for the longest gap.
    ///
    /// # Errors
    /// When its pool cannot start.
    pub fn start<E: Exchange>(plan: &Plan, exchange: E, tally: &Arc<Tally>) -> Result<Probe, Error> {
        let near = plan.connect_rate().is_none();
        let connecting = Connecting::to([&plan.target])
            .keep(PROBES_AT_ONCE)
            .rate(if near { PROBES_PER_SECOND } else { PROBES_PER_SECOND_AND_ADDRESS })
            .sources(sources(&plan.target, Group::Probe))
            .timeout(PATIENCE)
            // In a pool with a total, even the maximum, a failed connect is not followed by a rest.
            .total(u64::MAX);
        let witness = Arc::new(Gap(tally.clone()));
        let churn = plan.secured(Churn::new(exchange, witness.clone()), &witness);
        Pool::start(Config::connect(churn, connecting).loops(1).workers(0).capacity(1)).map(Probe)
    }

    /// Ends the probe at once.
    pub fn cut(&self) {
        self.0.shutdown(Drain::within(CUT_WITHIN));
    }
}

/// The witness of a probe, which reports only answers.
struct Gap(Arc<Tally>);

impl Witness for Gap {
    fn answered(&self) {
        self.0.answered();
    }

    fn wrong(&self, _bytes: usize) {}

    fn failed(&self, _phase: Phase, _cause: Cause) {}
}

fn pool(plan: &Plan, group: Group, behaviour: Behaviour, count: usize) -> Result<Pool, Error> {
    let connecting = Connecting::to([&plan.target]).keep(count).timeout(PATIENCE);
    let mut connecting = connecting.sources(sources(&plan.target, group));
    connecting.rate = match group {
        Group::Churn => plan.connect_rate(),
        Group::Kept => plan.tls.as_ref().map(|_| HANDSHAKES_PER_SECOND),
        _ => None,
    };
    Pool::start(Config::connect(behaviour, connecting).loops(1).workers(0).capacity(count))
}

/// Returns the source addresses of a set; outside of the loopback the kernel chooses the only one.
fn sources(target: &Address, group: Group) -> Vec<IpAddr> {
    match target {
        Address::Tcp(SocketAddr::V4(target)) if target.ip().is_loopback() => group.sources(),
        _ => Vec::new(),
    }
}

/// Stops further connects. Ending the pool at once would cut off connects whose handshake is under way.
pub(crate) fn stop_connecting(pool: &Pool) {
    // An error means that the pool gave up: it does not connect any more either.
    let _ = pool.update(|config| config.connecting(|connecting| connecting.total = Some(0)));
    // Every loop answers this, after it has seen the change.
    pool.connections(&Selector::All);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Echo;

    #[test]
    fn a_probe_does_not_rest_where_nothing_listens() {
        // At an address where no other test listens: the port stays free.
        let listener = std::net::TcpListener::bind("127.0.95.1:0").expect("a free port");
        let target = Address::Tcp(listener.local_addr().expect("it is bound"));
        let (plan, tally) = (
            Plan { target, connections: 1, kept: 0, seed: 1, tls: None, websocket: None, broadcast: None },
            Arc::new(Tally::new()),
        );
        drop(listener);
        let probe = Probe::start(&plan, Echo::new(1, 1, 1), &tally).expect("the probe starts");
        // Clients that rest would need minutes for so many.
        assert!(probe.0.wait(6 * PATIENCE, |status| status.counts.connect_failed >= 300), "{:?}", probe.0.status().counts);
        probe.cut();
        assert_eq!(tally.next().connects, 0, "it is not one of the clients");
    }
}
