//! Connections that are being made: a slot each while the handshake runs, and what becomes of it.

use super::{Connections, entering, events};
use crate::event_loop::inbox::Asker;
use crate::event_loop::incoming::Incoming;
use crate::event_loop::phase::Phase;
use crate::event_loop::slots::AskedConnect;
use crate::event_loop::streams::connects;
use crate::event_loop::streams::idle::IdleWatch;
use crate::protocol::{Connect, ConnectFailure, Handle, Peer, Side};
use crate::sys::{Errno, Ready};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Begins the connects that protocols asked for since this was called last. None begins in a callback: no slot is taken while something
/// happens to a connection.
pub(in crate::event_loop) fn begin_asked(connections: &mut Connections) {
    let mut asked = std::mem::take(&mut connections.asked);
    for (token, connect) in asked.drain(..) {
        if connections.streams.slots.with_protocol(token).is_some() {
            connect_for(connections, Asker::Connection(token), connect);
        }
    }
    connections.asked = asked;
}

/// Begins a connect that was asked for: what comes of it is told to its asker, and made here.
pub(crate) fn connect_for(connections: &mut Connections, by: Asker, Connect { target, within, first }: Connect) {
    if connections.abandoned {
        return;
    }
    let streams = &mut connections.streams;
    let began = Instant::now();
    streams.io.counters.connects().add(1);
    let begun = streams
        .io
        .open_connecting(&target)
        .and_then(|(socket, permit)| connects::begin(streams, socket, permit, &target, (began, Duration::ZERO), within, true));
    match begun {
        Ok(slot) => {
            let asked = AskedConnect { by, target, first, began, in_handshake: false };
            streams.slots.make_extra(slot).asked = Some(Box::new(asked));
        }
        Err(errno) => {
            streams.io.counters.connect_failed().add(1);
            let (target, errno, after) = (target.internet(), errno.raw_os_error(), began.elapsed());
            by.tell_later(&streams.io.inbox, Err(ConnectFailure { target, errno, after, lag: Duration::ZERO }));
        }
    }
}

/// Handles the end of a handshake. Returns a connection that is to run elsewhere.
pub(super) fn connect_event(connections: &mut Connections, slot: u32, ready: Ready) -> Option<Incoming> {
    if !events::may_end(connections, ready) {
        return None;
    }
    let streams = &mut connections.streams;
    let socket = streams.slots.socket(slot);
    let ended = streams.io.system.take_error(socket).and_then(|()| streams.io.system.local_address(socket));
    let remote = streams.slots.target(slot);
    match ended {
        // A connect to a port of this machine where no socket listens can meet itself: the kernel chose that very port.
        Ok(local) if local.is_some() && local == remote => {
            // Without a reset it would keep the port for a minute, and the server could not bind it.
            let _ = streams.io.system.reset_on_close(streams.slots.socket(slot));
            connections.connect_failed(slot, Errno::CONNREFUSED);
        }
        Ok(_) => return connected(connections, slot, remote),
        Err(errno) => connections.connect_failed(slot, errno),
    }
    None
}

fn connected(connections: &mut Connections, slot: u32, remote: Option<SocketAddr>) -> Option<Incoming> {
    let streams = &mut connections.streams;
    streams.io.counters.connected().add(1);
    streams.timers.clear(&mut streams.slots, slot);
    let (lag, took) = streams.slots.at(slot).connect_times(streams.io.start);
    let asker = streams.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut()).map(|asked| asked.take_asker());
    let before = streams.connects;
    match asker {
        None => streams.connects.established(),
        Some(_) => streams.connects.in_handshake = false,
    }
    if asker.is_none() && streams.io.shared.placement.is_some() {
        // The old epoll must not go on watching what runs elsewhere.
        streams.io.unwatch(streams.slots.at(slot));
        let (socket, permit) = streams.slots.give_up(slot);
        let socket = socket.expect("a connecting slot has its socket");
        return Some(Incoming { socket, permit, remote, side: Side::Connected, arrival: None, lag, connect_time: took });
    }
    let record = streams.slots.at(slot);
    (record.bytes_in, record.bytes_out) = (0, 0);
    record.flags.enter(Phase::Open);
    let record_id = record.id;
    entering::set_active_options(streams, slot);
    let (id, token) = (record_id, streams.slots.token(slot));
    if let Some(asked) = streams.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut()) {
        streams.scratch.bytes.append(&mut asked.first);
    }
    entering::open_protocol(connections, slot, &Peer::new(remote, Side::Connected).with_lag(lag).with_connect_time(took));
    let in_handshake = connections.streams.connects.in_handshake;
    if let Some(slot) = connections.streams.slots.with_protocol(token) {
        // It is watched since the connect began.
        IdleWatch::of(&mut connections.streams).begin(slot);
    }
    let Some(asker) = asker else {
        connections.streams.connects.wait_for_handshake(before);
        return None;
    };
    // A pool that connects does not wait for what became of it.
    connections.streams.connects = before;
    match connections.streams.slots.with_protocol(token) {
        Some(slot) if in_handshake => {
            if let Some(asked) = connections.streams.slots.make_extra(slot).asked.as_mut() {
                (asked.by, asked.in_handshake) = (asker, true);
            }
        }
        None if in_handshake => connections.tell_asker(asker, Err(connects::handshake_failure(remote, took))),
        Some(slot) => {
            let handle = connections.streams.slots.at(slot).handle(slot, &connections.streams.post);
            connections.tell_asker(asker, Ok(handle));
        }
        None => connections.tell_asker(asker, Ok(Handle { post: connections.streams.post.clone(), token, id })),
    }
    None
}
