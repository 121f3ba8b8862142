//! Replacing what died, and giving up when the policy says so: the same for parts that are threads and for processes.

use super::control::Core;
use super::manager::Manager;
use super::members::Members;
use crate::clock::deadline;
use crate::config::{Death, Part, Replace, RestartPolicy as _, Restarts};
use crate::error::Error;
use crate::observe::Event;
use crate::operation::Drain;
use crate::sync::lock;
use crate::sys::panics;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A pool that gave up lets its connections end by themselves for this long.
const LAST_DRAIN: Duration = Duration::from_secs(30);

/// After a start that failed, the first time and later.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

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
pub(crate) struct PendingRestart {
    pub(crate) until: Instant,
    pub(crate) reason: String,
    /// How many parts of the kind, where they have no places.
    pub(crate) parts: usize,
    /// How often it could not be started since.
    pub(super) failures: u32,
}

impl PendingRestart {
    /// Of a part that died now; None where the policy gives up.
    pub(super) fn decided(replace: Replace, reason: &str) -> Option<PendingRestart> {
        let until = deadline(Instant::now(), delay(replace)?);
        Some(PendingRestart { until, ..PendingRestart::since_now(reason) })
    }

    pub(super) fn since_now(reason: &str) -> PendingRestart {
        PendingRestart { until: Instant::now(), reason: reason.to_owned(), parts: 1, failures: 0 }
    }

    /// The policy gave up.
    pub(super) fn for_good(reason: &str) -> PendingRestart {
        PendingRestart { until: deadline(Instant::now(), Duration::MAX), ..PendingRestart::since_now(reason) }
    }

    /// It could not be started: when it is tried again. What prevents it may last, so never in a hurry.
    fn put_off(self, replace: Replace) -> Option<PendingRestart> {
        let pause = PAUSES[0].saturating_mul(1 << self.failures.min(16)).min(PAUSES[1]);
        let until = deadline(Instant::now(), delay(replace)?.max(pause));
        Some(PendingRestart { until, failures: self.failures + 1, ..self })
    }
}

fn delay(replace: Replace) -> Option<Duration> {
    match replace {
        Replace::Now => Some(Duration::ZERO),
        Replace::After(delay) => Some(delay),
        Replace::GiveUp => None,
    }
}

impl<M: Members> Core<M> {
    /// Asks the policy, without any lock: it is the user's.
    pub(super) fn decide(&self, part: Part, index: Option<usize>, reason: &str) -> Replace {
        let (policy, restarts) = {
            let control = lock(&self.control);
            (control.config.restarts.clone(), control.restarts.known())
        };
        let death = Death { part, index, reason, at: Instant::now(), restarts: &restarts };
        let decided = catch_unwind(AssertUnwindSafe(|| policy.decide(&death))).unwrap_or_else(|payload| {
            self.tell(&Event::ServicePanicked { message: panics::message(payload) });
            Restarts::default().decide(&death)
        });
        if decided != Replace::GiveUp {
            lock(&self.control).restarts.note(death.at);
        }
        decided
    }

    /// Asks the policy about a part that could not be started, which is as much as a death. None: it gives up.
    pub(super) fn decide_again(
        &self,
        part: Part,
        index: Option<usize>,
        restart: PendingRestart,
        error: &Error,
    ) -> Option<PendingRestart> {
        let reason = format!("it could not be started: {error}");
        restart.put_off(self.decide(part, index, &reason))
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
