//! The client that opens and ends connections: a few bytes out, the end, the same bytes back, the end.

use crate::meter::{Meter, connect_failed, meter};
use crate::numbers::Numbers;
use crate::visit::{Talk, Visit};
use sockdrawer::{ConnectFailure, Context, Input, Local, Peer, Service, Step};
use std::time::Duration;

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
        Visit::new(Talking { seed: self.seed }, self.timeout, peer)
    }

    fn local(&self) -> Box<Local> {
        Box::new((self.meter)())
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        connect_failed::<M>(failure, local);
    }
}

/// One connection of [`Churn`].
pub type ChurnSession<M> = Visit<M, Talking>;

/// What a connection of [`Churn`] says, which must come back.
#[derive(Debug)]
pub struct Talking {
    seed: u64,
}

impl Talk for Talking {
    fn speak(&self, cx: &mut Context<'_>) -> Step {
        Numbers::new(self.seed, cx.id()).send(0, SIZE, cx.out());
        Step::Finish
    }

    fn expects(&self) -> u64 {
        SIZE
    }

    fn hear<M: Meter>(&self, from: u64, input: &mut Input<'_>, cx: &mut Context<'_>) -> bool {
        let count = input.bytes().len() as u64;
        // Bytes past the last are wrong, whatever they are.
        let extra = (from + count).saturating_sub(SIZE);
        let expected = &input.bytes()[..(count - extra) as usize];
        let wrong = Numbers::new(self.seed, cx.id()).wrong(from, expected) + extra;
        meter::<M>(cx).verified(count - wrong, wrong);
        wrong == 0
    }

    const END_APART: bool = true;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::tests::{Book, CONNECT_TIME, book, connect};
    use crate::meter::{End, Phase, TIMED_OUT};
    use sockdrawer::Closed;
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
