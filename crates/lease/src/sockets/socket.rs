//! A socket that is leased.

use super::service::Moved;
use super::watch::Watch;
use crate::stats::Reason;
use sockdrawer::blocking::{self, Wakeup};
use sockdrawer::{Address, ConnectionId, Handle, Note, Peer, tasks};
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection of TCP, of a Unix socket or under TLS, for blocking code ([`Read`], [`Write`]) and for async code
/// ([`AsyncRead`], [`AsyncWrite`]) on tokio, each lease on a runtime of its own. Under TLS all bytes are plain.
///
/// It is read and written without its loop. After an error of a read or write, after the peer's end, and once its sending side was shut down, it is
/// closed when its lease ends. What its holder left half read or half written the pool cannot see: then [discard](crate::Lease::discard)
/// it, and let no future that reads it be dropped in the middle of an answer.
pub struct Socket {
    /// Connection as blocking code has it; None while async code has it.
    blocking: Option<blocking::Connection>,
    tasks: Option<tasks::Connection>,
    handle: Handle,
    target: Address,
    watch: Arc<Watch>,
    /// Cleared by an error, and by an end of either side.
    is_open: bool,
    born: Instant,
    read: u64,
}

const HELD: &str = "a socket has its connection until it is dropped";

impl Socket {
    pub(super) fn new(
        connection: blocking::Connection,
        handle: Handle,
        target: Address,
        born: Instant,
        watch: Arc<Watch>,
    ) -> Self {
        Socket { blocking: Some(connection), tasks: None, handle, target, watch, is_open: true, born, read: 0 }
    }

    /// Returns the address that was connected to.
    pub fn target(&self) -> &Address {
        &self.target
    }

    /// Returns the connection's number, as in the lists of the pool that made it.
    pub fn id(&self) -> ConnectionId {
        self.handle.id()
    }

    /// Returns the peer, with what layers know of it.
    pub fn peer(&self) -> Peer {
        match (&self.blocking, &self.tasks) {
            (Some(connection), _) => connection.peer(),
            (_, Some(connection)) => connection.info().peer().clone(),
            _ => unreachable!("{HELD}"),
        }
    }

    /// Sets the timeout of blocking reads until the end of the lease. None, the default: no timeout.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.blocking().set_read_timeout(timeout);
    }

    /// Sets the timeout of blocking writes until the end of the lease. None, the default: no timeout.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.blocking().set_write_timeout(timeout);
    }

    /// Shuts down the sending side. It is closed when its lease ends.
    ///
    /// # Errors
    ///
    /// Where the connection is gone.
    pub fn finish(&mut self) -> io::Result<()> {
        self.is_open = false;
        self.blocking().finish()
    }

    /// Returns how many bytes were read so far.
    pub fn read_count(&self) -> u64 {
        self.read
    }

    fn blocking(&mut self) -> &mut blocking::Connection {
        if let Some(connection) = self.tasks.take() {
            self.blocking = Some(connection.into_blocking());
        }
        self.blocking.as_mut().expect(HELD)
    }

    fn tasks(&mut self) -> &mut tasks::Connection {
        if let Some(connection) = self.blocking.take() {
            self.tasks = Some(tasks::Connection::from_blocking(connection, self.handle.clone()));
        }
        self.tasks.as_mut().expect(HELD)
    }

    pub(super) fn age(&self) -> Duration {
        self.born.elapsed()
    }

    pub(super) fn watch(&self) -> Arc<Watch> {
        self.watch.clone()
    }

    /// Returns whether it can be leased again, after its lease.
    pub(super) fn is_reusable(&mut self) -> bool {
        if self.is_open {
            self.set_read_timeout(None);
            self.set_write_timeout(None);
        }
        self.is_open
    }

    /// Gives it back to its loop for a move, unless it is of no use any more.
    pub(super) fn leave(mut self) {
        let moved = Note::value(Moved { target: self.target.clone(), age: self.age() });
        self.blocking();
        if let Some(connection) = self.blocking.take().filter(|_| self.is_open) {
            connection.give_back(moved);
        }
    }

    /// Looks at the socket, which is about to be leased. The flag that the loop sets comes a moment after the end itself: the kernel alone knows all that
    /// was received by now. That costs a system call for a lease, and no way to a loop.
    pub(super) fn look(&mut self) -> Option<Reason> {
        let reason = match self.blocking().wakeup()? {
            // It does not wait: there is something to read.
            Wakeup::Input if self.blocking().read(&mut [0]).is_ok_and(|read| read > 0) => Reason::Unasked,
            Wakeup::Input => Reason::PeerEnded,
            // A note is for nobody, and does no harm.
            Wakeup::Note => return None,
            _ => Reason::Unneeded,
        };
        self.is_open = false;
        Some(reason)
    }

    /// Notes what came of a read or write.
    fn noted<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        self.is_open &= !done.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted);
        done
    }

    fn noted_read(&mut self, room: usize, read: usize) -> usize {
        self.is_open &= read > 0 || room == 0;
        self.read += read as u64;
        read
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.blocking().read(into);
        let read = self.noted(read)?;
        Ok(self.noted_read(into.len(), read))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.blocking().write(bytes);
        self.noted(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.blocking().flush();
        self.noted(flushed)
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (room, before) = (buffer.remaining(), buffer.filled().len());
        let done = ready!(Pin::new(self.tasks()).poll_read(cx, buffer));
        self.noted(done)?;
        self.noted_read(room, buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(self.tasks()).poll_write(cx, bytes));
        Poll::Ready(self.noted(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(self.tasks()).poll_flush(cx));
        Poll::Ready(self.noted(flushed))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_open = false;
        Pin::new(self.tasks()).poll_shutdown(cx)
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("id", &self.id()).field("target", &self.target.to_string()).finish_non_exhaustive()
    }
}
