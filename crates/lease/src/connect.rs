//! The two traits by which users say how connections are made.

use crate::engine::Returned;
use crate::gone::Gone;
use crate::stats::Reason;
use std::hash::Hash;
use std::time::Duration;

/// Error of a user's connect, check or reset: any error, by `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Name of what is connected to: an address, a shard. `()` where there is only one. All types that can be one are.
///
/// Its `Clone`, `Eq` and `Hash` are called under the pool's lock: they must be quick, must not call the pool, and must not panic. After a
/// panic in one of them each call to the pool panics.
pub trait Target: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Target for K {}

/// Connections that are made by blocking code, for [`Pool::new`](crate::Pool::new). All calls but [`returned`](Connect::returned), [`look`](Connect::look)
/// and [`read_count`](Connect::read_count) are made in threads of the pool's own, at most one for each connection that is being connected,
/// checked, reset or closed; these threads also drop the connections. A call that panics counts as one that failed.
pub trait Connect: Send + Sync + 'static {
    /// Name of what is connected to.
    type Target: Target;
    /// The connection that is leased.
    type Connection: Send + 'static;

    /// Connects. A blocking call cannot be interrupted: one that goes on beyond the time is not waited for, but keeps its thread and its
    /// place within the limits until it returns, and what it then returns is used. Pass the time on, as to
    /// [`TcpStream::connect_timeout`](std::net::TcpStream::connect_timeout).
    fn connect(&self, target: &Self::Target, timeout: Duration) -> Result<Self::Connection, BoxError>;

    /// Finds out whether a connection still works that was free for [`Settings::check_after`](crate::Settings::check_after). After an
    /// error it is closed, and another is leased in its place. Unless implemented, each connection passes.
    fn check(&self, connection: &mut Self::Connection, timeout: Duration) -> Result<(), BoxError> {
        let _ = (connection, timeout);
        Ok(())
    }

    /// Brings a connection back to the state of a new one, where [`returned`](Connect::returned) asks for it. After an error it is closed.
    fn reset(&self, connection: &mut Self::Connection, timeout: Duration) -> Result<(), BoxError> {
        let _ = (connection, timeout);
        Ok(())
    }

    /// Receives, with each connection that was made, the way to tell the pool that it has gone: for code that hears of its end while it is free, as
    /// a task that drives it. Called before the connection can be leased.
    fn watch(&self, connection: &mut Self::Connection, gone: Gone) {
        let _ = (connection, gone);
    }

    /// Looks at a connection that is about to be leased, in the thread or task that gets it: this must be quick, and must not wait for the
    /// peer. A connection with a reason not to lease it is closed, and the caller gets another, with its place in line. Unless implemented,
    /// none has a reason.
    fn look(&self, connection: &mut Self::Connection) -> Option<Reason> {
        let _ = connection;
        None
    }

    /// Returns how many bytes, messages or answers were read from the connection so far, for [`Lease::unused`](crate::Lease::unused): any
    /// count that grows whenever something is read. Called at the begin of each lease, it must be quick. Unless implemented, it is not known.
    fn read_count(&self, connection: &Self::Connection) -> Option<u64> {
        let _ = connection;
        None
    }

    /// Closes a connection that left the pool for this reason. Unless implemented, it is dropped.
    fn close(&self, connection: Self::Connection, reason: Reason) {
        let _ = reason;
        drop(connection);
    }

    /// Judges a connection that comes back, in the thread that gives it back: this must be quick, and must not wait for the peer. Unless
    /// implemented, each is [`Returned::Reusable`].
    fn returned(&self, connection: &mut Self::Connection) -> Returned {
        let _ = connection;
        Returned::Reusable
    }
}

/// Connections that are made by async code, for [`Pool::new_async`](crate::Pool::new_async). The futures are run by the user's executor;
/// one that is late is dropped. A future that panics, or is dropped by its executor, counts as one that failed.
pub trait ConnectAsync: Send + Sync + 'static {
    /// Name of what is connected to.
    type Target: Target;
    /// The connection that is leased.
    type Connection: Send + 'static;

    /// Connects. The pool drops the future after this time, which is [`Settings::connect_timeout`](crate::Settings::connect_timeout).
    fn connect(
        &self,
        target: &Self::Target,
        timeout: Duration,
    ) -> impl Future<Output = Result<Self::Connection, BoxError>> + Send;

    /// Finds out whether a connection still works, as [`Connect::check`] does.
    fn check(&self, connection: &mut Self::Connection, timeout: Duration) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = (connection, timeout);
        std::future::ready(Ok(()))
    }

    /// Brings a connection back to the state of a new one, as [`Connect::reset`] does.
    fn reset(&self, connection: &mut Self::Connection, timeout: Duration) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = (connection, timeout);
        std::future::ready(Ok(()))
    }

    /// Receives, with each connection that was made, the way to tell the pool that it has gone, as [`Connect::watch`] does.
    fn watch(&self, connection: &mut Self::Connection, gone: Gone) {
        let _ = (connection, gone);
    }

    /// Looks at a connection that is about to be leased, as [`Connect::look`] does.
    fn look(&self, connection: &mut Self::Connection) -> Option<Reason> {
        let _ = connection;
        None
    }

    /// Returns how much was read from the connection so far, as [`Connect::read_count`] does.
    fn read_count(&self, connection: &Self::Connection) -> Option<u64> {
        let _ = connection;
        None
    }

    /// Closes a connection that left the pool for this reason, as by saying goodbye. Unless implemented, it is dropped.
    fn close(&self, connection: Self::Connection, reason: Reason) -> impl Future<Output = ()> + Send {
        let _ = reason;
        drop(connection);
        std::future::ready(())
    }

    /// Judges a connection that comes back, as [`Connect::returned`] does.
    fn returned(&self, connection: &mut Self::Connection) -> Returned {
        let _ = connection;
        Returned::Reusable
    }
}
