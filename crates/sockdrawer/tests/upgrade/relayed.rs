//! Relays in an upgrade: both sides move, with all that is under way, or neither does.

use super::common::{PATIENCE, any_port, assert_reset, connect, in_time, pattern, read, read_all};
use super::joins::{Joins, joins};
use super::place::{Place, id_of, moved};
use super::script::{accept, backend};
use sockdrawer::{Address, Config, Model, Pool, Selector, Side};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Returns a configuration in which little is between a writer and a reader that does not read.
fn of(service: Joins) -> Config {
    let mut config = Config::accept(service).loops(2);
    config.settings.options.send_buffer = Some(4096);
    config
}

/// Returns a client and the backend's side of its relay, which stands.
fn pair(at: SocketAddr, backend: &TcpListener) -> [TcpStream; 2] {
    let (mut client, mut far) = (connect(at), accept(backend));
    answers(&mut client, &mut far);
    [client, far]
}

#[track_caller]
fn answers(client: &mut TcpStream, far: &mut TcpStream) {
    client.write_all(b"question").expect("it stands");
    assert_eq!(read(far, 8).as_deref(), Some(&b"question"[..]));
    far.write_all(b"answer").expect("it stands");
    assert_eq!(read(client, 6).as_deref(), Some(&b"answer"[..]));
}

#[test]
fn both_sides_of_a_relay_go_on_in_the_next_build() {
    in_time(|| {
        const SENT: usize = 60_000;
        for together in [false, true] {
            let place = Place::new("relays");
            let (backend, target) = backend();
            rustix::net::sockopt::set_socket_recv_buffer_size(&backend, 4096).expect("a socket");
            let service = Joins { together, ..joins(target) };
            let (old, at) = place.serve(of(service.clone()).listen(any_port()));
            let mut pairs: Vec<_> = (0..50).map(|_| pair(at, &backend)).collect();
            let [mut client_ended, mut far_ended] = [pair(at, &backend), pair(at, &backend)];
            client_ended[0].shutdown(Shutdown::Write).expect("it stands");
            assert!(read_all(&mut client_ended[1]).expect("an orderly end").is_empty());
            far_ended[1].shutdown(Shutdown::Write).expect("it stands");
            assert!(read_all(&mut far_ended[0]).expect("an orderly end").is_empty());
            // More than the far side's kernel takes: the rest is the relay's, or waits before it, and an end behind all.
            let mut stuffed = pair(at, &backend);
            let sent = pattern(SENT);
            stuffed[0].write_all(&sent).expect("it stands");
            stuffed[0].shutdown(Shutdown::Write).expect("it stands");
            assert!(old.wait(PATIENCE, |status| status.counts.bytes_in > status.counts.bytes_out));

            let (new, _) = place.serve(of(service).listen(Address::Tcp(at)));
            moved(&old, &new, 2 * (pairs.len() + 3));
            for [client, far] in &mut pairs {
                answers(client, far);
            }
            far_ended.reverse();
            for [mut ended, mut speaks] in [client_ended, far_ended] {
                speaks.write_all(b"the other direction").expect("it stands");
                assert_eq!(read(&mut ended, 19).as_deref(), Some(&b"the other direction"[..]));
                drop(speaks);
                assert!(read_all(&mut ended).expect("an orderly end").is_empty());
            }
            assert!(read_all(&mut stuffed[1]).expect("an orderly end") == sent, "all of it, once and in order");
            stuffed[1].write_all(b"still").expect("it stands");
            stuffed[1].shutdown(Shutdown::Write).expect("it stands");
            assert_eq!(read_all(&mut stuffed[0]).expect("an orderly end"), b"still");
            drop(pairs);
            assert!(new.wait(PATIENCE, |status| status.connections == 0), "{:#?}", new.status());
        }
    });
}

/// Sends these bytes over each direction of a pair, and reads them; `streams` counts the directions that are not done.
fn stream<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    pair: [TcpStream; 2],
    bytes: &'scope [u8],
    streams: &'scope AtomicUsize,
) {
    for (from, to) in [(0, 1), (1, 0)] {
        let [mut writer, mut reader] = [from, to].map(|side: usize| pair[side].try_clone().expect("a socket"));
        streams.fetch_add(1, SeqCst);
        scope.spawn(move || {
            writer.write_all(bytes).expect("it stands");
            writer.shutdown(Shutdown::Write).expect("it stands");
        });
        scope.spawn(move || {
            assert!(read_all(&mut reader).expect("an orderly end") == bytes, "all of it, once and in order");
            streams.fetch_sub(1, SeqCst);
        });
    }
}

#[test]
fn relays_move_while_bytes_go_both_ways_and_leave_nothing_behind() {
    in_time(|| {
        // Each has four threads: a loop that gets one of many turns on one CPU would be taken for one that hangs.
        const PAIRS: u64 = 3;
        let place = Place::new("streams");
        let (backend, target) = backend();
        let (mut pool, at) = place.serve(Config::accept(joins(target.clone())).loops(2).listen(any_port()));
        let pairs: Vec<_> = (0..PAIRS).map(|_| pair(at, &backend)).collect();
        let (bytes, streams) = (pattern(16_000_000), AtomicUsize::new(0));
        let mut upgrades = 0;
        thread::scope(|scope| {
            pairs.into_iter().for_each(|pair| stream(scope, pair, &bytes, &streams));
            while upgrades == 0 || streams.load(SeqCst) > 0 {
                let (new, _) = place.serve(Config::accept(joins(target.clone())).loops(2).listen(Address::Tcp(at)));
                assert!(pool.join().is_ok(), "no relay keeps it");
                (pool, upgrades) = (new, upgrades + 1);
            }
        });
        assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
        let counts = pool.status().counts;
        let carried = PAIRS * (2 * bytes.len() as u64 + 14);
        assert_eq!(
            (counts.bytes_in, counts.bytes_out, counts.errors, counts.cut),
            (carried, carried, 0, 0),
            "{upgrades} upgrades"
        );
        assert_eq!((counts.accepted, counts.connected, counts.closed), (PAIRS, PAIRS, 2 * PAIRS));
    });
}

/// Asserts that both sides are served by the old pool, and the new one has nothing.
fn stays(old: &Pool, new: &Pool, [mut client, mut far]: [TcpStream; 2]) {
    answers(&mut client, &mut far);
    assert_eq!((old.status().connections, new.status().counts.moved_in), (2, 0));
    drop(client);
    assert!(read_all(&mut far).expect("an orderly end").is_empty());
    drop(far);
    assert!(old.join().is_ok(), "nothing is left there");
}

#[test]
fn neither_side_of_a_relay_moves_alone() {
    for side in [Side::Accepted, Side::Connected] {
        let place = Place::new("alone");
        let (backend, target) = backend();
        let (old, at) = place.serve(of(joins(target.clone())).listen(any_port()));
        let pair = pair(at, &backend);
        let next = Joins { refuses: Some(side), ..joins(target) };
        let (new, _) = place.serve(of(next).listen(Address::Tcp(at)));
        // waits because: it is not to move, however often it is offered.
        thread::sleep(Duration::from_millis(300));
        stays(&old, &new, pair);
    }
}

#[test]
fn a_relay_stays_where_the_next_build_has_a_thread_for_each_connection() {
    let place = Place::new("apart");
    let (backend, target) = backend();
    let (old, at) = place.serve(of(joins(target.clone())).listen(any_port()));
    let pair = pair(at, &backend);
    let (new, _) = place.serve(Config::accept(joins(target)).model(Model::Threads).listen(Address::Tcp(at)));
    // waits because: it is not to move, however often it is offered.
    thread::sleep(Duration::from_millis(300));
    stays(&old, &new, pair);
}

#[test]
fn an_end_of_one_side_that_the_next_build_has_ends_the_other() {
    let place = Place::new("ends");
    let (backend, target) = backend();
    let (old, at) = place.serve(of(joins(target.clone())).listen(any_port()));
    let mut pairs: Vec<_> = (0..2).map(|_| pair(at, &backend)).collect();
    let (new, _) = place.serve(of(joins(target)).listen(Address::Tcp(at)));
    moved(&old, &new, 4);
    assert_eq!(new.kill(&Selector::Id(id_of(&new, &pairs[0][0]))).asked, 1);
    for socket in &mut pairs[0] {
        assert_reset(socket);
    }
    let [client, far] = &mut pairs[1];
    answers(client, far);
    assert!(new.wait(PATIENCE, |status| status.connections == 2), "{:#?}", new.status());
}

#[test]
fn an_adoption_takes_each_side_for_itself() {
    let place = Place::new("adopts");
    let (backend, target) = backend();
    let (pool, at) = place.serve(of(joins(target.clone())).listen(any_port()));
    let [mut client, mut far] = pair(at, &backend);
    let next = Joins { refuses: Some(Side::Connected), ..joins(target.clone()) };
    for (service, moved) in [(next, 1), (joins(target), 2)] {
        pool.update(|config| config.behaviour(service.clone())).expect("another generation");
        assert_eq!(pool.adopt(&Selector::All).moved, moved);
        answers(&mut client, &mut far);
    }
    client.shutdown(Shutdown::Write).expect("it stands");
    assert!(read_all(&mut far).expect("an orderly end").is_empty());
    drop(far);
    assert!(read_all(&mut client).expect("an orderly end").is_empty());
    assert!(pool.wait(PATIENCE, |status| status.connections == 0 && status.generations.len() == 1), "{:#?}", pool.status());
}

#[test]
fn a_relay_that_is_idle_goes_on_to_be() {
    const IDLE: Duration = Duration::from_secs(4);
    for together in [false, true] {
        let place = Place::new("idle-relay");
        let (backend, target) = backend();
        let idle = || {
            let mut config = of(Joins { together, ..joins(target.clone()) });
            config.settings.idle = Some(IDLE);
            config
        };
        let (old, at) = place.serve(idle().listen(any_port()));
        let [mut client, mut far] = pair(at, &backend);
        let began = Instant::now();
        // waits because: the relay is idle for this time in the old build.
        thread::sleep(IDLE - Duration::from_secs(1));
        let (new, _) = place.serve(idle().listen(Address::Tcp(at)));
        moved(&old, &new, 2);
        assert!(read_all(&mut client).expect("an orderly end").is_empty());
        let idle = began.elapsed();
        assert!(read_all(&mut far).expect("an orderly end").is_empty());
        // It ends at the next look, of four in this time; a build that began anew would take all of it again.
        assert!(idle >= IDLE && idle < IDLE + IDLE / 2, "{idle:?}, together: {together}");
    }
}
