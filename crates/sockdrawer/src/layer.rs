//! Layers: a service around a service, for what lies between the socket and the protocol, such as TLS or a PROXY header.
//!
//! You write a [`Filter`], which turns wire bytes into plain ones and back. [`Layer`] does the rest: the inner protocol is opened
//! when the filter is established, sees plain bytes only, and keeps its timer, jobs, notes, handle and per-loop local. Code to which it
//! delegates its connection sees plain bytes as well: the filter goes with the connection and comes back with it. For handlers, and any
//! other behaviour, there is [`Behaviour::layered`](crate::Behaviour::layered).
//! [`Filter`] has an example.

pub use crate::protocol::HandshakeKind;
use crate::protocol::{
    Asks, CannotRestore, CannotSave, Closed, Closing, ConnectFailure, Context, Handle, Input, JobResult, Local, Note, Output,
    Peer, Protocol, Receiving, Recipe, Saved, Saver, Service, Side, State, Step,
};
#[doc(hidden)]
pub use crate::protocol::{Lent, Passage};
pub use filter::{Filter, Filtering, Progress, Refused};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
pub use watched::{Watch, Watched};

mod filter;
mod finish;
mod handshake;
mod lending;
pub mod proxy_header;
pub(crate) mod spare;
#[cfg(test)]
mod tests;
mod watched;

use finish::Finish;
use handshake::Handshake;

/// While a filter is lent no callback comes but the last, and the note that brings it back.
const HERE: &str = "the filter of a connection that is not leased is here";

/// The first number of a saved state: how far its connection was.
const HANDSHAKE: u64 = 0;
const OPEN: u64 = 1;
const HELD: u64 = 2;

/// The time between two looks of a connection that is to be opened elsewhere whether it is still.
const LOOK: Duration = Duration::from_millis(20);

/// A service whose connections pass a filter. Layers nest.
#[derive(Debug)]
pub struct Layer<F, S> {
    filtering: F,
    service: Arc<S>,
}

impl<F: Filtering, S: Service> Layer<F, S> {
    /// Returns a service whose connections pass a filter of `filtering`, then reach `service`.
    pub fn new(filtering: F, service: S) -> Layer<F, S> {
        Layer { filtering, service: Arc::new(service) }
    }

    /// Returns a connection whose handshake has taken `took` so far.
    fn shaking(&self, filter: F::Filter, peer: &Peer, took: Duration) -> Layered<F::Filter, S> {
        let handshake = Handshake {
            service: self.service.clone(),
            peer: peer.clone(),
            timeout: self.filtering.handshake_timeout(),
            learns: self.filtering.learns_peer_address(),
            awaits_peer: self.learns_peer_address(),
            is_saved: self.filtering.saves_handshakes(),
            is_held: false,
            took,
            began: None,
        };
        self.layered(filter, Stage::Handshake(Box::new(handshake)))
    }

    fn layered(&self, filter: F::Filter, stage: Stage<S>) -> Layered<F::Filter, S> {
        Layered {
            filter: Some(filter),
            stage,
            plain: Vec::new(),
            searched: 0,
            job: false,
            waiting: false,
            drain: false,
            finish: Finish::No,
            peer_ended: false,
            end_owed: false,
            refused: false,
        }
    }
}

/// Splits the options of a layer's recipe into those of the filter and those of the service. The name of such a recipe is
/// `filter+service`.
///
/// # Errors
/// When `options` are not those of a layer's recipe.
pub fn split_options(options: &[u8]) -> Result<(&[u8], &[u8]), CannotRestore> {
    let mut saved = Saved::new(options);
    Ok((saved.bytes()?, saved.bytes()?))
}

impl<F: Filtering, S: Service> Service for Layer<F, S> {
    type Protocol = Layered<F::Filter, S>;

    fn open(&self, peer: &Peer) -> Self::Protocol {
        self.shaking(self.filtering.filter(peer), peer, Duration::ZERO)
    }

    fn restore(&self, peer: &Peer, from: &mut Saved<'_>) -> Result<Self::Protocol, CannotRestore> {
        let (within, own) = from.levels();
        let reached = from.u64()?;
        if reached == HANDSHAKE || reached == HELD {
            let took = Duration::from_nanos(from.u64()?);
            if reached == HANDSHAKE && !self.filtering.saves_handshakes() {
                return Err(CannotRestore::because("its layer does not restore handshakes"));
            }
            let mut layered = self.shaking(from.part(own, |from| self.filtering.restore(from))?, peer, took);
            if let (Stage::Handshake(handshake), HELD) = (&mut layered.stage, reached) {
                (handshake.is_held, layered.waiting) = (true, true);
            }
            return Ok(layered);
        }
        let inner = from.part(within, |from| self.service.restore(peer, from))?;
        let plain = from.bytes()?.to_vec();
        let (waiting, drain) = (from.u64()? != 0, from.u64()? != 0);
        let (finish, peer_ended) = (Finish::from_number(from.u64()?)?, from.u64()? != 0);
        let end_owed = from.u64()? != 0;
        let filter = from.part(own, |from| self.filtering.restore(from))?;
        Ok(Layered { plain, waiting, drain, finish, peer_ended, end_owed, ..self.layered(filter, Stage::Open(inner)) })
    }

    fn state(&self) -> State {
        self.service.state().within(self.filtering.state())
    }

    fn local(&self) -> Box<Local> {
        self.service.local()
    }

    fn closing(&self) -> Closing {
        self.filtering.closing(self.service.closing())
    }

    fn receiving(&self) -> Receiving {
        self.service.receiving()
    }

    fn needs_peer_address(&self) -> bool {
        self.filtering.needs_peer_address() || self.learns_peer_address() || self.service.needs_peer_address()
    }

    fn learns_peer_address(&self) -> bool {
        self.filtering.learns_peer_address() || self.service.learns_peer_address()
    }

    fn longest_record(&self) -> usize {
        self.filtering.longest_record().max(self.service.longest_record())
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        self.service.connect_failed(failure, local);
    }

    fn recipe(&self) -> Option<Recipe> {
        let (filter, service) = (self.filtering.recipe()?, self.service.recipe()?);
        let mut options = Saver::default();
        options.bytes(&filter.options);
        options.bytes(&service.options);
        Some(Recipe { name: format!("{}+{}", filter.name, service.name), options: options.bytes.take() })
    }
}

/// A connection of a [`Layer`].
pub struct Layered<F: Filter, S: Service> {
    /// The filter; None while it is lent with the connection.
    filter: Option<F>,
    stage: Stage<S>,
    /// Plain bytes that were decoded and not taken by the inner protocol.
    plain: Vec<u8>,
    /// Number of bytes of `plain`, from the first, that hold no line break.
    searched: usize,
    /// A job of the inner protocol runs, or its connection is delegated.
    job: bool,
    waiting: bool,
    /// `draining` of the inner protocol is still to be called: it holds a part of a message that the event loop cannot see.
    drain: bool,
    finish: Finish,
    peer_ended: bool,
    /// The inner protocol is still to be told of the end: it came while plain bytes were held, or the connection was leased.
    end_owed: bool,
    /// The connection was refused by its filter.
    refused: bool,
}

/// Prints how far the connection is.
impl<F: Filter, S: Service> fmt::Debug for Layered<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = if matches!(self.stage, Stage::Open(_)) { "open" } else { "handshake" };
        f.debug_struct("Layered").field("stage", &stage).field("plain", &self.plain.len()).finish_non_exhaustive()
    }
}

/// The handshake is boxed, so that thousands of established connections do not carry the memory that a handshake needs.
enum Stage<S: Service> {
    Handshake(Box<Handshake<S>>),
    Open(S::Protocol),
}

impl<F: Filter, S: Service> Layered<F, S> {
    fn filter(&mut self) -> &mut F {
        self.filter.as_mut().expect(HERE)
    }

    /// Calls the inner protocol, for every callback of it: encodes its output and notes its step. A goodbye of the inner protocol becomes the
    /// filter's; `Finish` is owed until [`Layered::answer`] can return it.
    fn inner(
        &mut self,
        cx: &mut Context<'_>,
        call: impl FnOnce(&mut S::Protocol, &mut Input<'_>, &mut Context<'_>) -> Step,
    ) -> Step {
        let Stage::Open(protocol) = &mut self.stage else { return Step::Continue };
        let mut output = Output { bytes: spare::take(), high_water: cx.out.high_water, ..Output::default() };
        let mut input = Input::searched(&mut self.plain, self.searched);
        let step = cx.nested(&mut output, |cx| call(protocol, &mut input, cx));
        self.waiting = cx.out.asks.pauses().unwrap_or(self.waiting);
        self.searched = input.bytes_without_line();
        let taken = input.taken();
        self.plain.drain(..taken);
        if !output.bytes.is_empty() {
            if matches!(step, Step::Close) {
                // The output is the answer to the input that was not taken.
                self.plain.clear();
            }
            self.filter().encode(&output.bytes, cx.out());
        }
        spare::give(output.bytes);
        self.job |= matches!(step, Step::Work(_) | Step::Delegate(_));
        if matches!(step, Step::EndOutput | Step::Close) && self.finish == Finish::No {
            self.filter().goodbye(cx.out());
            self.finish = Finish::Owed;
        }
        if matches!(step, Step::EndOutput) { Step::Continue } else { step }
    }

    /// Returns true where the inner protocol may not be offered plain bytes or their end now.
    fn is_held(&self) -> bool {
        self.job || self.waiting
    }

    /// Returns true where the inner protocol may be asked to end: no partial message was received, or it will never be complete.
    fn is_quiet(&self) -> bool {
        !self.job && (self.plain.is_empty() || self.peer_ended)
    }

    /// Offers the plain bytes to the inner protocol.
    fn feed(&mut self, cx: &mut Context<'_>) -> Step {
        if self.plain.is_empty() || self.is_held() {
            return Step::Continue;
        }
        let step = self.inner(cx, |protocol, plain, cx| protocol.received(plain, cx));
        match step {
            Step::Continue if self.plain.len() > cx.max_partial => Step::Abort,
            step => step,
        }
    }

    /// Offers plain bytes that were held back, after a callback other than `received`. The event loop offers held wire bytes, but it cannot see those
    /// that were decoded already.
    fn resume(&mut self, step: Step, was_held: bool, cx: &mut Context<'_>) -> Step {
        let step = match step {
            Step::Continue if was_held => self.feed(cx),
            step => step,
        };
        match step {
            Step::Continue if self.end_owed && !self.is_held() => {
                self.end_owed = false;
                if self.peer_ended {
                    let step = self.ended(cx);
                    return self.answer(step, cx);
                }
                self.peer_ended(cx)
            }
            step => self.answer(step, cx),
        }
    }

    /// Returns the step for the event loop: this one, or the `Finish` that is owed. The buffer of plain bytes is given back when it is empty.
    fn answer(&mut self, step: Step, cx: &mut Context<'_>) -> Step {
        let step = match step {
            Step::Continue if self.drain && self.is_quiet() => {
                self.drain = false;
                self.inner(cx, |protocol, _, cx| protocol.draining(cx))
            }
            step => step,
        };
        if self.plain.is_empty() {
            spare::give(std::mem::take(&mut self.plain));
        }
        match step {
            Step::Continue if self.finish == Finish::Owed => {
                self.finish = Finish::Said;
                Step::EndOutput
            }
            step => step,
        }
    }

    /// Goes on after the handshake. Where the connection is to move with all others, its protocol is opened in the next build: a member of a group
    /// that joins here would hear this process alone until it follows.
    fn established(&mut self, real: Option<SocketAddr>, cx: &mut Context<'_>) -> Step {
        match &mut self.stage {
            // A connection that was made for another moves with it, which waits for this handshake.
            Stage::Handshake(handshake) if cx.out.leaves && !handshake.learns && handshake.peer.side() == Side::Accepted => {
                handshake.is_held = true;
                self.waiting = true;
                cx.pause();
                cx.set_timer(LOOK);
                Step::Continue
            }
            _ => self.open(real, cx),
        }
    }

    /// Opens the protocol of a connection that was to move, here or in the next build.
    fn release(&mut self, cx: &mut Context<'_>) -> Step {
        self.waiting = false;
        cx.resume();
        let step = self.open(None, cx);
        self.answer(step, cx)
    }

    fn open(&mut self, real: Option<SocketAddr>, cx: &mut Context<'_>) -> Step {
        let Stage::Handshake(handshake) = &self.stage else { return Step::Abort };
        let peer = real.map_or_else(|| handshake.peer.clone(), |real| handshake.peer.with_remote(real));
        let peer = peer.shaken(handshake.took(cx.now()));
        let filter = self.filter.as_mut().expect(HERE);
        let (kind, peer) = (filter.handshake(), filter.knows(peer));
        if (handshake.learns || real.is_some()) && !cx.peer_is(&peer, real) {
            return Step::Abort;
        }
        self.stage = Stage::Open(handshake.service.open(&peer));
        if peer.side() == Side::Connected {
            cx.out.asks.add(Asks::SHAKEN);
        }
        cx.out.count_handshake(kind, true);
        cx.clear_timer();
        self.inner(cx, |protocol, _, cx| protocol.opened(cx).opened_with(&peer))
    }

    /// Asks a pool that connects to wait after a handshake that fails, as after a connect.
    fn tell_shaking(&self, cx: &mut Context<'_>) {
        if let Stage::Handshake(handshake) = &self.stage
            && handshake.peer.side() == Side::Connected
        {
            cx.out.asks.add(Asks::SHAKING);
        }
    }

    /// Tells the inner protocol that no more plain bytes come.
    fn ended(&mut self, cx: &mut Context<'_>) -> Step {
        self.peer_ended = true;
        self.inner(cx, |protocol, _, cx| protocol.peer_ended(cx))
    }

    /// Ends a connection that the filter refuses. Where the filter says why to the peer, as by an alert, it is closed, so that the peer reads it.
    fn refuse(&mut self, refused: &Refused, says_why: bool, cx: &mut Context<'_>) -> Step {
        self.refused = true;
        cx.report(refused.to_string());
        if says_why { Step::Close } else { Step::Abort }
    }

    /// Does what follows from the filter's progress. `before`: bytes of output before the filter was called.
    fn progressed(&mut self, progress: Result<Progress, Refused>, before: usize, cx: &mut Context<'_>) -> Step {
        match progress {
            Err(refused) => {
                let says_why = cx.out().bytes().len() > before;
                self.refuse(&refused, says_why, cx)
            }
            Ok(Progress::NeedMore) => Step::Continue,
            Ok(Progress::Established(real)) => self.established(real, cx),
            Ok(Progress::Plain) => self.feed(cx),
            Ok(Progress::PeerEnded) => self.ended(cx),
            Ok(Progress::Work(job)) => {
                assert!(matches!(self.stage, Stage::Handshake(_)), "the job of an established filter would have no callback");
                Step::Work(job)
            }
        }
    }

    /// Decodes all wire bytes and offers the plain bytes record by record.
    fn decode_all(&mut self, wire: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if self.plain.capacity() == 0 {
            self.plain = spare::take();
        }
        while !self.peer_ended {
            let before = cx.out().bytes().len();
            let step = match self.filter.as_mut().expect(HERE).decode(wire, &mut self.plain, cx.out()) {
                Ok(Progress::NeedMore) => return Step::Continue,
                progress => self.progressed(progress, before, cx),
            };
            if !matches!(step, Step::Continue) || self.waiting {
                return step;
            }
        }
        // Bytes after the peer's goodbye are ignored.
        wire.take_all();
        Step::Continue
    }
}

impl<F: Filter, S: Service> Protocol for Layered<F, S> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        if let Stage::Handshake(handshake) = &mut self.stage {
            handshake.began = Some(cx.now());
            cx.set_timer(handshake.timeout);
        }
        self.filter().start(cx.out());
        // A filter with nothing to wait for is established now: the inner protocol may have to speak first.
        let step = self.decode_all(&mut Input::new(&mut []), cx);
        self.tell_shaking(cx);
        self.answer(step, cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let step = self.decode_all(input, cx);
        self.answer(step, cx)
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        let step = match &self.stage {
            // The peer may still read what the filter said to it, and is owed nothing else.
            Stage::Handshake(_) => Step::Close,
            Stage::Open(_) if self.peer_ended => Step::Continue,
            // Behind what was decoded and is held: told when that was offered.
            Stage::Open(_) if self.waiting && !self.plain.is_empty() => {
                self.end_owed = true;
                Step::Continue
            }
            Stage::Open(_) => match self.filter().truncated() {
                Ok(()) => self.ended(cx),
                Err(refused) => self.refuse(&refused, false, cx),
            },
        };
        self.answer(step, cx)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        if let Stage::Handshake(handshake) = &self.stage {
            if handshake.is_held && cx.out.leaves && !cx.draining() && handshake.took(cx.now()) < handshake.timeout {
                cx.set_timer(LOOK);
                return Step::Continue;
            }
            if handshake.is_held {
                return self.release(cx);
            }
            cx.report(format!("the layer's handshake was not complete after {:?}", handshake.timeout));
            self.filter().timed_out();
            // A drain waited for it, and cuts nothing off by its end.
            return if cx.draining() { Step::Close } else { Step::Abort };
        }
        let was_held = self.is_held();
        let step = self.inner(cx, |protocol, _, cx| protocol.timeout(cx));
        self.resume(step, was_held, cx)
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        if let Stage::Handshake(_) = self.stage {
            let before = cx.out().bytes().len();
            let progress = self.filter().job_done(result, cx.out());
            let step = self.progressed(progress, before, cx);
            return self.answer(step, cx);
        }
        self.job = false;
        let step = self.inner(cx, |protocol, _, cx| protocol.job_done(result, cx));
        self.resume(step, true, cx)
    }

    fn connected(&mut self, result: Result<Handle, ConnectFailure>, cx: &mut Context<'_>) -> Step {
        let was_held = self.is_held();
        let step = self.inner(cx, |protocol, _, cx| protocol.connected(result, cx));
        self.resume(step, was_held, cx)
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        // Before the inner protocol was opened there is no handle to it, and a note of the pool to all connections does not concern it yet.
        let was_held = self.is_held();
        let note = self.regain(note);
        let step = self.inner(cx, |protocol, _, cx| protocol.notified(note, cx));
        self.resume(step, was_held, cx)
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        let step = self.inner(cx, |protocol, _, cx| protocol.writable(cx));
        self.resume(step, true, cx)
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        if let Stage::Handshake(_) = self.stage {
            return Step::Close;
        }
        let was_held = self.is_held();
        self.drain = !self.is_quiet();
        let step = if self.drain { Step::Continue } else { self.inner(cx, |protocol, _, cx| protocol.draining(cx)) };
        self.resume(step, was_held, cx)
    }

    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        if let Stage::Handshake(handshake) = &mut self.stage {
            handshake.began = Some(cx.now());
            if handshake.is_held {
                return self.release(cx);
            }
        }
        let was_held = self.is_held();
        let step = self.inner(cx, |protocol, _, cx| protocol.restored(cx));
        self.resume(step, was_held, cx)
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        match &mut self.stage {
            Stage::Open(protocol) => {
                // The filter said why to the peer; to the inner protocol it is no orderly end.
                let why = if self.refused && why == Closed::Orderly { Closed::Aborted } else { why };
                let mut ignored = Output::with_high_water(0);
                cx.nested(&mut ignored, |cx| protocol.closed(why, cx));
            }
            Stage::Handshake(_) if why == Closed::Adopted => {}
            Stage::Handshake(_) => {
                self.tell_shaking(cx);
                cx.out.count_handshake(self.filter().handshake(), false);
            }
        }
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        let protocol = match &mut self.stage {
            Stage::Open(protocol) => protocol,
            Stage::Handshake(handshake) if handshake.is_saved || handshake.is_held => {
                to.u64(if handshake.is_held { HELD } else { HANDSHAKE });
                to.u64(handshake.took(to.now()).as_nanos().try_into().unwrap_or(u64::MAX));
                let filter = self.filter();
                return to.part(|to| filter.save(to));
            }
            Stage::Handshake(_) => return Err(CannotSave::because("its handshake is under way")),
        };
        to.u64(OPEN);
        to.part(|to| protocol.save(to))?;
        to.bytes(&self.plain);
        to.u64(self.waiting.into());
        to.u64(self.drain.into());
        to.u64(self.finish as u64);
        to.u64(self.peer_ended.into());
        to.u64(self.end_owed.into());
        let filter = self.filter();
        to.part(|to| filter.save(to))
    }

    fn owes(&self) -> bool {
        let Stage::Open(protocol) = &self.stage else { return false };
        (!self.plain.is_empty() && !self.peer_ended) || protocol.owes()
    }

    fn awaits_peer(&self) -> bool {
        match &self.stage {
            Stage::Handshake(handshake) => handshake.awaits_peer,
            Stage::Open(protocol) => protocol.awaits_peer(),
        }
    }

    fn lend(&mut self) -> Option<Lent> {
        let Stage::Open(protocol) = &mut self.stage else { return None };
        let inner = protocol.lend();
        self.lend_filter(inner)
    }

    fn passage(&mut self) -> Option<Passage<'_>> {
        let inner_passes = if let Stage::Open(protocol) = &mut self.stage { protocol.passage().is_none() } else { false };
        if inner_passes && self.passes() { None } else { Some(Passage(self)) }
    }
}
