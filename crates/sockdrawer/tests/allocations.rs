//! Between accept and close a loop allocates nothing, once it has seen as much at a time before; not even to take up a change.

// Implementing GlobalAlloc is unsafe; there is no other way to count what a thread allocates.
#![allow(unsafe_code)]

mod common;

use common::{PATIENCE, connect, read, start};
use sockdrawer::{Config, Context, Handle, Input, Job, JobResult, Note, Peer, Pool, Protocol, Service, Step};
use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

struct Counting;

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Backtraces of the first few allocations.
static TRACES: Mutex<Vec<Backtrace>> = Mutex::new(Vec::new());

fn count() {
    // A thread that is ending has no thread-locals any more.
    let is_counted = IS_COUNTED.try_with(|counted| counted.replace(false)).unwrap_or(false);
    if is_counted {
        if ALLOCATIONS.fetch_add(1, SeqCst) < 3 {
            TRACES.lock().expect("no panic").push(Backtrace::force_capture());
        }
        IS_COUNTED.with(|counted| counted.set(true));
    }
}

// SAFETY: all four hand on to the system's allocator, whose contract is the same; counting allocates only while it is off.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promise is the system allocator's.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller's promise is the system allocator's.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    // SAFETY: the caller's promise is the system allocator's.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the caller's promise is the system allocator's.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `Ping` is answered by a worker, then by a timer.
struct Busy(Arc<Stage>);

/// Orders of the test to the protocols.
#[derive(Default)]
struct Stage {
    /// Jobs wait while this is set, so that all of them are in the queue at once.
    hold_jobs: Mutex<bool>,
    released: Condvar,
    /// Time to which all timers are set, so that they are due at once.
    timers_at: Mutex<Option<Instant>>,
    /// Gives its handle and is not counted.
    is_special: AtomicBool,
    special: Mutex<Option<Handle>>,
}

impl Service for Busy {
    type Protocol = Busy;
    fn open(&self, _peer: &Peer) -> Busy {
        Busy(self.0.clone())
    }
}

impl Protocol for Busy {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        if self.0.is_special.swap(false, SeqCst) {
            *self.0.special.lock().expect("no panic") = Some(cx.handle());
        }
        IS_COUNTED.with(|counted| counted.set(true));
        Step::Continue
    }

    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        if input.bytes().len() < 4 {
            return Step::Continue;
        }
        assert_eq!(input.bytes(), b"Ping");
        input.take(4);
        let stage = self.0.clone();
        Step::Work(Job::new(move || {
            let held = stage.hold_jobs.lock().expect("no panic");
            drop(stage.released.wait_while(held, |held| *held).expect("no panic"));
            *b"Pong"
        }))
    }

    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        cx.send(&result.take::<[u8; 4]>().expect("no panic"));
        match *self.0.timers_at.lock().expect("no panic") {
            Some(at) => cx.set_timer_at(at),
            None => cx.set_timer(Duration::from_micros(200)),
        }
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Step {
        cx.send(b"Tick");
        Step::Continue
    }

    fn notified(&mut self, note: Note, _cx: &mut Context<'_>) -> Step {
        // Holds the loop up while its inbox fills.
        if let Ok(until) = note.take::<mpsc::Receiver<()>>() {
            until.recv_timeout(PATIENCE).expect("the test goes on");
        }
        Step::Continue
    }
}

/// As many connections at once as this need as much memory as the pool will ever have.
const MOST: usize = 200;

struct Server {
    pool: Pool,
    at: SocketAddr,
    stage: Arc<Stage>,
}

impl Server {
    /// Brings `count` connections through all they can do, one step of all after the other.
    fn serve(&self, count: usize, meanwhile: impl FnOnce(&Server)) {
        let mut streams: Vec<_> = (0..count).map(|_| connect(self.at)).collect();
        let before = self.pool.status().counts;
        self.write_all(&mut streams, b"Pi");
        let halves = before.bytes_in + 2 * count as u64;
        assert!(self.pool.wait(PATIENCE, |status| status.counts.bytes_in == halves));
        meanwhile(self);
        self.write_all(&mut streams, b"ng");
        if *self.stage.hold_jobs.lock().expect("no panic") {
            assert!(self.pool.wait(PATIENCE, |status| status.jobs_waiting == count - 1));
            self.release_jobs();
        }
        for stream in &mut streams {
            assert_eq!(read(stream, 8).as_deref(), Some(&b"PongTick"[..]));
        }
        drop(streams);
        assert!(self.pool.wait(PATIENCE, |status| status.counts.closed == before.closed + count as u64));
    }

    fn write_all(&self, streams: &mut [TcpStream], bytes: &[u8]) {
        streams.iter_mut().for_each(|stream| stream.write_all(bytes).expect("it stands"));
    }

    fn hold_jobs(&self) {
        *self.stage.hold_jobs.lock().expect("no panic") = true;
    }

    fn release_jobs(&self) {
        *self.stage.hold_jobs.lock().expect("no panic") = false;
        self.stage.released.notify_all();
    }

    /// Fills the inbox with more letters than so many connections ever will.
    fn fill_inbox(&self) {
        self.stage.is_special.store(true, SeqCst);
        let stream = connect(self.at);
        assert!(self.pool.wait(PATIENCE, |_| self.stage.special.lock().expect("no panic").is_some()));
        let handle = self.stage.special.lock().expect("no panic").take().expect("just seen");
        let notes = self.pool.status().counts.notes;
        let (go_on, waits) = mpsc::channel();
        handle.notify(Note::value(waits)).expect("room");
        for _ in 0..4 * MOST {
            handle.notify(Note::value(())).expect("room");
        }
        go_on.send(()).expect("it waits");
        assert!(self.pool.wait(PATIENCE, |status| status.counts.notes == notes + 1 + 4 * MOST as u64));
        drop(stream);
        common::assert_empty(&self.pool);
    }

    /// Does everything at once, once.
    fn warm_up(&self) {
        self.hold_jobs();
        *self.stage.timers_at.lock().expect("no panic") = Some(Instant::now() + Duration::from_millis(300));
        self.serve(MOST + 50, |_| ());
        *self.stage.timers_at.lock().expect("no panic") = None;
        // The two ends of the inbox change places, so both must have grown.
        (0..3).for_each(|_| self.fill_inbox());
        (0..3).for_each(|_| self.serve(MOST, |_| ()));
    }

    fn change(&self) {
        let config = self.pool.config().behaviour(Busy(self.stage.clone()));
        self.pool.reconfigure(config).expect("the same kind of service");
    }
}

#[track_caller]
fn assert_no_allocation(what: &str) {
    let (count, traces) = (ALLOCATIONS.swap(0, SeqCst), std::mem::take(&mut *TRACES.lock().expect("no panic")));
    assert_eq!(count, 0, "{what}: {count} allocations, the first of them:\n{}", list(&traces));
}

fn list(traces: &[Backtrace]) -> String {
    traces.iter().map(|trace| format!("{trace}\n")).collect()
}

#[test]
fn a_loop_allocates_nothing_from_accept_to_close() {
    let stage = Arc::new(Stage::default());
    let config = Config::accept(Busy(stage.clone())).loops(1).workers(1).capacity(1024);
    let (pool, at) = start(config);
    let server = Server { pool, at, stage };
    server.warm_up();
    // The control is that warming up allocated, on the thread that is counted.
    assert!(ALLOCATIONS.swap(0, SeqCst) > 0);
    TRACES.lock().expect("no panic").clear();

    for _ in 0..500 {
        server.serve(1, |_| ());
    }
    assert_no_allocation("500 connections one by one");
    server.serve(1, Server::change);
    for _ in 0..500 {
        server.serve(1, |_| ());
    }
    assert_no_allocation("a change and 500 more");
    (0..3).for_each(|_| server.serve(MOST, |_| ()));
    assert_no_allocation("600 connections, 200 at a time");
    server.serve(MOST, Server::change);
    (0..2).for_each(|_| server.serve(MOST, |_| ()));
    assert_no_allocation("a change under 200 connections, and 400 more");
    let status = server.pool.status();
    assert_eq!((status.generation, status.counts.panics, status.restarts), (3, 0, 0));
}
