//! The permits of a loop's seated connections: numbers, where each seat would carry pointers.

use super::door::Door;
use super::limiter::{Limiter, Permit};
use super::peer_counts::Ticket;
use std::collections::HashMap;
use std::sync::Arc;

/// In a seat, of a connection that came in by no door.
pub(crate) const NO_DOOR: u16 = 0;

/// Those left when it is dropped go back.
pub(crate) struct Account {
    limiter: Arc<Limiter>,
    held: usize,
    /// The doors by which connections came in, and how many by each. A seat has the place here, plus one.
    doors: Vec<(Arc<Door>, usize)>,
    /// Of the seats whose peers are counted. Empty while no policy asks.
    tickets: HashMap<u32, Box<Ticket>>,
}

impl Account {
    pub(crate) fn new(limiter: Arc<Limiter>) -> Account {
        Account { limiter, held: 0, doors: Vec::new(), tickets: HashMap::new() }
    }

    /// Returns the door's number, for the seat.
    pub(crate) fn pay_in(&mut self, seat: u32, permit: Permit) -> u16 {
        let (limiter, door, ticket) = permit.into_parts();
        debug_assert!(Arc::ptr_eq(&limiter, &self.limiter), "a permit of another pool");
        self.count(seat, door.as_ref(), ticket)
    }

    /// The same for what is counted at the gates already.
    #[inline(always)]
    pub(crate) fn count(&mut self, seat: u32, door: Option<&Arc<Door>>, ticket: Option<Box<Ticket>>) -> u16 {
        self.held += 1;
        if let Some(ticket) = ticket {
            self.count_by(seat, ticket);
        }
        match (door, self.doors.first_mut()) {
            (None, _) => NO_DOOR,
            // As a rule there is one.
            (Some(door), Some((first, held))) if Arc::ptr_eq(door, first) => {
                *held += 1;
                1
            }
            (Some(door), _) => self.number(door),
        }
    }

    #[cold]
    fn number(&mut self, door: &Arc<Door>) -> u16 {
        let known = self.doors.iter().position(|(known, _)| Arc::ptr_eq(known, door));
        // One that nobody is in by makes room for another.
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

    #[inline]
    fn take_ticket(&mut self, seat: u32) -> Option<Box<Ticket>> {
        if self.tickets.is_empty() { None } else { self.remove_ticket(seat) }
    }

    #[cold]
    fn remove_ticket(&mut self, seat: u32) -> Option<Box<Ticket>> {
        self.tickets.remove(&seat)
    }

    pub(crate) fn ticket(&self, seat: u32) -> Option<&Ticket> {
        self.tickets.get(&seat).map(|ticket| &**ticket)
    }

    /// How the peer of a seat is counted from now on.
    #[inline(never)]
    pub(crate) fn count_by(&mut self, seat: u32, ticket: Box<Ticket>) {
        self.tickets.insert(seat, ticket);
    }

    /// Peers are not counted any more.
    pub(crate) fn count_no_more(&mut self) {
        self.tickets = HashMap::new();
    }

    pub(crate) fn draw(&mut self, seat: u32, door: u16) -> Permit {
        self.held -= 1;
        Permit::of_parts(self.limiter.clone(), self.leave_door(door).cloned(), self.take_ticket(seat))
    }

    /// The same, straight back to the limiter.
    #[inline]
    pub(crate) fn put_back(&mut self, seat: u32, door: u16) {
        drop(self.take_ticket(seat));
        self.held -= 1;
        if let Some(door) = self.leave_door(door) {
            door.limiter.put_back();
        }
        self.limiter.put_back();
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.count_no_more();
        for (door, held) in &self.doors {
            (0..*held).for_each(|_| door.limiter.put_back());
        }
        (0..self.held).for_each(|_| self.limiter.put_back());
    }
}
