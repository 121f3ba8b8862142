//! Socket options, among them those that have no safe wrapper.
#![allow(unsafe_code)]

use super::{Errno, Result};
use crate::net::{Keepalive, ListenOptions, SocketOptions};
use rustix::net::{AddressFamily, sockopt};
use std::ffi::c_int;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sets the options of a connection. On a Unix socket, which lacks most of them, only the buffer sizes. Those that are off are off already on a
/// socket that is `fresh`.
pub(super) fn set(socket: BorrowedFd<'_>, options: &SocketOptions, fresh: bool) -> Result<()> {
    if let Some(bytes) = options.receive_buffer {
        sockopt::set_socket_recv_buffer_size(socket, bytes as usize)?;
    }
    if let Some(bytes) = options.send_buffer {
        sockopt::set_socket_send_buffer_size(socket, bytes as usize)?;
    }
    match sockopt::set_tcp_nodelay(socket, options.nodelay) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        set => set?,
    }
    if !fresh || options.keepalive.is_some() {
        sockopt::set_socket_keepalive(socket, options.keepalive.is_some())?;
    }
    if let Some(keepalive) = options.keepalive {
        sockopt::set_tcp_keepidle(socket, keepalive.idle)?;
        sockopt::set_tcp_keepintvl(socket, keepalive.interval)?;
        sockopt::set_tcp_keepcnt(socket, keepalive.probes)?;
    }
    if !fresh || options.user_timeout.is_some() {
        let user_timeout = options.user_timeout.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
        sockopt::set_tcp_user_timeout(socket, user_timeout)?;
    }
    Ok(())
}

/// Sets the options of a listener, before bind. Options that are off stay as the system makes sockets.
pub(super) fn set_for_listening(socket: BorrowedFd<'_>, options: &ListenOptions) -> Result<()> {
    let family = sockopt::socket_domain(socket)?;
    let ipv6 = family == AddressFamily::INET6;
    if options.v6_only {
        sockopt::set_ipv6_v6only(socket, true)?;
    }
    // IPv4 options work on an IPv6 socket too, and count for connections of both families.
    if options.freebind {
        set_flag(socket, libc::IPPROTO_IP, libc::IP_FREEBIND)?;
    }
    if options.transparent {
        let (level, name) =
            if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT) } else { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) };
        set_flag(socket, level, name)?;
    }
    match &options.device {
        Some(device) => bind_to_device(socket, device),
        None => Ok(()),
    }
}

fn set_flag(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> Result<()> {
    set_number(socket, level, name, 1)
}

fn set_number(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> Result<()> {
    // SAFETY: setsockopt(2) reads one int from a valid pointer for a descriptor that is borrowed, hence open.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<c_int>() as libc::socklen_t)
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn bind_to_device(socket: BorrowedFd<'_>, device: &str) -> Result<()> {
    let length = libc::socklen_t::try_from(device.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: setsockopt(2) reads at most `length` bytes from a valid pointer for a descriptor that is borrowed, hence open.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Reads the options of a connection; buffer sizes as the kernel counts them, twice the requested size.
pub(super) fn get(socket: BorrowedFd<'_>) -> Result<SocketOptions> {
    let bytes = |size: usize| Some(u32::try_from(size).unwrap_or(u32::MAX));
    let mut options = SocketOptions {
        nodelay: false,
        keepalive: None,
        user_timeout: None,
        receive_buffer: bytes(sockopt::socket_recv_buffer_size(socket)?),
        send_buffer: bytes(sockopt::socket_send_buffer_size(socket)?),
    };
    if sockopt::socket_domain(socket)? == AddressFamily::UNIX {
        return Ok(options);
    }
    options.nodelay = sockopt::tcp_nodelay(socket)?;
    if sockopt::socket_keepalive(socket)? {
        options.keepalive = Some(Keepalive {
            idle: sockopt::tcp_keepidle(socket)?,
            interval: sockopt::tcp_keepintvl(socket)?,
            probes: sockopt::tcp_keepcnt(socket)?,
        });
    }
    let user_timeout = sockopt::tcp_user_timeout(socket)?;
    options.user_timeout = (user_timeout > 0).then(|| Duration::from_millis(u64::from(user_timeout)));
    Ok(options)
}

/// Sets `TCP_NOTSENT_LOWAT`: the socket has room once nothing is left that was not sent.
pub(super) fn room_once_sent(socket: BorrowedFd<'_>) -> Result<()> {
    set_number(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 1)
}

/// Sets `IP_BIND_ADDRESS_NO_PORT`: bind fixes the address alone, so that ports are counted per target.
pub(super) fn bind_address_without_port(socket: BorrowedFd<'_>) -> Result<()> {
    set_flag(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
}

/// Sets `IP_LOCAL_PORT_RANGE`, Linux 6.3: the part of the system's own port range that connect may use. Works on an IPv6 socket too.
pub(super) fn set_local_ports(socket: BorrowedFd<'_>, (from, to): (u16, u16)) -> Result<()> {
    // linux/in.h; libc has no name for it.
    const IP_LOCAL_PORT_RANGE: c_int = 51;
    let range = u32::from(to) << 16 | u32::from(from);
    set_number(socket, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, range.cast_signed())
}

/// Returns the length of the accept queue: `tcpi_unacked` of a TCP listener (tcp_get_info in the kernel). Unknown, 0, for Unix sockets.
pub(super) fn accept_queue(listener: BorrowedFd<'_>) -> Result<usize> {
    if sockopt::socket_domain(listener)? == AddressFamily::UNIX {
        return Ok(0);
    }
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: getsockopt(2) writes at most `size` bytes to a buffer of that size, for a descriptor that is borrowed.
    let result = unsafe {
        libc::getsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut size)
    };
    if result != 0 {
        return Err(last_error());
    }
    // SAFETY: all-zero bytes are a valid tcp_info, and the kernel wrote numbers over them.
    Ok(unsafe { info.assume_init() }.tcpi_unacked as usize)
}

/// Returns the number of bytes that were sent and that the peer has not acknowledged, of a Unix socket not read (`SIOCOUTQ`).
pub(super) fn unacknowledged(socket: BorrowedFd<'_>) -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: this ioctl writes a number to where it points, for a descriptor that is borrowed. SIOCOUTQ and TIOCOUTQ are one number.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if result == 0 { Ok(count.try_into().unwrap_or(0)) } else { Err(last_error()) }
}

/// Returns the process and the user at the other end of a Unix socket. The process is 0 where it is in another namespace of processes, for which
/// rustix has no value.
pub(super) fn peer(socket: BorrowedFd<'_>) -> Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: getsockopt(2) writes at most `size` bytes to a buffer of that size, for a descriptor that is borrowed.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut size)
    };
    if result == 0 { Ok(peer) } else { Err(last_error()) }
}

pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
