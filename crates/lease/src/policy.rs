//! Order in which waiters are served, and the rule by which some are sent away.

use std::fmt;
use std::time::Duration;

/// Order in which the waiters for a target are served, and the rule by which some are sent away. It can be changed while they wait: they
/// stay, and are served in the new order from then on.
///
/// ```
/// use sockdrawer_lease::{Policy, Settings};
/// use std::time::Duration;
///
/// let policy = Policy::CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) };
/// let settings = Settings { policy, ..Settings::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// First in, first out. The default: nobody waits longer than a later one. Under an overload all wait until their deadlines.
    #[default]
    Fifo,
    /// First in, first out, until the oldest has waited for this long; then the youngest is served first, until the line is short again.
    /// Under an overload some are served at once, and the others time out.
    AdaptiveLifo {
        /// Wait of the oldest from which the youngest is served first.
        after: Duration,
    },
    /// First in, first out. Once the oldest has waited for longer than the target through all of an interval, each waiter that has waited for twice
    /// the target is sent away with [`Error::Dropped`](crate::Error::Dropped), until the wait of the oldest falls below the target. A burst
    /// that is shorter than the interval loses nobody.
    ///
    /// Nobody is dropped while a check, or a connect within twice its usual time, is about to bring a connection, nor while the pool is
    /// suspended or drained.
    CoDel {
        /// Wait that is good enough. Half of the longest wait that is worth it.
        target: Duration,
        /// Time for which the wait must be above the target, without a pause. Longer than a usual burst.
        interval: Duration,
    },
    /// The keys of [`Request::key`](crate::Request::key) take turns, and each has its own line, first in, first out: a key that asks a lot
    /// delays itself alone.
    Fair,
    /// The highest [`Request::priority`](crate::Request::priority) first; among equals, first in, first out. A low one may never be served.
    Priority,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Fifo => f.write_str("first in, first out"),
            Policy::AdaptiveLifo { after } => write!(f, "last in, first out after {after:?}"),
            Policy::CoDel { target, interval } => write!(f, "CoDel with a target of {target:?} within {interval:?}"),
            Policy::Fair => f.write_str("fair by key"),
            Policy::Priority => f.write_str("by priority"),
        }
    }
}
