//! Leases of PostgreSQL connections from tokio tasks: a session that ends is out of the pool at once, and one that was changed is reset.
//!
//! Eight tasks count up in a table for ten seconds, and each second is told. Stop the server meanwhile, and start it again, or end sessions by
//! `select pg_terminate_backend(pid) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()`:
//!
//! `cargo run --manifest-path crates/lease/examples/postgres/Cargo.toml --target-dir target/lease-postgres -- "host=127.0.0.1 user=postgres"`

use sockdrawer_lease::{BoxError, ConnectAsync, Event, Gone, Pool, Reason, Returned, Settings};
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};

struct Sessions {
    config: Config,
    handle: Handle,
}

/// A session, and until it is watched the half that reads its socket.
struct Session {
    client: Client,
    driver: Option<Connection<Socket, NoTlsStream>>,
    /// Set by a holder that changes more than rows: settings, temporary tables, LISTEN.
    is_changed: bool,
}

impl ConnectAsync for Sessions {
    type Target = ();
    type Connection = Session;

    async fn connect(&self, (): &(), _timeout: Duration) -> Result<Session, BoxError> {
        let (client, driver) = self.config.connect(NoTls).await?;
        Ok(Session { client, driver: Some(driver), is_changed: false })
    }

    // The driver hears of the end of a session that nobody uses.
    fn watch(&self, session: &mut Session, gone: Gone) {
        if let Some(driver) = session.driver.take() {
            self.handle.spawn(async move {
                if let Err(error) = driver.await {
                    eprintln!("a session ended: {error}");
                }
                gone.tell(Reason::PeerEnded);
            });
        }
    }

    fn returned(&self, session: &mut Session) -> Returned {
        match session {
            Session { client, .. } if client.is_closed() => Returned::Broken,
            Session { is_changed: true, .. } => Returned::NeedsReset,
            _ => Returned::Reusable,
        }
    }

    async fn reset(&self, session: &mut Session, _timeout: Duration) -> Result<(), BoxError> {
        session.client.batch_execute("DISCARD ALL").await?;
        session.is_changed = false;
        Ok(())
    }
}

/// Counts up, every hundredth time with a setting that is the session's.
async fn count(pool: &Pool<(), Session>) -> Result<(), BoxError> {
    let mut session = pool.lease_async(&(), Instant::now() + Duration::from_secs(1)).await?;
    // A transaction that is dropped, as by an error or in a future that is dropped, is rolled back by the driver before anything else.
    let transaction = session.client.transaction().await?;
    let row = transaction.query_one("update lease_counter set n = n + 1 returning n", &[]).await?;
    transaction.commit().await?;
    if row.get::<_, i64>(0) % 100 == 0 {
        session.is_changed = true;
        session.client.batch_execute("SET statement_timeout = '2s'").await?;
    }
    Ok(())
}

async fn count_until(pool: Pool<(), Session>, end: Instant, done: Arc<AtomicU64>, failed: Arc<AtomicU64>) {
    while Instant::now() < end {
        match count(&pool).await {
            Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
            Err(_) => {
                failed.fetch_add(1, Ordering::Relaxed);
                // A server that is down refuses at once, and is not to be asked again at once.
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let config: Config = env::args().nth(1).unwrap_or_else(|| "host=127.0.0.1 user=postgres".to_owned()).parse()?;
    let handle = Handle::current();
    let jobs = handle.clone();
    let settings = Settings { max: 4, ..Settings::default() };
    let pool = Pool::new_async(Sessions { config, handle }, move |job| drop(jobs.spawn(job)), settings)?;
    pool.observe(|event| match event {
        Event::ConnectFailed { error, is_down: true, .. } => eprintln!("the server is down: {error}"),
        Event::Connected { took, .. } => eprintln!("connected in {took:?}"),
        _ => {}
    });
    let first = pool.lease_async(&(), Instant::now() + Duration::from_secs(5)).await?;
    let table =
        "create table if not exists lease_counter (n bigint); truncate lease_counter; insert into lease_counter values (0)";
    first.client.batch_execute(table).await?;
    drop(first);
    let end = Instant::now() + Duration::from_secs(10);
    let [done, failed] = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    for _ in 0..8 {
        tokio::spawn(count_until(pool.clone(), end, done.clone(), failed.clone()));
    }
    while Instant::now() < end {
        sleep(Duration::from_secs(1)).await;
        println!("{} done, {} failed", done.swap(0, Ordering::Relaxed), failed.swap(0, Ordering::Relaxed));
    }
    pool.drain_async(Instant::now() + Duration::from_secs(1)).await;
    println!("ends of sessions: {:?}", pool.stats().ends);
    Ok(())
}
