//! The idle timeout: a connection ends whose protocol takes no input, and whose peer takes no output, for the time that its generation
//! allows. A connection that is over with its first read never hears of it: the time begins when epoll is asked to watch.

use super::Connections;
use crate::event_loop::buffer::Buffers;
use crate::event_loop::generations::Generations;
use crate::event_loop::io::Io;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Slots;
use crate::event_loop::timers::{LoopTimers, Seen};
use crate::protocol::Closed;
use std::time::{Duration, Instant};

/// The parts of a loop that know whether a connection does something.
pub(super) struct IdleWatch<'a> {
    io: &'a Io,
    slots: &'a mut Slots,
    generations: &'a mut Generations,
    kept: &'a mut Buffers,
    timers: &'a mut LoopTimers,
}

impl IdleWatch<'_> {
    pub(super) fn of(connections: &mut Connections) -> IdleWatch<'_> {
        let Connections { io, slots, generations, kept, timers, .. } = connections;
        IdleWatch { io, slots, generations, kept, timers }
    }

    /// Begins the wait of a connection for its peer. Its one timer may be its protocol's: then the protocol bounds the wait.
    pub(super) fn begin(&mut self, slot: u32) {
        let record = self.slots.at(slot);
        if record.has_protocol()
            && !record.timer.is_set()
            && let Some(timeout) = self.generations.settings(record.table).idle
        {
            let seen = Seen { progress: self.progress(slot), since: Instant::now() };
            self.timers.look_again(self.slots, slot, seen, timeout);
        }
    }

    /// Goes on with the wait of a connection that was frozen for a while: where it was seen like that before, it has been idle all the time.
    pub(super) fn go_on(&mut self, slot: u32, before: Option<Seen>) {
        let progress = self.progress(slot);
        let record = self.slots.at(slot);
        // An adopted connection may have another time, or none.
        if record.flags.any(Flags::IDLE)
            && let Some(seen) = before.filter(|seen| seen.progress == progress)
            && let Some(timeout) = self.generations.settings(record.table).idle
        {
            self.timers.look_again(self.slots, slot, seen, timeout);
        }
    }

    /// Goes on with the wait of a connection that came from another process, where it was idle for this time: unless its progress is another since.
    pub(super) fn was_idle(&mut self, slot: u32, progress: u64, time: Option<u64>) {
        let since = time.and_then(|time| Instant::now().checked_sub(Duration::from_nanos(time)));
        if let Some(since) = since.filter(|_| self.progress(slot) == progress) {
            let seen = Seen { progress, since };
            self.timers.note(slot, seen);
            self.go_on(slot, Some(seen));
        }
    }

    /// Returns the number of bytes that its protocol and its peer have taken; in a relay those of both sides, because one may wait for the other.
    pub(super) fn progress(&mut self, slot: u32) -> u64 {
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

impl Connections {
    /// Handles the timer of a connection that waits: it is due.
    pub(super) fn idle_due(&mut self, slot: u32, now: Instant) {
        let progress = IdleWatch::of(self).progress(slot);
        let record = self.slots.at(slot);
        let busy = record.flags.any(Flags::WORKING.union(Flags::PAUSED).union(Flags::HELD)) || record.flags.is(Phase::Delegating);
        let before = self.timers.seen(slot).filter(|seen| seen.progress == progress && !busy);
        let seen = before.unwrap_or(Seen { progress, since: now });
        let Some(timeout) = self.generations.settings(record.table).idle else { return };
        if now.saturating_duration_since(seen.since) < timeout {
            return self.timers.look_again(&mut self.slots, slot, seen, timeout);
        }
        if record.flags.any(Flags::UNSENT) {
            // It had all that time to take its output.
            return self.cut(slot, Closed::Idle);
        }
        self.io.counters.idle().add(1);
        self.forget_protocol(slot, Closed::Idle);
        self.start_closing(slot, Duration::ZERO, false);
    }
}
