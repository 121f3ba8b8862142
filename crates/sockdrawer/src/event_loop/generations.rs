//! The generations that have connections in one event loop, and which of them is in force.

use super::READ_BYTES;
use super::generation::{Generation, Tables};
use super::io::Io;
use super::phase::Phase;
use super::read_buffer::{LEAST_READ_BYTES, ReadBuffer};
use super::slot::{Flags, Slot};
use super::slots::{Extra, Slots};
use crate::behaviour::{Panicked, Table, TableBox};
use crate::config::Settings;
use crate::listen::state::ListenerState;
use crate::net::Address;
use crate::observe::Event;
use crate::protocol::{Closing, Local, Receiving, State};
use crate::sync::atomic::Ordering;
use std::sync::Arc;

/// A generation in this loop.
pub(super) struct LiveGeneration {
    pub(super) generation: Arc<Generation>,
    pub(super) table: Box<dyn Table>,
    pub(super) local: Box<Local>,
    pub(super) closing: Closing,
    receiving: Receiving,
    /// Number of the generation, a copy: other loops write to the generation itself for each connection.
    pub(super) id: u32,
    pub(super) high_water: usize,
    /// Declared names and versions of the states.
    pub(super) state: State,
    pub(super) learns_peer_address: bool,
    /// Bytes of input that a connection may leave untaken: the setting, or a record of its layers if that is longer.
    pub(super) max_partial: usize,
}

impl LiveGeneration {
    /// Returns true where the peer of this state's connection is still to be learned.
    pub(super) fn awaits_peer(&mut self, state: u32) -> bool {
        self.learns_peer_address && self.table.awaits_peer(state)
    }

    /// Returns the flags of a connection whose unsent output passes the high-water mark.
    pub(super) fn full(&self) -> Flags {
        match self.receiving {
            Receiving::UntilFull => Flags::FULL.union(Flags::BACKED_UP),
            Receiving::Always => Flags::FULL,
        }
    }
}

/// The generations of one event loop.
pub(super) struct Generations {
    live: Vec<Option<LiveGeneration>>,
    /// The generation in force, and the switch's epoch at which it was.
    pub(super) active: u16,
    /// Addresses with layers of their own, with the table of those in the generation in force.
    pub(super) own: Vec<(Address, u16)>,
    epoch: u64,
    /// The generation in force, or the model, needs the peer's address.
    pub(super) names_peers: bool,
    /// A service in force may learn the peer's address after the accept.
    learns_peers: bool,
}

impl Default for Generations {
    fn default() -> Generations {
        Generations { live: Vec::new(), active: 0, own: Vec::new(), epoch: 0, names_peers: true, learns_peers: false }
    }
}

impl Generations {
    /// Looks at the switch: one load. After a change, takes the table that was prepared for this loop.
    #[inline]
    pub(super) fn refresh(&mut self, io: &Io, read: &mut ReadBuffer) -> Result<(), Panicked> {
        let epoch = io.shared.switch.epoch();
        if epoch == self.epoch { Ok(()) } else { self.take_current(epoch, io, read) }
    }

    #[cold]
    fn take_current(&mut self, epoch: u64, io: &Io, read: &mut ReadBuffer) -> Result<(), Panicked> {
        let generation = io.shared.switch.current();
        let tables = generation.tables(io.index)?;
        let longest = tables.own.iter().map(|(_, table)| table.longest_record).fold(tables.table.longest_record, usize::max);
        let none = |errno| Panicked(format!("no memory to read into: {}", std::io::Error::from(errno)));
        read.grow(generation.settings.max_partial.max(longest)).map_err(none)?;
        // An event loop for one connection is told by no other's what it has to keep.
        let most = generation.settings.high_water.max(LEAST_READ_BYTES);
        read.most = if io.index.is_some() { READ_BYTES } else { READ_BYTES.min(most) };
        let any = |is: fn(&TableBox) -> bool| is(&tables.table) || tables.own.iter().any(|(_, table)| is(table));
        self.names_peers = any(|table| table.needs_peer_address) || io.shared.placement.is_some();
        self.learns_peers = any(|table| table.learns_peer_address);
        self.switch_to(epoch, &generation, tables);
        Ok(())
    }

    /// Counts one more connection of the generation in force. Counted before the switch is looked at again: a thread that retires a generation
    /// sees this connection, or it sees the newer generation.
    #[inline(always)]
    pub(super) fn join(&mut self, io: &Io, read: &mut ReadBuffer) -> Result<(), Panicked> {
        loop {
            self.refresh(io, read)?;
            let active = self.active;
            self.at(active).generation.live.fetch_add(1, Ordering::SeqCst);
            if io.shared.switch.epoch() == self.epoch {
                return Ok(());
            }
            self.leave(io, active);
        }
    }

    /// Counts a connection that is no longer of this generation.
    #[inline]
    pub(super) fn leave(&mut self, io: &Io, table: u16) {
        let generation = &self.at(table).generation;
        generation.live.fetch_sub(1, Ordering::SeqCst);
        if generation.retired.load(Ordering::SeqCst) {
            self.leave_retired(io, table);
        }
    }

    #[cold]
    fn leave_retired(&mut self, io: &Io, table: u16) {
        let generation = &self.at(table).generation;
        if generation.has_ended() {
            let id = generation.id;
            io.shared.tell(&Event::GenerationEnded(id));
        }
        if table != self.active {
            self.drop_empty(false);
        }
    }

    /// Forgets a state that was restored for a connection that does not come.
    pub(super) fn forget(&mut self, io: &Io, table: u16, state: u32) {
        self.at(table).table.forget(state);
        self.leave(io, table);
    }

    /// Returns the table in force for a connection, by the address at which it came in.
    #[inline]
    pub(super) fn active_for(&self, slots: &mut Slots, slot: u32) -> u16 {
        if self.own.is_empty() { self.active } else { self.active_at(slots.own_address(slot)) }
    }

    /// Returns true where the service in force at a listener learns its peers' addresses only after the accept.
    #[inline]
    pub(super) fn learns_peers_at(&mut self, listener: Option<&Arc<ListenerState>>) -> bool {
        self.learns_peers && {
            let table = self.active_at(listener.and_then(|listener| listener.own.as_ref()));
            self.at(table).learns_peer_address
        }
    }

    /// Returns true where the peer of a connection is still to be learned: it is counted as a connection of none until then.
    pub(super) fn awaits_peer(&mut self, slots: &mut Slots, slot: u32) -> bool {
        let record = slots.at(slot);
        let (table, state, has_protocol) = (record.table, record.state, record.has_protocol());
        let is_learned = slots.extra(slot).and_then(Extra::learned_remote).is_some();
        has_protocol && !is_learned && self.at(table).awaits_peer(state)
    }

    /// Returns whether the protocol of a connection owes its peer an answer.
    pub(super) fn owes(&mut self, record: &Slot) -> bool {
        record.has_protocol() && self.at(record.table).table.owes(record.state)
    }

    /// Returns whether the code that has a connection gives it back for a move when it is asked.
    pub(super) fn gives_back(&mut self, slots: &mut Slots, slot: u32, reads: &State) -> bool {
        let record = slots.at(slot);
        let (table, is_away) = (record.table, record.flags.is(Phase::Leased) && !record.flags.any(Flags::DRAINING));
        is_away
            && slots.extra(slot).and_then(Extra::leased).is_some_and(|leased| leased.moves_if_asked())
            && reads.can_read(&self.at(table).state).is_ok()
    }

    #[inline(always)]
    pub(super) fn at(&mut self, table: u16) -> &mut LiveGeneration {
        self.live[usize::from(table)].as_mut().expect("a generation with connections stays")
    }

    pub(super) fn active(&mut self) -> &mut LiveGeneration {
        let active = self.active;
        self.at(active)
    }

    pub(super) fn active_settings(&mut self) -> &Settings {
        &self.active().generation.settings
    }

    pub(super) fn settings(&mut self, table: u16) -> &Settings {
        &self.at(table).generation.settings
    }

    /// Puts a generation in force, as of this epoch of the switch.
    fn switch_to(&mut self, epoch: u64, generation: &Arc<Generation>, made: Tables) {
        self.epoch = epoch;
        self.own.clear();
        self.drop_empty(true);
        self.active = self.add(generation, made.table);
        self.own = made.own.into_iter().map(|(address, table)| (address, self.add(generation, table))).collect();
    }

    fn add(&mut self, generation: &Arc<Generation>, made: TableBox) -> u16 {
        let TableBox { table, local, closing, receiving, state, learns_peer_address, longest_record, .. } = made;
        let (generation, id, high_water) = (generation.clone(), generation.id, generation.settings.high_water);
        let max_partial = generation.settings.max_partial.max(longest_record);
        let added = LiveGeneration {
            generation,
            table,
            local,
            closing,
            receiving,
            id,
            high_water,
            state,
            learns_peer_address,
            max_partial,
        };
        let at = self.live.iter().position(Option::is_none).unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() - 1
        });
        self.live[at] = Some(added);
        u16::try_from(at).expect("fewer than 65,536 live generations")
    }

    /// Returns the table in force for connections that came in at an address that has layers of its own, or has none.
    pub(super) fn active_at(&self, own: Option<&Address>) -> u16 {
        let of = |address| self.own.iter().find(|(at, _)| at == address).map(|(_, table)| *table);
        own.and_then(of).unwrap_or(self.active)
    }

    /// Returns the table in force for a connection of another process: that of the address at which it came in, or else another that reads its
    /// state, because its address may have other layers now.
    pub(super) fn active_reading(&self, came_in_at: Option<&Address>, written: &State) -> u16 {
        let first = self.active_at(came_in_at);
        let reads =
            |table: &u16| self.live[usize::from(*table)].as_ref().is_some_and(|live| live.state.can_read(written).is_ok());
        let all = [first, self.active].into_iter().chain(self.own.iter().map(|(_, table)| *table));
        if self.own.is_empty() { first } else { all.into_iter().find(reads).unwrap_or(first) }
    }

    /// Forgets generations without connections here; the active one only when another takes its place.
    pub(super) fn drop_empty(&mut self, active_too: bool) {
        for (index, generation) in self.live.iter_mut().enumerate() {
            let is_active = index == usize::from(self.active) || self.own.iter().any(|(_, own)| usize::from(*own) == index);
            if (!is_active || active_too) && generation.as_ref().is_some_and(|generation| generation.table.live() == 0) {
                let generation = generation.take();
                // The service's `local` is user code too.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(generation)));
            }
        }
    }

    pub(super) fn visit_locals(&mut self, visit: &mut dyn FnMut(&mut Local)) {
        for generation in self.live.iter_mut().flatten() {
            visit(&mut *generation.local);
        }
    }
}
