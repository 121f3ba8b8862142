//! The model `tasks`: async handlers and listeners on a pool that goes on counting, draining and changing, and protocols beside
//! them.

mod awaiting;
mod listening;
mod members;

use crate::common::*;
use sockdrawer::tasks::{Connection, Info};
use sockdrawer::{
    Behaviour, Config, Drain, Input, Model, Note, Peer, Pool, Protocol, Selector, Service, Step,
    admission::{OnFull, Reject},
    observe::Event,
};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

fn tasks(behaviour: impl sockdrawer::IntoBehaviour) -> Config {
    let mut config = Config::accept(behaviour).model(Model::Tasks).loops(2).workers(1);
    // Clients here keep their end open.
    config.settings.linger = Duration::from_millis(50);
    config
}

async fn echo(mut connection: Connection, info: Info) {
    let mut bytes = vec![0; 65_536];
    loop {
        let read = tokio::select! {
            read = connection.read(&mut bytes) => read.unwrap_or(0),
            () = info.draining() => 0,
        };
        if read == 0 || connection.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Answers until its peer or the pool has enough, whatever the pool wishes.
async fn stubborn(mut connection: Connection, _info: Info) {
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = connection.read(&mut bytes).await {
        if connection.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Returns the status of the only connection, as the pool sees it.
fn only(pool: &Pool) -> sockdrawer::observe::ConnectionStatus {
    let mut all = pool.connections(&Selector::All);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_handler_serves_and_its_bytes_are_counted_while_it_runs_and_afterwards() {
    let (pool, at) = start(tasks(Behaviour::task(echo)));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"hello"));
    let large = vec![7; 3_000_000];
    let mut writer = client.try_clone().expect("a descriptor");
    let sent = large.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent));
    assert_eq!(read(&mut client, large.len()), Some(large));
    writing.join().expect("no panic").expect("all is taken");
    let seen = only(&pool);
    assert_eq!((seen.bytes_in, seen.bytes_out), (3_000_005, 3_000_005), "{seen:?}");
    assert_eq!(seen.peer, Some(client.local_addr().expect("an address")));
    client.shutdown(std::net::Shutdown::Write).expect("open");
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"");
    assert_empty(&pool);
    let counts = pool.status().counts;
    assert_eq!((counts.bytes_in, counts.bytes_out, counts.closed, counts.panics), (3_000_005, 3_000_005, 1, 0), "{counts:?}");
}

#[test]
fn who_drops_a_connection_with_unread_input_loses_none_of_its_answer() {
    async fn answer(mut connection: Connection, _info: Info) {
        let mut first = [0; 1];
        connection.read_exact(&mut first).await.expect("it sends");
        connection.write_all(&[b'a'; 50_000]).await.expect("there is room");
    }
    let (pool, at) = start(tasks(Behaviour::task(answer)));
    for _ in 0..50 {
        let mut client = connect(at);
        client.write_all(&[b'q'; 5_000]).expect("open");
        assert_eq!(read_all(&mut client).expect("no reset").len(), 50_000);
    }
    assert_empty(&pool);
}

#[test]
fn context_hears_of_a_drain_and_what_does_not_listen_is_purged() {
    let (pool, at) = start(tasks(Behaviour::task(echo)));
    let mut clients: Vec<_> = (0..20).map(|_| connect(at)).collect();
    assert!(clients.iter_mut().all(|client| echoes(client, b"here")));
    let drained = pool.drain(&Selector::All, Drain::within(PATIENCE));
    assert_eq!((drained.asked, drained.ended, drained.cut), (20, 20, 0));
    assert!(clients.iter_mut().all(|client| read_all(client).is_ok_and(|rest| rest.is_empty())));

    pool.reconfigure(pool.config().behaviour(Behaviour::task(stubborn))).expect("another handler");
    let mut client = connect(at);
    assert!(echoes(&mut client, b"here"));
    assert_eq!(pool.purge(&Selector::All, Duration::from_millis(50)).asked, 1);
    assert_eq!(read_all(&mut client).expect("no reset"), b"");
    assert_empty(&pool);
}

#[test]
fn notes_reach_a_task_in_order_and_end_with_its_connection() {
    async fn told(mut connection: Connection, info: Info) {
        let listener = info.clone();
        let (tells, hears) = tokio::sync::oneshot::channel();
        tokio::task::spawn_local(async move {
            let mut heard = 0;
            while listener.note().await.is_some() {
                heard += 1;
            }
            let _ = tells.send(heard);
        });
        let mut byte = [0];
        connection.read_exact(&mut byte).await.expect("the client says when");
        connection.write_all(b"!").await.expect("it reads");
        connection.read_exact(&mut byte).await.expect_err("its end");
        drop(connection);
        let heard = hears.await.expect("it counts");
        HEARD.lock().expect("no panic").push(heard);
    }
    async fn repeats(mut connection: Connection, info: Info) {
        connection.write_all(b"ready").await.expect("it reads");
        while let Some(note) = info.note().await {
            if connection.write_all(note.bytes().expect("bytes")).await.is_err() {
                return;
            }
        }
    }
    static HEARD: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let (pool, at) = start(tasks(Behaviour::task(repeats)));
    let mut client = connect(at);
    assert_eq!(read(&mut client, 5).as_deref(), Some(&b"ready"[..]));
    let numbers: Vec<u8> = (0..200).collect();
    for number in &numbers {
        pool.notify(&Selector::All, vec![*number]).expect("room");
    }
    assert_eq!(read(&mut client, 200), Some(numbers));
    drop(client);
    pool.purge(&Selector::All, Duration::ZERO);
    assert_empty(&pool);
    let counts = pool.status().counts;
    assert_eq!((counts.notes, counts.notes_dropped), (200, 0), "{counts:?}");

    pool.reconfigure(pool.config().behaviour(Behaviour::task(told))).expect("another handler");
    let mut client = connect(at);
    for _ in 0..3 {
        assert!(pool.wait(PATIENCE, |status| status.connections == 1));
        pool.notify(&Selector::All, *b"note").expect("room");
    }
    client.write_all(b"?").expect("open");
    assert_eq!(read(&mut client, 1).as_deref(), Some(&b"!"[..]));
    drop(client);
    assert!(pool.wait(PATIENCE, |_| *HEARD.lock().expect("no panic") == [3]), "{HEARD:?}");
    assert_empty(&pool);
}

/// Returns a handler that gives its connections to the test.
fn moved() -> (Behaviour, mpsc::Receiver<Connection>) {
    let (gives, takes) = mpsc::channel();
    let behaviour = Behaviour::task(move |connection, _info: Info| {
        gives.send(connection).expect("the test takes it");
        std::future::ready(())
    });
    (behaviour, takes)
}

#[test]
fn a_connection_moved_to_another_runtime_is_still_counted_listed_drained_purged_and_killed() {
    let (behaviour, takes) = moved();
    let (pool, at) = start(tasks(behaviour));
    let elsewhere = runtime();
    let next = |stubbornly: bool| {
        let mut client = connect(at);
        let connection = takes.recv_timeout(PATIENCE).expect("accepted");
        let info = connection.info().clone();
        let id = info.id();
        elsewhere.spawn(async move { if stubbornly { stubborn(connection, info).await } else { echo(connection, info).await } });
        assert!(echoes(&mut client, b"elsewhere"));
        (client, id)
    };
    let (mut client, id) = next(false);
    let seen = only(&pool);
    assert_eq!((seen.id, seen.bytes_in, seen.draining, pool.status().connections), (id, 9, false, 1), "{seen:?}");
    assert_eq!(pool.status().generations[0].connections, 1);
    assert_eq!(pool.drain(&Selector::All, Drain::within(PATIENCE)).ended, 1);
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"");

    let (mut client, _) = next(true);
    assert_eq!(pool.purge(&Selector::All, Duration::ZERO).asked, 1);
    let _ = read_all(&mut client);
    assert_empty(&pool);

    let (mut client, id) = next(true);
    assert_eq!(pool.kill(&Selector::Id(id)).cut, 1);
    assert!(read_all(&mut client).is_err(), "a kill is a reset");
    assert_empty(&pool);
    // Its holder sees its end too: nothing of it is left on that runtime.
    let counts = pool.status().counts;
    assert_eq!((counts.accepted, counts.closed), (3, 3), "{counts:?}");
}

#[test]
fn a_connection_held_by_nobody_who_reads_is_ended_by_kill_and_its_holder_learns_it() {
    let (behaviour, takes) = moved();
    let (pool, at) = start(tasks(behaviour).limit(1));
    let mut client = connect(at);
    let mut held = takes.recv_timeout(PATIENCE).expect("accepted");
    let (info, local) = (held.info().clone(), runtime());
    assert_eq!(pool.kill(&Selector::Id(info.id())).cut, 1);
    assert!(read_all(&mut client).is_err(), "a kill is a reset");
    local.block_on(async {
        info.draining().await;
        assert!(info.note().await.is_none());
        let failed = held.read_u8().await.expect_err("it was killed");
        assert_eq!(failed.kind(), std::io::ErrorKind::ConnectionAborted);
        let failed = held.write_all(b"x").await.expect_err("it was killed");
        assert_eq!(failed.kind(), std::io::ErrorKind::ConnectionAborted);
    });
    drop(held);
    let mut next = connect(at);
    drop(takes.recv_timeout(PATIENCE).expect("its permit is free"));
    assert_eq!(read_all(&mut next).expect("an orderly end"), b"");
    assert_empty(&pool);
}

#[test]
fn a_panicking_task_costs_its_connection_only() {
    async fn fragile(mut connection: Connection, _info: Info) {
        let mut byte = [0];
        while connection.read_exact(&mut byte).await.is_ok() {
            assert_ne!(byte, *b"x", "x is too much");
            connection.write_all(&byte).await.expect("it reads");
        }
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let (pool, at) = start(tasks(Behaviour::task(fragile)).loops(1).observer(move |event: &Event| {
        if let Event::ConnectionPanicked { message, .. } = event {
            tells.lock().expect("no panic").push(message.clone());
        }
    }));
    let mut others: Vec<_> = (0..5).map(|_| connect(at)).collect();
    let mut fragile = connect(at);
    assert!(others.iter_mut().all(|other| echoes(other, b"a")) && echoes(&mut fragile, b"b"));
    fragile.write_all(b"x").expect("open");
    assert!(read_all(&mut fragile).is_err(), "a reset");
    assert!(others.iter_mut().all(|other| echoes(other, b"c")));
    let status = pool.status();
    assert_eq!((status.counts.panics, status.restarts, status.connections), (1, 0, 5), "{status:#?}");
    let told = told.lock().expect("no panic");
    assert!(told.len() == 1 && told[0].contains("x is too much"), "{told:?}");
}

#[test]
fn handlers_limits_and_addresses_change_and_every_connection_stays() {
    async fn loud(mut connection: Connection, _info: Info) {
        while let Ok(byte) = connection.read_u8().await {
            if connection.write_u8(byte.to_ascii_uppercase()).await.is_err() {
                return;
            }
        }
    }
    let (pool, at) = start(tasks(Behaviour::task(stubborn)).limit(100));
    let mut old: Vec<_> = (0..30).map(|_| connect(at)).collect();
    assert!(old.iter_mut().all(|client| echoes(client, b"a")));
    let applied = pool.reconfigure(pool.config().behaviour(Behaviour::task(loud)).limit(40).loops(3)).expect("a change");
    assert_eq!(applied.generation, 2);
    let mut new: Vec<_> = (0..10).map(|_| connect(at)).collect();
    for client in &mut new {
        client.write_all(b"b").expect("open");
        assert_eq!(read(client, 1).as_deref(), Some(&b"B"[..]));
    }
    pool.reconfigure(pool.config().behaviour(Echo)).expect("a protocol");
    pool.reconfigure(pool.config().limit(41)).expect("one more");
    let mut protocol = connect(at);
    assert!(echoes(&mut protocol, b"p"));
    assert!(old.iter_mut().all(|client| echoes(client, b"c")));
    let live: Vec<_> = pool.status().generations.iter().map(|generation| (generation.id, generation.connections)).collect();
    assert_eq!(live, [(1, 30), (2, 10), (3, 1)]);
    let mut rejecting = pool.config();
    rejecting = rejecting.on_full(OnFull::Reject(Reject::Fin));
    pool.reconfigure(rejecting).expect("a policy");
    assert_eq!(read_all(&mut connect(at)).expect("an orderly end"), b"");
    drop((old, new, protocol));
    assert_empty(&pool);
}

/// Service that asks the runtime that it runs in, and answers by its handle.
struct Asks;

impl Service for Asks {
    type Protocol = Asks;
    fn open(&self, _peer: &Peer) -> Asks {
        Asks
    }
}

impl Protocol for Asks {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut sockdrawer::Context<'_>) -> Step {
        let (question, handle) = (input.bytes().to_vec(), cx.handle());
        input.take_all();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            let answer: Arc<[u8]> = question.into();
            handle.notify(Note::from(answer)).expect("room");
        });
        Step::Continue
    }

    fn notified(&mut self, note: Note, cx: &mut sockdrawer::Context<'_>) -> Step {
        cx.send(note.bytes().unwrap_or_default());
        Step::Continue
    }
}

#[test]
fn a_protocol_may_spawn_tasks_that_answer_by_its_handle() {
    let (pool, at) = start(tasks(Asks));
    let mut clients: Vec<_> = (0..10).map(|_| connect(at)).collect();
    for round in 0..100_u32 {
        assert!(clients.iter_mut().all(|client| echoes(client, &round.to_le_bytes())));
    }
    drop(clients);
    assert_empty(&pool);
}

/// Service that answers after as many milliseconds as it is told, by its timer.
struct Late(Option<Instant>);

impl Service for Late {
    type Protocol = Late;
    fn open(&self, _peer: &Peer) -> Late {
        Late(None)
    }
}

impl Protocol for Late {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut sockdrawer::Context<'_>) -> Step {
        let milliseconds = u64::from(input.bytes()[0]);
        input.take_all();
        self.0 = Some(Instant::now() + Duration::from_millis(milliseconds));
        cx.set_timer(Duration::from_millis(milliseconds));
        Step::Continue
    }

    fn timeout(&mut self, cx: &mut sockdrawer::Context<'_>) -> Step {
        let due = self.0.take().expect("set");
        cx.send(if Instant::now() < due { b"early" } else { b"in time" });
        Step::Close
    }
}

#[test]
fn timers_are_never_early_and_a_sleeping_loop_does_not_turn() {
    let (pool, at) = start(tasks(Late(None)).loops(1));
    let began = Instant::now();
    // Later deadlines first, so that each is set while a farther one is.
    let waits: Vec<_> = (0..40_u8).rev().map(|step| step * 5 + 3).collect();
    let mut clients: Vec<_> = waits.iter().map(|_| connect(at)).collect();
    for (client, wait) in clients.iter_mut().zip(&waits) {
        client.write_all(&[*wait]).expect("open");
    }
    for client in clients.iter_mut().rev() {
        assert_eq!(read_all(client).expect("an orderly end"), b"in time");
    }
    assert!(began.elapsed() >= Duration::from_millis(198));
    drop(clients);
    assert_empty(&pool);
    let turns = pool.status().counts.turns;
    // waits because: a loop that spins would turn a hundred thousand times meanwhile, and nothing tells that it does not.
    std::thread::sleep(Duration::from_millis(200));
    let turned = pool.status().counts.turns - turns;
    assert!(turned < 50, "{turned} turns of a loop that has nothing to do");
}

#[test]
fn a_task_that_blocks_its_thread_is_seen_as_a_loop_that_hangs_and_a_busy_one_is_not() {
    const STUCK_AFTER: Duration = Duration::from_secs(1);
    let (tells, hears) = mpsc::channel();
    let hears = Mutex::new(hears);
    let handler = Arc::new(move || hears.lock().expect("no panic").recv_timeout(PATIENCE).expect("it is told of"));
    let behaviour = Behaviour::task(move |mut connection: Connection, _info: Info| {
        let block = handler.clone();
        async move {
            if connection.read_u8().await.expect("the client says what") == b'b' {
                block();
            } else {
                let until = Instant::now() + 2 * STUCK_AFTER;
                while Instant::now() < until {
                    tokio::task::yield_now().await;
                }
            }
            connection.write_u8(b'!').await.expect("open");
        }
    });
    let stuck = Arc::new(Mutex::new(0));
    let counts = stuck.clone();
    let mut config = tasks(behaviour).loops(1).observer(move |event: &Event| {
        if let Event::LoopStuck { .. } = event {
            *counts.lock().expect("no panic") += 1;
            tells.send(()).expect("the handler waits");
        }
    });
    config.stuck_after = STUCK_AFTER;
    let (pool, at) = start(config);
    for (kind, expected) in [(b"s", 0), (b"b", 1)] {
        let mut client = connect(at);
        client.write_all(kind).expect("open");
        assert_eq!(read(&mut client, 1).as_deref(), Some(&b"!"[..]));
        assert_eq!(*stuck.lock().expect("no panic"), expected, "{kind:?}");
    }
    assert!(pool.wait(PATIENCE, |status| !status.loops[0].stuck));
}

#[test]
fn a_loop_that_crashes_ends_its_tasks_connections_and_is_replaced() {
    let (behaviour, takes) = moved();
    let (pool, at) = start(tasks(behaviour).loops(1));
    let mut client = connect(at);
    let held = takes.recv_timeout(PATIENCE).expect("accepted");
    assert!(sockdrawer::testing::crash_loop(&pool, 0));
    assert!(pool.wait(PATIENCE, |status| status.restarts == 1));
    assert!(held.info().is_draining(), "its holder hears of it");
    let _ = client.read(&mut [0]).map_err(|_| "a reset");
    drop(held);
    assert_empty(&pool);
    let mut next = connect(at);
    let connection = takes.recv_timeout(PATIENCE).expect("accepted by the next loop");
    drop(connection);
    assert_eq!(read_all(&mut next).expect("an orderly end"), b"");
    assert_empty(&pool);
}

#[test]
fn handlers_run_on_connections_that_a_pool_made() {
    async fn asks(mut connection: Connection, info: Info) {
        assert_eq!(info.side(), sockdrawer::Side::Connected);
        connection.write_all(b"question").await.expect("the server reads");
        let mut answer = [0; 8];
        connection.read_exact(&mut answer).await.expect("the server answers");
        assert_eq!(&answer, b"question");
        info.draining().await;
    }
    let (server, at) = start(tasks(Behaviour::task(stubborn)));
    let connecting = sockdrawer::connecting::Connecting::to([at]).keep(25);
    let client = Pool::start(Config::connect(Behaviour::task(asks), connecting).model(Model::Tasks).loops(1)).expect("it starts");
    let answered = || server.connections(&Selector::All).iter().map(|one| one.bytes_out).sum::<u64>();
    assert!(server.wait(PATIENCE, |_| answered() == 25 * 8), "{:#?}", server.status());
    client.suspend();
    let drained = client.drain(&Selector::All, Drain::within(PATIENCE));
    assert_eq!((drained.asked, drained.ended, drained.cut), (25, 25, 0));
    assert_eq!(client.status().counts.panics, 0);
    assert_empty(&client);
    assert_empty(&server);
}

#[test]
fn what_a_model_cannot_run_is_refused_by_name() {
    let refused = |config: Config| Pool::start(config).expect_err("refused").to_string();
    let handler = refused(Config::accept(Behaviour::task(echo)));
    assert!(handler.contains("loops") && handler.contains("async") && handler.contains("tasks"), "{handler}");
    let listener = refused(Config::accept(Behaviour::listener()));
    assert!(listener.contains("loops") && listener.contains("tasks"), "{listener}");
    let (pool, _) = start(tasks(Echo).model(Model::Loops));
    assert!(pool.reconfigure(pool.config().behaviour(Behaviour::task(echo))).is_err(), "and while it runs");
}

/// Value that panics when it is dropped.
struct Bomb(Option<Connection>);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped with {:?}", self.0.as_ref().map(Connection::info));
    }
}

#[test]
fn a_panic_in_the_drop_of_a_task_holds_up_neither_a_replacement_nor_an_end() {
    in_time(|| {
        let armed = |connection, _| async move {
            let _bomb = Bomb(Some(connection));
            std::future::pending::<()>().await;
        };
        let (pool, at) = start(tasks(Behaviour::task(armed)).loops(1));
        let mut first = connect(at);
        assert!(pool.wait(PATIENCE, |status| status.counts.delegated == 1));
        assert!(sockdrawer::testing::crash_loop(&pool, 0));
        assert!(pool.wait(PATIENCE, |status| status.restarts == 1 && status.connections == 0), "{:#?}", pool.status());
        let _ = first.read(&mut [0]).map_err(|_| "a reset");
        let _second = connect(at);
        assert!(pool.wait(PATIENCE, |status| status.counts.delegated == 2));
        assert_eq!(pool.kill(&Selector::Id(only(&pool).id)).cut, 1, "else its task would have the time of a purge");
        let began = Instant::now();
        pool.shutdown(Drain::within(Duration::ZERO));
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        // To tell of the panic takes its time.
        assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
        let counts = pool.status().counts;
        assert_eq!((counts.accepted, counts.closed), (2, 2));
    });
}

#[test]
fn an_abort_is_a_reset_and_counted() {
    async fn abort(mut connection: Connection, _info: Info) {
        connection.read_u8().await.expect("it sends");
        connection.write_all(b"half an ans").await.expect("there is room");
        connection.abort();
    }
    let (pool, at) = start(tasks(Behaviour::task(abort)));
    let mut client = connect(at);
    client.write_all(b"?").expect("open");
    assert_reset(&mut client);
    assert_empty(&pool);
    let counts = pool.status().counts;
    assert_eq!((counts.aborted, counts.closed), (1, 1), "{counts:?}");
}

#[test]
fn the_halves_of_a_connection_live_in_two_tasks_and_end_one_after_the_other() {
    async fn split(connection: Connection, _info: Info) {
        let (mut reader, mut writer) = connection.into_split();
        let writing = tokio::task::spawn_local(async move { writer.write_all(b"all that I say").await });
        writing.await.expect("no panic").expect("it reads");
        // The peer has seen the end of that half by now, and this one goes on.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.expect("an orderly end");
        assert_eq!(rest, b"I heard you");
    }
    let (pool, at) = start(tasks(Behaviour::task(split)));
    let mut client = connect(at);
    assert_eq!(read_all(&mut client).expect("an orderly end"), b"all that I say");
    assert_eq!(pool.status().connections, 1);
    client.write_all(b"I heard you").expect("open");
    drop(client);
    assert_empty(&pool);
    let counts = pool.status().counts;
    assert_eq!((counts.crashed, counts.cut, counts.closed), (0, 0, 1), "{counts:?}");
}
