//! Notes, and the handles through which they are sent.

use super::tag::{Tag, tag};
use std::any::Any;
use std::sync::Arc;

/// Where handles put notes: the inbox of a loop, or of a test.
pub(crate) trait Post: Send + Sync {
    fn post(&self, token: u64, note: Note) -> Result<(), NotifyError>;
    /// Returns false if the inbox is full.
    fn tag(&self, token: u64, tag: Tag) -> bool;
}

/// Sends notes to one connection from another connection or thread. Once the connection is gone, notes are dropped.
#[derive(Clone)]
pub struct Handle {
    pub(crate) post: Arc<dyn Post>,
    pub(crate) token: u64,
}

impl Handle {
    /// Sends `note` to the connection's [`Protocol::notified`](crate::Protocol::notified), without blocking. Notes of one sender arrive in order.
    ///
    /// # Errors
    /// When the loop's inbox is full; the error carries the note.
    pub fn notify(&self, note: impl Into<Note>) -> Result<(), NotifyError> {
        self.post.post(self.token, note.into())
    }

    /// Gives the connection a tag, as [`Context::tag`](crate::Context::tag) does, without blocking; in order with the notes of this sender.
    /// Returns false, and does nothing, if the loop's inbox is full.
    pub fn tag(&self, text: &str) -> bool {
        self.post.tag(self.token, tag(text))
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({:#x})", self.token)
    }
}

/// A message to a connection, from a [`Handle`] or the pool.
#[non_exhaustive]
pub enum Note {
    /// Bytes, shared by all receivers.
    Bytes(Arc<[u8]>),
    /// Any value, for a single receiver.
    Value(Box<dyn Any + Send>),
}

impl Note {
    /// A note that carries any value; the receiver gets it by [`Note::take`].
    pub fn value<T: Any + Send>(value: T) -> Note {
        Note::Value(Box::new(value))
    }

    /// The bytes of the note; None if it carries a value.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Note::Bytes(bytes) => Some(bytes),
            Note::Value(_) => None,
        }
    }

    /// The value of the note, if it is a `T`.
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

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Bytes(bytes) => write!(f, "Note({} bytes)", bytes.len()),
            Note::Value(_) => f.write_str("Note(value)"),
        }
    }
}

/// Why a note was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The inbox of the connection's loop is full: the loop is slower than its senders. Try later or drop it.
    #[error("the loop's inbox is full: send less, or again later")]
    Full(Note),
}
