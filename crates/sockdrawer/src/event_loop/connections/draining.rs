//! The end of a connection that the control plane asks for: it is asked to end, told to, or cut.

use super::Connections;
use crate::behaviour::Callback;
use crate::clock::deadline;
use crate::event_loop::phase::Phase;
use crate::event_loop::slot::Flags;
use crate::event_loop::slots::Extra;
use crate::protocol::Closed;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sys::Errno;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A lingering connection with more input than this many reads is taken for one that goes on sending.
const LAST_READS: usize = 4;

impl Connections {
    /// Asks a connection to end. What it has received already is answered first.
    pub(super) fn drain(&mut self, slot: u32) {
        if !self.happens_now(slot, |connections, slot| connections.drain(slot)) {
            return;
        }
        let record = self.slots.at(slot);
        if record.flags.is(Phase::Connecting) {
            return self.connect_failed(slot, Errno::CONNABORTED);
        }
        if record.flags.is(Phase::Leased) {
            record.flags.set(Flags::DRAINING);
            // Also when it was asked before: the deadline may be nearer now.
            return self.slots.extra(slot).into_iter().for_each(Extra::drain_leased);
        }
        if !record.has_protocol() || record.flags.any(Flags::DRAINING) {
            return;
        }
        record.flags.set(Flags::DRAINING);
        self.readable(slot);
        self.ask_to_drain(slot);
    }

    /// Tells the protocol, once, when nothing partial was received and no job runs.
    #[inline]
    pub(super) fn ask_to_drain(&mut self, slot: u32) {
        if self.slots.at(slot).flags.any(Flags::DRAINING) {
            self.tell_draining(slot);
        }
    }

    fn tell_draining(&mut self, slot: u32) {
        let record = self.slots.at(slot);
        let asked = !record.flags.any(Flags::TOLD_DRAINING);
        // Partial input stays partial once the peer has finished.
        let whole = !record.flags.any(Flags::KEPT) || record.flags.any(Flags::PEER_ENDED);
        if asked && whole && record.is_free() {
            record.flags.set(Flags::TOLD_DRAINING);
            self.callback(slot, Callback::Draining);
        }
    }

    /// Tells the protocol, once, whatever it is doing.
    pub(super) fn tell_draining_now(&mut self, slot: u32) {
        if self.slots.at(slot).is_told_first() {
            self.callback(slot, Callback::Draining);
        }
    }

    /// Returns whether a protocol that was asked to end does so without a word to a peer whose request was begun.
    #[cold]
    pub(super) fn leaves_unanswered(&mut self, slot: u32) -> bool {
        let flags = self.slots.at(slot).flags;
        let is_begun = flags.any(Flags::KEPT) && !flags.any(Flags::PEER_ENDED);
        flags.any(Flags::TOLD_DRAINING)
            && (is_begun && self.scratch.bytes.is_empty() || self.generations.owes(self.slots.at(slot)))
    }

    /// Ends a connection: the protocol may say goodbye, all that was written is delivered, and what takes longer than `within`
    /// is reset.
    pub(super) fn purge(&mut self, slot: u32, within: Duration) {
        if !self.happens_now(slot, move |connections, slot| connections.purge(slot, within)) {
            return;
        }
        let record = self.slots.at(slot);
        if record.flags.is(Phase::Connecting) {
            return self.connect_failed(slot, Errno::CONNABORTED);
        }
        if self.slots.at(slot).is_told_first() {
            // A request that was begun is no reason for a reset here: it is the purge that does not wait for it.
            let answer = self.dispatch(slot, Callback::Draining);
            self.follow(slot, answer, false);
        }
        if self.slots.at(slot).flags.is(Phase::Leased) {
            self.slots.at(slot).flags.set(Flags::DRAINING);
            return self.slots.make_extra(slot).purge_leased(deadline(Instant::now(), within));
        }
        if self.slots.at(slot).flags.is(Phase::Relayed) {
            // No protocol says where the stream is whole.
            return self.cut(slot, Closed::Purged);
        }
        if self.slots.at(slot).has_protocol() {
            self.forget_protocol(slot, Closed::Purged);
            self.slots.at(slot).flags.set(Flags::PURGED);
            self.start_closing(slot, within, false);
        } else if self.slots.at(slot).flags.is(Phase::Flushing) {
            // The connection was closing by itself, with more patience; a lingering one has less already.
            self.slots.at(slot).state = 0;
            let now = Instant::now();
            self.timers.set(&mut self.slots, slot, deadline(now, within), now);
        }
    }

    /// Returns true where the connection is counted as cut now: its peer is owed something. Its protocol is gone then, and its socket is reset
    /// when it is closed, also by the death of this process.
    pub(super) fn decide_cut(&mut self, token: u64) -> bool {
        let Some(slot) = self.slots.find(token) else { return true };
        let flags = self.slots.at(slot).flags;
        if flags.is(Phase::Cut) {
            return true;
        }
        // The socket of these is not the loop's own, or has no peer.
        if flags.is(Phase::Leased) || flags.is(Phase::Connecting) || !self.owes(slot) {
            return false;
        }
        // It fails only where the connection is gone already.
        let _ = self.io.system.reset_on_close(self.slots.socket(slot));
        self.io.counters.cut().add(1);
        for endings in self.slots.extra(slot).into_iter().flat_map(|extra| &extra.endings) {
            endings.closing.fetch_add(1, SeqCst);
            endings.cut.fetch_add(1, SeqCst);
        }
        if flags.phase().protocol {
            self.forget_protocol(slot, Closed::Purged);
        } else {
            self.timers.clear(&mut self.slots, slot);
        }
        let flags = &mut self.slots.at(slot).flags;
        flags.clear(Flags::PURGED);
        flags.enter(Phase::Cut);
        true
    }

    /// Ends a connection now: in order where nothing is owed to its peer, else by a reset, which is the only way to tell the peer
    /// that something is missing.
    pub(in crate::event_loop) fn cut(&mut self, slot: u32, why: Closed) {
        if self.slots.at(slot).flags.is(Phase::Connecting) {
            return self.connect_failed(slot, crate::sys::Errno::CONNABORTED);
        }
        if self.slots.at(slot).flags.is(Phase::Cut) {
            return self.leave(slot, true);
        }
        let owes = self.owes(slot);
        let record = self.slots.at(slot);
        if owes {
            self.io.counters.cut().add(1);
        } else if record.has_protocol() || record.flags.any(Flags::PURGED) {
            self.io.counters.purged().add(1);
        }
        self.end(slot, why, owes);
    }

    /// Returns true where the peer still has something to come: output that the kernel has not taken, or an answer to what it has sent.
    /// Also true for a connection that was told as cut.
    fn owes(&mut self, slot: u32) -> bool {
        if self.slots.extra(slot).is_some_and(Extra::is_told) {
            return true;
        }
        let flags = self.slots.at(slot).flags;
        if flags.phase().owes
            || self.slots.other(slot).is_some()
            || flags.any(Flags::UNSENT.union(Flags::KEPT).union(Flags::WORKING).union(Flags::PAUSED))
        {
            return true;
        }
        if flags.is(Phase::Leased) {
            return self.slots.extra(slot).and_then(Extra::leased).is_some_and(|leased| leased.owes());
        }
        if self.generations.owes(self.slots.at(slot)) {
            return true;
        }
        if flags.any(Flags::PEER_ENDED) {
            return false;
        }
        let Some(socket) = &self.slots.at(slot).socket else { return false };
        // To close a socket with unread input is to reset it. All input of a lingering connection that is there is discarded first.
        let mut reads = if flags.is(Phase::Lingering) { 0..LAST_READS } else { 0..0 };
        let goes_on = reads.all(|_| matches!(self.io.system.receive(socket.as_fd(), &mut self.read.pages), Ok(1..)));
        goes_on && matches!(self.io.system.peek(socket.as_fd()), Ok(1..))
    }
}
