use super::super::{Acks, MAX_PAYLOAD};
use super::*;
use crate::meter::tests::{Book, CONNECT_TIME, book, connect};
use sockdrawer::Side;
use sockdrawer::testing::{Bounds, Driver, peer};
use std::sync::atomic::AtomicU64;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

type Open = Driver<Client<fn() -> Book>>;

fn options(batch: u64, window: u64, budget: Budget) -> Options {
    Options { batch, window, timeout: SECOND, budget, ..Options::default() }
}

fn open(options: Options) -> Open {
    connect(Client::new(options, Book::default))
}

fn scheduled(interval: Duration, batch: u64, window: u64) -> Open {
    open(Options { interval, ..options(batch, window, Budget::Unlimited) })
}

/// Returns the ids in messages with payloads of 5 bytes, whose sizes and payloads are right.
fn ids(sent: &[u8]) -> Vec<u64> {
    let (messages, rest) = sent.as_chunks::<17>();
    assert!(rest.is_empty(), "messages are whole");
    let id = |message: &[u8; 17]| {
        assert_eq!(message[8..], [5, 0, 0, 0, 0, 1, 2, 3, 4]);
        u64::from_le_bytes(message[..8].try_into().expect("8 bytes"))
    };
    messages.iter().map(id).collect()
}

fn ack(id: u64, skipped: u32) -> Vec<u8> {
    [&id.to_le_bytes()[..], &skipped.to_le_bytes()].concat()
}

/// Failures of a connection, how it ended, and the number of messages left unacknowledged.
type Outcome = (Vec<(Phase, Option<i32>)>, Vec<End>, u64);

fn outcome(connection: &mut Open) -> Outcome {
    let book = book(connection);
    (book.failures.clone(), book.ends.clone(), book.unacknowledged)
}

#[test]
fn every_server_pattern_is_understood_up_to_the_end() {
    for pattern in ["reply", "timer=5ms", "read", "async=20,5ms", "every=3"] {
        let pattern: AckPattern = pattern.parse().expect("a pattern");
        for size in [0, 5, 1_000, MAX_PAYLOAD] {
            let options = Options { pattern, size, ..options(4, 10, Budget::Each(25)) };
            let (mut client, mut server) = (open(options), Driver::open(Acks { pattern }));
            while client.closed().is_none() {
                client.deliver_notes();
                server.receive(&client.sent());
                server.advance(5 * MILLI);
                client.advance(5 * MILLI);
                if client.finished_sending() && server.closed().is_none() {
                    server.finish();
                }
                client.receive(&server.sent());
                if server.closed().is_some() {
                    client.finish();
                }
            }
            let bytes = 25 * (12 + u64::from(size));
            let book = book(&mut client);
            assert_eq!((book.operations.len(), book.written, book.unacknowledged), (25, (25, bytes), 0), "{pattern} {size}");
            assert_eq!((&book.failures[..], &book.ends[..]), (&[][..], &[End::Complete][..]), "{pattern} {size}");
            assert_eq!((book.connected.len(), book.connected[0], book.first_bytes.len()), (1, CONNECT_TIME, 1));
            assert!(if pattern == AckPattern::Reply { book.acks == 25 } else { (1..=25).contains(&book.acks) });
        }
    }
}

#[test]
fn a_batch_is_a_write_and_the_window_is_never_exceeded() {
    let mut client = open(options(3, 8, Budget::Unlimited));
    assert_eq!(ids(&client.sent()), [0, 1, 2]);
    assert_eq!(client.deliver_notes(), 1);
    assert_eq!(ids(&client.sent()), [3, 4, 5]);
    assert_eq!((client.deliver_notes(), client.sent()), (0, vec![]), "two more would fit, but a batch is three");
    client.receive(&ack(0, 0));
    assert_eq!(ids(&client.sent()), [6, 7, 8]);
    assert_eq!(client.deliver_notes(), 0);
    client.receive(&ack(7, 6));
    assert_eq!(ids(&client.sent()), [9, 10, 11]);
    assert_eq!(client.deliver_notes(), 1);
    assert_eq!(ids(&client.sent()), [12, 13, 14]);
}

#[test]
fn acks_may_be_split_anywhere_and_come_together() {
    let acks = [ack(0, 0), ack(1, 0), ack(5, 3)].concat();
    for at in 0..=acks.len() {
        let mut client = open(options(6, 6, Budget::Each(6)));
        assert!(client.finished_sending(), "nothing follows the last message");
        client.receive(&acks[..at]);
        client.receive(&acks[at..]);
        assert_eq!(client.closed(), None, "the server's end is awaited");
        client.finish();
        assert_eq!(outcome(&mut client), (vec![], vec![End::Complete], 0), "split at {at}");
        let book = book(&mut client);
        assert_eq!((book.operations.len(), book.acks), (6, 3));
    }
    let mut reply = open(Options { pattern: AckPattern::Reply, ..options(6, 6, Budget::Each(6)) });
    reply.receive_split(&(0..6).flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    assert_eq!(book(&mut reply).operations.len(), 6);
}

#[test]
fn gaps_repeats_and_acks_of_what_was_not_sent_are_found() {
    let later = [ack(1, 1), ack(1, 0)].concat();
    let wrong = [ack(1, 0), ack(0, 1), ack(3, 2), ack(4, 4), ack(u64::MAX, 0), ack(4, u32::MAX), later, vec![0xff; 12]];
    for (number, wrong) in wrong.into_iter().enumerate() {
        let mut client = open(options(4, 4, Budget::Unlimited));
        client.receive(&wrong);
        assert_eq!(client.closed(), Some(Closed::Aborted), "{number}");
        let (covered, unacked) = if wrong.len() > 12 { (2, 6 - 2) } else { (0, 4) };
        let (failures, ends, unacknowledged) = outcome(&mut client);
        assert_eq!((failures, ends), (vec![(Phase::Verify, None)], vec![End::Failed]), "{number}");
        assert!(unacknowledged <= unacked && book(&mut client).operations.len() == covered, "{number}");
    }
    for wrong in [[1, 0], [0, 0], [0, 2]] {
        let mut reply = open(Options { pattern: AckPattern::Reply, ..options(2, 2, Budget::Unlimited) });
        reply.receive(&wrong.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        assert_eq!(outcome(&mut reply).0, [(Phase::Verify, None)], "{wrong:?}");
    }
}

#[test]
fn not_a_byte_may_follow_the_last_ack() {
    for garbage in 1..12 {
        let mut client = open(options(2, 2, Budget::Each(2)));
        client.receive(&[ack(1, 1), vec![0; garbage]].concat());
        assert_eq!(outcome(&mut client), (vec![(Phase::Verify, None)], vec![End::Failed], 0));
    }
}

#[test]
fn the_oldest_unacknowledged_message_times_out() {
    let mut client = open(options(1, 2, Budget::Unlimited));
    client.advance(400 * MILLI);
    client.deliver_notes();
    client.advance(400 * MILLI);
    client.receive(&ack(0, 0));
    client.advance(599 * MILLI);
    assert_eq!(client.closed(), None, "the second was sent later");
    client.advance(MILLI);
    let (failures, ends, unacknowledged) = outcome(&mut client);
    assert_eq!((failures, ends, unacknowledged), (vec![(Phase::Answer, TIMED_OUT)], vec![End::Failed], 2));
    let mut endless = open(options(2, 2, Budget::Each(2)));
    endless.advance(500 * MILLI);
    endless.receive(&ack(1, 1));
    endless.advance(999 * MILLI);
    assert_eq!(endless.closed(), None);
    endless.advance(MILLI);
    assert_eq!(outcome(&mut endless), (vec![(Phase::End, TIMED_OUT)], vec![End::Failed], 0));
}

#[test]
fn an_end_before_the_last_ack_is_a_loss() {
    let mut client = open(options(2, 4, Budget::Each(4)));
    client.deliver_notes();
    client.receive(&[ack(1, 1), ack(3, 1)[..11].to_vec()].concat());
    client.finish();
    assert_eq!(outcome(&mut client), (vec![(Phase::Answer, None)], vec![End::Lost], 2));
    let mut reset = open(options(2, 2, Budget::Unlimited));
    reset.end(Closed::Error(104));
    assert_eq!(outcome(&mut reset), (vec![(Phase::Answer, Some(104))], vec![End::Lost], 2));
    let mut purged = open(options(2, 2, Budget::Unlimited));
    purged.end(Closed::Purged);
    assert_eq!(outcome(&mut purged), (vec![], vec![End::CutOff], 2));
}

#[test]
fn a_drain_waits_for_what_was_sent_and_sends_no_more() {
    let mut client = open(options(2, 4, Budget::Unlimited));
    client.drain();
    assert_eq!((client.deliver_notes(), client.closed()), (1, None));
    assert_eq!(ids(&client.sent()), [0, 1]);
    client.receive(&ack(0, 0));
    assert_eq!(client.closed(), None);
    client.receive(&ack(1, 0));
    assert_eq!((client.sent(), client.closed()), (vec![], Some(Closed::Orderly)));
    assert_eq!(outcome(&mut client), (vec![], vec![End::Stopped], 0));
    let mut resting = scheduled(SECOND, 1, 4);
    resting.drain();
    assert_eq!(outcome(&mut resting), (vec![], vec![End::Stopped], 0));
}

#[test]
fn a_shared_budget_is_sent_to_the_last_message_by_whoever_is_first() {
    let left = Arc::new(AtomicU64::new(7));
    let mut one = open(options(3, 9, Budget::Shared(left.clone())));
    let mut other = open(options(3, 9, Budget::Shared(left.clone())));
    assert!(!one.finished_sending() && !other.finished_sending());
    one.deliver_notes();
    other.deliver_notes();
    assert_eq!((ids(&one.sent()), ids(&other.sent())), (vec![0, 1, 2, 3], vec![0, 1, 2]));
    assert!(one.finished_sending() && other.finished_sending());
    let mut late = open(options(3, 9, Budget::Shared(left)));
    assert!(late.finished_sending() && late.sent().is_empty());
    late.finish();
    assert_eq!(outcome(&mut late), (vec![], vec![End::Complete], 0));
}

#[test]
fn by_a_schedule_each_message_counts_from_when_it_was_due() {
    let mut client = scheduled(10 * MILLI, 4, 100);
    let first = client.timer().expect("the first message is due");
    assert!(first < 10 * MILLI && client.sent().is_empty());
    client.advance(first);
    assert_eq!(ids(&client.sent()), [0]);
    client.advance(10 * MILLI);
    assert_eq!(ids(&client.sent()), [1]);
    client.receive(&ack(1, 1));
    assert_eq!(book(&mut client).operations, [(Duration::ZERO, 10 * MILLI), (Duration::ZERO, Duration::ZERO)]);
    assert_eq!(client.timer(), Some(10 * MILLI));
}

#[test]
fn the_client_is_late_when_its_timer_is_and_not_when_acks_are() {
    let mut client = scheduled(10 * MILLI, 4, 2);
    let first = client.timer().expect("the first message is due");
    client.oversleep(first + 3 * MILLI);
    client.advance(Duration::ZERO);
    assert_eq!((ids(&client.sent()), &book(&mut client).lags[..]), (vec![0], &[3 * MILLI][..]));
    client.advance(57 * MILLI);
    assert_eq!(ids(&client.sent()), [1], "the window is full");
    client.receive(&ack(1, 1));
    assert_eq!(ids(&client.sent()), [2, 3], "these were due meanwhile");
    assert_eq!(book(&mut client).lags, [3 * MILLI, Duration::ZERO]);
}

#[test]
fn late_messages_are_sent_by_batches_and_do_not_shift_the_schedule() {
    let mut client = scheduled(10 * MILLI, 4, 2);
    client.advance(client.timer().expect("the first message is due"));
    client.advance(65 * MILLI);
    assert_eq!(ids(&client.sent()), [0, 1], "the window is full");
    client.receive(&ack(1, 1));
    assert_eq!(ids(&client.sent()), [2, 3]);
    client.receive(&ack(3, 1));
    assert_eq!(ids(&client.sent()), [4, 5]);
    client.receive(&ack(5, 1));
    assert_eq!((ids(&client.sent()), client.timer()), (vec![6], Some(5 * MILLI)));
    let late = |millis: u32| (millis * MILLI, Duration::ZERO);
    assert_eq!(book(&mut client).operations[2..], [late(45), late(35), late(25), late(15)]);
    let mut batches = scheduled(MILLI, 3, 100);
    batches.block_output(true);
    batches.advance(batches.timer().expect("the first message is due"));
    batches.block_output(false);
    assert_eq!(ids(&batches.sent()), [0]);
}

#[test]
fn what_the_server_does_not_read_stops_it_and_acks_are_read_meanwhile() {
    for size in [5, 100_000] {
        let message = 12 + size as usize;
        let limits = Bounds { high_water: message * 8, low_water: message * 4, ..Bounds::default() };
        let service = Client::new(Options { size, ..options(6, 1_000, Budget::Unlimited) }, Book::default as fn() -> Book);
        let mut client = Driver::open_with(service, peer(Side::Connected, CONNECT_TIME), limits);
        assert_eq!(client.sent().len(), message * 6);
        client.block_output(true);
        assert_eq!((client.deliver_notes(), client.deliver_notes(), client.backlog()), (1, 1, message * 12));
        assert_eq!((client.deliver_notes(), client.deliver_notes(), client.backlog()), (1, 0, message * 12));
        client.receive(&ack(5, 5));
        assert_eq!((book(&mut client).operations.len(), client.backlog()), (6, message * 12));
        client.read_backlog(message * 9);
        assert_eq!(client.backlog(), message * 9, "the next batch");
        client.block_output(false);
        assert_eq!((client.sent().len(), client.deliver_notes()), (message * 24, 1));
        assert_eq!(client.sent().len(), message * 6);
    }
}

#[test]
fn a_batch_has_no_more_than_a_mebibyte_unless_it_is_a_single_message() {
    for (size, batch, messages) in [(5, 100_000, (1 << 20) / 17), (100_000, 100, 10), (MAX_PAYLOAD, 100, 1)] {
        let mut client = open(Options { size, ..options(batch, 1_000_000, Budget::Unlimited) });
        assert_eq!(client.sent().len(), messages * (12 + size as usize));
    }
}

#[test]
fn a_full_inbox_is_got_around_by_the_timer() {
    let limits = Bounds { inbox: 0, ..Bounds::default() };
    let service = Client::new(options(2, 4, Budget::Unlimited), Book::default as fn() -> Book);
    let mut client = Driver::open_with(service, peer(Side::Connected, CONNECT_TIME), limits);
    assert_eq!((ids(&client.sent()), client.timer()), (vec![0, 1], Some(Duration::ZERO)));
    client.advance(Duration::ZERO);
    assert_eq!((ids(&client.sent()), client.timer()), (vec![2, 3], Some(SECOND)));
}

#[test]
fn a_session_is_small() {
    assert!(size_of::<Streaming<Book>>() <= 160, "{}", size_of::<Streaming<Book>>());
}
