//! The only place of the data and control planes that names `std::sync`, so that a model checker can replace it: `--cfg shuttle` uses
//! shuttle, whose threads may be switched at every lock and every atomic.

use std::sync::{PoisonError, TryLockError};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
// A value is made before it is set, so a model checker has no waiting to explore here.
#[cfg(shuttle)]
pub(crate) use std::sync::OnceLock;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic, mpsc};

/// Locks a mutex, also after a panic of another holder: the data that the mutexes here protect is valid between any two statements.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex that no thread holds; see [`lock`] about poison.
pub(crate) fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits on a condition variable; see [`lock`] about poison.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits on a condition variable for at most `timeout`; see [`lock`] about poison.
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: std::time::Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}
