//! The generations that have connections in one event loop, and which of them is in force.

use super::generation::Generation;
use super::slot::Flags;
use crate::behaviour::{Table, TableBox};
use crate::config::Settings;
use crate::protocol::{Closing, Local, Receiving};
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
}

impl LiveGeneration {
    /// What a connection becomes whose unsent output passes the high-water mark.
    pub(super) fn full(&self) -> Flags {
        match self.receiving {
            Receiving::UntilFull => Flags::FULL.and(Flags::PAUSED),
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
    pub(super) fn switch_to(&mut self, epoch: u64, generation: Arc<Generation>, made: TableBox) {
        self.epoch = epoch;
        self.drop_empty(true);
        let TableBox { table, local, closing, receiving, .. } = made;
        let (id, high_water) = (generation.id, generation.settings.high_water);
        let generation = Some(LiveGeneration { generation, table, local, closing, receiving, id, high_water });
        let at = self.live.iter().position(Option::is_none).unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() - 1
        });
        self.live[at] = generation;
        self.active = u16::try_from(at).expect("fewer than 65,536 live generations");
    }

    /// Forgets generations without connections here; the active one only when another takes its place.
    pub(super) fn drop_empty(&mut self, active_too: bool) {
        let active = usize::from(self.active);
        for (index, generation) in self.live.iter_mut().enumerate() {
            if (index != active || active_too) && generation.as_ref().is_some_and(|generation| generation.table.live() == 0) {
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
