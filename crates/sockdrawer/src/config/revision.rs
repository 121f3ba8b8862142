//! Which configuration a change is based on, so that two changes made at once do not undo each other.

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

/// How often a pool was changed. Changed under the lock of the pool's changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revision {
    pool: PoolNumber,
    number: u64,
}

/// Of which pool, and at which of its revisions, a configuration was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pool: PoolNumber,
    number: u64,
}

impl Revision {
    /// Of a pool that begins.
    pub(crate) fn first() -> Revision {
        Revision { pool: PoolNumber::next(), number: 1 }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What a configuration is given that is taken now.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { pool: self.pool, number: self.number }
    }

    /// The revision that a configuration of this pool is based on, where that is an older one. One that was made from nothing, or
    /// taken from another pool, is based on none.
    pub(crate) fn conflicts_with(&self, stamp: Option<Stamp>) -> Option<u64> {
        stamp.filter(|stamp| stamp.pool == self.pool && stamp.number != self.number).map(|stamp| stamp.number)
    }

    /// A change was applied.
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
