//! Blocking handlers in the models that run them.

use crate::common::{self, Echo, PATIENCE, assert_empty, connect, echoes, in_time, read_all, start};
use sockdrawer::{
    Behaviour, Config, Drain, Model, Pool, Selector,
    blocking::{Connection, Wakeup},
    observe::ConnectionState,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Echoes until the peer's end, or the pool's wish; `!` is an error of the handler, `?` a panic.
fn echo(connection: &mut Connection) -> io::Result<()> {
    let mut bytes = [0; 4096];
    while connection.wait()? == Wakeup::Input {
        let count = connection.read(&mut bytes)?;
        if count == 0 {
            break;
        }
        connection.write_all(&bytes[..count])?;
        assert_ne!(bytes[0], b'?', "as asked");
        if bytes[0] == b'!' {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

fn started(model: Model) -> (Pool, SocketAddr) {
    start(Config::accept(Behaviour::blocking(echo)).model(model))
}

/// Runs the test for both models, each in time.
fn each(test: fn(Model)) {
    in_time(move || [Model::Single, Model::Threads].into_iter().for_each(test));
}

#[test]
fn a_handler_serves_to_the_end_and_its_bytes_are_counted() {
    each(|model| {
        let (pool, at) = started(model);
        for _ in 0..20 {
            let mut stream = connect(at);
            assert!(echoes(&mut stream, b"one") && echoes(&mut stream, b"two"));
            stream.shutdown(Shutdown::Write).expect("it stands");
            assert_eq!(read_all(&mut stream).expect("an orderly end"), b"");
        }
        assert_empty(&pool);
        let counts = pool.status().counts;
        assert_eq!((counts.accepted, counts.closed, counts.delegated), (20, 20, 20));
        assert_eq!((counts.bytes_in, counts.bytes_out, counts.errors), (120, 120, 0));
    });
}

#[test]
fn each_connection_has_one_thread_and_needs_no_other() {
    in_time(|| {
        const ALL: usize = 40;
        let (pool, at) = start(Config::accept(Behaviour::blocking(echo)).model(Model::Threads).delegates(1));
        let mut streams: Vec<TcpStream> = (0..ALL).map(|_| connect(at)).collect();
        assert!(streams.iter_mut().all(|stream| echoes(stream, b"ping")));
        let status = pool.status();
        assert_eq!((status.delegates, status.delegates_waiting, status.threads), (ALL, 0, 0));
        drop(streams);
        assert_empty(&pool);
    });
}

#[test]
fn single_serves_one_after_another() {
    in_time(|| {
        let (pool, at) = started(Model::Single);
        let (mut first, mut second) = (connect(at), connect(at));
        assert!(echoes(&mut first, b"first"));
        second.write_all(b"second").expect("the kernel queues it");
        assert_eq!((pool.status().connections, pool.status().counts.accepted), (1, 1));
        drop(first);
        assert_eq!(common::read(&mut second, 6).as_deref(), Some(&b"second"[..]));
    });
}

#[test]
fn an_error_is_counted_and_a_panic_resets() {
    each(|model| {
        let (pool, at) = started(model);
        let mut stream = connect(at);
        stream.write_all(b"!").expect("it stands");
        assert_eq!(read_all(&mut stream).expect("an orderly end"), b"!");
        drop(stream);
        let mut stream = connect(at);
        stream.write_all(b"?").expect("it stands");
        assert_eq!(read_all(&mut stream).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        assert_empty(&pool);
        let counts = pool.status().counts;
        assert_eq!((counts.errors, counts.panics, counts.closed), (1, 1, 2));
        assert!(echoes(&mut connect(at), b"still there"));
    });
}

#[test]
fn a_drain_a_purge_and_a_kill_end_it() {
    each(|model| {
        let (pool, at) = started(model);
        let mut stream = connect(at);
        assert!(echoes(&mut stream, b"ping"));
        let drained = pool.drain(&Selector::All, Drain::within(PATIENCE));
        assert_eq!((drained.ended, drained.cut), (1, 0));
        assert_eq!(read_all(&mut stream).expect("an orderly end"), b"");
        let mut stream = connect(at);
        assert!(echoes(&mut stream, b"ping"));
        let id = pool.connections(&Selector::All)[0].id;
        assert_eq!(pool.kill(&Selector::Id(id)).cut, 1);
        assert_eq!(read_all(&mut stream).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        assert_empty(&pool);
    });
}

#[test]
fn a_handler_and_a_protocol_follow_each_other_while_both_have_connections() {
    in_time(|| {
        let (pool, at) = started(Model::Threads);
        let mut streams = Vec::new();
        for round in 0..6 {
            let behaviour = if round % 2 == 0 { Behaviour::from(Echo) } else { Behaviour::blocking(echo) };
            pool.reconfigure(pool.config().behaviour(behaviour)).expect("it changes");
            streams.push(connect(at));
            assert!(streams.iter_mut().all(|stream| echoes(stream, b"ping")));
        }
        let delegated = pool.connections(&Selector::All).iter().filter(|one| one.state == ConnectionState::Delegated).count();
        assert_eq!((delegated, pool.status().delegates, pool.status().threads), (3, 3, 3));
        drop(streams);
        assert_empty(&pool);
    });
}

#[test]
fn a_shutdown_asks_handlers_and_waits_for_them() {
    each(|model| {
        let (pool, at) = started(model);
        let mut stream = connect(at);
        assert!(echoes(&mut stream, b"ping"));
        let drained = pool.shutdown(Drain::within(Duration::from_secs(20)));
        assert_eq!((drained.asked, drained.ended), (1, 1));
        assert_eq!(read_all(&mut stream).expect("an orderly end"), b"");
        assert_eq!((pool.status().delegates, pool.status().threads), (0, 0));
    });
}
