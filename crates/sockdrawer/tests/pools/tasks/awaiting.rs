//! The methods of a pool that async code awaits.

use super::{echo, runtime, stubborn, tasks};
use crate::common::*;
use sockdrawer::tasks::{Connection, Info};
use sockdrawer::{Behaviour, Config, Drain, Drained, Pool, Selector};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

/// Returns a runtime with one thread: what blocks there blocks all.
fn single_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn no_thread_of_the_runtime_waits_for_a_drain() {
    const DEADLINE: Duration = Duration::from_millis(400);
    let (pool, at) = start(tasks(Behaviour::task(stubborn)));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"here"));
    let (drained, ticks) = single_thread().block_on(async {
        let mut drain = std::pin::pin!(pool.drain_async(Selector::All, Drain::within(DEADLINE)));
        let mut ticks = 0;
        loop {
            tokio::select! {
                drained = &mut drain => return (drained, ticks),
                // waits because: what is shown is that the runtime's timers go on
                () = tokio::time::sleep(DEADLINE / 40) => ticks += 1,
            }
        }
    });
    assert_eq!(drained.asked, 1);
    // The handler may learn after the drain's end that its connection is gone, and has its permit until then.
    assert!(pool.wait(PATIENCE, |status| status.connections == 0), "{:#?}", pool.status());
    assert!(ticks >= 4, "the runtime turned {ticks} times in the meantime");
}

#[test]
fn a_change_is_awaited_with_its_error_and_its_panic() {
    let (pool, _) = start(tasks(Behaviour::task(echo)));
    let runtime = single_thread();
    let applied = runtime.block_on(pool.update_async(|config| config.limit(7))).expect("it makes sense");
    assert_eq!((applied.revision, pool.status().limit), (2, 7));
    let refused = runtime.block_on(pool.update_async(|config| config.listen("nowhere"))).expect_err("no address");
    assert_eq!(refused.to_string(), "listeners: the address \"nowhere\" has no port: write HOST:PORT, such as 127.0.0.1:9000");
    let panics = std::panic::AssertUnwindSafe(|| runtime.block_on(pool.update_async(|_| panic!("no such config"))));
    let panic = std::panic::catch_unwind(panics).expect_err("it panics here");
    assert_eq!(panic.downcast_ref(), Some(&"no such config"));
    assert_eq!(pool.status().revision, 2);
}

#[test]
fn a_future_that_was_never_polled_does_nothing_and_one_that_was_goes_on() {
    let (pool, at) = start(tasks(Behaviour::task(echo)));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"here"));
    let runtime = runtime();
    drop(pool.drain_async(Selector::All, Drain::within(PATIENCE)));
    drop(pool.update_async(|config| config.limit(7)));
    assert!(echoes(&mut client, b"still"));
    let (begins, begun) = mpsc::channel();
    let change = move |config: Config| {
        begins.send(()).expect("the test waits");
        config.limit(9)
    };
    let task = runtime.spawn(pool.update_async(change));
    begun.recv_timeout(PATIENCE).expect("it begins");
    task.abort();
    assert!(pool.wait(PATIENCE, |status| status.limit == 9), "{:?}", pool.status());
}

/// Drains or shuts down the pool that it runs on, once it has read a byte.
#[derive(Clone, Default)]
struct Ends {
    pool: Arc<OnceLock<Pool>>,
    drained: Arc<Mutex<Option<mpsc::Sender<Drained>>>>,
}

#[test]
fn a_handler_may_drain_and_shut_down_its_own_pool() {
    for shuts_down in [false, true] {
        let ends = Ends::default();
        let (tell, told) = mpsc::channel();
        *ends.drained.lock().expect("no panic") = Some(tell);
        let shared = ends.clone();
        let handler = move |connection: Connection, _info: Info| {
            let ends = shared.clone();
            async move {
                let pool = ends.pool.get().expect("it was started").clone();
                let tell = ends.drained.lock().expect("no panic").take();
                // The connection ends before the drain that waits for it.
                drop(connection);
                let how = Drain::within(PATIENCE);
                let drained =
                    if shuts_down { pool.shutdown_async(how).await } else { pool.drain_async(Selector::All, how).await };
                // A shutdown ends the runtime of this handler, maybe before this.
                let _ = tell.map(|tell| tell.send(drained));
            }
        };
        let (pool, at) = start(tasks(Behaviour::task(handler)).loops(1));
        assert!(ends.pool.set(pool.clone()).is_ok());
        let mut client = connect(at);
        assert_eq!(read_all(&mut client).ok(), Some(Vec::new()));
        if shuts_down {
            pool.join().expect("it was asked to");
        } else {
            assert_eq!(told.recv_timeout(PATIENCE).expect("it ends").cut, 0);
        }
    }
}

#[test]
fn a_runtime_awaits_a_shutdown() {
    let (pool, at) = start(tasks(Behaviour::task(echo)));
    let mut client = connect(at);
    assert!(echoes(&mut client, b"here"));
    let drained = single_thread().block_on(pool.shutdown_async(Drain::within(PATIENCE)));
    assert_eq!(drained, Drained { asked: 1, ended: 1, cut: 0, silent: 0 });
    pool.join().expect("it was asked to");
}
