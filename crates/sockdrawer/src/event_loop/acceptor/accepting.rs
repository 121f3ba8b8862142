//! Accepting: one connection for each event, each with a permit; and the way of a connection into this event loop, or to where it runs.

use super::{Accepted, Accepting, LoopSocket, Retiring, STARVED};
use crate::admission::AcceptState;
use crate::admission::Capacity;
use crate::event_loop::Intake;
use crate::event_loop::connections::entering::enter;
use crate::event_loop::generations::Generations;
use crate::event_loop::inbox::Message;
use crate::event_loop::incoming::Incoming;
use crate::event_loop::io::Io;
use crate::event_loop::read_buffer::ReadBuffer;
use crate::event_loop::streams::Streams;
use crate::listen::permit::Permit;
use crate::listen::socket::ListenSocket;
use crate::listen::state::ListenerState;
use crate::observe::counters::RejectReason;
use crate::protocol::{Peer, Side, UNNAMED};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::lock;
use crate::sys::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of events of a busy turn for which it accepts one connection more from each listener.
const EVENTS_PER_EXTRA_ACCEPT: usize = 64;

/// Maximum number of connections that are accepted at the limit, and end at once, before events are looked at again.
const ACCEPTS_PER_TURN: usize = 16;

/// The pause before retiring sockets that wait for room are looked at again: several processes may have one, and the one that takes
/// the last connection wakes none of the others.
const RETIRES_AGAIN: Duration = Duration::from_millis(100);

/// Sets the options in force on a socket that its listening socket gave others.
#[cold]
fn set_stale_options(io: &Io, generations: &mut Generations, read: &mut ReadBuffer, socket: BorrowedFd<'_>) {
    if generations.refresh(io, read).is_ok() {
        // It fails where the connection is gone, which reading it will tell.
        let _ = io.system.set_options(socket, &generations.active_settings().options);
    }
}

/// Waits on where only descriptors are free that are left to the rest of the program.
fn lacks_descriptors(Intake { acceptor, connections, .. }: &mut Intake<'_>) -> bool {
    let next = || connections.streams.io.epoll.as_fd().try_clone_to_owned();
    let spared_from = acceptor.spared_from;
    let lacks = spared_from != RawFd::MAX && next().map_or(true, |next| next.as_raw_fd() >= spared_from);
    if lacks {
        acceptor.state = Accepting::Starved(Instant::now() + STARVED);
    }
    lacks
}

impl Intake<'_> {
    /// Accepts from a socket from now on.
    pub(crate) fn take_socket(&mut self, socket: Arc<ListenSocket>, listener: Arc<ListenerState>) {
        self.acceptor.take_socket(&self.connections.streams.io, socket, listener);
    }

    /// Leaves a socket to another loop; its queue stays as it is.
    pub(crate) fn release_socket(&mut self, socket: &Arc<ListenSocket>) {
        self.acceptor.release_socket(&self.connections.streams.io, socket);
    }

    /// Opens or suspends accepting, or turns every new connection away.
    pub(crate) fn set_accept_state(&mut self, accept_state: &AcceptState) {
        self.acceptor.set_accept_state(&self.connections.streams.io, accept_state);
    }

    /// Stops polling; the kernel queues.
    pub(crate) fn suspend(&mut self) {
        self.acceptor.suspend(&self.connections.streams.io);
    }

    /// Has all that waits look again: another policy is in force, or a listener was opened or closed.
    pub(crate) fn policy_changed(&mut self) {
        self.acceptor.policy_changed(&self.connections.streams.io);
    }

    /// Keeps an accepted connection that has no place to run, for lack of a resource of the system: no more is accepted until it has one.
    pub(crate) fn place_later(&mut self, incoming: Incoming, errno: Errno) {
        self.acceptor.place_later(&self.connections.streams.io, incoming, errno);
    }

    /// Returns the sockets of connections that wait here for a place.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = RawFd> + Clone {
        self.acceptor.unplaced.iter().map(|incoming| incoming.socket.as_raw_fd())
    }

    /// Accepts one connection from a listener that has something, because looking for a second that is not there costs more than
    /// accepting one; in a turn with many events that cost is nothing, and the queue should not wait for them all.
    pub(in crate::event_loop) fn accept_event(&mut self, token: u64, events: usize) {
        let index = (token - 1) as usize;
        for _ in 0..=events / EVENTS_PER_EXTRA_ACCEPT {
            let open = (self.acceptor.state == Accepting::Open) & !self.acceptor.suspended;
            if !(open || self.acceptor.turns_away_at(index)) || !matches!(self.admit(index), Accepted::Yes) {
                return;
            }
        }
    }

    /// Brings a connection to where it is to run.
    fn bring_in(&mut self, incoming: Incoming) {
        if self.connections.streams.io.shared.placement.is_some() {
            return self.arrive(incoming);
        }
        let next = {
            let roster = lock(&self.connections.streams.io.shared.roster);
            self.acceptor.rotation = self.acceptor.rotation.wrapping_add(1);
            roster.get(self.acceptor.rotation % roster.len().max(1)).cloned()
        };
        match next {
            Some(inbox) if !Arc::ptr_eq(&inbox, &self.connections.streams.io.inbox) => {
                // The other loop may have died this moment: then the connection comes back and stays here.
                if let Err(Message::Adopt(incoming)) = inbox.put(Message::Adopt(incoming)) {
                    self.adopt_incoming(incoming);
                }
            }
            _ => self.adopt_incoming(incoming),
        }
    }

    /// Takes a connection that came to this event loop: to run here, or to be placed.
    pub(in crate::event_loop) fn arrive(&mut self, incoming: Incoming) {
        // Taken out meanwhile, because counting it for each connection would cost a forking process a copied page.
        let Some(placement) = self.placement.take() else { return self.adopt_incoming(incoming) };
        placement.place(self, incoming);
        *self.placement = Some(placement);
    }

    /// Takes a connection into this loop.
    pub(crate) fn adopt_incoming(&mut self, mut incoming: Incoming) {
        if let Some(arrival) = incoming.arrival.take() {
            return self.seat_placed(incoming, *arrival);
        }
        // The parent knows the age of a connection in its own process.
        if self.connections.streams.page.is_none() {
            self.connections.streams.timers.look_at_clock();
        }
        self.acceptor.view.look(&self.connections.streams.io);
        let learns = self.judges_later(incoming.permit.listener());
        if !learns {
            self.acceptor.view.count_incoming(&mut incoming.permit, incoming.side, incoming.remote, false);
        }
        let peer = Peer::new(incoming.remote, incoming.side).with_lag(incoming.lag).with_connect_time(incoming.connect_time);
        let slot = self.connections.streams.slots.take(incoming.socket, incoming.permit);
        let listener = self.connections.streams.slots.came_in_at(slot);
        self.enter_named(slot, &peer.came_in_at(listener), learns);
    }

    /// Returns true where admission is asked about a connection from this listener only when its service has learned its peer's address.
    fn judges_later(&mut self, listener: Option<&Arc<ListenerState>>) -> bool {
        // A service that panics is met again, and told, when the connection opens.
        let Streams { io, generations, read, .. } = &mut self.connections.streams;
        self.acceptor.view.asks_after && generations.refresh(io, read).is_ok() && generations.learns_peers_at(listener)
    }

    /// Enters a connection whose peer's address is known. Admission is not asked here where the service learns its peer's address.
    fn enter_named(&mut self, slot: u32, peer: &Peer, learns: bool) {
        enter(self.connections, slot, peer);
        let Streams { slots, generations, .. } = &mut self.connections.streams;
        let record = slots.at(slot);
        if learns && record.is_taken() && !generations.at(record.table).learns_peer_address {
            // A generation without such a layer came into force meanwhile.
            self.count_peers();
        }
    }

    /// Does the acceptor's part of a turn: room that came free, the end of a pause, sockets that are to go.
    pub(in crate::event_loop) fn acceptor_turn(&mut self) {
        match self.acceptor.state {
            Accepting::Open => {}
            Accepting::Full => self.look_for_room(),
            Accepting::Starved(until) => {
                if Instant::now() >= until {
                    self.try_after_starving();
                }
            }
            Accepting::Paused(until) => {
                if Instant::now() >= until {
                    self.acceptor.state = Accepting::Open;
                    self.acceptor.watch_sockets(&self.connections.streams.io);
                }
            }
        }
        self.acceptor.look_at_denied(&self.connections.streams.io);
        if !self.acceptor.listeners.is_empty() {
            self.look_at_listeners();
        }
        self.acceptor.retires_at = None;
        if self.connections.streams.io.shared.leaving.load(SeqCst) > 0 && self.acceptor.sockets.are_retiring() {
            self.retire_empty_sockets();
            self.acceptor.forget_listeners(&self.connections.streams.io);
        }
    }

    /// Accepts when it is called. Where the pool is full again it stays in line, behind the others.
    fn look_for_room(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.acceptor.waiter.is_called() {
                return;
            }
            self.acceptor.state = Accepting::Open;
            let accepted = matches!(self.accept_any(), Accepted::Yes);
            match self.acceptor.state {
                Accepting::Open if accepted && !self.connections.streams.io.shared.limiter.has_room() => {
                    self.acceptor.state = Accepting::Full;
                    self.acceptor.waiter.wait_again();
                }
                Accepting::Open => {
                    self.acceptor.waiter.leave();
                    return self.acceptor.watch_sockets(&self.connections.streams.io);
                }
                // It stands in line again, or cannot accept.
                _ => return,
            }
        }
    }

    fn try_after_starving(&mut self) {
        let before = self.connections.streams.io.counters.accept_starved().get();
        while self.connections.streams.io.counters.accept_starved().get() == before
            && let Some(incoming) = self.acceptor.unplaced.pop_front()
        {
            self.arrive(incoming);
            self.acceptor.tell_resumed(&self.connections.streams.io);
        }
        if lacks_descriptors(self) {
            return;
        }
        // Without a permit, or while suspended, polling finds out later.
        if !self.acceptor.suspended && self.acceptor.unplaced.is_empty() && self.connections.streams.io.shared.limiter.has_room()
        {
            self.accept_any();
        }
        if self.connections.streams.io.counters.accept_starved().get() == before
            && matches!(self.acceptor.state, Accepting::Starved(_))
        {
            // The connection that was just accepted may have taken the free descriptor.
            if lacks_descriptors(self) {
                return;
            }
            self.acceptor.state = Accepting::Open;
            self.acceptor.watch_sockets(&self.connections.streams.io);
        }
    }

    /// Accepts from any socket that has something.
    fn accept_any(&mut self) -> Accepted {
        match self.acceptor.next_ready(&self.connections.streams.io) {
            Ok(Some(index)) => self.admit(index),
            Ok(None) => Accepted::Nothing,
            Err(_) => Accepted::Failed,
        }
    }

    /// Accepts one connection from a socket, if it may come in now.
    pub(super) fn admit(&mut self, index: usize) -> Accepted {
        self.acceptor.view.look(&self.connections.streams.io);
        let Some(here) = self.acceptor.sockets.get(index) else { return Accepted::Failed };
        if (self.acceptor.refusing.is_some() | here.listener.is_refusing())
            && let Some(reject) = self.acceptor.refuses_at(index)
        {
            return self.acceptor.turn_away(&mut self.connections.streams, index, (&reject, RejectReason::Refusing));
        }
        if let Err(room) = self.acceptor.take_room(&self.connections.streams.io, index) {
            return self.acceptor.without_room(&mut self.connections.streams, index, room);
        }
        if self.acceptor.view.asks_before
            && let Some(not_taken) = self.acceptor.hold_or_reject(&mut self.connections.streams, index)
        {
            return not_taken;
        }
        let accepted = self.accept(index);
        self.acceptor.let_others_in(&self.connections.streams.io, index);
        accepted
    }

    /// Calls accept4 once; the caller has taken room for a connection. The kernel is asked for the peer's address only where it is needed:
    /// that is about 2 % of a short connection.
    #[inline(always)]
    pub(super) fn accept(&mut self, index: usize) -> Accepted {
        let held = self.acceptor.sockets.at(index);
        if !self.accepts_plainly(held) {
            return self.accept_named(index);
        }
        match self.connections.streams.io.system.accept(held.socket.fd()) {
            Ok(socket) => {
                let stale = held.socket.take_stale();
                let is_spared = socket.as_raw_fd() >= self.acceptor.spared_from;
                let slot = self.connections.streams.slots.take_counted(socket, Some(&held.listener), None);
                self.connections.streams.io.counters.accepted().add(1);
                if stale | self.acceptor.starving | self.acceptor.sockets.failing | is_spared {
                    self.accepted_after_all(index, slot, (stale, is_spared));
                }
                enter(self.connections, slot, &UNNAMED);
                Accepted::Yes
            }
            Err(errno) => {
                self.acceptor.give_room_back(&self.connections.streams.io, index);
                self.acceptor.accept_failed(&self.connections.streams.io, index, errno)
            }
        }
    }

    /// Handles a connection that is the first after a lack, came before its socket had the options in force, or has a descriptor left to others.
    #[cold]
    fn accepted_after_all(&mut self, index: usize, slot: u32, (stale, is_spared): (bool, bool)) {
        self.acceptor.accepted_again(&self.connections.streams.io, index, is_spared);
        if stale {
            let Streams { io, generations, read, slots, .. } = &mut self.connections.streams;
            set_stale_options(io, generations, read, slots.socket(slot));
        }
    }

    /// Returns true where the peer's address is not needed, and the connection runs here.
    #[inline(always)]
    fn accepts_plainly(&self, held: &LoopSocket) -> bool {
        !(self.connections.streams.generations.names_peers | self.acceptor.view.asks_after | held.socket.is_spread())
    }

    /// Calls accept4 once and asks for the peer's address. The policy may still turn the connection away, and it may run elsewhere.
    #[inline(never)]
    fn accept_named(&mut self, index: usize) -> Accepted {
        let (socket, remote) = match self.connections.streams.io.system.accept_named(self.acceptor.sockets.at(index).socket.fd())
        {
            Ok(accepted) => accepted,
            Err(errno) => {
                self.acceptor.give_room_back(&self.connections.streams.io, index);
                return self.acceptor.accept_failed(&self.connections.streams.io, index, errno);
            }
        };
        let stale = self.acceptor.sockets.at(index).socket.take_stale();
        self.note_accepted(index, &socket, stale);
        let (mut peer_count, mut learns) = (None, false);
        if self.acceptor.view.asks_after {
            let listener = self.acceptor.sockets.at(index).listener.clone();
            learns = self.judges_later(Some(&listener));
        }
        if self.acceptor.view.asks_after && !learns {
            let listener = &self.acceptor.sockets.at(index).listener;
            match self.acceptor.view.after(&self.connections.streams.io, listener, remote) {
                Ok(counted) => peer_count = counted,
                Err((how, reason)) => {
                    self.acceptor.give_room_back(&self.connections.streams.io, index);
                    self.connections.streams.io.reject(&mut self.connections.streams.read, &socket, (&how, reason));
                    return Accepted::Yes;
                }
            }
        }
        let held = self.acceptor.sockets.at(index);
        if self.connections.streams.io.shared.placement.is_some() || held.socket.is_spread() {
            let permit =
                Permit::of_parts(self.connections.streams.io.shared.limiter.clone(), Some(held.listener.clone()), peer_count);
            let (lag, connect_time) = (Duration::ZERO, Duration::ZERO);
            self.bring_in(Incoming { socket, permit, remote, side: Side::Accepted, arrival: None, lag, connect_time });
            return if !self.acceptor.unplaced.is_empty() { Accepted::Failed } else { Accepted::Yes };
        }
        let slot = self.connections.streams.slots.take_counted(socket, Some(&held.listener), peer_count);
        let listener = self.connections.streams.slots.came_in_at(slot);
        self.enter_named(slot, &Peer::new(remote, Side::Accepted).came_in_at(listener), learns);
        Accepted::Yes
    }

    /// Counts it, and sets the options that it may be without.
    #[inline(always)]
    fn note_accepted(&mut self, index: usize, socket: &OwnedFd, stale: bool) {
        self.connections.streams.io.counters.accepted().add(1);
        let is_spared = socket.as_raw_fd() >= self.acceptor.spared_from;
        if self.acceptor.starving | self.acceptor.sockets.failing | is_spared {
            self.acceptor.accepted_again(&self.connections.streams.io, index, is_spared);
        }
        if stale {
            let Streams { io, generations, read, .. } = &mut self.connections.streams;
            set_stale_options(io, generations, read, socket.as_fd());
        }
    }

    /// Looks at the listeners at which it is called.
    pub(super) fn look_at_listeners(&mut self) {
        for at in (0..self.acceptor.listeners.len()).rev() {
            // A look at one may end the waiting at all.
            let Some(waiting) = self.acceptor.listeners.get(at) else { continue };
            waiting.listener.limiter.hear();
            if waiting.waiter.is_called() {
                self.look_at_listener(at);
            }
        }
    }

    /// Accepts one connection from a listener at which the loop waits. Then it waits again, behind the others, or goes on there if there is room.
    fn look_at_listener(&mut self, at: usize) {
        let listener = self.acceptor.listeners[at].listener.clone();
        // While the loop is full, or nothing waits at the listener, other loops have their turn.
        if self.acceptor.state == Accepting::Open
            && !self.acceptor.suspended
            && let Some(index) = self.acceptor.ready_at(&self.connections.streams.io, &listener)
        {
            self.admit(index);
        }
        let Some(at) = self.acceptor.listeners.iter().position(|waiting| Arc::ptr_eq(&waiting.listener, &listener)) else {
            return;
        };
        if listener.limiter.has_room() {
            drop(self.acceptor.listeners.swap_remove(at));
            self.acceptor.watch_sockets(&self.connections.streams.io);
        } else if self.acceptor.listeners[at].waiter.is_called() {
            self.acceptor.listeners[at].waiter.wait_again();
        }
    }

    /// Counts the peers of the connections that are here as the policy asks for, each once.
    pub(crate) fn count_peers(&mut self) {
        self.acceptor.view.look(&self.connections.streams.io);
        let Some(peer_counts) = self.acceptor.view.policy.peer_counts.clone() else {
            return self.connections.streams.slots.forget_peer_counts();
        };
        let Streams { slots, generations, io, .. } = &mut self.connections.streams;
        for slot in 0..slots.len() {
            let peer_count = slots.extra(slot).and_then(|extra| extra.peer_count.as_ref());
            let counted = peer_count.is_some_and(|peer_count| peer_count.is_of(&peer_counts));
            if !slots.at(slot).is_taken() || counted {
                continue;
            }
            // A connection without an address, or with none any more, cannot be counted by it; and the proxy's address is not its peer's.
            if slots.at(slot).side() == Side::Accepted
                && !generations.awaits_peer(slots, slot)
                && let Some(peer) = io.remote(slots, slot)
                && let Ok((peer_count, _)) = peer_counts.enter(peer.ip(), usize::MAX)
            {
                slots.make_extra(slot).peer_count = Some(peer_count);
            }
        }
    }

    /// Gives up a socket for good, after accepting the connections in its queue. `retiring` is dropped then.
    pub(crate) fn retire_socket(&mut self, socket: &Arc<ListenSocket>, retiring: &Arc<Retiring>) {
        self.acceptor.sockets.retire(socket, retiring);
        self.retire_empty_sockets();
    }

    /// Accepts the connections that wait at retiring sockets and gives up those that are empty. Without permits they stay until there are some; where
    /// more comes than a turn may accept, connections have their turn first.
    pub(super) fn retire_empty_sockets(&mut self) {
        let (mut lacking, mut left) = (false, ACCEPTS_PER_TURN);
        self.acceptor.retires_at = None;
        for index in self.acceptor.sockets.indices() {
            while self.acceptor.sockets.get(index).is_some_and(LoopSocket::may_be_emptied) {
                if !self.acceptor.unplaced.is_empty() {
                    return;
                }
                // An empty one needs no permit to go, which at the limit others would have taken again and again.
                // Only in a build with this mistake: connections that wait there are reset.
                let io = &self.connections.streams.io;
                if self.acceptor.sockets.has_nothing(io, index) || cfg!(sockdrawer_broken = "close-without-drain") {
                    drop(self.acceptor.sockets.give_up(io, index));
                    break;
                }
                if left == 0 {
                    break;
                }
                left -= 1;
                if let Some(reject) = self.acceptor.refuses_at(index) {
                    self.acceptor.turn_away(&mut self.connections.streams, index, (&reject, RejectReason::Refusing));
                    if matches!(self.acceptor.state, Accepting::Starved(_)) {
                        break;
                    }
                    continue;
                }
                match self.acceptor.take_room(&self.connections.streams.io, index) {
                    Ok(()) => _ = self.accept(index),
                    Err(room) => match self.acceptor.rejects_without_room(&self.connections.streams.io, index, room) {
                        Some((reject, reason)) => {
                            _ = self.acceptor.turn_away(&mut self.connections.streams, index, (&reject, reason))
                        }
                        // This holds while suspended, too: connections that wait here have been let in.
                        None if room == Capacity::ListenerFull => {
                            let listener = self.acceptor.sockets.at(index).listener.clone();
                            self.acceptor.wait_at(&self.connections.streams.io, &listener);
                            break;
                        }
                        None => {
                            lacking = true;
                            break;
                        }
                    },
                }
                if matches!(self.acceptor.state, Accepting::Starved(_)) {
                    break;
                }
            }
        }
        if self.acceptor.sockets.are_retiring() {
            let pause = if left == 0 { Duration::ZERO } else { RETIRES_AGAIN };
            self.acceptor.retires_at = Some(Instant::now() + pause);
        }
        if self.acceptor.state == Accepting::Full || lacking {
            self.acceptor.waiter.wait();
        } else {
            self.acceptor.waiter.leave();
        }
    }
}
