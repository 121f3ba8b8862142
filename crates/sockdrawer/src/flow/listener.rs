//! Listeners: bound sockets, long-lived. A TCP address is many sockets (shards) that share its port, so that loops come and go
//! by taking over shards, and none is closed for it: closing one would reset the connections in its queue.

use super::door::{Door, Intake};
use crate::error::Error;
use crate::net::{Address, SocketOptions};
use crate::observe::{ListenerStatus, Readiness};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::{Errno, System};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sockets of one TCP address.
pub(crate) const SHARDS: usize = 16;
/// More loops than this many shards have one each, up to here.
pub(crate) const MOST_SHARDS: usize = 1024;

/// One address.
pub(crate) struct Listener {
    /// With the real port.
    pub(crate) address: Address,
    pub(crate) shards: Vec<Arc<Shard>>,
    /// Removed with the listener.
    _path: Option<OwnedPath>,
}

/// The path of a Unix socket, which outlives its socket unless somebody removes it.
struct OwnedPath {
    path: PathBuf,
    /// Device and inode: another socket may have been put there meanwhile, by a successor.
    identity: (u64, u64),
}

impl OwnedPath {
    fn new(address: &Address) -> Option<OwnedPath> {
        let Address::Unix(path) = address else { return None };
        Some(OwnedPath { path: path.clone(), identity: identity(path)? })
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Drop for OwnedPath {
    fn drop(&mut self) {
        if identity(&self.path) == Some(self.identity) {
            // Somebody else may remove it this moment.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// One listening socket.
pub(crate) struct Shard {
    socket: Arc<OwnedFd>,
    /// Connections still in the queue that were made before the last change of options: they are given them one by one.
    stale: AtomicUsize,
    /// Whether the connections of this socket are spread over all loops by letter: it is the only one of its address.
    spread: AtomicBool,
    gone: AtomicBool,
}

impl Shard {
    pub(crate) fn new(socket: Arc<OwnedFd>, spread: bool) -> Arc<Shard> {
        Arc::new(Shard { socket, stale: AtomicUsize::new(0), spread: AtomicBool::new(spread), gone: AtomicBool::new(false) })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn is_spread(&self) -> bool {
        self.spread.load(Ordering::Relaxed)
    }

    /// Whether the connection just accepted needs the options set on itself.
    pub(crate) fn take_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire) > 0
            && self.stale.fetch_update(Ordering::AcqRel, Ordering::Acquire, |stale| stale.checked_sub(1)).is_ok()
    }

    /// Marks it as no longer listening; true the first time.
    pub(crate) fn mark_gone(&self) -> bool {
        !self.gone.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn set_options(&self, system: &dyn System, options: &SocketOptions) -> Result<(), Errno> {
        system.set_options(self.socket(), options)?;
        // Who is in the queue now may have been made before.
        self.stale.store(system.queued(self.socket())?, Ordering::Release);
        Ok(())
    }
}

impl Listener {
    /// Binds and listens, a TCP address with so many sockets. The first is bound alone, so that a second program is refused; then
    /// the port is shared among the others.
    pub(crate) fn bind(
        system: &dyn System,
        address: &Address,
        backlog: u32,
        options: &SocketOptions,
        shards: usize,
    ) -> Result<Listener, Error> {
        let fail = |errno: Errno| listen_error(address, errno);
        let first = match open(system, address, false, backlog, options) {
            Err(Errno::ADDRINUSE) if remove_stale_path(system, address) => open(system, address, false, backlog, options),
            opened => opened,
        }
        .map_err(fail)?;
        let Address::Tcp(asked) = address else {
            return Ok(Listener {
                address: address.clone(),
                shards: vec![Shard::new(Arc::new(first), true)],
                _path: OwnedPath::new(address),
            });
        };
        let real = system.local_address(first.as_fd()).map_err(fail)?.unwrap_or(*asked);
        let real = Address::Tcp(SocketAddr::new(asked.ip(), real.port()));
        if shards > 1 {
            system.share_port(first.as_fd()).map_err(fail)?;
        }
        let mut bound = vec![Shard::new(Arc::new(first), false)];
        for _ in 1..shards {
            let socket = open(system, &real, true, backlog, options).map_err(fail)?;
            bound.push(Shard::new(Arc::new(socket), false));
        }
        Ok(Listener { address: real, shards: bound, _path: None })
    }

    /// One whose sockets another process bound; they come one by one.
    pub(crate) fn shared(address: Address) -> Listener {
        Listener { address, shards: Vec::new(), _path: None }
    }

    /// More loops than shards: the connections of each shard go round among all loops.
    pub(crate) fn spread_over(&self, loops: usize) {
        let spread = self.shards.len() < loops || self.shards.len() == 1;
        self.shards.iter().for_each(|shard| shard.spread.store(spread, Ordering::Relaxed));
    }

    /// A socket that listens already.
    pub(crate) fn inherit(
        system: &dyn System,
        address: &Address,
        socket: Arc<OwnedFd>,
        options: &SocketOptions,
    ) -> Result<Listener, Error> {
        let fail = |errno: Errno| listen_error(address, errno);
        if !system.is_listening(socket.as_fd()).map_err(fail)? {
            return Err(Error::Invalid {
                setting: "listeners",
                reason: format!("the socket inherited for {address} does not listen: call listen on it first"),
            });
        }
        let real = match address {
            Address::Tcp(_) => system.local_address(socket.as_fd()).map_err(fail)?.map_or(address.clone(), Address::Tcp),
            _ => address.clone(),
        };
        // A blocking listener would hold up the loop whenever somebody who shares it, or a peer that gave up, was faster.
        system.set_nonblocking(socket.as_fd()).map_err(fail)?;
        let shard = Shard::new(socket, true);
        shard.set_options(system, options).map_err(fail)?;
        Ok(Listener { address: real, shards: vec![shard], _path: None })
    }

    pub(crate) fn set_backlog(&self, system: &dyn System, backlog: u32) -> Result<(), Errno> {
        self.shards.iter().filter(|shard| !shard.is_gone()).try_for_each(|shard| system.listen(shard.socket(), backlog))
    }

    pub(crate) fn set_options(&self, system: &dyn System, options: &SocketOptions) -> Result<(), Errno> {
        self.shards.iter().filter(|shard| !shard.is_gone()).try_for_each(|shard| shard.set_options(system, options))
    }

    pub(crate) fn status(&self, system: &dyn System, door: &Door, backlog: u32) -> ListenerStatus {
        ListenerStatus {
            address: self.address.clone(),
            connections: door.gate.taken(),
            limit: door.limit(),
            readiness: match door.intake() {
                Intake::Open => Readiness::Serving,
                Intake::Suspended => Readiness::Suspended,
                Intake::Refusing(_) => Readiness::Refusing,
            },
            queued: self.queued(system),
            backlog,
            sockets: self.shards.len(),
        }
    }

    /// Connections that wait in the kernel.
    pub(crate) fn queued(&self, system: &dyn System) -> usize {
        self.shards.iter().map(|shard| system.queued(shard.socket()).unwrap_or(0)).sum()
    }
}

/// The path of a Unix socket outlives a process that crashed. It is removed when nobody answers there.
fn remove_stale_path(system: &dyn System, address: &Address) -> bool {
    let Address::Unix(path) = address else { return false };
    // A connect to a file that is no socket is refused too, and that file is not ours.
    if !std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        return false;
    }
    let refused = system.socket(address).and_then(|socket| system.connect(socket.as_fd(), address)) == Err(Errno::CONNREFUSED);
    refused && std::fs::remove_file(path).is_ok()
}

fn open(system: &dyn System, address: &Address, share: bool, backlog: u32, options: &SocketOptions) -> Result<OwnedFd, Errno> {
    let socket = system.socket(address)?;
    if share {
        system.share_port(socket.as_fd())?;
    }
    system.bind(socket.as_fd(), address)?;
    system.set_options(socket.as_fd(), options)?;
    system.listen(socket.as_fd(), backlog)?;
    Ok(socket)
}

fn listen_error(address: &Address, errno: Errno) -> Error {
    match errno {
        Errno::ADDRINUSE => Error::AddressInUse(address.clone()),
        Errno::ACCESS | Errno::PERM => Error::PermissionDenied {
            address: address.clone(),
            remedy: match address {
                Address::Tcp(_) => "ports below 1024 need root or CAP_NET_BIND_SERVICE: choose a higher port",
                _ => "the directory must be writable for this user",
            },
        },
        errno => Error::Listen {
            address: address.clone(),
            source: errno.into(),
            remedy: match address {
                Address::Tcp(_) => "check that the address belongs to this machine",
                _ => "check that the directory exists and that the path is at most 107 bytes long",
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Kernel;

    #[test]
    fn a_path_that_a_crash_left_behind_is_taken_over_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("sockdrawer-stale-{}", std::process::id()));
        let address = Address::Unix(path.clone());
        let options = SocketOptions::default();
        drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
        let live = Listener::bind(&Kernel, &address, 16, &options, SHARDS).expect("the path is stale");
        let second = Listener::bind(&Kernel, &address, 16, &options, SHARDS);
        assert!(matches!(second, Err(Error::AddressInUse(_))));
        drop(live);
        assert!(!path.exists(), "removed with its listener");
    }

    #[test]
    fn a_second_listener_of_the_same_user_is_refused() {
        let options = SocketOptions::default();
        let address = "127.0.0.1:0".parse().expect("an address");
        let first = Listener::bind(&Kernel, &address, 16, &options, SHARDS).expect("binds");
        assert_eq!(first.shards.len(), SHARDS);
        let second = Listener::bind(&Kernel, &first.address, 16, &options, SHARDS);
        assert!(matches!(second, Err(Error::AddressInUse(_))));
        let address = first.address.clone();
        drop(first);
        assert!(Listener::bind(&Kernel, &address, 16, &options, SHARDS).is_ok(), "closed with its last owner");
    }
}
