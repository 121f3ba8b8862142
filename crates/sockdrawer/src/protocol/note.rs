//! Notes, and the handles through which they are sent.

use super::group::{Group, Membership};
use super::tag::{Tag, tag};
use super::{ConnectionId, GroupMembers, LateAdmission, Report};
use std::any::Any;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The urgency of a note: only an offered one may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// The note is delivered, or its receiver ends.
    Delivered,
    /// A receiver that is above its high-water mark does without it.
    Offered,
}

/// Hears that there is room where there was none: a loop, for one of its connections, or a thread.
pub(crate) trait Sender: Send + Sync {
    fn room(&self, token: u64);
}

/// A sender that waits for room.
pub(crate) type Waiter = (Arc<dyn Sender>, u64);

/// A place where handles and groups put notes: the inbox of a loop, or of a test.
pub(crate) trait Post: Sender {
    /// Puts in a note if there is room.
    fn post(&self, token: u64, note: Note, urgency: Urgency) -> Result<(), NotifyError>;
    /// Puts in a note whether there is room or not. True where there was none: then the sender is told when there is.
    fn push(&self, token: u64, note: Note, sender: Option<&Waiter>) -> bool;
    /// Puts in a message of a group, whether there is room or not: likewise. None: the loop is gone.
    fn publish(&self, to: &Arc<GroupMembers>, bytes: &Arc<[u8]>, urgency: Urgency, sender: Option<&Waiter>) -> Option<bool>;
    /// Has a connection come into a group, or leave it.
    fn change(&self, token: u64, group: &Arc<GroupMembers>, change: Membership);
    /// Notes that a handle to this connection was given away.
    fn give(&self, token: u64);
    /// Returns true where the connection, to which a handle was given away, has ended.
    fn is_gone(&self, token: u64) -> bool;
    /// Returns true where there is room. Where there is none, the sender, if one waits, is told when there is.
    fn has_room(&self, sender: Option<Waiter>) -> bool;
    /// Returns false if the inbox is full.
    fn tag(&self, token: u64, tag: Tag) -> bool;
    /// Returns false if the inbox is full.
    fn report(&self, token: u64, report: Report) -> bool;
    /// Returns what judges connections; without a pool there is none.
    fn late_admission(&self) -> Option<Arc<dyn LateAdmission>> {
        None
    }
}

/// Sends notes to one connection from another connection or thread. Once the connection is gone, notes are dropped.
#[derive(Clone)]
pub struct Handle {
    pub(crate) post: Arc<dyn Post>,
    pub(crate) token: u64,
    pub(crate) id: ConnectionId,
}

impl Handle {
    /// Sends `note` to the connection's [`Protocol::notified`](crate::Protocol::notified), without blocking. Notes of one sender arrive in
    /// order, and none of them is dropped: a receiver that lets more than [`Settings::max_unsent`](crate::Settings::max_unsent) bytes pile up
    /// ends. A callback uses [`Context::notify`](crate::Context::notify), which cannot fail.
    ///
    /// # Errors
    /// When the loop's inbox is full; the error carries the note.
    pub fn notify(&self, note: impl Into<Note>) -> Result<(), NotifyError> {
        self.post.post(self.token, note.into(), Urgency::Delivered)
    }

    /// Sends `note` as [`Handle::notify`] does, and waits for room where there is none. For a thread of your own: in a callback it would hold up
    /// the loop, perhaps the one that it waits for.
    ///
    /// # Errors
    /// When there is no room within this time; the error carries the note.
    pub fn notify_within(&self, note: impl Into<Note>, time: Duration) -> Result<(), NotifyError> {
        let mut note = note.into();
        let until = Instant::now().checked_add(time);
        loop {
            note = match self.notify(note) {
                Err(NotifyError::Full(note)) => note,
                sent => return sent,
            };
            if !wait_for_room([&self.post].into_iter(), until) {
                return Err(NotifyError::Full(note));
            }
        }
    }

    /// Offers `note`, which the connection does without while it is above its high-water mark: for what is stale soon, such as positions in a
    /// game. Notes that were dropped so are counted: [`Counts::notes_dropped`](crate::observe::Counts::notes_dropped).
    ///
    /// # Errors
    /// When the loop's inbox is full; the error carries the note.
    pub fn offer(&self, note: impl Into<Note>) -> Result<(), NotifyError> {
        self.post.post(self.token, note.into(), Urgency::Offered)
    }

    /// Returns the number of the connection.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns true where the connection has ended, or went to another process: then it hears no notes for good. While this is false it may end at
    /// any moment; a registry removes what [`Protocol::closed`](crate::Protocol::closed) tells of.
    pub fn is_gone(&self) -> bool {
        self.post.is_gone(self.token)
    }

    /// Makes the connection a member of a group, as [`Context::join`](crate::Context::join) does, without blocking.
    pub fn join(&self, group: &Group) {
        group.join(&self.post, self.token);
    }

    /// Ends the connection's membership of a group, as [`Context::leave`](crate::Context::leave) does, without blocking.
    pub fn leave(&self, group: &Group) {
        group.leave(&self.post, self.token);
    }

    /// Gives the connection a tag, as [`Context::tag`](crate::Context::tag) does, without blocking; in order with the notes of this sender.
    /// Returns false, and does nothing, if the loop's inbox is full.
    pub fn tag(&self, text: &str) -> bool {
        self.post.tag(self.token, tag(text))
    }

    /// Reports something about the connection, as [`Context::report`](crate::Context::report) does, without blocking. Returns false, and does
    /// nothing, if the loop's inbox is full.
    pub fn report(&self, report: impl Into<Report>) -> bool {
        self.post.report(self.token, report.into())
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.id)
    }
}

/// A thread that waits for room.
struct Parked(Thread);

impl Sender for Parked {
    fn room(&self, _token: u64) {
        self.0.unpark();
    }
}

/// Waits until each of these inboxes had room, or until then. Returns whether that came.
pub(super) fn wait_for_room<'a>(inboxes: impl Iterator<Item = &'a Arc<dyn Post>>, until: Option<Instant>) -> bool {
    let parked: Arc<dyn Sender> = Arc::new(Parked(thread::current()));
    for inbox in inboxes {
        while !inbox.has_room(Some((parked.clone(), 0))) {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
    true
}

/// A message to a connection, from a [`Handle`], a [`Group`](crate::Group) or the pool.
#[non_exhaustive]
pub enum Note {
    /// Bytes, shared by all receivers.
    Bytes(Arc<[u8]>),
    /// Any value, for a single receiver.
    Value(Box<dyn Any + Send>),
}

impl Note {
    /// Returns a note that carries any value; the receiver gets it by [`Note::take`].
    pub fn value<T: Any + Send>(value: T) -> Note {
        Note::Value(Box::new(value))
    }

    /// Returns the bytes of the note; None if it carries a value.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Note::Bytes(bytes) => Some(bytes),
            Note::Value(_) => None,
        }
    }

    /// Returns the value of the note, if it is a `T`.
    ///
    /// # Errors
    /// The note itself, if it carries bytes or a value of another type.
    pub fn take<T: Any>(self) -> Result<T, Note> {
        match self {
            Note::Value(value) => value.downcast().map(|value| *value).map_err(Note::Value),
            bytes @ Note::Bytes(_) => Err(bytes),
        }
    }
}

impl From<Arc<[u8]>> for Note {
    fn from(bytes: Arc<[u8]>) -> Note {
        Note::Bytes(bytes)
    }
}

impl From<&[u8]> for Note {
    fn from(bytes: &[u8]) -> Note {
        Note::Bytes(bytes.into())
    }
}

impl From<Vec<u8>> for Note {
    fn from(bytes: Vec<u8>) -> Note {
        Note::Bytes(bytes.into())
    }
}

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Bytes(bytes) => write!(f, "Note({} bytes)", bytes.len()),
            Note::Value(_) => f.write_str("Note(value)"),
        }
    }
}

/// Reason why a note was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The inbox of the connection's loop is full: the loop is slower than its senders.
    #[error("the loop's inbox is full: wait with notify_within, or send less")]
    Full(Note),
}
