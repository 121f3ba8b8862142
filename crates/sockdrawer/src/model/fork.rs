//! The model `fork`: a helper process without threads accepts, and forks a process of its own for each connection.

use super::programs::Programs;
use crate::behaviour::Kind;
use crate::event_loop::connections::entering;
use crate::event_loop::generation::Generation;
use crate::event_loop::incoming::Incoming;
use crate::event_loop::{EventLoop, Intake, Placement};
use crate::ipc::child_page::ChildPage;
use crate::ipc::shared_counters::{MAX_CHILDREN, SharedCounters};
use crate::limit::peer_counts::PeerCounts;
use crate::limit::policy::Policy;
use crate::listen::permit::Permit;
use crate::listen::socket::ListenSocket;
use crate::net::Address;
use crate::observe::{Counts, Event};
use crate::protocol::ConnectionId;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, lock};
use crate::sys::fork::{self, Ending, Forked};
use crate::sys::{Errno, Kernel, System, Unforked};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Children at once; more processes than this are no way to serve connections.
pub(crate) const MOST: usize = MAX_CHILDREN;

/// The loop, among those that count, under which ended children are counted.
const CHILDREN: usize = 1;

/// The children of a helper.
pub(crate) struct Children {
    table: Unforked<Mutex<ChildTable>>,
    shared_counters: SharedCounters,
    /// The descriptor by which a child maps its own page of the shared numbers.
    numbers: OwnedFd,
    main: Box<dyn ChildMain>,
    parent: u32,
}

/// Places, in chunks that never move, for those that live: each is where a child counts among the shared numbers, too.
struct ChildTable {
    /// The place of each process.
    slots: HashMap<u32, usize>,
    chunks: Vec<Unforked<Chunk>>,
    free: Vec<ChildSlot>,
    inherited: Inherited,
    /// Number of children that are other programs.
    programs: usize,
    /// Connections of these programs.
    connections: Programs,
}

/// Descriptors that a child finds open and is to have no part of: those of the helper itself, and connections of others. What a service has opened is
/// not among them.
#[derive(Default)]
struct Inherited {
    /// Descriptors of the helper, from its begin to its end.
    own: Vec<RawFd>,
    /// Listening sockets, as long as something accepts there.
    listeners: Vec<(Weak<ListenSocket>, RawFd)>,
    /// All descriptors when a child was made last, and the same as ranges.
    numbers: Vec<RawFd>,
    ranges: Vec<(u32, u32)>,
}

impl Inherited {
    /// Looks at all of it again. Memory that is in children, too, is written only when something is another.
    fn refresh(&mut self, others: impl Iterator<Item = RawFd> + Clone) -> &[(u32, u32)] {
        let open = |(socket, number): &(Weak<ListenSocket>, RawFd)| (socket.strong_count() > 0).then_some(*number);
        let all = self.own.iter().copied().chain(self.listeners.iter().filter_map(open)).chain(others);
        if !all.clone().eq(self.numbers.iter().copied()) {
            self.numbers = all.collect();
            self.ranges = ranges(&self.numbers);
        }
        &self.ranges
    }

    fn add_listener(&mut self, socket: &Arc<ListenSocket>) {
        self.listeners.retain(|(known, _)| known.strong_count() > 0);
        self.listeners.push((Arc::downgrade(socket), socket.fd().as_raw_fd()));
    }
}

/// Numbers without gaps between them go in one call.
fn ranges(numbers: &[RawFd]) -> Vec<(u32, u32)> {
    let mut sorted: Vec<u32> = numbers.iter().map(|number| number.cast_unsigned()).collect();
    sorted.sort_unstable();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if number <= *last + 1 => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

type Chunk = [Option<Child>; CHUNK];

/// Children for whom there is room in a page.
const CHUNK: usize = 25;

const _: () = assert!(size_of::<Chunk>() <= 4096);

/// A slot that no child has.
struct ChildSlot {
    slot: usize,
    page: ChildPage,
}

impl ChildTable {
    fn at(&mut self, slot: usize) -> &mut Option<Child> {
        &mut self.chunks[slot / CHUNK][slot % CHUNK]
    }

    fn of(&mut self, pid: u32) -> Option<&mut Child> {
        let slot = *self.slots.get(&pid)?;
        self.at(slot).as_mut()
    }

    fn alive(&self) -> impl Iterator<Item = (u32, &Child)> {
        self.slots.iter().filter_map(|(pid, slot)| Some((*pid, self.chunks[slot / CHUNK][slot % CHUNK].as_ref()?)))
    }

    /// Returns the descriptors that the next child is to close. A program closes all but its connection.
    fn inherited(&mut self, generation: &Generation, intake: &Intake<'_>) -> &[(u32, u32)] {
        if generation.kind == Kind::Program {
            return &[];
        }
        let chunks = if self.programs > 0 { &self.chunks[..] } else { &[] };
        let children = chunks.iter().flat_map(|chunk| chunk.iter()).flatten();
        let connections = children.filter_map(|child| child.connection.as_ref()).map(AsRawFd::as_raw_fd);
        self.inherited.refresh(intake.unplaced().chain(connections).chain(self.connections.lingering()))
    }

    /// Makes room for more children. Not a part of what places a child: its chunk is on the stack for a moment, and a fork costs copies of what is on
    /// the stack.
    #[inline(never)]
    fn grow(&mut self, shared_counters: &SharedCounters) -> Result<(), Errno> {
        let first = self.chunks.len() * CHUNK;
        self.chunks.push(Unforked::new([const { None }; CHUNK])?);
        // There are as many slots as permits, which are at most as many as places among the shared numbers.
        let slots = (first..(first + CHUNK).min(MAX_CHILDREN)).rev();
        self.free.extend(slots.map(|slot| ChildSlot { slot, page: shared_counters.child(slot) }));
        shared_counters.set_children((first + CHUNK).min(MAX_CHILDREN));
        Ok(())
    }
}

/// A connection's own process, as its parent sees it.
pub(crate) struct Child {
    pub(crate) id: ConnectionId,
    pub(crate) generation: Arc<Generation>,
    peer: Option<SocketAddr>,
    pub(crate) since: Instant,
    /// The page of what the child counts itself.
    page: ChildPage,
    permit: Permit,
    /// Another copy of the connection of a program: whatever the program leaves behind, the connection ends when it does.
    connection: Option<OwnedFd>,
    /// The reason for which the helper ended it.
    why: Option<KillReason>,
}

/// Reason why a helper ends a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// The child's time was over.
    Cut,
    /// The child was to be killed.
    Killed,
    /// The child's peer was gone.
    Gone,
}

impl Child {
    /// Returns the address at which it came in.
    pub(crate) fn listener(&self) -> Option<&Address> {
        self.permit.listener().map(|listener| &listener.address)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.generation.kind
    }

    /// Returns the peer's address, as the kernel or a layer says.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.page.peer().or(self.peer)
    }

    /// Returns what the child has counted.
    pub(crate) fn counts(&self) -> Counts {
        self.page.counts()
    }
}

/// The life of a child from its first moment to its end.
pub(crate) trait ChildMain: Send + Sync {
    fn run(&self, child: NewChild<'_>) -> !;
}

/// All that a new child has.
pub(crate) struct NewChild<'a> {
    pub(crate) incoming: Incoming,
    pub(crate) id: ConnectionId,
    pub(crate) generation: Arc<Generation>,
    pub(crate) slot: usize,
    pub(crate) numbers: BorrowedFd<'a>,
    pub(crate) parent: u32,
    /// Descriptors that are to be closed.
    pub(crate) inherited: &'a [(u32, u32)],
}

impl Children {
    /// Makes the children of a helper. `own` are descriptors that the helper has until its end.
    pub(crate) fn new(
        main: impl ChildMain + 'static,
        shared_counters: SharedCounters,
        numbers: OwnedFd,
        mut own: Vec<RawFd>,
    ) -> Result<Arc<Children>, Errno> {
        own.push(numbers.as_raw_fd());
        let connections = Programs::new()?;
        own.push(connections.watched().as_raw_fd());
        let inherited = Inherited { own, ..Inherited::default() };
        let (slots, chunks, free) = Default::default();
        let table = Unforked::new(Mutex::new(ChildTable { slots, chunks, free, inherited, programs: 0, connections }))?;
        Ok(Arc::new(Children { table, shared_counters, numbers, main: Box::new(main), parent: std::process::id() }))
    }

    /// Keeps these descriptors from children, too: the helper has them until its end.
    pub(crate) fn keep_from_children(&self, descriptors: impl IntoIterator<Item = RawFd>) {
        lock(&self.table).inherited.own.extend(descriptors);
    }

    /// Adds a socket at which the helper accepts.
    pub(crate) fn add_listener(&self, socket: &Arc<ListenSocket>) {
        lock(&self.table).inherited.add_listener(socket);
    }

    /// Watches the connections of programs in this event loop, by the bit of this number.
    pub(crate) fn notice(&self, event_loop: &EventLoop, number: u32) -> Result<(), Errno> {
        event_loop.notice(number, lock(&self.table).connections.watched())
    }

    /// Returns the processes of programs whose peers are gone, each once.
    pub(crate) fn gone(&self) -> Vec<u32> {
        let mut table = lock(&self.table);
        let ChildTable { chunks, connections, slots, .. } = &mut *table;
        let gone = connections.look(|slot| {
            let child = chunks.get(slot / CHUNK)?[slot % CHUNK].as_ref()?;
            child.connection.as_ref().map(AsFd::as_fd)
        });
        slots.iter().filter(|(_, slot)| gone.contains(slot)).map(|(pid, _)| *pid).collect()
    }

    /// Returns the time when the next connection of a program that has ended is closed.
    pub(crate) fn due(&self) -> Option<Instant> {
        lock(&self.table).connections.due()
    }

    /// Closes connections of programs that have ended, whose time is over.
    pub(crate) fn close_lingering(&self) {
        lock(&self.table).connections.close(Instant::now());
    }

    /// Reads or changes one of those that live.
    pub(crate) fn with<T>(&self, pid: u32, visit: impl FnOnce(&Child) -> T) -> Option<T> {
        lock(&self.table).of(pid).map(|child| visit(child))
    }

    /// Counts the peers of those that live as the policy asks for, each once.
    pub(crate) fn count_peers(&self, policy: &Policy) {
        for child in lock(&self.table).chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()).flatten() {
            let counted =
                |peer_counts: &Arc<PeerCounts>| child.permit.peer_count().is_some_and(|peer_count| peer_count.is_of(peer_counts));
            if policy.peer_counts.as_ref().is_some_and(counted) {
                continue;
            }
            let entered =
                policy.peer_counts.as_ref().zip(child.peer).map(|(peer_counts, peer)| peer_counts.enter(peer.ip(), usize::MAX));
            child.permit.count_by(entered.and_then(Result::ok).map(|(peer_count, _)| peer_count));
        }
    }

    /// Adds what living children have counted.
    pub(crate) fn add_to(&self, counts: &mut Counts) {
        lock(&self.table).alive().for_each(|(_, child)| *counts += child.counts());
    }

    /// Returns the processes of the children that are wanted.
    pub(crate) fn choose(&self, mut wanted: impl FnMut(u32, &Child) -> bool) -> Vec<u32> {
        lock(&self.table).alive().filter(|(pid, child)| wanted(*pid, child)).map(|(pid, _)| pid).collect()
    }

    /// Asks a child to end by then.
    pub(crate) fn ask_to_end(&self, pid: u32, until: Instant, at_once: bool) {
        fork::ask_to_end(pid, until, at_once);
    }

    /// Cuts a child's connection from now on. Returns whether it is cut: it has not ended in order. The child is still to be killed.
    pub(crate) fn cut(&self, pid: u32) -> bool {
        self.with(pid, |child| child.connection.is_some() || child.page.cut()).unwrap_or(false)
    }

    /// Ends a child; its peer sees a reset, unless the connection has just ended in order.
    pub(crate) fn kill(&self, pid: u32, why: KillReason) {
        let is_program = lock(&self.table).of(pid).map(|child| {
            child.why.get_or_insert(why);
            child.connection.is_some()
        });
        match is_program {
            Some(true) => self.signal_program(pid, fork::SIGKILL, why),
            Some(false) => _ = fork::signal(pid, fork::SIGKILL),
            None => {}
        }
    }

    /// Sends a signal to a program and all that it has started.
    pub(crate) fn signal_program(&self, pid: u32, signal: i32, why: KillReason) {
        if let Some(child) = lock(&self.table).of(pid) {
            child.why.get_or_insert(why);
            fork::signal_group(pid, signal);
        }
    }

    /// Programs die with the helper, as all children do; with this what they have started does, too.
    pub(crate) fn kill_programs(&self) {
        let programs = self.choose(|_, child| child.connection.is_some());
        programs.into_iter().for_each(|pid| fork::signal_group(pid, fork::SIGKILL));
    }

    /// Takes note of all children that have ended, so that none is a zombie for longer than a turn; tells their processes, and of each
    /// whether its connection was cut off.
    pub(crate) fn reap(&self, event_loop: &EventLoop, mut ended: impl FnMut(u32, bool)) {
        while let Some(pid) = fork::ended_child(None) {
            if !self.reap_one(pid, event_loop, &mut ended) {
                // A process that the service has started is the service's to wait for. Those behind it are looked for one by one.
                for pid in self.choose(|pid, _| fork::ended_child(Some(pid)).is_some()) {
                    self.reap_one(pid, event_loop, &mut ended);
                }
                return;
            }
        }
    }

    /// Reaps a child. Returns false if it is none of these.
    fn reap_one(&self, pid: u32, event_loop: &EventLoop, ended: &mut impl FnMut(u32, bool)) -> bool {
        let Some(is_program) = self.with(pid, |child| child.connection.is_some()) else { return false };
        if is_program {
            // While it is a zombie, the number of its group is its own.
            fork::signal_group(pid, fork::SIGKILL);
        }
        let Some(ending) = fork::reap(pid) else { return false };
        let child = {
            let mut table = lock(&self.table);
            table.programs -= usize::from(is_program);
            table.slots.remove(&pid).and_then(|slot| Some((slot, table.at(slot).take()?)))
        };
        let Some((slot, child)) = child else { return false };
        let (page, cut) = self.reaped(event_loop, child, ending);
        ended(pid, cut);
        lock(&self.table).free.push(ChildSlot { slot, page });
        true
    }

    /// Returns what it counted with, cleared, and whether its connection was cut off.
    fn reaped(&self, event_loop: &EventLoop, child: Child, ending: Ending) -> (ChildPage, bool) {
        let shared = event_loop.shared();
        let mut counts = child.counts();
        // A child that was killed had no time to count its end.
        counts.closed = 1;
        let by_signal = matches!(ending, Ending::Signalled(_));
        // A program that exits when it is sent SIGTERM has ended in order; of one that dies by itself, the kernel sends all that it has written.
        let asked = matches!(child.why, Some(KillReason::Cut | KillReason::Killed));
        let cut = if child.connection.is_some() { by_signal && asked } else { !child.page.has_ended_in_order() };
        match child.why.filter(|_| by_signal && cut) {
            Some(KillReason::Killed) => {
                counts.killed = 1;
                shared.tell(&Event::ConnectionKilled { id: child.id, peer: child.peer() });
            }
            Some(KillReason::Cut) => counts.cut = 1,
            Some(KillReason::Gone) | None => {}
        }
        if let Some(event) = child.page.told(child.id, child.peer()) {
            shared.tell(&event);
        }
        // In this order: what is read meanwhile, or counted for this process when it is killed between, has no connection twice.
        child.page.clear();
        shared.shared_counters.counters(0, CHILDREN).add_all(&counts);
        if let Ending::Signalled(signal) = ending
            && child.why.is_none()
        {
            let number = usize::try_from(signal).unwrap_or_default();
            if number < crate::ipc::shared_counters::MAX_SIGNALS {
                shared.shared_counters.signalled(number).fetch_add(1, Ordering::Relaxed);
            }
            shared.tell(&Event::ChildKilled { id: child.id, peer: child.peer(), signal });
        }
        if child.generation.leave() {
            shared.tell(&Event::GenerationEnded(child.generation.id));
        }
        let Child { connection, generation, permit, page, .. } = child;
        if let Some(connection) = connection {
            let connections = &mut lock(&self.table).connections;
            connections.unwatch(connection.as_fd());
            if cut {
                // The reset fails only where the connection is gone already.
                let _ = Kernel.reset(connection.as_fd());
            } else {
                connections.linger(connection, permit, generation.settings.linger);
            }
        }
        (page, cut)
    }

    fn free_slot(&self) -> Result<ChildSlot, Errno> {
        let mut table = lock(&self.table);
        if table.free.is_empty() {
            table.grow(&self.shared_counters)?;
        }
        Ok(table.free.pop().expect("just grown"))
    }
}

impl Placement for Children {
    fn place(&self, intake: &mut Intake<'_>, incoming: Incoming) {
        let (generation, id) = match entering::join(&mut intake.connections.streams) {
            Ok(joined) => joined,
            Err(panicked) => {
                intake.connections.streams.io.counters.panics().add(1);
                intake.connections.streams.io.counters.closed().add(1);
                return intake.connections.streams.io.shared.tell(&Event::ServicePanicked { message: panicked.0 });
            }
        };
        let child_slot = match self.free_slot() {
            Ok(child_slot) => child_slot,
            Err(errno) => return self.not_placed(intake, incoming, &generation, errno),
        };
        child_slot.page.open();
        let mut table = lock(&self.table);
        let inherited = table.inherited(&generation, intake);
        match fork::fork() {
            // The child has nothing of what is locked, and never returns from here.
            Ok(Forked::Child) => {
                let numbers = self.numbers.as_fd();
                self.main.run(NewChild {
                    incoming,
                    id,
                    generation,
                    slot: child_slot.slot,
                    numbers,
                    parent: self.parent,
                    inherited,
                })
            }
            Ok(Forked::Parent(pid)) => {
                let (Incoming { socket, remote: peer, permit, .. }, ChildSlot { slot, page }) = (incoming, child_slot);
                let connection = (generation.kind == Kind::Program).then_some(socket);
                if let Some(connection) = &connection {
                    fork::lead_group(pid);
                    // However this process dies, the program dies with it, and the peer does not take that for an orderly end. It fails
                    // where the connection is gone already.
                    let _ = Kernel.reset_on_close(connection.as_fd());
                    table.programs += 1;
                    table.connections.watch(slot, connection.as_fd());
                }
                let child = Child { id, generation, peer, since: Instant::now(), page, permit, connection, why: None };
                *table.at(slot) = Some(child);
                table.slots.insert(pid, slot);
            }
            Err(errno) => {
                child_slot.page.clear();
                table.free.push(child_slot);
                drop(table);
                self.not_placed(intake, incoming, &generation, errno);
            }
        }
    }
}

impl Children {
    fn not_placed(&self, intake: &mut Intake<'_>, incoming: Incoming, generation: &Generation, errno: Errno) {
        if generation.leave() {
            intake.connections.streams.io.shared.tell(&Event::GenerationEnded(generation.id));
        }
        intake.place_later(incoming, errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_closed_in_as_few_calls_as_there_are_gaps() {
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[7, 5, 6, 3, 9]), [(3, 3), (5, 7), (9, 9)]);
    }

    #[test]
    fn a_listener_that_is_gone_is_no_childs_to_close() {
        let mut inherited = Inherited { own: vec![4], ..Inherited::default() };
        let socket = std::fs::File::open("/dev/null").expect("/dev/null");
        let number = socket.as_raw_fd();
        let socket = ListenSocket::new(Arc::new(socket.into()), false);
        inherited.add_listener(&socket);
        assert_eq!(inherited.refresh([].into_iter()), ranges(&[4, number]));
        drop(socket);
        assert_eq!(inherited.refresh([].into_iter()), [(4, 4)]);
    }
}
