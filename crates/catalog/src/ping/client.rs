//! The client of `ping`: what it asks.

use super::{PING, PONG};
use crate::pace::{Answer, Ask};
use sockdrawer::{Context, Input};

/// `Ping`: with its `Pong` it is one operation of a [`Client`](crate::Client). The program's default is one every 5 s with a timeout of 1 s.
#[derive(Clone, Copy, Debug)]
pub struct Question;

impl Ask for Question {
    fn ask(&mut self, cx: &mut Context<'_>) {
        cx.send(PING);
    }

    fn answered(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Answer {
        match input.bytes().first_chunk::<4>() {
            Some(PONG) => {
                input.take(PONG.len());
                Answer::Complete
            }
            None if PONG.starts_with(input.bytes()) => Answer::Partial,
            _ => Answer::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::tests::{Book, CONNECT_TIME, book, connect};
    use crate::meter::{End, Phase, TIMED_OUT};
    use crate::pace::{Asking, Budget, Client, Interval, Pace};
    use sockdrawer::Closed;
    use sockdrawer::testing::Driver;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLI: Duration = Duration::from_millis(1);

    type Pinging = Driver<Client<Question, fn() -> Book>>;

    fn client(interval: Duration, budget: Budget) -> Client<Question, fn() -> Book> {
        Client::new(Question, Pace { interval: interval.into(), timeout: SECOND, budget, lifetime: None, seed: 0 }, Book::default)
    }

    fn back_to_back() -> Pinging {
        connect(client(Duration::ZERO, Budget::Unlimited))
    }

    fn outcome(connection: &mut Pinging) -> (Vec<(Phase, Option<i32>)>, Vec<End>) {
        let book = book(connection);
        (book.failures.clone(), book.ends.clone())
    }

    #[test]
    fn back_to_back_each_pong_asks_again() {
        let mut connection = back_to_back();
        assert_eq!((connection.sent(), connection.timer()), (b"Ping".to_vec(), Some(SECOND)));
        connection.advance(MILLI * 3);
        connection.receive_split(b"Pong");
        assert_eq!((connection.sent(), connection.timer()), (b"Ping".to_vec(), Some(SECOND)));
        connection.receive(b"Pong");
        let book = book(&mut connection);
        assert_eq!(book.operations, [(Duration::ZERO, MILLI * 3), (Duration::ZERO, Duration::ZERO)]);
        assert_eq!((&book.connected[..], &book.first_bytes[..]), (&[CONNECT_TIME][..], &[MILLI * 3][..]));
    }

    #[test]
    fn an_interval_begins_at_a_random_point_and_a_late_pong_does_not_shift_it() {
        let interval = 200 * MILLI;
        let mut connection = connect(client(interval, Budget::Unlimited));
        let first = connection.timer().expect("the first ping is due");
        assert!(first < interval && connection.sent().is_empty());
        connection.advance(first);
        assert_eq!(connection.sent(), b"Ping");
        connection.advance(50 * MILLI);
        connection.receive(b"Pong");
        assert_eq!((connection.sent(), connection.timer()), (vec![], Some(150 * MILLI)));
        connection.advance(150 * MILLI);
        assert_eq!(connection.sent(), b"Ping");
        // Half a second late: the two pings that were due meanwhile are sent at once, and count from when they were due.
        connection.advance(500 * MILLI);
        connection.receive(b"Pong");
        connection.receive(b"Pong");
        connection.receive(b"Pong");
        assert_eq!((connection.sent(), connection.timer()), (b"PingPing".to_vec(), Some(100 * MILLI)));
        let operations = &book(&mut connection).operations;
        assert_eq!(
            operations[1..],
            [(Duration::ZERO, 500 * MILLI), (300 * MILLI, Duration::ZERO), (100 * MILLI, Duration::ZERO)]
        );
    }

    #[test]
    fn what_is_due_while_a_connection_is_down_counts_from_when_it_was_due() {
        let interval = Interval::new(100 * MILLI);
        let pace = Pace { interval, timeout: SECOND, budget: Budget::Unlimited, lifetime: None, seed: 0 };
        let client = || Client::new(Question, pace.clone(), Book::default as fn() -> Book);
        let mut lost = connect(client());
        lost.advance(lost.timer().expect("the first ping is due"));
        let due = lost.now();
        lost.finish();
        assert_eq!(outcome(&mut lost), (vec![(Phase::Answer, None)], vec![End::Lost]));
        let mut next = connect(client());
        assert_eq!(next.timer(), Some((due + 100 * MILLI).saturating_duration_since(next.now())));
        next.drain();
        let random = connect(client()).timer();
        assert!(random < Some(100 * MILLI), "one that was asked to end is not replaced");
        let alone = Pace { interval: Interval::without_successors(SECOND), ..pace };
        let mut lost = connect(Client::new(Question, alone.clone(), Book::default));
        let first = lost.timer();
        lost.advance(first.expect("the first ping is due"));
        lost.finish();
        assert_eq!(connect(Client::new(Question, alone, Book::default)).timer(), first, "a schedule of its own");
    }

    #[test]
    fn wrong_late_and_unasked_answers_end_the_connection() {
        for wrong in [&b"Pung"[..], b"Ping", b"PongP", b"PongPong", b"x"] {
            let mut connection = back_to_back();
            connection.receive(wrong);
            assert_eq!(connection.closed(), Some(Closed::Aborted), "{wrong:?}");
            assert_eq!(outcome(&mut connection), (vec![(Phase::Verify, None)], vec![End::Failed]));
        }
        let mut unasked = connect(client(SECOND, Budget::Unlimited));
        unasked.receive(b"Pong");
        assert_eq!(outcome(&mut unasked), (vec![(Phase::Verify, None)], vec![End::Failed]));
        let mut late = back_to_back();
        late.receive(b"Pon");
        late.advance(SECOND);
        assert_eq!(outcome(&mut late), (vec![(Phase::Answer, TIMED_OUT)], vec![End::Failed]));
        assert_eq!(book(&mut late).operations, []);
    }

    #[test]
    fn what_the_peer_ends_is_lost_and_what_this_side_ends_is_not() {
        let mut asked = back_to_back();
        asked.receive(b"Po");
        asked.finish();
        assert_eq!(outcome(&mut asked), (vec![(Phase::Answer, None)], vec![End::Lost]));
        let mut new = connect(client(SECOND, Budget::Unlimited));
        new.end(Closed::Error(104));
        assert_eq!(outcome(&mut new), (vec![(Phase::Unused, Some(104))], vec![End::Lost]));
        let mut resting = connect(client(SECOND, Budget::Unlimited));
        resting.advance(SECOND);
        resting.receive(b"Pong");
        resting.end(Closed::Error(104));
        assert_eq!(outcome(&mut resting), (vec![(Phase::Closed, Some(104))], vec![End::Lost]));
        let mut killed = back_to_back();
        killed.end(Closed::Killed);
        assert_eq!(outcome(&mut killed), (vec![], vec![End::CutOff]));
    }

    #[test]
    fn a_drain_waits_for_the_answer_and_not_for_the_next_question() {
        let mut asked = back_to_back();
        asked.drain();
        assert_eq!(asked.closed(), None);
        asked.receive(b"Pong");
        assert_eq!((asked.closed(), outcome(&mut asked)), (Some(Closed::Orderly), (vec![], vec![End::Stopped])));
        assert_eq!(book(&mut asked).operations.len(), 1);
        let mut resting = connect(client(SECOND, Budget::Unlimited));
        resting.drain();
        assert_eq!((resting.closed(), outcome(&mut resting)), (Some(Closed::Orderly), (vec![], vec![End::Stopped])));
    }

    #[test]
    fn a_budget_ends_connections_of_their_own() {
        let mut each = connect(client(Duration::ZERO, Budget::Each(2)));
        each.receive(b"Pong");
        each.receive(b"Pong");
        assert_eq!((each.sent(), outcome(&mut each)), (b"PingPing".to_vec(), (vec![], vec![End::Complete])));
        let left = Arc::new(AtomicU64::new(3));
        let mut one = connect(client(Duration::ZERO, Budget::Shared(left.clone())));
        let mut other = connect(client(Duration::ZERO, Budget::Shared(left.clone())));
        one.receive(b"Pong");
        one.receive(b"Pong");
        other.receive(b"Pong");
        assert_eq!((one.sent(), other.sent()), (b"PingPing".to_vec(), b"Ping".to_vec()));
        assert_eq!((outcome(&mut one), outcome(&mut other)), ((vec![], vec![End::Complete]), (vec![], vec![End::Complete])));
        assert_eq!(outcome(&mut connect(client(Duration::ZERO, Budget::Shared(left)))), (vec![], vec![End::Complete]));
    }

    fn living(interval: Duration, lifetime: Duration) -> Pinging {
        let pace =
            Pace { interval: interval.into(), timeout: SECOND, budget: Budget::Unlimited, lifetime: Some(lifetime), seed: 0 };
        connect(Client::new(Question, pace, Book::default))
    }

    #[test]
    fn a_time_that_the_clock_cannot_say_is_never() {
        let interval = Duration::from_secs(u64::MAX / 4);
        let pace = Pace { interval: interval.into(), timeout: Duration::MAX, budget: Budget::Unlimited, lifetime: None, seed: 0 };
        let mut connection: Pinging =
            connect(Client::new(Question, Pace { interval: Duration::ZERO.into(), ..pace.clone() }, Book::default));
        assert_eq!((connection.sent(), connection.timer(), connection.closed()), (b"Ping".to_vec(), None, None));
        let mut resting: Pinging = connect(Client::new(Question, pace, Book::default));
        resting.advance(SECOND);
        assert_eq!(resting.closed(), None);
    }

    #[test]
    fn a_life_ends_at_rest_and_what_was_asked_is_answered_first() {
        let mut resting = living(3600 * SECOND, 40 * MILLI);
        assert_eq!(resting.timer(), Some(40 * MILLI), "the life ends before the first question is due");
        resting.advance(39 * MILLI);
        assert_eq!(resting.closed(), None);
        resting.advance(MILLI);
        assert_eq!((resting.closed(), outcome(&mut resting)), (Some(Closed::Orderly), (vec![], vec![End::Complete])));
        assert_eq!((resting.sent(), &book(&mut resting).lags[..]), (vec![], &[][..]));
        let mut asked = living(Duration::ZERO, 40 * MILLI);
        asked.advance(30 * MILLI);
        asked.receive(b"Pong");
        assert_eq!(asked.timer(), Some(SECOND), "the question's time-out, not the life");
        asked.advance(30 * MILLI);
        assert_eq!(asked.closed(), None);
        asked.receive(b"Pong");
        assert_eq!((asked.sent(), outcome(&mut asked)), (b"PingPing".to_vec(), (vec![], vec![End::Complete])));
        assert_eq!(book(&mut asked).operations.len(), 2);
        let mut unanswered = living(Duration::ZERO, 40 * MILLI);
        unanswered.advance(SECOND);
        assert_eq!(outcome(&mut unanswered), (vec![(Phase::Answer, TIMED_OUT)], vec![End::Failed]));
        let mut asking = living(30 * MILLI, 100 * MILLI);
        let mut asked = 0;
        while asking.closed().is_none() {
            let due = asking.timer().expect("a question or the end is due");
            asking.advance(due);
            if asking.closed().is_none() {
                asking.receive(b"Pong");
                asked += 1;
            }
        }
        assert!((3..=4).contains(&asked) && outcome(&mut asking).1 == [End::Complete], "{asked}");
    }

    #[test]
    fn the_client_is_late_when_its_timer_is_and_not_when_the_server_is() {
        let mut connection = connect(client(200 * MILLI, Budget::Unlimited));
        let first = connection.timer().expect("the first ping is due");
        connection.oversleep(first + 7 * MILLI);
        connection.advance(Duration::ZERO);
        assert_eq!((connection.sent(), &book(&mut connection).lags[..]), (b"Ping".to_vec(), &[7 * MILLI][..]));
        connection.advance(400 * MILLI);
        connection.receive(b"Pong");
        assert_eq!(connection.sent(), b"Ping", "it was due meanwhile");
        assert_eq!(book(&mut connection).lags, [7 * MILLI]);
        assert_eq!(book(&mut back_to_back()).lags, []);
    }

    /// Makes those at rest look at the interval again.
    fn look() -> Arc<[u8]> {
        Arc::from(*b"")
    }

    #[test]
    fn a_suspended_client_answers_for_what_it_asked_and_begins_anew() {
        let interval = Interval::new(100 * MILLI);
        let pace = Pace { interval: interval.clone(), timeout: SECOND, budget: Budget::Unlimited, lifetime: None, seed: 0 };
        let mut connection: Pinging = connect(Client::new(Question, pace, Book::default));
        connection.advance(100 * MILLI);
        interval.suspend();
        connection.notify(look());
        connection.receive(b"Pong");
        assert_eq!((connection.sent(), connection.timer()), (b"Ping".to_vec(), None));
        connection.advance(10 * SECOND);
        interval.set(20 * MILLI);
        connection.notify(look());
        assert_eq!((connection.sent(), connection.timer()), (vec![], None), "another interval is no end of the pause");
        interval.resume();
        connection.notify(look());
        let due = connection.timer().expect("the next ping is due");
        assert!(due < 20 * MILLI, "{due:?}");
        connection.advance(due);
        connection.receive(b"Pong");
        assert_eq!((connection.sent(), connection.timer()), (b"Ping".to_vec(), Some(20 * MILLI)));
        assert_eq!(book(&mut connection).operations[1], (Duration::ZERO, Duration::ZERO), "what was not asked was not late");
    }

    #[test]
    fn a_session_is_small() {
        assert!(size_of::<Asking<Book, Question>>() <= 64, "{}", size_of::<Asking<Book, Question>>());
    }
}
