//! Connections of TCP, of Unix sockets and under TLS, made and watched by a pool of the library `sockdrawer`. Feature `sockets`.
//!
//! A [`Sockets`] makes them: it is a [`Connect`] and a [`ConnectAsync`] of its own, and what one of yours calls that logs in first. While a
//! [`Socket`] is free, a loop watches it: when its peer ends it, it leaves the pool. A lease costs no way to that loop: it reads and writes the
//! socket itself.
//!
//! ```
//! use sockdrawer_lease::sockets::Sockets;
//! use sockdrawer_lease::{Pool, Settings};
//! use std::io::{BufRead, BufReader, Write};
//! use std::time::{Duration, Instant};
//!
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let server = listener.local_addr()?;
//! # std::thread::spawn(move || {
//! #     for mut stream in listener.incoming().flatten() {
//! #         std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
//! #     }
//! # });
//! let pool = Pool::new(Sockets::new()?, Settings { max: 8, ..Settings::default() })?;
//! let target = format!("{server}").parse()?;
//! let mut socket = pool.lease(&target, Instant::now() + Duration::from_secs(5))?;
//! socket.write_all(b"hello\n")?;
//! let mut answer = String::new();
//! BufReader::new(&mut *socket).read_line(&mut answer)?;
//! assert_eq!(answer, "hello\n");
//! # Ok::<(), sockdrawer_lease::BoxError>(())
//! ```

mod service;
mod socket;
mod watch;

pub use service::{Resting, Service};
pub use sockdrawer::Address;
pub use socket::Socket;

use crate::connect::{BoxError, Connect, ConnectAsync};
use crate::engine::Returned;
use crate::gone::Gone;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::stats::Reason;
use service::Claim;
use sockdrawer::connecting::Connecting;
use sockdrawer::{Config, Handle, Note};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// Reason for which there is no socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connect failed.
    #[error("cannot connect to {target}: {source}, after {after:?}")]
    Failed {
        /// Target of the connect.
        target: Address,
        /// Error of the system; `EPROTO` where a layer did not shake hands.
        source: io::Error,
        /// Time of the connect.
        after: Duration,
    },
    /// The connection ended before it was handed out, or the pool that makes connections has ended.
    #[error("the connection to {target} ended before it could be used: its peer, or the pool that made it, has ended it")]
    Ended {
        /// Target of the connect.
        target: Address,
    },
}

/// Makes sockets, by a pool of the library that runs beside the program's own. Clones share that pool.
#[derive(Clone)]
pub struct Sockets {
    pool: sockdrawer::Pool,
    arrivals: Arc<Arrivals>,
}

/// Sockets that came from the process before this one, and the pool that gets them.
#[derive(Default)]
struct Arrivals(Mutex<Arriving>);

#[derive(Default)]
struct Arriving {
    pool: Option<Weak<Shared<Address, Socket>>>,
    /// Sockets that rest in their loop until there is a pool; some may have ended.
    waiting: Vec<Handle>,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Arriving> {
        self.0.lock().expect("nothing that panics is done under the lock")
    }

    /// Returns whether sockets move: they have a pool to go to, and so in a next build that is alike.
    fn are_taken(&self) -> bool {
        self.lock().pool.is_some()
    }

    /// Takes a socket that has come, which is in its loop still.
    fn arrives(self: &Arc<Self>, socket: Handle) {
        let mut arriving = self.lock();
        match arriving.pool {
            Some(_) => self.claim(&socket),
            None => arriving.waiting.push(socket),
        }
    }

    fn claim(self: &Arc<Self>, socket: &Handle) {
        let arrivals = self.clone();
        let told = Box::new(move |socket| arrivals.put(socket));
        // A full inbox leaves it in its loop, whose next build asks for it again.
        let _ = socket.notify(Note::value(Claim { target: None, told }));
    }

    fn put(&self, socket: Socket) {
        let pool = self.lock().pool.as_ref().and_then(Weak::upgrade);
        if let Some(pool) = pool {
            let (target, age, watch) = (socket.target().clone(), socket.age(), socket.watch());
            let name = pool.add(&target, socket, age);
            watch.tells(Gone::new(&pool, name));
        }
    }
}

impl Sockets {
    /// Makes sockets of TCP and of Unix sockets, watched by one loop.
    ///
    /// # Errors
    ///
    /// The errors of [`sockdrawer::Pool::start`].
    pub fn new() -> Result<Self, sockdrawer::Error> {
        Self::by(|service| sockdrawer::Pool::start(Config::connect(service, Connecting::on_request()).loops(1)))
    }

    /// Makes sockets by the pool that `start` starts with the service, such as one under layers, with an observer, or one that takes
    /// over from the process before it:
    ///
    /// ```
    /// # use sockdrawer::layer::{Layer, proxy_header::{Sends, Version}};
    /// use sockdrawer::{Config, Pool, connecting::Connecting};
    /// use sockdrawer_lease::sockets::Sockets;
    ///
    /// # let layer = Sends::new(Version::V2);
    /// let sockets = Sockets::by(|service| {
    ///     Pool::start(Config::connect(Layer::new(layer, service), Connecting::on_request()).loops(1))
    /// })?;
    /// # Ok::<(), sockdrawer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `start`.
    pub fn by<E>(start: impl FnOnce(Service) -> Result<sockdrawer::Pool, E>) -> Result<Self, E> {
        let arrivals = Arc::<Arrivals>::default();
        let pool = start(Service { arrivals: arrivals.clone() })?;
        Ok(Sockets { pool, arrivals })
    }

    /// Gives the pool those free sockets that come from the process before this one, and that came already; and has sockets that are made from now
    /// on move to the process after this one, when they are free.
    pub fn arrive_in(&self, pool: &Pool<Address, Socket>) {
        let waiting = {
            let mut arriving = self.arrivals.lock();
            arriving.pool = Some(pool.weak());
            std::mem::take(&mut arriving.waiting)
        };
        waiting.iter().for_each(|socket| self.arrivals.claim(socket));
    }

    /// Returns the pool that makes the sockets.
    pub fn pool(&self) -> &sockdrawer::Pool {
        &self.pool
    }

    /// Connects, and waits for it in this thread, for a [`Connect`] that has more to say to its peer before the first lease. The timeout is that of the
    /// TCP connect; the handshake of a layer, as of TLS, has the layer's own time beside that, and until it is over the connection exists.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    pub fn connect(&self, target: &Address, timeout: Duration) -> Result<Socket, ConnectError> {
        let (tell, told) = mpsc::channel();
        self.begin(target, timeout, move |result| _ = tell.send(result));
        told.recv().unwrap_or_else(|_| Err(ConnectError::Ended { target: target.clone() }))
    }

    /// Connects, as [`connect`](Sockets::connect) does, in async code.
    ///
    /// # Errors
    ///
    /// A [`ConnectError`].
    pub fn connect_async(
        &self,
        target: &Address,
        timeout: Duration,
    ) -> impl Future<Output = Result<Socket, ConnectError>> + Send + use<> {
        let (tell, told) = oneshot::channel();
        let target = target.clone();
        self.begin(&target, timeout, move |result| _ = tell.send(result));
        async move { told.await.unwrap_or(Err(ConnectError::Ended { target })) }
    }

    /// Begins a connect. `told` is dropped where the connection ends before it is handed over.
    fn begin(&self, target: &Address, within: Duration, told: impl FnOnce(Result<Socket, ConnectError>) + Send + 'static) {
        let to = target.clone();
        self.pool.connect(target, within, move |result| match result {
            Ok(handle) => {
                let told = Box::new(move |socket| told(Ok(socket)));
                // A full inbox drops the claim, which is told.
                let _ = handle.notify(Note::value(Claim { target: Some(to), told }));
            }
            Err(failure) => {
                let source = io::Error::from_raw_os_error(failure.errno);
                told(Err(ConnectError::Failed { target: to, source, after: failure.after }));
            }
        });
    }
}

impl Connect for Sockets {
    type Target = Address;
    type Connection = Socket;

    fn connect(&self, target: &Address, timeout: Duration) -> Result<Socket, BoxError> {
        Ok(Sockets::connect(self, target, timeout)?)
    }

    fn watch(&self, socket: &mut Socket, gone: Gone) {
        socket.watch().tells(gone);
    }

    fn look(&self, socket: &mut Socket) -> Option<Reason> {
        socket.look()
    }

    fn read_count(&self, socket: &Socket) -> Option<u64> {
        Some(socket.read_count())
    }

    fn close(&self, socket: Socket, reason: Reason) {
        if reason == Reason::Moved {
            socket.leave();
        }
    }

    fn returned(&self, socket: &mut Socket) -> Returned {
        if socket.is_reusable() { Returned::Reusable } else { Returned::Broken }
    }
}

impl ConnectAsync for Sockets {
    type Target = Address;
    type Connection = Socket;

    async fn connect(&self, target: &Address, timeout: Duration) -> Result<Socket, BoxError> {
        Ok(self.connect_async(target, timeout).await?)
    }

    fn watch(&self, socket: &mut Socket, gone: Gone) {
        Connect::watch(self, socket, gone);
    }

    fn look(&self, socket: &mut Socket) -> Option<Reason> {
        socket.look()
    }

    fn read_count(&self, socket: &Socket) -> Option<u64> {
        Some(socket.read_count())
    }

    async fn close(&self, socket: Socket, reason: Reason) {
        Connect::close(self, socket, reason);
    }

    fn returned(&self, socket: &mut Socket) -> Returned {
        Connect::returned(self, socket)
    }
}
