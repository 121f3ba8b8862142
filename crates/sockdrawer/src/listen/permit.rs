//! Permits: the right to one connection, and all that the connection counts for.

use super::state::ListenerState;
use crate::limit::limiter::Limiter;
use crate::limit::peer_counts::PeerCount;
use std::sync::Arc;

/// The right to one connection. It goes back when it is dropped, wherever that is, and with it the place at the listener by which the
/// connection came in, and its count among its peer's. Empty once it was taken apart.
pub(crate) struct Permit {
    limiter: Option<Arc<Limiter>>,
    listener: Option<Arc<ListenerState>>,
    peer_count: Option<Box<PeerCount>>,
}

impl Permit {
    /// Takes a permit. Returns None where there is no room.
    pub(crate) fn take(limiter: &Arc<Limiter>) -> Option<Permit> {
        limiter.count_one().then(|| Permit::of_parts(limiter.clone(), None, None))
    }

    pub(crate) fn listener(&self) -> Option<&Arc<ListenerState>> {
        self.listener.as_ref()
    }

    /// Takes it apart for the table of connections, which gives all of it back.
    pub(crate) fn into_parts(mut self) -> (Arc<Limiter>, Option<Arc<ListenerState>>, Option<Box<PeerCount>>) {
        let limiter = self.limiter.take().expect("a permit is paid in once");
        (limiter, self.listener.take(), self.peer_count.take())
    }

    pub(crate) fn of_parts(
        limiter: Arc<Limiter>,
        listener: Option<Arc<ListenerState>>,
        peer_count: Option<Box<PeerCount>>,
    ) -> Permit {
        Permit { limiter: Some(limiter), listener, peer_count }
    }

    /// Sets what counts the peer's connections; what counted this one before forgets it.
    pub(crate) fn count_by(&mut self, peer_count: Option<Box<PeerCount>>) {
        self.peer_count = peer_count;
    }

    pub(crate) fn peer_count(&self) -> Option<&PeerCount> {
        self.peer_count.as_deref()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.peer_count = None;
        // Taken last, given back first: a listener never counts more than its pool.
        if let Some(listener) = self.listener.take() {
            listener.limiter.put_back();
        }
        // Only in a build with this mistake: a permit that no connection used is lost.
        let lost = cfg!(sockdrawer_broken = "permit-leak");
        if let Some(limiter) = self.limiter.take().filter(|_| !lost) {
            limiter.put_back();
        }
    }
}
