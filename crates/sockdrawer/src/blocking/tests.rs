//! Handlers without a pool, and connections that are taken without a thread.

use super::*;
use crate::config::{Config, Model};
use crate::error::Error;
use crate::event_loop::lease::LeaseWaker;
use crate::net::Address;
use crate::operation::Selector;
use crate::pool::Pool;
use crate::protocol::{Closed, Recipe};
use crate::sys::faulty::Faulty;
use crate::sys::{Kernel, System};
use crate::testing;
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Wake, Waker};

const PATIENCE: Duration = Duration::from_secs(30);

/// Gives itself away again and again: what `call` says is sent.
struct Giving<F>(F);

impl<F: Fn(&mut Connection) -> After + Clone + Send + Sync + 'static> Service for Giving<F> {
    type Protocol = Giving<F>;
    fn open(&self, _peer: &Peer) -> Giving<F> {
        Giving(self.0.clone())
    }
}

impl<F: Fn(&mut Connection) -> After + Clone + Send + Sync + 'static> Protocol for Giving<F> {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Delegate(Delegate::new(self.0.clone()))
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        cx.send(note.bytes().unwrap_or(b"?"));
        Step::Continue
    }
}

fn note(text: &str) -> Note {
    Note::Bytes(text.as_bytes().into())
}

#[test]
fn a_delegate_is_tested_without_a_pool() {
    let mut connection = testing::Driver::open(Giving(|connection: &mut Connection| {
        let mut two = [0; 2];
        connection.read_exact(&mut two).expect("the peer sends");
        connection.write_all(&two).expect("the peer reads");
        let taken = connection.take_note().is_some();
        After::Return(note(if taken { "note" } else { "none" }))
    }));
    connection.receive(b"a");
    connection.handle().notify(note("taken")).expect("there is room");
    connection.run_delegate(|mut peer: UnixStream| {
        peer.write_all(b"b").expect("it stands");
        let mut two = [0; 2];
        peer.read_exact(&mut two).expect("it answers");
        assert_eq!(&two, b"ab");
    });
    assert_eq!((connection.sent(), connection.kept()), (b"note".to_vec(), &b""[..]));
    // Input that is not read comes back, and is offered.
    connection.receive(b"cde");
    connection.run_delegate(|mut peer| peer.read_exact(&mut [0; 2]).expect("it answers"));
    assert_eq!((connection.sent(), connection.kept()), (b"none".to_vec(), &b"e"[..]));
    let stays = connection.upgrade(Giving(|_: &mut Connection| After::End)).expect_err("the rest was offered");
    assert_eq!(stays.why, "its service declares no state");
    let stays = stays.connection.save_and_restore(Giving(|_: &mut Connection| After::End)).expect_err("the rest was offered");
    assert_eq!(stays.why, "it is to be delegated");
}

#[test]
fn a_delegate_that_panics_aborts() {
    let mut connection = testing::Driver::open(Giving(|_: &mut Connection| -> After { panic!("as asked") }));
    connection.receive(b"a");
    connection.run_delegate(drop);
    assert_eq!(connection.closed(), Some(Closed::Panicked));
}

#[test]
fn a_second_delegate_is_a_bug_of_the_protocol() {
    struct Twice;
    impl Service for Twice {
        type Protocol = Twice;
        fn open(&self, _peer: &Peer) -> Twice {
            Twice
        }
    }
    impl Protocol for Twice {
        fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            Step::Continue
        }
        fn notified(&mut self, _note: Note, _cx: &mut Context<'_>) -> Step {
            Step::Delegate(Delegate::new(|_| After::End))
        }
    }
    let mut connection = testing::Driver::open(Twice);
    connection.notify(note("once"));
    assert_eq!(connection.closed(), None);
    connection.notify(note("twice"));
    assert_eq!(connection.closed(), Some(Closed::Panicked));
}

#[test]
fn loops_refuse_a_blocking_handler_by_name() {
    let refused = Pool::start(Config::accept(Behaviour::blocking(|_| Ok(())))).expect_err("refused");
    assert!(matches!(refused, Error::NotInModel { model: Model::Loops, .. }));
    let expected = "the model loops cannot run a blocking handler: use threads, single or fork, or Step::Delegate";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn a_recipe_is_added_to_a_handler_and_kept_with_its_kind() {
    let recipe = |name: &str| Recipe { name: name.to_owned(), options: vec![1] };
    let behaviour = Behaviour::blocking(|_| Ok(()));
    assert_eq!(behaviour.service().recipe(), None);
    let behaviour = behaviour.with_recipe(recipe("handler"));
    assert_eq!(behaviour.service().recipe(), Some(recipe("handler")));
    assert_eq!(behaviour.service().kind(), Kind::Blocking);
    assert_eq!(behaviour.with_recipe(recipe("again")).service().recipe(), Some(recipe("again")));
}

/// Gives each connection to the test, without a thread; without a test it panics.
struct Taken(Option<mpsc::Sender<Lease>>);

impl Service for Taken {
    type Protocol = Taken;
    fn open(&self, _peer: &Peer) -> Taken {
        Taken(self.0.clone())
    }
}

impl Protocol for Taken {
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        let takes = self.0.clone();
        Step::Delegate(lease::delegate(false, move |lease| _ = takes.expect("a test").send(lease)))
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
}

/// Makes a pool, one of its connections, and the hold on it.
fn taken() -> (Pool, TcpStream, Lease) {
    taken_over(Arc::new(Kernel))
}

fn taken_over(system: Arc<dyn System>) -> (Pool, TcpStream, Lease) {
    let (takes, taken) = mpsc::channel();
    let (pool, stream) = connected(Taken(Some(takes)), system);
    (pool, stream, taken.recv_timeout(PATIENCE).expect("taken"))
}

fn connected(service: Taken, system: Arc<dyn System>) -> (Pool, TcpStream) {
    let mut config = Config::accept(service).listen("127.0.0.1:0");
    config.settings.linger = Duration::from_millis(50);
    config.system = system;
    let pool = Pool::start(config).expect("starts");
    let Address::Tcp(at) = pool.addresses()[0] else { unreachable!("it listens on TCP") };
    let stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    (pool, stream)
}

fn assert_empty(pool: &Pool) {
    assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn tasks_that_wait_are_woken_once_for_each_time_they_ask() {
    let (pool, stream, lease) = taken();
    assert_eq!(pool.status().delegates, 0, "no thread was needed");
    let woken = Arc::new(Woken::default());
    let (waker, change) = (Waker::from(woken.clone()), LeaseWaker::new(&lease.leased));
    let expect = |times: usize, cause: &dyn Fn()| {
        change.wakes(&waker);
        change.wakes(&waker);
        cause();
        assert!(pool.wait(PATIENCE, |_| woken.0.load(Ordering::SeqCst) == times));
    };
    expect(1, &|| pool.notify(&Selector::All, *b"note").expect("there is room"));
    assert!(lease.leased.take_note().is_some());
    expect(2, &|| _ = pool.purge(&Selector::All, Duration::from_millis(50)));
    let over = || lease.leased.is_draining() && lease.leased.has_ended();
    assert!(pool.wait(PATIENCE, |_| over()), "past the deadline");
    drop((lease, stream));
    assert_empty(&pool);
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
}

#[test]
fn a_hold_dropped_by_a_panic_resets() {
    let (pool, mut stream, lease) = taken();
    let panicking = std::thread::spawn(move || {
        panics::caught_on_this_thread();
        let _hold = lease;
        panic!("as asked");
    });
    assert!(panicking.join().is_err());
    assert_eq!(stream.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_empty(&pool);
    assert_eq!(pool.status().counts.panics, 1);
}

#[test]
fn a_panic_on_the_loops_own_thread_costs_the_connection_only() {
    let (pool, mut stream) = connected(Taken(None), Arc::new(Kernel));
    assert_eq!(stream.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_empty(&pool);
    let status = pool.status();
    assert_eq!((status.counts.panics, status.restarts), (1, 0));
}

#[test]
fn a_hold_that_outlives_its_pool_is_harmless() {
    let (pool, mut stream, mut lease) = taken();
    drop(pool);
    assert_eq!(lease.receive(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionAborted));
    assert_eq!(stream.read(&mut [0]).expect("an orderly end"), 0);
    drop(lease);
}

#[test]
fn what_a_handler_wrote_before_its_error_arrives() {
    let mut connection = testing::Driver::open(Handling(Arc::new(|connection: &mut Connection| {
        connection.write_all(b"sorry")?;
        Err(ErrorKind::InvalidData.into())
    })));
    connection.run_delegate(|mut peer: UnixStream| {
        peer.shutdown(Shutdown::Write).expect("it stands");
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        assert_eq!(all, b"sorry");
    });
    assert_eq!(connection.closed(), Some(Closed::Orderly));
}

#[test]
fn a_lack_of_descriptors_is_an_error_of_the_wait_and_of_nothing_else() {
    let system = Arc::new(Faulty::default());
    let (pool, mut stream, lease) = taken_over(system.clone());
    let mut connection = Connection::new(lease);
    system.fail("event", Errno::MFILE, 2);
    let errno = |error: io::Error| error.raw_os_error();
    assert_eq!(connection.wait().map_err(errno), Err(Some(Errno::MFILE.raw_os_error())));
    assert_eq!(connection.read(&mut [0]).map_err(errno), Err(Some(Errno::MFILE.raw_os_error())));
    stream.write_all(b"x").expect("it stands");
    assert_eq!(connection.wait().expect("now there is one"), Wakeup::Input);
    assert_eq!((connection.read(&mut [0; 2]).expect("a byte"), system.left()), (1, 0));
    drop((connection, stream));
    assert_empty(&pool);
}
