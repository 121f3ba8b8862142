//! Descriptors that a tokio runtime watches.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime of this thread, until the result is dropped. The descriptor is not modified.
pub(crate) fn watched(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: AsyncFd::register_with_interest requires that the descriptor stays open and unchanged while the AsyncFd exists: the AsyncFd
    // owns a share of an OwnedFd, which is closed by its last owner and never replaced.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}
