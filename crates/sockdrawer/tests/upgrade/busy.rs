//! Loops and threads that are busy in user code while an upgrade wants them.

use super::common::{PATIENCE, address, any_port, connect, read};
use super::place::{Place, config, many_sums};
use super::sums::{add, answer, build, message};
use sockdrawer::{Address, Model};
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn a_loop_that_hangs_at_the_commit_stops_no_other_from_accepting() {
    for together in [false, true] {
        let place = Place::new("hangs");
        let of = |number| {
            let mut service = build(number);
            if together {
                service.state = service.state.together();
            }
            config(service)
        };
        let upgrade = place.upgrade().turns_within(Duration::from_millis(500)).begin().expect("it begins");
        let old = upgrade.start("sums", of(1).listen(any_port())).expect("it starts");
        upgrade.ready().expect("it serves");
        let at = address(&old);
        let mut busy = many_sums(at, 1).remove(0);
        let upgrade = place.upgrade().begin().expect("it begins");
        let new = upgrade.start("sums", of(2).listen(Address::Tcp(at))).expect("it starts");
        busy.write_all(&message(b'h', 3_000)).expect("it stands");
        assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 10));
        let refused = upgrade.ready().expect_err("it hangs").to_string();
        let why = "a loop of it hangs: its code has not returned for 500ms (Upgrade::turns_within)";
        assert!(refused.ends_with(why), "{refused}");
        drop(new);
        let began = Instant::now();
        // Only some of the sockets belong to the loop that hangs.
        let served = (0..40).filter(|_| {
            let mut client = connect(at);
            client.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
            client.write_all(&message(b'a', 1)).expect("it stands");
            read(&mut client, 6).is_some()
        });
        assert!(served.count() > 0 && began.elapsed() < Duration::from_millis(1_500));
        busy.write_all(&message(b'a', 1)).expect("it stands");
        assert_eq!(answer(&mut busy, b'a'), (1, 2));
    }
}

#[test]
fn all_accept_while_a_loop_is_waited_for_that_is_busy_at_the_commit() {
    let place = Place::new("busy");
    let (old, at) = place.serve(config(build(1)).listen(any_port()));
    let mut busy = many_sums(at, 1).remove(0);
    let upgrade = place.upgrade().begin().expect("it begins");
    let new = upgrade.start("sums", config(build(2)).listen(Address::Tcp(at))).expect("it starts");
    busy.write_all(&message(b'h', 2_000)).expect("it stands");
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 10));
    let ready = std::thread::spawn(move || upgrade.ready().map(|()| upgrade));
    let mut served = 0;
    while !ready.is_finished() {
        let mut client = connect(at);
        client.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
        client.write_all(&message(b'a', 1)).expect("it stands");
        served += usize::from(read(&mut client, 6).is_some_and(|told| told[1] == 1));
    }
    drop(ready.join().expect("no panic").expect("it takes over once that is over"));
    assert!(served > 0, "some were served meanwhile");
    assert_eq!(add(&mut busy, 1).1, 2);
    assert_eq!(add(&mut connect(at), 1), (2, 1));
    drop(new);
}

#[test]
fn a_busy_thread_whose_connection_moves_with_others_keeps_no_process_from_accepting_for_long() {
    let place = Place::new("busy-thread");
    let of = |number| {
        let mut service = build(number);
        service.state = service.state.together();
        config(service).model(Model::Threads)
    };
    let (old, at) = place.serve(of(1).listen(any_port()));
    let (mut busy, mut other) = (connect(at), connect(at));
    assert_eq!((add(&mut busy, 1), add(&mut other, 1)), ((1, 1), (1, 1)));
    busy.write_all(&message(b'h', 8_000)).expect("it stands");
    assert!(old.wait(PATIENCE, |status| status.counts.bytes_in == 15));
    let upgrade = place.upgrade().begin().expect("it begins");
    let new = upgrade.start("sums", of(2).listen(Address::Tcp(at))).expect("it starts");
    let ready = std::thread::spawn(move || upgrade.ready().map(|()| upgrade));
    let (mut longest, mut answered, mut by) = (Duration::ZERO, Instant::now(), 1);
    while by == 1 {
        // A client that the old process has just accepted is frozen with the set, which waits for the busy thread.
        let mut client = connect(at);
        client.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
        client.write_all(&message(b'a', 1)).expect("it stands");
        if let Some(told) = read(&mut client, 6) {
            by = told[1];
            longest = longest.max(answered.elapsed());
            answered = Instant::now();
        }
    }
    assert!(longest < Duration::from_secs(4), "no client was answered for {longest:?}");
    drop(ready.join().expect("no panic").expect("it takes over"));
    assert_eq!((add(&mut busy, 1).1, add(&mut other, 1).1), (2, 2));
    drop(new);
}
