//! Before and after an accept: whether there is room, and what the policy says.

use super::{Accepted, Accepting, Acceptor, LoopSocket};
use crate::admission::{BeforeAccept, Capacity, Reject};
use crate::event_loop::io::Io;
use crate::event_loop::streams::Streams;
use crate::limit::limiter::Waiter;
use crate::listen::state::ListenerState;
use crate::observe::counters::RejectReason;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A policy that holds where there is room is asked again after this long.
const HELD: Duration = Duration::from_millis(100);

/// Connections that are turned away one by one at a socket whose time is over; more, from clients that are faster, are counted and
/// reset with the socket.
const TURNED_AWAY: usize = 8192;

/// A listener at which this loop waits for room. It holds no permit of the pool meanwhile.
pub(super) struct Waiting {
    pub(super) listener: Arc<ListenerState>,
    pub(super) waiter: Waiter,
}

impl Acceptor {
    /// Applies the policy's answer at a socket where there is room. Returns None where the policy says to take the connection.
    #[inline(never)]
    pub(super) fn hold_or_reject(&mut self, streams: &mut Streams, index: usize) -> Option<Accepted> {
        let answer = self.view.before(&streams.io, &self.sockets.at(index).listener);
        if let BeforeAccept::Accept = answer {
            return None;
        }
        self.give_room_back(&streams.io, index);
        let time = match answer {
            BeforeAccept::Reject(reject) => {
                // A policy with an accept rate is data, which rejects for nothing else here.
                let reason = if self.view.policy.pace.is_some() { RejectReason::TooFast } else { RejectReason::Policy };
                return Some(self.turn_away(streams, index, (&reject, reason)));
            }
            BeforeAccept::Pause(time) => time,
            _ => HELD,
        };
        // No connection is accepted for this time, though there is room.
        Some(self.pause(&streams.io, crate::clock::deadline(Instant::now(), time)))
    }

    /// Returns the way in which every new connection at a socket is turned away; None: it is not.
    #[cold]
    pub(super) fn refuses_at(&self, index: usize) -> Option<Reject> {
        let listener = &self.sockets.get(index)?.listener;
        if self.refusing.is_some() { self.refusing.clone() } else { listener.refuses() }
    }

    /// Counts one more connection of the pool, and one more of the socket's listener. A caller that takes room slots a connection there or gives
    /// it back: no permit is made for a connection that has its slot at once.
    #[inline(always)]
    pub(super) fn take_room(&mut self, io: &Io, index: usize) -> Result<(), Capacity> {
        if !io.shared.limiter.count_one() {
            return Err(Capacity::PoolFull);
        }
        if self.sockets.at(index).listener.limiter.count_one() {
            return Ok(());
        }
        // Only in a build with this mistake: the pool's room is lost where the listener has none.
        if !cfg!(sockdrawer_broken = "permit-leak") {
            io.shared.limiter.put_back();
        }
        Err(Capacity::ListenerFull)
    }

    /// Gives room back, last taken, first given: a listener never counts more than its pool.
    #[cold]
    pub(super) fn give_room_back(&mut self, io: &Io, index: usize) {
        // Only in a build with this mistake: room that no connection used is lost.
        if !cfg!(sockdrawer_broken = "permit-leak") {
            self.sockets.at(index).listener.limiter.put_back();
            io.shared.limiter.put_back();
        }
    }

    #[cold]
    pub(super) fn without_room(&mut self, streams: &mut Streams, index: usize, room: Capacity) -> Accepted {
        let listener = &self.sockets.at(index).listener.clone();
        match self.view.ask(&streams.io, listener, room) {
            BeforeAccept::Reject(reject) => self.turn_away(streams, index, (&reject, without(room))),
            BeforeAccept::Pause(time) if !time.is_zero() => self.pause(&streams.io, crate::clock::deadline(Instant::now(), time)),
            _ if room == Capacity::ListenerFull => {
                self.wait_at(&streams.io, listener);
                Accepted::Held
            }
            _ => {
                self.stand_in_line(&streams.io);
                Accepted::Held
            }
        }
    }

    fn pause(&mut self, io: &Io, until: Instant) -> Accepted {
        self.sockets.unwatch_all(io);
        self.waiter.leave();
        self.state = Accepting::Paused(until);
        Accepted::Held
    }

    /// Waits for room in the pool. Sockets that turn away go on.
    pub(super) fn stand_in_line(&mut self, io: &Io) {
        self.state = Accepting::Full;
        self.wait_at_no_listener();
        self.sockets.unwatch_all(io);
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
        if let Some(here) = self.sockets.get(index)
            && here.listener.limiter.is_contended()
        {
            let listener = here.listener.clone();
            self.listeners.retain(|waiting| !Arc::ptr_eq(&waiting.listener, &listener));
            self.wait_at(io, &listener);
        }
    }

    /// Waits for room at a listener. The other listeners go on.
    pub(super) fn wait_at(&mut self, io: &Io, listener: &Arc<ListenerState>) {
        self.sockets.unwatch_listener(io, listener);
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
        let is_open = |here: &LoopSocket| here.is_of(listener) && (here.retiring.is_some() || !listener.is_suspended());
        let open = |index: &usize| self.sockets.get(*index).is_some_and(is_open);
        self.sockets.indices().filter(open).find(|index| !self.sockets.has_nothing(io, *index))
    }

    /// Leaves the lines at listeners.
    pub(super) fn wait_at_no_listener(&mut self) {
        self.listeners.clear();
    }

    /// Accepts a connection with one accept4, and ends it.
    pub(in crate::event_loop) fn turn_away(
        &mut self,
        streams: &mut Streams,
        index: usize,
        how: (&Reject, RejectReason),
    ) -> Accepted {
        let Some(here) = self.sockets.get(index) else { return Accepted::Failed };
        match streams.io.system.accept(here.socket.fd()) {
            Ok(socket) => {
                here.socket.take_stale();
                streams.io.counters.accepted().add(1);
                self.accepted_again(&streams.io, index, false);
                streams.io.reject(&mut streams.read, &socket, how);
                Accepted::Yes
            }
            Err(errno) => self.accept_failed(&streams.io, index, errno),
        }
    }

    /// Resets the connections that wait at retiring sockets, and those that were accepted and had nothing to run them with, and gives the
    /// sockets up. Returns the number of these connections.
    pub(in crate::event_loop) fn turn_away_retiring(&mut self, streams: &mut Streams, how: &Reject) -> usize {
        let unplaced = self.take_unplaced();
        let mut waited = unplaced.len();
        for incoming in unplaced {
            streams.io.counters.closed().add(1);
            // It fails only where the connection is gone already.
            let _ = streams.io.system.reset_on_close(incoming.socket.as_fd());
        }
        for index in self.sockets.indices() {
            if self.sockets.get(index).is_none_or(|here| here.retiring.is_none()) {
                continue;
            }
            let how = (how, RejectReason::Refusing);
            let turned_away = (0..TURNED_AWAY).take_while(|_| {
                !self.sockets.has_nothing(&streams.io, index) && matches!(self.turn_away(streams, index, how), Accepted::Yes)
            });
            waited += turned_away.count();
            let gone = self.sockets.give_up(&streams.io, index);
            waited += gone.map_or(0, |gone| streams.io.system.queued(gone.socket.fd()).unwrap_or(0));
        }
        // Nothing is left to be accepted.
        self.state = Accepting::Open;
        self.waiter.leave();
        waited
    }

    /// Returns the way in which a connection without room is turned away, and the reason, if the policy says so.
    pub(super) fn rejects_without_room(&mut self, io: &Io, index: usize, room: Capacity) -> Option<(Reject, RejectReason)> {
        self.view.look(io);
        match self.view.ask(io, &self.sockets.get(index)?.listener, room) {
            BeforeAccept::Reject(reject) => Some((reject, without(room))),
            _ => None,
        }
    }
}

/// Returns true where no connection is to come in by a listener for now: it is suspended, or this loop waits for room there.
pub(super) fn is_shut(waiting: &[Waiting], listener: &Arc<ListenerState>) -> bool {
    listener.is_suspended() || waiting.iter().any(|waiting| Arc::ptr_eq(&waiting.listener, listener))
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
