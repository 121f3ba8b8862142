//! The connections of programs, as their helper watches them: a program whose peer is gone is to end, and when a program has ended, its
//! connection lingers, because programs end with input unread, and to close it then would destroy the last of what they have written.

use crate::clock::deadline;
use crate::listen::permit::Permit;
use crate::net::{Keepalive, SocketOptions};
use crate::sys::{Errno, Events, Interest, Kernel, System};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A lingering connection whose peer has sent more than this is not read any more.
const DISCARD_BYTES: usize = 64 * 1024;
/// Bytes of a read.
const READ: usize = 16 * 1024;
/// Events of one look.
const EVENTS: usize = 64;
/// A peer that has sent its end may read on, or have closed its socket: only an answer to a probe tells.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// The bit by which connections that have ended are told apart from slots of children.
const LINGERS: u64 = 1 << 32;

/// Connections of programs, and of those that have ended.
pub(super) struct Programs {
    /// The epoll that is readable when a connection is to be looked at.
    epoll: OwnedFd,
    lingering: HashMap<u64, Lingering>,
    next: u64,
}

/// A connection whose program has ended, until its peer's end or the deadline.
struct Lingering {
    socket: OwnedFd,
    until: Instant,
    discarded: usize,
    _permit: Permit,
}

impl Programs {
    pub(super) fn new() -> Result<Programs, Errno> {
        Ok(Programs { epoll: Kernel.epoll()?, lingering: HashMap::new(), next: LINGERS })
    }

    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the sockets of those that have ended: no child is to have them.
    pub(super) fn lingering(&self) -> impl Iterator<Item = RawFd> + Clone {
        self.lingering.values().map(|one| one.socket.as_raw_fd())
    }

    /// Watches the connection of the child in this slot. Where the kernel has no memory for that, its program ends by itself alone.
    pub(super) fn watch(&self, slot: usize, connection: BorrowedFd<'_>) {
        let _ = Kernel.watch(self.epoll.as_fd(), connection, slot as u64, Interest { end: true, ..Interest::NONE });
    }

    pub(super) fn unwatch(&self, connection: BorrowedFd<'_>) {
        // This fails for a connection that is not watched.
        let _ = Kernel.unwatch(self.epoll.as_fd(), connection);
    }

    /// Ends the sending side of a connection whose program has ended, and keeps it until the peer's end.
    pub(super) fn linger(&mut self, socket: OwnedFd, permit: Permit, within: Duration) {
        // The socket had blocking mode for its program. These calls fail only where the connection is gone already.
        let _ = Kernel.set_nonblocking(socket.as_fd());
        let _ = Kernel.end_on_close(socket.as_fd()).and_then(|()| Kernel.finish(socket.as_fd()));
        let mut one = Lingering { socket, until: deadline(Instant::now(), within), discarded: 0, _permit: permit };
        if one.discard() {
            self.next += 1;
            if Kernel.watch(self.epoll.as_fd(), one.socket.as_fd(), self.next, Interest::READ).is_ok() {
                self.lingering.insert(self.next, one);
            }
        }
    }

    /// Looks at all that epoll tells of, and returns the slots whose peers are gone. `of` is the connection of a slot.
    pub(super) fn look<'a>(&mut self, of: impl Fn(usize) -> Option<BorrowedFd<'a>>) -> Vec<usize> {
        let (mut gone, mut events) = (Vec::new(), Events::with_capacity(EVENTS));
        if Kernel.wait(self.epoll.as_fd(), &mut events, Some(Duration::ZERO)).is_err() {
            return gone;
        }
        for ready in (0..events.len()).map(|index| events.get(index)) {
            if let Some(one) = self.lingering.get_mut(&ready.token) {
                if !one.discard() {
                    self.lingering.remove(&ready.token);
                } else if one.discarded > DISCARD_BYTES {
                    let _ = Kernel.rewatch(self.epoll.as_fd(), one.socket.as_fd(), ready.token, Interest::NONE);
                }
                continue;
            }
            let Some((slot, connection)) = usize::try_from(ready.token).ok().and_then(|slot| Some((slot, of(slot)?))) else {
                continue;
            };
            if ready.is_broken() {
                self.unwatch(connection);
                gone.push(slot);
            } else {
                // A half-close: the program goes on.
                probe(connection);
                let _ = Kernel.rewatch(self.epoll.as_fd(), connection, ready.token, Interest::NONE);
            }
        }
        gone
    }

    /// Returns the time when the next lingering connection is closed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lingering.values().map(|one| one.until).min()
    }

    /// Closes those whose time is over.
    pub(super) fn close(&mut self, now: Instant) {
        for (_, mut over) in self.lingering.extract_if(|_, one| one.until <= now) {
            // Closed with nothing unread, a socket resets no peer.
            over.discarded = 0;
            over.discard();
        }
    }
}

impl Lingering {
    /// Reads and forgets what is there. False: nothing more comes.
    fn discard(&mut self) -> bool {
        let mut read = [0; READ];
        while self.discarded <= DISCARD_BYTES {
            match Kernel.receive(self.socket.as_fd(), &mut read) {
                Ok(0) => return false,
                Ok(count) => self.discarded += count,
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// Has the kernel ask whether the peer is still there, unless the settings of the pool do so already.
fn probe(connection: BorrowedFd<'_>) {
    let Ok(options) = Kernel.options(connection) else { return };
    if options.keepalive.is_none() {
        let keepalive = Some(Keepalive { idle: PROBE_EVERY, interval: PROBE_EVERY, probes: 2 });
        let probed = SocketOptions { keepalive, receive_buffer: None, send_buffer: None, ..options };
        // This fails for a connection that is gone, which epoll tells next.
        let _ = Kernel.set_options(connection, &probed);
    }
}
