//! A listening socket: it outlives changes of what accepts from it.

use crate::net::SocketOptions;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::{Errno, System};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A listening socket.
pub(crate) struct ListenSocket {
    socket: Arc<OwnedFd>,
    /// Connections still in the queue that were made before the last change of options: they are given them one by one.
    stale: AtomicUsize,
    /// The connections of this socket are spread over all loops by message: it is the only one of its address.
    pub(super) spread: AtomicBool,
    gone: AtomicBool,
    /// Another process may take the socket back: nothing that it would find there is changed.
    borrowed: AtomicBool,
}

/// The count of connections to be given their options one by one, while the socket itself is given none.
const ALL: usize = usize::MAX;

impl ListenSocket {
    pub(crate) fn new(socket: Arc<OwnedFd>, spread: bool) -> Arc<ListenSocket> {
        Arc::new(ListenSocket {
            socket,
            stale: AtomicUsize::new(0),
            spread: AtomicBool::new(spread),
            gone: AtomicBool::new(false),
            borrowed: AtomicBool::new(false),
        })
    }

    /// Sets whether another process may take the socket back from now on.
    pub(crate) fn set_borrowed(&self, is_borrowed: bool, system: &dyn System) {
        if self.borrowed.swap(is_borrowed, Ordering::AcqRel) != is_borrowed {
            // Connections in the queue have inherited what the other process wants.
            let stale = if is_borrowed { ALL } else { system.queued(self.fd()).unwrap_or(0) };
            self.stale.store(stale, Ordering::Release);
        }
    }

    pub(crate) fn is_borrowed(&self) -> bool {
        self.borrowed.load(Ordering::Acquire)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn is_spread(&self) -> bool {
        self.spread.load(Ordering::Relaxed)
    }

    /// Returns true where the connection just accepted needs the options set on itself.
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

    /// Sets the options that connections inherit from now on. Connections of a borrowed socket are given them one by one.
    pub(crate) fn set_options(&self, system: &dyn System, options: &SocketOptions) -> Result<(), Errno> {
        if self.is_borrowed() {
            return Ok(());
        }
        system.set_options(self.fd(), options)?;
        // Connections that are in the queue now may have been made before.
        self.stale.store(system.queued(self.fd())?, Ordering::Release);
        Ok(())
    }
}
