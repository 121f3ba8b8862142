//! The timers of a loop's connections: one node each in the wheel, and what the wheel cannot say.

use super::slot::Flags;
use super::slots::Slots;
use super::timer::{self, Wheel};
use std::collections::HashMap;
use std::time::Instant;

pub(super) struct Timers {
    pub(super) wheel: Wheel,
    /// Deadlines farther than the wheel can say; hardly ever any.
    far: HashMap<u32, Instant>,
    pub(super) due: Vec<u32>,
}

impl Timers {
    pub(super) fn new(start: Instant, at_once: usize) -> Timers {
        Timers { wheel: Wheel::new(start), far: HashMap::new(), due: Vec::with_capacity(at_once) }
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

    /// The rest of a deadline that the wheel could not say at once.
    pub(super) fn take_far(&mut self, slot: u32) -> Option<Instant> {
        if self.far.is_empty() { None } else { self.far.remove(&slot) }
    }
}
