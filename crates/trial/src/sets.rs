//! The two sets of clients at work: two pools that connect.

use super::clients::{Cause, Churn, Keep, PATIENCE, Phase, Witness};
use super::exchange::Exchange;
use super::tally::{Group, Tally};
use sockdrawer::{Address, Config, Connecting, Drain, Endpoint, Error, Pool};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Ends of short connections keep their ports for a minute: 28,000 for each address of this end and each of the other. Elsewhere
/// than on the loopback, where this end has one address, fewer connects than that are made.
const CONNECTS_PER_SECOND_AND_ADDRESS: f64 = 400.0;
/// Connects of a probe, which together with the others have ports enough.
const PROBES_PER_SECOND: f64 = 1_000.0;
const PROBES_PER_SECOND_AND_ADDRESS: f64 = 50.0;
/// Of these, those that may wait for a server that lets in and does not answer.
const PROBES_AT_ONCE: usize = 64;
/// What is cut off when the clients stop has this long to take what was written.
const CUT_WITHIN: Duration = Duration::from_millis(100);

/// Which clients.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whom they connect to.
    pub target: Address,
    /// Clients that come and go, at once.
    pub connections: usize,
    /// Connections that stay.
    pub kept: usize,
    /// What the pauses of those that stay begin with.
    pub seed: u64,
}

impl Plan {
    /// The most connects per second that this machine can make towards the target; None where it has addresses enough.
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
}

impl Clients {
    /// Starts them. Those that stay stand first, or have failed to within 5 s: see [`Clients::standing`].
    ///
    /// # Errors
    /// When a pool cannot start.
    pub fn start<E: Exchange>(plan: &Plan, churn: E, kept: E, tally: &Arc<Tally>) -> Result<Clients, Error> {
        let keep = Keep::new(kept, tally.witness(Group::Kept), plan.seed);
        let keep = (plan.kept > 0).then(|| pool(plan, Group::Kept, keep, plan.kept)).transpose()?;
        if let Some(kept) = &keep {
            let wanted = plan.kept as u64;
            kept.wait(PATIENCE, |_| tally.stood(Group::Kept) >= wanted);
        }
        tally.start_churn();
        let churn = pool(plan, Group::Churn, Churn::new(churn, tally.witness(Group::Churn)), plan.connections)?;
        Ok(Clients { churn, kept: keep, tally: tally.clone() })
    }

    /// Kept connections that stand now.
    pub fn standing(&self) -> usize {
        let left = self.tally.stood(Group::Kept).saturating_sub(self.tally.total().lost());
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Waits until so many connects of the churn ended from now on; false when they did not within this time.
    pub fn await_connects(&self, count: u64, within: Duration) -> bool {
        let wanted = self.tally.total().connects + count;
        self.churn.wait(within, |_| self.tally.total().connects >= wanted)
    }

    /// Ends those that come and go, each after its answer, then those that stay. What their ends meet with is still counted.
    pub fn stop(&self) {
        stop_connecting(&self.churn);
        // Each ends by itself: a step that lasts longer than the patience fails it.
        self.churn.wait(4 * PATIENCE, |status| status.connections == 0);
        self.churn.shutdown(Drain::within(PATIENCE));
        if let Some(kept) = &self.kept {
            stop_connecting(kept);
            kept.shutdown(Drain::within(2 * PATIENCE));
        }
    }

    /// Ends all at once. Read the tally before.
    pub fn cut(&self) {
        for pool in self.kept.iter().chain([&self.churn]) {
            pool.shutdown(Drain::within(CUT_WITHIN));
        }
    }
}

/// Connects and asks at a steady pace, whatever came of the connect before. Clients that come and go rest after a connect that failed,
/// up to half a second: how long a server answers nobody, they see too late.
pub struct Probe(Pool);

impl Probe {
    /// Tells `tally` of each answer, and nothing else: it measures the longest gap.
    ///
    /// # Errors
    /// When its pool cannot start.
    pub fn start<E: Exchange>(plan: &Plan, exchange: E, tally: &Arc<Tally>) -> Result<Probe, Error> {
        let mut connecting = Connecting::to(vec![plan.target.clone()]);
        let near = plan.connect_rate().is_none();
        connecting.rate = Some(if near { PROBES_PER_SECOND } else { PROBES_PER_SECOND_AND_ADDRESS });
        connecting.sources = sources(&plan.target, Group::Probe);
        connecting.timeout = PATIENCE;
        // With a total, even of all that there could be, a connect that fails brings no rest.
        connecting.total = Some(u64::MAX);
        let churn = Churn::new(exchange, Arc::new(Gap(tally.clone())));
        Pool::start(Config::connect(churn, connecting).loops(1).workers(0).capacity(1).limit(PROBES_AT_ONCE)).map(Probe)
    }

    /// Ends it at once.
    pub fn cut(&self) {
        self.0.shutdown(Drain::within(CUT_WITHIN));
    }
}

/// What a probe tells.
struct Gap(Arc<Tally>);

impl Witness for Gap {
    fn answered(&self) {
        self.0.answered();
    }

    fn wrong(&self, _bytes: usize) {}

    fn failed(&self, _phase: Phase, _cause: Cause) {}
}

fn pool(plan: &Plan, group: Group, behaviour: impl Into<sockdrawer::Behaviour>, count: usize) -> Result<Pool, Error> {
    let mut connecting = Connecting::to(vec![plan.target.clone()]);
    connecting.sources = sources(&plan.target, group);
    connecting.timeout = PATIENCE;
    connecting.rate = plan.connect_rate().filter(|_| group == Group::Churn);
    Pool::start(Config::connect(behaviour, connecting).loops(1).workers(0).capacity(count).limit(count))
}

/// Elsewhere than on the loopback this end has one address.
fn sources(target: &Address, group: Group) -> Vec<IpAddr> {
    match target {
        Address::Tcp(SocketAddr::V4(target)) if target.ip().is_loopback() => group.sources(),
        _ => Vec::new(),
    }
}

/// No further connects. Ending the pool at once would cut off those whose handshake runs.
pub(crate) fn stop_connecting(pool: &Pool) {
    let mut config = pool.config();
    if let Endpoint::Connect(connecting) = &mut config.endpoint {
        connecting.total = Some(0);
    }
    // A pool that gave up connects no more either.
    let _ = pool.reconfigure(config);
    // Every loop has answered, so every loop has heard of it.
    pool.connections(&sockdrawer::Selector::All);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Echo;

    #[test]
    fn a_probe_does_not_rest_where_nothing_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let target = Address::Tcp(listener.local_addr().expect("it is bound"));
        let (plan, tally) = (Plan { target, connections: 1, kept: 0, seed: 1 }, Arc::new(Tally::new()));
        drop(listener);
        let probe = Probe::start(&plan, Echo::new(1, 1, 1), &tally).expect("the probe starts");
        // Clients that rest would need minutes for so many.
        assert!(probe.0.wait(6 * PATIENCE, |status| status.counts.connect_failed >= 300), "{:?}", probe.0.status().counts);
        probe.cut();
        assert_eq!(tally.next().connects, 0, "it is not one of the clients");
    }
}
