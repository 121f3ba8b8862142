//! Loops whose connections move from one process to another.

use super::Loops;
use crate::clock::deadline;
use crate::event_loop::EventLoop;
use crate::event_loop::connections::moving::{ListenerStates, Offered, Reading, SendOffer};
use crate::event_loop::inbox::{Inbox, Message};
use crate::ipc::messages::{Record, Restored, Yours};
use crate::ipc::shared_counters::SharedCounters;
use crate::limit::peer_counts::PeerCounts;
use crate::observe::Counts;
use crate::pool::control::{Control, Core};
use crate::pool::loops::LoopHandle;
use crate::pool::moving::{Holder, Moving};
use crate::protocol::State;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sync::{lock, mpsc};
use crate::sys::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop that does not answer within this time hangs: its connections would not move.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// A loop, or the thread of a connection, that begins nothing new for so long is offered later: what it does may take any time.
const BEGINS_WITHIN: Duration = Duration::from_millis(100);

impl Moving for Loops {
    fn shared_counters(&self) -> &SharedCounters {
        &self.shared.shared_counters
    }

    fn peer_counts(&self) -> Option<Arc<PeerCounts>> {
        self.shared.policy.get().peer_counts.clone()
    }

    fn counts(core: &Core<Loops>, control: &Control<Loops>) -> Counts {
        core.counts(control)
    }

    fn state(core: &Core<Loops>) -> State {
        core.own.shared.switch.current().state.clone()
    }

    /// Threads of connections are not asked: what they run may block for any time, and they accept nothing.
    fn turns(core: &Core<Loops>, within: Duration) -> bool {
        let inboxes: Vec<_> = lock(&core.control).running().map(|running| running.inbox.clone()).collect();
        let until = deadline(Instant::now(), within);
        // Over before that where each has answered, or is gone: one that is not wanted any more may end meanwhile.
        core.ask_until(until, &inboxes, |_| ());
        Instant::now() < until
    }

    fn holder(member: &LoopHandle) -> Arc<dyn Holder> {
        member.inbox.clone()
    }

    fn other_holders(core: &Core<Loops>) -> Vec<Arc<dyn Holder>> {
        let placed = core.own.shared.placement.iter().flat_map(|placement| placement.inboxes());
        placed.map(|inbox| inbox as Arc<dyn Holder>).collect()
    }

    fn plan_to_move(core: &Core<Loops>, reads: &State) -> (u64, BTreeMap<String, u64>) {
        let reads = reads.clone();
        // Connections of one that does not answer are counted in neither.
        let until = Instant::now() + ANSWERS_WITHIN;
        let of_loops = core.ask_until(until, &core.inboxes(), move |event_loop| event_loop.connections.plan_to_move(&reads));
        let (mut moves, mut stay) = (0, BTreeMap::new());
        for (_, (count, reasons)) in of_loops {
            moves += count;
            reasons.into_iter().for_each(|(why, count)| *stay.entry(why).or_default() += count);
        }
        (moves, stay)
    }

    fn freeze(core: &Core<Loops>, reads: &State) {
        let (reads, together) = (reads.clone(), Self::state(core).moves_together());
        if !together && core.own.peer_counts().is_none() {
            return;
        }
        let freeze = move |event_loop: &mut EventLoop| event_loop.connections.freeze_first(&reads, together);
        match together {
            true => core.ask(&core.inboxes(), freeze),
            // Nobody accepts meanwhile; a thread that does something else for so long reads no header either.
            false => core.ask_until(Instant::now() + BEGINS_WITHIN, &core.inboxes(), freeze),
        };
    }

    fn gathered(core: &Core<Loops>, last: bool) -> u64 {
        let heard = core.ask(&core.inboxes(), move |event_loop| event_loop.connections.gathered(last));
        heard.into_iter().map(|(_, heard)| heard).sum()
    }

    fn thaw(core: &Core<Loops>) {
        core.ask(&core.inboxes(), |event_loop| event_loop.connections.thaw_all());
    }

    fn begun(own: &super::State) -> u64 {
        own.dialer.as_ref().map_or(0, |dialer| dialer.begun())
    }

    fn begin_behind(own: &super::State, begun: u64) {
        own.dialer.iter().for_each(|dialer| dialer.begin_behind(begun));
    }
}

impl Holder for Inbox {
    fn offer(&self, reads: &Reading, from: u64, send: SendOffer) -> Result<Offered, Errno> {
        let (reads, begun) = (reads.clone(), Arc::new(AtomicBool::new(false)));
        let (begins, (answers, answer)) = (begun.clone(), mpsc::channel());
        let command = Box::new(move |event_loop: &mut EventLoop| {
            if !begins.swap(true, SeqCst) {
                let _ = answers.send(event_loop.connections.offer_next(&reads, from as u32, send));
            }
        });
        let none = Ok(Offered { count: 0, next: None });
        if self.put(Message::Command(command)).is_err() {
            return none;
        }
        match answer.recv_timeout(BEGINS_WITHIN) {
            Err(mpsc::RecvTimeoutError::Timeout) if !begun.swap(true, SeqCst) => Err(Errno::BUSY),
            // What has moved must be known for sure.
            Err(mpsc::RecvTimeoutError::Timeout) => answer.recv().unwrap_or(none),
            Err(mpsc::RecvTimeoutError::Disconnected) => none,
            Ok(offered) => offered,
        }
    }

    fn let_go(&self, restored: Vec<u64>) -> Yours {
        ask(self, move |event_loop| event_loop.connections.let_go(&restored)).unwrap_or_default()
    }

    fn restore(&self, records: Vec<Record>, sockets: Vec<OwnedFd>) -> Option<Restored> {
        ask(self, move |event_loop| event_loop.connections.restore_arrivals(records, sockets))
    }

    fn seat(&self, yours: Yours, listeners: &ListenerStates, together: bool) -> Option<Vec<Option<String>>> {
        let listeners = listeners.clone();
        ask(self, move |event_loop| event_loop.seat_arrivals(yours, &listeners, together))
    }

    fn release(&self) {
        ask(self, |event_loop| event_loop.connections.release());
    }
}

/// Asks one loop, however long it takes: what moves must be known for sure. None: it is gone.
fn ask<T: Send + 'static>(inbox: &Inbox, question: impl FnOnce(&mut EventLoop) -> T + Send + 'static) -> Option<T> {
    let (answers, answer) = mpsc::channel();
    let command = Box::new(move |event_loop: &mut EventLoop| _ = answers.send(question(event_loop)));
    inbox.put(Message::Command(command)).ok()?;
    answer.recv().ok()
}
