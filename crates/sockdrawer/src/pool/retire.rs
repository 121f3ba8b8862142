//! The end of listening sockets without loss: new connections are kept away, handshakes under way are waited for, what is in the
//! queues is accepted, and then they are closed. It goes on beside the pool's life, on a thread for each.

#[cfg(test)]
mod tests;

use crate::listen::listener::{BoundListener, Ownership};
use crate::listen::socket::ListenSocket;
use crate::net::Address;
use crate::observe::Event;
use crate::sync::{Condvar, Mutex, OnceLock, lock, wait_timeout};
use crate::sys::System;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Maximum time that a change waits for the addresses it removed. It goes on without them afterwards.
const RETIRE_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of retiring sockets at which a change that replaces sockets does not wait: they take descriptors.
const MAX_AT_ONCE: usize = 4;
/// Maximum time of a handshake: a round trip across the world, or its segment once more.
const HANDSHAKES_WITHIN: Duration = Duration::from_secs(3);
/// The shortest and the longest pause between two looks at handshakes.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];
/// The time by which the kernel is done with what it has in its hands, where it does not say so.
const IN_HAND: Duration = Duration::from_millis(100);
/// The pause before sockets are offered to members once more.
const AGAIN: Duration = Duration::from_millis(5);

/// The owner of the members that have the sockets: a pool.
pub(super) trait Keeper: Send + Sync {
    /// Has the members that accept from retiring sockets take what waits there and give them up, and waits for it.
    fn give_up(&self, number: u64) -> GaveUp;
    /// Called when retiring sockets are closed.
    fn closed(&self, retirement: &Retirement);
}

/// The result of giving sockets up.
pub(super) enum GaveUp {
    /// No connection waits at the sockets, and no member has them.
    Empty,
    /// A member that had them died; others have them now.
    NotYet,
    /// The pool ends, and the sockets with it.
    Ended,
}

/// Sockets on their way out.
pub(super) struct Retirement {
    pub(super) number: u64,
    pub(super) address: Address,
    /// Other sockets have taken the place of these.
    pub(super) replaced: bool,
    sockets: Vec<Arc<ListenSocket>>,
    ownership: Ownership,
}

/// The addresses that a change has begun to retire.
#[derive(Default)]
pub(super) struct RetiringAddresses {
    removed: Vec<u64>,
    replaced: bool,
}

/// All of a pool.
pub(crate) struct Retirements {
    system: Arc<dyn System>,
    keeper: OnceLock<Weak<dyn Keeper>>,
    state: Mutex<RetirementsState>,
    changed: Condvar,
}

#[derive(Default)]
struct RetirementsState {
    /// Listeners that retire, by number. Until they are closed their ports are taken, whichever member empties them.
    under_way: BTreeMap<u64, Arc<BoundListener>>,
    /// There was no thread for these: a caller that waits, or a thread that has done another, does the work.
    left: Vec<Retirement>,
    last: u64,
    stopped: bool,
}

impl Retirement {
    /// Returns the event that is told when these sockets are closed.
    pub(super) fn told(&self) -> Event {
        let address = self.address.clone();
        if self.replaced { Event::ListenerReplaced(address) } else { Event::ListenerRemoved(address) }
    }

    /// Begins the retirement. From here on, no new connection comes to these sockets where that can be had: it goes to others of the same address, or
    /// is dropped before its handshake begins.
    pub(super) fn begin(number: u64, listener: &mut BoundListener, replaced: bool, system: &dyn System) -> Retirement {
        listener.retires();
        let (address, sockets, ownership) = (listener.address.clone(), listener.sockets.clone(), listener.ownership.clone());
        let retirement = Retirement { number, address, replaced, sockets, ownership };
        match (&retirement.ownership, &retirement.address) {
            (Ownership::Ordered(membership), _) => membership.retire(system),
            (Ownership::Own, Address::Tcp(_)) => retirement.turn_away(system),
            (Ownership::Own | Ownership::Shared, _) => {}
        }
        retirement
    }

    /// Returns true where another Unix socket has the path of these.
    fn passes_a_path_on(&self) -> bool {
        self.replaced && matches!(self.address, Address::Unix(_))
    }

    fn turn_away(&self, system: &dyn System) {
        for socket in &self.sockets {
            // Where this is refused, the sockets are emptied before they close, which is all that can be done.
            let _ = system.turn_away(socket.fd());
        }
    }

    /// Waits until handshakes that began at these sockets are over.
    fn await_handshakes(&self, system: &dyn System, all: &Retirements) {
        if self.passes_a_path_on() {
            // A connect that has found the file of the old socket comes to its queue, however late it goes on: the kernel tells of none.
            all.pause(IN_HAND);
        }
        let (Address::Tcp(address), false) = (&self.address, matches!(self.ownership, Ownership::Shared)) else { return };
        let in_hand = |call: Result<(), _>| call.is_ok() || all.pause(IN_HAND);
        if !in_hand(system.await_input()) {
            return;
        }
        // Connections sent elsewhere cannot come here any more, but for the moment in which places change.
        self.turn_away(system);
        if handshakes(system, *address, all).is_none() {
            all.pause(HANDSHAKES_WITHIN);
        }
    }

    /// Ends their listening, one after the other.
    fn close(&self, system: &dyn System) {
        for (index, socket) in self.sockets.iter().enumerate() {
            if !matches!(self.ownership, Ownership::Shared) {
                // A loop that was stuck meanwhile may hold it still: to that loop it ended in order.
                socket.mark_gone();
            }
            match &self.ownership {
                Ownership::Ordered(membership) => membership.close(system, index, socket),
                // The end of the last descriptor sends a connect that comes this late to the socket that has the path now
                // (unix_stream_connect in the kernel), where a socket that no longer listens would refuse it.
                Ownership::Own if self.passes_a_path_on() => {}
                Ownership::Own => _ = system.stop_listening(socket.fd()),
                Ownership::Shared => {}
            }
        }
    }
}

/// Waits until those are over that are under way now. None: the system does not tell.
fn handshakes(system: &dyn System, address: SocketAddr, all: &Retirements) -> Option<()> {
    let until = Instant::now() + HANDSHAKES_WITHIN;
    let [mut pause, longest] = PAUSES;
    let mut awaited = system.handshakes(address).ok()?;
    while !awaited.is_empty() && Instant::now() < until && all.pause(pause) {
        let still: BTreeSet<u64> = system.handshakes(address).ok()?.into_iter().collect();
        awaited.retain(|one| still.contains(one));
        pause = (2 * pause).min(longest);
    }
    Some(())
}

/// Returns true where no connection waits at these sockets.
pub(super) fn is_empty(listener: &BoundListener, system: &dyn System) -> bool {
    // Twice: a connection may be counted a moment after its handshake.
    (0..2).all(|_| listener.queued(system) == 0) && !listener.is_readable(system)
}

impl Retirements {
    pub(super) fn new(system: Arc<dyn System>) -> Retirements {
        Retirements { system, keeper: OnceLock::new(), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Sets the pool that these belong to, before the first of them.
    pub(super) fn belong_to(&self, keeper: Weak<dyn Keeper>) {
        // The pool is set once.
        let _ = self.keeper.set(keeper);
    }

    /// Returns the number of a listener that retires.
    pub(super) fn number(&self, listener: &BoundListener) -> u64 {
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        state.under_way.insert(number, Arc::new(listener.to_join()));
        number
    }

    /// Listeners that are not closed yet: one that comes back to their address shares the port with them.
    pub(super) fn listeners(&self) -> Vec<Arc<BoundListener>> {
        lock(&self.state).under_way.values().cloned().collect()
    }

    pub(super) fn under_way(&self) -> usize {
        lock(&self.state).under_way.len()
    }

    /// Carries them out in the background.
    pub(super) fn start(self: &Arc<Retirements>, retirements: Vec<Retirement>) -> RetiringAddresses {
        let mut begun = RetiringAddresses::default();
        for retirement in retirements {
            begun.replaced |= retirement.replaced;
            if !retirement.replaced {
                begun.removed.push(retirement.number);
            }
            let (all, slot) = (self.clone(), Arc::new(Mutex::new(Some(retirement))));
            let work = slot.clone();
            let thread = std::thread::Builder::new().name("sockdrawer-retire".to_owned());
            let started = thread.spawn(move || {
                lock(&work).take().iter().for_each(|retirement| all.carry_out(retirement));
                all.carry_out_left();
            });
            if started.is_err() {
                lock(&self.state).left.extend(lock(&slot).take());
            }
        }
        begun
    }

    /// Waits for what a change has begun, but not for long. Without any lock that a pool needs.
    pub(super) fn settle(&self, begun: &RetiringAddresses) {
        self.carry_out_left();
        let until = Instant::now() + RETIRE_WITHIN;
        let mut state = lock(&self.state);
        let is_over = |state: &RetirementsState| {
            state.stopped
                || begun.removed.iter().all(|number| !state.under_way.contains_key(number))
                    && (!begun.replaced || state.under_way.len() <= MAX_AT_ONCE)
        };
        while !is_over(&state) && Instant::now() < until {
            state = wait_timeout(&self.changed, state, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Carries out what is left, also after a change that failed: what it had opened by then retires.
    pub(super) fn carry_out_left(&self) {
        let next = || lock(&self.state).left.pop();
        while let Some(retirement) = next() {
            self.carry_out(&retirement);
        }
    }

    fn carry_out(&self, retirement: &Retirement) {
        // An observer's panic is caught where it is told; should anything else panic, the others go on.
        let closed = catch_unwind(AssertUnwindSafe(|| self.retire(retirement)));
        if closed.is_err() {
            retirement.close(&*self.system);
        }
        let known = lock(&self.state).under_way.remove(&retirement.number);
        // This may drop the last of the sockets.
        drop(known);
        self.changed.notify_all();
    }

    fn retire(&self, retirement: &Retirement) {
        retirement.await_handshakes(&*self.system, self);
        loop {
            let Some(keeper) = self.keeper.get().and_then(Weak::upgrade) else { return };
            match keeper.give_up(retirement.number) {
                GaveUp::Empty => {
                    retirement.close(&*self.system);
                    return keeper.closed(retirement);
                }
                GaveUp::NotYet if self.pause(AGAIN) => {}
                GaveUp::NotYet | GaveUp::Ended => return,
            }
        }
    }

    /// Waits so long, and less when the pool stops: then it is false.
    fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        while !state.stopped && Instant::now() < until {
            state = wait_timeout(&self.changed, state, until.saturating_duration_since(Instant::now()));
        }
        !state.stopped
    }

    /// Stops all waiting: the pool ends.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopped = true;
        // The members that have their sockets empty them.
        let left = std::mem::take(&mut state.left);
        let known: Vec<_> = left.iter().filter_map(|retirement| state.under_way.remove(&retirement.number)).collect();
        drop(state);
        drop((left, known));
        self.changed.notify_all();
    }
}
