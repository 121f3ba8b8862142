//! The state of a connection under test, as its loop has it of a real one.

use super::Bounds;
use super::inbox::TestInbox;
use crate::protocol::{Asks, Connect, ConnectionId, Handle, Output, Peer, Post, Receiving, Timer};
use std::sync::Arc;
use std::time::Instant;

/// The state of the connection that outlives the service that runs it.
pub(super) struct TestConnection {
    pub(super) peer: Peer,
    pub(super) limits: Bounds,
    pub(super) reports: Vec<String>,
    pub(super) now: Instant,
    pub(super) due: Option<Instant>,
    /// Input that was received and not taken.
    pub(super) kept: Vec<u8>,
    /// Number of the bytes kept, from the first, that hold no line break.
    pub(super) searched: usize,
    /// The input in `kept` has a part that was not offered since `received` was last held back.
    pub(super) fresh: bool,
    pub(super) peer_ended: bool,
    pub(super) told_ended: bool,
    pub(super) waiting: bool,
    /// Notes of the protocol found no room.
    pub(super) held: bool,
    pub(super) wake_below: Option<usize>,
    pub(super) connects: Vec<Connect>,
    pub(super) relays_to: Option<Handle>,
    pub(super) backlog: Vec<u8>,
    pub(super) sent: Vec<u8>,
    pub(super) blocked: bool,
    pub(super) above: bool,
    pub(super) finished_sending: bool,
    pub(super) drain_asked: bool,
    pub(super) told_draining: bool,
    pub(super) inbox: Arc<TestInbox>,
    pub(super) post: Arc<dyn Post>,
    pub(super) id: ConnectionId,
    pub(super) generation: u32,
}

impl TestConnection {
    pub(super) fn new(peer: Peer, limits: Bounds) -> TestConnection {
        let inbox = Arc::new(TestInbox::new(limits.inbox));
        TestConnection {
            peer,
            limits,
            reports: Vec::new(),
            now: Instant::now(),
            due: None,
            kept: Vec::new(),
            searched: 0,
            fresh: false,
            peer_ended: false,
            told_ended: false,
            waiting: false,
            held: false,
            wake_below: None,
            connects: Vec::new(),
            relays_to: None,
            backlog: Vec::new(),
            sent: Vec::new(),
            blocked: false,
            above: false,
            finished_sending: false,
            drain_asked: false,
            told_draining: false,
            post: inbox.clone(),
            inbox,
            id: ConnectionId(1),
            generation: 1,
        }
    }

    /// Does what a callback asked for beside its step.
    pub(super) fn heed(&mut self, out: &mut Output, timer: Timer) {
        let asks = std::mem::take(&mut out.asks);
        self.waiting = asks.pauses().unwrap_or(self.waiting);
        self.held |= asks.has(Asks::HOLD);
        if asks.has(Asks::WAKE) {
            self.wake_below = Some(asks.wake_below as usize);
        }
        if let Some(said) = out.said.take() {
            said.tag.into_iter().for_each(|tag| self.inbox.name(tag));
            self.reports.extend(said.report.map(|report| report.message));
            self.connects.extend(said.connects);
            if let Some(real) = said.learned.and_then(|learned| learned.real) {
                self.peer = self.peer.with_remote(real);
            }
        }
        match timer {
            Timer::Keep => {}
            Timer::Off => self.due = None,
            Timer::At(at) => self.due = Some(at),
        }
    }

    /// Returns true, once, where there is room by now for what the protocol waits to write.
    pub(super) fn takes_wake(&mut self) -> bool {
        self.wake_below.take_if(|below| self.backlog.len() <= *below).is_some()
    }

    /// Returns true where input waits until the peer has read.
    pub(super) fn is_paused(&self, receiving: Receiving) -> bool {
        self.above && receiving == Receiving::UntilFull
    }

    /// Returns true where no partial message was received. A part that the peer will never complete does not count.
    pub(super) fn is_quiet(&self) -> bool {
        self.kept.is_empty() || self.told_ended
    }

    /// Returns true where the input that `received` left is more than the first part of a message may be. Input that the protocol did not take because
    /// it was held back is offered again.
    pub(super) fn keeps_too_much(&mut self, busy: bool, receiving: Receiving) -> bool {
        let held_back = busy || self.waiting || self.held || self.is_paused(receiving);
        self.fresh |= held_back && !self.kept.is_empty();
        !held_back && self.kept.len() > self.limits.max_partial
    }
}
