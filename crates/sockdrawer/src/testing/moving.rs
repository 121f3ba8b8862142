//! A connection moves to another service.

use super::{Bounds, Driver, peer, without_state};
use crate::protocol::{CannotRestore, CannotSave, Closed, Protocol, Saved, Saver, Service, Side};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Returns the state of a connection as bytes, by [`Protocol::save`]: a test of each later release keeps those of this one, and reads them by
/// [`restore`].
///
/// # Errors
/// Why the state cannot be saved, or that the connection has ended.
pub fn save<S: Service>(connection: &mut Driver<S>) -> Result<Vec<u8>, CannotSave> {
    let mut saver = Saver { now: Some(connection.wire.now), ..Saver::default() };
    match &mut connection.state {
        None => return Err(CannotSave::because("it has ended")),
        Some(state) => state.save(&mut saver)?,
    }
    Ok(saver.written().to_vec())
}

/// Returns an accepted connection whose state was saved, maybe by another release, as an upgrade restores it: all bytes must be read. `versions` are
/// those of that release's [`State`](crate::State): of a service without layers, one. `restored` was called.
///
/// ```
/// # use sockdrawer::testing::{Driver, restore, save};
/// # use sockdrawer::{CannotRestore, CannotSave, Context, Input, Peer, Protocol, Saved, Saver, Service, State, Step};
/// # struct Count(u64);
/// # impl Service for Count {
/// #     type Protocol = Count;
/// #     fn open(&self, _peer: &Peer) -> Count {
/// #         Count(0)
/// #     }
/// #     fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Count, CannotRestore> {
/// #         Ok(Count(from.u64()?))
/// #     }
/// #     fn state(&self) -> State {
/// #         State::of("count", 1)
/// #     }
/// # }
/// # impl Protocol for Count {
/// #     fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
/// #         self.0 += input.take_all().len() as u64;
/// #         writeln!(cx.out(), "{}", self.0);
/// #         Step::Continue
/// #     }
/// #     fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
/// #         to.u64(self.0);
/// #         Ok(())
/// #     }
/// # }
/// let mut connection = Driver::open(Count(0));
/// connection.receive(b"four");
/// // Printed by a test of release 1, and kept in those of all releases since.
/// assert_eq!(save(&mut connection)?, b"\x04\0\0\0\0\0\0\0");
///
/// let mut connection = restore(Count(0), b"\x04\0\0\0\0\0\0\0", &[1])?;
/// connection.receive(b"more");
/// assert_eq!(connection.sent(), b"8\n");
/// assert!(restore(Count(0), b"\x04\0\0\0\0\0\0\0\0", &[1]).is_err(), "a byte is not read");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Why it cannot be restored.
pub fn restore<S: Service>(service: S, bytes: &[u8], versions: &[u32]) -> Result<Driver<S>, CannotRestore> {
    let mut connection = without_state(service, peer(Side::Accepted, Duration::ZERO), Bounds::default());
    let mut saved = Saved::versioned(bytes, versions);
    connection.state = Some(saved.whole(|from| connection.service.restore(&connection.wire.peer, from))?);
    connection.event(|protocol, _, cx| protocol.restored(cx));
    Ok(connection)
}

/// A connection that did not move, and goes on as it was.
#[derive(thiserror::Error)]
#[error("the connection does not move: {why}")]
pub struct NotMoved<S: Service> {
    /// The connection.
    pub connection: Box<Driver<S>>,
    /// Reason why it stays.
    pub why: String,
}

impl<S: Service> NotMoved<S> {
    fn new(connection: Driver<S>, why: impl ToString) -> NotMoved<S> {
        NotMoved { connection: Box::new(connection), why: why.to_string() }
    }
}

/// The reason, which a test shows that expected the connection to move.
impl<S: Service> std::fmt::Debug for NotMoved<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl<S: Service> Driver<S> {
    /// Moves the connection to a new build with this service, as an upgrade does: where its [`Service::state`] reads the declared state of this one,
    /// by [`Driver::save_and_restore`].
    ///
    /// # Errors
    /// The connection as it was, and why it stays.
    pub fn upgrade<T: Service>(self, service: T) -> Result<Driver<T>, NotMoved<S>> {
        match service.state().can_read(&self.service.state()) {
            Ok(()) => self.save_and_restore(service),
            Err(why) => Err(NotMoved::new(self, why)),
        }
    }

    /// Moves the connection to another service, as [`Pool::adopt`](crate::Pool::adopt) does: the state by `save` and `restore`; socket,
    /// untaken input, unsent output and timer stay untouched. `closed` of the old state is called with [`Closed::Adopted`], then
    /// `restored` of the new one.
    ///
    /// # Errors
    /// The connection as it was, and why it stays: it has ended, a job runs, it is to be delegated, or the state cannot be saved or restored.
    pub fn save_and_restore<T: Service>(mut self, service: T) -> Result<Driver<T>, NotMoved<S>> {
        if self.job.is_some() {
            return Err(NotMoved::new(self, "a job runs"));
        }
        if self.delegate.is_some() {
            return Err(NotMoved::new(self, "it is to be delegated"));
        }
        let bytes = match catch_unwind(AssertUnwindSafe(|| save(&mut self))) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(why)) => return Err(NotMoved::new(self, why)),
            Err(_) => {
                self.end(Closed::Panicked);
                return Err(NotMoved::new(self, "`save` panicked"));
            }
        };
        let versions = self.service.state().versions();
        let mut saved = Saved::versioned(&bytes, &versions);
        saved.now = Some(self.wire.now);
        let restored = match catch_unwind(AssertUnwindSafe(|| saved.whole(|from| service.restore(&self.wire.peer, from)))) {
            Ok(Ok(restored)) => restored,
            Ok(Err(why)) => return Err(NotMoved::new(self, why)),
            Err(_) => return Err(NotMoved::new(self, "`restore` panicked")),
        };
        let (due, waiting) = (self.wire.due, self.wire.waiting);
        self.end(Closed::Adopted);
        let mut wire = self.wire;
        (wire.due, wire.waiting) = (due, waiting);
        wire.generation += 1;
        let local = service.local();
        let mut moved =
            Driver { service, state: Some(restored), local, job: None, delegate: None, closed: None, out: self.out, wire };
        moved.event(|protocol, _, cx| protocol.restored(cx));
        Ok(moved)
    }
}
