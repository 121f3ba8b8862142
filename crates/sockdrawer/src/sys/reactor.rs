//! A descriptor that a runtime of tokio watches.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime of this thread watch a descriptor, until what is returned is dropped. Registering does not change it.
pub(crate) fn watched(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: AsyncFd::register_with_interest asks that the descriptor stays open and the same while the AsyncFd exists: it
    // owns a share of an OwnedFd, which is closed by its last owner and never exchanged.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}
