//! How connections are asked to end, and what came of it.

use std::time::Duration;

/// How connections are asked to end.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Drain {
    /// When it is over, counted from the call, or from the end of `notice`. In its last tenth, and for a second at most, protocols
    /// that wait for the rest of a message or for a job are told too, for last words. What is left at the end is cut off: a
    /// connection that owes its peer nothing ends in order, any other by a reset.
    pub deadline: Duration,
    /// The most to ask in a second, in random order; None: all at once.
    pub rate: Option<f64>,
    /// So many of those that stand and were not asked yet, chosen at random, or all where there are fewer; with processes each takes
    /// its part.
    /// Who had no turn before the deadline stays. None, and always when a pool ends: all.
    pub max_connections: Option<usize>,
    /// Before [`Pool::shutdown`](crate::Pool::shutdown) stops accepting, readiness is false for so long, for those who send
    /// connections here to notice.
    pub notice: Duration,
}

impl Drain {
    /// All at once, with this deadline.
    pub fn within(deadline: Duration) -> Drain {
        Drain { deadline, rate: None, max_connections: None, notice: Duration::ZERO }
    }

    /// At most so many a second.
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Drain {
        self.rate = Some(per_second);
        self
    }

    /// So many, chosen at random.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Drain {
        self.max_connections = Some(connections);
        self
    }

    /// Before a shutdown stops accepting, readiness is false for so long.
    #[must_use]
    pub fn notice(mut self, notice: Duration) -> Drain {
        self.notice = notice;
        self
    }
}

/// How a drain went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Drained {
    /// Connections that matched, or as many of them as were to end; `ended` and `cut` together.
    pub asked: usize,
    /// Of these, ended in order: everything that was written to them is delivered, or on its way in the kernel's hands.
    pub ended: usize,
    /// Of these, cut off: output was not taken in time, a request not answered, or the connection was never accepted. Their peers
    /// see a reset.
    pub cut: usize,
}

impl Drained {
    pub(crate) fn of((ended, cut): (usize, usize)) -> Drained {
        Drained { asked: ended + cut, ended, cut }
    }
}

impl std::iter::Sum for Drained {
    fn sum<I: Iterator<Item = Drained>>(all: I) -> Drained {
        let add = |sum: Drained, one: Drained| Drained {
            asked: sum.asked + one.asked,
            ended: sum.ended + one.ended,
            cut: sum.cut + one.cut,
        };
        all.fold(Drained::default(), add)
    }
}
