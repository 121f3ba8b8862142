//! Handshakes under way at a port, the accept queues and all sockets there, as the kernel lists them (sock_diag(7)). Needs no privilege.

use super::{Errno, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const HEADER: usize = 16;
const BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const TCP: u8 = 6;
/// The state of a connection whose handshake is not complete, or that is being put into the queue of its listener.
const SYN_RECEIVED: u32 = 3;
/// The state of a socket that listens.
const LISTENS: u32 = 10;
/// The states of sockets that a process may have: all but those of handshakes, and of connections that the kernel remembers after their end.
#[cfg(feature = "testing")]
const OF_PROCESSES: u32 = !(1 << 3 | 1 << 6 | 1 << 7 | 1 << 12);
/// The positions of the local address and of the connection's cookie in an answer.
const LOCAL: Range<usize> = 8..24;
const COOKIE: Range<usize> = 44..52;
/// The positions of the length of a listening socket's queue, and of its maximum, in an answer.
const WAITING: Range<usize> = 56..60;
const BACKLOG: Range<usize> = 60..64;
/// The positions of a socket's state, and of its inode number, in an answer.
#[cfg(feature = "testing")]
const STATE: usize = 1;
#[cfg(feature = "testing")]
const INODE: Range<usize> = 68..72;
/// The timeout of an answer: the kernel answers at once, or not at all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Returns the kernel's cookies of the handshakes at this local address. A handshake is listed, with the cookie that it keeps, until the connection
/// is in the queue of its listener.
pub(super) fn list(local: SocketAddr) -> Result<Vec<u64>> {
    let socket = open()?;
    let mut found = Vec::new();
    // A socket for both families is listed under IPv6.
    let families: &[AddressFamily] =
        if local.is_ipv6() { &[AddressFamily::INET6, AddressFamily::INET] } else { &[AddressFamily::INET] };
    for family in families {
        ask(&socket, *family, 1 << SYN_RECEIVED, local.port())?;
        collect(&socket, |message| {
            if message.is_at(local.ip()) {
                let cookie = message.body.get(COOKIE).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::PROTO)?;
                found.push(u64::from_ne_bytes(cookie));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Returns, for each socket that listens at this address, the length of its accept queue and its maximum. If no socket is bound to this very address,
/// those that listen at all addresses.
pub(super) fn queues(local: SocketAddr) -> Result<Vec<(u32, u32)>> {
    let socket = open()?;
    let (mut exact, mut of_all) = (Vec::new(), Vec::new());
    // A socket that listens at all IPv6 addresses may accept IPv4 too.
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        ask(&socket, family, 1 << LISTENS, local.port())?;
        collect(&socket, |message| {
            let number = |at| message.body.get(at).and_then(|bytes: &[u8]| bytes.try_into().ok()).map(u32::from_ne_bytes);
            let queue = number(WAITING).zip(number(BACKLOG)).ok_or(Errno::PROTO)?;
            let is_of_family = (family == AddressFamily::INET) == local.is_ipv4();
            if is_of_family && message.is_at(local.ip()) {
                exact.push(queue);
            } else if message.body.get(LOCAL).is_some_and(|told| told.iter().all(|byte| *byte == 0)) {
                of_all.push(queue);
            }
            Ok(())
        })?;
    }
    Ok(if exact.is_empty() { of_all } else { exact })
}

/// Returns the inode numbers of the sockets at the port of `local` that a process may have, and whether each of them listens: of the family of
/// this address, and of IPv6 if none listens there.
#[cfg(feature = "testing")]
pub(super) fn sockets(local: SocketAddr) -> Result<Vec<(u64, bool)>> {
    let (socket, mut found) = (open()?, Vec::new());
    let families: &[AddressFamily] =
        if local.is_ipv4() { &[AddressFamily::INET, AddressFamily::INET6] } else { &[AddressFamily::INET6] };
    for family in families {
        ask(&socket, *family, OF_PROCESSES, local.port())?;
        collect(&socket, |message| {
            let inode = message.body.get(INODE).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::PROTO)?;
            found.push((u32::from_ne_bytes(inode).into(), u32::from(message.body[STATE]) == LISTENS));
            Ok(())
        })?;
        if found.iter().any(|(_, listens)| *listens) {
            break;
        }
    }
    Ok(found)
}

fn open() -> Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(ANSWERS_WITHIN))?;
    Ok(socket)
}

fn ask(socket: &OwnedFd, family: AddressFamily, states: u32, port: u16) -> Result<()> {
    let mut request = [0; HEADER + 56];
    request[0..4].copy_from_slice(&((HEADER + 56) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    request[HEADER] = u8::try_from(family.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
    request[HEADER + 1] = TCP;
    request[HEADER + 4..HEADER + 8].copy_from_slice(&states.to_ne_bytes());
    request[HEADER + 8..HEADER + 10].copy_from_slice(&port.to_be_bytes());
    rustix::net::send(socket.as_fd(), &request, SendFlags::empty()).map(|_| ())
}

fn collect(socket: &OwnedFd, mut take: impl FnMut(&DiagMessage<'_>) -> Result<()>) -> Result<()> {
    let mut answer = vec![0; 32 * 1024];
    loop {
        let (_, count) = rustix::net::recv(socket.as_fd(), &mut answer[..], RecvFlags::empty())?;
        let mut rest = &answer[..count.min(32 * 1024)];
        while let Some(message) = next(&mut rest) {
            match message.kind {
                DONE => return Ok(()),
                ERROR => return Err(message.error()),
                BY_FAMILY => take(&message)?,
                _ => {}
            }
        }
    }
}

struct DiagMessage<'a> {
    kind: u16,
    body: &'a [u8],
}

impl DiagMessage<'_> {
    /// Returns true where the local address of the connection is `local`, or `local` is unspecified.
    fn is_at(&self, local: IpAddr) -> bool {
        let Some(told) = self.body.get(LOCAL) else { return false };
        match local {
            _ if local.is_unspecified() => true,
            IpAddr::V4(ip) => told[..4] == ip.octets(),
            IpAddr::V6(ip) => told == ip.octets(),
        }
    }

    fn error(&self) -> Errno {
        let number = self.body.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
        if number < 0 { Errno::from_raw_os_error(-number) } else { Errno::PROTO }
    }
}

/// Takes a message off the front; None if no whole message is left.
fn next<'a>(rest: &mut &'a [u8]) -> Option<DiagMessage<'a>> {
    let whole = *rest;
    let length = u32::from_ne_bytes(whole.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(whole.get(4..6)?.try_into().ok()?);
    let body = whole.get(HEADER..length)?;
    // Messages begin at multiples of four.
    *rest = whole.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(DiagMessage { kind, body })
}
