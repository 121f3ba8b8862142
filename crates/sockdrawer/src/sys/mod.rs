//! System calls and `unsafe` code. All other modules of the crate are safe code over this folder.
//!
//! Contract: functions take and return owned or borrowed descriptors, never numbers; every error is the errno; no function decides,
//! retries or remembers. The data plane and changes call the kernel through [`System`], so that a test can take the kernel's place.

mod calls;
mod clock;
pub(crate) mod descendants;
#[cfg(test)]
pub(crate) mod faulty;
#[cfg(feature = "processes")]
pub(crate) mod fork;
mod handshakes;
pub(crate) mod inline;
mod kernel;
mod limits;
mod milliseconds;
mod namespace;
mod options;
mod pages;
pub(crate) mod panics;
pub(crate) mod passed;
pub(crate) mod passing;
mod paths;
#[cfg(feature = "processes")]
pub(crate) mod process;
#[cfg(feature = "tokio")]
pub(crate) mod reactor;
pub(crate) mod shared;
pub(crate) mod signals;
pub(crate) mod steering;
#[cfg(feature = "processes")]
mod unforked;

pub(crate) use calls::{Calls, close, cookie};
pub(crate) use clock::{monotonic, monotonic_coarse};
pub(crate) use kernel::Kernel;
pub(crate) use limits::{
    descriptor_limit, descriptors_open, local_ports, make_room_for_descriptors, raise_descriptor_limit, wait_exactly,
};
#[cfg(feature = "testing")]
pub(crate) use namespace::private_network;
pub(crate) use pages::Pages;
pub(crate) use paths::private_file;
pub(crate) use rustix::io::Errno;
#[cfg(feature = "processes")]
pub(crate) use unforked::Unforked;

use crate::net::{Address, ListenOptions, SocketOptions};
use rustix::event::epoll::EventFlags;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Returns, for each socket that listens at an address, the connections in its accept queue, and their maximum.
pub(crate) fn accept_queues(address: SocketAddr) -> Result<Vec<(u32, u32)>> {
    handshakes::queues(address)
}

/// Returns the sockets at an address that a process may have.
#[cfg(feature = "testing")]
pub(crate) fn sockets(address: SocketAddr) -> Result<Vec<(u64, bool)>> {
    handshakes::sockets(address)
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// The readiness that a descriptor is watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The end of the peer's stream, where input is not asked for: with `read` it is reported in any case.
    pub(crate) end: bool,
}

impl Interest {
    pub(crate) const NONE: Interest = Interest { read: false, write: false, end: false };
    pub(crate) const READ: Interest = Interest { read: true, ..Interest::NONE };
    pub(crate) const WRITE: Interest = Interest { write: true, ..Interest::NONE };
}

/// Reason why a wait for a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The socket is ready, or broken.
    Ready,
    /// The event was notified; the socket is not ready.
    Rung,
    /// The time passed without either.
    TooLate,
}

/// A report of epoll for one descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    flags: EventFlags,
}

impl Ready {
    /// Returns true where there is input, and no other flag.
    pub(crate) fn is_input(self) -> bool {
        self.flags == EventFlags::IN
    }

    pub(crate) fn is_readable(self) -> bool {
        self.flags.contains(EventFlags::IN)
    }

    pub(crate) fn is_writable(self) -> bool {
        self.flags.contains(EventFlags::OUT)
    }

    /// Returns true at EPOLLERR or EPOLLHUP, which epoll always reports.
    pub(crate) fn is_broken(self) -> bool {
        self.flags.intersects(EventFlags::ERR | EventFlags::HUP)
    }

    /// Returns true at EPOLLRDHUP: the peer's stream has ended; input may still be there to read.
    pub(crate) fn is_ended(self) -> bool {
        self.flags.contains(EventFlags::RDHUP)
    }
}

/// The system calls of the accept, connection and change paths. All sockets are non-blocking and close-on-exec.
pub(crate) trait System: Send + Sync + 'static {
    /// Returns true where this is the kernel, not a test's replacement.
    fn is_kernel(&self) -> bool {
        false
    }
    fn socket(&self, address: &Address) -> Result<OwnedFd>;
    /// Sets `SO_REUSEADDR`, then binds.
    fn bind(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()>;
    /// Binds a connecting socket to a local address and leaves the port to connect, which finds one that is free towards the
    /// target (`IP_BIND_ADDRESS_NO_PORT`).
    fn bind_source(&self, socket: BorrowedFd<'_>, source: IpAddr) -> Result<()>;
    /// Limits the local port of a connecting socket to this range, both ends included (`IP_LOCAL_PORT_RANGE`).
    fn limit_ports(&self, socket: BorrowedFd<'_>, ports: (u16, u16)) -> Result<()>;
    /// Lets other sockets bind this address too (`SO_REUSEPORT`).
    fn share_port(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Sets the options that a listening socket must have before it is bound.
    fn set_listen_options(&self, socket: BorrowedFd<'_>, options: &ListenOptions) -> Result<()>;
    /// Sets the mode and the owner that are asked for on the file of a bound Unix socket.
    fn set_permissions(&self, path: &Path, options: &ListenOptions) -> Result<()>;
    /// Exchanges the files of two names, at once.
    fn exchange_names(&self, one: &Path, other: &Path) -> Result<()>;
    /// Gives a file another name, which must be free.
    fn rename_to_free(&self, from: &Path, to: &Path) -> Result<()>;
    /// Steers new handshakes to these members of the `SO_REUSEPORT` group, by their indices in it.
    fn steer(&self, member: BorrowedFd<'_>, to: &[Range<usize>]) -> Result<()>;
    /// Ends [`System::steer`]: the kernel chooses by hash among all members again.
    fn unsteer(&self, member: BorrowedFd<'_>) -> Result<()>;
    /// Drops the first segment of new handshakes at a TCP listener; handshakes under way go on.
    fn turn_away(&self, listener: BorrowedFd<'_>) -> Result<()>;
    /// Returns when all segments that the kernel had received before the call were processed, with the groups and filters of that moment
    /// or later ones.
    fn await_input(&self) -> Result<()>;
    /// Returns the kernel's cookies of the handshakes under way at a local address.
    fn handshakes(&self, address: SocketAddr) -> Result<Vec<u64>>;
    /// Ends listening in all processes that have the socket. Connections in its queue are reset.
    fn stop_listening(&self, listener: BorrowedFd<'_>) -> Result<()>;
    /// Makes a socket listen, or changes the backlog of one that listens already.
    fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<()>;
    fn accept(&self, listener: BorrowedFd<'_>) -> Result<OwnedFd>;
    /// Accepts a connection, with the peer's address: None for a Unix socket.
    fn accept_named(&self, listener: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddr>)>;
    fn connect(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()>;
    /// Takes the pending error of a socket, which clears it (`SO_ERROR`).
    fn take_error(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Returns the local address; None for a Unix socket.
    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>>;
    /// Returns the peer's address; None for a Unix socket.
    fn peer_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>>;
    /// Returns true where the socket listens (`SO_ACCEPTCONN`).
    fn is_listening(&self, socket: BorrowedFd<'_>) -> Result<bool>;
    fn set_nonblocking(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Returns the number of connections in the accept queue.
    fn queued(&self, listener: BorrowedFd<'_>) -> Result<usize>;
    /// Returns more than 0 where there is input, which stays unread; 0 at the end of the peer's stream. `EAGAIN` if there is none.
    fn peek(&self, socket: BorrowedFd<'_>) -> Result<usize>;
    fn receive(&self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize>;
    /// Sends bytes. With `more` the kernel holds back a segment that is not full, because more output, or the end, follows at once.
    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize>;
    /// Shuts down the sending side.
    fn finish(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Makes the following close send a reset (`SO_LINGER` of 0).
    fn reset_on_close(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Undoes [`System::reset_on_close`].
    fn end_on_close(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Has epoll tell of room only once everything that was sent has left this machine.
    fn has_room_once_sent(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Returns the number of bytes that were sent and that the peer has not acknowledged, of a Unix socket not read.
    fn unacknowledged(&self, socket: BorrowedFd<'_>) -> Result<usize>;
    /// Resets the connection at once, although other descriptors of the socket are open.
    fn reset(&self, socket: BorrowedFd<'_>) -> Result<()>;
    fn set_options(&self, socket: BorrowedFd<'_>, options: &SocketOptions) -> Result<()>;
    /// Sets the options of a socket that has none yet.
    fn set_first_options(&self, socket: BorrowedFd<'_>, options: &SocketOptions) -> Result<()>;
    fn options(&self, socket: BorrowedFd<'_>) -> Result<SocketOptions>;
    /// Tells which of these sockets have something to accept or to read, without waiting.
    fn readable(&self, sockets: &[BorrowedFd<'_>], ready: &mut Vec<bool>) -> Result<()>;

    fn epoll(&self) -> Result<OwnedFd>;
    /// Makes an eventfd.
    fn event(&self) -> Result<OwnedFd>;
    fn notify(&self, event: BorrowedFd<'_>) -> Result<()>;
    /// Clears an event: a wait for it then waits for the next notification.
    fn unring(&self, event: BorrowedFd<'_>) -> Result<()>;
    /// Waits until the socket is ready for `interest`, or broken, or the event is notified; without a timeout it waits for ever.
    fn wait_for(
        &self,
        socket: BorrowedFd<'_>,
        interest: Interest,
        event: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<Woken>;
    fn watch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()>;
    /// Watches an eventfd so that each notification is reported once, and the eventfd need not be read.
    fn watch_event(&self, epoll: BorrowedFd<'_>, event: BorrowedFd<'_>, token: u64) -> Result<()>;
    fn rewatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()>;
    /// Watches only for the end or the reset of the connection by its peer, which is reported once.
    fn watch_end(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64) -> Result<()>;
    fn unwatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<()>;
    /// Waits for events; without a timeout for ever. Exact to the clock, not to milliseconds, from kernel 5.11 on.
    fn wait(&self, epoll: BorrowedFd<'_>, events: &mut Events, timeout: Option<Duration>) -> Result<()>;
}

/// The events of one wait; the memory is reused.
pub(crate) struct Events(Vec<rustix::event::epoll::Event>);

impl Events {
    pub(crate) fn with_capacity(capacity: usize) -> Events {
        Events(Vec::with_capacity(capacity))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn get(&self, index: usize) -> Ready {
        let event = self.0[index];
        Ready { token: event.data.u64(), flags: event.flags }
    }
}
