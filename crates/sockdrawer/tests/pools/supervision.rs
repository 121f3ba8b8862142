//! A failure in one place stays there: a panic ends one connection, a dead loop is replaced, a stuck one is left aside.

use crate::common::{
    self, Echo, Holding, PATIENCE, connect, connect_from, echoes, last_octet, play, read, read_all, role, say, start,
    turned_away, without_place,
};
use sockdrawer::testing::crash_loop;
use sockdrawer::{
    Closed, Config, Context, Drain, Drained, Error, Handle, Input, Job, JobError, JobResult, Local, Note, Peer, Pool, Protocol,
    Selector, Service, Step,
    observe::{ConnectionStatus, Event},
    restarting::Restarts,
};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Place where a connection panics. The peer's address says which: 127.0.0.100 and those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Open,
    Opened,
    Received,
    Finished,
    Timeout,
    Done,
    Notified,
    Writable,
    Draining,
    Closed,
    Drop,
}

const ALL: [At; 11] = [
    At::Open,
    At::Opened,
    At::Received,
    At::Finished,
    At::Timeout,
    At::Done,
    At::Notified,
    At::Writable,
    At::Draining,
    At::Closed,
    At::Drop,
];

impl At {
    fn source(self) -> Ipv4Addr {
        let position = ALL.iter().position(|at| *at == self).expect("all are listed");
        Ipv4Addr::new(127, 0, 0, 100 + position as u8)
    }

    fn of(peer: &Peer) -> Option<At> {
        ALL.get(usize::from(last_octet(peer).checked_sub(100)?)).copied()
    }
}

/// Service that panics where it should; else it answers a byte with itself, `j` with `J` by way of a job and `t` with `T` by the timer.
#[derive(Clone, Default)]
struct Fragile {
    handles: Arc<Mutex<Vec<Handle>>>,
}

struct Glass {
    at: Option<At>,
    handles: Arc<Mutex<Vec<Handle>>>,
}

impl Glass {
    fn breaks(&self, here: At) {
        assert!(self.at != Some(here), "broken in {here:?}");
    }
}

impl Service for Fragile {
    type Protocol = Glass;
    fn open(&self, peer: &Peer) -> Glass {
        let glass = Glass { at: At::of(peer), handles: self.handles.clone() };
        if glass.at == Some(At::Open) {
            std::mem::forget(glass);
            panic!("broken in open");
        }
        glass
    }
}

impl Drop for Glass {
    fn drop(&mut self) {
        self.breaks(At::Drop);
    }
}

impl Protocol for Glass {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Opened);
        if self.at == Some(At::Notified) {
            self.handles.lock().expect("no panic").push(cx.handle());
        }
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Received);
        let byte = input.bytes()[0];
        input.take(1);
        match (byte, self.at) {
            (b'j', _) => return Step::Work(Job::new(|| b'J')),
            (b'p', _) => return Step::Work(Job::new(|| -> u8 { panic!("broken in a job") })),
            (b't', _) => cx.set_timer(Duration::from_millis(1)),
            (b'w', _) => cx.send(&vec![0; 20_000_000]),
            (b'c', _) => return Step::Close,
            _ => cx.send(&[byte]),
        }
        Step::Continue
    }

    fn peer_ended(&mut self, _cx: &mut Context<'_>) -> Step {
        self.breaks(At::Finished);
        Step::Close
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Timeout);
        cx.send(b"T");
        Step::Continue
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        self.breaks(At::Done);
        cx.send(&[result.take::<u8>().unwrap_or_else(|error| if error == JobError::Panicked { b'!' } else { b'?' })]);
        Step::Continue
    }

    fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
        self.breaks(At::Notified);
        Step::Continue
    }

    fn writable(&mut self, _cx: &mut Context<'_>) -> Step {
        self.breaks(At::Writable);
        Step::Continue
    }

    fn draining(&mut self, _cx: &mut Context<'_>) -> Step {
        self.breaks(At::Draining);
        Step::Close
    }

    fn closed(&mut self, _why: Closed, _cx: &mut Context<'_>) {
        self.breaks(At::Closed);
    }
}

/// Brings a connection to where it panics and waits for its end.
fn provoke(pool: &Pool, service: &Fragile, address: SocketAddr, at: At) {
    if let At::Open | At::Opened = at {
        let end = turned_away(at.source(), address).map_err(|error| error.kind());
        return assert_eq!(end, Err(ErrorKind::ConnectionReset), "{at:?}");
    }
    let mut stream = connect_from(at.source(), address);
    match at {
        At::Open | At::Opened => unreachable!("its end was seen"),
        At::Received => stream.write_all(b"x").expect("it stands"),
        At::Finished => stream.shutdown(std::net::Shutdown::Write).expect("it stands"),
        At::Timeout => stream.write_all(b"t").expect("it stands"),
        At::Done => stream.write_all(b"j").expect("it stands"),
        At::Writable => stream.write_all(b"w").expect("it stands"),
        At::Closed | At::Drop => stream.write_all(b"c").expect("it stands"),
        At::Notified => {
            assert!(echoes(&mut stream, b"x"));
            let handle = service.handles.lock().expect("no panic").pop().expect("opened");
            handle.notify(Note::value(())).expect("room");
        }
        At::Draining => {
            assert!(echoes(&mut stream, b"x"));
            pool.drain(&Selector::Peers(at.source().into(), 32), Drain::within(PATIENCE));
        }
    }
    let end = read_all(&mut stream).map_err(|error| error.kind());
    match at {
        // The close had begun: it goes on in order.
        At::Closed | At::Drop => assert_eq!(end, Ok(Vec::new()), "{at:?}"),
        _ => assert_eq!(end, Err(ErrorKind::ConnectionReset), "{at:?}"),
    }
}

#[test]
fn a_panic_anywhere_ends_one_connection() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let events = told.clone();
    let service = Fragile::default();
    // Each loop tells 10 events in a second at most: of four, none has more panics than that.
    let (pool, address) = start(Config::accept(service.clone()).loops(4).workers(1).observer(move |event: &Event| {
        if let Event::ConnectionPanicked { message, .. } = event {
            events.lock().expect("no panic").push(message.clone());
        }
    }));
    let mut others: Vec<_> = (0..20).map(|_| connect(address)).collect();
    assert!(others.iter_mut().all(|other| echoes(other, b"x")));
    for (before, at) in ALL.into_iter().enumerate() {
        provoke(&pool, &service, address, at);
        assert!(pool.wait(PATIENCE, |status| status.connections == others.len()), "{at:?}: {:#?}", pool.status());
        assert_eq!(pool.status().counts.panics, before as u64 + 1, "{at:?} is counted once");
        assert!(others.iter_mut().all(|other| echoes(other, b"x")), "{at:?}");
    }
    // A panic is counted before it is told.
    assert!(pool.wait(PATIENCE, |_| told.lock().expect("no panic").len() == ALL.len()), "{told:?}");
    let told: Vec<String> = told.lock().expect("no panic").iter().map(|said| without_place(said)).collect();
    let expected: Vec<_> = ALL.into_iter().map(|at| format!("broken in {at:?}")).collect();
    assert_eq!(told.join("\n").to_lowercase(), expected.join("\n").to_lowercase());
    assert_eq!(pool.status().restarts, 0);
}

#[test]
fn a_panic_in_a_job_is_its_result() {
    for workers in [0, 1] {
        let (pool, address) = start(Config::accept(Fragile::default()).loops(1).workers(workers));
        let mut stream = connect(address);
        for _ in 0..10 {
            stream.write_all(b"pj").expect("it stands");
            assert_eq!(read(&mut stream, 2).as_deref(), Some(&b"!J"[..]));
        }
        let status = pool.status();
        assert_eq!((status.workers, status.restarts, status.counts.job_panics, status.counts.panics), (workers, 0, 10, 0));
    }
}

#[test]
fn a_panic_in_a_job_is_told() {
    let (tells, told) = mpsc::channel();
    let (_pool, address) = start(Config::accept(Fragile::default()).loops(1).workers(1).observer(move |event: &Event| {
        if let Event::JobPanicked { message } = event {
            tells.send(message.clone()).expect("the test listens");
        }
    }));
    let mut stream = connect(address);
    stream.write_all(b"p").expect("it stands");
    assert_eq!(read(&mut stream, 1).as_deref(), Some(&b"!"[..]));
    assert_eq!(told.recv_timeout(Duration::from_secs(1)).as_deref(), Ok("broken in a job"));
}

/// Service whose `local` panics.
struct Unprepared;

impl Service for Unprepared {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        Echo
    }
    fn local(&self) -> Box<Local> {
        panic!("broken in local")
    }
}

#[test]
fn a_service_that_panics_while_it_is_prepared_changes_nothing() {
    assert!(matches!(Pool::start(Config::accept(Unprepared).listen(common::any_port())), Err(Error::ServicePanicked { .. })));
    let (pool, address) = start(Config::accept(Fragile::default()).loops(2));
    let mut stream = connect(address);
    assert!(echoes(&mut stream, b"x"));
    let refused = pool.reconfigure(pool.config().behaviour(Unprepared));
    assert!(matches!(refused, Err(Error::ServicePanicked { ref message }) if message == "broken in local"), "{refused:?}");
    assert!(echoes(&mut stream, b"x") && echoes(&mut connect(address), b"x"));
    assert_eq!((pool.status().generation, pool.status().restarts), (1, 0));
}

/// Something whose Drop panics.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("broken in the Drop of a value");
    }
}

/// Service that gives values whose Drop panics to all that keep values for it.
struct Miner(mpsc::Sender<Handle>);

struct Mining;

impl Service for Miner {
    type Protocol = Mining;
    fn open(&self, _peer: &Peer) -> Mining {
        Mining
    }
    fn local(&self) -> Box<Local> {
        Box::new(self.0.clone())
    }
}

impl Protocol for Mining {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        let handle = cx.handle();
        cx.local::<mpsc::Sender<Handle>>().expect("made by Miner").send(handle).expect("the test listens");
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let byte = input.bytes()[0];
        input.take(1);
        match byte {
            // The result comes when the connection is gone.
            b'j' => Step::Work(Job::boxed(|| {
                // waits because: nothing tells a job that its connection is gone.
                std::thread::sleep(Duration::from_millis(50));
                Mine
            })),
            b'p' => std::panic::panic_any(Mine),
            _ => {
                cx.send(&[byte]);
                Step::Continue
            }
        }
    }
}

/// Starts a pool of one loop with a connection that must outlive all, and one to be lost.
fn mined() -> (Pool, TcpStream, TcpStream, Handle) {
    let (tells, hears) = mpsc::channel();
    let (pool, address) = start(Config::accept(Miner(tells)).loops(1).workers(1));
    let mut other = connect(address);
    assert!(echoes(&mut other, b"x"));
    hears.recv_timeout(PATIENCE).expect("opened");
    let mut lost = connect(address);
    assert!(echoes(&mut lost, b"x"));
    let handle = hears.recv_timeout(PATIENCE).expect("opened");
    (pool, other, lost, handle)
}

#[test]
fn a_note_nobody_gets_may_panic_when_dropped() {
    let (pool, mut other, lost, handle) = mined();
    drop(lost);
    assert!(pool.wait(PATIENCE, |status| status.connections == 1));
    handle.notify(Note::value(Mine)).expect("room");
    assert!(echoes(&mut other, b"x"), "the other connection lives");
    assert_eq!(pool.status().restarts, 0);
}

#[test]
fn a_job_result_nobody_gets_may_panic_when_dropped() {
    let (pool, mut other, mut lost, _handle) = mined();
    lost.write_all(b"j").expect("it stands");
    common::reset(lost);
    // The job keeps the permit of its connection until its result has come.
    assert!(pool.wait(PATIENCE, |status| status.counts.jobs == 1 && status.connections == 1), "{:#?}", pool.status());
    assert!(echoes(&mut other, b"x"), "the other connection lives");
    assert_eq!((pool.status().restarts, pool.status().workers), (0, 1));
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_ends_one_connection() {
    let (pool, mut other, mut lost, _handle) = mined();
    lost.write_all(b"p").expect("it stands");
    assert!(read_all(&mut lost).is_err());
    assert!(echoes(&mut other, b"x"), "the other connection lives");
    assert_eq!((pool.status().restarts, pool.status().counts.panics), (0, 1));
}

#[test]
fn a_panic_of_a_visitor_ends_nothing() {
    let (pool, address) = start(Config::accept(Echo).loops(1));
    let mut other = connect(address);
    assert!(echoes(&mut other, b"x"));
    pool.gather(|(): &mut ()| -> u8 { panic!("broken in a visitor") });
    assert!(echoes(&mut other, b"x"), "the other connection lives");
    assert_eq!(pool.status().restarts, 0);
}

#[test]
fn a_storm_of_panics_prints_nothing_and_tells_little() {
    const NAME: &str = "supervision::a_storm_of_panics_prints_nothing_and_tells_little";
    if role().is_some() {
        let told = Arc::new(AtomicU64::new(0));
        let events = told.clone();
        let config = Config::accept(Fragile::default()).loops(2).observer(move |_: &Event| _ = events.fetch_add(1, SeqCst));
        let (pool, address) = start(config);
        for _ in 0..1000 {
            let mut stream = connect_from(At::Received.source(), address);
            stream.write_all(b"x").expect("it stands");
            assert!(read_all(&mut stream).is_err());
        }
        return say(&format!("{} {}", pool.status().counts.panics, told.load(SeqCst)));
    }
    let mut child = play(NAME, "storm");
    let said = child.hear();
    let (panics, told) = said.split_once(' ').expect("two numbers");
    assert_eq!(panics, "1000");
    assert!(told.parse::<u64>().expect("a number") < 300, "{told} events");
    assert_eq!(child.errors(), "", "nothing is printed");
}

/// Service that tells each connection which loop it is in: `local` is made once for each.
#[derive(Default)]
struct Located(AtomicU64);

struct Where;

impl Service for Located {
    type Protocol = Where;
    fn open(&self, _peer: &Peer) -> Where {
        Where
    }
    fn local(&self) -> Box<Local> {
        Box::new(self.0.fetch_add(1, SeqCst) as u8)
    }
}

impl Protocol for Where {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        let number = *cx.local::<u8>().expect("made by Located");
        cx.send(&[number]);
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        cx.send(input.bytes());
        input.take_all();
        Step::Continue
    }
}

fn located(address: SocketAddr) -> (TcpStream, u8) {
    let mut stream = connect(address);
    let number = read(&mut stream, 1).expect("greeted")[0];
    (stream, number)
}

#[test]
fn a_dead_loop_is_replaced_and_the_others_connections_live() {
    let (tells, told) = mpsc::channel();
    let config = Config::accept(Located::default()).loops(2).observer(move |event: &Event| {
        if let Event::LoopReplaced { index, reason } = event {
            tells.send((*index, reason.clone())).expect("the test listens");
        }
    });
    let (pool, address) = start(config);
    let mut all: Vec<_> = (0..40).map(|_| located(address)).collect();
    assert!(crash_loop(&pool, 0));
    let (victim, _) = all.iter_mut().find(|(_, number)| *number == 0).expect("40 are in both loops");
    assert!(read_all(victim).is_ok_and(|rest| rest.is_empty()), "a loop that dies says its end");
    // These come while the loop is dead, or just replaced; none is lost.
    let mut late: Vec<_> = (0..40).map(|_| located(address)).collect();
    let (index, reason) = told.recv_timeout(PATIENCE).expect("replaced");
    assert_eq!((index, without_place(&reason)), (0, "a test crashed this loop".to_owned()));
    for (stream, number) in &mut all {
        assert_eq!(echoes(stream, b"x"), *number == 1, "only what was in loop 0 ended");
    }
    late.extend((0..40).map(|_| located(address)));
    let dead = late.iter().filter(|(_, number)| *number == 0).count();
    assert_eq!(dead, 0, "nobody is accepted by a dead loop");
    let kept: Vec<&mut TcpStream> = late.iter_mut().map(|(stream, _)| stream).collect();
    assert!(kept.into_iter().all(|stream| echoes(stream, b"x")));
    let status = pool.status();
    assert!(status.loops.len() == 2 && status.loops.iter().all(|one| one.active && one.connections > 0), "{status:#?}");
    assert_eq!((status.restarts, status.counts.accepted), (1, 120), "what the dead loop counted stays counted");
    drop((all, late));
    common::assert_empty(&pool);
}

#[test]
fn a_pool_whose_loops_die_too_often_gives_up_and_says_why() {
    let mut config = Config::accept(Echo).loops(2);
    config = config.restarts(Restarts { max: 2, within: Duration::from_secs(60), ..Restarts::default() });
    let address = common::address_of_its_own();
    let pool = Pool::start(config.listen(address)).expect("the pool starts");
    for restarts in 1..=2 {
        assert!(crash_loop(&pool, 0));
        assert!(pool.wait(PATIENCE, |status| status.restarts == restarts));
        assert!(echoes(&mut connect(address), b"x"));
    }
    assert!(crash_loop(&pool, 1));
    let Err(Error::Stopped { reason }) = pool.join() else { panic!("it gave up") };
    assert!(reason.contains("too often") && reason.contains("a test crashed this loop"), "{reason}");
    assert!(matches!(pool.reconfigure(pool.config()), Err(Error::Stopped { .. })));
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn a_stuck_loop_is_told_left_aside_and_taken_back() {
    let (lets_go, waits) = mpsc::channel();
    let (holds, held) = mpsc::channel();
    let lets_go_of_all = Arc::new(Mutex::new(waits));
    let (tells, told) = mpsc::channel();
    let mut config =
        Config::accept(Holding { holds, lets_go: lets_go_of_all }).loops(2).observer(move |event: &Event| match event {
            Event::LoopStuck { index, since } => tells.send((*index, Some(*since))).expect("the test listens"),
            Event::LoopRecovered { index } => tells.send((*index, None)).expect("the test listens"),
            _ => {}
        });
    config.stuck_after = Duration::from_millis(200);
    let (pool, address) = start(config);
    let mut holder = connect(address);
    assert!(echoes(&mut holder, b"x"));
    let loop_of_holder = pool.status().loops.iter().position(|one| one.accepted == 1).expect("accepted");
    holder.write_all(b"h").expect("it stands");
    held.recv_timeout(PATIENCE).expect("the loop is held up");
    // Some of these wait at the stuck loop until it is known to be stuck.
    let mut early: Vec<_> = (0..32).map(|_| connect(address)).collect();
    assert!(early.iter_mut().all(|stream| echoes(stream, b"x")));
    let (index, since) = told.recv_timeout(PATIENCE).expect("told");
    assert_eq!(index, loop_of_holder);
    assert!(since.is_some_and(|since| since >= Duration::from_millis(200)), "{since:?}");
    let mut late: Vec<_> = (0..32).map(|_| connect(address)).collect();
    assert!(late.iter_mut().all(|stream| echoes(stream, b"x")));
    let status = pool.status();
    assert_eq!((status.loops[index].stuck, status.loops[index].accepted), (true, 1), "{status:#?}");
    lets_go.send(()).expect("the protocol waits");
    assert_eq!(read(&mut holder, 1).as_deref(), Some(&b"h"[..]));
    assert_eq!(told.recv_timeout(PATIENCE), Ok((index, None)), "recovered");
    let taken_back = |_: usize| late.push(connect(address));
    (0..64).for_each(taken_back);
    assert!(late.iter_mut().chain(&mut early).all(|stream| echoes(stream, b"x")) && echoes(&mut holder, b"x"));
    let status = pool.status();
    assert!(status.loops[index].accepted > 1 && status.loops.iter().all(|one| !one.stuck), "{status:#?}");
    assert_eq!((status.restarts, ids(&pool).len()), (0, 129));
}

fn ids(pool: &Pool) -> Vec<ConnectionStatus> {
    pool.connections(&Selector::All)
}

#[test]
fn a_loop_that_is_busy_for_longer_than_it_is_asked_is_not_taken_for_empty() {
    // The pool asks its loops for 5 s.
    const BUSY: Duration = Duration::from_secs(6);
    type End = fn(&Pool) -> Drained;
    let ends: [End; 2] =
        [|pool| pool.drain(&Selector::All, Drain::within(PATIENCE)), |pool| pool.shutdown(Drain::within(PATIENCE))];
    std::thread::scope(|scope| {
        for end in ends {
            scope.spawn(move || {
                let ((lets_go, waits), (holds, held)) = (mpsc::channel(), mpsc::channel());
                let (pool, address) = start(Config::accept(Holding { holds, lets_go: Arc::new(Mutex::new(waits)) }).loops(1));
                let mut holder = connect(address);
                holder.write_all(b"h").expect("it stands");
                held.recv_timeout(PATIENCE).expect("the loop is held up");
                let (tells, told) = mpsc::channel();
                let ending = pool.clone();
                let ended = std::thread::spawn(move || tells.send(end(&ending)));
                assert_eq!(told.recv_timeout(BUSY), Err(mpsc::RecvTimeoutError::Timeout), "it has not ended");
                lets_go.send(()).expect("it waits");
                assert_eq!(read_all(&mut holder).expect("an orderly end"), b"h");
                drop(holder);
                let drained = told.recv_timeout(PATIENCE).expect("it ends now");
                assert_eq!((drained.asked, drained.ended, drained.cut), (1, 1, 0));
                ended.join().expect("no panic").expect("heard");
            });
        }
    });
}

/// Returns what the panic of a protocol writes to stderr, and what an observer is told of it.
fn panics_once(name: &str, role: &str) -> (String, String) {
    let mut server = play(name, role);
    let told = server.hear();
    (server.errors(), told)
}

#[test]
fn a_panic_is_printed_where_no_observer_is_told_of_it_and_has_its_place() {
    const NAME: &str = "supervision::a_panic_is_printed_where_no_observer_is_told_of_it_and_has_its_place";
    if let Some(role) = role() {
        let (tell, told) = mpsc::channel();
        let observer = move |event: &Event| {
            if let Event::ConnectionPanicked { message, .. } = event {
                // The receiver lives until the first of them.
                let _ = tell.send(message.clone());
            }
        };
        let mut config = Config::accept(Fragile::default());
        if role == "observed from its start" {
            config = config.observer(observer.clone());
        }
        let (pool, address) = start(config);
        if role == "observed later" {
            pool.update(|config| config.observer(observer.clone())).expect("it can be observed");
        }
        let mut stream = connect_from(At::Received.source(), address);
        let _ = stream.write_all(b"x");
        assert!(pool.wait(PATIENCE, |status| status.counts.panics == 1));
        return say(&if role == "unobserved" { String::new() } else { told.recv_timeout(PATIENCE).expect("it is told") });
    }
    let (printed, told) = panics_once(NAME, "unobserved");
    assert!(printed.contains("broken in Received") && told.is_empty(), "{printed}, {told}");
    for role in ["observed from its start", "observed later"] {
        let (printed, told) = panics_once(NAME, role);
        assert!(!printed.contains("broken"), "{printed}");
        assert!(told.starts_with(concat!("broken in Received, at ", file!(), ":")), "{told}");
    }
}
