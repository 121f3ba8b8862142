//! Clients that wait for a place at a target, where every target has as many clients as it may have: the longest waiting gets the next place.

use super::known::{Process, TargetEvent, TargetState};
use super::targets::Place;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A target at which a waiting client takes a place.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Its number among the client's targets.
    pub(super) number: usize,
    pub(super) limit: usize,
    pub(super) state: Arc<TargetState>,
}

struct Waiter {
    since: Instant,
    wanted: Vec<Wanted>,
    /// The place that it gets.
    given: Arc<Mutex<Option<Place>>>,
    wake: Box<dyn FnOnce() + Send>,
}

/// Waiting clients, in the order in which they began to wait, also where that was in the process before this one.
#[derive(Default)]
pub(super) struct Queue(Mutex<Vec<Waiter>>);

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.lock().len()).finish()
    }
}

pub(super) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiter>> {
        locked(&self.0)
    }

    fn push(&self, waiter: Waiter) {
        let mut waiters = self.lock();
        let at = waiters.partition_point(|before| before.since <= waiter.since);
        waiters.insert(at, waiter);
    }

    /// Passes the place of a client that has gone on to the first that wants it. If there is none, the place is free.
    pub(super) fn pass_on(&self, state: &Arc<TargetState>) {
        // Under the lock: a client that begins to wait now finds the place.
        self.give(state, |limit| state.open() <= limit, || state.free());
    }

    /// Gives the free places of a target away.
    pub(super) fn fill(&self, state: &Arc<TargetState>) {
        while self.give(state, |limit| state.reserve(limit), || {}) {}
    }

    fn give(&self, state: &Arc<TargetState>, has_room: impl Fn(usize) -> bool, otherwise: impl FnOnce()) -> bool {
        let wake = {
            let mut waiters = self.lock();
            let mut first = waiters.iter().enumerate().filter_map(|(at, waiter)| {
                let wanted = waiter.wanted.iter().find(|wanted| wanted.state.shares_places(state))?;
                // Where all are left out, one of them is tried.
                let may = !wanted.state.is_out() || waiter.wanted.iter().all(|wanted| wanted.state.is_out());
                // Another pool may allow the address more clients.
                (may && has_room(wanted.limit)).then_some((at, wanted))
            });
            let Some((at, wanted)) = first.next() else {
                otherwise();
                return false;
            };
            let place = Place::counted(Some(wanted.number), None, wanted.state.clone());
            drop(first);
            let waiter = waiters.remove(at);
            *locked(&waiter.given) = Some(place);
            waiter.wake
        };
        wake();
        true
    }
}

/// A client's turn in the queue, which it gives up when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    shared: Arc<Process>,
    given: Arc<Mutex<Option<Place>>>,
    states: Vec<Arc<TargetState>>,
}

impl Waiting {
    /// Waits, since that time; `wake` is called once [`Waiting::place`] has one.
    pub(super) fn begin(
        shared: &Arc<Process>,
        wanted: Vec<Wanted>,
        since: Instant,
        wake: impl FnOnce() + Send + 'static,
    ) -> Waiting {
        let given = Arc::default();
        let states: Vec<_> = wanted.iter().map(|wanted| wanted.state.clone()).collect();
        shared.queue.push(Waiter { since, wanted, given: Arc::clone(&given), wake: Box::new(wake) });
        states.iter().for_each(|state| state.tell(TargetEvent::Waits));
        let waiting = Waiting { shared: shared.clone(), given, states };
        // A place that became free before this one waited.
        waiting.states.iter().for_each(TargetState::fill);
        waiting
    }

    /// Takes the place that came free, if the client's turn has come.
    #[must_use]
    pub fn place(&self, now: Instant) -> Option<Place> {
        locked(&self.given).take().map(|place| place.taken_at(now))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.queue.lock().retain(|waiter| !Arc::ptr_eq(&waiter.given, &self.given));
        self.states.iter().for_each(|state| state.tell(TargetEvent::WaitsNoMore));
        // Outside of the lock: it is passed on.
        let place = locked(&self.given).take();
        drop(place);
    }
}
