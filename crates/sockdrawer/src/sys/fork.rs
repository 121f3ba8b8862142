//! Forking a process that has one thread, and what becomes of its children.
#![allow(unsafe_code)]

use super::Result;
use super::process::last_error;
use rustix::process::{WaitOptions, WaitStatus, waitpid};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// Which of the two this is now.
pub(crate) enum Forked {
    /// The one that was there; the number of the new one.
    Parent(u32),
    /// The new one.
    Child,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(i32),
    Signalled(i32),
}

// SAFETY: the C library has it under this name and type, glibc since 2.34, musl since 1.2.2.
unsafe extern "C" {
    /// POSIX.1-2024's fork without handlers: what they protect, the locks of other threads, is not there.
    fn _Fork() -> libc::pid_t;
}

/// Makes a second process of this one.
///
/// # Panics
/// When this process has a second thread, whose locks the new one would never see released.
pub(crate) fn fork() -> Result<Forked> {
    // SAFETY: _Fork(3) in a process with one thread: all of its memory is in a state that this thread made. `is_alone` was
    // asserted when the helper began, and a helper that forks starts no thread.
    match unsafe { _Fork() } {
        -1 => Err(last_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid.cast_unsigned())),
    }
}

/// Whether this process has one thread.
pub(crate) fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// A descriptor that can be read when a child has ended. The signal itself is held back in this process from then on.
pub(crate) fn watch_children() -> Result<OwnedFd> {
    let signals = child_signal();
    // SAFETY: sigprocmask(2) reads a valid set; no place for the old one is wanted.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, null_mut()) } != 0 {
        return Err(last_error());
    }
    // SAFETY: signalfd(2) reads a valid set and makes a new descriptor.
    match unsafe { libc::signalfd(-1, &raw const signals, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) } {
        -1 => Err(last_error()),
        // SAFETY: it was made just now and belongs to nobody else.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    }
}

fn child_signal() -> libc::sigset_t {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) initialises the set, sigaddset(3) changes it; both fail for bad pointers and numbers only.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGCHLD);
        signals.assume_init()
    }
}

/// Forgets that children ended: they are about to be asked for one by one.
pub(crate) fn clear(watch: BorrowedFd<'_>) {
    let mut told = [0; 512];
    // It fails when there was nothing to forget.
    let _ = rustix::io::read(watch, &mut told);
}

/// A child that has ended, which is no zombie from then on. None: there is none now.
pub(crate) fn ended_child() -> Option<(u32, Ending)> {
    let (pid, status): (_, WaitStatus) = waitpid(None, WaitOptions::NOHANG).ok().flatten()?;
    let ending = match status.terminating_signal() {
        Some(signal) => Ending::Signalled(signal),
        None => Ending::Exited(status.exit_status().unwrap_or(-1)),
    };
    Some((pid.as_raw_nonzero().get().cast_unsigned(), ending))
}

/// Makes a new child its connection's alone: it dies with its parent, and every descriptor but the first three and these is closed.
/// SIGCHLD stays held back, which concerns only who waits for the signal instead of the process; a program that is started in its
/// place begins with no signal held back.
pub(crate) fn settle_child(parent: u32, keep: [BorrowedFd<'_>; 2]) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may have died before that.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) != Some(parent) {
        exit(1);
    }
    let mut numbers = keep.map(|descriptor| descriptor.as_raw_fd().cast_unsigned());
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers {
        if number > first {
            close(first, number - 1)?;
        }
        first = first.max(number + 1);
    }
    close(first, u32::MAX)
}

fn close(first: u32, last: u32) -> Result<()> {
    // SAFETY: close_range(2) takes numbers. What had these descriptors was left behind by the fork and is never dropped in the
    // child, which ends by `exit` and returns to no caller.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// Gives a program that is started in this process's place what it expects: the signals that a helper leaves to its pool, and
/// standard input and output that block.
pub(crate) fn restore(socket: BorrowedFd<'_>) {
    // It fails for what is no descriptor only.
    let _ = rustix::io::ioctl_fionbio(socket, false);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: signal(2) with SIG_DFL installs no code. It fails for bad numbers only.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Ends this process at once: nothing is dropped or flushed, because all of it is the parent's.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: _exit(2) is always allowed.
    unsafe { libc::_exit(code) }
}

/// Sends a signal to a child that was not reaped yet. False when there is none.
pub(crate) fn signal(pid: u32, signal: i32) -> bool {
    // SAFETY: kill(2) takes numbers.
    i32::try_from(pid).is_ok_and(|pid| pid > 0 && unsafe { libc::kill(pid, signal) } == 0)
}

pub(crate) const SIGTERM: i32 = libc::SIGTERM;
pub(crate) const SIGKILL: i32 = libc::SIGKILL;
