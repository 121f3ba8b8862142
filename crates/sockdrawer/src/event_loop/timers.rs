//! The timers of a loop's connections: one node each in the wheel, and what the wheel cannot say.

use super::seat::Flags;
use super::{EventLoop, timer};
use std::time::Instant;

impl EventLoop {
    pub(super) fn fire_timers(&mut self) {
        if self.wheel.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(&mut self.seats, now, &mut due);
        for seat in due.drain(..) {
            // A callback earlier in this list may have ended the connection, or set its timer again.
            if self.seats.at(seat).is_taken() && !self.seats.at(seat).timer.is_set() {
                self.timer_due(seat, now);
            }
        }
        self.due = due;
    }

    /// Sets a connection's timer, also beyond what the wheel can say.
    pub(super) fn set_timer(&mut self, seat: u32, at: Instant, now: Instant) {
        if at.saturating_duration_since(now) > timer::FARTHEST {
            self.far.insert(seat, at);
        } else if !self.far.is_empty() {
            self.far.remove(&seat);
        }
        self.seats.at(seat).flags.clear(Flags::IDLE);
        self.wheel.set(&mut self.seats, seat, at.min(now + timer::FARTHEST), now);
    }

    #[inline]
    pub(super) fn clear_timer(&mut self, seat: u32) {
        self.wheel.clear(&mut self.seats, seat);
        if !self.far.is_empty() {
            self.far.remove(&seat);
        }
    }
}
