//! Ending what goes on, from another thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Ends a run early, from another thread; what was reached until then is reported.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Creates a stop that is not set.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends the run.
    pub fn stop(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for it, for at most this time. Returns true where it came.
    pub fn wait(&self, within: Duration) -> bool {
        let set = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *self.0.1.wait_timeout_while(set, within, |set| !*set).unwrap_or_else(PoisonError::into_inner).0
    }
}
