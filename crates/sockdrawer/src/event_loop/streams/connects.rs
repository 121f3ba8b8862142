//! Connects: a slot each while the handshake runs, and results, also of the handshakes of layers that follow some of them.

use super::Streams;
use crate::clock::deadline;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::listen::permit::Permit;
use crate::net::Address;
use crate::protocol::ConnectFailure;
use crate::sys::{Errno, Interest};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Results of connects since the connector looked last.
#[derive(Clone, Copy, Default)]
pub(in crate::event_loop) struct Connects {
    /// Number of connects that failed, since the last that did not.
    pub(in crate::event_loop) failed: u32,
    pub(in crate::event_loop) established: bool,
    /// The connection that was opened last has a handshake before it.
    pub(in crate::event_loop) in_handshake: bool,
}

impl Connects {
    pub(in crate::event_loop) fn established(&mut self) {
        *self = Connects { failed: 0, established: true, in_handshake: false };
    }

    /// Takes back that the last connect succeeded, where its handshake runs still. `before` is the state before it.
    pub(in crate::event_loop) fn wait_for_handshake(&mut self, before: Connects) {
        if std::mem::take(&mut self.in_handshake) {
            *self = Connects { failed: before.failed + self.failed, ..before };
        }
    }

    pub(in crate::event_loop) fn take(&mut self) -> Connects {
        std::mem::take(self)
    }
}

/// Takes a slot for a socket whose connect has begun: at this time, and so much later than it was due.
pub(in crate::event_loop) fn begin(
    streams: &mut Streams,
    socket: OwnedFd,
    permit: Permit,
    target: &Address,
    (began, lag): (Instant, Duration),
    timeout: Duration,
    is_asked: bool,
) -> Result<u32, Errno> {
    let slot = streams.slots.take(socket, permit);
    let id = streams.next_id();
    // Targets of a pool are few; those that protocols name may be any.
    let target = if is_asked { 0 } else { streams.slots.number_target(target) };
    let since = began - streams.io.start;
    let record = streams.slots.at(slot);
    (record.id, record.state) = (id, target);
    (record.bytes_in, record.bytes_out) = (nanoseconds(since), nanoseconds(lag));
    record.flags.set(Flags::CONNECTED);
    record.flags.enter(Phase::Connecting);
    streams.timers.set(&mut streams.slots, slot, deadline(began, timeout), began);
    let token = streams.slots.token(slot);
    // The handshake is over, either way, when the socket can be written.
    let watched = streams.io.watch(token, streams.slots.at(slot), Interest::WRITE);
    watched.map(|_| slot).inspect_err(|_| streams.leave(slot, false))
}

/// Handles the end of a handshake of layers, or of the connection before that. The asker is told after this callback.
pub(in crate::event_loop) fn handshake_ended(streams: &mut Streams, slot: u32, succeeded: bool) {
    let asked = streams.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut());
    match asked {
        None if succeeded => streams.connects.established(),
        None => (streams.connects.failed, streams.connects.in_handshake) = (streams.connects.failed + 1, true),
        // No asker waits: the protocol is being opened just now, or the asker was told already.
        Some(asked) if !asked.in_handshake => streams.connects.in_handshake |= !succeeded,
        Some(asked) => {
            asked.in_handshake = false;
            let (by, failure) = (asked.take_asker(), handshake_failure(asked.target.internet(), asked.began.elapsed()));
            let result = if succeeded { Ok(streams.slots.at(slot).handle(slot, &streams.post)) } else { Err(failure) };
            by.tell_later(&streams.io.inbox, result);
        }
    }
}

/// Tells the service of a connect of its pool that failed.
pub(in crate::event_loop) fn tell_failed(streams: &mut Streams, failure: &ConnectFailure) {
    streams.io.counters.connect_failed().add(1);
    streams.connects.failed += 1;
    let told = streams.generations.refresh(&streams.io, &mut streams.read).and_then(|()| {
        let generation = streams.generations.active();
        generation.table.connect_failed(failure, &mut *generation.local)
    });
    if let Err(panicked) = told {
        streams.io.tell_panic("connect_failed", panicked);
    }
}

/// Makes the failure of a connect that the peer has accepted, and whose layers have not done their handshake.
pub(in crate::event_loop) fn handshake_failure(target: Option<SocketAddr>, after: Duration) -> ConnectFailure {
    ConnectFailure { target, errno: Errno::PROTO.raw_os_error(), after, lag: Duration::ZERO }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
