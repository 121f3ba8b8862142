//! Connections of helpers that move to another program, or come from there: the pool's side of it, and the helper's. They pass the pool's
//! process, which keeps none of them.

use super::change::agree;
use super::channel::{ANSWERS_WITHIN, Channel};
use super::helper::Helper;
use super::helpers::Helpers;
use super::refusals::other;
use super::registry::generated;
use super::wire::HelperRequest;
use super::{change, helpers};
use crate::config::Model;
use crate::event_loop::connections::moving::{KnownListener, ListenerStates, Offered, Reading, SendOffer};
use crate::gather::{self, ReplyTo};
use crate::ipc::record::{Record, Restored};
use crate::ipc::shared_counters::SharedCounters;
use crate::ipc::yours::Yours;
use crate::observe::Counts;
use crate::pool::control::{Control, Core};
use crate::pool::moving::{BEGINS_WITHIN, Holder, Movable, Moving};
use crate::pool::request::{Reply, Request};
use crate::protocol::State;
use crate::sync::lock;
use crate::sys::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Moving for Helpers {
    const ANSWERS_WITHIN: Duration = ANSWERS_WITHIN;
    const PLANS_WITHIN: Duration = ANSWERS_WITHIN;

    fn shared_counters(&self) -> &SharedCounters {
        &self.shared_counters
    }

    fn counts(core: &Core<Helpers>, control: &Control<Helpers>) -> Counts {
        let mut counts = core.own.counts();
        counts += control.predecessors;
        counts
    }

    /// Returns the declared states: none where a connection has a process to itself, because it stays in it.
    fn state(core: &Core<Helpers>) -> State {
        let config = &lock(&core.control).config;
        if config.model == Model::Fork { State::none() } else { config.behaviour.service().state() }
    }

    fn why_all_stay(core: &Core<Helpers>) -> Option<&'static str> {
        (lock(&core.control).config.model == Model::Fork).then_some("each has a process to itself")
    }

    fn holder(member: &Arc<Channel>) -> Arc<dyn Holder> {
        member.clone()
    }

    fn concerned(core: &Core<Helpers>, request: &Request) -> Vec<Arc<dyn Holder>> {
        match request {
            // Connections of different processes send each other nothing.
            Request::Freeze { .. } | Request::Heard { .. } => Vec::new(),
            _ => helpers::channels(core).into_iter().map(|channel| channel as Arc<dyn Holder>).collect(),
        }
    }

    /// Has helpers build their recipes anew. A helper has a copy of what its recipe says, such as keys of tickets, which was written before the keys
    /// of the predecessor came. Where one cannot build it, all go on with what they have.
    fn build_anew(core: &Core<Helpers>, control: &mut Control<Helpers>) {
        let next = generated(&control.config, control.generation + 1);
        let Some(next) = next.ok().filter(|next| next.recipe != control.own.generated.recipe) else { return };
        match agree(control.running(), || HelperRequest::Prepare(next.clone())) {
            Ok(()) => change::switch_to(core, control, next),
            Err(_) => _ = agree(control.running(), || HelperRequest::Forget),
        }
    }
}

impl Holder for Channel {
    fn ask(&self, request: Request, sockets: Vec<OwnedFd>, reply: ReplyTo<Reply>) {
        let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        self.tell(HelperRequest::Ask(request), &descriptors, reply);
    }

    fn offer(&self, reads: &Reading, from: u64, send: SendOffer) -> Result<Offered, Errno> {
        // An offer is waited for without a limit: a helper that is stopped is not asked for one.
        let lives = |reply| self.tell(HelperRequest::Ask(Request::Turn(Duration::ZERO)), &[], reply);
        if gather::ask(Instant::now() + BEGINS_WITHIN, lives).is_none() && !self.is_closed() {
            return Err(Errno::BUSY);
        }
        let offer = HelperRequest::Offer { reads: reads.state.clone(), listeners: reads.listeners.clone(), from };
        match gather::ask(None, |reply| self.tell(offer, &[], reply)) {
            Some(Reply::Offered { records, next, .. }) if records.is_empty() => Ok(Offered { next, ..Offered::default() }),
            Some(Reply::Offered { records, next, sockets }) => {
                let count = records.len();
                let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                // No descriptor came where this process has no room for all of them.
                let sent = if descriptors.len() == count { send(records, next, &descriptors) } else { Err(Errno::NOBUFS) };
                let this: &dyn Holder = self;
                sent.inspect_err(|_| _ = this.let_go(Vec::new()))?;
                Ok(Offered { count, next, ..Offered::default() })
            }
            Some(_) => Err(Errno::BUSY),
            // The helper is gone, and its connections with it.
            None => Ok(Offered::default()),
        }
    }
}

impl Helper {
    /// Returns what all loops answer together.
    pub(super) fn take_part(&mut self, request: Request, sockets: Vec<OwnedFd>) -> Reply {
        match request {
            Request::Turn(within) if self.core.turns(within) => Reply::Done,
            Request::Turn(_) => Reply::Refused(other("a loop hangs")),
            Request::Plan(reads) => {
                let (moves, stay) = self.core.plan_to_move(&reads, None);
                Reply::Plan(moves, stay)
            }
            Request::Freeze { .. } | Request::Heard { .. } => {
                Reply::Refused(other("connections of different processes send each other nothing"))
            }
            Request::Thaw { stays } => {
                self.core.thaw(stays);
                Reply::Done
            }
            Request::LetGo(restored) => {
                let mut all = Yours::default();
                self.core.holders().iter().for_each(|holder| all.extend(holder.let_go(restored.clone())));
                Reply::LetGo(all)
            }
            Request::Restore(records) => Reply::Restored(self.restore(records, sockets)),
            Request::Seat { yours, listeners, together } => {
                let listeners = self.known(&listeners);
                // Each loop knows those that it has restored.
                let holders = self.core.holders();
                let seated = holders.iter().filter_map(|holder| holder.seat(yours.clone(), &listeners, together));
                Reply::Seated(seated.flatten().collect())
            }
            Request::Release => {
                self.core.holders().iter().for_each(|holder| holder.release());
                Reply::Done
            }
        }
    }

    /// Offers the next connections, of one loop after the other; the loop whose connections are offered gives the answer.
    pub(super) fn offer(&mut self, number: u64, state: State, listeners: &ListenerStates, from: u64) {
        let reads = Reading { state, listeners: self.known(listeners) };
        let holders = self.core.holders();
        let (first, mut at, mut busy) = ((from >> 32) as usize, from & u64::from(u32::MAX), None);
        for (index, holder) in holders.iter().enumerate().skip(first) {
            let to_pool = self.to_pool.clone();
            let send: SendOffer = Box::new(move |records, next, descriptors| {
                let here = (index as u64) << 32;
                let next = next.map_or(here + (1 << 32), |next| here + next);
                let offered = Reply::Offered { records, next: Some(next), sockets: Vec::new() };
                to_pool.reply_with(number, offered, descriptors)
            });
            match holder.offer(&reads, at, send) {
                Ok(offered) if offered.count > 0 => return,
                Ok(_) => {}
                // The next loop may have time. The answer is gone with `send` where that failed.
                Err(errno) => busy = Some(errno),
            }
            at = 0;
        }
        let none = Reply::Offered { records: Vec::new(), next: None, sockets: Vec::new() };
        self.to_pool.reply(number, busy.map_or(none, |errno| Reply::Refused(other(std::io::Error::from(errno)))));
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

    /// Returns listeners that another process named, as the connections here know them.
    fn known(&mut self, listeners: &ListenerStates) -> ListenerStates {
        let shared_counters = &self.core.own.shared.shared_counters;
        let known = |known: &KnownListener| {
            let address = known.address.parse().ok();
            let state = address.map(|address| self.listener_states.at(known.slot, &address, shared_counters));
            KnownListener { state, ..known.clone() }
        };
        listeners.iter().map(known).collect()
    }
}
