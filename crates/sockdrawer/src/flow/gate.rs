//! The exact number of connections. Only permits limit: who has one may accept, who has none waits for one in rotation.

use super::alarms::Alarms;
use super::census::Ticket;
use super::door::Door;
use super::inbox::Inbox;
use super::joint::{Joint, MOST_PROCESSES};
use crate::config::Alarm;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use crate::sys::System;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A pool's count of permits. It lives as long as the pool and is never replaced, so no change can lose the count.
pub(crate) struct Gate {
    joint: Joint,
    pub(crate) alarms: Alarms,
    /// In a pool of several processes: which of them this is.
    process: Option<Process>,
    /// The length of `queue`, readable without its lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
}

/// One process among those that share permits.
#[derive(Clone)]
pub(crate) struct Process {
    /// None: the one that started the others; it has no connections.
    pub(crate) index: Option<usize>,
    /// The most connections that its own descriptors allow.
    pub(crate) most: usize,
    /// Rung when a permit is given to any of them.
    pub(crate) bell: Arc<OwnedFd>,
    pub(crate) system: Arc<dyn System>,
}

/// The right to one connection. It goes back when it is dropped, wherever that is, and with it the place at the door by which the
/// connection came in, and its count among its peer's. Empty once it was paid into an account.
pub(crate) struct Permit {
    gate: Option<Arc<Gate>>,
    door: Option<Arc<Door>>,
    ticket: Option<Box<Ticket>>,
}

impl Permit {
    fn new(gate: Arc<Gate>) -> Permit {
        Permit { gate: Some(gate), door: None, ticket: None }
    }

    pub(crate) fn door(&self) -> Option<&Arc<Door>> {
        self.door.as_ref()
    }

    /// For an account, which gives all of it back.
    pub(super) fn into_parts(mut self) -> (Arc<Gate>, Option<Arc<Door>>, Option<Box<Ticket>>) {
        let gate = self.gate.take().expect("a permit is paid in once");
        (gate, self.door.take(), self.ticket.take())
    }

    /// Leaves it counted, for an account.
    pub(super) fn keep_counted(self) {
        drop(self.into_parts());
    }

    pub(super) fn of_parts(gate: Arc<Gate>, door: Option<Arc<Door>>, ticket: Option<Box<Ticket>>) -> Permit {
        Permit { gate: Some(gate), door, ticket }
    }

    /// How the peer's connections are counted; what counted this one before forgets it.
    pub(crate) fn count_by(&mut self, ticket: Option<Box<Ticket>>) {
        self.ticket = ticket;
    }

    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_deref()
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

    /// The same for one that waits at several gates.
    pub(crate) fn claim_of(&self, gate: &Arc<Gate>) -> Option<Permit> {
        let mut given = lock(&self.given);
        let at = given.iter().position(|permit| permit.gate.as_ref().is_some_and(|of| Arc::ptr_eq(of, gate)))?;
        Some(given.swap_remove(at))
    }
}

impl Gate {
    #[cfg(test)]
    pub(crate) fn new(limit: usize) -> Arc<Gate> {
        Gate::shared(Joint::private(), limit, None)
    }

    /// Over numbers that other processes share, where there is a `process`.
    pub(crate) fn shared(joint: Joint, limit: usize, process: Option<Process>) -> Arc<Gate> {
        // Among several, it is set by the one that started the others.
        if process.as_ref().is_none_or(|process| process.index.is_none()) {
            joint.limit().store(limit as u64, SeqCst);
        }
        Arc::new(Gate {
            joint,
            alarms: Alarms::default(),
            process,
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
        })
    }

    /// Permits taken, by all processes.
    pub(crate) fn taken(&self) -> usize {
        self.joint.taken().load(SeqCst) as usize
    }

    /// Permits taken by this process.
    pub(crate) fn taken_here(&self) -> usize {
        self.own().map_or_else(|| self.taken(), |(held, _)| held.load(SeqCst) as usize)
    }

    pub(crate) fn limit(&self) -> usize {
        self.joint.limit().load(SeqCst) as usize
    }

    /// Rung when another process gave a permit to this one.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(|process| process.bell.as_fd())
    }

    #[inline]
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(SeqCst) > 0 || (self.process.is_some() && self.joint.waiting().load(SeqCst) > 0)
    }

    /// A permit, unless all are taken or others wait for one.
    pub(crate) fn take(self: &Arc<Gate>) -> Option<Permit> {
        self.count_one().then(|| Permit::new(self.clone()))
    }

    /// The same for who gives it an owner later, an account or a permit, or puts it back.
    #[inline]
    pub(super) fn count_one(&self) -> bool {
        if self.is_waited_for() {
            return false;
        }
        let Some(taken) = self.add_to_taken() else { return false };
        let held = self.hold();
        self.look_upwards(taken);
        if !held {
            self.take_from_taken();
        }
        held
    }

    /// Returns how many are taken now. Who adds looks at the alarms afterwards.
    #[inline]
    fn add_to_taken(&self) -> Option<u64> {
        let [taken, limit, ..] = self.joint.lines();
        let limit = limit.load(SeqCst);
        let added = taken.fetch_update(SeqCst, SeqCst, |taken| (taken < limit).then_some(taken + 1));
        added.ok().map(|before| before + 1)
    }

    /// Alarms are told to user code, which may end connections: not under the queue's lock.
    #[inline]
    fn look_upwards(&self, taken: u64) {
        if taken >= self.joint.raise_line().load(SeqCst) {
            self.alarms.look(&self.joint, taken);
        }
    }

    /// Whether this process can hold what was added to `taken`. If not, the caller takes it from `taken` again, and it goes to
    /// another.
    fn hold(&self) -> bool {
        self.own().is_none_or(|(held, most)| held.fetch_update(SeqCst, SeqCst, |held| (held < most).then_some(held + 1)).is_ok())
    }

    /// This process's own count and bound.
    fn own(&self) -> Option<(&AtomicU64, u64)> {
        let process = self.process.as_ref()?;
        Some((self.joint.held(process.index?), process.most as u64))
    }

    /// Puts the waiter at the end of the queue, once; its inbox is woken when it is given a permit.
    pub(crate) fn wait(self: &Arc<Gate>, waiter: &Arc<Waiter>) {
        {
            let mut queue = lock(&self.queue);
            if !queue.iter().any(|queued| Arc::ptr_eq(queued, waiter)) {
                queue.push_back(waiter.clone());
            }
            self.note_waiting(&queue);
        }
        // A permit freed before `waiting` was stored saw nobody to give it to.
        self.give();
    }

    /// Takes the waiter out of the queue; permits given already stay with it.
    pub(crate) fn stop_waiting(self: &Arc<Gate>, waiter: &Arc<Waiter>) {
        {
            let mut queue = lock(&self.queue);
            queue.retain(|queued| !Arc::ptr_eq(queued, waiter));
            self.note_waiting(&queue);
        }
        self.give();
    }

    /// Tells this process's waiting to its own threads and to the other processes, which need not know of those who wait for its
    /// own bound. Under the queue's lock, or the bit could stay behind.
    fn note_waiting(&self, queue: &VecDeque<Arc<Waiter>>) {
        self.waiting.store(queue.len(), SeqCst);
        let Some(index) = self.process.as_ref().and_then(|process| process.index) else { return };
        let room = self.own().is_some_and(|(held, most)| held.load(SeqCst) < most);
        if queue.is_empty() || !room {
            self.joint.waiting().fetch_and(!(1 << index), SeqCst);
        } else {
            self.joint.waiting().fetch_or(1 << index, SeqCst);
        }
    }

    /// More permits let waiters in; fewer close nothing: nobody is let in until enough have ended.
    pub(crate) fn set_limit(self: &Arc<Gate>, limit: usize) {
        self.joint.limit().store(limit as u64, SeqCst);
        self.give();
    }

    #[inline]
    pub(super) fn put_back(self: &Arc<Gate>) {
        if let Some((held, _)) = self.own() {
            held.fetch_sub(1, SeqCst);
            if self.waiting.load(SeqCst) > 0 {
                // There is room under this process's own bound again.
                self.note_waiting(&lock(&self.queue));
            }
        }
        self.take_from_taken();
        // Both sides store first and look second, so one of them sees the other.
        if self.process.is_some() || self.waiting.load(SeqCst) > 0 {
            self.give();
        }
    }

    #[inline]
    fn take_from_taken(&self) {
        let [taken, _, _, clear] = self.joint.lines();
        let left = taken.fetch_sub(1, SeqCst) - 1;
        if left < clear.load(SeqCst) {
            self.alarms.look(&self.joint, left);
        }
    }

    /// Other alarms, for all processes.
    pub(crate) fn set_alarms(&self, alarms: &[Alarm]) {
        self.alarms.set(&self.joint, alarms);
    }

    /// The count was changed by hand.
    pub(crate) fn look_at_alarms(&self) {
        self.alarms.look(&self.joint, self.joint.taken().load(SeqCst));
    }

    /// Gives what is free to who waits, in rotation.
    pub(crate) fn give(self: &Arc<Gate>) {
        if self.process.is_some() {
            return self.give_to_processes();
        }
        while self.waiting.load(SeqCst) > 0 && self.give_here() {}
    }

    /// Gives one permit to the first waiter of this process. False when there is no waiter or no permit.
    fn give_here(self: &Arc<Gate>) -> bool {
        let (taken, waiter) = {
            let mut queue = lock(&self.queue);
            if queue.is_empty() {
                return false;
            }
            let taken = self.add_to_taken();
            match taken.filter(|_| self.hold()) {
                Some(_) => (taken, Some(self.hand(&mut queue, Permit::new(self.clone())))),
                None => {
                    self.note_waiting(&queue);
                    (taken, None)
                }
            }
        };
        if let Some(waiter) = &waiter {
            waiter.inbox.wake();
        }
        if let Some(taken) = taken {
            self.look_upwards(taken);
            if waiter.is_none() {
                self.take_from_taken();
            }
        }
        // The last of a dead loop: its permits go back here, outside the lock.
        waiter.is_some()
    }

    fn hand(&self, queue: &mut VecDeque<Arc<Waiter>>, permit: Permit) -> Arc<Waiter> {
        let waiter = queue.pop_front().expect("somebody waits");
        self.note_waiting(queue);
        // Under the queue's lock: who stops waiting sees all that it was given.
        lock(&waiter.given).push(permit);
        waiter
    }

    /// The same among processes: each has one permit under way at most, and asks for the next when it has seen it.
    fn give_to_processes(self: &Arc<Gate>) {
        let process = self.process.as_ref().expect("there are several");
        let mut rung = false;
        while let Some(next) = self.next_waiting() {
            if Some(next) == process.index {
                // It waits for its own bound by now, or for nothing: then the others are next.
                if !self.give_here() && self.taken() >= self.limit() {
                    break;
                }
            } else if let Some(taken) = self.add_to_taken() {
                self.joint.given(next).fetch_add(1, SeqCst);
                rung = true;
                self.look_upwards(taken);
            } else {
                break;
            }
            self.joint.turn().store(next as u64, SeqCst);
        }
        if rung {
            // The counter of an eventfd overflows after 2^64 rings that nobody read; nothing else can fail here.
            let _ = process.system.ring(process.bell.as_fd());
        }
    }

    /// The next process in turn that waits and has no permit under way.
    fn next_waiting(&self) -> Option<usize> {
        let waiting = self.joint.waiting().load(SeqCst);
        if waiting == 0 {
            // As after nearly every connection.
            return None;
        }
        let after = self.joint.turn().load(SeqCst) as usize + 1;
        (after..after + MOST_PROCESSES)
            .map(|process| process % MOST_PROCESSES)
            .find(|process| waiting & (1 << process) != 0 && self.joint.given(*process).load(SeqCst) == 0)
    }

    /// In one of several processes: takes what was given here where no loop turns to do so, and says again that loops wait, which the
    /// pool takes back from a process that is stopped.
    pub(crate) fn look_again(self: &Arc<Gate>) {
        if self.waiting.load(SeqCst) > 0 {
            self.note_waiting(&lock(&self.queue));
            self.give();
        }
        self.collect();
    }

    /// Takes what other processes gave to this one. One load where there is nothing.
    pub(crate) fn collect(self: &Arc<Gate>) {
        let Some(index) = self.process.as_ref().and_then(|process| process.index) else { return };
        if self.joint.given(index).load(SeqCst) == 0 {
            return;
        }
        // Whatever a process that went wrong wrote there, no more were given than are taken.
        let given = self.joint.given(index).swap(0, SeqCst).min(self.joint.taken().load(SeqCst));
        for _ in 0..given {
            let waiter = {
                let mut queue = lock(&self.queue);
                let held = !queue.is_empty() && self.hold();
                held.then(|| self.hand(&mut queue, Permit::new(self.clone())))
            };
            match waiter {
                Some(waiter) => waiter.inbox.wake(),
                None => self.take_from_taken(),
            }
        }
        // There may be more for those who still wait here, or what nobody here wanted goes to another process.
        self.give();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.ticket = None;
        // Taken last, given back first: a door never counts more than its pool.
        if let Some(door) = self.door.take() {
            door.gate.put_back();
        }
        // The mistake: a permit that no connection used is lost.
        let lost = cfg!(sockdrawer_broken = "permit-leak");
        if let Some(gate) = self.gate.take().filter(|_| !lost) {
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
