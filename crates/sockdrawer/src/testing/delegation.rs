//! Tests of [`Step::Delegate`](crate::Step::Delegate): the delegate runs on this thread, over a pair of sockets.

use super::Driver;
use crate::event_loop::lease::{GivenBack, Lease, LeaseEnd, LeaseStart, Lessor, Returned};
use crate::protocol::{Closed, Peer, Protocol, Service, Step};
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
        let lease = Lease::new(self.leaving(delegate.peer.take()), Arc::new(ours.into()), Arc::new(lessor));
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
        self.go_on(back);
        notes.into_iter().for_each(|note| self.notify(note));
    }

    fn leaving(&mut self, peer: Option<Box<Peer>>) -> LeaseStart {
        self.wire.due = None;
        self.wire.fresh = false;
        self.wire.searched = 0;
        LeaseStart {
            token: self.wire.id.0,
            id: self.wire.id,
            generation: self.wire.generation,
            peer: peer.map_or_else(|| Peer::new(self.wire.peer.remote(), self.wire.peer.side()), |peer| *peer),
            system: Arc::new(Kernel),
            draining: self.wire.drain_asked,
            kept: std::mem::take(&mut self.wire.kept),
            peer_ended: self.wire.peer_ended,
            owes: false,
            ends_by: None,
            lent: self.state.as_mut().and_then(Protocol::lend),
            max_wire: self.wire.limits.max_partial,
        }
    }

    fn go_on(&mut self, outcome: LeaseEnd) {
        match outcome {
            LeaseEnd::Note(note) => self.notify(note),
            LeaseEnd::End | LeaseEnd::Failed => self.apply(Step::Close),
            LeaseEnd::Abort => self.abort(Closed::Aborted),
            LeaseEnd::Panicked(_) => self.abort(Closed::Panicked),
        }
    }
}
