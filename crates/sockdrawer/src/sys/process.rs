//! Helper processes: starting this program again as a helper, and the first steps of a helper.
#![allow(unsafe_code)]

use super::options::last_error;
use super::{Errno, Result, signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, pidfd_send_signal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The prefix of a helper's name in process lists, by which a process also knows that it is a helper.
const MARK: &str = "sockdrawer: ";

/// Time between two looks at a process for which there is no pidfd: kernels before 5.3, and system call filters that do not know the call.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Starts this program again as a helper, with one end of a packet pair as its standard input. It is a new program, not a fork of this
/// process with its threads. It has a process group of its own, so that a Ctrl-C at the terminal reaches only the pool's process.
pub(crate) fn start_helper(what: &str, end: OwnedFd) -> std::io::Result<Child> {
    signals::expect_children();
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
    let until = Instant::now() + within;
    while child.try_wait()?.is_none() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            itself.map_or_else(|| child.kill(), |itself| Ok(_ = kill(itself)))?;
            return child.wait();
        }
        let watched = itself.and_then(|itself| {
            let patience = Timespec::try_from(left).ok()?;
            poll(&mut [PollFd::new(itself, PollFlags::IN)], Some(&patience)).ok()
        });
        if watched.is_none() {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    child.wait()
}

/// Returns the packet end with which this process was started, if it is a helper. Its standard input is empty from then on.
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

/// Prepares a new helper: closes the descriptors that the pool's process had open without close-on-exec, and settles its signals. Returns the packet
/// end under the lowest free number.
pub(crate) fn settle_helper(end: OwnedFd) -> Result<OwnedFd> {
    close_others(&end)?;
    let lowest = rustix::io::fcntl_dupfd_cloexec(&end, 3)?;
    let end = if lowest.as_raw_fd() < end.as_raw_fd() { lowest } else { end };
    signals::settle_helper()?;
    Ok(end)
}

/// Closes every descriptor but the first three and `keep`.
fn close_others(keep: &OwnedFd) -> Result<()> {
    let keep = keep.as_raw_fd().cast_unsigned();
    // No value in this process owns these descriptors: this runs before all user code.
    close_range(3, keep.saturating_sub(1))?;
    close_range(keep + 1, u32::MAX)
}

/// Closes the descriptors of these numbers, both ends included. Their owners, if any, are values of a parent that are never dropped in this
/// process.
pub(super) fn close_range(first: u32, last: u32) -> Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: close_range(2) takes numbers. The callers answer for the descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return Ok(());
    }
    match last_error() {
        // Kernels before 5.9, and system call filters that do not know the call.
        Errno::NOSYS | Errno::PERM => close_each(first, last),
        errno => Err(errno),
    }
}

/// Closes what is open of these numbers one by one: as `/proc` lists them, or where it is not mounted, up to the limit.
fn close_each(first: u32, last: u32) -> Result<()> {
    let last = last.min(u32::try_from(super::descriptor_limit()).unwrap_or(u32::MAX).saturating_sub(1));
    let listed = || -> Option<Vec<u32>> {
        let entries = std::fs::read_dir("/proc/self/fd").ok()?;
        Some(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    };
    let open = listed().unwrap_or_else(|| (first..=last).collect());
    for number in open.into_iter().filter(|number| (first..=last).contains(number)) {
        // SAFETY: as above. The descriptor of the list itself is closed already; a number that is not open is an error that does no harm.
        let _ = unsafe { libc::close(number.cast_signed()) };
    }
    Ok(())
}
