//! The generations that have connections in one event loop, and which of them is in force.

use super::generation::{Generation, Tables};
use super::slot::Flags;
use crate::behaviour::{Table, TableBox};
use crate::config::Settings;
use crate::net::Address;
use crate::protocol::{Closing, Local, Receiving, State};
use std::sync::Arc;

/// A generation in this loop.
pub(super) struct LiveGeneration {
    pub(super) generation: Arc<Generation>,
    pub(super) table: Box<dyn Table>,
    pub(super) local: Box<Local>,
    pub(super) closing: Closing,
    receiving: Receiving,
    /// Of the generation, which other loops write to for each connection.
    pub(super) id: u32,
    pub(super) high_water: usize,
    /// What the states are called.
    pub(super) state: State,
    pub(super) learns_peer_address: bool,
    /// Bytes of input that a connection may leave untaken: the setting, or a record of its layers if that is longer.
    pub(super) max_partial: usize,
}

impl LiveGeneration {
    /// Returns whether it is still to be learned who the peer of this state's connection is.
    pub(super) fn awaits_peer(&mut self, state: u32) -> bool {
        self.learns_peer_address && self.table.awaits_peer(state)
    }

    /// What a connection becomes whose unsent output passes the high-water mark.
    pub(super) fn full(&self) -> Flags {
        match self.receiving {
            Receiving::UntilFull => Flags::FULL.union(Flags::BACKED_UP),
            Receiving::Always => Flags::FULL,
        }
    }
}

/// The generations of one event loop.
#[derive(Default)]
pub(super) struct Generations {
    live: Vec<Option<LiveGeneration>>,
    /// The generation in force, and the switch's epoch at which it was.
    pub(super) active: u16,
    /// Addresses with layers of their own, with the table of those in the generation in force.
    pub(super) own: Vec<(Address, u16)>,
    pub(super) epoch: u64,
}

impl Generations {
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
    pub(super) fn switch_to(&mut self, epoch: u64, generation: &Arc<Generation>, made: Tables) {
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

    /// The table in force for connections that came in at an address that has layers of its own, or has none.
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
