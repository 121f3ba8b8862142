//! A handshake that is complete while the connections of the pool leave for the next build as one set.

use super::*;

/// Returns a connection whose handshake is complete while all others leave.
fn held() -> Driver<Layer<Xor, Commands>> {
    let mut connection = Driver::open(Layer::new(Xor { strict: false }, Commands));
    connection.out.leaves = true;
    connection.receive(b"HI");
    assert_eq!(connection.sent(), b"OK", "the peer has the end of the handshake");
    connection.receive(&xor(b"Ping"));
    assert_eq!((connection.sent(), connection.timer()), (vec![], Some(LOOK)), "its protocol is not there");
    connection
}

#[test]
fn a_connection_that_is_to_leave_is_opened_where_it_goes_on() {
    let mut moved = held().save_and_restore(Layer::new(Xor { strict: false }, Commands)).expect("its handshake is complete");
    let there = moved.sent();
    let mut here = held();
    (0..3).for_each(|_| here.advance(LOOK));
    assert_eq!(here.sent(), b"", "it waits still");
    here.out.leaves = false;
    here.advance(LOOK);
    assert_eq!(here.sent(), there, "the upgrade has failed");
    assert_eq!((moved.timer(), here.timer()), (None, None));
    let mut late = held();
    let timeout = Xor { strict: false }.handshake_timeout();
    late.advance(timeout);
    assert_eq!(late.sent(), there, "it waits no longer than for its handshake");
    // A peer that has said all is served all the same.
    let mut done = held();
    done.finish();
    done.out.leaves = false;
    done.advance(LOOK);
    assert_eq!((xor(&done.sent()[..12]), done.closed()), (b"welcome Pong".to_vec(), Some(Closed::Orderly)));
    let mut drained = held();
    drained.drain();
    drained.advance(LOOK);
    assert_eq!(xor(&drained.sent()), b"welcome Pong<drain>", "it cannot move any more");
}
