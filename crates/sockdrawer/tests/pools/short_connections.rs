//! Connections that are over in the turn that accepted them: what one was counted by is the next one's, and nobody is let in by it
//! who would not be otherwise.

use crate::common::{PATIENCE, assert_empty, connect, in_time, read_all, start};
use sockdrawer::{
    Closed, Closing, Config, Context, Input, Peer, Protocol, Selector, Service, Step,
    admission::{AcceptRate, Limits},
};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// Service that answers each connection and ends it. A connection that says `wait` keeps its loop until the test lets it go on.
struct Once {
    go_on: Mutex<mpsc::Receiver<()>>,
    waits: Mutex<mpsc::Sender<()>>,
    live: AtomicUsize,
    most: AtomicUsize,
}

impl Once {
    /// Returns the service with what lets a waiting loop go on, and what tells that one waits.
    fn new() -> (Arc<Once>, mpsc::Sender<()>, mpsc::Receiver<()>) {
        let ((go, go_on), (waits, waiting)) = (mpsc::channel(), mpsc::channel());
        let (go_on, waits) = (Mutex::new(go_on), Mutex::new(waits));
        (Arc::new(Once { go_on, waits, live: AtomicUsize::new(0), most: AtomicUsize::new(0) }), go, waiting)
    }
}

struct Served(Arc<Once>);

struct Serving(Arc<Once>);

impl Service for Served {
    type Protocol = Serving;

    fn open(&self, _peer: &Peer) -> Serving {
        let live = self.0.live.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(live, Ordering::SeqCst);
        Serving(self.0.clone())
    }

    fn closing(&self) -> Closing {
        Closing::PeerIsDone
    }

    fn needs_peer_address(&self) -> bool {
        false
    }
}

impl Protocol for Serving {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"wait" {
            self.0.waits.lock().expect("nobody panicked").send(()).expect("the test listens");
            self.0.go_on.lock().expect("nobody panicked").recv_timeout(PATIENCE).expect("the test goes on");
        }
        input.take_all();
        cx.send(b"!");
        Step::Close
    }

    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

fn ask(at: std::net::SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = connect(at);
    stream.write_all(words).expect("it is connected");
    stream
}

fn is_answered(mut stream: TcpStream) -> bool {
    read_all(&mut stream).is_ok_and(|answer| answer == b"!")
}

#[test]
fn a_turn_with_many_accepts_no_more_than_the_rate_allows() {
    in_time(|| {
        let (once, go, waiting) = Once::new();
        // Another one in a quarter of an hour.
        let rate = Limits::default().rate(AcceptRate::new(0.001, 3));
        let (pool, at) = start(Config::accept(Served(once)).loops(1).admission(rate));
        let first = ask(at, b"wait");
        waiting.recv_timeout(PATIENCE).expect("the loop waits");
        let _others: Vec<_> = (0..64).map(|_| ask(at, b"x")).collect();
        go.send(()).expect("the loop waits");
        assert!(is_answered(first));
        // The loop answers in the turn after all that.
        pool.connections(&Selector::All);
        assert!(pool.wait(PATIENCE, |status| status.counts.accepted == 3), "{:#?}", pool.status());
        pool.connections(&Selector::All);
        assert_eq!(pool.status().counts.accepted, 3);
    });
}

#[test]
fn many_in_one_turn_are_all_served_and_never_more_at_once_than_may_be() {
    in_time(|| {
        const LIMIT: usize = 2;
        let (once, go, waiting) = Once::new();
        let config = Config::accept(Served(once.clone())).loops(2).limit(LIMIT);
        let (pool, at) = start(config);
        for _ in 0..20 {
            let first = ask(at, b"wait");
            waiting.recv_timeout(PATIENCE).expect("a loop waits");
            let others: Vec<_> = (0..64).map(|_| ask(at, b"x")).collect();
            go.send(()).expect("the loop waits");
            assert!(is_answered(first) && others.into_iter().all(is_answered));
        }
        assert_empty(&pool);
        assert!(once.most.load(Ordering::SeqCst) <= LIMIT, "{} at once", once.most.load(Ordering::SeqCst));
        assert_eq!(once.live.load(Ordering::SeqCst), 0);
        let counts = pool.status().counts;
        assert_eq!((counts.accepted, counts.closed), (20 * 65, 20 * 65));
    });
}

/// Checks that the generation of connections that are over goes when the last of them is over, in whatever turn another came into
/// force.
#[test]
fn generations_end_whose_connections_are_over_in_a_turn() {
    in_time(|| {
        let (once, ..) = Once::new();
        let (pool, at) = start(Config::accept(Served(once.clone())).loops(2));
        let client = std::thread::spawn(move || {
            for _ in 0..100 {
                let asked: Vec<_> = (0..32).map(|_| ask(at, b"x")).collect();
                assert!(asked.into_iter().all(is_answered));
            }
        });
        while !client.is_finished() {
            pool.reconfigure(pool.config().behaviour(Served(once.clone()))).expect("it changes");
        }
        client.join().expect("all were answered");
        assert_empty(&pool);
        assert!(pool.wait(PATIENCE, |status| status.generations.len() == 1), "{:#?}", pool.status());
    });
}
