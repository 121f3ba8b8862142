//! Leasing a connection to other code and taking it back. Its slot, permit and protocol state stay; epoll forgets the socket.

use super::Connections;
use super::calling::Tail;
use crate::behaviour::Callback;
use crate::event_loop::delegation::Delegation;
use crate::event_loop::lease::{GivenBack, Lease, LeaseEnd, LeaseStart, Returned};
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Extra;
use crate::protocol::{Closed, Delegate, Note, Peer, Urgency};
use crate::sys::panics;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

impl Connections {
    /// Does Step::Delegate: the connection goes as soon as all is sent.
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

    /// Leases a connection whose output is all sent: the last that is done with it in this turn.
    pub(super) fn hand_over(&mut self, slot: u32) {
        let (table, state) = (self.slots.at(slot).table, self.slots.at(slot).state);
        let lent = self.generations.at(table).table.lend(state);
        let Some(Delegation::Pending(mut delegate)) = self.slots.make_extra(slot).delegation.take() else {
            unreachable!("a pending delegation has its delegate")
        };
        self.timers.clear(&mut self.slots, slot);
        if self.slots.at(slot).flags.any(Flags::WATCHED) {
            self.io.unwatch(self.slots.at(slot));
        }
        let token = self.slots.token(slot);
        let of = self.generations.at(table);
        let (generation, max_wire) = (of.id, of.max_partial);
        let kept = self.kept.bytes(slot).to_vec();
        self.kept.forget(&mut self.slots, slot);
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
            max_wire,
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
        if leased.is_watched()
            && let Some(delegation) = &mut self.slots.make_extra(slot).delegation
        {
            delegation.watch(&*self.io.system, self.io.epoll.as_fd(), token);
        }
    }

    /// Handles the end or reset of a connection that was waiting to be taken, by its peer.
    pub(super) fn leased_ended(&mut self, slot: u32) {
        let side = self.slots.at(slot).side();
        let delegation = self.slots.extra(slot).and_then(|extra| extra.delegation.as_ref());
        if delegation.is_some_and(|delegation| delegation.peer_ended(&*self.io.system, side)) {
            self.io.counters.untaken().add(1);
        }
    }

    /// Gives a note to the lessee.
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

    /// Takes back a connection that was leased.
    pub(in crate::event_loop) fn came_back(&mut self, mut returned: Returned) {
        let (received, sent) = returned.leased.count_bytes(&self.io.counters);
        let notes = returned.leased.count_notes(&self.io.counters);
        let found = self.slots.find(returned.leased.token);
        let (Some(slot), Some(back)) = (found, returned.back.take_if(|_| found.is_some())) else {
            panics::discard(notes);
            panics::discard(returned);
            return self.descriptor_freed = true;
        };
        let Some(Delegation::Leased { purge_by, watched, .. }) = self.slots.make_extra(slot).delegation.take() else {
            unreachable!("it was away")
        };
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
        self.kept.keep(&mut self.slots, slot, &kept);
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
                self.moving.freeze(&self.io, &mut self.slots, slot);
            }
        }
        notes.into_iter().for_each(|note| self.note(token, note, Urgency::Delivered));
        self.io.wake_again(&mut self.slots, token);
        if let Some(by) = purge_by {
            self.purge(slot, by.saturating_duration_since(Instant::now()));
        }
    }

    /// Does with a connection that is back as its lessee said.
    fn go_on(&mut self, slot: u32, outcome: LeaseEnd) {
        match outcome {
            LeaseEnd::Note(note) => {
                self.io.counters.notes().add(1);
                let answer = self.dispatch(slot, Callback::Notified(&mut Some(note)));
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
