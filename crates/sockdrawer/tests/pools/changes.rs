//! Settings that a start or a change may ask for, and what they leave behind: odd numbers are refused in one line or do no harm.

use crate::common::{Echo, PATIENCE, Stops, address, assert_empty, connect, echoes, in_time, read_all, start};
use sockdrawer::{
    CannotRestore, CannotSave, Config, Context, Drain, Endpoint, Error, Input, Peer, Pool, PoolHandle, Protocol, Saved, Saver,
    Selector, Service, Step,
    admission::{OnFull, Reject},
    connecting::Connecting,
    observe::Event,
    restarting::Restarts,
};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Changes one number of a configuration.
type Odd = (&'static str, fn(&mut Config));

/// Service that sends back what it gets and ends after `q`.
struct Polite;

impl Service for Polite {
    type Protocol = Polite;
    fn open(&self, _peer: &Peer) -> Polite {
        Polite
    }
}

impl Protocol for Polite {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if input.bytes() == b"q" {
            input.take_all();
            return Step::Close;
        }
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

const ODD: [Odd; 22] = [
    ("linger of ages", |config| config.settings.linger = Duration::MAX),
    ("no linger", |config| config.settings.linger = Duration::ZERO),
    ("flush of ages", |config| config.settings.flush = Duration::MAX),
    ("no flush", |config| config.settings.flush = Duration::ZERO),
    ("never stuck", |config| config.stuck_after = Duration::MAX),
    ("restarts counted for ages", |config| config.restarts = Restarts { max: 10, within: Duration::MAX, ..Restarts::default() }),
    ("any partial input", |config| config.settings.max_partial = usize::MAX),
    ("no partial input", |config| config.settings.max_partial = 0),
    ("high high water", |config| config.settings.high_water = usize::MAX),
    ("low high water", |config| (config.settings.high_water, config.settings.low_water) = (0, 0)),
    ("low water above high", |config| config.settings.low_water = usize::MAX),
    ("capacity for all", |config| config.capacity = usize::MAX),
    ("capacity for none", |config| config.capacity = 0),
    ("countless loops", |config| config.loops = usize::MAX),
    ("many loops", |config| config.loops = 1 << 20),
    ("no loops", |config| config.loops = 0),
    ("no limit", |config| config.limit = Some(usize::MAX)),
    ("a long queue for workers", |config| config.worker_queue = usize::MAX),
    ("a large inbox", |config| config.inbox = usize::MAX),
    ("no inbox", |config| config.inbox = 0),
    ("a long backlog", |config| *backlog(config) = u32::MAX),
    ("large buffers", |config| config.settings.options.send_buffer = Some(u32::MAX)),
];

fn backlog(config: &mut Config) -> &mut u32 {
    match &mut config.endpoint {
        Endpoint::Accept { backlog, .. } => backlog,
        _ => unreachable!("these pools accept"),
    }
}

fn plain() -> Config {
    Config::accept(Polite).listen("127.0.0.1:0").loops(1).workers(1)
}

#[track_caller]
fn assert_one_line(what: &str, error: &Error) {
    let line = error.to_string();
    assert!(!line.is_empty() && !line.contains('\n'), "{what}: {line:?}");
}

#[test]
fn a_pool_with_odd_numbers_is_refused_in_one_line_or_serves() {
    in_time(|| {
        for (what, change) in ODD {
            let mut config = plain();
            change(&mut config);
            match Pool::start(config) {
                Err(error) => assert_one_line(what, &error),
                Ok(pool) => assert_serves(what, &pool),
            }
        }
    });
}

#[test]
fn a_change_to_odd_numbers_is_refused_in_one_line_or_serves() {
    in_time(|| {
        for (what, change) in ODD {
            let pool = Pool::start(plain()).expect("starts");
            let mut held = connect(address(&pool));
            assert!(echoes(&mut held, b"before"), "{what}");
            let mut wanted = pool.config();
            change(&mut wanted);
            if let Err(error) = pool.reconfigure(wanted) {
                assert_one_line(what, &error);
                assert_eq!(pool.status().generation, 1, "{what}");
            }
            assert!(echoes(&mut held, b"after"), "{what}");
            assert_serves(what, &pool);
        }
    });
}

/// Serves a connection to its end and another beside it, and loses nothing by it.
#[track_caller]
fn assert_serves(what: &str, pool: &Pool) {
    let (mut one, mut other) = (connect(address(pool)), connect(address(pool)));
    // Two of each: the second is read when the socket is watched.
    assert!((0..2).all(|_| echoes(&mut one, b"x") && echoes(&mut other, b"x")), "{what}");
    let before = pool.status().connections;
    one.write_all(b"q").expect("it stands");
    assert!(read_all(&mut one).expect("an orderly end").is_empty(), "{what}");
    // While the first lingers, or has gone.
    assert!(echoes(&mut other, b"x"), "{what}");
    drop(one);
    assert!(pool.wait(PATIENCE, |status| status.connections < before), "{what}");
    assert!(echoes(&mut other, b"x"), "{what}");
    let status = pool.status();
    assert_eq!((status.restarts, status.counts.panics), (0, 0), "{what}");
}

/// Changes one number of a connecting.
type OddCourse = (&'static str, fn(&mut Connecting));

const ODD_COURSES: [OddCourse; 13] = [
    ("time-out of ages", |connecting| connecting.timeout = Duration::MAX),
    ("no time", |connecting| connecting.timeout = Duration::ZERO),
    ("rate 0", |connecting| connecting.rate = Some(0.0)),
    ("rate below 0", |connecting| connecting.rate = Some(-1.0)),
    ("rate that is no number", |connecting| connecting.rate = Some(f64::NAN)),
    ("rate without end", |connecting| connecting.rate = Some(f64::INFINITY)),
    ("rate of once in an age", |connecting| connecting.rate = Some(1e-20)),
    ("rate above all clocks", |connecting| connecting.rate = Some(f64::MAX)),
    ("no connection", |connecting| connecting.keep = Some(0)),
    ("any number of connections", |connecting| connecting.keep = Some(usize::MAX)),
    ("no number of connections", |connecting| connecting.keep = None),
    ("none in all", |connecting| connecting.total = Some(0)),
    ("any number in all", |connecting| connecting.total = Some(u64::MAX)),
];

#[test]
fn a_course_with_odd_numbers_is_refused_in_one_line_or_does_no_harm() {
    in_time(|| {
        let (_server, at) = start(Config::accept(Echo).loops(1));
        for (what, change) in ODD_COURSES {
            let plain = Connecting::to([at]).keep(4);
            let mut odd = plain.clone();
            change(&mut odd);
            let config = |connecting| Config::connect(Echo, connecting).loops(1).workers(0);
            match Pool::start(config(odd.clone())) {
                Err(error) => assert_one_line(what, &error),
                Ok(pool) => assert_ends_unharmed(what, &pool),
            }
            let pool = Pool::start(config(plain)).expect("starts");
            if let Err(error) = pool.reconfigure(config(odd)) {
                assert_one_line(what, &error);
            }
            assert_ends_unharmed(what, &pool);
        }
    });
}

#[track_caller]
fn assert_ends_unharmed(what: &str, pool: &Pool) {
    // The loop has answered, so it has been through its first turns.
    pool.connections(&Selector::All);
    pool.shutdown(Drain::within(Duration::from_secs(1)));
    let status = pool.status();
    assert_eq!((status.restarts, status.counts.panics), (0, 0), "{what}");
}

#[test]
fn a_wait_of_ages_ends_with_its_condition() {
    in_time(|| {
        let (pool, at) = start(Config::accept(Echo).loops(1));
        let client = connect(at);
        assert!(pool.wait(Duration::MAX, |status| status.connections == 1));
        drop(client);
        assert!(pool.wait(Duration::MAX, |status| status.connections == 0));
    });
}

/// Sets its timer for ages when it opens.
struct Patient;

impl Service for Patient {
    type Protocol = Patient;
    fn open(&self, _peer: &Peer) -> Patient {
        Patient
    }
}

impl Protocol for Patient {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        cx.set_timer(Duration::MAX);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.set_timer(Duration::MAX);
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

#[test]
fn a_timer_of_ages_does_not_go_off() {
    let (pool, at) = start(Config::accept(Patient).loops(1));
    let mut stream = connect(at);
    assert!((0..10).all(|_| echoes(&mut stream, b"x")));
    let status = pool.status();
    assert_eq!((status.restarts, status.counts.panics, status.connections), (0, 0, 1));
}

#[test]
fn an_idle_loop_lets_go_of_a_retired_service() {
    let service = Arc::new(Echo);
    let retired = Arc::downgrade(&service);
    let (pool, _) = start(Config::accept(Echo).behaviour(service).loops(2));
    pool.reconfigure(pool.config().behaviour(Echo)).expect("another service");
    assert!(pool.wait(PATIENCE, |_| retired.upgrade().is_none()), "no connection comes to make it look");
}

/// Service that asks its pool for its status when it is dropped.
struct Nosy {
    pool: Arc<Mutex<Option<PoolHandle>>>,
    tells: mpsc::Sender<usize>,
}

impl Service for Nosy {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        let pool = self.pool.lock().expect("no panic").take();
        if let Some(pool) = pool {
            let status = pool.status();
            pool.plan(&pool.config()).expect("a copy makes sense");
            self.tells.send(status.loops.len()).expect("the test listens");
        }
    }
}

/// Returns a pool whose service calls it when it is dropped, and the channel that hears of that.
fn nosy() -> (Pool, SocketAddr, mpsc::Receiver<usize>) {
    let (tells, told) = mpsc::channel();
    let known = Arc::new(Mutex::new(None));
    let (pool, at) = start(Config::accept(Nosy { pool: known.clone(), tells }).loops(2));
    *known.lock().expect("no panic") = Some(pool.handle());
    (pool, at, told)
}

fn exchange_service(pool: &Pool) {
    let wanted = Config::accept(Echo).listen("127.0.0.1:0").loops(2);
    pool.reconfigure(wanted).expect("another service");
}

#[test]
fn the_drop_of_a_service_that_was_exchanged_may_call_its_pool() {
    in_time(|| {
        let (pool, at, told) = nosy();
        exchange_service(&pool);
        assert_eq!(told.recv_timeout(PATIENCE).expect("dropped, and answered"), 2);
        assert!(echoes(&mut connect(at), b"x"));
    });
}

#[test]
fn the_drop_of_a_service_whose_last_connection_ended_may_call_its_pool() {
    in_time(|| {
        let (pool, at, told) = nosy();
        let mut last = connect(at);
        assert!(echoes(&mut last, b"x"));
        exchange_service(&pool);
        drop(last);
        // The thread that asks for the status may be the one that finds that the generation has ended.
        let mut loops = None;
        assert!(pool.wait(PATIENCE, |_| {
            loops = loops.or(told.try_recv().ok());
            loops.is_some()
        }));
        assert_eq!((loops, pool.status().generations.len()), (Some(2), 1));
        assert!(echoes(&mut connect(at), b"x"));
    });
}

/// Service that ends as soon as it is connected.
struct Passing;

impl Service for Passing {
    type Protocol = Passing;
    fn open(&self, _peer: &Peer) -> Passing {
        Passing
    }
}

impl Protocol for Passing {
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Close
    }
}

#[test]
fn the_total_of_a_connect_pool_is_exact_through_changes() {
    const TOTAL: u64 = 2000;
    let (server, at): (Pool, SocketAddr) = start(Config::accept(Echo).loops(1));
    let mut connecting = Connecting::to([at]).keep(50).total(TOTAL);
    let config = |connecting: &Connecting, loops| Config::connect(Passing, connecting.clone()).loops(loops).workers(0);
    let pool = Pool::start(config(&connecting, 2)).expect("starts");
    let mut changes = 0;
    while pool.status().counts.closed < TOTAL {
        changes += 1;
        connecting.timeout = Duration::from_secs(5 + changes % 2);
        pool.reconfigure(config(&connecting, 1 + changes as usize % 3)).expect("a course can be changed");
    }
    assert_empty(&pool);
    // All loops have answered this, so none is about to begin one more.
    pool.connections(&Selector::All);
    let counts = pool.status().counts;
    assert_eq!((counts.connects, counts.connected, counts.closed), (TOTAL, TOTAL, TOTAL), "after {changes} changes");
    assert_empty(&server);
    assert_eq!(server.status().counts.accepted, TOTAL);
}

#[test]
fn a_policy_changed_back_and_forth_under_load_loses_no_loop() {
    let (pool, at) = start(Config::accept(Echo).loops(2).limit(1));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = Stops(&over);
        let visitor = scope.spawn(|| {
            while !over.load(SeqCst) {
                // It may be turned away, or served.
                echoes(&mut connect(at), b"x");
            }
        });
        for round in 0..200 {
            let on_full = if round % 2 == 0 { OnFull::Reject(Reject::Fin) } else { OnFull::Backpressure };
            pool.reconfigure(pool.config().on_full(on_full)).expect("a policy can be changed");
        }
        drop(stops);
        visitor.join().expect("no panic");
    });
    assert_empty(&pool);
    assert!(echoes(&mut connect(at), b"x"));
}

/// Service that saves nothing. Where it is restored it says so, and waits until it is let go.
struct Slowly(Option<(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>)>);

struct Kept;

impl Service for Slowly {
    type Protocol = Kept;
    fn open(&self, _peer: &Peer) -> Kept {
        Kept
    }
    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Kept, CannotRestore> {
        if let Some((restores, goes_on)) = &self.0 {
            restores.send(()).expect("the test listens");
            goes_on.lock().expect("no panic").recv_timeout(PATIENCE).expect("let go");
        }
        Ok(Kept)
    }
}

impl Protocol for Kept {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

#[test]
fn a_generation_to_which_a_connection_moves_has_not_ended() {
    let ended = Arc::new(Mutex::new(Vec::new()));
    let told = ended.clone();
    let (pool, at) = start(Config::accept(Slowly(None)).loops(1).observer(move |event: &Event| {
        if let Event::GenerationEnded(id) = event {
            told.lock().expect("no panic").push(*id);
        }
    }));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"x"));
    let ((restores, restoring), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    pool.update(move_to(Slowly(Some((restores, Mutex::new(goes_on)))))).expect("a change");
    let adopting = pool.clone();
    let adopting = std::thread::spawn(move || adopting.adopt(&Selector::All));
    restoring.recv_timeout(PATIENCE).expect("it moves");
    pool.update(move_to(Slowly(None))).expect("a change");
    assert!(ended.lock().expect("no panic").is_empty(), "each has a connection, or is in force");
    go_on.send(()).expect("it waits");
    assert_eq!(adopting.join().expect("no panic").moved, 1);
    assert!(echoes(&mut client, b"x"));
    assert!(pool.wait(PATIENCE, |_| *ended.lock().expect("no panic") == [1]), "{ended:?}");
    drop(client);
    assert!(pool.wait(PATIENCE, |_| *ended.lock().expect("no panic") == [1, 2]), "{ended:?}");
}

/// Returns a change of the service.
fn move_to(service: Slowly) -> impl FnMut(Config) -> Config {
    let mut service = Some(service);
    move |config| config.behaviour(service.take().expect("nobody else changes it"))
}

/// Ends its connection in a way that the first byte names, and leaves the rest of the input.
struct Ends;

impl Service for Ends {
    type Protocol = Ends;
    fn open(&self, _peer: &Peer) -> Ends {
        Ends
    }
}

impl Protocol for Ends {
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        let how = input.bytes()[0];
        input.take(1);
        match how {
            b'c' => Step::Close,
            b'a' => Step::Abort,
            _ => panic!("as it was told"),
        }
    }
}

#[test]
fn the_last_connection_of_a_generation_may_end_with_input_left_and_takes_no_other_along() {
    for ends in [b"c rest", b"a rest", b"p rest"] {
        let (pool, at) = start(Config::accept(Ends).loops(1));
        let mut last = connect(at);
        assert!(pool.wait(PATIENCE, |status| status.connections == 1));
        pool.reconfigure(pool.config().behaviour(Echo)).expect("a newer service");
        let mut other = connect(at);
        assert!(echoes(&mut other, b"here"));
        last.write_all(ends).expect("it stands");
        let _ = read_all(&mut last);
        assert!(echoes(&mut other, b"still here"), "{}", String::from_utf8_lossy(ends));
        assert_eq!(pool.status().counts.panics, u64::from(ends[0] == b'p'));
    }
}
