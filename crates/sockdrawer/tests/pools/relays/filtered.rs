//! Relays under layers: a filter with a handshake, records, answers of its own and a goodbye, at either side or at both.

use super::records::{ASK, End, HELLO, Records, SIDES, record};
use super::script::{Call, Script, accept, assert_sleeps, backend, joins, script};
use crate::common::{PATIENCE, assert_empty, assert_reset, connect, in_time, pattern, read, read_all, start};
use sockdrawer::layer::{Filter, Filtering, Layer, Progress, Refused};
use sockdrawer::observe::Event;
use sockdrawer::{Closed, Config, Context, Input, Output, Peer, Pool, Side, Step};
use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub(crate) struct Scene {
    backend: TcpListener,
    pub(crate) pool: Pool,
    pub(crate) script: Script,
    at: std::net::SocketAddr,
    records: Records,
    reports: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    pub(crate) fn new(sides: (bool, bool)) -> Scene {
        Scene::of(sides, PATIENCE, joins)
    }

    pub(crate) fn of(
        (accepted, made): (bool, bool),
        timeout: Duration,
        does: impl Fn(Call<'_, '_>, &mut Context<'_>, Side, &sockdrawer::Address) -> Step + Send + Sync + 'static,
    ) -> Scene {
        let ((backend, target), records) = (backend(), Records { accepted, made, timeout });
        let script = script(move |call, cx, side| does(call, cx, side, &target)).staying();
        let reports = Arc::<Mutex<Vec<String>>>::default();
        let seen = reports.clone();
        let config = Config::accept(Layer::new(records, script.clone())).loops(1).observer(move |event: &Event| {
            if let Event::Reported { report: sockdrawer::Report { message, .. }, .. } = event {
                seen.lock().expect("no panic").push(message.clone());
            }
        });
        let (pool, at) = start(config);
        Scene { backend, pool, script, at, records, reports }
    }

    pub(crate) fn client(&self) -> End {
        End { stream: connect(self.at), records: self.records.accepted }
    }

    pub(crate) fn far(&self) -> End {
        End { stream: accept(&self.backend), records: self.records.made }
    }

    pub(crate) fn pair(&self) -> (End, End) {
        let mut client = self.client();
        client.shake();
        let mut far = self.far();
        far.shake();
        (client, far)
    }

    pub(crate) fn reports(&self) -> Vec<String> {
        self.reports.lock().expect("no panic").clone()
    }
}

#[test]
fn bytes_pass_the_filters_of_either_side() {
    for sides in SIDES {
        let scene = Scene::new(sides);
        let (mut client, mut far) = scene.pair();
        for round in 0..50 {
            client.say(format!("question {round:03}").as_bytes());
            assert_eq!(far.hear(12), Some(format!("question {round:03}").into_bytes()));
            far.say(format!("answer {round:03}").as_bytes());
            assert_eq!(client.hear(10), Some(format!("answer {round:03}").into_bytes()));
        }
        // Byte by byte.
        for (from, to) in [(&mut client, &mut far)] {
            let wire = from.wire(b"in pieces");
            for byte in wire {
                from.stream.write_all(&[byte]).expect("it stands");
            }
            assert_eq!(to.hear(9).as_deref(), Some(&b"in pieces"[..]));
        }
        assert_sleeps(&scene.pool);
        client.say_end();
        assert_eq!(far.hear_all(), b"");
        far.say(b"the other direction goes on");
        assert_eq!(client.hear(27).as_deref(), Some(&b"the other direction goes on"[..]));
        far.say_end();
        assert_eq!(client.hear_all(), b"");
        assert_empty(&scene.pool);
        assert_eq!(scene.reports(), [""; 0]);
    }
}

#[test]
fn much_goes_both_ways_at_once_through_filters() {
    in_time(|| {
        for sides in SIDES {
            let scene = Scene::new(sides);
            let (client, far) = scene.pair();
            let bytes = pattern(5_000_000);
            thread::scope(|scope| {
                for (from, to) in [(&client, &far), (&far, &client)] {
                    let (mut from, mut to, bytes) = (from.copy(), to.copy(), &bytes);
                    scope.spawn(move || {
                        from.say(bytes);
                        from.say_end();
                    });
                    scope.spawn(move || assert!(to.hear_all() == *bytes));
                }
            });
            assert_empty(&scene.pool);
            assert_eq!(scene.reports(), [""; 0]);
        }
    });
}

#[test]
fn a_stream_without_its_goodbye_does_not_look_whole() {
    for (sides, client_first) in [((true, false), true), ((false, true), false), ((true, true), true), ((true, true), false)] {
        let scene = Scene::new(sides);
        let (client, far) = scene.pair();
        let (mut first, mut second) = if client_first { (client, far) } else { (far, client) };
        first.say(b"half of it");
        assert_eq!(second.hear(10).as_deref(), Some(&b"half of it"[..]));
        first.stream.shutdown(Shutdown::Write).expect("it stands");
        assert_reset(&mut second.stream);
        assert_empty(&scene.pool);
        assert_eq!(scene.reports(), ["it ended without a goodbye"]);
    }
}

#[test]
fn what_a_filter_refuses_ends_both_sides_and_the_peer_is_told() {
    for sides in [(true, false), (true, true)] {
        let scene = Scene::new(sides);
        let (mut client, mut far) = scene.pair();
        client.stream.write_all(&[&record(b"good")[..], &[0, 6], b"forged"].concat()).expect("it stands");
        assert_eq!(far.hear(4).as_deref(), Some(&b"good"[..]));
        assert_reset(&mut far.stream);
        assert_eq!(read_all(&mut client.stream).expect("an orderly end"), b"NO");
        drop(client);
        assert_empty(&scene.pool);
        assert_eq!(scene.reports(), ["a record that was forged"]);
        assert_eq!(scene.script.ends(Side::Accepted), [Closed::Aborted]);
    }
}

#[test]
fn a_filter_that_panics_ends_its_pair_alone() {
    let scene = Scene::new((true, false));
    let (mut client, mut far) = scene.pair();
    let (mut others, mut backend) = scene.pair();
    client.stream.write_all(&[&[0, 5][..], b"panic"].concat()).expect("it stands");
    assert_reset(&mut far.stream);
    assert_reset(&mut client.stream);
    others.say(b"still");
    assert_eq!(backend.hear(5).as_deref(), Some(&b"still"[..]));
    assert_eq!(scene.pool.status().counts.panics, 1);
}

/// Questions to the filter itself are answered in order with the bytes of the other side, and a peer that does not read the answers is refused.
#[test]
fn what_a_filter_says_by_itself_goes_to_its_peer_and_is_bounded() {
    in_time(|| {
        let scene = Scene::new((true, false));
        let (mut client, mut far) = scene.pair();
        client.stream.write_all(&ASK.to_be_bytes()).expect("it stands");
        assert_eq!(client.hear(1), Some(vec![0]));
        far.say(b"x");
        assert_eq!(client.hear(1).as_deref(), Some(&b"x"[..]));
        let questions: Vec<u8> = ASK.to_be_bytes().repeat(100_000);
        // Its end may come while it writes.
        while client.stream.write_all(&questions).is_ok() {}
        assert_reset(&mut far.stream);
        assert_empty(&scene.pool);
        assert_eq!(scene.reports(), ["the peer has the layer answer, and does not read its answers"]);
    });
}

#[test]
fn what_came_before_the_target_was_there_goes_first() {
    for sides in SIDES {
        let scene = Scene::new(sides);
        let mut client = scene.client();
        client.shake();
        client.say(b"early");
        client.say_end();
        let mut far = scene.far();
        far.shake();
        assert_eq!(far.hear_all(), b"early");
        far.say(b"late");
        far.say_end();
        assert_eq!(client.hear_all(), b"late");
        assert_empty(&scene.pool);
    }
}

#[test]
fn a_target_is_connected_when_its_layers_have_shaken_hands() {
    let heard = Arc::<Mutex<Vec<i32>>>::default();
    let told = heard.clone();
    let scene = Scene::of((false, true), Duration::from_millis(300), move |call, cx, side, target| match call {
        Call::Opened if side == Side::Accepted => {
            cx.pause();
            cx.connect_with(target, PATIENCE, b"FIRST".to_vec());
            Step::Continue
        }
        Call::Connected(Err(failure)) => {
            told.lock().expect("no panic").push(failure.errno);
            Step::Abort
        }
        call => joins(call, cx, side, target),
    });
    // The first bytes go before the layer's own hello.
    let (mut client, mut far) = (scene.client(), scene.far());
    assert_eq!(read(&mut far.stream, 5).as_deref(), Some(&b"FIRST"[..]));
    far.shake();
    client.say(b"x");
    assert_eq!(far.hear(1).as_deref(), Some(&b"x"[..]));
    // Targets that say something else, say nothing, and go.
    for says in [Some(&b"wrong"[..]), None, Some(b"")] {
        let (mut client, mut far) = (scene.client(), scene.far());
        match says {
            Some(b"") => far.stream.shutdown(Shutdown::Both).expect("it stands"),
            says => far.stream.write_all(says.unwrap_or_default()).expect("it stands"),
        }
        assert_reset(&mut client.stream);
    }
    assert_eq!(*heard.lock().expect("no panic"), [rustix::io::Errno::PROTO.raw_os_error(); 3]);
    drop((client, far));
    assert_empty(&scene.pool);
}

#[test]
fn a_client_that_goes_takes_a_target_that_shakes_hands_along() {
    let scene = Scene::new((false, true));
    let (client, mut far) = (scene.client(), scene.far());
    assert_eq!(read(&mut far.stream, HELLO.len()).as_deref(), Some(HELLO));
    crate::common::reset(client.stream);
    assert_reset(&mut far.stream);
    assert_empty(&scene.pool);
    assert_eq!(scene.reports(), [""; 0]);
}

/// Records of 200 KiB, at accepted connections.
struct Large;

struct LargeRecord {
    has: bool,
    established: bool,
}

const LARGE: usize = 200 * 1024;

impl Filtering for Large {
    type Filter = LargeRecord;
    fn filter(&self, peer: &Peer) -> LargeRecord {
        LargeRecord { has: peer.side() == Side::Accepted, established: false }
    }
    fn longest_record(&self) -> usize {
        LARGE
    }
}

impl Filter for LargeRecord {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
        if !std::mem::replace(&mut self.established, true) {
            return Ok(Progress::Established(None));
        }
        let record = if self.has { wire.exactly(LARGE) } else { Some(wire.take_all()).filter(|all| !all.is_empty()) };
        let Some(record) = record else { return Ok(Progress::NeedMore) };
        plain.extend_from_slice(record);
        Ok(Progress::Plain)
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        wire.push(plain);
    }
    fn goodbye(&mut self, _wire: &mut Output) {}
}

#[test]
fn a_relay_passes_the_longest_record_of_its_layer() {
    in_time(|| {
        let (backend, target) = backend();
        let script = script(move |call, cx, side| joins(call, cx, side, &target));
        let (pool, at) = start(Config::accept(Layer::new(Large, script)).loops(1));
        let (mut client, bytes) = (connect(at), pattern(5 * LARGE));
        let mut far = accept(&backend);
        // The setting is less.
        client.write_all(&bytes[..LARGE - 1]).expect("it stands");
        while pool.status().counts.bytes_in < LARGE as u64 - 1 {
            thread::yield_now();
        }
        client.write_all(&bytes[LARGE - 1..]).expect("it stands");
        assert!(read(&mut far, bytes.len()) == Some(bytes));
        drop((client, far));
        assert_empty(&pool);
    });
}
