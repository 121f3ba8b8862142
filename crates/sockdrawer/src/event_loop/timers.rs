//! The timers of a loop's connections: one node each in the wheel, and what the wheel cannot say.

use super::slot::{Flags, Slot};
use super::slots::Slots;
use super::timer::{self, Wheel};
use crate::clock::deadline;
use std::collections::HashMap;
use std::time::{Duration, Instant};

pub(super) struct LoopTimers {
    pub(super) wheel: Wheel,
    /// Deadlines farther than the wheel can say; hardly ever any.
    far: HashMap<u32, Instant>,
    pub(super) due: Vec<u32>,
    /// Connections that are watched for the idle timeout.
    idle: HashMap<u32, Seen>,
    /// The monotonic clock in whole seconds, read once per turn: a connection's age is computed from it.
    pub(super) second: u32,
}

/// A connection is looked at so often within its idle timeout. Between two looks no clock is asked, so it may end later by one of these parts.
const LOOKS: u32 = 4;

/// A connection as it was seen last.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Bytes that its protocol and its peer have taken.
    pub(super) progress: u64,
    pub(super) since: Instant,
}

impl LoopTimers {
    pub(super) fn new(start: Instant, at_once: usize) -> LoopTimers {
        let (far, idle) = (HashMap::new(), HashMap::new());
        LoopTimers { wheel: Wheel::new(start), far, due: Vec::with_capacity(at_once), idle, second: 0 }
    }

    pub(super) fn look_at_clock(&mut self) {
        self.second = u32::try_from(crate::sys::monotonic_coarse() / 1_000_000_000).unwrap_or(u32::MAX);
    }

    /// Returns how a connection was seen last.
    pub(super) fn seen(&self, slot: u32) -> Option<Seen> {
        self.idle.get(&slot).copied()
    }

    /// Looks at a connection again before its idle timeout is over.
    pub(super) fn look_again(&mut self, slots: &mut Slots, slot: u32, seen: Seen, timeout: Duration) {
        self.idle.insert(slot, seen);
        let now = Instant::now();
        let at = deadline(now, timeout / LOOKS).min(deadline(seen.since, timeout));
        self.set(slots, slot, at, now);
        slots.at(slot).flags.set(Flags::IDLE);
    }

    /// Returns for how long a connection has been idle, as far as that was looked at. It is no older than itself.
    pub(super) fn idle_for(&self, record: &Slot, seen: Seen) -> Duration {
        let age = Duration::from_secs(self.second.saturating_sub(record.opened).into());
        seen.since.elapsed().min(age)
    }

    /// Notes how a connection was seen last that is not watched yet.
    pub(super) fn note(&mut self, slot: u32, seen: Seen) {
        self.idle.insert(slot, seen);
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.wheel.next()
    }

    /// Sets a connection's timer, also beyond what the wheel can say.
    pub(super) fn set(&mut self, slots: &mut Slots, slot: u32, at: Instant, now: Instant) {
        if at.saturating_duration_since(now) > timer::FARTHEST {
            self.far.insert(slot, at);
        } else if !self.far.is_empty() {
            self.far.remove(&slot);
        }
        slots.at(slot).flags.clear(Flags::IDLE);
        self.wheel.set(slots, slot, at.min(now + timer::FARTHEST), now);
    }

    /// Clears the timer, and returns when the protocol's was due, if it was set.
    pub(super) fn take(&mut self, slots: &mut Slots, slot: u32) -> Option<Instant> {
        let due = self.due_at(slots, slot);
        self.clear(slots, slot);
        due
    }

    fn due_at(&self, slots: &mut Slots, slot: u32) -> Option<Instant> {
        let record = slots.at(slot);
        if !record.timer.is_set() || record.flags.any(Flags::IDLE) {
            return None;
        }
        let near = self.wheel.due_at(&record.timer);
        Some(self.far.get(&slot).copied().unwrap_or(near))
    }

    #[inline]
    pub(super) fn clear(&mut self, slots: &mut Slots, slot: u32) {
        self.wheel.clear(slots, slot);
        if !self.far.is_empty() {
            self.far.remove(&slot);
        }
    }

    /// Takes the rest of a deadline that the wheel could not say at once.
    pub(super) fn take_far(&mut self, slot: u32) -> Option<Instant> {
        if self.far.is_empty() { None } else { self.far.remove(&slot) }
    }
}
