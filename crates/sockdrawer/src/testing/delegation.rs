//! Tests of [`Step::Delegate`](crate::Step::Delegate): the delegate runs on this thread, over a pair of sockets.

use super::Driver;
use super::connection::TestConnection;
use crate::event_loop::lease::{GivenBack, Lease, LeaseEnd, LeaseStart, Lessor, Returned};
use crate::protocol::{Closed, Lent, Peer, Protocol, Service, Step};
use crate::sys::Kernel;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

impl Lessor for mpsc::Sender<Returned> {
    fn take_back(&self, returned: Returned) -> Result<(), Returned> {
        self.send(returned).map_err(|unsent| unsent.0)
    }
}

impl<S: Service> Driver<S> {
    /// Runs the pending delegate, with `peer` on another thread at the other end, until the connection returns or ends. The delegate first
    /// reads input that was received before and not taken, and gets the notes sent through handles.
    ///
    /// # Panics
    /// When no delegate is pending, when output is still blocked, and when `peer` panics.
    pub fn run_delegate(&mut self, peer: impl FnOnce(UnixStream) + Send) {
        let mut delegate = self.delegate.take().expect("a delegate is pending");
        assert!(self.wire.backlog.is_empty(), "a connection is given leased when its peer has read all");
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(true).expect("a socket");
        let (lessor, comes_back) = mpsc::channel();
        let lent = self.state.as_mut().and_then(Protocol::lend);
        let lease = Lease::new(self.wire.lent(delegate.peer.take(), lent), Arc::new(ours.into()), Arc::new(lessor));
        for note in self.wire.inbox.take() {
            // Notes above the maximum are dropped, as on a real connection.
            drop(lease.leased.put_note(note));
        }
        let (back, notes) = std::thread::scope(|scope| {
            scope.spawn(move || peer(theirs));
            (delegate.take)(Box::new(lease));
            let mut returned = comes_back.recv().expect("a lease returns its connection");
            let back = returned.back.take().expect("it comes back once");
            // The socket is closed here, so that the peer sees the end.
            let GivenBack { kept, unsent, peer_ended, finished, outcome, .. } = back;
            self.wire.sent.extend(unsent);
            self.wire.peer_ended |= peer_ended;
            self.wire.finished_sending |= finished;
            self.wire.fresh = !kept.is_empty();
            self.wire.kept = kept;
            (outcome, returned.leased.left_notes().0)
        });
        match back {
            LeaseEnd::Note(note) => self.notify(note),
            LeaseEnd::End | LeaseEnd::Failed => self.apply(Step::Close),
            LeaseEnd::Abort => self.end(Closed::Aborted),
            LeaseEnd::Panicked(_) => self.end(Closed::Panicked),
        }
        notes.into_iter().for_each(|note| self.notify(note));
    }
}

impl TestConnection {
    /// Takes what a lease begins with.
    fn lent(&mut self, peer: Option<Box<Peer>>, lent: Option<Lent>) -> LeaseStart {
        self.due = None;
        self.fresh = false;
        self.searched = 0;
        LeaseStart {
            token: self.id.0,
            id: self.id,
            generation: self.generation,
            peer: peer.map_or_else(|| Peer::new(self.peer.remote(), self.peer.side()), |peer| *peer),
            system: Arc::new(Kernel),
            draining: self.drain_asked,
            kept: std::mem::take(&mut self.kept),
            peer_ended: self.peer_ended,
            owes: false,
            ends_by: None,
            lent,
            max_wire: self.limits.max_partial,
        }
    }
}
