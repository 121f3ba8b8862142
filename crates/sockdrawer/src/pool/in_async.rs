//! Methods of a pool for async code: those that wait for its loops do so on a thread of their own.

use super::plan::Applied;
use super::running::Pool;
use crate::config::Config;
use crate::error::Error;
use crate::operation::{Drain, Drained, Selector};
use std::future::Future;
use std::panic::resume_unwind;

/// Runs what blocks on a thread for that, and has its panic here.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => panic!("the runtime was shut down before the pool was called: call it while the runtime runs"),
        },
    }
}

/// Methods with the feature `tokio`. Each is the one without `_async`, on a thread where blocking is allowed ([`tokio::task::spawn_blocking`]), so
/// that no thread of the runtime waits. They work in a handler of the pool too, which holds its own connection meanwhile.
///
/// A future begins its work when it is first polled. Dropped before that, it does nothing; dropped later, its work goes on to the end and the
/// result is lost. It panics outside of a tokio runtime. A runtime that is dropped waits for what has begun.
impl Pool {
    /// Does as [`PoolHandle::update`](crate::PoolHandle::update).
    ///
    /// ```no_run
    /// # async fn raise(pool: sockdrawer::Pool) -> Result<(), sockdrawer::Error> {
    /// let applied = pool.update_async(|config| config.limit(100)).await?;
    /// println!("revision {}", applied.revision);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PoolHandle::update`](crate::PoolHandle::update).
    pub fn update_async<F>(&self, change: F) -> impl Future<Output = Result<Applied, Error>> + Send + use<F>
    where
        F: FnMut(Config) -> Config + Send + 'static,
    {
        let pool = self.clone();
        async move { on_a_thread(move || pool.update(change)).await }
    }

    /// Does as [`Pool::drain`]. A future that is dropped does not end the drain: the connections that were asked go on to end, and at the deadline
    /// those that are left are cut off.
    ///
    /// ```no_run
    /// # async fn rest(pool: sockdrawer::Pool) {
    /// # use sockdrawer::{Drain, Selector};
    /// # use std::time::Duration;
    /// let drained = pool.drain_async(Selector::All, Drain::within(Duration::from_secs(30))).await;
    /// println!("{} ended, {} were cut off", drained.ended, drained.cut);
    /// # }
    /// ```
    pub fn drain_async(&self, selector: Selector, how: Drain) -> impl Future<Output = Drained> + Send + use<> {
        let pool = self.clone();
        async move { on_a_thread(move || pool.drain(&selector, how)).await }
    }

    /// Does as [`Pool::shutdown`]. A future that is dropped does not end the shutdown.
    ///
    /// ```no_run
    /// # async fn end(pool: sockdrawer::Pool) {
    /// # use sockdrawer::Drain;
    /// # use std::time::Duration;
    /// pool.shutdown_async(Drain::within(Duration::from_secs(30))).await;
    /// # }
    /// ```
    pub fn shutdown_async(&self, how: Drain) -> impl Future<Output = Drained> + Send + use<> {
        let pool = self.clone();
        async move { on_a_thread(move || pool.shutdown(how)).await }
    }
}
