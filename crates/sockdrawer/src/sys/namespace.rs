//! A private network namespace, for tests that compare the kernel's counters.
#![allow(unsafe_code)]

use super::Result;
use super::options::last_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::os::fd::AsRawFd;

/// Moves this thread, and the threads that it starts later, into a new network namespace whose loopback device is up. Needs root, or
/// unprivileged user namespaces.
pub(crate) fn private_network() -> Result<()> {
    // SAFETY: unshare(2) is unsafe for resources that threads share; neither flag unshares descriptors or memory.
    let alone = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    if alone.is_err() {
        // SAFETY: as above; NEWUSER fails in a process with several threads.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }?;
    }
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero bytes are a valid ifreq; its name is then "lo" with a terminator.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq from a valid pointer (netdevice(7)); the socket is open.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}
