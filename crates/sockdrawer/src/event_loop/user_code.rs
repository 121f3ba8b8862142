//! The user code that a thread is in. A method of a pool that waits for that code would wait for itself.

use crate::sys::panics;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The pool whose connections this thread runs, by an address that is compared and never followed.
    static RUNS: Cell<usize> = const { Cell::new(0) };
    /// The pool whose observer is being told something.
    static TELLS: Cell<usize> = const { Cell::new(0) };
}

pub(crate) const OBSERVER: &str = "an observer";

fn address<T>(pool: &T) -> usize {
    std::ptr::from_ref(pool) as usize
}

/// Marks that this thread runs connections of a pool from now on.
pub(crate) fn run<T>(pool: &T) {
    RUNS.set(address(pool));
}

/// Calls an observer, which is user code: its panic must not take a thread of the pool with it.
pub(crate) fn tell<T>(pool: &T, observer: impl FnOnce()) {
    let before = TELLS.replace(address(pool));
    let _ = catch_unwind(AssertUnwindSafe(observer)).map_err(panics::discard);
    TELLS.set(before);
}

/// Returns the user's code that this thread is in, if this pool may be waiting for it.
pub(crate) fn code_of<T>(pool: &T) -> Option<&'static str> {
    let is = |known: usize| known == address(pool);
    if is(TELLS.get()) { Some(OBSERVER) } else { is(RUNS.get()).then_some("a callback") }
}
