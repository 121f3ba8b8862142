//! A lease, and the wait for one.

use crate::connect::Target;
use crate::engine::{Asked, Leased, WaiterId};
use crate::error::Error;
use crate::request::Request;
use crate::shared::{Shared, Wait, Wake};
use crate::stats::Reason;
use crate::sync::thread;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

/// A connection that is the caller's until this is dropped, which gives it back. Where it is dropped by a panic, the connection is closed:
/// nobody knows what it was in the middle of. A lease that is forgotten ([`std::mem::forget`]) keeps its place within the limits for ever.
#[must_use = "it is given back at once if it is dropped"]
pub struct Lease<K: Target, C: Send + 'static> {
    shared: Arc<Shared<K, C>>,
    /// None once it is given back.
    leased: Option<Leased<C>>,
    /// Read from the connection before the lease, as far as that is known.
    read_before: Option<u64>,
}

const GIVEN_BACK: &str = "a lease has its connection until it is given back";

impl<K: Target, C: Send + 'static> Lease<K, C> {
    /// Makes a lease of a connection, unless it has gone. This is the last look at it before its user has it, and no lock is held: a connection whose
    /// end has arrived by now is not handed out, however long its holder took to wake up.
    fn of(shared: &Arc<Shared<K, C>>, mut leased: Leased<C>) -> Result<Self, (Leased<C>, Reason)> {
        match shared.look(&mut leased) {
            Some(reason) => Err((leased, reason)),
            None => {
                Ok(Lease { read_before: shared.read_count(&leased.connection), shared: shared.clone(), leased: Some(leased) })
            }
        }
    }

    /// Gives the connection back to be closed, as one that is of no use any more: after an error, or in the middle of an answer.
    pub fn discard(mut self) {
        if let Some(leased) = self.leased.take() {
            self.shared.give_back(leased, true);
        }
    }

    /// Takes the connection out of the pool: it counts for no limit from now on, and the pool may connect another.
    pub fn detach(mut self) -> C {
        let leased = self.leased.take().expect(GIVEN_BACK);
        self.shared.call(|state, now| state.engine.detach(now, leased))
    }

    /// Returns whether nothing was read from the connection since it was leased: where a request failed on a connection that its peer had
    /// closed meanwhile, it may then be repeated on another. False where [`Connect::read_count`](crate::Connect::read_count) does not know.
    /// It does not say that the peer did nothing: repeat only requests that may be done twice, or that were not sent whole.
    pub fn unused(&self) -> bool {
        self.read_before.is_some() && self.read_before == self.shared.read_count(self)
    }

    /// Returns how many leases the connection has had, this one among them.
    pub fn uses(&self) -> u64 {
        self.leased.as_ref().expect(GIVEN_BACK).uses()
    }

    /// Returns when the connection was made.
    pub fn born(&self) -> Instant {
        self.leased.as_ref().expect(GIVEN_BACK).born()
    }
}

impl<K: Target, C: Send + 'static> Deref for Lease<K, C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.leased.as_ref().expect(GIVEN_BACK).connection
    }
}

impl<K: Target, C: Send + 'static> DerefMut for Lease<K, C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.leased.as_mut().expect(GIVEN_BACK).connection
    }
}

impl<K: Target, C: Send + 'static> Drop for Lease<K, C> {
    fn drop(&mut self) {
        if let Some(leased) = self.leased.take() {
            self.shared.give_back(leased, thread::panicking());
        }
    }
}

/// Waits in this thread.
pub(crate) fn block<K: Target, C: Send + 'static>(
    shared: &Arc<Shared<K, C>>,
    target: &K,
    request: Request,
) -> Result<Lease<K, C>, Error> {
    let wake = || Wake::Thread(thread::current());
    let mut asked = shared.ask(target, request, wake)?;
    loop {
        let leased = match asked {
            Asked::Leased(leased) => leased,
            Asked::Waits(waiter) => wait(shared, waiter)?,
        };
        match Lease::of(shared, leased) {
            Ok(lease) => break Ok(lease),
            Err(gone) => asked = shared.ask_again(gone, request, wake)?,
        }
    }
}

fn wait<K: Target, C: Send + 'static>(shared: &Shared<K, C>, waiter: WaiterId) -> Result<Leased<C>, Error> {
    loop {
        if let Some(result) = take(shared, waiter) {
            break result;
        }
        thread::park();
    }
}

fn take<K: Target, C: Send + 'static>(shared: &Shared<K, C>, waiter: WaiterId) -> Option<Result<Leased<C>, Error>> {
    let mut state = shared.lock();
    match state.waits.remove(&waiter)? {
        Wait::Done(result) => Some(result),
        waits => {
            state.waits.insert(waiter, waits);
            None
        }
    }
}

/// Future of [`Pool::lease_async`](crate::Pool::lease_async). It asks when it is first polled. Where it is dropped, its turn goes to the next
/// waiter, with the connection if it had one already.
#[must_use = "it asks when it is awaited"]
pub struct LeaseFuture<K: Target, C: Send + 'static> {
    shared: Arc<Shared<K, C>>,
    target: K,
    request: Request,
    waiter: Option<WaiterId>,
}

impl<K: Target, C: Send + 'static> LeaseFuture<K, C> {
    pub(crate) fn new(shared: Arc<Shared<K, C>>, target: K, request: Request) -> Self {
        LeaseFuture { shared, target, request, waiter: None }
    }
}

// Nothing in it is borrowed from itself.
impl<K: Target, C: Send + 'static> Unpin for LeaseFuture<K, C> {}

impl<K: Target, C: Send + 'static> Future for LeaseFuture<K, C> {
    type Output = Result<Lease<K, C>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Cloned without the lock: it is code of the executor's.
        let mut waker = cx.waker().clone();
        let mut asked = match this.waiter {
            Some(waiter) => ready!(this.poll_wait(waiter, waker)).map(Asked::Leased),
            None => this.shared.ask(&this.target, this.request, || Wake::Task(waker)),
        };
        loop {
            let leased = match asked {
                Ok(Asked::Leased(leased)) => leased,
                Ok(Asked::Waits(waiter)) => {
                    this.waiter = Some(waiter);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            match Lease::of(&this.shared, leased) {
                Ok(lease) => return Poll::Ready(Ok(lease)),
                Err(gone) => {
                    waker = cx.waker().clone();
                    asked = this.shared.ask_again(gone, this.request, || Wake::Task(waker));
                }
            }
        }
    }
}

impl<K: Target, C: Send + 'static> LeaseFuture<K, C> {
    fn poll_wait(&mut self, waiter: WaiterId, waker: Waker) -> Poll<Result<Leased<C>, Error>> {
        let mut state = self.shared.lock();
        // An old waker is dropped without the lock: it is code of the executor's.
        let before = state.waits.insert(waiter, Wait::Waits(Wake::Task(waker)));
        let Some(Wait::Done(result)) = before else {
            drop(state);
            return Poll::Pending;
        };
        let _unused = state.waits.remove(&waiter);
        drop(state);
        self.waiter = None;
        Poll::Ready(result)
    }
}

impl<K: Target, C: Send + 'static> Drop for LeaseFuture<K, C> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let wait = self.shared.call(|state, now| {
            state.engine.cancel(now, waiter);
            state.waits.remove(&waiter)
        });
        if let Some(Wait::Done(Ok(leased))) = wait {
            self.shared.give_back(leased, false);
        }
    }
}
