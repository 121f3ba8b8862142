//! Before and after an accept: whether there is room, and what the policy says.

use super::{Accepted, Held, Incoming, State};
use crate::admission::{AcceptRequest, BeforeAccept, Capacity};
use crate::config::Reject;
use crate::event_loop::EventLoop;
use crate::event_loop::door::Door;
use crate::event_loop::limiter::{Permit, Waiter};
use crate::event_loop::peer_counts::Ticket;
use crate::event_loop::rules::Rules;
use crate::observe::Event as Told;
use crate::protocol::{Peer, Side};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A policy that holds where there is room is asked again after this long.
const HELD: Duration = Duration::from_millis(100);

/// A door at which this loop waits for room. It holds no permit of the pool meanwhile.
pub(super) struct Waiting {
    pub(super) door: Arc<Door>,
    waiter: Waiter,
}

/// What a loop knows of the policy.
pub(super) struct Asked {
    pub(super) rules: Arc<Rules>,
    asks_before: bool,
    pub(super) asks_after: bool,
    version: u64,
    /// From when on the token may be used that this loop has taken from the bucket, by the system's clock.
    reserved: Option<u64>,
}

impl Asked {
    pub(super) fn new(rules: Arc<Rules>, version: u64) -> Asked {
        Asked { asks_before: rules.asks_before(), asks_after: rules.asks_after(), rules, version, reserved: None }
    }
}

impl EventLoop {
    /// One connection from a shard, if it may come in now.
    pub(super) fn admit(&mut self, index: usize) -> Accepted {
        self.look_at_rules();
        let Some(Some(held)) = self.acceptor.held.get(index) else { return Accepted::Failed };
        if (self.acceptor.refusing.is_some() | held.door.is_refusing())
            && let Some(reject) = self.refuses_at(index)
        {
            return self.turn_away(index, &reject);
        }
        if let Err(room) = self.take_room(index) {
            return self.without_room(index, room);
        }
        if self.acceptor.asked.asks_before
            && let Some(not_taken) = self.hold_or_reject(index)
        {
            return not_taken;
        }
        let accepted = self.accept(index);
        self.let_others_in(index);
        accepted
    }

    /// One accept4, where there is room for a connection and it was taken. The kernel is asked who comes only where somebody wants to
    /// know: that is about 2 % of a short connection.
    #[inline(always)]
    pub(super) fn accept(&mut self, index: usize) -> Accepted {
        let held = self.acceptor.held[index].as_ref().expect("it is held");
        if !self.accepts_plainly(held) {
            return self.accept_named(index);
        }
        match self.system.accept(held.shard.socket()) {
            Ok(socket) => {
                let stale = held.shard.take_stale();
                let seat = self.seats.take_counted(socket, &held.door, None);
                self.counters.accepted().add(1);
                if stale | self.acceptor.starving {
                    self.accepted_after_all(seat, stale);
                }
                self.enter(seat, &Peer::UNNAMED);
                Accepted::Yes
            }
            Err(errno) => {
                self.give_room_back(index);
                self.accept_failed(index, errno)
            }
        }
    }

    /// The first after a lack, or one that came before its socket had the options that are in force.
    #[cold]
    fn accepted_after_all(&mut self, seat: u32, stale: bool) {
        self.tell_resumed();
        if stale && self.refresh().is_ok() {
            let active = self.active;
            let options = self.place(active).generation.settings.options;
            // It fails where the connection is gone, which reading it will tell.
            let _ = self.with_socket(seat, |system, socket| system.set_options(socket, &options));
        }
    }

    /// Whether nobody asks who comes, and it runs here.
    #[inline(always)]
    fn accepts_plainly(&self, held: &Held) -> bool {
        !(self.names_peers | self.acceptor.asked.asks_after | held.shard.is_spread())
    }

    /// One accept4 that asks who comes. The policy may turn it away still, and it may run elsewhere.
    #[inline(never)]
    fn accept_named(&mut self, index: usize) -> Accepted {
        let (socket, remote) =
            match self.system.accept_named(self.acceptor.held[index].as_ref().expect("it is held").shard.socket()) {
                Ok(accepted) => accepted,
                Err(errno) => {
                    self.give_room_back(index);
                    return self.accept_failed(index, errno);
                }
            };
        let stale = self.acceptor.held[index].as_ref().expect("just accepted from").shard.take_stale();
        self.note_accepted(&socket, stale);
        let mut ticket = None;
        if self.acceptor.asked.asks_after {
            match self.ask_after(index, remote) {
                Ok(counted) => ticket = counted,
                Err(how) => {
                    self.give_room_back(index);
                    self.reject(&socket, &how);
                    return Accepted::Yes;
                }
            }
        }
        let held = self.acceptor.held[index].as_ref().expect("just accepted from");
        if self.shared.placement.is_some() || held.shard.is_spread() {
            let permit = Permit::of_parts(self.shared.limiter.clone(), Some(held.door.clone()), ticket);
            let (lag, connect_time) = (Duration::ZERO, Duration::ZERO);
            self.bring_in(Incoming { socket, permit, remote, side: Side::Accepted, lag, connect_time });
            return if !self.acceptor.unplaced.is_empty() { Accepted::Failed } else { Accepted::Yes };
        }
        let seat = self.seats.take_counted(socket, &held.door, ticket);
        self.enter(seat, &Peer::new(remote, Side::Accepted));
        Accepted::Yes
    }

    /// One accept4.
    #[inline(always)]
    pub(in crate::event_loop) fn accept_from(&mut self, index: usize) -> Result<OwnedFd, Accepted> {
        let Some(Some(held)) = self.acceptor.held.get(index) else { return Err(Accepted::Failed) };
        match self.system.accept(held.shard.socket()) {
            Ok(socket) => {
                let stale = held.shard.take_stale();
                self.note_accepted(&socket, stale);
                Ok(socket)
            }
            Err(errno) => Err(self.accept_failed(index, errno)),
        }
    }

    /// Counts it, and sets the options that it may be without.
    #[inline(always)]
    fn note_accepted(&mut self, socket: &OwnedFd, stale: bool) {
        self.counters.accepted().add(1);
        if self.acceptor.starving {
            self.tell_resumed();
        }
        if stale {
            self.set_stale_options(socket);
        }
    }

    #[cold]
    fn set_stale_options(&mut self, socket: &OwnedFd) {
        if self.refresh().is_ok() {
            let active = self.active;
            let options = self.place(active).generation.settings.options;
            // It fails where the connection is gone, which reading it will tell.
            let _ = self.system.set_options(socket.as_fd(), &options);
        }
    }

    /// What the policy says where there is room; None: to take it.
    #[inline(never)]
    fn hold_or_reject(&mut self, index: usize) -> Option<Accepted> {
        let answer = self.ask_before(&self.door_of(index));
        if let BeforeAccept::Take = answer {
            return None;
        }
        self.give_room_back(index);
        let time = match answer {
            BeforeAccept::Reject(reject) => return Some(self.turn_away(index, &reject)),
            BeforeAccept::HoldFor(time) => time,
            _ => HELD,
        };
        // Nothing is accepted for so long, though there is room.
        Some(self.pause(crate::clock::deadline(Instant::now(), time)))
    }

    pub(super) fn door_of(&self, index: usize) -> Arc<Door> {
        self.acceptor.held[index].as_ref().expect("it is held").door.clone()
    }

    /// How all that come to a shard are turned away, if so.
    #[cold]
    pub(super) fn refuses_at(&self, index: usize) -> Option<Reject> {
        let door = &self.acceptor.held.get(index)?.as_ref()?.door;
        if self.acceptor.refusing.is_some() { self.acceptor.refusing.clone() } else { door.refuses() }
    }

    /// Counts one more connection of the pool, and one more of the shard's door. A caller that takes room seats a connection there or gives
    /// it back: no permit is made for what is seated at once.
    #[inline(always)]
    pub(super) fn take_room(&mut self, index: usize) -> Result<(), Capacity> {
        if !self.shared.limiter.count_one() {
            return Err(Capacity::PoolFull);
        }
        if self.acceptor.held[index].as_ref().expect("it is held").door.limiter.count_one() {
            return Ok(());
        }
        self.shared.limiter.put_back();
        Err(Capacity::ListenerFull)
    }

    /// Taken last, given back first: a door never counts more than its pool.
    #[cold]
    pub(super) fn give_room_back(&mut self, index: usize) {
        // The mistake: room that no connection used is lost.
        if !cfg!(sockdrawer_broken = "permit-leak") {
            self.door_of(index).limiter.put_back();
            self.shared.limiter.put_back();
        }
    }

    #[cold]
    fn without_room(&mut self, index: usize, room: Capacity) -> Accepted {
        let door = &self.door_of(index);
        match self.ask(door, room) {
            BeforeAccept::Reject(reject) => self.turn_away(index, &reject),
            BeforeAccept::HoldFor(time) if !time.is_zero() => self.pause(crate::clock::deadline(Instant::now(), time)),
            _ if room == Capacity::ListenerFull => {
                self.wait_at(door);
                Accepted::Held
            }
            _ => {
                self.stand_in_line();
                Accepted::Held
            }
        }
    }

    /// What the policy says where there is room.
    fn ask_before(&mut self, door: &Arc<Door>) -> BeforeAccept {
        let rules = self.acceptor.asked.rules.clone();
        let Some(pace) = &rules.pace else { return self.ask(door, Capacity::Free) };
        let now = crate::sys::monotonic();
        if let Some(from) = self.acceptor.asked.reserved {
            if from > now {
                return BeforeAccept::HoldFor(Duration::from_nanos(from - now));
            }
            self.acceptor.asked.reserved = None;
            return BeforeAccept::Take;
        }
        if pace.take(now) {
            return BeforeAccept::Take;
        }
        match self.ask(door, Capacity::TooFast) {
            BeforeAccept::Reject(reject) => BeforeAccept::Reject(reject),
            _ => {
                let from = pace.reserve(now);
                self.acceptor.asked.reserved = Some(from);
                BeforeAccept::HoldFor(Duration::from_nanos(from.saturating_sub(now)))
            }
        }
    }

    fn ask(&mut self, door: &Door, room: Capacity) -> BeforeAccept {
        let rules = self.acceptor.asked.rules.clone();
        let limiter = &self.shared.limiter;
        // Where there is room, the permits of the one that waits are taken already.
        let own = usize::from(matches!(room, Capacity::Free | Capacity::TooFast));
        let (connections, at_listener) = (limiter.taken().saturating_sub(own), door.limiter.taken().saturating_sub(own));
        let request = AcceptRequest::new(&door.address, room, connections, limiter.limit(), at_listener);
        let (answer, panicked) = rules.before(&request);
        self.count_policy_panic(panicked);
        answer
    }

    /// Whether an accepted connection stays; its ticket, if peers are counted.
    pub(super) fn ask_after(&mut self, index: usize, peer: Option<SocketAddr>) -> Result<Option<Box<Ticket>>, Reject> {
        let Some(Some(held)) = self.acceptor.held.get(index) else { return Ok(None) };
        let door = held.door.clone();
        let rules = self.acceptor.asked.rules.clone();
        let (answer, panicked) = rules.after(&door.address, peer);
        self.count_policy_panic(panicked);
        answer
    }

    fn count_policy_panic(&mut self, panicked: Option<String>) {
        if let Some(message) = panicked {
            self.counters.admission_panics().add(1);
            self.tell_some(Told::AdmissionPanicked { message });
        }
    }

    fn pause(&mut self, until: Instant) -> Accepted {
        self.unwatch_shards();
        self.acceptor.waiter.leave();
        self.acceptor.state = State::Paused(until);
        Accepted::Held
    }

    /// Waits for room in the pool. Shards that turn away go on.
    pub(super) fn stand_in_line(&mut self) {
        self.acceptor.state = State::Full;
        self.wait_at_no_door();
        self.unwatch_shards();
        self.watch_shards();
        self.acceptor.waiter.wait();
    }

    /// After an accept from a shard: where other loops wait and there is no room for one more, they are next.
    #[inline(always)]
    pub(super) fn let_others_in(&mut self, index: usize) {
        if self.shared.limiter.is_contended() {
            self.acceptor.waiter.leave();
            self.stand_in_line();
        }
        if let Some(Some(held)) = self.acceptor.held.get(index)
            && held.door.limiter.is_contended()
        {
            let door = held.door.clone();
            self.acceptor.doors.retain(|waiting| !Arc::ptr_eq(&waiting.door, &door));
            self.wait_at(&door);
        }
    }

    /// Waits for room at a door. The other doors go on.
    pub(super) fn wait_at(&mut self, door: &Arc<Door>) {
        for index in 0..self.acceptor.held.len() {
            if self.acceptor.held[index].as_ref().is_some_and(|held| Arc::ptr_eq(&held.door, door)) {
                self.unwatch_shard(index);
            }
        }
        let doors = &mut self.acceptor.doors;
        let at = doors.iter().position(|waiting| Arc::ptr_eq(&waiting.door, door)).unwrap_or_else(|| {
            let waiter = Waiter::new(door.limiter.clone(), self.inbox.clone());
            doors.push(Waiting { door: door.clone(), waiter });
            doors.len() - 1
        });
        doors[at].waiter.wait();
    }

    /// Looks at the doors at which it is called.
    pub(super) fn look_at_doors(&mut self) {
        for at in (0..self.acceptor.doors.len()).rev() {
            // A look at one may end the waiting at all.
            let Some(waiting) = self.acceptor.doors.get(at) else { continue };
            waiting.door.limiter.hear();
            if waiting.waiter.is_called() {
                self.look_at_door(at);
            }
        }
    }

    /// One connection from a door at which it waits. Then it waits again, behind the others, or goes on there if there is room.
    fn look_at_door(&mut self, at: usize) {
        let door = self.acceptor.doors[at].door.clone();
        // While the loop is full, or nothing waits at the door, other loops have their turn.
        if self.acceptor.state == State::Open
            && !self.acceptor.suspended
            && let Some(index) = self.ready_at(&door)
        {
            self.admit(index);
        }
        let Some(at) = self.acceptor.doors.iter().position(|waiting| Arc::ptr_eq(&waiting.door, &door)) else { return };
        if door.limiter.has_room() {
            drop(self.acceptor.doors.swap_remove(at));
            self.watch_shards();
        } else if self.acceptor.doors[at].waiter.is_called() {
            self.acceptor.doors[at].waiter.wait_again();
        }
    }

    /// A shard of a door that has something.
    fn ready_at(&self, door: &Arc<Door>) -> Option<usize> {
        // At a suspended one those are let in that wait where no loop will look again.
        let open = |held: &super::Held| held.retiring.is_some() || !door.is_suspended();
        let at_door =
            |index: &usize| self.acceptor.held[*index].as_ref().is_some_and(|held| Arc::ptr_eq(&held.door, door) && open(held));
        (0..self.acceptor.held.len()).filter(at_door).find(|index| !self.has_nothing(*index))
    }

    /// Whether no connection is to come in by a door for now.
    pub(super) fn is_shut(&self, door: &Arc<Door>) -> bool {
        door.is_suspended() || self.acceptor.doors.iter().any(|waiting| Arc::ptr_eq(&waiting.door, door))
    }

    /// Leaves the lines at doors.
    pub(super) fn wait_at_no_door(&mut self) {
        self.acceptor.doors.clear();
    }

    /// After a change of the policy, asks the new one: one load.
    #[inline]
    pub(in crate::event_loop) fn look_at_rules(&mut self) {
        let version = self.shared.rules.version();
        if version != self.acceptor.asked.version {
            self.take_rules(version);
        }
    }

    #[cold]
    fn take_rules(&mut self, version: u64) {
        self.give_token_back();
        self.acceptor.asked = Asked::new(self.shared.rules.get(), version);
    }

    /// A token that this loop took and does not use.
    pub(super) fn give_token_back(&mut self) {
        if self.acceptor.asked.reserved.take().is_some()
            && let Some(pace) = &self.acceptor.asked.rules.pace
        {
            pace.give_back();
        }
    }

    /// One accept4, and an end.
    pub(super) fn turn_away(&mut self, index: usize, how: &Reject) -> Accepted {
        match self.accept_from(index) {
            Ok(socket) => {
                self.reject(&socket, how);
                Accepted::Yes
            }
            Err(accepted) => accepted,
        }
    }

    pub(super) fn reject(&mut self, socket: &OwnedFd, how: &Reject) {
        self.counters.rejected().add(1);
        // A peer that is gone already, or does not read, gets less: it was to be turned away anyway.
        match how {
            Reject::Reset => _ = self.system.reset_on_close(socket.as_fd()),
            Reject::Bytes(bytes) => {
                _ = self.system.send(socket.as_fd(), bytes, true);
                self.read_before_rejecting(socket);
            }
            Reject::Fin => self.read_before_rejecting(socket),
        }
    }

    /// What has come already is read, so that closing does not turn into a reset. There is no permit to linger with.
    fn read_before_rejecting(&mut self, socket: &OwnedFd) {
        _ = self.system.finish(socket.as_fd());
        _ = self.system.receive(socket.as_fd(), &mut self.read);
    }

    /// Whether nobody waits at a shard, as far as can be told now.
    pub(super) fn has_nothing(&self, index: usize) -> bool {
        let Some(held) = &self.acceptor.held[index] else { return true };
        let mut ready = Vec::with_capacity(1);
        let asked = self.system.readable(&[held.shard.socket()], &mut ready);
        held.shard.is_gone() || (asked.is_ok() && !ready[0])
    }

    /// How who has no room here is turned away, if the policy says so.
    pub(super) fn rejects_without_room(&mut self, index: usize, room: Capacity) -> Option<Reject> {
        self.look_at_rules();
        let door = self.acceptor.held[index].as_ref()?.door.clone();
        match self.ask(&door, room) {
            BeforeAccept::Reject(reject) => Some(reject),
            _ => None,
        }
    }

    /// Counts the peers of the connections that are here as the policy asks for, each once.
    pub(crate) fn count_peers(&mut self) {
        self.look_at_rules();
        let Some(peer_counts) = self.acceptor.asked.rules.peer_counts.clone() else { return self.seats.permits.count_no_more() };
        for seat in 0..self.seats.len() {
            let counted = self.seats.permits.ticket(seat).is_some_and(|ticket| ticket.is_of(&peer_counts));
            if !self.seats.at(seat).is_taken() || counted {
                continue;
            }
            // Who has no door was not let in; who has no address, not even any more, is not known by it.
            let came_in = self.seats.at(seat).door != crate::event_loop::account::NO_DOOR;
            if came_in
                && let Some(peer) = self.remote(seat)
                && let Ok((ticket, _)) = peer_counts.enter(peer.ip(), usize::MAX)
            {
                self.seats.permits.count_by(seat, ticket);
            }
        }
    }

    /// The same for one that was on its way in while the policy changed.
    pub(super) fn count_incoming(&mut self, permit: &mut Permit, peer: Option<SocketAddr>) {
        let Some(peer_counts) = self.acceptor.asked.rules.peer_counts.clone() else { return };
        if permit.door().is_some()
            && permit.ticket().is_none_or(|ticket| !ticket.is_of(&peer_counts))
            && let Some(peer) = peer
            && let Ok((ticket, _)) = peer_counts.enter(peer.ip(), usize::MAX)
        {
            permit.count_by(Some(ticket));
        }
    }
}
