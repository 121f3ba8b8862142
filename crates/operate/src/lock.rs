//! Locks whose holder may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also what a thread held that panicked: what is kept so is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
