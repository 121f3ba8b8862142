//! Methods of a pool, called by code that the pool waits for: they say so at once, and never hang.

use crate::common::{Echo, PATIENCE, connect, echoes, start};
use sockdrawer::{
    Address, Config, ConnectionId, Context, Drain, Error, Input, Job, JobResult, Model, Peer, Pool, PoolHandle, Protocol,
    Selector, Service, Step,
    admission::{Limits, PerPeer, Reject},
    observe::Event,
};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// A call of a method.
type Call = fn(&Pool);
type HandleCall = fn(&PoolHandle);

const WAITING: [(&str, Call); 19] = [
    ("adopt", |pool| _ = pool.adopt(&Selector::All)),
    ("drain", |pool| _ = pool.drain(&Selector::All, Drain::within(PATIENCE))),
    ("purge", |pool| _ = pool.purge(&Selector::All, PATIENCE)),
    ("kill", |pool| _ = pool.kill(&Selector::All)),
    ("tag", |pool| _ = pool.tag(&Selector::All, "x")),
    ("apply_options", |pool| _ = pool.apply_options(&Selector::All)),
    ("connections", |pool| drop(pool.connections(&Selector::All))),
    ("gather", |pool| _ = pool.gather(|_: &mut u8| ())),
    ("suspend", Pool::suspend),
    ("refuse", |pool| pool.refuse(Reject::Fin)),
    ("resume", Pool::resume),
    ("give_up", |pool| drop(pool.give_up(&nowhere()))),
    ("suspend_listener", |pool| drop(pool.suspend_listener(&nowhere()))),
    ("refuse_listener", |pool| drop(pool.refuse_listener(&nowhere(), Reject::Fin))),
    ("resume_listener", |pool| drop(pool.resume_listener(&nowhere()))),
    ("options", |pool| _ = pool.options(ConnectionId(1))),
    ("join", |pool| drop(pool.join())),
    ("wait", |pool| _ = pool.wait(PATIENCE, |_| false)),
    ("shutdown", |pool| _ = pool.shutdown(Drain::within(PATIENCE))),
];

/// Methods that wait for no loop.
const LOCKING: [(&str, HandleCall); 7] = [
    ("config", |pool| drop(pool.config())),
    ("status", |pool| drop(pool.status())),
    ("addresses", |pool| drop(pool.addresses())),
    ("notify", |pool| pool.notify(&Selector::All, *b"").expect("an inbox has room")),
    ("plan", |pool| drop(pool.plan(&Config::accept(Echo)).expect("it makes sense"))),
    ("config", |pool| drop(pool.update(|config| config).expect("it is as it was"))),
    ("connect", |pool| pool.connect(&nowhere(), Duration::ZERO, |_| ())),
];

/// Returns an address at which no pool listens.
fn nowhere() -> Address {
    "127.0.0.1:1".parse().expect("an address")
}

type Shared = Arc<Mutex<Option<Pool>>>;

/// Calls the method of this number; what it says when it would wait.
fn call(pool: &Shared, number: usize) -> Result<(), String> {
    let pool = pool.lock().expect("no panic").clone().expect("started");
    let called = || match WAITING.get(number) {
        Some((_, method)) => method(&pool),
        None => LOCKING[number - WAITING.len()].1(&pool),
    };
    catch_unwind(AssertUnwindSafe(called)).map_err(|panic| *panic.downcast::<String>().expect("a message"))
}

/// Calls the method whose number it receives, in the callback or in a job, and sends what it says, in a line.
struct Caller(Shared);

/// Added to the number of a method that a job is to call.
const IN_A_JOB: u8 = 128;

impl Service for Caller {
    type Protocol = Caller;
    fn open(&self, _peer: &Peer) -> Caller {
        Caller(self.0.clone())
    }
}

impl Protocol for Caller {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let (number, pool) = (input.bytes()[0], self.0.clone());
        input.take(1);
        if number >= IN_A_JOB {
            return Step::Work(Job::new(move || call(&pool, usize::from(number - IN_A_JOB))));
        }
        answer(call(&pool, usize::from(number)), cx)
    }
    fn job_done(&mut self, result: JobResult, cx: &mut Context<'_>) -> Step {
        answer(result.take().expect("it is caught"), cx)
    }
}

fn answer(said: Result<(), String>, cx: &mut Context<'_>) -> Step {
    cx.send(format!("{}\n", said.err().unwrap_or_default()).as_bytes());
    Step::Continue
}

fn ask(at: SocketAddr, number: u8) -> String {
    let mut client = BufReader::new(connect(at));
    client.get_mut().write_all(&[number]).expect("it stands");
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer");
    line.trim_end().to_owned()
}

#[test]
fn a_method_that_waits_says_so_in_a_callback_and_works_in_a_job() {
    for model in [Model::Loops, Model::Threads, Model::Single] {
        let shared = Shared::default();
        let config = Config::accept(Caller(shared.clone())).model(model);
        let (pool, at) = start(if model == Model::Loops { config.workers(1) } else { config });
        *shared.lock().expect("no panic") = Some(pool.clone());
        let began = Instant::now();
        for (number, (name, _)) in (0..).zip(WAITING) {
            let said = ask(at, number);
            assert!(said.starts_with(&format!("Pool::{name} was called in a callback of its own pool")), "{model}: {said:?}");
        }
        for (number, (name, _)) in (WAITING.len() as u8..).zip(LOCKING) {
            assert_eq!(ask(at, number), "", "{model}: {name}");
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{model}: {:?}", began.elapsed());
        if model == Model::Loops {
            let connections = WAITING.iter().position(|(name, _)| *name == "connections").expect("it waits");
            assert_eq!(ask(at, IN_A_JOB + connections as u8), "");
        }
        *shared.lock().expect("no panic") = None;
    }
}

type Change = fn(Config) -> Config;

/// Changes that wait for loops, each with the setting that is named; and a change that waits for none.
const CHANGES: [(&str, Change); 4] = [
    ("loops", |config| config.loops(3)),
    ("listen", |config| config.listen("127.0.0.1:0")),
    ("admission", |config| config.admission(Limits::default().per_peer(PerPeer::address(1_000)))),
    ("", |config| config.limit(100)),
];

type Handled = Arc<Mutex<Option<PoolHandle>>>;

/// Service that makes the change whose number it receives, and sends what is said of it, in a line.
struct Changer(Handled);

impl Service for Changer {
    type Protocol = Changer;
    fn open(&self, _peer: &Peer) -> Changer {
        Changer(self.0.clone())
    }
}

impl Protocol for Changer {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        let number = usize::from(input.take_all()[0]);
        let pool = self.0.lock().expect("no panic").clone().expect("started");
        let changed = pool.update(CHANGES[number].1).map_err(|error| error.to_string());
        answer(changed.map(|_| ()), cx)
    }
}

#[test]
fn a_change_that_waits_for_loops_is_refused_in_a_callback() {
    let shared = Handled::default();
    let (pool, at) = start(Config::accept(Changer(shared.clone())).loops(2));
    *shared.lock().expect("no panic") = Some(pool.handle());
    for (number, (setting, change)) in (0..).zip(CHANGES) {
        let began = Instant::now();
        let said = ask(at, number);
        // A wait for itself would take five.
        assert!(began.elapsed() < Duration::from_secs(4), "{setting}: {:?}", began.elapsed());
        let refused =
            said.starts_with(&format!("{setting}: its change waits for the loop that a callback of this pool holds up"));
        assert!(refused || setting.is_empty() && said.is_empty(), "{setting}: {said:?}");
        // Elsewhere it is made.
        pool.update(change).expect("it can be changed");
    }
    assert_eq!((pool.config().loops, pool.addresses().len(), pool.config().limit), (3, 2, Some(100)));
}

#[test]
fn a_handle_does_not_keep_its_pool_running() {
    let shared = Handled::default();
    let (pool, at) = start(Config::accept(Changer(shared.clone())));
    let handle = pool.handle();
    *shared.lock().expect("no panic") = Some(handle.clone());
    assert_eq!((ask(at, 3), handle.config().limit), (String::new(), Some(100)));
    drop(pool);
    assert!(std::net::TcpStream::connect(at).is_err(), "the pool was ended by the drop");
    assert_eq!((handle.addresses(), handle.status().counts.accepted), (Vec::new(), 1));
    let changed = handle.update(|config| config.limit(9));
    assert!(matches!(changed, Err(Error::Stopped { .. })), "{changed:?}");
    assert!(handle.notify(&Selector::All, *b"x").is_ok(), "there is none to tell");
}

#[test]
fn every_method_says_so_in_an_observer() {
    let shared = Shared::default();
    let (tells, told) = mpsc::channel();
    let observed = shared.clone();
    let (pool, at) = start(Config::accept(Echo).loops(2).observer(move |event: &Event| {
        if matches!(event, Event::GenerationStarted(2)) {
            let all = 0..WAITING.len() + LOCKING.len();
            tells.send(all.map(|number| call(&observed, number)).collect::<Vec<_>>()).expect("the test listens");
        }
    }));
    *shared.lock().expect("no panic") = Some(pool.clone());
    pool.update(|config| config.behaviour(Echo)).expect("another generation");
    let said = told.recv_timeout(PATIENCE).expect("told");
    let names = WAITING.iter().map(|(name, _)| name).chain(LOCKING.iter().map(|(name, _)| name));
    for (name, said) in names.zip(said) {
        let said = said.expect_err("it would wait");
        assert!(said.starts_with(&format!("Pool::{name} was called in an observer of its own pool")), "{said}");
    }
    assert!(echoes(&mut connect(at), b"still here"));
    *shared.lock().expect("no panic") = None;
}
