//! The admission policy, as a loop knows it: asked before an accept and after, with the token that the loop has taken from the bucket.

use crate::admission::{AcceptRequest, BeforeAccept, Capacity};
use crate::event_loop::io::Io;
use crate::limit::policy::{Entered, Policy};
use crate::listen::permit::Permit;
use crate::listen::state::ListenerState;
use crate::observe::Event;
use crate::protocol::Side;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The policy that is in force, as a loop knows it.
pub(in crate::event_loop) struct PolicyView {
    pub(super) policy: Arc<Policy>,
    pub(super) asks_before: bool,
    pub(super) asks_after: bool,
    version: u64,
    /// Moment from which the token that this loop has taken from the bucket may be used, by the system's clock.
    reserved: Option<u64>,
}

impl PolicyView {
    pub(super) fn new(policy: Arc<Policy>, version: u64) -> PolicyView {
        PolicyView { asks_before: policy.asks_before(), asks_after: policy.asks_after(), policy, version, reserved: None }
    }

    /// Takes the new policy after a change: one load.
    #[inline]
    pub(in crate::event_loop) fn look(&mut self, io: &Io) {
        let version = io.shared.policy.version();
        if version != self.version {
            self.take(io, version);
        }
    }

    #[cold]
    fn take(&mut self, io: &Io, version: u64) {
        self.give_token_back();
        *self = PolicyView::new(io.shared.policy.get(), version);
    }

    /// Gives back a token that this loop took and does not use.
    pub(super) fn give_token_back(&mut self) {
        if self.reserved.take().is_some()
            && let Some(pace) = &self.policy.pace
        {
            pace.give_back();
        }
    }

    /// Returns the policy's answer at a listener where there is room.
    pub(super) fn before(&mut self, io: &Io, listener: &ListenerState) -> BeforeAccept {
        let Some(pace) = &self.policy.pace else { return self.ask(io, listener, Capacity::Free) };
        let now = crate::sys::monotonic();
        if let Some(from) = self.reserved {
            if from > now {
                return BeforeAccept::Pause(Duration::from_nanos(from - now));
            }
            self.reserved = None;
            return BeforeAccept::Accept;
        }
        if pace.take(now) {
            return BeforeAccept::Accept;
        }
        match self.ask(io, listener, Capacity::TooFast) {
            BeforeAccept::Reject(reject) => BeforeAccept::Reject(reject),
            _ => {
                let from = pace.reserve(now);
                self.reserved = Some(from);
                BeforeAccept::Pause(Duration::from_nanos(from.saturating_sub(now)))
            }
        }
    }

    pub(super) fn ask(&self, io: &Io, listener: &ListenerState, room: Capacity) -> BeforeAccept {
        let limiter = &io.shared.limiter;
        // Where there is room, the connection that waits has taken its permits already.
        let own = usize::from(matches!(room, Capacity::Free | Capacity::TooFast));
        let (connections, listener_connections) =
            (limiter.taken().saturating_sub(own), listener.limiter.taken().saturating_sub(own));
        let request = AcceptRequest::new(&listener.address, room, connections, limiter.limit(), listener_connections);
        let (answer, panicked) = self.policy.before(&request);
        count_panic(io, panicked);
        answer
    }

    /// Asks the policy about an accepted connection. Returns its peer count, if peers are counted, or the way in which it is turned away.
    pub(super) fn after(&self, io: &Io, listener: &ListenerState, peer: Option<SocketAddr>) -> Entered {
        let (answer, panicked) = self.policy.after(&listener.address, peer);
        count_panic(io, panicked);
        answer
    }

    /// Counts the peer of a connection that was accepted in another place, or while the policy changed.
    pub(in crate::event_loop) fn count_incoming(&self, permit: &mut Permit, side: Side, peer: Option<SocketAddr>, moved: bool) {
        let Some(peer_counts) = &self.policy.peer_counts else { return };
        // A connection has no listener where the address at which it came in is gone.
        if side == Side::Accepted
            && permit.peer_count().is_none_or(|peer_count| !peer_count.is_of(peer_counts))
            && let Some(peer) = peer
        {
            permit.count_by(match moved {
                true => Some(peer_counts.enter_from_elsewhere(peer.ip())),
                false => peer_counts.enter(peer.ip(), usize::MAX).ok().map(|(peer_count, _)| peer_count),
            });
        }
    }
}

fn count_panic(io: &Io, panicked: Option<String>) {
    if let Some(message) = panicked {
        io.counters.admission_panics().add(1);
        io.tell_some(&Event::AdmissionPanicked { message });
    }
}
