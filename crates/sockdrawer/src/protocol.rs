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

use crate::sys::inline::{InlineCall, InlineValue};
use std::any::Any;
use std::cell::Cell;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

    /// The backlog of unsent output was above the high-water mark and fell below the low one: produce more.
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
        Err(CannotSave)
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
        Err(CannotRestore)
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
    pub fn take(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.taken, "a protocol took more than there is");
        self.taken += count;
    }

    /// Takes all there is.
    pub fn take_all(&mut self) {
        self.taken = self.bytes.len();
    }

    /// How many bytes were taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether all was taken.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

/// Bytes to send. It belongs to the loop, not to the connection: what does not leave at once is kept by the flow.
#[derive(Default)]
pub struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Unsent bytes of this connection from before.
    pub(crate) backlog: usize,
    pub(crate) high_water: usize,
}

impl Output {
    /// An empty one with this high-water mark, for a layer's inner protocol.
    pub fn with_high_water(high_water: usize) -> Output {
        Output { bytes: Vec::new(), backlog: 0, high_water }
    }

    /// Appends `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What was appended since the callback began.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what was appended, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Bytes until the high-water mark, unsent ones included. Advice: more is kept too, but `received` then waits until the
    /// peer has read, and [`Protocol::writable`] says when.
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
    side: Side,
    connect_time: Duration,
}

impl Peer {
    /// A peer at `remote`; None for a Unix socket.
    pub fn new(remote: Option<SocketAddr>, side: Side) -> Peer {
        Peer { remote, side, connect_time: Duration::ZERO }
    }

    /// Its address; None for a Unix socket.
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

    /// The same peer behind another address, for layers that learn the real one.
    #[must_use]
    pub fn with_remote(&self, remote: SocketAddr) -> Peer {
        Peer { remote: Some(remote), ..self.clone() }
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

    /// Sets the connection's one timer, in place of what was set before. Never early; late by up to 70 µs plus what the loop
    /// is busy with.
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
        call(&mut Context {
            out,
            timer: &mut *self.timer,
            local: &mut *self.local,
            now: self.now,
            post: self.post,
            token: self.token,
            id: self.id,
            generation: self.generation,
            draining: self.draining,
        })
    }
}

/// Where handles put their notes: a loop's inbox, or a test's.
pub(crate) trait Post: Send + Sync {
    fn post(&self, token: u64, note: Note) -> Result<(), NotifyError>;
}

/// A way to speak to one connection from another connection or thread. Once the connection is gone, notes are dropped.
#[derive(Clone)]
pub struct Handle {
    pub(crate) post: Arc<dyn Post>,
    pub(crate) token: u64,
}

impl Handle {
    /// Brings `note` to the connection's [`Protocol::notified`], never waiting. Notes of one sender arrive in order.
    ///
    /// # Errors
    /// When the loop's inbox is full; the note comes back.
    pub fn notify(&self, note: impl Into<Note>) -> Result<(), NotifyError> {
        self.post.post(self.token, note.into())
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({:#x})", self.token)
    }
}

/// What a handle or the pool tells a connection.
#[non_exhaustive]
pub enum Note {
    /// Bytes shared by all who get them.
    Bytes(Arc<[u8]>),
    /// Any value, for one.
    Value(Box<dyn Any + Send>),
}

impl Note {
    /// Any value, for [`Note::take`] on the other side.
    pub fn value<T: Any + Send>(value: T) -> Note {
        Note::Value(Box::new(value))
    }

    /// The bytes, when it carries bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Note::Bytes(bytes) => Some(bytes),
            Note::Value(_) => None,
        }
    }

    /// The value, when it is a `T`; else the note again.
    pub fn take<T: Any>(self) -> Result<T, Note> {
        match self {
            Note::Value(value) => value.downcast().map(|value| *value).map_err(Note::Value),
            bytes @ Note::Bytes(_) => Err(bytes),
        }
    }
}

impl From<Arc<[u8]>> for Note {
    fn from(bytes: Arc<[u8]>) -> Note {
        Note::Bytes(bytes)
    }
}

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Bytes(bytes) => write!(f, "Note({} bytes)", bytes.len()),
            Note::Value(_) => f.write_str("Note(value)"),
        }
    }
}

/// A note that could not be brought.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The inbox of the connection's loop is full: the loop is slower than its senders. Try later or drop it.
    #[error("the loop's inbox is full: send less, or again later")]
    Full(Note),
}

/// Work too slow for a loop: runs on a worker, or in place where there are none.
pub struct Job(Call);

enum Call {
    Inline(InlineCall),
    Boxed(Box<dyn FnOnce() -> InlineValue + Send>),
}

impl Job {
    /// A job of up to 96 bytes of captures and 96 bytes of result, which costs no allocation. Larger ones do not compile.
    pub fn new<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Job {
        Job(Call::Inline(InlineCall::new(job)))
    }

    /// A job with captures of any size, in a box. A larger result must be boxed by the job.
    pub fn boxed<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Job {
        Job(Call::Boxed(Box::new(move || InlineValue::new(job()))))
    }

    pub(crate) fn run(self) -> JobResult {
        let run = AssertUnwindSafe(|| match self.0 {
            Call::Inline(call) => call.call(),
            Call::Boxed(call) => call(),
        });
        match catch_unwind(run) {
            Ok(value) => JobResult(Ok(value)),
            Err(payload) => JobResult(Err(Failure { error: JobError::Panicked, panic: Some(payload) })),
        }
    }
}

/// How a job ended.
pub struct JobResult(Result<InlineValue, Failure>);

struct Failure {
    error: JobError,
    panic: Option<Box<dyn Any + Send>>,
}

impl JobResult {
    /// Of a job that was not run.
    pub(crate) fn refused(error: JobError) -> JobResult {
        JobResult(Err(Failure { error, panic: None }))
    }

    /// What a panicking job threw, for whoever counts it.
    pub(crate) fn take_panic(&mut self) -> Option<Box<dyn Any + Send>> {
        self.0.as_mut().err()?.panic.take()
    }

    /// What the job returned.
    ///
    /// # Errors
    /// When it panicked or was never run.
    ///
    /// # Panics
    /// When `T` is not the type the job returned: a bug of the protocol.
    pub fn take<T: 'static>(self) -> Result<T, JobError> {
        self.0
            .map_err(|failure| failure.error)
            .map(|value| value.take().ok().expect("a protocol takes its job's result as the type the job returned"))
    }
}

impl std::fmt::Debug for JobResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobResult({:?})", self.0.as_ref().map(|_| ()).map_err(|failure| failure.error))
    }
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The job panicked; its worker lives on.
    #[error("the job panicked")]
    Panicked,
    /// The workers' queue is full; the job was not run.
    #[error("the workers' queue is full")]
    QueueFull,
}

/// Name and options from which another process builds the same service.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recipe {
    /// The name it is registered by.
    pub name: String,
    /// Its options, in a form of the service's own.
    pub options: Vec<u8>,
}

/// State as plain bytes, little-endian. A layer writes after its inner protocol.
#[derive(Debug, Default)]
pub struct Saver {
    pub(crate) bytes: Vec<u8>,
}

impl Saver {
    /// Appends a number.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// Appends bytes and their count.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    /// What was written.
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }
}

/// State that was saved, read in the order of writing.
#[derive(Debug)]
pub struct Saved<'a> {
    bytes: &'a [u8],
}

impl<'a> Saved<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Saved<'a> {
        Saved { bytes }
    }

    /// The next number.
    ///
    /// # Errors
    /// When there is none.
    pub fn u64(&mut self) -> Result<u64, CannotRestore> {
        let (value, rest) = self.bytes.split_first_chunk().ok_or(CannotRestore)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*value))
    }

    /// The next bytes.
    ///
    /// # Errors
    /// When there are fewer than were written.
    pub fn bytes(&mut self) -> Result<&'a [u8], CannotRestore> {
        let count = usize::try_from(self.u64()?).map_err(|_| CannotRestore)?;
        let (bytes, rest) = self.bytes.split_at_checked(count).ok_or(CannotRestore)?;
        self.bytes = rest;
        Ok(bytes)
    }
}

/// This state cannot be saved, now or ever; the connection stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this state cannot be saved")]
pub struct CannotSave;

/// These bytes are not a state this service knows; the connection stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this state cannot be restored")]
pub struct CannotRestore;
