//! The doors of a helper, by the places of their numbers: sockets that replace others come in by the same door, because two that
//! share numbers would wake each other's loops wrongly.

use crate::flow::door::Door;
use crate::flow::gate::Process;
use crate::flow::joint::Joint;
use crate::net::Address;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

pub(super) struct Doors {
    /// As each door's gate is told.
    process: Process,
    known: HashMap<usize, Weak<Door>>,
}

impl Doors {
    pub(super) fn new(process: Process) -> Doors {
        Doors { process, known: HashMap::new() }
    }

    /// The door whose numbers are at `slot`. A slot is given to another address when nobody is in by the one before.
    pub(super) fn at(&mut self, slot: usize, address: &Address, joint: &Joint) -> Arc<Door> {
        match self.known.get(&slot).and_then(Weak::upgrade) {
            Some(known) if known.address == *address => return known,
            // A loop may still look after it: it would take what is given at the other.
            Some(before) => before.end(),
            None => {}
        }
        let door = Door::new(address.clone(), joint.door(slot), None, Some(self.process.clone()));
        self.known.retain(|_, door| door.strong_count() > 0);
        self.known.insert(slot, Arc::downgrade(&door));
        door
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::gate::Waiter;
    use crate::flow::inbox::Inbox;
    use crate::sync::atomic::Ordering::SeqCst;
    use crate::sys::{Kernel, System};

    #[test]
    fn a_door_whose_numbers_another_has_takes_nothing_from_it() {
        let (joint, _file) = Joint::create().expect("memory to share");
        let bell = Arc::new(Kernel.event().expect("an event"));
        let mut doors = Doors::new(Process { index: Some(0), most: 10, bell, system: Arc::new(Kernel) });
        let address = |port: u16| Address::Tcp(([127, 0, 0, 1], port).into());
        let old = doors.at(0, &address(1), &joint);
        assert!(Arc::ptr_eq(&old, &doors.at(0, &address(1), &joint)), "the same address keeps its door");
        assert!(!old.is_over());
        joint.door(0).limit().store(1, SeqCst);
        let new = doors.at(0, &address(2), &joint);
        assert!(old.is_over() && !new.is_over());
        let waiter = Waiter::new(Inbox::new(Arc::new(Kernel), 16).expect("an inbox"));
        let place = new.gate.take().expect("free");
        new.gate.wait(&waiter);
        drop(place);
        assert!(waiter.claim_of(&new.gate).is_some());
    }
}
