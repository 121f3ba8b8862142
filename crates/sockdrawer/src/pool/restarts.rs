//! Replacing what died, and giving up when the policy says so: the same for parts that are threads and for processes.

use super::drain::Drain;
use super::manager::Manager;
use crate::clock::deadline;
use crate::config::{Death, Part, Replace, RestartPolicy, Restarts};
use crate::observe::Event;
use crate::sys::panics;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A pool that gave up lets its connections end by themselves for this long.
const LAST_DRAIN: Duration = Duration::from_secs(30);

/// So many restarts are remembered.
const REMEMBERED: usize = 10_000;

/// When parts of a pool were replaced.
#[derive(Default)]
pub(crate) struct History {
    /// The last ones.
    recent: VecDeque<Instant>,
    pub(crate) in_all: usize,
}

impl History {
    /// What a policy is told of them.
    fn known(&self) -> Vec<Instant> {
        self.recent.iter().copied().collect()
    }

    /// A part is to be replaced; that is counted when it is.
    fn note(&mut self, at: Instant) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
    }
}

/// A part that is to be replaced later, and why.
pub(crate) struct Absence {
    pub(crate) until: Instant,
    pub(crate) reason: String,
    /// How many parts of the kind, where they have no places.
    pub(crate) parts: usize,
}

impl Absence {
    /// Of a part that died now; None where the policy gives up.
    pub(super) fn decided(replace: Replace, reason: &str) -> Option<Absence> {
        let delay = match replace {
            Replace::Now => Duration::ZERO,
            Replace::After(delay) => delay,
            Replace::GiveUp => return None,
        };
        Some(Absence { until: deadline(Instant::now(), delay), reason: reason.to_owned(), parts: 1 })
    }

    /// It could not be replaced: again after a while.
    pub(super) fn prolong(self, by: Duration) -> Absence {
        Absence { until: deadline(Instant::now(), by), ..self }
    }
}

/// A manager's side of replacing what died.
pub(super) trait Restarting {
    /// The policy in force.
    fn policy(&self) -> Arc<dyn RestartPolicy>;
    fn history<T>(&self, visit: impl FnOnce(&mut History) -> T) -> T;
    fn tell_of(&self, event: &Event);

    /// Asks the policy, without any lock: it is the user's.
    fn decide(&self, part: Part, index: Option<usize>, reason: &str) -> Replace {
        let (policy, restarts) = (self.policy(), self.history(|history| history.known()));
        let death = Death { part, index, reason, at: Instant::now(), restarts: &restarts };
        let decided = catch_unwind(AssertUnwindSafe(|| policy.decide(&death))).unwrap_or_else(|payload| {
            self.tell_of(&Event::ServicePanicked { message: panics::message(payload) });
            Restarts::default().decide(&death)
        });
        if decided != Replace::GiveUp {
            self.history(|history| history.note(death.at));
        }
        decided
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
