//! What is done when a part of a pool dies.

use super::Restarts;
use std::time::{Duration, Instant};

/// A part of a pool that can die by a fault of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Part {
    /// A loop; the one that accepts in models that accept in one place.
    Loop,
    /// A thread that runs jobs.
    Worker,
    /// A thread of [`Model::Threads`](crate::Model::Threads). There is none to be replaced: the next connection gets another.
    Thread,
    /// A process of [`Model::Fork`](crate::Model::Fork) or [`Model::Prefork`](crate::Model::Prefork). A connection's own process is
    /// none of these: it takes nothing with it but its connection.
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

/// A part died.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Death<'a> {
    /// What it was.
    pub part: Part,
    /// Which of several, where they have numbers: a loop, a process.
    pub index: Option<usize>,
    /// The panic's message, how the process ended, or why the part could not be started: that counts as a death too.
    pub reason: &'a str,
    /// When it was noticed.
    pub at: Instant,
    /// When parts of the pool were replaced before, whatever they were, oldest first: at most the last 10,000.
    pub restarts: &'a [Instant],
}

/// What a [`RestartPolicy`] wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// At once. Where it could not be started, after a pause: 100 ms the first time, at most 1 s.
    Now,
    /// After so long; until then the others do its work. A [`Part::Thread`] has no successor to wait for.
    After(Duration),
    /// Not at all: the pool accepts what waits, drains and stops, and says why.
    GiveUp,
}

/// Decides what is done when a part of a pool dies. The default is [`Restarts`].
///
/// Called on the pool's supervising thread, for one death after another: until it has returned nothing else is replaced. It must not
/// wait for its pool. A panic in it is told, and the default decides in its place.
///
/// ```
/// use sockdrawer::{Death, Replace, RestartPolicy};
/// use std::time::Duration;
///
/// /// Never gives up, but takes its time: twice as long for each death of the last minute.
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
    /// What to do about this death.
    fn decide(&self, death: &Death<'_>) -> Replace;

    /// The same policy as data, for the pool's other processes, which replace their own loops and workers and cannot ask it. None:
    /// there it is `Restarts::default()`.
    fn data(&self) -> Option<Restarts> {
        None
    }
}
