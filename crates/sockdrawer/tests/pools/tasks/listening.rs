//! Listeners: connections on their way from a pool to code on another runtime.

use super::{echo, runtime, stubborn, tasks};
use crate::common::*;
use sockdrawer::{Behaviour, Config, Drain, Model, Pool, connecting::Connecting};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn while_nobody_accepts_the_limit_holds_and_the_kernel_queues() {
    let (pool, at) = start(tasks(Behaviour::listener()).limit(3));
    let clients: Vec<_> = (0..10).map(|_| connect(at)).collect();
    assert!(pool.wait(PATIENCE, |status| status.connections == 3));
    let queued = |status: &sockdrawer::observe::Status| status.listeners[0].queued;
    assert!(pool.wait(PATIENCE, |status| queued(status) == 7), "{:#?}", pool.status());
    let mut listener = pool.listener();
    assert_eq!(listener.local_addr().expect("it listens"), Some(at));
    let elsewhere = runtime();
    elsewhere.spawn(async move {
        while let Some(connection) = listener.accept().await {
            let info = connection.info().clone();
            tokio::spawn(stubborn(connection, info));
        }
    });
    // Which of them are in first is the kernel's choice.
    std::thread::scope(|scope| {
        for mut client in clients {
            let pool = &pool;
            scope.spawn(move || {
                assert!(echoes(&mut client, b"served"));
                assert!(pool.status().connections <= 3);
            });
        }
    });
    assert_empty(&pool);
    assert_eq!(pool.status().counts.accepted, 10);
}

#[test]
fn what_a_dropped_listener_leaves_is_ended_in_order() {
    let (pool, at) = start(tasks(Behaviour::listener()));
    let (listener, other) = (pool.listener(), pool.listener());
    let mut clients: Vec<_> = (0..20).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"is anybody there?").expect("open"));
    assert!(pool.wait(PATIENCE, |status| status.connections == 20));
    drop(listener);
    assert_eq!(pool.status().connections, 20, "another one may take them");
    drop(other);
    for mut client in clients {
        assert_eq!(read_all(&mut client).expect("no reset"), b"");
    }
    let mut late = connect(at);
    assert_eq!(read_all(&mut late).expect("no reset"), b"");
    assert_empty(&pool);
    // A new one is served again.
    let mut listener = pool.listener();
    let mut client = connect(at);
    let mut connection = runtime().block_on(listener.accept()).expect("the behaviour is in force");
    client.write_all(b"x").expect("open");
    assert_eq!(runtime().block_on(connection.read_u8()).expect("open"), b'x');
}

#[test]
fn a_listener_is_a_stream_that_ends_when_its_behaviour_is_replaced_and_its_last_connection_ended() {
    let (pool, at) = start(tasks(Behaviour::listener()));
    let (mut listener, ended) = (pool.listener(), pool.listener().ended());
    let local = runtime();
    let mut next = || local.block_on(poll_fn(|cx| futures_core::Stream::poll_next(Pin::new(&mut listener), cx)));
    let mut client = connect(at);
    let connection = next().expect("it goes on").expect("it never fails");
    let waiting = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.connections == 2));
    pool.reconfigure(pool.config().behaviour(Behaviour::task(echo))).expect("another behaviour");
    assert!(echoes(&mut connect(at), b"the new one serves"));
    let second = next().expect("what waited is taken").expect("it never fails");
    assert_eq!(second.info().generation(), 1);
    drop((second, waiting));
    let serving = local.spawn(async move {
        let info = connection.info().clone();
        stubborn(connection, info).await;
    });
    assert!(echoes(&mut client, b"the old one too"));
    drop(client);
    local.block_on(serving).expect("no panic");
    assert!(next().is_none());
    local.block_on(ended);
    assert_empty(&pool);
}

#[test]
fn a_listener_ends_with_its_pool() {
    let (pool, at) = start(tasks(Behaviour::listener()));
    let mut listener = pool.listener();
    let mut client = connect(at);
    let local = runtime();
    let connection = local.block_on(listener.accept()).expect("the pool runs");
    let info = connection.info().clone();
    local.spawn(echo(connection, info));
    assert!(echoes(&mut client, b"x"));
    let drained = pool.shutdown(Drain::within(PATIENCE));
    assert_eq!((drained.asked, drained.cut), (1, 0));
    assert!(local.block_on(listener.accept()).is_none());
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"");
}

#[test]
fn nobody_is_lost_while_handlers_listeners_and_protocols_take_turns_under_traffic() {
    const CHANGES: u32 = 120;
    let (pool, at) = start(tasks(Behaviour::task(stubborn)).limit(50));
    let elsewhere = runtime();
    let over = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let stops = Stops(&over);
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut client = connect(at);
                    assert!(echoes(&mut client, b"who is there?"));
                    reset(client);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for change in 0..CHANGES {
            let behaviour = match change % 3 {
                0 => Behaviour::listener(),
                1 => Behaviour::from(Echo),
                _ => Behaviour::task(stubborn),
            };
            pool.reconfigure(pool.config().behaviour(behaviour)).expect("a change");
            if change % 3 == 0 {
                let mut listener = pool.listener();
                elsewhere.spawn(async move {
                    while let Some(connection) = listener.accept().await {
                        let info = connection.info().clone();
                        tokio::spawn(stubborn(connection, info));
                    }
                });
            }
            let until = served.load(Ordering::Relaxed) + 10;
            assert!(pool.wait(PATIENCE, |_| served.load(Ordering::Relaxed) >= until));
        }
        drop(stops);
    });
    assert_empty(&pool);
    let status = pool.status();
    assert_eq!((status.counts.panics, status.restarts), (0, 0), "{status:#?}");
    assert_eq!((status.counts.accepted, status.counts.closed), (served.into_inner(), status.counts.accepted), "{status:#?}");
    assert_eq!(status.generations.len(), 1, "the old ones are over: {status:#?}");
}

#[test]
fn a_connection_whose_server_went_away_is_not_taken_but_replaced() {
    const SPARES: usize = 16;
    let backend = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = backend.local_addr().expect("bound");
    let config = Config::connect(Behaviour::listener(), Connecting::to([at]).keep(SPARES));
    let pool = Pool::start(config.model(Model::Tasks).loops(2)).expect("it starts");
    let spares: Vec<_> = (0..SPARES).map(|_| backend.accept().expect("it connects").0).collect();
    assert!(pool.wait(PATIENCE, |status| status.counts.delegated == SPARES as u64));
    // It restarts.
    drop(spares);
    let again: Vec<_> = (0..SPARES).map(|_| backend.accept().expect("it connects again").0).collect();
    assert!(pool.wait(PATIENCE, |status| status.counts.untaken == SPARES as u64), "{:#?}", pool.status());
    assert!(pool.wait(PATIENCE, |status| status.counts.delegated == 2 * SPARES as u64));
    let mut listener = pool.listener();
    let serving: Vec<_> = again
        .into_iter()
        .map(|mut stream| {
            std::thread::spawn(move || {
                let mut byte = [0; 1];
                stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).expect("it stands");
            })
        })
        .collect();
    for _ in 0..SPARES {
        let mut connection = runtime().block_on(listener.accept()).expect("the pool runs");
        let answer = runtime().block_on(async {
            connection.write_all(b"x").await.expect("it stands");
            connection.read_u8().await
        });
        assert_eq!(answer.expect("a living server"), b'x');
    }
    serving.into_iter().for_each(|one| one.join().expect("no panic"));
}

#[test]
fn a_client_that_resets_before_it_is_taken_is_dropped_and_one_that_sent_its_last_word_is_not() {
    let (pool, at) = start(tasks(Behaviour::listener()));
    let (gone, mut half) = (connect(at), connect(at));
    assert!(pool.wait(PATIENCE, |status| status.counts.delegated == 2));
    half.write_all(b"last").expect("open");
    half.shutdown(std::net::Shutdown::Write).expect("open");
    reset(gone);
    assert!(pool.wait(PATIENCE, |status| status.counts.untaken == 1 && status.connections == 1), "{:#?}", pool.status());
    let mut connection = runtime().block_on(pool.listener().accept()).expect("the other one");
    let mut word = [0; 4];
    runtime().block_on(connection.read_exact(&mut word)).expect("it was sent");
    assert_eq!(&word, b"last");
    runtime().block_on(connection.write_all(b"bye")).expect("it reads");
    drop(connection);
    assert_eq!(read_all(&mut half).expect("an orderly end"), b"bye");
    assert_empty(&pool);
}
