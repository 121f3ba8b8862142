//! Clients that stay: they send numbered data and compare what comes back, byte by byte, until they are asked to end.

use super::churn::Told;
use super::guest::Guest;
use super::kind::Kind;
use super::tally::{Cause, Ending, Phase, Tally};
use crate::{self as trial, Echo};
use std::sync::Arc;

/// The largest block that is under way at once; well below the server's smallest high-water mark.
const MOST_BYTES: u64 = 2048;
/// Smaller blocks tell a dropped byte from one that is late: the ones behind it are wrong.
const LEAST_BYTES: u64 = 64;

/// The clients of one set that stays.
pub(crate) type Keep = trial::Keep<Echo, Told>;

pub(crate) fn keep(tally: &Arc<Tally>, guest: Guest, seed: u64) -> Keep {
    let told = Told { tally: tally.clone(), guest };
    trial::Keep::new(Echo::new(seed, LEAST_BYTES, MOST_BYTES), Arc::new(told), seed)
}

impl Told {
    /// The second set is there to be ended: whether this is the end that the change in force asks for.
    ///
    /// A block that was under way when the server was asked to end may be unanswered, wholly or in part: an echo has no word for
    /// "this was my last". What did come back was compared. That answers are whole is for the requests to see.
    pub(super) fn ended_as_asked(&self, phase: Phase, cause: Cause) -> bool {
        let ending = match (self.guest, phase, cause, self.tally.current()) {
            (Guest::Second, Phase::Echo | Phase::End, Cause::Early, Kind::Drain | Kind::Purge) => Ending::Orderly,
            (Guest::Second, Phase::Echo | Phase::End, Cause::Errno(_), Kind::Kill) => Ending::Reset,
            _ => return false,
        };
        self.tally.ended(self.guest, ending);
        true
    }
}
