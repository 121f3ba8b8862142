//! Locks and threads of a pool, in one place, so that a model checker can replace them: `--cfg shuttle`.

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
