//! Policies of the user's own that answer, or end, in ways nobody thinks of.

use crate::common::{self, Echo, PATIENCE, assert_empty, connect, echoes, start};
use sockdrawer::{
    Config, Context, Input, Peer, Protocol, Service, Step,
    admission::{AcceptRequest, Admission, BeforeAccept, Capacity, Reject},
};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Policy under which nothing is accepted any more once the pool is full.
struct Forever(Arc<AtomicUsize>);

impl Admission for Forever {
    fn before(&self, request: &AcceptRequest<'_>) -> BeforeAccept {
        if request.capacity == Capacity::Free {
            return BeforeAccept::Accept;
        }
        self.0.fetch_add(1, SeqCst);
        BeforeAccept::Pause(Duration::MAX)
    }
}

#[test]
fn a_policy_may_hold_for_ever() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (pool, at) = start(Config::accept(Echo).loops(1).limit(1).admission(Forever(asked.clone())));
    let mut first = connect(at);
    assert!(echoes(&mut first, b"it is served"));
    let waits = connect(at);
    assert!(pool.wait(PATIENCE, |_| asked.load(SeqCst) > 0));
    assert!(echoes(&mut first, b"still here"), "the loop goes on");
    assert_eq!(pool.status().restarts, 0);
    drop((first, waits));
    assert_empty(&pool);
}

/// Policy that writes down what it is told of a free room.
struct Counts(Arc<Mutex<Vec<(usize, usize)>>>);

impl Admission for Counts {
    fn before(&self, request: &AcceptRequest<'_>) -> BeforeAccept {
        if request.connections >= 3 {
            return BeforeAccept::Reject(Reject::Fin);
        }
        self.0.lock().expect("no panic").push((request.connections, request.listener_connections));
        BeforeAccept::Accept
    }
}

#[test]
fn a_policy_is_told_of_the_connections_there_are() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (pool, at) = start(Config::accept(Echo).loops(1).admission(Counts(told.clone())));
    let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(at)).collect();
    let served = streams.iter_mut().filter_map(|stream| echoes(stream, b"hello").then_some(())).count();
    assert_eq!((served, told.lock().expect("no panic").clone()), (3, vec![(0, 0), (1, 1), (2, 2)]));
    drop(streams);
    assert_empty(&pool);
}

/// Policy whose end panics.
struct Bomb;

impl Admission for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the end of a policy");
    }
}

/// Service that keeps its loop busy until it is told to go on.
struct Busy(Mutex<mpsc::Sender<()>>, Arc<Mutex<mpsc::Receiver<()>>>);

struct Blocks(mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>);

impl Service for Busy {
    type Protocol = Blocks;
    fn open(&self, _peer: &Peer) -> Blocks {
        Blocks(self.0.lock().expect("no panic").clone(), self.1.clone())
    }
}

impl Protocol for Blocks {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"block" {
            self.0.send(()).expect("the test listens");
            self.1.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test goes on");
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

#[test]
fn a_policy_whose_end_panics_ends_no_loop() {
    let (began, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let busy = Busy(Mutex::new(began), Arc::new(Mutex::new(goes_on)));
    let (pool, at) = start(Config::accept(busy).loops(1).admission(Bomb));
    let mut stream = connect(at);
    assert!(echoes(&mut stream, b"hello"));
    std::io::Write::write_all(&mut stream, b"block").expect("it is sent");
    begins.recv_timeout(PATIENCE).expect("the loop is busy");
    // The loop is the last that has the old policy.
    pool.reconfigure(pool.config().admission(sockdrawer::admission::Limits::default())).expect("it can be swapped");
    go_on.send(()).expect("the loop waits");
    assert_eq!(common::read(&mut stream, 5).as_deref(), Some(&b"block"[..]));
    assert!(echoes(&mut stream, b"still here"), "the connection outlives the policy");
    assert_eq!(pool.status().restarts, 0);
    drop(stream);
    assert_empty(&pool);
}
