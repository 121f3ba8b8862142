//! The listeners of a helper, by the places of their numbers: sockets that replace others come in by the same listener, because two that
//! share numbers would wake each other's loops wrongly.

use crate::ipc::shared_counters::SharedCounters;
use crate::limit::limiter::Process;
use crate::listen::state::ListenerState;
use crate::net::Address;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

pub(super) struct ListenerStates {
    /// The process, as each listener's limiter is told.
    process: Process,
    known: HashMap<usize, Weak<ListenerState>>,
}

impl ListenerStates {
    pub(super) fn new(process: Process) -> ListenerStates {
        ListenerStates { process, known: HashMap::new() }
    }

    /// Returns the listener whose numbers are at `slot`. A slot is given to another address when the one before has no connection.
    pub(super) fn at(&mut self, slot: usize, address: &Address, shared_counters: &SharedCounters) -> Arc<ListenerState> {
        match self.known.get(&slot).and_then(Weak::upgrade) {
            Some(known) if known.address == *address => return known,
            Some(_) | None => {}
        }
        let state = ListenerState::new((address.clone(), None), shared_counters.listener(slot), None, Some(self.process.clone()));
        self.known.retain(|_, state| state.strong_count() > 0);
        self.known.insert(slot, Arc::downgrade(&state));
        state
    }
}
