//! A pool of loops whose listeners and connections move from one process to another: what the two ends of an upgrade ask of it.

use super::Loops;
use crate::event_loop::EventLoop;
use crate::event_loop::connections::moving::{ListenerStates, Offered};
use crate::event_loop::inbox::{Inbox, Message};
use crate::ipc::messages::{Record, Restored};
use crate::listen::socket::ListenSocket;
use crate::listen::state::AcceptState;
use crate::net::Address;
use crate::pool::control::Core;
use crate::pool::manager::{HANDED_OVER, Manager};
use crate::protocol::State;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{lock, mpsc};
use crate::sys::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop that does not answer within this time hangs: its connections would not move.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

impl Core<Loops> {
    /// Takes connections, or does not; when this returns every loop does so.
    pub(crate) fn accept(&self, accepts: bool) {
        self.set_accept_state(if accepts { &AcceptState::Open } else { &AcceptState::Suspended });
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
        control.listeners.listening.iter().map(|entry| (entry.listener.address.to_string(), entry.state.clone())).collect()
    }

    /// The states that the service in force reads and writes.
    pub(crate) fn state(&self) -> State {
        self.own.shared.switch.current().state.clone()
    }

    /// Connections that count for the limit.
    pub(crate) fn held(&self) -> usize {
        self.own.shared.limiter.taken()
    }

    /// Waits until no connection is left, or for so long.
    pub(crate) fn wait_for_none(&self, within: Duration) {
        self.wait(within, &mut |status| status.connections == 0);
    }

    /// The number of the next connection, of which no loop knows yet.
    pub(crate) fn next_id(&self) -> u64 {
        self.own.shared.shared_counters.ids().load(SeqCst)
    }

    /// Counts the connections of a predecessor, and numbers its own after them.
    pub(crate) fn count_predecessor(&self, connections: u64, next_id: u64) {
        self.own.shared.limiter.hold_more(connections);
        self.own.shared.shared_counters.ids().fetch_max(next_id, SeqCst);
    }

    /// So many of a predecessor's connections are none any more.
    pub(crate) fn release_predecessor(&self, connections: u64) {
        (0..connections).for_each(|_| self.own.shared.limiter.put_back());
    }

    /// All frozen connections go on here.
    pub(crate) fn thaw(&self) {
        self.ask(&self.inboxes(), |event_loop| event_loop.connections.thaw_all());
    }

    /// Another process has the listeners: this one does nothing to them any more but to close its copies.
    pub(crate) fn hand_over_listeners(&self) {
        let mut control = lock(&self.control);
        control.listeners.all_mut().for_each(|entry| entry.listener.is_handed_over());
    }

    /// Nothing is left: the pool ends, and its listeners are another process's.
    pub(crate) fn end_handed_over(&self) {
        self.hand_over_listeners();
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
    reads: State,
    from: u32,
    send: impl FnOnce(Vec<Record>, &[BorrowedFd<'_>]) -> Result<(), Errno> + Send + 'static,
) -> Result<Offered, Errno> {
    ask(inbox, move |event_loop| event_loop.connections.offer_next(&reads, from, send))
        .unwrap_or(Ok(Offered { count: 0, next: None }))
}

/// Lets go of those of a loop's frozen connections that were restored elsewhere; the others go on.
pub(crate) fn let_go(inbox: &Arc<Inbox>, restored: Vec<u64>) -> Vec<u64> {
    ask(inbox, move |event_loop| event_loop.connections.let_go(&restored)).unwrap_or_default()
}

/// Restores connections in a loop. None: it does not answer.
pub(crate) fn restore(inbox: &Arc<Inbox>, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Option<Restored> {
    ask(inbox, move |event_loop| event_loop.connections.restore_arrivals(records, sockets))
}

/// Those are this process's now. Returns how many.
pub(crate) fn seat(inbox: &Arc<Inbox>, ids: Vec<u64>, listeners: ListenerStates) -> usize {
    ask(inbox, move |event_loop| event_loop.seat_arrivals(&ids, &listeners)).unwrap_or_default()
}
