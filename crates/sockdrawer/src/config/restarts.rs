//! Restarts of the parts of a pool that died.

use std::time::Duration;

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

/// Replaces each part that dies, up to a maximum of restarts within a time. At the next death the pool accepts what waits, drains, stops, and
/// says why.
///
/// ```
/// use sockdrawer::restarting::Restarts;
/// use std::time::Duration;
///
/// // At most five within a minute: after 50, 100, 200, 400 and 800 ms.
/// let patient = Restarts { max: 5, within: Duration::from_secs(60), pause: Duration::from_millis(50) };
/// // A part that dies is a reason to end.
/// let none = Restarts { max: 0, ..Restarts::default() };
/// # assert_ne!(patient, none);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Restarts {
    /// Maximum of restarts within the time. Default: 10. Parts of all kinds count together; the last 10,000 restarts are remembered.
    pub max: usize,
    /// The time in which restarts are counted. Default: 10 s.
    pub within: Duration,
    /// Pause before a part is replaced; until then the others do its work. Each restart within the time doubles it, up to that time. Without
    /// effect for a [`Part::Thread`]. Default: 0 s. A part that could not be started waits 100 ms the first time, and at most 1 s, in any case.
    pub pause: Duration,
}

/// 10 within 10 s, at once.
impl Default for Restarts {
    fn default() -> Restarts {
        Restarts { max: 10, within: Duration::from_secs(10), pause: Duration::ZERO }
    }
}
