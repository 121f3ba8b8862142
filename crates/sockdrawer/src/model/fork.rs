//! The model `fork`: a helper process without threads accepts, and forks a process of its own for each connection.

use crate::flow::acceptor::Parcel;
use crate::flow::census::Census;
use crate::flow::gate::Permit;
use crate::flow::generation::Generation;
use crate::flow::joint::{Joint, MOST_CHILDREN};
use crate::flow::rules::Rules;
use crate::flow::{Flow, Placement};
use crate::net::Address;
use crate::observe::counters::Counters;
use crate::observe::{Counts, Event};
use crate::protocol::ConnectionId;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, lock};
use crate::sys::fork::{self, Ending, Forked};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Children at once; more processes than this are no way to serve connections.
pub(crate) const MOST: usize = MOST_CHILDREN;

/// The loop, among those that count, under which ended children are counted.
const CHILDREN: usize = 1;

/// The children of a helper.
pub(crate) struct Children {
    table: Mutex<Table>,
    joint: Arc<Joint>,
    life: Box<dyn Life>,
}

#[derive(Default)]
struct Table {
    alive: HashMap<u32, Child>,
    free: Vec<usize>,
    used: usize,
}

/// A connection's own process, as its parent sees it.
pub(crate) struct Child {
    pub(crate) id: ConnectionId,
    pub(crate) generation: Arc<Generation>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) since: Instant,
    /// What it counts itself.
    pub(crate) counters: Counters,
    slot: usize,
    permit: Permit,
}

impl Child {
    /// Where it came in.
    pub(crate) fn listener(&self) -> Option<&Address> {
        self.permit.door().map(|door| &door.address)
    }
}

/// What a child does from its birth to its end.
pub(crate) trait Life: Send + Sync {
    fn live(&self, birth: Birth) -> !;
}

/// All that a new child has.
pub(crate) struct Birth {
    pub(crate) parcel: Parcel,
    pub(crate) id: ConnectionId,
    pub(crate) generation: Arc<Generation>,
    pub(crate) counters: Counters,
    pub(crate) parent: u32,
}

impl Children {
    pub(crate) fn new(life: impl Life + 'static, joint: Arc<Joint>) -> Arc<Children> {
        Arc::new(Children { table: Mutex::default(), joint, life: Box::new(life) })
    }

    /// Reads or changes one of those that live.
    pub(crate) fn with<T>(&self, pid: u32, visit: impl FnOnce(&Child) -> T) -> Option<T> {
        lock(&self.table).alive.get(&pid).map(visit)
    }

    /// Counts the peers of those that live as the policy asks for, each once.
    pub(crate) fn take_census(&self, rules: &Rules) {
        for child in lock(&self.table).alive.values_mut() {
            let counted = |census: &Arc<Census>| child.permit.ticket().is_some_and(|ticket| ticket.is_of(census));
            if rules.census.as_ref().is_some_and(counted) {
                continue;
            }
            let entered = rules.census.as_ref().zip(child.peer).map(|(census, peer)| census.enter(peer.ip(), usize::MAX));
            child.permit.count_by(entered.and_then(Result::ok).map(|(ticket, _)| ticket));
        }
    }

    /// What those that live have counted.
    pub(crate) fn add_to(&self, counts: &mut Counts) {
        lock(&self.table).alive.values().for_each(|child| child.counters.add_to(counts));
    }

    /// The processes of those that are meant.
    pub(crate) fn choose(&self, mut wanted: impl FnMut(u32, &Child) -> bool) -> Vec<u32> {
        lock(&self.table).alive.iter().filter(|(pid, child)| wanted(**pid, child)).map(|(pid, _)| *pid).collect()
    }

    /// Takes note of all children that have ended, so that none is a zombie for longer than a turn. Returns their processes.
    pub(crate) fn reap(&self, flow: &Flow) -> Vec<u32> {
        let mut ended = Vec::new();
        while let Some((pid, ending)) = fork::ended_child() {
            let Some(child) = lock(&self.table).alive.remove(&pid) else { continue };
            self.bury(flow, &child, ending);
            ended.push(pid);
            lock(&self.table).free.push(child.slot);
        }
        ended
    }

    /// A child goes on under another generation.
    pub(crate) fn moved(&self, pid: u32, to: &Arc<Generation>, flow: &Flow) {
        let before = {
            let mut table = lock(&self.table);
            let Some(child) = table.alive.get_mut(&pid) else { return };
            to.live.fetch_add(1, Ordering::SeqCst);
            std::mem::replace(&mut child.generation, to.clone())
        };
        if before.leave() {
            flow.shared().tell(&Event::GenerationEnded(before.id));
        }
    }

    fn bury(&self, flow: &Flow, child: &Child, ending: Ending) {
        let shared = flow.shared();
        let mut counts = Counts::default();
        child.counters.add_to(&mut counts);
        // One that was killed had no time to count its end.
        counts.closed = counts.closed.max(1);
        shared.joint.counters(0, CHILDREN).add_all(&counts);
        child.counters.clear();
        if let Ending::Signalled(signal) = ending {
            let number = usize::try_from(signal).unwrap_or_default();
            if number < crate::flow::joint::MOST_SIGNALS {
                shared.joint.signalled(number).fetch_add(1, Ordering::Relaxed);
            }
            shared.tell(&Event::ChildKilled { id: child.id, signal });
        }
        if child.generation.leave() {
            shared.tell(&Event::GenerationEnded(child.generation.id));
        }
    }

    fn slot(&self) -> usize {
        let mut table = lock(&self.table);
        table.free.pop().unwrap_or_else(|| {
            table.used += 1;
            self.joint.set_children(table.used);
            // As many as permits, which are at most as many as slots.
            table.used - 1
        })
    }
}

impl Placement for Children {
    fn place(&self, flow: &mut Flow, parcel: Parcel) {
        let (generation, id) = match flow.join() {
            Ok(joined) => joined,
            Err(panicked) => {
                flow.counters.panics().add(1);
                flow.counters.closed().add(1);
                return flow.shared().tell(&Event::ServicePanicked { message: panicked.0 });
            }
        };
        let slot = self.slot();
        let counters = self.joint.child(slot);
        let parent = std::process::id();
        match fork::fork() {
            Ok(Forked::Child) => self.life.live(Birth { parcel, id, generation, counters, parent }),
            Ok(Forked::Parent(pid)) => {
                let child =
                    Child { id, generation, peer: parcel.remote, since: Instant::now(), counters, slot, permit: parcel.permit };
                lock(&self.table).alive.insert(pid, child);
            }
            Err(errno) => {
                lock(&self.table).free.push(slot);
                if generation.leave() {
                    flow.shared().tell(&Event::GenerationEnded(generation.id));
                }
                flow.place_later(parcel, errno);
            }
        }
    }
}
