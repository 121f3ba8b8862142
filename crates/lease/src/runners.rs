//! Jobs as blocking calls and as futures.

use crate::connect::{BoxError, Connect, ConnectAsync};
use crate::engine::{Job, JobId, Returned};
use crate::gone::Gone;
use crate::shared::{Run, Shared, Task};
use crate::stats::Reason;
use crate::workers::Workers;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A future for an executor, which runs it to its end.
pub type Spawned = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs jobs in threads.
pub(crate) struct Threads<M> {
    connect: Arc<M>,
    workers: Arc<Workers>,
}

impl<M: Connect> Threads<M> {
    pub(crate) fn new(connect: M) -> Self {
        Threads { connect: Arc::new(connect), workers: Arc::default() }
    }
}

impl<M: Connect> Run<M::Target, M::Connection> for Threads<M> {
    fn run(&self, task: Task<M::Target, M::Connection>) {
        let connect = self.connect.clone();
        self.workers.run(Box::new(move || block(&*connect, task)));
    }

    fn returned(&self, connection: &mut M::Connection) -> Returned {
        self.connect.returned(connection)
    }

    fn watch(&self, connection: &mut M::Connection, gone: Gone) {
        self.connect.watch(connection, gone);
    }

    fn look(&self, connection: &mut M::Connection) -> Option<Reason> {
        self.connect.look(connection)
    }

    fn read_count(&self, connection: &M::Connection) -> Option<u64> {
        self.connect.read_count(connection)
    }
}

fn block<M: Connect>(connect: &M, mut task: Task<M::Target, M::Connection>) {
    let timeout = task.timeout;
    let result = match task.job.take() {
        Some(Job::Connect(target)) => connect.connect(&target, timeout),
        Some(Job::Check(mut connection)) => connect.check(&mut connection, timeout).map(|()| connection),
        Some(Job::Reset(mut connection)) => connect.reset(&mut connection, timeout).map(|()| connection),
        Some(Job::Close(connection, reason)) => return connect.close(connection, reason),
        None => return,
    };
    task.tell(result);
}

/// Runs jobs by an executor.
pub(crate) struct Tasks<M, S> {
    connect: Arc<M>,
    spawn: S,
}

impl<M: ConnectAsync, S: Fn(Spawned) + Send + Sync + 'static> Tasks<M, S> {
    pub(crate) fn new(connect: M, spawn: S) -> Self {
        Tasks { connect: Arc::new(connect), spawn }
    }
}

impl<M: ConnectAsync, S: Fn(Spawned) + Send + Sync + 'static> Run<M::Target, M::Connection> for Tasks<M, S> {
    fn run(&self, task: Task<M::Target, M::Connection>) {
        let (shared, id, connect) = (task.shared.clone(), task.id, self.connect.clone());
        let work = Box::pin(async move { go(&*connect, task).await });
        (self.spawn)(Box::pin(InTime { shared, id, work: Some(work) }));
    }

    fn returned(&self, connection: &mut M::Connection) -> Returned {
        self.connect.returned(connection)
    }

    fn watch(&self, connection: &mut M::Connection, gone: Gone) {
        self.connect.watch(connection, gone);
    }

    fn look(&self, connection: &mut M::Connection) -> Option<Reason> {
        self.connect.look(connection)
    }

    fn read_count(&self, connection: &M::Connection) -> Option<u64> {
        self.connect.read_count(connection)
    }
}

async fn go<M: ConnectAsync>(connect: &M, mut task: Task<M::Target, M::Connection>) {
    let timeout = task.timeout;
    let result: Result<M::Connection, BoxError> = match task.job.take() {
        Some(Job::Connect(target)) => connect.connect(&target, timeout).await,
        Some(Job::Check(mut connection)) => connect.check(&mut connection, timeout).await.map(|()| connection),
        Some(Job::Reset(mut connection)) => connect.reset(&mut connection, timeout).await.map(|()| connection),
        Some(Job::Close(connection, reason)) => return connect.close(connection, reason).await,
        None => return,
    };
    task.tell(result);
}

/// Work that is dropped when it is late.
struct InTime<K: crate::Target, C: Send + 'static> {
    shared: Arc<Shared<K, C>>,
    id: JobId,
    work: Option<Spawned>,
}

impl<K: crate::Target, C: Send + 'static> Future for InTime<K, C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.shared.lock();
        let is_late = state.engine.is_late(self.id);
        // An old waker is dropped without the lock: it is code of the executor's.
        let _old = if is_late { Some(waker) } else { state.jobs.insert(self.id, waker) };
        drop(state);
        let Some(work) = self.work.as_mut().filter(|_| !is_late) else {
            self.work = None;
            return Poll::Ready(());
        };
        work.as_mut().poll(cx)
    }
}
