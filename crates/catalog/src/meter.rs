//! Reports of a client, to be counted.
//!
//! ```
//! use sockdrawer::testing::Driver;
//! use sockdrawer_catalog::meter::{End, Meter, Phase};
//! use sockdrawer_catalog::{Budget, Client, Pace, ping};
//! use std::time::{Duration, Instant};
//!
//! #[derive(Default)]
//! struct Count {
//!     operations: u64,
//! }
//! impl Meter for Count {
//!     fn connected(&mut self, _took: Duration) {}
//!     fn operation(&mut self, _scheduled: Instant, _sent: Instant, _now: Instant) {
//!         self.operations += 1;
//!     }
//!     fn failed(&mut self, _phase: Phase, _errno: Option<i32>) {}
//!     fn closed(&mut self, _end: End) {}
//! }
//!
//! let pace = Pace { interval: Duration::ZERO.into(), timeout: Duration::from_secs(1), budget: Budget::Each(2), lifetime: None, seed: 0 };
//! let mut connection = Driver::open(Client::new(ping::Question, pace, Count::default));
//! connection.receive(b"Pong");
//! connection.receive(b"Pong");
//! assert_eq!(connection.local::<Count>().map(|count| count.operations), Some(2));
//! ```

use rustix::io::Errno;
use sockdrawer::{Closed, Context, Local, connecting::ConnectFailure};
use std::time::{Duration, Instant};

/// Errno that a timeout of a client is reported as: the one that the timeouts of the kernel have.
pub(crate) const TIMED_OUT: Option<i32> = Some(Errno::TIMEDOUT.raw_os_error());

/// Counts for the connections of one loop. A client service makes one for each loop ([`sockdrawer::Service::local`]), so nothing
/// here needs a lock. Every connection reports `connected` first and `closed` last, once each.
pub trait Meter: Send + 'static {
    /// Notes that a connection stands; connecting took this long.
    fn connected(&mut self, took: Duration);

    /// Notes the first byte of the connection's first answer, this long after its question was sent.
    fn first_byte(&mut self, _after: Duration) {}

    /// Notes that a question was sent: its operation will succeed, or fail, or end with its connection. Clients of `echo`, `ping` and other dialogues
    /// only.
    fn asked(&mut self) {}

    /// Notes that an operation succeeded at `now`. `sent` is when its question was written, `scheduled` when it should have been: from there latency
    /// counts, or a slow server would slow the questions and look fast. For a client whose operation is a connection, `scheduled` is when the connect
    /// began.
    fn operation(&mut self, scheduled: Instant, sent: Instant, now: Instant);

    /// Notes by how much the client itself was behind its schedule with a question that its timer asks, whatever the server did. Clients that rest
    /// between questions only.
    fn lag(&mut self, _lag: Duration) {}

    /// Counts `messages` operations with equal times that succeeded at once; a histogram records them as one. Clients of `acks` only.
    fn acknowledged(&mut self, messages: u64, scheduled: Instant, sent: Instant, now: Instant) {
        (0..messages).for_each(|_| self.operation(scheduled, sent, now));
    }

    /// Counts messages that were written, and the bytes of their headers and payloads. Clients of `acks` only.
    fn written(&mut self, _messages: u64, _bytes: u64) {}

    /// Counts the acks that a read brought. Clients of `acks` only.
    fn acks(&mut self, _acks: u64) {}

    /// Counts the messages of a connection that has ended that were written and not acknowledged: after a failure, or because this side ended it.
    /// Clients of `acks` only; what was written is what was acknowledged and these.
    fn unacknowledged(&mut self, _messages: u64) {}

    /// Notes that something failed. `errno` is the socket's, `ETIMEDOUT` for a timeout, and None where no error number tells it: the peer ended the
    /// stream or sent wrong bytes.
    fn failed(&mut self, phase: Phase, errno: Option<i32>);

    /// Notes that the connection has ended.
    fn closed(&mut self, end: End);
}

/// Thing that a client was waiting for when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Phase {
    /// The connection: none came about.
    Connect,
    /// The kernel taking the question: the peer was gone when it was written.
    Send,
    /// The whole answer.
    Answer,
    /// The right bytes: others came.
    Verify,
    /// A status that says the request was served: another came, which is the number in the errno's place. Clients of `http` only.
    Status,
    /// An answer of HTTP: what came is none. Clients of `http` only.
    Format,
    /// The rest of an answer: the peer ended the connection within it. Clients of `http` only.
    Cut,
    /// The end of the stream after the answer.
    End,
    /// Nothing: the connection was at rest, and the peer or the network ended it.
    Closed,
    /// Nothing yet: on a connection that had just been established no question was due, and the peer or the network ended it. Clients that
    /// rest between questions only.
    Unused,
    /// A callback of the client itself: it panicked or could not keep up. A bug of the client.
    Client,
}

impl Phase {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Send => "send",
            Phase::Answer => "answer",
            Phase::Verify => "verify",
            Phase::Status => "status",
            Phase::Format => "format",
            Phase::Cut => "cut",
            Phase::End => "end",
            Phase::Closed => "closed",
            Phase::Unused => "unused",
            Phase::Client => "client",
        }
    }
}

/// Reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// The client did all it had to do.
    Complete,
    /// This side asked it to end, and nothing was under way any more.
    Stopped,
    /// This side ended it without asking, or before it came to rest: purged or killed.
    CutOff,
    /// The client gave up after a failure, such as a timeout or a wrong byte.
    Failed,
    /// The peer or the network ended it unasked.
    Lost,
}

/// Returns the loop's meter.
///
/// # Panics
/// When the loop's local is another type, which no client's is: a panic ends the connection.
pub(crate) fn meter<'a, M: Meter>(cx: &'a mut Context<'_>) -> &'a mut M {
    cx.local::<M>().expect("the client's Service::local made a meter")
}

/// Reports a connect that failed.
pub(crate) fn connect_failed<M: Meter>(failure: &ConnectFailure, local: &mut Local) {
    if let Some(meter) = local.downcast_mut::<M>() {
        meter.failed(Phase::Connect, Some(failure.errno));
    }
}

/// Reports the end of a connection that was `decided` by its client, or came over it while it was `waiting_for` something.
pub(crate) fn ended<M: Meter>(cx: &mut Context<'_>, why: Closed, decided: Option<End>, waiting_for: Phase) {
    // Adopted: it goes on elsewhere.
    let Some((end, failure)) = ending(why, decided, waiting_for) else { return };
    let meter = meter::<M>(cx);
    if let Some((phase, errno)) = failure {
        meter.failed(phase, errno);
    }
    meter.closed(end);
}

/// Failure: the phase, and the errno where there is one.
pub(crate) type Failure = (Phase, Option<i32>);

/// Returns how a connection that was closed ended, and its failure where it is not reported yet; None when it goes on elsewhere.
pub(crate) fn ending(why: Closed, decided: Option<End>, waiting_for: Phase) -> Option<(End, Option<Failure>)> {
    Some(match (decided, why) {
        (_, Closed::Adopted) => return None,
        (Some(end), _) => (end, None),
        (None, Closed::Purged | Closed::Killed) => (End::CutOff, None),
        (None, Closed::Error(errno)) => {
            let phase = if errno == Errno::PIPE.raw_os_error() { Phase::Send } else { waiting_for };
            (End::Lost, Some((phase, Some(errno))))
        }
        // The client decided nothing: a layer under it did, such as TLS whose peer sent an alert.
        (None, Closed::Aborted) => (End::Lost, Some((waiting_for, Some(Errno::PROTO.raw_os_error())))),
        (None, Closed::TooLong) => (End::Failed, Some((Phase::Verify, None))),
        (None, _) => (End::Failed, Some((Phase::Client, None))),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes down what it is told.
    #[derive(Debug, Default)]
    pub(crate) struct Book {
        pub(crate) connected: Vec<Duration>,
        pub(crate) first_bytes: Vec<Duration>,
        /// Times from scheduled to sent, and from sent to answered.
        pub(crate) operations: Vec<(Duration, Duration)>,
        pub(crate) lags: Vec<Duration>,
        /// Messages and bytes.
        pub(crate) written: (u64, u64),
        pub(crate) acks: u64,
        pub(crate) unacknowledged: u64,
        pub(crate) failures: Vec<(Phase, Option<i32>)>,
        pub(crate) ends: Vec<End>,
    }

    impl Meter for Book {
        fn connected(&mut self, took: Duration) {
            self.connected.push(took);
        }
        fn first_byte(&mut self, after: Duration) {
            self.first_bytes.push(after);
        }
        fn operation(&mut self, scheduled: Instant, sent: Instant, now: Instant) {
            self.operations.push((sent - scheduled, now - sent));
        }
        fn lag(&mut self, lag: Duration) {
            self.lags.push(lag);
        }
        fn written(&mut self, messages: u64, bytes: u64) {
            self.written = (self.written.0 + messages, self.written.1 + bytes);
        }
        fn acks(&mut self, acks: u64) {
            self.acks += acks;
        }
        fn unacknowledged(&mut self, messages: u64) {
            self.unacknowledged += messages;
        }
        fn failed(&mut self, phase: Phase, errno: Option<i32>) {
            self.failures.push((phase, errno));
        }
        fn closed(&mut self, end: End) {
            self.ends.push(end);
        }
    }

    pub(crate) const CONNECT_TIME: Duration = Duration::from_micros(70);

    /// Returns a client's connection that stands after [`CONNECT_TIME`].
    pub(crate) fn connect<S: sockdrawer::Service>(client: S) -> sockdrawer::testing::Driver<S> {
        let peer = sockdrawer::testing::peer(sockdrawer::Side::Connected, CONNECT_TIME);
        sockdrawer::testing::Driver::open_with(client, peer, Default::default())
    }

    pub(crate) fn book<S: sockdrawer::Service>(connection: &mut sockdrawer::testing::Driver<S>) -> &mut Book {
        connection.local().expect("the client's meter is a Book")
    }
}
