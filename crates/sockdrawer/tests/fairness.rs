//! Connections that do much at once do not keep the others of their loop waiting.

mod common;

use common::{PATIENCE, connect, echoes, start};
use sockdrawer::{Closed, Config, Context, Input, Peer, Protocol, Service, Step};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Events of the connections of one loop, in order.
type Story = Arc<Mutex<Vec<&'static str>>>;

/// Service that answers what it gets. After `h` it says that it holds its loop up, and does until it is let go; after `t` it has a timer.
struct Told(Story, mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>);

impl Service for Told {
    type Protocol = Told;
    fn open(&self, _peer: &Peer) -> Told {
        Told(self.0.clone(), self.1.clone(), self.2.clone())
    }
}

impl Protocol for Told {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"h" {
            self.1.send(()).expect("the test listens");
            self.2.lock().expect("no panic").recv_timeout(PATIENCE).expect("let go");
        } else if input.bytes() == b"t" {
            cx.set_timer(DUE);
        } else {
            self.0.lock().expect("no panic").push("answered");
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }

    fn timeout(&mut self, _cx: &mut Context<'_>) -> Step {
        self.0.lock().expect("no panic").push("timeout");
        Step::Continue
    }

    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
        self.0.lock().expect("no panic").push("closed");
    }
}

const MANY: usize = 300;
/// Until then all of the crowd have their timers.
const DUE: Duration = Duration::from_secs(1);

#[test]
fn many_whose_timers_are_due_at_once_keep_nobody_else_waiting() {
    let ((lets_go, waits), (holds, held)) = (mpsc::channel(), mpsc::channel());
    let story = Story::default();
    let (_pool, at) = start(Config::accept(Told(story.clone(), holds, Arc::new(Mutex::new(waits)))).loops(1));
    let mut crowd: Vec<_> = (0..MANY).map(|_| connect(at)).collect();
    let (mut holder, mut other) = (connect(at), connect(at));
    assert!([&mut holder, &mut other].into_iter().all(|stream| echoes(stream, b"x")));
    story.lock().expect("no panic").clear();
    assert!(crowd.iter_mut().all(|stream| echoes(stream, b"t")));
    holder.write_all(b"h").expect("it is connected");
    held.recv_timeout(PATIENCE).expect("the loop is held up");
    other.write_all(b"x").expect("it is connected");
    // waits because: all timers are to be due when the loop looks again.
    std::thread::sleep(DUE);
    lets_go.send(()).expect("the loop waits");
    other.read_exact(&mut [0]).expect("an answer");
    let before = story.lock().expect("no panic").iter().position(|what| *what == "answered").expect("it was");
    assert!(before <= MANY / 4, "{before} of {MANY} were called first");
    // None is forgotten.
    let until = Instant::now() + PATIENCE;
    while story.lock().expect("no panic").len() < MANY + 1 {
        assert!(Instant::now() < until, "{} were called", story.lock().expect("no panic").len());
        assert!(echoes(&mut other, b"t"), "its loop turns");
    }
}

#[test]
fn many_that_end_at_once_keep_nobody_else_waiting() {
    let ((lets_go, waits), (holds, held)) = (mpsc::channel(), mpsc::channel());
    let story = Story::default();
    let (pool, at) = start(Config::accept(Told(story.clone(), holds, Arc::new(Mutex::new(waits)))).loops(1));
    let mut crowd: Vec<_> = (0..MANY).map(|_| connect(at)).collect();
    let (mut holder, mut other) = (connect(at), connect(at));
    for stream in crowd.iter_mut().chain([&mut holder, &mut other]) {
        assert!(echoes(stream, b"x"));
    }
    story.lock().expect("no panic").clear();
    holder.write_all(b"h").expect("it is connected");
    held.recv_timeout(PATIENCE).expect("the loop is held up");
    // All of this has come when the loop looks again, in this order.
    crowd.clear();
    other.write_all(b"x").expect("it is connected");
    lets_go.send(()).expect("the loop waits");
    other.read_exact(&mut [0]).expect("an answer");
    assert!(pool.wait(PATIENCE, |status| status.counts.closed == MANY as u64));
    let story = story.lock().expect("no panic");
    let before = story.iter().position(|what| *what == "answered").expect("it was");
    assert!(before <= MANY / 4, "{before} of {MANY} were closed first");
    assert_eq!(story.len(), MANY + 1);
}
