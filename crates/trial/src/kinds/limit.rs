//! The change to a limit below the number of connections.

use super::change::{Changer, SHOWS_WITHIN, Unseen};
use super::kind::Kind;
use sockdrawer::observe::Status;
use std::time::{Duration, Instant};

/// The maximum time for which a full server is watched: until all clients of the churn wait in its queue.
const FULL: Duration = Duration::from_millis(10);

impl Changer<'_> {
    /// Lowers the limit below the number of connections that stay, and raises it again. A connection that is closed or refused is counted
    /// by its client.
    pub(crate) fn limit_below(&mut self) -> Result<Duration, Unseen> {
        let server = self.scene.server();
        let before = server.status();
        // Half of the connections that stay: the server is above the limit with or without the churn.
        let low = (self.scene.staying / 2).max(1);
        let begun = Instant::now();
        self.reconfigure(Kind::LimitBelow, |config| config.limit = Some(low))?;
        let lowering = begun.elapsed();
        let full = self.full(low);
        // Raised in any case: the next changes need the old limit.
        let begun = Instant::now();
        self.reconfigure(Kind::LimitBelow, |config| config.limit = Some(before.limit))?;
        let took = lowering + begun.elapsed();
        let full = full?;
        let after = server.status();
        if after.limit != before.limit {
            return Err(format!("the limit was raised to {}, the status says {}", before.limit, after.limit));
        }
        if after.counts.rejected != before.counts.rejected {
            return Err(format!("{} connections were rejected", after.counts.rejected - before.counts.rejected));
        }
        if !server.wait(SHOWS_WITHIN, |status| status.counts.accepted >= full.counts.accepted + queued(&full)) {
            return Err(format!("not all that waited were accepted {SHOWS_WITHIN:?} after the limit was raised"));
        }
        self.newest()?;
        Ok(took)
    }

    /// Checks a server whose limit is `low`: connects wait, and none is accepted.
    fn full(&self, low: usize) -> Result<Status, Unseen> {
        let server = &self.scene.server();
        let status = server.status();
        if status.limit != low || status.connections <= low {
            return Err(format!("the status has limit {} and {} connections, not limit {low}", status.limit, status.connections));
        }
        if !server.wait(SHOWS_WITHIN, |status| queued(status) > 0) {
            return Err(format!("no connect waits in the queue {SHOWS_WITHIN:?} after the limit was lowered"));
        }
        // A loop may have taken a permit just before: for one connection, and no more.
        let most = status.counts.accepted + status.loops.len() as u64;
        let all = self.scene.all_churn();
        server.wait(FULL, |status| status.counts.accepted > most || queued(status) >= all);
        let full = server.status();
        if full.counts.accepted > most {
            return Err(format!("{} connections were accepted above the limit", full.counts.accepted - status.counts.accepted));
        }
        Ok(full)
    }
}

/// Returns the number of connections in the accept queues.
pub(super) fn queued(status: &Status) -> u64 {
    status.listeners.iter().map(|listener| listener.queued as u64).sum()
}
