//! The process before this one, as a pool knows it that took over from that: what stayed there is done what is done here.

use crate::error::Error;
use crate::operation::{Drain, Op, Outcome, Selector};

/// The answer to an operation. Called, it waits no longer than the operation allows; dropped, the answer is not waited for.
pub(crate) type Answer = Box<dyn FnOnce() -> Outcome>;

/// The connections of a pool that stayed in the process before this one.
pub(crate) trait Behind: Send + Sync {
    /// Returns the number of its connections there, and in processes before that one.
    fn connections(&self) -> u64;
    /// Begins to shut down the pool's connections there.
    fn shut_down(&self, how: Drain);
    /// Has an operation done to the connections that stayed. Returns None if none stayed.
    fn ask(&self, op: &Op, selector: &Selector) -> Option<Answer>;
    /// Brings a note to what stayed, and, by `here`, to what is this process's; to what is on its way later.
    fn note(
        &self,
        note: &Op,
        selector: &Selector,
        here: &mut dyn FnMut(&Selector) -> Result<Outcome, Error>,
    ) -> Result<Outcome, Error>;
}
