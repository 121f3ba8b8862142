//! Input: from the socket to the protocol.

use super::calling::{Tail, context};
use super::connections::Connections;
use super::slot::Flags;
use super::{PREPARED_BYTES, READS_PER_TURN};
use crate::behaviour::Answer;
use crate::protocol::{Closed, Input, Timer};
use crate::sys::Errno;
use std::cell::Cell;
use std::os::fd::AsFd;

/// A loop whose reads brought what it had to keep reads less at a time, but not less than this.
pub(super) const LEAST_READ_BYTES: usize = 4 * 1024;

/// How one read went.
enum Read {
    /// The buffer was filled: there is probably more.
    Full,
    /// All there was.
    Short,
    /// The connection is gone, or must not be read now.
    Over,
}

/// What was offered to a protocol, and what came of it.
struct Offered {
    length: usize,
    taken: usize,
    answer: Answer,
    /// The read that brought the last of it did not fill the buffer.
    short: bool,
    /// Another read follows at once.
    more_follows: bool,
}

impl Connections {
    /// Reads and offers what came. Nearly always one read brings all there is, the protocol takes it and goes on, and the kernel takes
    /// its output: that way is written out here and looks nothing up twice, because of code and memory that the last connection used
    /// the kernel leaves little in the processor's caches. Whatever turns out otherwise goes on elsewhere.
    pub(super) fn readable(&mut self, seat: u32) {
        let place = self.seats.at(seat);
        let epoch = place.epoch;
        let Some(socket) = place.socket.as_ref().filter(|_| !place.flags.any(Flags::UNREAD)) else {
            return self.settle(seat, false);
        };
        if place.flags.any(Flags::KEPT) {
            return self.read_on(seat, 1);
        }
        let most = self.read_most;
        let count = match self.io.system.receive(socket.as_fd(), &mut self.read[..most]) {
            Ok(count) if count > 0 => count,
            nothing => return self.received_nothing(seat, nothing),
        };
        place.flags.clear(Flags::WORKED);
        place.bytes_in += count as u64;
        self.io.counters.bytes_in().add(count as u64);
        let of = self.generations.at(place.table);
        self.scratch.backlog = if place.flags.any(Flags::UNSENT) { self.unsent.bytes(seat).len() } else { 0 };
        self.scratch.high_water = of.high_water;
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let mut input = Input::new(&mut self.read[..count]);
        let mut cx = context(seat, place, of.id, &mut *of.local, &mut self.scratch, &mut timer, &now, &self.post);
        let answer = of.table.received(place.slot, &mut input, &mut cx, &mut self.more);
        let taken = input.taken();
        if (taken == count) & (count < most) && timer == Timer::Keep && self.scratch.said.is_none() {
            match answer {
                Answer::Continue => return self.answer(seat, epoch),
                Answer::Close => return self.close(seat, Tail::Clean),
                _ => {}
            }
        }
        self.after_call(seat, timer, &now);
        let short = count < most;
        self.received(seat, Offered { length: count, taken, answer, short, more_follows: !short });
    }

    /// Sends what the protocol appended. It took all there is.
    #[inline(always)]
    fn answer(&mut self, seat: u32, epoch: u32) {
        if !self.send(seat, false) {
            return;
        }
        let place = self.seats.at(seat);
        if place.flags.any(Flags::DRAINING) || !place.is_settled() {
            self.after_reading(seat, epoch);
        }
    }

    /// What is left to do when all input was offered and all output sent.
    #[inline(never)]
    fn after_reading(&mut self, seat: u32, epoch: u32) {
        if self.is_still(seat, epoch) {
            self.ask_to_drain(seat);
        }
        if self.is_still(seat, epoch) {
            self.settle(seat, false);
        }
    }

    #[inline(never)]
    fn received_nothing(&mut self, seat: u32, read: Result<usize, Errno>) {
        let epoch = self.seats.at(seat).epoch;
        self.read_failed(seat, read);
        if self.is_still(seat, epoch) {
            self.settle(seat, false);
        }
    }

    /// After the first read, and its offer.
    #[inline(never)]
    fn received(&mut self, seat: u32, offered: Offered) {
        let (epoch, full) = (self.seats.at(seat).epoch, offered.more_follows);
        self.after_offer(seat, offered);
        if !self.is_still(seat, epoch) {
            return;
        }
        if full {
            return self.read_on(seat, 2);
        }
        self.settle(seat, false);
    }

    /// Reads until a short read, a few times at most, and offers what came.
    #[inline(never)]
    fn read_on(&mut self, seat: u32, from_turn: usize) {
        let epoch = self.seats.at(seat).epoch;
        for turn in from_turn..=READS_PER_TURN {
            match self.read_once(seat, turn == READS_PER_TURN) {
                Read::Full => {}
                Read::Short | Read::Over => break,
            }
        }
        if self.is_still(seat, epoch) && self.send(seat, false) {
            self.settle(seat, false);
        }
    }

    fn read_once(&mut self, seat: u32, last: bool) -> Read {
        let place = self.seats.at(seat);
        let Some(socket) = place.socket.as_ref().filter(|_| !place.flags.any(Flags::UNREAD)) else { return Read::Over };
        place.flags.clear(Flags::WORKED);
        let mut length = 0;
        if place.flags.any(Flags::KEPT) {
            let kept = self.kept.bytes(seat);
            length = kept.len();
            self.read[..length].copy_from_slice(kept);
        }
        let most = self.read_most;
        match self.io.system.receive(socket.as_fd(), &mut self.read[length..length + most]) {
            Ok(count) if count > 0 => {
                place.bytes_in += count as u64;
                self.io.counters.bytes_in().add(count as u64);
                self.forget_kept(seat);
                let full = count == most;
                self.offer(seat, length + count, !full, full && !last);
                if full { Read::Full } else { Read::Short }
            }
            nothing => self.read_failed(seat, nothing),
        }
    }

    fn read_failed(&mut self, seat: u32, read: Result<usize, Errno>) -> Read {
        match read {
            Ok(_) => {
                self.seats.at(seat).flags.set(Flags::PEER_FINISHED);
                self.tell_finished(seat);
                Read::Over
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Short,
            Err(errno) => {
                self.fail(seat, errno);
                Read::Over
            }
        }
    }

    /// Offers the first `length` bytes of the read buffer to the protocol and keeps what it leaves.
    pub(super) fn offer(&mut self, seat: u32, length: usize, short: bool, more_follows: bool) {
        let mut read = std::mem::take(&mut self.read);
        let mut input = Input::new(&mut read[..length]);
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let answer =
            self.with_context(seat, &mut timer, &now, |table, slot, cx, more| table.received(slot, &mut input, cx, more));
        let taken = input.taken();
        self.read = read;
        self.after_call(seat, timer, &now);
        self.after_offer(seat, Offered { length, taken, answer, short, more_follows });
    }

    fn after_offer(&mut self, seat: u32, offered: Offered) {
        let Offered { length, taken, answer, short, more_follows } = offered;
        let epoch = self.seats.at(seat).epoch;
        if taken < length {
            self.kept.push(seat, &self.read[taken..length]);
            self.seats.at(seat).flags.set(Flags::KEPT);
        }
        let tail = if taken == length && short { Tail::Clean } else { Tail::Unknown };
        self.act(seat, answer, tail, more_follows);
        if !self.is_still(seat, epoch) {
            return;
        }
        if length != taken && self.is_too_long(seat, length - taken) {
            if !self.seats.at(seat).may_receive() {
                // It may be whole messages that the protocol is not ready for.
                let table = self.seats.at(seat).table;
                let most = self.generations.settings(table).max_partial;
                return self.read_less(most);
            }
            self.io.counters.too_long().add(1);
            return self.end(seat, Closed::TooLong, true);
        }
        // After a read that filled the buffer there is probably more that the peer has sent already.
        if short {
            self.ask_to_drain(seat);
        }
    }

    /// Input to be offered before what comes.
    pub(super) fn keep(&mut self, seat: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.kept.push(seat, bytes);
            self.seats.at(seat).flags.set(Flags::KEPT);
        }
    }

    #[inline]
    pub(super) fn forget_kept(&mut self, seat: u32) {
        let flags = &mut self.seats.at(seat).flags;
        if flags.any(Flags::KEPT) {
            flags.clear(Flags::KEPT);
            self.kept.release(seat);
        }
    }

    /// Whether a connection that goes on, or will, left more of its input than it may.
    fn is_too_long(&mut self, seat: u32, left: usize) -> bool {
        let place = self.seats.at(seat);
        let (goes_on, table) = (place.has_protocol(), place.table);
        goes_on && left > self.generations.settings(table).max_partial
    }

    /// A read brought more than may be kept, and the connection cannot have the rest now: from here on reads are smaller. All
    /// connections of the loop pay a little for the one that did it, and not each that comes may do it once.
    #[cold]
    pub(super) fn read_less(&mut self, bound: usize) {
        self.read_most = self.read_most.min(bound.max(LEAST_READ_BYTES));
    }

    /// The memory that reading and output need, of an event loop whose connection does not read: it is made again when it goes on.
    pub(crate) fn give_memory_back(&mut self) {
        if std::mem::take(&mut self.swollen) {
            self.scratch.bytes.shrink_to(PREPARED_BYTES);
            self.read.give_back();
        }
    }
}
