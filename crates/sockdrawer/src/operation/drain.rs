//! Drains: how connections are asked to end, and the result.

use super::Outcome;
use std::time::Duration;

/// The way in which connections are asked to end: deadline, rate and number.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Drain {
    /// The deadline, given to [`Drain::within`]: counted from the call, or from the end of `notice`. In the last tenth of this time, and for a second
    /// at most, connections that wait for the rest of a message or for a job are asked to end too, for last words. A connection that owes its peer
    /// nothing ends in order, then or at the deadline. One that owes it something is cut off by a reset, and counted: output that was not taken, or
    /// an answer to a request of which at least a part came. To say something and close is an answer.
    pub deadline: Duration,
    /// Maximum of connections asked to end per second, in random order. Default: none, all at once.
    pub rate: Option<f64>,
    /// Maximum of connections asked to end, chosen at random from the open ones that were not asked yet; each process takes its part of
    /// them. A connection that had no turn before the deadline stays open. A shutdown always asks all. Default: none, all.
    pub max_connections: Option<usize>,
    /// Time for which [`Pool::shutdown`](crate::Pool::shutdown) goes on accepting after readiness is false, so that a load balancer can notice.
    /// Default: 0 s.
    pub notice: Duration,
}

impl Drain {
    /// Returns a drain that asks all connections at once, with this deadline.
    pub fn within(deadline: Duration) -> Drain {
        Drain { deadline, rate: None, max_connections: None, notice: Duration::ZERO }
    }

    /// Sets the maximum of connections asked to end per second.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Drain {
        self.rate = Some(per_second);
        self
    }

    /// Sets the maximum of connections asked to end, chosen at random.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Drain {
        self.max_connections = Some(connections);
        self
    }

    /// Sets how long a shutdown goes on accepting after readiness is false.
    #[must_use]
    pub fn notice(mut self, notice: Duration) -> Drain {
        self.notice = notice;
        self
    }
}

/// The result of a drain, a purge or a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Drained {
    /// Connections that were to end: the sum of `ended` and `cut`.
    pub asked: usize,
    /// Connections that ended in order: all their output was taken by the kernel, which delivers it.
    pub ended: usize,
    /// Connections that were cut off: output was not taken in time, a request was not answered, or the connection was never accepted.
    /// Their peers see a reset.
    pub cut: usize,
    /// Loops and processes that did not answer in time: connections of theirs that were meant may be none of these, and end once they answer.
    pub silent: usize,
}

impl Drained {
    pub(crate) fn of((ended, cut): (usize, usize)) -> Drained {
        Drained { asked: ended + cut, ended, cut, silent: 0 }
    }

    /// Returns what came of a drain, with the loops and processes that did not answer.
    pub(crate) fn told(outcome: Outcome) -> Drained {
        Drained { silent: outcome.drained.silent + outcome.silent, ..outcome.drained }
    }
}

impl std::iter::Sum for Drained {
    fn sum<I: Iterator<Item = Drained>>(all: I) -> Drained {
        let add = |sum: Drained, one: Drained| Drained {
            asked: sum.asked + one.asked,
            ended: sum.ended + one.ended,
            cut: sum.cut + one.cut,
            silent: sum.silent + one.silent,
        };
        all.fold(Drained::default(), add)
    }
}
