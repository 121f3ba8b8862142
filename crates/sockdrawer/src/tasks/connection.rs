//! A connection in the hands of async code.

use super::context::Context;
use super::let_fall;
use crate::event_loop::lease::{Lease, LeaseEnd, LeaseWaker};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, reactor};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A connection of a pool. It has the permit: as long as this exists, whoever holds it, the connection is counted, listed,
/// drained, purged and killed as any other. When it is dropped, the connection is over: what was written is delivered, and the
/// peer sees the end.
///
/// It belongs to the runtime on which it is first polled and finds nothing to read, or no room to write.
pub struct Connection {
    /// Dropped first: nobody watches a socket that went back.
    watched: Option<AsyncFd<Arc<OwnedFd>>>,
    /// None when it is dropped.
    lease: Option<Lease>,
    /// The tasks that read and write; with two halves there are two.
    reader: LeaseWaker,
    writer: LeaseWaker,
    context: Context,
}

impl Connection {
    pub(super) fn new(lease: Lease) -> Connection {
        let context = Context::new(lease.leased.clone(), lease.peer().remote());
        let (reader, writer) = (LeaseWaker::new(&lease.leased), LeaseWaker::new(&lease.leased));
        Connection { watched: None, lease: Some(lease), reader, writer, context }
    }

    /// What is known of it, and what it is told.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Ends the connection with a reset: the peer sees that something is missing, where an orderly end would look complete.
    pub fn abort(mut self) {
        if let Some(lease) = &mut self.lease {
            lease.outcome = LeaseEnd::Abort;
        }
    }

    /// A half to read and a half to write, for two tasks. When the half that writes is dropped, the peer sees the end of what was
    /// written; the connection is over when both are.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let whole = Arc::new(Mutex::new(self));
        (ReadHalf(whole.clone()), WriteHalf(whole))
    }

    /// Makes a call on the socket, of up to `length` bytes, when it is ready for it.
    fn call(
        &mut self,
        cx: &mut task::Context<'_>,
        interest: Interest,
        length: usize,
        mut call: impl FnMut(&mut Lease) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        let lease = self.lease.as_mut().expect("only dropping it takes the lease");
        // Most peers have sent by now. What was kept is there whatever the socket has.
        if self.watched.is_none() || (interest.is_readable() && lease.has_kept()) {
            match call(lease) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return Poll::Ready(done.map_err(io::Error::from)),
            }
        }
        if self.watched.is_none() {
            self.watched = Some(reactor::watched(lease.shared(), Interest::READABLE | Interest::WRITABLE)?);
        }
        let watched = self.watched.as_ref().expect("just filled");
        loop {
            let (ready, change) = if interest.is_readable() {
                (watched.poll_read_ready(cx), &self.reader)
            } else {
                (watched.poll_write_ready(cx), &self.writer)
            };
            let Poll::Ready(ready) = ready else {
                change.wakes(cx.waker());
                // It may have ended before this task was known.
                return if lease.leased.has_ended() { Poll::Ready(Err(Errno::CONNABORTED.into())) } else { Poll::Pending };
            };
            let mut ready = ready?;
            match call(lease) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                done => {
                    // A short one took all that there was: no need to ask for more, the next event tells. The end is remembered.
                    if done.is_ok_and(|count| 0 < count && count < length) {
                        ready.clear_ready();
                    }
                    return Poll::Ready(done.map_err(io::Error::from));
                }
            }
        }
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
        self.call(cx, Interest::WRITABLE, bytes.len(), |lease| lease.send(bytes))
    }

    /// Nothing is kept back.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Tells the peer that no more comes.
    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let lease = self.lease.as_mut().expect("only dropping it takes the lease");
        Poll::Ready(match lease.finish() {
            // It is gone in both directions.
            Err(Errno::NOTCONN) => Ok(()),
            done => done.map_err(io::Error::from),
        })
    }
}

/// What reads of [`Connection::into_split`].
#[derive(Debug)]
pub struct ReadHalf(Arc<Mutex<Connection>>);

/// What writes of [`Connection::into_split`].
#[derive(Debug)]
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
        if let Some(lease) = &mut lock(&self.0).lease {
            // It fails where the connection is gone already.
            let _ = lease.finish();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.watched = None;
        if let Some(lease) = self.lease.take() {
            if std::thread::panicking() { let_fall(lease) } else { drop(lease) }
        }
        // Who waits for notes or the end of it hears that it is over.
        self.context.leased.end();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.context).finish()
    }
}
