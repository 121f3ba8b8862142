//! The kernel's monotonic clocks, which all processes share.
#![allow(unsafe_code)]

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// Returns CLOCK_MONOTONIC_COARSE in nanoseconds: up to a tick of the kernel late, for a third of the cost, because the processor's counter is not
/// read.
#[inline]
pub(crate) fn monotonic_coarse() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC_COARSE)
}

/// Reads a clock by the C library, which finds the kernel's vDSO, also where valgrind hides it.
#[inline]
fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes to `now`, which is valid. These clocks exist since Linux 2.6.32: the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
