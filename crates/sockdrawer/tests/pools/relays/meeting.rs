//! Two rare things at once in a relay under layers: a peer that does not read and its filter's answers, an end and a panic, a panic and bytes that
//! were to go first.

use super::filtered::Scene;
use super::records::{ASK, End, HELLO, Records, record};
use super::script::{Call, accept, backend, joins, script};
use crate::common::{PATIENCE, assert_empty, assert_reset, connect, in_time, read, read_all, start};
use sockdrawer::connecting::{ConnectFailure, Connecting};
use sockdrawer::layer::Layer;
use sockdrawer::{Address, Closed, Config, Context, Handle, Input, Peer, Pool, Protocol, Selector, Service, Side, Step};
use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

/// Returns a proxy whose clients have records, and little room in the kernel between it and them.
fn narrow(
    does: impl Fn(Call<'_, '_>, &mut Context<'_>, Side, &Address) -> Step + Send + Sync + 'static,
) -> (Pool, TcpListener, End) {
    let ((backend, target), records) = (backend(), Records { accepted: true, made: false, timeout: PATIENCE });
    let service = script(move |call, cx, side| does(call, cx, side, &target)).staying();
    let mut config = Config::accept(Layer::new(records, service)).loops(1);
    config.settings.options.send_buffer = Some(4096);
    let (pool, at) = start(config);
    let mut client = End { stream: connect(at), records: true };
    client.shake();
    (pool, backend, client)
}

#[test]
fn answers_that_a_peer_reads_late_hold_the_other_direction_up_no_longer() {
    in_time(|| {
        const ASKED: usize = 150_000;
        const AT_ONCE: usize = 1000;
        let (pool, backend, mut client) = narrow(joins);
        let mut far = accept(&backend);
        // None of them fills a read.
        for round in 1..=ASKED / AT_ONCE {
            client.stream.write_all(&ASK.to_be_bytes().repeat(AT_ONCE)).expect("it stands");
            assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in >= (2 * round * AT_ONCE + HELLO.len()) as u64));
        }
        far.write_all(b"late").expect("it stands");
        assert_eq!(client.hear(ASKED), Some(vec![0; ASKED]));
        assert_eq!(client.hear(4).as_deref(), Some(&b"late"[..]));
        drop((client, far));
        assert_empty(&pool);
    });
}

#[test]
fn a_peer_that_is_owed_much_may_speak_before_it_has_read_all() {
    in_time(|| {
        const OWED: usize = 900_000;
        let (pool, backend, mut client) = narrow(|call, cx, side, target| match call {
            Call::Connected(made) => {
                cx.send(&vec![7; OWED]);
                Step::Relay(made.expect("it listens"))
            }
            call => joins(call, cx, side, target),
        });
        let mut far = accept(&backend);
        client.say(b"question");
        assert_eq!(read(&mut far, 8).as_deref(), Some(&b"question"[..]));
        assert_eq!(client.hear(OWED).map(|heard| heard.len()), Some(OWED));
        drop((client, far));
        assert_empty(&pool);
    });
}

#[test]
fn a_goodbye_that_panics_ends_both_sides_once() {
    in_time(|| {
        let scene = Scene::of((true, true), PATIENCE, |call, cx, side, target| match call {
            Call::Notified(_) if side == Side::Accepted => Step::Close,
            call => joins(call, cx, side, target),
        });
        let (mut client, mut far) = scene.pair();
        far.stream.write_all(&[&[0, 5][..], b"mined", &record(b"x")].concat()).expect("it stands");
        assert_eq!(client.hear(1).as_deref(), Some(&b"x"[..]));
        scene.pool.notify(&Selector::All, &b"close"[..]).expect("there is room");
        assert!(client.hear_all().is_empty());
        assert_reset(&mut far.stream);
        assert_empty(&scene.pool);
        let counts = scene.pool.status().counts;
        assert_eq!((counts.panics, counts.accepted + counts.connected, counts.closed), (1, 2, 2));
        let ends = [Side::Accepted, Side::Connected].map(|side| scene.script.ends(side));
        assert_eq!(ends, [[Closed::Orderly], [Closed::Panicked]]);
        // Its places are free, and hold others.
        let (mut client, mut far) = scene.pair();
        client.say(b"y");
        assert_eq!(far.hear(1).as_deref(), Some(&b"y"[..]));
    });
}

/// Service that panics when the connection to the target is opened.
struct OpensNone(Address);

struct Asks(Option<Address>);

impl Service for OpensNone {
    type Protocol = Asks;
    fn open(&self, peer: &Peer) -> Asks {
        assert!(peer.side() == Side::Accepted, "asked to panic");
        Asks(Some(self.0.clone()))
    }
}

impl Protocol for Asks {
    fn opened(&mut self, cx: &mut Context<'_>) -> Step {
        let target = self.0.take().expect("it is opened once");
        cx.connect_with(&target, PATIENCE, b"PROXY for the target alone".to_vec());
        Step::Continue
    }
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
    fn connected(&mut self, made: Result<Handle, ConnectFailure>, cx: &mut Context<'_>) -> Step {
        cx.send(b"told");
        made.map_or(Step::Close, |_| Step::Close)
    }
}

#[test]
fn what_was_to_go_before_all_else_goes_to_no_other_when_the_service_panics() {
    in_time(|| {
        let (backend, target) = backend();
        let (pool, at) = start(Config::accept(OpensNone(target)).loops(1));
        let mut client = connect(at);
        assert_reset(&mut accept(&backend));
        assert_eq!(read_all(&mut client).expect("an orderly end"), b"told");
        assert_empty(&pool);
        assert_eq!(pool.status().counts.panics, 1);
    });
}

#[test]
fn a_goodbye_within_is_the_end_though_the_layer_around_it_says_none() {
    in_time(|| {
        let ((backend, target), records) = (backend(), Records { accepted: true, made: false, timeout: PATIENCE });
        let service = script(move |call, cx, side| joins(call, cx, side, &target)).staying();
        let (pool, at) = start(Config::accept(Layer::new(records, Layer::new(records, service))).loops(1));
        let mut client = End { stream: connect(at), records: true };
        client.shake();
        client.stream.write_all(&record(HELLO)).expect("it stands");
        assert_eq!(client.hear(HELLO.len()).as_deref(), Some(HELLO));
        let mut far = accept(&backend);
        client.stream.write_all(&record(&[&record(b"whole")[..], &[0, 0]].concat())).expect("it stands");
        client.stream.shutdown(Shutdown::Write).expect("it stands");
        assert_eq!(read_all(&mut far).expect("an orderly end"), b"whole");
        drop((client, far));
        assert_empty(&pool);
    });
}

#[test]
fn a_connection_that_was_made_ends_when_it_is_idle() {
    in_time(|| {
        let (backend, target) = backend();
        let service = script(|_, _, _| Step::Continue);
        let mut config = Config::connect(service.clone(), Connecting::to([target]).keep(1).total(1)).loops(1);
        config.settings.idle = Some(Duration::from_millis(200));
        let pool = Pool::start(config).expect("the pool starts");
        assert!(read_all(&mut accept(&backend)).expect("an orderly end").is_empty());
        assert!(pool.wait(PATIENCE, |status| status.connections == 0));
        assert_eq!(service.ends(Side::Accepted).len() + service.ends(Side::Connected).len(), 1);
        assert_eq!(pool.status().counts.idle, 1);
    });
}
