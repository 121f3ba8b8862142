//! Input that a protocol has paused, and waking for room: by nothing else than what asks for it, and always.

use crate::common::{PATIENCE, assert_empty, assert_reset, connect, in_time, read, read_all, reset, start};
use crate::relays::script::{Call, assert_sleeps, script};
use sockdrawer::testing::Driver;
use sockdrawer::{Closed, Config, Context, Handle, Input, Job, Note, Peer, Pool, Protocol, Selector, Service, Step};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Service that echoes. `P` pauses, and a note resumes if it is `R`; any other is sent on. It tells the test of its peer's end.
#[derive(Clone, Default)]
struct Echo {
    told: Arc<Mutex<Vec<&'static str>>>,
}

impl Echo {
    fn tell(&self, what: &'static str) {
        self.told.lock().expect("no panic").push(what);
    }

    fn has_told(&self, pool: &Pool, what: &'static str) -> bool {
        pool.wait(PATIENCE, |_| self.told.lock().expect("no panic").contains(&what))
    }
}

impl Service for Echo {
    type Protocol = Echo;
    fn open(&self, _peer: &Peer) -> Echo {
        self.clone()
    }
}

impl Protocol for Echo {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        while let Some(byte) = input.bytes().first().copied() {
            input.take(1);
            if byte == b'P' {
                cx.pause();
                return Step::Continue;
            }
            cx.send(&[byte]);
        }
        Step::Continue
    }
    fn peer_ended(&mut self, cx: &mut Context<'_>) -> Step {
        self.tell("end");
        cx.send(b"<end>");
        Step::Close
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        match note.bytes() {
            Some(b"R") => cx.resume(),
            bytes => cx.send(bytes.unwrap_or_default()),
        }
        Step::Continue
    }
    fn closed(&mut self, why: Closed, _cx: &mut Context<'_>) {
        self.tell(match why {
            Closed::Error(_) => "error",
            _ => "closed",
        });
    }
}

fn served() -> (Echo, Pool, SocketAddr) {
    let echo = Echo::default();
    let (pool, at) = start(Config::accept(echo.clone()).loops(1));
    (echo, pool, at)
}

fn paused(at: SocketAddr) -> TcpStream {
    let mut stream = connect(at);
    stream.write_all(b"aP").expect("it stands");
    assert_eq!(read(&mut stream, 1).as_deref(), Some(&b"a"[..]));
    stream
}

#[test]
fn a_pause_is_undone_by_resume_alone() {
    let (_, pool, at) = served();
    let mut stream = paused(at);
    stream.write_all(b"bc").expect("it stands");
    for word in [&b"one"[..], b"two"] {
        pool.notify(&Selector::All, word).expect("there is room");
        assert_eq!(read(&mut stream, 3).as_deref(), Some(word), "another callback comes, and resumes nothing");
    }
    pool.notify(&Selector::All, &b"R"[..]).expect("there is room");
    assert_eq!(read(&mut stream, 2).as_deref(), Some(&b"bc"[..]));
    drop(stream);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert_empty(&pool);
}

#[test]
fn the_end_of_a_peer_is_told_while_its_input_is_paused() {
    let (echo, pool, at) = served();
    let mut stream = paused(at);
    stream.shutdown(Shutdown::Write).expect("it stands");
    assert!(echo.has_told(&pool, "end"));
    assert_eq!(read_all(&mut stream).expect("an orderly end"), b"<end>");
}

#[test]
fn the_end_of_a_peer_comes_behind_the_input_before_it() {
    let (echo, pool, at) = served();
    let mut stream = paused(at);
    stream.write_all(b"bc").expect("it stands");
    stream.shutdown(Shutdown::Write).expect("it stands");
    pool.notify(&Selector::All, &b"x"[..]).expect("there is room");
    assert_eq!(read(&mut stream, 1).as_deref(), Some(&b"x"[..]));
    // An end that waits costs nothing: a loop that is told of it for ever turns all the time.
    let before = pool.status().counts.turns;
    // waits because: nothing is to happen in this time.
    thread::sleep(Duration::from_millis(200));
    assert!(pool.status().counts.turns - before < 20, "the loop sleeps");
    assert!(echo.told.lock().expect("no panic").is_empty());
    pool.notify(&Selector::All, &b"R"[..]).expect("there is room");
    assert_eq!(read_all(&mut stream).expect("an orderly end"), b"bc<end>");
}

#[test]
fn a_reset_is_told_while_input_is_paused() {
    let (echo, pool, at) = served();
    reset(paused(at));
    assert!(echo.has_told(&pool, "error"));
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
}

/// Service that sends so many bytes, as much at a time as there is room for.
#[derive(Clone)]
struct Stream {
    left: usize,
    wakes: Arc<Mutex<usize>>,
}

impl Service for Stream {
    type Protocol = Stream;
    fn open(&self, _peer: &Peer) -> Stream {
        self.clone()
    }
}

impl Stream {
    fn go_on(&mut self, cx: &mut Context<'_>) -> Step {
        let part = self.left.min(cx.out().room());
        cx.send(&vec![7; part]);
        self.left -= part;
        if self.left == 0 {
            return Step::Close;
        }
        cx.wake_below(4096);
        Step::Continue
    }
}

impl Protocol for Stream {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        self.go_on(cx)
    }
    fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        input.take_all();
        Step::Continue
    }
    fn writable(&mut self, cx: &mut Context<'_>) -> Step {
        *self.wakes.lock().expect("no panic") += 1;
        self.go_on(cx)
    }
}

#[test]
fn waking_comes_at_once_where_there_is_room_and_else_when_there_is() {
    in_time(|| {
        let service = Stream { left: 50_000_000, wakes: Arc::default() };
        let mut config = Config::accept(service.clone()).loops(1);
        (config.settings.high_water, config.settings.low_water) = (64 * 1024, 0);
        let (pool, at) = start(config);
        let mut stream = connect(at);
        // waits because: the kernel's buffers fill meanwhile, so that both ways of waking are met.
        thread::sleep(Duration::from_millis(50));
        let (mut got, mut all) = (vec![0; 1 << 20], 0);
        loop {
            match stream.read(&mut got).expect("it stands") {
                0 => break,
                count => all += count,
            }
        }
        assert_eq!(all, 50_000_000);
        assert!(*service.wakes.lock().expect("no panic") >= 50_000_000 / (64 * 1024) - 1);
        assert!(pool.wait(PATIENCE, |status| status.connections == 0));
        assert_empty(&pool);
    });
}

/// Service that sends each byte that it gets to the connection that opened before it, or back where there is none.
#[derive(Clone, Default)]
struct Pairs(Arc<Mutex<Option<Handle>>>, Option<Handle>);

impl Service for Pairs {
    type Protocol = Pairs;
    fn open(&self, _peer: &Peer) -> Pairs {
        Pairs(self.0.clone(), self.0.lock().expect("no panic").clone())
    }
}

impl Protocol for Pairs {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        *self.0.lock().expect("no panic") = Some(cx.handle());
        Step::Continue
    }
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let to = self.1.clone().unwrap_or_else(|| cx.handle());
        for byte in input.bytes() {
            cx.notify(&to, &[*byte][..]);
        }
        input.take_all();
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().unwrap_or_default());
        Step::Continue
    }
}

#[test]
fn notes_of_a_callback_are_never_lost_however_small_the_inbox_is() {
    in_time(|| {
        let mut config = Config::accept(Pairs::default()).loops(2);
        config.inbox = 4;
        let (pool, at) = start(config);
        let mut first = connect(at);
        assert!(pool.wait(PATIENCE, |status| status.connections == 1));
        let mut second = connect(at);
        assert!(pool.wait(PATIENCE, |status| status.connections == 2));
        let bytes: Vec<u8> = (0..50_000_u32).map(|number| (number % 251) as u8).collect();
        // To itself, then to another, which may be in another loop.
        for from_second in [false, true] {
            let mut writer = if from_second { &mut second } else { &mut first }.try_clone().expect("a socket");
            let sent = bytes.clone();
            let writing = thread::spawn(move || writer.write_all(&sent).expect("it stands"));
            assert!(read(&mut first, bytes.len()).as_deref() == Some(&bytes[..]), "all, in order");
            writing.join().expect("no panic");
        }
        assert_eq!(pool.status().counts.notes_dropped, 0);
    });
}

#[test]
fn a_held_connection_whose_peer_resets_ends() {
    let (echo, pool, at) = served();
    let mut stream = paused(at);
    pool.kill(&Selector::All);
    assert_reset(&mut stream);
    assert!(echo.has_told(&pool, "closed"));
}

#[test]
fn a_paused_connection_that_has_ended_on_both_sides_costs_no_turns() {
    in_time(|| {
        // Behind input the end is not told; without input it is, and the connection stays as it was.
        for input in [&b"x"[..], b""] {
            let service = script(|call, cx, _| match call {
                Call::Opened => {
                    cx.pause();
                    Step::EndOutput
                }
                Call::Notified(_) => Step::Close,
                _ => Step::Continue,
            });
            let (pool, at) = start(Config::accept(service.staying()).loops(1));
            let mut client = connect(at);
            assert!(read_all(&mut client).expect("an orderly end").is_empty());
            client.write_all(input).expect("it stands");
            client.shutdown(Shutdown::Write).expect("it stands");
            assert_sleeps(&pool);
            assert_eq!(pool.status().connections, 1);
            pool.notify(&Selector::All, &b"end"[..]).expect("there is room");
            assert_empty(&pool);
        }
    });
}

#[test]
fn an_end_that_came_behind_input_is_told_in_the_next_pause() {
    in_time(|| {
        let service = script(|call, cx, _| {
            match call {
                Call::Opened => cx.pause(),
                Call::Received(input) => {
                    cx.send(input.take_all());
                    cx.pause();
                }
                Call::Notified(_) => cx.resume(),
                _ => {}
            }
            Step::Continue
        });
        let (pool, at) = start(Config::accept(service).loops(1));
        let mut client = connect(at);
        client.write_all(b"x").expect("it stands");
        client.shutdown(Shutdown::Write).expect("it stands");
        assert_sleeps(&pool);
        pool.notify(&Selector::All, &b"resume"[..]).expect("there is room");
        assert_eq!(read_all(&mut client).expect("an orderly end"), b"x");
        assert_empty(&pool);
    });
}

#[test]
fn waking_comes_while_a_job_runs_in_a_pool_and_in_the_driver() {
    in_time(|| {
        let ((ends, works), woken) = (mpsc::channel::<()>(), Arc::new(AtomicUsize::new(0)));
        let (works, count) = (Arc::new(Mutex::new(works)), woken.clone());
        let service = script(move |call, cx, _| match call {
            Call::Opened => {
                cx.wake_below(0);
                let works = works.clone();
                Step::Work(Job::new(move || works.lock().expect("no panic").recv_timeout(PATIENCE).is_ok()))
            }
            Call::Writable => {
                count.fetch_add(1, SeqCst);
                Step::Continue
            }
            _ => Step::Continue,
        });
        let (pool, at) = start(Config::accept(service.clone()).loops(1));
        let client = connect(at);
        assert!(pool.wait(PATIENCE, |_| woken.load(SeqCst) == 1), "the job ends by nothing before this");
        let driver = Driver::open(service);
        assert_eq!((driver.has_job(), woken.load(SeqCst)), (true, 2));
        drop((ends, client));
        assert_empty(&pool);
    });
}
