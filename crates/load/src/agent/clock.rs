//! Distance of the clock of another machine from this one's: four timestamps of a question and its answer, and of many the pair that took the least
//! time, because all that can be wrong is half of it.

use crate::moment::{self, Ahead};
use std::time::{Duration, Instant};

/// Knowledge of an agent's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) ahead: Ahead,
    pub(super) round_trip: Duration,
}

impl Clock {
    /// Creates a clock from a measurement: `sent` and `arrived` are by this clock, `heard` and `answered` by the other.
    pub(super) fn measured(sent: Duration, heard: Duration, answered: Duration, arrived: Duration) -> Clock {
        let (there, back) = (Ahead::between(sent, heard), Ahead::between(arrived, answered));
        let round_trip = arrived.saturating_sub(sent).saturating_sub(answered.saturating_sub(heard));
        Clock { ahead: there.middle(back), round_trip }
    }

    /// Returns the better of two.
    pub(super) fn or(self, other: Option<Clock>) -> Clock {
        other.filter(|other| other.round_trip <= self.round_trip).unwrap_or(self)
    }

    /// Converts a moment of this clock to the other.
    pub(super) fn there(&self, moment: Instant) -> Duration {
        self.ahead.later(moment::since_boot(moment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn an_hour_is_found_to_half_of_what_the_ways_differ() {
        // There it takes 3 ms, 1 ms until it is answered, and 1 ms back.
        let ahead = Clock::measured(ms(10_000), ms(3_610_003), ms(3_610_004), ms(10_005));
        assert_eq!((ahead.round_trip, ahead.ahead.later(ms(10_000))), (ms(4), ms(3_610_001)));
        let behind = Clock::measured(ms(3_610_000), ms(10_001), ms(10_001), ms(3_610_002));
        assert_eq!((behind.round_trip, behind.ahead.later(ms(3_610_000))), (ms(2), ms(10_000)));
        assert_eq!(ahead.or(Some(behind)), behind, "the shorter round trip");
        assert_eq!(behind.or(Some(ahead)), behind);
        assert_eq!(ahead.or(None), ahead);
    }
}
