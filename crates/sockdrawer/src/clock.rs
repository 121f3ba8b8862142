//! Points in time that cannot overflow.

use std::time::{Duration, Instant};

/// "Never", for the purposes of a process: a hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the time `after` from `now`, at most a hundred years away.
pub(crate) fn deadline(now: Instant, after: Duration) -> Instant {
    now + after.min(NEVER)
}
