//! The successor's side: it meets its predecessor, takes its listeners over, and then its connections.

use super::before::{Before, Stayed};
use super::talk::{Room, Talk};
use super::{Build, Carry, NamedPool, meeting};
use crate::config::Listening;
use crate::event_loop::connections::moving::ListenerStates;
use crate::ipc::messages::{FORMATS, Go, Held, Hello, Offer, Prepared, Reads, Said, Welcome};
use crate::ipc::record::Restored;
use crate::ipc::yours::Yours;
use crate::listen::listener::Clash;
use crate::listen::state::ListenerState;
use crate::net::Address;
use crate::observe::Event;
use crate::pool::moving::Holder;
use crate::pool::{Inherited, ListeningSockets, goes_on};
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{lock, try_lock};
use crate::sys::{Errno, passing};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses between two attempts to say what the predecessor did not take: at first, and the maximum, where it is stopped.
const SAYS_AGAIN: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The pause before this process stands where a successor of its own prepares meanwhile.
const STANDS_AGAIN: Duration = Duration::from_secs(1);

/// Listening sockets by the names of their pools, and their addresses.
type Sockets = Vec<(String, ListeningSockets<OwnedFd>)>;

/// The process that is replaced.
pub(super) struct Predecessor {
    talk: Talk,
    sockets: Sockets,
    /// Time until which anything is waited for.
    until: Instant,
    pub(super) build: Build,
}

impl std::fmt::Debug for Predecessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Predecessor")
    }
}

/// The connections of a predecessor, on their way.
pub(super) struct Arrivals {
    talk: Talk,
    pools: Vec<Arriving>,
    before: Arc<Before>,
    /// The pools were told that the predecessor has no connections any more.
    is_alone: bool,
}

/// A pool whose connections come.
struct Arriving {
    named: NamedPool,
    stayed: Arc<Stayed>,
    /// Connections that the predecessor has, by its last word.
    left: u64,
    /// Permits that are held for connections that are the predecessor's still.
    held: u64,
    /// Permits that are held for such connections at each of the addresses at which they came in.
    listeners: Vec<(Arc<ListenerState>, u64)>,
    /// Processes before the predecessor that still have connections.
    behind: u32,
    /// Addresses at which connections of the predecessor came in: one that is removed and added again counts from nothing.
    known: ListenerStates,
    /// Number of the member that gets the next connection: members get them in turn.
    turn: usize,
}

/// Connections that were restored and are not this process's yet.
#[derive(Default)]
struct Pending {
    restored: Vec<RestoredHere>,
    /// Connections that the predecessor has closed by now, of a verdict that has several parts.
    given: Vec<Yours>,
}

/// Connections that a loop or helper has restored, of several offers where they move together.
struct RestoredHere {
    /// The pool's place.
    pool: usize,
    holder: Arc<dyn Holder>,
    ids: Vec<u64>,
    together: bool,
}

impl Predecessor {
    /// Returns the predecessor and the socket of the meeting place. None: it is gone.
    pub(super) fn meet(
        socket: OwnedFd,
        version: &str,
        replaces: Option<&str>,
        until: Instant,
    ) -> Result<Option<(Predecessor, OwnedFd)>, String> {
        let (_, trusted) = passing::peer_process(socket.as_fd()).map_err(line)?;
        if !trusted {
            return Err("another user's process serves here".to_owned());
        }
        Predecessor::greet(Talk::new(socket).map_err(line)?, version, replaces, until)
    }

    /// Meets as [`Predecessor::meet`] does, with a process that may take part.
    pub(super) fn greet(
        talk: Talk,
        version: &str,
        replaces: Option<&str>,
        until: Instant,
    ) -> Result<Option<(Predecessor, OwnedFd)>, String> {
        let within = until.saturating_duration_since(talk.now());
        let (lowest_format, highest_format) = FORMATS;
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let (version, replaces) = (version.to_owned(), replaces.map(str::to_owned));
        let hello = Hello { lowest_format, highest_format, version, within, replaces: replaces.clone() };
        let said = talk.say_until(&Said::Hello(hello), &[], Room::Soon, Some(until));
        let (said, descriptors) = match said.and_then(|()| talk.hear(Some(until))) {
            Err(Errno::PIPE) => return Ok(None),
            heard => heard.map_err(line)?,
        };
        let welcome = match said {
            Said::Welcome(welcome) => welcome,
            Said::Refused(refused) => return Err(meeting::refused(refused)),
            _ => return Err("what it says is not understood".to_owned()),
        };
        // The kernel's word for it would be the process that opened the meeting place, however long ago.
        let pid = welcome.pid;
        if !replaces.is_some_and(|whom| meeting::is_meant(&whom, pid)) {
            return Err(meeting::serves(pid));
        }
        let descriptors = descriptors.ok_or("this process has no descriptors left: raise `ulimit -n`")?;
        let build = Build { version: welcome.version.clone(), pid };
        let (sockets, place) = sorted(welcome, descriptors)?;
        Ok(Some((Predecessor { talk, sockets, until, build }, place)))
    }

    /// Returns the addresses at which a pool listens, unless its sockets were taken.
    pub(super) fn addresses<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Address> + 'a {
        self.sockets.iter().filter(move |(pool, _)| pool == name).map(|(_, sockets)| sockets.address.clone())
    }

    /// Returns true where it listens at a wider or narrower address of this port.
    pub(super) fn overlaps(&self, asked: &Address) -> bool {
        self.sockets.iter().any(|(_, sockets)| Clash::of(&sockets.address, asked) == Some(Clash::Overlapping))
    }

    /// Sockets that a service manager made, unless they were taken.
    pub(super) fn named(&self) -> impl Iterator<Item = Listening> {
        self.sockets.iter().filter_map(|(_, of)| Some(Listening::new(of.address.clone()).named(of.name.clone()?)))
    }

    /// Takes the listening sockets that a pool goes on with: those of its own that are where it listens, and those of other pools at the same
    /// addresses.
    pub(super) fn take_sockets(&mut self, name: &str, wanted: &[Listening]) -> Inherited {
        self.take(|pool, address| match pool == name {
            true => wanted.iter().any(|one| goes_on(address, &one.address)),
            false => wanted.iter().any(|one| *address == one.address),
        })
    }

    /// Takes the listening sockets of a pool that no pool here has taken.
    pub(super) fn take_left(&mut self, name: &str) -> Inherited {
        self.take(|pool, _| pool == name)
    }

    fn take(&mut self, is_meant: impl Fn(&str, &Address) -> bool) -> Inherited {
        let taken = self.sockets.extract_if(.., |(pool, sockets)| is_meant(pool, &sockets.address));
        taken.map(|(_, sockets)| sockets).collect()
    }

    /// Commits. When it returns, this process accepts and the other does not; an error means that the other goes on.
    pub(super) fn take_over(self, pools: &[NamedPool], carries: &mut [Carry], before: Arc<Before>) -> Result<Arrivals, String> {
        let reads = pools.iter().map(|NamedPool { name, pool, given_up }| {
            let listening = pool.listening_sockets().into_iter().map(|sockets| sockets.address);
            Reads {
                name: name.clone(),
                state: pool.state(),
                listeners: listening.filter(|address| !given_up.contains(address)).map(|address| address.to_string()).collect(),
                limit: pool.limit(),
            }
        });
        // Where this is not heard, an answer came before.
        let prepared = Said::Prepared(Prepared {
            pools: reads.collect(),
            carried: Some(carries.iter().map(|carry| carry.name.clone()).collect()),
        });
        let _ = self.talk.say_until(&prepared, &[], Room::Soon, Some(self.until));
        let go = match self.talk.hear(Some(self.until)) {
            Ok((Said::Go(mut go), _)) => {
                go.pools = std::mem::take(&mut go.pools).into_iter().map(Held::believed).collect();
                go
            }
            Ok((Said::Refused(refused), _)) => return Err(meeting::refused(refused)),
            Ok(_) => return Err("what it says is not understood".to_owned()),
            // The predecessor has died: its listeners are this process's, and it has no connections.
            Err(Errno::PIPE) if pools.iter().all(|named| named.pool.listens()) => Go::default(),
            Err(Errno::PIPE) => return Err("it ended meanwhile, and its listeners with it: start this program again".to_owned()),
            Err(errno) => return Err(line(errno)),
        };
        for Carry { name, read, .. } in carries {
            if let (Some(carried), Some(read)) = (go.carried.get(name), read.take()) {
                read(carried);
            }
        }
        let arriving = pools.iter().map(|named| {
            let nothing = Held::default();
            let held = go.pools.iter().find(|held| held.name == named.name).unwrap_or(&nothing);
            named.pool.go_on(held);
            let (known, listeners) = (named.pool.listener_states(), named.pool.occupied(held));
            let stayed = Stayed { pool: named.name.clone(), before: before.clone(), connections: AtomicU64::default() };
            let (named, stayed) = (named.clone(), Arc::new(stayed));
            let left = held.connections;
            Arriving { named, stayed, left, held: left, behind: held.behind, known, listeners, turn: 0 }
        });
        let pools: Vec<Arriving> = arriving.collect();
        before.speak_by(self.talk.clone());
        let mut arrivals = Arrivals { talk: self.talk, pools, before, is_alone: false };
        arrivals.count_behind();
        arrivals.tell_if_alone();
        for Arriving { named, stayed, .. } in &arrivals.pools {
            named.pool.follow(stayed.clone());
            named.pool.open();
        }
        // If the predecessor is dead by now, the first look at its connections finds that.
        let _ = arrivals.talk.say_surely(&Said::Done);
        Ok(arrivals)
    }
}

/// Returns the sockets of a welcome by pool and address, and that of the meeting place, which is the last.
pub(super) fn sorted(welcome: Welcome, mut descriptors: Vec<OwnedFd>) -> Result<(Sockets, OwnedFd), String> {
    let place = descriptors.pop().ok_or("it passed no socket")?;
    let (mut sockets, mut left) = (Vec::new(), descriptors.into_iter());
    for pool in welcome.pools {
        for listener in pool.listeners {
            let address = listener.address.parse().map_err(|_| format!("{} is no address", listener.address))?;
            let of: Vec<OwnedFd> = left.by_ref().take(listener.sockets as usize).collect();
            if of.len() != listener.sockets as usize {
                return Err("it passed too few sockets".to_owned());
            }
            let of = ListeningSockets { address, sockets: of, is_shared: listener.is_shared, name: listener.name };
            sockets.push((pool.name.clone(), of));
        }
    }
    Ok((sockets, place))
}

impl Arrivals {
    /// Takes connections until the predecessor has none, or is dead: then those are this process's that it was offered last. At that time
    /// this process stands, and the other need not stand by any more.
    pub(super) fn receive(mut self, settles: Instant) {
        let (mut pending, mut owed, mut settles) = (Pending::default(), Vec::new(), Some(settles));
        let [mut again, longest] = SAYS_AGAIN;
        let talk = self.talk.clone();
        let is_due = |settles: Option<Instant>| settles.is_some_and(|settles| talk.now() >= settles);
        loop {
            owed.retain(|said| !self.is_said(said, pending.restored.last()));
            // Nothing is changed of what the other one may take back before that is told.
            if is_due(settles) {
                settles = self.stand();
            }
            let is_said = owed.is_empty() && !is_due(settles);
            again = if is_said { SAYS_AGAIN[0] } else { (again * 2).min(longest) };
            let until = if is_said { settles } else { Some(self.talk.now() + again) };
            let (said, descriptors) = match self.talk.hear(until) {
                Ok(heard) => heard,
                Err(Errno::AGAIN) => continue,
                // The predecessor is dead, or has nothing left: what it offered is this process's.
                Err(_) => break,
            };
            match said {
                Said::Offer(offer) => {
                    let restored = self.offered(offer, descriptors, &mut pending);
                    self.before.begin_crossing();
                    owed.push(Said::Restored(restored));
                }
                Said::Yours(yours) => {
                    let more = yours.more;
                    pending.given.push(yours);
                    if !more {
                        self.seat(&mut pending, true);
                    }
                }
                Said::Left(left) => {
                    let left = left.believed();
                    if let Some(arriving) = self.pools.iter_mut().find(|arriving| arriving.named.name == left.name) {
                        // Before the permits are free: by then it is counted what they were for.
                        arriving.named.pool.count_predecessor(&left);
                        arriving.behind = left.behind;
                        arriving.keep_held(&left);
                        arriving.left = left.connections;
                    }
                    self.count_behind();
                    self.tell_if_alone();
                }
                Said::Answered(answered) => self.before.answered(answered),
                Said::Ended => break,
                _ => {}
            }
        }
        self.seat(&mut pending, false);
        // A predecessor that lives must not take the listeners back because the conversation is over.
        self.before.settle();
        for arriving in &mut self.pools {
            arriving.named.pool.count_no_more_elsewhere();
            arriving.keep_held(&Held::default());
            arriving.left = 0;
        }
        self.count_behind();
        self.tell_if_alone();
        self.before.fall_silent();
        let before = self.before.clone();
        let _given_up = lock(&before.giving_up);
        self.take_for_good();
    }

    /// Tells the predecessor that this process stands, and changes then what it would have taken back. Returns when to try again: it may take nothing
    /// now, or a successor of this process prepares.
    fn stand(&mut self) -> Option<Instant> {
        let before = self.before.clone();
        let Some(_given_up) = try_lock(&before.giving_up) else { return Some(self.talk.now() + STANDS_AGAIN) };
        if !before.settle_now() {
            return Some(self.talk.now());
        }
        self.take_for_good();
        None
    }

    /// Says what is owed to the predecessor, if that can be said now: what hears it must not wait until it is heard.
    fn is_said(&self, said: &Said, last: Option<&RestoredHere>) -> bool {
        // Where the other one is gone, what it said before is still to be heard.
        let say = || matches!(self.talk.say_now(said.clone()), Ok(()) | Err(Errno::PIPE));
        match said {
            Said::Restored(restored) => {
                let slice = last.filter(|last| !last.together);
                self.before.cross(slice.map(|slice| (&*self.pools[slice.pool].named.name, &*restored.ids)), say)
            }
            _ => say(),
        }
    }

    /// Takes the listeners for good, once the predecessor lets go of them: those that this build does not want end.
    fn take_for_good(&mut self) {
        for arriving in &mut self.pools {
            arriving.named.pool.take_for_good();
            arriving.named.pool.listen_no_more_at(&std::mem::take(&mut arriving.named.given_up));
        }
    }

    /// Tells it, once, where the predecessor has said that no pool has a connection there. Permits do not say it: the predecessor may have
    /// connections for which none is held here.
    fn tell_if_alone(&mut self) {
        if self.pools.iter().all(|arriving| arriving.left == 0) && !std::mem::replace(&mut self.is_alone, true) {
            self.pools.iter().for_each(|arriving| arriving.named.pool.tell_event(&Event::ServesAlone));
        }
    }

    fn count_behind(&self) {
        let of_those_with_some = self.pools.iter().filter(|arriving| arriving.held > 0).map(|arriving| arriving.behind + 1);
        self.before.count.store(of_those_with_some.max().unwrap_or(0), SeqCst);
        self.pools.iter().for_each(|arriving| arriving.stayed.connections.store(arriving.held, SeqCst));
    }

    fn offered(&mut self, offer: Offer, descriptors: Option<Vec<OwnedFd>>, pending: &mut Pending) -> Restored {
        let refused = |why: &str| Restored { ids: Vec::new(), reasons: vec![why.to_owned()] };
        let Some(descriptors) = descriptors else { return refused("the new process has no descriptors left") };
        let Some(at) = self.pools.iter().position(|arriving| arriving.named.name == offer.pool) else {
            return refused("the new process has no such pool");
        };
        let Some(holder) = self.pools[at].next_taker() else { return refused("the new process has no loop") };
        let Some(restored) = holder.restore(offer.records, descriptors) else {
            return refused("a loop of the new process died");
        };
        let is_its = |of: &&mut RestoredHere| of.pool == at && std::ptr::addr_eq(Arc::as_ptr(&of.holder), Arc::as_ptr(&holder));
        match pending.restored.iter_mut().find(is_its) {
            Some(of) => of.ids.extend(&restored.ids),
            None => {
                let (ids, together) = (restored.ids.clone(), offer.together);
                pending.restored.push(RestoredHere { pool: at, holder, ids, together });
            }
        }
        restored
    }

    /// Makes what was restored this process's: the part that was given, or all, where the predecessor is dead.
    fn seat(&mut self, pending: &mut Pending, is_given: bool) {
        let Pending { restored, given } = std::mem::take(pending);
        let mut places: Vec<usize> = restored.iter().map(|of| of.pool).collect();
        places.sort_unstable();
        places.dedup();
        for at in &places {
            let (arriving, mut yours) = (&mut self.pools[*at], Yours::default());
            let parts = given.iter().filter(|part| part.pool.is_empty() || part.pool == arriving.named.name);
            parts.for_each(|part| yours.extend(part.clone()));
            arriving.seat(restored.iter().filter(|of| of.pool == *at), yours, is_given);
        }
        // The set is here, of whatever pools: none of it misses what another publishes now.
        if restored.iter().any(|of| of.together) {
            places.iter().flat_map(|at| self.pools[*at].named.pool.holders()).for_each(|holder| holder.release());
        }
        self.count_behind();
        let pools = &self.pools;
        self.before
            .end_crossing(|note, selector| places.iter().for_each(|at| pools[*at].named.pool.bring(note.clone(), selector)));
    }
}

impl Arriving {
    /// Makes what its loops or helpers restored this process's: the part that was given, or all.
    fn seat<'a>(&mut self, restored: impl Iterator<Item = &'a RestoredHere>, given: Yours, is_given: bool) {
        let all: Option<HashSet<u64>> = is_given.then(|| given.ids.iter().copied().collect());
        let Yours { noted, notes, .. } = given;
        for RestoredHere { holder, ids, together, .. } in restored {
            let ids: Vec<u64> = ids.iter().copied().filter(|id| all.as_ref().is_none_or(|all| all.contains(id))).collect();
            // Each takes a permit over that is held for it, but for those that were made there since: for others that had asked for them before.
            let more = (ids.len() as u64).saturating_sub(self.held);
            self.named.pool.hold(more);
            self.held += more;
            let of_loop: HashSet<u64> = if noted.is_empty() { HashSet::new() } else { ids.iter().copied().collect() };
            let noted: Vec<_> = noted.iter().filter(|noted| of_loop.contains(&noted.id)).cloned().collect();
            let notes = if noted.is_empty() { Vec::new() } else { notes.clone() };
            match holder.seat(Yours { ids, noted, notes, ..Yours::default() }, &self.known, *together) {
                Some(seated) => seated.iter().for_each(|address| self.is_here(address.as_deref())),
                None => self.recount(),
            }
        }
    }

    fn next_taker(&mut self) -> Option<Arc<dyn Holder>> {
        let takers = self.named.pool.takers();
        self.turn += 1;
        takers.get(self.turn % takers.len().max(1)).cloned()
    }

    /// Counts one connection more as this process's, with the permits that were held for it.
    fn is_here(&mut self, address: Option<&str>) {
        self.held = self.held.saturating_sub(1);
        let came_in = |(state, held): &&mut (Arc<ListenerState>, u64)| {
            *held > 0 && address.is_some_and(|at| at == state.address.to_string())
        };
        if let Some((_, held)) = self.listeners.iter_mut().find(came_in) {
            *held -= 1;
        }
    }

    /// Counts permits anew: a helper that died may have taken permits over, and they were taken back with all that it had.
    fn recount(&mut self) {
        self.held = self.held.min(self.named.pool.elsewhere().unwrap_or(self.held));
        for (state, held) in &mut self.listeners {
            *held = (*held).min(state.limiter.elsewhere().unwrap_or(*held));
        }
    }

    /// Keeps as many permits as the predecessor has left: the others are free.
    fn keep_held(&mut self, left: &Held) {
        for (state, held) in &mut self.listeners {
            // By its address: this pool may not listen there any more.
            let address = state.address.to_string();
            let left = left.listeners.iter().find(|other| other.address == address).map_or(0, |other| other.connections);
            (left..*held).for_each(|_| state.limiter.put_back());
            *held = left.min(*held);
        }
        self.named.pool.release(self.held.saturating_sub(left.connections));
        self.held = self.held.min(left.connections);
    }
}

fn line(errno: Errno) -> String {
    match errno {
        Errno::PIPE => "it is gone".to_owned(),
        Errno::AGAIN => "it does not answer".to_owned(),
        errno => std::io::Error::from(errno).to_string(),
    }
}
