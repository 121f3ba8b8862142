//! Clients that wait for a place at a target, where every target has as many clients as it may have: the longest waiting gets the next place.

use super::known::{Known, Process, TargetEvent, TargetState, Written};
use super::target::Target;
use super::targets::Place;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A target at which a waiting client takes a place.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Number of the target among the client's targets; None of one that a change has brought.
    pub(super) number: Option<usize>,
    pub(super) target: Target,
    pub(super) state: Arc<TargetState>,
}

struct Waiter {
    pool: Arc<str>,
    since: Instant,
    wanted: Vec<Wanted>,
    /// The place that it gets.
    given: Arc<Mutex<Option<Place>>>,
    wake: Box<dyn FnOnce() + Send>,
}

impl Waiter {
    fn tell(&self, event: TargetEvent) {
        self.wanted.iter().for_each(|wanted| wanted.state.tell(event));
    }
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
        waiter.tell(TargetEvent::Waits);
        let mut waiters = self.lock();
        let at = waiters.partition_point(|before| before.since <= waiter.since);
        waiters.insert(at, waiter);
    }

    fn take(&self, given: &Arc<Mutex<Option<Place>>>) -> Option<Waiter> {
        let mut waiters = self.lock();
        let at = waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.given, given))?;
        Some(waiters.remove(at))
    }

    /// Changes the targets of a pool: its clients wait for those that are for them now, where there are some.
    pub(super) fn change(&self, pool: &str, written: &Written) {
        for waiter in self.lock().iter_mut().filter(|waiter| &*waiter.pool == pool) {
            let backups = waiter.wanted.iter().any(|wanted| wanted.target.backup);
            let is_for_it = |target: &Target| {
                target.weight > 0
                    && (backups || !target.backup)
                    && waiter.wanted.iter().any(|wanted| target.is_like(&wanted.target))
            };
            let now = written.iter().filter(|(target, _)| is_for_it(target));
            let now: Vec<Wanted> =
                now.map(|(target, state)| Wanted { number: None, target: target.clone(), state: state.clone() }).collect();
            if !now.is_empty() {
                waiter.tell(TargetEvent::WaitsNoMore);
                waiter.wanted = now;
                waiter.tell(TargetEvent::Waits);
            }
        }
        written.iter().for_each(|(_, state)| state.fill());
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
        let waiter = {
            let mut waiters = self.lock();
            let mut first = waiters.iter().enumerate().filter_map(|(at, waiter)| {
                let wanted = waiter.wanted.iter().find(|wanted| wanted.state.shares_places(state))?;
                // Where all are left out, one of them is tried.
                let may = !wanted.state.is_out() || waiter.wanted.iter().all(|wanted| wanted.state.is_out());
                // Another pool may allow the address more clients.
                (may && has_room(wanted.target.most())).then_some((at, wanted))
            });
            let Some((at, wanted)) = first.next() else {
                otherwise();
                return false;
            };
            let place = Place::counted(wanted.number, wanted.state.clone());
            drop(first);
            let waiter = waiters.remove(at);
            *locked(&waiter.given) = Some(place);
            waiter
        };
        waiter.tell(TargetEvent::WaitsNoMore);
        (waiter.wake)();
        true
    }
}

/// A client's turn in the queue, which it gives up when this is dropped.
#[derive(Debug)]
pub struct Waiting {
    shared: Arc<Process>,
    given: Arc<Mutex<Option<Place>>>,
}

impl Waiting {
    /// Waits, since that time; `wake` is called once [`Waiting::place`] has one.
    pub(super) fn begin(known: &Known, wanted: Vec<Wanted>, since: Instant, wake: impl FnOnce() + Send + 'static) -> Waiting {
        let given = Arc::default();
        let states: Vec<_> = wanted.iter().map(|wanted| wanted.state.clone()).collect();
        let (pool, shared) = (known.pool.clone(), known.shared.clone());
        shared.queue.push(Waiter { pool, since, wanted, given: Arc::clone(&given), wake: Box::new(wake) });
        // A place that became free before this one waited.
        states.iter().for_each(TargetState::fill);
        Waiting { shared, given }
    }

    /// Takes the place that came free, if the client's turn has come.
    #[must_use]
    pub fn place(&self, now: Instant) -> Option<Place> {
        locked(&self.given).take().map(|place| place.taken_at(now))
    }

    /// Gives the turn up, because the client has waited for as long as it may. Returns the place that came in the last moment.
    #[must_use]
    pub fn time_out(self, now: Instant) -> Option<Place> {
        let Some(waiter) = self.shared.queue.take(&self.given) else { return self.place(now) };
        waiter.tell(TargetEvent::WaitsNoMore);
        waiter.tell(TargetEvent::TimedOut);
        None
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let left = self.shared.queue.take(&self.given);
        left.iter().for_each(|waiter| waiter.tell(TargetEvent::WaitsNoMore));
        // Outside of the lock: it is passed on.
        let place = locked(&self.given).take();
        drop(place);
    }
}
