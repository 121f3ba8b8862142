//! A pool whose listeners and connections move from one process to another: what the two ends of an upgrade ask of it, whatever its members
//! are.

use super::behind::Behind;
use super::control::{Control, Core, is_running};
use super::listeners::{Inherited, ListenerEntry, ListeningSockets};
use super::manager::{HANDED_OVER, Manager, PASSES_WITHIN};
use super::members::Members;
use super::request::{Reply, Request};
use crate::admission::AcceptState;
use crate::clock::deadline;
use crate::config::Config;
use crate::error::Error;
use crate::event_loop::connections::moving::{KnownListener, ListenerStates, Offered, Reading, SendOffer};
use crate::gather::{self, Answers, ReplyTo, gather};
use crate::ipc::messages::{Held, Occupied, OfPeer};
use crate::ipc::record::{Record, Restored};
use crate::ipc::shared_counters::SharedCounters;
use crate::ipc::yours::Yours;
use crate::limit::peer_counts::PeerCounts;
use crate::listen::socket::ListenSocket;
use crate::listen::state::ListenerState;
use crate::net::Address;
use crate::observe::{Counts, Event};
use crate::operation::{Drain, Op, Selector};
use crate::protocol::State;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::lock;
use crate::sys::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time between two looks whether connections are left.
const LOOK: Duration = Duration::from_secs(1);
/// Distance between the numbers of a process and of the next: loops take 64 numbers at once, also for connections that were on their way when the
/// next one began.
const IDS_APART: u64 = 1 << 24;
/// Maximum time that a loop, or the thread of a connection, is waited for that begins nothing new: what it does may take any time.
pub(super) const BEGINS_WITHIN: Duration = Duration::from_millis(100);

/// Connections stay for this reason whose loop, thread or helper process does not answer.
pub(crate) const BUSY: &str = "busy";
/// The reason why connections stay that an earlier upgrade left behind: a process before this one has them.
pub(crate) const EARLIER: &str = "in an earlier process";

/// A holder of connections that move: a loop of this process, or a helper with loops of its own.
pub(crate) trait Holder: Send + Sync {
    /// Has a request answered; sockets come along with [`Request::Restore`].
    fn ask(&self, request: Request, sockets: Vec<OwnedFd>, reply: ReplyTo<Reply>);
    /// Offers the next connections to a successor, from this place on. Their sockets are lent to `send`, and not passed on.
    ///
    /// # Errors
    /// That of `send`; `EBUSY` where it does something else for long. The connections go on here.
    fn offer(&self, reads: &Reading, from: u64, send: SendOffer) -> Result<Offered, Errno>;
}

/// A holder that was asked to freeze connections.
pub(crate) struct FrozenBy {
    holder: Arc<dyn Holder>,
    /// It did not answer in time, and has not since.
    is_late: bool,
}

/// Answers are waited for, however long they take: what moves must be known for sure.
impl dyn Holder {
    fn surely(&self, request: Request, sockets: Vec<OwnedFd>) -> Option<Reply> {
        gather::ask(None, |reply| self.ask(request, sockets, reply))
    }

    /// Lets go of those of its frozen connections that were restored elsewhere; the others go on.
    pub(crate) fn let_go(&self, restored: Vec<u64>) -> Yours {
        if let Some(Reply::LetGo(yours)) = self.surely(Request::LetGo(restored), Vec::new()) { yours } else { Yours::default() }
    }

    /// Restores connections of another process. None: it is gone.
    pub(crate) fn restore(&self, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Option<Restored> {
        if let Some(Reply::Restored(restored)) = self.surely(Request::Restore(records), sockets) { Some(restored) } else { None }
    }

    /// Has connections that it restored go on. Returns at which address each came in. None: it died.
    pub(crate) fn seat(&self, yours: Yours, listeners: &ListenerStates, together: bool) -> Option<Vec<Option<String>>> {
        let seat = Request::Seat { yours, listeners: listeners.clone(), together };
        if let Some(Reply::Seated(addresses)) = self.surely(seat, Vec::new()) { Some(addresses) } else { None }
    }

    /// Has connections go on that wait for others. This is not waited for, because one of several holders may be busy for any time; what it is asked
    /// afterwards it does afterwards.
    pub(crate) fn release(&self) {
        drop(gather([()], None, |(), reply| self.ask(Request::Release, Vec::new(), reply)));
    }
}

/// The part of moving that each kind of members does in its own way.
pub(crate) trait Moving: Members {
    /// A member that does not answer within this time hangs: its connections would not move.
    const ANSWERS_WITHIN: Duration;
    /// A plan leaves a member out that does not answer within this time.
    const PLANS_WITHIN: Duration;

    fn shared_counters(&self) -> &SharedCounters;
    /// Returns the connections of each peer, where a policy counts them.
    fn peer_counts(&self) -> Option<Arc<PeerCounts>> {
        None
    }
    /// Returns all that was counted.
    fn counts(core: &Core<Self>, control: &Control<Self>) -> Counts;
    /// Returns the states that the service in force reads and writes.
    fn state(core: &Core<Self>) -> State;
    /// Returns the reason why no connection of this pool moves, whatever its state.
    fn why_all_stay(_core: &Core<Self>) -> Option<&'static str> {
        None
    }
    fn holder(member: &Self::Running) -> Arc<dyn Holder>;
    /// Returns what a request concerns: members, those included that take no new connections, and where else connections are.
    fn concerned(core: &Core<Self>, request: &Request) -> Vec<Arc<dyn Holder>>;
    /// Returns the number of connects that have begun, of a pool that connects.
    fn begun(_own: &Self::State) -> u64 {
        0
    }
    /// Counts connects that have begun in another process.
    fn begin_behind(_own: &Self::State, _begun: u64) {}
    /// Gives members what was carried from another process since they began.
    fn build_anew(_core: &Core<Self>, _control: &mut Control<Self>) {}
}

/// A pool that can be handed over and taken over.
pub(crate) trait Movable: Manager {
    fn tell_event(&self, event: &Event);

    // Requests of both ends.

    /// Returns the listening sockets, in the order of their places.
    fn listening_sockets(&self) -> Vec<ListeningSockets<Arc<ListenSocket>>>;
    /// Returns true where all of them listen, and have their paths.
    fn listens(&self) -> bool;
    /// Returns the addresses at which connections come in, with what is counted there.
    fn listener_states(&self) -> ListenerStates;
    /// Returns the states that the service in force reads and writes.
    fn state(&self) -> State;
    fn limit(&self) -> u64;
    /// Returns all that may have connections, those included that take no new ones.
    fn holders(&self) -> Vec<Arc<dyn Holder>>;

    // Requests of the predecessor's end.

    /// Returns the number of changes of the configuration.
    fn revision(&self) -> u64;
    /// Returns the number of connections that count for the limit, those of a process before this one included.
    fn held(&self) -> u64;
    /// Returns what a successor has to know of this pool; with the connections of each peer, which may be many, where they are counted.
    fn what_is_held(&self, name: &str, with_peers: bool) -> Held;
    /// Returns true where every member answers within this time.
    fn turns(&self, within: Duration) -> bool;
    /// Returns true where the pool neither ends nor has ended.
    fn is_running(&self) -> bool;
    /// Waits until no listening socket is on its way out, at most this long. Returns whether that came.
    fn wait_for_retired(&self, within: Duration) -> bool;
    /// Returns how many connections can move to a build that reads these states, and why how many others cannot now. Connections of a member that
    /// does not answer `within` this time, or within that of a plan, are in neither: [`BUSY`] stands among the reasons then, with 0.
    fn plan_to_move(&self, reads: &State, within: Option<Duration>) -> (u64, BTreeMap<String, u64>);
    /// Forbids changes from here on; the pool's end leaves the listeners alone. Returns false where it was changed, or ended, since it was at this
    /// revision.
    fn stay_as_it_is(&self, revision: u64) -> bool;
    /// Stops to accept: another process has the listeners, and this one touches them no more. False where a loop may still accept, because it
    /// did not turn within this time.
    fn hand_over(&self, within: Duration) -> bool;
    /// Stops to accept at these addresses: the other process has them, where this pool is none. From here on it is not changed. False where it was,
    /// or has ended, since it was at this revision, or where a loop did not turn within this time.
    fn hand_over_at(&self, addresses: &[String], revision: u64, within: Duration) -> bool;
    /// Takes the listeners back: the other process is dead, or did not begin. The pool may be changed, and what it listened at is its own again.
    fn take_back(&self);
    /// Freezes connections that can move to a build that reads these states, as far as holders answer until then: all of a pool whose connections move
    /// together, which hear notes until the last look, else those whose peers' addresses are still to be learned. Returns what has connections that
    /// move together.
    fn freeze(&self, reads: &State, until: Instant) -> Vec<FrozenBy>;
    /// Returns true where connections move together and share what this process has: those of helper processes do not.
    fn gathers(&self) -> bool;
    /// Has all frozen connections go on here: for good where this process `stays`, else until the next offer.
    fn thaw(&self, stays: bool);
    /// Closes the copies of the listening sockets: the other process stands. The connections that came in there are counted still.
    fn forget_handed_over(&self);
    /// Waits until no connection is left, or until then. Returns whether none is.
    fn wait_for_none(&self, until: Option<Instant>) -> bool;
    /// Ends this pool: the pool that took over is shut down.
    fn end_with_successor(&self, how: Drain);
    /// Ends the pool: no connection is left.
    fn end_handed_over(&self);

    // Requests of the successor's end.

    /// Listens with these sockets of the predecessor, too; it takes no connections yet.
    ///
    /// # Errors
    /// As those of a change.
    fn listen_too(&self, inherited: Inherited) -> Result<(), Error>;
    /// Goes on where a predecessor stopped: with its numbers, and with permits for the connections that it has.
    fn go_on(&self, held: &Held);
    /// Takes connections from now on, or does with them what the predecessor did.
    fn open(&self);
    /// Makes the takeover final: the predecessor takes nothing back any more. What it had is given what the configuration says, and addresses that
    /// were removed meanwhile go.
    fn take_for_good(&self);
    /// Returns what takes connections.
    fn takers(&self) -> Vec<Arc<dyn Holder>>;
    /// Returns the addresses of this pool at which connections of the predecessor came in.
    fn occupied(&self, held: &Held) -> Vec<(Arc<ListenerState>, u64)>;
    /// Stores what the predecessor has counted by now, and the connections that each peer has there.
    fn count_predecessor(&self, held: &Held);
    /// Forgets the peers' connections in the predecessor: there are none any more.
    fn count_no_more_elsewhere(&self);
    /// Returns the permits held for connections of the predecessor that no member has taken over. None: members take none over.
    fn elsewhere(&self) -> Option<u64>;
    /// Releases the permits of connections of a predecessor that are none any more.
    fn release(&self, connections: u64);
    /// Holds permits for this many connections more of another process, also beyond the limit.
    fn hold(&self, connections: u64);
    /// Has what is done to this pool's connections done to these, too.
    fn follow(&self, behind: Arc<dyn Behind>);
    /// Brings a note to connections that have come over.
    fn bring(&self, note: Op, selector: &Selector);
    /// Listens at these addresses no more. A pool that was changed meanwhile may have them no more, or has ended.
    fn listen_no_more_at(&self, addresses: &[Address]);
}

impl<M: Moving> Movable for Core<M> {
    fn tell_event(&self, event: &Event) {
        self.tell(event);
    }

    fn listening_sockets(&self) -> Vec<ListeningSockets<Arc<ListenSocket>>> {
        let sockets = |ListenerEntry { listener, asked, .. }: &ListenerEntry| ListeningSockets {
            address: listener.address.clone(),
            sockets: listener.sockets.clone(),
            is_shared: listener.is_shared(),
            name: asked.name.clone(),
        };
        lock(&self.control).listeners.listening.iter().map(sockets).collect()
    }

    fn listens(&self) -> bool {
        let control = lock(&self.control);
        control.listeners.listening.iter().all(|entry| entry.listener.is_whole(&*control.config.system))
    }

    fn listener_states(&self) -> ListenerStates {
        let control = lock(&self.control);
        let all = control.listeners.listening.iter().chain(&control.listeners.handed_over);
        let known = |entry: &ListenerEntry| KnownListener {
            address: entry.listener.address.to_string(),
            slot: entry.slot,
            state: Some(entry.state.clone()),
        };
        all.map(known).collect()
    }

    fn state(&self) -> State {
        M::state(self)
    }

    fn limit(&self) -> u64 {
        self.own.limiter().limit() as u64
    }

    fn holders(&self) -> Vec<Arc<dyn Holder>> {
        M::concerned(self, &Request::Release)
    }

    fn revision(&self) -> u64 {
        lock(&self.control).revision.number()
    }

    fn held(&self) -> u64 {
        self.own.limiter().taken() as u64
    }

    fn what_is_held(&self, name: &str, with_peers: bool) -> Held {
        let control = lock(&self.control);
        let entries = control.listeners.listening.iter().chain(&control.listeners.handed_over);
        let occupied = |entry: &ListenerEntry| Occupied {
            address: entry.listener.address.to_string(),
            connections: entry.state.limiter.taken() as u64,
            accepts: entry.state.accept_state(),
        };
        let shared_counters = self.own.shared_counters();
        let peer_counts = self.own.peer_counts().filter(|_| with_peers);
        let of_peer =
            |(peer, connections)| OfPeer { peer: vec![(peer >> 64) as u64, peer as u64], connections: connections as u64 };
        Held {
            name: name.to_owned(),
            connections: self.held(),
            // Connections that are being accepted or connected now still take their numbers here.
            next_id: shared_counters.ids().load(SeqCst) + IDS_APART,
            listeners: entries.map(occupied).collect(),
            counts: M::counts(self, &control).by_name().map(|(name, value)| (name.to_owned(), value)).collect(),
            pace: shared_counters.pace().load(SeqCst),
            begun: M::begun(&control.own),
            prefixes: peer_counts.iter().flat_map(|counts| [counts.prefixes.v4, counts.prefixes.v6]).map(u32::from).collect(),
            peers: peer_counts.iter().flat_map(|counts| counts.all()).map(of_peer).collect(),
            accepts: control.accepts_then.clone().unwrap_or_default(),
            // The conversation knows them.
            behind: 0,
        }
    }

    fn turns(&self, within: Duration) -> bool {
        let until = deadline(Instant::now(), within);
        let mut answers = self.gather(&Request::Turn(within), until);
        // A member that is gone has no loop that hangs: one that is not wanted any more may end meanwhile.
        answers.by_ref().all(|(_, turned)| matches!(turned, Some(Reply::Done) | None)) && answers.rest()
    }

    fn is_running(&self) -> bool {
        is_running(&lock(&self.control).readiness).is_ok()
    }

    fn wait_for_retired(&self, within: Duration) -> bool {
        self.own.notifier().wait(Instant::now() + within, || self.retirements.under_way() == 0)
    }

    fn plan_to_move(&self, reads: &State, within: Option<Duration>) -> (u64, BTreeMap<String, u64>) {
        let earlier = lock(&self.control).behind.as_ref().map_or(0, |behind| behind.connections());
        let (mut moves, mut stay) = (0, BTreeMap::from([(EARLIER.to_owned(), earlier)]));
        if let Some(why) = M::why_all_stay(self) {
            stay.insert(why.to_owned(), self.held().saturating_sub(earlier));
            return (0, stay);
        }
        for (_, plan) in self.gather(&Request::Plan(reads.clone()), deadline(Instant::now(), within.unwrap_or(M::PLANS_WITHIN))) {
            let (count, reasons) = match plan {
                Some(Reply::Plan(count, reasons)) => (count, reasons),
                _ => (0, BTreeMap::from([(BUSY.to_owned(), 0)])),
            };
            moves += count;
            reasons.into_iter().for_each(|(why, count)| *stay.entry(why).or_default() += count);
        }
        (moves, stay)
    }

    fn stay_as_it_is(&self, revision: u64) -> bool {
        let mut control = lock(&self.control);
        control.handing_over = control.revision.number() == revision && is_running(&control.readiness).is_ok();
        let handed_over = control.handing_over;
        control.listeners.all_mut().for_each(|entry| entry.listener.hand_over(handed_over));
        handed_over
    }

    fn hand_over(&self, within: Duration) -> bool {
        let until = deadline(Instant::now(), within);
        {
            let mut control = lock(&self.control);
            let before = control.accept_state.clone();
            control.accepts_then.get_or_insert(before);
            // When this returns no loop that turns is about to accept.
            self.put_accept_state(&mut control, &AcceptState::Suspended, within);
        }
        let turns = || self.turns(until.saturating_duration_since(Instant::now()));
        // Twice: what one loop accepted last for another has come in there, too.
        if !turns() || !turns() || is_running(&lock(&self.control).readiness).is_err() {
            return false;
        }
        let mut control = lock(&self.control);
        pass_listeners(self, &mut control, |_| true);
        true
    }

    fn hand_over_at(&self, addresses: &[String], revision: u64, within: Duration) -> bool {
        let mut control = lock(&self.control);
        control.handing_over = control.revision.number() == revision && is_running(&control.readiness).is_ok();
        if control.handing_over {
            pass_listeners(self, &mut control, |entry| addresses.contains(&entry.listener.address.to_string()));
        }
        let is_as_it_was = control.handing_over;
        drop(control);
        is_as_it_was && (addresses.is_empty() || self.turns(within))
    }

    fn take_back(&self) {
        let mut control = lock(&self.control);
        control.handing_over = false;
        let handed_over = std::mem::take(&mut control.listeners.handed_over);
        control.listeners.all_mut().for_each(|entry| entry.listener.hand_over(false));
        if is_running(&control.readiness).is_ok() {
            for mut entry in handed_over {
                entry.listener.hand_over(false);
                control.listeners.listening.push(entry);
            }
            self.rebalance(&mut control);
        }
        if let Some(then) = control.accepts_then.take() {
            // The first that hears it accepts: none is waited for.
            self.put_accept_state(&mut control, &then, Duration::ZERO);
        }
    }

    fn freeze(&self, reads: &State, until: Instant) -> Vec<FrozenBy> {
        let together = M::state(self).moves_together();
        // A thread that does something else for so long reads no header either.
        let until = if together { until } else { until.min(deadline(Instant::now(), BEGINS_WITHIN)) };
        let request = Request::Freeze { reads: reads.clone(), together };
        let mut frozen: Vec<_> =
            M::concerned(self, &request).into_iter().map(|holder| FrozenBy { holder, is_late: false }).collect();
        ask_in_time(&mut frozen, &request, until);
        if together { frozen } else { Vec::new() }
    }

    fn gathers(&self) -> bool {
        M::state(self).moves_together() && !M::concerned(self, &Request::Heard { last: false }).is_empty()
    }

    fn thaw(&self, stays: bool) {
        self.gather(&Request::Thaw { stays }, deadline(Instant::now(), M::ANSWERS_WITHIN)).for_each(drop);
    }

    fn forget_handed_over(&self) {
        let mut control = lock(&self.control);
        control.listeners.handed_over.iter_mut().for_each(|entry| entry.listener.sockets.clear());
    }

    fn wait_for_none(&self, until: Option<Instant>) -> bool {
        let next = |now: Instant| until.map_or(now + LOOK, |until| until.min(now + LOOK));
        while !self.own.notifier().wait(next(Instant::now()), || self.held() == 0) {
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
        }
        true
    }

    fn end_with_successor(&self, how: Drain) {
        Core::shutdown(self, how, HANDED_OVER, |_| ());
    }

    fn end_handed_over(&self) {
        Core::stop(self, HANDED_OVER);
    }

    fn listen_too(&self, inherited: Inherited) -> Result<(), Error> {
        if inherited.is_empty() {
            return Ok(());
        }
        let mut control = lock(&self.control);
        let wanted = inherited.iter().map(|one| one.address.clone()).fold(control.config.clone(), Config::listen);
        control.listeners.inherited.extend(inherited);
        let changed = self.change_now(&mut control, wanted.unconditional());
        drop(control);
        changed.map(|_| ())
    }

    fn go_on(&self, held: &Held) {
        {
            let mut control = lock(&self.control);
            M::begin_behind(&control.own, held.begun);
            M::build_anew(self, &mut control);
            if held.accepts != AcceptState::Open {
                control.accepts_then.get_or_insert_with(|| held.accepts.clone());
            }
            let mut shut = Vec::new();
            for Occupied { address, accepts, .. } in held.listeners.iter().filter(|one| one.accepts != AcceptState::Open) {
                let at = control.listeners.listening.iter().find(|entry| entry.state.address.to_string() == *address);
                at.iter().for_each(|entry| entry.state.set_accept_state(accepts));
                shut.extend(at);
            }
            M::pass_listener_accept_states(self, &control, &shut, PASSES_WITHIN);
        }
        self.count_predecessor(held);
        // Only in a build with this mistake: what the predecessor has counts for nothing.
        let connections = if cfg!(sockdrawer_broken = "frees-permit") { 0 } else { held.connections };
        self.own.limiter().hold_more(connections);
        for (state, connections) in self.occupied(held) {
            state.limiter.hold_more(connections);
        }
        if let Some(counts) = self.own.peer_counts() {
            counts.begin_elsewhere(&held.peers(counts.prefixes.v4, counts.prefixes.v6));
        }
        let shared_counters = self.own.shared_counters();
        shared_counters.ids().fetch_max(held.next_id, SeqCst);
        shared_counters.pace().fetch_max(held.pace, SeqCst);
    }

    fn open(&self) {
        let mut control = lock(&self.control);
        control.handing_over = false;
        let then = control.accepts_then.take();
        self.put_accept_state(&mut control, &then.unwrap_or(AcceptState::Open), PASSES_WITHIN);
        self.tell_listening(&control);
    }

    fn take_for_good(&self) {
        Core::take_for_good(self);
    }

    fn takers(&self) -> Vec<Arc<dyn Holder>> {
        let control = lock(&self.control);
        let active = control.members.iter().filter(|member| member.active && !member.stuck);
        active.filter_map(|member| member.running.as_ref().map(M::holder)).collect()
    }

    fn occupied(&self, held: &Held) -> Vec<(Arc<ListenerState>, u64)> {
        let states = self.listener_states();
        let state = |address: &str| states.iter().find(|known| known.address == address)?.state.clone();
        held.listeners.iter().filter_map(|one| Some((state(&one.address)?, one.connections))).collect()
    }

    fn count_predecessor(&self, held: &Held) {
        let value = |name: &str| held.counts.get(name).copied().unwrap_or(0);
        lock(&self.control).predecessors = Counts::of_names(value);
        if let Some(counts) = self.own.peer_counts() {
            counts.count_elsewhere(&held.peers(counts.prefixes.v4, counts.prefixes.v6));
        }
        self.own.notifier().notify();
    }

    fn count_no_more_elsewhere(&self) {
        self.own.peer_counts().iter().for_each(|counts| counts.count_elsewhere(&HashMap::new()));
    }

    fn elsewhere(&self) -> Option<u64> {
        self.own.limiter().elsewhere()
    }

    fn release(&self, connections: u64) {
        (0..connections).for_each(|_| self.own.limiter().put_back());
    }

    fn hold(&self, connections: u64) {
        self.own.limiter().hold_more(connections);
    }

    fn follow(&self, behind: Arc<dyn Behind>) {
        lock(&self.control).behind = Some(behind);
    }

    fn bring(&self, note: Op, selector: &Selector) {
        // Where a loop's inbox is full, or a model brings no notes, there is nothing to tell that any more.
        let _ = M::apply(self, note, selector);
    }

    fn listen_no_more_at(&self, addresses: &[Address]) {
        while !addresses.is_empty() {
            let mut wanted = self.config();
            wanted = wanted.listeners(|listeners| listeners.retain(|listening| !addresses.contains(&listening.address)));
            if !matches!(self.reconfigure(wanted), Err(Error::Conflict { .. })) {
                return;
            }
        }
    }
}

/// Asks all of these holders, and waits until then for those that are not late. One that is late by now is not waited for until it has answered
/// something: it does what it was asked when it comes to that.
fn ask_in_time(frozen: &mut [FrozenBy], request: &Request, until: Instant) -> Vec<Reply> {
    let ask = |one: &FrozenBy, reply| one.holder.ask(request.clone(), Vec::new(), reply);
    let mut answers = gather(&*frozen, until, ask);
    let (mut replies, mut in_time) = (Vec::new(), vec![false; frozen.len()]);
    let mut waits_for = frozen.iter().filter(|one| !one.is_late).count();
    while waits_for > 0
        && let Some((index, reply)) = answers.next()
    {
        waits_for -= usize::from(!frozen[index].is_late);
        in_time[index] = true;
        replies.extend(reply);
    }
    for (index, reply) in answers.within(Duration::ZERO) {
        in_time[index] = true;
        replies.extend(reply);
    }
    frozen.iter_mut().zip(in_time).for_each(|(one, in_time)| one.is_late = !in_time);
    replies
}

/// Returns the number of notes that frozen connections of these holders heard since the last look; with `last` they hear no more of them.
pub(crate) fn heard(frozen: &mut [FrozenBy], last: bool, until: Instant) -> u64 {
    let replies = ask_in_time(frozen, &Request::Heard { last }, until).into_iter();
    replies.map(|reply| if let Reply::Heard(count) = reply { count } else { 0 }).sum()
}

impl<M: Moving> Core<M> {
    /// Asks all that a request concerns.
    fn gather(&self, request: &Request, until: Instant) -> Answers<Reply> {
        gather(M::concerned(self, request), until, |holder, reply| holder.ask(request.clone(), Vec::new(), reply))
    }
}

/// Hands these listeners over: no member has their sockets any more, and nothing is done to what waits there.
fn pass_listeners<M: Moving>(core: &Core<M>, control: &mut Control<M>, is_meant: impl FnMut(&mut ListenerEntry) -> bool) {
    let Control { listeners, members, .. } = control;
    let passed: Vec<_> = listeners.listening.extract_if(.., is_meant).collect();
    for mut entry in passed {
        entry.listener.hand_over(true);
        core.release_all(&mut entry, members);
        listeners.handed_over.push(entry);
    }
}
