//! Output: from a callback to the socket, at once as far as the kernel takes it; the rest when the socket has room.

use super::SCRATCH_BYTES;
use super::connections::Connections;
use super::slot::Flags;
use crate::behaviour::Event;
use crate::protocol::Closed;
use crate::sys::Errno;
use std::os::fd::AsFd;

impl Connections {
    /// Sends what the scratch holds; the rest of it, if any, waits for the socket to have room. False where the connection is gone.
    #[inline]
    pub(super) fn send(&mut self, seat: u32, more: bool) -> bool {
        self.scratch.bytes.is_empty() || self.send_scratch(seat, more)
    }

    fn send_scratch(&mut self, seat: u32, more: bool) -> bool {
        let place = self.seats.at(seat);
        let mut sent = 0;
        if !place.flags.any(Flags::UNSENT) {
            let socket = place.socket.as_ref().expect("a taken seat has a socket");
            match self.io.system.send(socket.as_fd(), &self.scratch.bytes, more) {
                Ok(count) => {
                    sent = count;
                    place.bytes_out += count as u64;
                    self.io.counters.bytes_out().add(count as u64);
                }
                // A call that does not wait is not interrupted; if it were, epoll would say when to go on.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => {
                    self.scratch.clear();
                    self.fail(seat, errno);
                    return false;
                }
            }
        }
        if sent < self.scratch.bytes.len() {
            self.keep_unsent(seat, sent);
        }
        self.scratch.clear();
        if self.scratch.bytes.capacity() > 4 * SCRATCH_BYTES {
            self.scratch.bytes.shrink_to(4 * SCRATCH_BYTES);
        }
        true
    }

    #[cold]
    fn keep_unsent(&mut self, seat: u32, from: usize) {
        self.unsent.push(seat, &self.scratch.bytes[from..]);
        let place = self.seats.at(seat);
        place.flags.set(Flags::UNSENT);
        let (backlog, table) = (self.unsent.bytes(seat).len(), place.table);
        if backlog > self.generations.at(table).high_water {
            let (full, most) = (self.generations.at(table).full(), self.generations.at(table).high_water);
            self.seats.at(seat).flags.set(full);
            self.swollen = true;
            if backlog > 2 * most {
                self.read_less(most);
            }
        }
    }

    #[inline]
    pub(super) fn forget_unsent(&mut self, seat: u32) {
        let flags = &mut self.seats.at(seat).flags;
        if flags.any(Flags::UNSENT) {
            flags.clear(Flags::UNSENT);
            self.unsent.release(seat);
        }
    }

    /// The socket has room: sends the backlog.
    pub(super) fn flush(&mut self, seat: u32) {
        if !self.seats.at(seat).flags.any(Flags::UNSENT) {
            return;
        }
        let bytes = std::mem::take(self.unsent.at(seat));
        let sent = self.with_socket(seat, |system, socket| system.send(socket, bytes.bytes(), false));
        *self.unsent.at(seat) = bytes;
        match sent {
            Ok(sent) => {
                self.unsent.at(seat).take(sent);
                self.io.counters.bytes_out().add(sent as u64);
                self.seats.at(seat).bytes_out += sent as u64;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return self.fail(seat, errno),
        }
        let left = self.unsent.bytes(seat).len();
        if left == 0 {
            self.forget_unsent(seat);
        }
        let (flags, epoch) = (self.seats.at(seat).flags, self.seats.at(seat).epoch);
        if left == 0 && flags.any(Flags::FINISHING.and(Flags::FLUSHING)) {
            self.all_sent(seat);
        }
        if !self.is_still(seat, epoch) || !self.seats.at(seat).has_protocol() {
            return;
        }
        let table = self.seats.at(seat).table;
        if flags.any(Flags::FULL) && left <= self.generations.settings(table).low_water {
            self.seats.at(seat).flags.clear(Flags::FULL.and(Flags::PAUSED));
            self.callback(seat, Event::Writable);
            if self.is_still(seat, epoch) {
                self.resume(seat);
            }
        }
    }

    /// The socket failed.
    pub(super) fn fail(&mut self, seat: u32, errno: Errno) {
        self.io.counters.errors().add(1);
        self.end(seat, Closed::Error(errno.raw_os_error()), false);
    }
}
