//! What async code knows of its connection, and hears from the pool.

use crate::event_loop::lease::{LeaseWaker, Leased};
use crate::protocol::{ConnectionId, Note, Side};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// A connection, seen from its code. Clones are cheap, and remain of use when the [`Connection`](super::Connection) is elsewhere,
/// such as in a WebSocket.
#[derive(Clone)]
pub struct Context {
    pub(super) leased: Arc<Leased>,
    peer: Option<SocketAddr>,
}

impl Context {
    pub(super) fn new(leased: Arc<Leased>, peer: Option<SocketAddr>) -> Context {
        Context { leased, peer }
    }

    /// Its number, as in [`Pool::connections`](crate::Pool::connections).
    pub fn id(&self) -> ConnectionId {
        self.leased.id
    }

    /// The generation it was accepted under.
    pub fn generation(&self) -> u32 {
        self.leased.generation
    }

    /// Its peer; None for a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Accepted or connected.
    pub fn side(&self) -> Side {
        self.leased.side
    }

    /// Whether the connection was asked to end, or is over.
    pub fn is_draining(&self) -> bool {
        self.leased.is_draining()
    }

    /// When the pool will end this connection, whatever it is doing, if it was asked to end by a deadline: reading and writing fail from
    /// then on.
    pub fn deadline(&self) -> Option<Instant> {
        self.leased.ends_by()
    }

    /// Waits until the connection is asked to end, or is over. It should finish what it does, say goodbye and be dropped: at
    /// [`Context::deadline`] nothing can be read or written any more.
    pub async fn draining(&self) {
        self.until(|leased| leased.is_draining().then_some(())).await;
    }

    /// The next note for this connection: see [`Pool::notify`](crate::Pool::notify). None when the connection is over. Notes
    /// wait until they are taken, 1,024 at most.
    pub async fn note(&self) -> Option<Note> {
        self.until(|leased| leased.take_note().map(Some).or_else(|| leased.has_ended().then_some(None))).await
    }

    async fn until<T>(&self, look: impl Fn(&Leased) -> Option<T>) -> T {
        let change = LeaseWaker::new(&self.leased);
        poll_fn(|cx| {
            let seen = look(&self.leased).or_else(|| {
                change.wakes(cx.waker());
                // It may have changed before this task was known.
                look(&self.leased)
            });
            seen.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, generation) = (self.id(), self.generation());
        f.debug_struct("Context").field("id", &id).field("generation", &generation).field("peer", &self.peer).finish()
    }
}
