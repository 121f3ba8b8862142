//! A service that is a closure: a test says what its connections do at each callback, and sees what came of each.
// Each test program uses a part of it.
#![allow(dead_code)]

use crate::common::PATIENCE;
use sockdrawer::connecting::ConnectFailure;
use sockdrawer::{Address, Closed, Context, Handle, Input, Note, Peer, Pool, Protocol, Service, Side, Step};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A callback.
pub(crate) enum Call<'a, 'b> {
    Opened,
    Received(&'a mut Input<'b>),
    PeerEnded,
    Connected(Result<Handle, ConnectFailure>),
    Notified(Note),
    Writable,
    Draining,
    Closed(Closed),
}

type Does = dyn Fn(Call<'_, '_>, &mut Context<'_>, Side) -> Step + Send + Sync;

/// Service that runs the closure at each callback, and notes why each connection ended.
#[derive(Clone)]
pub(crate) struct Script {
    does: Arc<Does>,
    side: Side,
    stays: bool,
    ends: Arc<Mutex<Vec<(Side, Closed)>>>,
}

pub(crate) fn script(does: impl Fn(Call<'_, '_>, &mut Context<'_>, Side) -> Step + Send + Sync + 'static) -> Script {
    Script { does: Arc::new(does), side: Side::Accepted, stays: false, ends: Arc::default() }
}

impl Script {
    /// Its connections go on when their peers have ended, where the closure says so; else they close.
    pub(crate) fn staying(self) -> Script {
        Script { stays: true, ..self }
    }

    /// Returns why the connections of this side have ended so far.
    pub(crate) fn ends(&self, side: Side) -> Vec<Closed> {
        self.ends.lock().expect("no panic").iter().filter(|(of, _)| *of == side).map(|(_, why)| *why).collect()
    }

    fn call(&self, call: Call<'_, '_>, cx: &mut Context<'_>) -> Step {
        (self.does)(call, cx, self.side)
    }
}

impl Service for Script {
    type Protocol = Script;
    fn open(&self, peer: &Peer) -> Script {
        Script { side: peer.side(), ..self.clone() }
    }
}

impl Protocol for Script {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.call(Call::Opened, cx)
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.call(Call::Received(input), cx)
    }
    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        match self.call(Call::PeerEnded, cx) {
            Step::Continue if !self.stays => Step::Close,
            step => step,
        }
    }
    fn connected(&mut self, result: Result<Handle, ConnectFailure>, cx: &mut Context<'_>) -> Step {
        self.call(Call::Connected(result), cx)
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        self.call(Call::Notified(note), cx)
    }
    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        self.call(Call::Writable, cx)
    }
    fn draining(&mut self, cx: &mut Context<'_>) -> Step {
        self.call(Call::Draining, cx)
    }
    fn closed(&mut self, why: Closed, cx: &mut Context<'_>) {
        self.ends.lock().expect("no panic").push((self.side, why));
        // It has ended, whatever the closure says.
        let _ = self.call(Call::Closed(why), cx);
    }
}

/// Acts for the two connections of a proxy, up to the relay.
pub(crate) fn joins(call: Call<'_, '_>, cx: &mut Context<'_>, side: Side, target: &Address) -> Step {
    match call {
        Call::Opened => {
            cx.pause();
            if side == Side::Accepted {
                cx.connect(target, PATIENCE);
            }
            Step::Continue
        }
        Call::Connected(Ok(made)) => Step::Relay(made),
        Call::Connected(Err(_)) => Step::Abort,
        _ => Step::Continue,
    }
}

/// Returns a backend, and where it is.
pub(crate) fn backend() -> (TcpListener, Address) {
    let backend = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let target = backend.local_addr().expect("it is bound").into();
    (backend, target)
}

/// Returns the backend's side of a connection.
pub(crate) fn accept(backend: &TcpListener) -> TcpStream {
    let (stream, _) = backend.accept().expect("it is connected to");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

/// Returns a backend that is connected to by no more than one: all further connects are under way until they take too long.
pub(crate) fn full_backend() -> (TcpListener, Address, TcpStream) {
    let (backend, target) = backend();
    rustix::net::listen(&backend, 0).expect("it listens");
    let one = TcpStream::connect(backend.local_addr().expect("it is bound")).expect("there is room for one");
    (backend, target, one)
}

/// Asserts that the loops sleep: one that epoll tells of something for ever turns all the time.
#[track_caller]
pub(crate) fn assert_sleeps(pool: &Pool) {
    let before = pool.status().counts.turns;
    // waits because: nothing is to happen in this time.
    thread::sleep(Duration::from_millis(200));
    let turns = pool.status().counts.turns - before;
    assert!(turns < 30, "{turns} turns in 200 ms");
}
