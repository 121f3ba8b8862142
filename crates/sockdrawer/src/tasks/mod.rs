//! Async code on a pool: handlers, and a listener for servers that bring their own, such as axum. Feature `tokio`.
//!
//! A pool of [`Model::Tasks`](crate::Model::Tasks) has a runtime in each of its loops. A handler's tasks run on the loop that
//! accepted their connection and never leave its thread, so its futures need not be `Send`. A [`Listener`] carries
//! connections to any runtime of the program. Either way the pool keeps counting: permit, number, generation and bytes belong to
//! the [`Connection`], wherever it is moved, and the connection is over when that is dropped.

#[cfg(feature = "axum")]
mod axum;
mod connection;
mod context;
mod listener;

pub use connection::{Connection, ReadHalf, WriteHalf};
pub use context::Context;
pub use listener::Listener;
pub(crate) use listener::Queue;

use crate::behaviour::{AnyService, Behaviour, Kind, Panicked, Slabs, TableBox};
use crate::event_loop::lease::{Lease, LeaseEnd, delegate};
use crate::protocol::{self, Input, Peer, Protocol, Recipe, Service, Step};
use crate::sys::panics;
use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

impl Behaviour {
    /// A task for each connection, for [`Model::Tasks`](crate::Model::Tasks): `handler` is called, and its future run, on the
    /// loop that accepted the connection. A panic in it resets the connection that it holds, and nothing else.
    ///
    /// ```
    /// use sockdrawer::{Behaviour, Config, Model, tasks::{Connection, Context}};
    ///
    /// async fn echo(mut connection: Connection, _context: Context) {
    ///     let (mut reader, mut writer) = tokio::io::split(&mut connection);
    ///     // A peer that is gone is no fault of this server.
    ///     let _ = tokio::io::copy(&mut reader, &mut writer).await;
    /// }
    ///
    /// let config = Config::accept(Behaviour::task(echo)).model(Model::Tasks);
    /// ```
    pub fn task<H, F>(handler: H) -> Behaviour
    where
        H: Fn(Connection, Context) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + 'static,
    {
        Behaviour::of_kind(Task(Arc::new(handler)), Kind::Task)
    }

    /// Connections for whoever takes them from [`Pool::listener`](crate::Pool::listener), for
    /// [`Model::Tasks`](crate::Model::Tasks). Each call makes another queue: a pool that is changed to another one goes on with
    /// that, and connections of the old one stay with those who took them.
    pub fn listener() -> Behaviour {
        Behaviour::Protocol(Arc::new(Source(Slabs(Arc::new(Queued(Arc::default()))))))
    }
}

/// Gives each connection to a task of its own.
struct Task<H>(Arc<H>);

impl<H> Clone for Task<H> {
    fn clone(&self) -> Task<H> {
        Task(self.0.clone())
    }
}

impl<H, F> Service for Task<H>
where
    H: Fn(Connection, Context) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    type Protocol = Given<Task<H>>;

    fn open(&self, _peer: &Peer) -> Given<Task<H>> {
        Given(self.clone())
    }
}

/// Gives each connection to the listeners.
#[derive(Clone)]
struct Queued(Arc<Queue>);

impl Service for Queued {
    type Protocol = Given<Queued>;

    fn open(&self, _peer: &Peer) -> Given<Queued> {
        Given(self.clone())
    }
}

/// The service whose connections go to listeners. It is gone when its behaviour is out of force everywhere, and its last
/// connection ended.
struct Source(Slabs<Queued>);

impl Source {
    fn listeners(&self) -> &Arc<Queue> {
        &self.0.0.0
    }
}

impl AnyService for Source {
    fn table(&self, capacity: usize) -> Result<TableBox, Panicked> {
        self.0.table(capacity)
    }

    fn kind(&self) -> Kind {
        Kind::Task
    }

    fn recipe(&self) -> Option<Recipe> {
        None
    }

    fn queue(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(self.listeners())
    }
}

/// Where a behaviour's connections wait for listeners, if they do.
pub(crate) fn queue(behaviour: &Behaviour) -> Option<&Arc<Queue>> {
    behaviour.service().queue()?.downcast_ref()
}

impl Drop for Source {
    fn drop(&mut self) {
        self.listeners().end();
    }
}

/// Who takes connections from the event loop.
trait Taker: Clone + Send + 'static {
    fn take(self, lease: Lease);
}

impl<H, F> Taker for Task<H>
where
    H: Fn(Connection, Context) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    fn take(self, lease: Lease) {
        let handler = self.0;
        tokio::task::spawn_local(guarded(async move {
            let connection = Connection::new(lease);
            let context = connection.context().clone();
            handler(connection, context).await;
        }));
    }
}

impl Taker for Queued {
    fn take(self, lease: Lease) {
        self.0.put(lease);
    }
}

/// A protocol that gives its connection away as soon as it opens.
struct Given<T>(T);

impl<T: Taker> Protocol for Given<T> {
    fn opened(&mut self, _cx: &mut protocol::Context<'_>) -> Step {
        let taker = self.0.clone();
        Step::Delegate(delegate(false, move |lease| taker.take(lease)))
    }

    fn received(&mut self, input: &mut Input<'_>, _cx: &mut protocol::Context<'_>) -> Step {
        // A connection that came back ends: this is input of its last moments.
        input.take_all();
        Step::Continue
    }
}

thread_local! {
    /// What the task that is polled on this thread lets go of by panicking. None where none is polled.
    static FALLEN: RefCell<Option<Vec<Lease>>> = const { RefCell::new(None) };
}

/// Runs a handler's future. What it held when it panicked comes back with the panic's message.
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
    // A thread at its very end has no such place any more.
    let _ = FALLEN.try_with(move |fallen| {
        if let Some(fallen) = fallen.borrow_mut().as_mut() {
            fallen.push(lease);
        }
    });
}
