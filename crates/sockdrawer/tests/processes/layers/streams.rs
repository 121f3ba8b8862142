//! Bytes that wait: for a slow reader, for the rest of a record, for the other half.

use super::models::{runtime, under};
use super::records::Client;
use crate::common::{PATIENCE, assert_empty, in_time, start};
use sockdrawer::blocking::{Connection, Wakeup};
use sockdrawer::tasks::{self, Info};
use sockdrawer::{
    After, Behaviour, Config, Context, Delegate, Input, Model, Note, Peer, Protocol, Selector, Service, Step, layer::Layer,
};
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Number of bytes that is more than the buffers of a new socket take.
const LARGE: usize = 3_000_000;

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at * 7 % 253) as u8).collect()
}

/// Checks that what the layer still has goes to the peer, though the handler ends as soon as its last write returns.
pub(crate) fn a_slow_reader_gets_all() {
    in_time(|| {
        let blocking = Behaviour::blocking(|connection| {
            connection.read_exact(&mut [0])?;
            connection.write_all(&large())
        });
        async fn write(mut connection: tasks::Connection, _info: Info) {
            connection.read_exact(&mut [0]).await.expect("it sends");
            connection.write_all(&large()).await.expect("it reads");
        }
        for (model, behaviour) in [(Model::Threads, blocking), (Model::Tasks, Behaviour::task(write))] {
            for depth in [1, 2] {
                let (pool, at) = start(Config::accept(under(behaviour.clone(), depth)).model(model));
                let mut client = Client::connect(at, depth);
                client.send(b"!");
                // Its buffers are full before it reads on.
                assert!(pool.wait(PATIENCE, |status| status.counts.delegated == 1));
                let (all, ended) = client.read_all().expect("an orderly end");
                assert!(all == large() && ended, "{model} {depth}: {} of {LARGE}, {ended}", all.len());
                drop(client);
                assert_empty(&pool);
            }
        }
    });
}

/// Writes until there is no room, so that a part of the last record is unsent. Returns the number of bytes that were taken.
async fn fill(writer: &mut (impl AsyncWrite + Unpin)) -> usize {
    let mut written = 0;
    poll_fn(|cx| {
        while let Poll::Ready(count) = Pin::new(&mut *writer).poll_write(cx, &[b'x'; 10_000]) {
            written += count.expect("the peer is there");
        }
        Poll::Ready(written)
    })
    .await
}

/// Checks that a task that reads sends what another, or itself, has written; also when the half that wrote is gone, and then the
/// end.
pub(crate) fn unsent_is_sent_by_the_reader() {
    in_time(|| {
        let (told, filled) = mpsc::channel();
        let (split_told, split_read) = (told.clone(), Arc::new(Mutex::new(Vec::new())));
        let whole = move |mut connection: tasks::Connection, _info: Info| {
            let told = told.clone();
            async move {
                told.send(fill(&mut connection).await).expect("the test waits");
                connection.read_exact(&mut [0; 8]).await.expect("it answers");
            }
        };
        let read = split_read.clone();
        let halves = move |connection: tasks::Connection, _info: Info| {
            let (told, read) = (split_told.clone(), read.clone());
            async move {
                let (mut reader, mut writer) = connection.into_split();
                let reading = tokio::task::spawn_local(async move {
                    let mut all = Vec::new();
                    reader.read_to_end(&mut all).await.map(|_| all)
                });
                // The other task waits for input from now on.
                tokio::task::yield_now().await;
                let written = fill(&mut writer).await;
                drop(writer);
                told.send(written).expect("the test waits");
                let all = reading.await.expect("no panic").expect("an orderly end");
                *read.lock().expect("no panic") = all;
            }
        };
        for behaviour in [Behaviour::task(whole), Behaviour::task(halves)] {
            let (pool, at) = start(Config::accept(under(behaviour, 1)).model(Model::Tasks));
            let mut client = Client::connect(at, 1);
            let written = filled.recv_timeout(PATIENCE).expect("it writes until there is no room");
            assert_eq!(client.read(written).expect("no part stays behind").len(), written);
            client.send_split(b"the last");
            client.finish();
            assert_eq!(client.read_all().expect("an orderly end"), (vec![], true));
            assert_empty(&pool);
        }
        assert_eq!(*split_read.lock().expect("no panic"), b"the last");
    });
}

/// Checks that a half that writes may be dropped first: the peer sees the end, and the other half reads on.
pub(crate) fn halves() {
    in_time(|| {
        let (told, tells) = mpsc::channel();
        let handler = move |connection: tasks::Connection, _info: Info| {
            let told = told.clone();
            async move {
                let (mut reader, mut writer) = connection.into_split();
                let writing = tokio::task::spawn_local(async move { writer.write_all(&[b'x'; 1_000_000]).await });
                let mut all = Vec::new();
                let read = reader.read_to_end(&mut all).await.map_err(|error| error.kind());
                writing.await.expect("no panic").expect("the peer reads");
                told.send((read, all)).expect("the test waits");
            }
        };
        let (pool, at) = start(Config::accept(under(Behaviour::task(handler), 1)).model(Model::Tasks));
        let mut client = Client::connect(at, 1);
        client.send_split(&[b'a'; 30_000]);
        let (all, ended) = client.read_all().expect("an end");
        assert!(all == [b'x'; 1_000_000] && ended, "{}, {ended}", all.len());
        // The direction of the client is open as ever.
        client.send_split(b"the last");
        client.finish();
        let (read, all) = tells.recv_timeout(PATIENCE).expect("it read the end");
        assert_eq!((read, all.len(), &all[30_000..]), (Ok(30_008), 30_008, &b"the last"[..]));
        assert_empty(&pool);
    });
}

/// Checks that a part of a record wakes neither a read nor a wait, and that a note does.
pub(crate) fn half_a_record_is_no_input() {
    in_time(|| {
        let (told, tells) = mpsc::channel();
        let handler = move |connection: &mut Connection| {
            loop {
                let woken = connection.wait()?;
                told.send(woken).expect("the test waits");
                match woken {
                    Wakeup::Input => {
                        let mut five = [0; 5];
                        connection.read_exact(&mut five)?;
                        connection.write_all(&five)?;
                    }
                    Wakeup::Note => _ = connection.take_note(),
                    _ => return connection.write_all(b"bye"),
                }
            }
        };
        for model in [Model::Threads, Model::Single] {
            let (pool, at) = start(Config::accept(under(Behaviour::blocking(handler.clone()), 1)).model(model));
            let mut client = Client::connect(at, 1);
            let update = client.update();
            let record = client.record(b"hello");
            for cut in [1, 4, record.len() - 1] {
                let record = if cut == 1 { record.clone() } else { client.record(b"hello") };
                let before = if cut == 1 { &update[..] } else { &[] };
                client.write(&[before, &record[..cut]].concat());
                pool.notify(&Selector::All, *b"note").expect("there is room");
                assert_eq!(tells.recv_timeout(PATIENCE), Ok(Wakeup::Note), "{model} {cut}");
                client.write(&record[cut..]);
                assert_eq!(tells.recv_timeout(PATIENCE), Ok(Wakeup::Input), "{model} {cut}");
                assert_eq!(client.read(5).expect("an answer"), b"hello");
            }
            // All that was received comes before the request to end: two answers to one segment.
            let both = [client.record(b"first"), client.record(b"again")].concat();
            client.write(&both);
            assert_eq!(client.read(10).expect("an answer"), b"firstagain");
            pool.drain(&Selector::All, sockdrawer::Drain::within(PATIENCE));
            assert_eq!(client.read_all().expect("an orderly end"), (b"bye".to_vec(), true));
            assert_eq!(tells.iter().take(3).collect::<Vec<_>>(), [Wakeup::Input, Wakeup::Input, Wakeup::Draining]);
        }
        async fn five(mut connection: tasks::Connection, info: Info) {
            let (mut five, mut count) = ([0; 5], 0);
            while count < 5 {
                tokio::select! {
                    read = connection.read(&mut five[count..]) => count += read.expect("it sends"),
                    note = info.note() => {
                        assert!(note.is_some());
                        connection.write_all(b"note").await.expect("it reads");
                    }
                }
            }
            connection.write_all(&five).await.expect("it reads");
        }
        let (pool, at) = start(Config::accept(under(Behaviour::task(five), 1)).model(Model::Tasks));
        let mut client = Client::connect(at, 1);
        let record = client.record(b"hello");
        for byte in record.chunks(1).take(record.len() - 1) {
            client.write(byte);
            pool.notify(&Selector::All, *b"note").expect("there is room");
            assert_eq!(client.read(4).expect("an answer"), b"note");
        }
        client.write(&record[record.len() - 1..]);
        assert_eq!(client.read_all().expect("an orderly end"), (b"hello".to_vec(), true));
    });
}

/// Checks that code that keeps a connection, given it with half a record, waits for nothing in a look at it, and finds what came
/// whole.
pub(crate) fn a_look_at_half_a_record_finds_nothing() {
    #[derive(Clone)]
    struct Kept(mpsc::Sender<Connection>);
    impl Service for Kept {
        type Protocol = Kept;
        fn open(&self, _peer: &Peer) -> Kept {
            self.clone()
        }
    }
    impl Protocol for Kept {
        fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            input.take_all();
            let kept = self.0.clone();
            Step::Delegate(Delegate::watched(move |connection| _ = kept.send(connection), |_| {}))
        }
    }
    in_time(|| {
        let (keep, kept) = mpsc::channel();
        let (_pool, at) = start(Config::accept(Layer::new(super::records::Recording, Kept(keep))));
        let mut client = Client::connect(at, 1);
        let (first, second) = (client.record(b"first"), client.record(b"again"));
        client.write(&[&first[..], &second[..4]].concat());
        let mut connection = kept.recv_timeout(PATIENCE).expect("it is given away");
        assert_eq!(connection.wakeup(), None);
        client.write(&second[4..]);
        assert_eq!(connection.wait().expect("it stands"), Wakeup::Input);
        assert_eq!(connection.wakeup(), Some(Wakeup::Input));
        let mut again = [0; 5];
        connection.read_exact(&mut again).expect("it is there");
        assert_eq!((&again, connection.wakeup()), (b"again", None));
        client.finish();
        assert_eq!(connection.wait().expect("it stands"), Wakeup::Input);
        assert_eq!((connection.wakeup(), connection.read(&mut again).ok()), (Some(Wakeup::Input), Some(0)));
    });
}

/// Checks that where a write that timed out left a part of a record, the lease returns to its protocol or ends.
pub(crate) fn what_a_write_left() {
    #[derive(Clone)]
    struct Writer(mpsc::Sender<()>);
    impl Service for Writer {
        type Protocol = Writer;
        fn open(&self, _peer: &Peer) -> Writer {
            self.clone()
        }
    }
    impl Protocol for Writer {
        fn received(&mut self, input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
            let (returns, told) = (input.take_all() == b"r", self.0.clone());
            Step::Delegate(Delegate::new(move |connection| {
                connection.set_write_timeout(Some(Duration::from_millis(20)));
                let mut written = 0;
                let error = loop {
                    match connection.write(&[b'x'; 10_000]) {
                        Ok(count) => written += count,
                        Err(error) => break error.kind(),
                    }
                };
                assert_eq!(error, ErrorKind::TimedOut);
                told.send(()).expect("the test waits");
                let note = format!("{written} were written");
                if returns { After::Return(Note::from(note.into_bytes())) } else { After::End }
            }))
        }
        fn notified(&mut self, note: Note, cx: &mut Context<'_>) -> Step {
            cx.send(note.bytes().expect("bytes"));
            Step::Close
        }
    }
    in_time(|| {
        let (told, timed_out) = mpsc::channel();
        for first in [b"r", b"e"] {
            let (pool, at) = start(Config::accept(Layer::new(super::records::Recording, Writer(told.clone()))));
            let mut client = Client::connect(at, 1);
            client.send(first);
            timed_out.recv_timeout(PATIENCE).expect("it writes until there is no room");
            let (all, ended) = client.read_all().expect("an orderly end");
            let count = all.iter().take_while(|byte| **byte == b'x').count();
            let rest = String::from_utf8_lossy(&all[count..]).into_owned();
            let expected = if first == b"r" { format!("{count} were written") } else { String::new() };
            assert!(rest == expected && ended && count > 100_000, "{count}, {rest}, {ended}");
            drop(client);
            assert_empty(&pool);
        }
    });
}

/// Answers that nobody reads are not kept without bound.
pub(crate) fn answers_of_the_filter() {
    in_time(|| {
        let (told, tells) = mpsc::channel();
        let handler = move |connection: tasks::Connection, _info: Info| {
            let told = told.clone();
            async move {
                let mut connection = connection;
                let error = connection.read(&mut [0; 100]).await.map_err(|error| error.kind());
                told.send(error).expect("the test waits");
            }
        };
        let (pool, at) = start(Config::accept(under(Behaviour::task(handler), 1)).model(Model::Tasks));
        let mut polite = Client::connect(at, 1);
        for _ in 0..10 {
            let updates: Vec<u8> = (0..1000).flat_map(|_| polite.update()).collect();
            polite.write(&updates);
        }
        polite.send(b"x");
        assert_eq!(tells.recv_timeout(PATIENCE), Ok(Ok(1)));
        let mut flood = Client::connect(at, 1);
        let updates: Vec<u8> = (0..10_000).flat_map(|_| flood.update()).collect();
        // Records are not repeated: each of them has its number. The connection is reset before all are made.
        let mut refused = flood.stream.write_all(&updates);
        while refused.is_ok() {
            let updates: Vec<u8> = (0..10_000).flat_map(|_| flood.update()).collect();
            refused = flood.stream.write_all(&updates);
        }
        assert_eq!(tells.recv_timeout(PATIENCE), Ok(Err(ErrorKind::InvalidData)));
        drop((polite, flood));
        assert_empty(&pool);
        assert_eq!(pool.status().counts.aborted, 1);
        drop(runtime());
    });
}
