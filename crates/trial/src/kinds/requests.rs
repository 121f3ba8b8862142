//! Clients that make slow requests, one or two at once, and the server's part of them. A server that is asked to end owes an answer to
//! every request that it has begun to read, but not to a request that was sent while the server's end was on its way.

use super::kind::Kind;
use super::ledger::Ledger;
use crate::Group;
use crate::PATIENCE;
use crate::tally::{Counter, Ending};
use crate::{Cause, Phase, Tally, Witness};
use crate::{Random, mix};
use sockdrawer::{Closed, Context, Input, Job, JobResult, Local, Peer, Protocol, Service, Step, connecting::ConnectFailure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A request: its connection, its number from 1, random bytes, and the milliseconds that its answer takes. The answer has every
/// bit turned.
pub(crate) const SIZE: usize = 32;
/// Maximum of requests at once.
const MOST: usize = 2;
/// The pause between an answer and the next request: few are under way, so that the churn gets the processor.
const PAUSE: Duration = Duration::from_millis(30);

type Request = [u8; SIZE];

fn word(bytes: &[u8], place: usize) -> u64 {
    let bytes = bytes[8 * place..8 * place + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// Does the server's part: it works on one request at a time, and records all that arrived.
pub(crate) fn work(ledger: &Ledger, input: &mut Input<'_>) -> Step {
    for request in input.bytes().chunks_exact(SIZE) {
        ledger.begin(word(request, 0), word(request, 1));
    }
    let Some((first, _)) = input.bytes().split_first_chunk::<SIZE>() else { return Step::Continue };
    let request: Request = *first;
    input.take(SIZE);
    Step::Work(Job::new(move || {
        match word(&request, 3) {
            0 => {}
            takes => thread::sleep(Duration::from_millis(takes)),
        }
        request.map(|byte| !byte)
    }))
}

/// Sends the job's answer.
pub(crate) fn answer(ledger: &Ledger, result: JobResult, cx: &mut Context<'_>) -> Step {
    match result.take::<Request>() {
        Ok(answer) => {
            ledger.done(!word(&answer, 0));
            cx.send(&answer);
            Step::Continue
        }
        // The client sees a reset, as for any failure of the server.
        Err(_) => Step::Abort,
    }
}

/// The clients.
pub(crate) struct Requests {
    tally: Arc<Tally>,
    counter: Arc<Counter>,
    ledger: Arc<Ledger>,
    seed: u64,
    next: AtomicU64,
}

impl Requests {
    pub(crate) fn new(tally: Arc<Tally>, ledger: Arc<Ledger>, seed: u64) -> Requests {
        let counter = tally.witness(Group::Requests);
        Requests { tally, counter, ledger, seed, next: AtomicU64::new(0) }
    }
}

impl Service for Requests {
    type Protocol = Asking;

    fn open(&self, _peer: &Peer) -> Asking {
        let connection = self.next.fetch_add(1, Ordering::Relaxed);
        self.ledger.open(connection);
        Asking {
            tally: self.tally.clone(),
            counter: self.counter.clone(),
            ledger: self.ledger.clone(),
            connection,
            random: Random::new(mix(self.seed ^ mix(connection))),
            asked: [0; MOST * SIZE],
            left: 0,
            sent: 0,
            stopping: false,
            result: None,
        }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.counter.failed(Phase::Connect, Cause::Errno(failure.errno));
    }
}

/// Result of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestOutcome {
    /// It ended in order, because the trial ends.
    Stopped,
    /// Ended by the server, which owed no answer.
    Ended,
    /// It ended by a failure of this cause.
    Failed(Cause),
}

/// Connection of [`Requests`].
pub(crate) struct Asking {
    tally: Arc<Tally>,
    counter: Arc<Counter>,
    ledger: Arc<Ledger>,
    connection: u64,
    random: Random,
    /// The requests under way, at its end.
    asked: [u8; MOST * SIZE],
    /// Bytes of their answers that are still to come.
    left: usize,
    /// Requests so far.
    sent: u64,
    stopping: bool,
    result: Option<RequestOutcome>,
}

impl Asking {
    fn ask(&mut self, cx: &mut Context<'_>) -> Step {
        // Answers take a while where a drain may meet them; else they cost the churn nothing. Not long: a server without workers
        // works on them in its loops.
        let draining = Kind::ALL[self.tally.change()] == Kind::Drain;
        self.left = if self.random.next().is_multiple_of(2) { SIZE } else { MOST * SIZE };
        let from = self.asked.len() - self.left;
        for request in self.asked[from..].chunks_exact_mut(SIZE) {
            self.sent += 1;
            let takes = if draining { 1 + self.random.below(4) / 3 } else { 0 };
            for (place, word) in [self.connection, self.sent, self.random.next(), takes].into_iter().enumerate() {
                request[8 * place..8 * place + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        cx.send(&self.asked[from..]);
        cx.set_timer(PATIENCE);
        Step::Continue
    }

    fn rest(&mut self, cx: &mut Context<'_>) -> Step {
        if self.stopping {
            cx.set_timer(PATIENCE);
            return Step::EndOutput;
        }
        let most = u64::try_from(PAUSE.as_micros()).expect("a pause is short");
        cx.set_timer(Duration::from_micros(self.random.below(most)));
        Step::Continue
    }

    fn fail(&mut self, cause: Cause) -> Step {
        self.result = Some(RequestOutcome::Failed(cause));
        Step::Abort
    }

    fn resting(&self) -> bool {
        self.left == 0
    }

    /// Returns true where the server began to read a request that is not completely answered.
    fn is_owed(&self) -> bool {
        let open = self.left.div_ceil(SIZE) as u64;
        self.ledger.begun(self.connection) > self.sent - open
    }
}

impl Protocol for Asking {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.counter.stood();
        self.ask(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let came = input.bytes();
        let awaited = &self.asked[self.asked.len() - self.left..];
        let equal = came.iter().zip(awaited).filter(|(came, asked)| **came == !**asked).count();
        let wrong = came.len() - equal;
        input.take_all();
        if wrong > 0 {
            self.counter.wrong(wrong);
            return self.fail(Cause::Wrong);
        }
        let before = self.left.div_ceil(SIZE);
        self.left -= equal;
        self.counter.exchanged((before - self.left.div_ceil(SIZE)) as u64);
        if self.resting() { self.rest(cx) } else { Step::Continue }
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        match (self.resting(), self.stopping) {
            (true, false) => self.ask(cx),
            _ => self.fail(Cause::Late),
        }
    }

    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        if self.is_owed() {
            return self.fail(Cause::Early);
        }
        self.result = Some(if self.stopping { RequestOutcome::Stopped } else { RequestOutcome::Ended });
        Step::Close
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.stopping = true;
        if self.resting() { self.rest(cx) } else { Step::Continue }
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        let cause = match (self.result, why) {
            (Some(RequestOutcome::Stopped), _) => return,
            (Some(RequestOutcome::Ended), _) if Kind::ALL[self.tally.change()] == Kind::Drain => {
                return self.tally.ended_as_asked(Group::Requests, Ending::Orderly);
            }
            (Some(RequestOutcome::Ended), _) => Cause::Early,
            (Some(RequestOutcome::Failed(cause)), _) => cause,
            (None, Closed::Error(errno)) => Cause::Errno(errno),
            (None, _) => Cause::Stayed,
        };
        // Wrong bytes have their own column; the connection was ended because of them.
        let phase = if self.resting() { Phase::Between } else { Phase::Exchange };
        if cause != Cause::Wrong {
            self.counter.failed(phase, cause);
        }
    }
}
