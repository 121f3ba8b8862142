//! Restart policies: what is done when a part of a pool dies.

use super::Restarts;
use std::time::{Duration, Instant};

/// A part of a pool that can die by a fault of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Part {
    /// A loop; in models with a single loop, the one that accepts.
    Loop,
    /// A thread that runs jobs.
    Worker,
    /// A thread of [`Model::Threads`](crate::Model::Threads). It is not replaced: the next connection gets another thread.
    Thread,
    /// A helper process of [`Model::Fork`](crate::Model::Fork) or [`Model::Prefork`](crate::Model::Prefork). A connection's own process is
    /// not such a part: when it dies, only its connection is lost.
    Process,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Part::Loop => "loop",
            Part::Worker => "worker",
            Part::Thread => "thread",
            Part::Process => "process",
        })
    }
}

/// The death of a part, as a [`RestartPolicy`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Death<'a> {
    /// The kind of part that died.
    pub part: Part,
    /// The number of the part, if such parts have numbers: a loop, a process.
    pub index: Option<usize>,
    /// The panic's message, how the process ended, or why the part could not be started, which counts as a death too.
    pub reason: &'a str,
    /// When the death was noticed.
    pub at: Instant,
    /// When parts of the pool, of any kind, were replaced before, oldest first: at most the last 10,000.
    pub restarts: &'a [Instant],
}

/// The decision of a [`RestartPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// The part is replaced at once. If it could not be started, after a pause: 100 ms the first time, at most 1 s.
    Now,
    /// The part is replaced after this time; until then the others do its work. Without effect for a [`Part::Thread`].
    After(Duration),
    /// The part is not replaced: the pool accepts what waits, drains and stops, and reports why.
    GiveUp,
}

/// Decides what is done when a part of a pool dies. The default is [`Restarts`].
///
/// It is called on the pool's supervising thread, for one death after another: until it has returned, nothing else is replaced. It must
/// not wait for its pool. A panic in it is reported, and the default policy decides in its place.
///
/// ```
/// use sockdrawer::restarting::{Death, Replace, RestartPolicy};
/// use std::time::Duration;
///
/// /// Never gives up: each death within the last minute doubles the pause.
/// struct Patience;
///
/// impl RestartPolicy for Patience {
///     fn decide(&self, death: &Death<'_>) -> Replace {
///         let recent = death.restarts.iter().filter(|at| death.at.duration_since(**at) < Duration::from_secs(60)).count();
///         match recent {
///             0 => Replace::Now,
///             _ => Replace::After(Duration::from_millis(10 << recent.min(10))),
///         }
///     }
/// }
/// ```
pub trait RestartPolicy: Send + Sync + 'static {
    /// Decides about this death.
    fn decide(&self, death: &Death<'_>) -> Replace;

    /// This policy as data, for the pool's helper processes, which replace their own loops and workers and cannot call the policy. With
    /// None, the default, they use `Restarts::default()`.
    fn data(&self) -> Option<Restarts> {
        None
    }
}
