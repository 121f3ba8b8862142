//! A layer learned who the peer of a connection is: from then on the connection has that address, and admission has judged it; and how a
//! connection is turned away.

use super::Connections;
use crate::limit::policy::Admitted;
use crate::observe::Event;
use crate::protocol::Learned;
use std::net::SocketAddr;

impl Connections {
    /// Handles a peer that is known now. A connection that is turned away is rejected as it would have been at the accept; its layer aborts it.
    pub(super) fn peer_learned(&mut self, slot: u32, Learned { real, answer }: Learned) {
        let (entered, panicked) =
            answer.and_then(|answer| answer.downcast::<Admitted>().ok()).map_or((Ok(None), None), |answer| *answer);
        if let Some(message) = panicked {
            self.io.counters.admission_panics().add(1);
            self.io.tell_some(&Event::AdmissionPanicked { message });
        }
        if let Some(real) = real {
            self.set_remote(slot, real);
        }
        match entered {
            Ok(Some(peer_count)) => self.slots.make_extra(slot).peer_count = Some(peer_count),
            Ok(None) => {}
            Err((how, reason)) => {
                let Some(socket) = self.slots.at(slot).socket.take() else { return };
                self.io.reject(&mut self.read, &socket, (&how, reason));
                self.slots.at(slot).socket = Some(socket);
                self.slots.make_extra(slot).turned_away = true;
            }
        }
    }

    /// Sets the address of the peer, whatever the kernel says.
    pub(super) fn set_remote(&mut self, slot: u32, remote: SocketAddr) {
        self.slots.make_extra(slot).remote = Some(Box::new(remote));
        self.snapshot.iter().for_each(|snapshot| snapshot.came_from(remote));
        self.page.iter().for_each(|page| page.set_peer(remote));
    }
}
