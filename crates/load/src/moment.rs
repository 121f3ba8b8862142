//! Points in time that cross a process boundary: an `Instant` alone cannot, but its clock is the same in all processes of a machine.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::{Duration, Instant};

/// When the clock of an `Instant`, CLOCK_MONOTONIC on Linux, was 0.
fn origin() -> Option<Instant> {
    Instant::now().checked_sub(clock_gettime(ClockId::Monotonic).try_into().ok()?)
}

pub(crate) fn serialize<S: Serializer>(moment: &Option<Instant>, to: S) -> Result<S::Ok, S::Error> {
    moment.and_then(|moment| Some(moment.duration_since(origin()?))).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    let since = Option::<Duration>::deserialize(from)?;
    Ok(since.and_then(|since| origin()?.checked_add(since)))
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
}
