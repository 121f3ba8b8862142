//! Results of connects and of the handshakes that follow some of them.

use super::Streams;
use crate::protocol::ConnectFailure;
use crate::sys::Errno;
use std::net::SocketAddr;
use std::time::Duration;

/// Results of connects since the connector looked last.
#[derive(Clone, Copy, Default)]
pub(in crate::event_loop) struct Connects {
    /// Number of connects that failed, since the last that did not.
    pub(in crate::event_loop) failed: u32,
    pub(in crate::event_loop) established: bool,
    /// The connection that was opened last has a handshake before it.
    pub(in crate::event_loop) shaking: bool,
}

impl Connects {
    pub(in crate::event_loop) fn established(&mut self) {
        *self = Connects { failed: 0, established: true, shaking: false };
    }

    /// Counts the handshake that is under way as not over yet: what was before `established` is so still.
    pub(in crate::event_loop) fn wait_for_handshake(&mut self, before: Connects) {
        if std::mem::take(&mut self.shaking) {
            *self = Connects { failed: before.failed + self.failed, ..before };
        }
    }

    pub(in crate::event_loop) fn take(&mut self) -> Connects {
        std::mem::take(self)
    }
}

/// Handles the end of a handshake of layers, or of the connection before that. The asker is told after this callback.
pub(in crate::event_loop) fn shook(streams: &mut Streams, slot: u32, hands: bool) {
    let asked = streams.slots.extra_of(slot).and_then(|extra| extra.asked.as_mut());
    match asked {
        None if hands => streams.connects.established(),
        None => (streams.connects.failed, streams.connects.shaking) = (streams.connects.failed + 1, true),
        // It is being opened, or its asker was told.
        Some(asked) if !asked.shaking => streams.connects.shaking |= !hands,
        Some(asked) => {
            asked.shaking = false;
            let (by, failure) = (asked.take_asker(), not_shaken(asked.target.internet(), asked.began.elapsed()));
            let result = if hands { Ok(streams.slots.at(slot).handle(slot, &streams.post)) } else { Err(failure) };
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

/// Makes the failure of a connect where the peer has accepted, and its layers have not shaken hands.
pub(in crate::event_loop) fn not_shaken(target: Option<SocketAddr>, after: Duration) -> ConnectFailure {
    ConnectFailure { target, errno: Errno::PROTO.raw_os_error(), after, lag: Duration::ZERO }
}
