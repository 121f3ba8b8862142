//! Where the operating system and `unsafe` live. Everything else in the crate is safe code over this folder.
//!
//! Contract: functions take and return owned or borrowed descriptors, never numbers; every error is the errno; nothing here
//! decides, retries or remembers. What the data plane and a change call goes through [`System`], so that a test can answer in
//! the kernel's place.

mod calls;
mod clock;
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
#[cfg(feature = "processes")]
pub(crate) mod passing;
#[cfg(feature = "processes")]
pub(crate) mod process;
#[cfg(feature = "tokio")]
pub(crate) mod reactor;
pub(crate) mod shared;
pub(crate) mod steering;
#[cfg(feature = "processes")]
mod unforked;

pub(crate) use calls::{Calls, close};
pub(crate) use clock::{monotonic, monotonic_coarse};
pub(crate) use kernel::Kernel;
pub(crate) use limits::{
    descriptor_limit, descriptors_open, local_ports, make_room_for_descriptors, raise_descriptor_limit, wait_exactly,
};
pub(crate) use namespace::private_network;
pub(crate) use pages::Pages;
pub(crate) use rustix::io::Errno;
#[cfg(feature = "processes")]
pub(crate) use unforked::Unforked;

use crate::net::{Address, ListenOptions, SocketOptions};
use rustix::event::epoll::EventFlags;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// How many connections wait at each socket of this machine that listens for an address, and how many may.
pub(crate) fn accept_queues(address: SocketAddr) -> Result<Vec<(u32, u32)>> {
    handshakes::queues(address)
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// Why a wait for a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The socket is ready, or broken.
    Ready,
    /// The event rang; the socket is not ready.
    Rung,
    /// Neither, in all that time.
    TooLate,
}

/// What epoll reported.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    flags: EventFlags,
}

impl Ready {
    /// Whether there is input, and nothing else.
    pub(crate) fn is_input(self) -> bool {
        self.flags == EventFlags::IN
    }

    pub(crate) fn is_readable(self) -> bool {
        self.flags.contains(EventFlags::IN)
    }

    pub(crate) fn is_writable(self) -> bool {
        self.flags.contains(EventFlags::OUT)
    }

    /// EPOLLERR or EPOLLHUP: reported whether watched for or not.
    pub(crate) fn is_broken(self) -> bool {
        self.flags.intersects(EventFlags::ERR | EventFlags::HUP)
    }

    /// EPOLLRDHUP: the peer sends no more than what is there to be read.
    pub(crate) fn is_ended(self) -> bool {
        self.flags.contains(EventFlags::RDHUP)
    }
}

/// The system calls of the accept, connection and change paths. All sockets are non-blocking and close-on-exec.
pub(crate) trait System: Send + Sync + 'static {
    /// Whether this is the kernel, and not who answers in its place.
    fn is_kernel(&self) -> bool {
        false
    }
    fn socket(&self, address: &Address) -> Result<OwnedFd>;
    /// `SO_REUSEADDR`, then bind.
    fn bind(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()>;
    /// Binds a connecting socket to a local address and leaves the port to connect, which finds one that is free towards the
    /// target (`IP_BIND_ADDRESS_NO_PORT`).
    fn bind_source(&self, socket: BorrowedFd<'_>, source: IpAddr) -> Result<()>;
    /// Of these ports, both included, a connecting socket is given one (`IP_LOCAL_PORT_RANGE`).
    fn limit_ports(&self, socket: BorrowedFd<'_>, ports: (u16, u16)) -> Result<()>;
    /// Lets others bind the same address too (`SO_REUSEPORT`).
    fn share_port(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// What a listening socket must be given before it is bound.
    fn set_listen_options(&self, socket: BorrowedFd<'_>, options: &ListenOptions) -> Result<()>;
    /// Sends new handshakes to these members of the group that shares the port, by their places in it.
    fn steer(&self, member: BorrowedFd<'_>, to: &[Range<usize>]) -> Result<()>;
    /// Ends [`System::steer`]: by hash among all members.
    fn unsteer(&self, member: BorrowedFd<'_>) -> Result<()>;
    /// Lets no new handshake begin at a TCP listener; those that have begun go on.
    fn turn_away(&self, listener: BorrowedFd<'_>) -> Result<()>;
    /// Returns when what the kernel had received before has been dealt with, by the groups and filters of that moment or later
    /// ones.
    fn await_input(&self) -> Result<()>;
    /// The kernel's numbers of handshakes under way at a local address.
    fn handshakes(&self, address: SocketAddr) -> Result<Vec<u64>>;
    /// Ends listening for all who have the socket. What is in its queue is reset.
    fn stop_listening(&self, listener: BorrowedFd<'_>) -> Result<()>;
    /// Also changes the backlog of a socket that listens already.
    fn listen(&self, socket: BorrowedFd<'_>, backlog: u32) -> Result<()>;
    fn accept(&self, listener: BorrowedFd<'_>) -> Result<OwnedFd>;
    /// The same, and who is at the other end: None for a Unix socket.
    fn accept_named(&self, listener: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddr>)>;
    fn connect(&self, socket: BorrowedFd<'_>, address: &Address) -> Result<()>;
    /// The pending error of a socket, cleared by asking.
    fn take_error(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// None for a Unix socket.
    fn local_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>>;
    /// None for a Unix socket.
    fn peer_address(&self, socket: BorrowedFd<'_>) -> Result<Option<SocketAddr>>;
    /// Whether it still listens (`SO_ACCEPTCONN`).
    fn is_listening(&self, socket: BorrowedFd<'_>) -> Result<bool>;
    fn set_nonblocking(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Connections that wait to be accepted.
    fn queued(&self, listener: BorrowedFd<'_>) -> Result<usize>;
    /// Whether there is input: 0 at the peer's end, `EAGAIN` when there is none. What is there stays.
    fn peek(&self, socket: BorrowedFd<'_>) -> Result<usize>;
    fn receive(&self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize>;
    /// `more`: hold back a segment that is not full, because more, or the end, follows at once.
    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize>;
    /// Tells the peer that no more comes.
    fn finish(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Makes the close that follows a reset.
    fn reset_on_close(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Undoes that.
    fn end_on_close(&self, socket: BorrowedFd<'_>) -> Result<()>;
    /// Resets the connection at once, while others still have the socket open.
    fn reset(&self, socket: BorrowedFd<'_>) -> Result<()>;
    fn set_options(&self, socket: BorrowedFd<'_>, options: &SocketOptions) -> Result<()>;
    fn options(&self, socket: BorrowedFd<'_>) -> Result<SocketOptions>;
    /// Which of these have something to accept or read, without waiting.
    fn readable(&self, sockets: &[BorrowedFd<'_>], ready: &mut Vec<bool>) -> Result<()>;

    fn epoll(&self) -> Result<OwnedFd>;
    /// An eventfd.
    fn event(&self) -> Result<OwnedFd>;
    fn notify(&self, event: BorrowedFd<'_>) -> Result<()>;
    /// Makes a wait for this event wait for its next ring.
    fn unring(&self, event: BorrowedFd<'_>) -> Result<()>;
    /// Waits until the socket is ready for `interest`, or broken, or the event rings; None waits for ever.
    fn wait_for(
        &self,
        socket: BorrowedFd<'_>,
        interest: Interest,
        event: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<Woken>;
    fn watch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()>;
    /// Reports each ring once, so that the eventfd need not be read.
    fn watch_event(&self, epoll: BorrowedFd<'_>, event: BorrowedFd<'_>, token: u64) -> Result<()>;
    fn rewatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()>;
    /// Reports once that the peer has ended or reset the connection, and nothing else.
    fn watch_end(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64) -> Result<()>;
    fn unwatch(&self, epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<()>;
    /// None waits for ever. Exact to the clock, not to milliseconds, from kernel 5.11 on.
    fn wait(&self, epoll: BorrowedFd<'_>, events: &mut Events, timeout: Option<Duration>) -> Result<()>;
}

/// The kernel's answers to one wait; reused.
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
