//! Signals: a process begins with the dispositions and the mask of what started it, and so do the processes that it starts.
#![allow(unsafe_code)]

use super::Result;
use super::options::last_error;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// The highest number of a signal.
#[cfg(feature = "processes")]
const LAST: i32 = 64;

/// Undoes an ignored SIGCHLD, which survives exec: children of a process that ignores it vanish, and a wait for one finds none.
pub(crate) fn expect_children() {
    if is_ignored(libc::SIGCHLD) {
        // This fails only for bad numbers.
        let _ = set(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Handles SIGXFSZ, which otherwise ends the process at the first byte beyond `RLIMIT_FSIZE`, of a log or of memory that processes share: the
/// call fails with EFBIG. It is a handler, which exec takes away, and not ignored, which programs that are started would inherit.
pub(crate) fn bear_full_files() {
    // This fails only for bad numbers.
    let _ = set(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t);
}

extern "C" fn nothing(_: libc::c_int) {}

/// Empties the mask of this thread, which its new threads and processes begin with.
pub(crate) fn unblock() {
    let none = set_of(&[]);
    // SAFETY: pthread_sigmask(3) reads a valid set; the old set is not returned. It fails only for bad arguments.
    let _ = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, null_mut()) };
}

/// Prepares a helper, which has one thread and none of the user's code yet. It begins as after a start by init: nothing is ignored that an
/// ancestor ignored, nothing blocked. Signals to end do nothing, because service managers send them to all processes and the pool's process
/// handles them. They have a handler, which exec takes away: processes that a service starts obey them.
#[cfg(feature = "processes")]
pub(super) fn settle_helper() -> Result<()> {
    // The standard library ignores SIGPIPE here, and restores it in the programs that it starts.
    for signal in (1..=LAST).filter(|signal| *signal != libc::SIGPIPE && is_ignored(*signal)) {
        set(signal, libc::SIG_DFL)?;
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        set(signal, nothing as *const () as libc::sighandler_t)?;
    }
    bear_full_files();
    unblock();
    Ok(())
}

/// Prepares a child of a helper for another program: nothing handled, nothing blocked.
#[cfg(feature = "processes")]
pub(super) fn settle_program() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // This fails only for bad numbers.
        let _ = set(signal, libc::SIG_DFL);
    }
    // It comes after the actions were restored: a pending signal ends the program now, as it would have ended it a moment later.
    unblock();
}

fn set(signal: i32, action: libc::sighandler_t) -> Result<()> {
    // SAFETY: signal(2) with a default action, or with a handler that does nothing. Calls that it interrupts begin again.
    if unsafe { libc::signal(signal, action) } == libc::SIG_ERR { Err(last_error()) } else { Ok(()) }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction(2) writes to a valid place; where it fails, all-zero bytes are a valid value, the default action.
    unsafe {
        let _ = libc::sigaction(signal, null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Returns the set of these signals.
pub(super) fn set_of(numbers: &[i32]) -> libc::sigset_t {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) initialises the set, sigaddset(3) changes it; both fail for bad pointers and numbers only.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(signals.as_mut_ptr(), *number);
        }
        signals.assume_init()
    }
}
