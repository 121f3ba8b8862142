//! Accepting: one connection for each event, each with a permit, and a reason for everything that can go wrong.

mod accepting;
mod doorway;
mod retiring;
mod trouble;

pub(crate) use retiring::Retiring;

use super::door::{Door, Intake};
use super::io::Io;
use super::limiter::{Permit, Waiter};
use super::listener::Shard;
use super::rules::Rules;
use super::shared::Shared;
use crate::config::Reject;
use crate::observe::Event as Told;
use crate::protocol::Side;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sys::{Errno, Interest};
use doorway::{Asked, Waiting};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trouble::{Trouble, trouble};

/// How long accepting pauses when the system has no descriptor or memory; also ended by a descriptor freed here.
const STARVED: Duration = Duration::from_millis(100);

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

    /// Accepts from a shard from now on.
    fn take_shard(&mut self, io: &Io, shard: Arc<Shard>, door: Arc<Door>) {
        let held = self.held.iter().flatten();
        if held.into_iter().any(|held| Arc::ptr_eq(&held.shard, &shard)) {
            return;
        }
        let held = Some(Held { shard, door, watched: false, retiring: None });
        match self.held.iter().position(Option::is_none) {
            Some(free) => self.held[free] = held,
            None => self.held.push(held),
        }
        self.watch_shards(io);
    }

    /// Leaves a shard to another loop; its queue stays as it is.
    fn release_shard(&mut self, io: &Io, shard: &Arc<Shard>) {
        for index in 0..self.held.len() {
            if self.held[index].as_ref().is_some_and(|held| Arc::ptr_eq(&held.shard, shard)) {
                self.unwatch_shard(io, index);
                self.held[index] = None;
            }
        }
        self.forget_doors(io);
        // Room that was waited for on behalf of a socket on its way out is for the loop that empties it now.
        if self.state != State::Full && !self.is_retiring() {
            self.waiter.leave();
        }
    }

    /// Whether connections are taken.
    fn set_intake(&mut self, io: &Io, intake: &Intake) {
        match intake {
            Intake::Suspended => {
                self.refusing = None;
                return self.suspend(io);
            }
            Intake::Open => self.refusing = None,
            Intake::Refusing(reject) => {
                self.refusing = Some(reject.clone());
                // Who waits for a permit needs none now.
                self.suspend(io);
            }
        }
        self.resume_accepting(io);
    }

    /// Stops polling; the kernel queues.
    fn suspend(&mut self, io: &Io) {
        self.suspended = true;
        self.waiter.leave();
        self.wait_at_no_door();
        self.give_token_back();
        self.unwatch_shards(io);
        // What was accepted is still to be placed.
        if self.unplaced.is_empty() {
            self.state = State::Open;
        }
    }

    /// Goes on.
    fn resume_accepting(&mut self, io: &Io) {
        self.suspended = false;
        self.watch_shards(io);
    }

    /// The policy is another, or a door is opened or closed: who waits looks again.
    fn policy_changed(&mut self, io: &Io) {
        self.look_at_rules(io);
        if self.suspended {
            // Sockets on their way out are emptied all the same, and may wait at a door.
            return self.wait_at_no_door();
        }
        self.suspend(io);
        self.resume_accepting(io);
    }

    /// Without permits, only who is turned away is accepted.
    #[cold]
    fn turns_away_at(&self, index: usize) -> bool {
        (self.state == State::Full) & !self.suspended && self.refuses_at(index).is_some()
    }

    fn accept_failed(&mut self, io: &Io, index: usize, errno: Errno) -> Accepted {
        match trouble(errno) {
            Trouble::Nothing => {
                io.counters.accept_empty().add(1);
                return Accepted::Nothing;
            }
            Trouble::Resource => self.starve(io, errno),
            Trouble::Listener if self.listener_gone(io, index) => {}
            Trouble::Connection | Trouble::Listener if self.is_denied(io, index, errno) => self.starve(io, errno),
            Trouble::Connection | Trouble::Listener => io.counters.accept_failed().add(1),
        }
        Accepted::Failed
    }

    /// Whether accept4 failed as it did the last time, and no connection left the queue by it.
    fn is_denied(&mut self, io: &Io, index: usize, errno: Errno) -> bool {
        let Some(Some(held)) = self.held.get(index) else { return false };
        let queued = io.system.queued(held.shard.socket()).unwrap_or(0);
        let refused = Refused { index, errno, accepted: io.counters.accepted().get(), queued };
        let last = self.refused.replace(refused);
        last.is_some_and(|last| last.queued <= queued && Some(Refused { queued, ..last }) == self.refused)
    }

    fn starve(&mut self, io: &Io, errno: Errno) {
        io.counters.accept_starved().add(1);
        self.unwatch_shards(io);
        self.waiter.leave();
        if !std::mem::replace(&mut self.starving, true) {
            io.shared.tell(&Told::AcceptStarved { errno: errno.raw_os_error() });
        }
        self.state = State::Starved(Instant::now() + STARVED);
    }

    /// What was accepted has no place to run, for lack of something the system has: nothing more is accepted until it has one.
    fn place_later(&mut self, io: &Io, incoming: Incoming, errno: Errno) {
        self.unplaced.push_back(incoming);
        self.starve(io, errno);
    }

    /// Those that wait here for a place, for another to place them.
    pub(super) fn take_unplaced(&mut self) -> VecDeque<Incoming> {
        std::mem::take(&mut self.unplaced)
    }

    /// Whether connections wait here for a place.
    pub(super) fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    fn tell_resumed(&mut self, io: &Io) {
        if self.unplaced.is_empty() && std::mem::take(&mut self.starving) {
            io.shared.tell(&Told::AcceptResumed);
        }
    }

    /// Whether a socket listens no more: it is left alone then.
    fn listener_gone(&mut self, io: &Io, index: usize) -> bool {
        let Some(Some(held)) = self.held.get(index) else { return true };
        if io.system.is_listening(held.shard.socket()).unwrap_or(false) {
            return false;
        }
        if held.shard.mark_gone() {
            io.shared.tell(&Told::ListenerGone(held.door.address.clone()));
        }
        self.unwatch_shard(io, index);
        true
    }

    /// A shard that has something, each in turn. They are looked at together, and only when all that had something then have
    /// been accepted from; a single one is not looked at, accepting tells as much.
    fn next_ready(&mut self, io: &Io) -> Result<Option<usize>, Errno> {
        while let Some(index) = self.ready.pop() {
            if self.held.get(index).is_some_and(|held| self.is_live(held)) {
                return Ok(Some(index));
            }
        }
        let live = |held: &Option<Held>| self.is_live(held);
        let held = &self.held;
        let mut indices = (0..held.len()).filter(|index| live(&held[*index]));
        if let (Some(only), None) = (indices.next(), indices.next()) {
            return Ok(Some(only));
        }
        let indices: Vec<usize> = (0..held.len()).filter(|index| live(&held[*index])).collect();
        let sockets: Vec<BorrowedFd<'_>> =
            indices.iter().filter_map(|index| held[*index].as_ref()).map(|held| held.shard.socket()).collect();
        let mut ready = Vec::new();
        io.system.readable(&sockets, &mut ready)?;
        self.ready.extend(indices.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(index, _)| index));
        Ok(self.ready.pop())
    }

    /// Whether connections may come from there now.
    fn is_live(&self, held: &Option<Held>) -> bool {
        held.as_ref().is_some_and(|held| !held.shard.is_gone() && !self.is_shut(&held.door))
    }

    fn watch_shards(&mut self, io: &Io) {
        let full = self.state == State::Full;
        if self.suspended || !full && self.state != State::Open {
            return;
        }
        for index in 0..self.held.len() {
            let closed = |door: &Arc<Door>| self.is_shut(door) || full && door.refuses().is_none();
            let shut = |held: &Held| held.watched || held.shard.is_gone() || closed(&held.door);
            if self.held[index].as_ref().is_none_or(shut) {
                continue;
            }
            let held = self.held[index].as_mut().expect("just seen");
            let interest = Interest { read: true, write: false };
            match io.system.watch(io.epoll.as_fd(), held.shard.socket(), index as u64 + 1, interest) {
                Ok(()) => held.watched = true,
                // ENOMEM or the user's limit of watches: tried again like a lack of descriptors.
                Err(_) => {
                    self.waiter.leave();
                    self.state = State::Starved(Instant::now() + STARVED);
                    return self.unwatch_shards(io);
                }
            }
        }
    }

    /// Doors that this loop has no shard of any more are not waited at.
    fn forget_doors(&mut self, io: &Io) {
        let is_used = |door: &Arc<Door>| self.held.iter().flatten().any(|held| Arc::ptr_eq(&held.door, door));
        if !self.doors.iter().all(|waiting| is_used(&waiting.door)) {
            // Those that are still used wait again as soon as they are looked at.
            self.wait_at_no_door();
            self.watch_shards(io);
        }
    }

    fn unwatch_shards(&mut self, io: &Io) {
        for index in 0..self.held.len() {
            self.unwatch_shard(io, index);
        }
    }

    fn unwatch_shard(&mut self, io: &Io, index: usize) {
        if let Some(held) = &mut self.held[index]
            && std::mem::take(&mut held.watched)
        {
            // It fails only for a socket that is not watched.
            let _ = io.system.unwatch(io.epoll.as_fd(), held.shard.socket());
        }
    }
}
