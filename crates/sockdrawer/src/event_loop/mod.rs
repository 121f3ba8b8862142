//! DATA PLANE: the path of a byte, in reading order: listener, acceptor, limiter, generation, slot, connection, buffer, timer,
//! worker. One [`EventLoop`] belongs to one thread; the descriptor moves rightwards only, and other threads reach an event loop by messages.

pub(crate) mod acceptor;
mod buffer;
pub(crate) mod connections;
mod connector;
pub(crate) mod deadlines;
pub(crate) mod delegates;
mod delegation;
pub(crate) mod dialer;
pub(crate) mod endings;
mod filtered;
pub(crate) mod generation;
mod generations;
mod groups;
pub(crate) mod inbox;
pub(crate) mod incoming;
mod io;
mod landing;
pub(crate) mod lease;
pub(crate) mod notifier;
pub(crate) mod phase;
mod ports;
mod read_buffer;
#[cfg(test)]
mod schedules;
mod shared;
mod slot;
mod slots;
pub(crate) mod snapshot;
mod streams;
mod timer;
mod timers;
pub(crate) mod user_code;
pub(crate) mod watcher;
pub(crate) mod worker;

use crate::admission::Reject;
use crate::behaviour::Panicked;
use crate::observe::counters::Counters;
use crate::protocol::{Closed, Local, Membership, Tag};
use crate::sync::lock;
use crate::sys::{Errno, Events, Interest, panics};
pub(crate) use shared::{Basis, Placement, Shared};

use crate::limit::limiter::Waiter;
use acceptor::Acceptor;
use connections::{Connections, connecting, due, entering, events, operations, publishing, returning};
use connector::Connector;
use dialer::Dialer;
use endings::Endings;
use inbox::{Asker, Inbox, Message};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams::Streams;

/// Maximum bytes of one read: what counts for small messages is bytes per read.
const READ_BYTES: usize = 256 * 1024;
/// A connection with more to read than this many reads lets the others go first.
const READS_PER_TURN: usize = 4;
/// Maximum number of ended peers' connections that a turn handles. To end one takes some microseconds, and thousands may end at once.
const ENDS_PER_TURN: usize = 64;
/// Maximum number of messages that are read before events are looked at again.
const MESSAGES_PER_TURN: usize = 1024;
/// Maximum time for orders before events are looked at again: some are a word, some visit every connection.
const COMMANDS_PER_TURN: Duration = Duration::from_micros(200);
/// Memory that a callback's output may leave behind.
const SCRATCH_BYTES: usize = 256 * 1024;
/// Memory that a prepared event loop has for a callback's output: little, to lie with what else a forked process writes.
const PREPARED_BYTES: usize = 512;

/// Message of a panic where epoll_wait fails.
const BAD_EPOLL: &str = "epoll_wait fails for a bad descriptor or pointer only";

/// The tokens of epoll that are no connection: version 0. The inbox is 0, listeners follow; at the end come descriptors that the
/// event loop is only to notice.
const INBOX_TOKEN: u64 = 0;
const NOTICED: u64 = u32::MAX as u64 - 31;

/// Parts that one loop thread owns: its connections, and how connections and messages come to it.
pub(crate) struct EventLoop {
    pub(crate) connections: Connections,
    acceptor: Acceptor,
    connector: Connector,
    /// The place where connections run that this loop accepts; None: here.
    placement: Option<Arc<dyn Placement>>,
    messages: Vec<Message>,
    unread: VecDeque<Message>,
    /// A bit for each descriptor of [`EventLoop::notice`] that had something.
    pub(crate) noticed: u32,
    /// Moment by which turns end, whether anything happens or not.
    pub(crate) turn_until: Option<Instant>,
    pub(crate) stopping: bool,
}

/// The way of connections into a loop, and from there to where else they run.
pub(crate) struct Intake<'a> {
    pub(crate) connections: &'a mut Connections,
    acceptor: &'a mut Acceptor,
    placement: &'a mut Option<Arc<dyn Placement>>,
}

impl EventLoop {
    /// Makes an event loop on the control plane's thread, so that failing is an error of the change and not a dead loop.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        inbox: Arc<Inbox>,
        capacity: usize,
    ) -> Result<EventLoop, EventLoopError> {
        let mut event_loop = EventLoop::empty(Some(index), shared, inbox, capacity);
        event_loop.awaken()?;
        let Streams { io, generations, read, .. } = &mut event_loop.connections.streams;
        generations.refresh(io, read)?;
        Ok(event_loop)
    }

    /// Makes an event loop that serves a single connection at a time. It takes its table with the first: what the service does then is that
    /// connection's risk.
    pub(crate) fn serving(shared: Arc<Shared>, inbox: Arc<Inbox>) -> Result<EventLoop, Errno> {
        let mut event_loop = EventLoop::asleep(shared, inbox);
        event_loop.awaken()?;
        event_loop.connections.streams.snapshot = Some(Arc::default());
        Ok(event_loop)
    }

    /// Makes an event loop without a descriptor of its own, until it has something to wait for: many connections never have.
    pub(crate) fn asleep(shared: Arc<Shared>, inbox: Arc<Inbox>) -> EventLoop {
        EventLoop::empty(None, shared, inbox, 1)
    }

    fn empty(index: Option<usize>, shared: Arc<Shared>, inbox: Arc<Inbox>, capacity: usize) -> EventLoop {
        let at_once = capacity.min(64);
        let waiter = || Waiter::new(shared.limiter.clone(), inbox.wake.clone());
        EventLoop {
            acceptor: Acceptor::new(waiter(), shared.policy.get(), shared.spared_from()),
            connector: Connector::new(waiter()),
            placement: shared.placement.clone().filter(|_| index.is_some()),
            messages: Vec::with_capacity(at_once),
            unread: VecDeque::with_capacity(at_once),
            noticed: 0,
            turn_until: None,
            stopping: false,
            connections: Connections::new(index, shared, inbox, capacity),
        }
    }

    /// Prepares all that a short connection needs, so that it allocates nothing.
    pub(crate) fn prepare(&mut self) {
        entering::prepare(&mut self.connections.streams);
        self.acceptor.view.look(&self.connections.streams.io);
    }

    /// Makes what it waits with. Before that, only its own thread may have its inbox.
    pub(crate) fn awaken(&mut self) -> Result<(), Errno> {
        self.connections.streams.io.awaken()
    }

    #[inline(always)]
    pub(crate) fn intake(&mut self) -> Intake<'_> {
        Intake { connections: &mut self.connections, acceptor: &mut self.acceptor, placement: &mut self.placement }
    }

    /// Returns the descriptors that this loop itself has open, beside sockets.
    pub(crate) fn descriptors(&self) -> Result<[RawFd; 2], Errno> {
        Ok([self.connections.streams.io.epoll.as_fd().as_raw_fd(), self.connections.streams.io.inbox.wake.event()?.as_raw_fd()])
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.connections.streams.io.shared
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.connections.streams.io.inbox
    }

    /// Returns the number of connections, lingering ones included.
    pub(crate) fn count(&self) -> usize {
        self.connections.streams.slots.taken()
    }

    /// Names a connection, by order of a handle.
    pub(crate) fn tag(&mut self, token: u64, tag: &Tag) {
        operations::tag_one(&mut self.connections, token, tag);
    }

    /// Visits what each generation's service made for this loop.
    pub(crate) fn visit_locals(&mut self, visit: &mut dyn FnMut(&mut Local)) {
        self.connections.streams.generations.visit_locals(visit);
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.connections.streams.io.counters
    }

    /// Turns end when this has something to read, and say so by the bit of its number, below 32.
    pub(crate) fn notice(&self, number: u32, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let interest = Interest::READ;
        let io = &self.connections.streams.io;
        io.system.watch(io.epoll.as_fd(), descriptor, NOTICED + u64::from(number), interest)
    }

    /// Waits for events and handles them once. True when there was an event.
    pub(crate) fn turn(&mut self, events: &mut Events, sleeping: impl Fn(bool)) -> bool {
        sleeping(true);
        // After a turn in which there was something to do.
        if let Some(time) = self.connections.streams.io.shared.spin().filter(|_| events.len() > 0) {
            self.spin(events, time);
        } else {
            events.clear();
        }
        if events.len() == 0 {
            let timeout = self.timeout();
            let io = &self.connections.streams.io;
            let waited = io.system.wait(io.epoll.as_fd(), events, timeout);
            waited.expect(BAD_EPOLL);
        }
        sleeping(false);
        self.handle(events)
    }

    /// Asks for events again and again, at most until a timer is due.
    #[inline(never)]
    fn spin(&mut self, events: &mut Events, time: Duration) {
        let until = Instant::now() + self.timeout().map_or(time, |timeout| timeout.min(time));
        let io = &self.connections.streams.io;
        loop {
            io.system.wait(io.epoll.as_fd(), events, Some(Duration::ZERO)).expect(BAD_EPOLL);
            if events.len() > 0 || Instant::now() >= until {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Does one turn without waiting, for a thread that waits elsewhere. Returns true where there were events.
    #[cfg(feature = "tokio")]
    pub(crate) fn turn_now(&mut self, events: &mut Events) -> bool {
        let io = &self.connections.streams.io;
        let waited = io.system.wait(io.epoll.as_fd(), events, Some(Duration::ZERO));
        waited.expect(BAD_EPOLL);
        self.handle(events)
    }

    fn handle(&mut self, events: &Events) -> bool {
        self.connections.streams.io.counters.turns().add(1);
        self.connections.streams.timers.look_at_clock();
        let dials = self.connector.has_more();
        self.connections.ends = 0;
        for index in 0..events.len() {
            let ready = events.get(index);
            match (ready.token >> 32, ready.token) {
                (0, INBOX_TOKEN) => {}
                (0, noticed) if noticed >= NOTICED => self.noticed |= 1 << (noticed - NOTICED),
                (0, listener) => self.intake().accept_event(listener, events.len()),
                (_, token) => {
                    if let Some(incoming) = events::event(&mut self.connections, token, ready) {
                        self.intake().arrive(incoming);
                    }
                    if dials && !self.acceptor.has_unplaced() {
                        self.connector.redial(&mut self.connections.streams);
                    }
                }
            }
        }
        if !self.is_quiet() {
            self.do_what_waits();
        }
        self.connections.streams.io.shared.notifier.notify();
        events.len() > 0
    }

    /// Returns true where there is nothing to do but handle events, as is the rule: a turn looks at all of it by a few loads.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        let messages = self.has_messages() | self.connections.streams.io.shared.process.is_some();
        let times =
            !self.connections.streams.timers.is_empty() | !self.connections.deadlines.is_empty() | self.turn_until.is_some();
        !(messages | times | self.acceptor.has_more(&self.connections.streams.io.shared) | self.connector.has_more())
    }

    #[inline(never)]
    fn do_what_waits(&mut self) {
        self.connections.streams.io.shared.limiter.hear();
        self.read_messages();
        due::fire_timers(&mut self.connections);
        deadlines::keep_deadlines(self);
        if std::mem::take(&mut self.connections.streams.descriptor_freed) {
            self.acceptor.descriptor_freed();
        }
        self.intake().acceptor_turn();
        if self.acceptor.has_unplaced() {
            self.connector.wait_for_places();
        } else {
            self.connector.connect_more(&mut self.connections.streams);
        }
        connecting::begin_asked(&mut self.connections);
    }

    #[inline(always)]
    fn timeout(&self) -> Option<Duration> {
        if self.is_quiet() { None } else { self.time_left() }
    }

    #[inline(never)]
    fn time_left(&self) -> Option<Duration> {
        if self.has_messages() {
            return Some(Duration::ZERO);
        }
        Some(self.due()?.saturating_duration_since(Instant::now()))
    }

    /// Returns whether messages, or connects that were asked for, wait for which the inbox does not wake the loop again.
    pub(crate) fn has_messages(&self) -> bool {
        !self.unread.is_empty() || !self.connections.asked.is_empty() || self.connections.streams.io.inbox.wake.is_notified()
    }

    /// Returns the moment at which there is something to do even if nothing comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        let deadline = self.connections.deadlines.next();
        let wakes = [
            self.connections.streams.timers.next(),
            deadline,
            self.acceptor.retry_at(),
            self.connector.retry_at(),
            self.turn_until,
        ];
        wakes.into_iter().flatten().min()
    }

    /// Returns a descriptor that has events when the event loop has: for a thread that waits elsewhere.
    #[cfg(feature = "tokio")]
    pub(crate) fn epoll(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        self.connections.streams.io.epoll.as_fd().try_clone_to_owned()
    }

    fn read_messages(&mut self) {
        // No messages are taken before the last are read: the bound of the inbox is the bound of all that wait.
        if self.unread.is_empty() {
            self.connections.streams.io.inbox.take(&mut self.messages);
            self.unread.extend(self.messages.drain(..));
        }
        let mut commanded_since = None;
        for _ in 0..MESSAGES_PER_TURN {
            match self.unread.pop_front() {
                None => return,
                Some(Message::Done(token, result)) => returning::job_done(&mut self.connections, token, result),
                // Only in a build with this mistake: the connection that has the slot now gets what was meant for another.
                #[cfg(sockdrawer_broken = "stale-note")]
                Some(Message::Note(token, note, urgency)) => {
                    let token = self.connections.streams.slots.token(token as u32);
                    self.connections.note(token, note, urgency);
                }
                #[cfg(not(sockdrawer_broken = "stale-note"))]
                Some(Message::Note(token, note, urgency)) => self.connections.note(token, note, urgency),
                Some(Message::Published(group, bytes, urgency)) => {
                    publishing::published(&mut self.connections, &group, bytes, urgency, &mut self.unread);
                }
                Some(Message::Membership(token, group, change)) => {
                    self.connections.streams.groups.change(&mut self.connections.streams.slots, token, &group, change);
                }
                Some(Message::Connected(token, result)) => self.connections.tell_asker(Asker::Connection(token), result),
                Some(Message::Room(token)) => events::room(&mut self.connections, token),
                Some(Message::Adopt(incoming)) => self.intake().arrive(incoming),
                Some(Message::Returned(returned)) => returning::came_back(&mut self.connections, returned),
                Some(Message::Command(command)) => {
                    let since = *commanded_since.get_or_insert_with(Instant::now);
                    command(self);
                    if since.elapsed() > COMMANDS_PER_TURN {
                        return;
                    }
                }
            }
        }
    }

    /// Connects as this dialer says from now on; None stops. Connections that stand stay.
    pub(crate) fn set_dialer(&mut self, dialer: Option<Arc<Dialer>>) {
        self.connector.set_dialer(dialer);
    }

    /// Resets the connections that wait at the listening sockets of a pool that ends, and gives the sockets up.
    pub(crate) fn cut_queues(&mut self, endings: &Arc<Endings>) {
        let waited = self.acceptor.turn_away_retiring(&mut self.connections.streams, &Reject::Reset);
        endings.add_cut(waited);
    }

    /// Ends every connection, each under its own guard, because the loop is going, by order or by its own fault. Nothing more
    /// comes in.
    pub(crate) fn abandon(&mut self, why: Closed) {
        self.connector.set_dialer(None);
        self.connections.abandoned = true;
        for slot in 0..self.connections.streams.slots.len() {
            if self.connections.streams.slots.at(slot).is_taken() {
                let end = std::panic::AssertUnwindSafe(|| self.connections.end_now(slot, why));
                let _ = std::panic::catch_unwind(end);
            }
        }
        let unplaced = self.acceptor.take_unplaced().into_iter().map(Message::Adopt);
        let messages: Vec<Message> =
            unplaced.chain(self.unread.drain(..)).chain(self.connections.streams.io.inbox.close()).collect();
        messages.into_iter().for_each(|message| self.pass_on(message));
    }

    /// Passes on a message that this loop will not read: a connection that was on its way here goes to another loop, or waits for one;
    /// anything else is dropped, and may hold user values with a Drop that may do anything.
    fn pass_on(&self, message: Message) {
        let others: Vec<_> = lock(&self.connections.streams.io.shared.roster)
            .iter()
            .filter(|other| !Arc::ptr_eq(other, &self.connections.streams.io.inbox))
            .cloned()
            .collect();
        let mut left = Some(message);
        if let Some(Message::Adopt(_)) = left {
            for other in others {
                left = left.take().and_then(|message| other.put(message).err());
            }
        }
        match left {
            Some(Message::Membership(_, group, Membership::Joined)) => {
                group.left(self.connections.streams.groups.address(), false);
            }
            Some(Message::Adopt(incoming)) => lock(&self.connections.streams.io.shared.stranded).push(incoming),
            left => _ = panics::discard(left),
        }
    }
}

/// Reason why the parts of a loop could not be made.
pub(crate) enum EventLoopError {
    System(Errno),
    Service(Panicked),
}

impl From<Errno> for EventLoopError {
    fn from(errno: Errno) -> EventLoopError {
        EventLoopError::System(errno)
    }
}

impl From<Panicked> for EventLoopError {
    fn from(panicked: Panicked) -> EventLoopError {
        EventLoopError::Service(panicked)
    }
}
