//! A connecting end whose every step is told, for what counts and measures.

use crate::Client;
use crate::filter::TlsFilter;
use sockdrawer::layer::{Filter, Filtering, HandshakeKind, Progress, Refused};
use sockdrawer::{CannotSave, Input, JobResult, Output, Peer, Saver};

/// Is told what comes of one connection's TLS, after the handshake too, of which an [observer](crate::ClientOptions::observe) hears alone. It
/// is dropped with the connection.
pub trait Watch: Send + 'static {
    /// What TLS made of the peer's bytes. Of an end without close_notify the service inside judges: all that it awaited may have come.
    fn seen(&mut self, progress: Result<&Progress, &Refused>);

    /// The handshake did not end in time: the connection is aborted.
    fn timed_out(&mut self) {}
}

/// The filter of [`Client::watched`].
#[derive(Debug)]
pub struct Watched<W> {
    filter: TlsFilter,
    watch: W,
}

impl Client {
    /// The filter of a new connection, which `watch` is told of: for a [`Filtering`] of your own.
    pub fn watched<W: Watch>(&self, peer: &Peer, watch: W) -> Watched<W> {
        Watched { filter: self.filter(peer), watch }
    }
}

impl<W: Watch> Filter for Watched<W> {
    fn start(&mut self, wire: &mut Output) {
        self.filter.start(wire);
    }

    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        let progress = self.filter.decode(wire, plain, back);
        self.watch.seen(progress.as_ref());
        progress
    }

    fn job_done(&mut self, result: JobResult, back: &mut Output) -> Result<Progress, Refused> {
        let progress = self.filter.job_done(result, back);
        self.watch.seen(progress.as_ref());
        progress
    }

    fn timed_out(&mut self) {
        self.filter.timed_out();
        self.watch.timed_out();
    }

    fn handshake(&self) -> Option<HandshakeKind> {
        self.filter.handshake()
    }

    fn knows(&mut self, peer: Peer) -> Peer {
        self.filter.knows(peer)
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        self.filter.encode(plain, wire);
    }

    fn goodbye(&mut self, wire: &mut Output) {
        self.filter.goodbye(wire);
    }

    fn truncated(&mut self) -> Result<(), Refused> {
        self.filter.truncated()
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        self.filter.save(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trust;
    use sockdrawer::Side;

    struct Deaf;
    impl Watch for Deaf {
        fn seen(&mut self, _progress: Result<&Progress, &Refused>) {}
    }

    #[test]
    fn a_pool_counts_its_handshakes() {
        let client = Client::new(Trust::Anybody).name("localhost").build().expect("a client");
        let filter = client.watched(&Peer::new(None, Side::Connected), Deaf);
        assert_eq!(filter.handshake(), Some(HandshakeKind::Full));
    }
}
