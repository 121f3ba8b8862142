//! Facts that layers know of the peer reach handlers, delegates and async code.

use super::models::{runtime, under};
use super::records::{Client, Depth};
use crate::common::{PATIENCE, connect, in_time, read_all, start};
use axum::extract::connect_info::ConnectInfo;
use sockdrawer::observe::{Counts, Status};
use sockdrawer::tasks::{self, Info};
use sockdrawer::{
    After, Behaviour, Config, Context, Delegate, Drain, Input, IntoBehaviour, Model, Peer, Protocol, Recipe, Service, Step,
};
use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use tokio::io::AsyncWriteExt;

fn told(peer: &Peer) -> String {
    let depth = peer.fact().map(|Depth(depth)| depth);
    format!("{depth:?} {:?} {:?}", peer.remote(), peer.listener().map(ToString::to_string))
}

/// Returns a handler that says who its peer is.
pub(crate) fn teller() -> Behaviour {
    let recipe = Recipe { name: "teller".to_owned(), options: Vec::new() };
    Behaviour::blocking(|connection| connection.write_all(told(&connection.peer()).as_bytes())).with_recipe(recipe)
}

/// A protocol that gives its connection away at once.
struct Telling;

pub(crate) fn telling() -> Behaviour {
    Telling.into_behaviour()
}

impl Service for Telling {
    type Protocol = Telling;
    fn open(&self, _peer: &Peer) -> Telling {
        Telling
    }
    fn recipe(&self) -> Option<Recipe> {
        Some(Recipe { name: "telling".to_owned(), options: Vec::new() })
    }
}

impl Protocol for Telling {
    fn opened(&mut self, _cx: &mut Context<'_>) -> Step {
        Step::Delegate(Delegate::new(|connection| {
            connection.write_all(told(&connection.peer()).as_bytes()).expect("it stands");
            After::End
        }))
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Close
    }
}

async fn tell(mut connection: tasks::Connection, info: Info) {
    connection.write_all(told(info.peer()).as_bytes()).await.expect("it stands");
}

fn is_told(at: SocketAddr, depth: usize) {
    let mut client = Client::connect(at, depth);
    let from = client.stream.local_addr().expect("it stands");
    let depth = (depth > 0).then_some(depth);
    let (said, ended) = client.read_all().expect("an orderly end");
    assert_eq!(
        (String::from_utf8(said).expect("text"), ended),
        (format!("{depth:?} Some({from}) Some({:?})", at.to_string()), true)
    );
}

pub(crate) fn in_every_model() {
    in_time(|| {
        for depth in [0, 1, 2] {
            for (model, behaviour) in [
                (Model::Single, teller()),
                (Model::Threads, teller()),
                (Model::Loops, telling()),
                (Model::Tasks, Behaviour::task(tell)),
            ] {
                let (_pool, at) = start(Config::accept(under(behaviour, depth)).model(model));
                is_told(at, depth);
            }
        }
        for (model, behaviour) in [(Model::Fork, teller()), (Model::Fork, telling()), (Model::Prefork, telling())] {
            let (_pool, at) = start(Config::accept(under(behaviour, 1)).model(model));
            is_told(at, 1);
        }
    });
}

pub(crate) fn in_axum() {
    in_time(|| {
        let (pool, at) = start(Config::accept(under(Behaviour::listener(), 1)).model(Model::Tasks));
        let (runtime, listener) = (runtime(), pool.listener());
        let answer = async |ConnectInfo(info): ConnectInfo<Info>| told(info.peer());
        let app = axum::Router::new().route("/", axum::routing::get(answer));
        let (ended, app) = (listener.ended(), app.into_make_service_with_connect_info::<Info>());
        let serving = runtime.spawn(async move { axum::serve(listener, app).with_graceful_shutdown(ended).await });
        let mut client = Client::connect(at, 1);
        let from = client.stream.local_addr().expect("it stands");
        client.send(b"GET / HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n");
        let answer = String::from_utf8(client.read_all().expect("an orderly end").0).expect("text");
        assert!(answer.ends_with(&format!("\r\n\r\nSome(1) Some({from}) Some({:?})", at.to_string())), "{answer}");
        pool.shutdown(Drain::within(PATIENCE));
        runtime.block_on(serving).expect("no panic").expect("it never fails");
    });
}

/// Says hello, and waits for the end.
fn says(at: SocketAddr, hello: &[u8]) {
    let mut client = connect(at);
    client.write_all(hello).expect("it stands");
    // It may have ended by then, and a reset is an end, too.
    let _ = client.shutdown(Shutdown::Write);
    let _ = read_all(&mut client);
}

pub(crate) fn counted_in_every_model() {
    in_time(|| {
        for (model, behaviour) in [
            (Model::Single, teller()),
            (Model::Threads, teller()),
            (Model::Loops, telling()),
            (Model::Tasks, Behaviour::task(tell)),
            (Model::Fork, teller()),
            (Model::Prefork, telling()),
        ] {
            let (pool, at) = start(Config::accept(under(behaviour, 1)).model(model));
            [&b"HI"[..], b"RE", b"RE", b"NO", b"H", b""].into_iter().for_each(|hello| says(at, hello));
            let counted = |status: &Status| {
                let Counts { handshakes_full, handshakes_resumed, handshakes_failed, .. } = status.counts;
                [handshakes_full, handshakes_resumed, handshakes_failed] == [1, 2, 3]
            };
            assert!(pool.wait(PATIENCE, counted), "{model} {:?}", pool.status().counts);
        }
        // Each of two layers is counted.
        let (pool, at) = start(Config::accept(under(telling(), 2)));
        says(at, b"HI");
        is_told(at, 2);
        let counted = |status: &Status| (status.counts.handshakes_full, status.counts.handshakes_failed) == (3, 1);
        assert!(pool.wait(PATIENCE, counted), "{:?}", pool.status().counts);
    });
}
