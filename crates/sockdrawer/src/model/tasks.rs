//! The model `tasks`: each thread is a runtime of tokio, and its event loop is one of the runtime's tasks, beside those of the user's
//! async code. All else is as in `loops`.

use super::loops::{self, EVENTS_PER_TURN, Running, TurnCounter};
use crate::event_loop::EventLoop;
use crate::sync::atomic::Ordering;
use crate::sync::mpsc;
use crate::sys::{Events, reactor};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::time::Sleep;

/// Starts a thread that runs `event_loop` in a runtime until it is told to stop, then calls `ended` with the panic's message, if it was
/// one.
pub(crate) fn start(
    index: usize,
    event_loop: EventLoop,
    ended: impl FnOnce(Option<String>) + Send + 'static,
) -> io::Result<Running> {
    let (tells, hears) = mpsc::channel();
    let started = loops::spawn(index, event_loop.counters().clone(), |turns| {
        move || {
            // A runtime that runs futures which never leave their thread is made there.
            let made = runtime(turns.clone()).and_then(|runtime| Ok((watch(&event_loop, &runtime)?, runtime)));
            let (epoll, runtime) = match made {
                Ok(made) => made,
                Err(error) => return drop(tells.send(Err(error))),
            };
            // The thread that starts a loop waits for this.
            let _ = tells.send(Ok(()));
            let panic = {
                // Callbacks at the end may use the runtime too.
                let _entered = runtime.enter();
                loops::live(event_loop, |event_loop| runtime.block_on(drive(event_loop, &turns, epoll)))
            };
            // Dropping the runtime would wait for what the user runs in its blocking threads.
            runtime.shutdown_background();
            turns.ended.store(true, Ordering::Release);
            ended(panic);
        }
    })?;
    hears.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")))?;
    Ok(started)
}

/// Makes the runtime of a loop. The loop is asleep while its runtime is: a task that blocks the thread is seen as a loop that hangs.
fn runtime(turns: Arc<TurnCounter>) -> io::Result<LocalRuntime> {
    let parked = turns.clone();
    let mut builder = Builder::new_current_thread();
    builder.enable_all().on_thread_park(move || parked.sleeping(true)).on_thread_unpark(move || turns.sleeping(false));
    builder.build_local(LocalOptions::default())
}

fn watch(event_loop: &EventLoop, runtime: &LocalRuntime) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    let _entered = runtime.enter();
    reactor::watched(Arc::new(event_loop.epoll()?), Interest::READABLE)
}

/// Turns the event loop whenever it has something to do, and lets the other tasks run between two turns.
async fn drive(event_loop: &mut EventLoop, turns: &TurnCounter, epoll: AsyncFd<Arc<OwnedFd>>) {
    let mut events = Events::with_capacity(EVENTS_PER_TURN);
    let mut alarm = RuntimeTimer { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), armed: None };
    while !event_loop.stopping {
        let busy = event_loop.turn_now(&mut events);
        // Another turn, for the supervisor, which looks whether this loop hangs.
        turns.sleeping(false);
        turns.connections.store(event_loop.count(), Ordering::Relaxed);
        if busy || event_loop.has_messages() {
            // Events that are still ready are not reported again: only a turn that found nothing may wait.
            tokio::task::yield_now().await;
            continue;
        }
        // The runtime has looked at nothing since that turn: all that it knows of is older, and was not there any more.
        let _ = epoll.try_io(Interest::READABLE, |_| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        let due = event_loop.due();
        poll_fn(|cx| {
            if epoll.poll_read_ready(cx).is_ready() {
                return Poll::Ready(());
            }
            due.map_or(Poll::Pending, |due| alarm.poll_at(due, cx))
        })
        .await;
    }
}

/// Wakes the event loop's task when something is due. Most deadlines are moved away again before they come, so it is set anew only for
/// an earlier one; it may be early then, which costs a turn that finds nothing. The runtime's clock ticks in milliseconds, rounded up.
struct RuntimeTimer {
    sleep: Pin<Box<Sleep>>,
    armed: Option<Instant>,
}

impl RuntimeTimer {
    fn poll_at(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.armed.is_none_or(|armed| due < armed) {
            self.sleep.as_mut().reset(due.into());
            self.armed = Some(due);
        }
        ready!(self.sleep.as_mut().poll(cx));
        self.armed = None;
        Poll::Ready(())
    }
}
