//! Names that the engine gives, and kinds of jobs.

/// Name of a waiter, in use once. A waiter that came later has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId {
    // The number decides the order: it stands first.
    pub(super) number: u64,
    pub(super) target: TargetId,
}

impl WaiterId {
    pub(super) const MIN: Self = WaiterId { number: 0, target: TargetId(0) };
    pub(super) const MAX: Self = WaiterId { number: u64::MAX, target: TargetId(u64::MAX) };
}

/// Name of a job, in use once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TargetId(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Connect,
    Check,
    Reset,
    Close,
}

/// Numbers for names, each once.
#[derive(Debug, Default)]
pub(super) struct Ids(u64);

impl Ids {
    pub(super) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}
