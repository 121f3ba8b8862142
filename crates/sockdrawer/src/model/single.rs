//! The model `single`: one loop whose limiter has one permit. It accepts a connection, serves it to its end, and accepts the next;
//! the others wait in the kernel's queue, in the order in which they came. Jobs run in the loop.

/// Maximum of connections at a time.
pub(crate) const MOST: usize = 1;
