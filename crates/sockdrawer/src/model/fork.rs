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
use crate::sys::{Errno, Unforked};
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
    table: Unforked<Mutex<Table>>,
    joint: Joint,
    life: Box<dyn Life>,
    parent: u32,
}

/// Places, in chunks that never move, for those that live: each is where a child counts among the shared numbers, too.
#[derive(Default)]
struct Table {
    /// The place of each process.
    places: HashMap<u32, usize>,
    chunks: Vec<Unforked<Chunk>>,
    free: Vec<Place>,
}

type Chunk = [Option<Child>; CHUNK];

/// Children for whom there is room in a page.
const CHUNK: usize = 32;

const _: () = assert!(size_of::<Chunk>() <= 4096);

/// One that nobody has.
struct Place {
    slot: usize,
    counters: Counters,
}

impl Table {
    fn at(&mut self, slot: usize) -> &mut Option<Child> {
        &mut self.chunks[slot / CHUNK][slot % CHUNK]
    }

    fn of(&mut self, pid: u32) -> Option<&mut Child> {
        let slot = *self.places.get(&pid)?;
        self.at(slot).as_mut()
    }

    fn alive(&self) -> impl Iterator<Item = (u32, &Child)> {
        self.places.iter().filter_map(|(pid, slot)| Some((*pid, self.chunks[slot / CHUNK][slot % CHUNK].as_ref()?)))
    }

    /// Not a part of what places a child: its chunk is on the stack for a moment, and a fork costs copies of what is on the stack.
    #[inline(never)]
    fn grow(&mut self, joint: &Joint) -> Result<(), Errno> {
        let first = self.chunks.len() * CHUNK;
        self.chunks.push(Unforked::new([const { None }; CHUNK])?);
        // As many as permits, which are at most as many as places among the shared numbers.
        let slots = (first..(first + CHUNK).min(MOST_CHILDREN)).rev();
        self.free.extend(slots.map(|slot| Place { slot, counters: joint.child(slot) }));
        joint.set_children((first + CHUNK).min(MOST_CHILDREN));
        Ok(())
    }
}

/// A connection's own process, as its parent sees it.
pub(crate) struct Child {
    pub(crate) id: ConnectionId,
    pub(crate) generation: Arc<Generation>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) since: Instant,
    /// What it counts itself.
    pub(crate) counters: Counters,
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
    pub(crate) fn new(life: impl Life + 'static, joint: Joint) -> Result<Arc<Children>, Errno> {
        let table = Unforked::new(Mutex::default())?;
        Ok(Arc::new(Children { table, joint, life: Box::new(life), parent: std::process::id() }))
    }

    /// Reads or changes one of those that live.
    pub(crate) fn with<T>(&self, pid: u32, visit: impl FnOnce(&Child) -> T) -> Option<T> {
        lock(&self.table).of(pid).map(|child| visit(child))
    }

    /// Counts the peers of those that live as the policy asks for, each once.
    pub(crate) fn take_census(&self, rules: &Rules) {
        for child in lock(&self.table).chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()).flatten() {
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
        lock(&self.table).alive().for_each(|(_, child)| child.counters.add_to(counts));
    }

    /// The processes of those that are meant.
    pub(crate) fn choose(&self, mut wanted: impl FnMut(u32, &Child) -> bool) -> Vec<u32> {
        lock(&self.table).alive().filter(|(pid, child)| wanted(*pid, child)).map(|(pid, _)| pid).collect()
    }

    /// Takes note of all children that have ended, so that none is a zombie for longer than a turn, and tells their processes.
    pub(crate) fn reap(&self, flow: &Flow, mut ended: impl FnMut(u32)) {
        while let Some((pid, ending)) = fork::ended_child() {
            let child = {
                let mut table = lock(&self.table);
                table.places.remove(&pid).and_then(|slot| Some((slot, table.at(slot).take()?)))
            };
            let Some((slot, child)) = child else { continue };
            let counters = self.bury(flow, child, ending);
            ended(pid);
            lock(&self.table).free.push(Place { slot, counters });
        }
    }

    /// A child goes on under another generation.
    pub(crate) fn moved(&self, pid: u32, to: &Arc<Generation>, flow: &Flow) {
        let before = {
            let mut table = lock(&self.table);
            let Some(child) = table.of(pid) else { return };
            to.live.fetch_add(1, Ordering::SeqCst);
            std::mem::replace(&mut child.generation, to.clone())
        };
        if before.leave() {
            flow.shared().tell(&Event::GenerationEnded(before.id));
        }
    }

    /// Returns what it counted with, cleared.
    fn bury(&self, flow: &Flow, child: Child, ending: Ending) -> Counters {
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
        child.counters
    }

    fn place(&self) -> Result<Place, Errno> {
        let mut table = lock(&self.table);
        if table.free.is_empty() {
            table.grow(&self.joint)?;
        }
        Ok(table.free.pop().expect("just grown"))
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
        let forked = self.place().and_then(|place| match fork::fork() {
            Ok(forked) => Ok((forked, place)),
            Err(errno) => {
                lock(&self.table).free.push(place);
                Err(errno)
            }
        });
        match forked {
            Ok((Forked::Child, Place { counters, .. })) => {
                self.life.live(Birth { parcel, id, generation, counters, parent: self.parent })
            }
            Ok((Forked::Parent(pid), Place { slot, counters })) => {
                let (peer, permit) = (parcel.remote, parcel.permit);
                let mut table = lock(&self.table);
                *table.at(slot) = Some(Child { id, generation, peer, since: Instant::now(), counters, permit });
                table.places.insert(pid, slot);
            }
            Err(errno) => {
                if generation.leave() {
                    flow.shared().tell(&Event::GenerationEnded(generation.id));
                }
                flow.place_later(parcel, errno);
            }
        }
    }
}
