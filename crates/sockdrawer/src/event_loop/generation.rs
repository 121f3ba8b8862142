//! Generations: one version of the service and of per-connection settings, and the connections made under it. A pool has one
//! switch; a loop looks at it once for each connection it accepts.

use crate::behaviour::{AnyService, Kind, Panicked, TableBox};
use crate::config::Settings;
use crate::ipc::shared_counters::SharedCounters;
use crate::net::Address;
use crate::protocol::State;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// Generations that may be live at once: a loop names its table of each by 16 bits, and some are on their way in or out.
pub(crate) const MAX_GENERATIONS: usize = 65_000;

/// Version of the service and of per-connection settings.
pub(crate) struct Generation {
    pub(crate) id: u32,
    pub(crate) settings: Settings,
    /// Connections under it, in all loops.
    pub(crate) live: AtomicUsize,
    /// Another one is in force.
    pub(crate) retired: AtomicBool,
    /// The end of the generation was told.
    told: AtomicBool,
    pub(crate) kind: Kind,
    /// Declared names and versions of the states of its connections, at all addresses.
    pub(crate) state: State,
    services: Services,
    capacity: usize,
    /// Tables made for each loop before the switch, so that no loop builds one while it accepts.
    prepared: Mutex<Vec<Option<Tables>>>,
}

/// Services that run the connections of a generation.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) service: Arc<dyn AnyService>,
    /// Addresses, as they were asked for, with layers of their own: the service behind those.
    pub(crate) own: Vec<(Address, Arc<dyn AnyService>)>,
}

/// The tables of a generation in one loop: of its service, and of the service behind the layers that addresses have for their own.
pub(crate) struct Tables {
    pub(crate) table: TableBox,
    pub(crate) own: Vec<(Address, TableBox)>,
}

impl Services {
    fn state(&self) -> State {
        self.own.iter().fold(self.service.state(), |state, (_, own)| state.or(own.state()))
    }

    fn tables(&self, capacity: usize) -> Result<Tables, Panicked> {
        let own = self.own.iter().map(|(address, service)| Ok((address.clone(), service.table(1)?)));
        Ok(Tables { table: self.service.table(capacity)?, own: own.collect::<Result<_, _>>()? })
    }
}

impl Generation {
    /// Builds all that can fail.
    pub(crate) fn prepare(
        id: u32,
        services: Services,
        settings: Settings,
        capacity: usize,
        loops: usize,
    ) -> Result<Arc<Generation>, Panicked> {
        let prepared = (0..loops).map(|_| services.tables(capacity).map(Some)).collect::<Result<_, _>>()?;
        let (live, retired, told) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let (kind, state, prepared) = (services.service.kind(), services.state(), Mutex::new(prepared));
        Ok(Arc::new(Generation { id, settings, live, retired, told, kind, state, services, capacity, prepared }))
    }

    /// Makes a copy for a child, which counts its connection by itself: in the original that connection is not counted.
    pub(crate) fn apart(&self) -> Arc<Generation> {
        let (live, retired, told) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let (services, settings, prepared) = (self.services.clone(), self.settings.clone(), Mutex::default());
        let (kind, state) = (self.kind, self.state.clone());
        Arc::new(Generation { id: self.id, settings, live, retired, told, kind, state, services, capacity: 1, prepared })
    }

    /// Returns true, once, where the generation is retired and its last connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.retired.load(Ordering::SeqCst) && self.live.load(Ordering::SeqCst) == 0 && !self.told.swap(true, Ordering::AcqRel)
    }

    /// Returns the service from which the generation was built.
    pub(crate) fn service(&self) -> &Arc<dyn AnyService> {
        &self.services.service
    }

    /// Counts the end of a connection of this generation. Returns true, once, when it was the last of a retired generation.
    pub(crate) fn leave(&self) -> bool {
        self.live.fetch_sub(1, Ordering::SeqCst);
        self.has_ended()
    }

    /// Returns true where connections of this generation are leased to blocking code as soon as they are open.
    pub(crate) fn gives_all_away(&self) -> bool {
        self.kind == Kind::Blocking
    }

    /// Returns the table prepared for this loop; a loop that came later or replaced another builds its own, and so does, for one
    /// connection, what is no loop.
    pub(crate) fn tables(&self, index: Option<usize>) -> Result<Tables, Panicked> {
        let Some(index) = index else { return self.services.tables(1) };
        let prepared = lock(&self.prepared).get_mut(index).and_then(Option::take);
        prepared.map_or_else(|| self.services.tables(self.capacity), Ok)
    }
}

/// Switch of a pool, which says what generation is in force. Its epoch is shared by the pool's processes.
pub(crate) struct Switch {
    shared_counters: SharedCounters,
    state: Mutex<InForce>,
}

struct InForce {
    current: Arc<Generation>,
    /// Generation that is in force as soon as the epoch is this number.
    prepared: Option<(u64, Arc<Generation>)>,
}

impl Switch {
    pub(crate) fn new(shared_counters: SharedCounters, generation: Arc<Generation>) -> Switch {
        Switch { shared_counters, state: Mutex::new(InForce { current: generation, prepared: None }) }
    }

    /// Puts `generation` in force: every accept from here on, in whatever loop, sees it.
    pub(crate) fn commit(&self, generation: Arc<Generation>) {
        self.prepare(Some(generation));
        self.shared_counters.epoch().fetch_add(1, Ordering::SeqCst);
        drop(self.current());
    }

    /// Prepares a generation: the next raise of the epoch puts it in force, in all processes at once. None forgets it.
    pub(crate) fn prepare(&self, generation: Option<Arc<Generation>>) {
        let next = self.epoch() + 1;
        let before = std::mem::replace(&mut lock(&self.state).prepared, generation.map(|generation| (next, generation)));
        drop(before);
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.shared_counters.epoch().load(Ordering::SeqCst)
    }

    pub(crate) fn current(&self) -> Arc<Generation> {
        let mut state = lock(&self.state);
        let epoch = self.epoch();
        let next = state.prepared.take_if(|(from, _)| *from <= epoch);
        let before = next.map(|(_, generation)| std::mem::replace(&mut state.current, generation));
        if let Some(before) = &before {
            before.retired.store(true, Ordering::SeqCst);
        }
        let current = state.current.clone();
        drop(state);
        // It may be the last of its service, which is the user's.
        drop(before);
        current
    }
}
