//! Revisions: the configuration that a change is based on, so that concurrent changes do not undo each other.

use std::sync::atomic::{AtomicU64, Ordering};

/// A pool's number, unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolNumber(u64);

impl PoolNumber {
    pub(crate) fn next() -> PoolNumber {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        PoolNumber(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The number of changes of a pool. Modified under the lock of the pool's changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revision {
    pool: PoolNumber,
    number: u64,
}

/// The pool and the revision from which a configuration was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pool: PoolNumber,
    number: u64,
}

impl Revision {
    /// Returns the revision of a new pool.
    pub(crate) fn first() -> Revision {
        Revision { pool: PoolNumber::next(), number: 1 }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the stamp of a configuration that is copied now.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { pool: self.pool, number: self.number }
    }

    /// Returns the revision that a configuration of this pool is based on, if it is an older one. A configuration that was made from nothing, or
    /// taken from another pool, is based on none.
    pub(crate) fn conflicts_with(&self, stamp: Option<Stamp>) -> Option<u64> {
        stamp.filter(|stamp| stamp.pool == self.pool && stamp.number != self.number).map(|stamp| stamp.number)
    }

    /// Counts a change that was applied.
    pub(crate) fn raise(&mut self) {
        self.number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_older_configuration_of_the_same_pool_conflicts() {
        let (mut one, two) = (Revision::first(), Revision::first());
        let taken = one.stamp();
        assert_eq!(one.conflicts_with(Some(taken)), None);
        one.raise();
        assert_eq!(one.conflicts_with(Some(taken)), Some(1));
        assert_eq!((one.conflicts_with(None), two.conflicts_with(Some(taken))), (None, None));
    }
}
