//! Reasons for which nothing was leased.

use crate::policy::Policy;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Error of a connect, check or reset, as the user's code returned it. Shared: all callers that waited get this one.
pub type ConnectError = Arc<dyn std::error::Error + Send + Sync>;

/// Reason for which nothing was leased. The counts are those of the moment at which the wait ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's deadline: no connection was to be had until then.
    #[error(
        "no connection within {waited:?}: place {place} in line, {leased} leased, {free} free or being checked, {connecting} connecting, {others} \
         to other targets{}",
        said(last_connect_error)
    )]
    TimedOut {
        /// Time in line.
        waited: Duration,
        /// Place by age among the waiters for the target, at the end; 1 is the oldest.
        place: usize,
        /// Connections to the target that nobody leased: free, or being checked or reset.
        free: usize,
        /// Connections to the target that are leased: by too many, or for too long.
        leased: usize,
        /// Connects to the target that are under way.
        connecting: usize,
        /// Connections to other targets, which count for the maximum of the pool.
        others: usize,
        /// Error of the last connect to the target, if none succeeded since.
        last_connect_error: Option<ConnectError>,
    },
    /// The maximum of callers that wait was reached: raise [`Settings::max_waiters`](crate::Settings::max_waiters), or ask less.
    #[error("{waiting} wait already, which is the maximum")]
    Full {
        /// Waiters of the pool.
        waiting: usize,
    },
    /// The policy sent the waiter away, because more is asked for than can be served. Ask less, or raise the maximum.
    #[error("dropped after {waited:?} by {policy}: more is asked for than can be served")]
    Dropped {
        /// Policy in force.
        policy: Policy,
        /// Time in line.
        waited: Duration,
    },
    /// The target's connects fail, and it has no connection that could be waited for.
    #[error("the target is down: {error}")]
    Down {
        /// Error of the last connect.
        error: ConnectError,
        /// Moment of the first of these failures.
        since: Instant,
        /// Earliest moment of the next connect. It is begun for the caller that asks first then; where one is under way, this is in the past.
        next_try: Instant,
    },
    /// The caller's deadline, while the pool was suspended.
    #[error("the pool is suspended")]
    Suspended,
    /// The pool is closed, or is being drained.
    #[error("the pool is closed")]
    Closed,
}

fn said(error: &Option<ConnectError>) -> String {
    error.as_ref().map(|error| format!("; the last connect failed: {error}")).unwrap_or_default()
}
