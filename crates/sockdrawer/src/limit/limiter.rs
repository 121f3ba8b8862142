//! The exact number of connections: a count, a limit, and the line of loops that wait for room. A permit is never kept for a loop in
//! line: a loop that is called looks again at its listeners. Where it does not, because it is stuck or its process is stopped, the
//! supervisor calls the next, see [`Limiter::call`]. So nothing is lost with a loop.

use crate::ipc::shared_counters::{MAX_PROCESSES, SharedCounters};
use crate::limit::alarms::Alarms;
use crate::observe::Alarm;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys::System;
use crate::wake::Wake;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A pool's count of permits. It lives as long as the pool and is never replaced, so no change can lose the count.
pub(crate) struct Limiter {
    shared_counters: SharedCounters,
    pub(crate) alarms: Alarms,
    /// The process that this is, in a pool of several.
    process: Option<Process>,
    /// Number of loops that wait here, those included that were called and have not looked yet; readable without the lock of `line`.
    waiting: AtomicUsize,
    line: Mutex<WaitingLoops>,
}

/// Loops of this process that wait for room.
#[derive(Default)]
struct WaitingLoops {
    queue: VecDeque<Arc<PlaceInLine>>,
    /// Number of loops that were called and have not looked yet: until then no other loop may take a second permit before them.
    called: usize,
}

/// A loop's place in line.
struct PlaceInLine {
    wake: Arc<Wake>,
    called: AtomicBool,
}

/// A process among those that share permits.
#[derive(Clone)]
pub(crate) struct Process {
    /// The index of the process. None: the process that started the others; it has no connections, but may hold permits for those of a program that
    /// this one replaces.
    pub(crate) index: Option<usize>,
    /// Maximum of connections that its own descriptors allow.
    pub(crate) most: usize,
    /// The event that is rung when a process is called.
    pub(crate) event: Arc<OwnedFd>,
    pub(crate) system: Arc<dyn System>,
}

/// The place of a loop that waits for room at one limiter. It leaves the line when it is dropped.
pub(crate) struct Waiter {
    limiter: Arc<Limiter>,
    place: Arc<PlaceInLine>,
    waits: bool,
}

impl Waiter {
    pub(crate) fn new(limiter: Arc<Limiter>, wake: Arc<Wake>) -> Waiter {
        Waiter { limiter, place: Arc::new(PlaceInLine { wake, called: AtomicBool::new(false) }), waits: false }
    }

    /// Stands in line, once; its loop is woken when there is room and it is this loop's turn. A loop that was called, and came too late for
    /// the permit, is the first again.
    pub(crate) fn wait(&mut self) {
        self.waits = true;
        let mut line = lock(&self.limiter.line);
        if self.place.called.swap(false, SeqCst) {
            line.called -= 1;
            line.queue.push_front(self.place.clone());
        } else if !line.has(&self.place) {
            line.queue.push_back(self.place.clone());
        }
        self.limiter.note_waiting(&line);
        drop(line);
        // Room that came before `waiting` was stored was offered to no loop.
        self.limiter.call();
    }

    /// Stands in line behind the others: it has just taken a permit.
    pub(crate) fn wait_again(&mut self) {
        self.leave();
        self.wait();
    }

    /// Returns true where it is this loop's turn to look.
    pub(crate) fn is_called(&self) -> bool {
        self.place.called.load(SeqCst)
    }

    /// Waits no more; a turn that was this loop's goes to the next.
    pub(crate) fn leave(&mut self) {
        if !std::mem::take(&mut self.waits) {
            return;
        }
        let mut line = lock(&self.limiter.line);
        line.called -= usize::from(self.place.called.swap(false, SeqCst));
        line.queue.retain(|place| !Arc::ptr_eq(place, &self.place));
        self.limiter.note_waiting(&line);
        drop(line);
        self.limiter.call();
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.leave();
    }
}

impl WaitingLoops {
    fn has(&self, place: &Arc<PlaceInLine>) -> bool {
        self.queue.iter().any(|queued| Arc::ptr_eq(queued, place))
    }

    fn len(&self) -> usize {
        self.queue.len() + self.called
    }
}

impl Limiter {
    #[cfg(test)]
    pub(crate) fn new(limit: usize) -> Arc<Limiter> {
        Limiter::shared(SharedCounters::private(), limit, None)
    }

    /// Makes a limiter over numbers that other processes share, where there is a `process`.
    pub(crate) fn shared(shared_counters: SharedCounters, limit: usize, process: Option<Process>) -> Arc<Limiter> {
        // Among several, it is set by the one that started the others.
        if process.as_ref().is_none_or(|process| process.index.is_none()) {
            shared_counters.limit().store(limit as u64, SeqCst);
        }
        Arc::new(Limiter {
            shared_counters,
            alarms: Alarms::default(),
            process,
            waiting: AtomicUsize::new(0),
            line: Mutex::default(),
        })
    }

    /// Returns the number of permits taken by all processes.
    pub(crate) fn taken(&self) -> usize {
        self.shared_counters.taken().load(SeqCst) as usize
    }

    /// Returns the number of permits taken by this process.
    pub(crate) fn taken_here(&self) -> usize {
        self.own().map_or_else(|| self.taken(), |(held, _)| held.load(SeqCst) as usize)
    }

    pub(crate) fn limit(&self) -> usize {
        self.shared_counters.limit().load(SeqCst) as usize
    }

    /// Returns the event that is rung when a process is called.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(|process| process.event.as_fd())
    }

    /// Returns true where other loops, or loops of other processes, wait and there is no room left for them: a loop that has just taken a permit
    /// stands in line behind them.
    #[inline]
    pub(crate) fn is_contended(&self) -> bool {
        (self.waiting.load(SeqCst) > 0 || (self.process.is_some() && self.shared_counters.waiting().load(SeqCst) > 0))
            && !self.has_room()
    }

    /// Returns true where a loop of this process may have a permit now.
    pub(crate) fn has_room(&self) -> bool {
        self.taken() < self.limit() && self.has_own_room()
    }

    /// Counts one more for a caller that gives it an owner later, an account or a permit, or puts it back.
    #[inline]
    pub(crate) fn count_one(&self) -> bool {
        let Some(taken) = self.add_to_taken() else { return false };
        let held = self.hold();
        self.look_upwards(taken);
        if !held {
            self.take_from_taken();
            self.call();
        }
        held
    }

    /// Returns how many are taken now. A caller that adds looks at the alarms afterwards.
    #[inline]
    fn add_to_taken(&self) -> Option<u64> {
        let [taken, limit, ..] = self.shared_counters.lines();
        let limit = limit.load(SeqCst);
        let added = taken.fetch_update(SeqCst, SeqCst, |taken| (taken < limit).then_some(taken + 1));
        added.ok().map(|before| before + 1)
    }

    /// Alarms are told to user code, which may end connections: not under the lock of the line.
    #[inline]
    fn look_upwards(&self, taken: u64) {
        if taken >= self.shared_counters.raise_line().load(SeqCst) {
            self.alarms.look(&self.shared_counters, taken);
        }
    }

    /// Returns true where this process can hold what was added to `taken`. If not, the caller takes it from `taken` again, and it goes to another.
    fn hold(&self) -> bool {
        self.own().is_none_or(|(held, most)| held.fetch_update(SeqCst, SeqCst, |held| (held < most).then_some(held + 1)).is_ok())
    }

    /// Returns this process's own count and bound.
    fn own(&self) -> Option<(&AtomicU64, u64)> {
        let process = self.process.as_ref()?;
        Some(match process.index {
            Some(index) => (self.shared_counters.held(index), process.most as u64),
            None => (self.shared_counters.elsewhere(), u64::MAX),
        })
    }

    /// Makes a permit that was held for a connection of another program this process's. A process that is killed in between leaves a permit that no
    /// process holds, which is found.
    pub(crate) fn take_over(&self) {
        if let Some((held, _)) = self.own() {
            self.shared_counters.elsewhere().fetch_sub(1, SeqCst);
            held.fetch_add(1, SeqCst);
        }
    }

    /// Returns the number of permits held for connections of another program, which the first of several processes has. None: there is one process.
    pub(crate) fn elsewhere(&self) -> Option<u64> {
        self.process.as_ref().map(|_| self.shared_counters.elsewhere().load(SeqCst))
    }

    fn has_own_room(&self) -> bool {
        self.own().is_none_or(|(held, most)| held.load(SeqCst) < most)
    }

    /// Tells this process's waiting to its own threads and to the other processes, which need not know of loops that wait for its own
    /// bound. Under the line's lock, or the bit could stay behind.
    fn note_waiting(&self, line: &MutexGuard<'_, WaitingLoops>) {
        self.waiting.store(line.len(), SeqCst);
        let Some(index) = self.process.as_ref().and_then(|process| process.index) else { return };
        let bit = 1 << index;
        if line.len() == 0 || !self.has_own_room() {
            self.shared_counters.waiting().fetch_and(!bit, SeqCst);
        } else if self.shared_counters.waiting().load(SeqCst) & bit == 0 {
            // A call that came when it waited no more is over.
            self.shared_counters.called(index).store(0, SeqCst);
            self.shared_counters.waiting().fetch_or(bit, SeqCst);
        }
    }

    /// Sets the limit. A higher one lets waiting loops in; a lower one closes nothing: no loop accepts until enough connections have ended.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.shared_counters.limit().store(limit as u64, SeqCst);
        self.call();
    }

    /// Counts this many permits more, also beyond the limit: connections that were let in before, in another process.
    pub(crate) fn hold_more(&self, count: u64) {
        let taken = self.shared_counters.taken().fetch_add(count, SeqCst) + count;
        if let Some((held, _)) = self.own() {
            held.fetch_add(count, SeqCst);
        }
        self.look_upwards(taken);
    }

    #[inline]
    pub(crate) fn put_back(&self) {
        if let Some((held, _)) = self.own() {
            held.fetch_sub(1, SeqCst);
            if self.waiting.load(SeqCst) > 0 {
                // There is room under this process's own bound again.
                self.note_waiting(&lock(&self.line));
            }
        }
        self.take_from_taken();
        // Both sides store first and look second, so one of them sees the other.
        if self.process.is_some() || self.waiting.load(SeqCst) > 0 {
            self.call();
        }
    }

    #[inline]
    fn take_from_taken(&self) {
        let [taken, _, _, clear] = self.shared_counters.lines();
        let left = taken.fetch_sub(1, SeqCst) - 1;
        if left < clear.load(SeqCst) {
            self.alarms.look(&self.shared_counters, left);
        }
    }

    /// Sets other alarms, for all processes.
    pub(crate) fn set_alarms(&self, alarms: &[Alarm]) {
        self.alarms.set(&self.shared_counters, alarms);
    }

    /// Looks at the alarms after the count was changed by hand.
    pub(crate) fn look_at_alarms(&self) {
        self.alarms.look(&self.shared_counters, self.shared_counters.taken().load(SeqCst));
    }

    /// Calls the next in line, if there is room. What a called loop leaves it passes on by calling again; the supervisor calls from time to
    /// time, for the case that a called loop or process does not turn.
    pub(crate) fn call(&self) {
        if self.taken() >= self.limit() {
            return;
        }
        match &self.process {
            None => _ = self.waiting.load(SeqCst) > 0 && self.call_here(),
            Some(process) => self.call_process(process),
        }
    }

    /// Calls the first in line of this process; false where no loop is to be called.
    fn call_here(&self) -> bool {
        let called = {
            let mut line = lock(&self.line);
            let first = if self.has_own_room() { line.queue.pop_front() } else { None };
            if let Some(first) = &first {
                line.called += 1;
                first.called.store(true, SeqCst);
            }
            first
        };
        called.inspect(|place| place.wake.wake()).is_some()
    }

    /// Calls the next process that waits and is not called yet: one that is stopped is called once.
    fn call_process(&self, process: &Process) {
        let waiting = self.shared_counters.waiting().load(SeqCst);
        if waiting == 0 {
            // No process waits, as nearly always.
            return;
        }
        let after = self.shared_counters.turn().load(SeqCst) as usize + 1;
        let turns = (after..after + MAX_PROCESSES).map(|next| next % MAX_PROCESSES);
        for next in turns.filter(|next| waiting & (1 << next) != 0) {
            self.shared_counters.turn().store(next as u64, SeqCst);
            if Some(next) == process.index {
                if self.call_here() {
                    return;
                }
            } else if self.shared_counters.called(next).swap(1, SeqCst) == 0 {
                // The counter of an eventfd overflows after 2^64 notices that no process read; nothing else can fail here.
                let _ = process.system.notify(process.event.as_fd());
                return;
            }
        }
    }

    /// Passes a call of this process by another on to a loop. One load where there is none.
    pub(crate) fn hear(&self) {
        let Some(index) = self.process.as_ref().and_then(|process| process.index) else { return };
        if self.shared_counters.called(index).load(SeqCst) > 0
            && self.shared_counters.called(index).swap(0, SeqCst) > 0
            && !self.call_here()
        {
            self.call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::permit::Permit;
    use crate::sys::Kernel;

    fn waiter(limiter: &Arc<Limiter>) -> Waiter {
        Waiter::new(limiter.clone(), Wake::new(Arc::new(Kernel)))
    }

    #[test]
    fn loops_in_line_are_called_in_turn() {
        let limiter = Limiter::new(1);
        let (mut first, mut second) = (waiter(&limiter), waiter(&limiter));
        let mut permit = Permit::take(&limiter);
        first.wait();
        second.wait();
        for round in 0..10 {
            assert!(limiter.is_contended() && !first.is_called() && !second.is_called());
            drop(permit.take());
            let (now, then) = if round % 2 == 0 { (&mut first, &second) } else { (&mut second, &first) };
            assert!(now.is_called() && !then.is_called());
            permit = Permit::take(&limiter);
            assert!(permit.is_some());
            now.wait_again();
        }
        assert_eq!(limiter.taken(), 1);
    }

    #[test]
    fn a_loop_that_came_too_late_is_the_first_again() {
        let limiter = Limiter::new(1);
        let (mut late, mut last) = (waiter(&limiter), waiter(&limiter));
        let mut permit = Permit::take(&limiter);
        late.wait();
        last.wait();
        drop(permit.take());
        assert!(late.is_called());
        permit = Permit::take(&limiter);
        assert!(limiter.is_contended(), "the loop that took it sees that others wait");
        late.wait();
        drop(permit);
        assert!(late.is_called() && !last.is_called());
    }

    #[test]
    fn a_lower_limit_takes_nothing_away() {
        let limiter = Limiter::new(3);
        let permits: Vec<_> = (0..3).map(|_| Permit::take(&limiter).expect("free")).collect();
        limiter.set_limit(1);
        assert_eq!((limiter.taken(), limiter.limit()), (3, 1));
        let mut waiter = waiter(&limiter);
        waiter.wait();
        for permit in permits {
            assert!(!waiter.is_called());
            drop(permit);
        }
        assert!(waiter.is_called());
        assert_eq!(limiter.taken(), 0);
    }

    #[test]
    fn a_call_of_a_loop_that_ends_goes_to_the_next() {
        let limiter = Limiter::new(1);
        let (mut dead, mut next) = (waiter(&limiter), waiter(&limiter));
        let permit = Permit::take(&limiter);
        dead.wait();
        next.wait();
        drop(permit);
        assert!(dead.is_called() && !next.is_called());
        drop(dead);
        assert!(next.is_called());
    }

    #[test]
    fn threads_never_take_more_than_the_limit() {
        let limiter = Limiter::new(3);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(permit) = Permit::take(&limiter) {
                            most.fetch_max(limiter.taken(), SeqCst);
                            drop(permit);
                        }
                    }
                });
            }
        });
        assert!(most.load(SeqCst) <= 3);
        assert_eq!(limiter.taken(), 0);
    }
}
