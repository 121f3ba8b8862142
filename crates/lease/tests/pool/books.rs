//! Connections that are counted, by both forms of connecting.

use sockdrawer_lease::{BoxError, Connect, ConnectAsync, Pool, Reason, Returned, Settings};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// All that is counted of a pool's connections.
#[derive(Default)]
pub(crate) struct Books {
    /// Connections that exist, and the most there were at once.
    alive: Mutex<(usize, usize)>,
    changed: Condvar,
    pub(crate) connects: AtomicUsize,
    pub(crate) resets: AtomicUsize,
    /// Number of connects of which one fails; 0: none.
    pub(crate) fail_each: AtomicUsize,
    /// Connects panic.
    pub(crate) panics: AtomicBool,
    /// Checks fail.
    pub(crate) checks_fail: AtomicBool,
    /// Connects never end; async ones alone.
    pub(crate) hangs: AtomicBool,
    /// Checks never end; async ones alone.
    pub(crate) checks_hang: AtomicBool,
    /// Closes never end; async ones alone.
    pub(crate) closes_hang: AtomicBool,
}

/// A connection that is counted until it is dropped.
pub(crate) struct Counted {
    pub(crate) number: usize,
    books: Arc<Books>,
    is_used: AtomicBool,
    pub(crate) is_dirty: bool,
    /// Bytes read; None where that is not known.
    pub(crate) read: Option<u64>,
    is_counted: bool,
}

impl Counted {
    /// Uses the connection, which must be nobody else's meanwhile.
    pub(crate) fn begin(&self) {
        assert!(!self.is_used.swap(true, SeqCst), "two holders");
    }

    pub(crate) fn end(&self) {
        assert!(self.is_used.swap(false, SeqCst), "two holders");
    }

    /// Counts it no more, as the pool does once it is detached.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.books.alive.lock().expect("no panic").0 -= 1;
            self.books.changed.notify_all();
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Books {
    pub(crate) fn max_alive(&self) -> usize {
        self.alive.lock().expect("no panic").1
    }

    /// Waits until no more connections than these exist.
    pub(crate) fn await_alive(&self, count: usize) {
        let alive = self.alive.lock().expect("no panic");
        let waited = self.changed.wait_timeout_while(alive, Duration::from_secs(60), |(alive, _)| *alive > count);
        let (alive, _) = waited.expect("no panic");
        assert_eq!(alive.0, count, "connections exist");
    }

    fn connect(self: &Arc<Self>) -> Result<Counted, BoxError> {
        let number = self.connects.fetch_add(1, SeqCst) + 1;
        if self.panics.load(SeqCst) {
            // Without a message, which would fill the output of the tests.
            std::panic::resume_unwind(Box::new("a connect panics"));
        }
        if number.checked_rem(self.fail_each.load(SeqCst)) == Some(0) {
            return Err(format!("connect {number} failed").into());
        }
        let mut alive = self.alive.lock().expect("no panic");
        alive.0 += 1;
        alive.1 = alive.1.max(alive.0);
        let (books, is_used) = (self.clone(), AtomicBool::new(false));
        Ok(Counted { number, books, is_used, is_dirty: false, read: Some(0), is_counted: true })
    }

    fn check(&self) -> Result<(), BoxError> {
        if self.checks_fail.load(SeqCst) { Err("dead".into()) } else { Ok(()) }
    }

    fn reset(&self, connection: &mut Counted) -> Result<(), BoxError> {
        self.resets.fetch_add(1, SeqCst);
        connection.is_dirty = false;
        Ok(())
    }

    fn returned(connection: &Counted) -> Returned {
        if connection.is_dirty { Returned::NeedsReset } else { Returned::Reusable }
    }
}

pub(crate) struct Blocking(pub(crate) Arc<Books>);

impl Connect for Blocking {
    type Target = u8;
    type Connection = Counted;

    fn connect(&self, _target: &u8, _timeout: Duration) -> Result<Counted, BoxError> {
        self.0.connect()
    }

    fn check(&self, _connection: &mut Counted, _timeout: Duration) -> Result<(), BoxError> {
        self.0.check()
    }

    fn reset(&self, connection: &mut Counted, _timeout: Duration) -> Result<(), BoxError> {
        self.0.reset(connection)
    }

    fn returned(&self, connection: &mut Counted) -> Returned {
        Books::returned(connection)
    }

    fn read_count(&self, connection: &Counted) -> Option<u64> {
        connection.read
    }
}

pub(crate) struct Async(pub(crate) Arc<Books>);

impl ConnectAsync for Async {
    type Target = u8;
    type Connection = Counted;

    async fn connect(&self, _target: &u8, _timeout: Duration) -> Result<Counted, BoxError> {
        if self.0.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        tokio::task::yield_now().await;
        self.0.connect()
    }

    async fn check(&self, _connection: &mut Counted, _timeout: Duration) -> Result<(), BoxError> {
        if self.0.checks_hang.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        self.0.check()
    }

    async fn reset(&self, connection: &mut Counted, _timeout: Duration) -> Result<(), BoxError> {
        tokio::task::yield_now().await;
        self.0.reset(connection)
    }

    async fn close(&self, _connection: Counted, _reason: Reason) {
        if self.0.closes_hang.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    fn returned(&self, connection: &mut Counted) -> Returned {
        Books::returned(connection)
    }

    fn read_count(&self, connection: &Counted) -> Option<u64> {
        connection.read
    }
}

/// Returns a pool of blocking connects, with its books.
pub(crate) fn blocking(settings: Settings) -> (Pool<u8, Counted>, Arc<Books>) {
    let books = Arc::new(Books::default());
    (Pool::new(Blocking(books.clone()), settings).expect("it starts"), books)
}

/// Returns a pool of async connects, which run in this runtime.
pub(crate) fn in_runtime(runtime: &tokio::runtime::Runtime, settings: Settings) -> (Pool<u8, Counted>, Arc<Books>) {
    let (books, handle) = (Arc::new(Books::default()), runtime.handle().clone());
    let pool = Pool::new_async(Async(books.clone()), move |job| drop(handle.spawn(job)), settings);
    (pool.expect("it starts"), books)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("it starts")
}

/// Returns a deadline that is not meant to come.
pub(crate) fn long() -> Instant {
    Instant::now() + Duration::from_secs(60)
}
