//! Clients that connect, send 16 random bytes, say that no more comes, read the same 16 and the end; no second try.

use super::guest::Guest;
use super::tally::{Cause, Phase, Tally};
use crate::{self as trial, Echo, Witness};
use std::sync::Arc;

const SIZE: u64 = 16;

pub(crate) type Churn = trial::Churn<Echo, Told>;

pub(crate) fn churn(tally: &Arc<Tally>, seed: u64) -> Churn {
    let told = Told { tally: tally.clone(), guest: Guest::Churn };
    trial::Churn::new(Echo::new(seed, SIZE, SIZE).ending_at_once(), Arc::new(told))
}

/// Brings what the clients meet with to the row of the change in force.
pub(crate) struct Told {
    pub(super) tally: Arc<Tally>,
    pub(super) guest: Guest,
}

impl Witness for Told {
    fn stood(&self) {
        self.tally.stood(self.guest);
    }

    fn answered(&self) {
        if self.guest != Guest::Churn {
            self.tally.echoed();
        }
    }

    fn ended(&self) {
        self.tally.churned();
    }

    fn wrong(&self, bytes: usize) {
        self.tally.wrong(bytes);
    }

    fn failed(&self, phase: trial::Phase, cause: trial::Cause) {
        let (phase, cause) = (met(phase), why(cause));
        if !self.ended_as_asked(phase, cause) {
            self.tally.failed(self.guest, phase, cause);
        }
    }
}

fn met(phase: trial::Phase) -> Phase {
    match phase {
        trial::Phase::Connect => Phase::Connect,
        trial::Phase::Exchange => Phase::Echo,
        trial::Phase::Between | trial::Phase::End => Phase::End,
    }
}

fn why(cause: trial::Cause) -> Cause {
    match cause {
        trial::Cause::Errno(errno) => Cause::Errno(errno),
        trial::Cause::Early | trial::Cause::Announced => Cause::Early,
        trial::Cause::Late => Cause::Late,
        trial::Cause::Wrong => Cause::Wrong,
        trial::Cause::Stayed => Cause::Stayed,
    }
}
