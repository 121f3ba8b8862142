//! Async handlers whose connections move to a new build: at a point of its choice a handler gives its connection back, with its state.

use super::{Connection, guarded};
use crate::event_loop::lease::delegate;
use crate::protocol::{CannotRestore, CannotSave, Context, Input, Note, Peer, Protocol, Saved, Saver, Service, State, Step};
use crate::sync::{Mutex, lock};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A connection that was given back and did not move goes on after this time, or as soon as something comes in.
const RESTS: Duration = Duration::from_secs(1);

/// An async handler whose connections move, in an [upgrade](crate::Upgrade), to a new build of the program: see
/// [`Behaviour::handler`](crate::Behaviour::handler).
///
/// While a new build takes over, [`Info::moving`](super::Info::moving) is ready. The handler returns the connection then, at a point at which
/// [`Handler::State`] is all that it needs to go on: between two messages, with nothing in a buffer of its own. The handler of the new build goes on
/// with both. If the connection does not move after all, for its peer or the new build ended, the handler of this process goes on with them within
/// a second. What is written before is delivered first, and input that was not read goes along.
///
/// ```
/// use sockdrawer::tasks::{Connection, Handler};
/// use sockdrawer::{Behaviour, CannotRestore, CannotSave, Config, Model, Saved, Saver, State};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// /// Answers each byte with the number of bytes so far.
/// struct Counter;
///
/// impl Handler for Counter {
///     type State = u64;
///
///     async fn serve(&self, mut connection: Connection, state: Option<u64>) -> Option<(Connection, u64)> {
///         let (mut count, info) = (state.unwrap_or(0), connection.info().clone());
///         loop {
///             tokio::select! {
///                 byte = connection.read_u8() => {
///                     byte.ok()?;
///                     count += 1;
///                     connection.write_all(format!("{count}\n").as_bytes()).await.ok()?;
///                 }
///                 () = info.moving() => return Some((connection, count)),
///             }
///         }
///     }
///
///     fn state(&self) -> State {
///         State::of("counter", 1)
///     }
///
///     fn save(&self, count: &u64, to: &mut Saver) -> Result<(), CannotSave> {
///         to.u64(*count);
///         Ok(())
///     }
///
///     fn restore(&self, from: &mut Saved<'_>) -> Result<u64, CannotRestore> {
///         from.u64()
///     }
/// }
///
/// let config = Config::accept(Behaviour::handler(Counter)).model(Model::Tasks);
/// ```
pub trait Handler: Send + Sync + 'static {
    /// All that the handler knows of a connection between two messages.
    type State: Send + 'static;

    /// Serves a connection: a new one, or one that goes on with a state. It ends when this returns None, or drops it; with the connection and a
    /// state it moves, and is served again otherwise.
    fn serve(
        &self,
        connection: Connection,
        state: Option<Self::State>,
    ) -> impl Future<Output = Option<(Connection, Self::State)>>;

    /// Returns the name and the version of the saved state, and what is read: see [`Service::state`].
    fn state(&self) -> State;

    /// Writes a state for another build.
    ///
    /// # Errors
    /// If it cannot be written: the connection stays.
    fn save(&self, state: &Self::State, to: &mut Saver) -> Result<(), CannotSave>;

    /// Reads what another build has written.
    ///
    /// # Errors
    /// If it cannot be read: the connection stays in the other build.
    fn restore(&self, from: &mut Saved<'_>) -> Result<Self::State, CannotRestore>;
}

/// The service of a [`Handler`].
pub(super) struct HandlerService<H> {
    handler: Arc<H>,
    /// Connections of the handler may move: it declares a state.
    moves: bool,
}

impl<H: Handler> HandlerService<H> {
    pub(super) fn new(handler: H) -> HandlerService<H> {
        let moves = handler.state() != State::none();
        HandlerService { handler: Arc::new(handler), moves }
    }

    fn resting(&self, state: Option<H::State>) -> Resting<H> {
        Resting { handler: self.handler.clone(), state, notes: self.moves.then(Arc::default) }
    }
}

impl<H: Handler> Service for HandlerService<H> {
    type Protocol = Resting<H>;

    fn open(&self, _peer: &Peer) -> Resting<H> {
        self.resting(None)
    }

    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Resting<H>, CannotRestore> {
        self.handler.restore(from).map(|state| self.resting(Some(state)))
    }

    fn state(&self) -> State {
        self.handler.state()
    }
}

/// A connection that no task has: a new one, one that may move, or one that ends.
pub(super) struct Resting<H: Handler> {
    handler: Arc<H>,
    /// The state with which its handler has given it back.
    state: Option<H::State>,
    /// Notes that the next task is to have. None: the connection never moves, so that there is no other task.
    notes: Option<Arc<Mutex<Vec<Note>>>>,
}

/// The note by which a handler gives a connection back.
struct Rested<S>(S);

impl<H: Handler> Resting<H> {
    fn serve(&mut self, cx: &mut Context<'_>) -> Step {
        let (handler, state, notes, handle) = (self.handler.clone(), self.state.take(), self.notes.clone(), cx.handle());
        Step::Delegate(delegate(false, move |mut lease| {
            lease.handle = Some(handle);
            if let Some(notes) = notes {
                lease.leased.may_move();
                // A note that finds no room is dropped, as any is that waits for a task.
                std::mem::take(&mut *lock(&notes)).into_iter().for_each(|note| _ = lease.leased.put_note(note));
            }
            tokio::task::spawn_local(guarded(async move {
                if let Some((connection, state)) = handler.serve(Connection::new(lease), state).await {
                    connection.give_back(Note::value(Rested(state)));
                }
            }));
        }))
    }

    /// Goes on with the handler of a connection that was given back, after something has happened to it.
    fn goes_on(&mut self, cx: &mut Context<'_>, otherwise: Step) -> Step {
        if self.state.is_some() { self.serve(cx) } else { otherwise }
    }
}

impl<H: Handler> Protocol for Resting<H> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.serve(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if self.state.is_none() {
            // A connection that came back without a state is ending.
            input.take_all();
        }
        self.goes_on(cx, Step::Continue)
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        self.goes_on(cx, Step::Close)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.goes_on(cx, Step::Continue)
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.goes_on(cx, Step::Close)
    }

    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        self.goes_on(cx, Step::Close)
    }

    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        match note.take::<Rested<H::State>>() {
            Ok(given_back) => {
                self.state = Some(given_back.0);
                cx.set_timer(RESTS);
                Step::Continue
            }
            Err(note) => {
                if let Some(notes) = &self.notes {
                    lock(notes).push(note);
                }
                self.goes_on(cx, Step::Continue)
            }
        }
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        match &self.state {
            Some(state) => self.handler.save(state, to),
            None => Err(CannotSave::because("its handler has not given it back")),
        }
    }
}
