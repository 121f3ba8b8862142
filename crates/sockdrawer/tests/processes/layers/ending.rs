//! Ends of connections under layers, and their beginnings.

use super::models::{echo, echo_async, under};
use super::records::Client;
use crate::common::{PATIENCE, assert_empty, assert_reset, in_time, start};
use sockdrawer::blocking::Connection;
use sockdrawer::tasks::{self, Info};
use sockdrawer::{Behaviour, Config, Drain, Model, Selector};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Result of a handler's read, which is told to the test.
type Read5 = Result<usize, ErrorKind>;

fn readers(told: &mpsc::Sender<Vec<Read5>>) -> [(Model, Behaviour); 2] {
    let (first, second) = (told.clone(), told.clone());
    let blocking = move |connection: &mut Connection| {
        let reads = (0..3).map(|_| connection.read(&mut [0; 5]).map_err(|error| error.kind())).collect();
        first.send(reads).expect("the test waits");
        Ok(())
    };
    let task = move |mut connection: tasks::Connection, _info: Info| {
        let told = second.clone();
        async move {
            let mut reads = Vec::new();
            for _ in 0..3 {
                reads.push(connection.read(&mut [0; 5]).await.map_err(|error| error.kind()));
            }
            told.send(reads).expect("the test waits");
        }
    };
    [(Model::Threads, Behaviour::blocking(blocking)), (Model::Tasks, Behaviour::task(task))]
}

pub(crate) fn cut_and_forged() {
    in_time(|| {
        let (told, tells) = mpsc::channel();
        for (model, behaviour) in readers(&told) {
            for depth in [1, 2] {
                let (pool, at) = start(Config::accept(under(behaviour.clone(), depth)).model(model));
                let reads = || tells.recv_timeout(PATIENCE).expect("it has read");
                let mut cut = Client::connect(at, depth);
                cut.send(b"four");
                cut.stream.shutdown(Shutdown::Write).expect("it stands");
                assert_eq!(reads(), [Ok(4), Err(ErrorKind::UnexpectedEof), Err(ErrorKind::UnexpectedEof)], "{model} {depth}");
                assert_eq!(cut.read_all().expect("an orderly end"), (vec![], true));
                let mut forged = Client::connect(at, depth);
                let (good, mut bad) = (forged.record(b"four"), forged.record(b"more"));
                *bad.last_mut().expect("not empty") ^= 1;
                forged.write(&[good, bad].concat());
                assert_eq!(reads(), [Ok(4), Err(ErrorKind::InvalidData), Err(ErrorKind::InvalidData)], "{model} {depth}");
                assert_reset(&mut forged.stream);
                let mut ended = Client::connect(at, depth);
                ended.send(b"four");
                ended.finish();
                assert_eq!(reads(), [Ok(4), Ok(0), Ok(0)], "{model} {depth}");
                assert_eq!(ended.read_all().expect("an orderly end"), (vec![], true));
                assert_empty(&pool);
                assert_eq!(pool.status().counts.aborted, 1);
            }
        }
    });
}

pub(crate) fn handshake() {
    in_time(|| {
        let (told, _tells) = mpsc::channel();
        for (model, behaviour) in readers(&told) {
            let (pool, at) = start(Config::accept(under(behaviour, 1)).model(model));
            let mut silent = crate::common::connect(at);
            let mut wrong = crate::common::connect(at);
            wrong.write_all(b"GET / HTTP/1.1").expect("it stands");
            assert_reset(&mut wrong);
            assert_reset(&mut silent);
            assert_empty(&pool);
            assert_eq!((pool.status().counts.delegated, pool.status().counts.aborted), (0, 2), "{model}");
        }
    });
}

pub(crate) fn drains() {
    in_time(|| {
        let stubborn = |connection: &mut Connection| {
            let mut bytes = [0; 100];
            while let count @ 1.. = connection.read(&mut bytes)? {
                connection.write_all(&bytes[..count])?;
            }
            Ok(())
        };
        let kinds = [(Model::Threads, Behaviour::blocking(echo)), (Model::Tasks, Behaviour::task(echo_async))];
        for (model, behaviour) in kinds {
            let (pool, at) = start(Config::accept(under(behaviour, 1)).model(model));
            let mut client = Client::connect(at, 1);
            client.send(b"here");
            assert_eq!(client.read(4).expect("an answer"), b"here");
            let drained = pool.drain(&Selector::All, Drain::within(PATIENCE));
            assert_eq!((drained.asked, drained.ended, drained.cut), (1, 1, 0), "{model}");
            assert_eq!(client.read_all().expect("an orderly end"), (vec![], true));
            assert_empty(&pool);
        }
        let (pool, at) = start(Config::accept(under(Behaviour::blocking(stubborn), 1)).model(Model::Threads));
        let client = || {
            let mut client = Client::connect(at, 1);
            client.send(b"here");
            assert_eq!(client.read(4).expect("an answer"), b"here");
            client
        };
        let mut purged = client();
        let told = pool.purge(&Selector::All, Duration::from_millis(50));
        assert_eq!(told.asked, 1);
        match purged.read_all() {
            Ok(read) => assert_eq!(read, (vec![], false), "it was told to end and did not say goodbye"),
            // Its loop had no CPU for 50 ms after the deadline.
            Err(error) => assert_eq!(told.cut, 1, "{error}"),
        }
        let mut drained = client();
        // It has answered all, so the end is no cut; what it read last is answered.
        pool.drain(&Selector::All, Drain::within(Duration::from_millis(50)));
        assert!(!drained.read_all().is_ok_and(|(_, goodbye)| goodbye));
        let mut killed = client();
        assert_eq!(pool.kill(&Selector::All).cut, 1);
        assert_reset(&mut killed.stream);
        assert_empty(&pool);
    });
}

pub(crate) fn panics() {
    in_time(|| {
        let blocking = Behaviour::blocking(|connection| {
            connection.read_exact(&mut [0; 2])?;
            connection.write_all(b"soon")?;
            connection.read_exact(&mut [0; 2])?;
            panic!("as asked")
        });
        async fn task(mut connection: tasks::Connection, _info: Info) {
            use tokio::io::AsyncWriteExt;
            connection.read_exact(&mut [0; 2]).await.expect("it sends");
            connection.write_all(b"soon").await.expect("it reads");
            connection.read_exact(&mut [0; 2]).await.expect("it sends");
            panic!("as asked")
        }
        for (model, behaviour) in [(Model::Threads, blocking), (Model::Tasks, Behaviour::task(task))] {
            let (pool, at) = start(Config::accept(under(behaviour, 1)).model(model));
            let mut client = Client::connect(at, 1);
            client.send(b"go");
            assert_eq!(client.read(4).expect("an answer"), b"soon");
            client.send(b"on");
            assert_reset(&mut client.stream);
            assert_empty(&pool);
            assert_eq!(pool.status().counts.panics, 1, "{model}");
        }
    });
}
