//! Loops whose connections move from one process to another.

use super::Loops;
use super::apply::ASK_WITHIN;
use super::{apply, status};
use crate::event_loop::EventLoop;
use crate::event_loop::connections::moving::{Offered, Reading, SendOffer};
use crate::event_loop::connections::{arriving, moving};
use crate::event_loop::inbox::{Inbox, Message};
use crate::gather::{ReplyTo, gather};
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::peer_counts::PeerCounts;
use crate::observe::Counts;
use crate::pool::control::{Control, Core};
use crate::pool::loops::LoopHandle;
use crate::pool::moving::{BEGINS_WITHIN, Holder, Moving};
use crate::pool::request::{Reply, Request};
use crate::protocol::State;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sys::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Moving for Loops {
    const ANSWERS_WITHIN: Duration = ASK_WITHIN;
    const PLANS_WITHIN: Duration = Duration::from_secs(1);

    fn shared_counters(&self) -> &SharedCounters {
        &self.shared.shared_counters
    }

    fn peer_counts(&self) -> Option<Arc<PeerCounts>> {
        self.shared.policy.get().peer_counts.clone()
    }

    fn counts(core: &Core<Loops>, control: &Control<Loops>) -> Counts {
        status::counts(core, control)
    }

    fn state(core: &Core<Loops>) -> State {
        core.own.shared.switch.current().state.clone()
    }

    fn holder(member: &LoopHandle) -> Arc<dyn Holder> {
        member.inbox.clone()
    }

    fn concerned(core: &Core<Loops>, request: &Request) -> Vec<Arc<dyn Holder>> {
        let inboxes = match request {
            // Threads of connections are not asked: what they run may block for any time, and they accept nothing.
            Request::Turn(_) => apply::inboxes_of_loops(core),
            Request::Freeze { together: false, .. } if core.own.peer_counts().is_none() => Vec::new(),
            _ => apply::inboxes(core),
        };
        inboxes.into_iter().map(|inbox| inbox as Arc<dyn Holder>).collect()
    }

    fn begun(own: &super::LoopsState) -> u64 {
        own.dialer.as_ref().map_or(0, |dialer| dialer.begun())
    }

    fn begin_behind(own: &super::LoopsState, begun: u64) {
        own.dialer.iter().for_each(|dialer| dialer.begin_behind(begun));
    }
}

impl Holder for Inbox {
    fn ask(&self, request: Request, sockets: Vec<OwnedFd>, reply: ReplyTo<Reply>) {
        let command = move |event_loop: &mut EventLoop| reply.answer(answer(event_loop, request, sockets));
        let _ = self.put(Message::Command(Box::new(command)));
    }

    fn offer(&self, reads: &Reading, from: u64, send: SendOffer) -> Result<Offered, Errno> {
        let (reads, begun) = (reads.clone(), Arc::new(AtomicBool::new(false)));
        let begins = begun.clone();
        let offer = move |event_loop: &mut EventLoop, reply: ReplyTo<_>| {
            if !begins.swap(true, SeqCst) {
                reply.answer(moving::offer_next(&mut event_loop.connections, &reads, from as u32, send));
            }
        };
        let mut answers = gather([offer], Instant::now() + BEGINS_WITHIN, |offer, reply| {
            let _ = self.put(Message::Command(Box::new(move |event_loop| offer(event_loop, reply))));
        });
        let offered = match answers.next() {
            Some((_, offered)) => offered,
            None if !begun.swap(true, SeqCst) => return Err(Errno::BUSY),
            // Once begun, the offer is waited for without a limit: it must be known for sure which connections have moved.
            None => answers.surely(),
        };
        offered.unwrap_or(Ok(Offered::default()))
    }
}

/// Returns what a loop answers.
fn answer(event_loop: &mut EventLoop, request: Request, sockets: Vec<OwnedFd>) -> Reply {
    let connections = &mut event_loop.connections;
    match request {
        Request::Turn(_) => Reply::Done,
        Request::Plan(reads) => {
            let (moves, stay) = moving::plan_to_move(&mut connections.streams, &reads);
            Reply::Plan(moves, stay)
        }
        Request::Freeze { reads, together } => {
            moving::freeze_first(connections, &reads, together);
            Reply::Done
        }
        Request::Heard { last } => Reply::Heard(moving::gathered(connections, last)),
        Request::Thaw { stays } => {
            moving::thaw_all(connections, stays);
            Reply::Done
        }
        Request::LetGo(restored) => Reply::LetGo(moving::let_go(connections, &restored)),
        Request::Restore(records) => Reply::Restored(arriving::restore_arrivals(connections, records, sockets)),
        Request::Seat { yours, listeners, together } => {
            Reply::Seated(event_loop.intake().seat_arrivals(yours, &listeners, together))
        }
        Request::Release => {
            arriving::release(connections);
            Reply::Done
        }
    }
}
