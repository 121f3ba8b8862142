//! Mistakes on purpose, for trials that must notice them: how connections move to another process.

use crate::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A mistake that the connections of this process are moved with, for a test that must notice it: see [`break_moves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokenMove {
    /// Output that was not sent stays behind.
    ForgetUnsent,
    /// The end of a connection is told to its peer before the next process has it.
    CloseFirst,
    /// Connections that were restored are not given.
    DropSlice,
}

/// Connections that move to another process, or pool, are moved with this mistake from now on; None: with none. It holds for all pools of this
/// process, and not for its helpers.
pub fn break_moves(mistake: Option<BrokenMove>) {
    BROKEN.store(mistake.map_or(0, |mistake| mistake as u8 + 1), Relaxed);
}

static BROKEN: AtomicU8 = AtomicU8::new(0);

pub(crate) fn is_broken(mistake: BrokenMove) -> bool {
    BROKEN.load(Relaxed) == mistake as u8 + 1
}
