//! The info of a connection in async code: its properties, and requests and notes from the pool.

use crate::event_loop::lease::{LeaseWaker, Leased};
use crate::protocol::{ConnectionId, Handle, Note, Peer, Side};
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The properties of a connection, and what the pool sends it. Clones are cheap, and work when the [`Connection`](super::Connection) was
/// moved elsewhere, such as into a WebSocket.
#[derive(Clone)]
pub struct Info {
    pub(super) leased: Arc<Leased>,
    handle: Handle,
}

/// The notes to a connection: see [`Info::notes`].
pub struct Notes {
    info: Info,
    change: LeaseWaker,
}

impl Info {
    pub(super) fn new(leased: Arc<Leased>, handle: Handle) -> Info {
        Info { leased, handle }
    }

    /// Returns a handle that sends notes to the connection from any thread, has it join [groups](crate::Group) and leave them, and gives it a tag.
    /// What is published to its groups comes as notes.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the connection's number, as in [`Pool::connections`](crate::Pool::connections).
    pub fn id(&self) -> ConnectionId {
        self.leased.id
    }

    /// Returns the number of the generation under which the connection was accepted.
    pub fn generation(&self) -> u32 {
        self.leased.generation
    }

    /// Returns the peer of the connection, with what its layers know of it: see [`Peer::fact`].
    pub fn peer(&self) -> &Peer {
        &self.leased.peer
    }

    /// Returns whether the connection was accepted or made by connecting.
    pub fn side(&self) -> Side {
        self.leased.peer.side()
    }

    /// Returns true where the connection was asked to end, or has ended.
    pub fn is_draining(&self) -> bool {
        self.leased.is_draining()
    }

    /// Returns the deadline at which the pool ends this connection, if it was asked to end by one: reads and writes fail from then on.
    pub fn deadline(&self) -> Option<Instant> {
        self.leased.ends_by()
    }

    /// Waits until the connection is asked to end, or has ended. The handler should then finish its work, say goodbye and drop the
    /// connection: at [`Info::deadline`] reads and writes fail.
    pub async fn draining(&self) {
        self.until(|info| info.is_draining().then_some(())).await;
    }

    /// Waits until the connection is to move to a new build, and its handler can give it back for that: see [`Handler`](super::Handler).
    pub async fn moving(&self) {
        self.until(|info| info.leased.is_asked_to_move().then_some(())).await;
    }

    /// Waits for the next note to this connection: see [`PoolHandle::notify`](crate::PoolHandle::notify). None when the connection has ended. At most
    /// 1,024 notes wait to be taken; further ones are dropped and counted.
    pub async fn note(&self) -> Option<Note> {
        self.until(Info::next_note).await
    }

    /// Returns the notes as a stream, which ends when the connection has ended. They are those of [`Info::note`]: each is taken once, by one of them.
    pub fn notes(&self) -> Notes {
        Notes { info: self.clone(), change: LeaseWaker::new(&self.leased) }
    }

    fn next_note(&self) -> Option<Option<Note>> {
        self.leased.take_note().map(Some).or_else(|| self.leased.has_ended().then_some(None))
    }

    async fn until<T>(&self, look: impl Fn(&Info) -> Option<T>) -> T {
        let change = LeaseWaker::new(&self.leased);
        poll_fn(|cx| self.poll(&change, cx, &look)).await
    }

    fn poll<T>(&self, change: &LeaseWaker, cx: &Context<'_>, look: impl Fn(&Info) -> Option<T>) -> Poll<T> {
        let seen = look(self).or_else(|| {
            change.wakes(cx.waker());
            // The state may have changed before the waker was registered.
            look(self)
        });
        seen.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Stream for Notes {
    type Item = Note;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Note>> {
        self.info.poll(&self.change, cx, Info::next_note)
    }
}

impl std::fmt::Debug for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Notes({})", self.info.id())
    }
}

impl std::fmt::Debug for Info {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, generation) = (self.id(), self.generation());
        f.debug_struct("Info").field("id", &id).field("generation", &generation).field("peer", &self.peer().remote()).finish()
    }
}
