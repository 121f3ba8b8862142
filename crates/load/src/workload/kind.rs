//! Parts that every workload has.

use super::shared::Shared;
use sockdrawer::{Behaviour, Model};
use std::sync::Arc;
use std::time::Duration;

pub(crate) trait Kind {
    /// Returns the properties of its runs.
    fn properties(&self) -> Properties;

    /// Returns the client: the work of the connections of a run.
    fn client(&self, shared: &Arc<Shared>) -> Behaviour;

    /// Returns the server for it in this process, and the model that runs its connections.
    fn server(&self) -> (Behaviour, Model);

    /// Sets the operations per second of all connections together. Returns false where its operations have no pace of their own.
    fn set_rate(&mut self, _per_second: f64, _connections: usize) -> bool {
        false
    }
}

/// Properties of the runs of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Properties {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// Time that a connection stays.
    pub life: Life,
    /// True where this side ends connections first: their ports rest in TIME_WAIT then.
    pub ends_first: bool,
    /// True where the server in this process has answers that wait, each in a worker.
    pub has_slow_answers: bool,
    /// Time from one operation of a connection to the next; zero where they are back to back, or come otherwise.
    pub interval: Duration,
    /// Connections begun in a second, on schedule whatever the server does; None: another begins when there is a place for it.
    pub schedule: Option<f64>,
}

impl Properties {
    /// Creates properties: operations are back to back, the server ends connections that end, and no schedule begins them.
    pub(crate) fn new(name: &'static str, life: Life) -> Properties {
        Properties { name, life, ends_first: false, has_slow_answers: false, interval: Duration::ZERO, schedule: None }
    }
}

/// Time that a connection of a workload stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It stays to the end, with one round trip after the other; the interval between them may change while the run goes on.
    RoundTrips,
    /// It stays to the end, with many operations under way.
    Stream,
    /// It stays until the server ends it after an operation; then another takes its place. With one round trip after the other; the interval between
    /// them may change while the run goes on.
    Kept,
    /// It stays for one operation; then another takes its place.
    Short,
}

impl Life {
    /// Returns true where a connection that ends is replaced by another.
    pub fn renews(self) -> bool {
        matches!(self, Life::Kept | Life::Short)
    }
}

/// Returns the time from one operation of a connection to its next, where `connections` connections have `per_second` operations per second.
#[expect(clippy::cast_precision_loss, reason = "connections are far below 2^53")]
pub(super) fn each(per_second: f64, connections: usize) -> Duration {
    Duration::try_from_secs_f64(connections as f64 / per_second).unwrap_or(Duration::MAX)
}
