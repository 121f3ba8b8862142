//! Requests of a callback to its loop, beside its step.

use super::note::Handle;
use super::peer::{ConnectFailure, Peer};
use super::report::Report;
use super::tag::Tag;
use crate::net::Address;
use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

/// Requests of a callback, beside its step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asks {
    bits: u8,
    /// Number of unsent bytes at which `writable` is to be called, with [`Asks::WAKE`].
    pub(crate) wake_below: u32,
}

impl Asks {
    /// There is something in [`Output::said`].
    pub(crate) const SAID: u8 = 1;
    /// No input is wanted until it is resumed.
    pub(crate) const PAUSE: u8 = 1 << 1;
    pub(crate) const RESUME: u8 = 1 << 2;
    /// `writable` is to be called.
    pub(crate) const WAKE: u8 = 1 << 3;
    /// No input is offered before the loop of a receiver has room for notes.
    pub(crate) const HOLD: u8 = 1 << 4;
    /// A handle was given away.
    pub(crate) const HANDLE: u8 = 1 << 5;
    /// The handshake of a layer is not complete, of a connection that this side made; in the last call, it never was.
    pub(crate) const SHAKING: u8 = 1 << 6;
    /// The handshake of a layer is complete, of a connection that this side made.
    pub(crate) const SHAKEN: u8 = 1 << 7;

    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self.bits == 0
    }

    pub(crate) fn has(self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    pub(crate) fn add(&mut self, bit: u8) {
        // The last of the two counts.
        self.bits &= !match bit {
            Asks::PAUSE => Asks::RESUME,
            Asks::RESUME => Asks::PAUSE,
            _ => 0,
        };
        self.bits |= bit;
    }

    /// Returns true where input is paused from now on, false where it is resumed; None: as before.
    pub(crate) fn pauses(self) -> Option<bool> {
        (self.has(Asks::PAUSE) || self.has(Asks::RESUME)).then(|| self.has(Asks::PAUSE))
    }

    /// Adds what an inner protocol asked for.
    pub(crate) fn join(&mut self, inner: Asks) {
        for bit in [Asks::SAID, Asks::PAUSE, Asks::RESUME, Asks::WAKE, Asks::HOLD, Asks::HANDLE, Asks::SHAKING, Asks::SHAKEN] {
            if inner.has(bit) {
                self.add(bit);
            }
        }
        if inner.has(Asks::WAKE) {
            self.wake_below = inner.wake_below;
        }
    }
}

/// Statements of a callback about its connection.
#[derive(Default)]
pub(crate) struct Statements {
    pub(crate) tag: Option<Tag>,
    pub(crate) report: Option<Report>,
    /// Connects to begin.
    pub(crate) connects: Vec<Connect>,
    pub(crate) learned: Option<Learned>,
    /// Handshakes of layers that ended; None: the connection ends in it.
    pub(crate) handshakes: Vec<Option<HandshakeKind>>,
}

/// A connect that a protocol asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connect {
    /// The address to connect to.
    pub target: Address,
    /// Time in which the peer has to accept.
    pub within: Duration,
    /// Sent before all else: see [`Context::connect_with`](crate::Context::connect_with).
    pub first: Vec<u8>,
}

/// Code that is told what came of a connect.
pub(crate) type Told = Box<dyn FnOnce(Result<Handle, ConnectFailure>) + Send>;

/// The way in which a handshake of a layer was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeKind {
    /// The handshake was in full, such as with certificates and a signature.
    Full,
    /// The handshake was by what was kept of an earlier connection, such as a ticket.
    Resumed,
}

/// The peer's address, as a layer has learned it.
pub(crate) struct Learned {
    /// The peer's address, where it is not the one that the connection came from.
    pub(crate) real: Option<SocketAddr>,
    /// The answer of [`LateAdmission`], for the loop alone.
    pub(crate) answer: Option<Box<dyn Any + Send>>,
}

/// Judges connections whose peer is known only after they were accepted.
pub(crate) trait LateAdmission: Send + Sync {
    /// Returns whether the connection may stay, and more for its loop.
    fn admit(&self, peer: &Peer) -> (bool, Box<dyn Any + Send>);
}

impl Statements {
    /// Adds what an inner protocol said of the connection.
    pub(crate) fn join(&mut self, inner: Statements) {
        self.tag = inner.tag.or(self.tag.take());
        self.report = inner.report.or(self.report.take());
        self.connects.extend(inner.connects);
        self.handshakes.extend(inner.handshakes);
        if let Some(mut learned) = inner.learned {
            // If several layers learned an address, the innermost one's is taken.
            learned.real = learned.real.or(self.learned.take().and_then(|outer| outer.real));
            self.learned = Some(learned);
        }
    }
}
