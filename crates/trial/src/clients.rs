//! The two sets of clients of a trial: the churn, which comes and goes, and connections that stay. They report to a [`Witness`].

use super::exchange::{Dialogue, Exchange, Judgement};
use super::random::{Random, mix};
use super::talk::Talk;
use sockdrawer::{Closed, Context, Input, Local, Note, Peer, Protocol, Service, Step, connecting::ConnectFailure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The timeout of each step of a client: the connect, the answer, the end.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum pause between exchanges of most connections that stay, so that the churn gets the processor. One in eight has a tenth of it, so
/// that at any moment some exchanges are under way.
const LONG_PAUSE: Duration = Duration::from_millis(40);
/// Time by which the pause is longer for each connection that stays: all of them have about 4,000 exchanges per second.
const PAUSE_OF_EACH: Duration = Duration::from_millis(1);
/// The share of requests of a connection that stays, one in so many, that comes in two pieces, with a pause between: a change finds the first half of some.
const IN_PIECES: u64 = 4;

/// The phase in which a client's connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the connection was established.
    Connect,
    /// Between a request and the end of its answer.
    Exchange,
    /// Between exchanges, on a connection that was to stay.
    Between,
    /// Between a request and the first byte of its answer, on a connection that has answered before: the server may have closed it at rest, while the
    /// request was on its way.
    Unheard,
    /// After the answer, before its orderly end.
    End,
}

/// Reason why a client's connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A system call failed with this errno.
    Errno(i32),
    /// The server ended the connection, unannounced.
    Early,
    /// The server ended the connection as its last answer had announced.
    Announced,
    /// The timeout [`PATIENCE`] passed.
    Late,
    /// The received bytes are not the expected ones.
    Wrong,
    /// TLS failed: the handshake, or a record after it.
    Tls,
    /// The server refused the WebSocket, or answered by none.
    Refused,
    /// The connection was still open when the clients were stopped.
    Stayed,
}

/// Receives the results of a set of clients. It is called on the loops of a pool that connects, so it must not block.
pub trait Witness: Send + Sync + 'static {
    /// Notes that a connection was established.
    fn stood(&self) {}

    /// Notes that an answer was complete and right.
    fn answered(&self) {}

    /// Notes that a connection of the churn ended in order, after its answer.
    fn ended(&self) {}

    /// Counts bytes that were not the expected ones.
    fn wrong(&self, bytes: usize);

    /// Takes an answer that was wrong, described, and found out now; one that is late was asked for [`PATIENCE`] ago. Default: nothing.
    fn unexpected(&self, _answer: String, _asked: Instant) {}

    /// Notes that the server closed a WebSocket, with this code. Default: nothing.
    fn closed_with(&self, _code: u16) {}

    /// Notes that a connection failed, or could not be made. Wrong bytes on a connection that stays are reported by [`Witness::wrong`] only.
    fn failed(&self, phase: Phase, cause: Cause);
}

/// Returns when an answer was asked for that is late now.
fn long_ago() -> Instant {
    let now = Instant::now();
    now.checked_sub(PATIENCE).unwrap_or(now)
}

/// The churn: clients that connect, ask once, get their answer and end, without a second try.
pub struct Churn<E, W> {
    exchange: E,
    witness: Arc<W>,
}

impl<E: Exchange, W: Witness> Churn<E, W> {
    /// Creates clients that use this exchange and report to this witness.
    pub fn new(exchange: E, witness: Arc<W>) -> Churn<E, W> {
        Churn { exchange, witness }
    }
}

impl<E: Exchange, W: Witness> Service for Churn<E, W> {
    type Protocol = Visit<E::Dialogue, W>;

    fn open(&self, _peer: &Peer) -> Visit<E::Dialogue, W> {
        Visit {
            talk: Talk::new(self.exchange.dialogue()),
            witness: self.witness.clone(),
            at_once: self.exchange.ends_at_once(),
            hears_others: self.exchange.hears_others(),
            answered: false,
            ended: false,
            failure: None,
        }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.witness.failed(Phase::Connect, Cause::Errno(failure.errno));
    }
}

/// Connection of [`Churn`].
pub struct Visit<D, W> {
    talk: Talk<D>,
    witness: Arc<W>,
    at_once: bool,
    hears_others: bool,
    answered: bool,
    /// The server's stream ended, after the whole answer.
    ended: bool,
    failure: Option<Cause>,
}

impl<D: Dialogue, W: Witness> Visit<D, W> {
    fn ask(&mut self, cx: &mut Context<'_>) -> Step {
        self.talk.ask(cx);
        if self.at_once { Step::EndOutput } else { Step::Continue }
    }

    fn fail(&mut self, cause: Cause) -> Step {
        self.failure = Some(cause);
        Step::Abort
    }

    fn wrong(&mut self, bytes: usize) -> Step {
        self.witness.unexpected(self.talk.describe(""), Instant::now());
        self.witness.wrong(bytes);
        self.fail(Cause::Wrong)
    }

    fn surplus(&mut self, bytes: &[u8]) -> Step {
        self.witness.unexpected(self.talk.surplus(bytes), Instant::now());
        self.witness.wrong(bytes.len());
        self.fail(Cause::Wrong)
    }

    /// Takes a complete answer, and the `further` bytes that came behind it.
    fn whole(&mut self, further: &[u8], announced: bool, cx: &mut Context<'_>) -> Step {
        self.answered = true;
        self.witness.answered();
        if !further.is_empty() && !self.hears_others {
            return self.surplus(further);
        }
        cx.set_timer(PATIENCE);
        // The side that closes first keeps the port in TIME_WAIT for a minute: a server that announced its end gets the time for it.
        if self.at_once || announced { Step::Continue } else { Step::EndOutput }
    }
}

impl<D: Dialogue, W: Witness> Protocol for Visit<D, W> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.witness.stood();
        self.ask(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let mut rest = input.take_all();
        loop {
            if self.answered {
                return if self.hears_others { Step::Continue } else { self.surplus(rest) };
            }
            return match self.talk.judge(rest) {
                Judgement::More => Step::Continue,
                Judgement::Whole(taken) => self.whole(&rest[taken..], false, cx),
                Judgement::Last(taken) => self.whole(&rest[taken..], true, cx),
                Judgement::Next(taken) if taken == rest.len() => self.ask(cx),
                Judgement::Next(taken) if self.hears_others => {
                    let _ = self.ask(cx);
                    rest = &rest[taken..];
                    continue;
                }
                // The rest came before it was asked for.
                Judgement::Next(taken) => self.surplus(&rest[taken..]),
                Judgement::Wrong(bytes) => self.wrong(bytes),
            };
        }
    }

    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        if !self.answered {
            match self.talk.dialogue.ended() {
                Judgement::Wrong(bytes) => return self.wrong(bytes),
                Judgement::Whole(_) | Judgement::Last(_) => {}
                Judgement::More | Judgement::Next(_) => return self.fail(Cause::Early),
            }
            self.witness.answered();
            self.answered = true;
        }
        self.ended = true;
        Step::Close
    }

    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        if !self.answered {
            self.witness.unexpected(self.talk.late(), long_ago());
        }
        self.fail(Cause::Late)
    }

    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        // The connection ends by itself, within its timeout.
        Step::Continue
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        let cause = match (self.failure, why) {
            (None, _) if self.ended => return self.witness.ended(),
            (Some(cause), _) => cause,
            (None, Closed::Error(errno)) => Cause::Errno(errno),
            // No decision of this client.
            (None, Closed::Aborted) => Cause::Tls,
            (None, _) => Cause::Stayed,
        };
        self.witness.failed(if self.answered { Phase::End } else { Phase::Exchange }, cause);
    }
}

/// Clients that stay: each exchanges on its connection all the time, until it is asked to end.
pub struct Keep<E, W> {
    exchange: E,
    witness: Arc<W>,
    seed: u64,
    in_pieces: bool,
    longest_pause: Duration,
    next: AtomicU64,
}

impl<E: Exchange, W: Witness> Keep<E, W> {
    /// Creates clients that use this exchange and report to this witness. Their pauses come from `seed`.
    pub fn new(exchange: E, witness: Arc<W>, seed: u64) -> Keep<E, W> {
        Keep { exchange, witness, seed, in_pieces: false, longest_pause: LONG_PAUSE, next: AtomicU64::new(0) }
    }

    /// Lets this number of connections pause for longer, so that all of them together do not keep this machine, and
    /// the server's, from everything else.
    pub(crate) fn of(mut self, connections: usize) -> Keep<E, W> {
        let share = PAUSE_OF_EACH.saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX));
        self.longest_pause = LONG_PAUSE.max(share).min(PATIENCE);
        self
    }

    /// Sends some requests in two pieces, with a pause between.
    pub(crate) fn in_pieces(mut self, in_pieces: bool) -> Keep<E, W> {
        self.in_pieces = in_pieces;
        self
    }
}

impl<E: Exchange, W: Witness> Service for Keep<E, W> {
    type Protocol = Kept<E::Dialogue, W>;

    fn open(&self, _peer: &Peer) -> Kept<E::Dialogue, W> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Kept {
            talk: Talk::new(self.exchange.dialogue()),
            witness: self.witness.clone(),
            random: Random::new(mix(self.seed ^ !number)),
            pause: if number.is_multiple_of(8) { self.longest_pause / 10 } else { self.longest_pause },
            in_pieces: self.in_pieces,
            left: Vec::new(),
            under_way: false,
            heard: true,
            announced: false,
            stopping: false,
            leaving: false,
            result: None,
        }
    }

    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.witness.failed(Phase::Connect, Cause::Errno(failure.errno));
    }
}

/// Result of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It ended in order, because the trial ends.
    Stopped,
    /// It ended by a failure of this cause.
    Failed(Cause),
}

/// Connection of [`Keep`].
pub struct Kept<D, W> {
    talk: Talk<D>,
    witness: Arc<W>,
    random: Random,
    pause: Duration,
    in_pieces: bool,
    /// The second piece of the request, until it is sent.
    left: Vec<u8>,
    /// A request was sent whose answer is not complete.
    under_way: bool,
    /// A byte of this answer has come, or none of an answer before it.
    heard: bool,
    /// The last answer announced that the server will end the connection.
    announced: bool,
    stopping: bool,
    /// The connection is closed at the next rest.
    leaving: bool,
    result: Option<Outcome>,
}

impl<D: Dialogue, W: Witness> Kept<D, W> {
    fn ask(&mut self, cx: &mut Context<'_>) -> Step {
        self.under_way = true;
        if !self.in_pieces || self.random.below(IN_PIECES) > 0 {
            self.talk.ask(cx);
            return Step::Continue;
        }
        let left = &mut self.left;
        self.talk.ask_by(|bytes| left.extend_from_slice(bytes));
        let first = usize::try_from(self.random.below(left.len().max(1) as u64)).expect("a part of a length");
        cx.send(left.drain(..first).as_slice());
        self.talk.in_pieces = true;
        self.pause(cx);
        Step::Continue
    }

    fn pause(&mut self, cx: &mut Context<'_>) {
        let most = u64::try_from(self.pause.as_micros()).expect("a pause is short");
        cx.set_timer(Duration::from_micros(self.random.below(most)));
    }

    /// Closes the connection, whatever the server would say.
    fn leave(&mut self) -> Step {
        self.result = Some(Outcome::Stopped);
        Step::Close
    }

    /// Rests after a complete answer: pauses, or ends when the trial does, or waits for the announced end.
    fn rest(&mut self, cx: &mut Context<'_>) -> Step {
        if self.leaving {
            return self.leave();
        }
        if self.stopping || self.announced {
            cx.set_timer(PATIENCE);
            return if self.stopping { Step::EndOutput } else { Step::Continue };
        }
        self.pause(cx);
        Step::Continue
    }

    fn whole(&mut self, further: &[u8], announced: bool, cx: &mut Context<'_>) -> Step {
        self.under_way = false;
        self.heard = false;
        self.announced = announced;
        self.witness.answered();
        if further.is_empty() { self.rest(cx) } else { self.surplus(further) }
    }

    fn wrong(&mut self, bytes: usize) -> Step {
        self.witness.unexpected(self.talk.describe(""), Instant::now());
        self.witness.wrong(bytes);
        self.fail(Cause::Wrong)
    }

    fn surplus(&mut self, bytes: &[u8]) -> Step {
        self.witness.unexpected(self.talk.surplus(bytes), Instant::now());
        self.witness.wrong(bytes.len());
        self.fail(Cause::Wrong)
    }

    fn fail(&mut self, cause: Cause) -> Step {
        self.result = Some(Outcome::Failed(cause));
        Step::Abort
    }
}

impl<D: Dialogue, W: Witness> Protocol for Kept<D, W> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.witness.stood();
        self.ask(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let came = input.take_all();
        self.heard = true;
        if !self.under_way {
            return self.surplus(came);
        }
        match self.talk.judge(came) {
            Judgement::More => Step::Continue,
            Judgement::Whole(taken) => self.whole(&came[taken..], false, cx),
            Judgement::Last(taken) => self.whole(&came[taken..], true, cx),
            Judgement::Next(taken) if taken == came.len() => self.ask(cx),
            // The rest came before it was asked for.
            Judgement::Next(taken) => self.surplus(&came[taken..]),
            Judgement::Wrong(bytes) => self.wrong(bytes),
        }
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        if !self.left.is_empty() {
            cx.send(&std::mem::take(&mut self.left));
            // The answer may have come before the end of the request.
            if self.under_way {
                cx.set_timer(PATIENCE)
            } else {
                self.pause(cx)
            }
            return Step::Continue;
        }
        match (self.under_way, self.stopping || self.announced) {
            (false, false) => return self.ask(cx),
            (true, _) => self.witness.unexpected(self.talk.late(), long_ago()),
            (false, true) => {}
        }
        self.fail(Cause::Late)
    }

    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        let judgement = if self.under_way { self.talk.dialogue.ended() } else { Judgement::More };
        match judgement {
            Judgement::Wrong(bytes) => return self.wrong(bytes),
            Judgement::Whole(_) | Judgement::Last(_) => {
                // An answer that ends with its connection announces it by its form.
                self.under_way = false;
                self.announced = true;
                self.witness.answered();
            }
            Judgement::More | Judgement::Next(_) => {}
        }
        self.result = Some(match (self.under_way, self.stopping, self.announced) {
            (false, true, _) => Outcome::Stopped,
            (false, false, true) => Outcome::Failed(Cause::Announced),
            _ => Outcome::Failed(Cause::Early),
        });
        Step::Close
    }

    /// Leaves, once no answer is under way: the trial is over.
    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        self.leaving = true;
        if self.under_way { Step::Continue } else { self.leave() }
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.stopping = true;
        if self.under_way { Step::Continue } else { self.rest(cx) }
    }

    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        let cause = match (self.result, why) {
            (Some(Outcome::Stopped), _) => return,
            // Wrong bytes were reported already, and the connection was ended because of them.
            (Some(Outcome::Failed(Cause::Wrong)), _) => return,
            (Some(Outcome::Failed(cause)), _) => cause,
            (None, Closed::Error(errno)) => Cause::Errno(errno),
            (None, Closed::Aborted) => Cause::Tls,
            (None, _) => Cause::Stayed,
        };
        let is_closed = matches!(cause, Cause::Early | Cause::Errno(_));
        let phase = match self.under_way {
            true if is_closed && !self.heard => Phase::Unheard,
            true => Phase::Exchange,
            false => Phase::Between,
        };
        self.witness.failed(phase, cause);
    }
}

impl Cause {
    /// Returns the errno, if the cause is a system call's error.
    pub fn errno(self) -> Option<i32> {
        if let Cause::Errno(errno) = self { Some(errno) } else { None }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cause::Errno(number) => return write!(f, "{}", std::io::Error::from_raw_os_error(*number)),
            Cause::Early => "ended by the server",
            Cause::Announced => "ended by the server, as its answer announced",
            Cause::Late => "time-out",
            Cause::Wrong => "wrong bytes",
            Cause::Tls => "TLS failed, or was cut off",
            Cause::Refused => "no WebSocket",
            Cause::Stayed => "did not end",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::SHOWN;
    use crate::{Counter, Group, Scripted, Tally};
    use sockdrawer::Side;
    use sockdrawer::testing::{Bounds, Driver, peer};

    /// Returns a client of this script, whose request was sent.
    fn client(script: &str) -> (Arc<Tally>, Driver<Churn<Scripted, Counter>>) {
        let tally = Arc::new(Tally::new());
        let churn = Churn::new(Scripted::new(script.parse().expect("a script")), tally.witness(Group::Churn));
        (tally, Driver::open_with(churn, peer(Side::Connected, Duration::ZERO), Bounds::default()))
    }

    #[test]
    fn requests_of_connections_that_stay_come_in_pieces_too() {
        let tally = Arc::new(Tally::new());
        let script = Scripted::new("> PING.\n< PONG.\n".parse().expect("a script"));
        let keep = Keep::new(script, tally.witness(Group::Kept), 1).in_pieces(true);
        let mut client = Driver::open_with(keep, peer(Side::Connected, Duration::ZERO), Bounds::default());
        let mut in_two = 0;
        for _ in 0..100 {
            let (mut sent, mut pieces) = (client.sent(), 0);
            while sent.len() < 5 {
                pieces += u64::from(!sent.is_empty());
                client.advance(Duration::from_millis(1));
                sent.extend(client.sent());
            }
            assert_eq!(sent, b"PING.");
            in_two += pieces.min(1);
            client.receive(b"PONG.");
        }
        assert!((10..50).contains(&in_two), "{in_two}");
        assert_eq!((tally.total().wrong_bytes, client.closed()), (0, None));
    }

    #[test]
    fn a_long_wrong_answer_is_shortened() {
        let (tally, mut client) = client("> A.\n< /(?s).*!/");
        client.receive(&[b'x'; 60]);
        assert_eq!(tally.unexpected(), None, "it may become right");
        client.receive(&vec![b'x'; 70_000]);
        assert_eq!(tally.total().wrong_bytes, 70_000);
        assert_eq!(tally.unexpected().expect("it is wrong").0.matches('x').count(), SHOWN + 1, "and one of `expected`");
    }

    #[test]
    fn a_part_of_an_answer_that_stays_a_part_is_told() {
        let (tally, mut client) = client("> A.\n< b.\n");
        client.receive(b"b");
        client.advance(PATIENCE);
        assert_eq!(
            tally.unexpected().map(|(odd, _)| odd).as_deref(),
            Some("after `A.` `b.` was expected, and within 5s `b` came")
        );
    }

    #[test]
    fn the_first_of_several_unexpected_answers_is_kept() {
        let (tally, mut one) = client("> A.\n< b.\n");
        let script = "> A.\n< b.\n".parse().expect("a script");
        let churn = Churn::new(Scripted::new(script), tally.witness(Group::Churn));
        let mut other = Driver::open_with(churn, peer(Side::Connected, Duration::ZERO), Bounds::default());
        one.receive(b"c.");
        other.receive(b"d.");
        assert_eq!(tally.unexpected().map(|(odd, _)| odd).as_deref(), Some("after `A.` `b.` was expected, and `c.` came"));
    }
}
