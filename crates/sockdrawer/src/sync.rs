//! The only place of the data and control planes that names `std::sync`, so that a model checker can take its place: with
//! `--cfg shuttle`, shuttle, whose threads change over at every lock and every atomic.

use std::sync::PoisonError;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
// Whoever sets one has made its value before: there is nothing to wait for.
#[cfg(shuttle)]
pub(crate) use std::sync::OnceLock;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic, mpsc};

/// Locks, also after a panic of another holder: what the mutexes here protect is valid between any two statements.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on a condition variable; see [`lock`] about poison.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// The same, but not longer than `timeout`.
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: std::time::Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}
