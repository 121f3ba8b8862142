//! Forking a process that has a single thread, and waiting for its children.
#![allow(unsafe_code)]

use super::Result;
use super::options::last_error;
use super::process::close_range;
use super::signals::{self, set_of};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// The process in which `fork` returned.
pub(crate) enum Forked {
    /// The parent, with the process id of the child.
    Parent(u32),
    /// The child.
    Child,
}

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(i32),
    Signalled(i32),
}

// SAFETY: the C library has the function under this name and type, glibc since 2.34, musl since 1.2.2.
unsafe extern "C" {
    /// Forks as POSIX.1-2024 says, without handlers: there are no other threads, whose locks the handlers protect.
    fn _Fork() -> libc::pid_t;
}

/// Forks this process.
///
/// # Panics
/// When this process has a second thread, whose locks would never be released in the child.
pub(crate) fn fork() -> Result<Forked> {
    // SAFETY: _Fork(3) in a process with one thread: all of its memory is in a state that this thread made. `is_alone` was
    // asserted when the helper began, and a helper that forks starts no thread.
    match unsafe { _Fork() } {
        -1 => Err(last_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid.cast_unsigned())),
    }
}

/// Returns true where this process has a single thread.
pub(crate) fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Returns a descriptor that becomes readable when a child has ended. This process blocks SIGCHLD from then on, and SIGTERM, so that for a child
/// that is asked to end before it is ready the signal stays pending.
pub(crate) fn watch_children() -> Result<OwnedFd> {
    let held_back = set_of(&[libc::SIGCHLD, libc::SIGTERM]);
    // SAFETY: sigprocmask(2) reads a valid set; the old set is not returned.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const held_back, null_mut()) } != 0 {
        return Err(last_error());
    }
    watch(&set_of(&[libc::SIGCHLD]))
}

/// Returns a descriptor that becomes readable when this process, a child, is asked to end.
pub(crate) fn watch_for_end() -> Result<OwnedFd> {
    watch(&set_of(&[libc::SIGTERM]))
}

fn watch(signals: &libc::sigset_t) -> Result<OwnedFd> {
    // SAFETY: signalfd(2) reads a valid set and makes a new descriptor.
    match unsafe { libc::signalfd(-1, std::ptr::from_ref(signals), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) } {
        -1 => Err(last_error()),
        // SAFETY: the descriptor was made just now and has no other owner.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    }
}

/// Clears the notice that children ended: the caller asks for them one by one.
pub(crate) fn clear(watch: BorrowedFd<'_>) {
    let mut told = [0; 512];
    // An error means that there was no notice.
    let _ = rustix::io::read(watch, &mut told);
}

/// The way in which a child is asked to end: the value that comes with its SIGTERM. A SIGTERM from another sender has no such value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndBy {
    /// The time in which the child has to end.
    pub(crate) within: Option<Duration>,
    /// The child ends without finishing its work first.
    pub(crate) at_once: bool,
}

impl EndBy {
    /// Returns the time by the clock that all processes share, in ms, and a bit for `at_once`; 0 means no value. Never earlier than `until`: the
    /// helper has to stop accepting before it gets back the permit of a child that ended at the deadline.
    fn word(until: Instant, at_once: bool) -> usize {
        let left = until.saturating_duration_since(Instant::now()).as_nanos();
        let at = (now() + left).div_ceil(NANOS_PER_MS).clamp(1, u128::from(u64::MAX >> 2));
        (at as usize) << 1 | usize::from(at_once)
    }

    fn of(word: u64) -> EndBy {
        let left = (u128::from(word >> 1) * NANOS_PER_MS).saturating_sub(now());
        let within = (word != 0).then(|| Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX)));
        EndBy { within, at_once: word & 1 == 1 }
    }
}

const NANOS_PER_MS: u128 = 1_000_000;

/// Returns CLOCK_MONOTONIC in ns.
fn now() -> u128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u128::from(time.tv_sec.cast_unsigned()) * 1_000_000_000 + u128::from(time.tv_nsec.cast_unsigned())
}

/// Asks a child to end by `until`.
pub(crate) fn ask_to_end(pid: u32, until: Instant, at_once: bool) {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(EndBy::word(until, at_once)) };
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: sigqueue(3) takes numbers; the pointer is a number too, and never followed. If the kernel's queue of signal values is
        // full, the child gets the signal without a value.
        if unsafe { libc::sigqueue(pid, libc::SIGTERM, value) } != 0 {
            signal(pid.cast_unsigned(), libc::SIGTERM);
        }
    }
}

/// Returns how this process is asked to end, by the last SIGTERM; None if there was none.
pub(crate) fn asked_to_end(watch: BorrowedFd<'_>) -> Option<EndBy> {
    let mut came = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: read(2) writes at most `size` bytes, the size of the buffer.
    let read = unsafe { libc::read(watch.as_raw_fd(), came.as_mut_ptr().cast(), size) };
    // SAFETY: read(2) wrote all bytes; all fields are integers.
    (read == size as isize).then(|| EndBy::of(unsafe { came.assume_init() }.ssi_ptr))
}

/// Returns the process id of an ended child: of child `of`, or of any, also one that a service has started. It stays a zombie, which keeps its
/// process id, until it is reaped.
pub(crate) fn ended_child(of: Option<u32>) -> Option<u32> {
    // SAFETY: all-zero bytes are a valid siginfo_t.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let (kind, number) = of.map_or((libc::P_ALL, 0), |pid| (libc::P_PID, pid));
    // SAFETY: waitid(2) writes to a valid place.
    if unsafe { libc::waitid(kind, number, &raw mut about, options) } != 0 {
        return None;
    }
    // SAFETY: the field was written by waitid(2), or is still zero.
    let pid = unsafe { about.si_pid() };
    (pid > 0).then(|| pid.cast_unsigned())
}

/// Reaps a child and returns how it ended; None if it has not ended.
pub(crate) fn reap(pid: u32) -> Option<Ending> {
    let (_, status) = waitpid(Pid::from_raw(pid.cast_signed()), WaitOptions::NOHANG).ok().flatten()?;
    Some(match status.terminating_signal() {
        Some(signal) => Ending::Signalled(signal),
        None => Ending::Exited(status.exit_status().unwrap_or(-1)),
    })
}

/// Prepares a new child for its connection: it dies with its parent, and closes these ranges of its parent's descriptors.
pub(crate) fn settle_child(parent: u32, not_its_own: &[(u32, u32)]) -> Result<()> {
    die_with(parent)?;
    not_its_own.iter().try_for_each(|(first, last)| close_range(*first, *last))
}

/// Prepares a new child in whose place a program starts: it dies with its parent, keeps only its connection and the standard streams, and
/// leads a process group of its own, by which the program and all processes that it starts are ended.
pub(crate) fn settle_program(parent: u32, connection: BorrowedFd<'_>) -> Result<()> {
    die_with(parent)?;
    lead_group(0);
    let connection = connection.as_raw_fd().cast_unsigned();
    close_range(3, connection - 1)?;
    close_range(connection + 1, u32::MAX)
}

fn die_with(parent: u32) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The parent may have died before the signal was set.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) != Some(parent) {
        exit(1);
    }
    Ok(())
}

/// Makes a child, or this process if `pid` is 0, the leader of a process group. Parent and child both do so, so that neither waits for the
/// other.
pub(crate) fn lead_group(pid: u32) {
    // SAFETY: setpgid(2) takes numbers. It fails for a child that has started its program already, which has called it before.
    let _ = unsafe { libc::setpgid(pid.cast_signed(), 0) };
}

/// Restores what a program started in this process's place expects: default actions for the signals that a helper handles, an empty signal
/// mask, and standard input and output in blocking mode.
pub(crate) fn restore(socket: BorrowedFd<'_>) {
    // This fails only if `socket` is not a descriptor.
    let _ = rustix::io::ioctl_fionbio(socket, false);
    signals::settle_program();
}

/// Ends this process at once, without dropping or flushing anything: all values are the parent's.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: _exit(2) is always allowed.
    unsafe { libc::_exit(code) }
}

/// Sends a signal to a child that was not reaped yet. Returns false if there is no such process.
pub(crate) fn signal(pid: u32, signal: i32) -> bool {
    // SAFETY: kill(2) takes numbers.
    i32::try_from(pid).is_ok_and(|pid| pid > 0 && unsafe { libc::kill(pid, signal) } == 0)
}

/// Sends a signal to the process group of a child that was not reaped yet: until it is, its process id is not reused.
pub(crate) fn signal_group(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 1
    {
        // SAFETY: kill(2) takes numbers.
        let _ = unsafe { libc::kill(-pid, signal) };
    }
}

pub(crate) const SIGTERM: i32 = libc::SIGTERM;
pub(crate) const SIGKILL: i32 = libc::SIGKILL;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_end_before_its_helpers_deadline() {
        for within in [0, 1, 999, 1_000_000, 123_456_789, u64::MAX] {
            let until = crate::clock::deadline(Instant::now(), Duration::from_nanos(within));
            let how = EndBy::of(EndBy::word(until, within == 1) as u64);
            let there = Instant::now() + how.within.expect("a deadline");
            assert!(there >= until, "{within} ns");
            assert!(there < until + Duration::from_secs(1) && how.at_once == (within == 1));
        }
        assert_eq!(EndBy::of(0), EndBy::default());
    }
}
