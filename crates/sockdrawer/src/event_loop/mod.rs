//! DATA PLANE: the path of a byte, in reading order: listener, acceptor, limiter, generation, seat, connection, buffer, timer,
//! worker. One [`EventLoop`] belongs to one thread; the descriptor moves rightwards only, and other threads reach an event loop by messages.

pub(crate) mod acceptor;
pub(crate) mod account;
pub(crate) mod alarms;
pub(crate) mod away;
pub(crate) mod bell;
mod buffer;
pub(crate) mod card;
pub(crate) mod child_page;
mod closing;
mod connection;
mod connector;
pub(crate) mod delegates;
mod delegation;
pub(crate) mod dialer;
pub(crate) mod door;
pub(crate) mod ending;
pub(crate) mod generation;
pub(crate) mod here;
mod idle;
pub(crate) mod inbox;
mod interest;
mod jobs;
pub(crate) mod limiter;
pub(crate) mod listener;
pub(crate) mod orders;
mod pace;
pub(crate) mod peer_counts;
mod ports;
mod reading;
pub(crate) mod reuseport_group;
pub(crate) mod rules;
#[cfg(all(test, shuttle))]
mod schedules;
mod seat;
mod shared;
pub(crate) mod shared_counters;
mod tags;
mod timer;
mod timers;
pub(crate) mod worker;

use self::child_page::ChildPage;
use crate::behaviour::{More, Panicked, Table, TableBox};
use crate::observe::Event as Told;
use crate::observe::counters::Counters;
use crate::protocol::{Closing, ConnectionId, Local, Output, Post, Receiving};
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::sys::{Calls, Errno, Events, Interest, Pages};
pub(crate) use shared::{Basis, Placement, Shared};

use acceptor::Acceptor;
use buffer::Buffers;
use card::Card;
use connector::Connector;
use delegation::Trip;
use ending::Endings;
use generation::Generation;
use inbox::{Inbox, Message};
use limiter::{Permit, Waiter};
use seat::{Flags, Seats};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tags::Tags;
use timer::Wheel;

/// One read takes at most this much: what counts for small messages is bytes per read.
const READ_BYTES: usize = 256 * 1024;
/// A connection with more to read than this many reads lets the others go first.
const READS_PER_TURN: usize = 4;
/// Connections whose peers have ended, of those that a turn finds. To end one takes some microseconds, and thousands may end at once.
const ENDS_PER_TURN: usize = 64;
/// So many messages are read before events are looked at again.
const MESSAGES_PER_TURN: usize = 1024;
/// Orders too, for so long: some are a word, some visit every connection.
const COMMANDS_PER_TURN: Duration = Duration::from_micros(200);
/// Memory that a callback's output may leave behind.
const SCRATCH_BYTES: usize = 256 * 1024;
/// Memory that a prepared event loop has for a callback's output: little, to lie with what else a forked process writes.
const PREPARED_BYTES: usize = 512;
/// Panics and reports told as events, for each loop and second; all panics are counted.
const TOLD_PER_SECOND: u32 = 10;

/// What epoll_wait would have to be given to fail.
const BAD_EPOLL: &str = "epoll_wait fails for a bad descriptor or pointer only";

/// The tokens of epoll that are no connection: epoch 0. The inbox is 0, listeners follow; at the end come descriptors that the
/// event loop is only to notice.
const INBOX_TOKEN: u64 = 0;
const NOTICED: u64 = u32::MAX as u64 - 31;

/// A generation in this loop.
struct Place {
    generation: Arc<Generation>,
    table: Box<dyn Table>,
    local: Box<Local>,
    closing: Closing,
    receiving: Receiving,
    /// Of the generation, which other loops write to for each connection.
    id: u32,
    high_water: usize,
}

impl Place {
    /// What a connection becomes whose unsent output passes the high-water mark.
    fn full(&self) -> Flags {
        match self.receiving {
            Receiving::UntilFull => Flags::FULL.and(Flags::PAUSED),
            Receiving::Always => Flags::FULL,
        }
    }
}

/// None in an event loop that sleeps: it has had nothing to wait for.
struct Epoll(Option<OwnedFd>);

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("who waits is awake").as_fd()
    }
}

/// All that one loop thread owns.
pub(crate) struct EventLoop {
    /// None: it only serves, one connection at a time that was placed here.
    index: Option<usize>,
    shared: Arc<Shared>,
    system: Calls,
    epoll: Epoll,
    pub(crate) inbox: Arc<Inbox>,
    /// Of an event loop that only serves, in a thread among others.
    pub(crate) card: Option<Arc<Card>>,
    post: Arc<dyn Post>,
    pub(crate) counters: Counters,
    seats: Seats,
    /// Permits of connections that ended while their job runs: the job uses what the limit is there to bound.
    orphans: HashMap<u64, Permit>,
    /// Connections that are given away, or will be, by their seats.
    trips: HashMap<u32, Trip>,
    /// Who counts the end of a connection, by its seat.
    endings: HashMap<u32, Vec<Arc<Endings>>>,
    tags: Tags,
    places: Vec<Option<Place>>,
    /// The generation in force, and the switch's epoch at which it was.
    active: u16,
    epoch: u64,
    acceptor: Acceptor,
    /// Of a loop whose connections run elsewhere.
    placement: Option<Arc<dyn Placement>>,
    connector: Connector,
    /// Input that protocols did not take.
    kept: Buffers,
    /// Output that the kernel did not take.
    unsent: Buffers,
    scratch: Output,
    /// Of the last callback.
    more: Option<More>,
    read: Pages,
    /// What one read takes now. In the kernel, input costs no more than a socket's buffer.
    read_most: usize,
    /// Output was kept, for a connection that does not read.
    swollen: bool,
    wheel: Wheel,
    /// Deadlines farther than the wheel can say; hardly ever any.
    far: HashMap<u32, Instant>,
    /// Connections that are watched for the idle timeout.
    idle: HashMap<u32, idle::Seen>,
    due: Vec<u32>,
    messages: Vec<Message>,
    unread: VecDeque<Message>,
    ids: std::ops::Range<u64>,
    told: (u32, u32),
    start: Instant,
    /// The same by the coarse clock.
    began: u64,
    /// Of this turn, connections whose peers have ended.
    ends: usize,
    /// A bit for each descriptor of [`EventLoop::notice`] that had something.
    pub(crate) noticed: u32,
    /// Seconds from then to the last look at that clock, once a turn: connections that open in a turn have their age by it.
    second: u32,
    /// The generation in force or the model wants to know who comes.
    names_peers: bool,
    /// In a connection's own process: the page by which its orderly end is decided. Until then its peer sees a reset when the process
    /// dies.
    pub(crate) page: Option<ChildPage>,
    /// Turns end by then, whether anything happens or not.
    pub(crate) turn_until: Option<Instant>,
    pub(crate) stopping: bool,
}

impl EventLoop {
    /// Made on the control plane's thread, so that failing is an error of the change and not a dead loop.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        inbox: Arc<Inbox>,
        capacity: usize,
    ) -> Result<EventLoop, EventLoopError> {
        let mut event_loop = EventLoop::empty(Some(index), shared, inbox, capacity);
        event_loop.awaken()?;
        event_loop.refresh()?;
        Ok(event_loop)
    }

    /// One that serves a single connection at a time. It takes its table with the first: what the service does then is that
    /// connection's risk.
    pub(crate) fn serving(shared: Arc<Shared>, inbox: Arc<Inbox>) -> Result<EventLoop, Errno> {
        let mut event_loop = EventLoop::asleep(shared, inbox);
        event_loop.awaken()?;
        event_loop.card = Some(Arc::default());
        Ok(event_loop)
    }

    /// The same without a descriptor of its own, until it has something to wait for: many connections never have.
    pub(crate) fn asleep(shared: Arc<Shared>, inbox: Arc<Inbox>) -> EventLoop {
        EventLoop::empty(None, shared, inbox, 1)
    }

    /// Has ready what a short connection needs, so that it allocates nothing.
    pub(crate) fn prepare(&mut self) {
        self.scratch.bytes.reserve(PREPARED_BYTES);
        self.look_at_switch();
        self.look_at_rules();
        self.seats.prepare();
    }

    /// The next connection has this number, which somebody else gave it.
    pub(crate) fn number_next(&mut self, id: ConnectionId) {
        self.ids = id.0..id.0 + 1;
    }

    fn look_at_clock(&mut self) {
        let open = crate::sys::monotonic_coarse().saturating_sub(self.began);
        self.second = u32::try_from(open / 1_000_000_000).unwrap_or(u32::MAX);
    }

    /// Makes what it waits with. Before that, nobody but its own thread may have its inbox.
    pub(crate) fn awaken(&mut self) -> Result<(), Errno> {
        if self.epoll.0.is_none() {
            let epoll = self.system.epoll()?;
            self.system.watch_event(epoll.as_fd(), self.inbox.event()?, INBOX_TOKEN)?;
            if let Some(bell) = self.shared.limiter.bell() {
                self.system.watch_event(epoll.as_fd(), bell, INBOX_TOKEN)?;
            }
            self.epoll = Epoll(Some(epoll));
        }
        Ok(())
    }

    fn empty(index: Option<usize>, shared: Arc<Shared>, inbox: Arc<Inbox>, capacity: usize) -> EventLoop {
        let start = Instant::now();
        let at_once = capacity.min(64);
        EventLoop {
            index,
            system: Calls::new(shared.system.clone()),
            epoll: Epoll(None),
            card: None,
            post: inbox.clone(),
            counters: shared.counters(index),
            seats: Seats::with_capacity(capacity, shared.limiter.clone()),
            orphans: HashMap::new(),
            trips: HashMap::new(),
            endings: HashMap::new(),
            tags: Tags::default(),
            places: Vec::new(),
            active: 0,
            epoch: 0,
            acceptor: Acceptor::new(Waiter::new(shared.limiter.clone(), inbox.clone()), shared.rules.get()),
            placement: shared.placement.clone().filter(|_| index.is_some()),
            connector: Connector::new(Waiter::new(shared.limiter.clone(), inbox.clone())),
            kept: Buffers::default(),
            unsent: Buffers::default(),
            scratch: Output::default(),
            more: None,
            read: Pages::default(),
            read_most: READ_BYTES,
            swollen: false,
            wheel: Wheel::new(start),
            far: HashMap::new(),
            idle: HashMap::new(),
            due: Vec::with_capacity(at_once),
            messages: Vec::with_capacity(at_once),
            unread: VecDeque::with_capacity(at_once),
            ids: 0..0,
            told: (0, 0),
            start,
            began: crate::sys::monotonic_coarse(),
            noticed: 0,
            second: 0,
            names_peers: true,
            page: None,
            ends: 0,
            turn_until: None,
            stopping: false,
            inbox,
            shared,
        }
    }

    /// Turns end when this has something to read, and say so by the bit of its number, below 32.
    pub(crate) fn notice(&self, number: u32, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let interest = Interest { read: true, write: false };
        self.system.watch(self.epoll.as_fd(), descriptor, NOTICED + u64::from(number), interest)
    }

    /// For who runs connections elsewhere: counts one more of the generation in force, and says which that is.
    pub(crate) fn join(&mut self) -> Result<(Arc<Generation>, ConnectionId), Panicked> {
        self.join_generation()?;
        let active = self.active;
        Ok((self.place(active).generation.clone(), self.next_id()))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Looks at the switch: one load. After a change, takes the table that was prepared for this loop.
    #[inline]
    fn refresh(&mut self) -> Result<(), Panicked> {
        let epoch = self.shared.switch.epoch();
        if epoch == self.epoch { Ok(()) } else { self.switch_to(epoch) }
    }

    #[cold]
    fn switch_to(&mut self, epoch: u64) -> Result<(), Panicked> {
        let generation = self.shared.switch.current();
        let TableBox { table, local, closing, receiving, asks_for_remote } = generation.table(self.index)?;
        // Kept input, at most `max_partial` and what one read brought while it was held, and room for a read behind it. Pages
        // that are never touched cost nothing.
        let room = generation.settings.max_partial + 2 * READ_BYTES;
        if self.read.len() < room {
            let none = |errno| Panicked(format!("no memory to read into: {}", std::io::Error::from(errno)));
            self.read = Pages::new(room).map_err(none)?;
        }
        self.epoch = epoch;
        // An event loop for one connection is told by nobody else's what it has to keep.
        let most = generation.settings.high_water.max(reading::LEAST_READ_BYTES);
        self.read_most = if self.index.is_some() { READ_BYTES } else { READ_BYTES.min(most) };
        self.names_peers = asks_for_remote || self.shared.placement.is_some();
        self.drop_empty_places(true);
        let free = self.places.iter().position(Option::is_none);
        let (id, high_water) = (generation.id, generation.settings.high_water);
        let place = Some(Place { generation, table, local, closing, receiving, id, high_water });
        let at = free.unwrap_or(self.places.len());
        if at == self.places.len() {
            self.places.push(place);
        } else {
            self.places[at] = place;
        }
        self.active = u16::try_from(at).expect("fewer than 65,536 live generations");
        Ok(())
    }

    /// Takes the generation in force even if no connection comes, and lets go of the one before.
    pub(crate) fn look_at_switch(&mut self) {
        // A panic of the service's `local` is met again, and told, by the next connection.
        let _ = self.refresh();
    }

    /// Forgets generations without connections here; the active one only when another takes its place.
    fn drop_empty_places(&mut self, active_too: bool) {
        let active = usize::from(self.active);
        for (index, place) in self.places.iter_mut().enumerate() {
            if (index != active || active_too) && place.as_ref().is_some_and(|place| place.table.live() == 0) {
                let place = place.take();
                // The service's `local` is user code too.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(place)));
            }
        }
    }

    fn place(&mut self, table: u16) -> &mut Place {
        self.places[usize::from(table)].as_mut().expect("a generation with connections stays")
    }

    fn next_id(&mut self) -> ConnectionId {
        if self.ids.is_empty() {
            let first = self.shared.shared_counters.ids().fetch_add(64, Ordering::Relaxed);
            self.ids = first..first + 64;
        }
        ConnectionId(self.ids.next().expect("just filled"))
    }

    /// Waits for events and handles them once. True when there was an event.
    pub(crate) fn turn(&mut self, events: &mut Events, sleeping: impl Fn(bool)) -> bool {
        sleeping(true);
        // After a turn in which there was something to do.
        if let Some(time) = self.shared.spin().filter(|_| events.len() > 0) {
            self.spin(events, time);
        } else {
            events.clear();
        }
        if events.len() == 0 {
            let timeout = self.timeout();
            let waited = self.system.wait(self.epoll.as_fd(), events, timeout);
            waited.expect(BAD_EPOLL);
        }
        sleeping(false);
        self.handle(events)
    }

    /// Asks for events again and again, at most until a timer is due.
    #[inline(never)]
    fn spin(&mut self, events: &mut Events, time: Duration) {
        let until = Instant::now() + self.timeout().map_or(time, |timeout| timeout.min(time));
        loop {
            self.system.wait(self.epoll.as_fd(), events, Some(Duration::ZERO)).expect(BAD_EPOLL);
            if events.len() > 0 || Instant::now() >= until {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// The same for a thread that waits elsewhere: without waiting.
    #[cfg(feature = "tokio")]
    pub(crate) fn turn_now(&mut self, events: &mut Events) -> bool {
        let waited = self.system.wait(self.epoll.as_fd(), events, Some(Duration::ZERO));
        waited.expect(BAD_EPOLL);
        self.handle(events)
    }

    fn handle(&mut self, events: &Events) -> bool {
        self.counters.turns().add(1);
        self.look_at_clock();
        let dials = self.connector.has_more();
        self.ends = 0;
        for index in 0..events.len() {
            let ready = events.get(index);
            match (ready.token >> 32, ready.token) {
                (0, INBOX_TOKEN) => {}
                (0, noticed) if noticed >= NOTICED => self.noticed |= 1 << (noticed - NOTICED),
                (0, listener) => self.accept_event(listener, events.len()),
                (_, token) => {
                    self.connection_event(token, ready);
                    if dials {
                        self.redial();
                    }
                }
            }
        }
        if !self.is_quiet() {
            self.do_what_waits();
        }
        self.shared.bell.ring();
        events.len() > 0
    }

    /// Whether there is nothing to do but what events bring, as is the rule: a turn looks at all of it by a few loads.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        let messages = self.has_messages() | self.shared.process.is_some();
        let times = !self.wheel.is_empty() | self.turn_until.is_some();
        !(messages | times | self.acceptor.has_more(&self.shared) | self.connector.has_more())
    }

    #[inline(never)]
    fn do_what_waits(&mut self) {
        self.shared.limiter.hear();
        self.read_messages();
        self.fire_timers();
        self.acceptor_turn();
        self.connect_more();
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

    /// Whether messages wait that the inbox does not ring for again.
    pub(crate) fn has_messages(&self) -> bool {
        !self.unread.is_empty() || self.inbox.has_rung()
    }

    /// When there is something to do even if nothing comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        let wakes = [self.wheel.next(), self.acceptor.retry_at(), self.connector.retry_at(), self.turn_until];
        wakes.into_iter().flatten().min()
    }

    /// What has events when the event loop has: for a thread that waits elsewhere.
    #[cfg(feature = "tokio")]
    pub(crate) fn epoll(&self) -> std::io::Result<OwnedFd> {
        self.epoll.as_fd().try_clone_to_owned()
    }

    fn read_messages(&mut self) {
        // Not before the last are read: the bound of the inbox is the bound of all that wait.
        if self.unread.is_empty() {
            self.inbox.take(&mut self.messages);
            self.unread.extend(self.messages.drain(..));
        }
        let mut commanded_since = None;
        for _ in 0..MESSAGES_PER_TURN {
            match self.unread.pop_front() {
                None => return,
                Some(Message::Done(token, result)) => self.job_done(token, result),
                // The mistake: whoever sits there now hears what was meant for another.
                #[cfg(sockdrawer_broken = "stale-note")]
                Some(Message::Note(token, note)) => {
                    let token = self.seats.token(token as u32);
                    self.note(token, note);
                }
                #[cfg(not(sockdrawer_broken = "stale-note"))]
                Some(Message::Note(token, note)) => self.note(token, note),
                Some(Message::Adopt(incoming)) => self.arrive(incoming),
                Some(Message::Returned(returned)) => self.came_back(returned),
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

    fn tell_some(&mut self, event: Told) {
        let second = u32::try_from(self.start.elapsed().as_secs()).unwrap_or(u32::MAX);
        let (at, told) = &mut self.told;
        if *at != second {
            (*at, *told) = (second, 0);
        }
        *told += 1;
        if *told <= TOLD_PER_SECOND {
            self.shared.tell(&event);
        }
    }
}

/// Why a loop's own things could not be made.
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
