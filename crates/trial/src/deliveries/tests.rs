//! Tests of the book of messages: losses, doubles, and order.

use super::*;

/// Returns the book of clients that have subscribed.
fn subscribed(clients: usize) -> Deliveries {
    let deliveries = Deliveries::default();
    (0..clients).for_each(|number| assert_eq!(deliveries.comes(), number));
    (0..clients).for_each(|number| deliveries.subscribes(number));
    deliveries
}

fn published(deliveries: &Deliveries, sender: usize) -> u64 {
    deliveries.publishes(sender).expect("it is not quiet yet")
}

fn counts(deliveries: &Deliveries) -> Vec<(u64, u64, u64)> {
    deliveries.be_quiet();
    assert_eq!(deliveries.publishes(0), None, "so that what is counted stays what it is");
    deliveries.close();
    deliveries.by_sender().iter().map(|one| (one.lost, one.doubled, one.out_of_order)).collect()
}

#[test]
fn messages_that_all_hear_once_and_in_order_are_clean() {
    for echoes in [false, true] {
        let deliveries = subscribed(3);
        for sender in [0, 1, 0, 2] {
            let number = published(&deliveries, sender);
            assert!(!deliveries.is_complete());
            (0..3).filter(|listener| *listener != sender || echoes).for_each(|one| assert!(deliveries.hears(one, number)));
            assert!(deliveries.is_complete());
        }
        assert_eq!(counts(&deliveries), [(0, 0, 0); 3]);
        let all = deliveries.by_sender();
        assert_eq!((all[0].published, all[0].heard, all[0].is_clean()), (2, if echoes { 6 } else { 4 }, true));
    }
}

#[test]
fn each_fault_is_counted_for_its_sender() {
    let deliveries = subscribed(3);
    let mut numbers: Vec<u64> = (0..5).map(|_| published(&deliveries, 1)).collect();
    numbers.swap(1, 2);
    numbers.iter().for_each(|number| assert!(deliveries.hears(0, *number)));
    deliveries.next_change();
    assert!(deliveries.hears(0, numbers[0]) && deliveries.hears(0, numbers[1]));
    // The other one lacks one in the middle and the last one.
    [numbers[0], numbers[1], numbers[3]].iter().for_each(|number| assert!(deliveries.hears(2, *number)));
    assert!(!deliveries.is_complete());
    let losses = deliveries.close();
    assert_eq!(
        (losses.doubled, losses.by_change),
        (BTreeMap::from([(0, 2)]), BTreeMap::from([(0, 2)])),
        "published before the change"
    );
    assert_eq!(counts(&deliveries), [(0, 0, 0), (2, 2, 1), (0, 0, 0)]);
}

#[test]
fn a_sender_that_hears_some_of_its_own_messages_must_hear_all() {
    let deliveries = subscribed(1);
    let first = published(&deliveries, 0);
    assert!(deliveries.is_complete(), "the server may leave the sender out");
    assert!(deliveries.hears(0, first));
    published(&deliveries, 0);
    assert_eq!(counts(&deliveries), [(1, 0, 0)]);
}

#[test]
fn a_client_has_to_hear_what_is_published_after_it_subscribed() {
    let deliveries = subscribed(2);
    let before = published(&deliveries, 0);
    assert!(deliveries.hears(1, before));
    let late = deliveries.comes();
    assert!(deliveries.hears(late, before), "it may hear it");
    deliveries.subscribes(late);
    assert!(deliveries.hears(late, before) && deliveries.is_complete(), "on its way meanwhile");
    let after = published(&deliveries, 0);
    published(&deliveries, late);
    assert!(deliveries.hears(1, after));
    // The late one lacks one of the first, both others lack the one of the late one.
    assert_eq!(counts(&deliveries), [(1, 0, 0), (0, 0, 0), (2, 0, 0)]);
}

#[test]
fn a_sender_that_went_owes_only_messages_that_somebody_heard() {
    let deliveries = subscribed(3);
    let numbers: Vec<u64> = (0..4).map(|_| published(&deliveries, 0)).collect();
    deliveries.goes(0);
    numbers[..3].iter().for_each(|number| assert!(deliveries.hears(1, *number)));
    assert!(deliveries.hears(2, numbers[0]) && deliveries.hears(2, numbers[2]));
    assert_eq!(counts(&deliveries), [(1, 0, 0), (0, 0, 0), (0, 0, 0)]);
}

#[test]
fn a_client_that_went_has_lost_what_was_overtaken_and_not_what_was_on_its_way() {
    let deliveries = subscribed(2);
    let numbers: Vec<u64> = (0..4).map(|_| published(&deliveries, 0)).collect();
    assert!(deliveries.hears(1, numbers[0]) && deliveries.hears(1, numbers[2]));
    deliveries.goes(1);
    assert_eq!(counts(&deliveries), [(1, 0, 0), (0, 0, 0)]);
}

/// A kill excuses messages that were published before one process was alone, and only those with a connection at either end that came in that time.
#[test]
fn a_kill_excuses_messages_of_connections_that_came_beside_it() {
    let deliveries = subscribed(2);
    deliveries.next_change();
    deliveries.change_ends(false);
    // In change 2 a process is killed: one more client comes, and no client hears anything from then on.
    deliveries.next_change();
    let late = deliveries.comes();
    deliveries.subscribes(late);
    (0..3).for_each(|sender| _ = published(&deliveries, sender));
    deliveries.change_ends(true);
    (0..3).for_each(|sender| _ = published(&deliveries, sender));
    let losses = deliveries.close();
    // The first two lack each other's, always; the third's, and to the third, only after the kill.
    assert_eq!(
        losses,
        Losses {
            by_change: BTreeMap::from([(2, 2 + 6)]),
            doubled: BTreeMap::new(),
            unheard: 5,
            deaf: BTreeSet::from([2]),
            hearers: 3,
            lacking: 3
        }
    );
    let counts: Vec<(u64, u64)> = deliveries.by_sender().iter().map(|one| (one.lost, one.beside_kills)).collect();
    assert_eq!(counts, [(3, 1), (3, 1), (2, 2)]);
}

/// A server that sends nothing on is found, though each kill ends all connections.
#[test]
fn messages_that_had_the_time_to_arrive_are_due_though_their_connections_end_with_a_kill() {
    let deliveries = subscribed(2);
    published(&deliveries, 0);
    // waits because: so long a message may be on its way.
    std::thread::sleep(ARRIVES + SPAN);
    published(&deliveries, 0);
    deliveries.next_change();
    published(&deliveries, 0);
    [0, 1].into_iter().for_each(|number| deliveries.goes(number));
    deliveries.change_ends(true);
    deliveries.close();
    assert_eq!(deliveries.by_sender().iter().map(|one| (one.lost, one.beside_kills)).collect::<Vec<_>>(), [(1, 0), (0, 0)]);
}

/// A busy machine brings the end of a connection to its client a change later: by then it publishes to a process that is dead.
#[test]
fn a_connection_of_a_killed_process_owes_nothing_from_the_kill_on_though_its_end_is_seen_late() {
    let deliveries = subscribed(3);
    deliveries.next_change();
    (0..3).for_each(|sender| _ = published(&deliveries, sender));
    deliveries.change_ends(true);
    deliveries.next_change();
    deliveries.change_ends(false);
    (0..3).for_each(|sender| _ = published(&deliveries, sender));
    // waits because: after so long a message has arrived.
    std::thread::sleep(ARRIVES + SPAN);
    [0, 1].into_iter().for_each(|number| deliveries.goes(number));
    deliveries.next_change();
    deliveries.change_ends(false);
    // waits because: as above.
    std::thread::sleep(ARRIVES + SPAN);
    deliveries.goes(2);
    // The last one ends too late for the kill, but what the others published was due to no client.
    assert_eq!(counts(&deliveries), [(0, 0, 0); 3]);
}

/// A server may keep the last message of a topic for all that subscribe later.
#[test]
fn messages_of_the_check_before_the_trial_are_not_counted() {
    let (check, deliveries) = (Deliveries::of_check(), subscribed(1));
    assert_eq!(check.comes(), 0);
    let number = published(&check, 0);
    assert!(check.hears(0, number) && deliveries.hears(0, number));
    assert_eq!(counts(&deliveries), [(0, 0, 0)]);
}

#[test]
fn messages_that_nobody_published_are_none() {
    let deliveries = subscribed(1);
    let first = published(&deliveries, 0);
    for number in [0, 7, first - 1, first + 1, first + SENDER, u64::MAX] {
        assert!(!deliveries.hears(0, number), "{number}");
    }
}
