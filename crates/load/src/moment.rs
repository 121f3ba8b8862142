//! Points in time that cross a process boundary: an `Instant` means nothing elsewhere, but how long ago it was does.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::{Duration, Instant, SystemTime};

/// Since the epoch, by the wall clock: a step of it between two processes shifts the moment as much.
pub(crate) fn serialize<S: Serializer>(moment: &Option<Instant>, to: S) -> Result<S::Ok, S::Error> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    moment.map(|moment| since_epoch.saturating_sub(moment.elapsed())).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    let since_epoch = Option::<Duration>::deserialize(from)?;
    let ago = |since_epoch| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since_epoch).unwrap_or_default();
    Ok(since_epoch.and_then(|since_epoch| Instant::now().checked_sub(ago(since_epoch))))
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
