//! The code that a pool runs, with its type erased: for each loop, a service becomes a slab of states behind one virtual call per event.

mod erased;

use crate::chunks::Chunks;
use crate::layer::{Filtering, Layer};
use crate::protocol::{
    CannotRestore, CannotSave, Closed, Closing, ConnectFailure, Context, Delegate, Handle, Input, Job, JobResult, Lent, Local,
    Note, Pass, Passage, Peer, Protocol, Receiving, Recipe, Saved, Saver, Service, State, Step,
};
use crate::sys::panics;
pub(crate) use erased::DynService;
use erased::Erased;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The code that a pool runs on its connections: a [`Service`], a blocking or async handler, or another program.
#[derive(Clone)]
#[non_exhaustive]
pub enum Behaviour {
    /// A [`Service`] of [`Protocol`](crate::Protocol)s.
    #[doc(hidden)]
    Protocol(Arc<dyn AnyService>),
}

impl Behaviour {
    /// Makes a behaviour of a service that this library wrote, for a handler or a program.
    pub(crate) fn of_kind(service: impl Service, kind: Kind) -> Behaviour {
        let service: Arc<dyn AnyService> = Arc::new(Slabs(Arc::new(service)));
        Behaviour::Protocol(Arc::new(Described { recipe: None, kind, service }))
    }

    /// Adds a recipe from which another process builds this behaviour. A handler has no recipe of its own; that of a service is
    /// [`Service::recipe`].
    #[must_use]
    pub fn with_recipe(self, recipe: Recipe) -> Behaviour {
        let Behaviour::Protocol(service) = self;
        Behaviour::Protocol(Arc::new(Described { recipe: Some(recipe), kind: service.kind(), service }))
    }

    /// This behaviour behind a filter, as [`Layer`] is for a service: a handler reads and writes plain bytes, and starts when the filter is
    /// established. Layers nest: the last one added is the next to the socket. A program (`Behaviour::exec`) cannot have one, because it has the
    /// socket itself. The recipe is named `filter+behaviour`, where both have one: see [`split_options`](crate::layer::split_options).
    ///
    /// A [`Layer`] of a service of known type saves a call and an allocation per connection.
    #[must_use]
    pub fn layered(self, filtering: impl Filtering) -> Behaviour {
        let Behaviour::Protocol(within) = self;
        let layer = Slabs(Arc::new(Layer::new(filtering, Erased { service: within.service(), within: within.clone() })));
        Behaviour::Protocol(Arc::new(LayerAround { layer, within }))
    }

    pub(crate) fn service(&self) -> &Arc<dyn AnyService> {
        let Behaviour::Protocol(service) = self;
        service
    }

    pub(crate) fn is_same(&self, other: &Behaviour) -> bool {
        Arc::ptr_eq(self.service(), other.service())
    }
}

/// Prints the kind of the behaviour and the type of its service.
impl std::fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let service = self.service();
        write!(f, "{:?}({})", service.kind(), service.name())
    }
}

/// Builds a behaviour from the options of its [`Recipe`]; registered under the recipe's name.
pub type Build = fn(&[u8]) -> Result<Behaviour, Box<dyn std::error::Error + Send + Sync>>;

/// Puts a layer around a behaviour, from the options of the layer's [`Recipe`]; registered under its name by `sockdrawer::layers`.
pub type BuildLayer = fn(Behaviour, &[u8]) -> Result<Behaviour, Box<dyn std::error::Error + Send + Sync>>;

impl<S: Service> From<S> for Behaviour {
    fn from(service: S) -> Behaviour {
        Behaviour::Protocol(Arc::new(Slabs(Arc::new(service))))
    }
}

impl<S: Service> From<Arc<S>> for Behaviour {
    fn from(service: Arc<S>) -> Behaviour {
        Behaviour::Protocol(Arc::new(Slabs(service)))
    }
}

/// Behaviour of a pool's connections: a [`Service`], by itself or in an [`Arc`], or a [`Behaviour`]. Implement [`Service`], not this.
///
/// ```compile_fail,E0277
/// struct NotAService;
/// let _ = sockdrawer::Config::accept(NotAService); // error: a pool cannot run `NotAService` on its connections
/// ```
#[diagnostic::on_unimplemented(
    message = "a pool cannot run `{Self}` on its connections",
    label = "neither a `Service` nor a `Behaviour`",
    note = "implement `sockdrawer::Service`: its `open` makes a `Protocol` for each connection",
    note = "a function that reads and writes a connection is given as `Behaviour::blocking(f)`, an async function as `Behaviour::task(f)`"
)]
pub trait IntoBehaviour: Sized {
    /// Makes the behaviour.
    fn into_behaviour(self) -> Behaviour;
}

// An impl for each type, where `Into<Behaviour>` would do for all: the compiler would name that for an `Arc`, and not what to implement.
impl<S: Service> IntoBehaviour for S {
    fn into_behaviour(self) -> Behaviour {
        self.into()
    }
}

impl<S: Service> IntoBehaviour for Arc<S> {
    fn into_behaviour(self) -> Behaviour {
        self.into()
    }
}

impl IntoBehaviour for Behaviour {
    fn into_behaviour(self) -> Behaviour {
        self
    }
}

/// A service with its type erased, which makes a table of states for each loop.
pub trait AnyService: Send + Sync {
    #[doc(hidden)]
    fn table(&self, capacity: usize) -> Result<TableBox, Panicked>;
    #[doc(hidden)]
    fn kind(&self) -> Kind;
    /// Returns the name of the service's type.
    #[doc(hidden)]
    fn name(&self) -> &'static str;
    /// Returns the recipe from which another process builds the service.
    #[doc(hidden)]
    fn recipe(&self) -> Option<Recipe>;
    /// Returns the names and versions of the service's states.
    #[doc(hidden)]
    fn state(&self) -> State;
    /// Returns true where a layer learns the peer's address.
    #[doc(hidden)]
    fn learns_peer_address(&self) -> bool {
        false
    }
    /// Returns the queue in which connections wait for a [`Pool::listener`](crate::Pool::listener), as `Any`: its type belongs to the
    /// feature `tokio`.
    #[doc(hidden)]
    fn queue(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
    /// Returns the service, for a layer around it.
    #[doc(hidden)]
    fn service(&self) -> Arc<dyn DynService>;
    /// Returns true where there is a layer around the service.
    #[doc(hidden)]
    fn is_layered(&self) -> bool {
        false
    }
}

/// The kind of a behaviour. A model need not run all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A [`Service`].
    Protocol,
    /// A handler that reads, writes and blocks.
    Blocking,
    /// Another program.
    Program,
    /// A handler that is a future, or code on a runtime of its own.
    #[cfg(feature = "tokio")]
    Task,
}

/// A service, with a kind and a recipe that replace its own.
struct Described {
    service: Arc<dyn AnyService>,
    kind: Kind,
    recipe: Option<Recipe>,
}

impl AnyService for Described {
    fn table(&self, capacity: usize) -> Result<TableBox, Panicked> {
        self.service.table(capacity)
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn name(&self) -> &'static str {
        self.service.name()
    }

    fn recipe(&self) -> Option<Recipe> {
        self.recipe.clone().or_else(|| self.service.recipe())
    }

    fn state(&self) -> State {
        self.service.state()
    }

    fn learns_peer_address(&self) -> bool {
        self.service.learns_peer_address()
    }

    fn queue(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.service.queue()
    }

    fn service(&self) -> Arc<dyn DynService> {
        self.service.service()
    }

    fn is_layered(&self) -> bool {
        self.service.is_layered()
    }
}

/// A layer around a behaviour.
struct LayerAround<F: Filtering> {
    layer: Slabs<Layer<F, Erased>>,
    within: Arc<dyn AnyService>,
}

impl<F: Filtering> AnyService for LayerAround<F> {
    fn table(&self, capacity: usize) -> Result<TableBox, Panicked> {
        self.layer.table(capacity)
    }

    fn kind(&self) -> Kind {
        self.within.kind()
    }

    fn name(&self) -> &'static str {
        self.within.name()
    }

    fn recipe(&self) -> Option<Recipe> {
        self.layer.recipe()
    }

    fn state(&self) -> State {
        AnyService::state(&self.layer)
    }

    fn learns_peer_address(&self) -> bool {
        AnyService::learns_peer_address(&self.layer)
    }

    fn queue(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.within.queue()
    }

    fn service(&self) -> Arc<dyn DynService> {
        self.layer.service()
    }

    fn is_layered(&self) -> bool {
        true
    }
}

/// The states and properties of a generation in one loop; opaque outside of this library.
pub struct TableBox {
    pub(crate) table: Box<dyn Table>,
    pub(crate) local: Box<Local>,
    pub(crate) closing: Closing,
    pub(crate) receiving: Receiving,
    pub(crate) needs_peer_address: bool,
    pub(crate) learns_peer_address: bool,
    pub(crate) longest_record: usize,
    /// Names and versions of the states.
    pub(crate) state: State,
}

impl std::fmt::Debug for TableBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableBox").field("live", &self.table.live()).finish_non_exhaustive()
    }
}

/// A panic of user code that was caught.
#[derive(Clone, Debug)]
pub struct Panicked(pub(crate) String);

/// The states of one generation in one loop, with their type erased: one virtual call per event.
pub(crate) trait Table: Send {
    /// Makes a state and calls its `opened`. An error is a panic before the state was made.
    fn open(&mut self, peer: &Peer, cx: &mut Context<'_>, more: &mut Option<More>) -> Result<(u32, Answer), Panicked>;
    fn restore(&mut self, peer: &Peer, from: &mut Saved<'_>) -> Result<Result<u32, CannotRestore>, Panicked>;
    fn received(&mut self, slot: u32, input: &mut Input<'_>, cx: &mut Context<'_>, more: &mut Option<More>) -> Answer;
    fn dispatch(&mut self, slot: u32, event: Callback<'_>, cx: &mut Context<'_>, more: &mut Option<More>) -> Answer;
    fn save(&mut self, slot: u32, to: &mut Saver) -> Result<Result<(), CannotSave>, Panicked>;
    /// Returns whether the peer waits for an answer. A panic is an answer that was not given.
    fn owes(&mut self, slot: u32) -> bool;
    /// Returns true where the peer is still to be learned.
    fn awaits_peer(&mut self, slot: u32) -> bool;
    /// Returns the filter, and the bytes it left, that the state lends with its connection.
    fn lend(&mut self, slot: u32) -> Option<Lent>;
    /// Calls with what the bytes of a relay pass. Returns whether they pass anything.
    fn pass(&mut self, slot: u32, call: &mut dyn FnMut(&mut dyn Pass)) -> Result<bool, Panicked>;
    /// Calls `closed` of the state and drops it.
    fn close(&mut self, slot: u32, why: Closed, cx: &mut Context<'_>) -> Result<(), Panicked>;
    /// Drops a state that was restored and is not needed after all.
    fn forget(&mut self, slot: u32);
    fn connect_failed(&mut self, failure: &ConnectFailure, local: &mut Local) -> Result<(), Panicked>;
    fn live(&self) -> usize;
    fn reserve(&mut self, capacity: usize);
}

/// An event of a connection, other than input.
pub(crate) enum Callback<'e> {
    PeerEnded,
    Timeout,
    /// The callback takes the value out of the option; `Notified` does likewise.
    JobDone(&'e mut Option<JobResult>),
    Connected(&'e mut Option<Result<Handle, ConnectFailure>>),
    Notified(&'e mut Option<Note>),
    Writable,
    Draining,
    Restored,
}

/// The answer of a callback in a byte: nearly all are `Continue`, while a [`Step`] is as large as a job.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Continue,
    EndOutput,
    Close,
    Abort,
    /// The answer is in the [`More`] beside it.
    More,
}

/// An answer that carries a value.
pub(crate) enum More {
    Work(Job),
    Delegate(Delegate),
    Relay(Handle),
    Panicked(String),
}

impl Answer {
    #[inline(always)]
    fn new(step: Step, more: &mut Option<More>) -> Answer {
        let large = match step {
            Step::Continue => return Answer::Continue,
            Step::EndOutput => return Answer::EndOutput,
            Step::Close => return Answer::Close,
            Step::Abort => return Answer::Abort,
            Step::Work(job) => More::Work(job),
            Step::Delegate(delegate) => More::Delegate(delegate),
            Step::Relay(handle) => More::Relay(handle),
        };
        *more = Some(large);
        Answer::More
    }
}

#[inline(always)]
fn or_panicked(answered: Result<Answer, Panicked>, more: &mut Option<More>) -> Answer {
    answered.unwrap_or_else(|Panicked(message)| {
        *more = Some(More::Panicked(message));
        Answer::More
    })
}

#[inline(always)]
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| Panicked(panics::message(payload)))
}

/// A service of known type, which makes slabs of its states.
pub(crate) struct Slabs<S: Service>(pub(crate) Arc<S>);

impl<S: Service> AnyService for Slabs<S> {
    fn table(&self, capacity: usize) -> Result<TableBox, Panicked> {
        let service = self.0.clone();
        let said = guarded(|| (service.local(), service.closing(), service.receiving()));
        let (local, closing, receiving) = said?;
        let (needs_peer_address, longest_record) = guarded(|| (service.needs_peer_address(), service.longest_record()))?;
        let (state, learns_peer_address) = (AnyService::state(self), AnyService::learns_peer_address(self));
        let table = Box::new(Slab { service, states: States::with_capacity(capacity) });
        Ok(TableBox { table, local, closing, receiving, needs_peer_address, learns_peer_address, longest_record, state })
    }

    fn kind(&self) -> Kind {
        Kind::Protocol
    }

    fn name(&self) -> &'static str {
        std::any::type_name::<S>()
    }

    fn recipe(&self) -> Option<Recipe> {
        guarded(|| self.0.recipe()).unwrap_or_default()
    }

    fn state(&self) -> State {
        guarded(|| self.0.state()).unwrap_or_default()
    }

    fn learns_peer_address(&self) -> bool {
        guarded(|| self.0.learns_peer_address()).unwrap_or_default()
    }

    fn service(&self) -> Arc<dyn DynService> {
        self.0.clone()
    }
}

struct Slab<S: Service> {
    service: Arc<S>,
    states: States<S::Protocol>,
}

impl<S: Service> Table for Slab<S> {
    fn open(&mut self, peer: &Peer, cx: &mut Context<'_>, more: &mut Option<More>) -> Result<(u32, Answer), Panicked> {
        let mut opened = None;
        let answered = guarded(|| {
            let slot = self.states.insert(self.service.open(peer));
            opened = Some(slot);
            Answer::new(self.states.at(slot).opened(cx).opened_with(peer), more)
        });
        match opened {
            Some(slot) => Ok((slot, or_panicked(answered, more))),
            None => answered.map(|_| unreachable!("what did not panic has opened")),
        }
    }

    fn restore(&mut self, peer: &Peer, from: &mut Saved<'_>) -> Result<Result<u32, CannotRestore>, Panicked> {
        let state = guarded(|| from.whole(|from| self.service.restore(peer, from)))?;
        Ok(state.map(|state| self.states.insert(state)))
    }

    fn received(&mut self, slot: u32, input: &mut Input<'_>, cx: &mut Context<'_>, more: &mut Option<More>) -> Answer {
        let state = self.states.at(slot);
        or_panicked(guarded(|| Answer::new(state.received(input, cx), more)), more)
    }

    fn dispatch(&mut self, slot: u32, event: Callback<'_>, cx: &mut Context<'_>, more: &mut Option<More>) -> Answer {
        let state = self.states.at(slot);
        let answered = guarded(|| {
            let step = match event {
                Callback::PeerEnded => state.peer_ended(cx),
                Callback::Timeout => state.timeout(cx),
                Callback::JobDone(result) => state.job_done(result.take().expect("it is given once"), cx),
                Callback::Connected(result) => state.connected(result.take().expect("it is given once"), cx),
                Callback::Notified(note) => state.notified(note.take().expect("it is given once"), cx),
                Callback::Writable => state.writable(cx),
                Callback::Draining => state.draining(cx),
                Callback::Restored => state.restored(cx),
            };
            Answer::new(step, more)
        });
        or_panicked(answered, more)
    }

    fn save(&mut self, slot: u32, to: &mut Saver) -> Result<Result<(), CannotSave>, Panicked> {
        guarded(|| self.states.at(slot).save(to))
    }

    fn owes(&mut self, slot: u32) -> bool {
        guarded(|| self.states.at(slot).owes()).unwrap_or(true)
    }

    fn awaits_peer(&mut self, slot: u32) -> bool {
        // Only layers say so, and these read a value: it has no guard because it cannot panic.
        self.states.at(slot).awaits_peer()
    }

    fn lend(&mut self, slot: u32) -> Option<Lent> {
        // Only layers implement this, and they move values: it has no guard because it cannot panic.
        self.states.at(slot).lend()
    }

    fn pass(&mut self, slot: u32, call: &mut dyn FnMut(&mut dyn Pass)) -> Result<bool, Panicked> {
        guarded(|| self.states.at(slot).passage().map(|Passage(passage)| call(passage)).is_some())
    }

    fn close(&mut self, slot: u32, why: Closed, cx: &mut Context<'_>) -> Result<(), Panicked> {
        let closed = guarded(|| self.states.at(slot).closed(why, cx));
        // Two guards: a panic in `closed` must not keep Drop from running under a guard of its own.
        let dropped = guarded(|| self.states.remove(slot));
        closed.and(dropped)
    }

    fn forget(&mut self, slot: u32) {
        // A panic in Drop ends nothing: there is no connection.
        let _ = guarded(|| self.states.remove(slot));
    }

    fn connect_failed(&mut self, failure: &ConnectFailure, local: &mut Local) -> Result<(), Panicked> {
        guarded(|| self.service.connect_failed(failure, local))
    }

    fn live(&self) -> usize {
        self.states.live
    }

    fn reserve(&mut self, capacity: usize) {
        self.states.made.reserve(capacity);
    }
}

enum StateSlot<T> {
    /// A free slot, with the number of the next free slot.
    Free(u32),
    Live(T),
}

struct States<T> {
    made: Chunks<StateSlot<T>>,
    free: u32,
    live: usize,
}

impl<T> States<T> {
    /// Makes a table with memory for `capacity` states.
    fn with_capacity(capacity: usize) -> States<T> {
        States { made: Chunks::with_capacity(capacity), free: u32::MAX, live: 0 }
    }

    #[inline]
    fn at(&mut self, slot: u32) -> &mut T {
        match self.made.at(slot) {
            StateSlot::Live(state) => state,
            StateSlot::Free(_) => unreachable!("a connection names a live slot"),
        }
    }

    #[inline(always)]
    fn insert(&mut self, state: T) -> u32 {
        let number = if self.free == u32::MAX { self.made.add(|| StateSlot::Free(u32::MAX)) } else { self.free };
        let StateSlot::Free(next) = std::mem::replace(self.made.at(number), StateSlot::Live(state)) else {
            unreachable!("the free list holds free slots")
        };
        self.free = next;
        self.live += 1;
        number
    }

    /// Drops a state, last and in its place: its Drop may panic, and to move it out would leave a copy of the secrets that it wipes.
    fn remove(&mut self, number: u32) {
        let free = std::mem::replace(&mut self.free, number);
        self.live -= 1;
        let slot = self.made.at(number);
        assert!(matches!(slot, StateSlot::Live(_)), "a connection names a live slot");
        *slot = StateSlot::Free(free);
    }
}
