//! Connections given away to blocking code: they come back or end, and the pool has them all the while.

mod scene;

use crate::common::{self, PATIENCE, Random, assert_empty, assert_reset, connect, echoes, in_time, read, read_all, reset, start};
use scene::{Giving, Scene, Told, echo_until_asked, line};
use sockdrawer::testing::crash_loop;
use sockdrawer::{
    Address, After, Closed, Config, Context, Delegate, Drain, Drained, Input, Note, Peer, Pool, Protocol, Selector, Service,
    Step, blocking::Wakeup, observe::ConnectionState,
};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[test]
fn the_delegate_reads_what_was_kept_and_the_protocol_what_is_left() {
    let scene = Scene::new(|connection| {
        let text = line(connection);
        connection.write_all(text.to_uppercase().as_bytes()).expect("the peer reads");
        After::Return(Note::value(format!("<{text}>")))
    });
    let mut stream = scene.given(b"a!one\nb!two\nc");
    assert_eq!(read(&mut stream, 14).as_deref(), Some(&b"aONE<one>bTWO<two>c"[..14]));
    assert_eq!(read(&mut stream, 5).as_deref(), Some(&b"two>c"[..]));
    assert!(echoes(&mut stream, b"again"));
    // Half of it comes later, from the socket.
    stream.write_all(b"!thr").expect("it stands");
    scene.wait_away(1);
    stream.write_all(b"ee\n").expect("it stands");
    assert_eq!(read(&mut stream, 12).as_deref(), Some(&b"THREE<three>"[..]));
    drop(stream);
    assert_eq!(scene.hear_closed(), Closed::Orderly);
    assert_empty(&scene.pool);
    let counts = scene.pool.status().counts;
    assert_eq!((counts.delegated, counts.notes, counts.closed, counts.panics), (3, 3, 1, 0));
    assert_eq!((counts.bytes_in, counts.bytes_out), (13 + 5 + 4 + 3, 19 + 5 + 12));
}

#[test]
fn all_that_was_sent_before_leaves_first() {
    const BYTES: usize = 4 << 20;
    /// Service that answers with more than the kernel takes, and gives itself away in the same step.
    struct Long;
    impl Service for Long {
        type Protocol = Long;
        fn open(&self, _peer: &Peer) -> Long {
            Long
        }
    }
    impl Protocol for Long {
        fn opened(&mut self, cx: &mut Context<'_>) -> Step {
            cx.send(&vec![b'a'; BYTES]);
            Step::Delegate(Delegate::new(|connection| {
                connection.write_all(b"b").expect("the peer reads");
                After::End
            }))
        }
        fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            panic!("it was given away before anything was received")
        }
    }
    let (pool, at) = start(Config::accept(Long).loops(1));
    let mut stream = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.connections == 1));
    assert_eq!(pool.status().counts.delegated, 0, "it waits for the peer to read");
    let all = read_all(&mut stream).expect("an orderly end");
    assert_eq!((all.len(), all.last()), (BYTES + 1, Some(&b'b')));
    drop(stream);
    assert_empty(&pool);
    assert_eq!((pool.status().counts.delegated, pool.status().counts.bytes_out), (1, BYTES as u64 + 1));
}

#[test]
fn an_answer_is_whole_though_the_peer_sent_more_than_was_read() {
    let scene = Scene::new(|connection| {
        connection.write_all(&[7; 60_000]).expect("there is room");
        After::End
    });
    for _ in 0..50 {
        let mut stream = scene.given(b"!and what nobody reads");
        stream.write_all(b"more").expect("it stands");
        assert_eq!(read_all(&mut stream).expect("no reset").len(), 60_000);
        assert_eq!(scene.hear_closed(), Closed::Orderly);
    }
    assert_empty(&scene.pool);
}

#[test]
fn a_panic_costs_its_connection_only() {
    let scene = Scene::new(|connection| match line(connection).as_str() {
        "panic" => panic!("as asked"),
        other => After::Return(Note::value(other.to_owned())),
    });
    let mut other = scene.given(b"!x\n");
    assert_eq!(read(&mut other, 1).as_deref(), Some(&b"x"[..]));
    let mut stream = scene.given(b"!panic\n");
    assert_reset(&mut stream);
    assert_eq!(scene.hear_closed(), Closed::Panicked);
    assert!(echoes(&mut other, b"still here"));
    assert_eq!(scene.pool.status().counts.panics, 1);
    assert!(scene.events.lock().expect("no panic").iter().any(|event| event.contains("as asked")));
    drop(other);
    assert_empty(&scene.pool);
}

#[test]
fn a_drain_ends_a_handler_at_its_quiet_point() {
    in_time(|| {
        let scene = Scene::new(echo_until_asked);
        let mut streams: Vec<_> = (0..5).map(|_| scene.given(b"!")).collect();
        scene.wait_away(5);
        assert!(streams.iter_mut().all(|stream| echoes(stream, b"ping")));
        let drained = scene.pool.drain(&Selector::All, Drain::within(PATIENCE));
        assert_eq!((drained.asked, drained.ended, drained.cut), (5, 5, 0));
        for stream in &mut streams {
            assert_eq!(read_all(stream).expect("an orderly end"), b"");
        }
    });
}

#[test]
fn a_connection_that_comes_back_is_asked_then() {
    in_time(|| {
        let scene = Scene::new(|connection| match connection.wait() {
            Ok(Wakeup::Draining) => After::Return(Note::value("back".to_owned())),
            other => panic!("{other:?}"),
        });
        let mut stream = scene.given(b"!");
        scene.wait_away(1);
        scene.hear_handle();
        let drained = scene.pool.drain(&Selector::All, Drain::within(PATIENCE));
        assert_eq!((drained.ended, drained.cut), (1, 0));
        assert_eq!(read_all(&mut stream).expect("an orderly end"), b"back");
        assert!(matches!(scene.hear(), Told::Note(note) if note == "back"));
        assert!(matches!(scene.hear(), Told::Draining));
        assert!(matches!(scene.hear(), Told::Closed(Closed::Orderly)));
    });
}

#[test]
fn a_purge_delivers_what_was_written_and_ends_what_goes_on() {
    in_time(|| {
        let (tells, told) = mpsc::channel();
        let scene = Scene::new(move |connection| {
            connection.write_all(&vec![5; 100_000]).expect("there is room, or the peer reads");
            let error = connection.read(&mut [0]).expect_err("nothing is sent, and it ends");
            tells.send(error.kind()).expect("the test listens");
            After::Return(Note::value("too late".to_owned()))
        });
        let mut stream = scene.given(b"!");
        scene.wait_away(1);
        let purging = std::thread::spawn({
            let pool = scene.pool.clone();
            move || pool.purge(&Selector::All, Duration::from_millis(50)).asked
        });
        // Nothing is read before the deadline.
        assert_eq!(told.recv_timeout(PATIENCE), Ok(ErrorKind::ConnectionAborted));
        assert_eq!(read_all(&mut stream).expect("an orderly end"), vec![5; 100_000]);
        assert_eq!(purging.join().expect("no panic"), 1);
        assert_eq!(scene.hear_closed(), Closed::Purged);
        assert_empty(&scene.pool);
    });
}

#[test]
fn a_purge_ends_what_comes_back_in_time() {
    in_time(|| {
        let scene = Scene::new(|connection| {
            while connection.wait().expect("not yet the deadline") != Wakeup::Draining {}
            After::Return(Note::value("goodbye".to_owned()))
        });
        let mut stream = scene.given(b"!");
        scene.wait_away(1);
        assert_eq!(scene.pool.purge(&Selector::All, PATIENCE).asked, 1);
        assert_eq!(read_all(&mut stream).expect("an orderly end"), b"goodbye");
        assert_empty(&scene.pool);
    });
}

#[test]
fn a_purge_does_not_wait_for_a_handler_that_never_looks() {
    in_time(|| {
        let (lets_go, may_go) = mpsc::channel::<()>();
        let may_go = Mutex::new(may_go);
        let scene = Scene::with(
            move |_| {
                let _ = may_go.lock().expect("no panic").recv_timeout(PATIENCE);
                After::End
            },
            |mut config| {
                config.settings.linger = Duration::from_millis(50);
                config
            },
        );
        let mut stream = scene.given(b"!");
        scene.wait_away(1);
        assert_eq!(scene.pool.purge(&Selector::All, Duration::ZERO), Drained { asked: 1, ended: 0, cut: 1, silent: 0 });
        assert_reset(&mut stream);
        assert!(scene.pool.connections(&Selector::All).is_empty());
        assert!(scene.pool.wait(PATIENCE, |status| status.loops[0].connections == 0));
        assert_eq!(scene.pool.status().connections, 1, "its socket is open: it has its permit");
        lets_go.send(()).expect("it waits");
        assert_empty(&scene.pool);
    });
}

#[test]
fn a_kill_resets_at_once() {
    in_time(|| {
        let (tells, told) = mpsc::channel();
        let scene = Scene::new(move |connection| {
            let ended = connection.read(&mut [0]).map_err(|error| error.kind());
            tells.send((ended, connection.write(b"x").map_err(|error| error.kind()))).expect("the test listens");
            After::Return(Note::value("nobody is there".to_owned()))
        });
        let mut stream = scene.given(b"!");
        let id = scene.wait_away(1)[0].id;
        assert_eq!(scene.pool.kill(&Selector::Id(id)).cut, 1);
        assert_reset(&mut stream);
        let aborted = ErrorKind::ConnectionAborted;
        assert_eq!(told.recv_timeout(PATIENCE), Ok((Err(aborted), Err(aborted))));
        assert_eq!(scene.hear_closed(), Closed::Killed);
        assert_empty(&scene.pool);
        assert_eq!(scene.pool.status().counts.closed, 1);
        assert_eq!(scene.pool.kill(&Selector::Id(id)).cut, 0);
    });
}

#[test]
fn the_list_shows_it_with_its_bytes_and_generation() {
    let scene = Scene::new(echo_until_asked);
    let mut stream = scene.given(b"abc!");
    assert_eq!(read(&mut stream, 3).as_deref(), Some(&b"abc"[..]));
    assert!(echoes(&mut stream, b"12345"));
    // Bytes that are sent may arrive before they are counted.
    assert!(scene.pool.wait(PATIENCE, |_| scene.wait_away(1)[0].bytes_out == 8));
    let away = &scene.wait_away(1)[0];
    assert_eq!((away.bytes_in, away.generation), (9, 1));
    assert_eq!(away.peer, Some(stream.local_addr().expect("it stands")));
    // A newer generation leaves it where it is, and its own goes on living.
    scene.pool.reconfigure(scene.pool.config().behaviour(common::Echo)).expect("it changes");
    let adopted = scene.pool.adopt(&Selector::All);
    assert_eq!((adopted.moved, adopted.stayed, adopted.unasked), (0, 1, 0));
    assert_eq!(adopted.reasons.into_iter().collect::<Vec<_>>(), [("it is in the hands of other code".to_owned(), vec![away.id])]);
    let live = |pool: &Pool| pool.status().generations.iter().map(|one| (one.id, one.connections)).collect::<Vec<_>>();
    assert_eq!(live(&scene.pool), [(1, 1), (2, 0)]);
    assert_eq!(scene.pool.connections(&Selector::Before(2)).len(), 1);
    assert!(echoes(&mut stream, b"still"));
    drop(stream);
    assert_empty(&scene.pool);
    assert_eq!(live(&scene.pool), [(2, 0)]);
    let counts = scene.pool.status().counts;
    assert_eq!((counts.bytes_in, counts.bytes_out), (14, 13));
}

#[test]
fn notes_reach_who_has_the_connection_and_the_rest_the_protocol() {
    let (goes, may_go) = mpsc::channel::<()>();
    let may_go = Mutex::new(may_go);
    let scene = Scene::new(move |connection| {
        for expected in [&b"1"[..], b"2"] {
            assert_eq!(connection.wait().expect("a note"), Wakeup::Note);
            assert_eq!(connection.take_note().expect("it said so").bytes(), Some(expected));
        }
        may_go.lock().expect("no panic").recv_timeout(PATIENCE).expect("told");
        After::Return(Note::value("0".to_owned()))
    });
    let mut stream = scene.given(b"!");
    let handle = scene.hear_handle();
    scene.wait_away(1);
    for number in 1..=5 {
        handle.notify(Arc::<[u8]>::from(number.to_string().into_bytes())).expect("there is room");
    }
    // Answered by the loop behind the five.
    scene.wait_away(1);
    goes.send(()).expect("it waits");
    assert_eq!(read(&mut stream, 4).as_deref(), Some(&b"0345"[..]));
    assert_eq!(scene.pool.status().counts.notes, 6);
    drop(stream);
    assert_empty(&scene.pool);
}

#[test]
fn too_many_notes_are_dropped_and_counted() {
    let scene = Scene::new(|connection| {
        assert_eq!(connection.read(&mut [0]).expect("a byte"), 1);
        let mut taken = 0;
        while connection.take_note().is_some() {
            taken += 1;
        }
        After::Return(Note::value(format!("{taken}")))
    });
    let mut stream = scene.given(b"!");
    scene.wait_away(1);
    for _ in 0..1030 {
        scene.pool.notify(&Selector::All, *b"x").expect("there is room");
    }
    scene.wait_away(1);
    stream.write_all(b"x").expect("it stands");
    assert_eq!(read(&mut stream, 4).as_deref(), Some(&b"1024"[..]));
    assert_eq!(scene.pool.status().counts.notes_dropped, 6);
}

#[test]
fn the_limit_counts_it() {
    let scene = Scene::with(echo_until_asked, |config| config.limit(2));
    let mut streams: Vec<_> = (0..2).map(|_| scene.given(b"!")).collect();
    scene.wait_away(2);
    let mut third = connect(scene.at);
    third.write_all(b"third").expect("the kernel queues it");
    assert_eq!(scene.pool.status().connections, 2);
    drop(streams.pop());
    assert_eq!(read(&mut third, 5).as_deref(), Some(&b"third"[..]));
    assert_eq!(scene.pool.status().connections, 2);
    drop((third, streams));
    assert_empty(&scene.pool);
}

#[test]
fn a_dead_loop_ends_what_is_away_and_its_permit_stays_with_the_socket() {
    in_time(|| {
        let (tells, told) = mpsc::channel();
        let (lets_go, may_go) = mpsc::channel::<()>();
        let may_go = Mutex::new(may_go);
        let scene = Scene::new(move |connection| {
            tells.send(connection.read(&mut [0]).map_err(|error| error.kind())).expect("the test listens");
            may_go.lock().expect("no panic").recv_timeout(PATIENCE).expect("told");
            After::Return(Note::value("nobody is there".to_owned()))
        });
        let mut stream = scene.given(b"!");
        scene.wait_away(1);
        assert!(crash_loop(&scene.pool, 0));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Err(ErrorKind::ConnectionAborted)));
        assert_reset(&mut stream);
        assert_eq!(scene.hear_closed(), Closed::Killed);
        assert!(echoes(&mut connect(scene.at), b"the next loop"));
        assert!(scene.pool.wait(PATIENCE, |status| status.connections == 1));
        lets_go.send(()).expect("it waits");
        assert_empty(&scene.pool);
    });
}

#[test]
fn the_end_of_a_pool_ends_what_is_away_and_waits_for_its_threads() {
    in_time(|| {
        let (tells, told) = mpsc::channel();
        let (begins, began) = mpsc::channel();
        let Scene { pool, at, .. } = Scene::new(move |connection| {
            begins.send(()).expect("the test listens");
            let read = connection.read(&mut [0]).map_err(|error| error.kind());
            tells.send(read).expect("the test listens");
            After::End
        });
        let mut stream = connect(at);
        stream.write_all(b"!").expect("it stands");
        // A delegated connection that is counted may still wait for a thread, and then comes back without its code having begun.
        began.recv_timeout(PATIENCE).expect("a thread has it");
        drop(pool);
        assert_eq!(told.try_recv(), Ok(Err(ErrorKind::ConnectionAborted)), "its thread has ended");
        assert_reset(&mut stream);
    });
}

#[test]
fn a_delegate_may_drop_the_last_handle_of_its_pool() {
    in_time(|| {
        let (gives, pool) = mpsc::channel::<Pool>();
        let pool = Mutex::new(pool);
        let (tells, told) = mpsc::channel();
        let Scene { pool: last, at, .. } = Scene::new(move |connection| {
            let last = pool.lock().expect("no panic").recv_timeout(PATIENCE).expect("given");
            let began = Instant::now();
            drop(last);
            let aborted = connection.write(b"x").map_err(|error| error.kind());
            tells.send((aborted, began.elapsed())).expect("the test listens");
            After::End
        });
        let mut stream = connect(at);
        stream.write_all(b"!").expect("it stands");
        gives.send(last).expect("the delegate waits, or will");
        let (aborted, took) = told.recv_timeout(PATIENCE).expect("told");
        assert_eq!(aborted, Err(ErrorKind::ConnectionAborted));
        assert!(took < Duration::from_secs(5), "it waited for itself: {took:?}");
        assert_reset(&mut stream);
    });
}

#[test]
fn more_delegations_than_threads_wait_their_turn() {
    const THREADS: usize = 2;
    const ALL: usize = 12;
    let (tells, told) = mpsc::channel();
    let (lets_go, may_go) = mpsc::channel::<()>();
    let may_go = Mutex::new(may_go);
    let scene = Scene::with(
        move |connection| {
            tells.send(connection.id().0).expect("the test listens");
            may_go.lock().expect("no panic").recv_timeout(PATIENCE).expect("told");
            After::End
        },
        |config| config.delegates(THREADS),
    );
    let mut streams = Vec::new();
    for count in 1..=ALL {
        streams.push(scene.given(b"!"));
        scene.wait_away(count);
    }
    // A connection that is away may not have been taken up yet.
    let taken_up = scene.pool.wait(PATIENCE, |status| (status.delegates, status.delegates_waiting) == (THREADS, ALL - THREADS));
    assert!(taken_up, "{:?}", scene.pool.status());
    let mut began: Vec<u64> = (0..THREADS).map(|_| told.recv_timeout(PATIENCE).expect("it runs")).collect();
    assert!(told.try_recv().is_err(), "the others wait");
    for _ in THREADS..ALL {
        lets_go.send(()).expect("it waits");
        began.push(told.recv_timeout(PATIENCE).expect("the next one runs"));
    }
    began[..THREADS].sort_unstable();
    assert!(began.is_sorted(), "{began:?}");
    (0..THREADS).for_each(|_| lets_go.send(()).expect("it waits"));
    assert!(streams.iter_mut().all(|stream| read_all(stream).is_ok_and(|all| all.is_empty())));
    drop(streams);
    assert_empty(&scene.pool);
}

#[test]
fn more_threads_are_given_to_a_running_pool() {
    let (tells, told) = mpsc::channel();
    let scene = Scene::with(
        move |connection| {
            tells.send(connection.id()).expect("the test listens");
            echo_until_asked(connection)
        },
        |config| config.delegates(1),
    );
    let streams: Vec<_> = (0..3).map(|_| scene.given(b"!")).collect();
    scene.wait_away(3);
    told.recv_timeout(PATIENCE).expect("one runs");
    assert_eq!(scene.pool.status().delegates_waiting, 2);
    scene.pool.reconfigure(scene.pool.config().delegates(3)).expect("it changes");
    (0..2).for_each(|_| _ = told.recv_timeout(PATIENCE).expect("the others run"));
    drop(streams);
    assert_empty(&scene.pool);
}

#[test]
fn a_time_out_of_a_read_is_an_error() {
    let scene = Scene::new(|connection| {
        connection.set_read_timeout(Some(Duration::from_millis(20)));
        let waited = connection.wait().map_err(|error| error.kind());
        let read = connection.read(&mut [0]).map_err(|error| error.kind());
        After::Return(Note::value(format!("{waited:?} {read:?}")))
    });
    let mut stream = scene.given(b"!");
    assert_eq!(read(&mut stream, 27).as_deref(), Some(&b"Err(TimedOut) Err(TimedOut)"[..]));
}

#[test]
fn a_kill_ends_a_unix_socket_too() {
    in_time(|| {
        let path = std::env::temp_dir().join(format!("sockdrawer-delegation-{}", std::process::id()));
        let (tells, _told) = mpsc::channel();
        let giving = Giving { call: Arc::new(echo_until_asked), tells, handle: None };
        let pool = Pool::start(Config::accept(giving).listen(Address::Unix(path.clone()))).expect("the pool starts");
        let mut stream = UnixStream::connect(&path).expect("the pool listens");
        stream.write_all(b"!").expect("it stands");
        let away = |pool: &Pool| pool.connections(&Selector::All).into_iter().find(|one| one.state == ConnectionState::Delegated);
        assert!(pool.wait(PATIENCE, |_| away(&pool).is_some()));
        assert_eq!(pool.kill(&Selector::Id(away(&pool).expect("just seen").id)).cut, 1);
        assert_eq!(stream.read(&mut [0]).expect("a Unix socket knows no reset"), 0);
        assert_empty(&pool);
        std::fs::remove_file(path).expect("it is there");
    });
}

#[test]
fn nothing_is_lost_count_of_while_all_happens_at_once() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 60;
    in_time(|| {
        let scene = Scene::with(
            |connection| {
                let text = line(connection);
                connection.write_all(text.as_bytes()).expect("the peer reads, or it was killed");
                if text.ends_with('3') { After::End } else { After::Return(Note::value(text)) }
            },
            |config| config.loops(2).delegates(3),
        );
        let at = scene.at;
        let client = |client| std::thread::spawn(move || (0..ROUNDS).map(|round| talk(at, client, round)).sum::<usize>());
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let mut random = Random(7);
        while !clients.iter().all(JoinHandle::is_finished) {
            let all = scene.pool.connections(&Selector::All);
            if let Some(one) = all.get(random.below(all.len().max(1) as u64) as usize) {
                match random.below(3) {
                    0 => _ = scene.pool.kill(&Selector::Id(one.id)),
                    1 => _ = scene.pool.purge(&Selector::Id(one.id), Duration::from_millis(random.below(3))),
                    _ => _ = scene.pool.notify(&Selector::Id(one.id), *b"?"),
                }
            }
        }
        let whole: usize = clients.into_iter().map(|client| client.join().expect("no panic")).sum();
        assert_empty(&scene.pool);
        let status = scene.pool.status();
        assert_eq!((status.counts.closed, status.generations[0].connections), (status.counts.accepted, 0));
        assert_eq!(status.delegates_waiting, 0);
        assert!(whole > 0, "not all were killed");
    });
}

/// Talks over one connection of a client, which may be ended at any point; returns how often its delegate answered.
fn talk(at: SocketAddr, client: usize, round: usize) -> usize {
    let mut stream = connect(at);
    let mut answered = 0;
    for number in 1..=3 {
        let text = format!("{client}-{round}-{number}");
        if stream.write_all(format!("!{text}\n").as_bytes()).is_err() || read(&mut stream, text.len()).is_none() {
            break;
        }
        answered += 1;
    }
    reset(stream);
    answered
}
