//! The idle timeout: a connection ends whose protocol takes no input, and whose peer takes no output, for the time that its generation
//! allows. A connection that is over with its first read never hears of it: the time begins when epoll is asked to watch.

use super::Connections;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::timers::Seen;
use crate::protocol::Closed;
use std::time::{Duration, Instant};

impl Connections {
    /// Begins the wait of a connection for its peer. Its one timer may be its protocol's: then the protocol bounds the wait.
    pub(super) fn begin_idle(&mut self, slot: u32) {
        let record = self.slots.at(slot);
        if record.has_protocol()
            && !record.timer.is_set()
            && let Some(timeout) = self.generations.settings(record.table).idle
        {
            let seen = Seen { progress: record.progress(self.kept.bytes(slot).len()), since: Instant::now() };
            self.timers.look_again(&mut self.slots, slot, seen, timeout);
        }
    }

    /// Goes on with the wait of a connection that was frozen for a while: where it was seen like that before, it has been idle all the time.
    pub(super) fn idle_goes_on(&mut self, slot: u32, before: Option<Seen>) {
        let record = self.slots.at(slot);
        let progress = record.progress(self.kept.bytes(slot).len());
        // An adopted connection may have another time, or none.
        if record.flags.any(Flags::IDLE)
            && let Some(seen) = before.filter(|seen| seen.progress == progress)
            && let Some(timeout) = self.generations.settings(record.table).idle
        {
            self.timers.look_again(&mut self.slots, slot, seen, timeout);
        }
    }

    /// Handles the timer of a connection that waits: it is due.
    pub(super) fn idle_due(&mut self, slot: u32, now: Instant) {
        let record = self.slots.at(slot);
        let progress = record.progress(self.kept.bytes(slot).len());
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
        self.start_closing(slot, Duration::ZERO);
    }
}
