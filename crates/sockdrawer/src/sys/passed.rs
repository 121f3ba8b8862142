//! Sockets that this process had from its start, by the protocol of
//! [sd_listen_fds(3)](https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html).
#![allow(unsafe_code)]

use super::{Errno, Result};
use crate::net::Address;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SocketAddrUnix, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
pub(crate) const FIRST: RawFd = 3;

/// Takes this many descriptors from [`FIRST`] on, close-on-exec from now on; `EALREADY` if they were taken before.
///
/// The caller has it from the environment that this process was started with that they are passed to this process.
pub(crate) fn take(count: u32) -> Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Errno::ALREADY);
    }
    let end = RawFd::try_from(count).ok().and_then(|count| FIRST.checked_add(count)).ok_or(Errno::BADF)?;
    let take = |number| {
        // SAFETY: used for one call, which fails where the descriptor is not open.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
        // SAFETY: the parent process passed it, so that it was open before this program ran: no value of this program owns it, for none made it,
        // and this function gives it out once.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    };
    (FIRST..end).map(take).collect()
}

/// Returns the address at which a stream socket listens; None if it is another socket, or none.
pub(crate) fn listens_at(socket: &OwnedFd) -> Result<Option<Address>> {
    let socket = socket.as_fd();
    match (sockopt::socket_type(socket), sockopt::socket_acceptconn(socket)) {
        (Err(Errno::NOTSOCK), _) => return Ok(None),
        (kind, listens) if kind? != SocketType::STREAM || !listens? => return Ok(None),
        _ => {}
    }
    let name = rustix::net::getsockname(socket)?;
    if let Ok(address) = SocketAddr::try_from(name.clone()) {
        return Ok(Some(Address::Tcp(address)));
    }
    let unix = |name: SocketAddrUnix| match (name.abstract_name(), name.path_bytes()) {
        (Some(name), _) => Some(Address::Abstract(name.to_vec())),
        (None, Some(path)) => Some(Address::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path)))),
        (None, None) => None,
    };
    Ok(SocketAddrUnix::try_from(name).ok().and_then(unix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    #[test]
    fn listening_stream_sockets_have_their_address() {
        let at = |socket: OwnedFd| listens_at(&socket).expect("the kernel answers");
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let tcp = std::net::TcpListener::bind(text).expect("a free port");
            let real = tcp.local_addr().expect("it is bound");
            assert_eq!(at(tcp.into()), Some(Address::Tcp(real)));
        }
        let path = std::env::temp_dir().join(format!("sockdrawer-passed-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert_eq!(at(UnixListener::bind(&path).expect("a free path").into()), Some(Address::Unix(path.clone())));
        let _ = std::fs::remove_file(&path);
        let name = format!("sockdrawer-passed-{}", std::process::id()).into_bytes();
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a short name");
        assert_eq!(at(UnixListener::bind_addr(&address).expect("a free name").into()), Some(Address::Abstract(name)));
    }

    #[test]
    fn others_have_none() {
        let at = |socket: OwnedFd| listens_at(&socket).expect("the kernel answers");
        let (stream, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(at(stream.into()), None, "a connection");
        assert_eq!(at(UnixDatagram::unbound().expect("a socket").into()), None);
        assert_eq!(at(std::fs::File::open("/dev/null").expect("/dev/null").into()), None);
    }
}
