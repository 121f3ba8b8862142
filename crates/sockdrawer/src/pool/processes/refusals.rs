//! Refusals: the answers of a helper that cannot do what its pool asks.

use super::wire::{Start, VERSION};
use crate::error::Error;
use crate::pool::request::{Refusal, Reply};
use crate::sys::panics;
use std::os::fd::OwnedFd;

/// A helper that cannot begin exits so; why was answered before, where it could be.
pub(super) const CANNOT_BEGIN: i32 = 70;

pub(super) fn other(error: impl ToString) -> Refusal {
    Refusal::Other(error.to_string())
}

pub(super) fn refusal(error: Error) -> Refusal {
    match error {
        Error::ServicePanicked { message } => Refusal::Panicked(message),
        error => other(error),
    }
}

pub(super) fn done(outcome: Result<(), Refusal>) -> Reply {
    outcome.map_or_else(Reply::Refused, |()| Reply::Done)
}

/// Returns the shared numbers and the event, for a helper that understands its pool.
pub(super) fn check(start: &Start, descriptors: Vec<OwnedFd>) -> Result<[OwnedFd; 2], Refusal> {
    if start.version != VERSION {
        return Err(other(format!("the helper is of version {VERSION}, the pool of {}: restart the program", start.version)));
    }
    if start.observed {
        panics::observed();
    }
    <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| other("a helper begins with two descriptors"))
}

/// Fails unless all sockets came that were announced.
pub(super) fn check_sockets(numbers: &[usize], sockets: &[OwnedFd]) -> Result<(), Refusal> {
    if numbers.len() != sockets.len() {
        return Err(other(format!("{} sockets were announced and {} came", numbers.len(), sockets.len())));
    }
    Ok(())
}
