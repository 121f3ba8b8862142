//! A loop's inbox: the only way for other threads to reach its connections.

use super::EventLoop;
use super::incoming::Incoming;
use super::lease::Returned;
use crate::protocol::{JobResult, Note, NotifyError, Post, Tag};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::sys::{Errno, System};
use crate::wake::Wake;
use std::sync::Arc;

/// Something for a loop, or for one of its connections by token; it is dropped if that connection is gone.
pub(crate) enum Message {
    /// A job ended.
    Done(u64, JobResult),
    /// A note for a connection.
    Note(u64, Note),
    /// A connection enters the loop.
    Adopt(Incoming),
    /// A leased connection comes back.
    Returned(Returned),
    /// The control plane asks something of the loop's connections.
    Command(Command),
}

/// What the control plane asks, run on the loop's thread between two events.
pub(crate) type Command = Box<dyn FnOnce(&mut EventLoop) + Send>;

/// Messages in the order they came. Its memory is kept, so that steady traffic allocates nothing.
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    pub(crate) wake: Arc<Wake>,
    /// The most notes that may wait; jobs, connections and commands are bounded elsewhere and never refused.
    bound: AtomicUsize,
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
        inbox.wake.event()?;
        Ok(inbox)
    }

    /// One without an event: its loop waits for nothing yet.
    pub(crate) fn asleep(system: Arc<dyn System>, bound: usize) -> Arc<Inbox> {
        Arc::new(Inbox { queue: Mutex::default(), wake: Wake::new(system), bound: AtomicUsize::new(bound) })
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
        self.wake.wake();
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
        self.wake.wake();
        true
    }

    /// Swaps the waiting messages for the empty `into`.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        // Nearly always there was no notice: memory that is not written stays in every processor's cache, and is not copied for a forked
        // process.
        if !self.wake.is_notified() {
            return;
        }
        // First: a message put in after the swap below is a notice again.
        self.wake.clear();
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
        self.wake.wake();
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
    fn a_closed_inbox_swallows_notes_and_returns_messages() {
        let inbox = Inbox::new(Arc::new(Kernel), 2).expect("an inbox");
        assert!(inbox.close().is_empty());
        assert!(inbox.post(1, Note::value(1)).is_ok());
        assert!(inbox.put(Message::Command(Box::new(|_| ()))).is_err());
    }
}
