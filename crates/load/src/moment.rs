//! Points in time that cross a process boundary: an `Instant` alone cannot, but all processes of a machine share its clock, and what is between the
//! clocks of two machines can be measured.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::{Duration, Instant};

/// Returns when the clock of an `Instant`, CLOCK_MONOTONIC on Linux, was 0.
fn origin() -> Option<Instant> {
    Instant::now().checked_sub(now())
}

/// Returns this moment, as the time since the clock was 0.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default()
}

/// Converts a moment to the time since the clock was 0.
pub(crate) fn since_boot(moment: Instant) -> Duration {
    origin().map_or(Duration::ZERO, |origin| moment.saturating_duration_since(origin))
}

/// Returns the moment at which the clock has this time since it was 0.
pub(crate) fn at(since: Duration) -> Option<Instant> {
    origin()?.checked_add(since)
}

pub(crate) fn serialize<S: Serializer>(moment: &Option<Instant>, to: S) -> Result<S::Ok, S::Error> {
    moment.map(since_boot).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    Ok(Option::<Duration>::deserialize(from)?.and_then(at))
}

/// Time by which a clock is ahead of another; below 0 it is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    nanoseconds: i64,
}

impl Ahead {
    /// Returns how far the second clock is ahead of the first, when both are read at one moment.
    pub(crate) fn between(first: Duration, second: Duration) -> Ahead {
        let nanoseconds = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let ahead = nanoseconds(second) - nanoseconds(first);
        Ahead { nanoseconds: i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX }) }
    }

    pub(crate) fn middle(self, other: Ahead) -> Ahead {
        Ahead { nanoseconds: self.nanoseconds.midpoint(other.nanoseconds) }
    }

    pub(crate) fn seconds(self) -> f64 {
        let size = Duration::from_nanos(self.nanoseconds.unsigned_abs()).as_secs_f64();
        if self.nanoseconds < 0 { -size } else { size }
    }

    /// Returns what the clock that is ahead says when the other says `time`.
    pub(crate) fn later(self, time: Duration) -> Duration {
        let size = Duration::from_nanos(self.nanoseconds.unsigned_abs());
        if self.nanoseconds < 0 { time.saturating_sub(size) } else { time.saturating_add(size) }
    }

    /// Corrects a moment that was noted by the clock that is ahead as if it were this clock's own.
    pub(crate) fn correct(self, moment: &mut Option<Instant>) {
        let size = Duration::from_nanos(self.nanoseconds.unsigned_abs());
        *moment = moment.and_then(|noted| if self.nanoseconds < 0 { noted.checked_add(size) } else { noted.checked_sub(size) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Wrapped(#[serde(with = "super")] Option<Instant>);

    #[test]
    fn a_moment_is_the_same_elsewhere() {
        let moment = Instant::now() - Duration::from_millis(250);
        let there = |wrapped: &Wrapped| -> Wrapped {
            postcard::from_bytes(&postcard::to_allocvec(wrapped).expect("memory takes it")).expect("it was written like this")
        };
        let arrived = there(&Wrapped(Some(moment))).0.expect("there was one");
        let off = arrived.max(moment) - arrived.min(moment);
        assert!(off < Duration::from_millis(50), "{off:?}");
        assert_eq!(there(&Wrapped(None)).0, None);
    }

    #[test]
    fn a_clock_that_is_ahead_or_behind_is_corrected() {
        let (early, late) = (Duration::from_secs(5), Duration::from_secs(3_605));
        for (mine, theirs) in [(early, late), (late, early), (early, early)] {
            let ahead = Ahead::between(mine, theirs);
            assert_eq!(ahead.later(mine), theirs);
            assert_eq!(ahead.seconds(), theirs.as_secs_f64() - mine.as_secs_f64());
            let moment = Instant::now() + late;
            let mut noted = Some(if theirs > mine { moment + (theirs - mine) } else { moment - (mine - theirs) });
            ahead.correct(&mut noted);
            assert_eq!(noted, Some(moment));
        }
    }
}
