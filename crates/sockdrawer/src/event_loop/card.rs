//! What others can read of a connection while its thread does not answer, because user code has it.

use super::door::Door;
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
pub(crate) struct Card(Mutex<Option<Written>>);

pub(crate) struct Written {
    pub(crate) id: ConnectionId,
    pub(crate) generation: u32,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) door: Option<Arc<Door>>,
    pub(crate) side: Side,
    pub(crate) tag: Option<Tag>,
    pub(crate) since: Instant,
    /// What the event loop had received and sent before.
    pub(crate) before: (u64, u64),
}

impl Card {
    pub(crate) fn write(&self, written: Option<Written>) {
        *lock(&self.0) = written;
    }

    pub(crate) fn moved(&self, generation: u32) {
        if let Some(written) = &mut *lock(&self.0) {
            written.generation = generation;
        }
    }

    /// An empty one is none.
    pub(crate) fn tagged(&self, tag: Tag) {
        if let Some(written) = &mut *lock(&self.0) {
            written.tag = Some(tag).filter(|tag| !tag.is_empty());
        }
    }

    /// The connection, if there is one and it is meant.
    pub(crate) fn read(&self, counters: &Counters, selector: &Selector) -> Option<ConnectionStatus> {
        let card = lock(&self.0);
        let &Written { id, generation, peer, ref door, side, ref tag, since, before } = card.as_ref()?;
        let listener = door.as_ref().map(|door| &door.address);
        let traits = Traits { id, generation, peer, age: since.elapsed(), listener, tag: tag.as_deref() };
        let bytes_in = counters.bytes_in().get().saturating_sub(before.0);
        let bytes_out = counters.bytes_out().get().saturating_sub(before.1);
        selector.takes(&traits).then(|| traits.status(side, (bytes_in, bytes_out), ConnectionState::Working, false))
    }
}
