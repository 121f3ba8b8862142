//! The queue of connections from the loops of a pool to code on another runtime.

use super::connection::Connection;
use crate::event_loop::lease::{Lease, LeaseQueue, Leased};
use crate::net::Address;
use crate::pool::Pool;
use crate::sync::{Mutex, lock};
use crate::sys::panics;
use futures_core::Stream;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Connections that wait to be taken: at most as many as there are permits. Each queue belongs to one behaviour.
#[derive(Default)]
pub(crate) struct Queue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Lease>,
    /// Wakers of listeners, and of tasks that wait for the end.
    wakers: Vec<Waker>,
    listeners: usize,
    /// The last listener was dropped: connections that come will not be taken.
    deserted: bool,
    /// No more connections come: the behaviour is out of force, or its pool has stopped.
    ended: bool,
}

impl Queue {
    pub(super) fn put(self: &Arc<Queue>, lease: Lease) {
        let here: Arc<dyn LeaseQueue> = self.clone();
        lease.leased.waits_in(Arc::downgrade(&here));
        // Dropped outside the lock: the connection returns to its loop, and its peer sees the end.
        drop(self.change(|state| {
            if state.deserted {
                return Some(lease);
            }
            state.ended = false;
            state.waiting.push_back(lease);
            None
        }));
    }

    pub(crate) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    fn change<T>(&self, change: impl FnOnce(&mut QueueState) -> T) -> T {
        let (done, wakers) = {
            let mut state = lock(&self.0);
            (change(&mut state), std::mem::take(&mut state.wakers))
        };
        for waker in wakers {
            // A waker runs code of a runtime that is not part of this library: it may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake())).map_err(panics::discard);
        }
        done
    }

    fn enter(&self) {
        let mut state = lock(&self.0);
        state.listeners += 1;
        (state.deserted, state.ended) = (false, false);
    }

    /// Enters unless a listener was there before.
    fn enter_first(&self) -> bool {
        let mut state = lock(&self.0);
        let is_first = state.listeners == 0 && !state.deserted;
        state.listeners += usize::from(is_first);
        is_first
    }

    fn leave(&self) {
        let left = {
            let mut state = lock(&self.0);
            state.listeners -= 1;
            state.deserted = state.listeners == 0;
            if state.deserted { std::mem::take(&mut state.waiting) } else { VecDeque::new() }
        };
        drop(left);
    }

    /// Polls for the next connection; None at the end.
    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Lease>> {
        self.poll_state(cx, |state| state.waiting.pop_front().map(Some).or(state.ended.then_some(None)))
    }

    fn poll_state<T>(&self, cx: &Context<'_>, look: impl FnOnce(&mut QueueState) -> Option<T>) -> Poll<T> {
        let mut state = lock(&self.0);
        if let Some(seen) = look(&mut state) {
            return Poll::Ready(seen);
        }
        if !state.wakers.iter().any(|known| known.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl LeaseQueue for Queue {
    fn give_up(&self, leased: &Arc<Leased>) -> bool {
        let given_up = {
            let mut state = lock(&self.0);
            let at = state.waiting.iter().position(|lease| Arc::ptr_eq(&lease.leased, leased));
            at.and_then(|at| state.waiting.remove(at))
        };
        // Dropped outside the lock: the connection returns to its loop.
        given_up.is_some()
    }
}

/// Takes the connections of a pool: `axum::serve(pool.listener(), app)`, or as a stream. It works on any runtime of tokio.
///
/// It never fails: errors of accepting are handled by the pool. No connection is lost between the pool and the listener: a connection that
/// was not taken yet waits, with its permit, so that a server which does not keep up gets no more connections than the pool's limit. A
/// connection that ends while it waits is dropped and counted as `untaken`: after a reset by its peer, and in a pool that connects also
/// after the peer's end. When the last listener of a behaviour is dropped, connections that wait, and those that still come, are ended
/// in order.
///
/// A listener keeps its pool running. It ends when the pool has stopped, and when its behaviour was replaced and the last connection of
/// that behaviour has ended; `axum::serve` then waits for ever, unless its shutdown signal is [`Listener::ended`].
#[must_use = "connections that come when this was dropped end at once"]
pub struct Listener {
    queue: Arc<Queue>,
    pool: Pool,
}

impl Listener {
    pub(crate) fn new(queue: Arc<Queue>, pool: Pool) -> Listener {
        queue.enter();
        Listener { queue, pool }
    }

    /// Returns the first listener of the behaviour that a pool has in force. None: one was taken before, or the behaviour is none of
    /// [`Behaviour::listener`](crate::Behaviour::listener). For code that looks after pools which others change.
    pub fn first_of(pool: &Pool) -> Option<Listener> {
        let behaviour = pool.config().behaviour;
        let queue = super::queue(&behaviour).filter(|queue| queue.enter_first())?.clone();
        Some(Listener { queue, pool: pool.clone() })
    }

    /// Waits for the next connection; None at the end. Cancel-safe: no connection is lost when the future is dropped.
    pub async fn accept(&mut self) -> Option<Connection> {
        poll_fn(|cx| self.queue.poll(cx)).await.map(Connection::new)
    }

    /// Returns a future that waits for the end of the listener, for `axum::serve(listener, app).with_graceful_shutdown(ended)`.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let queue = self.queue.clone();
        poll_fn(move |cx| queue.poll_state(cx, |state| (state.ended && state.waiting.is_empty()).then_some(())))
    }

    /// Returns the first address at which the pool listens now; None for a Unix socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrNotAvailable`], when the pool listens at no address.
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        match self.pool.addresses().first() {
            Some(Address::Tcp(address)) => Ok(Some(*address)),
            Some(_) => Ok(None),
            None => Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the pool listens at no address")),
        }
    }
}

impl Stream for Listener {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Connection>>> {
        self.queue.poll(cx).map(|lease| lease.map(|lease| Ok(Connection::new(lease))))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.queue.leave();
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}
