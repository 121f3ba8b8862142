//! Accepting: one connection for each event, each with a permit, and a reason for everything that can go wrong.

mod doorway;
mod retiring;
mod trouble;

pub(crate) use retiring::Retiring;

use super::door::{Door, Intake};
use super::inbox::Message;
use super::limiter::{Permit, Waiter};
use super::listener::Shard;
use super::rules::Rules;
use super::shared::Shared;
use super::{EventLoop, lock};
use crate::config::Reject;
use crate::observe::Event as Told;
use crate::protocol::{Peer, Side};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sys::{Errno, Interest};
use doorway::{Asked, Waiting};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trouble::{Trouble, trouble};

/// How long accepting pauses when the system has no descriptor or memory; also ended by a descriptor freed here.
const STARVED: Duration = Duration::from_millis(100);

/// A busy turn accepts one connection more from each listener for so many events.
const EVENTS_PER_EXTRA_ACCEPT: usize = 64;

/// So many connections that end at once are accepted at the limit before events are looked at again.
const ACCEPTS_PER_TURN: usize = 16;

/// A connection on its way into a loop.
pub(crate) struct Incoming {
    pub(crate) socket: OwnedFd,
    pub(crate) permit: Permit,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) side: Side,
    /// Both zero where this side accepted.
    pub(crate) lag: Duration,
    pub(crate) connect_time: Duration,
}

/// The accepting part of a loop.
pub(super) struct Acceptor {
    /// A shard keeps its place, which its token names, as long as it is here.
    held: Vec<Option<Held>>,
    state: State,
    suspended: bool,
    /// How all that come are turned away, if so.
    refusing: Option<Reject>,
    asked: Asked,
    /// Doors at which it waits.
    doors: Vec<Waiting>,
    /// No connection was accepted since the system had no descriptor or memory.
    starving: bool,
    waiter: Waiter,
    /// Whose turn it is among the loops that share a socket.
    rotation: usize,
    /// Shards that had something when they were last looked at, and were not accepted from since.
    ready: Vec<usize>,
    /// Accepted, but the system had nothing to run it with.
    unplaced: VecDeque<Incoming>,
    /// The last accept4 that failed for the sake of a connection.
    refused: Option<Refused>,
    /// Retiring sockets have more than a turn may accept.
    retires_more: bool,
}

/// An accept4 that failed. Where the next from the same socket fails alike, and its queue is not shorter, the system denies accepting
/// (seccomp, a security module): the connection is reported for ever and cannot be had.
#[derive(PartialEq, Eq)]
struct Refused {
    index: usize,
    errno: Errno,
    /// Connections that this loop had accepted by then.
    accepted: u64,
    /// Connections that were queued afterwards; the kernel does not count those of a Unix socket.
    queued: usize,
}

struct Held {
    shard: Arc<Shard>,
    door: Arc<Door>,
    watched: bool,
    /// To be given up as soon as its queue is empty.
    retiring: Option<Arc<Retiring>>,
}

/// Whether this loop takes connections; what is not taken waits in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// All permits are taken: waiting for one.
    Full,
    /// The system has no descriptor or memory: waiting until then.
    Starved(Instant),
    /// The policy wants it so.
    Paused(Instant),
}

/// How one accept4 went.
pub(super) enum Accepted {
    Yes,
    /// It was not tried: this loop waits, or the door does.
    Held,
    /// Nothing was there.
    Nothing,
    /// Not this one, or not now.
    Failed,
}

impl Acceptor {
    pub(super) fn new(waiter: Waiter, rules: Arc<Rules>) -> Acceptor {
        Acceptor {
            held: Vec::new(),
            state: State::Open,
            suspended: false,
            refusing: None,
            asked: Asked::new(rules, 0),
            doors: Vec::new(),
            starving: false,
            waiter,
            rotation: 0,
            ready: Vec::new(),
            unplaced: VecDeque::new(),
            refused: None,
            retires_more: false,
        }
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        if self.retires_more {
            return Some(Instant::now());
        }
        match self.state {
            State::Starved(until) | State::Paused(until) => Some(until),
            State::Open | State::Full => None,
        }
    }

    /// Whether a turn has more to do here than what events bring.
    #[inline(always)]
    pub(super) fn has_more(&self, shared: &Shared) -> bool {
        (self.state != State::Open) | !self.doors.is_empty() | (shared.leaving.load(SeqCst) > 0)
    }

    /// A descriptor was closed: who starves may try now.
    pub(super) fn descriptor_freed(&mut self) {
        if let State::Starved(until) = &mut self.state {
            *until = (*until).min(Instant::now());
        }
    }
}

impl EventLoop {
    /// Accepts from a shard from now on.
    pub(crate) fn take_shard(&mut self, shard: Arc<Shard>, door: Arc<Door>) {
        let held = self.acceptor.held.iter().flatten();
        if held.into_iter().any(|held| Arc::ptr_eq(&held.shard, &shard)) {
            return;
        }
        let held = Some(Held { shard, door, watched: false, retiring: None });
        match self.acceptor.held.iter().position(Option::is_none) {
            Some(free) => self.acceptor.held[free] = held,
            None => self.acceptor.held.push(held),
        }
        self.watch_shards();
    }

    /// Leaves a shard to another loop; its queue stays as it is.
    pub(crate) fn release_shard(&mut self, shard: &Arc<Shard>) {
        for index in 0..self.acceptor.held.len() {
            if self.acceptor.held[index].as_ref().is_some_and(|held| Arc::ptr_eq(&held.shard, shard)) {
                self.unwatch_shard(index);
                self.acceptor.held[index] = None;
            }
        }
        self.forget_doors();
        // Room that was waited for on behalf of a socket on its way out is for the loop that empties it now.
        if self.acceptor.state != State::Full && !self.acceptor.is_retiring() {
            self.acceptor.waiter.leave();
        }
    }

    /// Whether connections are taken.
    pub(crate) fn set_intake(&mut self, intake: &Intake) {
        match intake {
            Intake::Suspended => {
                self.acceptor.refusing = None;
                return self.suspend();
            }
            Intake::Open => self.acceptor.refusing = None,
            Intake::Refusing(reject) => {
                self.acceptor.refusing = Some(reject.clone());
                // Who waits for a permit needs none now.
                self.suspend();
            }
        }
        self.resume_accepting();
    }

    /// Stops polling; the kernel queues.
    pub(crate) fn suspend(&mut self) {
        self.acceptor.suspended = true;
        self.acceptor.waiter.leave();
        self.wait_at_no_door();
        self.give_token_back();
        self.unwatch_shards();
        // What was accepted is still to be placed.
        if self.acceptor.unplaced.is_empty() {
            self.acceptor.state = State::Open;
        }
    }

    /// Goes on.
    pub(crate) fn resume_accepting(&mut self) {
        self.acceptor.suspended = false;
        self.watch_shards();
    }

    /// The policy is another, or a door is opened or closed: who waits looks again.
    pub(crate) fn policy_changed(&mut self) {
        self.look_at_rules();
        if self.acceptor.suspended {
            // Sockets on their way out are emptied all the same, and may wait at a door.
            return self.wait_at_no_door();
        }
        self.suspend();
        self.resume_accepting();
    }

    /// A listener has something: one connection is accepted, because looking for a second that is not there costs more than
    /// accepting one; in a turn with many events that cost is nothing, and the queue should not wait for them all.
    pub(super) fn accept_event(&mut self, token: u64, events: usize) {
        let index = (token - 1) as usize;
        for _ in 0..=events / EVENTS_PER_EXTRA_ACCEPT {
            let open = (self.acceptor.state == State::Open) & !self.acceptor.suspended;
            if !(open || self.turns_away_at(index)) || !matches!(self.admit(index), Accepted::Yes) {
                return;
            }
        }
    }

    /// Without permits, only who is turned away is accepted.
    #[cold]
    fn turns_away_at(&self, index: usize) -> bool {
        (self.acceptor.state == State::Full) & !self.acceptor.suspended && self.refuses_at(index).is_some()
    }

    /// Brings a connection to where it is to run.
    fn bring_in(&mut self, incoming: Incoming) {
        if self.shared.placement.is_some() {
            return self.arrive(incoming);
        }
        let next = {
            let roster = lock(&self.shared.roster);
            self.acceptor.rotation = self.acceptor.rotation.wrapping_add(1);
            roster.get(self.acceptor.rotation % roster.len().max(1)).cloned()
        };
        match next {
            Some(inbox) if !Arc::ptr_eq(&inbox, &self.inbox) => {
                // The other loop may have died this moment: then the connection comes back and stays here.
                if let Err(Message::Adopt(incoming)) = inbox.put(Message::Adopt(incoming)) {
                    self.adopt_incoming(incoming);
                }
            }
            _ => self.adopt_incoming(incoming),
        }
    }

    /// A connection came to this event loop: to run here, or to be placed.
    pub(super) fn arrive(&mut self, incoming: Incoming) {
        // Taken out meanwhile, because counting it for each connection would cost a forking process a copied page.
        let Some(placement) = self.placement.take() else { return self.adopt_incoming(incoming) };
        placement.place(self, incoming);
        self.placement = Some(placement);
    }

    /// Whether new connections are given away at once.
    pub(crate) fn gives_all_away(&mut self) -> bool {
        if self.refresh().is_err() {
            return false;
        }
        let active = self.active;
        self.place(active).generation.gives_all_away()
    }

    /// A connection enters this loop.
    pub(crate) fn adopt_incoming(&mut self, mut incoming: Incoming) {
        // Of a connection's own process the parent knows the age.
        if self.page.is_none() {
            self.look_at_clock();
        }
        self.look_at_rules();
        self.count_incoming(&mut incoming.permit, incoming.remote);
        let peer = Peer::new(incoming.remote, incoming.side).with_lag(incoming.lag).with_connect_time(incoming.connect_time);
        let seat = self.seats.take(incoming.socket, incoming.permit);
        self.enter(seat, &peer);
    }

    fn accept_failed(&mut self, index: usize, errno: Errno) -> Accepted {
        match trouble(errno) {
            Trouble::Nothing => {
                self.counters.accept_empty().add(1);
                return Accepted::Nothing;
            }
            Trouble::Resource => self.starve(errno),
            Trouble::Listener if self.listener_gone(index) => {}
            Trouble::Connection | Trouble::Listener if self.is_denied(index, errno) => self.starve(errno),
            Trouble::Connection | Trouble::Listener => self.counters.accept_failed().add(1),
        }
        Accepted::Failed
    }

    /// Whether accept4 failed as it did the last time, and no connection left the queue by it.
    fn is_denied(&mut self, index: usize, errno: Errno) -> bool {
        let Some(Some(held)) = self.acceptor.held.get(index) else { return false };
        let queued = self.system.queued(held.shard.socket()).unwrap_or(0);
        let refused = Refused { index, errno, accepted: self.counters.accepted().get(), queued };
        let last = self.acceptor.refused.replace(refused);
        last.is_some_and(|last| last.queued <= queued && Some(Refused { queued, ..last }) == self.acceptor.refused)
    }

    fn starve(&mut self, errno: Errno) {
        self.counters.accept_starved().add(1);
        self.unwatch_shards();
        self.acceptor.waiter.leave();
        if !std::mem::replace(&mut self.acceptor.starving, true) {
            self.shared.tell(&Told::AcceptStarved { errno: errno.raw_os_error() });
        }
        self.acceptor.state = State::Starved(Instant::now() + STARVED);
    }

    /// What was accepted has no place to run, for lack of something the system has: nothing more is accepted until it has one.
    pub(crate) fn place_later(&mut self, incoming: Incoming, errno: Errno) {
        self.acceptor.unplaced.push_back(incoming);
        self.starve(errno);
    }

    /// Those that wait here for a place, for another to place them.
    pub(super) fn take_unplaced(&mut self) -> VecDeque<Incoming> {
        std::mem::take(&mut self.acceptor.unplaced)
    }

    /// What this loop itself has open, beside sockets.
    pub(crate) fn descriptors(&self) -> Result<[RawFd; 2], Errno> {
        Ok([self.epoll.as_fd().as_raw_fd(), self.inbox.event()?.as_raw_fd()])
    }

    /// The sockets of connections that wait here for a place.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = RawFd> + Clone {
        self.acceptor.unplaced.iter().map(|incoming| incoming.socket.as_raw_fd())
    }

    /// Whether connections wait here for a place.
    pub(super) fn has_unplaced(&self) -> bool {
        !self.acceptor.unplaced.is_empty()
    }

    fn tell_resumed(&mut self) {
        if self.acceptor.unplaced.is_empty() && std::mem::take(&mut self.acceptor.starving) {
            self.shared.tell(&Told::AcceptResumed);
        }
    }

    /// Whether a socket listens no more: it is left alone then.
    fn listener_gone(&mut self, index: usize) -> bool {
        let Some(Some(held)) = self.acceptor.held.get(index) else { return true };
        if self.system.is_listening(held.shard.socket()).unwrap_or(false) {
            return false;
        }
        if held.shard.mark_gone() {
            self.shared.tell(&Told::ListenerGone(held.door.address.clone()));
        }
        self.unwatch_shard(index);
        true
    }

    /// Room that came free, the end of a pause, shards that are to go.
    pub(super) fn acceptor_turn(&mut self) {
        match self.acceptor.state {
            State::Open => {}
            State::Full => self.look_for_room(),
            State::Starved(until) => {
                if Instant::now() >= until {
                    self.try_after_starving();
                }
            }
            State::Paused(until) => {
                if Instant::now() >= until {
                    self.acceptor.state = State::Open;
                    self.watch_shards();
                }
            }
        }
        if !self.acceptor.doors.is_empty() {
            self.look_at_doors();
        }
        self.acceptor.retires_more = false;
        if self.shared.leaving.load(SeqCst) > 0 && self.acceptor.is_retiring() {
            self.retire_empty_shards();
            self.forget_doors();
        }
    }

    /// Accepts when it is called. Where the pool is full again it stays in line, behind the others.
    fn look_for_room(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.acceptor.waiter.is_called() {
                return;
            }
            self.acceptor.state = State::Open;
            let accepted = matches!(self.accept_any(), Accepted::Yes);
            match self.acceptor.state {
                State::Open if accepted && !self.shared.limiter.has_room() => {
                    self.acceptor.state = State::Full;
                    self.acceptor.waiter.wait_again();
                }
                State::Open => {
                    self.acceptor.waiter.leave();
                    return self.watch_shards();
                }
                // It stands in line again, or cannot accept.
                _ => return,
            }
        }
    }

    fn try_after_starving(&mut self) {
        let before = self.counters.accept_starved().get();
        while self.counters.accept_starved().get() == before
            && let Some(incoming) = self.acceptor.unplaced.pop_front()
        {
            self.arrive(incoming);
            self.tell_resumed();
        }
        // Without a permit, or while suspended, polling finds out later.
        if !self.acceptor.suspended && self.acceptor.unplaced.is_empty() && self.shared.limiter.has_room() {
            self.accept_any();
        }
        if self.counters.accept_starved().get() == before && matches!(self.acceptor.state, State::Starved(_)) {
            self.acceptor.state = State::Open;
            self.watch_shards();
        }
    }

    /// Accepts from any shard that has something.
    fn accept_any(&mut self) -> Accepted {
        match self.next_ready() {
            Ok(Some(index)) => self.admit(index),
            Ok(None) => Accepted::Nothing,
            Err(_) => Accepted::Failed,
        }
    }

    /// A shard that has something, each in turn. They are looked at together, and only when all that had something then have
    /// been accepted from; a single one is not looked at, accepting tells as much.
    fn next_ready(&mut self) -> Result<Option<usize>, Errno> {
        while let Some(index) = self.acceptor.ready.pop() {
            if self.acceptor.held.get(index).is_some_and(|held| self.is_live(held)) {
                return Ok(Some(index));
            }
        }
        let live = |held: &Option<Held>| self.is_live(held);
        let held = &self.acceptor.held;
        let mut indices = (0..held.len()).filter(|index| live(&held[*index]));
        if let (Some(only), None) = (indices.next(), indices.next()) {
            return Ok(Some(only));
        }
        let indices: Vec<usize> = (0..held.len()).filter(|index| live(&held[*index])).collect();
        let sockets: Vec<BorrowedFd<'_>> =
            indices.iter().filter_map(|index| held[*index].as_ref()).map(|held| held.shard.socket()).collect();
        let mut ready = Vec::new();
        self.system.readable(&sockets, &mut ready)?;
        self.acceptor.ready.extend(indices.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(index, _)| index));
        Ok(self.acceptor.ready.pop())
    }

    /// Whether connections may come from there now.
    fn is_live(&self, held: &Option<Held>) -> bool {
        held.as_ref().is_some_and(|held| !held.shard.is_gone() && !self.is_shut(&held.door))
    }

    fn watch_shards(&mut self) {
        let full = self.acceptor.state == State::Full;
        if self.acceptor.suspended || !full && self.acceptor.state != State::Open {
            return;
        }
        for index in 0..self.acceptor.held.len() {
            let closed = |door: &Arc<Door>| self.is_shut(door) || full && door.refuses().is_none();
            let shut = |held: &Held| held.watched || held.shard.is_gone() || closed(&held.door);
            if self.acceptor.held[index].as_ref().is_none_or(shut) {
                continue;
            }
            let held = self.acceptor.held[index].as_mut().expect("just seen");
            let interest = Interest { read: true, write: false };
            match self.system.watch(self.epoll.as_fd(), held.shard.socket(), index as u64 + 1, interest) {
                Ok(()) => held.watched = true,
                // ENOMEM or the user's limit of watches: tried again like a lack of descriptors.
                Err(_) => {
                    self.acceptor.waiter.leave();
                    self.acceptor.state = State::Starved(Instant::now() + STARVED);
                    return self.unwatch_shards();
                }
            }
        }
    }

    /// Doors that this loop has no shard of any more are not waited at.
    fn forget_doors(&mut self) {
        let is_used = |door: &Arc<Door>| self.acceptor.held.iter().flatten().any(|held| Arc::ptr_eq(&held.door, door));
        if !self.acceptor.doors.iter().all(|waiting| is_used(&waiting.door)) {
            // Those that are still used wait again as soon as they are looked at.
            self.wait_at_no_door();
            self.watch_shards();
        }
    }

    fn unwatch_shards(&mut self) {
        for index in 0..self.acceptor.held.len() {
            self.unwatch_shard(index);
        }
    }

    fn unwatch_shard(&mut self, index: usize) {
        if let Some(held) = &mut self.acceptor.held[index]
            && std::mem::take(&mut held.watched)
        {
            // It fails only for a socket that is not watched.
            let _ = self.system.unwatch(self.epoll.as_fd(), held.shard.socket());
        }
    }
}
