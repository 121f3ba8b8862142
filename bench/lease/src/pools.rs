//! Pools under one interface. Connections are nothing, and no pool checks them.

use std::convert::Infallible;
use std::time::{Duration, Instant};

pub struct Nothing;

pub trait AsyncPool: Clone + Send + 'static {
    fn lease(&self, f: impl FnOnce() + Send) -> impl Future<Output = ()> + Send;
    fn lease_over_yield(&self) -> impl Future<Output = ()> + Send;
    fn lease_for(&self, time: Duration) -> impl Future<Output = ()> + Send;
    /// Makes so many connections, and leaves them free.
    fn fill(&self, count: usize) -> impl Future<Output = ()> + Send;
    fn connections(&self) -> usize;
}

pub trait BlockingPool: Sync {
    fn lease(&self, f: impl FnOnce());
}

/// Implements the trait by an expression that takes a connection.
macro_rules! async_pool {
    ($pool:ty, $self:ident, $get:expr, $count:expr) => {
        impl AsyncPool for $pool {
            async fn lease(&$self, f: impl FnOnce() + Send) {
                let _connection = $get;
                f();
            }
            async fn lease_over_yield(&$self) {
                let _connection = $get;
                tokio::task::yield_now().await;
            }
            async fn lease_for(&$self, time: Duration) {
                let _connection = $get;
                tokio::time::sleep(time).await;
            }
            async fn fill(&$self, count: usize) {
                let mut all = Vec::new();
                for _ in 0..count {
                    all.push($get);
                }
            }
            fn connections(&$self) -> usize {
                $count
            }
        }
    };
}

#[derive(Clone)]
pub struct Bb8(bb8::Pool<Manager>);
#[derive(Clone)]
pub struct Deadpool(deadpool::managed::Pool<Manager>);
pub struct R2d2(r2d2::Pool<Manager>);
#[derive(Clone)]
pub struct Ours(sockdrawer_lease::Pool<(), Nothing>);

/// Connects after a time.
pub struct Manager(Duration);

impl Manager {
    async fn wait(&self) -> Nothing {
        if !self.0.is_zero() {
            tokio::time::sleep(self.0).await;
        }
        Nothing
    }
}

impl bb8::ManageConnection for Manager {
    type Connection = Nothing;
    type Error = Infallible;
    async fn connect(&self) -> Result<Nothing, Infallible> {
        Ok(self.wait().await)
    }
    async fn is_valid(&self, _: &mut Nothing) -> Result<(), Infallible> {
        Ok(())
    }
    fn has_broken(&self, _: &mut Nothing) -> bool {
        false
    }
}

impl deadpool::managed::Manager for Manager {
    type Type = Nothing;
    type Error = Infallible;
    async fn create(&self) -> Result<Nothing, Infallible> {
        Ok(self.wait().await)
    }
    async fn recycle(&self, _: &mut Nothing, _: &deadpool::managed::Metrics) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

impl r2d2::ManageConnection for Manager {
    type Connection = Nothing;
    type Error = std::io::Error;
    fn connect(&self) -> Result<Nothing, std::io::Error> {
        Ok(Nothing)
    }
    fn is_valid(&self, _: &mut Nothing) -> Result<(), std::io::Error> {
        Ok(())
    }
    fn has_broken(&self, _: &mut Nothing) -> bool {
        false
    }
}

impl sockdrawer_lease::ConnectAsync for Manager {
    type Target = ();
    type Connection = Nothing;
    async fn connect(&self, _: &(), _: Duration) -> Result<Nothing, sockdrawer_lease::BoxError> {
        Ok(self.wait().await)
    }
}

impl sockdrawer_lease::Connect for Manager {
    type Target = ();
    type Connection = Nothing;
    fn connect(&self, _: &(), _: Duration) -> Result<Nothing, sockdrawer_lease::BoxError> {
        Ok(Nothing)
    }
}

impl Bb8 {
    pub fn new(max: u32, connect: Duration) -> Self {
        Bb8(bb8::Pool::builder().max_size(max).test_on_check_out(false).build_unchecked(Manager(connect)))
    }
}

impl Deadpool {
    pub fn new(max: u32, connect: Duration) -> Self {
        Deadpool(deadpool::managed::Pool::builder(Manager(connect)).max_size(max as usize).build().expect("it starts"))
    }
}

impl R2d2 {
    pub fn new(max: u32) -> Self {
        let builder = r2d2::Pool::builder().max_size(max).test_on_check_out(false);
        R2d2(builder.build(Manager(Duration::ZERO)).expect("it starts"))
    }
}

impl Ours {
    fn settings(max: u32) -> sockdrawer_lease::Settings {
        sockdrawer_lease::Settings { max: max as usize, ..Default::default() }
    }

    pub fn in_tasks(max: u32, connect: Duration) -> Self {
        let handle = tokio::runtime::Handle::current();
        let spawn = move |job| drop(handle.spawn(job));
        Ours(sockdrawer_lease::Pool::new_async(Manager(connect), spawn, Self::settings(max)).expect("it starts"))
    }

    pub fn in_threads(max: u32) -> Self {
        Ours(sockdrawer_lease::Pool::new(Manager(Duration::ZERO), Self::settings(max)).expect("it starts"))
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async_pool!(Bb8, self, self.0.get().await.expect("a connection"), self.0.state().connections as usize);
async_pool!(Deadpool, self, self.0.get().await.expect("a connection"), self.0.status().size);
async_pool!(Ours, self, self.0.lease_async(&(), deadline()).await.expect("a connection"), {
    let status = self.0.status();
    status.free + status.leased
});

impl BlockingPool for R2d2 {
    fn lease(&self, f: impl FnOnce()) {
        let _connection = self.0.get().expect("a connection");
        f();
    }
}

impl BlockingPool for Ours {
    fn lease(&self, f: impl FnOnce()) {
        let _connection = self.0.lease(&(), deadline()).expect("a connection");
        f();
    }
}
