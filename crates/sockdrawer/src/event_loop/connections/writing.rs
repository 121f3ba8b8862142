//! Output: from a callback to the socket, at once as far as the kernel takes it; the rest when the socket has room.

use super::Connections;
use crate::behaviour::Callback;
use crate::event_loop::SCRATCH_BYTES;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::protocol::Closed;
use crate::sys::Errno;
use std::os::fd::AsFd;

impl Connections {
    /// Sends what the scratch holds; the rest of it, if any, waits for the socket to have room. False where the connection is gone.
    #[inline]
    pub(super) fn send(&mut self, slot: u32, more: bool) -> bool {
        self.scratch.bytes.is_empty() || self.send_scratch(slot, more)
    }

    fn send_scratch(&mut self, slot: u32, more: bool) -> bool {
        let record = self.slots.at(slot);
        let mut sent = 0;
        if !record.flags.any(Flags::UNSENT) {
            let socket = record.socket.as_ref().expect("a taken slot has a socket");
            match self.io.system.send(socket.as_fd(), &self.scratch.bytes, more) {
                Ok(count) => {
                    sent = count;
                    record.bytes_out += count as u64;
                    self.io.counters.bytes_out().add(count as u64);
                }
                // A call that does not wait is not interrupted; if it were, epoll would say when to go on.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => {
                    self.scratch.clear();
                    self.fail(slot, errno);
                    return false;
                }
            }
        }
        if sent < self.scratch.bytes.len() {
            self.keep_unsent(slot, sent);
        }
        self.scratch.clear();
        if self.scratch.bytes.capacity() > 4 * SCRATCH_BYTES {
            self.scratch.bytes.shrink_to(4 * SCRATCH_BYTES);
        }
        true
    }

    #[cold]
    fn keep_unsent(&mut self, slot: u32, from: usize) {
        self.unsent.keep(&mut self.slots, slot, &self.scratch.bytes[from..]);
        let (backlog, table) = (self.unsent.bytes(slot).len(), self.slots.at(slot).table);
        if backlog > self.generations.at(table).high_water && !self.slots.at(slot).flags.is(Phase::Relayed) {
            let (full, most) = (self.generations.at(table).full(), self.generations.at(table).high_water);
            self.slots.at(slot).flags.set(full);
            self.swollen = true;
            if backlog > 2 * most {
                self.read.read_less(most);
            }
        }
    }

    /// Sends the backlog: the socket has room.
    pub(super) fn flush(&mut self, slot: u32) {
        if !self.slots.at(slot).flags.any(Flags::UNSENT) {
            return;
        }
        if self.unsent.bytes(slot).is_empty() {
            // The kernel has sent all: see `start_closing`.
            return self.leave(slot, true);
        }
        match self.io.system.send(self.slots.socket(slot), self.unsent.bytes(slot), false) {
            Ok(sent) => {
                self.unsent.at(slot).take(sent);
                self.io.counters.bytes_out().add(sent as u64);
                self.slots.at(slot).bytes_out += sent as u64;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return self.fail(slot, errno),
        }
        let left = self.unsent.bytes(slot).len();
        if left == 0 {
            if self.slots.extra(slot).is_some_and(|extra| extra.is_cut_short) {
                // The kernel has it: see `start_closing`.
                return self.unsent.release(slot);
            }
            self.unsent.forget(&mut self.slots, slot);
        }
        let flags = self.slots.at(slot).flags;
        if left == 0 && (flags.any(Flags::ENDING_OUTPUT) || flags.is(Phase::Flushing)) {
            self.all_sent(slot);
        }
        if !self.slots.at(slot).has_protocol() {
            return;
        }
        let table = self.slots.at(slot).table;
        if flags.any(Flags::FULL) && left <= self.generations.settings(table).low_water {
            self.slots.at(slot).flags.clear(Flags::FULL.union(Flags::BACKED_UP));
            self.slots.extra_of(slot).map(|extra| extra.takes_wake(left));
            self.callback(slot, Callback::Writable);
            self.resume(slot);
        } else if flags.any(Flags::EXTRA) && self.slots.extra_of(slot).is_some_and(|extra| extra.takes_wake(left)) {
            self.callback(slot, Callback::Writable);
        }
    }

    /// Ends a connection whose socket failed.
    #[cold]
    pub(super) fn fail(&mut self, slot: u32, errno: Errno) {
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Relayed)
            && flags.any(Flags::PEER_ENDED)
            && matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)
        {
            // Its peer ended in order and closed its socket, which refuses what the other side says later: no fault of either.
            return self.end(slot, Closed::Orderly, false);
        }
        self.end(slot, Closed::Error(errno.raw_os_error()), false);
    }
}
