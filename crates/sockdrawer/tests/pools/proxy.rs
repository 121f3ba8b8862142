//! The example `proxy`: two connections joined, and every way in which one of them ends.

#[path = "../../examples/proxy.rs"]
#[allow(dead_code)]
mod example;

use crate::common::{PATIENCE, address_of_its_own, assert_reset, connect, in_time, pattern, read, read_all, reset, start};
use sockdrawer::{Config, Drain, Pool, Selector};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

struct Scene {
    backend: TcpListener,
    pool: Pool,
    at: SocketAddr,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(|config| config.loops(2))
    }

    fn with(config: impl FnOnce(Config) -> Config) -> Scene {
        let backend = TcpListener::bind(address_of_its_own()).expect("a port is free");
        let target = backend.local_addr().expect("it is bound").into();
        let (pool, at) = start(config(Config::accept(example::Proxy(target))));
        Scene { backend, pool, at }
    }

    /// Returns a client and the backend's side of it.
    fn pair(&self) -> (TcpStream, TcpStream) {
        let client = connect(self.at);
        let (backend, _) = self.backend.accept().expect("the proxy connects");
        backend.set_read_timeout(Some(PATIENCE)).expect("a socket");
        (client, backend)
    }

    fn assert_empty(&self) {
        assert!(self.pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", self.pool.status());
    }
}

#[test]
fn bytes_go_both_ways() {
    let scene = Scene::new();
    let (mut client, mut backend) = scene.pair();
    for _ in 0..100 {
        client.write_all(b"question").expect("it stands");
        assert_eq!(read(&mut backend, 8).as_deref(), Some(&b"question"[..]));
        backend.write_all(b"answer").expect("it stands");
        assert_eq!(read(&mut client, 6).as_deref(), Some(&b"answer"[..]));
    }
    drop(client);
    assert!(read_all(&mut backend).expect("an orderly end").is_empty());
    drop(backend);
    scene.assert_empty();
    let counts = scene.pool.status().counts;
    assert_eq!((counts.bytes_in, counts.bytes_out, counts.errors), (1400, 1400, 0));
    assert_eq!((counts.accepted, counts.connected, counts.closed), (1, 1, 2));
}

#[test]
fn what_was_sent_before_the_backend_was_there_arrives() {
    let scene = Scene::new();
    let mut client = connect(scene.at);
    client.write_all(b"early").expect("it stands");
    client.shutdown(Shutdown::Write).expect("it stands");
    let (mut backend, _) = scene.backend.accept().expect("the proxy connects");
    assert_eq!(read_all(&mut backend).expect("an orderly end"), b"early");
    backend.write_all(b"late").expect("it stands");
    drop(backend);
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"late");
    scene.assert_empty();
}

#[test]
fn each_direction_ends_for_itself() {
    let scene = Scene::new();
    for client_first in [true, false] {
        let (client, backend) = scene.pair();
        let (mut first, mut second) = if client_first { (client, backend) } else { (backend, client) };
        first.write_all(b"all of it").expect("it stands");
        first.shutdown(Shutdown::Write).expect("it stands");
        assert_eq!(read_all(&mut second).expect("an orderly end"), b"all of it");
        for word in [&b"still"[..], b"more"] {
            second.write_all(word).expect("the other direction stands");
            assert_eq!(read(&mut first, word.len()).as_deref(), Some(word));
        }
        drop(second);
        assert!(read_all(&mut first).expect("an orderly end").is_empty());
        scene.assert_empty();
    }
}

#[test]
fn much_goes_both_ways_at_once_whole() {
    in_time(|| {
        let scene = Scene::new();
        let (client, backend) = scene.pair();
        let bytes = pattern(20_000_000);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (writer, reader) in [(&client, &backend), (&backend, &client)] {
                let (mut writer, mut reader) = (writer.try_clone().expect("a socket"), reader.try_clone().expect("a socket"));
                let bytes = &bytes;
                threads.push(scope.spawn(move || {
                    writer.write_all(bytes).expect("it stands");
                    writer.shutdown(Shutdown::Write).expect("it stands");
                }));
                threads.push(scope.spawn(move || assert!(read_all(&mut reader).expect("an orderly end") == *bytes)));
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        scene.assert_empty();
        assert_eq!(scene.pool.status().counts.bytes_out, 40_000_000);
    });
}

#[test]
fn a_reset_is_passed_on_as_a_reset() {
    let scene = Scene::new();
    for by_client in [true, false] {
        let (mut client, mut backend) = scene.pair();
        client.write_all(b"x").expect("it stands");
        assert_eq!(read(&mut backend, 1).as_deref(), Some(&b"x"[..]));
        let (resets, mut other) = if by_client { (client, backend) } else { (backend, client) };
        reset(resets);
        assert_reset(&mut other);
        scene.assert_empty();
    }
}

#[test]
fn a_peer_that_does_not_read_slows_the_other_down_and_costs_bounded_memory() {
    in_time(|| {
        let scene = Scene::with(|config| config.loops(1));
        let (mut client, mut backend) = scene.pair();
        let bytes = pattern(64_000_000);
        let sent = bytes.clone();
        let writer = thread::spawn(move || {
            backend.write_all(&sent).expect("it stands");
            backend
        });
        // Others are served meanwhile.
        for _ in 0..20 {
            let (mut other, mut far) = scene.pair();
            other.write_all(b"x").expect("it stands");
            assert_eq!(read(&mut far, 1).as_deref(), Some(&b"x"[..]));
        }
        assert!(!writer.is_finished(), "the kernel's buffers do not hold all of it");
        let counts = scene.pool.status().counts;
        assert!(counts.bytes_in - counts.bytes_out <= 256 * 1024, "what is held: {counts:#?}");
        let mut got = vec![0; bytes.len()];
        client.read_exact(&mut got).expect("all of it comes");
        assert!(got == bytes);
        drop(writer.join().expect("no panic"));
    });
}

#[test]
fn a_backend_that_is_away_ends_the_client_at_once_and_serves_again_when_it_is_back() {
    let scene = Scene::new();
    let target = scene.backend.local_addr().expect("it is bound");
    let Scene { backend, pool, at } = scene;
    drop(backend);
    let since = Instant::now();
    assert_reset(&mut connect(at));
    assert!(since.elapsed() < Duration::from_secs(2));
    assert_eq!(pool.status().counts.connect_failed, 1);
    let scene = Scene { backend: TcpListener::bind(target).expect("the port is free again"), pool, at };
    let (mut client, mut backend) = scene.pair();
    client.write_all(b"x").expect("it stands");
    assert_eq!(read(&mut backend, 1).as_deref(), Some(&b"x"[..]));
}

#[test]
fn a_full_pool_answers_a_connect_and_the_client_ends() {
    let scene = Scene::with(|config| config.loops(1).limit(1));
    assert_reset(&mut connect(scene.at));
    scene.assert_empty();
}

#[test]
fn a_client_that_is_gone_before_the_backend_is_there_leaves_nothing() {
    let scene = Scene::new();
    for _ in 0..50 {
        reset(connect(scene.at));
    }
    assert!(scene.pool.wait(PATIENCE, |status| status.counts.accepted == 50));
    scene.assert_empty();
    let counts = scene.pool.status().counts;
    assert_eq!(counts.closed, 50 + counts.connected);
}

#[test]
fn a_shutdown_resets_both_at_its_deadline() {
    let scene = Scene::new();
    let (mut client, mut backend) = scene.pair();
    client.write_all(b"x").expect("it stands");
    assert_eq!(read(&mut backend, 1).as_deref(), Some(&b"x"[..]));
    let drained = scene.pool.shutdown(Drain::within(Duration::from_millis(300)));
    assert_eq!((drained.asked, drained.ended, drained.cut), (2, 0, 2), "{drained:?}");
    assert_reset(&mut client);
    assert_reset(&mut backend);
}

#[test]
fn a_drain_resets_both_at_its_deadline() {
    let scene = Scene::new();
    let (mut client, mut backend) = scene.pair();
    client.write_all(b"last").expect("it stands");
    assert_eq!(read(&mut backend, 4).as_deref(), Some(&b"last"[..]));
    // Asked to end, a relay goes on until the deadline.
    let pool = scene.pool.clone();
    let drain = thread::spawn(move || pool.drain(&Selector::All, Drain::within(Duration::from_millis(300))));
    assert!(scene.pool.wait(PATIENCE, |_| scene.pool.connections(&Selector::All).iter().all(|one| one.draining)));
    backend.write_all(b"answer").expect("it stands");
    assert_eq!(read(&mut client, 6).as_deref(), Some(&b"answer"[..]));
    let drained = drain.join().expect("no panic");
    assert_eq!((drained.asked, drained.ended, drained.cut), (2, 0, 2), "{drained:?}");
    assert_reset(&mut client);
    assert_reset(&mut backend);
    scene.assert_empty();
}

#[test]
fn a_kill_resets_both() {
    let scene = Scene::new();
    let (mut client, mut backend) = scene.pair();
    client.write_all(b"x").expect("it stands");
    assert_eq!(read(&mut backend, 1).as_deref(), Some(&b"x"[..]));
    let one = scene.pool.connections(&Selector::All)[0].id;
    scene.pool.kill(&Selector::Id(one));
    assert_reset(&mut client);
    assert_reset(&mut backend);
    scene.assert_empty();
}

#[test]
fn an_idle_relay_ends_in_order() {
    let scene = Scene::with(|mut config| {
        config.settings.idle = Some(Duration::from_millis(200));
        config.loops(1)
    });
    let (mut client, mut backend) = scene.pair();
    client.write_all(b"x").expect("it stands");
    assert_eq!(read(&mut backend, 1).as_deref(), Some(&b"x"[..]));
    assert!(read_all(&mut client).expect("an orderly end").is_empty());
    assert!(read_all(&mut backend).expect("an orderly end").is_empty());
    drop((client, backend));
    scene.assert_empty();
}

#[test]
fn a_relay_whose_client_reads_slowly_is_not_idle() {
    let scene = Scene::with(|mut config| {
        config.settings.idle = Some(Duration::from_millis(500));
        config.loops(1)
    });
    let bytes = pattern(8_000_000);
    let (mut client, mut backend) = scene.pair();
    thread::scope(|scope| {
        scope.spawn(|| {
            backend.write_all(&bytes).expect("it stands");
            backend.shutdown(Shutdown::Write).expect("it stands");
        });
        let (mut came, mut part) = (Vec::new(), vec![0; 100_000]);
        loop {
            // waits because: the client is slow. The kernel takes more when a third of its buffer is free: that takes longer than the timeout.
            thread::sleep(Duration::from_millis(60));
            match client.read(&mut part).expect("it goes on") {
                0 => break,
                count => came.extend_from_slice(&part[..count]),
            }
        }
        assert!(came == bytes, "{} bytes came", came.len());
    });
}

/// A redis-server of the test's own; None where there is none on this machine.
struct Redis(Child, SocketAddr);

impl Redis {
    fn start() -> Option<Redis> {
        let at = address_of_its_own();
        let mut command = Command::new("redis-server");
        command.args(["--port", &at.port().to_string(), "--bind", &at.ip().to_string(), "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let redis = Redis(child, at);
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(at).is_err() {
            assert!(Instant::now() < until, "redis listens in time");
            // waits because: redis says on no channel of ours that it listens.
            thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_is_served_through_it() {
    let Some(redis) = Redis::start() else {
        println!("no redis-server on this machine: not tried");
        return;
    };
    let (pool, at) = start(Config::accept(example::Proxy(redis.1.into())).loops(2));
    let mut clients: Vec<TcpStream> = (0..20).map(|_| connect(at)).collect();
    for round in 0..20 {
        for (number, client) in clients.iter_mut().enumerate() {
            write!(client, "SET k{number} {round}\r\nGET k{number}\r\n").expect("it stands");
        }
        for client in &mut clients {
            let expected = format!("+OK\r\n${}\r\n{round}\r\n", round.to_string().len());
            assert_eq!(read(client, expected.len()).as_deref(), Some(expected.as_bytes()));
        }
    }
    // A value larger than all buffers, in and out.
    let value = pattern(16 * 1024 * 1024);
    let mut writer = clients[0].try_clone().expect("a socket");
    let sent = value.clone();
    let writing = thread::spawn(move || {
        write!(writer, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n", sent.len()).expect("it stands");
        writer.write_all(&sent).expect("it stands");
        writer.write_all(b"\r\nGET big\r\n").expect("it stands");
    });
    let head = format!("+OK\r\n${}\r\n", value.len());
    assert_eq!(read(&mut clients[0], head.len()).as_deref(), Some(head.as_bytes()));
    assert!(read(&mut clients[0], value.len()).as_deref() == Some(&value[..]));
    writing.join().expect("no panic");
    drop(clients);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
}

/// Returns a listener whose accept queue is full, so that a connect to it hangs, and what fills it.
fn full() -> (TcpListener, SocketAddr, TcpStream) {
    let full = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    rustix::net::listen(&full, 0).expect("it listens");
    let target = full.local_addr().expect("it is bound");
    let waits = TcpStream::connect(target).expect("the queue takes one");
    (full, target, waits)
}

#[test]
fn a_client_that_only_ends_its_stream_before_the_backend_is_there_hears_the_backend() {
    let (full, target, waits) = full();
    let (pool, at) = start(Config::accept(example::Proxy(target.into())).loops(1));
    let mut client = connect(at);
    client.shutdown(Shutdown::Write).expect("it stands");
    assert!(pool.wait(PATIENCE, |status| status.counts.connects == 1));
    // The connect is made again a second later.
    drop((waits, full.accept().expect("the first")));
    let (mut backend, _) = full.accept().expect("the proxy connects");
    backend.write_all(b"welcome").expect("it stands");
    assert!(read_all(&mut backend).is_ok_and(|sent| sent.is_empty()), "the client's end arrives");
    drop(backend);
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"welcome");
}

#[test]
fn a_client_that_goes_takes_the_connect_for_it_along() {
    let (_full, target, _waits) = full();
    let (pool, at) = start(Config::accept(example::Proxy(target.into())).loops(1));
    let client = connect(at);
    assert!(pool.wait(PATIENCE, |status| status.counts.connects == 1));
    let since = Instant::now();
    reset(client);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert!(since.elapsed() < Duration::from_secs(2), "not the time of the connect");
    let counts = pool.status().counts;
    assert_eq!((counts.connects, counts.connected, counts.connect_failed), (1, 0, 1));
}
