//! Input of a connection whose peer does not read.

use crate::common::{PATIENCE, assert_empty, connect, in_time, read_all, start};
use sockdrawer::observe::Event;
use sockdrawer::{Config, Context, Input, Model, Peer, Protocol, Receiving, Service, Step};
use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Number of bytes that is more than any socket buffers.
const FLOOD: usize = 64 * 1024 * 1024;

/// Service that sends a flood first, tells what it receives meanwhile, and ends when there is room.
struct Flooding(Mutex<Sender<Vec<u8>>>);

struct Flood(Sender<Vec<u8>>);

impl Service for Flooding {
    type Protocol = Flood;
    fn open(&self, _peer: &Peer) -> Flood {
        Flood(self.0.lock().expect("nobody panicked").clone())
    }
    fn receiving(&self) -> Receiving {
        Receiving::Always
    }
}

impl Protocol for Flood {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(&vec![b'.'; FLOOD]);
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        assert_eq!(cx.out().room(), 0, "the peer has not read");
        self.0.send(input.bytes().to_vec()).expect("the test listens");
        input.take_all();
        cx.send(b"!");
        Step::Continue
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"end");
        Step::Close
    }
}

#[test]
fn input_comes_above_the_high_water_mark_where_the_service_says_so() {
    for model in [Model::Loops, Model::Threads, Model::Single] {
        in_time(move || {
            let (tells, hears): (_, Receiver<Vec<u8>>) = channel();
            let (pool, at) = start(Config::accept(Flooding(Mutex::new(tells))).model(model));
            let mut stream = connect(at);
            for word in [&b"one"[..], b"two"] {
                stream.write_all(word).expect("it stands");
                assert_eq!(hears.recv_timeout(PATIENCE).as_deref(), Ok(word));
            }
            let sent = read_all(&mut stream).expect("an orderly end");
            assert_eq!((sent.len(), &sent[FLOOD..]), (FLOOD + 5, &b"!!end"[..]));
            drop(stream);
            assert_empty(&pool);
        });
    }
}

/// Service that takes more than there is.
struct Greedy;

impl Service for Greedy {
    type Protocol = Greedy;
    fn open(&self, _peer: &Peer) -> Greedy {
        Greedy
    }
}

impl Protocol for Greedy {
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take(3);
        Step::Continue
    }
}

#[test]
fn a_protocol_that_takes_too_much_is_told_how_much_and_where_it_did() {
    let (tells, told) = channel();
    let (_pool, at) = start(Config::accept(Greedy).observer(move |event: &Event| {
        if let Event::ConnectionPanicked { message, .. } = event {
            tells.send(message.clone()).expect("the test listens");
        }
    }));
    connect(at).write_all(b"ab").expect("it stands");
    let message = told.recv_timeout(PATIENCE).expect("told");
    assert!(message.starts_with("a protocol took 3 bytes of its input, where 2 are left: "), "{message}");
    assert!(message.contains(concat!(", at ", file!())), "{message}");
}
