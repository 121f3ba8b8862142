//! Connections of helpers that move to another program, or come from there: the pool's side of it, and the helper's. They pass the pool's
//! process, which keeps none of them.

use super::change::agree;
use super::channel::Channel;
use super::helper::Helper;
use super::helpers::Helpers;
use super::refusals::other;
use super::registry::generated;
use super::wire::{Move, Moved, Reply, Request};
use crate::clock::deadline;
use crate::config::Model;
use crate::event_loop::connections::moving::{KnownListener, ListenerStates, Offered, Reading, SendOffer};
use crate::ipc::messages::{Record, Restored, Yours, levels, state};
use crate::ipc::shared_counters::SharedCounters;
use crate::net::Address;
use crate::observe::Counts;
use crate::pool::control::{Control, Core};
use crate::pool::moving::{Holder, Movable, Moving};
use crate::protocol::State;
use crate::sync::{lock, mpsc};
use crate::sys::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Moving for Helpers {
    fn shared_counters(&self) -> &SharedCounters {
        &self.shared_counters
    }

    fn counts(core: &Core<Helpers>, control: &Control<Helpers>) -> Counts {
        let mut counts = core.own.counts();
        counts += control.predecessors;
        counts
    }

    /// A connection that has a process to itself stays in it.
    fn state(core: &Core<Helpers>) -> State {
        let config = &lock(&core.control).config;
        if config.model == Model::Fork { State::none() } else { config.behaviour.service().state() }
    }

    fn turns(core: &Core<Helpers>, within: Duration) -> bool {
        let turns = || Request::Move(Move::Turns(within));
        let asked: Vec<_> = core.channels().iter().map(|channel| channel.ask_later(turns(), &[])).collect();
        let until = deadline(Instant::now(), within);
        asked.iter().all(|asked| {
            let answer = asked.recv_timeout(until.saturating_duration_since(Instant::now()));
            // One that is gone has no loop that hangs: one that is not wanted any more may end meanwhile.
            matches!(answer, Ok(Reply::Moved(Moved::Turns(true))) | Err(mpsc::RecvTimeoutError::Disconnected))
        })
    }

    fn holder(member: &Arc<Channel>) -> Arc<dyn Holder> {
        member.clone()
    }

    fn plan_to_move(core: &Core<Helpers>, reads: &State) -> (u64, BTreeMap<String, u64>) {
        if lock(&core.control).config.model == Model::Fork {
            return (0, BTreeMap::from([("each has a process to itself".to_owned(), core.held())]));
        }
        let (mut moves, mut stay) = (0, BTreeMap::new());
        for channel in core.channels() {
            // One that does not answer now is counted in neither.
            if let Some(Reply::Moved(Moved::Plan(move_on, reasons))) = channel.ask(Request::Move(Move::Plan(levels(reads)))) {
                moves += move_on;
                reasons.into_iter().for_each(|(why, count)| *stay.entry(why).or_default() += count);
            }
        }
        (moves, stay)
    }

    /// Connections of different processes send each other nothing.
    fn freeze(_: &Core<Helpers>, _: &State) {}

    fn gathered(_: &Core<Helpers>, _last: bool) -> u64 {
        0
    }

    fn thaw(core: &Core<Helpers>) {
        core.channels().iter().for_each(|channel| _ = channel.let_go(Vec::new()));
    }

    /// A helper has a copy of what its recipe says, such as keys of tickets, which was written before the keys of the predecessor came.
    /// Where one cannot build it, all go on with what they have.
    fn build_anew(core: &Core<Helpers>, control: &mut Control<Helpers>) {
        let next = generated(&control.config, control.generation + 1);
        let Some(next) = next.ok().filter(|next| next.recipe != control.own.generated.recipe) else { return };
        match agree(control.running(), || Request::Prepare(next.clone())) {
            Ok(()) => core.switch_to(control, next),
            Err(_) => _ = agree(control.running(), || Request::Forget),
        }
    }
}

fn places(listeners: &ListenerStates) -> Vec<(usize, Address)> {
    listeners.iter().map(|known| (known.slot, known.state.address.clone())).collect()
}

impl Channel {
    /// However long it takes: what moves must be known for sure. None: the helper is gone, or refuses.
    fn moved(&self, request: Move, descriptors: &[BorrowedFd<'_>]) -> Option<Moved> {
        match self.ask_later(Request::Move(request), descriptors).recv() {
            Ok(Reply::Moved(moved)) => Some(moved),
            _ => None,
        }
    }
}

impl Holder for Channel {
    fn offer(&self, reads: &Reading, from: u64, send: SendOffer) -> Result<Offered, Errno> {
        let asks = Move::Offer { reads: levels(&reads.state), listeners: places(&reads.listeners), from };
        match self.ask_later(Request::Move(asks), &[]).recv() {
            Ok(Reply::Moved(Moved::Offered { records, next, .. })) if records.is_empty() => Ok(Offered { count: 0, next }),
            Ok(Reply::Moved(Moved::Offered { records, next, sockets })) => {
                let count = records.len();
                let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                // No descriptor came where this process has no room for all of them.
                let sent = if descriptors.len() == count { send(records, next, &descriptors) } else { Err(Errno::NOBUFS) };
                sent.inspect_err(|_| _ = self.let_go(Vec::new()))?;
                Ok(Offered { count, next })
            }
            Ok(_) => Err(Errno::BUSY),
            // It is gone, and its connections with it.
            Err(_) => Ok(Offered { count: 0, next: None }),
        }
    }

    fn let_go(&self, restored: Vec<u64>) -> Yours {
        if let Some(Moved::LetGo(yours)) = self.moved(Move::LetGo(restored), &[]) { yours } else { Yours::default() }
    }

    fn restore(&self, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Option<Restored> {
        let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        if let Some(Moved::Restored(restored)) = self.moved(Move::Restore(records), &descriptors) { Some(restored) } else { None }
    }

    fn seat(&self, yours: Yours, listeners: &ListenerStates, together: bool) -> Option<Vec<Option<String>>> {
        let seats = Move::Seat { yours, listeners: places(listeners), together };
        if let Some(Moved::Seated(addresses)) = self.moved(seats, &[]) { Some(addresses) } else { None }
    }

    fn release(&self) {
        self.moved(Move::Release, &[]);
    }
}

impl Helper {
    /// Where the answer is not given at once, the loop whose connections are offered gives it.
    pub(super) fn take_part(&mut self, number: u64, request: Move, sockets: Vec<OwnedFd>) {
        let moved = match request {
            Move::Turns(within) => Moved::Turns(self.core.turns(within)),
            Move::Plan(reads) => {
                let (moves, stay) = self.core.plan_to_move(&state(&reads));
                Moved::Plan(moves, stay)
            }
            Move::Offer { reads, listeners, from } => {
                let reads = Reading { state: state(&reads), listeners: self.known(&listeners) };
                return self.offer(number, &reads, from);
            }
            Move::LetGo(restored) => {
                let mut all = Yours::default();
                for holder in self.core.holders() {
                    let gone = holder.let_go(restored.clone());
                    all.extend(gone);
                }
                Moved::LetGo(all)
            }
            Move::Restore(records) => Moved::Restored(self.restore(records, sockets)),
            Move::Seat { yours, listeners, together } => {
                let listeners = self.known(&listeners);
                // Each loop knows those that it has restored.
                let holders = self.core.holders();
                let seated = holders.iter().filter_map(|holder| holder.seat(yours.clone(), &listeners, together));
                Moved::Seated(seated.flatten().collect())
            }
            Move::Release => {
                self.core.holders().iter().for_each(|holder| holder.release());
                Moved::Released
            }
        };
        self.to_pool.reply(number, Reply::Moved(moved));
    }

    /// Offers the next connections, of one loop after the other.
    fn offer(&self, number: u64, reads: &Reading, from: u64) {
        let holders = self.core.holders();
        let (first, mut at) = ((from >> 32) as usize, from & u64::from(u32::MAX));
        for (index, holder) in holders.iter().enumerate().skip(first) {
            let to_pool = self.to_pool.clone();
            let send: SendOffer = Box::new(move |records, next, descriptors| {
                let here = (index as u64) << 32;
                let next = next.map_or(here + (1 << 32), |next| here + next);
                let offered = Moved::Offered { records, next: Some(next), sockets: Vec::new() };
                to_pool.reply_with(number, Reply::Moved(offered), descriptors)
            });
            match holder.offer(reads, at, send) {
                Ok(offered) if offered.count > 0 => return,
                Ok(_) => at = 0,
                Err(errno) => return self.to_pool.reply(number, Reply::Refused(other(std::io::Error::from(errno)))),
            }
        }
        let none = Moved::Offered { records: Vec::new(), next: None, sockets: Vec::new() };
        self.to_pool.reply(number, Reply::Moved(none));
    }

    fn restore(&mut self, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Restored {
        let refused = |why: &str| Restored { ids: Vec::new(), reasons: vec![why.to_owned()] };
        if sockets.len() != records.len() {
            return refused("the new process has no descriptors left");
        }
        let takers = self.core.takers();
        self.turn += 1;
        let taker = takers.get(self.turn % takers.len().max(1));
        taker.and_then(|taker| taker.restore(records, sockets)).unwrap_or_else(|| refused("a loop of the new process died"))
    }

    /// The listeners of these places, as the connections here know them.
    fn known(&mut self, listeners: &[(usize, Address)]) -> ListenerStates {
        let shared_counters = &self.core.own.shared.shared_counters;
        let known = |(slot, address): &(usize, Address)| KnownListener {
            address: address.to_string(),
            slot: *slot,
            state: self.listener_states.at(*slot, address, shared_counters),
        };
        listeners.iter().map(known).collect()
    }
}
