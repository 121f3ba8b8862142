//! Connections that were restored from another process, and are that one's still: nothing of them is touched.

use super::generations::Generations;
use super::incoming::{Arrival, Incoming};
use super::io::Io;
use super::read_buffer::ReadBuffer;
use crate::ipc::record::{Record, Restored};
use crate::listen::permit::Permit;
use crate::net::Address;
use crate::protocol::{Note, Peer, Saved, State};
use crate::sys::{Errno, cookie};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A connection that was restored: its slab has its state, and its generation counts it.
pub(super) struct Arrived {
    pub(super) socket: OwnedFd,
    pub(super) remote: Option<SocketAddr>,
    pub(super) record: Record,
    pub(super) table: u16,
    pub(super) state: u32,
}

impl Arrived {
    /// Makes it a connection on its way to where it is to run. Its state here was forgotten.
    pub(super) fn on_its_way(self, permit: Permit, notes: Vec<Note>, together: bool) -> Incoming {
        let Arrived { socket, remote, record, .. } = self;
        let side = record.marks.side();
        let arrival = Some(Box::new(Arrival { record, notes, together }));
        Incoming { socket, permit, remote, side, arrival, lag: Duration::ZERO, connect_time: Duration::ZERO }
    }
}

/// The connections of a loop, by id, that were restored.
#[derive(Default)]
pub(super) struct Landing {
    arrived: HashMap<u64, Arrived>,
}

impl Landing {
    /// Restores a connection of another process.
    pub(super) fn restore(
        &mut self,
        io: &Io,
        generations: &mut Generations,
        read: &mut ReadBuffer,
        record: Record,
        socket: OwnedFd,
    ) -> Result<(), String> {
        let errno = |errno: Errno| std::io::Error::from(errno).to_string();
        if cookie(socket.as_fd()).map_err(errno)? != record.cookie {
            return Err("its socket is another's".to_owned());
        }
        if self.arrived.contains_key(&record.id) {
            return Err("its number is another's".to_owned());
        }
        if record.relay.is_some() && io.shared.placement.is_some() {
            return Err("it is relayed, and each connection of the new process has a thread of its own".to_owned());
        }
        generations.join(io, read).map_err(|panicked| io.tell_panic("the new service", panicked))?;
        let came_in_at: Option<Address> = record.listener.as_ref().and_then(|address| address.parse().ok());
        let table = generations.active_reading(came_in_at.as_ref(), &State::written(&record.names, &record.versions));
        let restored = if record.kept.len() + read.most > read.pages.len() {
            Err("it has more untaken input than the new service may have".to_owned())
        } else {
            restore_state(io, generations, table, came_in_at, (&record, socket.as_fd()))
        };
        let (state, remote) = restored.inspect_err(|_| generations.leave(io, table))?;
        self.arrived.insert(record.id, Arrived { socket, remote, record, table, state });
        Ok(())
    }

    pub(super) fn take(&mut self, id: u64) -> Option<Arrived> {
        self.arrived.remove(&id)
    }

    /// Forgets connections that were restored without the other side of their relay.
    pub(super) fn forget_halves(&mut self, io: &Io, generations: &mut Generations, restored: &mut Restored) {
        let relays = |id: &u64| self.arrived.get(id).and_then(|arrived| arrived.record.relay);
        let alone = restored.ids.iter().filter(|id| relays(id).is_some_and(|other| !restored.ids.contains(&other)));
        let alone: Vec<u64> = alone.copied().collect();
        for arrived in alone.iter().filter_map(|id| self.arrived.remove(id)) {
            generations.forget(io, arrived.table, arrived.state);
        }
        restored.ids.retain(|id| !alone.contains(id));
    }

    /// Forgets all that did not come after all.
    pub(super) fn forget_all(&mut self, io: &Io, generations: &mut Generations) {
        for (_, arrived) in self.arrived.drain() {
            generations.forget(io, arrived.table, arrived.state);
        }
    }
}

fn restore_state(
    io: &Io,
    generations: &mut Generations,
    table: u16,
    listener: Option<Address>,
    (record, socket): (&Record, BorrowedFd<'_>),
) -> Result<(u32, Option<SocketAddr>), String> {
    let learned = record.peer.as_ref().and_then(|peer| peer.parse().ok());
    let remote = learned.or_else(|| io.system.peer_address(socket).ok().flatten());
    let peer = Peer::new(remote, record.marks.side()).came_in_at(listener.map(Arc::new));
    let mut saved = Saved::versioned(&record.state, &record.versions);
    let restored = generations.at(table).table.restore(&peer, &mut saved);
    let restored = restored.map_err(|panicked| io.tell_panic("restore", panicked))?;
    Ok((restored.map_err(|why| why.to_string())?, remote))
}
