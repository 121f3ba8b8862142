//! The client of `hello`: a greeting, the known answer, the end of the stream.

use super::ANSWER;
use crate::meter::{Meter, connect_failed};
use crate::visit::{Talk, Visit};
use sockdrawer::{ConnectFailure, Context, Input, Local, Peer, Service, Step};
use std::time::Duration;

/// What the client says.
const GREETING: &[u8] = b"Hello\n";

/// The client: one operation is a connection. It speaks first, expects exactly [`ANSWER`] and then the end of the stream.
#[derive(Clone, Debug)]
pub struct Client<F> {
    /// From the connect until the end of the stream; 30 s is the program's default.
    pub timeout: Duration,
    /// Makes the meter of a loop.
    pub meter: F,
}

impl<M: Meter, F: Fn() -> M + Send + Sync + 'static> Service for Client<F> {
    type Protocol = Session<M>;

    fn open(&self, peer: &Peer) -> Session<M> {
        Visit::new(Greeting, self.timeout, peer)
    }

    fn local(&self) -> Box<Local> {
        Box::new((self.meter)())
    }

    fn connect_failed(&self, failure: &ConnectFailure, local: &mut Local) {
        connect_failed::<M>(failure, local);
    }
}

/// One connection of a [`Client`].
pub type Session<M> = Visit<M, Greeting>;

/// What a [`Client`] says and expects.
#[derive(Debug)]
pub struct Greeting;

impl Talk for Greeting {
    fn speak(&self, cx: &mut Context<'_>) -> Step {
        cx.send(GREETING);
        Step::Continue
    }

    fn expects(&self) -> u64 {
        ANSWER.len() as u64
    }

    fn hear<M: Meter>(&self, from: u64, input: &mut Input<'_>, _cx: &mut Context<'_>) -> bool {
        ANSWER[from as usize..].starts_with(input.bytes())
    }

    const END_APART: bool = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::tests::{Book, CONNECT_TIME, book, connect};
    use crate::meter::{End, Phase, TIMED_OUT};
    use sockdrawer::Closed;
    use sockdrawer::testing::Connection;

    const TIMEOUT: Duration = Duration::from_secs(30);

    type Hello = Connection<Client<fn() -> Book>>;

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
