//! What time it is, by the kernel's clocks that only go forward. All processes see the same.
#![allow(unsafe_code)]

/// Nanoseconds.
pub(crate) fn monotonic() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// The same, up to a tick of the kernel late, for a third of the cost: the processor's counter is not read.
#[inline]
pub(crate) fn monotonic_coarse() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC_COARSE)
}

/// By the C library, which finds the kernel's code for it, also where valgrind hides it.
#[inline]
fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `now`, which is there. These clocks exist since Linux 2.6.32: it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
