//! The info of a connection in async code: its properties, and requests and notes from the pool.

use crate::event_loop::lease::{LeaseWaker, Leased};
use crate::protocol::{ConnectionId, Note, Peer, Side};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// The properties of a connection, and what the pool sends it. Clones are cheap, and work when the [`Connection`](super::Connection) was
/// moved elsewhere, such as into a WebSocket.
#[derive(Clone)]
pub struct Info {
    pub(super) leased: Arc<Leased>,
}

impl Info {
    pub(super) fn new(leased: Arc<Leased>) -> Info {
        Info { leased }
    }

    /// The connection's number, as in [`Pool::connections`](crate::Pool::connections).
    pub fn id(&self) -> ConnectionId {
        self.leased.id
    }

    /// The number of the generation under which the connection was accepted.
    pub fn generation(&self) -> u32 {
        self.leased.generation
    }

    /// The peer of the connection, with what its layers know of it: see [`Peer::fact`].
    pub fn peer(&self) -> &Peer {
        &self.leased.peer
    }

    /// Whether the connection was accepted or made by connecting.
    pub fn side(&self) -> Side {
        self.leased.peer.side()
    }

    /// Whether the connection was asked to end, or has ended.
    pub fn is_draining(&self) -> bool {
        self.leased.is_draining()
    }

    /// The deadline at which the pool ends this connection, if it was asked to end by one: reads and writes fail from then on.
    pub fn deadline(&self) -> Option<Instant> {
        self.leased.ends_by()
    }

    /// Waits until the connection is asked to end, or has ended. The handler should then finish its work, say goodbye and drop the
    /// connection: at [`Info::deadline`] reads and writes fail.
    pub async fn draining(&self) {
        self.until(|leased| leased.is_draining().then_some(())).await;
    }

    /// Waits for the next note to this connection: see [`Pool::notify`](crate::Pool::notify). None when the connection has ended. At most
    /// 1,024 notes wait to be taken; further ones are dropped and counted.
    pub async fn note(&self) -> Option<Note> {
        self.until(|leased| leased.take_note().map(Some).or_else(|| leased.has_ended().then_some(None))).await
    }

    async fn until<T>(&self, look: impl Fn(&Leased) -> Option<T>) -> T {
        let change = LeaseWaker::new(&self.leased);
        poll_fn(|cx| {
            let seen = look(&self.leased).or_else(|| {
                change.wakes(cx.waker());
                // The state may have changed before the waker was registered.
                look(&self.leased)
            });
            seen.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl std::fmt::Debug for Info {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, generation) = (self.id(), self.generation());
        f.debug_struct("Info").field("id", &id).field("generation", &generation).field("peer", &self.peer().remote()).finish()
    }
}
