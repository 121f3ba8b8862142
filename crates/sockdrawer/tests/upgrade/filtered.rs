//! Relays under layers in an upgrade: records that are half received, half-closed directions, and bytes on their way.

use super::common::{PATIENCE, any_port, connect, in_time, pattern};
use super::joins::{Joins, joins};
use super::place::{Place, moved};
use super::records::{End, Records, SIDES, record};
use super::script::{accept, backend};
use sockdrawer::layer::Layer;
use sockdrawer::{Address, Config};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

fn of((accepted, made): (bool, bool), target: &Address) -> Layer<Records, Joins> {
    Layer::new(Records { accepted, made, timeout: PATIENCE }, joins(target.clone()))
}

fn pair(at: SocketAddr, backend: &TcpListener, sides: (bool, bool)) -> [End; 2] {
    let mut client = End { stream: connect(at), records: sides.0 };
    client.shake();
    let mut far = End { stream: accept(backend), records: sides.1 };
    far.shake();
    answers(&mut client, &mut far);
    [client, far]
}

#[track_caller]
fn answers(client: &mut End, far: &mut End) {
    client.say(b"question");
    assert_eq!(far.hear(8).as_deref(), Some(&b"question"[..]));
    far.say(b"answer");
    assert_eq!(client.hear(6).as_deref(), Some(&b"answer"[..]));
}

#[test]
fn half_records_and_half_closed_directions_go_on_in_the_next_build() {
    for sides in SIDES {
        let place = Place::new("filters");
        let (backend, target) = backend();
        let (old, at) = place.serve(Config::accept(of(sides, &target)).loops(2).listen(any_port()));
        let mut pairs: Vec<_> = (0..10).map(|_| pair(at, &backend, sides)).collect();
        // A record of which the first half is here.
        for [client, far] in &mut pairs {
            let end = if client.records { client } else { far };
            end.stream.write_all(&record(b"in two halves")[..6]).expect("it stands");
        }
        let [mut ended, mut speaks] = pair(at, &backend, sides);
        ended.say_end();
        assert_eq!(speaks.hear_all(), b"");
        let arrived = 11 * (14 + 2 * 2) + 10 * 6;
        assert!(old.wait(PATIENCE, |status| status.counts.bytes_in >= arrived), "{:#?}", old.status());
        let (new, _) = place.serve(Config::accept(of(sides, &target)).loops(2).listen(Address::Tcp(at)));
        moved(&old, &new, 22);
        for [client, far] in &mut pairs {
            let (end, other) = if client.records { (client, far) } else { (far, client) };
            end.stream.write_all(&record(b"in two halves")[6..]).expect("it stands");
            assert_eq!(other.hear(13).as_deref(), Some(&b"in two halves"[..]));
        }
        pairs.iter_mut().for_each(|[client, far]| answers(client, far));
        speaks.say(b"the other direction");
        assert_eq!(ended.hear(19).as_deref(), Some(&b"the other direction"[..]));
        speaks.say_end();
        assert_eq!(ended.hear_all(), b"");
        for [mut client, mut far] in pairs {
            client.say_end();
            assert_eq!(far.hear_all(), b"");
            far.say_end();
            assert_eq!(client.hear_all(), b"");
        }
        assert!(new.wait(PATIENCE, |status| status.connections == 0), "{:#?}", new.status());
        assert_eq!((new.status().counts.errors, new.status().counts.aborted), (0, 0));
    }
}

#[test]
fn filtered_relays_move_while_bytes_go_both_ways() {
    in_time(|| {
        for sides in SIDES {
            let place = Place::new("filtered-streams");
            let (backend, target) = backend();
            let (mut pool, at) = place.serve(Config::accept(of(sides, &target)).loops(2).listen(any_port()));
            let pairs: Vec<_> = (0..3).map(|_| pair(at, &backend, sides)).collect();
            let (bytes, streams, mut upgrades) = (pattern(3_000_000), AtomicUsize::new(0), 0);
            thread::scope(|scope| {
                for (from, to) in pairs.iter().flat_map(|[client, far]| [(client, far), (far, client)]) {
                    let (mut from, mut to, bytes, streams) = (from.copy(), to.copy(), &bytes, &streams);
                    streams.fetch_add(1, SeqCst);
                    scope.spawn(move || {
                        from.say(bytes);
                        from.say_end();
                    });
                    scope.spawn(move || {
                        assert!(to.hear_all() == *bytes, "all of it, once and in order");
                        streams.fetch_sub(1, SeqCst);
                    });
                }
                while upgrades == 0 || streams.load(SeqCst) > 0 {
                    let (new, _) = place.serve(Config::accept(of(sides, &target)).loops(2).listen(Address::Tcp(at)));
                    assert!(pool.join().is_ok(), "no relay keeps it");
                    (pool, upgrades) = (new, upgrades + 1);
                }
            });
            assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
            let counts = pool.status().counts;
            assert_eq!((counts.errors, counts.cut, counts.aborted, counts.panics), (0, 0, 0, 0), "{upgrades} upgrades");
            assert_eq!((counts.accepted, counts.connected, counts.closed), (3, 3, 6));
        }
    });
}
