//! The client of `hello`: a greeting, the known answer, the end of the stream.

use super::ANSWER;
use crate::meter::{End, Meter, Phase, TIMED_OUT, connect_failed, ended, meter};
use sockdrawer::{Closed, Context, Input, Local, Peer, Protocol, Service, Step, connecting::ConnectFailure};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Greeting that the client sends.
const GREETING: &[u8] = b"Hello\n";

/// The client: one operation is a connection. It speaks first, expects exactly [`ANSWER`] and then the end of the stream.
#[derive(Clone, Debug)]
pub struct Client<F> {
    /// Time from the connect until the end of the stream; 30 s is the program's default.
    pub timeout: Duration,
    /// Makes the meter of a loop.
    pub meter: F,
}

impl<M: Meter, F: Fn() -> M + Send + Sync + 'static> Service for Client<F> {
    type Protocol = Session<M>;

    fn open(&self, peer: &Peer) -> Session<M> {
        let (connect_time, handshake_time) = (peer.connect_time(), peer.handshake_time());
        Session { timeout: self.timeout, connect_time, handshake_time, sent: None, received: 0, end: None, meter: PhantomData }
    }

    fn local(&self) -> Box<Local> {
        Box::new((self.meter)())
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        connect_failed::<M>(failure, local);
    }
}

/// Connection of a [`Client`].
#[derive(Debug)]
pub struct Session<M> {
    timeout: Duration,
    connect_time: Duration,
    handshake_time: Duration,
    sent: Option<Instant>,
    /// Bytes of the answer.
    received: usize,
    end: Option<End>,
    meter: PhantomData<fn() -> M>,
}

impl<M: Meter> Session<M> {
    fn waiting_for(&self) -> Phase {
        if self.received == ANSWER.len() { Phase::End } else { Phase::Answer }
    }

    fn fail(&mut self, phase: Phase, errno: Option<i32>, end: End, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).failed(phase, errno);
        self.end = Some(end);
        if end == End::Lost { Step::Close } else { Step::Abort }
    }
}

impl<M: Meter> Protocol for Session<M> {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        meter::<M>(cx).connected(self.connect_time);
        self.sent = Some(cx.now());
        cx.set_timer(self.timeout);
        cx.send(GREETING);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if let Some(sent) = self.sent.filter(|_| self.received == 0) {
            let now = cx.now();
            meter::<M>(cx).first_byte(now - sent);
        }
        if !ANSWER[self.received..].starts_with(input.bytes()) {
            return self.fail(Phase::Verify, None, End::Failed, cx);
        }
        self.received += input.bytes().len();
        input.take_all();
        Step::Continue
    }

    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        let (Phase::End, Some(sent)) = (self.waiting_for(), self.sent) else {
            return self.fail(Phase::Answer, None, End::Lost, cx);
        };
        let (now, scheduled) = (cx.now(), sent.checked_sub(self.connect_time + self.handshake_time).unwrap_or(sent));
        meter::<M>(cx).operation(scheduled, sent, now);
        self.end = Some(End::Complete);
        Step::Close
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.fail(self.waiting_for(), TIMED_OUT, End::Failed, cx)
    }

    /// Goes on: the connection ends by itself, with its answer.
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
    use sockdrawer::testing::Driver;

    const TIMEOUT: Duration = Duration::from_secs(30);

    type Hello = Driver<Client<fn() -> Book>>;

    fn client() -> Client<fn() -> Book> {
        Client { timeout: TIMEOUT, meter: Book::default }
    }

    fn failures(connection: &mut Hello) -> (Vec<(Phase, Option<i32>)>, Vec<End>) {
        let book = book(connection);
        assert!(book.operations.is_empty(), "what failed is no operation");
        (book.failures.clone(), book.ends.clone())
    }

    #[test]
    fn an_answer_split_anywhere_and_the_end_are_an_operation() {
        for at in 0..=ANSWER.len() {
            let mut connection = connect(client());
            assert_eq!(connection.sent(), b"Hello\n");
            connection.advance(Duration::from_millis(2));
            connection.receive(&ANSWER[..at]);
            connection.receive(&ANSWER[at..]);
            assert_eq!(book(&mut connection).operations, []);
            connection.advance(Duration::from_millis(1));
            connection.finish();
            let book = book(&mut connection);
            assert_eq!((&book.connected[..], &book.first_bytes[..]), (&[CONNECT_TIME][..], &[Duration::from_millis(2)][..]));
            assert_eq!(book.operations, [(CONNECT_TIME, Duration::from_millis(3))]);
            assert_eq!((&book.failures[..], &book.ends[..]), (&[][..], &[End::Complete][..]));
        }
    }

    #[test]
    fn every_way_to_fail_is_told_apart() {
        let mut wrong = connect(client());
        wrong.receive(b"Hello World!");
        assert_eq!(failures(&mut wrong), (vec![(Phase::Verify, None)], vec![End::Failed]));
        let mut long = connect(client());
        long.receive(b"Hello World\nmore");
        assert_eq!(failures(&mut long), (vec![(Phase::Verify, None)], vec![End::Failed]));
        let mut short = connect(client());
        short.receive(b"Hello Worl");
        short.finish();
        assert_eq!(failures(&mut short), (vec![(Phase::Answer, None)], vec![End::Lost]));
        let mut silent = connect(client());
        silent.advance(TIMEOUT);
        assert_eq!(failures(&mut silent), (vec![(Phase::Answer, TIMED_OUT)], vec![End::Failed]));
        let mut endless = connect(client());
        endless.receive(ANSWER);
        endless.advance(TIMEOUT);
        assert_eq!(failures(&mut endless), (vec![(Phase::End, TIMED_OUT)], vec![End::Failed]));
        for (errno, phase) in [(104, Phase::Answer), (32, Phase::Send)] {
            let mut reset = connect(client());
            reset.end(Closed::Error(errno));
            assert_eq!(failures(&mut reset), (vec![(phase, Some(errno))], vec![End::Lost]));
        }
    }

    #[test]
    fn what_this_side_ends_is_no_failure() {
        let mut purged = connect(client());
        purged.drain();
        assert_eq!(purged.closed(), None);
        purged.end(Closed::Purged);
        assert_eq!(failures(&mut purged), (vec![], vec![End::CutOff]));
    }

    #[test]
    fn a_failed_connect_is_reported() {
        let client = client();
        let mut local = client.local();
        client.connect_failed(
            &ConnectFailure { target: None, errno: 111, after: Duration::ZERO, lag: Duration::ZERO },
            &mut *local,
        );
        assert_eq!(local.downcast_ref::<Book>().map(|book| book.failures.clone()), Some(vec![(Phase::Connect, Some(111))]));
    }
}
