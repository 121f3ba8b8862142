//! Accepting: one connection for each event, each with a permit, and a reason for everything that can go wrong.

mod accept_error;
mod accepting;
mod admitting;
mod loop_sockets;
mod policy_view;
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
use crate::sys::Errno;
use accept_error::{AcceptError, meaning};
use admitting::{Waiting, is_shut};
use loop_sockets::{LoopSocket, LoopSockets};
use policy_view::PolicyView;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause of accepting when the system has no descriptor or memory; also ended by a descriptor freed here.
const STARVED: Duration = Duration::from_millis(100);

/// The accepting part of a loop.
pub(super) struct Acceptor {
    sockets: LoopSockets,
    state: Accepting,
    suspended: bool,
    /// Way in which every new connection is turned away; None: it is not.
    refusing: Option<Reject>,
    pub(super) view: PolicyView,
    /// Listeners for which it waits until they have room.
    listeners: Vec<Waiting>,
    /// Descriptors of this number and above are left to the rest of the program.
    spared_from: RawFd,
    /// No connection was accepted since the system had no descriptor or memory.
    starving: bool,
    waiter: Waiter,
    /// Number of the turn among the loops that share a socket.
    rotation: usize,
    /// Connections that were accepted, and that the system had no resources to run.
    unplaced: VecDeque<Incoming>,
    /// Moment at which retiring sockets are looked at again, though nothing comes: another process may have emptied them, which epoll does not tell.
    retires_at: Option<Instant>,
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
            sockets: LoopSockets::default(),
            state: Accepting::Open,
            suspended: false,
            refusing: None,
            view: PolicyView::new(policy, 0),
            listeners: Vec::new(),
            spared_from,
            starving: false,
            waiter,
            rotation: 0,
            unplaced: VecDeque::new(),
            retires_at: None,
        }
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        let state_ends = match self.state {
            Accepting::Starved(until) | Accepting::Paused(until) => Some(until),
            Accepting::Open | Accepting::Full => None,
        };
        state_ends.into_iter().chain(self.retires_at).chain(self.sockets.denied_until).min()
    }

    /// Returns true where a turn has more to do here than handle events.
    #[inline(always)]
    pub(super) fn has_more(&self, shared: &Shared) -> bool {
        (self.state != Accepting::Open)
            | !self.listeners.is_empty()
            | self.sockets.denied_until.is_some()
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
        if self.sockets.add(socket, listener) {
            self.watch_sockets(io);
        }
    }

    /// Leaves a socket to another loop; its queue stays as it is.
    fn release_socket(&mut self, io: &Io, socket: &Arc<ListenSocket>) {
        self.sockets.release(io, socket);
        self.forget_listeners(io);
        // Room that was waited for on behalf of a socket on its way out is for the loop that empties it now.
        if self.state != Accepting::Full && !self.sockets.are_retiring() {
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
        self.view.give_token_back();
        self.sockets.unwatch_all(io);
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
        self.view.look(io);
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
            AcceptError::Listener if self.sockets.has_gone(io, index) => {}
            AcceptError::Connection | AcceptError::Listener if self.sockets.failed(io, index, errno) => {
                io.counters.accept_starved().add(1);
                self.sockets.deny(io, index);
                self.tell_starved(io, errno);
            }
            AcceptError::Connection | AcceptError::Listener => io.counters.accept_failed().add(1),
        }
        Accepted::Failed
    }

    /// Tries those again that were left alone for long enough.
    fn look_at_denied(&mut self, io: &Io) {
        if self.sockets.denial_ends() {
            self.watch_sockets(io);
        }
    }

    /// Goes on after a connection was accepted from this socket, after something had failed, or with a descriptor that is left to the rest of
    /// the program: then no more are accepted, but for those that wait at a socket on its way out, which were let in.
    #[cold]
    fn accepted_again(&mut self, io: &Io, index: usize, is_spared: bool) {
        self.sockets.accepted_again(index);
        self.tell_resumed(io);
        if is_spared && self.sockets.get(index).is_some_and(|here| here.retiring.is_none()) {
            self.starve(io, Errno::MFILE);
        }
    }

    fn starve(&mut self, io: &Io, errno: Errno) {
        io.counters.accept_starved().add(1);
        self.sockets.unwatch_all(io);
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
        if self.unplaced.is_empty() && !self.sockets.failing && std::mem::take(&mut self.starving) {
            io.shared.tell(&Event::AcceptResumed);
        }
    }

    /// Returns a socket that has something, each in turn.
    fn next_ready(&mut self, io: &Io) -> Result<Option<usize>, Errno> {
        let listeners = &self.listeners;
        self.sockets.next_ready(io, |here| !is_shut(listeners, &here.listener))
    }

    fn watch_sockets(&mut self, io: &Io) {
        let full = self.state == Accepting::Full;
        if self.suspended || !full && self.state != Accepting::Open {
            return;
        }
        let listeners = &self.listeners;
        let is_open = |here: &LoopSocket| !is_shut(listeners, &here.listener) && (!full || here.listener.refuses().is_some());
        // ENOMEM or the user's limit of watches: tried again like a lack of descriptors.
        if self.sockets.watch(io, is_open).is_err() {
            self.waiter.leave();
            self.state = Accepting::Starved(Instant::now() + STARVED);
            self.sockets.unwatch_all(io);
        }
    }

    /// Waits no more for listeners of which this loop has no socket any more.
    fn forget_listeners(&mut self, io: &Io) {
        let is_used = |waiting: &Waiting| self.sockets.iter().any(|here| here.is_of(&waiting.listener));
        if !self.listeners.iter().all(is_used) {
            // A listener that is still used waits again as soon as it is looked at.
            self.wait_at_no_listener();
            self.watch_sockets(io);
        }
    }
}
