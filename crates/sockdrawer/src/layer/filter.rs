//! Filters: a layer is made of one for each connection.

use crate::protocol::{
    CannotRestore, CannotSave, Closing, HandshakeKind, Input, Job, JobResult, Output, Peer, Recipe, Saved, Saver, State,
};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

/// Progress of a filter: what it learned from wire bytes, or from a job.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress {
    /// Nothing more can be done until more bytes arrive.
    NeedMore,
    /// The handshake is complete, once per connection; with the peer's real address if the filter learned it: see
    /// [`Filtering::learns_peer_address`].
    Established(Option<SocketAddr>),
    /// Plain bytes were appended.
    Plain,
    /// The peer said goodbye, as by TLS's close_notify: it will send no more plain bytes.
    PeerEnded,
    /// The handshake goes on when this job is done on a worker, such as a signature: [`Filter::job_done`] is called, and wire bytes wait
    /// until then. Only before [`Progress::Established`]; later it is a bug of the filter, which ends the connection.
    Work(Job),
}

/// The wire bytes are not of the filter's protocol, or are forged. The reason is reported as by [`Context::report`](crate::Context::report).
/// The connection is aborted; where the filter appended something for the peer in that call, such as an alert, it is closed, so that the peer
/// reads it, and the inner protocol is told [`Closed::Aborted`](crate::Closed::Aborted) all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    why: Cow<'static, str>,
}

impl Refused {
    /// Makes a refusal with the reason in a few words: `its certificate has expired`. It may be logged, so it holds nothing secret.
    pub fn because(why: impl Into<Cow<'static, str>>) -> Refused {
        Refused { why: why.into() }
    }
}

/// Turns the wire bytes of one connection into plain bytes and back. A filter has no I/O and no clock.
///
/// ```
/// use sockdrawer::layer::{Filter, Filtering, Layer, Progress, Refused};
/// use sockdrawer::testing::Driver;
/// use sockdrawer::{Input, Output, Peer};
/// # use sockdrawer::{Context, Protocol, Service, Step};
/// # struct Echo;
/// # impl Service for Echo {
/// #     type Protocol = Echo;
/// #     fn open(&self, _peer: &Peer) -> Echo {
/// #         Echo
/// #     }
/// # }
/// # impl Protocol for Echo {
/// #     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
/// #         cx.send(input.take_all());
/// #         Step::Continue
/// #     }
/// # }
///
/// /// Letters turned by 13 places, no handshake.
/// struct Rot13 {
///     established: bool,
/// }
/// struct Rot13Layer;
///
/// fn turned(byte: u8) -> u8 {
///     match byte {
///         b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
///         other => other,
///     }
/// }
///
/// impl Filtering for Rot13Layer {
///     type Filter = Rot13;
///     fn filter(&self, _peer: &Peer) -> Rot13 {
///         Rot13 { established: false }
///     }
/// }
/// impl Filter for Rot13 {
///     fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
///         if !std::mem::replace(&mut self.established, true) {
///             return Ok(Progress::Established(None));
///         }
///         if wire.is_empty() {
///             return Ok(Progress::NeedMore);
///         }
///         plain.extend(wire.bytes().iter().copied().map(turned));
///         wire.take_all();
///         Ok(Progress::Plain)
///     }
///     fn encode(&mut self, plain: &[u8], wire: &mut Output) {
///         plain.iter().for_each(|byte| wire.push(&[turned(*byte)]));
///     }
///     fn goodbye(&mut self, _wire: &mut Output) {}
/// }
///
/// let mut connection = Driver::open(Layer::new(Rot13Layer, Echo));
/// connection.receive(b"uryyb");
/// assert_eq!(connection.sent(), b"uryyb");
/// ```
pub trait Filter: Send + 'static {
    /// Called when the connection is open: a filter that speaks first, as a TLS client does, appends its first bytes.
    fn start(&mut self, _wire: &mut Output) {}

    /// Takes wire bytes, which it may change in place, appends plain bytes, and appends to `back` what the peer must get. Called
    /// again until it answers [`Progress::NeedMore`]; one call appends one record, so that memory is bounded.
    ///
    /// # Errors
    /// When the bytes are not acceptable.
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused>;

    /// Called when the job of [`Progress::Work`] ended. [`Filter::decode`] is called when there are wire bytes, not only because of this.
    ///
    /// # Errors
    /// When the handshake cannot go on, which is the default.
    fn job_done(&mut self, _result: JobResult, _back: &mut Output) -> Result<Progress, Refused> {
        Err(Refused::because("a job of its filter has no callback"))
    }

    /// Called when the timeout of the handshake passed: the connection is aborted. Not while a job runs.
    fn timed_out(&mut self) {}

    /// Adds what the handshake told of the peer, by [`Peer::with_fact`]: called once, when it is complete. Default: nothing.
    fn knows(&mut self, peer: Peer) -> Peer {
        peer
    }

    /// Returns the kind of its handshake, where the pool is to count it: [`Counts::handshakes_full`](crate::observe::Counts) and the two beside it.
    /// Asked once, when the handshake is complete or the connection ends before that, which counts as failed. Default: it is not counted.
    fn handshake(&self) -> Option<HandshakeKind> {
        None
    }

    /// Returns whether wire bytes are plain bytes from now on, both ways, and nothing is said at the end, as behind a PROXY header: then a
    /// [`Relay`](crate::Step::Relay) need not call it. Default: false.
    fn passes(&self) -> bool {
        false
    }

    /// Appends the wire bytes that carry `plain`, which is never empty.
    fn encode(&mut self, plain: &[u8], wire: &mut Output);

    /// Appends the wire bytes that tell the peer that no more comes. Called once, after all output was encoded.
    fn goodbye(&mut self, wire: &mut Output);

    /// Called when the peer's stream ended without [`Progress::PeerEnded`].
    ///
    /// # Errors
    /// When that may be a truncation attack, as without TLS's close_notify: the connection is aborted.
    fn truncated(&mut self) -> Result<(), Refused> {
        Ok(())
    }

    /// Writes the state: of an established filter, and of one in its handshake where [`Filtering::saves_handshakes`] says so.
    ///
    /// # Errors
    /// When it cannot be saved, which is the default; the connection stays with its service.
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Err(CannotSave::because("its layer does not save its state"))
    }
}

/// Makes a filter for each connection.
pub trait Filtering: Send + Sync + 'static {
    /// The state of one connection.
    type Filter: Filter;

    /// Makes the filter of a new connection.
    fn filter(&self, peer: &Peer) -> Self::Filter;

    /// Makes a filter from the state that [`Filter::save`] wrote.
    ///
    /// # Errors
    /// When these bytes are not a state that this filter knows, which is the default.
    fn restore(&self, _from: &mut Saved<'_>) -> Result<Self::Filter, CannotRestore> {
        Err(CannotRestore::because("its layer does not restore states"))
    }

    /// Says that filters are saved and restored during their handshake too: [`Filter::save`] then writes how far it is, and what the filter
    /// has not taken goes along. The connection moves before it is established, and the rest of the timeout with it. Default: false, it stays until
    /// then.
    fn saves_handshakes(&self) -> bool {
        false
    }

    /// Returns the timeout of the handshake, 10 s by default; then the connection is aborted. It uses the timer until the inner protocol has it.
    fn handshake_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Returns the name and the version of the states that its filters save, as [`Service::state`](crate::Service::state). Default: none.
    fn state(&self) -> State {
        State::none()
    }

    /// Returns how a connection may end, given what the inner service answers. Default: [`Closing::PeerMaySend`]. A filter whose peers send nothing
    /// of the filter's own at the end, such as a PROXY header, returns `inner`; a filter whose peers say goodbye must not.
    fn closing(&self, _inner: Closing) -> Closing {
        Closing::PeerMaySend
    }

    /// Returns the longest piece of wire bytes that a filter takes only when it is whole, such as a record, in bytes: this much may wait for the rest
    /// even where [`Settings::max_partial`](crate::Settings::max_partial) is less. Default: 0, for filters that take what there is.
    fn longest_record(&self) -> usize {
        0
    }

    /// Returns whether [`Filtering::filter`] needs [`Peer::remote`]: see [`Service::needs_peer_address`](crate::Service::needs_peer_address).
    /// Default: true.
    fn needs_peer_address(&self) -> bool {
        true
    }

    /// Returns whether its filters learn the peer's real address, as from a PROXY header. The admission policy is not asked about the address that
    /// the connection came from then, but when the filter is established: about the real one, or that one if there is no other. A connection that it
    /// turns away never reaches the inner protocol. Default: false.
    fn learns_peer_address(&self) -> bool {
        false
    }

    /// Returns the name and options from which another process builds this filter. Default: none.
    fn recipe(&self) -> Option<Recipe> {
        None
    }
}
