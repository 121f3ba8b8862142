//! The connections of a loop by number, their permits, and what few of them have.

use super::delegation::Delegation;
use super::endings::Endings;
use super::inbox::Asker;
use super::lease::Leased;
use super::phase::Phase;
use super::slot::{Flags, NO_LISTENER, Slot, token};
use super::timer::{NONE, Node};
use crate::chunks::Chunks;
use crate::limit::limiter::Limiter;
use crate::limit::peer_counts::PeerCount;
use crate::listen::permit::Permit;
use crate::listen::state::ListenerState;
use crate::net::Address;
use crate::protocol::{GroupMembers, Tag};
use crate::sync::atomic::Ordering::SeqCst;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Bounds of one read of a relay. At the upper one a byte costs a third less CPU time than in reads of 64 KiB; the lower one is for a side whose other does
/// not keep up, because what that does not take is held in memory.
const MAX_BYTES: usize = 256 * 1024;
const LEAST_BYTES: usize = 16 * 1024;

/// Direction of a pair: the way that the bytes of a connection go.
#[derive(Clone, Copy)]
pub(super) struct Relay {
    /// The token of the other side.
    pub(super) to: u64,
    /// The maximum of the next read.
    pub(super) most: usize,
    /// A layer of either side has a filter that the bytes pass.
    pub(super) filtered: bool,
}

/// A connect that was asked for.
pub(super) struct AskedConnect {
    pub(super) by: Asker,
    pub(super) target: Address,
    /// Bytes that are sent before all that its protocol says.
    pub(super) first: Vec<u8>,
    pub(super) began: Instant,
    /// Layers shake hands: the one that asked has not been told yet.
    pub(super) in_handshake: bool,
}

impl AskedConnect {
    /// Returns what is to be told of this connection. A connection that asked is its asker still.
    pub(super) fn take_asker(&mut self) -> Asker {
        match &mut self.by {
            Asker::Connection(token) => Asker::Connection(*token),
            Asker::Code(told) => Asker::Code(told.take()),
        }
    }
}

impl Extra {
    /// Returns the token of the connection that asked for this one.
    pub(super) fn asker(&self) -> Option<u64> {
        match self.asked.as_ref()?.by {
            Asker::Connection(token) => Some(token),
            Asker::Code(_) => None,
        }
    }
}

/// Facts that few connections have.
#[derive(Default)]
pub(super) struct Extra {
    pub(super) tag: Option<Tag>,
    /// The connection is leased, or will be.
    pub(super) delegation: Option<Delegation>,
    /// The drains, purges and shutdowns that count its end.
    pub(super) endings: Vec<Arc<Endings>>,
    /// Count of its peer's connections.
    pub(super) peer_count: Option<Box<PeerCount>>,
    /// The groups that it is a member of, with its place among the members in this loop.
    pub(super) groups: Vec<(Arc<GroupMembers>, usize)>,
    /// Direction of its bytes.
    pub(super) relay: Option<Relay>,
    /// The connect that asked for it, until it is joined with the connection that asked, or that connection is gone.
    pub(super) asked: Option<Box<AskedConnect>>,
    /// Connects that it has asked for and has heard nothing of.
    pub(super) connects: usize,
    /// The unsent bytes at which `writable` is to be called.
    pub(super) wake_below: Option<u32>,
    /// The peer's address, where a layer learned another than the kernel knows.
    pub(super) remote: Option<Box<SocketAddr>>,
    /// Admission turned it away when its peer was known: it is counted as rejected, and not as closed.
    pub(super) turned_away: bool,
    /// The peer is reset once it was sent all that came for it, for that is not whole.
    pub(super) is_cut_short: bool,
    /// True where this side of its pair ended first, false where the other did; None: neither has ended.
    pub(super) ended_first: Option<bool>,
}

impl Extra {
    /// Returns the nearest deadline by which the connection ends.
    pub(super) fn ends_by(&self) -> Option<Instant> {
        self.endings.iter().map(|endings| endings.until).min()
    }

    /// Returns the lease of a connection that other code has.
    pub(super) fn leased(&self) -> Option<&Arc<Leased>> {
        match &self.delegation {
            Some(Delegation::Leased { leased, .. }) => Some(leased),
            _ => None,
        }
    }

    /// Asks the lessee, if there is one, to end the connection, by the deadline if there is one; its protocol is asked when it is back.
    pub(super) fn drain_leased(&self) {
        if let Some(leased) = self.leased() {
            leased.drain(self.ends_by());
        }
    }

    /// Asks the lessee to end the connection; the protocol has what is left of the time until then when the connection is back.
    pub(super) fn purge_leased(&mut self, by: Instant) {
        if let Some(Delegation::Leased { purge_by, .. }) = &mut self.delegation {
            *purge_by = Some(by);
        }
        self.drain_leased();
    }

    /// Returns whether the protocol asked to be woken, and no more is unsent than it named; asked once.
    pub(super) fn takes_wake(&mut self, unsent: usize) -> bool {
        self.wake_below.take_if(|below| unsent <= *below as usize).is_some()
    }

    /// Returns the address that a layer learned.
    pub(super) fn learned_remote(&self) -> Option<SocketAddr> {
        self.remote.as_deref().copied()
    }

    /// Returns whether the connection's end is counted for this drain, purge or shutdown.
    pub(super) fn is_counted_for(&self, endings: &Arc<Endings>) -> bool {
        self.endings.iter().any(|known| Arc::ptr_eq(known, endings))
    }

    /// Returns whether the count of the connection's end was told already, as cut.
    pub(super) fn is_told(&self) -> bool {
        self.endings.iter().any(|endings| endings.told.load(SeqCst))
    }
}

/// A listener by which connections of this loop came in.
struct CameIn {
    listener: Arc<ListenerState>,
    /// A copy of this loop's own: loops do not count references in one place of memory.
    address: Arc<Address>,
    held: usize,
}

impl CameIn {
    fn new(listener: &Arc<ListenerState>) -> CameIn {
        CameIn { listener: listener.clone(), address: Arc::new(listener.address.clone()), held: 1 }
    }
}

/// The connections of a loop. Each has a permit, which goes back with it; numbers stand here where each would carry pointers.
pub(crate) struct Slots {
    made: Chunks<Slot>,
    free: u32,
    taken: usize,
    limiter: Arc<Limiter>,
    /// The listeners by which connections came in, and how many by each. A slot has the place here, plus one.
    listeners: Vec<CameIn>,
    /// Address at which a connection in its own process came in. The listener itself is the parent's.
    pub(super) parents_listener: Option<Arc<Address>>,
    extras: HashMap<u32, Extra>,
    /// Every target of the pool there was; connecting slots name theirs by its place.
    targets: Vec<Address>,
}

impl Slots {
    /// Makes slots with room for `capacity` connections, without asking for memory.
    pub(crate) fn with_capacity(capacity: usize, limiter: Arc<Limiter>) -> Slots {
        let (made, extras) = (Chunks::with_capacity(capacity), HashMap::new());
        Slots { made, free: NONE, taken: 0, limiter, listeners: Vec::new(), parents_listener: None, extras, targets: Vec::new() }
    }

    pub(crate) fn reserve(&mut self, capacity: usize) {
        self.made.reserve(capacity);
    }

    /// Has a slot made that no connection has yet.
    pub(crate) fn prepare(&mut self) {
        if self.free == NONE {
            self.free = self.make();
        }
    }

    pub(super) fn make(&mut self) -> u32 {
        self.made.add(|| Slot::EMPTY)
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the number of slots that exist, taken or not.
    pub(crate) fn len(&self) -> u32 {
        self.made.len()
    }

    #[inline]
    pub(crate) fn at(&mut self, slot: u32) -> &mut Slot {
        self.made.at(slot)
    }

    /// Returns the slot of this token; None when that connection is gone.
    pub(crate) fn find(&mut self, token: u64) -> Option<u32> {
        let (slot, version) = (token as u32, (token >> 32) as u32);
        let found = self.made.get(slot)?;
        (found.version == version && found.is_taken()).then_some(slot)
    }

    pub(crate) fn token(&mut self, slot: u32) -> u64 {
        token(slot, self.at(slot).version)
    }

    /// Returns the slot of this token while a protocol runs there.
    pub(super) fn with_protocol(&mut self, token: u64) -> Option<u32> {
        self.find(token).filter(|slot| self.at(*slot).has_protocol())
    }

    /// Returns the number of a target of the pool, of which there are few; those that protocols name may be any.
    pub(super) fn number_target(&mut self, target: &Address) -> u32 {
        let known = self.targets.iter().position(|known| known == target);
        let number = known.unwrap_or_else(|| {
            self.targets.push(target.clone());
            self.targets.len() - 1
        });
        u32::try_from(number).expect("fewer than 4 billion targets")
    }

    /// Returns the address that a connection is being made to.
    pub(super) fn target(&mut self, slot: u32) -> Option<SocketAddr> {
        if let Some(asked) = self.extra(slot).and_then(|extra| extra.asked.as_ref()) {
            return asked.target.internet();
        }
        let number = self.at(slot).state;
        self.targets[number as usize].internet()
    }

    /// Returns the socket of a connection, also of one that is leased.
    pub(super) fn socket(&mut self, slot: u32) -> BorrowedFd<'_> {
        let of_lease = || match &self.extras.get(&slot)?.delegation {
            Some(Delegation::Leased { socket, .. }) => Some(socket.as_fd()),
            _ => None,
        };
        let own = self.made.at(slot).socket.as_ref().map(AsFd::as_fd);
        own.or_else(of_lease).expect("a taken slot has a socket, or is leased")
    }

    /// Returns the tokens of all slots that are taken.
    pub(super) fn tokens(&mut self) -> Vec<u64> {
        let taken: Vec<u32> = (0..self.len()).filter(|slot| self.at(*slot).is_taken()).collect();
        taken.into_iter().map(|slot| self.token(slot)).collect()
    }

    pub(super) fn extra(&self, slot: u32) -> Option<&Extra> {
        if self.extras.is_empty() { None } else { self.extras.get(&slot) }
    }

    /// Returns the extra of a connection that has one.
    pub(super) fn extra_of(&mut self, slot: u32) -> Option<&mut Extra> {
        if self.extras.is_empty() { None } else { self.extras.get_mut(&slot) }
    }

    /// Returns the extra of a connection, made now if it has none.
    #[cold]
    pub(super) fn make_extra(&mut self, slot: u32) -> &mut Extra {
        self.at(slot).flags.set(Flags::EXTRA);
        self.extras.entry(slot).or_default()
    }

    /// Takes the extra out of a slot that is another connection's from now on, or none's.
    pub(super) fn take_extra(&mut self, slot: u32) -> Extra {
        self.at(slot).flags.clear(Flags::EXTRA);
        self.extras.remove(&slot).unwrap_or_default()
    }

    /// Returns the tokens of the connections whose extra is selected; few have one.
    pub(super) fn having(&mut self, is_meant: impl Fn(&Extra) -> bool) -> Vec<u64> {
        let slots: Vec<u32> = self.extras.iter().filter(|(_, extra)| is_meant(extra)).map(|(slot, _)| *slot).collect();
        slots.into_iter().map(|slot| self.token(slot)).collect()
    }

    /// Peers are not counted any more.
    pub(super) fn forget_peer_counts(&mut self) {
        self.extras.values_mut().for_each(|extra| extra.peer_count = None);
    }

    /// Takes an empty slot. Not while something happens to a connection: where that gives its slot up, the slot stays empty until that is over, and each
    /// part of it sees so by the phase.
    pub(crate) fn take(&mut self, socket: OwnedFd, permit: Permit) -> u32 {
        let (limiter, listener, peer_count) = permit.into_parts();
        debug_assert!(Arc::ptr_eq(&limiter, &self.limiter), "a permit of another pool");
        self.take_counted(socket, listener.as_ref(), peer_count)
    }

    /// Takes an empty slot for a connection that its pool's and its listener's limiter have counted already.
    #[inline(always)]
    pub(super) fn take_counted(
        &mut self,
        socket: OwnedFd,
        listener: Option<&Arc<ListenerState>>,
        peer_count: Option<Box<PeerCount>>,
    ) -> u32 {
        let number = if self.free == NONE { self.make() } else { self.free };
        let listener = match (listener, self.listeners.first_mut()) {
            (None, _) => NO_LISTENER,
            // As a rule there is one.
            (Some(listener), Some(first)) if Arc::ptr_eq(listener, &first.listener) => {
                first.held += 1;
                1
            }
            (Some(listener), _) => self.number(listener),
        };
        let slot = self.at(number);
        let next = slot.timer.take_link();
        (slot.socket, slot.listener, slot.flags) = (Some(socket), listener, Flags::default());
        self.free = next;
        self.taken += 1;
        if peer_count.is_some() {
            self.make_extra(number).peer_count = peer_count;
        }
        number
    }

    #[cold]
    fn number(&mut self, listener: &Arc<ListenerState>) -> u16 {
        let known = self.listeners.iter().position(|known| Arc::ptr_eq(&known.listener, listener));
        // A listener without connections makes room for another.
        let at = known.or_else(|| self.listeners.iter().position(|known| known.held == 0)).unwrap_or(self.listeners.len());
        match self.listeners.get_mut(at) {
            Some(place) if known.is_some() => place.held += 1,
            Some(place) => *place = CameIn::new(listener),
            None => self.listeners.push(CameIn::new(listener)),
        }
        u16::try_from(at + 1).expect("fewer than 65,535 addresses")
    }

    /// Returns the listener of this number, by which a connection came in.
    pub(crate) fn listener(&self, number: u16) -> Option<&Arc<ListenerState>> {
        self.listeners.get(usize::from(number).checked_sub(1)?).map(|known| &known.listener)
    }

    /// Returns the address at which a connection came in, where that had layers of its own. What a connection has made for itself is of its address.
    pub(super) fn own_address(&mut self, slot: u32) -> Option<&Address> {
        let asker = self.extra(slot).and_then(Extra::asker).and_then(|asker| self.find(asker));
        let listener = self.at(asker.unwrap_or(slot)).listener;
        self.listener(listener)?.own.as_ref()
    }

    /// Returns the address at which a connection came in.
    pub(super) fn came_in_at(&mut self, slot: u32) -> Option<Arc<Address>> {
        match usize::from(self.at(slot).listener).checked_sub(1) {
            Some(number) => self.listeners.get(number).map(|known| known.address.clone()),
            None => self.parents_listener.clone(),
        }
    }

    #[inline]
    fn leave_listener(&mut self, number: u16) -> Option<&Arc<ListenerState>> {
        let known = self.listeners.get_mut(usize::from(number).checked_sub(1)?)?;
        known.held -= 1;
        Some(&known.listener)
    }

    /// Empties a slot and closes its socket; then its permit goes back.
    pub(crate) fn leave(&mut self, number: u32) {
        let listener = self.vacate(number);
        self.put_back(listener);
    }

    /// Empties a slot whose connection goes on elsewhere, or whose permit does: its socket is None where that is elsewhere already.
    pub(crate) fn give_up(&mut self, number: u32) -> (Option<OwnedFd>, Permit) {
        let peer_count = if self.at(number).flags.any(Flags::EXTRA) { self.take_extra(number).peer_count } else { None };
        let (socket, listener) = self.empty(number);
        let permit = Permit::of_parts(self.limiter.clone(), self.leave_listener(listener).cloned(), peer_count);
        (socket, permit)
    }

    /// Empties a slot and closes its socket. Its permit is still taken, by way of this listener.
    #[inline]
    pub(crate) fn vacate(&mut self, number: u32) -> u16 {
        let (socket, listener) = self.empty(number);
        if let Some(socket) = socket {
            crate::sys::close(socket);
        }
        listener
    }

    /// Gives the permit of a connection back that came in there.
    #[inline]
    pub(crate) fn put_back(&mut self, listener: u16) {
        if let Some(listener) = self.leave_listener(listener) {
            listener.limiter.put_back();
        }
        self.limiter.put_back();
    }

    #[inline]
    fn empty(&mut self, number: u32) -> (Option<OwnedFd>, u16) {
        let free = std::mem::replace(&mut self.free, number);
        self.taken -= 1;
        let slot = self.at(number);
        debug_assert!(!slot.flags.any(Flags::KEPT.union(Flags::UNSENT).union(Flags::EXTRA)) && !slot.timer.is_set());
        let (socket, listener) = (slot.socket.take(), slot.listener);
        let version = slot.version.wrapping_add(1).max(1);
        *slot = Slot { version, timer: Node::linked(free), ..Slot::EMPTY };
        (socket, listener)
    }
}

/// Pairs of connections whose bytes go to each other. `streams/relaying.rs` moves the bytes.
impl Slots {
    /// Has the bytes of a connection go to that of this token: 0 where the other side is still to come.
    pub(super) fn join(&mut self, slot: u32, to: u64) {
        self.make_extra(slot).relay = Some(Relay { to, most: LEAST_BYTES, filtered: false });
    }

    /// Ends the direction from this connection. Its phase stays.
    pub(super) fn part(&mut self, slot: u32) {
        if let Some(extra) = self.extra_of(slot) {
            extra.relay = None;
        }
    }

    /// Returns where the bytes of this connection go, and the slot of that.
    pub(super) fn relay_of(&mut self, slot: u32) -> Option<(Relay, u32)> {
        let relay = self.extra(slot)?.relay?;
        Some((relay, self.find(relay.to)?))
    }

    /// Returns the other side of a pair, also while both are frozen.
    pub(super) fn other(&mut self, slot: u32) -> Option<u32> {
        self.relay_of(slot).map(|(_, other)| other)
    }

    /// Returns the slots of both sides of a pair; of a connection that is joined with none, its own.
    pub(super) fn sides(&mut self, slot: u32) -> impl Iterator<Item = u32> + use<> {
        [Some(slot), self.other(slot)].into_iter().flatten()
    }

    /// Returns whether the other side takes what this one brings.
    pub(super) fn other_takes(&mut self, slot: u32) -> bool {
        self.other(slot).is_some_and(|other| !self.at(other).flags.any(Flags::UNSENT))
    }

    /// Returns whether the connection is there, and its bytes are relayed now.
    pub(super) fn is_relayed(&mut self, token: u64) -> bool {
        self.find(token).is_some_and(|slot| self.at(slot).flags.is(Phase::Relayed))
    }

    /// Sets the maximum of the next read of a connection whose bytes were taken, or were not.
    #[cold]
    pub(super) fn read_next(&mut self, slot: u32, most: usize) {
        if let Some(relay) = self.extra_of(slot).and_then(|extra| extra.relay.as_mut()) {
            relay.most = most.clamp(LEAST_BYTES, MAX_BYTES);
        }
    }
}

/// Connections that are left close, then their permits go back.
impl Drop for Slots {
    fn drop(&mut self) {
        self.made = Chunks::with_capacity(0);
        self.extras.clear();
        for CameIn { listener, held, .. } in &self.listeners {
            (0..*held).for_each(|_| listener.limiter.put_back());
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
        let mut slots = Slots::with_capacity(1, limiter.clone());
        let slot = slots.take(socket(), Permit::take(&limiter).expect("free"));
        let token = slots.token(slot);
        assert_eq!(slots.find(token), Some(slot));
        drop(slots.give_up(slot));
        assert_eq!((slots.find(token), limiter.taken()), (None, 0));
        let again = slots.take(socket(), Permit::take(&limiter).expect("free"));
        assert_eq!(again, slot);
        assert_eq!(slots.find(token), None);
        assert_eq!(slots.find(0), None, "no connection has token 0");
    }

    #[test]
    fn seats_grow_and_are_used_again() {
        // A shell gives 1,024 to all tests of this process.
        crate::sys::raise_descriptor_limit().expect("the hard limit is allowed");
        for capacity in [0, 1, 3, 64, 1024] {
            grow_and_use_again(capacity);
        }
    }

    fn grow_and_use_again(capacity: usize) {
        let limiter = Limiter::new(10_000);
        let mut slots = Slots::with_capacity(capacity, limiter.clone());
        let taken: Vec<u32> = (0..3000).map(|_| slots.take(socket(), Permit::take(&limiter).expect("free"))).collect();
        let length = slots.len();
        taken.iter().for_each(|slot| slots.leave(*slot));
        let mut again: Vec<u32> = (0..3000).map(|_| slots.take(socket(), Permit::take(&limiter).expect("free"))).collect();
        again.sort_unstable();
        again.dedup();
        assert_eq!((again.len(), slots.len(), slots.taken()), (3000, length, 3000));
    }
}
