//! The doors of a helper, by the places of their numbers: sockets that replace others come in by the same door, because two that
//! share numbers would wake each other's loops wrongly.

use crate::event_loop::door::Door;
use crate::event_loop::limiter::Process;
use crate::event_loop::shared_counters::SharedCounters;
use crate::net::Address;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

pub(super) struct Doors {
    /// As each door's limiter is told.
    process: Process,
    known: HashMap<usize, Weak<Door>>,
}

impl Doors {
    pub(super) fn new(process: Process) -> Doors {
        Doors { process, known: HashMap::new() }
    }

    /// The door whose numbers are at `slot`. A slot is given to another address when nobody is in by the one before.
    pub(super) fn at(&mut self, slot: usize, address: &Address, shared_counters: &SharedCounters) -> Arc<Door> {
        match self.known.get(&slot).and_then(Weak::upgrade) {
            Some(known) if known.address == *address => return known,
            Some(_) | None => {}
        }
        let door = Door::new(address.clone(), shared_counters.door(slot), None, Some(self.process.clone()));
        self.known.retain(|_, door| door.strong_count() > 0);
        self.known.insert(slot, Arc::downgrade(&door));
        door
    }
}
