//! The code that you write: a protocol is a state machine that takes bytes and returns a [`Step`]. It has no sockets, no clock and no loop, so the
//! same code runs under every model, on either end of a connection, and in a test without any of them.
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
//!         cx.send(input.take_all());
//!         Step::Continue
//!     }
//! }
//! ```

mod asks;
mod codec;
mod context;
mod debug;
mod delegate;
mod group;
mod input;
mod job;
mod lent;
mod note;
mod output;
mod peer;
mod report;
mod saved;
mod state;
mod tag;
mod timers;
mod wiped;

pub(crate) use asks::{Asks, LateAdmission, Learned, Statements, Told};
pub use asks::{Connect, HandshakeKind};
pub use codec::{Codec, Lines, Prefixed};
pub(crate) use context::Timer;
pub use context::{Carried, Context};
pub use delegate::{After, Delegate};
pub use group::{Group, Groups};
pub(crate) use group::{GroupMembers, Membership};
#[cfg(test)]
pub(crate) use input::input_searched;
pub use input::{Input, TooLong};
pub use job::{Job, JobError, JobResult};
pub(crate) use lent::{Decoded, Lend, Pass, READS_NO_ANSWERS, TOO_LONG, decode_all};
#[doc(hidden)]
pub use lent::{Lent, Passage};
pub use note::{Handle, Note, NotifyError};
pub(crate) use note::{Post, Sender, Urgency, Waiter};
pub use output::Output;
pub(crate) use peer::UNNAMED;
pub use peer::{ConnectFailure, ConnectionId, Peer, Side};
pub use report::{Field, Report};
pub use saved::{CannotRestore, CannotSave, Saved, Saver};
pub(crate) use state::Level;
pub use state::State;
pub(crate) use tag::{Tag, tag};
pub use timers::Timers;
pub(crate) use wiped::Wiped;

use std::any::Any;

/// The behaviour of one connection. All callbacks of a connection run one after another, never two at once.
///
/// A panic in any of them ends this connection only, with a reset, and is counted.
pub trait Protocol: Send + 'static {
    /// Called when the connection is open; nothing was received yet.
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Bytes arrived. Take what is whole and leave the rest: it comes again, with what follows it. What is left may grow to
    /// the generation's `max_partial`; beyond it the connection ends with [`Closed::TooLong`].
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step;

    /// Called when the peer will send no more; it may still read. Comes after kept input and after a running job.
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// Called when the timer set by [`Context::set_timer`] is due. It is off until it is set again.
    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// Called when the job asked for by [`Step::Work`] ended.
    fn job_done(&mut self, _result: JobResult, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Called when a note arrived, sent through a [`Handle`] or by [`PoolHandle::notify`](crate::PoolHandle::notify). Notes of one sender arrive in order.
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Called with the result of [`Context::connect`]: a handle to the connection that was made, for [`Step::Relay`] or for notes, or why there is
    /// none. It runs a protocol that the service [opened](Service::open) for [`Side::Connected`].
    fn connected(&mut self, _result: Result<Handle, ConnectFailure>, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Called when there is room for more output: asked for by [`Context::wake_below`], or the unsent output was above the high-water mark and fell
    /// to the low one.
    fn writable(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Called when the pool asks this connection to end, once, at a quiet point: no partial message was received and no job runs. A drain and
    /// a purge call it; retiring a generation does not. [`Step::Continue`] means that the protocol will end the connection soon by itself.
    /// Shortly before a drain's deadline it is called though a message is partial. A protocol that closes then, and says nothing, leaves a request
    /// unanswered: the connection is cut off, as at the deadline.
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }

    /// Called last, with the reason of the connection's end. Output and timers asked for here are ignored; a report is passed on.
    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {}

    /// Called when the connection goes on with this state, which [`Service::restore`] made: in [`Pool::adopt`](crate::Pool::adopt), or in another
    /// process. Time to join what the state before it had joined, and to keep the handle. Timer, tag, untaken input and unsent output came
    /// along, and input that was paused stays so.
    fn restored(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    /// Returns whether the peer waits for an answer of which the pool cannot know, as where a part of a request was taken. Asked where a drain
    /// ends the connection: it is cut off then, and counted so. Input that was not taken says it by itself. Default: false.
    fn owes(&self) -> bool {
        false
    }

    /// Writes the state as plain bytes, so that a newer service, or another process, goes on with the connection. Nothing may come of it:
    /// it must not change the state. Not called while a job runs.
    ///
    /// # Errors
    /// When the state cannot be saved, which is the default: the connection stays with its service.
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Err(CannotSave::because("its protocol does not save its state"))
    }

    /// Returns, for layers, whether the peer's address is still to be learned.
    #[doc(hidden)]
    fn awaits_peer(&self) -> bool {
        false
    }

    /// Lends the filter, for layers: the connection is about to be leased, by [`Step::Delegate`]; the lessee's bytes pass what is returned.
    #[doc(hidden)]
    fn lend(&mut self) -> Option<Lent> {
        None
    }

    /// Returns, for layers, what the bytes of a relay pass; None where they pass nothing.
    #[doc(hidden)]
    fn passage(&mut self) -> Option<Passage<'_>> {
        None
    }
}

/// Makes a protocol for each connection. One service is one generation of a pool.
pub trait Service: Send + Sync + 'static {
    /// The state of one connection.
    type Protocol: Protocol;

    /// Makes a new connection's state. A panic here ends that connection only.
    fn open(&self, peer: &Peer) -> Self::Protocol;

    /// Makes the state of a connection from what an older service saved. Nothing may come of it either: what is to be done when the
    /// connection goes on with it belongs to [`Protocol::restored`].
    ///
    /// # Errors
    /// When these bytes are not a state that this service knows, which is the default: the connection stays with the older service.
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Self::Protocol, CannotRestore> {
        Err(CannotRestore::because("its service does not restore states"))
    }

    /// Returns the name and the version of the states that its protocols save. Default: none, and connections do not move to another process.
    fn state(&self) -> State {
        State::none()
    }

    /// Makes the state of a loop, once per loop and generation, reached by [`Context::local`]: histograms, caches, scratch space, without a lock and
    /// without a pointer per connection.
    fn local(&self) -> Box<Local> {
        Box::new(())
    }

    /// Returns how [`Step::Close`] may end a connection. Default: [`Closing::PeerMaySend`].
    fn closing(&self) -> Closing {
        Closing::PeerMaySend
    }

    /// Returns whether `received` is called while the peer does not read. Default: [`Receiving::UntilFull`].
    fn receiving(&self) -> Receiving {
        Receiving::UntilFull
    }

    /// Returns whether [`Service::open`] needs the peer's address, [`Peer::remote`]. Default: true. If neither the service nor the model nor the
    /// admission policy needs it, the kernel is not asked for it, which saves about 2 % of a short connection's CPU time.
    fn needs_peer_address(&self) -> bool {
        true
    }

    /// Returns whether a layer may learn the peer's real address when the connection is open already: see
    /// [`Filtering::learns_peer_address`](crate::layer::Filtering::learns_peer_address), which a service hands on if it has a service inside.
    /// Default: false.
    fn learns_peer_address(&self) -> bool {
        false
    }

    /// Returns the longest record of the layers, which bounds untaken input where [`Settings::max_partial`](crate::Settings::max_partial) is less:
    /// see [`Filtering::longest_record`](crate::layer::Filtering::longest_record). A service hands it on if it has a service inside. Default: 0.
    fn longest_record(&self) -> usize {
        0
    }

    /// Called when a connect failed; there is no connection and no protocol. Only in a pool that connects.
    fn connect_failed(&self, _failure: &ConnectFailure, _local: &mut Local) {}

    /// Returns the name and options from which another process builds this service. Needed by models that run in other processes. Default: none.
    fn recipe(&self) -> Option<Recipe> {
        None
    }
}

/// Per-loop state of a service, made by [`Service::local`].
pub type Local = dyn Any + Send;

/// The request of a callback to its loop: what to do next.
#[non_exhaustive]
#[must_use]
pub enum Step {
    /// Go on.
    Continue,
    /// Run this job on a worker. One job at a time: until [`Protocol::job_done`], `received` and `peer_ended` wait; other callbacks come.
    Work(Job),
    /// Send what was appended, then give the whole connection to blocking code on a thread of its own. Until it comes back no
    /// callback comes but [`Protocol::closed`]. Under a layer the code reads and writes plain bytes. Not while a job runs, a connect is under way
    /// or the connection is relayed.
    Delegate(Delegate),
    /// Join this connection with that of the handle, which is in the same loop: one that [`Context::connect`] made is. What each peer sends
    /// goes to the other, ends included, through a buffer of the loop: a peer that does not read slows the other down, and a reset is passed on
    /// as a reset. Input that was not taken goes first. Neither protocol hears of the bytes any more, nor of a drain: of its callbacks
    /// `notified`, `timeout`, `connected`, `job_done` and `closed` are left. When one of the connections ends, so does the other; a purge resets
    /// both, because nothing says where the stream is whole. Under layers the plain bytes go over, goodbyes included. Not after [`Step::EndOutput`],
    /// and not while one of the two runs a job, is delegated or is relayed already.
    Relay(Handle),
    /// Send what was appended, then tell the peer that no more comes; go on receiving.
    EndOutput,
    /// Send what was appended, then end. Every byte is delivered to a peer that reads: what the kernel has not taken within
    /// [`Settings::flush`](crate::Settings::flush) is cut off by a reset, and counted.
    Close,
    /// End at once, with a reset; what was appended is lost.
    Abort,
}

impl Step {
    /// Returns what a protocol asks for when it is opened: a delegate is told which peer that was, by the innermost layer.
    /// Inlined: most protocols ask for nothing, which the compiler knows.
    #[inline(always)]
    pub(crate) fn opened_with(self, peer: &Peer) -> Step {
        match self {
            Step::Delegate(delegate) => Step::Delegate(delegate.opened_with(peer)),
            other => other,
        }
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Continue => "Continue",
            Step::Work(_) => "Work",
            Step::Delegate(_) => "Delegate",
            Step::Relay(_) => "Relay",
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

/// The choice between waiting and receiving while a connection's unsent output is above the high-water mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiving {
    /// Input waits in the socket until [`Protocol::writable`]: a peer that sends questions and reads no answers is slowed down.
    #[default]
    UntilFull,
    /// Input is received all the same. For protocols whose output does not grow with their input, such as a client that streams and is
    /// answered: if both ends waited until the other reads, they would wait for ever.
    Always,
}

/// Reason why a connection ended.
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
    /// A note arrived while more than [`Settings::max_unsent`](crate::Settings::max_unsent) bytes were unsent.
    Overflow,
    /// The connection was purged: [`Pool::purge`](crate::Pool::purge).
    Purged,
    /// The connection was killed: [`Pool::kill`](crate::Pool::kill).
    Killed,
    /// The connection goes on under another service, which restored its state.
    Adopted,
}

/// The name and options of a service, from which another process builds an equal one. The options may be secret: they are not printed.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recipe {
    /// The name under which the service is registered: see `sockdrawer::processes`.
    pub name: String,
    /// The service's options, in a format of its own.
    pub options: Vec<u8>,
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recipe")
            .field("name", &self.name)
            .field("options", &format_args!("{} bytes", self.options.len()))
            .finish()
    }
}
