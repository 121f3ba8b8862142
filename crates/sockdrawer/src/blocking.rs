//! Connections for blocking code: [`Connection`] reads, writes and waits on the thread that owns it.

use crate::behaviour::{Behaviour, Kind};
use crate::clock::deadline;
use crate::event_loop::lease::{self, Lease, LeaseEnd, Leased};
pub use crate::event_loop::watcher::WatchEvent;
use crate::protocol::{After, ConnectionId, Context, Delegate, Input, Note, Peer, Protocol, Service, Step};
use crate::sys::{Errno, Interest, Woken, panics, passing};
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

const READ: Interest = Interest::READ;
const WRITE: Interest = Interest::WRITE;

thread_local! {
/// The event descriptor that wakes this thread. It belongs to the thread, so that a connection needs no second descriptor.
    static EVENT: RefCell<Option<Arc<OwnedFd>>> = const { RefCell::new(None) };
}

/// A connection that blocking code reads and writes: [`Step::Delegate`], [`Behaviour::blocking`]. The pool still counts, lists, drains
/// and ends it.
///
/// Reads and writes block until they succeed, or until their timeout. When the pool has ended the connection, by
/// [`Pool::kill`](crate::Pool::kill) or at the deadline of a drain or a purge, they fail with [`io::ErrorKind::ConnectionAborted`].
///
/// Under a [layer](crate::layer) all bytes are plain. A read returns 0 after the goodbye of the peer's end of the layer, and fails with
/// [`io::ErrorKind::UnexpectedEof`] where the layer takes the end of the stream for an attack, and with [`io::ErrorKind::InvalidData`] when
/// it refuses what came; such a connection ends with what the layer says of it, such as an alert, or with a reset. [`Connection::finish`], and the end of the connection, say goodbye.
#[must_use = "the connection ends when this is dropped"]
pub struct Connection {
    /// Dropped first: the event is rung for this thread.
    event: Option<Ringing>,
    lease: Lease,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

/// The process at the other end of a Unix socket, when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerProcess {
    /// The process; 0 where it is in another namespace of processes.
    pub pid: u32,
    /// The user whose rights it had.
    pub uid: u32,
    /// The group whose rights it had.
    pub gid: u32,
}

/// Reason why [`Connection::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wakeup {
    /// A read does not block: there is input, or the peer's stream has ended.
    Input,
    /// A note waits: take it by [`Connection::take_note`].
    Note,
    /// The pool asks this connection to end, and all received input was read: the right moment to end.
    Draining,
}

/// The event of this thread, while changes of a connection ring it.
struct Ringing {
    event: Arc<OwnedFd>,
    leased: Arc<Leased>,
}

impl Drop for Ringing {
    fn drop(&mut self) {
        self.leased.ring_on_change(None);
        EVENT.set(Some(self.event.clone()));
    }
}

impl Connection {
    pub(crate) fn new(lease: Lease) -> Connection {
        Connection { lease, event: None, read_timeout: None, write_timeout: None }
    }

    /// Lends the connection to `call`, and returns it to its loop with the outcome of `call`.
    fn lend(lease: Lease, call: impl FnOnce(&mut Connection) -> LeaseEnd) {
        let mut connection = Connection::new(lease);
        // The call, with what it captured, is dropped inside the guard.
        let outcome = catch_unwind(AssertUnwindSafe(|| call(&mut connection)));
        connection.lease.outcome = outcome.unwrap_or_else(|payload| LeaseEnd::Panicked(panics::message(payload)));
    }

    /// This connection's number.
    pub fn id(&self) -> ConnectionId {
        self.lease.leased.id
    }

    /// Returns the number of the connection's generation.
    pub fn generation(&self) -> u32 {
        self.lease.leased.generation
    }

    /// Returns the peer of the connection, as a service is given it when it [opens](crate::Service::open) a protocol. What layers know of the peer
    /// ([`Peer::fact`]), the times and the listener are left out where a protocol delegates later than in
    /// [`opened`](crate::Protocol::opened): it gives its [`Delegate`] what that needs.
    pub fn peer(&self) -> Peer {
        self.lease.peer()
    }

    /// Returns the process at the other end of a Unix socket, as the kernel knows it (`SO_PEERCRED`).
    ///
    /// # Errors
    /// When this is no Unix socket.
    pub fn peer_process(&self) -> io::Result<PeerProcess> {
        let (pid, uid, gid) = passing::peer_credentials(self.lease.as_fd())?;
        Ok(PeerProcess { pid, uid, gid })
    }

    /// Returns true where the pool asks the connection to end.
    pub fn draining(&self) -> bool {
        self.lease.leased.is_draining()
    }

    /// Returns the deadline at which the pool ends this connection, if it was asked to end by one: reads and writes fail from then on.
    pub fn deadline(&self) -> Option<Instant> {
        self.lease.leased.ends_by()
    }

    /// Takes the oldest note, sent by a [`Handle`](crate::Handle) or [`PoolHandle::notify`](crate::PoolHandle::notify); None if there is none. Notes
    /// that are not taken go to the protocol when the connection returns to it.
    pub fn take_note(&mut self) -> Option<Note> {
        self.lease.leased.take_note()
    }

    /// Sets the timeout of reads and [`Connection::wait`], which then fail with [`io::ErrorKind::TimedOut`]. None, the default: no timeout.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    /// Sets the timeout of writes, which then fail with [`io::ErrorKind::TimedOut`]. None, the default: no timeout.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    /// Shuts down the sending side: the peer sees the end of the stream, and may still send. Under a layer, waits for room for its goodbye, up
    /// to the timeout of writes.
    ///
    /// # Errors
    /// When the connection is gone, and when the timeout passed.
    pub fn finish(&mut self) -> io::Result<()> {
        self.patiently(WRITE, self.write_timeout, Lease::finish)
    }

    /// Blocks until there is input, a note, or a request of the pool to end. Input comes before notes, and notes before the request to
    /// end: code that ends at [`Wakeup::Draining`] has seen all that was received. If it does not end, each call returns `Draining` again.
    ///
    /// # Errors
    /// When the pool has ended the connection, when the read timeout passed, and when the system has no descriptor to wait with.
    pub fn wait(&mut self) -> io::Result<Wakeup> {
        let until = self.read_timeout.map(|timeout| deadline(Instant::now(), timeout));
        self.listen()?;
        loop {
            let leased = &self.lease.leased;
            if leased.has_ended() {
                return Err(Errno::CONNABORTED.into());
            }
            if self.lease.has_kept() && self.lease.is_readable() {
                return Ok(Wakeup::Input);
            }
            let leased = &self.lease.leased;
            let told = match (leased.has_notes(), leased.is_draining()) {
                (true, _) => Some(Wakeup::Note),
                (false, true) => Some(Wakeup::Draining),
                (false, false) => None,
            };
            // Input is seen before a note or the request to end: the socket is always polled.
            let until = if told.is_some() { Some(Instant::now()) } else { until };
            match (self.sleep(READ, until)?, told) {
                (Woken::Ready, _) if self.lease.is_readable() => return Ok(Wakeup::Input),
                (Woken::Ready, _) => {}
                (_, Some(told)) => return Ok(told),
                (Woken::TooLate, None) => return Err(io::ErrorKind::TimedOut.into()),
                (Woken::Rung, None) => {}
            }
        }
    }

    /// Returns why [`Connection::wait`] would return at once; None where it would wait. A look at the socket, for code that keeps connections
    /// for later use and is about to use one.
    pub fn wakeup(&mut self) -> Option<Wakeup> {
        if self.lease.leased.is_draining() {
            return Some(Wakeup::Draining);
        }
        let has_notes = self.lease.leased.has_notes();
        self.lease.has_input().then_some(Wakeup::Input).or_else(|| has_notes.then_some(Wakeup::Note))
    }

    /// Has [`WatchEvent::Moving`] told when a new build takes over, for code that then gives the connection [back](Connection::give_back).
    pub fn may_move(&self) {
        self.lease.leased.may_move();
    }

    /// Gives the connection back to its protocol: [`Protocol::notified`] gets this note, as after [`After::Return`].
    pub fn give_back(mut self, note: Note) {
        self.lease.outcome = LeaseEnd::Note(note);
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn into_lease(self) -> Lease {
        self.lease
    }

    /// Repeats `call` until it does not fail with EAGAIN, waiting for `interest` in between.
    fn patiently<T>(
        &mut self,
        interest: Interest,
        timeout: Option<Duration>,
        mut call: impl FnMut(&mut Lease) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut until = None;
        loop {
            match call(&mut self.lease) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    until = until.or_else(|| timeout.map(|timeout| deadline(Instant::now(), timeout)));
                    self.listen()?;
                    // The connection may have ended before the event was registered.
                    if !self.lease.leased.has_ended() && self.sleep(interest, until)? == Woken::TooLate {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                result => return result,
            }
        }
    }

    /// Makes changes of the connection notify this thread's event from now on.
    fn listen(&mut self) -> io::Result<()> {
        if self.event.is_none() {
            let system = &self.lease.leased.system;
            let event = match EVENT.with_borrow_mut(Option::take) {
                Some(event) => event,
                None => Arc::new(system.event()?),
            };
            system.unring(event.as_fd())?;
            self.lease.leased.ring_on_change(Some(event.clone()));
            self.event = Some(Ringing { event, leased: self.lease.leased.clone() });
        }
        Ok(())
    }

    /// Waits for the socket, the event or the time.
    fn sleep(&mut self, interest: Interest, until: Option<Instant>) -> io::Result<Woken> {
        let (system, Some(Ringing { event, .. })) = (&self.lease.leased.system, &self.event) else { return Ok(Woken::Rung) };
        // A write that timed out has left what a layer encoded.
        let unsent = self.lease.has_unsent();
        let interest = Interest { write: interest.write || unsent, ..interest };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let woken = system.wait_for(self.lease.as_fd(), interest, event.as_fd(), left)?;
        if woken == Woken::Rung {
            system.unring(event.as_fd())?;
        }
        if unsent {
            // The next write tells of an error.
            let _ = self.lease.flush();
        }
        Ok(woken)
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.patiently(READ, self.read_timeout, |lease| lease.receive(into))
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.patiently(WRITE, self.write_timeout, |lease| lease.send(bytes))?;
        if self.lease.has_unsent() {
            // A layer has taken the bytes. What comes of their way to the peer is told by the next write, or by `flush`.
            let _ = self.flush();
        }
        Ok(written)
    }

    /// Does nothing: writes are not buffered. Under a layer, waits for room for the rest of a write that timed out.
    fn flush(&mut self) -> io::Result<()> {
        self.patiently(WRITE, self.write_timeout, Lease::flush)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("id", &self.id()).field("draining", &self.draining()).finish_non_exhaustive()
    }
}

impl Delegate {
    /// Makes a delegate of a closure that reads, writes and may block. A panic in it ends the connection with a reset.
    ///
    /// Each thread that has waited keeps one descriptor beside those of its connections.
    pub fn new(call: impl FnOnce(&mut Connection) -> After + Send + 'static) -> Delegate {
        lease::delegate(true, |lease| {
            Connection::lend(lease, |connection| match call(connection) {
                After::Return(note) => LeaseEnd::Note(note),
                After::End => LeaseEnd::End,
            });
        })
    }

    /// Makes a delegate that is given the connection itself, to keep it anywhere: it ends when it is dropped. The loop watches it for its peer's
    /// end meanwhile. Both closures are called on the loop's thread, first `take`, and must be quick; `told` is called at each [`WatchEvent`].
    pub fn watched(
        take: impl FnOnce(Connection) + Send + 'static,
        told: impl Fn(WatchEvent) + Send + Sync + 'static,
    ) -> Delegate {
        lease::delegate(false, |lease| {
            lease.leased.watcher.set(Box::new(told));
            take(Connection::new(lease));
        })
    }
}

impl Behaviour {
    /// Makes a blocking handler: it is called for each connection on a thread of its own, and the connection ends when it returns. An error is
    /// counted and ends the connection too. In both cases, what was written is delivered.
    ///
    /// ```no_run
    /// use sockdrawer::{Behaviour, Config, Model, Pool};
    /// use std::io::{BufRead, BufReader, Write};
    ///
    /// let shout = Behaviour::blocking(|connection| {
    ///     let mut line = String::new();
    ///     BufReader::new(&mut *connection).read_line(&mut line)?;
    ///     connection.write_all(line.to_uppercase().as_bytes())
    /// });
    /// let config = Config::accept(shout).model(Model::Threads).listen("127.0.0.1:9000");
    /// Pool::start(config)?.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking(handler: impl Fn(&mut Connection) -> io::Result<()> + Send + Sync + 'static) -> Behaviour {
        Behaviour::of_kind(Handling(Arc::new(handler)), Kind::Blocking)
    }
}

/// The service of a blocking handler.
struct Handling<F>(Arc<F>);

struct Handled<F>(Arc<F>);

impl<F: Fn(&mut Connection) -> io::Result<()> + Send + Sync + 'static> Service for Handling<F> {
    type Protocol = Handled<F>;

    fn open(&self, _peer: &Peer) -> Handled<F> {
        Handled(self.0.clone())
    }
}

impl<F: Fn(&mut Connection) -> io::Result<()> + Send + Sync + 'static> Protocol for Handled<F> {
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        let handler = self.0.clone();
        Step::Delegate(lease::delegate(true, move |lease| {
            Connection::lend(lease, |connection| match handler(connection) {
                Ok(()) => LeaseEnd::End,
                Err(_) => LeaseEnd::Failed,
            });
        }))
    }

    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
}
