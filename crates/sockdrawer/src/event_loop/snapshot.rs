//! Facts that others can read of a connection while its thread does not answer, because user code has it.

use crate::listen::state::ListenerState;
use crate::observe::counters::Counters;
use crate::observe::{ConnectionState, ConnectionStatus};
use crate::operation::{Selector, Traits};
use crate::protocol::{ConnectionId, Side, Tag};
use crate::sync::{Mutex, lock};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The one connection of an event loop that only serves; empty where it has none.
#[derive(Default)]
pub(crate) struct SnapshotCell(Mutex<Option<Snapshot>>);

pub(crate) struct Snapshot {
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) listener: Option<Arc<ListenerState>>,
    pub(crate) side: Side,
    pub(crate) tag: Option<Tag>,
    pub(crate) since: Instant,
    /// Bytes that the event loop had received and sent before.
    pub(crate) before: (u64, u64),
}

impl SnapshotCell {
    pub(crate) fn write(&self, written: Option<Snapshot>) {
        *lock(&self.0) = written;
    }

    pub(crate) fn moved(&self, generation: u32) {
        if let Some(written) = &mut *lock(&self.0) {
            written.generation = generation;
        }
    }

    pub(crate) fn came_from(&self, peer: SocketAddr) {
        if let Some(written) = &mut *lock(&self.0) {
            written.peer = Some(peer);
        }
    }

    /// Sets the tag; an empty tag is none.
    pub(crate) fn tagged(&self, tag: Tag) {
        if let Some(written) = &mut *lock(&self.0) {
            written.tag = Some(tag).filter(|tag| !tag.is_empty());
        }
    }

    /// Returns the connection's number, if there is one.
    pub(crate) fn id(&self) -> Option<ConnectionId> {
        lock(&self.0).as_ref().map(|snapshot| snapshot.id)
    }

    /// Returns the connection, if there is one and it is selected.
    pub(crate) fn read(&self, counters: &Counters, selector: &Selector) -> Option<ConnectionStatus> {
        let snapshot = lock(&self.0);
        let &Snapshot { id, generation, peer, ref listener, side, ref tag, since, before } = snapshot.as_ref()?;
        let listener = listener.as_ref().map(|listener| &listener.address);
        let traits = Traits { id, generation, peer, age: since.elapsed(), listener, tag: tag.as_deref() };
        let bytes_in = counters.bytes_in().get().saturating_sub(before.0);
        let bytes_out = counters.bytes_out().get().saturating_sub(before.1);
        selector.takes(&traits).then(|| traits.status(side, (bytes_in, bytes_out), ConnectionState::Working, false))
    }
}
