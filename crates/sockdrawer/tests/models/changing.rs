//! Changes while it runs: new connections get what is new, and nobody notices otherwise.

use crate::bench::{Bench, Client, Outcome, assert_settled};
use crate::common::{PATIENCE, Stops, address_of_its_own, connect, read_all};
use crate::services::{Actor, frame};
use sockdrawer::{Address, Config, Drain, Error, Pool, Selector, changing::How};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

pub(crate) fn old_connections_keep_their_behaviour(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut old = Client::served(at);
    assert_eq!(old.ask(b'a', 3), (b'a', 3));
    let applied = pool.reconfigure(pool.config().behaviour(Actor { version: 2 }))?;
    assert_eq!(applied.generation, 2);
    assert_eq!([old.version(), old.ask(b'a', 3).1], [1, 6]);
    if bench.side_by_side() {
        let mut new = Client::served(at);
        assert_eq!([new.version(), old.version()], [2, 1]);
        let generations: Vec<_> = pool.status().generations.iter().map(|one| (one.id, one.connections)).collect();
        assert_eq!(generations, [(1, 1), (2, 1)]);
        new.end();
    }
    old.end();
    let mut new = Client::served(at);
    assert_eq!(new.version(), 2);
    let retired = pool.wait(PATIENCE, |status| status.generations.iter().map(|one| one.id).eq([2]));
    assert!(retired, "{:#?}", pool.status());
    Ok(())
}

pub(crate) fn settings_are_for_new_connections(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut old = Client::served(at);
    let mut wanted = pool.config();
    wanted.settings.max_partial = 2;
    pool.reconfigure(wanted)?;
    let part = &frame(b'v', 0)[..4];
    old.0.write_all(part).expect("it stands");
    let came = pool.status().counts.accepted;
    old.0.write_all(&[0]).expect("it stands");
    assert_eq!((old.answer(), came), ((b'v', 1), 1));
    old.end();
    let mut new = Client(connect(at));
    new.0.write_all(part).expect("it stands");
    // The way in which the client sees its end is not the matter here.
    let _ = read_all(&mut new.0);
    assert_settled(&pool);
    assert_eq!(pool.status().counts.too_long, 1);
    Ok(())
}

/// Makes one connection that must go well, with any version of the service.
fn visit(at: SocketAddr) -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(at).map_err(told)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    stream.write_all(&frame(b'a', 9)).map_err(told)?;
    stream.shutdown(Shutdown::Write).map_err(told)?;
    let answer = read_all(&mut stream).map_err(told)?;
    if answer == frame(b'a', 9) { Ok(()) } else { Err(format!("{answer:?}")) }
}

/// Makes one connection to a path that must go well, with any version of the service.
fn visit_path(path: &Path) -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = UnixStream::connect(path).map_err(told)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    stream.write_all(&frame(b'a', 9)).map_err(told)?;
    stream.shutdown(Shutdown::Write).map_err(told)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(told)?;
    if answer == frame(b'a', 9) { Ok(()) } else { Err(format!("{answer:?}")) }
}

/// Calls `change` again and again while clients come and go, none of which may fail.
fn under_traffic(pool: &Pool, at: SocketAddr, change: impl FnMut(u32) -> Outcome) -> Outcome {
    under_visits(pool, || visit(at), change)
}

fn under_visits(pool: &Pool, visit: impl Fn() -> Result<(), String> + Sync, mut change: impl FnMut(u32) -> Outcome) -> Outcome {
    let (visits, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let client = || {
        while !over.load(SeqCst) {
            visit()?;
            visits.fetch_add(1, SeqCst);
        }
        Ok::<(), String>(())
    };
    let outcome = thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
        let ends = Stops(&over);
        let outcome = (1..=20).try_for_each(|round| {
            change(round)?;
            // Some connections for each change; a client that failed comes no more, and says why below.
            let enough = visits.load(SeqCst) + 8;
            pool.wait(PATIENCE, |_| visits.load(SeqCst) >= enough || clients.iter().any(|client| client.is_finished()));
            Ok(())
        });
        drop(ends);
        clients.into_iter().for_each(|client| assert_eq!(client.join().expect("no panic"), Ok(())));
        outcome
    });
    outcome?;
    assert_settled(pool);
    Ok(())
}

fn without(config: Config, address: &Address) -> Config {
    config.listeners(|listeners| listeners.retain(|listening| listening.address != *address))
}

pub(crate) fn an_address_comes_and_goes_under_traffic(bench: &Bench) -> Outcome {
    an_address_comes_and_goes(bench, bench.actor())
}

pub(crate) fn an_address_comes_and_goes_at_the_limit(bench: &Bench) -> Outcome {
    an_address_comes_and_goes(bench, bench.actor().limit(1))
}

fn an_address_comes_and_goes(bench: &Bench, config: Config) -> Outcome {
    let (pool, at) = bench.start(config)?;
    let second = address_of_its_own();
    let address = Address::Tcp(second);
    under_traffic(&pool, at, |_| {
        pool.reconfigure(pool.config().listen(address.clone()))?;
        assert_eq!((visit(second), pool.addresses().len()), (Ok(()), 2));
        pool.reconfigure(without(pool.config(), &address))?;
        assert_eq!(pool.addresses(), [Address::Tcp(at)]);
        let refused =
            pool.wait(PATIENCE, |_| TcpStream::connect(second).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
        assert!(refused, "the second address is gone");
        Ok(())
    })
}

pub(crate) fn sockets_are_replaced_under_traffic(bench: &Bench) -> Outcome {
    sockets_are_replaced(bench, bench.actor())
}

pub(crate) fn sockets_are_replaced_at_the_limit(bench: &Bench) -> Outcome {
    sockets_are_replaced(bench, bench.actor().limit(1))
}

fn sockets_are_replaced(bench: &Bench, config: Config) -> Outcome {
    let (pool, at) = bench.start(config)?;
    under_traffic(&pool, at, |_| {
        // Three at once, faster than the sockets before can be retired.
        for _ in 0..3 {
            let mut wanted = pool.config();
            wanted = wanted.listeners(|listeners| listeners[0].options.freebind ^= true);
            let applied = pool.reconfigure(wanted)?;
            assert!(applied.plan.has(How::NewSocket), "{}", applied.plan);
        }
        assert_eq!((visit(at), pool.addresses()), (Ok(()), vec![Address::Tcp(at)]));
        Ok(())
    })?;
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    assert_eq!(visit(at), Ok(()));
    let second = Pool::start(Config::accept(Actor { version: 1 }).listen(Address::Tcp(at)));
    assert!(matches!(second, Err(Error::AddressInUse(_))), "a second program is refused");
    Ok(())
}

pub(crate) fn a_unix_path_is_passed_on_under_traffic(bench: &Bench) -> Outcome {
    a_unix_path_is_passed_on(bench, bench.actor())
}

pub(crate) fn a_unix_path_is_passed_on_at_the_limit(bench: &Bench) -> Outcome {
    a_unix_path_is_passed_on(bench, bench.actor().limit(1))
}

fn a_unix_path_is_passed_on(bench: &Bench, config: Config) -> Outcome {
    let name = format!("sockdrawer-passed-on-{}-{}-{:?}", std::process::id(), bench.model, config.limit);
    let path = std::env::temp_dir().join(name);
    let address = Address::Unix(path.clone());
    let pool = Pool::start(config.listen(address.clone()))?;
    under_visits(
        &pool,
        || visit_path(&path),
        |_| {
            // Three at once, faster than the sockets before can be retired.
            for mode in [0o606, 0o660, 0o600] {
                let applied = pool.update(|config| config.listeners(|listeners| listeners[0].options.mode = Some(mode)))?;
                assert!(applied.plan.has(How::NewSocket), "{}", applied.plan);
                assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, mode);
            }
            assert_eq!((visit_path(&path), pool.addresses()), (Ok(()), vec![address.clone()]));
            Ok(())
        },
    )?;
    assert!(pool.wait(PATIENCE, |status| status.retiring == 0), "{:#?}", pool.status());
    pool.shutdown(Drain::within(PATIENCE));
    assert!(!path.exists(), "the path goes with the pool");
    Ok(())
}

pub(crate) fn behaviours_change_under_traffic(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    under_traffic(&pool, at, |round| {
        let mut wanted = pool.config().behaviour(Actor { version: round });
        wanted.settings.max_partial = 1000 * round as usize;
        wanted.settings.options.nodelay = round % 2 == 0;
        pool.reconfigure(wanted)?;
        let mut client = Client::served(at);
        assert_eq!(client.version(), round);
        client.end();
        Ok(())
    })
}

pub(crate) fn an_adopted_connection_keeps_its_state(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    bench.reaches_connections(&pool)?;
    let mut clients: Vec<Client> = (0..bench.crowd(5)).map(|_| Client::served(at)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(b'a', number as u32), (b'a', number as u32));
    }
    // Half an order waits, and goes along.
    clients[0].0.write_all(&frame(b'v', 0)[..2]).expect("it stands");
    let came = (2 * clients.len() * 5 + 2) as u64;
    assert!(pool.wait(PATIENCE, |status| status.counts.bytes_in == came));
    pool.reconfigure(pool.config().behaviour(Actor { version: 2 }))?;
    let adopted = pool.adopt(&Selector::All);
    assert_eq!((adopted.moved, adopted.stayed), (clients.len(), 0));
    clients[0].0.write_all(&frame(b'v', 0)[2..]).expect("it stands");
    assert_eq!(clients[0].answer(), (b'v', 2));
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!([client.version(), client.ask(b'a', 10).1], [2, number as u32 + 10]);
    }
    assert_eq!(pool.connections(&Selector::Generation(2)).len(), clients.len());
    assert_eq!(pool.status().counts.adopted, clients.len() as u64);
    clients.into_iter().for_each(Client::end);
    assert_settled(&pool);
    Ok(())
}

pub(crate) fn a_refused_change_changes_nothing(bench: &Bench) -> Outcome {
    let (pool, at) = bench.start(bench.actor())?;
    let mut client = Client::served(at);
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let in_use = Address::Tcp(taken.local_addr().expect("bound"));
    let refused = pool.reconfigure(pool.config().behaviour(Actor { version: 2 }).listen(in_use));
    assert!(matches!(refused, Err(Error::AddressInUse(_))), "{refused:?}");
    assert_eq!((client.version(), pool.status().generation, pool.addresses().len()), (1, 1, 1));
    client.end();
    let mut client = Client::served(at);
    assert_eq!(client.version(), 1);
    Ok(())
}
