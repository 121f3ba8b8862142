//! A layer learned who the peer of a connection is: from then on the connection has that address, and admission has judged it; and how a
//! connection is turned away.

use super::Connections;
use crate::admission::Reject;
use crate::event_loop::slots::Extra;
use crate::limit::policy::Admitted;
use crate::listen::state::ListenerState;
use crate::observe::Event as Told;
use crate::observe::counters::RejectReason;
use crate::protocol::Learned;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

impl Connections {
    /// Whether the service in force at a listener learns who its peers are only after the accept.
    #[inline]
    pub(in crate::event_loop) fn learns_peers_at(&mut self, listener: Option<&Arc<ListenerState>>) -> bool {
        self.learns_peers && {
            let table = self.generations.active_at(listener.and_then(|listener| listener.own.as_ref()));
            self.generations.at(table).learns_peer_address
        }
    }

    /// Whether a connection runs under a service that learns who its peer is.
    pub(in crate::event_loop) fn learns_its_peer(&mut self, slot: u32) -> bool {
        let table = self.slots.at(slot).table;
        self.generations.at(table).learns_peer_address
    }

    /// Returns whether it is still to be learned who the peer of a connection is: it is counted as a connection of none until then.
    pub(in crate::event_loop) fn awaits_peer(&mut self, slot: u32) -> bool {
        let record = self.slots.at(slot);
        let (table, state, is_open) = (record.table, record.state, record.has_protocol());
        is_open
            && self.slots.extra(slot).and_then(Extra::learned_remote).is_none()
            && self.generations.at(table).awaits_peer(state)
    }

    /// The peer is known now. A connection that is turned away is rejected as it would have been at the accept; its layer aborts it.
    pub(super) fn peer_learned(&mut self, slot: u32, Learned { real, answer }: Learned) {
        let (entered, panicked) =
            answer.and_then(|answer| answer.downcast::<Admitted>().ok()).map_or((Ok(None), None), |answer| *answer);
        if let Some(message) = panicked {
            self.io.counters.admission_panics().add(1);
            self.io.tell_some(&Told::AdmissionPanicked { message });
        }
        if let Some(real) = real {
            self.set_remote(slot, real);
        }
        match entered {
            Ok(Some(peer_count)) => self.slots.make_extra(slot).peer_count = Some(peer_count),
            Ok(None) => {}
            Err((how, reason)) => {
                let Some(socket) = self.slots.at(slot).socket.take() else { return };
                self.reject(&socket, (&how, reason));
                self.slots.at(slot).socket = Some(socket);
                self.slots.make_extra(slot).turned_away = true;
            }
        }
    }

    /// Ends an accepted connection that may not come in.
    pub(in crate::event_loop) fn reject(&mut self, socket: &OwnedFd, (how, reason): (&Reject, RejectReason)) {
        self.io.counters.rejected_for(reason).add(1);
        // A peer that is gone already, or does not read, gets less: it was to be turned away anyway.
        match how {
            Reject::Reset => _ = self.io.system.reset_on_close(socket.as_fd()),
            Reject::Bytes(bytes) => {
                _ = self.io.system.send(socket.as_fd(), bytes, true);
                self.read_before_rejecting(socket);
            }
            Reject::Fin => self.read_before_rejecting(socket),
        }
    }

    /// What has come already is read, so that closing does not turn into a reset. There is no permit to linger with.
    fn read_before_rejecting(&mut self, socket: &OwnedFd) {
        _ = self.io.system.finish(socket.as_fd());
        _ = self.io.system.receive(socket.as_fd(), &mut self.read);
    }

    /// The address of the peer, whatever the kernel says.
    pub(super) fn set_remote(&mut self, slot: u32, remote: SocketAddr) {
        self.slots.make_extra(slot).remote = Some(Box::new(remote));
        self.snapshot.iter().for_each(|snapshot| snapshot.came_from(remote));
        self.page.iter().for_each(|page| page.set_peer(remote));
    }
}
