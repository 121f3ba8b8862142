//! Packets between processes, and descriptors that travel with them (unix(7)).

use super::options::peer;
use super::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with,
    socketpair, sockopt,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Maximum of descriptors per packet; the kernel takes 253.
pub(crate) const MAX_DESCRIPTORS: usize = 200;
/// Maximum length of a packet in bytes. The smallest usual send buffer holds several such packets.
pub(crate) const MAX_BYTES: usize = 32 * 1024;
/// Size of a send buffer that is more than any system allows without privileges.
const MAX_BUFFER: usize = 1 << 30;

/// Makes a pair of connected sockets for packets (SEQPACKET), both in blocking mode. The first waits no longer than `patience` to send, because the
/// process at the other end may be stopped.
pub(crate) fn packet_pair(patience: Duration) -> Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&pair.0, sockopt::Timeout::Send, Some(patience))?;
    Ok(pair)
}

/// Listens for packet connections (SEQPACKET) at a path that only this user may use. The path must be free.
pub(crate) fn packet_listener(path: &Path) -> Result<OwnedFd> {
    let socket = packet_socket()?;
    // The path gets the mode of the socket (unix(7)). It is never named to change it: another user may have put something else there by then.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 16)?;
    Ok(socket)
}

/// Connects to a packet listener.
pub(crate) fn packet_connect(path: &Path) -> Result<OwnedFd> {
    let socket = packet_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Waits for the next connection of a packet listener.
pub(crate) fn packet_accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            accepted => return accepted,
        }
    }
}

fn packet_socket() -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sets the maximum time that this end waits to send. None: for ever.
pub(crate) fn send_within(socket: BorrowedFd<'_>, patience: Option<Duration>) -> Result<()> {
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Send, patience)
}

/// Sets the maximum time that this end waits to receive. None: for ever.
pub(crate) fn receive_within(socket: BorrowedFd<'_>, patience: Option<Duration>) -> Result<()> {
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, patience)
}

/// Raises the send buffer to what the system allows (`net.core.wmem_max`): room for a short packet where the usual buffer is full.
pub(crate) fn make_room(socket: BorrowedFd<'_>) -> Result<()> {
    sockopt::set_socket_send_buffer_size(socket, MAX_BUFFER)
}

/// Returns true where the other end of a packet pair is closed: unlike an error of a call, a state that only the end of its last copy brings about.
pub(crate) fn is_gone(socket: BorrowedFd<'_>) -> bool {
    let mut one = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut one, Some(&now)) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok() && one[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP),
        }
    }
}

/// Waits until there is something to receive, or accept, at one of the two, or until then: at which.
///
/// # Errors
/// `EAGAIN` when time is up.
pub(crate) fn wait_for_either(one: BorrowedFd<'_>, other: BorrowedFd<'_>, until: Instant) -> Result<[bool; 2]> {
    loop {
        let mut both = [PollFd::from_borrowed_fd(one, PollFlags::IN), PollFd::from_borrowed_fd(other, PollFlags::IN)];
        let left =
            Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut both, Some(&left)) {
            Ok(0) => return Err(Errno::AGAIN),
            Err(Errno::INTR) => {}
            ready => return ready.map(|_| both.map(|one| !one.revents().is_empty())),
        }
    }
}

/// Returns the process at the other end, 0 where it is in another namespace of processes, and whether this user may trust it: it is this user's, or
/// root's.
pub(crate) fn peer_process(socket: BorrowedFd<'_>) -> Result<(u32, bool)> {
    let peer = peer(socket)?;
    Ok((peer.pid.cast_unsigned(), peer.uid == rustix::process::geteuid().as_raw() || peer.uid == 0))
}

/// Returns the process, user and group at the other end of a Unix socket.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> Result<(u32, u32, u32)> {
    if sockopt::socket_domain(socket)? != AddressFamily::UNIX {
        return Err(Errno::OPNOTSUPP);
    }
    let peer = peer(socket)?;
    Ok((peer.pid.cast_unsigned(), peer.uid, peer.gid))
}

/// Opens a pidfd of a child. A process id may be reused as soon as the child is reaped, and the program around this library may ignore SIGCHLD, or
/// wait for any child. None if the child is gone already, or no descriptor is left.
pub(crate) fn itself(child: &Child) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(child.id().cast_signed())?, PidfdFlags::empty()).ok()
}

/// Returns true where the socket is an end of a packet pair that a process of this user made.
pub(crate) fn is_packet_end(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && peer(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid().as_raw())
}

/// Sends a whole packet. With `wait` it waits until the socket has room.
///
/// # Errors
/// `EAGAIN` when there is no room, with `wait` after the timeout of this end.
pub(crate) fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>], wait: bool) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}

/// Receives a packet and returns its length; None when the other end is gone. With `wait` it waits for a packet. Descriptors are
/// close-on-exec. The kernel silently closes descriptors for which this process has no room, so a sender says in the packet how many it
/// passes.
///
/// # Errors
/// `EAGAIN` when there is no packet and `wait` is false. `EMSGSIZE` when the packet is longer than [`MAX_BYTES`].
pub(crate) fn receive_packet(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    wait: bool,
) -> Result<Option<usize>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = if wait { RecvFlags::CMSG_CLOEXEC } else { RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT };
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok((received.bytes > 0).then_some(received.bytes))
}

/// Shuts down both directions; a wait on either end sees the end of the stream.
pub(crate) fn hang_up(socket: BorrowedFd<'_>) {
    // An error means that the other end is gone already.
    let _ = rustix::net::shutdown(socket.as_fd(), rustix::net::Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_travel_with_their_packet() {
        let (one, two) = packet_pair(Duration::from_millis(10)).expect("a pair");
        assert!(is_packet_end(one.as_fd()));
        let event = rustix::event::eventfd(7, rustix::event::EventfdFlags::empty()).expect("an eventfd");
        send_packet(one.as_fd(), b"first", &[event.as_fd(); MAX_DESCRIPTORS], true).expect("sent");
        send_packet(one.as_fd(), b"second", &[], true).expect("sent");
        let (mut bytes, mut descriptors) = (vec![0; MAX_BYTES], Vec::new());
        assert_eq!(receive_packet(two.as_fd(), &mut bytes, &mut descriptors, true), Ok(Some(5)));
        assert_eq!((&bytes[..5], descriptors.len()), (&b"first"[..], MAX_DESCRIPTORS));
        let mut value = [0; 8];
        rustix::io::read(&descriptors[MAX_DESCRIPTORS - 1], &mut value).expect("readable");
        assert_eq!(u64::from_ne_bytes(value), 7, "it is the same eventfd");
        descriptors.clear();
        let length = receive_packet(two.as_fd(), &mut bytes, &mut descriptors, true).expect("received").expect("a packet");
        assert_eq!((&bytes[..length], descriptors.len()), (&b"second"[..], 0));
        let full = loop {
            if let Err(errno) = send_packet(one.as_fd(), &[0; MAX_BYTES], &[], true) {
                break errno;
            }
        };
        assert_eq!(full, Errno::AGAIN, "it does not wait for ever");
        while receive_packet(two.as_fd(), &mut bytes, &mut descriptors, false).is_ok() {}
        drop(one);
        assert_eq!(receive_packet(two.as_fd(), &mut bytes, &mut descriptors, true), Ok(None));
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(!is_packet_end(file.as_fd()));
    }
}
