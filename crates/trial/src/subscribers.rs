//! Kept clients that hear each other: each subscribes, then publishes again and again, and hears what all of them publish.

use crate::clients::{Cause, PATIENCE, Phase, Witness};
use crate::deliveries::Deliveries;
use crate::random::{Random, mix};
use crate::script::Broadcast;
use sockdrawer::{Closed, Context, Input, Local, Note, Peer, Protocol, Service, Step, connecting::ConnectFailure};
use sockdrawer_catalog::Answer;
use sockdrawer_catalog::dialogue::{Reading, Reply};
use sockdrawer_catalog::escapes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages per second that all clients together hear. Each message comes to all clients, so the clients publish the more seldom the more they are.
const HEARD_PER_SECOND: u64 = 20_000;
/// The minimum of the mean pause between two messages of a client.
const SHORTEST_PAUSE: Duration = Duration::from_millis(4);
/// Maximum of bytes of a wrong message that are shown.
const SHOWN: usize = 100;

/// Clients that stay and hear each other.
pub struct Subscribers<W> {
    broadcast: Arc<Broadcast>,
    deliveries: Arc<Deliveries>,
    witness: Arc<W>,
    pause: Duration,
    seed: u64,
}

impl<W: Witness> Subscribers<W> {
    /// Creates this number of clients, that report to this witness and this book. Their pauses come from `seed`.
    pub fn new(broadcast: Broadcast, deliveries: Arc<Deliveries>, witness: Arc<W>, clients: usize, seed: u64) -> Subscribers<W> {
        let clients = clients as u64;
        let pause = Duration::from_micros(clients.saturating_mul(clients).saturating_mul(1_000_000) / HEARD_PER_SECOND);
        Subscribers { broadcast: Arc::new(broadcast), deliveries, witness, pause: pause.max(SHORTEST_PAUSE), seed }
    }
}

impl<W: Witness> Service for Subscribers<W> {
    type Protocol = Subscriber<W>;

    fn open(&self, _peer: &Peer) -> Subscriber<W> {
        let number = self.deliveries.comes();
        Subscriber {
            broadcast: self.broadcast.clone(),
            deliveries: self.deliveries.clone(),
            witness: self.witness.clone(),
            random: Random::new(mix(self.seed ^ !(number as u64))),
            pause: self.pause,
            number,
            turn: 0,
            stopping: false,
            ended: None,
        }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.witness.failed(Phase::Connect, Cause::Errno(failure.errno));
    }
}

/// A connection of [`Subscribers`].
pub struct Subscriber<W> {
    broadcast: Arc<Broadcast>,
    deliveries: Arc<Deliveries>,
    witness: Arc<W>,
    random: Random,
    pause: Duration,
    number: usize,
    /// The turn at the beginning of the connection that is under way; after the last it has subscribed.
    turn: usize,
    stopping: bool,
    /// The cause that ended the connection, but for an error; None with an orderly end, because the trial ends.
    ended: Option<Option<Cause>>,
}

/// The next of the bytes that came.
enum Next {
    /// A part of something.
    Part,
    /// A message of this length and number.
    Message(usize, u64),
    /// The awaited answer, of this length.
    Answer(usize),
    Wrong,
}

/// Reads what these bytes begin with, if it is as expected.
fn read(expect: &Reply, bytes: &[u8]) -> (Answer, usize, Option<u64>) {
    let mut reading = Reading::default();
    let (taken, answer) = expect.take(&mut reading, bytes);
    (answer, taken, reading.number())
}

impl<W: Witness> Subscriber<W> {
    fn has_subscribed(&self) -> bool {
        self.turn == self.broadcast.first().len()
    }

    /// Sends what the beginning of the connection has next, or goes on to publish.
    fn begin(&mut self, cx: &mut Context<'_>) {
        let broadcast = self.broadcast.clone();
        for turn in &broadcast.first()[self.turn..] {
            if let Some(send) = &turn.send {
                cx.send(&send.bytes(Deliveries::number(self.number, 0)));
            }
            if turn.expect.is_some() {
                return cx.set_timer(PATIENCE);
            }
            self.turn += 1;
        }
        // The last turn is answered: the server has subscribed this client.
        self.deliveries.subscribes(self.number);
        self.rest(cx);
    }

    fn rest(&mut self, cx: &mut Context<'_>) {
        let most = u64::try_from(2 * self.pause.as_micros()).unwrap_or(u64::MAX);
        cx.set_timer(Duration::from_micros(self.random.below(most)));
    }

    /// Returns what comes next: the shorter of a message and an awaited answer, because an expression that passes over what is before a message would
    /// take the answer along.
    fn next(&self, bytes: &[u8]) -> Next {
        let message = read(self.broadcast.message(), bytes);
        let awaited = self.broadcast.first().get(self.turn).and_then(|turn| turn.expect.as_ref());
        let answer = awaited.map(|expect| read(expect, bytes));
        let own = |number: &Option<u64>| number.is_none_or(|number| number == Deliveries::number(self.number, 0));
        match (message, answer) {
            ((Answer::Complete, taken, Some(_)), Some((Answer::Complete, shorter, number)))
                if shorter < taken && own(&number) =>
            {
                Next::Answer(shorter)
            }
            ((Answer::Complete, taken, Some(number)), _) => Next::Message(taken, number),
            (_, Some((Answer::Complete, taken, number))) if own(&number) => Next::Answer(taken),
            ((Answer::Partial, ..), _) | (_, Some((Answer::Partial, ..))) => Next::Part,
            _ => Next::Wrong,
        }
    }

    fn wrong(&mut self, bytes: &[u8], why: &str) -> Step {
        let came = escapes::format(&bytes[..bytes.len().min(SHOWN)]);
        self.witness.unexpected(format!("{why} `{}` was expected, and `{came}` came", self.broadcast.message()), Instant::now());
        self.witness.wrong(bytes.len());
        self.fail(Cause::Wrong)
    }

    fn end(cx: &mut Context<'_>) -> Step {
        cx.set_timer(PATIENCE);
        Step::EndOutput
    }

    fn fail(&mut self, cause: Cause) -> Step {
        self.ended = Some(Some(cause));
        Step::Abort
    }
}

impl<W: Witness> Protocol for Subscriber<W> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.witness.stood();
        self.begin(cx);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while !input.bytes().is_empty() {
            match self.next(input.bytes()) {
                Next::Part => break,
                Next::Message(taken, number) if !self.deliveries.hears(self.number, number) => {
                    return self.wrong(&input.bytes()[..taken], "a message that a client published, as");
                }
                Next::Message(taken, _) => {
                    self.witness.answered();
                    input.take(taken);
                }
                Next::Answer(taken) => {
                    input.take(taken);
                    self.turn += 1;
                    self.begin(cx);
                    if self.stopping && self.has_subscribed() {
                        return Subscriber::<W>::end(cx);
                    }
                }
                Next::Wrong => {
                    let awaited = self.broadcast.first().get(self.turn).and_then(|turn| turn.expect.as_ref());
                    let awaited = awaited.map_or_else(String::new, |expect| format!("`{expect}`, or "));
                    return self.wrong(input.bytes(), &format!("{awaited}a message as"));
                }
            }
        }
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        if self.stopping || !self.has_subscribed() {
            return self.fail(Cause::Late);
        }
        let Some(number) = self.deliveries.publishes(self.number) else { return Step::Continue };
        cx.send(&self.broadcast.publish().bytes(number));
        self.rest(cx);
        Step::Continue
    }

    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        self.ended = Some((!self.stopping).then_some(Cause::Early));
        Step::Close
    }

    /// Closes the connection: the trial is over.
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        self.ended = Some(None);
        Step::Close
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.stopping = true;
        // A client that the server never subscribed has failed, which its timer tells.
        if self.has_subscribed() { Subscriber::<W>::end(cx) } else { Step::Continue }
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        self.deliveries.goes(self.number);
        let cause = match (self.ended, why) {
            // Wrong bytes were reported already.
            (Some(None | Some(Cause::Wrong)), _) => return,
            (Some(Some(cause)), _) => cause,
            (None, Closed::Error(errno)) => Cause::Errno(errno),
            (None, Closed::Aborted) => Cause::Tls,
            (None, _) => Cause::Stayed,
        };
        self.witness.failed(if self.has_subscribed() { Phase::Between } else { Phase::Exchange }, cause);
    }
}

#[cfg(test)]
mod tests;
