//! The client that holds a connection: numbered bytes out, each compared when it comes back, and how it all ended.

use super::WINDOW;
use crate::meter::{End, Meter, Phase, TIMED_OUT, connect_failed, ended, meter};
use crate::numbers::Numbers;
use sockdrawer::{Closed, ConnectFailure, Context, Input, Local, Note, Peer, Protocol, Service, Step};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The client: a connection that is to last. At each tick it sends a chunk of numbered bytes; what comes back is compared byte by
/// byte and reported by [`Meter::verified`]. It goes on after wrong bytes, so that their number is known; one operation is a chunk
/// that came back right. It ends when it is asked to, after what is under way came back.
#[derive(Clone, Debug)]
pub struct Kept<F> {
    options: Arc<Options>,
    meter: F,
}

#[derive(Debug)]
struct Options {
    interval: Option<Duration>,
    chunk: u32,
    timeout: Duration,
    seed: u64,
}

impl<F> Kept<F> {
    /// Chunks of `chunk` bytes each `interval`, or, with None, at each note: a tick shared by many. `timeout` is how long the
    /// stream may stand still while bytes are under way; then the connection has failed. `meter` makes the meter of a loop.
    pub fn new(interval: Option<Duration>, chunk: u32, timeout: Duration, seed: u64, meter: F) -> Kept<F> {
        let interval = interval.filter(|interval| !interval.is_zero());
        Kept { options: Arc::new(Options { interval, chunk: chunk.clamp(1, WINDOW as u32), timeout, seed }), meter }
    }
}

impl<M: Meter, F: Fn() -> M + Send + Sync + 'static> Service for Kept<F> {
    type Protocol = KeptSession<M>;

    fn open(&self, peer: &Peer) -> KeptSession<M> {
        KeptSession {
            options: self.options.clone(),
            connect_time: peer.connect_time(),
            sent: 0,
            received: 0,
            next: None,
            moved: None,
            heard: false,
            garbled: false,
            end: None,
            stopping: false,
            meter: PhantomData,
        }
    }

    fn local(&self) -> Box<Local> {
        Box::new((self.meter)())
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        connect_failed::<M>(failure, local);
    }
}

/// One connection of [`Kept`].
#[derive(Debug)]
pub struct KeptSession<M> {
    options: Arc<Options>,
    connect_time: Duration,
    sent: u64,
    received: u64,
    /// When the next chunk is due.
    next: Option<Instant>,
    /// Since when bytes are under way, or when the last of them came back.
    moved: Option<Instant>,
    heard: bool,
    garbled: bool,
    stopping: bool,
    end: Option<End>,
    meter: PhantomData<fn() -> M>,
}

impl<M: Meter> KeptSession<M> {
    fn is_idle(&self) -> bool {
        self.received >= self.sent
    }

    fn waiting_for(&self) -> Phase {
        if self.is_idle() { Phase::Closed } else { Phase::Answer }
    }

    fn end(&mut self, end: End) -> Step {
        self.end = Some(end);
        if end == End::Failed { Step::Abort } else { Step::Close }
    }

    /// A chunk, unless the peer is a whole window behind: the time-out judges that.
    fn tick(&mut self, cx: &mut Context<'_>) {
        let chunk = u64::from(self.options.chunk);
        if self.stopping || self.sent.saturating_sub(self.received) + chunk > WINDOW {
            return;
        }
        if self.is_idle() {
            self.moved = Some(cx.now());
        }
        Numbers::new(self.options.seed, cx.id()).send(self.sent, chunk, cx.out());
        self.sent += chunk;
    }

    /// The one timer serves the next chunk and the time-out, whichever is first.
    fn arm(&mut self, cx: &mut Context<'_>) {
        let stalls = self.moved.map(|moved| moved + self.options.timeout);
        match [stalls, self.next].into_iter().flatten().min() {
            Some(at) => cx.set_timer_at(at),
            None => cx.clear_timer(),
        }
    }
}

impl<M: Meter> Protocol for KeptSession<M> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).connected(self.connect_time);
        self.next = self.options.interval.map(|interval| cx.now() + interval);
        self.tick(cx);
        self.arm(cx);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let (count, now) = (input.bytes().len() as u64, cx.now());
        // What was never sent is wrong, whatever it is.
        let extra = (self.received + count).saturating_sub(self.sent).min(count);
        let expected = &input.bytes()[..(count - extra) as usize];
        let wrong = Numbers::new(self.options.seed, cx.id()).wrong(self.received, expected) + extra;
        input.take_all();
        let (chunk, before, since) = (u64::from(self.options.chunk), self.received, self.moved.unwrap_or(now));
        self.received += count;
        let meter = meter::<M>(cx);
        meter.verified(count - wrong, wrong);
        if !std::mem::replace(&mut self.heard, true) {
            meter.first_byte(now - since);
        }
        if wrong > 0 && !std::mem::replace(&mut self.garbled, true) {
            meter.failed(Phase::Verify, None);
        }
        if !self.garbled {
            (before / chunk..self.received / chunk).for_each(|_| meter.operation(since, since, now));
        }
        self.moved = (!self.is_idle()).then_some(now);
        if self.stopping && self.is_idle() {
            return self.end(End::Stopped);
        }
        self.arm(cx);
        Step::Continue
    }

    fn finished(&mut self, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).failed(self.waiting_for(), None);
        self.end(End::Lost)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        let now = cx.now();
        if self.moved.is_some_and(|moved| moved + self.options.timeout <= now) {
            meter::<M>(cx).failed(Phase::Answer, TIMED_OUT);
            return self.end(End::Failed);
        }
        if let (Some(next), Some(interval)) = (self.next, self.options.interval)
            && next <= now
        {
            // A loop that was late sends no burst to catch up.
            self.next = Some((next + interval).max(now));
            self.tick(cx);
        }
        self.arm(cx);
        Step::Continue
    }

    /// Any note is a tick.
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        self.tick(cx);
        self.arm(cx);
        Step::Continue
    }

    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.stopping = true;
        self.next = None;
        if self.is_idle() {
            return self.end(End::Stopped);
        }
        self.arm(cx);
        Step::Continue
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        ended::<M>(cx, why, self.end, self.waiting_for());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::tests::{Book, book, connect};
    use sockdrawer::testing::Connection;

    const TICK: Duration = Duration::from_millis(100);
    const TIMEOUT: Duration = Duration::from_millis(350);

    type Keeping = Connection<Kept<fn() -> Book>>;

    fn open(interval: Option<Duration>) -> Keeping {
        connect(Kept::new(interval, 24, TIMEOUT, 5, Book::default as fn() -> Book))
    }

    fn outcome(connection: &mut Keeping) -> (Vec<(Phase, Option<i32>)>, Vec<End>) {
        let book = book(connection);
        (book.failures.clone(), book.ends.clone())
    }

    #[test]
    fn chunks_follow_the_interval_and_every_byte_is_compared() {
        let mut connection = open(Some(TICK));
        for round in 1..=5 {
            let sent = connection.sent();
            assert_eq!(sent.len(), 24);
            connection.receive_split(&sent);
            assert_eq!(connection.timer(), Some(TICK), "nothing is under way, so only the next chunk is due");
            assert_eq!((book(&mut connection).right, book(&mut connection).operations.len()), (24 * round, round as usize));
            connection.advance(TICK);
        }
        connection.drain();
        assert_eq!(connection.closed(), None);
        let rest = connection.sent();
        connection.receive(&rest);
        assert_eq!((connection.closed(), outcome(&mut connection)), (Some(Closed::Done), (vec![], vec![End::Stopped])));
    }

    #[test]
    fn the_nearest_deadline_is_the_timer() {
        let mut connection = open(Some(TICK));
        assert_eq!(connection.timer(), Some(TICK));
        connection.advance(3 * TICK);
        assert_eq!((connection.sent().len(), connection.timer()), (4 * 24, Some(TIMEOUT - 3 * TICK)));
        connection.advance(TICK);
        assert_eq!(
            (connection.closed(), outcome(&mut connection)),
            (Some(Closed::Aborted), (vec![(Phase::Answer, TIMED_OUT)], vec![End::Failed]))
        );
    }

    #[test]
    fn notes_are_ticks_and_a_peer_that_is_far_behind_gets_no_more() {
        let mut connection = open(None);
        for _ in 0..2_000 {
            connection.notify(Note::value(()));
        }
        let sent = connection.sent();
        assert_eq!(sent.len() as u64, WINDOW / 24 * 24);
        connection.receive(&sent);
        assert_eq!((connection.timer(), book(&mut connection).right), (None, sent.len() as u64));
    }

    #[test]
    fn wrong_bytes_are_counted_and_the_connection_goes_on() {
        let mut connection = open(Some(TICK));
        let mut sent = connection.sent();
        sent[3] ^= 1;
        sent[20] ^= 1;
        connection.receive(&sent);
        connection.advance(TICK);
        let sent = connection.sent();
        connection.receive(&sent);
        connection.receive(b"never sent");
        let book = book(&mut connection);
        assert_eq!((book.right, book.wrong, &book.failures[..]), (46, 12, &[(Phase::Verify, None)][..]));
        assert_eq!((book.operations.len(), connection.closed()), (0, None));
    }

    #[test]
    fn lost_is_told_from_asked_to_end() {
        let mut closed = open(None);
        let sent = closed.sent();
        closed.receive(&sent);
        closed.finish();
        assert_eq!(outcome(&mut closed), (vec![(Phase::Closed, None)], vec![End::Lost]));
        let mut cut = open(None);
        cut.finish();
        assert_eq!(outcome(&mut cut), (vec![(Phase::Answer, None)], vec![End::Lost]));
        let mut reset = open(None);
        reset.end(Closed::Error(104));
        assert_eq!(outcome(&mut reset), (vec![(Phase::Answer, Some(104))], vec![End::Lost]));
        for why in [Closed::Purged, Closed::Killed] {
            let mut ours = open(None);
            ours.end(why);
            assert_eq!(outcome(&mut ours), (vec![], vec![End::Stopped]));
        }
    }
}
