//! Clients of a server beside the one that the other kinds change: connections that stay, and others that come at each change.

use crate::sets::stop_connecting;
use crate::{Churn, Echo, Group, Keep, PATIENCE, Tally, mix};
use sockdrawer::observe::Status;
use sockdrawer::{Behaviour, Config, Drain, Error, Pool, connecting::Connecting};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Connections that stay.
pub(crate) const KEPT: usize = 8;
/// Connects that begin before each change, and as many after it.
pub(crate) const CONNECTS: u64 = 4;

/// Both sets of clients of such a server.
pub(crate) struct Beside {
    pub(crate) churn: Pool,
    pub(crate) kept: Pool,
    /// Connects of the churn that were asked for.
    asked: AtomicU64,
}

/// Connects clients of this server.
pub(crate) fn clients(group: Group, server: &Pool, behaviour: Behaviour, keep: usize, total: Option<u64>) -> Result<Pool, Error> {
    let mut connecting = Connecting::to(server.addresses()).keep(keep).timeout(PATIENCE);
    (connecting.sources, connecting.total) = (group.sources(), total);
    Pool::start(Config::connect(behaviour, connecting).loops(1).workers(0).capacity(keep))
}

impl Beside {
    /// Returns once the connections that stay are established, or have failed. Each client is `layered`.
    pub(crate) fn start(
        group: Group,
        server: &Pool,
        tally: &Arc<Tally>,
        seed: u64,
        layered: impl Fn(Behaviour) -> Behaviour,
    ) -> Result<Beside, Error> {
        let witness = tally.witness(group);
        let keep = Keep::new(Echo::new(mix(seed), 1, 64), witness.clone(), mix(seed));
        let kept = clients(group, server, layered(keep.into()), KEPT, Some(KEPT as u64))?;
        kept.wait(PATIENCE, |_| tally.stood(group) >= KEPT as u64);
        let churn = Churn::new(Echo::new(mix(!seed), 16, 16).ending_at_once(), witness);
        let most = usize::try_from(2 * CONNECTS).expect("few");
        let churn = clients(group, server, layered(churn.into()), most, Some(0))?;
        Ok(Beside { churn, kept, asked: AtomicU64::new(0) })
    }

    /// Begins some connects.
    pub(crate) fn connect(&self) -> Result<(), String> {
        let total = self.asked.fetch_add(CONNECTS, Ordering::Relaxed) + CONNECTS;
        let more = self.churn.update(|config| config.connecting(|connecting| connecting.total = Some(total)));
        more.map(drop).map_err(|error| error.to_string())
    }

    /// Waits until all of them have ended.
    pub(crate) fn ended(&self) -> Result<(), String> {
        let total = self.asked.load(Ordering::Relaxed);
        let over = |status: &Status| status.counts.connects >= total && status.connections == 0;
        let over = self.churn.wait(4 * PATIENCE, over);
        if over { Ok(()) } else { Err("clients of the server beside did not end in time".to_owned()) }
    }

    /// Ends the clients in order.
    pub(crate) fn stop(&self) {
        stop_connecting(&self.churn);
        self.churn.wait(4 * PATIENCE, |status| status.connections == 0);
        for clients in [&self.churn, &self.kept] {
            stop_connecting(clients);
            clients.shutdown(Drain::within(2 * PATIENCE));
        }
    }
}
