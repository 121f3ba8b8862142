//! Usual time of something that is done again and again.

use std::time::Duration;

/// Moving mean of times, in which each new one counts an eighth. None before the first.
#[derive(Debug, Default)]
pub(super) struct Usual(Option<Duration>);

impl Usual {
    pub(super) fn add(&mut self, time: Duration) {
        self.0 = Some(self.0.map_or(time, |usual| usual.saturating_mul(7).saturating_add(time) / 8));
    }

    pub(super) fn get(&self) -> Option<Duration> {
        self.0
    }
}
