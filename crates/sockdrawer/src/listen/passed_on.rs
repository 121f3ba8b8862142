//! The sockets of an address on their way from one pool of this process to another.

use super::listener::{Ask, BoundListener};
use crate::error::Error;
use crate::sync::{Mutex, lock};

/// A listener without a pool: the first pool that opens its address has it.
pub(crate) struct PassedOn(Mutex<Option<BoundListener>>);

impl PassedOn {
    pub(crate) fn new(listener: BoundListener) -> PassedOn {
        PassedOn(Mutex::new(Some(listener)))
    }

    /// Returns the listener, with what the new pool asks of it; None where another pool has it.
    pub(crate) fn take(&self, ask: &Ask<'_>) -> Option<Result<BoundListener, Error>> {
        let listener = lock(&self.0).take()?;
        let set = listener.set_options(ask.system, ask.accepted);
        let set = set.and_then(|()| listener.set_permissions(ask.system, ask.options));
        Some(match set.and_then(|()| listener.set_backlog(ask.system, ask.backlog)) {
            Ok(()) => Ok(listener),
            Err(errno) => {
                self.put_back(listener);
                Err(ask.error(errno))
            }
        })
    }

    /// Keeps the listener for the next pool that asks: the one that had it was not started, or not changed.
    pub(crate) fn put_back(&self, listener: BoundListener) {
        *lock(&self.0) = Some(listener);
    }
}
