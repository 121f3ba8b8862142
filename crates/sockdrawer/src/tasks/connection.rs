//! Connections for async code.

use super::info::Info;
use super::let_fall;
use crate::blocking;
use crate::event_loop::lease::{Lease, LeaseEnd, LeaseWaker};
use crate::protocol::{Handle, Note};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, reactor};
use std::io;
use std::io::ErrorKind::{Interrupted, NotConnected, WouldBlock};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A connection that async code reads and writes. As long as this value exists, the connection has its permit and is counted, listed,
/// drained, purged and killed like any other. When it is dropped, the connection ends: what was written is delivered, and the peer sees
/// the end.
///
/// It belongs to the tokio runtime on which a read or a write first had to wait.
///
/// Under a [layer](crate::layer) all bytes are plain. A read returns 0 after the goodbye of the peer's end of the layer, and fails with
/// [`io::ErrorKind::UnexpectedEof`] where the layer takes the end of the stream for an attack, and with [`io::ErrorKind::InvalidData`] when
/// it refuses what came; such a connection ends with what the layer says of it, such as an alert, or with a reset. A shutdown, and the end of the
/// connection, say goodbye.
#[must_use = "the connection ends when this is dropped"]
pub struct Connection {
    /// Dropped first: a socket that returned to its loop must not be registered with the runtime.
    watched: Option<AsyncFd<Arc<OwnedFd>>>,
    /// The lease; None while the connection is dropped.
    lease: Option<Lease>,
    /// Wakers of the tasks that read and write; two halves may be in two tasks.
    reader: LeaseWaker,
    writer: LeaseWaker,
    /// The task that waited last for room to write, under a layer.
    waits_to_write: Option<Waker>,
    info: Info,
}

impl Connection {
    pub(crate) fn new(mut lease: Lease) -> Connection {
        let handle = lease.handle.take().expect("its protocol gave one away with it");
        let info = Info::new(lease.leased.clone(), handle);
        let (reader, writer) = (LeaseWaker::new(&lease.leased), LeaseWaker::new(&lease.leased));
        Connection { watched: None, lease: Some(lease), reader, writer, waits_to_write: None, info }
    }

    /// Returns the properties of the connection, and what the pool sends it.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the number of bytes that the kernel has of what was written, because the peer has not acknowledged them; for a Unix socket the memory
    /// that they take, which is freed in parts of some KiB; 0 where the connection is gone. Where it falls, the peer reads: a write that waits for
    /// room does not say so, because the kernel tells of room only once about a third of its buffer is free, up to some MiB.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.lease.as_ref().map_or(0, Lease::unacknowledged)
    }

    /// Ends the connection with a reset: the peer sees that data is missing, whereas an orderly end would look complete.
    pub fn abort(mut self) {
        if let Some(lease) = &mut self.lease {
            lease.outcome = LeaseEnd::Abort;
        }
    }

    /// Makes a connection for async code of one for blocking code. Its info has this handle.
    pub fn from_blocking(connection: blocking::Connection, handle: Handle) -> Connection {
        let mut lease = connection.into_lease();
        lease.handle = Some(handle);
        Connection::new(lease)
    }

    /// Makes it a connection for blocking code. It then belongs to no runtime.
    pub fn into_blocking(mut self) -> blocking::Connection {
        self.watched = None;
        blocking::Connection::new(self.lease.take().expect("only dropping it takes the lease"))
    }

    /// Gives the connection back to its protocol, with this note.
    pub(super) fn give_back(mut self, note: Note) {
        if let Some(lease) = &mut self.lease {
            lease.outcome = LeaseEnd::Note(note);
        }
    }

    /// Splits the connection into a half that reads and a half that writes, for two tasks. When the writing half is dropped, the peer sees
    /// the end of the stream; the connection ends when both halves are dropped.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let whole = Arc::new(Mutex::new(self));
        (ReadHalf(whole.clone()), WriteHalf(whole))
    }

    /// Makes a call on the socket, of up to `length` bytes, when the socket is ready for it.
    fn call(
        &mut self,
        cx: &mut task::Context<'_>,
        interest: Interest,
        length: usize,
        mut call: impl FnMut(&mut Lease) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let lease = self.lease.as_mut().expect("only dropping it takes the lease");
        // Most peers have sent by now, so a first read needs no registration. Kept input is there whatever the socket has.
        if self.watched.is_none() || (interest.is_readable() && lease.has_kept()) {
            match call(lease) {
                Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => {}
                done => return Poll::Ready(done),
            }
        }
        if self.watched.is_none() {
            self.watched = Some(reactor::watched(lease.shared(), Interest::READABLE | Interest::WRITABLE)?);
        }
        let watched = self.watched.as_ref().expect("just filled");
        if interest.is_readable() && lease.has_unsent() {
            send_unsent(watched, lease, self.waits_to_write.as_ref(), cx);
        }
        loop {
            let (ready, change) = if interest.is_readable() {
                (watched.poll_read_ready(cx), &self.reader)
            } else {
                (watched.poll_write_ready(cx), &self.writer)
            };
            let Poll::Ready(ready) = ready else {
                change.wakes(cx.waker());
                if interest.is_writable() && lease.is_filtered() {
                    self.waits_to_write = Some(cx.waker().clone());
                }
                // The connection may have ended before the waker was registered.
                return if lease.leased.has_ended() { Poll::Ready(Err(Errno::CONNABORTED.into())) } else { Poll::Pending };
            };
            let mut ready = ready?;
            match call(lease) {
                Err(error) if error.kind() == WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == Interrupted => {}
                done => {
                    // A short read or write emptied or filled the socket: the next event tells when to go on. The end is remembered. A filter
                    // makes pieces of its own.
                    if done.as_ref().is_ok_and(|count| 0 < *count && *count < length) && !lease.is_filtered() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(done);
                }
            }
        }
    }
}

impl Connection {
    /// Makes a call that needs room in the socket for a filter's bytes alone.
    fn ready_when(&mut self, cx: &mut task::Context<'_>, call: fn(&mut Lease) -> io::Result<()>) -> Poll<io::Result<()>> {
        let lease = self.lease.as_mut().expect("only dropping it takes the lease");
        match call(lease) {
            Err(error) if error.kind() == WouldBlock => {
                self.call(cx, Interest::WRITABLE, 0, |lease| call(lease).map(|()| 0)).map_ok(|_| ())
            }
            done => Poll::Ready(done),
        }
    }
}

/// Sends, for a reader, what a layer has encoded and the socket had no room for: the code that wrote it may wait for an answer, or be gone.
fn send_unsent(watched: &AsyncFd<Arc<OwnedFd>>, lease: &mut Lease, writer: Option<&Waker>, cx: &mut task::Context<'_>) {
    // A descriptor wakes one task for room.
    let both = writer.filter(|writer| !writer.will_wake(cx.waker()));
    let both = both.map(|writer| Waker::from(Arc::new(Both([cx.waker().clone(), writer.clone()]))));
    let mut cx = task::Context::from_waker(both.as_ref().unwrap_or(cx.waker()));
    while let Poll::Ready(Ok(mut ready)) = watched.poll_write_ready(&mut cx) {
        match lease.send_unsent() {
            Err(error) if error.kind() == WouldBlock => ready.clear_ready(),
            // An error means that the connection is gone: the read sees it.
            _ => return,
        }
    }
}

/// Wakes two tasks.
struct Both([Waker; 2]);

impl Wake for Both {
    fn wake(self: Arc<Both>) {
        self.0.iter().for_each(Waker::wake_by_ref);
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        if room.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let read = ready!(self.call(cx, Interest::READABLE, room.len(), |lease| lease.receive(room)))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.call(cx, Interest::WRITABLE, bytes.len(), |lease| lease.send(bytes));
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.has_unsent()) {
            // The reader sends it, if it waits by then.
            lease.leased.wake();
        }
        written
    }

    /// Writes are not buffered, but under a layer: there the last record may wait for room. What reads the connection sends it as well; code
    /// that waits for anything else flushes first.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.ready_when(cx, Lease::flush)
    }

    /// Shuts down the sending side: the peer sees the end of the stream.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.ready_when(cx, Lease::finish)) {
            // The connection is gone in both directions.
            Err(error) if error.kind() == NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

/// The reading half of [`Connection::into_split`].
#[derive(Debug)]
pub struct ReadHalf(Arc<Mutex<Connection>>);

/// The writing half of [`Connection::into_split`].
#[derive(Debug)]
#[must_use = "the sending side ends when this is dropped"]
pub struct WriteHalf(Arc<Mutex<Connection>>);

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut task::Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_read(cx, buffer)
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut task::Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_shutdown(cx)
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let mut whole = lock(&self.0);
        let Some(lease) = &mut whole.lease else { return };
        // An error means that the connection is gone already, or that the reader is to send the rest.
        let _ = lease.finish();
        let leased = lease.has_unsent().then(|| lease.leased.clone());
        drop(whole);
        if let Some(leased) = leased {
            leased.wake();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.watched = None;
        if let Some(lease) = self.lease.take() {
            if std::thread::panicking() {
                let_fall(lease)
            } else {
                drop(lease)
            }
            // Tasks that wait for notes, or for the request to end, see that the connection has ended.
            self.info.leased.end();
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.info).finish()
    }
}
