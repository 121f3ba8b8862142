//! The path of a Unix socket: it outlives its socket unless it is removed, and passes from one socket to the next without being absent.

use super::path_lock::PathLock;
use crate::net::{Address, ListenOptions};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sys::{Errno, System};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `sun_path` has 108 bytes (unix(7)), one of them a NUL.
pub(super) const PATH_MAX: usize = 107;

/// The path of a listening socket of this process; removed when dropped.
#[derive(Debug)]
pub(crate) struct OwnedPath {
    path: PathBuf,
    /// Device and inode: another socket may have been put there meanwhile, by a successor.
    identity: (u64, u64),
}

impl OwnedPath {
    pub(crate) fn new(address: &Address) -> Option<OwnedPath> {
        let Address::Unix(path) = address else { return None };
        Some(OwnedPath { path: path.clone(), identity: identity(path)? })
    }

    /// Leaves the path where it is: another process has its socket.
    pub(crate) fn leave(mut self) {
        self.identity = (0, 0);
    }

    /// Returns true where the path leads to its socket still.
    pub(super) fn is_there(&self) -> bool {
        identity(&self.path) == Some(self.identity)
    }

    pub(super) fn set_permissions(&self, system: &dyn System, options: &ListenOptions) -> Result<(), Errno> {
        if self.is_there() { system.set_permissions(&self.path, options) } else { Ok(()) }
    }

    /// Exchanges the paths of the two. The path of `old` may be gone, or may have been left by another socket that nothing listens at: then this
    /// socket takes it. A socket that listens there is left alone: `ADDRINUSE`.
    pub(super) fn exchange(&mut self, old: &mut OwnedPath, system: &dyn System) -> Result<(), Errno> {
        // Between the look at the path and the exchange, no other program of this library comes there.
        let lock = PathLock::of(Some(&old.path));
        if !old.is_there() {
            let at = Address::Unix(old.path.clone());
            if is_stale(system, &at) {
                take_over(&lock, &at)?;
            }
            system.rename_to_free(&self.path, &old.path).map_err(|errno| match errno {
                Errno::EXIST => Errno::ADDRINUSE,
                errno => errno,
            })?;
        } else {
            system.exchange_names(&self.path, &old.path)?;
        }
        std::mem::swap(&mut self.path, &mut old.path);
        Ok(())
    }
}

impl Drop for OwnedPath {
    fn drop(&mut self) {
        if self.is_there() {
            // Another process may remove it this moment.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Returns a name in the folder of this path that no socket has, as long as an address may be. It begins as the path does, because the kernel goes
/// on naming a socket by the path that it was bound to (`ss -xl`). None: the folder's name alone is too long.
pub(super) fn beside(path: &Path) -> Option<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let end = format!(".{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = path.as_os_str().as_bytes();
        let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let kept = path.len().min(PATH_MAX.checked_sub(end.len())?);
        if kept < folder {
            return None;
        }
        let beside = PathBuf::from(OsString::from_vec([&path[..kept], end.as_bytes()].concat()));
        // A process of this number that was killed may have left one.
        if identity(&beside).is_none() {
            return Some(beside);
        }
    }
}

/// Returns true where the path is that of a Unix socket of a process that crashed: it is there, and no socket listens.
pub(super) fn is_stale(system: &dyn System, address: &Address) -> bool {
    // A connect to a file that is no socket is refused too, and that file is not ours.
    is_socket(address)
        && system.socket(address).and_then(|socket| system.connect(socket.as_fd(), address)) == Err(Errno::CONNREFUSED)
}

pub(super) fn path_of(address: &Address) -> Option<&Path> {
    if let Address::Unix(path) = address { Some(path) } else { None }
}

pub(super) fn is_socket(address: &Address) -> bool {
    let Some(path) = path_of(address) else { return false };
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Removes a stale path.
pub(super) fn take_over(lock: &PathLock, address: &Address) -> Result<(), Errno> {
    let (Some(path), true) = (path_of(address), lock.is_held()) else { return Err(Errno::NOLCK) };
    std::fs::remove_file(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
