//! Connects by a schedule: each begins, if late, and is told how late it was.

mod common;

use common::PATIENCE;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use sockdrawer::{
    Address, Config, ConnectFailure, Connecting, Context, Input, Late, Local, Model, Peer, Pool, Protocol, Service, Step,
};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const CONNECTS: u64 = 20;
const GAP: Duration = Duration::from_millis(1);
/// The first connection has the only permit for so long.
const HELD: Duration = Duration::from_millis(300);

/// Tells how late each connect was, then stays until the peer speaks.
struct Tells(Mutex<Sender<Duration>>);

impl Tells {
    fn tell(&self, lag: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).send(lag).expect("the test listens");
    }
}

impl Service for Tells {
    type Protocol = Stays;
    fn open(&self, peer: &Peer) -> Stays {
        self.tell(peer.lag());
        Stays
    }
    fn connect_failed(&self, failure: &ConnectFailure, _local: &mut Local) {
        self.tell(failure.lag);
    }
}

struct Stays;

impl Protocol for Stays {
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Abort
    }
}

fn connecting(target: SocketAddr) -> Connecting {
    let mut connecting = Connecting::to(vec![Address::Tcp(target)]);
    connecting.total = Some(CONNECTS);
    connecting.rate = Some(1.0 / GAP.as_secs_f64());
    connecting.late = Late::MakeUp;
    connecting
}

#[test]
fn what_waited_for_a_permit_is_made_up_for_and_its_wait_is_told() {
    for model in [Model::Loops, Model::Threads, Model::Single] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let (tells, lags) = channel();
        let connecting = connecting(server.local_addr().expect("bound"));
        let config = Config::connect(Tells(Mutex::new(tells)), connecting).model(model).limit(1);
        let pool = Pool::start(config).expect("starts");
        let next = || server.accept().expect("it connects").0;
        let mut first = next();
        let began = Instant::now();
        assert!(pool.wait(PATIENCE, |_| began.elapsed() >= HELD));
        first.write_all(b"x").expect("it stands");
        for _ in 1..CONNECTS {
            next().write_all(b"x").expect("it stands");
        }
        assert!(pool.wait(PATIENCE, |status| status.counts.closed == CONNECTS), "{model}: {:?}", pool.status());
        // Each was due a gap after the one before; the first was due when it was accepted, at the latest.
        let lags: Vec<Duration> = lags.try_iter().collect();
        assert_eq!(lags.len() as u64, CONNECTS, "{model}");
        for (number, lag) in (0u32..).zip(&lags).skip(1) {
            let least = HELD.saturating_sub(number * GAP);
            assert!(*lag >= least, "{model}: connect {number} was {lag:?} late: {lags:?}");
        }
    }
}

#[test]
fn a_connect_that_fails_tells_how_late_it_was() {
    // Bound, so that nobody else gets the port, and not listening, so that it refuses.
    let deserted = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&deserted, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port is free");
    let target = getsockname(&deserted).expect("bound").try_into().expect("an address");
    let (tells, lags) = channel();
    let pool = Pool::start(Config::connect(Tells(Mutex::new(tells)), connecting(target)).limit(1)).expect("starts");
    assert!(pool.wait(PATIENCE, |status| status.counts.connect_failed == CONNECTS), "{:?}", pool.status());
    let lags: Vec<Duration> = lags.try_iter().collect();
    assert_eq!(lags.len() as u64, CONNECTS);
    assert!(lags.iter().all(|lag| *lag > Duration::ZERO), "none begins before it is due: {lags:?}");
}
