//! A client that stays: it sends numbered data and compares what comes back, byte by byte, until it is asked to end.

use super::churn::PATIENCE;
use super::guest::Guest;
use super::kind::Kind;
use super::random::{Random, mix};
use super::tally::{Cause, Ending, Phase, Tally};
use sockdrawer::{Closed, ConnectFailure, Context, Input, Local, Peer, Protocol, Service, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The largest block that is under way at once; well below the server's smallest high-water mark.
const MOST_BYTES: u64 = 2048;
/// Smaller blocks tell a dropped byte from one that is late: the ones behind it are wrong.
const LEAST_BYTES: u64 = 64;
/// Most connections pause between blocks, so that the churn gets the processor; one in eight hardly does, so that at any moment
/// some have data under way.
const LONG_PAUSE: Duration = Duration::from_millis(40);
const SHORT_PAUSE: Duration = Duration::from_millis(4);

/// The clients of one set that stays.
pub(crate) struct Keep {
    tally: Arc<Tally>,
    guest: Guest,
    seed: u64,
    next: AtomicU64,
}

impl Keep {
    pub(crate) fn new(tally: Arc<Tally>, guest: Guest, seed: u64) -> Keep {
        Keep { tally, guest, seed, next: AtomicU64::new(0) }
    }
}

impl Service for Keep {
    type Protocol = Kept;

    fn open(&self, _peer: &Peer) -> Kept {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let salt = mix(self.seed ^ mix(number));
        let pause = if number.is_multiple_of(8) { SHORT_PAUSE } else { LONG_PAUSE };
        Kept {
            tally: self.tally.clone(),
            guest: self.guest,
            salt,
            random: Random::new(!salt),
            pause,
            sent: 0,
            verified: 0,
            stopping: false,
            result: None,
        }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.tally.failed(self.guest, Phase::Connect, Cause::Errno(failure.errno));
    }
}

/// How a connection ended, once known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Because the trial ends, in order.
    Stopped,
    /// Because the server said so, in order.
    Ended,
    /// Because of this.
    Failed(Cause),
}

/// One connection of [`Keep`].
pub(crate) struct Kept {
    tally: Arc<Tally>,
    guest: Guest,
    /// What makes this connection's bytes differ from the others'.
    salt: u64,
    random: Random,
    pause: Duration,
    /// Bytes sent so far: the number of the next one.
    sent: u64,
    /// Bytes that came back and were right.
    verified: u64,
    stopping: bool,
    result: Option<Outcome>,
}

/// Byte `number` of the data: part of a word that depends on all of its number, so that a lost, doubled or moved byte shows at once.
fn byte(salt: u64, number: u64) -> u8 {
    let word = mix(salt.wrapping_add(number / 8)).to_le_bytes();
    let [place, ..] = (number % 8).to_le_bytes();
    word[usize::from(place)]
}

impl Kept {
    fn send(&mut self, cx: &mut Context<'_>) -> Step {
        let size = LEAST_BYTES + self.random.below(MOST_BYTES - LEAST_BYTES + 1);
        let mut block = [0; 64];
        let mut left = size;
        while left > 0 {
            let part = left.min(block.len() as u64);
            let used = usize::try_from(part).expect("at most the block's length");
            for (slot, number) in block[..used].iter_mut().zip(self.sent..) {
                *slot = byte(self.salt, number);
            }
            cx.send(&block[..used]);
            self.sent += part;
            left -= part;
        }
        cx.set_timer(PATIENCE);
        Step::Continue
    }

    /// All came back: pause, or end when the trial does.
    fn rest(&mut self, cx: &mut Context<'_>) -> Step {
        if self.stopping {
            cx.set_timer(PATIENCE);
            return Step::Finish;
        }
        let most = u64::try_from(self.pause.as_micros()).expect("a pause is short");
        cx.set_timer(Duration::from_micros(self.random.below(most)));
        Step::Continue
    }

    fn fail(&mut self, cause: Cause) -> Step {
        self.result = Some(Outcome::Failed(cause));
        Step::Abort
    }

    fn resting(&self) -> bool {
        self.verified == self.sent
    }
}

impl Protocol for Kept {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.tally.stood(self.guest);
        self.send(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let came = input.bytes();
        let right = |(came, number): (&u8, u64)| number < self.sent && *came == byte(self.salt, number);
        let equal = came.iter().zip(self.verified..).filter(|pair| right(*pair)).count();
        let wrong = came.len() - equal;
        input.take_all();
        if wrong > 0 {
            self.tally.wrong(wrong);
            return self.fail(Cause::Wrong);
        }
        self.verified += equal as u64;
        if !self.resting() {
            return Step::Continue;
        }
        self.tally.echoed();
        self.rest(cx)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        match (self.resting(), self.stopping) {
            (true, false) => self.send(cx),
            _ => self.fail(Cause::Late),
        }
    }

    /// The server's end. A block that was under way when the server was asked to end may be unanswered, wholly or in part: an
    /// echo has no word for "this was my last". What did come back was compared. That answers are whole is for the requests to see.
    fn finished(&mut self, _cx: &mut Context<'_>) -> Step {
        if self.stopping && self.resting() {
            self.result = Some(Outcome::Stopped);
        } else if self.guest == Guest::Second {
            self.result = Some(Outcome::Ended);
        } else {
            return self.fail(Cause::Early);
        }
        Step::Close
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.stopping = true;
        if self.resting() { self.rest(cx) } else { Step::Continue }
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        let cause = match (self.result, why) {
            (Some(Outcome::Stopped), _) => return,
            (Some(Outcome::Ended), _) if matches!(self.tally.current(), Kind::Drain | Kind::Purge) => {
                return self.tally.ended(self.guest, Ending::Orderly);
            }
            (Some(Outcome::Ended), _) => Cause::Early,
            (None, Closed::Error(_)) if self.guest == Guest::Second && self.tally.current() == Kind::Kill => {
                return self.tally.ended(self.guest, Ending::Reset);
            }
            (Some(Outcome::Failed(cause)), _) => cause,
            (None, Closed::Error(errno)) => Cause::Errno(errno),
            (None, _) => Cause::Stayed,
        };
        // Wrong bytes have their own column; the connection was ended because of them.
        let phase = if self.resting() { Phase::End } else { Phase::Echo };
        if cause != Cause::Wrong {
            self.tally.failed(self.guest, phase, cause);
        }
    }
}
