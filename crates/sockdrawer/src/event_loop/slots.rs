//! The connections of a loop by number, their permits, and what few of them have.

use super::delegation::Trip;
use super::door::Door;
use super::ending::Endings;
use super::limiter::{Limiter, Permit};
use super::peer_counts::Ticket;
use super::slot::{Flags, Seat, token};
use super::timer::{NONE, Node};
use crate::chunks::Chunks;
use crate::protocol::Tag;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// In a seat, of a connection that came in at no listener.
pub(super) const NO_DOOR: u16 = 0;

/// What few connections have.
#[derive(Default)]
pub(super) struct Extra {
    pub(super) tag: Option<Tag>,
    /// It is given away, or will be.
    pub(super) trip: Option<Trip>,
    /// The drains, purges and shutdowns that count its end.
    pub(super) endings: Vec<Arc<Endings>>,
    /// By which its peer's connections are counted.
    pub(super) ticket: Option<Box<Ticket>>,
}

/// The connections of a loop. Each has a permit, which goes back with it; numbers stand here where each would carry pointers.
pub(crate) struct Seats {
    made: Chunks<Seat>,
    free: u32,
    taken: usize,
    limiter: Arc<Limiter>,
    /// The listeners by which connections came in, and how many by each. A seat has the place here, plus one.
    doors: Vec<(Arc<Door>, usize)>,
    extras: HashMap<u32, Extra>,
}

impl Seats {
    /// Room for `capacity` connections without asking for memory.
    pub(crate) fn with_capacity(capacity: usize, limiter: Arc<Limiter>) -> Seats {
        let (made, extras) = (Chunks::with_capacity(capacity), HashMap::new());
        Seats { made, free: NONE, taken: 0, limiter, doors: Vec::new(), extras }
    }

    pub(crate) fn reserve(&mut self, capacity: usize) {
        self.made.reserve(capacity);
    }

    /// Has a seat made that no connection has yet.
    pub(crate) fn prepare(&mut self) {
        if self.free == NONE {
            self.free = self.make();
        }
    }

    pub(super) fn make(&mut self) -> u32 {
        self.made.add(|| Seat::EMPTY)
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// How many seats exist, taken or not.
    pub(crate) fn len(&self) -> u32 {
        self.made.len()
    }

    #[inline]
    pub(crate) fn at(&mut self, seat: u32) -> &mut Seat {
        self.made.at(seat)
    }

    /// Whose token this is; None when that connection is gone.
    pub(crate) fn find(&mut self, token: u64) -> Option<u32> {
        let (seat, epoch) = (token as u32, (token >> 32) as u32);
        let found = self.made.get(seat)?;
        (found.epoch == epoch && found.is_taken()).then_some(seat)
    }

    pub(crate) fn token(&mut self, seat: u32) -> u64 {
        token(seat, self.at(seat).epoch)
    }

    /// The tokens of all that are taken.
    pub(super) fn tokens(&mut self) -> Vec<u64> {
        let taken: Vec<u32> = (0..self.len()).filter(|seat| self.at(*seat).is_taken()).collect();
        taken.into_iter().map(|seat| self.token(seat)).collect()
    }

    pub(super) fn extra(&self, seat: u32) -> Option<&Extra> {
        if self.extras.is_empty() { None } else { self.extras.get(&seat) }
    }

    /// Of a connection that has one.
    pub(super) fn extra_of(&mut self, seat: u32) -> Option<&mut Extra> {
        if self.extras.is_empty() { None } else { self.extras.get_mut(&seat) }
    }

    /// Made now if it has none.
    #[cold]
    pub(super) fn make_extra(&mut self, seat: u32) -> &mut Extra {
        self.at(seat).flags.set(Flags::EXTRA);
        self.extras.entry(seat).or_default()
    }

    /// The seat is another connection's from now on, or none's.
    pub(super) fn take_extra(&mut self, seat: u32) -> Extra {
        self.at(seat).flags.clear(Flags::EXTRA);
        self.extras.remove(&seat).unwrap_or_default()
    }

    /// The tokens of connections whose end is counted for such a drain, purge or shutdown.
    pub(super) fn counted(&mut self, is_meant: impl Fn(&Arc<Endings>) -> bool) -> Vec<u64> {
        let meant = self.extras.iter().filter(|(_, extra)| extra.endings.iter().any(&is_meant));
        let seats: Vec<u32> = meant.map(|(seat, _)| *seat).collect();
        seats.into_iter().map(|seat| self.token(seat)).collect()
    }

    /// Peers are not counted any more.
    pub(super) fn forget_tickets(&mut self) {
        self.extras.values_mut().for_each(|extra| extra.ticket = None);
    }

    /// Takes an empty seat.
    pub(crate) fn take(&mut self, socket: OwnedFd, permit: Permit) -> u32 {
        let (limiter, door, ticket) = permit.into_parts();
        debug_assert!(Arc::ptr_eq(&limiter, &self.limiter), "a permit of another pool");
        self.take_counted(socket, door.as_ref(), ticket)
    }

    /// The same for a connection that is counted already, by the limits of its pool and of its listener.
    #[inline(always)]
    pub(super) fn take_counted(&mut self, socket: OwnedFd, door: Option<&Arc<Door>>, ticket: Option<Box<Ticket>>) -> u32 {
        let number = if self.free == NONE { self.make() } else { self.free };
        let door = match (door, self.doors.first_mut()) {
            (None, _) => NO_DOOR,
            // As a rule there is one.
            (Some(door), Some((first, held))) if Arc::ptr_eq(door, first) => {
                *held += 1;
                1
            }
            (Some(door), _) => self.number(door),
        };
        let seat = self.at(number);
        let next = seat.timer.take_link();
        (seat.socket, seat.door) = (Some(socket), door);
        self.free = next;
        self.taken += 1;
        if ticket.is_some() {
            self.make_extra(number).ticket = ticket;
        }
        number
    }

    #[cold]
    fn number(&mut self, door: &Arc<Door>) -> u16 {
        let known = self.doors.iter().position(|(known, _)| Arc::ptr_eq(known, door));
        // One without connections makes room for another.
        let at = known.or_else(|| self.doors.iter().position(|(_, held)| *held == 0)).unwrap_or(self.doors.len());
        match self.doors.get_mut(at) {
            Some(place) if known.is_some() => place.1 += 1,
            Some(place) => *place = (door.clone(), 1),
            None => self.doors.push((door.clone(), 1)),
        }
        u16::try_from(at + 1).expect("fewer than 65,535 addresses")
    }

    /// By which a connection came in.
    pub(crate) fn door(&self, number: u16) -> Option<&Arc<Door>> {
        self.doors.get(usize::from(number).checked_sub(1)?).map(|(door, _)| door)
    }

    #[inline]
    fn leave_door(&mut self, number: u16) -> Option<&Arc<Door>> {
        let (door, held) = self.doors.get_mut(usize::from(number).checked_sub(1)?)?;
        *held -= 1;
        Some(door)
    }

    /// Empties a seat and closes its socket; then its permit goes back.
    pub(crate) fn leave(&mut self, number: u32) {
        let door = self.vacate(number);
        self.put_back(door);
    }

    /// Empties a seat whose connection goes on elsewhere, or whose permit does: its socket is None where that is elsewhere already.
    pub(crate) fn give_up(&mut self, number: u32) -> (Option<OwnedFd>, Permit) {
        let ticket = if self.at(number).flags.any(Flags::EXTRA) { self.take_extra(number).ticket } else { None };
        let (socket, door) = self.empty(number);
        let permit = Permit::of_parts(self.limiter.clone(), self.leave_door(door).cloned(), ticket);
        (socket, permit)
    }

    /// Empties a seat and closes its socket. Its permit is still taken, by way of this listener.
    #[inline]
    pub(crate) fn vacate(&mut self, number: u32) -> u16 {
        let (socket, door) = self.empty(number);
        if let Some(socket) = socket {
            crate::sys::close(socket);
        }
        door
    }

    /// Gives the permit of a connection back that came in there.
    #[inline]
    pub(crate) fn put_back(&mut self, door: u16) {
        if let Some(door) = self.leave_door(door) {
            door.limiter.put_back();
        }
        self.limiter.put_back();
    }

    #[inline]
    fn empty(&mut self, number: u32) -> (Option<OwnedFd>, u16) {
        let free = std::mem::replace(&mut self.free, number);
        self.taken -= 1;
        let seat = self.at(number);
        debug_assert!(!seat.flags.any(Flags::KEPT.and(Flags::UNSENT).and(Flags::EXTRA)) && !seat.timer.is_set());
        let (socket, door) = (seat.socket.take(), seat.door);
        let epoch = seat.epoch.wrapping_add(1).max(1);
        *seat = Seat { epoch, timer: Node::linked(free), ..Seat::EMPTY };
        (socket, door)
    }
}

/// Connections that are left close, then their permits go back.
impl Drop for Seats {
    fn drop(&mut self) {
        self.made = Chunks::with_capacity(0);
        self.extras.clear();
        for (door, held) in &self.doors {
            (0..*held).for_each(|_| door.limiter.put_back());
        }
        (0..self.taken).for_each(|_| self.limiter.put_back());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("/dev/null").into()
    }

    #[test]
    fn a_token_goes_stale_with_its_connection() {
        let limiter = Limiter::new(10);
        let mut seats = Seats::with_capacity(1, limiter.clone());
        let seat = seats.take(socket(), limiter.take().expect("free"));
        let token = seats.token(seat);
        assert_eq!(seats.find(token), Some(seat));
        drop(seats.give_up(seat));
        assert_eq!((seats.find(token), limiter.taken()), (None, 0));
        let again = seats.take(socket(), limiter.take().expect("free"));
        assert_eq!(again, seat);
        assert_eq!(seats.find(token), None);
        assert_eq!(seats.find(0), None, "no connection has token 0");
    }

    #[test]
    fn seats_grow_and_are_used_again() {
        for capacity in [0, 1, 3, 64, 1024] {
            grow_and_use_again(capacity);
        }
    }

    fn grow_and_use_again(capacity: usize) {
        let limiter = Limiter::new(10_000);
        let mut seats = Seats::with_capacity(capacity, limiter.clone());
        let taken: Vec<u32> = (0..3000).map(|_| seats.take(socket(), limiter.take().expect("free"))).collect();
        let length = seats.len();
        taken.iter().for_each(|seat| seats.leave(*seat));
        let mut again: Vec<u32> = (0..3000).map(|_| seats.take(socket(), limiter.take().expect("free"))).collect();
        again.sort_unstable();
        again.dedup();
        assert_eq!((again.len(), seats.len(), seats.taken()), (3000, length, 3000));
    }
}
