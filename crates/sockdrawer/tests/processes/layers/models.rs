//! Each kind of handler in each model.

use super::records::{Client, Recording};
use crate::common::{PATIENCE, assert_empty, in_time, start};
use sockdrawer::blocking::{Connection, Wakeup};
use sockdrawer::observe::Status;
use sockdrawer::tasks::{self, Info};
use sockdrawer::{
    After, Behaviour, Config, Context, Delegate, Drain, Input, IntoBehaviour, Model, Note, Peer, Pool, Protocol, Recipe,
    Selector, Service, Step,
};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// Echoes until the peer's end, or the pool's wish.
pub(crate) fn echo(connection: &mut Connection) -> io::Result<()> {
    let mut bytes = [0; 4096];
    while connection.wait()? == Wakeup::Input {
        let count = connection.read(&mut bytes)?;
        if count == 0 {
            break;
        }
        connection.write_all(&bytes[..count])?;
    }
    Ok(())
}

pub(crate) async fn echo_async(mut connection: tasks::Connection, info: Info) {
    let mut bytes = vec![0; 4096];
    loop {
        let read = tokio::select! {
            read = connection.read(&mut bytes) => read.unwrap_or(0),
            () = info.draining() => 0,
        };
        if read == 0 || connection.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Returns a behaviour like [`echo`], from a process of its own.
pub(crate) fn answer() -> Behaviour {
    Behaviour::blocking(echo).with_recipe(Recipe { name: "answer".to_owned(), options: Vec::new() })
}

/// Service that gives each connection to [`echo`] at its first byte, and takes it back at a `.`; then the protocol echoes in brackets.
pub(crate) struct Lender {
    back: bool,
}

pub(crate) fn lender() -> Behaviour {
    Lender { back: false }.into_behaviour()
}

impl Service for Lender {
    type Protocol = Lender;
    fn open(&self, _peer: &Peer) -> Lender {
        Lender { back: false }
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "lender".to_owned(), options: Vec::new() })
    }
}

impl Protocol for Lender {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Step {
        if !self.back {
            return Step::Delegate(Delegate::new(|connection| {
                let mut byte = [0];
                // An error is one of the peer or the pool: the connection ends.
                while connection.read(&mut byte).is_ok_and(|count| count > 0) && connection.write_all(&byte).is_ok() {
                    if byte == *b"." {
                        return After::Return(Note::from(&b"back "[..]));
                    }
                }
                After::End
            }));
        }
        cx.send(&[b"[", input.take_all(), b"]"].concat());
        Step::Continue
    }
    fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
        self.back = true;
        cx.send(note.bytes().expect("bytes"));
        Step::Continue
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Returns the behaviour under `depth` layers.
pub(crate) fn under(behaviour: Behaviour, depth: usize) -> Behaviour {
    (0..depth).fold(behaviour, |behaviour, _| behaviour.layered(Recording))
}

/// Sends in odd pieces and reads all back; then both ends say goodbye.
fn is_echoed(pool: &Pool, at: SocketAddr, depth: usize) {
    let counts = |status: &Status| (status.counts.bytes_in, status.counts.bytes_out);
    let before = counts(&pool.status());
    let mut client = Client::connect(at, depth);
    let long: Vec<u8> = (0..40_000_u32).map(|number| (number % 251) as u8).collect();
    for plain in [&b"x"[..], b"hello", &long] {
        client.send_split(plain);
        assert_eq!(client.read(plain.len()).expect("an answer"), plain);
    }
    let both: Vec<u8> = [client.record(b"one "), client.record(b"two")].concat();
    client.write(&both);
    assert_eq!(client.read(7).expect("an answer"), b"one two");
    let least = client.counts.0;
    client.finish();
    assert_eq!(client.read_all().expect("an orderly end"), (vec![], true));
    assert_empty(pool);
    let (received, sent) = counts(&pool.status());
    assert_eq!(sent - before.1, client.counts.1, "wire bytes are counted, each once");
    // Bytes of an outer layer's goodbye are not certain to be counted: the handler has ended by the inner one's.
    assert!((least..=client.counts.0).contains(&(received - before.0)), "{received}, {before:?}, {:?}", client.counts);
}

pub(crate) fn bytes_are_plain() {
    in_time(|| {
        for depth in [1, 2] {
            for (model, behaviour) in [
                (Model::Single, Behaviour::blocking(echo)),
                (Model::Threads, Behaviour::blocking(echo)),
                (Model::Tasks, Behaviour::task(echo_async)),
            ] {
                let (pool, at) = start(Config::accept(under(behaviour, depth)).model(model));
                is_echoed(&pool, at, depth);
                let counts = pool.status().counts;
                assert_eq!((counts.delegated, counts.closed, counts.panics, counts.errors), (1, 1, 0, 0), "{model} {depth}");
            }
            let (pool, at) = start(Config::accept(under(Behaviour::listener(), depth)).model(Model::Tasks));
            let (runtime, mut listener) = (runtime(), pool.listener());
            let serving = runtime.spawn(async move {
                let connection = listener.accept().await.expect("one comes");
                let info = connection.info().clone();
                echo_async(connection, info).await;
            });
            is_echoed(&pool, at, depth);
            runtime.block_on(serving).expect("no panic");
            for model in [Model::Loops, Model::Threads, Model::Single] {
                let (pool, at) = start(Config::accept(under(lender(), depth)).model(model));
                is_lent_and_comes_back(&pool, at, depth);
            }
        }
    });
}

fn is_lent_and_comes_back(pool: &Pool, at: SocketAddr, depth: usize) {
    let mut client = Client::connect(at, depth);
    client.send_split(b"hello");
    assert_eq!(client.read(5).expect("an answer"), b"hello");
    client.send(b"there.and");
    assert_eq!(client.read(16).expect("an answer"), b"there.back [and]");
    client.send_split(b"x");
    assert_eq!(client.read(3).expect("an answer"), b"[x]");
    client.finish();
    assert_eq!(client.read_all().expect("an orderly end"), (vec![], true));
    assert_empty(pool);
}

pub(crate) fn in_processes() {
    let (pool, at) = start(Config::accept(under(answer(), 1)).model(Model::Fork));
    is_echoed(&pool, at, 1);
    let mut client = Client::connect(at, 1);
    client.send(b"hello");
    assert_eq!(client.read(5).expect("an answer"), b"hello");
    let drained = pool.drain(&Selector::All, Drain::within(PATIENCE));
    assert_eq!((drained.asked, drained.ended, drained.cut), (1, 1, 0));
    assert_eq!(client.read_all().expect("an orderly end"), (vec![], true));
    for model in [Model::Fork, Model::Prefork] {
        let (pool, at) = start(Config::accept(under(lender(), 1)).model(model));
        is_lent_and_comes_back(&pool, at, 1);
    }
}

pub(crate) fn axum() {
    in_time(|| {
        let (pool, at) = start(Config::accept(under(Behaviour::listener(), 1)).model(Model::Tasks));
        let (runtime, listener) = (runtime(), pool.listener());
        let long = "a long page ".repeat(100_000);
        let page = long.clone();
        let app = axum::Router::new().route("/", axum::routing::get(move || std::future::ready(page.clone())));
        let ended = listener.ended();
        let serving = runtime.spawn(async move { axum::serve(listener, app).with_graceful_shutdown(ended).await });
        for _ in 0..3 {
            let mut client = Client::connect(at, 1);
            client.send_split(b"GET / HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n");
            let (answer, ended) = client.read_all().expect("an orderly end");
            let answer = String::from_utf8(answer).expect("text");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&long) && ended, "{}", &answer[..200]);
        }
        assert_empty(&pool);
        pool.shutdown(Drain::within(PATIENCE));
        runtime.block_on(serving).expect("no panic").expect("it never fails");
    });
}

pub(crate) fn a_behaviour_keeps_what_it_is() {
    let behaviour = under(answer(), 2);
    assert!(format!("{behaviour:?}").starts_with("Blocking("), "{behaviour:?}");
    let refused = Pool::start(Config::accept(behaviour)).expect_err("loops run no blocking handler");
    assert!(refused.to_string().starts_with("the model loops cannot run a blocking handler"), "{refused}");
    assert!(format!("{:?}", under(lender(), 1)).starts_with("Protocol("));
    let refused = Pool::start(Config::accept(under(Behaviour::task(echo_async), 1))).expect_err("loops run no task");
    assert!(refused.to_string().contains("async handler"), "{refused}");
}

pub(crate) fn a_program_has_no_layer() {
    let behaviour = Behaviour::exec("cat", [] as [&str; 0]).layered(Recording);
    let refused = Pool::start(Config::accept(behaviour).model(Model::Fork).listen("127.0.0.1:0")).expect_err("it has the socket");
    let expected = "the model fork cannot run another program under a layer, whose bytes are not the socket's: use a handler, or leave \
                    out the layer";
    assert_eq!(refused.to_string(), expected);
}
