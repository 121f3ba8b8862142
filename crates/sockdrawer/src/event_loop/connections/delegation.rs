//! Leasing a connection to other code and taking it back. Its slot, permit and protocol state stay; epoll forgets the socket.

use super::Connections;
use super::calling::Tail;
use crate::behaviour::Event;
use crate::clock::deadline;
use crate::event_loop::lease::{Delegation, GivenBack, Lease, LeaseEnd, LeaseStart, Leased, Returned};
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Extra;
use crate::event_loop::watcher::WatchEvent;
use crate::protocol::{Closed, Delegate, Note, Peer, Side, Urgency};
use crate::sys::{Errno, panics};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Connections {
    /// Step::Delegate: the connection goes as soon as all is sent.
    pub(super) fn start_leaving(&mut self, slot: u32, delegate: Delegate) {
        let connects = self.slots.extra(slot).is_some_and(|extra| extra.connects > 0);
        if connects || !self.slots.at(slot).is_free() {
            panics::discard(delegate);
            let why = "a protocol gave its connection away while a job runs, a connect is under way or it is relayed, or twice";
            return self.crash(slot, why);
        }
        // It comes back by message, from another thread.
        if let Err(errno) = self.io.awaken() {
            panics::discard(delegate);
            return self.fail(slot, errno);
        }
        self.slots.at(slot).flags.enter(Phase::Delegating);
        self.slots.make_extra(slot).delegation = Some(Delegation::Pending(delegate));
        self.send(slot, false);
    }

    /// Whether the connection is leased, or is leased now: the last that is done with it in this turn.
    pub(super) fn leaves(&mut self, slot: u32) -> bool {
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Delegating) && !flags.any(Flags::UNSENT) {
            self.hand_over(slot);
        }
        self.slots.at(slot).flags.is(Phase::Leased)
    }

    fn hand_over(&mut self, slot: u32) {
        let (table, state) = (self.slots.at(slot).table, self.slots.at(slot).state);
        let lent = self.generations.at(table).table.lend(state);
        let Some(Delegation::Pending(mut delegate)) = self.take_delegation(slot) else {
            unreachable!("a pending delegation has its delegate")
        };
        self.timers.clear(&mut self.slots, slot);
        if self.slots.at(slot).flags.any(Flags::WATCHED) {
            self.unwatch(slot);
        }
        let token = self.slots.token(slot);
        let generation = self.generations.at(table).generation.id;
        let kept = self.kept.bytes(slot).to_vec();
        self.forget_kept(slot);
        let ends_by = self.slots.extra(slot).and_then(Extra::ends_by);
        let (known, remote) = (delegate.peer.take(), self.slots.extra(slot).and_then(Extra::learned_remote));
        let record = self.slots.at(slot);
        let leaving = LeaseStart {
            token,
            id: record.id,
            generation,
            peer: known.map_or_else(|| Peer::new(remote, record.side()), |peer| *peer),
            system: self.io.system.system().clone(),
            draining: record.flags.any(Flags::DRAINING),
            kept,
            peer_ended: record.flags.any(Flags::PEER_ENDED),
            owes: record.bytes_in > 0,
            ends_by,
            lent,
        };
        let socket = Arc::new(record.socket.take().expect("a taken slot has a socket"));
        record.flags.enter(Phase::Leased);
        let lease = Lease::new(leaving, socket.clone(), self.io.inbox.clone());
        let leased = lease.leased.clone();
        self.slots.make_extra(slot).delegation =
            Some(Delegation::Leased { leased: leased.clone(), socket, watched: false, purge_by: None });
        self.io.counters.delegated().add(1);
        if delegate.blocks {
            return self.io.shared.delegates.submit(delegate, lease);
        }
        // A panic drops the hold, which comes back and says so.
        let take = AssertUnwindSafe(move || (delegate.take)(Box::new(lease)));
        let _ = catch_unwind(take).map_err(panics::discard);
        if leased.is_watched() {
            self.watch_waiting(slot);
        }
    }

    /// A connection that waits to be taken may end before that.
    fn watch_waiting(&mut self, slot: u32) {
        let token = self.slots.token(slot);
        let Some(Delegation::Leased { socket, watched, .. }) =
            self.slots.extra_of(slot).and_then(|extra| extra.delegation.as_mut())
        else {
            return;
        };
        // Where it cannot be watched the code that takes it sees its end.
        *watched = self.io.system.watch_end(self.io.epoll.as_fd(), socket.as_fd(), token).is_ok();
    }

    /// The peer of a connection that was waiting to be taken has ended or reset it. Half an end leaves an accepted one as it is: the
    /// peer may still read. For one that was made by connecting it means that nothing will come.
    pub(super) fn leased_ended(&mut self, slot: u32) {
        let side = self.slots.at(slot).side();
        let Some(Delegation::Leased { leased, socket, watched: true, .. }) = self.delegation(slot) else { return };
        if leased.watcher.tell(WatchEvent::PeerEnded) {
            return;
        }
        let over = match self.io.system.peek(socket.as_fd()) {
            Ok(0) => side == Side::Connected,
            Ok(_) | Err(Errno::AGAIN) => false,
            Err(_) => true,
        };
        if over && leased.queue().is_some_and(|queue| queue.give_up(leased)) {
            self.io.counters.untaken().add(1);
        }
    }

    /// The socket of a leased connection.
    pub(super) fn leased_socket(&self, slot: u32) -> BorrowedFd<'_> {
        match self.delegation(slot) {
            Some(Delegation::Leased { socket, .. }) => socket.as_fd(),
            _ => unreachable!("a taken slot has a socket, or is away"),
        }
    }

    /// Bytes that the lessee has received and sent so far.
    pub(super) fn leased_bytes(&self, slot: u32) -> (u64, u64) {
        self.slots.extra(slot).and_then(Extra::leased).map_or((0, 0), |leased| leased.bytes())
    }

    /// A note for the lessee.
    pub(super) fn note_leased(&mut self, slot: u32, note: Note, urgency: Urgency) {
        let Some(leased) = self.slots.extra(slot).and_then(Extra::leased).cloned() else { return };
        if let Err(note) = leased.put_note(note) {
            self.io.counters.notes_dropped().add(1);
            panics::discard(note);
            if urgency == Urgency::Delivered {
                self.end(slot, Closed::Overflow, true);
            }
        }
    }

    /// Asks the lessee to end the connection, by the deadline if there is one; its protocol is asked when it is back.
    pub(super) fn drain_leased(&mut self, slot: u32) {
        let by = self.slots.extra(slot).and_then(Extra::ends_by);
        if let Some(leased) = self.slots.extra(slot).and_then(Extra::leased) {
            leased.drain(by);
        }
    }

    /// Asks the lessee to end the connection; the protocol has what is left of this time when the connection is back.
    pub(super) fn purge_leased(&mut self, slot: u32, within: Duration) {
        if let Some(Delegation::Leased { purge_by, .. }) = self.slots.extra_of(slot).and_then(|extra| extra.delegation.as_mut()) {
            *purge_by = Some(deadline(Instant::now(), within));
        }
        self.slots.at(slot).flags.set(Flags::DRAINING);
        self.drain_leased(slot);
    }

    /// Whether the lessee has received input that it has not answered yet, or has output that it cannot write.
    pub(super) fn leased_owes(&self, slot: u32) -> bool {
        self.slots.extra(slot).and_then(Extra::leased).is_some_and(|leased| leased.owes())
    }

    fn delegation(&self, slot: u32) -> Option<&Delegation> {
        self.slots.extra(slot)?.delegation.as_ref()
    }

    fn take_delegation(&mut self, slot: u32) -> Option<Delegation> {
        self.slots.extra_of(slot)?.delegation.take()
    }

    /// Ends a lease, or one that is about to begin, because the slot is given up: the lessee can do nothing more with the socket.
    pub(super) fn end_delegation(&mut self, delegation: Delegation, reset: bool) -> Option<Arc<Leased>> {
        match delegation {
            Delegation::Pending(delegate) => {
                panics::discard(delegate);
                None
            }
            Delegation::Leased { leased, socket, .. } => {
                leased.end();
                let socket = socket.as_fd();
                // It fails only where the connection is gone already.
                let _ = if reset { self.io.system.reset(socket) } else { self.io.system.finish(socket) };
                self.count_leased(&leased);
                panics::discard(self.left_notes(&leased));
                Some(leased)
            }
        }
    }

    /// Adds the bytes that the lessee received and sent to the loop's counters; returns them.
    fn count_leased(&self, leased: &Leased) -> (u64, u64) {
        let (received, sent) = leased.count_bytes();
        self.io.counters.bytes_in().add(received);
        self.io.counters.bytes_out().add(sent);
        (received, sent)
    }

    fn left_notes(&self, leased: &Leased) -> std::collections::VecDeque<Note> {
        let (left, taken) = leased.left_notes();
        self.io.counters.notes().add(taken);
        left
    }

    /// A connection comes back.
    pub(in crate::event_loop) fn came_back(&mut self, mut returned: Returned) {
        let (received, sent) = self.count_leased(&returned.leased);
        let notes = self.left_notes(&returned.leased);
        let found = self.slots.find(returned.leased.token);
        let (Some(slot), Some(back)) = (found, returned.back.take_if(|_| found.is_some())) else {
            panics::discard(notes);
            panics::discard(returned);
            return self.descriptor_freed = true;
        };
        let Some(Delegation::Leased { purge_by, watched, .. }) = self.take_delegation(slot) else { unreachable!("it was away") };
        let GivenBack { socket, kept, unsent, peer_ended, finished, outcome } = back;
        if watched {
            // It fails only for what is not watched.
            let _ = self.io.system.unwatch(self.io.epoll.as_fd(), socket.as_fd());
        }
        let record = self.slots.at(slot);
        // The event loop's own share was dropped with the delegation, and the lessee gave its share back.
        record.socket = Some(Arc::into_inner(socket).expect("the lease gave back the other share"));
        record.flags.enter(Phase::Open);
        if peer_ended {
            record.flags.set(Flags::PEER_ENDED);
        }
        if finished {
            record.flags.set(Flags::ENDING_OUTPUT);
        }
        record.bytes_in += received;
        record.bytes_out += sent;
        let token = returned.leased.token;
        self.timers.clear(&mut self.slots, slot);
        self.keep(slot, &kept);
        if !unsent.is_empty() {
            self.scratch.push(&unsent);
            if finished { self.end_output(slot) } else { _ = self.send(slot, false) }
        }
        if self.slots.at(slot).is_taken() {
            self.go_on(slot, outcome);
        } else {
            panics::discard(outcome);
        }
        if self.moving.asks && returned.leased.is_asked_to_move() {
            let flags = self.slots.at(slot).flags;
            if flags.is(Phase::Open) && !flags.any(Flags::DRAINING.union(Flags::PURGED)) {
                self.freeze(slot);
            }
        }
        notes.into_iter().for_each(|note| self.note(token, note, Urgency::Delivered));
        self.wake_again(token);
        if let Some(by) = purge_by {
            self.purge(slot, by.saturating_duration_since(Instant::now()));
        }
    }

    /// Does with a connection that is back as its lessee said.
    fn go_on(&mut self, slot: u32, outcome: LeaseEnd) {
        match outcome {
            LeaseEnd::Note(note) => {
                self.io.counters.notes().add(1);
                let answer = self.dispatch(slot, Event::Notified(&mut Some(note)));
                self.follow(slot, answer, true);
                self.settle(slot, false);
            }
            LeaseEnd::End => self.close(slot, Tail::Unknown),
            LeaseEnd::Abort => self.end(slot, Closed::Aborted, true),
            LeaseEnd::Failed => {
                self.io.counters.errors().add(1);
                self.close(slot, Tail::Unknown);
            }
            LeaseEnd::Panicked(message) => self.crash(slot, message),
        }
    }
}
