//! The client that measures: messages by batches, every ack verified.

use super::parse::MAX_PAYLOAD;
use super::{AckPattern, covering};
use crate::meter::{End, Meter, Phase, TIMED_OUT, connect_failed, ended, meter};
use crate::pace::{Budget, first};
use sockdrawer::{
    Closed, Context, Input, Local, Note, Output, Peer, Protocol, Receiving, Service, Step, connecting::ConnectFailure,
};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A larger block of prepared messages is appended in parts.
const BLOCK_BYTES: usize = 64 * 1024;
/// Maximum of batches under way; more wait as if the window were full. By a schedule a batch may be a single message, and those that wait become one.
const MAX_BATCHES: u64 = 65_536;
const MAX_SCHEDULED: u64 = 1_024;
/// A batch has no more bytes, but for a single message.
const MAX_BYTES: usize = 1024 * 1024;

/// Settings of a [`Client`]: the messages that each of its connections sends, and how fast.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's. Only whether it is [`AckPattern::Reply`] matters: sizes and acks are written differently then.
    pub pattern: AckPattern,
    /// Bytes of each payload, at most [`MAX_PAYLOAD`]. Its bytes count from 0 to 250, again and again, so that a server can check
    /// them.
    pub size: u32,
    /// Messages that are sent in one write, at least 1. No more than fit the window, or 1 MiB.
    pub batch: u64,
    /// Maximum of messages that are unacknowledged, at least 1. Sending goes on when a batch fits again.
    pub window: u64,
    /// Time from one message to the next on each connection; zero is back to back. Each connection begins at a random point of its first interval.
    /// Late messages are sent by batches and do not shift the schedule.
    pub interval: Duration,
    /// Timeout of the oldest unacknowledged message, from when it was sent; and of the server's end after the last ack. Then the connection is
    /// aborted.
    pub timeout: Duration,
    /// Number of messages that may be sent. When it is spent, a connection says that no more comes, and expects every ack, then the end.
    pub budget: Budget,
    /// Chooses the random points, as in [`Pace`](crate::Pace).
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pattern: AckPattern::default(),
            size: 5,
            batch: 100,
            window: 10_000,
            interval: Duration::ZERO,
            timeout: Duration::from_secs(30),
            budget: Budget::Unlimited,
            seed: 0,
        }
    }
}

/// The client: one operation is a message, from when it was scheduled to the ack that covers it. Every ack is verified: none that
/// leaves a gap, comes twice or covers what was not sent. Drained, it sends no more and waits for what is unacknowledged.
///
/// Between two batches it speaks to itself, so its pool needs [`Settings::max_unsent`](sockdrawer::Settings::max_unsent) without a maximum: where notes
/// are dropped, it goes on with the next ack only.
///
/// ```
/// use sockdrawer::testing::Driver;
/// use sockdrawer_catalog::{Budget, acks};
/// # use sockdrawer_catalog::meter::{End, Meter, Phase};
/// # use std::time::{Duration, Instant};
/// # #[derive(Default)]
/// # struct Count(u64);
/// # impl Meter for Count {
/// #     fn connected(&mut self, _: Duration) {}
/// #     fn operation(&mut self, _: Instant, _: Instant, _: Instant) { self.0 += 1; }
/// #     fn failed(&mut self, _: Phase, _: Option<i32>) {}
/// #     fn closed(&mut self, _: End) {}
/// # }
///
/// let options = acks::Options { size: 5, batch: 2, budget: Budget::Each(2), ..acks::Options::default() };
/// let mut client = Driver::open(acks::Client::new(options, Count::default));
/// let mut server = Driver::open(acks::Acks::default());
/// server.receive(&client.sent());
/// client.receive(&server.sent());
/// assert_eq!(client.local::<Count>().map(|count| count.0), Some(2));
/// ```
#[derive(Clone, Debug)]
pub struct Client<F> {
    stream: Arc<Stream>,
    meter: F,
}

impl<F> Client<F> {
    /// Creates a client with these options. `meter` makes the meter of a loop.
    pub fn new(options: Options, meter: F) -> Client<F> {
        Client { stream: Arc::new(Stream::new(options)), meter }
    }
}

impl<M: Meter, F: Fn() -> M + Send + Sync + 'static> Service for Client<F> {
    type Protocol = Streaming<M>;

    fn open(&self, peer: &Peer) -> Streaming<M> {
        Streaming {
            stream: self.stream.clone(),
            connect_time: peer.connect_time(),
            start: None,
            batches: VecDeque::new(),
            written: 0,
            acked: 0,
            heard: None,
            armed: None,
            called: false,
            state: StreamState::Sending,
            end: None,
            meter: PhantomData,
        }
    }

    fn local(&self) -> Box<Local> {
        Box::new((self.meter)())
    }

    /// Receives even while output is held back: a server that waits until its acks are read must not find a client that waits until its messages are.
    fn receiving(&self) -> Receiving {
        Receiving::Always
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        connect_failed::<M>(failure, local);
    }
}

/// State that all connections of a client share.
#[derive(Debug)]
struct Stream {
    options: Options,
    /// Interval in nanoseconds; 0 is back to back.
    interval: u64,
    /// Bytes of a message.
    message: usize,
    /// Messages as they are sent, but for their ids.
    block: Box<[u8]>,
}

impl Stream {
    fn new(options: Options) -> Stream {
        let size = options.size.min(MAX_PAYLOAD);
        let window = options.window.max(1);
        let interval = u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX);
        let order = if options.pattern == AckPattern::Reply { size.to_be_bytes() } else { size.to_le_bytes() };
        let payload = (0..=250).cycle().take(size as usize);
        let message: Vec<u8> = [0; 8].into_iter().chain(order).chain(payload).collect();
        let fitting = |bytes: usize| (bytes / message.len()).max(1) as u64;
        let batch = options.batch.max(1).min(window).min(fitting(MAX_BYTES));
        let block = message.repeat(batch.min(fitting(BLOCK_BYTES)) as usize);
        let options = Options { size, batch, window, ..options };
        Stream { options, interval, message: message.len(), block: block.into() }
    }

    /// Appends `count` messages from the id `first`.
    fn write(&self, first: u64, count: u64, out: &mut Output) {
        let begin = out.bytes().len();
        let mut left = self.message * usize::try_from(count).expect("a batch fits memory");
        while left > 0 {
            let part = left.min(self.block.len());
            out.push(&self.block[..part]);
            left -= part;
        }
        for (message, id) in out.bytes_mut()[begin..].chunks_exact_mut(self.message).zip(first..) {
            message[..8].copy_from_slice(&id.to_le_bytes());
        }
    }
}

/// Messages sent in one write.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// The id after its last.
    end: u64,
    sent: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Sending,
    /// No message follows; the server is told, and its end is awaited after the last ack.
    Finishing,
    /// Asked to end: ends with the last ack.
    Stopping,
}

/// Connection of a [`Client`]. It reports to a [`Meter`], the loop's local.
pub struct Streaming<M> {
    stream: Arc<Stream>,
    connect_time: Duration,
    /// Moment at which the first message is scheduled; None before the connection is open.
    start: Option<Instant>,
    /// Batches under way, oldest first. Allocated once, for the maximum that the window can hold.
    batches: VecDeque<Batch>,
    /// Messages written, which is the next id; and those acknowledged.
    written: u64,
    acked: u64,
    /// Moment of the last ack.
    heard: Option<Instant>,
    /// Time that the timer is set to: never later than it must be, and looked at when it is due.
    armed: Option<Instant>,
    /// A note to itself is under way.
    called: bool,
    state: StreamState,
    end: Option<End>,
    meter: PhantomData<fn() -> M>,
}

impl<M: Meter> Streaming<M> {
    fn waiting_for(&self) -> Phase {
        match self.state {
            _ if self.written > self.acked => Phase::Answer,
            StreamState::Finishing => Phase::End,
            StreamState::Sending | StreamState::Stopping => Phase::Closed,
        }
    }

    /// Ends the connection by a reset, also where the peer has ended: nothing takes what is unsent.
    fn fail(&mut self, phase: Phase, errno: Option<i32>, end: End, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).failed(phase, errno);
        self.end = Some(end);
        Step::Abort
    }

    /// Returns when a message is to be sent; `now` back to back.
    fn scheduled(&self, message: u64, now: Instant) -> Instant {
        match (self.start, self.stream.interval) {
            (Some(start), interval @ 1..) => start + Duration::from_nanos(interval.saturating_mul(message)),
            _ => now,
        }
    }

    /// Returns the number of messages that may be sent now, with room for `room` bytes of output.
    fn allowed(&self, now: Instant, room: usize) -> u64 {
        if self.state != StreamState::Sending || self.batches.len() == self.batches.capacity() || room == 0 {
            return 0;
        }
        let options = &self.stream.options;
        let count = options.batch.min(options.window - (self.written - self.acked));
        match self.stream.interval {
            0 if count == options.batch => count,
            0 => 0,
            interval => {
                let since = self.start.and_then(|start| now.checked_duration_since(start));
                let due = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) / interval + 1);
                count.min(due.saturating_sub(self.written))
            }
        }
    }

    /// Sends the next batch if there may be one, and sees to it that it is called again.
    fn send_on(&mut self, cx: &mut Context<'_>) -> Step {
        if self.state != StreamState::Sending {
            self.arm(cx);
            return Step::Continue;
        }
        let now = cx.now();
        let allowed = self.allowed(now, cx.out().room());
        let stream = &self.stream;
        let count = stream.options.budget.take(self.written, allowed);
        if count > 0 {
            stream.write(self.written, count, cx.out());
            meter::<M>(cx).written(count, count * stream.message as u64);
            self.written += count;
            self.batches.push_back(Batch { end: self.written, sent: now });
        }
        if self.stream.options.budget.is_spent(self.written) {
            self.state = StreamState::Finishing;
            self.arm(cx);
            return Step::EndOutput;
        }
        // The batch shows whether there is room again when the batch has been sent. If there is none, `writable` comes, or acks.
        if count > 0 && self.allowed(now, usize::MAX) > 0 {
            self.call_again(cx);
        }
        self.arm(cx);
        Step::Continue
    }

    /// Calls again by a note, after what else the loop has to do: a batch is a write, and a write is a callback.
    fn call_again(&mut self, cx: &mut Context<'_>) {
        if !self.called {
            self.called = cx.handle().notify(Note::value(())).is_ok();
        }
        if !self.called {
            // The loop has too many notes: the timer calls.
            let now = cx.now();
            cx.set_timer_at(now);
            self.armed = Some(now);
        }
    }

    /// Returns the time since when there is something that must not take longer than the timeout.
    fn waiting_since(&self) -> Option<Instant> {
        match self.batches.front() {
            Some(oldest) => Some(oldest.sent),
            None if self.state == StreamState::Finishing => self.heard.or(self.start),
            None => None,
        }
    }

    /// Sets the timer if it is not early enough: for what is awaited, and for the next message.
    fn arm(&mut self, cx: &mut Context<'_>) {
        let overdue = self.waiting_since().and_then(|since| since.checked_add(self.stream.options.timeout));
        let now = cx.now();
        // A message that is due already waits for acks, which call.
        let due = (self.state == StreamState::Sending).then(|| self.scheduled(self.written, now)).filter(|due| *due > now);
        let Some(at) = overdue.into_iter().chain(due).min() else { return };
        if self.armed.is_none_or(|armed| armed > at) {
            cx.set_timer_at(at);
            self.armed = Some(at);
        }
    }

    /// Takes note that all messages before `next` are acknowledged.
    fn acknowledge(&mut self, next: u64, cx: &mut Context<'_>) {
        let now = cx.now();
        while let Some(oldest) = self.batches.front().copied().filter(|_| self.acked < next) {
            let end = oldest.end.min(next);
            if self.stream.interval == 0 {
                meter::<M>(cx).acknowledged(end - self.acked, oldest.sent, oldest.sent, now);
            } else {
                (self.acked..end)
                    .for_each(|message| meter::<M>(cx).acknowledged(1, self.scheduled(message, now), oldest.sent, now));
            }
            self.acked = end;
            if end == oldest.end {
                self.batches.pop_front();
            }
        }
        self.heard = Some(now);
    }
}

impl<M: Meter> Protocol for Streaming<M> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).connected(self.connect_time);
        let options = &self.stream.options;
        self.start = Some(first(options.interval, cx.now(), options.seed, cx.id()));
        let most = match self.stream.interval {
            0 => (options.window / options.batch + 1).min(MAX_BATCHES),
            _ => options.window.min(MAX_SCHEDULED),
        };
        self.batches = VecDeque::with_capacity(most as usize);
        self.send_on(cx)
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if let (None, Some(oldest)) = (self.heard, self.batches.front()) {
            let after = cx.now() - oldest.sent;
            meter::<M>(cx).first_byte(after);
        }
        let covered = covering::read(self.stream.options.pattern, input.bytes(), self.acked, self.written);
        input.take(covered.taken);
        meter::<M>(cx).acks(covered.acks);
        self.acknowledge(covered.next, cx);
        // Whatever follows an ack of the last message covers nothing.
        if covered.wrong || (self.acked == self.written && !input.is_empty()) {
            return self.fail(Phase::Verify, None, End::Failed, cx);
        }
        if self.state == StreamState::Stopping && self.acked == self.written {
            self.end = Some(End::Stopped);
            return Step::Close;
        }
        self.send_on(cx)
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        if self.waiting_for() != Phase::End {
            return self.fail(self.waiting_for(), None, End::Lost, cx);
        }
        self.end = Some(End::Complete);
        Step::Close
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.armed = None;
        let now = cx.now();
        if self.waiting_since().is_some_and(|since| now - since >= self.stream.options.timeout) {
            return self.fail(self.waiting_for(), TIMED_OUT, End::Failed, cx);
        }
        let (due, before) = (self.scheduled(self.written, now), self.written);
        let step = self.send_on(cx);
        // While the window is full nothing is sent by the timer: a message that waits for acks is late because of the server.
        if self.stream.interval > 0 && self.written > before {
            meter::<M>(cx).lag(now - due);
        }
        step
    }

    /// Sends the next batch: the connection has called itself.
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        self.called = false;
        self.send_on(cx)
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        self.send_on(cx)
    }

    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        match self.state {
            StreamState::Finishing => return Step::Continue,
            StreamState::Sending | StreamState::Stopping => self.state = StreamState::Stopping,
        }
        if self.acked < self.written {
            return Step::Continue;
        }
        self.end = Some(End::Stopped);
        Step::Close
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        if self.written > self.acked {
            meter::<M>(cx).unacknowledged(self.written - self.acked);
        }
        ended::<M>(cx, why, self.end, self.waiting_for());
    }
}

#[cfg(test)]
mod tests;
