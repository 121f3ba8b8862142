//! Several timers of one connection, on the clock of a driver.

use super::*;
use crate::protocol::Timers;

/// Commands of three bytes: a verb, a key and a number of seconds. `+a5` sets a timer, `-a0` clears it. A due timer sends its key.
struct Keys {
    timers: Timers<u8>,
    /// Takes only one key for each `timeout`.
    lazy: bool,
    left: Vec<(u8, Duration)>,
}

struct Keyed {
    lazy: bool,
}

impl Service for Keyed {
    type Protocol = Keys;
    fn open(&self, _peer: &Peer) -> Keys {
        Keys { timers: Timers::new(), lazy: self.lazy, left: Vec::new() }
    }
    fn restore(&self, _peer: &Peer, from: &mut Saved<'_>) -> Result<Keys, CannotRestore> {
        Ok(Keys { timers: Timers::default(), lazy: self.lazy, left: from.value()? })
    }
}

impl Protocol for Keys {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(command) = input.exactly(3) {
            let (key, after) = (command[1], Duration::from_secs(u64::from(command[2] - b'0')));
            match command[0] {
                b'+' => self.timers.set(key, after, cx),
                b'@' => self.timers.set_at(key, cx.now() + after, cx),
                b'8' => self.timers.set(key, Duration::MAX, cx),
                _ => self.timers.clear(&key, cx),
            }
        }
        Step::Continue
    }
    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        while let Some(key) = self.timers.due(cx) {
            cx.send(&[key]);
            if key == b'r' {
                self.timers.set(key, Duration::from_secs(2), cx);
            }
            if self.lazy {
                break;
            }
        }
        Step::Continue
    }
    fn notified(&mut self, _note: Note, cx: &mut Context<'_>) -> Step {
        while let Some(key) = self.timers.due(cx) {
            cx.send(&[key]);
        }
        Step::Continue
    }
    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        to.value(&self.timers.left(to.now()).collect::<Vec<_>>())
    }
    fn restored(&mut self, cx: &mut Context<'_>) -> Step {
        for (key, left) in self.left.drain(..) {
            self.timers.set(key, left, cx);
        }
        Step::Continue
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_nearest_timer_is_the_connections() {
    let mut connection = Driver::open(Keyed { lazy: false });
    connection.receive(b"+a5+b3@c7");
    assert_eq!(connection.timer(), Some(3 * SECOND));
    connection.receive(b"-b0");
    assert_eq!(connection.timer(), Some(5 * SECOND));
    connection.receive(b"+a9");
    assert_eq!(connection.timer(), Some(7 * SECOND), "set again, it is another's turn");
    connection.advance(7 * SECOND);
    assert_eq!((connection.sent(), connection.timer()), (b"c".to_vec(), Some(2 * SECOND)));
    connection.receive(b"-a0-a0-z0");
    assert_eq!(connection.timer(), None);
    connection.receive(b"+a18a0");
    assert_eq!(connection.timer(), None, "a time that the clock cannot represent never comes");
    connection.advance(100 * SECOND);
    assert_eq!(connection.sent(), b"");
}

#[test]
fn timers_fire_in_the_order_of_their_times_and_at_one_time_as_they_were_set() {
    let mut connection = Driver::open(Keyed { lazy: false });
    connection.receive(b"+a2+b1+c2+d0+e2");
    connection.advance(Duration::ZERO);
    assert_eq!(connection.sent(), b"d");
    connection.advance(SECOND);
    assert_eq!(connection.sent(), b"b");
    connection.receive(b"+a1");
    connection.advance(SECOND);
    assert_eq!(connection.sent(), b"cea", "a was set again, after the others");
    connection.receive(b"+r1");
    connection.advance(7 * SECOND);
    assert_eq!((connection.sent(), connection.timer()), (b"rrrr".to_vec(), Some(2 * SECOND)), "at 1, 3, 5 and 7 seconds");
}

#[test]
fn no_timer_is_lost_when_the_loop_is_late_or_the_protocol_asks_for_one_at_a_time() {
    for lazy in [false, true] {
        let mut connection = Driver::open(Keyed { lazy });
        connection.receive(b"+a1+b2+c3+d9");
        connection.oversleep(4 * SECOND);
        assert_eq!(connection.timer(), Some(Duration::ZERO));
        connection.advance(Duration::ZERO);
        assert_eq!((connection.sent(), connection.timer()), (b"abc".to_vec(), Some(5 * SECOND)));
    }
}

#[test]
fn timers_move_as_durations() {
    let mut connection = Driver::open(Keyed { lazy: false });
    connection.receive(b"+a9+b5+c2");
    connection.advance(SECOND);
    connection.oversleep(2 * SECOND);
    let mut connection = connection.save_and_restore(Keyed { lazy: false }).expect("it moves");
    let left: Vec<_> =
        connection.protocol().expect("it lives").timers.left(connection.now()).map(|(key, left)| (*key, left)).collect();
    assert_eq!(left, [(b'c', Duration::ZERO), (b'b', 2 * SECOND), (b'a', 6 * SECOND)], "one is overdue");
    connection.advance(2 * SECOND);
    assert_eq!((connection.sent(), connection.timer()), (b"cb".to_vec(), Some(4 * SECOND)));
}

#[test]
fn due_sets_a_timer_again_that_was_stopped() {
    let mut connection = Driver::open(Keyed { lazy: false });
    connection.receive(b"+a1+b5");
    connection.wire.due = None; // As a delegation does.
    connection.oversleep(2 * SECOND);
    connection.notify(Note::value(()));
    assert_eq!((connection.sent(), connection.timer()), (b"a".to_vec(), Some(3 * SECOND)));
}
