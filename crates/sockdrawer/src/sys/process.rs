//! Helper processes: starting this program again as a helper, and the first steps of a helper.
#![allow(unsafe_code)]

use super::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, pidfd_send_signal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The prefix of a helper's name in process lists, by which a process also knows that it is a helper.
const MARK: &str = "sockdrawer: ";

/// Starts this program again as a helper, with one end of a packet pair as its standard input. It is a new program, not a fork of this
/// process with its threads. It has a process group of its own, so that a Ctrl-C at the terminal reaches only the pool's process.
pub(crate) fn start_helper(what: &str, end: OwnedFd) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0(format!("{MARK}{what}"))
        .process_group(0)
        .stdin(Stdio::from(end))
        .stdout(Stdio::null())
        .spawn()
}

/// Kills a process. Returns false if it was gone.
pub(crate) fn kill(process: &OwnedFd) -> bool {
    pidfd_send_signal(process, Signal::KILL).is_ok()
}

/// Waits for a process to end, and kills it after `within`.
pub(crate) fn wait_or_kill(child: &mut Child, itself: Option<&OwnedFd>, within: Duration) -> std::io::Result<ExitStatus> {
    let in_time = || -> Result<bool> {
        let ended = itself.ok_or(Errno::SRCH)?;
        let patience = Timespec::try_from(within).map_err(|_| Errno::INVAL)?;
        loop {
            match poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&patience)) {
                Err(Errno::INTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    };
    if !matches!(in_time(), Ok(true)) {
        // Without a pidfd the process cannot be watched, and a wait for it would have no limit: it is killed.
        itself.map_or_else(|| child.kill(), |itself| Ok(_ = kill(itself)))?;
    }
    child.wait()
}

/// The packet end with which this process was started, if it is a helper. Its standard input is empty from then on.
pub(crate) fn helper_end() -> Option<OwnedFd> {
    let name = std::env::args_os().next()?;
    let stdin = std::io::stdin();
    if !name.as_encoded_bytes().starts_with(MARK.as_bytes()) || !super::passing::is_packet_end(stdin.as_fd()) {
        return None;
    }
    let end = stdin.as_fd().try_clone_to_owned().ok()?;
    let nothing = std::fs::File::open("/dev/null").ok()?;
    rustix::stdio::dup2_stdin(nothing).ok()?;
    fcntl_setfd(&end, FdFlags::CLOEXEC).ok()?;
    Some(end)
}

/// Prepares a new helper: closes the descriptors that the pool's process had open without close-on-exec, and ignores signals to end, which
/// service managers send to all processes: they are handled by the pool's process. Returns the packet end under the lowest free number.
pub(crate) fn settle_helper(end: OwnedFd) -> Result<OwnedFd> {
    close_others(&end)?;
    let lowest = rustix::io::fcntl_dupfd_cloexec(&end, 3)?;
    let end = if lowest.as_raw_fd() < end.as_raw_fd() { lowest } else { end };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: signal(2) with SIG_IGN installs no code.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(last_error());
        }
    }
    Ok(end)
}

/// Closes every descriptor but the first three and `keep`.
fn close_others(keep: &OwnedFd) -> Result<()> {
    let keep = keep.as_raw_fd().cast_unsigned();
    for (first, last) in [(3, keep.saturating_sub(1)), (keep + 1, u32::MAX)] {
        // SAFETY: close_range(2) takes numbers. No value in this process owns these descriptors: this runs before all user code.
        if first <= last && unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(last_error());
        }
    }
    Ok(())
}

pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
