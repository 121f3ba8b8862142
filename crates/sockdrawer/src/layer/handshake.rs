//! The handshake of a layer.

use crate::protocol::Peer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All that a connection has before its inner protocol is open.
pub(super) struct Handshake<S> {
    pub(super) service: Arc<S>,
    pub(super) peer: Peer,
    pub(super) timeout: Duration,
    pub(super) learns: bool,
    /// The filter or a filter within learns the peer's real address.
    pub(super) awaits_peer: bool,
    /// The filter can be saved as it is.
    pub(super) is_saved: bool,
    /// The handshake is complete, and the inner protocol is to be opened in the next build.
    pub(super) is_held: bool,
    /// The time that it took elsewhere.
    pub(super) took: Duration,
    /// Time at which the connection was opened, or went on, here.
    pub(super) began: Option<Instant>,
}

impl<S> Handshake<S> {
    /// Returns the time that it has taken so far, wherever.
    pub(super) fn took(&self, now: Instant) -> Duration {
        self.took + self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }
}
