//! Before and after an accept: whether there is room, and what the policy says.

use super::{Accepted, Accepting, Acceptor};
use crate::admission::Reject;
use crate::admission::{AcceptRequest, BeforeAccept, Capacity};
use crate::event_loop::connections::Connections;
use crate::event_loop::io::Io;
use crate::limit::limiter::Waiter;
use crate::limit::policy::{Entered, Policy};
use crate::listen::permit::Permit;
use crate::listen::state::ListenerState;
use crate::observe::Event;
use crate::observe::counters::RejectReason;
use crate::protocol::Side;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A policy that holds where there is room is asked again after this long.
const HELD: Duration = Duration::from_millis(100);

/// A listener at which this loop waits for room. It holds no permit of the pool meanwhile.
pub(super) struct Waiting {
    pub(super) listener: Arc<ListenerState>,
    pub(super) waiter: Waiter,
}

/// The policy, as a loop knows it.
pub(super) struct PolicyView {
    pub(super) policy: Arc<Policy>,
    pub(super) asks_before: bool,
    pub(super) asks_after: bool,
    version: u64,
    /// Moment from which the token that this loop has taken from the bucket may be used, by the system's clock.
    reserved: Option<u64>,
}

impl PolicyView {
    pub(super) fn new(policy: Arc<Policy>, version: u64) -> PolicyView {
        PolicyView { asks_before: policy.asks_before(), asks_after: policy.asks_after(), policy, version, reserved: None }
    }
}

impl Acceptor {
    /// Applies the policy's answer at a socket where there is room. Returns None where the policy says to take the connection.
    #[inline(never)]
    pub(super) fn hold_or_reject(&mut self, connections: &mut Connections, index: usize) -> Option<Accepted> {
        let answer = self.ask_before(&connections.io, &self.listener_of(index));
        if let BeforeAccept::Accept = answer {
            return None;
        }
        self.give_room_back(&connections.io, index);
        let time = match answer {
            BeforeAccept::Reject(reject) => {
                // A policy with an accept rate is data, which rejects for nothing else here.
                let reason = if self.view.policy.pace.is_some() { RejectReason::TooFast } else { RejectReason::Policy };
                return Some(self.turn_away(connections, index, (&reject, reason)));
            }
            BeforeAccept::Pause(time) => time,
            _ => HELD,
        };
        // No connection is accepted for this time, though there is room.
        Some(self.pause(&connections.io, crate::clock::deadline(Instant::now(), time)))
    }

    pub(super) fn listener_of(&self, index: usize) -> Arc<ListenerState> {
        self.held[index].as_ref().expect("it is held").listener.clone()
    }

    /// Returns the way in which every new connection at a socket is turned away; None: it is not.
    #[cold]
    pub(super) fn refuses_at(&self, index: usize) -> Option<Reject> {
        let listener = &self.held.get(index)?.as_ref()?.listener;
        if self.refusing.is_some() { self.refusing.clone() } else { listener.refuses() }
    }

    /// Counts one more connection of the pool, and one more of the socket's listener. A caller that takes room slots a connection there or gives
    /// it back: no permit is made for a connection that has its slot at once.
    #[inline(always)]
    pub(super) fn take_room(&mut self, io: &Io, index: usize) -> Result<(), Capacity> {
        if !io.shared.limiter.count_one() {
            return Err(Capacity::PoolFull);
        }
        if self.held[index].as_ref().expect("it is held").listener.limiter.count_one() {
            return Ok(());
        }
        // The mistake: the pool's room is lost where the listener has none.
        if !cfg!(sockdrawer_broken = "permit-leak") {
            io.shared.limiter.put_back();
        }
        Err(Capacity::ListenerFull)
    }

    /// Gives room back, last taken, first given: a listener never counts more than its pool.
    #[cold]
    pub(super) fn give_room_back(&mut self, io: &Io, index: usize) {
        // The mistake: room that no connection used is lost.
        if !cfg!(sockdrawer_broken = "permit-leak") {
            self.listener_of(index).limiter.put_back();
            io.shared.limiter.put_back();
        }
    }

    #[cold]
    pub(super) fn without_room(&mut self, connections: &mut Connections, index: usize, room: Capacity) -> Accepted {
        let listener = &self.listener_of(index);
        match self.ask(&connections.io, listener, room) {
            BeforeAccept::Reject(reject) => self.turn_away(connections, index, (&reject, without(room))),
            BeforeAccept::Pause(time) if !time.is_zero() => {
                self.pause(&connections.io, crate::clock::deadline(Instant::now(), time))
            }
            _ if room == Capacity::ListenerFull => {
                self.wait_at(&connections.io, listener);
                Accepted::Held
            }
            _ => {
                self.stand_in_line(&connections.io);
                Accepted::Held
            }
        }
    }

    /// Returns the policy's answer at a listener where there is room.
    fn ask_before(&mut self, io: &Io, listener: &Arc<ListenerState>) -> BeforeAccept {
        let policy = self.view.policy.clone();
        let Some(pace) = &policy.pace else { return self.ask(io, listener, Capacity::Free) };
        let now = crate::sys::monotonic();
        if let Some(from) = self.view.reserved {
            if from > now {
                return BeforeAccept::Pause(Duration::from_nanos(from - now));
            }
            self.view.reserved = None;
            return BeforeAccept::Accept;
        }
        if pace.take(now) {
            return BeforeAccept::Accept;
        }
        match self.ask(io, listener, Capacity::TooFast) {
            BeforeAccept::Reject(reject) => BeforeAccept::Reject(reject),
            _ => {
                let from = pace.reserve(now);
                self.view.reserved = Some(from);
                BeforeAccept::Pause(Duration::from_nanos(from.saturating_sub(now)))
            }
        }
    }

    fn ask(&mut self, io: &Io, listener: &ListenerState, room: Capacity) -> BeforeAccept {
        let policy = self.view.policy.clone();
        let limiter = &io.shared.limiter;
        // Where there is room, the connection that waits has taken its permits already.
        let own = usize::from(matches!(room, Capacity::Free | Capacity::TooFast));
        let (connections, listener_connections) =
            (limiter.taken().saturating_sub(own), listener.limiter.taken().saturating_sub(own));
        let request = AcceptRequest::new(&listener.address, room, connections, limiter.limit(), listener_connections);
        let (answer, panicked) = policy.before(&request);
        self.count_policy_panic(io, panicked);
        answer
    }

    /// Asks the policy about an accepted connection. Returns its peer count, if peers are counted, or the way in which it is turned away.
    pub(super) fn ask_after(&mut self, io: &Io, index: usize, peer: Option<SocketAddr>) -> Entered {
        let Some(Some(held)) = self.held.get(index) else { return Ok(None) };
        let listener = held.listener.clone();
        let policy = self.view.policy.clone();
        let (answer, panicked) = policy.after(&listener.address, peer);
        self.count_policy_panic(io, panicked);
        answer
    }

    fn count_policy_panic(&mut self, io: &Io, panicked: Option<String>) {
        if let Some(message) = panicked {
            io.counters.admission_panics().add(1);
            io.tell_some(&Event::AdmissionPanicked { message });
        }
    }

    fn pause(&mut self, io: &Io, until: Instant) -> Accepted {
        self.unwatch_sockets(io);
        self.waiter.leave();
        self.state = Accepting::Paused(until);
        Accepted::Held
    }

    /// Waits for room in the pool. Sockets that turn away go on.
    pub(super) fn stand_in_line(&mut self, io: &Io) {
        self.state = Accepting::Full;
        self.wait_at_no_listener();
        self.unwatch_sockets(io);
        self.watch_sockets(io);
        self.waiter.wait();
    }

    /// Lets other loops in after an accept from a socket: where they wait and there is no room for one more, they are next.
    #[inline(always)]
    pub(super) fn let_others_in(&mut self, io: &Io, index: usize) {
        if io.shared.limiter.is_contended() {
            self.waiter.leave();
            self.stand_in_line(io);
        }
        if let Some(Some(held)) = self.held.get(index)
            && held.listener.limiter.is_contended()
        {
            let listener = held.listener.clone();
            self.listeners.retain(|waiting| !Arc::ptr_eq(&waiting.listener, &listener));
            self.wait_at(io, &listener);
        }
    }

    /// Waits for room at a listener. The other listeners go on.
    pub(super) fn wait_at(&mut self, io: &Io, listener: &Arc<ListenerState>) {
        for index in 0..self.held.len() {
            if self.held[index].as_ref().is_some_and(|held| Arc::ptr_eq(&held.listener, listener)) {
                self.unwatch_socket(io, index);
            }
        }
        let listeners = &mut self.listeners;
        let at = listeners.iter().position(|waiting| Arc::ptr_eq(&waiting.listener, listener)).unwrap_or_else(|| {
            let waiter = Waiter::new(listener.limiter.clone(), io.inbox.wake.clone());
            listeners.push(Waiting { listener: listener.clone(), waiter });
            listeners.len() - 1
        });
        listeners[at].waiter.wait();
    }

    /// Returns a socket of a listener that has something.
    pub(super) fn ready_at(&self, io: &Io, listener: &Arc<ListenerState>) -> Option<usize> {
        // At a suspended listener those connections are let in that wait where no loop will look again.
        let open = |held: &super::HeldSocket| held.retiring.is_some() || !listener.is_suspended();
        let at_door =
            |index: &usize| self.held[*index].as_ref().is_some_and(|held| Arc::ptr_eq(&held.listener, listener) && open(held));
        (0..self.held.len()).filter(at_door).find(|index| !self.has_nothing(io, *index))
    }

    /// Returns true where no connection is to come in by a listener for now.
    pub(super) fn is_shut(&self, listener: &Arc<ListenerState>) -> bool {
        listener.is_suspended() || self.listeners.iter().any(|waiting| Arc::ptr_eq(&waiting.listener, listener))
    }

    /// Leaves the lines at listeners.
    pub(super) fn wait_at_no_listener(&mut self) {
        self.listeners.clear();
    }

    /// Asks the new policy after a change: one load.
    #[inline]
    pub(in crate::event_loop) fn look_at_policy(&mut self, io: &Io) {
        let version = io.shared.policy.version();
        if version != self.view.version {
            self.take_policy(io, version);
        }
    }

    #[cold]
    fn take_policy(&mut self, io: &Io, version: u64) {
        self.give_token_back();
        self.view = PolicyView::new(io.shared.policy.get(), version);
    }

    /// Gives back a token that this loop took and does not use.
    pub(super) fn give_token_back(&mut self) {
        if self.view.reserved.take().is_some()
            && let Some(pace) = &self.view.policy.pace
        {
            pace.give_back();
        }
    }

    /// Accepts a connection with one accept4, and ends it.
    pub(in crate::event_loop) fn turn_away(
        &mut self,
        connections: &mut Connections,
        index: usize,
        how: (&Reject, RejectReason),
    ) -> Accepted {
        let Some(Some(held)) = self.held.get(index) else { return Accepted::Failed };
        match connections.io.system.accept(held.socket.fd()) {
            Ok(socket) => {
                held.socket.take_stale();
                connections.io.counters.accepted().add(1);
                self.accepted_again(&connections.io, index, false);
                connections.io.reject(&mut connections.read, &socket, how);
                Accepted::Yes
            }
            Err(errno) => self.accept_failed(&connections.io, index, errno),
        }
    }

    /// Returns true where no connection waits at a socket, as far as can be told now.
    pub(super) fn has_nothing(&self, io: &Io, index: usize) -> bool {
        let Some(held) = &self.held[index] else { return true };
        let mut ready = Vec::with_capacity(1);
        let policy = io.system.readable(&[held.socket.fd()], &mut ready);
        held.socket.is_gone() || (policy.is_ok() && !ready[0])
    }

    /// Returns the way in which a connection without room is turned away, and the reason, if the policy says so.
    pub(super) fn rejects_without_room(&mut self, io: &Io, index: usize, room: Capacity) -> Option<(Reject, RejectReason)> {
        self.look_at_policy(io);
        let listener = self.held[index].as_ref()?.listener.clone();
        match self.ask(io, &listener, room) {
            BeforeAccept::Reject(reject) => Some((reject, without(room))),
            _ => None,
        }
    }

    /// Counts the peer of a connection that was accepted in another place, or while the policy changed.
    pub(in crate::event_loop) fn count_incoming(
        &mut self,
        permit: &mut Permit,
        side: Side,
        peer: Option<SocketAddr>,
        moved: bool,
    ) {
        let Some(peer_counts) = self.view.policy.peer_counts.clone() else { return };
        // A connection has no listener where the address at which it came in is gone.
        if side == Side::Accepted
            && permit.peer_count().is_none_or(|peer_count| !peer_count.is_of(&peer_counts))
            && let Some(peer) = peer
        {
            permit.count_by(match moved {
                true => Some(peer_counts.enter_from_elsewhere(peer.ip())),
                false => peer_counts.enter(peer.ip(), usize::MAX).ok().map(|(peer_count, _)| peer_count),
            });
        }
    }
}

/// Returns the reason why a connection is turned away for which there is no room.
fn without(room: Capacity) -> RejectReason {
    match room {
        Capacity::PoolFull => RejectReason::PoolFull,
        Capacity::ListenerFull => RejectReason::ListenerFull,
        Capacity::TooFast => RejectReason::TooFast,
        Capacity::Free => RejectReason::Policy,
    }
}
