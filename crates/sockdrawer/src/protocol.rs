//! What you write: a protocol is a state machine that takes bytes and returns a [`Step`]. It has no sockets, no clock and no
//! loop, so the same code runs under every model, on either end of a connection, and in a test without any of them.
//!
//! ```
//! use sockdrawer::{Context, Input, Peer, Protocol, Service, Step};
//!
//! struct Echo;
//! impl Service for Echo {
//!     type Protocol = Echo;
//!     fn open(&self, _peer: &Peer) -> Echo {
//!         Echo
//!     }
//! }
//! impl Protocol for Echo {
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
//!         cx.send(input.bytes());
//!         input.take_all();
//!         Step::Continue
//!     }
//! }
//! ```

mod delegate;
mod job;
mod note;
mod saved;
mod state;
mod tag;

pub use delegate::{After, Delegate};
pub use job::{Job, JobError, JobResult};
pub(crate) use note::Post;
pub use note::{Handle, Note, NotifyError};
pub use saved::{CannotRestore, CannotSave, Saved, Saver};
pub(crate) use state::Level;
pub use state::State;
pub(crate) use tag::{Tag, tag};

use std::any::Any;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The behaviour of one connection. All callbacks of a connection run one after another, never two at once.
///
/// A panic in any of them ends this connection only, with a reset, and is counted.
pub trait Protocol: Send + 'static {
    /// The connection is open; nothing was received yet.
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Bytes arrived. Take what is whole and leave the rest: it comes again, with what follows it. What is left may grow to
    /// the generation's `max_partial`; beyond it the connection ends with [`Closed::TooLong`].
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step;

    /// The peer will send no more; it may still read. Comes after kept input and after a running job.
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// The timer set by [`Context::set_timer`] is due. It is off until it is set again.
    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// The job asked for by [`Step::Work`] ended.
    fn job_done(&mut self, _result: JobResult, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// A note arrived, sent through a [`Handle`] or by [`Pool::notify`](crate::Pool::notify). Notes of one sender arrive in order.
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// The backlog of unsent output was above the high-water mark and fell to the low one: produce more. Not called if the kernel
    /// took so much of the output that the backlog never passed the mark.
    fn writable(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// The pool asks this connection to end. Called once, at a quiet point: no partial message was received and no job runs. A drain and
    /// a purge call it; retiring a generation does not. [`Step::Continue`] means that the protocol will end the connection soon by itself.
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// The last callback of a connection, with the reason. Output and timers asked for here are ignored.
    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {}

    /// The connection goes on with this state, which [`Service::restore`] made: in [`Pool::adopt`](crate::Pool::adopt), or in another
    /// process. Time to join what the state before it had joined, and to keep the handle. Timer, tag, untaken input and unsent output came
    /// along. [`Step::Continue`] leaves a [`Step::Wait`] of the state before it in force.
    fn restored(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Writes the state as plain bytes, so that a newer service, or another process, goes on with the connection. Nothing may come of it:
    /// it must not change the state. Not called while a job runs.
    ///
    /// # Errors
    /// When the state cannot be saved, which is the default: the connection stays with its service.
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Err(CannotSave::because("its protocol does not save its state"))
    }
}

/// Makes a protocol for each connection. One service is one generation of a pool.
pub trait Service: Send + Sync + 'static {
    /// The state of one connection.
    type Protocol: Protocol;

    /// A new connection's state. A panic here ends that connection only.
    fn open(&self, peer: &Peer) -> Self::Protocol;

    /// Makes the state of a connection from what an older service saved. Nothing may come of it either: what is to be done when the
    /// connection goes on with it belongs to [`Protocol::restored`].
    ///
    /// # Errors
    /// When these bytes are not a state that this service knows, which is the default: the connection stays with the older service.
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Self::Protocol, CannotRestore> {
        Err(CannotRestore::because("its service does not restore states"))
    }

    /// The name and the version of the states that its protocols save. Default: none, and connections do not move to another process.
    fn state(&self) -> State {
        State::none()
    }

    /// State made once per loop and generation, reached by [`Context::local`]: histograms, caches, scratch space, without
    /// a lock and without a pointer per connection.
    fn local(&self) -> Box<Local> {
        Box::new(())
    }

    /// How [`Step::Close`] may end a connection. Default: [`Closing::PeerMaySend`].
    fn closing(&self) -> Closing {
        Closing::PeerMaySend
    }

    /// Whether `received` is called while the peer does not read. Default: [`Receiving::UntilFull`].
    fn receiving(&self) -> Receiving {
        Receiving::UntilFull
    }

    /// Whether [`Service::open`] needs the peer's address, [`Peer::remote`]. Default: true. If neither the service nor the model nor the
    /// admission policy needs it, the kernel is not asked for it, which saves about 2 % of a short connection's CPU time.
    fn needs_peer_address(&self) -> bool {
        true
    }

    /// A connect failed; there is no connection and no protocol. Only in a pool that connects.
    fn connect_failed(&self, _failure: &ConnectFailure, _local: &mut Local) {}

    /// The name and options from which another process builds this service. Needed by models that run in other processes. Default: none.
    fn recipe(&self) -> Option<Recipe> {
        None
    }
}

/// Per-loop state of a service, made by [`Service::local`].
pub type Local = dyn Any + Send;

/// What a callback asks the loop to do next.
#[non_exhaustive]
#[must_use]
pub enum Step {
    /// Go on.
    Continue,
    /// Go on, but call neither `received` nor `peer_ended` until another callback has returned a different step: backpressure.
    Wait,
    /// Run this job on a worker. One job at a time: until [`Protocol::job_done`], `received` and `peer_ended` wait; other callbacks come.
    Work(Job),
    /// Send what was appended, then give the whole connection to blocking code on a thread of its own. Until it comes back no
    /// callback comes but [`Protocol::closed`]. Not under a layer, and not while a job runs.
    Delegate(Delegate),
    /// Send what was appended, then tell the peer that no more comes; go on receiving.
    EndOutput,
    /// Send what was appended, then end. Every byte is delivered to a peer that reads.
    Close,
    /// End at once, with a reset; what was appended is lost.
    Abort,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Continue => "Continue",
            Step::Wait => "Wait",
            Step::Work(_) => "Work",
            Step::Delegate(_) => "Delegate",
            Step::EndOutput => "EndOutput",
            Step::Close => "Close",
            Step::Abort => "Abort",
        })
    }
}

/// A service's promise about its peers, which decides how [`Step::Close`] ends a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closing {
    /// The peer may have more under way. The connection says that no more comes, then lingers, reading and discarding, so that
    /// no reset destroys the last answer.
    #[default]
    PeerMaySend,
    /// Peers send nothing after a request, as in HTTP/1.0 with `Connection: close`. When all input was taken, the end rides on
    /// the last bytes and the descriptor is free at once: about a fourth less CPU for a short connection.
    PeerIsDone,
}

/// What a connection does with input while its unsent output is above the high-water mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiving {
    /// Input waits in the socket until [`Protocol::writable`]: a peer that sends questions and reads no answers is slowed down.
    #[default]
    UntilFull,
    /// Input is received all the same. For protocols whose output does not grow with their input, such as a client that streams and is
    /// answered: if both ends waited until the other reads, they would wait for ever.
    Always,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The protocol returned [`Step::Close`].
    Orderly,
    /// The protocol returned [`Step::Abort`].
    Aborted,
    /// The socket failed with this errno, for example `ECONNRESET`.
    Error(i32),
    /// A callback panicked.
    Panicked,
    /// The protocol left more input untaken than [`Settings::max_partial`](crate::Settings::max_partial).
    TooLong,
    /// The idle timeout passed ([`Settings::idle`](crate::Settings::idle)): the protocol took no input and the peer no output.
    Idle,
    /// A note arrived above the high-water mark, under [`NotesWhenFull::Close`](crate::NotesWhenFull::Close).
    Overflow,
    /// The connection was purged: [`Pool::purge`](crate::Pool::purge).
    Purged,
    /// The connection was killed: [`Pool::kill`](crate::Pool::kill).
    Killed,
    /// The connection goes on under another service, which restored its state.
    Adopted,
}

/// Bytes received and not yet taken. Mutable, so that a layer can decrypt in place.
pub struct Input<'a> {
    bytes: &'a mut [u8],
    taken: usize,
}

impl<'a> Input<'a> {
    /// Input of all these bytes, none of them taken.
    pub fn new(bytes: &'a mut [u8]) -> Input<'a> {
        Input { bytes, taken: 0 }
    }

    /// The bytes that were received and not taken.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The bytes that were received and not taken, to change in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.taken..]
    }

    /// Takes the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer than `count`: a bug of the protocol, which ends its connection.
    #[inline]
    pub fn take(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.taken, "a protocol took more than there is");
        self.taken += count;
    }

    /// Takes all bytes.
    #[inline]
    pub fn take_all(&mut self) {
        self.taken = self.bytes.len();
    }

    /// The number of bytes taken.
    #[inline]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

/// Bytes to send. The buffer belongs to the loop, not to the connection: bytes that the kernel does not take at once are copied by the loop.
#[derive(Default)]
pub struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Unsent bytes of this connection from before.
    pub(crate) backlog: usize,
    pub(crate) high_water: usize,
    /// A tag or a report of the callback about its connection; rare.
    pub(crate) said: Option<Box<Said>>,
}

/// A tag and a report that a callback gave its connection.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) tag: Option<Tag>,
    pub(crate) report: Option<String>,
}

impl Output {
    /// An empty output with this high-water mark in bytes, for a layer's inner protocol.
    pub fn with_high_water(high_water: usize) -> Output {
        Output { bytes: Vec::new(), backlog: 0, high_water, said: None }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes appended since the callback began.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes appended since the callback began, to change in place: a prepared block is appended at once and its numbers written into it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Discards what was appended and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Bytes left below the high-water mark, unsent bytes counted. Advice: more is kept too, but `received` then waits until the
    /// peer has read, unless the service is [`Receiving::Always`]; [`Protocol::writable`] tells when it has.
    pub fn room(&self) -> usize {
        self.high_water.saturating_sub(self.backlog + self.bytes.len())
    }
}

/// A connection's number, unique in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ConnectionId(pub u64);

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Side {
    /// A listener accepted it.
    Accepted,
    /// A connector made it.
    Connected,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    remote: Option<SocketAddr>,
    /// The kernel was not asked for the peer's address.
    unnamed: bool,
    side: Side,
    lag: Duration,
    connect_time: Duration,
}

impl Peer {
    /// An accepted peer whose address the kernel was not asked for.
    pub(crate) const UNNAMED: Peer =
        Peer { remote: None, unnamed: true, side: Side::Accepted, lag: Duration::ZERO, connect_time: Duration::ZERO };

    /// A peer at `remote`; None for a Unix socket.
    pub fn new(remote: Option<SocketAddr>, side: Side) -> Peer {
        Peer { remote, unnamed: false, side, lag: Duration::ZERO, connect_time: Duration::ZERO }
    }

    /// The peer's address. None for a Unix socket, for a service that [does not need it](Service::needs_peer_address), and if the service
    /// came into force at the moment of the accept and the peer was gone already.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Whether the connection was accepted or made by connecting.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The time from the start of the connect until the connection was established; zero on the accepting side.
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// The time from when the connect was due until it began, if [`Connecting::rate`](crate::connecting::Connecting::rate) is a schedule
    /// ([`Late::MakeUp`](crate::connecting::Late::MakeUp)); otherwise zero. A measurement of a schedule adds it to the connect time.
    pub fn lag(&self) -> Duration {
        self.lag
    }

    /// This peer with another address, for layers that learn the real one.
    #[must_use]
    pub fn with_remote(&self, remote: SocketAddr) -> Peer {
        Peer { remote: Some(remote), unnamed: false, ..self.clone() }
    }

    pub(crate) fn is_unnamed(&self) -> bool {
        self.unnamed
    }

    pub(crate) fn with_lag(mut self, lag: Duration) -> Peer {
        self.lag = lag;
        self
    }

    pub(crate) fn with_connect_time(mut self, connect_time: Duration) -> Peer {
        self.connect_time = connect_time;
        self
    }
}

/// A connect that did not become a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFailure {
    /// The target's address; None for a Unix socket.
    pub target: Option<SocketAddr>,
    /// The errno; `ETIMEDOUT` also for the pool's own timeout, `ECONNREFUSED` also for a connection to itself.
    pub errno: i32,
    /// The time from the start of the connect to the failure.
    pub after: Duration,
    /// How late the connect began: see [`Peer::lag`].
    pub lag: Duration,
}

/// What a callback asked of the connection's one timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The timer stays as it was.
    #[default]
    Keep,
    Off,
    At(Instant),
}

/// A connection as its protocol sees it during one callback. It gives no access to the descriptor.
pub struct Context<'a> {
    pub(crate) out: &'a mut Output,
    pub(crate) timer: &'a mut Timer,
    pub(crate) local: &'a mut Local,
    /// The clock is read at the first call of [`Context::now`]; the value holds for the whole callback.
    pub(crate) now: &'a Cell<Option<Instant>>,
    pub(crate) post: &'a Arc<dyn Post>,
    pub(crate) token: u64,
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    pub(crate) draining: bool,
}

impl Context<'_> {
    /// Appends bytes to send.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) {
        self.out.push(bytes);
    }

    /// The output: append to it, or ask how much fits below the high-water mark.
    pub fn out(&mut self) -> &mut Output {
        self.out
    }

    /// The time, read from the clock at the first call in a callback and unchanged until the callback ends. Not calling it costs nothing.
    pub fn now(&self) -> Instant {
        self.now.get().unwrap_or_else(|| {
            let now = Instant::now();
            self.now.set(Some(now));
            now
        })
    }

    /// Sets the connection's one timer; an earlier setting is replaced. It never fires early. It fires up to 17 µs late, and in a pool
    /// that accepts up to 50 µs more, the timer slack of a thread in Linux; the wake-up and whatever the loop is busy with come on top.
    pub fn set_timer(&mut self, after: Duration) {
        // A time that the clock cannot represent never comes.
        *self.timer = self.now().checked_add(after).map_or(Timer::Off, Timer::At);
    }

    /// Sets the connection's one timer to a point in time: see [`Context::set_timer`].
    pub fn set_timer_at(&mut self, at: Instant) {
        *self.timer = Timer::At(at);
    }

    /// Stops the timer.
    pub fn clear_timer(&mut self) {
        *self.timer = Timer::Off;
    }

    /// A handle that sends notes to this connection from any thread. It may outlive the connection.
    pub fn handle(&self) -> Handle {
        Handle { post: self.post.clone(), token: self.token }
    }

    /// Gives this connection a tag, a short text for [`Selector::Tag`](crate::Selector::Tag) and lists. A tag has at most 64 bytes, the
    /// rest is cut off; an empty text removes it. It stays when another service adopts the connection.
    pub fn tag(&mut self, text: &str) {
        self.out.said.get_or_insert_default().tag = Some(tag(text));
    }

    /// Reports something about this connection to the pool's observer, as [`Event::Reported`](crate::observe::Event::Reported): for example the
    /// peer's mistake for which it is ended. Only the last report of a callback counts; a loop passes on at most ten per second.
    pub fn report(&mut self, message: impl Into<String>) {
        self.out.said.get_or_insert_default().report = Some(message.into());
    }

    /// The state that [`Service::local`] made for this loop and generation; None if its type is not `T`.
    pub fn local<T: 'static>(&mut self) -> Option<&mut T> {
        self.local.downcast_mut()
    }

    /// This connection's number.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The number of the generation this connection belongs to.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether this connection was asked to end.
    pub fn draining(&self) -> bool {
        self.draining
    }

    /// For layers: calls the inner protocol with a context that writes to `out` and is otherwise this connection's.
    pub fn nested<R>(&mut self, out: &mut Output, call: impl FnOnce(&mut Context<'_>) -> R) -> R {
        out.backlog = self.out.backlog + self.out.bytes.len();
        let result = call(&mut Context {
            out: &mut *out,
            timer: &mut *self.timer,
            local: &mut *self.local,
            now: self.now,
            post: self.post,
            token: self.token,
            id: self.id,
            generation: self.generation,
            draining: self.draining,
        });
        if let Some(inner) = out.said.take() {
            let said = self.out.said.get_or_insert_default();
            said.tag = inner.tag.or(said.tag.take());
            said.report = inner.report.or(said.report.take());
        }
        result
    }
}

/// The name and options of a service, from which another process builds an equal one.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recipe {
    /// The name under which the service is registered: see `sockdrawer::processes`.
    pub name: String,
    /// The service's options, in a format of its own.
    pub options: Vec<u8>,
}
