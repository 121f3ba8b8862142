//! A loop's inbox: the only way for other threads to reach its connections.

use super::EventLoop;
use super::incoming::Incoming;
use super::lease::Returned;
use crate::protocol::{
    ConnectFailure, GroupMembers, Handle, JobResult, LateAdmission, Membership, Note, NotifyError, Post, Report, Sender, Tag,
    Told, Urgency, Waiter,
};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, OnceLock, lock};
use crate::sys::{Errno, System, panics};
use crate::wake::Wake;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// Something for a loop, or for one of its connections by token; it is dropped if that connection is gone.
pub(crate) enum Message {
    /// A job ended.
    Done(u64, JobResult),
    /// A note for a connection.
    Note(u64, Note, Urgency),
    /// A note that was published to a group, for its members in this loop.
    Published(Arc<GroupMembers>, Arc<[u8]>, Urgency),
    /// A connection comes into a group, or leaves it.
    Membership(u64, Arc<GroupMembers>, Membership),
    /// A connect that a connection has asked for failed at once.
    Connected(u64, Result<Handle, ConnectFailure>),
    /// There is room where a connection found none; or it asked to be woken.
    Room(u64),
    /// A connection enters the loop.
    Adopt(Incoming),
    /// A leased connection comes back.
    Returned(Returned),
    /// The control plane asks something of the loop's connections.
    Command(Command),
}

/// Receiver of the result of a connect.
pub(crate) enum Asker {
    /// The connection of this token.
    Connection(u64),
    /// Code outside of the pool; None while it is being told.
    Code(Option<Told>),
}

impl Asker {
    /// Tells the result of a connect: a connection after the callback that is under way.
    pub(super) fn tell_later(self, inbox: &Inbox, result: Result<Handle, ConnectFailure>) {
        match self {
            // A loop that is gone has no connection that asks.
            Asker::Connection(token) => _ = inbox.put(Message::Connected(token, result)),
            Asker::Code(told) => _ = catch_unwind(AssertUnwindSafe(|| told.map(|told| told(result)))).map_err(panics::discard),
        }
    }
}

/// Bytes of a note that count as another note.
const BYTES_OF_A_NOTE: usize = 1024;

/// Order of the control plane, run on the loop's thread between two events.
pub(crate) type Command = Box<dyn FnOnce(&mut EventLoop) + Send>;

/// Messages in the order they came. Its memory is kept, so that steady traffic allocates nothing.
pub(crate) struct Inbox {
    queue: Mutex<Messages>,
    /// Connections that have given handles to themselves away.
    handled: Mutex<HashSet<u64>>,
    pub(crate) wake: Arc<Wake>,
    /// The most notes that may wait; jobs, connections and commands are bounded elsewhere and never refused.
    bound: AtomicUsize,
    /// Admission of the pool whose loop this is, for connections whose peer is learned late.
    late_admission: OnceLock<Weak<dyn LateAdmission>>,
}

#[derive(Default)]
struct Messages {
    messages: Vec<Message>,
    /// Notes, those of many bytes for several.
    notes: usize,
    /// Senders that found no room.
    waiters: Vec<Waiter>,
    /// The loop is gone: messages are dropped at once, and with them what they carry.
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(system: Arc<dyn System>, bound: usize) -> Result<Arc<Inbox>, Errno> {
        let inbox = Inbox::asleep(system, bound);
        inbox.wake.event()?;
        Ok(inbox)
    }

    /// Makes an inbox without an event: its loop waits for nothing yet.
    pub(crate) fn asleep(system: Arc<dyn System>, bound: usize) -> Arc<Inbox> {
        Arc::new(Inbox {
            queue: Mutex::default(),
            handled: Mutex::default(),
            wake: Wake::new(system),
            bound: AtomicUsize::new(bound),
            late_admission: OnceLock::new(),
        })
    }

    /// Forgets a connection that has given handles away and is gone.
    pub(crate) fn forget_handles(&self, token: u64) {
        lock(&self.handled).remove(&token);
    }

    /// Makes the loop one of the pool that has this `late_admission`.
    pub(super) fn admits_by(&self, late_admission: Weak<dyn LateAdmission>) {
        self.late_admission.get_or_init(|| late_admission);
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

    /// Brings the result of a job that was not given to a worker. An event loop that is going closes its inbox, and its connections with it.
    pub(super) fn done(&self, token: u64, result: JobResult) {
        panics::discard(self.put(Message::Done(token, result)));
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
        let waiters = {
            let mut queue = lock(&self.queue);
            std::mem::swap(&mut queue.messages, into);
            queue.notes = 0;
            std::mem::take(&mut queue.waiters)
        };
        waiters.into_iter().for_each(|(sender, token)| sender.room(token));
    }

    /// Refuses messages from now on; those that wait are returned, to be dropped outside the lock.
    pub(crate) fn close(&self) -> Vec<Message> {
        let (messages, waiters) = {
            let mut queue = lock(&self.queue);
            queue.closed = true;
            (std::mem::take(&mut queue.messages), std::mem::take(&mut queue.waiters))
        };
        waiters.into_iter().for_each(|(sender, token)| sender.room(token));
        messages
    }

    /// Puts in a note, whether there is room or not. True where there was none; None: the loop is gone.
    fn push_note(&self, message: Message, weight: usize, sender: Option<&Waiter>) -> Option<bool> {
        let full = {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return None;
            }
            queue.notes += weight;
            queue.messages.push(message);
            let full = queue.notes >= self.bound.load(Ordering::Relaxed);
            if full && let Some(sender) = sender {
                queue.waiters.push(sender.clone());
            }
            full
        };
        self.wake.wake();
        Some(full)
    }
}

/// Returns the weight of a note, as a number of notes, by its bytes: the memory of all that wait is bounded, too.
fn weight(bytes: usize) -> usize {
    1 + bytes / BYTES_OF_A_NOTE
}

impl Sender for Inbox {
    fn room(&self, token: u64) {
        // A loop that is gone has no connection that waits.
        let _ = self.put(Message::Room(token));
    }
}

impl Post for Inbox {
    fn post(&self, token: u64, note: Note, urgency: Urgency) -> Result<(), NotifyError> {
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return Ok(());
            }
            if queue.notes >= self.bound.load(Ordering::Relaxed) {
                return Err(NotifyError::Full(note));
            }
            queue.notes += weight(note.bytes().map_or(0, <[u8]>::len));
            queue.messages.push(Message::Note(token, note, urgency));
        }
        self.wake.wake();
        Ok(())
    }

    fn push(&self, token: u64, note: Note, sender: Option<&Waiter>) -> bool {
        let weight = weight(note.bytes().map_or(0, <[u8]>::len));
        self.push_note(Message::Note(token, note, Urgency::Delivered), weight, sender).unwrap_or(false)
    }

    fn publish(&self, to: &Arc<GroupMembers>, bytes: &Arc<[u8]>, urgency: Urgency, sender: Option<&Waiter>) -> Option<bool> {
        self.push_note(Message::Published(to.clone(), bytes.clone(), urgency), weight(bytes.len()), sender)
    }

    fn change(&self, token: u64, group: &Arc<GroupMembers>, change: Membership) {
        // A loop that is gone has no members: whatever publishes next finds that out.
        let _ = self.put(Message::Membership(token, group.clone(), change));
    }

    fn give(&self, token: u64) {
        lock(&self.handled).insert(token);
    }

    fn is_gone(&self, token: u64) -> bool {
        lock(&self.queue).closed || !lock(&self.handled).contains(&token)
    }

    fn has_room(&self, sender: Option<Waiter>) -> bool {
        let mut queue = lock(&self.queue);
        let has_room = queue.closed || queue.notes < self.bound.load(Ordering::Relaxed);
        if !has_room && let Some(sender) = sender {
            queue.waiters.push(sender);
        }
        has_room
    }

    fn tag(&self, token: u64, tag: Tag) -> bool {
        self.put_bounded(Box::new(move |event_loop| event_loop.tag(token, &tag)))
    }

    fn report(&self, token: u64, report: Report) -> bool {
        self.put_bounded(Box::new(move |event_loop| {
            let connections = &mut event_loop.connections;
            connections.streams.io.tell_report(&mut connections.streams.slots, token, report);
        }))
    }

    fn late_admission(&self) -> Option<Arc<dyn LateAdmission>> {
        self.late_admission.get()?.upgrade()
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
        assert!(inbox.post(1, note(), Urgency::Delivered).is_ok());
        assert!(inbox.post(1, note(), Urgency::Delivered).is_ok());
        assert!(matches!(inbox.post(1, note(), Urgency::Delivered), Err(NotifyError::Full(Note::Bytes(_)))));
        assert!(inbox.put(Message::Command(Box::new(|_| ()))).is_ok(), "commands are never refused");
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        assert_eq!(messages.len(), 3);
        assert!(inbox.post(1, note(), Urgency::Delivered).is_ok());
    }

    #[test]
    fn a_closed_inbox_swallows_notes_and_returns_messages() {
        let inbox = Inbox::new(Arc::new(Kernel), 2).expect("an inbox");
        assert!(inbox.close().is_empty());
        assert!(inbox.post(1, Note::value(1), Urgency::Delivered).is_ok());
        assert!(inbox.put(Message::Command(Box::new(|_| ()))).is_err());
    }
}
