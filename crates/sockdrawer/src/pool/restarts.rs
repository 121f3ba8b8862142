//! Replacing what died, and giving up when parts die again and again: the same for parts that are threads and for processes.

use super::drain::Drain;
use super::manager::Manager;
use crate::config::Restarts;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A pool that gave up lets its connections end by themselves for this long.
const LAST_DRAIN: Duration = Duration::from_secs(30);

/// When parts of a pool were replaced.
#[derive(Default)]
pub(crate) struct History {
    /// The last few.
    recent: VecDeque<Instant>,
    pub(crate) in_all: usize,
}

impl History {
    /// Counts a restart; false when there were too many in too short a time.
    pub(super) fn may_restart(&mut self, policy: Restarts) -> bool {
        let now = Instant::now();
        self.recent.retain(|at| now.duration_since(*at) < policy.within);
        if self.recent.len() >= policy.most {
            return false;
        }
        self.recent.push_back(now);
        self.in_all += 1;
        true
    }
}

/// Ends a pool in order, on a thread of its own: what is left of it is supervised meanwhile.
pub(super) fn end_in_order(manager: Arc<dyn Manager>, reason: String) {
    let (ending, why) = (manager.clone(), reason.clone());
    let end = move || {
        ending.shutdown(Drain::within(LAST_DRAIN), &why);
    };
    if std::thread::Builder::new().name("sockdrawer-end".to_owned()).spawn(end).is_err() {
        // Not even a thread: then without patience.
        manager.stop(&reason);
    }
}
