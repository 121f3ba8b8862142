//! Connects by a schedule: each begins, if late, and is told how late it was.

mod common;

use common::{Echo, PATIENCE, start};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use sockdrawer::layer::{Filter, Filtering, Layer, Progress, Refused};
use sockdrawer::{
    Address, Config, Context, Drain, Input, Local, Model, Output, Peer, Pool, Protocol, Service, Step,
    connecting::{ConnectFailure, Connecting, Late},
};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CONNECTS: u64 = 20;
const GAP: Duration = Duration::from_millis(1);
/// The first connection has the only permit for so long.
const HELD: Duration = Duration::from_millis(300);

/// Held by tests of a rate: beside each other they would make each other late.
static RATE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    RATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Service that tells how late each connect was, then stays until the peer speaks.
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
    Connecting::to([target]).keep(1).total(CONNECTS).rate(1.0 / GAP.as_secs_f64()).late(Late::MakeUp)
}

/// Service that tells each end of the peer, and goes on when told to.
struct Stops(Mutex<Sender<Sender<()>>>);

impl Service for Stops {
    type Protocol = Stopping;
    fn open(&self, _peer: &Peer) -> Stopping {
        Stopping(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

struct Stopping(Sender<Sender<()>>);

impl Protocol for Stopping {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Abort
    }
    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        let (go, may) = channel();
        // After the test, nothing is in the way.
        let _ = self.0.send(go).is_ok().then(|| may.recv_timeout(PATIENCE));
        Step::Close
    }
}

#[test]
fn the_next_connect_begins_before_other_events_are_looked_at() {
    let _alone = alone();
    let path = std::env::temp_dir().join(format!("sockdrawer-redial-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a path of this test's own");
    let (tell, told) = channel();
    let connecting = Connecting::to([Address::Unix(path.clone())]).keep(3);
    let config = Config::connect(Stops(Mutex::new(tell)), connecting).loops(1);
    let pool = Pool::start(config).expect("the pool starts");
    let mut accepted: Vec<_> = (0..3).map(|_| listener.accept().expect("the pool connects").0).collect();
    accepted.pop();
    let stopped = || told.recv_timeout(PATIENCE).expect("the loop sees the end");
    let first = stopped();
    // The loop sees both of these ends in one turn.
    accepted.clear();
    listener.set_nonblocking(true).expect("a listener need not wait");
    first.send(()).expect("the loop waits for it");
    let second = stopped();
    let _after_first = listener.accept().expect("the first was replaced before the second was looked at");
    second.send(()).expect("the loop waits for it");
    let third = stopped();
    let _after_second = listener.accept().expect("the second was replaced before the third was looked at");
    drop((third, told));
    pool.shutdown(Drain::within(Duration::ZERO));
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn what_waited_for_a_permit_is_made_up_for_and_its_wait_is_told() {
    let _alone = alone();
    for model in [Model::Loops, Model::Threads, Model::Single] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let (tells, lags) = channel();
        let connecting = connecting(server.local_addr().expect("bound"));
        let config = Config::connect(Tells(Mutex::new(tells)), connecting).model(model);
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
    let _alone = alone();
    // Bound, so that nobody else gets the port, and not listening, so that it refuses.
    let deserted = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&deserted, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port is free");
    let target = getsockname(&deserted).expect("bound").try_into().expect("an address");
    let (tells, lags) = channel();
    let pool = Pool::start(Config::connect(Tells(Mutex::new(tells)), connecting(target))).expect("starts");
    assert!(pool.wait(PATIENCE, |status| status.counts.connect_failed == CONNECTS), "{:?}", pool.status());
    let lags: Vec<Duration> = lags.try_iter().collect();
    assert_eq!(lags.len() as u64, CONNECTS);
    assert!(lags.iter().all(|lag| *lag > Duration::ZERO), "none begins before it is due: {lags:?}");
}

/// A layer whose handshake is one byte of the peer's; another refuses the connection.
struct Greeted;
struct Greeting {
    is_over: bool,
}

impl Filtering for Greeted {
    type Filter = Greeting;
    fn filter(&self, _peer: &Peer) -> Greeting {
        Greeting { is_over: false }
    }
}

impl Filter for Greeting {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
        match (self.is_over, wire.bytes().first()) {
            (_, None) => Ok(Progress::NeedMore),
            (true, Some(_)) => {
                plain.extend_from_slice(wire.take_all());
                Ok(Progress::Plain)
            }
            (false, Some(b'y')) => {
                wire.take(1);
                self.is_over = true;
                Ok(Progress::Established(None))
            }
            (false, Some(_)) => Err(Refused::because("it was not welcome")),
        }
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        wire.push(plain);
    }
    fn goodbye(&mut self, _wire: &mut Output) {}
}

/// Service that ends each connection once its client has gone through the door, or not.
struct Doorman(&'static [u8]);

impl Service for Doorman {
    type Protocol = Doorman;
    fn open(&self, _peer: &Peer) -> Doorman {
        Doorman(self.0)
    }
}

impl Protocol for Doorman {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(self.0);
        Step::Close
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
}

#[test]
fn a_handshake_that_fails_is_followed_by_a_pause_as_a_connect_is() {
    const MANY: u64 = 10;
    // 1, 2, 4 ms and so on; the pause after the last is not waited for.
    let pauses = Duration::from_millis((1 << (MANY - 1)) - 1);
    for (says, connections) in [(&b"n"[..], 1_usize), (b"", 1), (b"n", 3)] {
        let (server, at) = start(Config::accept(Doorman(says)).loops(1));
        let began = Instant::now();
        let config = Config::connect(Layer::new(Greeted, Echo), Connecting::to([at]).keep(connections)).loops(1);
        let pool = Pool::start(config).expect("starts");
        assert!(pool.wait(PATIENCE, |status| status.counts.connects >= MANY), "{:?}", pool.status());
        let took = began.elapsed();
        // Where several connects fail at once, the next begin together, after a pause for each that failed.
        assert!(took >= pauses / connections.pow(2) as u32, "{took:?} for {says:?}");
        drop((pool, server));
    }
    // A connection that is let in and hung up comes again at once, with no pause that grows.
    let (server, at) = start(Config::accept(Doorman(b"y")).loops(1));
    let pool = Pool::start(Config::connect(Layer::new(Greeted, Echo), Connecting::to([at]).keep(1)).loops(1)).expect("starts");
    assert!(pool.wait(PATIENCE, |status| status.counts.connects >= 1000), "{:?}", pool.status());
    drop((pool, server));
}

/// Service that tells when each connection was due, as far as its peer can be asked, and stays.
struct Due(Mutex<Sender<Instant>>);

impl Service for Due {
    type Protocol = Stays;
    fn open(&self, peer: &Peer) -> Stays {
        let due = Instant::now() - peer.connect_time() - peer.lag();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).send(due).expect("the test listens");
        Stays
    }
}

/// Returns a pool that connects once a gap, what is due when, and the pool that it connects to.
fn paced(late: Late, total: Option<u64>, limit: usize) -> (Pool, Receiver<Instant>, Pool) {
    let (server, at) = start(Config::accept(Echo).loops(1));
    let (tells, hears) = channel();
    let mut connecting = connecting(at).keep(limit).late(late);
    connecting.total = total;
    let config = Config::connect(Due(Mutex::new(tells)), connecting).loops(2);
    (Pool::start(config).expect("starts"), hears, server)
}

/// Changes the pool's targets, rate and number in place.
fn change(pool: &Pool, change: impl Fn(&mut Connecting)) {
    pool.update(|config| config.connecting(&change)).expect("nobody refuses");
}

/// Returns the maximum number of connects that are due in this time.
fn due_in(time: Duration) -> u64 {
    1 + (time.as_nanos() / GAP.as_nanos()) as u64
}

#[test]
fn changes_neither_bring_a_connect_forward_nor_lose_one() {
    let _alone = alone();
    const MANY: u64 = 100;
    let began = Instant::now();
    let (pool, dues, _server) = paced(Late::MakeUp, Some(MANY), 1_000);
    for turn in 0..MANY {
        // Each change is one more connect, and every other of limit or timeout too.
        change(&pool, |connecting| {
            connecting.total = Some(MANY + turn + 1);
            connecting.timeout += Duration::from_millis(turn % 2);
        });
        change(&pool, |connecting| connecting.keep = Some(1_000 + turn as usize % 3));
        let connects = pool.status().counts.connects;
        assert!(connects <= due_in(began.elapsed()), "{connects} after {:?}", began.elapsed());
    }
    let changed = began.elapsed();
    assert!(pool.wait(PATIENCE, |status| status.counts.connected == 2 * MANY), "{:?}", pool.status());
    let mut dues: Vec<Instant> = dues.try_iter().collect();
    dues.sort_unstable();
    let (first, last) = (dues[0], dues[dues.len() - 1]);
    let took = GAP * (2 * MANY as u32 - 1);
    // A connect of whose place in the schedule nothing came would make it longer by a gap each time.
    // A busy machine makes the changes, each of which allows one connect more, slower than the schedule.
    let latest = took.max(changed) * 5 / 4;
    assert!((took * 3 / 4..latest).contains(&(last - first)), "{:?} for {took:?}, {changed:?} of changes", last - first);
    assert!(pool.wait(Duration::ZERO, |status| status.counts.connects == 2 * MANY));
}

#[test]
fn who_may_have_more_connections_makes_them_at_the_rate() {
    let _alone = alone();
    for (late, total, limit) in [(Late::Forget, None, 10), (Late::MakeUp, Some(10), 1_000), (Late::Forget, Some(10), 1_000)] {
        let (pool, _dues, _server) = paced(late, total, limit);
        assert!(pool.wait(PATIENCE, |status| status.counts.connected == 10), "{:?}", pool.status());
        // Connects that were due meanwhile are not due any more: there was nothing to do.
        let since = Instant::now();
        assert!(pool.wait(PATIENCE, |_| since.elapsed() > 50 * GAP));
        let began = Instant::now();
        if total.is_some() {
            change(&pool, |connecting| connecting.total = Some(60));
        } else {
            change(&pool, |connecting| connecting.keep = Some(60));
        }
        let mut status = pool.status();
        while status.counts.connected < 60 {
            // A connect may have been under way in each loop.
            let most = 12 + due_in(began.elapsed());
            assert!(status.counts.connects <= most, "{late:?}: {} after {:?}", status.counts.connects, began.elapsed());
            assert!(began.elapsed() < PATIENCE, "{status:?}");
            status = pool.status();
        }
        assert_eq!(status.counts.connects, 60);
    }
}

#[test]
fn while_a_pool_is_suspended_no_connect_begins_and_those_that_stand_stay() {
    let _alone = alone();
    for late in [Late::Forget, Late::MakeUp] {
        let (pool, _dues, _server) = paced(late, None, 1_000);
        let mut expected = 0;
        for _ in 0..3 {
            expected += 10;
            assert!(pool.wait(PATIENCE, |status| status.counts.connected >= expected), "{:?}", pool.status());
            pool.suspend();
            let before = pool.status().counts.connects;
            let since = Instant::now();
            assert!(pool.wait(PATIENCE, |_| since.elapsed() > 100 * GAP));
            // Also a change begins none.
            change(&pool, |connecting| connecting.timeout += GAP);
            let status = pool.status();
            assert_eq!((status.counts.connects, status.counts.closed), (before, 0), "{late:?}");
            let resumed = Instant::now();
            pool.resume();
            let connects = pool.status().counts.connects;
            // Half of what was due meanwhile: a loop that was late before it was suspended makes up for that.
            let most = before + 50 + due_in(resumed.elapsed());
            assert!(connects <= most, "{late:?}: {connects} of {most}: what was due meanwhile is not made up for");
            expected = connects;
        }
        assert!(pool.wait(PATIENCE, |status| status.counts.connected >= expected + 10), "{:?}", pool.status());
    }
}
