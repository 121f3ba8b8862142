//! HTTP/1.1 and HTTP/2 on a pool of [`sockdrawer`]: any app of axum or tower, served by hyper, with the times and the end that `axum::serve` does not
//! have.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use sockdrawer::{Behaviour, Config, Model, Pool};
//! use sockdrawer_hyper::{Server, Timeouts};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), sockdrawer::Error> {
//! let app = Router::new().route("/", get(async || "hello\n"));
//! let pool = Pool::start(Config::accept(Behaviour::listener()).model(Model::Tasks).listen("127.0.0.1:9000"))?;
//! Server::new(app, Timeouts::default()).serve(pool.listener()).await;
//! # Ok(())
//! # }
//! ```
//!
//! - A client that says nothing, or does not end the head of a request, is closed after [`Timeouts::head`]; one that takes nothing of an answer after
//!   [`Timeouts::write`]. All of them are [reported](sockdrawer::Handle::report).
//! - A connection that is asked to end, by a drain of any kind, an upgrade's `stays` or a purge, tells its client: the next answer of HTTP/1.1 says
//!   `Connection: close`, and HTTP/2 sends GOAWAY at once. An HTTP/1.1 connection at rest ends after [`Timeouts::last_request`].
//! - Each request has the [`Info`] of its connection as an extension: `Extension(info): Extension<Info>` in axum.
//! - Limits, overall and by peer, TLS, PROXY headers and everything else of a connection are the pool's.
//!
//! No time is set for the body of a request, nor for its handler: `tower-http` has layers for both. An HTTP/2 connection that answers pings may rest for
//! ever.
mod written;

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use sockdrawer::tasks::{Connection, Info, Listener};
use std::error::Error;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tower_service::Service;
use written::Written;

/// Times after which a client that does not use its connection loses it. Each is above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout for the whole head of a request, from the accept or from the end of the answer before it: in HTTP/1.1 also how
    /// long a connection may rest between two requests. An HTTP/2 connection has it for its first request, and is sent a ping
    /// whenever nothing came for so long. 10 s by default.
    pub head: Duration,
    /// Time for which a client may read nothing of an answer; it may take twice as long. One that goes on reading gets all. 30 s by default.
    pub write: Duration,
    /// Timeout for one more request, which is answered with `Connection: close`, on an HTTP/1.1 connection that is asked to end.
    /// 1 s by default.
    pub last_request: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { head: Duration::from_secs(10), write: Duration::from_secs(30), last_request: Duration::from_secs(1) }
    }
}

/// Serves an app on the connections of a pool's listener. Clones share their [`Timeouts`].
#[derive(Clone, Debug)]
pub struct Server<S> {
    app: S,
    http: Builder<TokioExecutor>,
    timeouts: Arc<Mutex<Timeouts>>,
}

/// Requests that came on a connection.
#[derive(Default)]
struct Seen {
    /// The version of the requests, or none.
    version: AtomicU8,
    /// Something came since the last answer: a head, which may not be whole.
    head: AtomicBool,
}

const HTTP_1: u8 = 1;
const HTTP_2: u8 = 2;

impl<S> Server<S> {
    /// Makes a server of this app, such as a `Router` of axum.
    pub fn new(app: S, timeouts: Timeouts) -> Server<S> {
        Server { app, http: Builder::new(TokioExecutor::new()), timeouts: Arc::new(Mutex::new(timeouts)) }
    }

    /// Sets other options of hyper, such as the largest head, or HTTP/2's number of streams.
    pub fn options(mut self, set: impl FnOnce(&mut Builder<TokioExecutor>)) -> Server<S> {
        set(&mut self.http);
        self
    }

    /// Sets the timeouts of connections that come from now on.
    pub fn set_timeouts(&self, timeouts: Timeouts) {
        *self.timeouts.lock().unwrap_or_else(PoisonError::into_inner) = timeouts;
    }

    fn timeouts(&self) -> Timeouts {
        *self.timeouts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, B> Server<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Serves until the listener ends: with its pool, or with the last connection of a behaviour that was replaced. Each connection is a task of the
    /// runtime that polls this.
    pub async fn serve(&self, mut listener: Listener) {
        while let Some(connection) = listener.accept().await {
            let (app, http, timeouts) = (self.app.clone(), self.http.clone(), self.timeouts());
            tokio::spawn(Self::connection(connection, app, http, timeouts));
        }
    }

    async fn connection(connection: Connection, app: S, mut http: Builder<TokioExecutor>, timeouts: Timeouts) {
        let (info, seen) = (connection.info().clone(), Arc::new(Seen::default()));
        http.http1().timer(TokioTimer::new()).header_read_timeout(timeouts.head);
        http.http2().timer(TokioTimer::new()).keep_alive_interval(timeouts.head).keep_alive_timeout(timeouts.head);
        let asked = (info.clone(), seen.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (info, version) = (asked.0.clone(), request.version());
            asked.1.version.store(if version == Version::HTTP_2 { HTTP_2 } else { HTTP_1 }, Ordering::Relaxed);
            request.extensions_mut().insert(info.clone());
            let answer = hyper::service::Service::call(&TowerToHyperService::new(app.clone()), request);
            async move {
                let mut answer = answer.await?;
                // HTTP/2 has no such header, and an upgrade needs its own.
                if info.is_draining() && version != Version::HTTP_2 && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, S::Error>(answer)
            }
        });
        let stream = TokioIo::new(Written::new(connection, timeouts.write, seen.clone()));
        let mut served = pin!(http.serve_connection_with_upgrades(stream, service));
        let is_silent = tokio::select! {
            done = served.as_mut() => return report_a_slow_head(&info, &seen, done, timeouts),
            is_silent = asked_to_end(&info, &seen, timeouts) => is_silent,
        };
        if is_silent {
            return report(&info, timeouts);
        }
        served.as_mut().graceful_shutdown();
        report_a_slow_head(&info, &seen, served.await, timeouts);
    }
}

/// Waits until a connection is to end. True: because no request came.
async fn asked_to_end(info: &Info, seen: &Seen, timeouts: Timeouts) -> bool {
    // hyper's own time begins with the first byte.
    if timeout(timeouts.head, info.draining()).await.is_err() {
        if seen.version.load(Ordering::Relaxed) == 0 {
            return true;
        }
        info.draining().await;
    }
    if seen.version.load(Ordering::Relaxed) != HTTP_2 {
        sleep(timeouts.last_request).await;
    }
    false
}

/// Reports a head that came too slowly; a connection that rested between two requests for too long is no news.
fn report_a_slow_head(info: &Info, seen: &Seen, done: Result<(), Box<dyn Error + Send + Sync>>, timeouts: Timeouts) {
    let is_timeout =
        |error: Box<dyn Error + Send + Sync>| error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout);
    if done.is_err_and(is_timeout) && seen.head.load(Ordering::Relaxed) {
        report(info, timeouts);
    }
}

fn report(info: &Info, timeouts: Timeouts) {
    info.handle().report(format!("no request within {:?}: closed", timeouts.head));
}
