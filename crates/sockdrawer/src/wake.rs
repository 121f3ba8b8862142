//! Waking a loop that waits, from any thread: one notice for many reasons.

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::{Errno, System};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Returns a number that no other thread has while this one runs, and not 0.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// Notice by which a loop is woken.
pub(crate) struct Wake {
    /// True where there was a notice after the loop last looked.
    notified: AtomicBool,
    /// The thread that looks at `notified` each time before it waits, so that it need not wake itself. 0: none does.
    reader: AtomicUsize,
    /// Event descriptor; none yet in an event loop that has had nothing to wait for.
    event: OnceLock<OwnedFd>,
    system: Arc<dyn System>,
}

impl Wake {
    /// Makes a notice without an event, until one is asked for.
    pub(crate) fn new(system: Arc<dyn System>) -> Arc<Wake> {
        let (notified, reader) = (AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(Wake { notified, reader, event: OnceLock::new(), system })
    }

    /// Returns the event, which is readable after a notice. It is made now if there was none.
    pub(crate) fn event(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.event.get().is_none() {
            // Another thread's is as good.
            let _ = self.event.set(self.system.event()?);
        }
        Ok(self.event.get().expect("just set").as_fd())
    }

    /// Makes the loop turn.
    pub(crate) fn wake(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) && self.reader.load(Ordering::Relaxed) != this_thread() {
            // The counter of an eventfd overflows after 2^64 notices that no thread read; nothing else can fail here. A loop that has no
            // event yet looks at `notified` before it waits for the first time.
            let _ = self.event.get().map(|event| self.system.notify(event.as_fd()));
        }
    }

    /// This thread will look before each wait, and runs nothing else in between.
    pub(crate) fn read_here(&self) {
        self.reader.store(this_thread(), Ordering::Relaxed);
    }

    /// Returns true where there was a notice since the last [`Wake::clear`].
    pub(crate) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Forgets the notices. To be called before the loop looks: what comes after this is a notice again.
    pub(crate) fn clear(&self) {
        self.notified.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Kernel;

    #[test]
    fn only_other_threads_make_the_event_readable() {
        let wake = Wake::new(Arc::new(Kernel));
        let readable = |wake: &Wake| {
            let mut events = crate::sys::Events::with_capacity(1);
            let epoll = Kernel.epoll().expect("an epoll");
            Kernel.watch_event(epoll.as_fd(), wake.event().expect("an event"), 0).expect("watched");
            Kernel.wait(epoll.as_fd(), &mut events, Some(std::time::Duration::ZERO)).expect("waits");
            events.len()
        };
        wake.event().expect("an event");
        wake.read_here();
        wake.wake();
        assert_eq!((wake.is_notified(), readable(&wake)), (true, 0));
        wake.clear();
        std::thread::scope(|scope| {
            scope.spawn(|| wake.wake());
        });
        assert_eq!((wake.is_notified(), readable(&wake)), (true, 1));
    }
}
