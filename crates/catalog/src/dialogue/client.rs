//! The client of a server that speaks something else.

use super::{Expect, Seen};
use crate::pace::{Answer, Ask};
use regex_automata::util::primitives::StateID;
use sockdrawer::{Context, Input};
use std::sync::Arc;

/// Text that is sent, and the answer that is expected.
#[derive(Debug)]
struct Dialogue {
    send: Vec<u8>,
    expect: Option<Expect>,
}

impl Dialogue {
    fn nothing_yet(&self) -> Seen {
        self.expect.as_ref().map_or(Seen { bytes: 0, state: StateID::ZERO }, Expect::nothing_yet)
    }
}

/// The question, and what has come of its answer: one operation of a [`Client`](crate::Client).
#[derive(Clone, Debug)]
pub struct Question {
    dialogue: Arc<Dialogue>,
    seen: Seen,
}

impl Question {
    /// Asks `send`. The answer is what `expect` says; without it, whatever comes first, in one piece: the rest of an answer that comes
    /// in more is a failure, or taken for the answer to the next question.
    pub fn new(send: Vec<u8>, expect: Option<Expect>) -> Question {
        let dialogue = Dialogue { send, expect };
        Question { seen: dialogue.nothing_yet(), dialogue: Arc::new(dialogue) }
    }
}

impl Ask for Question {
    fn ask(&mut self, cx: &mut Context<'_>) {
        self.seen = self.dialogue.nothing_yet();
        cx.send(&self.dialogue.send);
    }

    fn answered(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Answer {
        let (taken, answer) = match &self.dialogue.expect {
            Some(expect) => expect.take(&mut self.seen, input.bytes()),
            None => (input.bytes().len(), Answer::Complete),
        };
        input.take(taken);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialogue::MAX_ANSWER;
    use crate::meter::tests::{Book, book, connect};
    use crate::meter::{End, Phase, TIMED_OUT};
    use crate::pace::{Asking, Budget, Client, Pace};
    use sockdrawer::Closed;
    use sockdrawer::testing::Driver;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    type Speaking = Driver<Client<Question, fn() -> Book>>;

    fn open(expect: Option<&str>, interval: Duration) -> Speaking {
        let pace = Pace { interval: interval.into(), timeout: SECOND, budget: Budget::Unlimited, lifetime: None, seed: 0 };
        let expect = expect.map(|expect| expect.parse().expect(expect));
        connect(Client::new(Question::new(b"PING\r\n".to_vec(), expect), pace, Book::default))
    }

    fn failures(connection: &mut Speaking) -> Vec<(Phase, Option<i32>)> {
        book(connection).failures.clone()
    }

    #[test]
    fn each_answer_asks_again_however_it_is_cut() {
        for expect in [r"+PONG\r\n", r"/\+\w+\r\n/"] {
            let mut connection = open(Some(expect), Duration::ZERO);
            connection.receive_split(b"+PONG\r\n");
            connection.receive(b"+PO");
            connection.receive(b"NG\r\n");
            assert_eq!(connection.sent(), b"PING\r\n".repeat(3));
            assert_eq!((connection.kept().len(), book(&mut connection).operations.len()), (0, 2));
        }
    }

    #[test]
    fn what_is_not_the_answer_or_beyond_it_ends_the_connection() {
        for (expect, wrong) in [
            (r"+PONG\r\n", &b"-ERR\r\n"[..]),
            (r"+PONG\r\n", b"+PONG\r\n+"),
            (r"/\+\w+\r\n/", b"-ERR\r\n"),
            (r"/\+\w+\r\n/", b"+A\r\n+A\r\n"),
            (r"/(?s).*!/", &[b'x'; MAX_ANSWER + 1]),
        ] {
            let mut connection = open(Some(expect), Duration::ZERO);
            connection.receive(wrong);
            assert_eq!(connection.closed(), Some(Closed::Aborted), "{expect}");
            assert_eq!(
                (failures(&mut connection), &book(&mut connection).ends[..]),
                (vec![(Phase::Verify, None)], &[End::Failed][..])
            );
        }
        let mut unasked = open(Some(r"+PONG\r\n"), 3600 * SECOND);
        unasked.receive(b"+PONG\r\n");
        assert_eq!(failures(&mut unasked), [(Phase::Verify, None)]);
    }

    #[test]
    fn half_an_answer_and_none_time_out() {
        for part in [&b"+PON"[..], b""] {
            let mut connection = open(Some(r"+PONG\r\n"), Duration::ZERO);
            connection.receive(part);
            connection.advance(SECOND);
            assert_eq!(failures(&mut connection), [(Phase::Answer, TIMED_OUT)]);
        }
    }

    #[test]
    fn without_an_expectation_anything_is_the_answer() {
        let mut connection = open(None, Duration::ZERO);
        connection.receive(b"anything");
        connection.receive(b"\0");
        assert_eq!((connection.sent(), book(&mut connection).operations.len()), (b"PING\r\n".repeat(3), 2));
        let mut at_rest = open(None, 3600 * SECOND);
        at_rest.receive(b"unasked");
        assert_eq!(failures(&mut at_rest), [(Phase::Verify, None)]);
    }

    #[test]
    fn a_session_is_small() {
        assert!(size_of::<Asking<Book, Question>>() <= 80, "{}", size_of::<Asking<Book, Question>>());
    }
}
