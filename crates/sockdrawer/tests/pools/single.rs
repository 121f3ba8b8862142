//! Properties of the model `single` alone: one connection at a time, each to its end, in the order in which they came.

use crate::common::{Echo, PATIENCE, assert_empty, connect, echoes, read, read_all, reset, start};
use sockdrawer::{
    Config, Context, Error, Input, Model, Peer, Pool, Protocol, Service, Step, connecting::Connecting, observe::Event,
};
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Service that notes the first byte of each connection, and ends it when it is told to.
#[derive(Clone, Default)]
struct Visitors(Arc<Mutex<Vec<u8>>>);

impl Service for Visitors {
    type Protocol = Visitors;
    fn open(&self, _peer: &Peer) -> Visitors {
        self.clone()
    }
}

impl Protocol for Visitors {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        for byte in input.bytes() {
            if *byte == b'\n' {
                return Step::Close;
            }
            self.0.lock().expect("no panic").push(*byte);
            cx.send(&[*byte]);
        }
        input.take_all();
        Step::Continue
    }
}

fn single(service: impl sockdrawer::IntoBehaviour) -> Config {
    Config::accept(service).model(Model::Single)
}

#[test]
fn clients_are_served_one_after_another_in_the_order_in_which_they_came() {
    let visitors = Visitors::default();
    let (pool, at) = start(single(visitors.clone()));
    assert_eq!(pool.status().limit, 1);
    assert_eq!(pool.status().listeners[0].sockets, 1, "one queue has an order");
    let mut first = connect(at);
    assert!(echoes(&mut first, &[100]));
    let mut others: Vec<_> = (0..50).map(|_| connect(at)).collect();
    // They speak in another order than they came.
    for (number, other) in others.iter_mut().enumerate().rev() {
        other.write_all(&[50 + number as u8, b'\n']).expect("it stands");
    }
    assert!(pool.wait(PATIENCE, |status| status.listeners[0].queued == 50));
    assert_eq!((pool.status().connections, visitors.0.lock().expect("no panic").len()), (1, 1));
    first.write_all(b"\n").expect("it stands");
    assert_eq!(read_all(&mut first).expect("an orderly end"), b"");
    drop(first);
    for (number, mut other) in others.into_iter().enumerate() {
        // A connection that lingers holds up the next, until its client closes.
        assert_eq!(read_all(&mut other).expect("an orderly end"), [50 + number as u8]);
    }
    let expected: Vec<u8> = std::iter::once(100).chain(50..100).collect();
    assert_eq!(*visitors.0.lock().expect("no panic"), expected);
    assert_empty(&pool);
}

#[test]
fn those_who_say_nothing_yet_are_waited_for_and_those_who_go_are_not() {
    let (pool, at) = start(single(Echo));
    let clients: Vec<_> = (0..20).map(|_| connect(at)).collect();
    clients.into_iter().rev().for_each(reset);
    let mut late: Vec<_> = (0..10).map(|_| connect(at)).collect();
    for client in &mut late {
        assert!(echoes(client, b"at last"));
        client.shutdown(std::net::Shutdown::Write).expect("it stands");
        assert_eq!(read_all(client).expect("an orderly end"), b"");
    }
    assert_empty(&pool);
}

#[test]
fn a_change_takes_effect_between_two_connections() {
    let (pool, at) = start(single(Echo));
    let mut old = connect(at);
    assert!(echoes(&mut old, b"old"));
    let mut waiting = connect(at);
    waiting.write_all(b"new\n").expect("it stands");
    let visitors = Visitors::default();
    pool.reconfigure(pool.config().behaviour(visitors.clone()).limit(7)).expect("a service can be changed");
    assert_eq!(pool.status().limit, 1, "whatever limit is asked for");
    assert!(echoes(&mut old, b"still old"));
    drop(old);
    assert_eq!(read(&mut waiting, 3).as_deref(), Some(&b"new"[..]));
    assert_eq!(*visitors.0.lock().expect("no panic"), b"new");
}

#[test]
fn a_suspended_pool_serves_who_waited_when_it_goes_on() {
    let (pool, at) = start(single(Echo));
    let mut first = connect(at);
    assert!(echoes(&mut first, b"first"));
    let mut second = connect(at);
    pool.suspend();
    drop(first);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0 && status.listeners[0].queued == 1));
    pool.resume();
    assert!(echoes(&mut second, b"second"));
}

#[test]
fn it_connects_once_at_a_time() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let connecting = Connecting::to([server.local_addr().expect("bound")]).keep(1).total(5);
    let pool = Pool::start(Config::connect(Echo, connecting).model(Model::Single)).expect("starts");
    for _ in 0..5 {
        let (mut peer, _) = server.accept().expect("it connects");
        peer.set_read_timeout(Some(PATIENCE)).expect("not zero");
        assert!(echoes(&mut peer, b"one"));
        assert_eq!((pool.status().connections, pool.status().counts.connects), (1, pool.status().counts.connected));
    }
    assert!(pool.wait(PATIENCE, |status| status.counts.closed == 5));
}

#[test]
fn a_crash_of_the_loop_costs_its_connection_only() {
    let events = Arc::new(Mutex::new(0));
    let told = events.clone();
    let observer = move |event: &Event| {
        *told.lock().expect("no panic") += usize::from(matches!(event, Event::LoopReplaced { .. }));
    };
    let (pool, at) = start(single(Echo).observer(observer));
    let mut first = connect(at);
    assert!(echoes(&mut first, b"first"));
    let mut second = connect(at);
    assert!(sockdrawer::testing::crash_loop(&pool, 0));
    assert!(read(&mut first, 1).is_none(), "it is over");
    assert!(echoes(&mut second, b"second"));
    assert!(pool.wait(PATIENCE, |_| *events.lock().expect("no panic") == 1));
}

#[test]
fn what_it_cannot_do_is_refused_by_name() {
    let refused = |config: Config| match Pool::start(config) {
        Err(error @ Error::NotInModel { model: Model::Single, .. }) => error.to_string(),
        other => panic!("{:?}", other.map(|_| ())),
    };
    assert!(refused(single(Echo).loops(2)).contains("single"));
    assert!(refused(single(Echo).workers(1)).contains("single"));
}
