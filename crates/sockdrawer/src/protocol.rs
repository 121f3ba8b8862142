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
mod tag;

pub use delegate::{After, Delegate};
pub use job::{Job, JobError, JobResult};
pub(crate) use note::Post;
pub use note::{Handle, Note, NotifyError};
pub use saved::{CannotRestore, CannotSave, Saved, Saver};
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
    fn finished(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// The timer set by [`Context::set_timer`] is due. It is off until it is set again.
    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// The job asked for by [`Step::Work`] ended.
    fn done(&mut self, _result: JobResult, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Another connection or thread spoke through a [`Handle`] or the pool. In order for each sender.
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// The backlog of unsent output was above the high-water mark and fell to the low one: produce more. Not called where the
    /// kernel took so much that the mark was not passed.
    fn writable(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Please end. Called once, at a quiet point: nothing partial was received and no job runs. Retiring a generation does not
    /// call it; a drain and a purge do. Returning [`Step::Continue`] means "soon, by myself".
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// The last call. Output and timers asked for here are ignored.
    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {}

    /// Writes the state as plain bytes, so that a newer service, or another process, goes on with the connection. Not called
    /// while a job runs. An error keeps the connection where it is.
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

    /// The state of a connection that an older service saved.
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Self::Protocol, CannotRestore> {
        Err(CannotRestore::because("its service does not restore states"))
    }

    /// Made once for each loop and generation and reached by [`Context::local`]: histograms, caches, scratch space, without
    /// a lock and without a pointer per connection.
    fn local(&self) -> Box<Local> {
        Box::new(())
    }

    /// How [`Step::Close`] may end a connection.
    fn closing(&self) -> Closing {
        Closing::PeerMaySend
    }

    /// Whether input comes while the peer does not read.
    fn receiving(&self) -> Receiving {
        Receiving::UntilFull
    }

    /// Whether [`Service::open`] looks at [`Peer::remote`]. Where nobody does, neither it nor the model nor the pool's policy, those who
    /// are accepted come without it, which saves about 2 % of a short connection.
    fn asks_for_remote(&self) -> bool {
        true
    }

    /// A connect towards a target failed; there is no connection and no protocol. Connect pools only.
    fn connect_failed(&self, _failure: &ConnectFailure, _local: &mut Local) {}

    /// From what another process builds the same service. Models that run in other processes need it.
    fn recipe(&self) -> Option<Recipe> {
        None
    }
}

/// What [`Service::local`] makes.
pub type Local = dyn Any + Send;

/// What a callback asks for.
#[non_exhaustive]
#[must_use]
pub enum Step {
    /// Go on.
    Continue,
    /// Go on, but call neither `received` nor `finished` until another callback returned something else: backpressure.
    Wait,
    /// Run this elsewhere. One job at a time: until [`Protocol::done`], `received` and `finished` wait; all else comes.
    Work(Job),
    /// Send what was appended, then give the whole connection to blocking code on a thread of its own. Until it comes back no
    /// callback comes but [`Protocol::closed`]. Not under a layer, and not while a job runs.
    Delegate(Delegate),
    /// Send what was appended, then tell the peer that no more comes; go on receiving.
    Finish,
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
            Step::Finish => "Finish",
            Step::Close => "Close",
            Step::Abort => "Abort",
        })
    }
}

/// What the service promises about its peers, which decides how [`Step::Close`] ends a connection.
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
    /// It waits in the socket until [`Protocol::writable`]: who sends questions and reads no answers is slowed down.
    #[default]
    UntilFull,
    /// It comes all the same. For protocols whose output does not grow with their input, such as a client that streams and is
    /// answered: if both ends waited until the other reads, they would wait for ever.
    Always,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The protocol returned [`Step::Close`].
    Done,
    /// The protocol returned [`Step::Abort`].
    Aborted,
    /// The socket failed with this errno, for example `ECONNRESET`.
    Error(i32),
    /// A callback panicked.
    Panicked,
    /// More input was left untaken than `max_partial`.
    TooLong,
    /// Its protocol took nothing, and its peer neither, for as long as the generation's `idle` allows.
    Idle,
    /// A note arrived above the high-water mark and the policy is to close.
    Overflow,
    /// The pool purged it.
    Purged,
    /// The pool killed it.
    Killed,
    /// It goes on under another service, which restored its state.
    Adopted,
}

/// Bytes received and not yet taken. Mutable, so that a layer can decrypt in place.
pub struct Input<'a> {
    bytes: &'a mut [u8],
    taken: usize,
}

impl<'a> Input<'a> {
    /// All of `bytes`, none taken.
    pub fn new(bytes: &'a mut [u8]) -> Input<'a> {
        Input { bytes, taken: 0 }
    }

    /// What is there and not taken.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The same, to change in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.taken..]
    }

    /// Takes the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer: a bug of the protocol, which ends its connection.
    #[inline]
    pub fn take(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.taken, "a protocol took more than there is");
        self.taken += count;
    }

    /// Takes all there is.
    #[inline]
    pub fn take_all(&mut self) {
        self.taken = self.bytes.len();
    }

    /// How many bytes were taken.
    #[inline]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether all was taken.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

/// Bytes to send. It belongs to the loop, not to the connection: what does not leave at once is kept by the event loop.
#[derive(Default)]
pub struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Unsent bytes of this connection from before.
    pub(crate) backlog: usize,
    pub(crate) high_water: usize,
    /// What the callback said about its connection; hardly ever anything.
    pub(crate) said: Option<Box<Said>>,
}

/// What a callback says about its connection.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) tag: Option<Tag>,
    pub(crate) report: Option<String>,
}

impl Output {
    /// An empty one with this high-water mark, for a layer's inner protocol.
    pub fn with_high_water(high_water: usize) -> Output {
        Output { bytes: Vec::new(), backlog: 0, high_water, said: None }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What was appended since the callback began.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to change in place: a prepared block is appended at once and its numbers written into it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Forgets what was appended, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Bytes until the high-water mark, unsent ones included. Advice: more is kept too, but `received` then waits until the
    /// peer has read, unless the service is [`Receiving::Always`], and [`Protocol::writable`] says when.
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

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    remote: Option<SocketAddr>,
    /// Nobody wanted to know.
    unnamed: bool,
    side: Side,
    lag: Duration,
    connect_time: Duration,
}

impl Peer {
    /// One that was accepted and not asked for.
    pub(crate) const UNNAMED: Peer =
        Peer { remote: None, unnamed: true, side: Side::Accepted, lag: Duration::ZERO, connect_time: Duration::ZERO };

    /// A peer at `remote`; None for a Unix socket.
    pub fn new(remote: Option<SocketAddr>, side: Side) -> Peer {
        Peer { remote, unnamed: false, side, lag: Duration::ZERO, connect_time: Duration::ZERO }
    }

    /// Its address; None for a Unix socket, for a service that does not [ask for it](Service::asks_for_remote), and where the service came
    /// into force in the moment of the accept and the peer was gone already.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Whether it was accepted or connected.
    pub fn side(&self) -> Side {
        self.side
    }

    /// From the start of the connect until it stood; zero on the accepting side.
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// From when the connect was due until it began, where [`Connecting::rate`](crate::Connecting::rate) is a schedule
    /// ([`Late::MakeUp`](crate::Late::MakeUp)): whoever measures one adds it to the connect time. Else zero.
    pub fn lag(&self) -> Duration {
        self.lag
    }

    /// The same peer behind another address, for layers that learn the real one.
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
    /// Where to; None for a Unix socket.
    pub target: Option<SocketAddr>,
    /// Why: the errno; `ETIMEDOUT` also for the pool's own time-out, `ECONNREFUSED` also for a connection to itself.
    pub errno: i32,
    /// How long it took.
    pub after: Duration,
    /// How late it began: see [`Peer::lag`].
    pub lag: Duration,
}

/// What a callback asked of the connection's one timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Nothing: it stays as it was.
    #[default]
    Keep,
    Off,
    At(Instant),
}

/// The connection, as its protocol sees it during one callback. Never the descriptor.
pub struct Context<'a> {
    pub(crate) out: &'a mut Output,
    pub(crate) timer: &'a mut Timer,
    pub(crate) local: &'a mut Local,
    /// Read at the first question, then the same for the whole callback.
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

    /// The output, to append to it and to ask for the room left.
    pub fn out(&mut self) -> &mut Output {
        self.out
    }

    /// The time, exact; the same for the whole callback. Costs nothing where it is not asked.
    pub fn now(&self) -> Instant {
        self.now.get().unwrap_or_else(|| {
            let now = Instant::now();
            self.now.set(Some(now));
            now
        })
    }

    /// Sets the connection's one timer, in place of what was set before. Never early; late by up to 17 µs, and in a pool that does not
    /// connect by 50 µs more, which the kernel may let a thread wait longer; then come the wake-up and what the loop is busy with.
    pub fn set_timer(&mut self, after: Duration) {
        // Farther than the clock can say is never.
        *self.timer = self.now().checked_add(after).map_or(Timer::Off, Timer::At);
    }

    /// The same for a point in time.
    pub fn set_timer_at(&mut self, at: Instant) {
        *self.timer = Timer::At(at);
    }

    /// Sets the timer off.
    pub fn clear_timer(&mut self) {
        *self.timer = Timer::Off;
    }

    /// A way to speak to this connection from anywhere, that outlives it harmlessly.
    pub fn handle(&self) -> Handle {
        Handle { post: self.post.clone(), token: self.token }
    }

    /// Calls this connection by a short text, for [`Selector::Tag`](crate::Selector::Tag) and lists: more than 64 bytes are cut off,
    /// an empty text takes the tag away. It stays when another service adopts the connection.
    pub fn tag(&mut self, text: &str) {
        self.out.said.get_or_insert_default().tag = Some(tag(text));
    }

    /// Tells the pool's observer something about this connection, as [`Event::Reported`](crate::Event::Reported): the peer's mistake, for
    /// example, for which it is ended. The last report of a callback counts; at most ten a second are told for each loop.
    pub fn report(&mut self, message: impl Into<String>) {
        self.out.said.get_or_insert_default().report = Some(message.into());
    }

    /// What [`Service::local`] made for this loop and generation; None when it is of another type.
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

    /// For layers: the inner protocol writes to `out`; all else is the connection's own.
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

/// Name and options from which another process builds the same service.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recipe {
    /// The name it is registered by.
    pub name: String,
    /// Its options, in a form of the service's own.
    pub options: Vec<u8>,
}
