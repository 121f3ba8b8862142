//! Clients that stay: they send numbered data and compare the echo byte by byte, until they are asked to end.

use super::kind::Kind;
use crate::tally::{Counter, Ending};
use crate::{Cause, Echo, Group, Phase, Tally, Witness};
use std::sync::Arc;
use std::time::Instant;

/// The largest block under way at once; well below the server's smallest high-water mark.
const MAX_BYTES: u64 = 2048;
/// The smallest block: with several bytes a dropped byte is told from a late one, because the bytes behind it are wrong.
const LEAST_BYTES: u64 = 64;

/// The clients of a set that stays.
pub(crate) type Keep = crate::Keep<Echo, Stays>;

pub(crate) fn keep(tally: &Arc<Tally>, group: Group, seed: u64) -> Keep {
    let stays = Stays { tally: tally.clone(), group, counter: tally.witness(group) };
    Keep::new(Echo::new(seed, LEAST_BYTES, MAX_BYTES), Arc::new(stays), seed)
}

/// Counts the results of clients that stay. The second set is asked to end.
pub(crate) struct Stays {
    tally: Arc<Tally>,
    group: Group,
    counter: Arc<Counter>,
}

impl Stays {
    /// Returns the ending where this end is the one that the change in force asks for; None: it is another.
    ///
    /// A block that was under way when the server was asked to end may be unanswered, wholly or in part: an echo protocol cannot announce
    /// its last answer. The bytes that came back were compared. Whether answers are whole is tested by the requests.
    fn asked_for(&self, phase: Phase, cause: Cause) -> Option<Ending> {
        match (self.group, phase, cause, Kind::ALL[self.tally.change()]) {
            (_, Phase::Connect, ..) => None,
            (Group::Second, _, Cause::Early, Kind::Drain | Kind::Purge) => Some(Ending::Orderly),
            (Group::Second, _, Cause::Errno(_), Kind::Kill) => Some(Ending::Reset),
            _ => None,
        }
    }
}

impl Witness for Stays {
    fn stood(&self) {
        self.counter.stood();
    }

    fn answered(&self) {
        self.counter.answered();
    }

    fn wrong(&self, bytes: usize) {
        self.counter.wrong(bytes);
    }

    fn unexpected(&self, answer: String, asked: Instant) {
        self.counter.unexpected(answer, asked);
    }

    fn closed_with(&self, code: u16) {
        self.counter.closed_with(code);
    }

    fn failed(&self, phase: Phase, cause: Cause) {
        match self.asked_for(phase, cause) {
            Some(ending) => self.tally.ended_as_asked(self.group, ending),
            None => self.counter.failed(phase, cause),
        }
    }
}
