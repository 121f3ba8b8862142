//! Input: from the socket to the protocol, which may have left some of it before.

use super::Connections;
use crate::behaviour::Answer;
use crate::event_loop::READS_PER_TURN;
use crate::event_loop::slot::{Flags, Slot};
use crate::event_loop::streams::{Tail, context};
use crate::protocol::{Closed, Input, Timer};
use crate::sys::Errno;
use std::cell::Cell;
use std::os::fd::AsFd;

/// Result of one read.
enum Read {
    /// The buffer was filled: there is probably more.
    Full,
    /// The buffer was not filled: there is no more for now.
    Short,
    /// The connection is gone, or must not be read now.
    Over,
}

/// Input that was offered to a protocol, and its answer.
struct OfferedInput {
    length: usize,
    taken: usize,
    answer: Answer,
    /// The rest of the input holds no line break.
    no_line: bool,
    /// The read that brought the last of it did not fill the buffer.
    short: bool,
    /// Another read follows at once.
    more_follows: bool,
}

/// Input that was kept, at the start of the read buffer.
struct Kept {
    length: usize,
    /// Number of bytes, from the first, that hold no line break.
    searched: usize,
}

/// Copies what was kept of a connection's input to the start of the read buffer.
fn read_kept(record: &Slot, kept: &[u8], read: &mut [u8]) -> Kept {
    let length = kept.len();
    read[..length].copy_from_slice(kept);
    Kept { length, searched: if record.flags.any(Flags::NO_LINE) { length } else { 0 } }
}

impl Connections {
    /// Reads and offers what came. Nearly always one read brings all there is, the protocol takes it and goes on, and the kernel takes
    /// its output: that way is written out here and looks nothing up twice: between two connections the kernel runs, which leaves
    /// little of the loop's code and memory in the processor's caches. All else goes on elsewhere.
    pub(super) fn readable(&mut self, slot: u32) {
        let record = self.streams.slots.at(slot);
        let Some(socket) = record.socket.as_ref().filter(|_| !record.flags.any(Flags::UNREAD)) else {
            return self.streams.settle(slot, false);
        };
        if record.flags.any(Flags::KEPT) {
            return self.read_on(slot, 1);
        }
        let most = self.streams.read.most;
        let count = match self.streams.io.system.receive(socket.as_fd(), &mut self.streams.read.pages[..most]) {
            Ok(count) if count > 0 => count,
            nothing => return self.received_nothing(slot, nothing),
        };
        record.flags.clear(Flags::WORKED);
        record.bytes_in += count as u64;
        self.streams.io.counters.bytes_in().add(count as u64);
        let of = self.streams.generations.at(record.table);
        self.streams.scratch.backlog = if record.flags.any(Flags::UNSENT) { self.streams.unsent.bytes(slot).len() } else { 0 };
        self.streams.scratch.high_water = of.high_water;
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let mut input = Input::new(&mut self.streams.read.pages[..count]);
        let mut cx = context(
            slot,
            record,
            (of.id, of.max_partial),
            &mut *of.local,
            &mut self.streams.scratch,
            &mut timer,
            &now,
            &self.streams.post,
        );
        let answer = of.table.received(record.state, &mut input, &mut cx, &mut self.streams.more);
        if input.is_empty() & (count < most) && timer == Timer::Keep && self.streams.scratch.asks.is_nothing() {
            match answer {
                Answer::Continue => return self.answer(slot),
                Answer::Close => return self.streams.close(slot, Tail::Clean),
                _ => {}
            }
        }
        let (taken, no_line) = (input.taken(), input.has_no_line());
        self.after_call(slot, timer, &now);
        let short = count < most;
        self.received(slot, OfferedInput { length: count, taken, answer, no_line, short, more_follows: !short });
    }

    /// Sends what the protocol appended. It took all there is.
    #[inline(always)]
    fn answer(&mut self, slot: u32) {
        if !self.streams.send(slot, false) {
            return;
        }
        let record = self.streams.slots.at(slot);
        if record.flags.any(Flags::DRAINING) || !record.is_settled() {
            self.after_reading(slot);
        }
    }

    /// Does the rest of the work when all input was offered and all output sent.
    #[inline(never)]
    fn after_reading(&mut self, slot: u32) {
        self.ask_to_drain(slot);
        self.streams.settle(slot, false);
    }

    #[inline(never)]
    fn received_nothing(&mut self, slot: u32, read: Result<usize, Errno>) {
        self.read_failed(slot, read);
        self.streams.settle(slot, false);
    }

    /// Goes on after the first read, and its offer.
    #[inline(never)]
    fn received(&mut self, slot: u32, offered: OfferedInput) {
        let full = offered.more_follows;
        self.after_offer(slot, offered);
        if full {
            return self.read_on(slot, 2);
        }
        self.streams.settle(slot, false);
    }

    /// Reads until a short read, a few times at most, and offers what came.
    #[inline(never)]
    fn read_on(&mut self, slot: u32, from_turn: usize) {
        for turn in from_turn..=READS_PER_TURN {
            match self.read_once(slot, turn == READS_PER_TURN) {
                Read::Full => {}
                Read::Short | Read::Over => break,
            }
        }
        if self.streams.send(slot, false) {
            self.streams.settle(slot, false);
        }
    }

    fn read_once(&mut self, slot: u32, last: bool) -> Read {
        let record = self.streams.slots.at(slot);
        let Some(socket) = record.socket.as_ref().filter(|_| !record.flags.any(Flags::UNREAD)) else { return Read::Over };
        record.flags.clear(Flags::WORKED);
        let Kept { length, searched } = read_kept(record, self.streams.kept.bytes(slot), &mut self.streams.read.pages);
        let most = self.streams.read.most;
        match self.streams.io.system.receive(socket.as_fd(), &mut self.streams.read.pages[length..length + most]) {
            Ok(count) if count > 0 => {
                record.bytes_in += count as u64;
                self.streams.io.counters.bytes_in().add(count as u64);
                self.streams.kept.forget(&mut self.streams.slots, slot);
                let full = count == most;
                self.offer(slot, length + count, searched, !full, full && !last);
                if full { Read::Full } else { Read::Short }
            }
            nothing => self.read_failed(slot, nothing),
        }
    }

    fn read_failed(&mut self, slot: u32, read: Result<usize, Errno>) -> Read {
        match read {
            Ok(_) => {
                self.streams.slots.at(slot).flags.set(Flags::PEER_ENDED);
                self.tell_ended(slot);
                Read::Over
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Short,
            Err(errno) => {
                self.streams.fail(slot, errno);
                Read::Over
            }
        }
    }

    /// Offers the input that was kept, where there is some.
    pub(super) fn offer_kept(&mut self, slot: u32) {
        let Kept { length, searched } =
            read_kept(self.streams.slots.at(slot), self.streams.kept.bytes(slot), &mut self.streams.read.pages);
        if length > 0 {
            self.streams.kept.forget(&mut self.streams.slots, slot);
            self.offer(slot, length, searched, false, false);
        }
    }

    /// Offers the first `length` bytes of the read buffer to the protocol and keeps what it leaves. The first `searched` of them hold no
    /// line break.
    fn offer(&mut self, slot: u32, length: usize, searched: usize, short: bool, more_follows: bool) {
        let mut read = std::mem::take(&mut self.streams.read.pages);
        let mut input = Input::searched(&mut read[..length], searched);
        let (mut timer, now) = (Timer::Keep, Cell::new(None));
        let answer = self
            .streams
            .with_context(slot, &mut timer, &now, |table, state, cx, more| table.received(state, &mut input, cx, more));
        let (taken, no_line) = (input.taken(), input.has_no_line());
        self.streams.read.pages = read;
        self.after_call(slot, timer, &now);
        self.after_offer(slot, OfferedInput { length, taken, answer, no_line, short, more_follows });
    }

    fn after_offer(&mut self, slot: u32, offered: OfferedInput) {
        let OfferedInput { length, taken, answer, no_line, short, more_follows } = offered;
        if taken < length {
            self.streams.kept.keep(&mut self.streams.slots, slot, &self.streams.read.pages[taken..length]);
            if no_line {
                self.streams.slots.at(slot).flags.set(Flags::NO_LINE);
            }
        }
        let tail = if taken == length && short { Tail::Clean } else { Tail::Unknown };
        self.act(slot, answer, tail, more_follows);
        // A connection without a protocol has left its generation, which may be gone.
        if taken < length && self.streams.slots.at(slot).has_protocol() {
            let record = self.streams.slots.at(slot);
            let most = self.streams.generations.at(record.table).max_partial;
            let is_too_much = length - taken > most;
            if is_too_much && record.may_receive() {
                return self.streams.end(slot, Closed::TooLong, true);
            }
            if is_too_much {
                // It may be whole messages that the protocol is not ready for.
                return self.streams.read.read_less(most);
            }
        }
        // After a read that filled the buffer there is probably more that the peer has sent already.
        if short {
            self.ask_to_drain(slot);
        }
    }
}
