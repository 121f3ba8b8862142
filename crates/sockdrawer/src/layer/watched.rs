//! A filter whose every step is told, for what counts and measures.

use super::{Filter, HandshakeKind, Progress, Refused};
use crate::protocol::{CannotSave, Input, JobResult, Output, Peer, Saver};

/// Watcher of one connection's filter: it is told what comes of it, after the handshake too. It is dropped with the connection.
pub trait Watch<F>: Send + 'static {
    /// Called when the connection begins with this layer: it is made, and the layers below have shaken hands.
    fn started(&mut self) {}

    /// Called when the filter read bytes of the peer, and made this of them. The service inside judges an end that the layer does not announce: all
    /// that it awaited may have come.
    fn seen(&mut self, filter: &F, progress: Result<&Progress, &Refused>);

    /// Called when the handshake did not end in time: the connection is aborted.
    fn timed_out(&mut self) {}
}

/// A filter that is watched.
#[derive(Debug)]
pub struct Watched<F, W> {
    filter: F,
    watch: W,
}

impl<F: Filter, W: Watch<F>> Watched<F, W> {
    /// Returns the filter of a new connection, of which `watch` is told: for a [`Filtering`](super::Filtering) of your own.
    pub fn new(filter: F, watch: W) -> Watched<F, W> {
        Watched { filter, watch }
    }
}

impl<F: Filter, W: Watch<F>> Filter for Watched<F, W> {
    fn start(&mut self, wire: &mut Output) {
        self.watch.started();
        self.filter.start(wire);
    }

    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        let progress = self.filter.decode(wire, plain, back);
        self.watch.seen(&self.filter, progress.as_ref());
        progress
    }

    fn job_done(&mut self, result: JobResult, back: &mut Output) -> Result<Progress, Refused> {
        let progress = self.filter.job_done(result, back);
        self.watch.seen(&self.filter, progress.as_ref());
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
