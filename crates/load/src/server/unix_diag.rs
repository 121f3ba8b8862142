//! The Unix sockets that listen at a path, found by the path's file (sock_diag(7)): a server that passes its path from one socket to the
//! next has sockets whose names, in /proc/net/unix, are those that they were bound to. Needs no privilege.

use rustix::fs::{major, minor};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const HEADER: usize = 16;
const BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// The state of a socket that listens.
const LISTENS: u32 = 10;
/// Show the file of each socket (`UDIAG_SHOW_VFS`); the attribute that has its inode and device (`UNIX_DIAG_VFS`).
const SHOW_FILE: u32 = 2;
const FILE: u16 = 1;
/// The length of a request, and of an answer before its attributes.
const REQUEST: usize = HEADER + 24;
const ANSWER: usize = 16;
/// The timeout of an answer: the kernel answers at once, or not at all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Returns the sockets, by their numbers, that listen at the file of this path.
pub(super) fn at_file(path: &Path) -> io::Result<BTreeSet<u64>> {
    let file = std::fs::metadata(path)?;
    // The kernel tells 32 bits of the inode, and the device by its own encoding (MINORBITS of kdev_t.h).
    let wanted = (file.ino() as u32, major(file.dev()) << 20 | minor(file.dev()));
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWERS_WITHIN))?;
    let mut request = [0; REQUEST];
    request[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    request[HEADER] = AddressFamily::UNIX.as_raw() as u8;
    request[HEADER + 4..HEADER + 8].copy_from_slice(&(1_u32 << LISTENS).to_ne_bytes());
    request[HEADER + 12..HEADER + 16].copy_from_slice(&SHOW_FILE.to_ne_bytes());
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let (mut found, mut answer) = (BTreeSet::new(), vec![0; 32 * 1024]);
    loop {
        let (_, count) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
        let mut rest = &answer[..count.min(32 * 1024)];
        while let Some((kind, body)) = next(&mut rest, 4, HEADER) {
            match kind {
                DONE => return Ok(found),
                ERROR => return Err(io::ErrorKind::Unsupported.into()),
                BY_FAMILY if file_of(body) == Some(wanted) => found.extend(number(body, 4).map(u64::from)),
                _ => {}
            }
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns the inode and the device of a socket's file.
fn file_of(answer: &[u8]) -> Option<(u32, u32)> {
    let mut rest = answer.get(ANSWER..)?;
    while let Some((kind, body)) = next(&mut rest, 2, 4) {
        if kind == FILE {
            return Some((number(body, 0)?, number(body, 4)?));
        }
    }
    None
}

/// Takes a message or an attribute off the front: its kind, after a size of `length` bytes, and what follows its header. None if no whole
/// one is left.
fn next<'a>(rest: &mut &'a [u8], length: usize, header: usize) -> Option<(u16, &'a [u8])> {
    let whole = *rest;
    let size = match *whole.get(..length)? {
        [one, two] => usize::from(u16::from_ne_bytes([one, two])),
        _ => number(whole, 0)? as usize,
    };
    let kind = u16::from_ne_bytes(whole.get(length..length + 2)?.try_into().ok()?);
    let body = whole.get(header..size)?;
    // Both begin at multiples of four.
    *rest = whole.get(size.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body))
}
