//! The peer of a connection, and its snapshot for other threads: a layer may learn the address only after the accept, and admission judges it then.

use super::Streams;
use crate::event_loop::snapshot::Snapshot;
use crate::limit::policy::Admitted;
use crate::observe::Event;
use crate::protocol::{Learned, Peer};
use std::net::SocketAddr;
use std::time::Instant;

/// Handles a peer that is known now. A connection that is turned away is rejected as it would have been at the accept; its layer aborts it.
pub(in crate::event_loop) fn learned(streams: &mut Streams, slot: u32, Learned { real, answer }: Learned) {
    let (entered, panicked) =
        answer.and_then(|answer| answer.downcast::<Admitted>().ok()).map_or((Ok(None), None), |answer| *answer);
    if let Some(message) = panicked {
        streams.io.counters.admission_panics().add(1);
        streams.io.tell_some(&Event::AdmissionPanicked { message });
    }
    if let Some(real) = real {
        set_remote(streams, slot, real);
    }
    match entered {
        Ok(Some(peer_count)) => streams.slots.make_extra(slot).peer_count = Some(peer_count),
        Ok(None) => {}
        Err((how, reason)) => {
            let Some(socket) = streams.slots.at(slot).socket.take() else { return };
            streams.io.reject(&mut streams.read, &socket, (&how, reason));
            streams.slots.at(slot).socket = Some(socket);
            streams.slots.make_extra(slot).turned_away = true;
        }
    }
}

/// Sets the address of the peer, whatever the kernel says.
pub(in crate::event_loop) fn set_remote(streams: &mut Streams, slot: u32, remote: SocketAddr) {
    streams.slots.make_extra(slot).remote = Some(Box::new(remote));
    streams.snapshot.iter().for_each(|snapshot| snapshot.came_from(remote));
    streams.page.iter().for_each(|page| page.set_peer(remote));
}

/// Shows the connection of an event loop that only serves to other threads, before the protocol can keep it from answering.
pub(in crate::event_loop) fn show(streams: &mut Streams, slot: u32, peer: &Peer) {
    let Some(snapshot) = streams.snapshot.clone() else { return };
    let (id, active) = (streams.slots.at(slot).id, streams.generations.active);
    let generation = streams.generations.at(active).generation.id;
    let listener = streams.slots.at(slot).listener;
    let listener = streams.slots.listener(listener).cloned();
    let before = (streams.io.counters.bytes_in().get(), streams.io.counters.bytes_out().get());
    let (peer, side) = (peer.remote(), peer.side());
    snapshot.write(Some(Snapshot { id, generation, peer, listener, side, tag: None, since: Instant::now(), before }));
}
