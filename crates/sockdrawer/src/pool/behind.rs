//! The process before this one, as a pool knows it that took over from that: what stayed there is done what is done here.

use crate::error::Error;
use crate::operation::{Drain, Op, Outcome, Selector};

/// The answer to an operation: waits for it, no longer than the operation allows. Dropped, it is not waited for.
pub(crate) type Answer = Box<dyn FnOnce() -> Outcome>;

/// What a pool has in the process before this one.
pub(crate) trait Behind: Send + Sync {
    /// Returns the number of its connections there, and in processes before that one.
    fn connections(&self) -> u64;
    /// The pool begins to be shut down.
    fn shut_down(&self, how: Drain);
    /// Has an operation done to what stayed. None: nothing did.
    fn ask(&self, op: &Op, selector: &Selector) -> Option<Answer>;
    /// Brings a note to what stayed, and, by `here`, to what is this process's; to what is on its way later.
    fn note(
        &self,
        note: &Op,
        selector: &Selector,
        here: &mut dyn FnMut(&Selector) -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error>;
}
