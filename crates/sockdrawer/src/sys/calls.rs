//! The calls that are made for each message and each connection, without a detour where the kernel itself answers.

#![allow(unsafe_code)]

use super::{Events, Kernel, Result, System};
use std::ops::Deref;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A [`System`] whose most frequent calls are compiled into the caller. An indirect call costs most right after the kernel ran: what the
/// processor had learned about it is gone by then.
pub(crate) struct Calls {
    system: Arc<dyn System>,
    /// Nobody answers in the kernel's place.
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

/// Closes it, as dropping does, but by the system call alone: by way of the C library, which looks whether the thread is to be cancelled,
/// it is 50 instructions more for each connection.
#[inline]
pub(crate) fn close(descriptor: OwnedFd) {
    // SAFETY: it was owned, and `into_raw_fd` has given it up.
    unsafe { rustix::io::close(descriptor.into_raw_fd()) }
}

impl Deref for Calls {
    type Target = dyn System;

    fn deref(&self) -> &dyn System {
        &*self.system
    }
}
