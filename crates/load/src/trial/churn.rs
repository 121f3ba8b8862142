//! A client that connects, sends 16 random bytes, says that no more comes, reads the same 16 and the end; no second try.

use super::guest::Guest;
use super::random::mix;
use super::tally::{Cause, Phase, Tally};
use sockdrawer::{Closed, ConnectFailure, Context, Input, Local, Peer, Protocol, Service, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For each step: to stand, to get the echo, to see the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const SIZE: usize = 16;

pub(crate) struct Churn {
    tally: Arc<Tally>,
    seed: u64,
    next: AtomicU64,
}

impl Churn {
    pub(crate) fn new(tally: Arc<Tally>, seed: u64) -> Churn {
        Churn { tally, seed, next: AtomicU64::new(0) }
    }
}

impl Service for Churn {
    type Protocol = Visit;

    fn open(&self, _peer: &Peer) -> Visit {
        let place = self.seed.wrapping_add(self.next.fetch_add(2, Ordering::Relaxed));
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&mix(place).to_le_bytes());
        bytes[8..].copy_from_slice(&mix(place.wrapping_add(1)).to_le_bytes());
        Visit { tally: self.tally.clone(), bytes, echoed: 0, ended: false, failure: None }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.tally.failed(Guest::Churn, Phase::Connect, Cause::Errno(failure.errno));
    }
}

/// One connection of [`Churn`].
pub(crate) struct Visit {
    tally: Arc<Tally>,
    bytes: [u8; SIZE],
    echoed: usize,
    /// The server said that no more comes, after the whole echo.
    ended: bool,
    failure: Option<Cause>,
}

impl Visit {
    fn phase(&self) -> Phase {
        if self.echoed < SIZE { Phase::Echo } else { Phase::End }
    }

    fn fail(&mut self, cause: Cause) -> Step {
        self.failure = Some(cause);
        Step::Abort
    }
}

impl Protocol for Visit {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.tally.stood(Guest::Churn);
        cx.send(&self.bytes);
        cx.set_timer(PATIENCE);
        Step::Finish
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let (came, left) = (input.bytes(), &self.bytes[self.echoed..]);
        let equal = came.iter().zip(left).filter(|(came, sent)| came == sent).count();
        let wrong = came.len() - equal;
        self.echoed += equal.min(left.len());
        input.take_all();
        if wrong > 0 {
            self.tally.wrong(wrong);
            return self.fail(Cause::Wrong);
        }
        if self.echoed == SIZE {
            cx.set_timer(PATIENCE);
        }
        Step::Continue
    }

    fn finished(&mut self, _cx: &mut Context<'_>) -> Step {
        if self.echoed < SIZE {
            return self.fail(Cause::Early);
        }
        self.ended = true;
        Step::Close
    }

    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        self.fail(Cause::Late)
    }

    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        // It ends by itself, within its patience.
        Step::Continue
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        let cause = match (self.failure, why) {
            (None, _) if self.ended => return self.tally.churned(),
            (Some(cause), _) => cause,
            (None, Closed::Error(errno)) => Cause::Errno(errno),
            (None, _) => Cause::Stayed,
        };
        self.tally.failed(Guest::Churn, self.phase(), cause);
    }
}
