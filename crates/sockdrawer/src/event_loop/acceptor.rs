//! Accepting: one connection for each event, each with a permit, and a reason for everything that can go wrong.

mod accept_error;
mod accepting;
mod admitting;
mod retiring;

pub(crate) use retiring::Retiring;

use super::incoming::Incoming;
use super::io::Io;
use super::shared::Shared;
use crate::admission::AcceptState;
use crate::admission::Reject;
use crate::limit::limiter::Waiter;
use crate::limit::policy::Policy;
use crate::listen::socket::ListenSocket;
use crate::listen::state::ListenerState;
use crate::observe::Event;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sys::{Errno, Interest};
use accept_error::{AcceptError, meaning};
use admitting::{PolicyView, Waiting};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause of accepting when the system has no descriptor or memory; also ended by a descriptor freed here.
const STARVED: Duration = Duration::from_millis(100);

/// The accepting part of a loop.
pub(super) struct Acceptor {
    /// A socket keeps its place, which its token names, as long as it is here.
    held: Vec<Option<HeldSocket>>,
    state: Accepting,
    suspended: bool,
    /// Way in which every new connection is turned away; None: it is not.
    refusing: Option<Reject>,
    view: PolicyView,
    /// Listeners for which it waits until they have room.
    listeners: Vec<Waiting>,
    /// Descriptors of this number and above are left to the rest of the program.
    spared_from: RawFd,
    /// No connection was accepted since the system had no descriptor or memory.
    starving: bool,
    waiter: Waiter,
    /// Number of the turn among the loops that share a socket.
    rotation: usize,
    /// Sockets that had a connection in the queue when they were last looked at, and were not accepted from since.
    ready: Vec<usize>,
    /// Connections that were accepted, and that the system had no resources to run.
    unplaced: VecDeque<Incoming>,
    /// There are sockets of which the last accept4 failed for the sake of a connection.
    failing: bool,
    /// Moment at which the first of the sockets is tried again from which the system denies accepting.
    denied_until: Option<Instant>,
    /// Moment at which retiring sockets are looked at again, though nothing comes: another process may have emptied them, which epoll does not tell.
    retires_at: Option<Instant>,
}

/// An accept4 that failed. Where the next from that socket fails alike, and its queue is not shorter, the system denies accepting
/// (seccomp, a security module): the connection is reported for ever and cannot be had.
struct DeniedAccept {
    errno: Errno,
    /// Connections that were queued afterwards; the kernel does not count those of a Unix socket.
    queued: usize,
}

struct HeldSocket {
    socket: Arc<ListenSocket>,
    listener: Arc<ListenerState>,
    watched: bool,
    /// The retirement of the socket, which is given up as soon as its queue is empty.
    retiring: Option<Arc<Retiring>>,
    /// The failure of its last accept4.
    refused: Option<DeniedAccept>,
    /// Moment until which the socket is left alone: the system denies accepting from it.
    denied: Option<Instant>,
}

/// State of accepting: says if this loop takes connections; the others wait in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    Open,
    /// All permits are taken: the loop waits for one.
    Full,
    /// The system has no descriptor or memory: waiting until then.
    Starved(Instant),
    /// The policy said to pause until then.
    Paused(Instant),
}

/// Result of one accept4.
pub(super) enum Accepted {
    Yes,
    /// Accepting was not tried: this loop waits, or the listener does.
    Held,
    /// No connection was there.
    Nothing,
    /// accept4 failed, or connections that cannot be run yet are in the way.
    Failed,
}

impl Acceptor {
    pub(super) fn new(waiter: Waiter, policy: Arc<Policy>, spared_from: RawFd) -> Acceptor {
        Acceptor {
            held: Vec::new(),
            state: Accepting::Open,
            suspended: false,
            refusing: None,
            view: PolicyView::new(policy, 0),
            listeners: Vec::new(),
            spared_from,
            starving: false,
            waiter,
            rotation: 0,
            ready: Vec::new(),
            unplaced: VecDeque::new(),
            failing: false,
            denied_until: None,
            retires_at: None,
        }
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        let state_ends = match self.state {
            Accepting::Starved(until) | Accepting::Paused(until) => Some(until),
            Accepting::Open | Accepting::Full => None,
        };
        state_ends.into_iter().chain(self.retires_at).chain(self.denied_until).min()
    }

    /// Returns true where a turn has more to do here than handle events.
    #[inline(always)]
    pub(super) fn has_more(&self, shared: &Shared) -> bool {
        (self.state != Accepting::Open)
            | !self.listeners.is_empty()
            | self.denied_until.is_some()
            | (shared.leaving.load(SeqCst) > 0)
    }

    /// Ends the pause of an acceptor that lacked a descriptor: one was closed, so it may try now.
    pub(super) fn descriptor_freed(&mut self) {
        if let Accepting::Starved(until) = &mut self.state {
            *until = (*until).min(Instant::now());
        }
    }

    /// Accepts from a socket from now on.
    fn take_socket(&mut self, io: &Io, socket: Arc<ListenSocket>, listener: Arc<ListenerState>) {
        let held = self.held.iter().flatten();
        if held.into_iter().any(|held| Arc::ptr_eq(&held.socket, &socket)) {
            return;
        }
        let held = Some(HeldSocket { socket, listener, watched: false, retiring: None, refused: None, denied: None });
        match self.held.iter().position(Option::is_none) {
            Some(free) => self.held[free] = held,
            None => self.held.push(held),
        }
        self.watch_sockets(io);
    }

    /// Leaves a socket to another loop; its queue stays as it is.
    fn release_socket(&mut self, io: &Io, socket: &Arc<ListenSocket>) {
        for index in 0..self.held.len() {
            if self.held[index].as_ref().is_some_and(|held| Arc::ptr_eq(&held.socket, socket)) {
                self.unwatch_socket(io, index);
                self.held[index] = None;
            }
        }
        self.forget_listeners(io);
        // Room that was waited for on behalf of a socket on its way out is for the loop that empties it now.
        if self.state != Accepting::Full && !self.is_retiring() {
            self.waiter.leave();
        }
    }

    /// Opens or suspends accepting, or turns every new connection away.
    fn set_accept_state(&mut self, io: &Io, accept_state: &AcceptState) {
        match accept_state {
            AcceptState::Suspended => {
                self.refusing = None;
                return self.suspend(io);
            }
            AcceptState::Open => self.refusing = None,
            AcceptState::Refusing(reject) => {
                self.refusing = Some(reject.clone());
                // A loop that waits for a permit needs none now.
                self.suspend(io);
            }
        }
        self.resume_accepting(io);
    }

    /// Stops accepting; connections wait in the kernel's queue.
    fn suspend(&mut self, io: &Io) {
        self.suspended = true;
        self.waiter.leave();
        self.wait_at_no_listener();
        self.give_token_back();
        self.unwatch_sockets(io);
        // Connections that were accepted are still to be placed.
        if self.unplaced.is_empty() {
            self.state = Accepting::Open;
        }
    }

    /// Accepts again.
    fn resume_accepting(&mut self, io: &Io) {
        self.suspended = false;
        self.watch_sockets(io);
    }

    /// Has an acceptor that waits look again: the policy is another, or a listener was opened or closed.
    fn policy_changed(&mut self, io: &Io) {
        self.look_at_policy(io);
        self.spared_from = io.shared.spared_from();
        if self.suspended {
            // Sockets on their way out are emptied all the same, and may wait at a listener.
            return self.wait_at_no_listener();
        }
        self.suspend(io);
        self.resume_accepting(io);
    }

    /// Returns true where connections at a socket are turned away: without permits, only those are accepted.
    #[cold]
    fn turns_away_at(&self, index: usize) -> bool {
        (self.state == Accepting::Full) & !self.suspended && self.refuses_at(index).is_some()
    }

    fn accept_failed(&mut self, io: &Io, index: usize, errno: Errno) -> Accepted {
        match meaning(errno) {
            AcceptError::Nothing => {
                io.counters.accept_empty().add(1);
                return Accepted::Nothing;
            }
            AcceptError::Resource => self.starve(io, errno),
            AcceptError::Listener if self.listener_gone(io, index) => {}
            AcceptError::Connection | AcceptError::Listener if self.is_denied(io, index, errno) => self.deny(io, index, errno),
            AcceptError::Connection | AcceptError::Listener => io.counters.accept_failed().add(1),
        }
        Accepted::Failed
    }

    /// Returns true where accept4 failed with the errno of the last time, and no connection left the queue since.
    fn is_denied(&mut self, io: &Io, index: usize, errno: Errno) -> bool {
        let Some(Some(held)) = self.held.get_mut(index) else { return false };
        let queued = io.system.queued(held.socket.fd()).unwrap_or(0);
        self.failing = true;
        let last = held.refused.replace(DeniedAccept { errno, queued });
        last.is_some_and(|last| last.queued <= queued && last.errno == errno)
    }

    /// Leaves a socket alone for a while from which the system denies accepting. That is of this socket, not of the process: the others go on.
    fn deny(&mut self, io: &Io, index: usize, errno: Errno) {
        io.counters.accept_starved().add(1);
        self.unwatch_socket(io, index);
        let until = Instant::now() + STARVED;
        if let Some(Some(held)) = self.held.get_mut(index) {
            held.denied = Some(until);
        }
        self.denied_until.get_or_insert(until);
        self.tell_starved(io, errno);
    }

    /// Tries those again that were left alone for long enough.
    fn look_at_denied(&mut self, io: &Io) {
        // Each event comes by here: the clock is read where a socket was denied alone.
        let Some(until) = self.denied_until else { return };
        let now = Instant::now();
        if until > now {
            return;
        }
        for held in self.held.iter_mut().flatten() {
            held.denied.take_if(|until| *until <= now);
        }
        self.denied_until = self.held.iter().flatten().filter_map(|held| held.denied).min();
        self.watch_sockets(io);
    }

    /// Goes on after a connection was accepted from this socket, after something had failed, or with a descriptor that is left to the rest of
    /// the program: then no more are accepted, but for those that wait at a socket on its way out, which were let in.
    #[cold]
    fn accepted_again(&mut self, io: &Io, index: usize, is_spared: bool) {
        if let Some(Some(held)) = self.held.get_mut(index) {
            (held.refused, held.denied) = (None, None);
        }
        self.failing = self.held.iter().flatten().any(|held| held.refused.is_some());
        self.tell_resumed(io);
        if is_spared && self.held[index].as_ref().is_some_and(|held| held.retiring.is_none()) {
            self.starve(io, Errno::MFILE);
        }
    }

    fn starve(&mut self, io: &Io, errno: Errno) {
        io.counters.accept_starved().add(1);
        self.unwatch_sockets(io);
        self.waiter.leave();
        self.tell_starved(io, errno);
        self.state = Accepting::Starved(Instant::now() + STARVED);
    }

    fn tell_starved(&mut self, io: &Io, errno: Errno) {
        if !std::mem::replace(&mut self.starving, true) {
            io.shared.tell(&Event::AcceptStarved { errno: errno.raw_os_error() });
        }
    }

    /// Keeps an accepted connection that cannot be run for lack of a thread, a process or a descriptor: nothing more is accepted until it can.
    fn place_later(&mut self, io: &Io, incoming: Incoming, errno: Errno) {
        self.unplaced.push_back(incoming);
        self.starve(io, errno);
    }

    /// Takes the accepted connections that could not be run yet, for another loop to run them.
    pub(super) fn take_unplaced(&mut self) -> VecDeque<Incoming> {
        std::mem::take(&mut self.unplaced)
    }

    /// Returns true where accepted connections could not be run yet.
    pub(super) fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    fn tell_resumed(&mut self, io: &Io) {
        if self.unplaced.is_empty() && !self.failing && std::mem::take(&mut self.starving) {
            io.shared.tell(&Event::AcceptResumed);
        }
    }

    /// Returns true where a socket is not held, or listens no more: it is left alone then.
    fn listener_gone(&mut self, io: &Io, index: usize) -> bool {
        let Some(Some(held)) = self.held.get(index) else { return true };
        if io.system.is_listening(held.socket.fd()).unwrap_or(false) {
            return false;
        }
        if held.socket.mark_gone() {
            io.shared.tell(&Event::ListenerGone(held.listener.address.clone()));
        }
        self.unwatch_socket(io, index);
        true
    }

    /// Returns a socket that has something, each in turn. They are looked at together, and only when all that had something then have
    /// been accepted from; a single one is not looked at, accepting tells as much.
    fn next_ready(&mut self, io: &Io) -> Result<Option<usize>, Errno> {
        while let Some(index) = self.ready.pop() {
            if self.held.get(index).is_some_and(|held| self.is_live(held)) {
                return Ok(Some(index));
            }
        }
        let live = |held: &Option<HeldSocket>| self.is_live(held);
        let held = &self.held;
        let mut indices = (0..held.len()).filter(|index| live(&held[*index]));
        if let (Some(only), None) = (indices.next(), indices.next()) {
            return Ok(Some(only));
        }
        let indices: Vec<usize> = (0..held.len()).filter(|index| live(&held[*index])).collect();
        let sockets: Vec<BorrowedFd<'_>> =
            indices.iter().filter_map(|index| held[*index].as_ref()).map(|held| held.socket.fd()).collect();
        let mut ready = Vec::new();
        io.system.readable(&sockets, &mut ready)?;
        self.ready.extend(indices.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(index, _)| index));
        Ok(self.ready.pop())
    }

    /// Returns true where connections may come from a socket now.
    fn is_live(&self, held: &Option<HeldSocket>) -> bool {
        held.as_ref().is_some_and(|held| !held.socket.is_gone() && held.denied.is_none() && !self.is_shut(&held.listener))
    }

    fn watch_sockets(&mut self, io: &Io) {
        let full = self.state == Accepting::Full;
        if self.suspended || !full && self.state != Accepting::Open {
            return;
        }
        for index in 0..self.held.len() {
            let closed = |listener: &Arc<ListenerState>| self.is_shut(listener) || full && listener.refuses().is_none();
            let shut =
                |held: &HeldSocket| held.watched || held.denied.is_some() || held.socket.is_gone() || closed(&held.listener);
            if self.held[index].as_ref().is_none_or(shut) {
                continue;
            }
            let held = self.held[index].as_mut().expect("just seen");
            let interest = Interest::READ;
            match io.system.watch(io.epoll.as_fd(), held.socket.fd(), index as u64 + 1, interest) {
                Ok(()) => held.watched = true,
                // ENOMEM or the user's limit of watches: tried again like a lack of descriptors.
                Err(_) => {
                    self.waiter.leave();
                    self.state = Accepting::Starved(Instant::now() + STARVED);
                    return self.unwatch_sockets(io);
                }
            }
        }
    }

    /// Waits no more for listeners of which this loop has no socket any more.
    fn forget_listeners(&mut self, io: &Io) {
        let is_used =
            |listener: &Arc<ListenerState>| self.held.iter().flatten().any(|held| Arc::ptr_eq(&held.listener, listener));
        if !self.listeners.iter().all(|waiting| is_used(&waiting.listener)) {
            // A listener that is still used waits again as soon as it is looked at.
            self.wait_at_no_listener();
            self.watch_sockets(io);
        }
    }

    fn unwatch_sockets(&mut self, io: &Io) {
        for index in 0..self.held.len() {
            self.unwatch_socket(io, index);
        }
    }

    fn unwatch_socket(&mut self, io: &Io, index: usize) {
        if let Some(held) = &mut self.held[index]
            && std::mem::take(&mut held.watched)
        {
            // This fails only for a socket that is not watched.
            let _ = io.system.unwatch(io.epoll.as_fd(), held.socket.fd());
        }
    }
}
