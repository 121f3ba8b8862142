//! What a short connection was counted by, left for the next of the same turn: it is counted at the gates of its pool and its door and
//! by its generation all the while, and nobody counts it out and in again.

use super::Flow;
use super::acceptor::Accepted;
use crate::protocol::Peer;

/// One place at the gates, and one in a generation, that no connection has. None outlives its turn, and there is none at a limit
/// or where anybody waits.
pub(super) struct Spare {
    /// As the account numbers doors.
    door: u16,
    /// None where another generation came into force.
    table: Option<u16>,
}

impl Flow {
    /// A connection has left its seat: its places go back, or stay for the next.
    #[inline(always)]
    pub(super) fn count_out(&mut self, seat: u32, door: u16, table: u16) {
        // An older generation may go with its last connection.
        let next_may = self.more_events & (table == self.active) & self.spare.is_none();
        if next_may && self.seats.permits.may_spare(door) {
            self.spare = Some(Spare { door, table: Some(table) });
        } else {
            self.left_generation(table);
            self.seats.permits.put_back(seat, door);
        }
    }

    /// Accepts into the places that one before has left, if those are what the next needs.
    #[inline(always)]
    pub(super) fn accept_into_spare(&mut self, index: usize) -> Option<Accepted> {
        let door = self.spare.as_ref()?.door;
        if !(self.accepts_unasked(index, door) && self.seats.permits.may_spare(door)) {
            self.give_spare_back();
            return None;
        }
        let socket = match self.accept_from(index) {
            Ok(socket) => socket,
            Err(failed) => {
                self.give_spare_back();
                return Some(failed);
            }
        };
        // As in joining: counted first, looked at afterwards.
        let joined =
            self.spare.as_ref().is_some_and(|spare| spare.table == Some(self.active)) && self.shared.switch.epoch() == self.epoch;
        if !joined {
            self.spare_leaves_generation();
        }
        self.spare = None;
        let seat = self.seats.take_spare(socket, door);
        self.seats.at(seat).id = self.next_id();
        match joined {
            true => self.open_joined(seat, &Peer::UNNAMED),
            false => self.open_protocol(seat, &Peer::UNNAMED),
        }
        Some(Accepted::Yes)
    }

    /// At the end of a turn, and when somebody else needs the places.
    #[inline(always)]
    pub(super) fn give_spare_back(&mut self) {
        self.spare_leaves_generation();
        if let Some(Spare { door, .. }) = self.spare.take() {
            self.seats.permits.put_back_unseated(door);
        }
    }

    /// Another generation comes into force.
    pub(super) fn spare_leaves_generation(&mut self) {
        if let Some(table) = self.spare.as_mut().and_then(|spare| spare.table.take()) {
            self.left_generation(table);
        }
    }
}
