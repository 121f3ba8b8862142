//! The idle timeout: a connection ends whose protocol takes no input, and whose peer takes no output, for the time that its generation
//! allows. A connection that is over with its first read never hears of it: the time begins when epoll is asked to watch.

use super::Connections;
use crate::clock::deadline;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::protocol::Closed;
use std::time::{Duration, Instant};

/// A connection is looked at so often within its time. Between two looks no clock is asked, so it may end later by one of these parts.
const LOOKS: u32 = 4;

/// A connection as it was seen last.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Bytes that its protocol has taken, and bytes that the kernel has.
    progress: u64,
    since: Instant,
}

impl Connections {
    /// The connection waits for its peer. Its one timer may be its protocol's: then the protocol bounds the wait.
    pub(super) fn begin_idle(&mut self, slot: u32) {
        let record = self.slots.at(slot);
        let (table, may) = (record.table, record.has_protocol() && !record.timer.is_set());
        if may && self.generations.settings(table).idle.is_some() {
            let now = Instant::now();
            let progress = self.slots.at(slot).progress(self.kept.bytes(slot).len());
            self.look_again(slot, Seen { progress, since: now }, now);
        }
    }

    /// A connection that was frozen for a while, and seen like that before, has been idle all the time.
    pub(super) fn idle_goes_on(&mut self, slot: u32, before: Option<Seen>) {
        let progress = self.slots.at(slot).progress(self.kept.bytes(slot).len());
        if self.slots.at(slot).flags.any(Flags::IDLE)
            && let Some(seen) = before.filter(|seen| seen.progress == progress)
        {
            self.look_again(slot, seen, Instant::now());
        }
    }

    /// Returns for how long a connection has been idle, as far as that was looked at. It is no older than itself.
    pub(super) fn idle_for(&mut self, slot: u32) -> Option<Duration> {
        let progress = self.slots.at(slot).progress(self.kept.bytes(slot).len());
        let age = Duration::from_secs(self.clock_seconds.saturating_sub(self.slots.at(slot).opened).into());
        let seen = self.idle.get(&slot).filter(|seen| seen.progress == progress)?;
        Some(seen.since.elapsed().min(age))
    }

    /// A connection that came from another process has been idle there for so long.
    pub(super) fn was_idle(&mut self, slot: u32, time: Duration) {
        let progress = self.slots.at(slot).progress(self.kept.bytes(slot).len());
        if let Some(since) = Instant::now().checked_sub(time) {
            self.idle.insert(slot, Seen { progress, since });
        }
    }

    /// The timer of a connection that waits is due.
    pub(super) fn idle_due(&mut self, slot: u32, now: Instant) {
        let progress = self.slots.at(slot).progress(self.kept.bytes(slot).len());
        let record = self.slots.at(slot);
        let (table, busy) = (
            record.table,
            record.flags.any(Flags::WORKING.union(Flags::PAUSED).union(Flags::HELD)) || record.flags.is(Phase::Delegating),
        );
        let before = self.idle.get(&slot).copied().filter(|seen| seen.progress == progress && !busy);
        let seen = before.unwrap_or(Seen { progress, since: now });
        let idle = self.generations.settings(table).idle;
        if idle.is_some_and(|idle| now.saturating_duration_since(seen.since) >= idle) {
            if self.slots.at(slot).flags.any(Flags::UNSENT) {
                // It had all that time to take its output.
                return self.cut(slot, Closed::Idle);
            }
            self.io.counters.idle().add(1);
            self.forget_protocol(slot, Closed::Idle);
            return self.start_closing(slot, Duration::ZERO);
        }
        self.look_again(slot, seen, now);
    }

    fn look_again(&mut self, slot: u32, seen: Seen, now: Instant) {
        let table = self.slots.at(slot).table;
        // An adopted connection may have another time, or none.
        let Some(idle) = self.generations.settings(table).idle else { return };
        self.idle.insert(slot, seen);
        let at = deadline(now, idle / LOOKS).min(deadline(seen.since, idle));
        self.timers.set(&mut self.slots, slot, at, now);
        self.slots.at(slot).flags.set(Flags::IDLE);
    }
}
