//! Giving a connection away and taking it back. Its seat, its permit and its protocol's state stay; epoll forgets the socket.

use super::away::{Away, Back, Hold, Leaving, Outcome, Returned};
use super::calling::Tail;
use super::connections::Connections;
use super::slot::Flags;
use crate::behaviour::Event;
use crate::clock::deadline;
use crate::protocol::{Closed, Delegate, Note, Side};
use crate::sys::{Errno, panics};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection that is given away.
pub(super) enum Trip {
    /// As soon as all is sent.
    Leaving(Delegate),
    Away {
        away: Arc<Away>,
        socket: Arc<OwnedFd>,
        /// It waits to be taken, and epoll tells when its peer ends it.
        watched: bool,
        /// It is being purged: when it comes back, it ends by then.
        purge_by: Option<Instant>,
    },
}

impl Connections {
    /// Step::Delegate: the connection goes as soon as all is sent.
    pub(super) fn start_leaving(&mut self, seat: u32, delegate: Delegate) {
        if self.seats.at(seat).flags.any(Flags::WORKING.and(Flags::LEAVING)) {
            panics::discard(delegate);
            self.count_panic(seat, "a protocol gave its connection away while a job runs, or twice".to_owned());
            return self.end(seat, Closed::Panicked, true);
        }
        // It comes back by message, from another thread.
        if let Err(errno) = self.io.awaken() {
            panics::discard(delegate);
            return self.fail(seat, errno);
        }
        self.seats.at(seat).flags.set(Flags::LEAVING);
        self.seats.make_extra(seat).trip = Some(Trip::Leaving(delegate));
        self.send(seat, false);
    }

    /// Whether the connection is away, or goes now: the last that is done with it in this turn.
    pub(super) fn leaves(&mut self, seat: u32) -> bool {
        let place = self.seats.at(seat);
        if !place.flags.any(Flags::LEAVING.and(Flags::AWAY)) {
            return false;
        }
        if place.flags.any(Flags::LEAVING) && place.has_protocol() && !place.flags.any(Flags::UNSENT) {
            self.hand_over(seat);
        }
        self.seats.at(seat).flags.any(Flags::AWAY)
    }

    fn hand_over(&mut self, seat: u32) {
        let Some(Trip::Leaving(delegate)) = self.take_trip(seat) else { unreachable!("who leaves has a delegate") };
        self.timers.clear(&mut self.seats, seat);
        if self.seats.at(seat).flags.any(Flags::WATCHED) {
            self.unwatch(seat);
        }
        let (token, table) = (self.seats.token(seat), self.seats.at(seat).table);
        let generation = self.generations.at(table).generation.id;
        let kept = self.kept.bytes(seat).to_vec();
        self.forget_kept(seat);
        let ends_by = self.ends_by(seat);
        let place = self.seats.at(seat);
        let leaving = Leaving {
            token,
            id: place.id,
            generation,
            side: place.side(),
            system: self.io.system.system().clone(),
            draining: place.flags.any(Flags::DRAINING),
            kept,
            peer_finished: place.flags.any(Flags::PEER_FINISHED),
            owes: place.bytes_in > 0,
            ends_by,
        };
        let socket = Arc::new(place.socket.take().expect("a taken seat has a socket"));
        place.flags.clear(Flags::LEAVING);
        place.flags.set(Flags::AWAY);
        let hold = Hold::new(leaving, socket.clone(), self.io.inbox.clone());
        let away = hold.away.clone();
        self.seats.make_extra(seat).trip = Some(Trip::Away { away: away.clone(), socket, watched: false, purge_by: None });
        self.io.counters.delegated().add(1);
        if delegate.blocks {
            return self.io.shared.delegates.submit(delegate, hold);
        }
        // A panic drops the hold, which comes back and says so.
        let take = AssertUnwindSafe(move || (delegate.take)(Box::new(hold)));
        let _ = catch_unwind(take).map_err(panics::discard);
        if away.queue().is_some() {
            self.watch_waiting(seat);
        }
    }

    /// A connection that waits to be taken may end before that.
    fn watch_waiting(&mut self, seat: u32) {
        let token = self.seats.token(seat);
        let Some(Trip::Away { socket, watched, .. }) = self.seats.extra_of(seat).and_then(|extra| extra.trip.as_mut()) else {
            return;
        };
        // Where it cannot be watched the code that takes it sees its end.
        *watched = self.io.system.watch_end(self.io.epoll.as_fd(), socket.as_fd(), token).is_ok();
    }

    /// The peer of a connection that was waiting to be taken has ended or reset it. Half an end leaves an accepted one as it is: the
    /// peer may still read. For one that was made by connecting it means that nothing will come.
    pub(super) fn waited_in_vain(&mut self, seat: u32) {
        let side = self.seats.at(seat).side();
        let Some(Trip::Away { away, socket, watched: true, .. }) = self.trip(seat) else { return };
        let over = match self.io.system.peek(socket.as_fd()) {
            Ok(0) => side == Side::Connected,
            Ok(_) | Err(Errno::AGAIN) => false,
            Err(_) => true,
        };
        if over && away.queue().is_some_and(|queue| queue.give_up(away)) {
            self.io.counters.untaken().add(1);
        }
    }

    /// The socket of a connection that is away.
    pub(super) fn away_socket(&self, seat: u32) -> BorrowedFd<'_> {
        match self.trip(seat) {
            Some(Trip::Away { socket, .. }) => socket.as_fd(),
            _ => unreachable!("a taken seat has a socket, or is away"),
        }
    }

    fn away(&self, seat: u32) -> Option<&Arc<Away>> {
        match self.trip(seat) {
            Some(Trip::Away { away, .. }) => Some(away),
            _ => None,
        }
    }

    /// What whoever has the connection received and sent so far.
    pub(super) fn bytes_away(&self, seat: u32) -> (u64, u64) {
        self.away(seat).map_or((0, 0), |away| away.bytes())
    }

    /// A note for whoever has the connection.
    pub(super) fn note_away(&mut self, seat: u32, note: Note) {
        let Some(away) = self.away(seat).cloned() else { return };
        if let Err(note) = away.put_note(note) {
            self.io.counters.notes_dropped().add(1);
            panics::discard(note);
        }
    }

    /// The code that has the connection is asked to end it, by the deadline if there is one; the protocol when it is back.
    pub(super) fn drain_away(&mut self, seat: u32) {
        let by = self.ends_by(seat);
        if let Some(away) = self.away(seat) {
            away.drain(by);
        }
    }

    /// The same, and what is left of the time is for its protocol to go.
    pub(super) fn purge_away(&mut self, seat: u32, within: Duration) {
        if let Some(Trip::Away { purge_by, .. }) = self.seats.extra_of(seat).and_then(|extra| extra.trip.as_mut()) {
            *purge_by = Some(deadline(Instant::now(), within));
        }
        self.seats.at(seat).flags.set(Flags::DRAINING);
        self.drain_away(seat);
    }

    /// Whether the code that has the connection has received something that it has not answered yet, or cannot write.
    pub(super) fn owes_away(&self, seat: u32) -> bool {
        self.away(seat).is_some_and(|away| away.owes())
    }

    fn trip(&self, seat: u32) -> Option<&Trip> {
        self.seats.extra(seat)?.trip.as_ref()
    }

    fn take_trip(&mut self, seat: u32) -> Option<Trip> {
        self.seats.extra_of(seat)?.trip.take()
    }

    /// The seat is given up while the connection is away, or about to go. Whatever has the socket can do nothing more with it.
    pub(super) fn end_trip(&mut self, trip: Trip, reset: bool) -> Option<Arc<Away>> {
        match trip {
            Trip::Leaving(delegate) => {
                panics::discard(delegate);
                None
            }
            Trip::Away { away, socket, .. } => {
                away.end();
                let socket = socket.as_fd();
                // It fails only where the connection is gone already.
                let _ = if reset { self.io.system.reset(socket) } else { self.io.system.finish(socket) };
                self.count_away(&away);
                panics::discard(self.left_notes(&away));
                Some(away)
            }
        }
    }

    /// Adds what whoever has the connection received and sent to the loop's counters; how much.
    fn count_away(&self, away: &Away) -> (u64, u64) {
        let (received, sent) = away.count_bytes();
        self.io.counters.bytes_in().add(received);
        self.io.counters.bytes_out().add(sent);
        (received, sent)
    }

    fn left_notes(&self, away: &Away) -> std::collections::VecDeque<Note> {
        let (left, taken) = away.left_notes();
        self.io.counters.notes().add(taken);
        left
    }

    /// A connection comes back.
    pub(super) fn came_back(&mut self, mut returned: Returned) {
        let (received, sent) = self.count_away(&returned.away);
        let notes = self.left_notes(&returned.away);
        let found = self.seats.find(returned.away.token);
        let (Some(seat), Some(back)) = (found, returned.back.take_if(|_| found.is_some())) else {
            panics::discard(notes);
            panics::discard(returned);
            return self.descriptor_freed = true;
        };
        let Some(Trip::Away { purge_by, watched, .. }) = self.take_trip(seat) else { unreachable!("it was away") };
        let Back { socket, kept, peer_finished, finished, outcome } = back;
        if watched {
            // It fails only for what is not watched.
            let _ = self.io.system.unwatch(self.io.epoll.as_fd(), socket.as_fd());
        }
        let place = self.seats.at(seat);
        // The event loop's own share was dropped with the trip, and whoever had the connection gave away theirs.
        place.socket = Some(Arc::into_inner(socket).expect("nobody else has the socket"));
        place.flags.clear(Flags::AWAY);
        if peer_finished {
            place.flags.set(Flags::PEER_FINISHED);
        }
        if finished {
            place.flags.set(Flags::FINISHING);
        }
        place.bytes_in += received;
        place.bytes_out += sent;
        let (token, epoch) = (returned.away.token, place.epoch);
        self.timers.clear(&mut self.seats, seat);
        self.keep(seat, &kept);
        self.go_on(seat, outcome);
        notes.into_iter().for_each(|note| self.note(token, note));
        if let Some(by) = purge_by.filter(|_| self.is_still(seat, epoch)) {
            self.purge(seat, by.saturating_duration_since(Instant::now()));
        }
    }

    /// Does with a connection that is back as whoever had it said.
    fn go_on(&mut self, seat: u32, outcome: Outcome) {
        let epoch = self.seats.at(seat).epoch;
        match outcome {
            Outcome::Note(note) => {
                self.io.counters.notes().add(1);
                let answer = self.dispatch(seat, Event::Notified(&mut Some(note)));
                self.follow(seat, epoch, answer, true);
                if self.is_still(seat, epoch) {
                    self.settle(seat, false);
                }
            }
            Outcome::End => self.close(seat, Tail::Unknown),
            #[cfg(feature = "tokio")]
            Outcome::Abort => self.end(seat, Closed::Aborted, true),
            Outcome::Failed => {
                self.io.counters.errors().add(1);
                self.close(seat, Tail::Unknown);
            }
            Outcome::Panicked(message) => {
                self.count_panic(seat, message);
                self.end(seat, Closed::Panicked, true);
            }
        }
    }
}
