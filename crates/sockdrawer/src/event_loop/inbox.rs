//! A loop's inbox: the only way for other threads to reach its connections.

use super::EventLoop;
use super::acceptor::Incoming;
use super::lease::Returned;
use crate::protocol::{JobResult, Note, NotifyError, Post, Tag};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, OnceLock, lock};
use crate::sys::{Errno, System};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A number that no other thread has at the same time, and not 0.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// Something for a loop, or for one of its connections by token; it is dropped if that connection is gone.
pub(crate) enum Message {
    /// A job ended.
    Done(u64, JobResult),
    /// Somebody speaks to a connection.
    Note(u64, Note),
    /// A connection enters the loop.
    Adopt(Incoming),
    /// A connection that was given away comes back.
    Returned(Returned),
    /// The control plane asks something of the loop's connections.
    Command(Command),
}

/// What the control plane asks, run on the loop's thread between two events.
pub(crate) type Command = Box<dyn FnOnce(&mut EventLoop) + Send>;

/// Letters in the order they came. Its memory is kept, so that steady traffic allocates nothing.
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    /// Set by the first message after the loop last looked: one ring for many messages.
    notified: AtomicBool,
    /// The thread that looks at `rung` each time before it waits, so that it need not ring for itself. 0: none does.
    reader: AtomicUsize,
    /// None yet in an event loop that has had nothing to wait for.
    event: OnceLock<OwnedFd>,
    /// The most notes that may wait; jobs, connections and orders are bounded elsewhere and never refused.
    bound: AtomicUsize,
    system: Arc<dyn System>,
}

#[derive(Default)]
struct Queue {
    messages: Vec<Message>,
    notes: usize,
    /// The loop is gone: messages are dropped at once, and with them what they carry.
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(system: Arc<dyn System>, bound: usize) -> Result<Arc<Inbox>, Errno> {
        let inbox = Inbox::asleep(system, bound);
        inbox.event()?;
        Ok(inbox)
    }

    /// One that nobody waits for yet.
    pub(crate) fn asleep(system: Arc<dyn System>, bound: usize) -> Arc<Inbox> {
        Arc::new(Inbox {
            queue: Mutex::default(),
            notified: AtomicBool::new(false),
            reader: AtomicUsize::new(0),
            event: OnceLock::new(),
            bound: AtomicUsize::new(bound),
            system,
        })
    }

    /// What is rung. Made now if it was not.
    pub(crate) fn event(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.event.get().is_none() {
            // Another thread's is as good.
            let _ = self.event.set(self.system.event()?);
        }
        Ok(self.event.get().expect("just set").as_fd())
    }

    pub(crate) fn set_bound(&self, notes: usize) {
        self.bound.store(notes, Ordering::Relaxed);
    }

    /// Puts a message in. A message to a loop that is gone comes back.
    pub(crate) fn put(&self, message: Message) -> Result<(), Message> {
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return Err(message);
            }
            queue.messages.push(message);
        }
        self.wake();
        Ok(())
    }

    /// Puts an order in as if it were a note: false when there are too many. An order to a loop that is gone is dropped.
    pub(crate) fn put_bounded(&self, command: Command) -> bool {
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return true;
            }
            if queue.notes >= self.bound.load(Ordering::Relaxed) {
                return false;
            }
            queue.notes += 1;
            queue.messages.push(Message::Command(command));
        }
        self.wake();
        true
    }

    /// Makes the loop turn.
    pub(crate) fn wake(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) && self.reader.load(Ordering::Relaxed) != this_thread() {
            // The counter of an eventfd overflows after 2^64 rings that nobody read; nothing else can fail here.
            // Who has no event yet looks at `rung` before it waits for the first time.
            let _ = self.event.get().map(|event| self.system.notify(event.as_fd()));
        }
    }

    /// Says that this thread will look whether it has rung before each wait, and runs nothing else in between.
    pub(crate) fn read_here(&self) {
        self.reader.store(this_thread(), Ordering::Relaxed);
    }

    /// Whether there is something to take.
    pub(crate) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Swaps the waiting messages for the empty `into`.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        // Nearly always it has not: what nobody writes stays in every processor's cache, and is not copied for a forked process.
        if !self.is_notified() {
            return;
        }
        // First: a message put in after the swap below rings again.
        self.notified.swap(false, Ordering::AcqRel);
        let mut queue = lock(&self.queue);
        std::mem::swap(&mut queue.messages, into);
        queue.notes = 0;
    }

    /// Refuses messages from now on; those that wait are returned, to be dropped outside the lock.
    pub(crate) fn close(&self) -> Vec<Message> {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        std::mem::take(&mut queue.messages)
    }
}

impl Post for Inbox {
    fn post(&self, token: u64, note: Note) -> Result<(), NotifyError> {
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return Ok(());
            }
            if queue.notes >= self.bound.load(Ordering::Relaxed) {
                return Err(NotifyError::Full(note));
            }
            queue.notes += 1;
            queue.messages.push(Message::Note(token, note));
        }
        self.wake();
        Ok(())
    }

    fn tag(&self, token: u64, tag: Tag) -> bool {
        self.put_bounded(Box::new(move |event_loop| _ = event_loop.connections.tag_one(token, &tag)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Kernel;

    #[test]
    fn a_full_inbox_gives_the_note_back_and_takes_notes_again_when_emptied() {
        let inbox = Inbox::new(Arc::new(Kernel), 2).expect("an inbox");
        let note = || Note::from(Arc::<[u8]>::from(&b"x"[..]));
        assert!(inbox.post(1, note()).is_ok());
        assert!(inbox.post(1, note()).is_ok());
        assert!(matches!(inbox.post(1, note()), Err(NotifyError::Full(Note::Bytes(_)))));
        assert!(inbox.put(Message::Command(Box::new(|_| ()))).is_ok(), "commands are never refused");
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        assert_eq!(messages.len(), 3);
        assert!(inbox.post(1, note()).is_ok());
    }

    #[test]
    fn only_other_threads_ring() {
        let inbox = Inbox::new(Arc::new(Kernel), 2).expect("an inbox");
        let rings = |inbox: &Inbox| {
            let mut events = crate::sys::Events::with_capacity(1);
            let epoll = Kernel.epoll().expect("an epoll");
            Kernel.watch_event(epoll.as_fd(), inbox.event().expect("an event"), 0).expect("watched");
            Kernel.wait(epoll.as_fd(), &mut events, Some(std::time::Duration::ZERO)).expect("waits");
            events.len()
        };
        inbox.read_here();
        inbox.wake();
        assert_eq!((inbox.is_notified(), rings(&inbox)), (true, 0));
        inbox.take(&mut Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| inbox.wake());
        });
        assert_eq!((inbox.is_notified(), rings(&inbox)), (true, 1));
    }

    #[test]
    fn a_closed_inbox_swallows_notes_and_returns_letters() {
        let inbox = Inbox::new(Arc::new(Kernel), 2).expect("an inbox");
        assert!(inbox.close().is_empty());
        assert!(inbox.post(1, Note::value(1)).is_ok());
        assert!(inbox.put(Message::Command(Box::new(|_| ()))).is_err());
    }
}
