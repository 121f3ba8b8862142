//! The system calls made per message and per connection, called directly if the kernel itself answers.

#![allow(unsafe_code)]

use super::{Events, Kernel, Result, System};
use std::ops::Deref;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A [`System`] whose most frequent calls are compiled into the caller. An indirect call costs most right after the kernel ran: the
/// processor's branch predictions are gone by then.
pub(crate) struct Calls {
    system: Arc<dyn System>,
    /// The system is the kernel, not a test's replacement.
    direct: bool,
}

impl Calls {
    pub(crate) fn new(system: Arc<dyn System>) -> Calls {
        Calls { direct: system.is_kernel(), system }
    }

    pub(crate) fn system(&self) -> &Arc<dyn System> {
        &self.system
    }

    #[inline]
    pub(crate) fn receive(&self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize> {
        if self.direct { Kernel.receive(socket, into) } else { self.system.receive(socket, into) }
    }

    #[inline]
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize> {
        if self.direct { Kernel.send(socket, bytes, more) } else { self.system.send(socket, bytes, more) }
    }

    #[inline]
    pub(crate) fn accept(&self, listener: BorrowedFd<'_>) -> Result<OwnedFd> {
        if self.direct { Kernel.accept(listener) } else { self.system.accept(listener) }
    }

    #[inline]
    pub(crate) fn wait(&self, epoll: BorrowedFd<'_>, events: &mut Events, timeout: Option<Duration>) -> Result<()> {
        if self.direct { Kernel.wait(epoll, events, timeout) } else { self.system.wait(epoll, events, timeout) }
    }
}

/// Closes a descriptor by the system call alone. Dropping it goes through the C library, which checks for the cancellation of the thread:
/// 50 instructions more per connection.
#[inline]
pub(crate) fn close(descriptor: OwnedFd) {
    // SAFETY: the descriptor was owned, and `into_raw_fd` has given up the ownership.
    unsafe { rustix::io::close(descriptor.into_raw_fd()) }
}

/// Returns the number by which the kernel knows a socket, in whichever process it is.
pub(crate) fn cookie(socket: BorrowedFd<'_>) -> Result<u64> {
    rustix::net::sockopt::socket_cookie(socket)
}

impl Deref for Calls {
    type Target = dyn System;

    fn deref(&self) -> &dyn System {
        &*self.system
    }
}
