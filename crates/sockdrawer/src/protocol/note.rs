//! Notes, and the handles through which they are sent.

use super::tag::{Tag, tag};
use std::any::Any;
use std::sync::Arc;

/// Where handles put their notes: a loop's inbox, or a test's.
pub(crate) trait Post: Send + Sync {
    fn post(&self, token: u64, note: Note) -> Result<(), NotifyError>;
    /// False when there is no room.
    fn tag(&self, token: u64, tag: Tag) -> bool;
}

/// A way to speak to one connection from another connection or thread. Once the connection is gone, notes are dropped.
#[derive(Clone)]
pub struct Handle {
    pub(crate) post: Arc<dyn Post>,
    pub(crate) token: u64,
}

impl Handle {
    /// Brings `note` to the connection's [`Protocol::notified`](crate::Protocol::notified), never waiting. Notes of one sender arrive in order.
    ///
    /// # Errors
    /// When the loop's inbox is full; the note comes back.
    pub fn notify(&self, note: impl Into<Note>) -> Result<(), NotifyError> {
        self.post.post(self.token, note.into())
    }

    /// Calls the connection by a short text, as [`Context::tag`](crate::Context::tag) does, never waiting; after the notes that were
    /// sent before. False, and nothing is done, when the loop's inbox is full.
    pub fn tag(&self, text: &str) -> bool {
        self.post.tag(self.token, tag(text))
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({:#x})", self.token)
    }
}

/// What a handle or the pool tells a connection.
#[non_exhaustive]
pub enum Note {
    /// Bytes shared by all who get them.
    Bytes(Arc<[u8]>),
    /// Any value, for one.
    Value(Box<dyn Any + Send>),
}

impl Note {
    /// Any value, for [`Note::take`] on the other side.
    pub fn value<T: Any + Send>(value: T) -> Note {
        Note::Value(Box::new(value))
    }

    /// The bytes, when it carries bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Note::Bytes(bytes) => Some(bytes),
            Note::Value(_) => None,
        }
    }

    /// The value, when it is a `T`; else the note again.
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

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Bytes(bytes) => write!(f, "Note({} bytes)", bytes.len()),
            Note::Value(_) => f.write_str("Note(value)"),
        }
    }
}

/// A note that could not be brought.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The inbox of the connection's loop is full: the loop is slower than its senders. Try later or drop it.
    #[error("the loop's inbox is full: send less, or again later")]
    Full(Note),
}
