//! Async code on a pool: handlers, and a listener for servers such as axum that spawn tasks themselves. Feature `tokio`.
//!
//! A pool of [`Model::Tasks`](crate::Model::Tasks) has a runtime in each of its loops. A handler's tasks run on the loop that
//! accepted their connection and never leave its thread, so its futures need not be `Send`. A [`Listener`] carries
//! connections to any runtime of the program. Either way the pool keeps counting: permit, number, generation and byte counts belong to
//! the [`Connection`], wherever it is moved, and the connection ends when its [`Connection`] is dropped.

#[cfg(feature = "axum")]
mod axum;
mod connection;
mod handler;
mod info;
mod listener;

pub use connection::{Connection, ReadHalf, WriteHalf};
pub use handler::Handler;
use handler::HandlerService;
pub use info::{Info, Notes};
pub use listener::Listener;
pub(crate) use listener::Queue;

use crate::behaviour::{AnyService, Behaviour, DynService, Kind, Panicked, Slabs, TableBox};
use crate::event_loop::lease::{Lease, LeaseEnd, delegate};
use crate::protocol::{self, CannotRestore, CannotSave, Input, Peer, Protocol, Recipe, Saved, Saver, Service, State, Step};
use crate::sys::panics;
use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

impl Behaviour {
    /// Returns a task for each connection, for [`Model::Tasks`](crate::Model::Tasks): `handler` is called, and its future runs, on the loop that
    /// accepted the connection. A panic in it resets the connections that its future owns, and no other. Its connections stay when a new build takes
    /// over; those of [`Behaviour::handler`] move.
    ///
    /// ```
    /// use sockdrawer::{Behaviour, Config, Model, tasks::{Connection, Info}};
    ///
    /// async fn echo(mut connection: Connection, _info: Info) {
    ///     let (mut reader, mut writer) = tokio::io::split(&mut connection);
    ///     // An error means that the peer is gone, which is not this server's fault.
    ///     let _ = tokio::io::copy(&mut reader, &mut writer).await;
    /// }
    ///
    /// let config = Config::accept(Behaviour::task(echo)).model(Model::Tasks);
    /// ```
    pub fn task<H, F>(handler: H) -> Behaviour
    where
        H: Fn(Connection, Info) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + 'static,
    {
        Behaviour::handler(HandlerFn(handler))
    }

    /// Returns a task for each connection, as by [`Behaviour::task`], whose connections move to a new build: for
    /// [`Model::Tasks`](crate::Model::Tasks).
    pub fn handler(handler: impl Handler) -> Behaviour {
        Behaviour::of_kind(HandlerService::new(handler), Kind::Task)
    }

    /// Returns a queue of connections that are taken from [`Pool::listener`](crate::Pool::listener), for [`Model::Tasks`](crate::Model::Tasks).
    /// Each call makes another queue, for one pool: a pool that stops ends the listeners of its queue. When a pool changes to another queue, its new
    /// connections go there, and connections taken from the old queue are not affected.
    pub fn listener() -> Behaviour {
        Behaviour::Protocol(Arc::new(ListenerService(Slabs(Arc::new(Queued(Arc::default()))))))
    }
}

/// A function as a [`Handler`] that gives no connection back.
struct HandlerFn<F>(F);

impl<H, F> Handler for HandlerFn<H>
where
    H: Fn(Connection, Info) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    type State = Infallible;

    async fn serve(&self, connection: Connection, _: Option<Infallible>) -> Option<(Connection, Infallible)> {
        let info = connection.info().clone();
        (self.0)(connection, info).await;
        None
    }

    fn state(&self) -> State {
        State::none()
    }

    fn save(&self, state: &Infallible, _to: &mut Saver) -> Result<(), CannotSave> {
        match *state {}
    }

    fn restore(&self, _from: &mut Saved<'_>) -> Result<Infallible, CannotRestore> {
        Err(CannotRestore::because("its handler has no state"))
    }
}

/// The service of [`Behaviour::listener`]: each connection is put into the queue.
#[derive(Clone)]
struct Queued(Arc<Queue>);

impl Service for Queued {
    type Protocol = Queueing;

    fn open(&self, _peer: &Peer) -> Queueing {
        Queueing(self.0.clone())
    }
}

/// The service of [`Behaviour::listener`] with its type erased. It is dropped, which ends the queue, when no loop uses its behaviour any
/// more and its last connection has ended.
struct ListenerService(Slabs<Queued>);

impl ListenerService {
    fn listeners(&self) -> &Arc<Queue> {
        &self.0.0.0
    }
}

impl AnyService for ListenerService {
    fn state(&self) -> State {
        State::none()
    }

    fn table(&self, capacity: usize) -> Result<TableBox, Panicked> {
        self.0.table(capacity)
    }

    fn kind(&self) -> Kind {
        Kind::Task
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn recipe(&self) -> Option<Recipe> {
        None
    }

    fn queue(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(self.listeners())
    }

    fn service(&self) -> Arc<dyn DynService> {
        self.0.service()
    }
}

/// Returns the queue of a behaviour made by [`Behaviour::listener`].
pub(crate) fn queue(behaviour: &Behaviour) -> Option<&Arc<Queue>> {
    behaviour.service().queue()?.downcast_ref()
}

impl Drop for ListenerService {
    fn drop(&mut self) {
        self.listeners().end();
    }
}

/// A protocol that puts its connection into the queue as soon as it opens.
struct Queueing(Arc<Queue>);

impl Protocol for Queueing {
    fn opened(&mut self, cx: &mut protocol::Context<'_>) -> Step {
        let (queue, handle) = (self.0.clone(), cx.handle());
        Step::Delegate(delegate(false, move |mut lease| {
            lease.handle = Some(handle);
            queue.put(lease);
        }))
    }

    fn received(&mut self, input: &mut Input<'_>, _cx: &mut protocol::Context<'_>) -> Step {
        // A connection that returned from its delegate is ending: input that arrives now is discarded.
        input.take_all();
        Step::Continue
    }
}

thread_local! {
/// Leases dropped by a panic of the task that is polled on this thread. None while no task is polled.
    static FALLEN: RefCell<Option<Vec<Lease>>> = const { RefCell::new(None) };
}

/// Runs a handler's future. Connections that it owned when it panicked return to their loop with the panic's message.
async fn guarded(handler: impl Future<Output = ()>) {
    let mut handler = pin!(handler);
    poll_fn(|cx| {
        FALLEN.set(Some(Vec::new()));
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
        let fallen = FALLEN.take();
        polled.unwrap_or_else(|payload| {
            let message = panics::message(payload);
            for mut lease in fallen.into_iter().flatten() {
                lease.outcome = LeaseEnd::Panicked(message.clone());
                drop(lease);
            }
            Poll::Ready(())
        })
    })
    .await;
}

/// Keeps the hold of a panicking task for [`guarded`]; outside of one it comes back without the message.
fn let_fall(lease: Lease) {
    // At the very end of a thread its thread-local values are gone already.
    let _ = FALLEN.try_with(move |fallen| {
        if let Some(fallen) = fallen.borrow_mut().as_mut() {
            fallen.push(lease);
        }
    });
}
