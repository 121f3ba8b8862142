//! Leases of Redis connections, from blocking threads and from tokio tasks, over a failover.
//!
//! Four threads and four tasks count up for ten seconds, and each second is told. Stop the server meanwhile, and start it again:
//!
//! `cargo run --manifest-path crates/lease/examples/redis/Cargo.toml --target-dir target/lease-redis -- 127.0.0.1:6379`

use redis::aio::MultiplexedConnection;
use sockdrawer_lease::{BoxError, Connect, ConnectAsync, Event, Pool, Returned, Settings};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

fn client(address: &str) -> Result<redis::Client, BoxError> {
    Ok(redis::Client::open(format!("redis://{address}"))?)
}

struct Blocking;

impl Connect for Blocking {
    type Target = String;
    type Connection = redis::Connection;

    fn connect(&self, address: &String, timeout: Duration) -> Result<redis::Connection, BoxError> {
        let connection = client(address)?.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        Ok(connection)
    }

    fn check(&self, connection: &mut redis::Connection, _timeout: Duration) -> Result<(), BoxError> {
        Ok(redis::cmd("PING").exec(connection)?)
    }

    fn returned(&self, connection: &mut redis::Connection) -> Returned {
        if redis::ConnectionLike::is_open(connection) { Returned::Reusable } else { Returned::Broken }
    }
}

struct InTasks;

impl ConnectAsync for InTasks {
    type Target = String;
    type Connection = MultiplexedConnection;

    async fn connect(&self, address: &String, _timeout: Duration) -> Result<MultiplexedConnection, BoxError> {
        Ok(client(address)?.get_multiplexed_async_connection().await?)
    }

    async fn check(&self, connection: &mut MultiplexedConnection, _timeout: Duration) -> Result<(), BoxError> {
        Ok(redis::cmd("PING").exec_async(connection).await?)
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn count(pool: &Pool<String, redis::Connection>, address: &String) -> Result<u64, BoxError> {
    let mut connection = pool.lease(address, deadline())?;
    let counted = redis::cmd("INCR").arg("lease-redis").query(&mut *connection);
    // After an error it is not known what the connection is in the middle of.
    counted.map_err(|error| {
        connection.discard();
        error.into()
    })
}

async fn count_async(pool: &Pool<String, MultiplexedConnection>, address: &String) -> Result<u64, BoxError> {
    let mut connection = pool.lease_async(address, deadline()).await?;
    let counted = redis::cmd("INCR").arg("lease-redis").query_async(&mut *connection).await;
    counted.map_err(|error| {
        connection.discard();
        error.into()
    })
}

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Returns a pause that is to be made: a target that is down refuses at once, and is not to be asked again at once.
    fn add(&self, result: Result<u64, BoxError>) -> Duration {
        let (count, pause) = if result.is_ok() { (&self.done, 0) } else { (&self.failed, 20) };
        count.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(pause)
    }

    fn tell(&self, name: &str) {
        let [done, failed] = [&self.done, &self.failed].map(|count| count.swap(0, Ordering::Relaxed));
        println!("{name}: {done} done, {failed} failed");
    }
}

fn main() -> Result<(), BoxError> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6379".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let handle = runtime.handle().clone();
    let settings = Settings { max: 4, ..Settings::default() };
    let pool = Pool::new(Blocking, settings.clone())?;
    let pool_async = Pool::new_async(InTasks, move |job| drop(handle.spawn(job)), settings)?;
    pool.observe(|event| match event {
        Event::ConnectFailed { target, error, is_down: true } => eprintln!("{target} is down: {error}"),
        Event::Connected { target, took } => eprintln!("connected to {target} in {took:?}"),
        _ => {}
    });
    let [threads, tasks] = [Counts::default(), Counts::default()];
    let (threads, tasks, end) = (&threads, &tasks, Instant::now() + Duration::from_secs(10));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let pause = threads.add(count(&pool, &address));
                    if !pause.is_zero() {
                        thread::sleep(pause);
                    }
                }
            });
            scope.spawn(|| {
                runtime.block_on(async {
                    while Instant::now() < end {
                        let pause = tasks.add(count_async(&pool_async, &address).await);
                        if !pause.is_zero() {
                            tokio::time::sleep(pause).await;
                        }
                    }
                });
            });
        }
        while Instant::now() < end {
            thread::sleep(Duration::from_secs(1));
            threads.tell("threads");
            tasks.tell("tasks");
        }
    });
    let stats = pool.stats();
    println!("threads waited up to {:?}; ends of connections: {:?}", stats.waiting.max(), stats.ends);
    println!("refused: {:?}", stats.refusals);
    pool.drain(deadline());
    pool_async.drain(deadline());
    Ok(())
}
