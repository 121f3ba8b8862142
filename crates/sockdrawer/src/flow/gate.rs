//! The exact number of connections. Only permits limit: who has one may accept, who has none waits for one in rotation.

use super::inbox::Inbox;
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use std::collections::VecDeque;
use std::sync::Arc;

/// A pool's count of permits. It lives as long as the pool and is never replaced, so no change can lose the count.
pub(crate) struct Gate {
    taken: AtomicUsize,
    limit: AtomicUsize,
    /// The length of `queue`, readable without its lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
}

/// The right to one connection. It goes back when it is dropped, wherever that is. Empty once it was paid into an account.
pub(crate) struct Permit(Option<Arc<Gate>>);

/// The permits of a loop's seated connections: a count, where each seat would carry a pointer. Those left when it is dropped go
/// back.
pub(crate) struct Account {
    gate: Arc<Gate>,
    held: usize,
}

impl Account {
    pub(crate) fn new(gate: Arc<Gate>) -> Account {
        Account { gate, held: 0 }
    }

    pub(crate) fn pay_in(&mut self, mut permit: Permit) {
        let gate = permit.0.take().expect("a permit is paid in once");
        debug_assert!(Arc::ptr_eq(&gate, &self.gate), "a permit of another pool");
        self.held += 1;
    }

    pub(crate) fn draw(&mut self) -> Permit {
        self.held = self.held.checked_sub(1).expect("as many permits as seats");
        Permit(Some(self.gate.clone()))
    }

    /// The same, straight back to the gate.
    pub(crate) fn put_back(&mut self) {
        self.held = self.held.checked_sub(1).expect("as many permits as seats");
        self.gate.put_back();
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        while self.held > 0 {
            self.put_back();
        }
    }
}

/// A loop that waits for permits, and those it was given.
pub(crate) struct Waiter {
    given: Mutex<Vec<Permit>>,
    inbox: Arc<Inbox>,
}

impl Waiter {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Arc<Waiter> {
        Arc::new(Waiter { given: Mutex::new(Vec::with_capacity(4)), inbox })
    }

    /// One of the permits it was given.
    pub(crate) fn claim(&self) -> Option<Permit> {
        lock(&self.given).pop()
    }
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Arc<Gate> {
        Arc::new(Gate {
            taken: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
        })
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(SeqCst)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.load(SeqCst)
    }

    /// A permit, unless all are taken or others wait for one.
    pub(crate) fn take(self: &Arc<Gate>) -> Option<Permit> {
        if self.waiting.load(SeqCst) > 0 { None } else { self.try_take() }
    }

    fn try_take(self: &Arc<Gate>) -> Option<Permit> {
        let limit = self.limit();
        self.taken
            .fetch_update(SeqCst, SeqCst, |taken| (taken < limit).then_some(taken + 1))
            .ok()
            .map(|_| Permit(Some(self.clone())))
    }

    /// Puts the waiter at the end of the queue, once; its inbox is woken when it is given a permit.
    pub(crate) fn wait(self: &Arc<Gate>, waiter: &Arc<Waiter>) {
        {
            let mut queue = lock(&self.queue);
            if !queue.iter().any(|queued| Arc::ptr_eq(queued, waiter)) {
                queue.push_back(waiter.clone());
            }
            self.waiting.store(queue.len(), SeqCst);
        }
        // A permit freed before `waiting` was stored saw nobody to give it to.
        self.give();
    }

    /// Takes the waiter out of the queue; permits given already stay with it.
    pub(crate) fn stop_waiting(self: &Arc<Gate>, waiter: &Arc<Waiter>) {
        {
            let mut queue = lock(&self.queue);
            queue.retain(|queued| !Arc::ptr_eq(queued, waiter));
            self.waiting.store(queue.len(), SeqCst);
        }
        self.give();
    }

    /// More permits let waiters in; fewer close nothing: nobody is let in until enough have ended.
    pub(crate) fn set_limit(self: &Arc<Gate>, limit: usize) {
        self.limit.store(limit, SeqCst);
        self.give();
    }

    fn put_back(self: &Arc<Gate>) {
        self.taken.fetch_sub(1, SeqCst);
        // Both sides store first and look second, so one of them sees the other.
        if self.waiting.load(SeqCst) > 0 {
            self.give();
        }
    }

    fn give(self: &Arc<Gate>) {
        while self.waiting.load(SeqCst) > 0 {
            let waiter = {
                let mut queue = lock(&self.queue);
                if queue.is_empty() {
                    return;
                }
                let Some(permit) = self.try_take() else { return };
                let waiter = queue.pop_front().expect("not empty");
                self.waiting.store(queue.len(), SeqCst);
                // Under the queue's lock: who stops waiting sees all that it was given.
                lock(&waiter.given).push(permit);
                waiter
            };
            waiter.inbox.wake();
            // The last of a dead loop: its permits go back here, outside the lock.
            drop(waiter);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.put_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Kernel;

    fn waiter() -> Arc<Waiter> {
        Waiter::new(Inbox::new(Arc::new(Kernel), 16).expect("an inbox"))
    }

    #[test]
    fn a_freed_permit_goes_round() {
        let gate = Gate::new(1);
        let (first, second) = (waiter(), waiter());
        let mut permit = gate.take();
        gate.wait(&first);
        gate.wait(&second);
        for round in 0..10 {
            assert!(gate.take().is_none(), "nobody passes those who wait");
            drop(permit.take());
            let (now, then) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
            assert!(then.claim().is_none());
            permit = now.claim();
            assert!(permit.is_some());
            gate.wait(now);
        }
        assert_eq!(gate.taken(), 1);
    }

    #[test]
    fn a_lower_limit_takes_nothing_away() {
        let gate = Gate::new(3);
        let permits: Vec<_> = (0..3).map(|_| gate.take().expect("free")).collect();
        gate.set_limit(1);
        assert_eq!((gate.taken(), gate.limit()), (3, 1));
        let waiter = waiter();
        gate.wait(&waiter);
        for permit in permits {
            assert!(waiter.claim().is_none());
            drop(permit);
        }
        assert!(waiter.claim().is_some());
        assert_eq!(gate.taken(), 0);
    }

    #[test]
    fn a_waiter_that_dies_gives_back_what_it_was_given() {
        let gate = Gate::new(1);
        let dead = waiter();
        let permit = gate.take();
        gate.wait(&dead);
        drop(permit);
        assert_eq!(gate.taken(), 1, "given, not claimed");
        drop(dead);
        assert_eq!(gate.taken(), 0);
    }

    #[test]
    fn threads_never_take_more_than_the_limit() {
        let gate = Gate::new(3);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(permit) = gate.take() {
                            most.fetch_max(gate.taken(), SeqCst);
                            drop(permit);
                        }
                    }
                });
            }
        });
        assert!(most.load(SeqCst) <= 3);
        assert_eq!(gate.taken(), 0);
    }
}
