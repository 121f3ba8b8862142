//! Parts that hang, die or cannot be started: what they had goes to the others, and nothing of it is lost for good.

use crate::common::{Echo, Holding, PATIENCE, connect, echoes, in_time, play, read, role, say, start};
use sockdrawer::testing::crash;
use sockdrawer::{
    Config, Context, Drain, Error, Input, Job, JobResult, Local, Model, Peer, Pool, Protocol, Service, Step,
    observe::{Event, Readiness, Status},
    restarting::{Part, Restarts},
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// No part is replaced before the end of its test.
const LONG: Duration = Duration::from_secs(3600);

/// Service that answers each byte by way of a job.
struct Jobs;

impl Service for Jobs {
    type Protocol = Jobs;
    fn open(&self, _peer: &Peer) -> Jobs {
        Jobs
    }
}

impl Protocol for Jobs {
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        let byte = input.bytes()[0];
        input.take(1);
        Step::Work(Job::new(move || byte))
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        cx.send(&[result.take::<u8>().expect("no panic")]);
        Step::Continue
    }
}

fn worker_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "sockdrawer-work").count()
}

/// Asks for a socket of a device that there is none of.
fn refused(config: Config) -> Config {
    listening(config, |listeners| listeners[0].options.device = Some("no-such".to_owned()))
}

fn listening(config: Config, change: impl Fn(&mut Vec<sockdrawer::listening::Listening>)) -> Config {
    config.listeners(change)
}

#[test]
fn a_refused_change_leaves_the_workers_as_they_were() {
    // The threads of the process are counted: other tests have workers too.
    if role().is_none() {
        let mut counting = play("recovering::a_refused_change_leaves_the_workers_as_they_were", "counting");
        assert_eq!(counting.hear(), "as they were");
        return;
    }
    for workers in [0, 1, 8] {
        let (pool, at) = start(Config::accept(Jobs).loops(1).workers(4));
        let mut client = connect(at);
        assert!(echoes(&mut client, b"1"));
        assert!(pool.reconfigure(refused(pool.config().workers(workers))).is_err());
        // Workers that were started for the change leave again.
        assert!(pool.wait(PATIENCE, |status| status.workers == 4), "{workers}: {:#?}", pool.status());
        assert!(pool.wait(PATIENCE, |_| worker_threads() == 4), "{workers}: {} threads", worker_threads());
        assert!(echoes(&mut client, b"2"), "{workers}: a job is run");
        pool.reconfigure(pool.config().workers(1)).expect("it can be changed");
        assert!(pool.wait(PATIENCE, |status| status.workers == 1) && echoes(&mut client, b"3"));
        assert_eq!(pool.shutdown(Drain::within(PATIENCE)).cut, 0);
    }
    say("as they were");
}

/// Returns a pool of two loops that lets one connection in, which it has; twelve more wait for it, at both loops.
fn crowded(config: Config) -> (Pool, TcpStream, Vec<TcpStream>) {
    let (pool, at) = start(config.loops(2));
    let mut first = connect(at);
    assert!(echoes(&mut first, b"x"));
    let mut others: Vec<TcpStream> = (0..12).map(|_| connect(at)).collect();
    others.iter_mut().for_each(|other| other.write_all(b"y").expect("it is in the queue"));
    (pool, first, others)
}

/// Returns the loop that has, or has not, a connection.
fn loop_with(status: &Status, connections: usize) -> usize {
    status.loops.iter().position(|one| one.connections == connections).expect("there is one")
}

/// Returns true where each client is answered and goes, whatever their order.
fn all_are_served(mut waiting: Vec<TcpStream>) -> bool {
    let until = Instant::now() + PATIENCE;
    waiting.iter().for_each(|client| client.set_nonblocking(true).expect("a socket"));
    while !waiting.is_empty() && Instant::now() < until {
        waiting.retain_mut(|client| !matches!(client.read(&mut [0]), Ok(1)));
        std::thread::yield_now();
    }
    waiting.is_empty()
}

#[test]
fn a_dead_loop_keeps_no_place_among_those_who_wait() {
    let limits: [fn(Config) -> Config; 2] = [
        |config| config.limit(1),
        |config| listening(config, |listeners| listeners.iter_mut().for_each(|one| one.limit = Some(1))),
    ];
    for limit in limits {
        let config = limit(Config::accept(Echo).listen(crate::common::any_port()));
        let config = config.restarts(Restarts { max: 1, within: LONG, pause: LONG });
        let pool = Pool::start(config.loops(2)).expect("starts");
        let at = crate::common::address(&pool);
        let mut first = connect(at);
        assert!(echoes(&mut first, b"x"));
        let mut others: Vec<TcpStream> = (0..12).map(|_| connect(at)).collect();
        others.iter_mut().for_each(|other| other.write_all(b"y").expect("it is in the queue"));
        // Until both loops have seen that there is no room.
        pool.wait(Duration::from_millis(100), |_| false);
        let dead = loop_with(&pool.status(), 0);
        assert!(crash(&pool, Part::Loop, dead));
        assert!(echoes(&mut first, b"x"), "it is of the other loop");
        drop(first);
        assert!(all_are_served(others), "{:#?}", pool.status());
        assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
        pool.shutdown(Drain::within(PATIENCE));
    }
}

#[test]
fn a_pool_that_gives_up_ends_with_its_last_connection_though_a_dead_loop_waited() {
    in_time(|| {
        let (pool, first, others) = crowded(Config::accept(Echo).limit(1).restarts(Restarts { max: 0, ..Restarts::default() }));
        pool.wait(Duration::from_millis(100), |_| false);
        let dead = loop_with(&pool.status(), 1);
        assert!(crash(&pool, Part::Loop, dead));
        drop((first, others));
        let began = Instant::now();
        assert!(matches!(pool.join(), Err(Error::Stopped { .. })));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    });
}

/// Service that keeps its loop for as many milliseconds as a byte says.
struct Busy;

impl Service for Busy {
    type Protocol = Busy;
    fn open(&self, _peer: &Peer) -> Busy {
        Busy
    }
}

impl Protocol for Busy {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        // waits because: a loop that is held up is what is tried.
        std::thread::sleep(Duration::from_micros(u64::from(input.bytes()[0]) * 20));
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

#[test]
fn a_loop_that_turns_again_while_it_is_found_stuck_goes_on_accepting() {
    let stuck = Arc::new(AtomicUsize::new(0));
    let told = stuck.clone();
    let mut config = Config::accept(Busy).loops(1).limit(1).observer(move |event: &Event| {
        told.fetch_add(usize::from(matches!(event, Event::LoopStuck { .. })), SeqCst);
    });
    config.stuck_after = Duration::from_millis(1);
    let (pool, at) = start(config);
    std::thread::scope(|scope| {
        for client in 0..3_u8 {
            scope.spawn(move || {
                for exchange in 0..200_u8 {
                    let busy = 40 + exchange.wrapping_mul(37).wrapping_add(client * 11) % 80;
                    assert!(echoes(&mut connect(at), &[busy]), "{client} {exchange}");
                }
            });
        }
    });
    assert!(stuck.load(SeqCst) > 0, "it was found stuck");
    assert_eq!(pool.shutdown(Drain::within(PATIENCE)).cut, 0);
}

/// Returns two connections, the second in the other loop.
fn one_in_each_loop(pool: &Pool, at: SocketAddr) -> (TcpStream, TcpStream) {
    let served = || {
        let mut client = connect(at);
        assert!(echoes(&mut client, b"x"));
        client
    };
    let first = served();
    loop {
        let second = served();
        if pool.wait(Duration::from_millis(50), |status| status.loops.iter().all(|one| one.connections == 1)) {
            return (first, second);
        }
    }
}

#[test]
fn a_loop_that_hangs_in_line_for_room_keeps_nothing_back() {
    // Which of the two loops is called first is not known: both happen in so many rounds.
    for _ in 0..6 {
        let ((lets_go, waits), (holds, held)) = (mpsc::channel(), mpsc::channel());
        let service = Holding { holds, lets_go: Arc::new(Mutex::new(waits)) };
        let mut config = Config::accept(service).loops(2).limit(2);
        config.stuck_after = Duration::from_secs(3600);
        let (pool, at) = start(config);
        let (mut holder, other) = one_in_each_loop(&pool, at);
        // Some wait at the sockets of either loop.
        let mut waiting: Vec<TcpStream> = (0..40).map(|_| connect(at)).collect();
        waiting.iter_mut().for_each(|client| client.write_all(b"y").expect("it is in the queue"));
        // Until both loops have seen that there is no room.
        pool.wait(Duration::from_millis(50), |_| false);
        holder.write_all(b"h").expect("it stands");
        held.recv_timeout(PATIENCE).expect("the loop is held up");
        let before = pool.status().counts.accepted;
        drop(other);
        assert!(pool.wait(Duration::from_secs(3), |status| status.counts.accepted > before), "{:#?}", pool.status());
        lets_go.send(()).expect("it waits");
        assert_eq!(read(&mut holder, 1).as_deref(), Some(&b"h"[..]));
        assert!(all_are_served(waiting), "{:#?}", pool.status());
    }
}

#[test]
fn what_waits_at_a_socket_on_its_way_out_is_served_though_its_loop_is_stuck() {
    let ((lets_go, waits), (holds, held)) = (mpsc::channel(), mpsc::channel());
    let gone = Arc::new(AtomicUsize::new(0));
    let told = gone.clone();
    let service = Holding { holds, lets_go: Arc::new(Mutex::new(waits)) };
    let mut config = Config::accept(service).loops(2).observer(move |event: &Event| {
        told.fetch_add(usize::from(matches!(event, Event::ListenerGone(_))), SeqCst);
    });
    config.stuck_after = Duration::from_millis(300);
    let (pool, at) = start(config);
    let mut holder = connect(at);
    holder.write_all(b"h").expect("it stands");
    held.recv_timeout(PATIENCE).expect("the loop is held up");
    let mut waiting: Vec<TcpStream> = (0..20).map(|_| connect(at)).collect();
    waiting.iter_mut().for_each(|client| client.write_all(b"y").expect("it is in the queue"));
    pool.update(|config| listening(config, |listeners| listeners.clear())).expect("they can be removed");
    assert!(all_are_served(waiting), "{:#?}", pool.status());
    // Its end waits for no loop.
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    lets_go.send(()).expect("it waits");
    assert_eq!(read(&mut holder, 1).as_deref(), Some(&b"h"[..]));
    assert!(pool.wait(PATIENCE, |status| status.loops.iter().all(|one| !one.stuck)) && echoes(&mut holder, b"x"));
    pool.update(|config| config.listen(crate::common::any_port())).expect("it can listen again");
    assert!((0..8).all(|_| echoes(&mut connect(crate::common::address(&pool)), b"x")));
    assert_eq!(gone.load(SeqCst), 0, "it ended in order");
    assert_eq!(pool.shutdown(Drain::within(PATIENCE)).cut, 0);
}

/// Service whose `local` can be made so often; then it panics, or waits until it is let go.
struct Counted {
    left: AtomicUsize,
    waits: Option<Mutex<mpsc::Receiver<()>>>,
}

impl Service for Counted {
    type Protocol = crate::common::Echo;
    fn open(&self, _peer: &Peer) -> crate::common::Echo {
        crate::common::Echo
    }

    fn local(&self) -> Box<Local> {
        if self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
            match &self.waits {
                Some(waits) => _ = waits.lock().expect("no panic").recv_timeout(PATIENCE),
                None => panic!("no more of them"),
            }
        }
        Box::new(())
    }
}

#[test]
fn a_loop_that_cannot_be_started_is_a_matter_of_the_policy() {
    in_time(|| {
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = events.clone();
        let service = Counted { left: AtomicUsize::new(2), waits: None };
        let restarts = Restarts { max: 3, within: Duration::from_secs(60), ..Restarts::default() };
        let config = Config::accept(service).loops(2).restarts(restarts).observer(move |event: &Event| {
            told.lock().expect("no panic").push(format!("{event:?}"));
        });
        let (pool, at) = start(config);
        assert!(crash(&pool, Part::Loop, 0));
        assert!(pool.wait(PATIENCE, |_| events.lock().expect("no panic").iter().any(|event| event.contains("LoopNotStarted"))));
        assert!((0..4).all(|_| echoes(&mut connect(at), b"x")), "the other does its work");
        let Err(Error::Stopped { reason }) = pool.join() else { panic!("it gave up") };
        assert!(reason.contains("could not be started") && reason.contains("no more of them"), "{reason}");
        let events = events.lock().expect("no panic").join("\n");
        // A death, and three starts that failed, the last of which is one too many.
        assert_eq!(events.matches("LoopNotStarted").count(), 3, "{events}");
        assert_eq!((events.matches("GaveUp").count(), pool.status().restarts), (1, 0), "{events}");
    });
}

#[test]
fn a_loop_that_takes_long_to_start_holds_up_nothing_else() {
    in_time(|| {
        let (lets_go, waits) = mpsc::channel();
        let service = Counted { left: AtomicUsize::new(2), waits: Some(Mutex::new(waits)) };
        let (pool, at) = start(Config::accept(service).loops(2));
        assert!(crash(&pool, Part::Loop, 0));
        assert!(pool.wait(PATIENCE, |status| status.loops[0].accepted == 0 && status.loops[0].connections == 0));
        assert_eq!(pool.update(|config| config.limit(7)).expect("it can be changed").revision, 2);
        assert!((0..8).all(|_| echoes(&mut connect(at), b"x")));
        assert_eq!(pool.status().restarts, 0, "it is still being started");
        pool.update(|config| config.behaviour(Echo)).expect("it can be changed");
        lets_go.send(()).expect("it waits");
        assert!(pool.wait(PATIENCE, |status| status.restarts == 1 && status.generations.len() == 1), "{:#?}", pool.status());
        assert!((0..8).all(|_| echoes(&mut connect(at), b"x")));
        pool.shutdown(Drain::within(PATIENCE));
    });
}

#[test]
fn a_pool_whose_loops_would_always_be_stuck_is_refused() {
    for model in [Model::Loops, Model::Threads] {
        let mut config = Config::accept(Echo).model(model).listen(crate::common::any_port());
        config.stuck_after = Duration::ZERO;
        let refused = Pool::start(config).map(|_| ());
        assert!(matches!(refused, Err(Error::Invalid { setting: "stuck_after", .. })), "{refused:?}");
    }
}

#[test]
fn a_condition_that_panics_is_the_callers_matter() {
    let (pool, at) = start(Config::accept(Echo).loops(1));
    let waiting = pool.clone();
    let waited = std::thread::spawn(move || waiting.wait(PATIENCE, |_| panic!("a broken condition")));
    assert!(waited.join().is_err());
    let mut client = connect(at);
    client.write_all(b"x").expect("it stands");
    assert_eq!(read(&mut client, 1).as_deref(), Some(&b"x"[..]));
}

#[test]
fn a_second_shutdown_waits_for_the_first_and_says_what_came_of_it() {
    let (pool, at) = start(Config::accept(Echo).loops(2));
    let mut clients: Vec<TcpStream> = (0..4).map(|_| connect(at)).collect();
    assert!(clients.iter_mut().all(|client| echoes(client, b"x")));
    let first = pool.clone();
    let first = std::thread::spawn(move || first.shutdown(Drain::within(PATIENCE)));
    assert!(pool.wait(PATIENCE, |status| status.readiness == Readiness::Draining));
    let second = pool.clone();
    let second = std::thread::spawn(move || second.shutdown(Drain::within(Duration::ZERO)));
    clients.iter_mut().for_each(|client| assert!(crate::common::read_all(client).is_ok()));
    drop(clients);
    let drained = second.join().expect("no panic");
    assert!(matches!(pool.status().readiness, Readiness::Stopped(_)));
    assert_eq!((drained.asked, drained.cut), (4, 0));
    assert_eq!((first.join().expect("no panic"), pool.shutdown(Drain::within(Duration::ZERO))), (drained, drained));
}

#[test]
fn a_pool_that_serves_nobody_is_refused() {
    let refused = |config: Config| Pool::start(config).map(|_| ()).expect_err("it is refused").to_string();
    for model in [Model::Loops, Model::Threads] {
        let config = || Config::accept(Echo).model(model);
        assert!(refused(config()).contains("Config::listen"));
        assert!(refused(config().listen(crate::common::any_port()).limit(0)).contains("suspend the pool"));
    }
    let (pool, _) = start(Config::accept(Echo).loops(1));
    // A running pool may be between two addresses, or let nobody in for a while.
    pool.update(|config| config.limit(0)).expect("nobody comes in");
    pool.update(|config| listening(config, |listeners| listeners.clear())).expect("they can be removed");
    pool.update(|config| config.limit(9).listen(crate::common::any_port())).expect("it can listen again");
    assert!(echoes(&mut connect(crate::common::address(&pool)), b"x"));
}
