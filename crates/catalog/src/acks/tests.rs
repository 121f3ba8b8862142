//! A client of the simplest kind checks that every message is covered once, in order.

use super::*;
use sockdrawer::Closed;
use sockdrawer::testing::{Bounds, Driver, peer};

const AFTER: Duration = Duration::from_millis(5);
const PATTERNS: [AckPattern; 5] = [
    AckPattern::Reply,
    AckPattern::Timer(AFTER),
    AckPattern::Read,
    AckPattern::Async { reads: 3, after: AFTER },
    AckPattern::Every(3),
];

type Open = Driver<Acks>;

fn open(pattern: AckPattern) -> Open {
    Driver::open(Acks { pattern })
}

fn message(pattern: AckPattern, id: u64, payload: usize) -> Vec<u8> {
    let size = payload as u32;
    let size = if pattern == AckPattern::Reply { size.to_be_bytes() } else { size.to_le_bytes() };
    [&id.to_le_bytes()[..], &size, &vec![b'p'; payload]].concat()
}

/// Returns messages 0 to `count`, with payloads of 5 bytes: 17 bytes each.
fn messages(pattern: AckPattern, count: u64) -> Vec<u8> {
    (0..count).flat_map(|id| message(pattern, id, 5)).collect()
}

/// Returns acks of 12 bytes as last id and count covered besides.
fn acks(connection: &mut Open) -> Vec<(u64, u32)> {
    let sent = connection.sent();
    let (acks, rest) = sent.as_chunks::<12>();
    assert!(rest.is_empty());
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    acks.iter().map(|ack| (number(&ack[..8]), number(&ack[8..]) as u32)).collect()
}

/// Checks what came back the way a client does, and returns how many messages are covered.
fn covered(pattern: AckPattern, connection: &mut Open) -> u64 {
    if pattern == AckPattern::Reply {
        let sent = connection.sent();
        let (ids, rest) = sent.as_chunks::<8>();
        assert!(rest.is_empty() && ids.iter().map(|id| u64::from_le_bytes(*id)).eq(0..ids.len() as u64));
        return ids.len() as u64;
    }
    acks(connection).into_iter().fold(0, |next, (id, skipped)| {
        assert_eq!(next + u64::from(skipped), id, "last_ack + skipped + 1 == id");
        id + 1
    })
}

#[test]
fn every_message_is_covered_wherever_the_stream_is_split() {
    for pattern in PATTERNS {
        let stream = messages(pattern, 7);
        for at in 0..=stream.len() {
            let mut connection = open(pattern);
            connection.receive(&stream[..at]);
            connection.receive(&stream[at..]);
            connection.finish();
            assert_eq!((covered(pattern, &mut connection), connection.closed()), (7, Some(Closed::Orderly)), "{pattern} at {at}");
        }
        let mut connection = open(pattern);
        connection.receive_split(&stream);
        assert!(connection.kept().is_empty());
        connection.advance(AFTER);
        assert_eq!(covered(pattern, &mut connection), 7, "{pattern}: nothing stays unacknowledged without an end either");
    }
}

#[test]
fn reply_answers_each_and_read_each_read() {
    let mut reply = open(AckPattern::Reply);
    reply.receive(&message(AckPattern::Reply, 0x0102_0304_0506_0708, 300));
    assert_eq!(reply.sent(), [8, 7, 6, 5, 4, 3, 2, 1]);
    let mut read = open(AckPattern::Read);
    read.receive(&messages(AckPattern::Read, 4)[..17 * 3 + 2]);
    assert_eq!((acks(&mut read), read.timer()), (vec![(2, 2)], None));
    read.receive(&messages(AckPattern::Read, 4)[17 * 3 + 2..]);
    assert_eq!(acks(&mut read), [(3, 0)]);
}

#[test]
fn a_timer_counts_from_the_first_message_that_waits() {
    let pattern = AckPattern::Timer(AFTER);
    let mut connection = open(pattern);
    connection.receive(&message(pattern, 0, 0));
    connection.advance(AFTER * 3 / 5);
    connection.receive(&message(pattern, 1, 0));
    assert_eq!((connection.sent(), connection.timer()), (vec![], Some(AFTER * 2 / 5)));
    connection.advance(AFTER * 2 / 5);
    assert_eq!((acks(&mut connection), connection.timer()), (vec![(1, 1)], None));
    connection.receive(&message(pattern, 2, 0));
    assert_eq!(connection.timer(), Some(AFTER));
}

#[test]
fn async_is_reads_or_time_whichever_is_first() {
    let pattern = AckPattern::Async { reads: 3, after: AFTER };
    let mut connection = open(pattern);
    for id in 0..3 {
        assert_eq!(connection.sent(), b"");
        connection.receive(&message(pattern, id, 1));
    }
    assert_eq!((acks(&mut connection), connection.timer()), (vec![(2, 2)], None));
    connection.receive(&message(pattern, 3, 1));
    connection.advance(AFTER);
    assert_eq!((acks(&mut connection), connection.timer()), (vec![(3, 0)], None));
}

#[test]
fn every_is_so_many_messages_and_the_rest_by_timer() {
    let pattern = AckPattern::Every(3);
    let mut connection = open(pattern);
    connection.receive(&messages(pattern, 7));
    assert_eq!((acks(&mut connection), connection.timer()), (vec![(2, 2), (5, 2)], Some(EVERY_AT_LATEST)));
    connection.advance(EVERY_AT_LATEST);
    assert_eq!((acks(&mut connection), connection.timer()), (vec![(6, 0)], None));
}

#[test]
fn a_payload_may_be_larger_than_what_may_be_left_untaken() {
    for pattern in PATTERNS {
        let limits = Bounds { max_partial: 12, ..Bounds::default() };
        let mut connection = Driver::open_with(Acks { pattern }, peer(sockdrawer::Side::Accepted, Duration::ZERO), limits);
        let stream = [message(pattern, 0, MAX_PAYLOAD as usize), message(pattern, 1, 0), message(pattern, 2, 70_000)].concat();
        stream.chunks(4_099).for_each(|read| connection.receive(read));
        assert!(connection.kept().is_empty());
        connection.finish();
        assert_eq!(covered(pattern, &mut connection), 3);
    }
}

#[test]
fn an_oversize_payload_closes_after_what_is_owed() {
    for pattern in PATTERNS {
        let mut connection = open(pattern);
        connection.receive(&[messages(pattern, 2), message(pattern, 2, MAX_PAYLOAD as usize + 1)[..12].to_vec()].concat());
        assert_eq!((covered(pattern, &mut connection), connection.closed()), (2, Some(Closed::Orderly)), "{pattern}");
    }
    // Big-endian sizes read as little-endian ones are huge: a client with the wrong `--ack` is closed, not misread.
    let mut confused = open(AckPattern::Read);
    confused.receive(&messages(AckPattern::Reply, 1));
    assert_eq!((confused.sent(), confused.closed()), (vec![], Some(Closed::Orderly)));
    assert!(confused.reports()[0].contains("another pattern"), "{:?}", confused.reports());
}

#[test]
fn half_a_message_that_ends_is_not_acknowledged() {
    for pattern in PATTERNS {
        for missing in [1, 5, 6, 16] {
            let mut connection = open(pattern);
            let stream = messages(pattern, 3);
            connection.receive(&stream[..stream.len() - missing]);
            connection.finish();
            assert_eq!((covered(pattern, &mut connection), connection.closed()), (2, Some(Closed::Orderly)), "{pattern}");
        }
    }
}

#[test]
fn a_drain_takes_the_message_under_way_and_no_more() {
    for pattern in PATTERNS {
        let stream = messages(pattern, 4);
        let mut between = open(pattern);
        between.receive(&stream[..17 * 2]);
        between.drain();
        assert_eq!((covered(pattern, &mut between), between.closed()), (2, Some(Closed::Orderly)), "{pattern}");
        let mut within = open(pattern);
        within.receive(&stream[..17 + 14]);
        within.drain();
        assert_eq!(within.closed(), None);
        let before = covered(pattern, &mut within);
        within.receive(&stream[17 + 14..]);
        assert_eq!((before, within.closed()), (1, Some(Closed::Orderly)), "{pattern}");
        assert_eq!(count(pattern, &within.sent()), 1, "{pattern}");
    }
}

#[test]
fn what_is_purged_within_a_message_has_acks_for_all_before_it() {
    for pattern in PATTERNS {
        let mut connection = open(pattern);
        connection.receive(&messages(pattern, 4)[..17 * 2 + 14]);
        connection.drain();
        connection.end(Closed::Purged);
        assert_eq!(covered(pattern, &mut connection), 2, "{pattern}");
    }
}

#[test]
fn a_connection_moves_with_its_unacknowledged_messages_and_its_payload() {
    for (from, to) in
        [(PATTERNS[0], PATTERNS[0]), (PATTERNS[1], PATTERNS[4]), (PATTERNS[3], PATTERNS[2]), (PATTERNS[4], PATTERNS[1])]
    {
        let stream = messages(from, 5);
        for at in 0..stream.len() {
            let mut connection = open(from);
            connection.receive(&stream[..at]);
            let before = connection.sent();
            let mut connection =
                connection.save_and_restore(Acks { pattern: to }).expect("the size is written in the same order");
            connection.receive(&stream[at..]);
            connection.advance(AFTER);
            let after = connection.sent();
            assert_eq!(count(from, &[before, after].concat()), 5, "{from} to {to} at {at}");
        }
    }
    let reply = open(AckPattern::Reply);
    assert!(reply.save_and_restore(Acks { pattern: AckPattern::Read }).is_err(), "its client writes sizes in the other order");
}

/// Returns the number of messages that these acks cover, none of them twice.
fn count(pattern: AckPattern, sent: &[u8]) -> u64 {
    if pattern == AckPattern::Reply {
        return sent.len() as u64 / 8;
    }
    let (acks, _) = sent.as_chunks::<12>();
    acks.iter().map(|ack| 1 + u64::from(u32::from_le_bytes([ack[8], ack[9], ack[10], ack[11]]))).sum()
}

#[test]
fn it_is_small_and_can_be_built_elsewhere() {
    assert!(size_of::<super::Connection>() <= 48, "{}", size_of::<super::Connection>());
    for pattern in PATTERNS {
        let recipe = Acks { pattern }.recipe().expect("it has one");
        assert_eq!(Acks::from_options(&recipe.options), Ok(Acks { pattern }));
    }
    assert!(Acks::from_options(b"never").is_err());
}
