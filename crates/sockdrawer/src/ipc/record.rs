//! Connections on their way from one process to another: what they are but for their sockets, and which of them were restored.

use crate::protocol::{Side, Wiped};

/// A connection, but for its socket. Bytes of it are not printed.
#[derive(Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) id: u64,
    /// The number by which the kernel knows its socket (`SO_COOKIE`): held against the descriptor at its place.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) cookie: u64,
    /// Seconds since it opened.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) age: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) bytes_in: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) bytes_out: u64,
    /// The state that its protocol saved, and the versions that it was declared to be of.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) state: Wiped,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) versions: Vec<u32>,
    /// Input that the protocol did not take.
    #[serde(with = "serde_bytes", skip_serializing_if = "is_default")]
    pub(crate) kept: Vec<u8>,
    /// Output that the kernel did not take.
    #[serde(with = "serde_bytes", skip_serializing_if = "is_default")]
    pub(crate) unsent: Vec<u8>,
    /// Time that is left of the protocol's timer, in nanoseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) timer: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) tag: Option<String>,
    /// The address at which it came in.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) listener: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) marks: Marks,
    /// The unsent bytes at which its protocol is to be woken.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) wake_below: Option<u32>,
    /// The peer's address, where a layer learned another than the kernel knows.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) peer: Option<String>,
    /// Names of its state: its protocol's, and those of its layers.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) names: Vec<String>,
    /// Nanoseconds since its peer and its protocol last took something, where the idle timeout runs.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) idle: Option<u64>,
    /// The connection that it is joined with, which stands in the same offer.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) relay: Option<u64>,
}

/// Returns true for a field that can be left out. Few fields of a record are set, and there may be many records.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Record {
    /// Returns about how many bytes it takes in a message.
    pub(crate) fn size(&self) -> usize {
        128 + self.state.len() + self.kept.len() + self.unsent.len()
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Record { id, versions, marks, .. } = self;
        f.debug_struct("Record").field("id", id).field("versions", versions).field("marks", marks).finish_non_exhaustive()
    }
}

/// Marks of what a connection is in the middle of.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Marks {
    /// This side connected.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) connected: bool,
    /// The protocol paused the connection's input.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) waiting: bool,
    /// The peer's end was read.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) peer_ended: bool,
    /// The protocol was told of the peer's end.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) told_ended: bool,
    /// This side's end was told, or is to be told once all is sent.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) finishing: bool,
    /// Unsent output passed the high-water mark and did not fall below the low one.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) full: bool,
    /// Notes of the connection found no room in the inbox of another loop.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) held: bool,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Restored {
    pub(crate) ids: Vec<u64>,
    /// Reasons why other connections stay, each once.
    pub(crate) reasons: Vec<String>,
}

impl Marks {
    pub(crate) fn side(&self) -> Side {
        if self.connected { Side::Connected } else { Side::Accepted }
    }
}
