//! A connection moves to another service.

use super::Driver;
use crate::protocol::{Closed, Protocol, Saved, Saver, Service};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A connection that did not move, and goes on as it was.
#[derive(thiserror::Error)]
#[error("the connection does not move: {why}")]
pub struct NotMoved<S: Service> {
    /// The connection.
    pub connection: Box<Driver<S>>,
    /// Why it stays.
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
    /// Moves the connection to a new build with this service, as an upgrade does: where its [`Service::state`] reads the declared state of this one, by
    /// [`Driver::save_and_restore`].
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
        let state = match &mut self.state {
            None => return Err(NotMoved::new(self, "it has ended")),
            Some(_) if self.job.is_some() => return Err(NotMoved::new(self, "a job runs")),
            Some(_) if self.delegate.is_some() => return Err(NotMoved::new(self, "it is to be delegated")),
            Some(state) => state,
        };
        let mut saver = Saver { now: Some(self.wire.now), ..Saver::default() };
        match catch_unwind(AssertUnwindSafe(|| state.save(&mut saver))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(NotMoved::new(self, why)),
            Err(_) => {
                self.end(Closed::Panicked);
                return Err(NotMoved::new(self, "`save` panicked"));
            }
        }
        let versions = self.service.state().versions();
        let mut saved = Saved::versioned(saver.written(), &versions);
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
