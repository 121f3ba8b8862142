//! Terms on which a caller waits.

use std::panic::Location;
use std::time::Instant;

/// Terms on which a caller waits for a lease. A deadline alone is one too.
///
/// ```
/// use sockdrawer_lease::Request;
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_secs(1);
/// let request = Request { key: 4711, priority: 2, ..Request::from(deadline) };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Moment at which the wait ends. One that is not in the future leases only what is free.
    pub deadline: Instant,
    /// User, tenant or kind of work that the wait is for, a number of yours; hash what is no number. It counts under
    /// [`Policy::Fair`](crate::Policy::Fair) alone. Default: 0.
    pub key: u64,
    /// Higher is served first, under [`Policy::Priority`](crate::Policy::Priority) alone. Default: 0.
    pub priority: u8,
    /// Place in the code that is told if the lease is held for longer than [`Settings::held_after`](crate::Settings::held_after). A
    /// [`Pool`](crate::Pool) sets it to its caller's.
    pub caller: &'static Location<'static>,
}

impl From<Instant> for Request {
    #[track_caller]
    fn from(deadline: Instant) -> Self {
        Request { deadline, key: 0, priority: 0, caller: Location::caller() }
    }
}
