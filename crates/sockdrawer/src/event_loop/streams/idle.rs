//! The idle timeout: a connection ends whose protocol takes no input, and whose peer takes no output, for the time that its generation
//! allows; and a closed one whose peer takes no output for the time that it has to. `connections/due.rs` ends them. A connection that is over
//! with its first read never hears of it: the time begins when epoll is asked to watch.

use super::Streams;
use crate::event_loop::buffer::Buffers;
use crate::event_loop::generations::Generations;
use crate::event_loop::io::Io;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Slots;
use crate::event_loop::timers::{LoopTimers, Seen};
use std::time::{Duration, Instant};

/// The parts of a loop that know whether a connection does something.
pub(in crate::event_loop) struct IdleWatch<'a> {
    io: &'a Io,
    slots: &'a mut Slots,
    generations: &'a mut Generations,
    kept: &'a mut Buffers,
    timers: &'a mut LoopTimers,
}

impl IdleWatch<'_> {
    pub(in crate::event_loop) fn of(streams: &mut Streams) -> IdleWatch<'_> {
        let Streams { io, slots, generations, kept, timers, .. } = streams;
        IdleWatch { io, slots, generations, kept, timers }
    }

    /// Begins the wait of a connection for its peer. Its one timer may be its protocol's: then the protocol bounds the wait.
    pub(in crate::event_loop) fn begin(&mut self, slot: u32) {
        let record = self.slots.at(slot);
        if record.has_protocol()
            && !record.timer.is_set()
            && let Some(timeout) = self.generations.settings(record.table).idle
        {
            self.watch(slot, timeout);
        }
    }

    /// Watches a connection from now on for no progress within this time.
    pub(super) fn watch(&mut self, slot: u32, timeout: Duration) {
        let seen = Seen { progress: self.progress(slot), since: Instant::now() };
        self.timers.look_again(self.slots, slot, seen, timeout);
    }

    /// Goes on with the wait of a connection that was frozen for a while, or comes from another process: where it was seen like that before, it has
    /// been idle all the time. Where it is not watched yet, that is noted for when it is.
    pub(in crate::event_loop) fn go_on(&mut self, slot: u32, before: Option<Seen>) {
        let Some(seen) = before.filter(|seen| seen.progress == self.progress(slot)) else { return };
        self.timers.note(slot, seen);
        let record = self.slots.at(slot);
        // An adopted connection may have another time, or none.
        if record.flags.any(Flags::IDLE)
            && let Some(timeout) = self.generations.settings(record.table).idle
        {
            self.timers.look_again(self.slots, slot, seen, timeout);
        }
    }

    /// Returns how a connection is seen now that was idle for this time, in nanoseconds, in another process.
    pub(in crate::event_loop) fn seen(&mut self, slot: u32, idle: Option<u64>) -> Option<Seen> {
        let since = Instant::now().checked_sub(Duration::from_nanos(idle?))?;
        Some(Seen { progress: self.progress(slot), since })
    }

    /// Returns the number of bytes that its protocol and its peer have taken; in a relay those of both sides, because one may wait for the other.
    pub(in crate::event_loop) fn progress(&mut self, slot: u32) -> u64 {
        let other = self.slots.other(slot).map_or(0, |other| self.progress_of(other));
        self.progress_of(slot).wrapping_add(other)
    }

    /// Returns the part of a connection alone. Where the kernel takes no more output, it is asked for what the peer has not read: it has room for more
    /// only after much of that.
    fn progress_of(&mut self, slot: u32) -> u64 {
        let kept = self.kept.bytes(slot).len();
        let unread = if self.slots.at(slot).flags.any(Flags::UNSENT) { self.io.unacknowledged(self.slots, slot) } else { 0 };
        self.slots.at(slot).progress(kept + unread)
    }
}
