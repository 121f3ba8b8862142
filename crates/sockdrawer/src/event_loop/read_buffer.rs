//! The memory that a loop reads to.

use super::READ_BYTES;
use crate::sys::{Errno, Pages};

/// A loop whose reads brought what it had to keep reads less at a time, but not less than this.
pub(super) const LEAST_READ_BYTES: usize = 4 * 1024;

/// The read buffer of a loop, and the maximum of its next read. In the kernel, input costs no more than a socket's buffer.
pub(super) struct ReadBuffer {
    pub(super) pages: Pages,
    pub(super) most: usize,
}

impl Default for ReadBuffer {
    fn default() -> ReadBuffer {
        ReadBuffer { pages: Pages::default(), most: READ_BYTES }
    }
}

impl ReadBuffer {
    /// Makes room for kept input of this length, and what reads bring behind it. Pages that are never touched cost nothing.
    pub(super) fn grow(&mut self, kept: usize) -> Result<(), Errno> {
        // While it was held, one read more may have come.
        let room = kept + 2 * READ_BYTES;
        if self.pages.len() < room {
            self.pages = Pages::new(room)?;
        }
        Ok(())
    }

    /// Makes reads smaller from here on: one brought more than may be kept, and the connection cannot have the rest now. All connections
    /// of the loop pay a little for the one that did it, and not each that comes may do it once.
    #[cold]
    pub(super) fn read_less(&mut self, bound: usize) {
        self.most = self.most.min(bound.max(LEAST_READ_BYTES));
    }
}
