//! The client that opens and ends connections: a few bytes out, the end, the same bytes back, the end.

use crate::meter::{End, Meter, Phase, TIMED_OUT, connect_failed, ended, meter};
use crate::numbers::Numbers;
use sockdrawer::{Closed, ConnectFailure, Context, Input, Local, Peer, Protocol, Service, Step};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Bytes of one connection.
const SIZE: u64 = 16;

/// The client: one operation is a connection. It sends 16 bytes that no other connection sends, and its end; it expects the same
/// 16 bytes, and the end.
#[derive(Clone, Debug)]
pub struct Churn<F> {
    /// For the answer, and again for the end after it. 5 s in a trial.
    pub timeout: Duration,
    /// Decides on the bytes, together with the connection's id.
    pub seed: u64,
    /// Makes the meter of a loop.
    pub meter: F,
}

impl<M: Meter, F: Fn() -> M + Send + Sync + 'static> Service for Churn<F> {
    type Protocol = ChurnSession<M>;

    fn open(&self, peer: &Peer) -> ChurnSession<M> {
        ChurnSession {
            timeout: self.timeout,
            seed: self.seed,
            connect_time: peer.connect_time(),
            sent: None,
            received: 0,
            end: None,
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

/// One connection of [`Churn`].
#[derive(Debug)]
pub struct ChurnSession<M> {
    timeout: Duration,
    seed: u64,
    connect_time: Duration,
    sent: Option<Instant>,
    received: u64,
    end: Option<End>,
    meter: PhantomData<fn() -> M>,
}

impl<M: Meter> ChurnSession<M> {
    fn waiting_for(&self) -> Phase {
        if self.received == SIZE { Phase::End } else { Phase::Answer }
    }

    fn fail(&mut self, phase: Phase, errno: Option<i32>, end: End, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).failed(phase, errno);
        self.end = Some(end);
        if end == End::Lost { Step::Close } else { Step::Abort }
    }
}

impl<M: Meter> Protocol for ChurnSession<M> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).connected(self.connect_time);
        self.sent = Some(cx.now());
        cx.set_timer(self.timeout);
        Numbers::new(self.seed, cx.id()).send(0, SIZE, cx.out());
        Step::Finish
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let count = input.bytes().len() as u64;
        // Bytes past the last are wrong, whatever they are.
        let extra = (self.received + count).saturating_sub(SIZE);
        let expected = &input.bytes()[..(count - extra) as usize];
        let wrong = Numbers::new(self.seed, cx.id()).wrong(self.received, expected) + extra;
        input.take_all();
        if let Some(sent) = self.sent.filter(|_| self.received == 0) {
            let now = cx.now();
            meter::<M>(cx).first_byte(now - sent);
        }
        meter::<M>(cx).verified(count - wrong, wrong);
        if wrong > 0 {
            return self.fail(Phase::Verify, None, End::Failed, cx);
        }
        self.received += count;
        if self.received == SIZE {
            cx.set_timer(self.timeout);
        }
        Step::Continue
    }

    fn finished(&mut self, cx: &mut Context<'_>) -> Step {
        let (Phase::End, Some(sent)) = (self.waiting_for(), self.sent) else {
            return self.fail(Phase::Answer, None, End::Lost, cx);
        };
        let (now, scheduled) = (cx.now(), sent.checked_sub(self.connect_time).unwrap_or(sent));
        meter::<M>(cx).operation(scheduled, sent, now);
        self.end = Some(End::Complete);
        Step::Close
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.fail(self.waiting_for(), TIMED_OUT, End::Failed, cx)
    }

    /// It ends by itself, with its answer.
    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }

    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        ended::<M>(cx, why, self.end, self.waiting_for());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::tests::{Book, CONNECT_TIME, book, connect};
    use sockdrawer::testing::Connection;

    const TIMEOUT: Duration = Duration::from_secs(5);

    type Churning = Connection<Churn<fn() -> Book>>;

    fn open() -> (Churning, Vec<u8>) {
        let mut connection = connect(Churn { timeout: TIMEOUT, seed: 1, meter: Book::default as fn() -> Book });
        let sent = connection.sent();
        (connection, sent)
    }

    fn failure(connection: &mut Churning) -> (Phase, Option<i32>, End) {
        let book = book(connection);
        assert!(book.operations.is_empty());
        let ([(phase, errno)], [end]) = (&book.failures[..], &book.ends[..]) else { panic!("one failure, one end: {book:?}") };
        (*phase, *errno, *end)
    }

    #[test]
    fn the_same_bytes_and_the_end_are_an_operation() {
        for at in 0..=16 {
            let (mut connection, sent) = open();
            assert!(sent.len() == 16 && connection.finished_sending());
            connection.advance(Duration::from_secs(4));
            connection.receive(&sent[..at]);
            connection.receive(&sent[at..]);
            // Each phase has its own five seconds.
            connection.advance(Duration::from_secs(4));
            connection.finish();
            let book = book(&mut connection);
            assert_eq!((book.right, book.wrong, &book.ends[..]), (16, 0, &[End::Complete][..]));
            assert_eq!(book.operations, [(CONNECT_TIME, Duration::from_secs(8))]);
        }
    }

    #[test]
    fn each_phase_fails_by_its_name() {
        let (mut silent, _) = open();
        silent.advance(TIMEOUT);
        assert_eq!(failure(&mut silent), (Phase::Answer, TIMED_OUT, End::Failed));
        let (mut endless, sent) = open();
        endless.receive(&sent);
        endless.advance(TIMEOUT);
        assert_eq!(failure(&mut endless), (Phase::End, TIMED_OUT, End::Failed));
        let (mut short, sent) = open();
        short.receive(&sent[..15]);
        short.finish();
        assert_eq!(failure(&mut short), (Phase::Answer, None, End::Lost));
        let (mut wrong, mut sent) = open();
        sent[15] ^= 0x80;
        wrong.receive(&sent);
        assert_eq!((failure(&mut wrong), book(&mut wrong).wrong), ((Phase::Verify, None, End::Failed), 1));
        let (mut long, sent) = open();
        long.receive(&sent);
        long.receive(b"x");
        assert_eq!((failure(&mut long), book(&mut long).wrong), ((Phase::Verify, None, End::Failed), 1));
        let (mut reset, sent) = open();
        reset.receive(&sent);
        reset.end(Closed::Error(104));
        assert_eq!(failure(&mut reset), (Phase::End, Some(104), End::Lost));
    }
}
