//! Packets between processes, and descriptors that travel with them (unix(7)).

use super::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors in one packet; the kernel takes 253.
pub(crate) const MOST_DESCRIPTORS: usize = 200;
/// The longest packet. The smallest usual send buffer holds several.
pub(crate) const MOST_BYTES: usize = 32 * 1024;

/// Two ends between which packets keep their bounds. Both block.
pub(crate) fn packet_pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Whether this is an end of such a pair, made by a process of the same user.
pub(crate) fn is_packet_end(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Sends one packet, whole. Waits for room unless told not to.
pub(crate) fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>], wait: bool) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
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

/// Waits for one packet; None when the other end is gone. Descriptors are close-on-exec.
///
/// # Errors
/// `EMFILE` when this process had no room for a descriptor that came along: the kernel closed those without a word. `EMSGSIZE`
/// when the packet is longer than any of ours.
pub(crate) fn receive_packet(socket: BorrowedFd<'_>, into: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> Result<Option<()>> {
    into.resize(MOST_BYTES, 0);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    into.truncate(received.bytes);
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok((received.bytes > 0).then_some(()))
}

/// Ends the conversation in both directions; whoever waits on either end sees its end.
pub(crate) fn hang_up(socket: BorrowedFd<'_>) {
    // It fails where the other end is gone already.
    let _ = rustix::net::shutdown(socket.as_fd(), rustix::net::Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_travel_with_their_packet() {
        let (one, two) = packet_pair().expect("a pair");
        assert!(is_packet_end(one.as_fd()));
        let event = rustix::event::eventfd(7, rustix::event::EventfdFlags::empty()).expect("an eventfd");
        send_packet(one.as_fd(), b"first", &[event.as_fd(); MOST_DESCRIPTORS], true).expect("sent");
        send_packet(one.as_fd(), b"second", &[], true).expect("sent");
        let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
        assert_eq!(receive_packet(two.as_fd(), &mut bytes, &mut descriptors), Ok(Some(())));
        assert_eq!((&bytes[..], descriptors.len()), (&b"first"[..], MOST_DESCRIPTORS));
        let mut value = [0; 8];
        rustix::io::read(&descriptors[MOST_DESCRIPTORS - 1], &mut value).expect("readable");
        assert_eq!(u64::from_ne_bytes(value), 7, "it is the same eventfd");
        descriptors.clear();
        receive_packet(two.as_fd(), &mut bytes, &mut descriptors).expect("received");
        assert_eq!((&bytes[..], descriptors.len()), (&b"second"[..], 0));
        drop(one);
        assert_eq!(receive_packet(two.as_fd(), &mut bytes, &mut descriptors), Ok(None));
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(!is_packet_end(file.as_fd()));
    }
}
