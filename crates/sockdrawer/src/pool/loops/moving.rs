//! A pool of loops whose listeners and connections move from one process to another: what the two ends of an upgrade ask of it.

use super::Loops;
use crate::config::Endpoint;
use crate::error::Error;
use crate::event_loop::EventLoop;
use crate::event_loop::connections::moving::{ListenerStates, Offered, Reading};
use crate::event_loop::inbox::{Inbox, Message};
use crate::ipc::messages::{Held, Occupied, Record, Restored, Yours};
use crate::listen::socket::ListenSocket;
use crate::listen::state::{AcceptState, ListenerState};
use crate::net::Address;
use crate::observe::{Counts, Readiness};
use crate::operation::Drain;
use crate::pool::control::{Control, Core, is_running};
use crate::pool::listeners::ListenerEntry;
use crate::pool::manager::{HANDED_OVER, Manager};
use crate::pool::members::Members;
use crate::protocol::State;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{lock, mpsc};
use crate::sys::Errno;
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop that does not answer within this time hangs: its connections would not move.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Connections that move together are given so many rounds to hear what each has sent to others. Two do for most: a message that one of them
/// answers by another takes a third.
const ROUNDS: usize = 16;

impl Core<Loops> {
    /// Takes connections from now on.
    pub(crate) fn open(&self) {
        self.set_accept_state(&AcceptState::Open);
    }

    /// Whether every loop answers.
    pub(crate) fn turns(&self) -> bool {
        let inboxes = self.inboxes();
        self.ask_until(Instant::now() + ANSWERS_WITHIN, &inboxes, |_| ()).len() == inboxes.len()
    }

    /// Its listening sockets, in the order of their places.
    pub(crate) fn listening_sockets(&self) -> Vec<(Address, Vec<Arc<ListenSocket>>)> {
        let control = lock(&self.control);
        control.listeners.listening.iter().map(|entry| (entry.listener.address.clone(), entry.listener.sockets.clone())).collect()
    }

    /// The addresses at which connections come in, with what is counted there.
    pub(crate) fn listener_states(&self) -> ListenerStates {
        let control = lock(&self.control);
        let all = control.listeners.listening.iter().chain(&control.listeners.handed_over);
        all.map(|entry| (entry.listener.address.to_string(), entry.state.clone())).collect()
    }

    /// The states that the service in force reads and writes.
    pub(crate) fn state(&self) -> State {
        self.own.shared.switch.current().state.clone()
    }

    /// Connections that count for the limit, those of a process before this one included.
    pub(crate) fn held(&self) -> u64 {
        self.own.shared.limiter.taken() as u64
    }

    /// What a successor has to know of this pool.
    pub(crate) fn what_is_held(&self, name: &str) -> Held {
        let control = lock(&self.control);
        let entries = control.listeners.listening.iter().chain(&control.listeners.handed_over);
        let occupied = |entry: &ListenerEntry| Occupied {
            address: entry.listener.address.to_string(),
            connections: entry.state.limiter.taken() as u64,
        };
        let shared_counters = &self.own.shared.shared_counters;
        Held {
            name: name.to_owned(),
            connections: self.held(),
            next_id: shared_counters.ids().load(SeqCst),
            listeners: entries.map(occupied).collect(),
            counts: self.counts(&control).by_name().map(|(name, value)| (name.to_owned(), value)).collect(),
            pace: shared_counters.pace().load(SeqCst),
            begun: control.own.dialer.as_ref().map_or(0, |dialer| dialer.begun()),
        }
    }

    /// Goes on where a predecessor stopped: with its numbers, and with permits for the connections that it has.
    pub(crate) fn go_on(&self, held: &Held) {
        lock(&self.control).listeners.all_mut().for_each(|entry| entry.listener.hand_over(false));
        lock(&self.control).own.dialer.iter().for_each(|dialer| dialer.begin_behind(held.begun));
        self.count_predecessor(held);
        let shared = &self.own.shared;
        shared.limiter.hold_more(held.connections);
        for (state, connections) in self.occupied(held) {
            state.limiter.hold_more(connections);
        }
        shared.shared_counters.ids().fetch_max(held.next_id, SeqCst);
        shared.shared_counters.pace().fetch_max(held.pace, SeqCst);
    }

    /// Has this told once the pool begins to be shut down.
    pub(crate) fn tell_end_to(&self, told: impl FnOnce(Drain) + Send + 'static) {
        lock(&self.control).told_of_end = Some(Box::new(told));
    }

    /// The pool that took over is shut down: this one is, too.
    pub(crate) fn end_with_successor(&self, how: Drain) {
        self.shutdown(how, HANDED_OVER, |_| ());
    }

    /// What the predecessor has counted by now.
    pub(crate) fn count_predecessor(&self, held: &Held) {
        let value = |name: &str| held.counts.get(name).copied().unwrap_or(0);
        lock(&self.control).own.predecessors = Counts::of_names(value);
    }

    /// The addresses of this pool at which connections of the predecessor came in.
    pub(crate) fn occupied(&self, held: &Held) -> Vec<(Arc<ListenerState>, u64)> {
        let states = self.listener_states();
        let state = |address: &str| states.iter().find(|(known, _)| known == address).map(|(_, state)| state.clone());
        held.listeners.iter().filter_map(|one| Some((state(&one.address)?, one.connections))).collect()
    }

    /// Listens at these addresses no more. A pool that was changed meanwhile may have them no more, or has ended.
    pub(crate) fn listen_no_more_at(&self, addresses: &[Address]) {
        while !addresses.is_empty() {
            let mut wanted = self.config();
            if let Endpoint::Accept { listeners, .. } = &mut wanted.endpoint {
                listeners.retain(|listening| !addresses.contains(&listening.address));
            }
            if !matches!(self.reconfigure(wanted), Err(Error::Conflict { .. })) {
                return;
            }
        }
    }

    /// So many connections of a predecessor are none any more.
    pub(crate) fn release(&self, connections: u64) {
        (0..connections).for_each(|_| self.own.shared.limiter.put_back());
    }

    /// Freezes all connections that can move to a build that reads these states, once each has heard what others have sent it.
    pub(crate) fn gather(&self, reads: &State) {
        let (inboxes, reads) = (self.inboxes(), reads.clone());
        self.ask(&inboxes, move |event_loop| event_loop.connections.freeze_all(&reads));
        let gathered = |last| {
            let heard = self.ask(&inboxes, move |event_loop| event_loop.connections.gathered(last));
            heard.into_iter().map(|(_, heard)| heard).sum::<u64>()
        };
        // After a round in which no note was heard none is under way: each was put in an inbox before the round reached that.
        (0..ROUNDS).take_while(|_| gathered(false) > 0).count();
        gathered(true);
    }

    /// All frozen connections go on here.
    pub(crate) fn thaw(&self) {
        self.ask(&self.inboxes(), |event_loop| event_loop.connections.thaw_all());
    }

    /// How many of its connections can move to a build that reads these states, and why how many others cannot now.
    pub(crate) fn plan_to_move(&self, reads: &State) -> (u64, BTreeMap<String, u64>) {
        let reads = reads.clone();
        let of_loops = self.ask(&self.inboxes(), move |event_loop| event_loop.connections.plan_to_move(&reads));
        let (mut moves, mut stay) = (0, BTreeMap::new());
        for (_, (count, reasons)) in of_loops {
            moves += count;
            reasons.into_iter().for_each(|(why, count)| *stay.entry(why).or_default() += count);
        }
        (moves, stay)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.own.shared.limiter.limit() as u64
    }

    /// How often its configuration was changed.
    pub(crate) fn revision(&self) -> u64 {
        lock(&self.control).revision.number()
    }

    /// From here on the pool is not changed, and its end leaves the listeners alone. False where it was changed, or ended, since it was at
    /// this revision.
    pub(crate) fn stay_as_it_is(&self, revision: u64) -> bool {
        let mut control = lock(&self.control);
        control.handing_over = control.revision.number() == revision && is_running(&control.readiness).is_ok();
        let handed_over = control.handing_over;
        control.listeners.all_mut().for_each(|entry| entry.listener.hand_over(handed_over));
        handed_over
    }

    /// Whether it has ended, and only its handle is left.
    pub(crate) fn has_stopped(&self) -> bool {
        matches!(lock(&self.control).readiness, Readiness::Stopped(_))
    }

    /// ... or may be changed after all.
    pub(crate) fn may_change(&self) {
        let mut control = lock(&self.control);
        control.handing_over = false;
        control.listeners.all_mut().for_each(|entry| entry.listener.hand_over(false));
    }

    /// Waits until no listening socket is on its way out, for so long. Whether that came.
    pub(crate) fn wait_for_retired(&self, within: Duration) -> bool {
        self.own.notifier().wait(Instant::now() + within, || self.retirements.under_way() == 0)
    }

    /// Waits until no connection is left.
    pub(crate) fn wait_for_none(&self) {
        while !self.own.notifier().wait(Instant::now() + ANSWERS_WITHIN, || self.held() == 0) {}
    }

    /// What it does with connections that come, before it is handed over.
    pub(crate) fn accept_state(&self) -> AcceptState {
        lock(&self.control).accept_state.clone()
    }

    /// Stops to accept: another process has the listeners, and this one touches them no more. False where a loop may still accept.
    pub(crate) fn hand_over(&self) -> bool {
        // When this returns no loop that turns is about to accept.
        self.set_accept_state(&AcceptState::Suspended);
        // Twice: what one loop accepted last for another has come in there, too.
        if !self.turns() || !self.turns() || is_running(&lock(&self.control).readiness).is_err() {
            return false;
        }
        let mut control = lock(&self.control);
        let Control { listeners, members, .. } = &mut *control;
        for mut entry in listeners.listening.drain(..) {
            entry.listener.hand_over(true);
            let sockets = |index| {
                let held = entry.owners.iter().enumerate().filter(move |(_, owners)| owners.contains(&index));
                held.map(|(socket, _)| socket).collect()
            };
            let released: Vec<_> = members.iter().enumerate().map(|(index, member)| (member, sockets(index))).collect();
            Members::release(&self.own, &entry, &released);
            entry.owners.iter_mut().for_each(Vec::clear);
            listeners.handed_over.push(entry);
        }
        true
    }

    /// The other process is dead, or did not begin: the listeners are this one's again.
    pub(crate) fn take_back(&self, before: &AcceptState) {
        {
            let mut control = lock(&self.control);
            control.handing_over = false;
            let handed_over = std::mem::take(&mut control.listeners.handed_over);
            control.listeners.all_mut().for_each(|entry| entry.listener.hand_over(false));
            if is_running(&control.readiness).is_ok() {
                for mut entry in handed_over {
                    entry.listener.hand_over(false);
                    control.listeners.listening.push(entry);
                }
                self.rebalance(&mut control);
            }
        }
        self.thaw();
        self.set_accept_state(before);
    }

    /// The other process stands: the copies of its listening sockets are closed. The connections that came in there are counted still.
    pub(crate) fn forget_handed_over(&self) {
        let mut control = lock(&self.control);
        control.listeners.handed_over.iter_mut().for_each(|entry| entry.listener.sockets.clear());
    }

    /// Nothing is left: the pool ends.
    pub(crate) fn end_handed_over(&self) {
        Core::stop(self, HANDED_OVER);
    }
}

/// Asks one loop, however long it takes: what moves must be known for sure. None: it is gone.
fn ask<T: Send + 'static>(inbox: &Arc<Inbox>, question: impl FnOnce(&mut EventLoop) -> T + Send + 'static) -> Option<T> {
    let (answers, answer) = mpsc::channel();
    let command = Box::new(move |event_loop: &mut EventLoop| _ = answers.send(question(event_loop)));
    inbox.put(Message::Command(command)).ok()?;
    answer.recv().ok()
}

/// Offers the next connections of a loop to a successor; see [`Connections::offer_next`](crate::event_loop::connections::Connections).
pub(crate) fn offer(
    inbox: &Arc<Inbox>,
    reads: Reading,
    from: u32,
    send: impl FnOnce(Vec<Record>, &[BorrowedFd<'_>]) -> Result<(), Errno> + Send + 'static,
) -> Result<Offered, Errno> {
    ask(inbox, move |event_loop| event_loop.connections.offer_next(&reads, from, send))
        .unwrap_or(Ok(Offered { count: 0, next: None }))
}

/// Lets go of those of a loop's frozen connections that were restored elsewhere; the others go on.
pub(crate) fn let_go(inbox: &Arc<Inbox>, restored: Vec<u64>) -> Yours {
    ask(inbox, move |event_loop| event_loop.connections.let_go(&restored)).unwrap_or_default()
}

/// Restores connections in a loop. None: it does not answer.
pub(crate) fn restore(inbox: &Arc<Inbox>, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Option<Restored> {
    ask(inbox, move |event_loop| event_loop.connections.restore_arrivals(records, sockets))
}

/// Those are this process's now. Returns at which address each came in. With `together` they wait until they are released.
pub(crate) fn seat(inbox: &Arc<Inbox>, yours: Yours, listeners: ListenerStates, together: bool) -> Vec<Option<String>> {
    ask(inbox, move |event_loop| event_loop.seat_arrivals(yours, &listeners, together)).unwrap_or_default()
}

pub(crate) fn release(inbox: &Arc<Inbox>) {
    ask(inbox, |event_loop| event_loop.connections.release());
}
