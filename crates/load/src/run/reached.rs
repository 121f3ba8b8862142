//! Comparison of a run with what it was asked for, and what stood in its way besides the server.

use super::Run;
use super::over::Over;
use crate::agent::Agents;
use crate::numbers::float;
use crate::{proc, server, wall};
use std::time::Duration;

/// Minimum number of failed handshakes that end a run: of fewer, the next may succeed.
const SEVERAL: u64 = 3;

impl Run<'_> {
    /// Returns how many of the connections that there were to be were not begun when the time was over. Stages and orders change how many
    /// those are, and of short ones there are as many as there is time for.
    pub(super) fn not_begun(&self, over: Over, connects: u64) -> u64 {
        let counts = over == Over::Time && !self.plan.is_short() && self.plan.stages.is_empty() && self.actions.is_empty();
        if counts { self.aimed.saturating_sub(connects) } else { 0 }
    }

    /// Returns how many CPUs of this machine other programs used.
    pub(super) fn others(&mut self, client: Option<Duration>, server: Option<Duration>) -> Option<f64> {
        let is_here = self.plan.targets.iter().any(server::is_here);
        if matches!(self.agents, Agents::Hosts(_)) || (is_here && server.is_none()) {
            return None;
        }
        let used = proc::busy_time()?.saturating_sub(self.busy?);
        let own = client? + server.filter(|_| is_here || self.plan.targets.is_empty()).unwrap_or_default();
        Some(used.saturating_sub(own).as_secs_f64() / self.start.elapsed().as_secs_f64().max(1e-3))
    }

    /// Returns whether no handshake succeeded, and several failed for a reason that all others will have: they would be thousands a second.
    pub(super) fn is_refused(&mut self) -> bool {
        let goes_on = self.plan.renews() && self.plan.operations.is_none();
        let shakes_hands = self.plan.tls.is_some() || self.plan.websocket.is_some();
        if !shakes_hands || !goes_on || matches!(self.agents, Agents::Hosts(_)) || self.numbers().established > 0 {
            return false;
        }
        self.gather(false);
        let errors = self.sum.errors(self.start).into_iter().chain(self.recent.errors(self.start));
        let (refused, others): (Vec<_>, Vec<_>) =
            errors.partition(|error| matches!(&*error.phase, "handshake" | "upgrade") && !wall::is_late(&error.errno));
        self.numbers().established == 0 && others.is_empty() && refused.iter().map(|error| error.count).sum::<u64>() >= SEVERAL
    }

    /// Returns how many were established per second: those that are not replaced, until the last one.
    pub(super) fn connects_per_second(&self, seconds: f64) -> f64 {
        let last = self.sum.connected.map(|last| last.saturating_duration_since(self.start).as_secs_f64());
        let is_renewed = self.plan.is_short() || self.plan.lifetime.is_some();
        let seconds = last.filter(|last| !is_renewed && *last > 0.0).unwrap_or(seconds);
        if seconds > 0.0 { float(self.sum.numbers.established) / seconds } else { 0.0 }
    }
}
